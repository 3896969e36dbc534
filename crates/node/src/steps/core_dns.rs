//! What kubeadm must be told about CoreDNS. It migrates CoreDNS's configuration from the version that runs to its own, whatever tag its
//! configuration names (`phases/addons/dns`, `phases/upgrade/preflight.go`), and fails where that way leads down. So it is kept from an
//! add-on that is there already: the control planes after the one that brought it, a run that goes on after a cut, and a patch release.

use serde_json::Value;

use afloat_api::kubeadm::configuration::{TaggedPart, image_tag};

use crate::host::Answer;
use crate::instruction::{Context, Ran, failed, wait_for_step};
use crate::steps::cluster;

const CONFIGURATION: &str = "configmap/kubeadm-config";
const DEPLOYMENT: &str = "deployment/coredns";

/// What kubectl says of it, once it does.
pub enum Seen {
    /// Whether CoreDNS runs by the very tag that kubeadm's configuration names.
    Stays(bool),
    NotYet(Ran),
}

/// `v1.14.2` of `registry.k8s.io/coredns/coredns:v1.14.2`.
fn tag_of(image: &str) -> Option<&str> {
    let image = image.split('@').next()?;
    let (_, tag) = image.rsplit('/').next()?.split_once(':')?;
    Some(tag)
}

fn stays(items: &[Value]) -> bool {
    let find = |name: &str| items.iter().find(|item| cluster::name_of(item) == name);
    let text = |name: &str, pointer: &str| find(name)?.pointer(pointer)?.as_str();
    let named =
        text(CONFIGURATION, "/data/ClusterConfiguration").and_then(|config| image_tag(config, TaggedPart::CoreDns));
    let runs = text(DEPLOYMENT, "/spec/template/spec/containers/0/image").and_then(tag_of);
    named.is_some() && named == runs
}

/// Asks the cluster.
pub fn look(c: &mut Context<'_>) -> Answer<Seen> {
    let ask = cluster::ask(&[CONFIGURATION, DEPLOYMENT]);
    let Some((code, said, error)) = c.job("-core-dns", &ask)? else {
        return Ok(Seen::NotYet(wait_for_step(&ask)));
    };
    Ok(match cluster::items(code, &said) {
        Some(items) => Seen::Stays(stays(&items)),
        None => Seen::NotYet(Ran::Tried(failed(&ask, code, &error))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn p46_core_dns_is_left_alone_where_it_runs_by_the_tag_that_is_named_and_only_there() {
        let config = |named: &str| {
            let config = format!("dns:{named}\nkind: ClusterConfiguration\n");
            json!({"kind": "ConfigMap", "metadata": {"name": "kubeadm-config"}, "data": {"ClusterConfiguration": config}})
        };
        let deployment = |image: &str| {
            json!({"kind": "Deployment", "metadata": {"name": "coredns"},
                "spec": {"template": {"spec": {"containers": [{"name": "coredns", "image": image}]}}}})
        };
        let named = config("\n  imageTag: v1.14.2");
        for (items, expected) in [
            (
                vec![named.clone(), deployment("registry.k8s.io/coredns/coredns:v1.14.2")],
                true,
            ),
            (
                vec![named.clone(), deployment("mirror:5000/coredns:v1.14.2@sha256:0a1b")],
                true,
            ),
            (
                vec![named.clone(), deployment("registry.k8s.io/coredns/coredns:v1.13.1")],
                false,
            ),
            (vec![named.clone(), deployment("mirror:5000/coredns")], false),
            (
                vec![config(" {}"), deployment("registry.k8s.io/coredns/coredns:v1.14.2")],
                false,
            ),
            (vec![named], false),
            (vec![], false),
        ] {
            assert_eq!(stays(&items), expected, "{items:?}");
        }
    }
}
