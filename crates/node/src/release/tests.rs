//! Works of a release on a host that writes down what it is told: which programs run, in which order, and what a failure leaves behind.

mod multus;

use std::collections::{BTreeMap, BTreeSet};

use super::lists::{Bundle, ListError, images_of, old_alone};
use super::*;
use crate::digest::Digest;
use crate::host::{
    Endpoint, EtcdMember, EtcdStatus, Forward, Host, HostError, Listed, Room, Signal, UnitOrder, UnitState,
};

const METADATA: &str = "
images:
  common:
  - list: images-lists/harvester-images-v1.7.0.txt
    archive: images/harvester-images-v1.7.0.tar.zst
  rke2:
  - list: images-lists/rke2-images.txt
    archive: images/rke2-images.tar.zst
  agent:
  - list: images-lists/agent.txt
    archive: images/agent.tar.zst
";

/// A host of which a test says what programs answer, by a part of their command line; all others end well and say nothing.
#[derive(Default)]
struct Scripted {
    files: BTreeMap<String, Vec<u8>>,
    answers: Vec<(&'static str, Result<&'static str, &'static str>)>,
    ran: Vec<String>,
    orders: Vec<String>,
    room: u64,
}

impl Scripted {
    fn text(&self, path: &str) -> String {
        let found = self.files.get(path).cloned().unwrap_or_default();
        String::from_utf8(found).unwrap()
    }
}

const NOT_HERE: HostError = HostError::Unsupported("do that: no work of a release asks for it");

impl Host for Scripted {
    fn read(&mut self, path: &str) -> Answer<Option<Vec<u8>>> {
        Ok(self.files.get(path).cloned())
    }
    fn size(&mut self, path: &str) -> Answer<Option<u64>> {
        Ok(self.files.get(path).map(|file| file.len() as u64))
    }
    fn digest(&mut self, _: &str) -> Answer<Option<Digest>> {
        Err(NOT_HERE)
    }
    fn list(&mut self, folder: &str) -> Answer<Vec<Listed>> {
        let inside = self
            .files
            .iter()
            .filter(|(path, _)| path.starts_with(&format!("{folder}/")));
        let files = inside.map(|(path, content)| Listed {
            path: path.clone(),
            bytes: content.len() as u64,
        });
        Ok(files.collect())
    }
    fn write(&mut self, path: &str, content: &[u8], _: u32) -> Answer<()> {
        self.files.insert(path.to_owned(), content.to_vec());
        Ok(())
    }
    fn rewrite(&mut self, _: &str, _: &[u8]) -> Answer<()> {
        Err(NOT_HERE)
    }
    fn copy(&mut self, _: &str, _: &str) -> Answer<()> {
        Err(NOT_HERE)
    }
    fn append(&mut self, _: &str, _: &[u8]) -> Answer<()> {
        Err(NOT_HERE)
    }
    fn rename(&mut self, _: &str, _: &str) -> Answer<()> {
        Err(NOT_HERE)
    }
    fn remove(&mut self, path: &str) -> Answer<()> {
        self.files.remove(path);
        Ok(())
    }
    fn sync(&mut self) -> Answer<()> {
        Ok(())
    }
    fn room(&mut self, path: &str) -> Answer<Room> {
        if self.room == 0 {
            return Err(HostError::Failed {
                action: "look at",
                object: path.to_owned(),
                message: "no such file or directory".to_owned(),
            });
        }
        Ok(Room {
            bytes: self.room,
            inodes: 1000,
        })
    }
    fn boot(&mut self) -> Answer<String> {
        Err(NOT_HERE)
    }
    fn unit(&mut self, _: &str) -> Answer<UnitState> {
        Err(NOT_HERE)
    }
    fn order(&mut self, unit: &str, order: UnitOrder) -> Answer<()> {
        self.orders.push(format!("{order:?} {unit}"));
        Ok(())
    }
    fn command_line(&mut self, _: &str) -> Answer<Vec<String>> {
        Err(NOT_HERE)
    }
    fn reload_units(&mut self) -> Answer<()> {
        self.orders.push("reload".to_owned());
        Ok(())
    }
    fn run(&mut self, _: &str, command: &Command) -> Answer<Job> {
        let program = command.program.rsplit('/').next().unwrap();
        let line = format!("{program} {}", command.args.join(" "));
        let known = self.answers.iter().find(|(part, _)| line.contains(part));
        let answer = known.map_or(Ok(""), |(_, answer)| *answer);
        self.ran.push(line);
        Ok(Job::Ended {
            exit_code: i32::from(answer.is_err()),
            stdout: answer.unwrap_or_default().to_owned(),
            stderr: answer.err().unwrap_or_default().to_owned(),
        })
    }
    fn end_jobs(&mut self) -> Answer<()> {
        self.ran.push("end jobs".to_owned());
        Ok(())
    }
    fn runs(&mut self, _: &str) -> Answer<bool> {
        Err(NOT_HERE)
    }
    fn signal(&mut self, _: &str, _: Signal) -> Answer<()> {
        Err(NOT_HERE)
    }
    fn process(&mut self, _: &str) -> Answer<Option<String>> {
        Err(NOT_HERE)
    }
    fn lives(&mut self, _: &str) -> Answer<bool> {
        Err(NOT_HERE)
    }
    fn kill(&mut self, _: &str) -> Answer<()> {
        Err(NOT_HERE)
    }
    fn takes_connections(&mut self) -> Answer<bool> {
        Err(NOT_HERE)
    }
    fn forward(&mut self, _: Option<&Forward>) -> Answer<()> {
        Err(NOT_HERE)
    }
    fn forwarding(&mut self) -> Answer<Option<Forward>> {
        Err(NOT_HERE)
    }
    fn serving(&mut self, _: &[String]) -> Answer<Vec<String>> {
        Err(NOT_HERE)
    }
    fn well(&mut self, _: Endpoint) -> Answer<bool> {
        Err(NOT_HERE)
    }
    fn etcd(&mut self) -> Answer<EtcdStatus> {
        Err(NOT_HERE)
    }
    fn hand_over_etcd(&mut self) -> Answer<()> {
        Err(NOT_HERE)
    }
    fn etcd_members(&mut self) -> Answer<Vec<EtcdMember>> {
        Err(NOT_HERE)
    }
    fn remove_etcd_member(&mut self, _: &str) -> Answer<()> {
        Err(NOT_HERE)
    }
    fn add_etcd_learner(&mut self, _: &str) -> Answer<Vec<EtcdMember>> {
        Err(NOT_HERE)
    }
    fn promote_etcd_learner(&mut self, _: &str) -> Answer<bool> {
        Err(NOT_HERE)
    }
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn what_a_release_says_about_its_images_is_read_or_refused() {
    let bundle = Bundle::parse(METADATA).unwrap();
    assert_eq!(bundle.images.rke2[0].archive, "images/rke2-images.tar.zst");
    assert_eq!(bundle.images.agent.len(), 1);
    for (text, expected) in [
        ("images: {common: [], rke2: []}", ListError::NoArchive("common")),
        (
            "images: {common: [{list: l, archive: a}]}",
            ListError::NoArchive("rke2"),
        ),
        (
            "images: {common: [{list: l, archive: ../../etc/shadow}], rke2: [{list: l, archive: a}]}",
            ListError::Outside("../../etc/shadow".to_owned()),
        ),
        (
            "images: {common: [{list: /l, archive: a}], rke2: [{list: l, archive: a}]}",
            ListError::Outside("/l".to_owned()),
        ),
    ] {
        assert_eq!(Bundle::parse(text), Err(expected), "{text}");
    }
    assert!(matches!(Bundle::parse("- no\n"), Err(ListError::Metadata(_))));
}

#[test]
fn an_empty_list_never_says_that_nothing_is_missing() {
    assert_eq!(images_of("a.txt", "\n  \n"), Err(ListError::Empty("a.txt".to_owned())));
    assert_eq!(images_of("a.txt", "x:1\n\n y:2 \n"), Ok(set(&["x:1", "y:2"])));
}

#[test]
fn h9_h26_only_what_the_release_before_alone_had_goes() {
    let before = set(&[
        "docker.io/rancher/harvester:v1.6.0",
        "rancher/shared:v1",
        "rancher/harvester-upgrade:v1.6.0",
        "longhornio/longhorn-engine:v1.8.0",
        "suse/vmdp:2.5.4",
    ]);
    let now = set(&["docker.io/rancher/harvester:v1.7.0", "rancher/shared:v1"]);
    let there = [
        "mirror.local:5000/rancher/harvester:v1.6.0",
        "docker.io/rancher/harvester:v1.7.0",
        "docker.io/rancher/shared:v1",
        "docker.io/rancher/harvester-upgrade:v1.6.0",
        "docker.io/longhornio/longhorn-engine:v1.8.0",
        "docker.io/suse/vmdp:2.5.4",
        "docker.io/a-persons/own:v1",
    ];
    assert_eq!(
        old_alone(&before, &now, there.into_iter()),
        ["mirror.local:5000/rancher/harvester:v1.6.0"]
    );
}

#[test]
fn h21_images_are_those_of_rke2s_containerd_and_archives_are_imported_as_they_are() {
    let mut host = Scripted {
        answers: vec![("images list", Ok("docker.io/a:1\nsha256:0123\ndocker.io/b:2\n"))],
        ..Scripted::default()
    };
    assert_eq!(
        images::present(&mut host, "r").unwrap(),
        set(&["docker.io/a:1", "docker.io/b:2"])
    );
    images::import(&mut host, "r", "/usr/local/upgrade_tmp/x.tar.zst").unwrap();
    let socket = "ctr --address /run/k3s/containerd/containerd.sock --namespace k8s.io";
    assert_eq!(
        host.ran,
        [
            format!("{socket} images list --quiet"),
            format!("{socket} images import --no-unpack /usr/local/upgrade_tmp/x.tar.zst"),
        ]
    );
    host.answers = vec![("images import", Err("no space left on device"))];
    let said = images::import(&mut host, "s", "/x.tar.zst").unwrap_err().to_string();
    assert!(said.contains("no space left on device"), "{said}");
}

#[test]
fn an_image_that_a_container_uses_stays_and_one_that_cannot_go_stops_nothing() {
    let mut host = Scripted {
        answers: vec![
            (
                "containers list",
                Ok("CONTAINER    IMAGE    RUNTIME\nc1    docker.io/used:1    io.containerd.runc.v2\n"),
            ),
            ("images remove docker.io/stuck:1", Err("it is locked")),
        ],
        ..Scripted::default()
    };
    let names = ["docker.io/used:1", "docker.io/stuck:1", "docker.io/old:1"];
    assert_eq!(images::remove(&mut host, "r", &names).unwrap(), ["docker.io/old:1"]);
}

#[test]
fn h47_the_server_is_configured_once_and_what_a_person_wrote_stays() {
    let folder = "/etc/rancher/rke2/config.yaml.d";
    let mut host = Scripted::default();
    let cores = "processor\t: 0\nmodel name: x\n".repeat(8);
    host.files.insert("/proc/cpuinfo".to_owned(), cores.into_bytes());
    let own = format!("{folder}/91-harvester-cdi.yaml");
    host.files.insert(own.clone(), b"mine".to_vec());
    for _ in 0..2 {
        server::configure(&mut host).unwrap();
    }
    assert_eq!(host.text(&own), "mine");
    assert!(
        host.text(&format!("{folder}/99-max-pods.yaml"))
            .contains("max-pods=200")
    );
    let reserved = host.text(&format!("{folder}/99-z00-harvester-reserved-resources.yaml"));
    // 60 + 10 + 10 + 4 * 2.5 + 400 = 490, twice, two parts to three.
    assert!(reserved.contains("system-reserved=cpu=392m"), "{reserved}");
    assert!(reserved.contains("kube-reserved=cpu=588m"), "{reserved}");
    host.files
        .insert(format!("{}/a.tar.zst", server::SERVER_ARCHIVES), Vec::new());
    server::remove_archives(&mut host, &["a.tar.zst"]).unwrap();
    assert!(!host.files.keys().any(|path| path.ends_with("a.tar.zst")));
}

const ERRAND: system::Errand<'static> = system::Errand {
    run: "r",
    node: "node-1",
};

fn with_system(room: u64) -> Scripted {
    let mut host = Scripted {
        room,
        ..Scripted::default()
    };
    host.files
        .insert(format!("{FOLDER}/rootfs.squashfs"), b"system".to_vec());
    host
}

#[test]
fn h47_h48_the_new_system_is_installed_beside_the_running_one() {
    let mut host = with_system(4 << 30);
    let systems = system::of(&mut host).unwrap();
    assert_eq!(systems.image(), "rootfs.squashfs");
    systems.install(&mut host, &ERRAND).unwrap();
    let programs: Vec<&str> = host.ran.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(programs, ["mkdir", "umount", "mount", "elemental", "umount"]);
    assert!(host.text("/run/afloat/elemental/config.yaml").contains("size: 3072"));
    assert!(
        !host.files.contains_key(&format!("{FOLDER}/rootfs.squashfs")),
        "it is not needed any more"
    );
    system::restart_soon(&mut host).unwrap();
    assert_eq!(host.orders, ["reload", "Restart afloat-hci-restart.timer"]);
}

#[test]
fn a_system_that_cannot_be_installed_is_not_and_the_way_out_is_named() {
    let mut no_image = with_system(4 << 30);
    no_image.files.clear();
    let mut broken = with_system(4 << 30);
    broken.answers = vec![("elemental upgrade", Err("cannot write transition.img"))];
    let mut with_slots_too = with_system(4 << 30);
    with_slots_too
        .files
        .insert("/systems/boot/default".to_owned(), b"a\n".to_vec());
    for (host, words, ran) in [
        (no_image, "it is not there", 0),
        (with_system(0), "neither Elemental's state", 0),
        (with_slots_too, "has both Elemental's state", 0),
        (with_system(1 << 30), "has 1024 MiB free and 3072 are needed", 0),
        (broken, "cannot write transition.img", 5),
    ] {
        let mut host = host;
        let installed = system::of(&mut host).and_then(|systems| systems.install(&mut host, &ERRAND));
        let said = installed.unwrap_err().to_string();
        assert!(said.contains(words), "{said}");
        assert_eq!(host.ran.len(), ran, "what was mounted is unmounted: {:?}", host.ran);
    }
}

const INSTALLER: &str = "docker.io/rancher/system-agent-installer-rancher:v2.12.2\n";

/// A server of RKE2 with the installer of a release in its containerd, mounted in the test from the beginning.
fn server_with(helm_says: &'static str) -> Scripted {
    let files = ["helm", "rancher-2.12.2.tgz", "run.sh"];
    let files = files.map(|name| (format!("/run/afloat-rancher/{name}"), Vec::new()));
    Scripted {
        files: files.into(),
        answers: vec![("images list", Ok(INSTALLER)), ("list --all", Ok(helm_says))],
        ..Scripted::default()
    }
}

#[test]
fn h23_rancher_is_upgraded_by_the_chart_and_the_helm_of_the_release_with_its_values_kept() {
    let mut host = server_with(r#"[{"name":"rancher","status":"deployed","app_version":"v2.11.3"}]"#);
    let done = rancher_chart::upgrade(&mut host, "a", "v2.12.2").unwrap();
    assert_eq!(done, "Rancher went from v2.11.3 to v2.12.2");
    let verbs: Vec<&str> = host
        .ran
        .iter()
        .map(|line| line.split(" --kubeconfig").next().unwrap())
        .collect();
    let containerd = "ctr --address /run/k3s/containerd/containerd.sock --namespace k8s.io images";
    assert_eq!(
        verbs,
        [
            format!("{containerd} list --quiet"),
            format!("{containerd} unmount --rm /run/afloat-rancher"),
            format!("{containerd} mount {} /run/afloat-rancher", INSTALLER.trim()),
            "helm list --all --filter ^rancher$ --output json".to_owned(),
            "helm upgrade rancher /run/afloat-rancher/rancher-2.12.2.tgz --reset-then-reuse-values --set-string \
             rancherImageTag=v2.12.2 --wait --timeout 20m"
                .to_owned(),
            format!("{containerd} unmount --rm /run/afloat-rancher"),
        ]
    );
}

#[test]
fn h23_a_rancher_that_is_there_stays() {
    let mut there = server_with(r#"[{"name":"rancher","status":"deployed","app_version":"v2.12.2"}]"#);
    let done = rancher_chart::upgrade(&mut there, "a", "v2.12.2").unwrap();
    assert!(
        done.contains("already") && !there.ran.concat().contains("helm upgrade"),
        "{done}"
    );
}

const BROKEN_OFF: &str = r#"[{"name":"rancher","status":"pending-rollback","app_version":"v2.12.2"}]"#;

#[test]
fn h23_what_a_killed_helm_left_is_ended_and_the_last_revision_that_ran_put_back() {
    let mut host = server_with(BROKEN_OFF);
    let history = r#"[{"revision":3,"status":"superseded"},{"revision":4,"status":"deployed"},
        {"revision":5,"status":"pending-upgrade"},{"revision":6,"status":"pending-rollback"}]"#;
    host.answers.push(("helm history", Ok(history)));
    rancher_chart::upgrade(&mut host, "a", "v2.12.2").unwrap();
    let at = |part: &str| host.ran.iter().position(|line| line.contains(part)).unwrap();
    assert!(at("end jobs") < at("helm history"), "{:?}", host.ran);
    assert!(
        at("helm rollback rancher 4") < at("helm upgrade rancher"),
        "{:?}",
        host.ran
    );

    let mut nothing_ran = server_with(BROKEN_OFF);
    nothing_ran
        .answers
        .push(("helm history", Ok(r#"[{"revision":1,"status":"pending-install"}]"#)));
    let error = rancher_chart::upgrade(&mut nothing_ran, "a", "v2.12.2").unwrap_err();
    let command = "kubectl -n cattle-system delete secret -l owner=helm,name=rancher";
    assert!(error.to_string().contains(command), "{error}");
    assert!(!nothing_ran.ran.concat().contains("helm upgrade"));
}

#[test]
fn h23_the_installer_is_imported_where_containerd_does_not_know_it_and_named_where_no_archive_has_it() {
    let mut host = server_with("[]");
    host.answers[0] = ("images list", Ok("docker.io/rancher/pause:3.6\n"));
    host.files
        .insert("/var/lib/rancher/agent/images/agent.tar.zst".to_owned(), Vec::new());
    let error = rancher_chart::upgrade(&mut host, "a", "v2.12.2")
        .unwrap_err()
        .to_string();
    assert!(
        host.ran[1].ends_with("import --no-unpack /var/lib/rancher/agent/images/agent.tar.zst"),
        "{:?}",
        host.ran
    );
    assert!(
        error.contains(INSTALLER.trim()) && error.contains("not all on this node"),
        "{error}"
    );
}

#[test]
fn what_keeps_rancher_from_being_upgraded_is_said_and_nothing_stays_mounted() {
    let none = server_with("[]");
    let mut without_chart = server_with("[]");
    without_chart.files.remove("/run/afloat-rancher/rancher-2.12.2.tgz");
    let mut refused = server_with(r#"[{"name":"rancher","status":"deployed","app_version":"v2.11.3"}]"#);
    refused
        .answers
        .push(("helm upgrade", Err("timed out waiting for the condition")));
    for (mut host, says) in [
        (none, "helm knows no such release in cattle-system"),
        (without_chart, "no helm with a chart of Rancher beside it, but helm, "),
        (refused, "timed out waiting for the condition"),
    ] {
        let error = rancher_chart::upgrade(&mut host, "a", "v2.12.2")
            .unwrap_err()
            .to_string();
        assert!(error.contains(says), "{error}");
        assert!(host.ran.last().unwrap().contains("unmount"), "{:?}", host.ran);
    }
}
