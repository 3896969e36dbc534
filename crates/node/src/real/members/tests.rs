//! What etcd says and how it is taken; and three real members, of which one is broken, removed and joined anew.

use super::*;
use crate::host::EtcdStatus;
use afloat_realparts::{Components, Guarded};
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn members_are_read_as_the_gateway_writes_them() {
    let text = r#"{"header":{"cluster_id":"1"},"member":{"ID":"79","peerURLs":["https://10.0.0.1:2380"],"isLearner":true},
        "members":[{"ID":"78","name":"cp-2","peerURLs":["https://10.0.0.2:2380"],"clientURLs":["https://10.0.0.2:2379"]},
        {"ID":"79","peerURLs":["https://10.0.0.1:2380"],"isLearner":true}]}"#;
    let members = told(serde_json::from_str::<Members>(text).unwrap().members);
    assert_eq!((members[0].name.as_str(), members[0].learner), ("cp-2", false));
    assert_eq!((members[1].name.as_str(), members[1].learner), ("", true));
    assert_eq!(members[1].peer_urls, ["https://10.0.0.1:2380"]);
}

#[test]
fn a_learner_that_is_not_ready_is_waited_for_and_one_that_was_promoted_is_done() {
    let not_ready = r#"it answered 400: {"code":9, "message":"etcdserver: can only promote a learner member which is in sync with leader"}"#;
    assert_eq!(promoted(not_ready), Some(false));
    let done = r#"it answered 400: {"code":9, "message":"etcdserver: can only promote a learner member"}"#;
    assert_eq!(promoted(done), Some(true));
    assert_eq!(promoted("it answered 503: unhealthy cluster"), None);
}

/// Three members on this machine.
struct Members3 {
    folder: tempfile::TempDir,
    /// Where each is asked, and where the others find it.
    ports: [(u16, u16); 3],
    running: Vec<Option<Guarded>>,
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl Members3 {
    fn new() -> Self {
        let mut all = Self {
            folder: tempfile::tempdir().unwrap(),
            ports: [(); 3].map(|()| (free_port(), free_port())),
            running: vec![None, None, None],
        };
        let cluster = (0..3).map(|index| format!("m{index}={}", all.peer_url(index)));
        let cluster = cluster.collect::<Vec<_>>().join(",");
        for index in 0..3 {
            all.start(index, &cluster, "new");
        }
        all
    }

    fn peer_url(&self, index: usize) -> String {
        format!("http://127.0.0.1:{}", self.ports[index].1)
    }

    fn data(&self, index: usize) -> std::path::PathBuf {
        self.folder.path().join(format!("m{index}"))
    }

    fn start(&mut self, index: usize, cluster: &str, state: &str) {
        let paths = Components::locate_some(&["etcd"]).unwrap();
        let client = format!("http://127.0.0.1:{}", self.ports[index].0);
        let (peer, data) = (self.peer_url(index), self.data(index).display().to_string());
        let name = format!("m{index}");
        let arguments = [
            ("name", &name),
            ("data-dir", &data),
            ("listen-client-urls", &client),
            ("advertise-client-urls", &client),
            ("listen-peer-urls", &peer),
            ("initial-advertise-peer-urls", &peer),
            ("initial-cluster", &cluster.to_owned()),
            ("initial-cluster-state", &state.to_owned()),
        ];
        let mut arguments: Vec<_> = arguments.map(|(flag, value)| format!("--{flag}={value}")).into();
        arguments.push("--unsafe-no-fsync".to_owned());
        let etcd = paths.of("etcd").unwrap();
        self.running[index] = Some(Guarded::start(&name, etcd, &arguments, self.folder.path()).unwrap());
    }

    /// As the machine of the first one asks.
    fn gateway(&self) -> Gateway {
        let remembered = self.folder.path().join("members");
        Gateway::plain("m0", ("127.0.0.1", self.ports[0].0), &self.peer_url(0), remembered)
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let late = Instant::now() + Duration::from_mins(1);
    while Instant::now() < late {
        if let Some(seen) = look() {
            return seen;
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("{what} was not seen");
}

fn healthy_peers(status: &EtcdStatus) -> usize {
    status.peers.iter().filter(|peer| peer.healthy).count()
}

fn damage(data: &Path) {
    let database = data.join("member/snap/db");
    let length = fs::metadata(&database).unwrap().len();
    fs::write(&database, vec![7; usize::try_from(length).unwrap()]).unwrap();
}

#[test]
fn k2_a_real_member_that_is_broken_is_removed_and_joined_anew() {
    let mut etcds = Members3::new();
    let gateway = etcds.gateway();
    let status = until("a healthy etcd", || {
        let status = gateway.status().unwrap();
        (status.healthy && healthy_peers(&status) == 2).then_some(status)
    });
    assert!(status.version.starts_with("3.6."), "{status:?}");

    // Broken: it starts on its data no more, and the others tell how things are.
    etcds.running[0] = None;
    damage(&etcds.data(0));
    let cluster = format!("m0={}", etcds.peer_url(0));
    etcds.start(0, &cluster, "new");
    until("its end", || etcds.running[0].as_ref().unwrap().ended());
    let status = until("a leader among the others", || {
        let status = gateway.status().unwrap();
        (healthy_peers(&status) == 2).then_some(status)
    });
    assert!(!status.healthy && status.version.is_empty(), "{status:?}");
    assert_eq!(status.cluster_version, "3.6.0");

    let url = etcds.peer_url(0);
    let here = |members: &[EtcdMember]| members.iter().find(|member| member.peer_urls == [url.clone()]).cloned();
    let old = here(&gateway.members().unwrap()).unwrap();
    for _ in 0..2 {
        gateway.remove(&old.id).unwrap();
        assert_eq!(gateway.members().unwrap().len(), 2);
    }
    // It takes no new one before the others have been together for some seconds.
    let told = until("the new member", || gateway.add(&url).ok());
    let new = here(&told).unwrap();
    assert!(
        told.len() == 3 && new.learner && new.name.is_empty() && new.id != old.id,
        "{told:?}"
    );
    assert!(!gateway.promote(&new.id).unwrap(), "it has not even started");
    // One that has no name yet is not taken for another.
    assert_eq!(gateway.status().unwrap().peers.len(), 2);

    let data = etcds.data(0);
    crate::real::files::rename(&data.join("member"), &data.join("afloat-aside-1")).unwrap();
    let cluster = (0..3).map(|index| format!("m{index}={}", etcds.peer_url(index)));
    let cluster = cluster.collect::<Vec<_>>().join(",");
    etcds.start(0, &cluster, "existing");
    until("its promotion", || gateway.promote(&new.id).ok().filter(|done| *done));
    assert!(gateway.promote(&new.id).unwrap(), "it was promoted before");
    let status = until("a member that has caught up", || {
        let status = gateway.status().unwrap();
        (status.healthy && status.behind == 0).then_some(status)
    });
    assert_eq!(healthy_peers(&status), 2, "{status:?}");
    assert!(gateway.members().unwrap().iter().all(|member| !member.learner));
    assert!(data.join("afloat-aside-1/snap/db").is_file());
}
