//! The table of real components: one line each, in the order in which they are built. A new one is a line here and an import in the
//! `tools.go` of its wrapper module under `components/`; how a line becomes a build is `catalogue`.

/// Who needs a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Set {
    /// `make test`: throw-away control planes on loopback ports.
    Tests,
    /// The lab: whole machines, at two versions to upgrade between, and what tests need.
    Lab,
    /// The lab with a patch release between the two versions.
    Patch,
    /// The lab with the minor before its two versions.
    Earlier,
}

impl Set {
    /// Whether what belongs to the other one is needed for this one too.
    pub(crate) fn includes(self, other: Self) -> bool {
        self == other || other <= Self::Lab && other < self
    }
}

/// How the version gets into the binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stamp {
    /// The module carries its own version in source.
    None,
    /// `k8s.io/component-base/version` is set at link time, as upstream's release build does.
    Kubernetes,
    /// containerd's `version` package, set at link time.
    Containerd,
    /// helm's own `version` package, which knows no patch release otherwise.
    Helm,
}

/// One component: an entry of the catalogue.
#[derive(Debug, Clone, Copy)]
pub struct Component {
    /// Also the name of its binary.
    pub name: &'static str,
    /// The line of versions, such as `1.36`: lines of one component live side by side. The first in the table is the one meant by the bare name.
    pub line: &'static str,
    pub(crate) set: Set,
    /// Folder under `components/`.
    pub(crate) wrapper: &'static str,
    /// Go package to build, from within that folder.
    pub(crate) package: &'static str,
    /// The required module whose version is the component's.
    pub(crate) module: &'static str,
    pub(crate) stamp: Stamp,
    pub(crate) tags: &'static str,
    /// Built with C libraries. Only runc is: a container without seccomp is refused by the kubelet's default profile.
    pub(crate) cgo: bool,
}

const fn stock(name: &'static str, line: &'static str, wrapper: &'static str, module: &'static str) -> Component {
    Component {
        name,
        line,
        set: Set::Lab,
        wrapper,
        package: module,
        module,
        stamp: Stamp::None,
        tags: "",
        cgo: false,
    }
}

const fn kubernetes(
    set: Set,
    name: &'static str,
    line: &'static str,
    wrapper: &'static str,
    package: &'static str,
) -> Component {
    Component {
        set,
        package,
        stamp: Stamp::Kubernetes,
        ..stock(name, line, wrapper, "k8s.io/kubernetes")
    }
}

const fn k136(set: Set, name: &'static str, package: &'static str) -> Component {
    kubernetes(set, name, "1.36", "kubernetes-1.36", package)
}

const fn k135(name: &'static str, package: &'static str) -> Component {
    kubernetes(Set::Lab, name, "1.35", "kubernetes-1.35", package)
}

const fn k1361(name: &'static str, package: &'static str) -> Component {
    kubernetes(Set::Patch, name, "1.36.1", "kubernetes-1.36.1", package)
}

const fn k134(name: &'static str, package: &'static str) -> Component {
    kubernetes(Set::Earlier, name, "1.34", "kubernetes-1.34", package)
}

const fn etcd(set: Set, line: &'static str, wrapper: &'static str) -> Component {
    Component {
        set,
        package: ".",
        ..stock("etcd", line, wrapper, "go.etcd.io/etcd/server/v3")
    }
}

const fn containerd(name: &'static str, line: &'static str, wrapper: &'static str, package: &'static str) -> Component {
    Component {
        package,
        stamp: Stamp::Containerd,
        // Snapshotters that the lab has no disk for; btrfs would need C.
        tags: "no_btrfs,no_zfs,no_devmapper",
        ..stock(name, line, wrapper, "github.com/containerd/containerd/v2")
    }
}

const fn runc(line: &'static str, wrapper: &'static str) -> Component {
    Component {
        tags: "seccomp",
        cgo: true,
        ..stock("runc", line, wrapper, "github.com/opencontainers/runc")
    }
}

const fn cni(name: &'static str, package: &'static str) -> Component {
    Component {
        package,
        ..stock(name, "1.9", "cni-1.9", "github.com/containernetworking/plugins")
    }
}

const fn coredns(set: Set, line: &'static str, wrapper: &'static str) -> Component {
    Component {
        set,
        ..stock("coredns", line, wrapper, "github.com/coredns/coredns")
    }
}

const fn helm(line: &'static str, wrapper: &'static str) -> Component {
    Component {
        set: Set::Tests,
        package: "helm.sh/helm/v3/cmd/helm",
        stamp: Stamp::Helm,
        ..stock("helm", line, wrapper, "helm.sh/helm/v3")
    }
}

/// Prints the definitions of kinds that their owner has only as code.
const fn printer(name: &'static str, line: &'static str, wrapper: &'static str, module: &'static str) -> Component {
    Component {
        set: Set::Tests,
        package: ".",
        ..stock(name, line, wrapper, module)
    }
}

/// Ours, of client-go and little else.
const fn kube_vip_stand_in(line: &'static str) -> Component {
    Component {
        package: ".",
        ..stock("kube-vip-stand-in", line, "kube-vip-stand-in", "k8s.io/client-go")
    }
}

const CONTAINERD: &str = "github.com/containerd/containerd/v2/cmd/containerd";
const SHIM: &str = "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2";
const CTR: &str = "github.com/containerd/containerd/v2/cmd/ctr";

pub(crate) const CATALOGUE: &[Component] = &[
    etcd(Set::Tests, "3.6", "etcd-3.6"),
    k136(Set::Tests, "kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    k136(Set::Tests, "kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    k136(
        Set::Tests,
        "kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
    ),
    k136(Set::Tests, "kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    helm("3.22", "helm-3.22"),
    printer("kubevirt-crds", "1.5", "kubevirt-crds-1.5", "kubevirt.io/kubevirt"),
    printer(
        "rancher-crds",
        "2.9",
        "rancher-crds-2.9",
        "github.com/rancher/rancher/pkg/apis",
    ),
    k136(Set::Lab, "kubelet", "k8s.io/kubernetes/cmd/kubelet"),
    k136(Set::Lab, "kubeadm", "k8s.io/kubernetes/cmd/kubeadm"),
    k136(Set::Lab, "kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
    // The etcd that kubeadm 1.36.3 asks for; 1.35.4 asks for 3.6.6.
    etcd(Set::Lab, "3.6.8", "etcd-3.6.8"),
    containerd("containerd", "2.3", "containerd-2.3", CONTAINERD),
    containerd("containerd-shim-runc-v2", "2.3", "containerd-2.3", SHIM),
    containerd("ctr", "2.3", "containerd-2.3", CTR),
    runc("1.5", "runc-1.5"),
    cni("bridge", "github.com/containernetworking/plugins/plugins/main/bridge"),
    cni(
        "loopback",
        "github.com/containernetworking/plugins/plugins/main/loopback",
    ),
    cni(
        "host-local",
        "github.com/containernetworking/plugins/plugins/ipam/host-local",
    ),
    cni("portmap", "github.com/containernetworking/plugins/plugins/meta/portmap"),
    coredns(Set::Lab, "1.14", "coredns-1.14"),
    kube_vip_stand_in("0.36"),
    k135("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
    k135("kubeadm", "k8s.io/kubernetes/cmd/kubeadm"),
    k135("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    k135("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    k135(
        "kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
    ),
    k135("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    k135("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
    etcd(Set::Lab, "3.6.6", "etcd-3.6.6"),
    containerd("containerd", "2.2", "containerd-2.2", CONTAINERD),
    containerd("containerd-shim-runc-v2", "2.2", "containerd-2.2", SHIM),
    containerd("ctr", "2.2", "containerd-2.2", CTR),
    runc("1.4", "runc-1.4"),
    coredns(Set::Lab, "1.13", "coredns-1.13"),
    // The rest of 1.36.1 is as 1.36.3 has it.
    k1361("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
    k1361("kubeadm", "k8s.io/kubernetes/cmd/kubeadm"),
    k1361("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    k1361("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    k1361(
        "kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
    ),
    k1361("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    k1361("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
    // What 1.34.4 asks for; it runs with the containerd and runc of 1.35.4.
    k134("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
    k134("kubeadm", "k8s.io/kubernetes/cmd/kubeadm"),
    k134("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    k134("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    k134(
        "kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
    ),
    k134("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    k134("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
    etcd(Set::Earlier, "3.6.5", "etcd-3.6.5"),
    coredns(Set::Earlier, "1.12", "coredns-1.12"),
];
