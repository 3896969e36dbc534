//! Versions as people and clusters write them.

use super::*;
use proptest::prelude::*;

fn version(text: &str) -> KubernetesVersion {
    text.parse().unwrap()
}

#[test]
fn a_version_reads_and_prints_as_it_was_written() {
    for text in [
        "v1.36.3",
        "v1.36.3+rke2r1",
        "v1.28.3-eks-1-28-9",
        "v1.37.0-rc.1",
        "v0.0.0",
    ] {
        assert_eq!(version(text).to_string(), text);
    }
    let read = version("v1.36.3");
    assert_eq!(
        (read.minor_version().to_string(), read.patch()),
        ("v1.36".to_owned(), 3)
    );
}

#[test]
fn what_is_no_version_is_told_what_to_write() {
    let cases = [
        ("", "the version is empty: write it whole, as v1.36.3"),
        ("1.36.3", "\"1.36.3\" has no leading v: write v1.36.3"),
        (
            " v1.36.3",
            "\" v1.36.3\" has a space in it: write the version without, as v1.36.3",
        ),
        (
            "v1.36.3\n",
            "\"v1.36.3\\n\" has a space in it: write the version without, as v1.36.3",
        ),
        (
            "v1.36",
            "\"v1.36\" is not a whole version: write major, minor and patch, as v1.36.3",
        ),
        (
            "v1",
            "\"v1\" is not a whole version: write major, minor and patch, as v1.36.3",
        ),
        (
            "v1.36-rc.1",
            "\"v1.36-rc.1\" is not a whole version: write major, minor and patch, as v1.36.3",
        ),
        (
            "v",
            "\"v\" is not a whole version: write major, minor and patch, as v1.36.3",
        ),
        (
            "latest",
            "\"latest\" is not a version (it does not begin with v): write it as v1.36.3",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(text.parse::<KubernetesVersion>().unwrap_err().to_string(), message);
    }
    for text in [
        "v1.036.3",
        "v1.36.x",
        "v1.36.3.4",
        "v-1.36.3",
        "vv1.36.3",
        "v1.36.3+",
        "v99999999999999999999.0.0",
    ] {
        let error = text.parse::<KubernetesVersion>().unwrap_err();
        assert!(error.to_string().ends_with("v1.36.3"), "{text}: {error}");
    }
}

#[test]
fn a_version_is_written_one_way_only() {
    let version: KubernetesVersion = "v1.36.3".parse().unwrap();
    assert!(version.is_written("v1.36.3"));
    for other in [
        "",
        "1.36.3",
        "v1.36",
        "v1.36.30",
        "v1.36.3-rc.0",
        "v1.36.03",
        "v1.+36.3",
        "v1.36.3-",
        "v1.36.3+",
        "v1.36.3.0",
        "vv1.36.3",
    ] {
        assert!(!version.is_written(other), "{other}");
    }
    for suffixed in ["v1.36.3-rc.0", "v1.36.3+rke2r1", "v1.36.3-rc.1+rke2r1", "v10.0.20"] {
        let version: KubernetesVersion = suffixed.parse().unwrap();
        assert!(
            version.is_written(suffixed) && version.is_written(&version.to_string()),
            "{suffixed}"
        );
        assert!(!version.is_written("v1.36.3"), "{suffixed}");
    }
}

#[test]
fn versions_are_in_the_order_of_their_numbers_not_of_their_letters() {
    let sorted = [
        "v1.9.9",
        "v1.10.0",
        "v1.36.2",
        "v1.36.3-rc.1",
        "v1.36.3",
        "v1.36.3+rke2r1",
        "v1.36.3+rke2r2",
        "v1.36.10",
    ];
    for pair in sorted.windows(2) {
        assert!(version(pair[0]) < version(pair[1]), "{} < {}", pair[0], pair[1]);
    }
}

#[test]
fn distance_counts_minor_versions() {
    let cases = [
        ("v1.35.4", "v1.36.3", Some(1)),
        ("v1.36.0", "v1.36.9", Some(0)),
        ("v1.36.0", "v1.34.9", Some(-2)),
        ("v1.36.0", "v2.0.0", None),
    ];
    for (from, to, distance) in cases {
        assert_eq!(version(from).minors_to(&version(to)), distance, "{from} {to}");
    }
}

#[test]
fn a_kubelet_is_never_newer_and_at_most_three_minors_older() {
    let cases = [
        ("v1.36.3", "v1.36.0", KubeletSkew::Allowed),
        ("v1.33.0", "v1.36.3", KubeletSkew::Allowed),
        ("v1.32.9", "v1.36.3", KubeletSkew::TooOld { minors: 4 }),
        ("v1.37.0", "v1.36.3", KubeletSkew::Newer),
        ("v1.25.0", "v1.28.0", KubeletSkew::Allowed),
        ("v1.25.0", "v1.27.0", KubeletSkew::Allowed),
        ("v1.24.0", "v1.27.0", KubeletSkew::TooOld { minors: 3 }),
        ("v2.0.0", "v1.36.3", KubeletSkew::Newer),
        ("v1.36.3", "v2.0.0", KubeletSkew::TooOld { minors: u64::MAX }),
    ];
    for (kubelet, api_server, expected) in cases {
        assert_eq!(
            version(kubelet).kubelet_skew(&version(api_server)),
            expected,
            "{kubelet} under {api_server}"
        );
    }
}

#[test]
fn the_floor_of_a_minor_version_is_below_all_its_releases_and_above_all_before() {
    let floor = version("v1.36.3").minor_version().floor();
    for above in ["v1.36.0-alpha.0", "v1.36.0-rc.1", "v1.36.0", "v1.36.9"] {
        assert!(floor < version(above), "{above}");
    }
    assert!(version("v1.35.99+rke2r1") < floor);
}

#[test]
fn k22_a_control_plane_goes_one_minor_version_at_a_time() {
    let cases = [
        ("v1.35.4", "v1.36.3", "v1.36.3"),
        ("v1.24.17", "v1.27.16", "v1.25 v1.26 v1.27.16"),
        ("v1.36.1", "v1.36.3", "v1.36.3"),
        ("v1.36.3", "v1.36.3", ""),
        ("v1.36.3+rke2r1", "v1.36.3+rke2r2", "v1.36.3+rke2r2"),
        ("v1.37.0-rc.1", "v1.37.0", "v1.37.0"),
    ];
    for (from, to, expected) in cases {
        let hops = version(from).hops(&version(to)).unwrap();
        assert_eq!(
            hops.iter().map(Hop::to_string).collect::<Vec<_>>().join(" "),
            expected,
            "{from} to {to}"
        );
    }
}

#[test]
fn there_is_no_way_down_nor_to_another_major_version() {
    let down = version("v1.36.3").hops(&version("v1.36.2")).unwrap_err();
    assert_eq!(
        down.to_string(),
        "v1.36.2 is older than v1.36.3: it would be a downgrade"
    );
    let major = version("v1.36.3").hops(&version("v2.0.0")).unwrap_err();
    assert!(matches!(major, HopError::Major { .. }));
}

proptest! {
    #[test]
    fn every_hop_is_one_minor_version_or_none_and_the_last_arrives(
        minor in 0u64..60, patch in 0u64..20, further in 0u64..30, to_patch in 0u64..20,
    ) {
        let from = version(&format!("v1.{minor}.{patch}"));
        let to = version(&format!("v1.{}.{to_patch}", minor + further));
        prop_assume!(from < to);
        let hops = from.hops(&to).unwrap();
        let mut at = minor;
        for hop in &hops {
            let next = match hop {
                Hop::Minor(minor) => minor.minor,
                Hop::Exact(version) => version.minor_version().minor,
            };
            prop_assert!(next == at + 1 || (next == at && further == 0));
            at = next;
        }
        prop_assert_eq!(hops.last(), Some(&Hop::Exact(to)));
    }

    #[test]
    fn whatever_a_person_types_is_read_or_refused_and_what_is_read_prints_the_same(text in "[v0-9.+a-z -]{0,24}") {
        if let Ok(read) = text.parse::<KubernetesVersion>() {
            prop_assert_eq!(read.to_string(), text);
        }
    }
}
