//! The machines of a kubeadm-like cluster: control planes with static pods, workers, spread over three zones.

use super::Shape;
use crate::machine::{Machine, StaticPod};

const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

pub(super) fn machines(shape: &Shape) -> Vec<Machine> {
    let control_planes = (0..shape.control_planes).map(|index| machine(shape, index, true));
    let workers = (0..shape.workers).map(|index| machine(shape, index, false));
    control_planes.chain(workers).collect()
}

fn machine(shape: &Shape, index: u32, control_plane: bool) -> Machine {
    // One number per machine, control planes first: addresses and pod ranges follow from it.
    let number = if control_plane {
        index
    } else {
        shape.control_planes + index
    };
    let host = number + 11;
    let address = format!("10.10.{}.{}", host / 250, host % 250 + 1);
    let range = number + 1;
    Machine {
        name: if control_plane {
            format!("cp-{}", index + 1)
        } else {
            format!("worker-{}", index + 1)
        },
        control_plane,
        schedulable: !control_plane,
        zone: ZONES
            .get(index as usize % ZONES.len())
            .copied()
            .unwrap_or_default()
            .to_owned(),
        cpus: if control_plane { 4 } else { 8 },
        memory_gib: if control_plane { 8 } else { 16 },
        version: shape.version.clone(),
        pod_prefix: format!("10.{}.{}", 128 + range / 256, range % 256),
        static_pods: if control_plane {
            static_pods(&shape.version, &address)
        } else {
            Vec::new()
        },
        address,
    }
}

fn static_pods(version: &str, address: &str) -> Vec<StaticPod> {
    let kubernetes = |component: &str, flags: &[&str], cpu: &str| StaticPod {
        component: component.to_owned(),
        image: format!("registry.k8s.io/{component}:{version}"),
        command: std::iter::once(component)
            .chain(flags.iter().copied())
            .map(str::to_owned)
            .collect(),
        cpu_request: cpu.to_owned(),
        host_paths: vec!["/etc/kubernetes/pki".to_owned()],
    };
    let advertise = format!("--advertise-address={address}");
    vec![
        StaticPod {
            component: "etcd".to_owned(),
            image: "registry.k8s.io/etcd:3.6.6-0".to_owned(),
            command: vec![
                "etcd".to_owned(),
                format!("--advertise-client-urls=https://{address}:2379"),
                "--data-dir=/var/lib/etcd".to_owned(),
            ],
            cpu_request: "100m".to_owned(),
            host_paths: vec!["/var/lib/etcd".to_owned(), "/etc/kubernetes/pki/etcd".to_owned()],
        },
        kubernetes(
            "kube-apiserver",
            &[&advertise, "--etcd-servers=https://127.0.0.1:2379"],
            "250m",
        ),
        kubernetes("kube-controller-manager", &["--leader-elect=true"], "200m"),
        kubernetes("kube-scheduler", &["--leader-elect=true"], "100m"),
    ]
}
