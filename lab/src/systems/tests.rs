//! The boot chooser, on a folder of its own: boot by boot, with the power gone between any two, and what it makes of a machine's root.

use super::*;
use tempfile::TempDir;

/// Slots as a machine begins with them, and what stands in the chooser's files.
struct Slots(TempDir);

impl Slots {
    fn new() -> Self {
        let slots = Self(TempDir::new().unwrap());
        fs::create_dir(slots.0.path().join("boot")).unwrap();
        slots.put("default", "a\n");
        slots
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.0.path().join("boot").join(name), text).unwrap();
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.0.path().join("boot").join(name)).ok()
    }

    fn choose(&self, words: &[&str]) -> Result<String, Error> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/files/choose-system");
        let mut command = Command::new("bash");
        run(command.arg(script).arg(self.0.path()).args(words), shell::SOON)
    }

    fn boot(&self) -> String {
        let slot = self.choose(&[]).unwrap().trim().to_owned();
        assert_eq!(self.read("running"), Some(format!("{slot}\n")));
        slot
    }

    fn breaks_down(&self, code: &str) -> bool {
        self.choose(&["ended", code]).is_ok()
    }
}

#[test]
fn a_marked_slot_boots_once_and_the_one_before_again_unless_it_says_that_it_stays() {
    let slots = Slots::new();
    assert_eq!(slots.boot(), "a");
    slots.put("next", "b\nsum\n");
    assert_eq!(slots.boot(), "b");
    assert_eq!(
        (slots.read("next"), slots.read("trial")),
        (None, Some("b\nsum\n".to_owned()))
    );
    for _ in 0..2 {
        assert_eq!(slots.boot(), "a");
        assert_eq!(
            (slots.read("trial"), slots.read("failed")),
            (None, Some("b\nsum\n".to_owned()))
        );
    }
    slots.put("next", "b\nsum\n");
    assert_eq!(slots.boot(), "b");
    // It stays; the power may go before or after it has taken the mark away.
    slots.put("default", "b\n");
    assert_eq!(slots.boot(), "b");
    assert_eq!((slots.read("trial"), slots.boot()), (None, "b".to_owned()));
}

#[test]
fn a_system_on_trial_that_breaks_down_is_noted_once_and_no_other_one() {
    let slots = Slots::new();
    slots.boot();
    assert!(!slots.breaks_down("1"), "nothing is on trial");
    slots.put("next", "b\nsum\n");
    slots.boot();
    assert!(slots.breaks_down("1"));
    assert!(slots.breaks_down("255"));
    assert_eq!(slots.boot(), "a");
    assert_eq!(
        slots.read("failed").unwrap(),
        "b\nsum\nits first process ended with 1\n"
    );
    // What the system said itself before it let go is kept.
    slots.put("next", "b\nsum\n");
    slots.boot();
    slots.put("trial", "b\nsum\nthe kubelet is not well\n");
    assert!(slots.breaks_down("1"));
    slots.boot();
    assert!(slots.read("failed").unwrap().contains("the kubelet is not well"));
    slots.put("next", "b\nsum\n");
    slots.boot();
    slots.put("default", "b\n");
    assert!(!slots.breaks_down("1"), "it stays");
}

#[test]
fn what_names_no_slot_is_not_booted() {
    let slots = Slots::new();
    slots.put("default", "../etc\n");
    let error = slots.choose(&[]).unwrap_err().to_string();
    assert!(error.contains("names no slot but '../etc'"), "{error}");
}

#[test]
fn what_lasts_is_outside_and_a_system_has_its_own_name() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().join("root");
    for (path, text) in [
        ("usr/lib/os-release", "PRETTY_NAME=\"Debian\"\nID=debian\n"),
        ("etc/hostname", "cp-1\n"),
        ("etc/kubernetes/admin.conf", "mine\n"),
        ("etc/issue", "Debian\n"),
    ] {
        shell::write(&root.join(path), text).unwrap();
    }
    let debian = folder.path().join("shared");
    fs::hard_link(root.join("usr/lib/os-release"), &debian).unwrap();
    split(folder.path()).unwrap();
    let read = |path: &str| shell::read(&outside(folder.path(), path)).unwrap();
    assert_eq!(read("/usr/lib/os-release"), "PRETTY_NAME=\"Lab system 1\"\nID=debian\n");
    assert!(
        shell::read(&debian).unwrap().contains("Debian"),
        "others' systems stay as they are"
    );
    assert_eq!(
        (read("/etc/hostname"), read("/etc/kubernetes/admin.conf")),
        ("cp-1\n".to_owned(), "mine\n".to_owned())
    );
    assert!(outside(folder.path(), "/etc/kubernetes/admin.conf").starts_with(folder.path().join("state")));
    assert_eq!(read("/etc/issue"), "Debian\n");
    let first = running(folder.path());
    assert_eq!(
        shell::read(&first.join("etc/hostname")).unwrap(),
        "",
        "its place is there for a mount"
    );
    assert!(!first.join("etc/kubernetes/admin.conf").exists() && first.join("var").is_dir());
}
