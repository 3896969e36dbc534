//! Systems in two slots (H47, H48): written, tried, kept, and fallen back from, with a crash at every operation; and what is refused, with nothing changed.

use afloat_node::host::HostError;
use afloat_node::release::FOLDER;
use afloat_node::release::system::{self, Errand, Judge, Systems, Trial, Verdict};

use super::super::{Crash, Moment, checksum};
use super::*;

const OLD: &str = "usr/lib/os-release=Old\nsbin/init=systemd\netc/issue=old\n";
const NEW: &str = "usr/lib/os-release=New\nsbin/init=systemd\netc/issue=new\nusr/bin/more=more\n";
const BROKEN: &str = "usr/lib/os-release=Broken\nsbin/init=broken\n";
const ERRAND: Errand<'static> = Errand { run: "r", node: "cp-1" };

/// A machine with two slots, and an image of the release on it.
fn brought(archive: &str) -> SimHost {
    let mut host = Attempt::new(SINGLE).host.with_systems(OLD);
    bring(&mut host, archive);
    host
}

fn bring(host: &mut SimHost, archive: &str) {
    host.put(&format!("{FOLDER}/rootfs.tar"), archive);
    let line = format!("{}  rootfs.tar\n", checksum(archive));
    host.put(&format!("{FOLDER}/rootfs.tar.sha512"), &line);
}

fn systems(host: &mut SimHost) -> &'static dyn Systems {
    let systems = system::of(host).unwrap();
    assert_eq!((systems.image(), systems.wants_checksum()), ("rootfs.tar", true));
    systems
}

fn install(host: &mut SimHost, run: &str) -> Result<String, HostError> {
    system::of(host)?.install(host, &Errand { run, ..ERRAND })
}

fn refused(host: &mut SimHost) -> String {
    install(host, "refused").unwrap_err().to_string()
}

fn boot_file(host: &SimHost, name: &str) -> Option<String> {
    let file = host.tree().get(&format!("/systems/boot/{name}"))?;
    Some(String::from_utf8(file.bytes().to_vec()).unwrap())
}

/// What the unit in a new system does after it has booted.
fn judged(host: &mut SimHost) -> Result<Verdict, HostError> {
    let mut judge = Judge::default();
    for look in 0..1000 {
        let now = host.now();
        host.tick(now + SignedDuration::from_secs(5));
        let systems = system::of(host)?;
        let run = look.to_string();
        let seen = systems.trial(host, &Errand { run: &run, ..ERRAND });
        if seen == Err(HostError::Crashed) {
            return Err(HostError::Crashed);
        }
        match judge.hears(seen) {
            Verdict::Wait => {}
            Verdict::Keep => {
                systems.keep(host)?;
                return Ok(Verdict::Keep);
            }
            Verdict::GiveUp(reason) => {
                systems.give_up(host, &reason)?;
                return Ok(Verdict::GiveUp(reason));
            }
            Verdict::Nothing => return Ok(Verdict::Nothing),
        }
    }
    panic!("judging has no end");
}

#[test]
fn h47_h48_a_new_system_is_tried_once_and_kept_when_it_is_well() {
    let mut host = brought(NEW);
    let said = install(&mut host, "1").unwrap();
    assert!(said.contains("slot b") && said.contains("next boot"), "{said}");
    assert_eq!(host.system(), Some("Old"), "nothing restarts by itself");
    host.reboot();
    assert_eq!(host.system(), Some("New"));
    assert_eq!(
        boot_file(&host, "default").as_deref(),
        Some("a\n"),
        "not before it is well"
    );
    assert_eq!(judged(&mut host).unwrap(), Verdict::Keep);
    for _ in 0..2 {
        assert_eq!(boot_file(&host, "default").as_deref(), Some("b\n"));
        assert_eq!((boot_file(&host, "trial"), boot_file(&host, "next")), (None, None));
        host.reboot();
        assert_eq!(host.system(), Some("New"), "it boots from now on");
        assert_eq!(judged(&mut host).unwrap(), Verdict::Nothing);
    }
}

#[test]
fn h47_a_second_run_does_nothing() {
    let mut host = brought(NEW);
    install(&mut host, "1").unwrap();
    let before = host.tree().clone();
    // The archive is not brought again, as its system is known to be there.
    assert!(systems(&mut host).present(&mut host).unwrap().contains(&checksum(NEW)));
    bring(&mut host, NEW);
    host.remove(&format!("{FOLDER}/rootfs.tar")).unwrap();
    install(&mut host, "2").unwrap();
    assert_eq!(host.tree(), &before);
    host.reboot();
    judged(&mut host).unwrap();
    bring(&mut host, NEW);
    let said = install(&mut host, "3").unwrap();
    assert!(said.contains("slot b runs that system already"), "{said}");
    host.reboot();
    assert_eq!(host.system(), Some("New"));
}

/// The task and the unit of the new system, again and again until both have nothing left to do.
fn to_the_end(host: &mut SimHost) {
    for attempt in 0..10 {
        if host.is_down() {
            host.boot();
        }
        let done = if host.system() == Some("New") {
            judged(host).map(|_| true)
        } else {
            bring(host, NEW);
            install(host, &attempt.to_string()).map(|_| {
                host.reboot();
                false
            })
        };
        match done {
            Ok(true) if boot_file(host, "default").as_deref() == Some("b\n") => return,
            Ok(_) | Err(HostError::Crashed) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("it has no end: {:?} {:?}", host.system(), boot_file(host, "default"));
}

#[test]
fn h47_h48_a_crash_at_any_operation_changes_nothing_about_the_end() {
    let start = brought(NEW);
    let mut clean = start.clone();
    to_the_end(&mut clean);
    let of_interest = |host: &SimHost| {
        let mut tree = host.tree().clone();
        tree.retain(|path, _| path.starts_with("/systems/") && path != "/systems/boot/failed");
        tree
    };
    let (last, expected) = (clean.operations(), of_interest(&clean));
    assert!(last > 15, "{last}");
    for operation in 1..=last {
        for (moment, power) in [
            (Moment::Before, false),
            (Moment::Within, true),
            (Moment::Within, false),
            (Moment::After, false),
            (Moment::After, true),
        ] {
            let mut host = start.clone();
            host.faults.crash = Some(Crash {
                operation,
                moment,
                power,
            });
            to_the_end(&mut host);
            assert_eq!(
                of_interest(&host),
                expected,
                "operation {operation} {moment:?} power {power}"
            );
            assert_eq!(host.system(), Some("New"));
            // Whatever happened, the machine boots what it runs.
            host.reboot();
            assert_eq!(host.system(), Some("New"));
        }
    }
}

#[test]
fn h48_a_system_that_ends_at_once_is_fallen_back_from_and_not_tried_again() {
    let mut host = brought(BROKEN);
    install(&mut host, "1").unwrap();
    host.reboot();
    assert_eq!(host.system(), Some("Old"), "with nobody's help");
    assert_eq!(boot_file(&host, "default").as_deref(), Some("a\n"));
    bring(&mut host, BROKEN);
    let said = refused(&mut host);
    for words in [
        "slot b was booted with it",
        "it ended with 1",
        "slot a",
        "rm /systems/boot/failed",
    ] {
        assert!(said.contains(words), "{said}");
    }
    host.reboot();
    assert_eq!(host.system(), Some("Old"));
    // Another release is another system.
    bring(&mut host, NEW);
    to_the_end(&mut host);
    assert_eq!(boot_file(&host, "failed"), None);
}

#[test]
fn h48_a_system_that_is_not_well_in_time_is_given_up_and_says_why() {
    let mut host = brought(NEW);
    install(&mut host, "1").unwrap();
    host.faults.broken_kubelets.insert(SINGLE.from.to_owned());
    host.reboot();
    let given_up = judged(&mut host).unwrap();
    assert!(
        matches!(&given_up, Verdict::GiveUp(why) if why.contains("10 minutes") && why.contains("the kubelet is not well")),
        "{given_up:?}"
    );
    host.faults.broken_kubelets.clear();
    host.reboot();
    assert_eq!(host.system(), Some("Old"));
    let failed = boot_file(&host, "failed").unwrap();
    assert!(
        failed.starts_with("b\n") && failed.contains("the kubelet is not well"),
        "{failed}"
    );
    bring(&mut host, NEW);
    let said = refused(&mut host);
    assert!(said.contains("the kubelet is not well"), "{said}");
    // A person who has mended the cause says so, and nothing has to be written again.
    host.remove("/systems/boot/failed").unwrap();
    to_the_end(&mut host);
}

#[test]
fn a_system_is_kept_only_when_it_was_well_several_times_in_a_row() {
    let mut judge = Judge::default();
    let unwell = || Ok(Trial::Unwell("no".to_owned()));
    for seen in [
        Ok(Trial::Well),
        Ok(Trial::Well),
        unwell(),
        Ok(Trial::Well),
        Err(HostError::Unsupported("x")),
        Ok(Trial::Well),
    ] {
        assert_eq!(judge.hears(seen), Verdict::Wait);
    }
    assert_eq!(judge.hears(Ok(Trial::Well)), Verdict::Wait);
    assert_eq!(judge.hears(Ok(Trial::Well)), Verdict::Keep);
    assert_eq!(judge.hears(Ok(Trial::None)), Verdict::Nothing);
}

#[test]
fn h47_what_cannot_be_installed_is_named_and_nothing_is_changed() {
    let mut damaged = brought(NEW);
    damaged.put(
        &format!("{FOLDER}/rootfs.tar"),
        "usr/lib/os-release=New\nsbin/init=some",
    );
    let mut no_checksum = brought(NEW);
    no_checksum.remove(&format!("{FOLDER}/rootfs.tar.sha512")).unwrap();
    let mut wrong_checksum = brought(NEW);
    wrong_checksum.put(&format!("{FOLDER}/rootfs.tar.sha512"), "<html>not found</html>");
    let mut no_image = brought(NEW);
    no_image.remove(&format!("{FOLDER}/rootfs.tar")).unwrap();
    let mut no_room = brought(NEW);
    no_room.room.bytes = 100;
    let mut no_files = brought(NEW);
    no_files.room.inodes = 3;
    let mut other_slot = brought(NEW);
    other_slot.put("/systems/boot/default", "b\n");
    let mut odd = brought(NEW);
    odd.put("/systems/boot/running", "c\n");
    for (mut host, words) in [
        (damaged, "and has to be"),
        (no_checksum, "the task brings it when it is run again"),
        (wrong_checksum, "does not begin with a SHA-512"),
        (no_image, "rootfs.tar: it is not there"),
        (no_room, "nothing was changed"),
        (no_files, "3 files have room"),
        (other_slot, "restart the machine"),
        (odd, "a slot is a or b"),
    ] {
        let slots = |host: &SimHost| {
            let mut tree = host.tree().clone();
            tree.retain(|path, _| path.starts_with("/systems/"));
            tree
        };
        let before = slots(&host);
        let said = refused(&mut host);
        assert!(said.contains(words), "{said}");
        assert_eq!(slots(&host), before, "{words}");
    }
}

#[test]
fn h47_what_the_disk_did_not_take_as_it_was_is_never_booted() {
    for (archive, damaged_writes, words) in [
        (NEW, 1, "Contents differ"),
        ("etc/issue=no system\n", 0, "not the root file system"),
    ] {
        let mut host = brought(archive);
        host.faults.damaged_writes = damaged_writes;
        let said = refused(&mut host);
        assert!(said.contains(words), "{said}");
        host.reboot();
        assert_eq!(host.system(), Some("Old"));
        assert_eq!(boot_file(&host, "b.image"), None);
        bring(&mut host, NEW);
        to_the_end(&mut host);
    }
}

#[test]
fn h48_undoing_goes_back_to_the_other_slot_whenever_it_is_asked_for() {
    let put_back = |host: &mut SimHost| systems(host).put_back(host, &ERRAND, "a").unwrap();
    // Before the restart: only the mark goes.
    let mut host = brought(NEW);
    install(&mut host, "1").unwrap();
    for _ in 0..2 {
        assert_eq!(put_back(&mut host), None);
    }
    host.reboot();
    assert_eq!(host.system(), Some("Old"));
    // While it is tried.
    bring(&mut host, NEW);
    install(&mut host, "2").unwrap();
    host.reboot();
    assert_eq!(host.system(), Some("New"));
    for _ in 0..2 {
        assert!(put_back(&mut host).is_some());
    }
    host.reboot();
    assert_eq!(host.system(), Some("Old"));
    assert!(boot_file(&host, "failed").unwrap().contains("a person"));
    // After it was kept: the old one is tried in its turn.
    host.remove("/systems/boot/failed").unwrap();
    to_the_end(&mut host);
    for _ in 0..2 {
        assert!(put_back(&mut host).unwrap().contains("slot a"));
    }
    host.reboot();
    assert_eq!(host.system(), Some("Old"));
    assert_eq!(put_back(&mut host), None, "it runs");
    assert_eq!(judged(&mut host).unwrap(), Verdict::Keep);
    host.reboot();
    assert_eq!(host.system(), Some("Old"));
    assert_eq!(put_back(&mut host), None);
    let said = systems(&mut host).put_back(&mut host, &ERRAND, "c").unwrap_err();
    assert!(said.to_string().contains("a slot is a or b"), "{said}");
}
