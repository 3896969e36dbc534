//! The file that keeps RKE2 from bringing its own multus.

use super::Scripted;
use crate::release::multus;

#[test]
fn multus_is_held_on_servers_alone_and_a_file_of_a_persons_stays() {
    const SKIP: &str = "/var/lib/rancher/rke2/server/manifests/rke2-multus.yaml.skip";
    let manifest = "/var/lib/rancher/rke2/server/manifests/rke2-multus.yaml";
    for (there, held, after) in [
        (vec![], false, false),
        (vec![manifest], true, false),
        (vec![manifest, SKIP], true, true),
    ] {
        let files = there.iter().map(|&path| (path.to_owned(), Vec::new()));
        let mut host = Scripted {
            files: files.collect(),
            ..Scripted::default()
        };
        for (hold, expected) in [(true, held), (false, after)] {
            for _ in 0..2 {
                if hold {
                    multus::hold(&mut host).unwrap();
                } else {
                    multus::let_go(&mut host).unwrap();
                }
            }
            assert_eq!(host.files.contains_key(SKIP), expected, "{there:?}");
        }
    }
}
