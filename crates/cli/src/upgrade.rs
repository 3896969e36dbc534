//! `afloat upgrade`: looks, says what it found, asks once, writes one ClusterUpgrade and follows it. The work itself is the
//! operator's, also when nobody follows.

use crate::args::people::{Form, Upgrade};
use crate::board::{Board, end, over, phase_of};
use crate::cluster::{Cluster, Live, Scope, because_of};
use crate::follow::{self, Manner, WhenHeld};
use crate::preflight;
use crate::problem::{Code, Problem};
use crate::screen::{Screen, consent, interrupted};
use crate::terminal;
use afloat_api::clusterupgrade::{
    Budget, Bundle, DrainOption, Finding, NodeUpgradeMode, NodeUpgradeOption, NodeUpgradeStrategy, Phase,
};
use afloat_api::{ClusterUpgrade, ClusterUpgradeSpec, Reason};
use afloat_core::KubernetesVersion;
use afloat_core::plan::{self, StageKind};
use afloat_core::settings::Settings;
use afloat_core::view::{Key, View};
use afloat_core::words;
use afloat_operator::clients::{CallError, bounded};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use serde::Serialize;
use serde_json::json;
use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

/// Who owns what a person wrote on the command line.
pub const FIELD_MANAGER: &str = "afloat-cli";

pub async fn run(arguments: Upgrade) -> Result<Code, Problem> {
    let cluster = Cluster::connect(&arguments.place).await?;
    upgrade(&cluster, &arguments, &mut Screen::stdout(), interrupted()).await
}

pub async fn upgrade(
    cluster: &Cluster,
    arguments: &Upgrade,
    screen: &mut Screen,
    stop: impl Future<Output = ()>,
) -> Result<Code, Problem> {
    let spec = spec(arguments);
    let begun = Instant::now();
    let live = cluster.look(Scope::Everything).await?;
    let chosen = choose(live.view(), arguments)?;
    let key = chosen.key();
    match &chosen {
        Chosen::Over(key) => return finished(&live, key, arguments, screen),
        // Who only asks for the version again wants to follow, not to take settings back.
        Chosen::Open(..) if bare(&spec) => {}
        Chosen::Open(..) | Chosen::Fresh(_) => {
            let spec = match &chosen {
                // As it is, with who wrote what: a view has no room for that.
                Chosen::Open(..) => with_what_was_said(&there(cluster, &key).await?, &spec),
                _ => spec,
            };
            let whole = match &chosen {
                // With what others have written too, as the API server puts it together.
                Chosen::Open(..) => apply(cluster, &key, &spec, true).await?.spec,
                _ => spec.clone(),
            };
            let looked = Look::new(live.view(), &chosen, &whole)?;
            if let Some(code) = looked.speak(arguments, screen, begun, &chosen)? {
                return Ok(code);
            }
            let applied = apply(cluster, &key, &spec, arguments.dry_run).await?;
            if arguments.dry_run {
                return dry(&applied, arguments, screen, &key);
            }
            if arguments.output.is_none() && matches!(chosen, Chosen::Fresh(_)) {
                screen.say(&format!("  clusterupgrade/{} created in {}", key.name, key.namespace));
            }
        }
    }
    drop(live);
    if arguments.no_wait {
        return print_object(cluster, &key, arguments).await.map(|()| {
            if arguments.output.is_none() {
                screen.say(&format!("  Follow it: afloat status {} --watch", key.name));
            }
            Code::Done
        });
    }
    let mut live = cluster.look(Scope::Upgrades).await?;
    let manner = Manner {
        limit: arguments.timeout,
        when_held: WhenHeld::Ends,
        wide: false,
        silent: arguments.output.is_some(),
    };
    let code = follow::follow(&mut live, &key, screen, manner, stop).await?;
    print_object(cluster, &key, arguments).await?;
    Ok(code)
}

/// Which object is meant.
enum Chosen {
    /// Not there yet.
    Fresh(Key),
    /// There, and not over.
    Open(Key, Arc<ClusterUpgrade>),
    /// At the target already.
    Over(Key),
}

impl Chosen {
    fn key(&self) -> Key {
        match self {
            Self::Fresh(key) | Self::Open(key, _) | Self::Over(key) => key.clone(),
        }
    }
}

fn choose(view: &View, arguments: &Upgrade) -> Result<Chosen, Problem> {
    let to = arguments.to.to_string();
    let Some(name) = &arguments.name else {
        let mut own = view.upgrades.iter().filter(|(key, _)| key.namespace == view.home);
        let open = own.find(|(_, upgrade)| upgrade.spec.kubernetes_version == to && !over(phase_of(upgrade)));
        if let Some((key, upgrade)) = open {
            return Ok(Chosen::Open(key.clone(), Arc::clone(upgrade)));
        }
        return Ok(Chosen::Fresh(free_name(view, &arguments.to)));
    };
    let key = Key::new(&view.home, name);
    let Some(upgrade) = view.upgrades.get(&key) else {
        return Ok(Chosen::Fresh(key));
    };
    match phase_of(upgrade) {
        _ if upgrade.spec.kubernetes_version != to => {
            let other = &upgrade.spec.kubernetes_version;
            Err(
                Problem::new(Code::BadUsage, format!("{name} is an upgrade to {other}, not to {to}"))
                    .because("the version of an upgrade cannot change: it is a record of what was done")
                    .help("leave --name out, or choose another one"),
            )
        }
        Phase::Succeeded => Ok(Chosen::Over(key)),
        phase @ (Phase::Failed | Phase::Aborted) => Err(Problem::new(
            Code::BadUsage,
            format!("{name} is over ({phase}) and cannot begin again"),
        )
        .help(format!(
            "to go on with the nodes that are not there yet: afloat upgrade --to {to}"
        ))
        .help(format!("to see why it ended: afloat status {name}"))),
        _ => Ok(Chosen::Open(key, Arc::clone(upgrade))),
    }
}

/// `to-v1-36-3`, and `to-v1-36-3-2` after that one has ended.
fn free_name(view: &View, to: &KubernetesVersion) -> Key {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    let base: String = format!("to-{to}").chars().map(plain).take(56).collect();
    let numbered = (2_u32..).map(|number| format!("{base}-{number}"));
    let mut names = std::iter::once(base.clone())
        .chain(numbered)
        .map(|name| Key::new(&view.home, &name));
    names
        .find(|key| !view.upgrades.contains_key(key))
        .unwrap_or_else(|| Key::new(&view.home, &base))
}

async fn there(cluster: &Cluster, key: &Key) -> Result<ClusterUpgrade, Problem> {
    let read = bounded(cluster.upgrades().get(&key.name)).await;
    read.map_err(|error| Problem::new(Code::Failed, format!("clusterupgrade/{} cannot be read", key.name)).root(&error))
}

/// Nothing but the version.
fn bare(spec: &ClusterUpgradeSpec) -> bool {
    *spec
        == ClusterUpgradeSpec {
            kubernetes_version: spec.kubernetes_version.clone(),
            ..ClusterUpgradeSpec::default()
        }
}

/// The settings of an upgrade that is there, with those that are asked for now. What was written on a command line before stays: an apply
/// takes back whatever its writer leaves out. What others have written is theirs.
fn with_what_was_said(upgrade: &ClusterUpgrade, asked: &ClusterUpgradeSpec) -> ClusterUpgradeSpec {
    let own = upgrade.metadata.managed_fields.iter().flatten();
    let own = own
        .filter(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER) && entry.operation.as_deref() == Some("Apply"));
    let fields: Vec<_> = own.filter_map(|entry| entry.fields_v1.as_ref()).collect();
    let said = |field: &str| fields.iter().any(|fields| !fields.0["f:spec"][field].is_null());
    let (before, now) = (&upgrade.spec, asked.clone());
    let drain = |drain: DrainOption, before: &DrainOption| DrainOption {
        evict_unmanaged_pods: drain.evict_unmanaged_pods.or(before.evict_unmanaged_pods),
        delete_empty_dir_data: drain.delete_empty_dir_data.or(before.delete_empty_dir_data),
        ..drain
    };
    let budget = |budget: Budget, before: &Budget| Budget {
        max_unavailable: budget.max_unavailable.or_else(|| before.max_unavailable.clone()),
        max_failed: budget.max_failed.or(before.max_failed),
        ..budget
    };
    let mut accept = now.accept;
    if said("f:accept") {
        let missing = before.accept.iter().filter(|word| !accept.contains(word));
        accept.extend(missing.cloned().collect::<Vec<_>>());
    }
    ClusterUpgradeSpec {
        bundle: now
            .bundle
            .or_else(|| before.bundle.clone().filter(|_| said("f:bundle"))),
        etcd_version: now
            .etcd_version
            .or_else(|| before.etcd_version.clone().filter(|_| said("f:etcdVersion"))),
        core_dns_version: now
            .core_dns_version
            .or_else(|| before.core_dns_version.clone().filter(|_| said("f:coreDNSVersion"))),
        node_upgrade_option: now.node_upgrade_option.or_else(|| {
            before
                .node_upgrade_option
                .clone()
                .filter(|_| said("f:nodeUpgradeOption"))
        }),
        drain: match before.drain.as_ref().filter(|_| said("f:drain")) {
            Some(before) => Some(drain(now.drain.unwrap_or_default(), before)),
            None => now.drain,
        },
        budget: match before.budget.as_ref().filter(|_| said("f:budget")) {
            Some(before) => Some(budget(now.budget.unwrap_or_default(), before)),
            None => now.budget,
        },
        window: now
            .window
            .or_else(|| before.window.clone().filter(|_| said("f:window"))),
        accept,
        ..now
    }
}

/// What was written on the command line, and nothing else: the rest is for the operator's defaults and for other writers.
fn spec(arguments: &Upgrade) -> ClusterUpgradeSpec {
    let manual = arguments.pause_all || !arguments.pause_nodes.is_empty();
    let drain = DrainOption {
        evict_unmanaged_pods: arguments.evict_unmanaged.then_some(true),
        delete_empty_dir_data: arguments.delete_emptydir_data.then_some(true),
        ..DrainOption::default()
    };
    let budget = Budget {
        max_unavailable: arguments.max_unavailable.clone(),
        max_failed: arguments.max_failed,
        ..Budget::default()
    };
    ClusterUpgradeSpec {
        kubernetes_version: arguments.to.to_string(),
        bundle: arguments.bundle.clone().map(|image| Bundle { image, digest: None }),
        etcd_version: arguments.etcd_version.clone(),
        core_dns_version: arguments.core_dns_version.clone(),
        node_upgrade_option: manual.then(|| NodeUpgradeOption {
            strategy: Some(NodeUpgradeStrategy {
                mode: Some(NodeUpgradeMode::Manual),
                pause_nodes: arguments.pause_nodes.clone(),
            }),
        }),
        drain: (drain != DrainOption::default()).then_some(drain),
        budget: (budget != Budget::default()).then_some(budget),
        window: arguments.window.clone(),
        accept: arguments.accept.clone(),
        ..ClusterUpgradeSpec::default()
    }
}

/// What the preflight sees.
struct Look {
    findings: Vec<Finding>,
    /// "5 nodes, 212 pods, 14 budgets"
    looked_at: String,
    /// What is going to happen, in a sentence; `None` where nothing is to be done.
    plan: Option<String>,
    to: String,
}

impl Look {
    fn new(view: &View, chosen: &Chosen, spec: &ClusterUpgradeSpec) -> Result<Self, Problem> {
        let settings = Settings::read(spec).map_err(|invalid| Problem::new(Code::BadUsage, invalid.to_string()))?;
        let (now, key) = (Timestamp::now(), chosen.key());
        let mut draft = match chosen {
            Chosen::Open(_, upgrade) => ClusterUpgrade::clone(upgrade),
            _ => ClusterUpgrade::new(&key.name, spec.clone()),
        };
        draft.spec = spec.clone();
        draft.metadata.namespace = Some(key.namespace.to_string());
        draft.metadata.creation_timestamp.get_or_insert(Time(now));
        let mut view = view.clone();
        view.upgrades.insert(key.clone(), Arc::new(draft));
        let mut findings = afloat_core::preflight::findings(&view, &key, &settings, now);
        if matches!(chosen, Chosen::Fresh(_)) {
            findings.iter_mut().for_each(name_the_flag);
        }
        Ok(Self {
            findings,
            looked_at: format!(
                "{}, {}, {}",
                words::count(view.nodes.len(), "node", "nodes"),
                words::count(view.pods().len(), "pod", "pods"),
                words::count(view.budgets.len(), "budget", "budgets")
            ),
            plan: plan(&view, &settings),
            to: settings.to.to_string(),
        })
    }

    /// Says what was found and asks. An exit code where it ends here.
    fn speak(
        &self,
        arguments: &Upgrade,
        screen: &mut Screen,
        begun: Instant,
        chosen: &Chosen,
    ) -> Result<Option<Code>, Problem> {
        let passes = afloat_core::preflight::passes(&self.findings);
        let layout = screen.layout(false);
        let report = preflight::report(&self.findings, layout.width, layout.colour).join("\n");
        if arguments.output.is_none() {
            let took = begun.elapsed().as_secs_f64();
            screen.say(&format!("  Checking {} ... {took:.1}s\n\n{report}", self.looked_at));
        } else if !passes {
            eprintln!("{report}");
        }
        if !passes {
            return Ok(Some(Code::Refused));
        }
        let Some(plan) = &self.plan else {
            if arguments.output.is_none() {
                screen.say(&format!(
                    "  Every node is at {} already: there is nothing to do.",
                    self.to
                ));
            }
            return Ok(Some(Code::Done));
        };
        if arguments.dry_run || matches!(chosen, Chosen::Open(..)) {
            return Ok(None);
        }
        if consent(plan, arguments.yes)? {
            return Ok(None);
        }
        screen.say("  Nothing was changed.");
        Ok(Some(Code::Done))
    }
}

/// Before the object is there, what the operator would have patched into it is a flag.
fn name_the_flag(finding: &mut Finding) {
    let flag = match finding.reason.parse() {
        Ok(Reason::LocalData) => "--delete-emptydir-data",
        Ok(Reason::UnmanagedPod) => "--evict-unmanaged",
        _ => return,
    };
    if finding
        .remedy
        .as_ref()
        .is_some_and(|remedy| remedy.contains("patch clusterupgrade"))
    {
        finding.remedy = Some(format!("run it again with {flag}"));
    }
}

/// How many nodes go from where to where, in which manner.
fn plan(view: &View, settings: &Settings) -> Option<String> {
    let stages = plan::path(view, settings).ok()?;
    let bundle = settings.bundle_image.is_some();
    let taken = |kind: StageKind| {
        let nodes = view.nodes.values().filter(|node| kind.takes(node));
        nodes
            .filter(|node| {
                let mut stages = stages.iter();
                stages.any(|stage| plan::needs(view, node, stage, bundle && stage.version == settings.to))
            })
            .count()
    };
    let (planes, workers) = (taken(StageKind::ControlPlane), taken(StageKind::Workers));
    if planes + workers == 0 {
        return None;
    }
    let hops = stages.iter().filter(|stage| stage.kind == StageKind::ControlPlane);
    let hops: Vec<String> = hops.map(|stage| stage.version.to_string()).collect();
    let by = match hops.split_last() {
        Some((_, before)) if !before.is_empty() => format!(" by way of {}", before.join(", ")),
        _ => String::new(),
    };
    let most = settings.max_unavailable.of(view.worker_nodes().count());
    Some(format!(
        "{} to {}{by}, in place: {} one by one, then {}, at most {most} at a time.",
        words::count(planes + workers, "node goes", "nodes go"),
        settings.to,
        words::count(planes, "control plane", "control planes"),
        words::count(workers, "worker", "workers"),
    ))
}

async fn apply(
    cluster: &Cluster,
    key: &Key,
    spec: &ClusterUpgradeSpec,
    dry_run: bool,
) -> Result<ClusterUpgrade, Problem> {
    let body = json!({
        "apiVersion": format!("{}/{}", afloat_api::GROUP, afloat_api::VERSION),
        "kind": "ClusterUpgrade",
        "metadata": { "name": &*key.name, "namespace": &*key.namespace },
        "spec": spec,
    });
    let mut parameters = PatchParams::apply(FIELD_MANAGER);
    parameters.dry_run = dry_run;
    let api = cluster.upgrades();
    let patched = bounded(api.patch(&key.name, &parameters, &Patch::Apply(body))).await;
    patched.map_err(|error| refused(&error, key))
}

fn refused(error: &CallError, key: &Key) -> Problem {
    let problem = Problem::new(Code::Failed, format!("clusterupgrade/{} was not written", key.name));
    let CallError::Refused(kube::Error::Api(status)) = error else {
        return problem.root(error).help("run it again: it is safe to");
    };
    let problem = problem.because(status.message.clone());
    match status.code {
        404 => problem.help(format!("kubectl create namespace {}", key.namespace)),
        403 => problem.help(format!(
            "kubectl -n {} auth can-i patch clusterupgrades.afloat.dev",
            key.namespace
        )),
        409 => problem.help("somebody else wrote these fields: change them where they are kept, as in Git"),
        _ => problem,
    }
}

fn dry(applied: &ClusterUpgrade, arguments: &Upgrade, screen: &mut Screen, key: &Key) -> Result<Code, Problem> {
    match arguments.output {
        Some(form) => {
            let mut object = applied.clone();
            object.metadata = kube::core::ObjectMeta {
                name: applied.metadata.name.clone(),
                namespace: applied.metadata.namespace.clone(),
                ..kube::core::ObjectMeta::default()
            };
            terminal::print(&printed(&object, form)?);
        }
        None => screen.say(&format!(
            "  Would create clusterupgrade/{} in {}. Nothing was changed.",
            key.name, key.namespace
        )),
    }
    Ok(Code::Done)
}

fn finished(live: &Live, key: &Key, arguments: &Upgrade, screen: &mut Screen) -> Result<Code, Problem> {
    if let (Some(form), Some(upgrade)) = (arguments.output, live.view().upgrades.get(key)) {
        terminal::print(&printed(upgrade.as_ref(), form)?);
    } else {
        let board = Board::of(live.view(), key, Timestamp::now());
        let lines = board.map(|board| end::lines(&board, screen.layout(false)));
        screen.say(&lines.unwrap_or_default().join("\n"));
    }
    Ok(Code::Done)
}

async fn print_object(cluster: &Cluster, key: &Key, arguments: &Upgrade) -> Result<(), Problem> {
    let Some(form) = arguments.output else {
        return Ok(());
    };
    let upgrade = bounded(cluster.upgrades().get(&key.name)).await;
    let upgrade = upgrade.map_err(|error| {
        because_of(
            Problem::new(Code::Failed, format!("cannot read clusterupgrade/{}", key.name)),
            &error,
        )
    })?;
    terminal::print(&printed(&upgrade, form)?);
    Ok(())
}

/// An object as text.
pub fn printed(object: &impl Serialize, form: Form) -> Result<String, Problem> {
    let text = match form {
        Form::Json => serde_json::to_string_pretty(object)
            .map(|text| text + "\n")
            .map_err(|error| error.to_string()),
        Form::Yaml => serde_saphyr::to_string(object).map_err(|error| error.to_string()),
    };
    text.map_err(|problem| Problem::new(Code::Failed, "it cannot be printed").because(problem))
}
