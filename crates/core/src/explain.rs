//! Why an upgrade does not move, as a chain of causes down to the one object that blocks, and what would free it. Made from
//! the view alone, so that the operator, the command line and the simulator say the same.

use std::fmt;

use afloat_api::clusterupgrade::{Finding, NodeWait, Phase, Severity};
use afloat_api::{ClusterUpgrade, NodeKubeadmUpgrade, Reason, Wait};
use jiff::Timestamp;

use crate::judge;
use crate::objects::{Standing, key_of};
use crate::preflight;
use crate::view::{Key, Pod, PodBudget, View, Workload, WorkloadKind};
use crate::words;

/// A chain of causes and the ways out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Explanation {
    /// From the upgrade down to the object that blocks; each follows from the next.
    pub because: Vec<String>,
    /// Any one of these helps.
    pub remedies: Vec<Remedy>,
}

/// A command, and what it does.
#[derive(Clone, Debug, PartialEq)]
pub struct Remedy {
    pub command: String,
    pub effect: String,
}

impl Explanation {
    pub(crate) fn say(&mut self, text: String) {
        self.because.push(text);
    }

    pub(crate) fn offer(&mut self, command: String, effect: &str) {
        self.remedies.push(Remedy {
            command,
            effect: effect.to_owned(),
        });
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.because.len().saturating_sub(1);
        for (depth, text) in self.because.iter().enumerate() {
            let link = if depth < last { ", because" } else { "" };
            writeln!(formatter, "{:indent$}{text}{link}", "", indent = depth * 2)?;
        }
        if self.remedies.is_empty() {
            return Ok(());
        }
        let head = if self.remedies.len() == 1 {
            "This frees it:"
        } else {
            "Any one of these frees it:"
        };
        writeln!(formatter, "{head}")?;
        let width = self
            .remedies
            .iter()
            .map(|remedy| remedy.command.len())
            .max()
            .unwrap_or(0);
        for remedy in &self.remedies {
            writeln!(formatter, "  {:width$}      {}", remedy.command, remedy.effect)?;
        }
        Ok(())
    }
}

/// Explains how an upgrade stands. `None` where there is no such upgrade.
pub fn explain(view: &View, key: &Key, now: Timestamp) -> Option<Explanation> {
    let upgrade = view.upgrades.get(key)?;
    let name = &*key.name;
    let mut explanation = Explanation::default();
    let status = upgrade.status.clone().unwrap_or_default();
    let phase = status.phase.unwrap_or_default();
    let headline = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "Ready")
        .map(|condition| condition.message.clone())
        .unwrap_or_default();
    if judge::over(phase)
        && let Some(wait) = judge::first_wait(&status)
    {
        // What alone can be waited for after the end.
        undoing_waits(view, &mut explanation, name, wait, now);
        return Some(explanation);
    }
    match phase {
        Phase::Succeeded => explanation.say(format!("{name} is done: {headline}")),
        Phase::Aborted => explanation.say(format!("{name} was ended: {headline}")),
        Phase::Failed => failed(&mut explanation, name, &headline, upgrade),
        Phase::Pending => explanation.say(format!("{name} was not begun yet")),
        Phase::Preflight => stopped_by_preflight(view, &mut explanation, name, upgrade, now),
        _ => under_way(view, &mut explanation, name, upgrade, now),
    }
    Some(explanation)
}

fn undoing_waits(view: &View, explanation: &mut Explanation, name: &str, wait: &NodeWait, now: Timestamp) {
    let since = words::since(wait.wait.since.0, now);
    explanation.say(format!("undoing {} of {name} waits since {since}", wait.node));
    if wait.wait.reason.parse() == Ok(Reason::WaitingForOtherUpgrade) {
        other_upgrade(view, explanation, &wait.wait.message, now);
    } else {
        explanation.say(wait.wait.message.clone());
    }
}

/// Who has the lock of the cluster, since when, how far it is, and what would end that.
fn other_upgrade(view: &View, explanation: &mut Explanation, message: &str, now: Timestamp) {
    let holder = view.lock.as_ref().map(|lock| lock.holder.as_str());
    let upgrade = view
        .upgrades
        .values()
        .find(|upgrade| upgrade.metadata.uid.is_some() && upgrade.metadata.uid.as_deref() == holder);
    let Some(upgrade) = upgrade else {
        return explanation.say(message.to_owned());
    };
    let name = upgrade.metadata.name.as_deref().unwrap_or_default();
    let status = upgrade.status.clone().unwrap_or_default();
    let begun = status.started_at.as_ref().map(|start| words::since(start.0, now));
    let begun = begun.map_or_else(String::new, |since| format!(" since {since}"));
    explanation.say(format!("clusterupgrade/{name} has the lock of the cluster{begun}"));
    let phase = status.phase.unwrap_or_default();
    let progress = status.progress.as_deref().unwrap_or_default();
    let waits = judge::first_wait(&status);
    let waits = waits.map_or_else(String::new, |wait| {
        format!(", and {} waits: {}", wait.node, wait.wait.message)
    });
    explanation.say(format!("it is in {phase}: {progress} nodes done{waits}"));
    explanation.offer(
        format!("afloat explain {name}"),
        "says what it waits for; it gives the lock back when it ends",
    );
    explanation.offer(
        format!("afloat abort {name}"),
        "ends it after putting back what it has in hand",
    );
}

fn failed(explanation: &mut Explanation, name: &str, headline: &str, upgrade: &ClusterUpgrade) {
    explanation.say(format!("{name} stopped"));
    explanation.say(headline.to_owned());
    let to = &upgrade.spec.kubernetes_version;
    explanation.offer(
        format!("afloat upgrade --to {to}"),
        "begins again with the nodes that are not there yet, once the cause is gone",
    );
}

fn blocking(upgrade: &ClusterUpgrade) -> Vec<&Finding> {
    let preflight = upgrade.status.as_ref().and_then(|status| status.preflight.as_ref());
    let findings = preflight
        .map(|preflight| preflight.findings.as_slice())
        .unwrap_or_default();
    findings
        .iter()
        .filter(|finding| match finding.severity {
            Severity::Error => true,
            Severity::Warning => !finding.accepted,
            Severity::Info => false,
        })
        .collect()
}

fn stopped_by_preflight(
    view: &View,
    explanation: &mut Explanation,
    name: &str,
    upgrade: &ClusterUpgrade,
    now: Timestamp,
) {
    let blocking = blocking(upgrade);
    let Some(first) = blocking.first() else {
        return whole(view, explanation, name, upgrade, now);
    };
    explanation.say(format!("{name} was not begun"));
    explanation.say(format!(
        "the preflight found {}",
        words::count(blocking.len(), "thing that stops it", "things that stop it")
    ));
    explanation.say(format!("{}: {}", object_word(first), first.message));
    for finding in blocking.iter().take(5) {
        if let Some(remedy) = &finding.remedy {
            explanation.offer(remedy.clone(), &format!("for {}", object_word(finding)));
        }
        if finding.severity == Severity::Warning {
            let accept = preflight::accept_key(finding);
            explanation.offer(accepting(upgrade, &accept), "accepts the warning");
        }
    }
}

/// Adds to what was accepted, and changes nothing else.
fn accepting(upgrade: &ClusterUpgrade, accept: &str) -> String {
    let to = &upgrade.spec.kubernetes_version;
    format!("afloat upgrade --to {to} --accept {accept}")
}

fn object_word(finding: &Finding) -> String {
    let key = preflight::accept_key(finding);
    key.rsplit_once(':')
        .map_or(key.clone(), |(object, _)| object.to_owned())
}

/// The upgrade as a whole waits, or simply goes on.
fn whole(view: &View, explanation: &mut Explanation, name: &str, upgrade: &ClusterUpgrade, now: Timestamp) {
    let status = upgrade.status.as_ref();
    let ready = status.and_then(|status| status.conditions.iter().find(|condition| condition.type_ == "Ready"));
    let (reason, message) = ready.map_or_else(
        || (Reason::InProgress, String::new()),
        |condition| {
            (
                condition.reason.parse().unwrap_or(Reason::InProgress),
                condition.message.clone(),
            )
        },
    );
    if reason == Reason::InProgress || message.is_empty() {
        let since = status.and_then(|status| status.started_at.as_ref());
        let since = since.map_or_else(String::new, |start| format!(" since {}", words::since(start.0, now)));
        explanation.say(format!("{name} is under way{since}; nothing blocks it"));
        return;
    }
    explanation.say(format!("{name} waits"));
    if reason == Reason::WaitingForOtherUpgrade {
        return other_upgrade(view, explanation, &message, now);
    }
    explanation.say(message);
    match reason {
        Reason::PausedByUser => explanation.offer("afloat resume".to_owned(), "lets it go on"),
        Reason::OutsideWindow => explanation.offer("afloat abort".to_owned(), "ends the upgrade instead"),
        _ => {}
    }
}

fn under_way(view: &View, explanation: &mut Explanation, name: &str, upgrade: &ClusterUpgrade, now: Timestamp) {
    let status = upgrade.status.clone().unwrap_or_default();
    // Whoever holds a slot keeps the others waiting; else the first that is held back.
    let holding = |wait: &&NodeWait| status.slots.iter().any(|slot| slot.node == wait.node);
    let wait = status.waiting.iter().find(holding);
    // While another node moves, what holds back those after it is not what anybody waits for.
    let wait = wait.or_else(|| judge::first_wait(&status).filter(|_| status.slots.is_empty()));
    let Some(wait) = wait else {
        return whole(view, explanation, name, upgrade, now);
    };
    explanation.say(format!("{name} waits"));
    let until = wait.wait.until.as_ref().map_or_else(String::new, |until| {
        format!(", {} left", words::duration(until.0.duration_since(now)))
    });
    explanation.say(format!(
        "{} is {} since {}{until}",
        wait.node,
        wait.state,
        words::since(wait.wait.since.0, now)
    ));
    let node_upgrade = view
        .node_upgrades_of(&wait.node)
        .map(|(_, upgrade)| upgrade)
        .find(|upgrade| !Standing::of(upgrade).ended());
    match (wait.wait.reason.parse(), node_upgrade) {
        (Ok(Reason::WaitingForPodDisruptionBudget), Some(node_upgrade)) => {
            budget_chain(view, explanation, node_upgrade, &wait.wait);
        }
        (Ok(Reason::NodePaused), _) => {
            explanation.say(wait.wait.message.clone());
            explanation.offer(format!("afloat resume {}", wait.node), "lets it go on");
        }
        (Ok(Reason::ApiDowntime), _) => {
            explanation.say(wait.wait.message.clone());
            let accept = preflight::downtime_word(view, &key_of(&upgrade.metadata));
            let effect = "takes the moments without an API server";
            explanation.offer(accepting(upgrade, &accept), effect);
        }
        (Ok(Reason::WaitingForCapacity), _) => {
            explanation.say(wait.wait.message.clone());
            if let Some(workload) = &wait.wait.blocked_by {
                let accept = preflight::accept_word(workload, Reason::NoCapacity);
                explanation.offer(
                    accepting(upgrade, &accept),
                    "takes that a replica of it waits meanwhile",
                );
            }
        }
        _ => explanation.say(wait.wait.message.clone()),
    }
    if status.slots.iter().any(|slot| slot.node == wait.node) {
        explanation.offer(
            format!("afloat defer {}", wait.node),
            "puts it back as it was and takes it last",
        );
        explanation.offer(
            "afloat abort".to_owned(),
            &format!("stops after putting {} back", wait.node),
        );
    } else {
        explanation.offer(
            "afloat abort".to_owned(),
            "ends the upgrade instead: the others stay as they are",
        );
    }
}

/// pod → budget → workload.
fn budget_chain(view: &View, explanation: &mut Explanation, node_upgrade: &NodeKubeadmUpgrade, wait: &Wait) {
    let node = node_upgrade.spec.node.name.as_str();
    let blocked = view.pods_on(&node.into()).find_map(|pod| {
        let budget = view.budgets_of(pod).find(|budget| {
            wait.blocked_by
                .as_ref()
                .is_none_or(|by| by.name == *budget.key.name && by.namespace.as_deref() == Some(&budget.key.namespace))
                && budget.disruptions_allowed < 1
        })?;
        Some((pod, budget))
    });
    let Some((pod, budget)) = blocked else {
        explanation.say(wait.message.clone());
        return;
    };
    guarded_pod(view, explanation, pod, budget);
}

/// A pod that its budget keeps from being evicted, down to the workload and how to free it. Whether there is one to scale.
pub(crate) fn guarded_pod(view: &View, explanation: &mut Explanation, pod: &Pod, budget: &PodBudget) -> bool {
    explanation.say(format!("pod {} cannot be evicted", pod.key));
    explanation.say(format!(
        "pdb/{} allows {} disruptions ({} required, {} healthy)",
        budget.key, budget.disruptions_allowed, budget.desired_healthy, budget.current_healthy
    ));
    let workload = workload_of(view, pod);
    if let Some(workload) = workload {
        workload_link(view, explanation, pod, budget, workload);
    }
    workload.is_some()
}

fn workload_link(view: &View, explanation: &mut Explanation, pod: &Pod, budget: &PodBudget, workload: &Workload) {
    let (short, key) = (workload.kind.short(), &workload.key);
    let total = workload.replicas;
    let here = pod.node.as_ref().map_or(0, |node| {
        view.pods_on(node)
            .filter(|other| other.key.namespace == pod.key.namespace && budget.selector.matches(&other.shape.labels))
            .count()
    });
    let node = pod.node.as_ref().map_or_else(String::new, ToString::to_string);
    if workload.ready < total {
        explanation.say(format!(
            "{short}/{key} has {} of {total} replicas ready",
            workload.ready
        ));
    } else {
        let share = match (usize::try_from(total).ok(), here) {
            (Some(1), _) => format!("1 replica, on {node}"),
            (Some(2), 2) => format!("2 replicas and both are on {node}"),
            (Some(total), here) if total == here => format!("{total} replicas and all are on {node}"),
            _ => format!(
                "{total} replicas, and its budget wants {} of them",
                budget.desired_healthy
            ),
        };
        explanation.say(format!("{short}/{key} has {share}"));
        explanation.offer(
            format!(
                "kubectl -n {} scale {short}/{} --replicas={}",
                key.namespace,
                key.name,
                total + 1
            ),
            "adds a spare; it goes on by itself",
        );
    }
}

/// The workload a person would scale.
pub fn workload_of<'a>(view: &'a View, pod: &Pod) -> Option<&'a Workload> {
    let owner = pod.shape.owner.as_ref()?;
    let namespace = &*pod.key.namespace;
    let find = |kind: WorkloadKind, name: &str| view.workloads.get(&(kind, Key::new(namespace, name)));
    match &*owner.kind {
        "StatefulSet" => find(WorkloadKind::StatefulSet, &owner.name).map(AsRef::as_ref),
        "ReplicaSet" => {
            let set = find(WorkloadKind::ReplicaSet, &owner.name)?;
            let deployment = set
                .owner
                .as_ref()
                .filter(|owner| &*owner.kind == "Deployment")
                .and_then(|owner| find(WorkloadKind::Deployment, &owner.name));
            Some(deployment.unwrap_or(set).as_ref())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use afloat_api::clusterupgrade::{ClusterUpgradeStatus, NodeWait, Slot};
    use afloat_api::{NodeRole, NodeState, ObjectRef};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

    use super::*;
    use crate::plan::fixture::{Cluster, pod};
    use crate::view::{Operator, Owner, PodShape, Requirement, Revision, Selector};

    fn second(number: i64) -> Timestamp {
        Timestamp::from_second(number).unwrap()
    }

    fn waiting(reason: Reason, message: &str, by: Option<ObjectRef>) -> ClusterUpgradeStatus {
        ClusterUpgradeStatus {
            phase: Some(Phase::Workers),
            slots: vec![Slot {
                node: "worker-2".to_owned(),
                node_uid: "uid-worker-2".to_owned(),
                role: NodeRole::Worker,
                attempt: 1,
                version: "v1.36.3".to_owned(),
                taken_at: Time(second(0)),
                failure_domain: None,
                holder: String::new(),
                holder_revision: None,
                undoing: false,
            }],
            waiting: vec![NodeWait {
                node: "worker-2".to_owned(),
                state: NodeState::Draining,
                wait: Wait {
                    reason: reason.to_string(),
                    message: message.to_owned(),
                    since: Time(second(0)),
                    until: Some(Time(second(1800))),
                    blocked_by: by,
                },
            }],
            ..ClusterUpgradeStatus::default()
        }
    }

    /// Two pods of one Deployment, both on worker-2, under a budget that wants both.
    fn stuck() -> (Cluster, Key) {
        let mut cluster = Cluster::new(1, 2, "v1.35.4");
        let owner = |kind: &str, name: &str| Owner {
            kind: kind.into(),
            name: name.into(),
            uid: format!("uid-{name}").into(),
        };
        let shape = PodShape {
            labels: [("app".into(), "checkout".into())].into(),
            owner: Some(owner("ReplicaSet", "checkout-7d9f")),
            ..PodShape::default()
        };
        for name in ["checkout-7d9f-x2x4k", "checkout-7d9f-zz9pl"] {
            let pod = pod("shop", name, Some("worker-2"), shape.clone());
            cluster.view.put_pod(Arc::new(pod));
        }
        let selector = Selector {
            requirements: vec![Requirement {
                key: "app".into(),
                operator: Operator::In,
                values: vec!["checkout".into()],
            }],
        };
        let key = Key::new("shop", "checkout");
        let budget = PodBudget {
            key: key.clone(),
            uid: "uid-pdb".into(),
            revision: Revision(1),
            selector,
            up_to_date: true,
            disruptions_allowed: 0,
            current_healthy: 2,
            desired_healthy: 2,
            expected_pods: 2,
            unhealthy_may_go: false,
        };
        cluster.view.budgets.insert(key, Arc::new(budget));
        for (kind, name, above) in [
            (WorkloadKind::Deployment, "checkout", None),
            (
                WorkloadKind::ReplicaSet,
                "checkout-7d9f",
                Some(owner("Deployment", "checkout")),
            ),
        ] {
            let key = Key::new("shop", name);
            let workload = Workload {
                kind,
                key: key.clone(),
                uid: format!("uid-{name}").into(),
                revision: Revision(1),
                replicas: 2,
                ready: 2,
                owner: above,
            };
            cluster.view.workloads.insert((kind, key), Arc::new(workload));
        }
        let key = Key::new("afloat-system", "edge-1");
        (cluster, key)
    }

    fn explained(cluster: &mut Cluster, key: &Key, status: ClusterUpgradeStatus) -> String {
        let upgrade = ClusterUpgrade {
            metadata: ObjectMeta::default(),
            spec: afloat_api::ClusterUpgradeSpec::default(),
            status: Some(status),
        };
        cluster.view.upgrades.insert(key.clone(), Arc::new(upgrade));
        explain(&cluster.view, key, second(700)).unwrap().to_string()
    }

    #[test]
    fn p32_a_stuck_budget_is_explained_down_to_the_workload_and_the_command_that_frees_it() {
        let (mut cluster, key) = stuck();
        let by = ObjectRef {
            kind: "PodDisruptionBudget".to_owned(),
            namespace: Some("shop".to_owned()),
            name: "checkout".to_owned(),
            ..ObjectRef::default()
        };
        let node_upgrade = crate::testing::node_upgrade("worker-2", NodeRole::Worker);
        cluster
            .view
            .put_node_upgrade(Key::new("afloat-system", "worker-2-x"), Arc::new(node_upgrade));
        let status = waiting(
            Reason::WaitingForPodDisruptionBudget,
            "pdb/shop/checkout allows none",
            Some(by),
        );
        let said = explained(&mut cluster, &key, status);
        let expected = "\
edge-1 waits, because
  worker-2 is Draining since 11m40s, 18m20s left, because
    pod shop/checkout-7d9f-x2x4k cannot be evicted, because
      pdb/shop/checkout allows 0 disruptions (2 required, 2 healthy), because
        deploy/shop/checkout has 2 replicas and both are on worker-2
Any one of these frees it:
  kubectl -n shop scale deploy/checkout --replicas=3      adds a spare; it goes on by itself
  afloat defer worker-2                                   puts it back as it was and takes it last
  afloat abort                                            stops after putting worker-2 back
";
        assert_eq!(said, expected);
    }

    #[test]
    fn what_is_waited_for_is_said_in_its_own_words() {
        let (mut cluster, key) = stuck();
        let said = explained(
            &mut cluster,
            &key,
            waiting(Reason::WaitingForNode, "worker-2 is not Ready", None),
        );
        assert!(said.contains("worker-2 is not Ready\nAny one"), "{said}");
    }
}
