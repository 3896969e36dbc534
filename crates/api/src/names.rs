//! Names that objects get from other objects. A name is where an old object could be taken for a new one, so that each
//! carries the uid of the upgrade it belongs to.

/// Longest name of a pod whose name also becomes a label value and a host name.
const LONGEST: usize = 63;

/// Name of a node's `NodeKubeadmUpgrade`: the node and the beginning of the upgrade's uid. The label
/// [`crate::labels::UPGRADE_UID`] holds the uid in full and has the last word.
pub fn node_upgrade(node: &str, upgrade_uid: &str) -> String {
    let suffix: String = upgrade_uid
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(8)
        .collect();
    let whole = format!("{node}-{suffix}");
    if whole.len() <= LONGEST {
        return whole;
    }
    // Nodes of one site often share a long prefix: the digest of the whole name keeps them apart.
    let digest = format!("{:08x}", fnv1a(node.as_bytes()));
    let room = LONGEST - suffix.len() - digest.len() - 2;
    let head: String = node.chars().take(room).collect();
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

    #[test]
    fn a_name_tells_two_upgrades_of_one_node_apart() {
        let first = node_upgrade("worker-1", "0b2f4c6e-1111-4222-8333-444455556666");
        let second = node_upgrade("worker-1", "9c2f4c6e-1111-4222-8333-444455556666");
        assert_eq!(first, "worker-1-0b2f4c6e");
        assert_ne!(first, second);
    }

    #[test]
    fn long_node_names_are_cut_and_stay_apart() {
        let uid = "0b2f4c6e-1111-4222-8333-444455556666";
        let (one, two) = (
            format!("{}-1.example", "n".repeat(80)),
            format!("{}-2.example", "n".repeat(80)),
        );
        let (one, two) = (node_upgrade(&one, uid), node_upgrade(&two, uid));
        assert_eq!((one.len(), two.len()), (63, 63));
        assert_ne!(one, two);
        assert!(one.ends_with("-0b2f4c6e"));
    }

    #[test]
    fn the_digest_is_the_published_fnv1a() {
        assert_eq!(fnv1a(b""), 0x811c_9dc5);
        assert_eq!(fnv1a(b"foobar"), 0xbf9c_f968);
    }
}
