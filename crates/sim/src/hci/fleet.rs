//! Rancher and fleet as far as charts go. Rancher makes a bundle of every chart and copies onto the chart what is said of the bundle; fleet
//! rolls out bundles that are not paused, and says which of their generations it has looked at. What a chart is made of is not simulated, but for
//! the Deployment of Harvester itself where there is one. Where somebody applies charts for real, a bundle is what they say of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use afloat_operator::snapshot::hci::served;
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::{Value, json};

use super::takes::Takes;
use super::{Charts, SYSTEM, told};
use crate::actor::{Actor, Decision, Turn};
use crate::object::{Key, Kind, ObjectRef};
use crate::queue::Queue;
use crate::request::Request;
use crate::view::{Change, View};
use afloat_core::hci::view::HciKind;

const BUNDLE: Kind = Kind::Hci(HciKind::Bundle);
const CHART: Kind = Kind::Hci(HciKind::Chart);
const PREFIX: &str = "mcc-";
const TAKES: Duration = Duration::from_mins(1);
/// How long charts are left alone before they are applied for real, the first time and again.
const SETTLES: Duration = Duration::from_millis(500);

/// Whoever brings charts to their versions.
#[derive(Debug, Default)]
pub struct Fleet {
    takes: Takes,
}

impl Actor for Fleet {
    fn name(&self) -> &'static str {
        "fleet"
    }

    fn observe(&mut self, change: &Change, _: &View, _: Timestamp, queue: &mut Queue) {
        let Some(reference) = change.reference() else { return };
        match reference.kind {
            CHART => queue.add(reference),
            BUNDLE => {
                let chart = reference.key.name.trim_start_matches(PREFIX);
                queue.add(ObjectRef::new(CHART, Key::new(reference.key.namespace.clone(), chart)));
            }
            _ => {}
        }
    }

    fn decide(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        let Some(chart) = turn.view.one_of(HciKind::Chart, &item.key) else {
            return Decision::nothing();
        };
        let name = format!("{PREFIX}{}", item.key.name);
        let wanted = spec_of(chart);
        let namespace = item.key.namespace.clone();
        let Some(bundle) = turn.view.one_of(HciKind::Bundle, &Key::new(namespace, &*name)) else {
            let body = json!({ "metadata": { "name": name }, "spec": wanted });
            return Decision::request(Request::create(BUNDLE, &item.key.namespace, body));
        };
        if !holds(&bundle.data["spec"], &wanted) {
            self.takes.forget(item);
            return Decision::request(Request::patch(BUNDLE, &bundle.metadata, json!({ "spec": wanted })));
        }
        if is_observed(bundle) {
            let said = &bundle.data["status"];
            let known = holds(&chart.data["status"], said);
            let copied = (!known).then(|| told(HciKind::Chart, &chart.metadata, said));
            return Decision::requests(copied.into_iter().collect());
        }
        let looked_at = told(HciKind::Bundle, &bundle.metadata, &status(bundle, &Ok(())));
        if is_paused(bundle) {
            return Decision::request(looked_at);
        }
        if let Err(due) = self.takes.done(item, TAKES, turn) {
            return Decision::at(due);
        }
        let version = chart.data["spec"]["version"].as_str().unwrap_or_default();
        // Of what a chart is made of, only the Deployment of Harvester itself is looked at.
        let server = turn.view.deployments.get(&Key::new(SYSTEM, &item.key.name));
        let server = server.map(|server| {
            let container =
                json!({ "name": item.key.name, "image": format!("example.org/{}:v{version}", item.key.name) });
            let change = json!({ "spec": { "template": { "spec": { "containers": [container] } } } });
            Request::patch(Kind::Deployment, &server.metadata, change)
        });
        Decision::requests(server.into_iter().chain([looked_at]).collect())
    }
}

/// What Rancher makes of a chart, without the files that it is made of.
fn spec_of(chart: &DynamicObject) -> Value {
    let spec = &chart.data["spec"];
    let helm = json!({ "releaseName": spec["releaseName"], "version": spec["version"], "values": spec["values"] });
    json!({
        "paused": spec["paused"].as_bool().unwrap_or_default(), "defaultNamespace": spec["defaultNamespace"], "helm": helm,
        "resources": [],
    })
}

/// Whether all that is wanted is there, whatever else is.
fn holds(there: &Value, wanted: &Value) -> bool {
    match wanted {
        Value::Object(wanted) => wanted.iter().all(|(key, wanted)| holds(&there[key.as_str()], wanted)),
        wanted => there == wanted,
    }
}

fn is_paused(bundle: &DynamicObject) -> bool {
    bundle.data["spec"]["paused"] == true
}

fn is_observed(bundle: &DynamicObject) -> bool {
    bundle.data["status"]["observedGeneration"].as_i64() == bundle.metadata.generation
}

fn status(bundle: &DynamicObject, rolled_out: &Result<(), String>) -> Value {
    let ready = match rolled_out {
        Ok(()) => json!({ "type": "Ready", "status": "True" }),
        Err(why) => json!({ "type": "Ready", "status": "False", "reason": "Error", "message": why }),
    };
    json!({ "observedGeneration": bundle.metadata.generation, "conditions": [ready] })
}

/// Has charts rolled out until it is dropped, one at a time; one that fails is tried again, since it may count on what another brings.
pub(super) async fn for_real(client: kube::Client, charts: Arc<dyn Charts>) {
    let rancher = Rancher {
        charts: served(HciKind::Chart).api(&client),
        bundles: served(HciKind::Bundle).api(&client),
    };
    let changes = watcher(rancher.charts.clone(), watcher::Config::default()).default_backoff();
    let mut changes = std::pin::pin!(changes);
    let mut open = BTreeSet::new();
    loop {
        tokio::select! {
            change = changes.next() => match change {
                Some(Ok(watcher::Event::Apply(chart) | watcher::Event::InitApply(chart))) => {
                    open.extend(chart.metadata.name);
                }
                Some(_) => {}
                None => return,
            },
            () = tokio::time::sleep(SETTLES), if !open.is_empty() => {
                for name in std::mem::take(&mut open) {
                    if let Err(problem) = rancher.roll_out(&*charts, &name).await {
                        tracing::warn!(chart = name, problem, "a chart is not rolled out");
                        open.insert(name);
                    }
                }
            }
        }
    }
}

struct Rancher {
    charts: Api<DynamicObject>,
    bundles: Api<DynamicObject>,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Rancher {
    async fn roll_out(&self, charts: &dyn Charts, name: &str) -> Result<(), String> {
        let Some(chart) = self.charts.get_opt(name).await.map_err(text)? else {
            return Ok(());
        };
        let bundle = self.hand_over(name, &chart).await?;
        let is_ready = bundle.data["status"]["conditions"][0]["status"] == "True";
        if is_observed(&bundle) && (is_ready || is_paused(&bundle)) {
            return Ok(());
        }
        let done = if is_paused(&bundle) {
            Ok(())
        } else {
            charts.roll_out(&chart.data).await
        };
        let (params, change) = (PatchParams::default(), json!({ "status": status(&bundle, &done) }));
        let said = Patch::Merge(&change);
        let of_bundle = format!("{PREFIX}{name}");
        self.bundles
            .patch_status(&of_bundle, &params, &said)
            .await
            .map_err(text)?;
        self.charts.patch_status(name, &params, &said).await.map_err(text)?;
        done
    }

    async fn hand_over(&self, name: &str, chart: &DynamicObject) -> Result<DynamicObject, String> {
        let (of_bundle, wanted) = (format!("{PREFIX}{name}"), spec_of(chart));
        match self.bundles.get_opt(&of_bundle).await.map_err(text)? {
            None => {
                let bundle = DynamicObject::new(&of_bundle, &served(HciKind::Bundle).resource);
                let bundle = bundle.data(json!({ "spec": wanted }));
                self.bundles.create(&PostParams::default(), &bundle).await.map_err(text)
            }
            Some(bundle) if holds(&bundle.data["spec"], &wanted) => Ok(bundle),
            Some(_) => {
                let (params, change) = (PatchParams::default(), json!({ "spec": wanted }));
                let change = Patch::Merge(&change);
                self.bundles.patch(&of_bundle, &params, &change).await.map_err(text)
            }
        }
    }
}
