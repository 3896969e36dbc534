//! CEL rules that more than one field or kind needs. A rule used once stands beside its field.
//! Every message says what to write instead; a test wants a failing and a passing case for each.

use kube_core::Rule;

/// A version with its leading `v` and all three numbers; suffixes as distributions add them are fine
/// (`v1.36.3+rke2r1`, `v1.28.3-eks-1-28-9`).
pub(crate) fn version() -> Rule {
    Rule::new(
        "self.matches('^v(0|[1-9][0-9]*)[.](0|[1-9][0-9]*)[.](0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?([+][0-9A-Za-z.-]+)?$')",
    )
    .message("write the whole version with its leading v, as in v1.36.3")
}

/// A tag as registries have them: it becomes a line of kubeadm's configuration.
pub(crate) fn image_tag() -> Rule {
    Rule::new("self.matches('^[A-Za-z0-9_][A-Za-z0-9_.-]*$')")
        .message("write the tag of the image alone, as in 3.6.8-0")
}

/// A field that stays what it was.
pub(crate) fn unchanged(message: &str) -> Rule {
    Rule::new("self == oldSelf").message(message)
}

/// An optional field that stays what it was, absence included. It stands on the parent: a rule on the field itself would
/// not run when the field is added or removed.
pub(crate) fn unchanged_optional(field: &str, message: &str) -> Rule {
    Rule::new(format!(
        "has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})"
    ))
    .message(message)
}

/// Children and pods carry the name of their upgrade as a label value.
pub(crate) fn name_fits_a_label() -> Rule {
    Rule::new("self.metadata.name.size() <= 63")
        .message("metadata.name has more than 63 characters, but becomes the value of a label: choose a shorter name")
}

/// The kubelet is never newer than the API server (<https://kubernetes.io/releases/version-skew-policy/>).
pub(crate) fn kubelet_not_newer() -> Rule {
    Rule::new(format!("{} || {KUBELET_MINOR} <= {API_MINOR}", malformed())).message(
        "kubeletVersion is newer than kubernetesVersion: write a kubeletVersion of the same or an older minor version",
    )
}

/// The kubelet is at most three minor versions older than the API server.
pub(crate) fn kubelet_not_too_old() -> Rule {
    Rule::new(format!("{} || {API_MINOR} - {KUBELET_MINOR} <= 3", malformed())).message(
        "kubeletVersion is more than three minor versions older than kubernetesVersion: write a newer kubeletVersion",
    )
}

const KUBELET_MINOR: &str = "int(self.kubeletVersion.split('.')[1])";
const API_MINOR: &str = "int(self.kubernetesVersion.split('.')[1])";

/// A malformed version is refused by its own rule; a comparison must not answer it with a second, obscure error.
fn malformed() -> String {
    let shaped = "matches('^v[0-9]{1,4}[.][0-9]{1,4}[.]')";
    format!("!self.kubeletVersion.{shaped} || !self.kubernetesVersion.{shaped}")
}

/// Machines of a Cluster API cluster are named by their `Machine`, those of the operator's own cluster by their `Node`.
pub(crate) fn machine_kinds() -> Rule {
    Rule::new("self.machinesRequireUpgrade.all(m, m.kind == (has(self.cluster) ? 'Machine' : 'Node'))").message(
        "machinesRequireUpgrade holds objects of kind Machine where cluster is given, and of kind Node where it is not",
    )
}
