//! What files of a real machine must do, in a folder of the test's own and as whoever runs it.

use super::*;
use std::io::Read as _;
use std::os::unix::fs::symlink;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_running_binary_is_never_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let (new, kubelet) = (folder.path().join("new"), folder.path().join("kubelet"));
    fs::write(&kubelet, "old").unwrap();
    fs::write(&new, "new").unwrap();
    fs::set_permissions(&new, Permissions::from_mode(0o755)).unwrap();
    let mut running = File::open(&kubelet).unwrap();
    copy(&new, &kubelet).unwrap();
    let mut seen = String::new();
    running.read_to_string(&mut seen).unwrap();
    assert_eq!((seen.as_str(), fs::read(&kubelet).unwrap()), ("old", b"new".to_vec()));
    assert_eq!(mode(&kubelet), 0o755);
    assert_eq!(names(folder.path()), ["kubelet", "new"], "nothing is left beside it");
}

#[test]
fn folders_that_lack_are_made_for_their_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kept/etc/kubernetes/admin.conf");
    write(&path, b"secret", 0o600).unwrap();
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&folder.path().join("kept")), 0o700);
    assert_eq!(mode(&folder.path().join("kept/etc/kubernetes")), 0o700);
}

#[test]
fn a_link_stays_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let (real, link) = (folder.path().join("real"), folder.path().join("kubelet"));
    fs::write(&real, "old").unwrap();
    symlink(&real, &link).unwrap();
    write(&link, b"new", 0o755).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read(&real).unwrap(), b"new");
}

#[test]
fn what_a_crash_left_staged_does_not_hinder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("etcd.yaml");
    fs::write(folder.path().join(".etcd.yaml.afloat-new"), "half").unwrap();
    write(&path, b"whole", 0o600).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"whole");
    assert_eq!(names(folder.path()), ["etcd.yaml"]);
}

#[test]
fn a_copy_of_nothing_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::write(&to, "old").unwrap();
    assert!(copy(&from, &to).unwrap_err().to_string().contains("cannot copy"));
    assert_eq!(fs::read(&to).unwrap(), b"old");
    assert_eq!(names(folder.path()), ["to"]);
}

#[test]
fn lines_are_added_by_many_at_once_and_never_mixed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("home/journal");
    std::thread::scope(|scope| {
        for word in ["a", "b", "c", "d"] {
            let path = path.clone();
            scope.spawn(move || {
                for _ in 0..50 {
                    append(&path, format!("{}\n", word.repeat(500)).as_bytes()).unwrap();
                }
            });
        }
    });
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 200);
    assert!(
        text.lines()
            .all(|line| line.len() == 500 && line.chars().all(|c| line.starts_with(c)))
    );
    assert_eq!(mode(&path), 0o600);
}

#[test]
fn a_folder_is_listed_in_the_order_of_paths_and_removed_with_all_in_it() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["b", "a/z", "a/b/c"] {
        write(&folder.path().join("etc").join(name), name.as_bytes(), 0o600).unwrap();
    }
    symlink("/", folder.path().join("etc/a/everything")).unwrap();
    let listed = listed(&folder.path().join("etc"), "/etc").unwrap();
    let paths: Vec<_> = listed.iter().map(|file| (file.path.as_str(), file.bytes)).collect();
    assert_eq!(paths, [("/etc/a/b/c", 5), ("/etc/a/z", 3), ("/etc/b", 1)]);
    let etc = folder.path().join("etc");
    remove(&etc).unwrap();
    remove(&etc).unwrap();
    assert!(list(&etc).unwrap().is_empty());
    assert_eq!(
        (read(&etc).unwrap(), size(&etc).unwrap(), digest(&etc).unwrap()),
        (None, None, None)
    );
}

#[test]
fn a_file_that_is_written_anew_is_read_by_whom_it_was_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    fs::write(&path, "version = 3").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    rewrite(&path, b"version = 4").unwrap();
    assert_eq!(
        (fs::read(&path).unwrap(), mode(&path)),
        (b"version = 4".to_vec(), 0o640)
    );
}

#[test]
fn a_folder_is_renamed_with_all_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let (data, aside) = (folder.path().join("member"), folder.path().join("aside"));
    write(&data.join("snap/db"), b"data", 0o600).unwrap();
    rename(&data, &aside).unwrap();
    assert_eq!(names(folder.path()), ["aside"]);
    assert_eq!(fs::read(aside.join("snap/db")).unwrap(), b"data");
}

#[test]
fn a_rename_makes_the_folder_it_goes_to() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("journal"), folder.path().join("archive/one-1"));
    fs::write(&from, "old").unwrap();
    rename(&from, &to).unwrap();
    assert_eq!(fs::read(&to).unwrap(), b"old");
}

#[test]
fn there_is_room_and_it_can_be_synced() {
    let folder = tempfile::tempdir().unwrap();
    let found = room(folder.path()).unwrap();
    assert!(found.bytes > 0 && found.inodes > 0, "{found:?}");
    sync(&[folder.path().to_owned(), folder.path().join("not there")]).unwrap();
}

#[test]
fn p32_of_a_full_disk_the_file_that_does_not_fit_is_named() {
    let (from, to) = (
        Path::new("/bundle/kubelet"),
        Path::new("/var/lib/afloat/bundle/kubelet"),
    );
    for (code, expected) in [(28, to), (122, to), (30, to), (5, from)] {
        let error = io::Error::from_raw_os_error(code);
        assert_eq!(at_fault(&error, from, to), expected, "{error}");
    }
}
