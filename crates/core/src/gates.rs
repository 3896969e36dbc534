//! What must hold before one more node is disrupted: the health of the rest of the control plane, room for the pods, and
//! conditions of the person's own. Pauses, windows, budgets and slots are the judge's; here it is only said whether the cluster
//! could bear it, and if not, which object stands in the way.

use afloat_api::{ObjectRef, Reason};
use jiff::Timestamp;

use crate::capacity::Room;
use crate::settings::Settings;
use crate::view::{Component, ControlPlaneHealth, Key, Node, NodeName, Pod, StaticPart, View};

/// How often in a row `/readyz` must have answered: an API server flaps while it warms its caches.
pub const READY_IN_A_ROW: u32 = 3;

/// A gate that is closed, and what would open it.
#[derive(Clone, Debug, PartialEq)]
pub struct Closed {
    pub reason: Reason,
    pub message: String,
    pub blocked_by: Option<ObjectRef>,
    /// When it opens by itself, where that is known.
    pub until: Option<Timestamp>,
}

/// Open, or what closes it.
pub type Gate = Result<(), Box<Closed>>;

impl Closed {
    fn because(reason: Reason, message: String, blocked_by: Option<ObjectRef>) -> Box<Self> {
        Box::new(Self {
            reason,
            message,
            blocked_by,
            until: None,
        })
    }
}

/// Whether a control plane may be disrupted: every other one works in all its parts, and etcd keeps its quorum without this
/// one. How this one itself is does not matter: if it is broken, the others have been carrying the cluster without it.
///
/// With two control planes each restart costs etcd its quorum; `downtime_accepted` says that the person takes that. A single
/// one has nobody to lose.
pub fn control_plane(view: &View, node: &Node, downtime_accepted: bool) -> Gate {
    for other in others(view, node) {
        healthy(view, other)?;
    }
    virtual_address(view, node)?;
    quorum(view, node, downtime_accepted)
}

fn others<'a>(view: &'a View, node: &Node) -> impl Iterator<Item = &'a Node> {
    let name = node.name.clone();
    view.control_plane_nodes()
        .map(AsRef::as_ref)
        .filter(move |other: &&Node| other.name != name)
}

/// Whether a control plane works in all its parts. After a kubelet was swapped the Node still says Ready while every static
/// pod restarts, so the pods, `/readyz` and the etcd member are looked at as well.
pub fn healthy(view: &View, node: &Node) -> Gate {
    let name = &node.name;
    if !node.ready.ready {
        return Err(Closed::because(
            Reason::WaitingForNode,
            format!("control plane {name} is not Ready"),
            Some(node_ref(node)),
        ));
    }
    for component in expected_parts(view) {
        if !view.static_parts(name).any(|(_, part)| part.component == component) {
            return Err(Closed::because(
                reason_for(component),
                format!("{} of {name} is not to be seen", word(component)),
                Some(node_ref(node)),
            ));
        }
    }
    if let Some((pod, part)) = view.static_parts(name).find(|(pod, _)| !pod.ready) {
        return Err(not_ready(name, pod, part));
    }
    let health = view.health.get(name);
    let answered = health.map_or(0, |health| health.readyz_in_a_row);
    if answered < READY_IN_A_ROW {
        return Err(Closed::because(
            Reason::WaitingForApiServer,
            format!("API server of {name} has not answered ok {READY_IN_A_ROW} times in a row"),
            Some(node_ref(node)),
        ));
    }
    etcd(view, node, health)
}

fn not_ready(name: &NodeName, pod: &Pod, part: &StaticPart) -> Box<Closed> {
    Closed::because(
        reason_for(part.component),
        format!("{} of {name} is not Ready", word(part.component)),
        Some(pod_ref(pod)),
    )
}

fn etcd(view: &View, node: &Node, health: Option<&ControlPlaneHealth>) -> Gate {
    if !stacked_etcd(view) {
        return Ok(());
    }
    let name = &node.name;
    let member = health.and_then(|health| health.etcd.as_ref());
    let problem = match member {
        None => format!("etcd member {name} was not seen yet"),
        Some(member) if !member.healthy => format!("etcd member {name} is not healthy"),
        Some(_) => return Ok(()),
    };
    let pod = view
        .static_parts(name)
        .find(|(_, part)| part.component == Component::Etcd)
        .map_or_else(|| node_ref(node), |(pod, _)| pod_ref(pod));
    Err(Closed::because(Reason::WaitingForEtcd, problem, Some(pod)))
}

/// The address moves when its holder is disrupted: somebody must hold it now and, being up, others could take it.
fn virtual_address(view: &View, node: &Node) -> Gate {
    let used = any_part(view, Component::KubeVip);
    if !used || view.vip_holder.is_some() {
        return Ok(());
    }
    // A single node that is away has nobody to give the address to, and gets it back itself.
    if others(view, node).next().is_none() {
        return Ok(());
    }
    Err(Closed::because(
        Reason::WaitingForVirtualIp,
        "no control plane holds the virtual address".to_owned(),
        None,
    ))
}

fn quorum(view: &View, node: &Node, downtime_accepted: bool) -> Gate {
    if downtime_accepted || !stacked_etcd(view) {
        return Ok(());
    }
    let members = view.control_plane_nodes().count();
    let left = others(view, node)
        .filter(|other| member_healthy(view, &other.name))
        .count();
    if members == 1 || 2 * left > members {
        return Ok(());
    }
    Err(Closed::because(
        Reason::ApiDowntime,
        format!(
            "etcd would lose its quorum without {}: {left} of {members} members would be left",
            node.name
        ),
        Some(node_ref(node)),
    ))
}

fn member_healthy(view: &View, name: &NodeName) -> bool {
    view.health
        .get(name)
        .and_then(|health| health.etcd.as_ref())
        .is_some_and(|member| member.healthy)
}

/// Whether etcd runs on the control planes themselves.
pub fn stacked_etcd(view: &View) -> bool {
    any_part(view, Component::Etcd) || view.health.values().any(|health| health.etcd.is_some())
}

fn any_part(view: &View, component: Component) -> bool {
    view.control_plane_nodes().any(|node| {
        view.static_parts(&node.name)
            .any(|(_, part)| part.component == component)
    })
}

/// What every control plane must show. What any of them has (etcd, kube-vip), all of them have in a cluster of kubeadm.
pub(crate) fn expected_parts(view: &View) -> impl Iterator<Item = Component> {
    let etcd = any_part(view, Component::Etcd).then_some(Component::Etcd);
    let kube_vip = any_part(view, Component::KubeVip).then_some(Component::KubeVip);
    [Component::ApiServer, Component::ControllerManager, Component::Scheduler]
        .into_iter()
        .chain(etcd)
        .chain(kube_vip)
}

fn reason_for(component: Component) -> Reason {
    match component {
        Component::Etcd => Reason::WaitingForEtcd,
        Component::KubeVip => Reason::WaitingForVirtualIp,
        Component::ApiServer => Reason::WaitingForApiServer,
        Component::ControllerManager | Component::Scheduler | Component::Other => Reason::WaitingForNode,
    }
}

fn word(component: Component) -> &'static str {
    match component {
        Component::Etcd => "etcd",
        Component::ApiServer => "API server",
        Component::ControllerManager => "controller manager",
        Component::Scheduler => "scheduler",
        Component::KubeVip => "kube-vip",
        Component::Other => "a static pod",
    }
}

/// Whether a worker may be disrupted: the API works, the person's own conditions are met, and what runs on the node finds a
/// place in `room`, from which the node is then taken. Hand in a room without the nodes that hold a slot ([`Room::without`]).
pub fn worker(view: &View, node: &Node, upgrade: &Key, settings: &Settings, room: &mut Room<'_>) -> Gate {
    api_server(view)?;
    custom(view, upgrade, settings)?;
    room.take(&node.name).map_err(|found| {
        let message = found.to_string();
        Closed::because(Reason::WaitingForCapacity, message, Some(found.workload))
    })
}

/// Whether any API server works: without one, evictions and heartbeats fail, and a drain would only do harm.
pub fn api_server(view: &View) -> Gate {
    let works = |node: &Node| {
        view.health
            .get(&node.name)
            .is_some_and(|health| health.readyz_in_a_row > 0)
    };
    if view.control_plane_nodes().any(|node| works(node)) {
        return Ok(());
    }
    Err(Closed::because(
        Reason::WaitingForApiServer,
        "no API server answers on /readyz".to_owned(),
        None,
    ))
}

/// Whether the conditions of the person's own are all met. One that was not looked at yet is closed.
pub fn custom(view: &View, upgrade: &Key, settings: &Settings) -> Gate {
    for gate in &settings.gates {
        let state = view.gates.get(&(upgrade.clone(), gate.clone()));
        let message = match state {
            Some(state) if state.open => continue,
            Some(state) => format!("gate {gate}: {}", state.message),
            None => format!("gate {gate} was not looked at yet"),
        };
        return Err(Closed::because(Reason::WaitingForGate, message, None));
    }
    Ok(())
}

pub(crate) fn node_ref(node: &Node) -> ObjectRef {
    ObjectRef {
        api_version: Some("v1".to_owned()),
        kind: "Node".to_owned(),
        namespace: None,
        name: node.name.to_string(),
        uid: Some(node.uid.to_string()),
    }
}

pub(crate) fn pod_ref(pod: &Pod) -> ObjectRef {
    ObjectRef {
        api_version: Some("v1".to_owned()),
        kind: "Pod".to_owned(),
        namespace: Some(pod.key.namespace.to_string()),
        name: pod.key.name.to_string(),
        uid: Some(pod.uid.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::fixture::{Cluster, GIB, resources, settings};
    use crate::view::GateState;

    /// What the gate says before cp-3 of a cluster with kube-vip, after something was done to it.
    fn told(change: impl FnOnce(&mut Cluster)) -> String {
        told_of(
            Cluster::new(3, 0, "v1.35.4").with_kube_vip("cp-3"),
            "cp-3",
            false,
            change,
        )
    }

    fn told_of(mut cluster: Cluster, node: &str, accepted: bool, change: impl FnOnce(&mut Cluster)) -> String {
        change(&mut cluster);
        let node = cluster.view.nodes.get(node).unwrap();
        match control_plane(&cluster.view, node, accepted) {
            Ok(()) => "open".to_owned(),
            Err(closed) => format!("{}: {}", closed.reason, closed.message),
        }
    }

    #[test]
    fn a_control_plane_goes_only_while_all_others_work_in_all_their_parts() {
        assert_eq!(told(|_| {}), "open");
        assert_eq!(
            told(|cluster| cluster.node("cp-2", |node| node.ready.ready = false)),
            "WaitingForNode: control plane cp-2 is not Ready"
        );
        assert_eq!(
            told(|cluster| cluster.part("cp-1", Component::Scheduler, |pod| pod.ready = false)),
            "WaitingForNode: scheduler of cp-1 is not Ready"
        );
        assert_eq!(
            told(|cluster| cluster.drop_part("cp-1", Component::ApiServer)),
            "WaitingForApiServer: API server of cp-1 is not to be seen"
        );
        assert_eq!(
            told(|cluster| cluster.health("cp-2", |health| health.readyz_in_a_row = 2)),
            "WaitingForApiServer: API server of cp-2 has not answered ok 3 times in a row"
        );
        assert_eq!(
            told(|cluster| cluster.health("cp-2", |health| health.etcd = None)),
            "WaitingForEtcd: etcd member cp-2 was not seen yet"
        );
        assert_eq!(
            told(|cluster| cluster.member("cp-2", |member| member.healthy = false)),
            "WaitingForEtcd: etcd member cp-2 is not healthy"
        );
    }

    #[test]
    fn k35_kube_vip_must_work_on_the_others_before_the_next_is_touched() {
        assert_eq!(
            told(|cluster| cluster.part("cp-2", Component::KubeVip, |pod| pod.ready = false)),
            "WaitingForVirtualIp: kube-vip of cp-2 is not Ready"
        );
        assert_eq!(
            told(|cluster| cluster.drop_part("cp-2", Component::KubeVip)),
            "WaitingForVirtualIp: kube-vip of cp-2 is not to be seen"
        );
        assert_eq!(
            told(|cluster| cluster.view.vip_holder = None),
            "WaitingForVirtualIp: no control plane holds the virtual address"
        );
    }

    #[test]
    fn a_broken_control_plane_may_itself_be_taken() {
        assert_eq!(
            told(|cluster| {
                cluster.node("cp-3", |node| node.ready.ready = false);
                cluster.member("cp-3", |member| member.healthy = false);
                cluster.view.vip_holder = Some("cp-1".into());
            }),
            "open"
        );
    }

    #[test]
    fn p36_two_control_planes_need_leave_to_lose_quorum_and_one_has_none_to_lose() {
        let of = |count, accepted| told_of(Cluster::new(count, 0, "v1.35.4"), "cp-1", accepted, |_| {});
        assert_eq!(
            of(2, false),
            "ApiDowntime: etcd would lose its quorum without cp-1: 1 of 2 members would be left"
        );
        assert_eq!(of(2, true), "open");
        assert_eq!(of(1, false), "open");
        // Leave to lose quorum for a moment is no leave to go on with a broken peer.
        let broken = |cluster: &mut Cluster| cluster.member("cp-2", |member| member.healthy = false);
        assert_eq!(
            told_of(Cluster::new(2, 0, "v1.35.4"), "cp-1", true, broken),
            "WaitingForEtcd: etcd member cp-2 is not healthy"
        );
    }

    #[test]
    fn p4_with_external_etcd_no_member_is_asked_for() {
        let external = Cluster::new(2, 0, "v1.35.4").with_external_etcd();
        assert_eq!(told_of(external, "cp-1", false, |_| {}), "open");
    }

    #[test]
    fn a_worker_waits_for_room_and_takes_it_when_it_goes() {
        let mut cluster = Cluster::new(1, 3, "v1.35.4");
        cluster.node("cp-1", |node| node.unschedulable = true);
        for name in ["worker-1", "worker-2", "worker-3"] {
            cluster.run(&format!("on-{name}"), name, resources(1500, GIB), |_| {});
        }
        let (upgrade, settings) = (Key::new("afloat-system", "edge-1"), settings("v1.36.3"));
        let mut room = Room::new(&cluster.view, &settings.accept);
        let mut go = |name: &str| {
            let node = &cluster.view.nodes[name];
            worker(&cluster.view, node, &upgrade, &settings, &mut room).map_err(|closed| closed.reason)
        };
        assert_eq!(go("worker-1"), Ok(()));
        assert_eq!(go("worker-2"), Err(Reason::WaitingForCapacity));
        assert_eq!(go("worker-1"), Ok(()), "it has its room");
    }

    #[test]
    fn workers_wait_for_any_api_server_and_for_gates_of_ones_own() {
        let mut cluster = Cluster::new(2, 1, "v1.35.4");
        let upgrade = Key::new("afloat-system", "edge-1");
        let mut settings = settings("v1.36.3");
        assert_eq!(api_server(&cluster.view), Ok(()));
        assert_eq!(custom(&cluster.view, &upgrade, &settings), Ok(()));
        cluster.health("cp-1", |health| health.readyz_in_a_row = 0);
        assert_eq!(api_server(&cluster.view), Ok(()));
        cluster.view.health.clear();
        assert_eq!(
            api_server(&cluster.view).unwrap_err().message,
            "no API server answers on /readyz"
        );

        settings.gates = vec!["storage".into()];
        let told = |cluster: &Cluster| custom(&cluster.view, &upgrade, &settings).map_err(|closed| closed.message);
        assert_eq!(told(&cluster), Err("gate storage was not looked at yet".to_owned()));
        let mut put = |open, message: &str| {
            let state = GateState {
                open,
                message: message.into(),
            };
            cluster.view.gates.insert((upgrade.clone(), "storage".into()), state);
            told(&cluster)
        };
        assert_eq!(
            put(false, "Volume data/v1 is degraded"),
            Err("gate storage: Volume data/v1 is degraded".to_owned())
        );
        assert_eq!(put(true, ""), Ok(()));
    }
}
