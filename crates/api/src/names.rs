//! Names that objects get from other objects. A name is where an old object could be taken for a new one, so that each
//! carries the uid of the upgrade it belongs to.

/// Longest name of a pod whose name also becomes a label value and a host name.
pub const LONGEST: usize = 63;

/// Finalizer of the objects that must not go before what they changed is put back.
pub const FINALIZER: &str = "afloat.dev/cleanup";

/// The Lease that says which ClusterUpgrade may work on the cluster.
pub const LOCK: &str = "afloat-upgrade";
/// The ConfigMap that says which upgrader image belongs to which version.
pub const IMAGES: &str = "afloat-upgrader-images";

/// Name of a node's `NodeKubeadmUpgrade`: the node, the beginning of the uid of its group's object, and a digest of the
/// Node's own uid, since a machine may come back under its name as another one. The label [`crate::labels::UPGRADE_UID`] and
/// `spec.node.uid` hold both in full and have the last word.
pub fn node_upgrade(node: &str, group_uid: &str, node_uid: &str) -> String {
    let digest = format!("{:08x}", fnv1a(node_uid.as_bytes()));
    named(node, &format!("{}-{}", head_of(group_uid), &digest[..4]))
}

/// Name of a ClusterUpgrade's `ControlPlaneKubeadmUpgrade` or `WorkersKubeadmUpgrade`: one for each group and version.
pub fn group(upgrade: &str, upgrade_uid: &str, group: &str, version: &str) -> String {
    let version: String = version
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    named(
        &format!("{upgrade}-{group}"),
        &format!("{version}-{}", head_of(upgrade_uid)),
    )
}

/// Name of a pod that works on a node.
pub fn task_pod(node_upgrade: &str, task: &str, attempt: i32) -> String {
    named(node_upgrade, &format!("{task}-{attempt}"))
}

fn head_of(uid: &str) -> String {
    uid.chars().filter(char::is_ascii_alphanumeric).take(8).collect()
}

/// A name that is short enough for a label, told apart from others of the same head by a digest where it had to be cut.
pub fn cut(name: &str) -> String {
    if name.len() <= LONGEST {
        return name.to_owned();
    }
    let digest = format!("{:08x}", fnv1a(name.as_bytes()));
    let head: String = name.chars().take(LONGEST - digest.len() - 1).collect();
    format!("{}-{digest}", head.trim_end_matches(['-', '.']))
}

fn named(base: &str, suffix: &str) -> String {
    let whole = format!("{base}-{suffix}");
    if whole.len() <= LONGEST {
        return whole;
    }
    // Nodes of one site often share a long prefix: the digest of the whole name keeps them apart.
    let digest = format!("{:08x}", fnv1a(base.as_bytes()));
    let room = LONGEST.saturating_sub(suffix.len() + digest.len() + 2);
    let head: String = base.chars().take(room).collect();
    let head = head.trim_end_matches(['-', '.']);
    format!("{head}-{digest}-{suffix}")
}

/// 32-bit FNV-1a: short, stable between releases and platforms, and nothing here defends against an adversary.
fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: &str = "5f2f4c6e-1111-4222-8333-444455556666";

    #[test]
    fn a_name_tells_two_upgrades_of_one_node_and_two_nodes_of_one_name_apart() {
        let first = node_upgrade("worker-1", "0b2f4c6e-1111-4222-8333-444455556666", NODE);
        let second = node_upgrade("worker-1", "9c2f4c6e-1111-4222-8333-444455556666", NODE);
        let replaced = node_upgrade("worker-1", "0b2f4c6e-1111-4222-8333-444455556666", "other");
        assert!(first.starts_with("worker-1-0b2f4c6e-"), "{first}");
        assert_ne!(first, second);
        assert_ne!(first, replaced);
    }

    #[test]
    fn long_node_names_are_cut_and_stay_apart() {
        let uid = "0b2f4c6e-1111-4222-8333-444455556666";
        let (one, two) = (
            format!("{}-1.example", "n".repeat(80)),
            format!("{}-2.example", "n".repeat(80)),
        );
        let (one, two) = (node_upgrade(&one, uid, NODE), node_upgrade(&two, uid, NODE));
        assert_eq!((one.len(), two.len()), (63, 63));
        assert_ne!(one, two);
        let pods = (task_pod(&one, "rollback", 1000), task_pod(&two, "rollback", 1000));
        assert!(pods.0.len() <= 63 && pods.0 != pods.1, "{pods:?}");
    }

    #[test]
    fn a_group_is_named_for_its_version() {
        assert_eq!(
            group("edge-1", "0b2f4c6e-1111", "cp", "v1.36.3+rke2r1"),
            "edge-1-cp-v1-36-3-rke2r1-0b2f4c6e"
        );
    }

    #[test]
    fn the_digest_is_the_published_fnv1a() {
        assert_eq!(fnv1a(b""), 0x811c_9dc5);
        assert_eq!(fnv1a(b"foobar"), 0xbf9c_f968);
    }
}
