//! Small clusters for tests: healthy from the start, to be spoilt by each test in one respect.

use std::sync::Arc;

use afloat_api::ClusterUpgradeSpec;
use jiff::Timestamp;

use crate::settings::Settings;
use crate::version::KubernetesVersion;
use crate::view::{
    Component, ControlPlaneHealth, EtcdMember, Key, Node, NodeName, Owner, Pod, PodPhase, PodShape, Ready, Resources,
    Revision, StaticPart, Uid, View,
};

pub const GIB: i64 = 1 << 30;

pub fn version(text: &str) -> KubernetesVersion {
    text.parse().unwrap()
}

pub fn settings(to: &str) -> Settings {
    Settings::read(&ClusterUpgradeSpec {
        kubernetes_version: to.to_owned(),
        ..ClusterUpgradeSpec::default()
    })
    .unwrap()
}

pub fn resources(cpu_milli: i64, memory: i64) -> Resources {
    Resources {
        cpu_milli,
        memory,
        pods: 1,
        ..Resources::default()
    }
}

#[derive(Clone)]
pub struct Cluster {
    pub view: View,
}

impl Cluster {
    /// `cp-1`, … and `worker-1`, …, all at one version, each with 4 processors, 16 GiB and room for 110 pods.
    pub fn new(control_planes: usize, workers: usize, at: &str) -> Self {
        let mut cluster = Self { view: View::default() };
        for number in 1..=control_planes {
            cluster.add_control_plane(&format!("cp-{number}"), at);
        }
        for number in 1..=workers {
            cluster.add_node(&format!("worker-{number}"), false, at);
        }
        cluster.view.kubeadm_config = Some("etcd:\n  local:\n    dataDir: /var/lib/etcd\n".into());
        cluster.images(&[at])
    }

    pub fn images(mut self, versions: &[&str]) -> Self {
        for text in versions {
            self.view.images.insert(version(text), Arc::from("upgrader"));
        }
        self
    }

    pub fn with_kube_vip(mut self, holder: &str) -> Self {
        let names: Vec<NodeName> = self.view.nodes.keys().cloned().collect();
        for name in names.iter().filter(|name| name.as_str().starts_with("cp-")) {
            self.put_part(name.as_str(), Component::KubeVip, None);
        }
        self.view.vip_holder = Some(holder.into());
        self
    }

    pub fn with_external_etcd(mut self) -> Self {
        let names: Vec<NodeName> = self.view.nodes.keys().cloned().collect();
        for name in &names {
            self.drop_part(name.as_str(), Component::Etcd);
            if let Some(health) = self.view.health.get_mut(name) {
                health.etcd = None;
            }
        }
        self.view.kubeadm_config = Some("etcd:\n  external:\n    endpoints:\n    - https://etcd:2379\n".into());
        self
    }

    pub fn add_control_plane(&mut self, name: &str, at: &str) {
        self.add_node(name, true, at);
        for component in [Component::ApiServer, Component::ControllerManager, Component::Scheduler] {
            self.put_part(name, component, Some(at));
        }
        self.put_part(name, Component::Etcd, None);
        let health = ControlPlaneHealth {
            readyz_in_a_row: 5,
            etcd: Some(EtcdMember { healthy: true }),
        };
        self.view.health.insert(name.into(), health);
    }

    pub fn add_node(&mut self, name: &str, control_plane: bool, at: &str) {
        let mut labels = crate::view::Labels::new();
        labels.insert("kubernetes.io/hostname".into(), name.into());
        let node = Node {
            name: name.into(),
            uid: format!("uid-{name}").into(),
            revision: Revision(1),
            created_at: Timestamp::UNIX_EPOCH,
            labels: Arc::new(labels),
            control_plane,
            ready: Ready {
                ready: true,
                since: Timestamp::UNIX_EPOCH,
            },
            kubelet_version: Some(version(at)),
            container_runtime_version: "containerd://2.1.4".into(),
            os_image: "Linux".into(),
            allocatable: Resources {
                pods: 110,
                ..resources(4000, 16 * GIB)
            },
            ..Node::default()
        };
        self.view.nodes.insert(name.into(), Arc::new(node));
    }

    pub fn node(&mut self, name: &str, change: impl FnOnce(&mut Node)) {
        change(Arc::make_mut(self.view.nodes.get_mut(name).unwrap()));
    }

    pub fn label(&mut self, name: &str, key: &str, value: &str) {
        self.node(name, |node| {
            Arc::make_mut(&mut node.labels).insert(key.into(), value.into());
        });
    }

    pub fn put_part(&mut self, node: &str, component: Component, at: Option<&str>) {
        let name = format!("{component:?}-{node}").to_lowercase();
        let part = StaticPart {
            component,
            version: at.map(version),
            tag: at.unwrap_or("3.6.5-0").into(),
        };
        let pod = Pod {
            static_part: Some(part),
            ..pod("kube-system", &name, Some(node), PodShape::default())
        };
        self.view.put_pod(Arc::new(pod));
    }

    /// Brings a control plane's parts and kubelet to a version.
    pub fn upgrade(&mut self, node: &str, to: &str) {
        self.node(node, |node| node.kubelet_version = Some(version(to)));
        if self.view.nodes[node].control_plane {
            for component in [Component::ApiServer, Component::ControllerManager, Component::Scheduler] {
                self.put_part(node, component, Some(to));
            }
        }
    }

    fn part_key(&self, node: &str, component: Component) -> Option<Key> {
        let node = NodeName::from(node);
        let mut parts = self.view.static_parts(&node);
        let found = parts.find(|(_, part)| part.component == component);
        found.map(|(pod, _)| pod.key.clone())
    }

    pub fn part(&mut self, node: &str, component: Component, change: impl FnOnce(&mut Pod)) {
        let key = self.part_key(node, component).unwrap();
        self.pod(&key, change);
    }

    pub fn drop_part(&mut self, node: &str, component: Component) {
        if let Some(key) = self.part_key(node, component) {
            self.view.remove_pod(&key);
        }
    }

    pub fn pod(&mut self, key: &Key, change: impl FnOnce(&mut Pod)) {
        let mut pod = Pod::clone(self.view.pod(key).unwrap());
        change(&mut pod);
        self.view.put_pod(Arc::new(pod));
    }

    /// Puts a pod of shop onto a node, brought back by a ReplicaSet.
    pub fn run(&mut self, name: &str, node: &str, requests: Resources, change: impl FnOnce(&mut PodShape)) {
        let mut shape = owned(requests);
        change(&mut shape);
        self.view.put_pod(Arc::new(pod("shop", name, Some(node), shape)));
    }

    pub fn health(&mut self, node: &str, change: impl FnOnce(&mut ControlPlaneHealth)) {
        change(self.view.health.get_mut(node).unwrap());
    }

    pub fn member(&mut self, node: &str, change: impl FnOnce(&mut EtcdMember)) {
        self.health(node, |health| change(health.etcd.as_mut().unwrap()));
    }
}

pub fn pod(namespace: &str, name: &str, node: Option<&str>, shape: PodShape) -> Pod {
    Pod {
        key: Key::new(namespace, name),
        uid: Uid::from(format!("uid-{namespace}-{name}")),
        revision: Revision(1),
        node: node.map(NodeName::from),
        phase: PodPhase::Running,
        ready: true,
        started_at: Some(Timestamp::UNIX_EPOCH),
        ending: None,
        shape: Arc::new(shape),
        static_part: None,
        task: None,
    }
}

/// A shape owned by a ReplicaSet.
pub fn owned(requests: Resources) -> PodShape {
    PodShape {
        owner: Some(Owner {
            kind: "ReplicaSet".into(),
            name: "checkout-7d9f".into(),
            uid: "uid-rs".into(),
        }),
        requests,
        ..PodShape::default()
    }
}
