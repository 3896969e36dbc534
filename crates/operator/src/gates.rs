//! Gates of a person's own: CEL on any objects, judged when these have changed while an upgrade is under way ([`watches`]). A gate that cannot be judged is closed, and
//! says why; one that selects no object has nothing against another node.

pub mod watches;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use afloat_api::ClusterUpgrade;
use afloat_api::clusterupgrade::Gate;
use afloat_core::objects::key_of;
use afloat_core::view::{GateState, Key, View, Wish};
use kube::api::ListParams;
use kube::core::{DynamicObject, GroupVersionKind, ResourceExt as _};
use kube::discovery::{ApiCapabilities, ApiResource, Scope, oneshot};
use kube::{Api, Client};
use kube_cel::KubeCelExt as _;
use kube_cel::cel::objects::{Key as CelKey, Map};
use kube_cel::cel::{Context, Program, Value as CelValue};
use serde_json::Value;

use crate::clients::bounded;

/// Objects asked for at once.
const PAGE: u32 = 500;

/// What all gates of all upgrades under way say.
pub type GateStates = BTreeMap<(Key, Arc<str>), GateState>;

/// What a look at gates came to.
#[derive(Debug, Default)]
pub struct Judgement {
    pub states: GateStates,
    /// One of them could not be judged: nothing that happens to its objects tells when it can be.
    pub unsure: bool,
}

/// The gates that have to be judged now: those of upgrades that are not over, and of those that were and are to be undone on a
/// node.
pub fn wanted(view: &View) -> Vec<(Key, Gate)> {
    let undoing = undoing_is_asked_for(view);
    let upgrades = view.upgrades.values();
    upgrades
        .filter(|upgrade| undoing || under_way(upgrade))
        .flat_map(|upgrade| {
            let key = key_of(&upgrade.metadata);
            upgrade.spec.gates.iter().map(move |gate| (key.clone(), gate.clone()))
        })
        .collect()
}

/// Whether something of the upgrade is still to come.
pub fn under_way(upgrade: &ClusterUpgrade) -> bool {
    upgrade
        .status
        .as_ref()
        .is_none_or(|status| status.finished_at.is_none())
}

/// Whether a person wants the upgrade of a node undone, which may be after its end.
pub fn undoing_is_asked_for(view: &View) -> bool {
    view.nodes.values().any(|node| node.wish == Some(Wish::Rollback))
}

/// Judges gates, each by a fresh list.
pub async fn judge(client: &Client, gates: Vec<(Key, Gate)>) -> Judgement {
    let mut judgement = Judgement::default();
    for (upgrade, gate) in gates {
        let state = judge_one(client, &gate).await.unwrap_or_else(|problem| {
            judgement.unsure = true;
            GateState {
                open: false,
                message: Arc::from(format!("gate {} cannot be judged: {problem}", gate.name)),
            }
        });
        judgement.states.insert((upgrade, Arc::from(gate.name.as_str())), state);
    }
    judgement
}

async fn judge_one(client: &Client, gate: &Gate) -> Result<GateState, String> {
    let program = Program::compile(&gate.expression).map_err(|error| format!("its expression is not CEL: {error}"))?;
    let (resource, capabilities) = find(client, gate).await?;
    let api: Api<DynamicObject> = api(client, gate, &resource, &capabilities);
    let mut params = ListParams::default().limit(PAGE);
    params.label_selector.clone_from(&gate.label_selector);
    loop {
        let page = bounded(api.list(&params)).await.map_err(|error| error.to_string())?;
        for object in &page.items {
            if let Some(message) = objection(&program, gate, object) {
                return Ok(GateState {
                    open: false,
                    message: Arc::from(message),
                });
            }
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => break,
        }
    }
    Ok(GateState {
        open: true,
        message: Arc::from(""),
    })
}

async fn find(client: &Client, gate: &Gate) -> Result<(ApiResource, ApiCapabilities), String> {
    let (group, version) = gate.api_version.split_once('/').unwrap_or(("", &gate.api_version));
    let kind = GroupVersionKind::gvk(group, version, &gate.kind);
    bounded(oneshot::pinned_kind(client, &kind))
        .await
        .map_err(|error| format!("the cluster has no {} of {} ({error})", gate.kind, gate.api_version))
}

fn api<K>(client: &Client, gate: &Gate, resource: &ApiResource, capabilities: &ApiCapabilities) -> Api<K>
where
    K: kube::Resource<DynamicType = ApiResource, Scope = kube::core::DynamicResourceScope>,
{
    match (&gate.namespace, &capabilities.scope) {
        (Some(namespace), Scope::Namespaced) => Api::namespaced_with(client.clone(), namespace, resource),
        _ => Api::all_with(client.clone(), resource),
    }
}

/// What an object has against another node; nothing where the expression is true for it.
fn objection(program: &Program, gate: &Gate, object: &DynamicObject) -> Option<String> {
    let whole = serde_json::to_value(object).unwrap_or_default();
    let mut context = Context::default().with_all();
    context.add_variable_from_value("object", to_cel(&whole));
    let name = match object.namespace() {
        Some(namespace) => format!("{}/{namespace}/{}", gate.kind, object.name_any()),
        None => format!("{}/{}", gate.kind, object.name_any()),
    };
    match program.execute(&context) {
        Ok(CelValue::Bool(true)) => None,
        Ok(CelValue::Bool(false)) => Some(format!("gate {}: {name} does not meet {}", gate.name, gate.expression)),
        Ok(_) => Some(format!(
            "gate {}: its expression is neither true nor false for {name}",
            gate.name
        )),
        Err(error) => Some(format!("gate {}: its expression fails for {name}: {error}", gate.name)),
    }
}

/// Whole numbers are `int`, as CEL has them in the API server; serde would make positive ones `uint`, which equal no literal.
fn to_cel(value: &Value) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(flag) => CelValue::Bool(*flag),
        Value::Number(number) => number
            .as_i64()
            .map_or_else(|| CelValue::Float(number.as_f64().unwrap_or_default()), CelValue::Int),
        Value::String(text) => CelValue::String(Arc::new(text.clone())),
        Value::Array(items) => CelValue::List(Arc::new(items.iter().map(to_cel).collect())),
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| (CelKey::String(Arc::new(name.clone())), to_cel(value)));
            CelValue::Map(Map {
                map: Arc::new(fields.collect::<HashMap<_, _>>()),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use afloat_apisim::{ApiServer, Options};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::PostParams;
    use serde_json::json;

    fn gate(kind: &str, selector: Option<&str>, expression: &str) -> Gate {
        Gate {
            name: "mine".to_owned(),
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: Some("default".to_owned()),
            label_selector: selector.map(str::to_owned),
            expression: expression.to_owned(),
        }
    }

    #[tokio::test]
    async fn a_gate_is_open_when_every_selected_object_meets_it() {
        let client = ApiServer::new(Options::default()).client();
        let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
        for (name, app, data) in [("a", "shop", "yes"), ("b", "shop", "no"), ("c", "bank", "yes")] {
            let map = json!({"metadata": {"name": name, "labels": {"app": app}}, "data": {"ready": data}});
            api.create(&PostParams::default(), &serde_json::from_value(map).unwrap())
                .await
                .unwrap();
        }
        let ready = "object.data.ready == 'yes'";
        for (gate, open, says) in [
            (gate("ConfigMap", Some("app=bank"), ready), true, ""),
            (gate("ConfigMap", Some("app=none"), ready), true, ""),
            (
                gate("ConfigMap", Some("app=shop"), ready),
                false,
                "ConfigMap/default/b does not meet",
            ),
            (
                gate("ConfigMap", Some("app=bank"), "object.data.lost == 'x'"),
                false,
                "fails for ConfigMap/default/c",
            ),
            (
                gate("ConfigMap", Some("app=bank"), "1 + 1"),
                false,
                "neither true nor false",
            ),
            (gate("ConfigMap", Some("app=bank"), "object.("), false, "not CEL"),
            (gate("Wish", None, ready), false, "the cluster has no Wish of v1"),
        ] {
            let key = Key::new("afloat", "up");
            let judgement = judge(&client, vec![(key.clone(), gate.clone())]).await;
            let state = &judgement.states[&(key, Arc::from("mine"))];
            assert_eq!(state.open, open, "{}: {}", gate.expression, state.message);
            assert!(state.message.contains(says), "{}", state.message);
            assert_eq!(judgement.unsure, state.message.contains("cannot be judged"));
        }
    }

    #[test]
    fn numbers_compare_with_literals() {
        let program = Program::compile("object.status.ready == 3 && object.status.ready > 2").unwrap();
        let mut context = Context::default().with_all();
        context.add_variable_from_value("object", to_cel(&json!({"status": {"ready": 3}})));
        assert!(matches!(program.execute(&context), Ok(CelValue::Bool(true))));
    }
}
