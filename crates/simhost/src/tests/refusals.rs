//! What a machine does not begin with: one that does not fit, a bundle nobody vouches for, a journal that was damaged.

use super::*;
use afloat_node::signature::PublicKey;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};

#[test]
fn a_machine_that_does_not_fit_is_found_out_before_anything_changes() {
    type Break = fn(&mut Attempt);
    let cases: [(Break, &str); 8] = [
        (|a| a.host.room.bytes = 1000, "MiB are free on /var/lib"),
        (|a| a.host.room.inodes = 1000, "inodes are free"),
        (
            |a| a.host.put(paths::SWAPS, "Filename\n/dev/sda2 partition 1\n"),
            "swap is on",
        ),
        (
            |a| a.host.remove(paths::CGROUP_V2).unwrap(),
            "this machine has cgroup v1",
        ),
        (
            |a| {
                a.host.put(
                    "/etc/default/kubelet",
                    "KUBELET_EXTRA_ARGS=--pod-infra-container-image=x\n",
                );
            },
            "sets --pod-infra-container-image",
        ),
        (|a| a.plan.kubelet_version = "v1.34.4".to_owned(), "downgrade"),
        (
            |a| a.host.faults.expired_certificate = Some("apiserver".to_owned()),
            "the certificate apiserver has expired",
        ),
        (
            |a| a.host.faults.expired_certificate = Some("etcd-ca".to_owned()),
            "the authority etcd-ca has expired",
        ),
    ];
    for (wrong, said) in cases {
        let mut attempt = Attempt::new(FIRST);
        wrong(&mut attempt);
        attempt.before = attempt.host.tree().clone();
        let ended = attempt.upgrade();
        assert_eq!(outcome(&ended), (exit::FAILED, StepOutcome::Failed), "{said}");
        assert!(ended.1.message.contains(said), "{said}: {}", ended.1.message);
        assert_eq!(attempt.changed_outside(), [""; 0], "{said}");
    }
}

#[test]
fn p40_a_bundle_that_was_tampered_with_is_refused() {
    let mut attempt = Attempt::new(WORKER);
    let bundle = Bundle::of(WORKER.via).with_tampered("kubernetes/v1.36.3/kubelet");
    let (machine, shared, now) = (
        attempt.host.machine.clone(),
        attempt.host.shared.clone(),
        attempt.host.now(),
    );
    attempt.host = SimHost::new(machine, &bundle, shared, now);
    attempt.before = attempt.host.tree().clone();
    let ended = attempt.upgrade();
    assert_eq!(outcome(&ended), (exit::FAILED, StepOutcome::Failed), "{ended:?}");
    assert_eq!(ended.1.reason.as_deref(), Some("BundleUnavailable"));
    assert_eq!(attempt.changed_outside(), [""; 0]);
}

#[test]
fn p29_a_node_that_was_told_keys_takes_only_what_they_signed() {
    let pair = Ed25519KeyPair::generate().unwrap();
    let mut bytes = [0; 32];
    bytes.copy_from_slice(pair.public_key().as_ref());
    let (ours, other) = (PublicKey::new(bytes).to_base64(), PublicKey::new([7; 32]).to_base64());
    let plain = Bundle::of(WORKER.via);
    let signed = plain.with_signature(|list| pair.sign(list).as_ref().to_vec());
    let elsewhere = plain.with_signature(|_| pair.sign(b"another list").as_ref().to_vec());
    for (what, key, bundle, said) in [
        ("signed", Some(&ours), &signed, ""),
        (
            "signed, and two keys while one goes",
            Some(&format!("{other} {ours}")),
            &signed,
            "",
        ),
        ("no key, no signature", None, &plain, ""),
        ("not signed", Some(&ours), &plain, "the bundle is not signed"),
        (
            "another key",
            Some(&other),
            &signed,
            "the bundle is not signed by the key",
        ),
        (
            "the signature of another list",
            Some(&ours),
            &elsewhere,
            "the bundle is not signed by the key",
        ),
        (
            "no key at all",
            Some(&"nonsense".to_owned()),
            &signed,
            "AFLOAT_BUNDLE_KEY holds no public key",
        ),
    ] {
        let mut attempt = Attempt::new(WORKER);
        let host = &attempt.host;
        attempt.host = SimHost::new(host.machine.clone(), bundle, host.shared.clone(), host.now());
        attempt.before = attempt.host.tree().clone();
        attempt.plan.bundle_key = key.cloned();
        let ended = attempt.upgrade();
        if said.is_empty() {
            assert_eq!(ended.0, exit::DONE, "{what}: {ended:?}");
            continue;
        }
        assert_eq!(outcome(&ended), (exit::FAILED, StepOutcome::Failed), "{what}");
        assert_eq!(ended.1.reason.as_deref(), Some("BundleUnavailable"), "{what}");
        assert!(ended.1.message.starts_with(said), "{what}: {}", ended.1.message);
        assert_eq!(attempt.changed_outside(), [""; 0], "{what}");
    }
}

#[test]
fn a_journal_that_was_damaged_is_not_guessed_at() {
    let mut attempt = Attempt::new(WORKER);
    attempt.step(steps::STAGE);
    let damaged = attempt.journal().replace("copies the bundle", "copies a bundle");
    attempt.host.put(paths::JOURNAL, &damaged);
    let now = attempt.host.now();
    let refused = Engine::default().advance(&mut attempt.host, now);
    let message = refused.unwrap_err().to_string();
    assert!(
        message.starts_with("line 5 of /var/lib/afloat/journal is damaged"),
        "{message}"
    );
}

#[test]
fn what_was_damaged_since_it_was_staged_is_refused_before_anything_changes() {
    let damages: [fn(&mut Attempt); 3] = [
        |a| {
            a.host
                .put("/var/lib/afloat/bundle/kubernetes/v1.36.3/kubelet", "decayed");
        },
        |a| {
            a.host
                .remove("/var/lib/afloat/bundle/kubernetes/v1.36.3/kubeadm")
                .unwrap();
        },
        |a| a.host.remove("/var/lib/afloat/bundle/SHA256SUMS").unwrap(),
    ];
    for case in [WORKER, FIRST, OTHER_SLOW, SINGLE] {
        for damage in damages {
            let mut attempt = Attempt::new(case);
            assert_eq!(attempt.step(steps::STAGE).0, exit::DONE);
            damage(&mut attempt);
            attempt.before = attempt.host.tree().clone();
            let ended = attempt.upgrade();
            assert_eq!(
                outcome(&ended),
                (exit::FAILED, StepOutcome::Failed),
                "{case:?} {ended:?}"
            );
            assert_eq!(ended.1.reason.as_deref(), Some("BundleUnavailable"));
            assert!(ended.1.message.contains("nothing was changed"), "{ended:?}");
            assert_eq!(attempt.changed_outside(), [""; 0], "{case:?}");
            assert!(attempt.host.kubelet_ready() && attempt.host.forwarding_to().is_none());
        }
    }
}

#[test]
fn a_kubelet_that_is_told_to_bear_swap_is_not_refused() {
    let ways: [(&str, &str); 5] = [
        (paths::KUBELET_CONFIG, "kind: KubeletConfiguration\nfailSwapOn: false\n"),
        (paths::KUBELET_CONFIG, "\"failSwapOn\" :   false # ours\n"),
        (
            paths::KUBELET_CONFIG,
            "{kind: KubeletConfiguration, failSwapOn: false}\n",
        ),
        (paths::KUBELET_FLAGS, "KUBELET_KUBEADM_ARGS=\"--fail-swap-on=false\"\n"),
        (paths::KUBELET_EXTRA, "KUBELET_EXTRA_ARGS=--fail-swap-on=false\n"),
    ];
    for (file, text) in ways {
        let mut attempt = Attempt::new(WORKER);
        attempt.host.put(paths::SWAPS, "Filename\n/dev/sda2 partition 1\n");
        attempt.host.put(file, text);
        let ended = attempt.step(steps::STAGE);
        assert_eq!(ended.0, exit::DONE, "{file}: {text} {ended:?}");
    }
    // In words it is there, but it is not what counts.
    for (file, text) in [
        (paths::KUBELET_CONFIG, "# failSwapOn: false\nfailSwapOn: true\n"),
        (paths::KUBELET_EXTRA, "KUBELET_EXTRA_ARGS=--fail-swap-on\n"),
    ] {
        let mut attempt = Attempt::new(WORKER);
        attempt.host.put(paths::SWAPS, "Filename\n/dev/sda2 partition 1\n");
        attempt.host.put(paths::KUBELET_CONFIG, "failSwapOn: false\n");
        attempt.host.put(file, text);
        let ended = attempt.step(steps::STAGE);
        assert!(ended.1.message.contains("swap is on"), "{file}: {text} {ended:?}");
    }
}
