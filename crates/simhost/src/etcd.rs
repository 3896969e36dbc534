//! The etcd member of a simulated machine: whose data lies on its disk, whom the others list, and what follows for a member that starts. As
//! real ones: data of a removed member starts nowhere, a manifest that is not for joining starts a new cluster where there is no data, and
//! an older etcd does not read what the cluster has moved on from.

use afloat_node::flags::numbers;
use afloat_node::host::{Answer, EtcdMember, EtcdPeer, EtcdStatus};
use afloat_node::paths;

use super::SimHost;
use super::layout::peer_url;
use super::port::refused;

/// All data of a member, in one file.
pub const DATABASE: &str = "/var/lib/etcd/member/snap/db";
/// The id of the member that is there from the start.
pub const FIRST: u64 = 1;
/// What another etcd left behind that damaged it.
const DAMAGED: &str = "damaged";

/// What a member of this id writes down.
pub fn data_of(id: u64) -> String {
    format!("member {id}\n")
}

/// The etcd member of a machine, as far as it does not follow from its static pod.
#[derive(Clone, Debug, Default)]
pub struct Member {
    pub leads: bool,
    /// The version all members agreed on.
    pub cluster_version: String,
    pub peers: Vec<EtcdPeer>,
    /// Entries this one is behind the leader.
    pub behind: u64,
    /// The member of this machine, as the others list it.
    pub own: Option<Own>,
    /// How often it has begun a cluster of its own, which no member may that has peers.
    pub new_clusters: u32,
    /// How often one was added.
    pub added: u64,
}

/// A member that the others list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Own {
    pub id: u64,
    pub learner: bool,
    /// It has started for the first time.
    pub started: bool,
}

impl Own {
    pub fn first() -> Self {
        Self {
            id: FIRST,
            learner: false,
            started: true,
        }
    }
}

/// Asked for at every look at a machine: without a list of all its numbers.
fn minor(version: &str) -> (Option<u32>, Option<u32>) {
    let mut numbers = version.trim_start_matches('v').split('.');
    let mut next = || numbers.next()?.parse().ok();
    (next(), next())
}

impl SimHost {
    /// An etcd has started, and looks at its data.
    pub(super) fn open_data(&mut self) {
        let tag = self.tag_of("etcd").unwrap_or_default();
        if self.disk.get(DATABASE).is_some() {
            let first = self.disk.text(DATABASE) == Some(&data_of(FIRST));
            if first && self.faults.damaging_etcds.contains(&*tag) {
                self.disk.write(DATABASE, DAMAGED.as_bytes(), 0o600);
            }
            if self.faults.moving_etcds.contains(&*tag) {
                (*tag).clone_into(&mut self.member.cluster_version);
            }
            return;
        }
        let manifest = self.disk.text(&paths::manifest("etcd")).unwrap_or_default().to_owned();
        if !manifest.contains("--initial-cluster-state=existing") {
            self.member.new_clusters += 1;
            return;
        }
        let named = self
            .member
            .peers
            .iter()
            .all(|peer| manifest.contains(&peer_url(&peer.name)));
        if let Some(own) = self.member.own.as_mut().filter(|own| named && !own.started) {
            own.started = true;
            let data = data_of(own.id);
            self.disk.write(DATABASE, data.as_bytes(), 0o600);
        }
    }

    /// Whether an etcd of this version runs on the data that is there, as the member that the others know.
    pub(super) fn runs_on_data(&self, version: &str) -> bool {
        let data = self.disk.text(DATABASE).and_then(|text| text.strip_prefix("member "));
        let id = data.and_then(|id| id.trim_end().parse().ok());
        let own = self.member.own.map(|own| own.id);
        id.is_some() && id == own && minor(&self.member.cluster_version) <= minor(version)
    }

    /// Whether this node's etcd member answers, has a leader and decides with the others.
    pub fn etcd_healthy(&self) -> bool {
        let others = self.member.peers.iter().filter(|peer| peer.healthy).count();
        let votes = self.member.own.is_some_and(|own| !own.learner);
        self.is_ready("etcd") && votes && (others + 1) * 2 > self.member.peers.len() + 1
    }

    pub(super) fn etcd_status(&self) -> EtcdStatus {
        let tag = self
            .tag_of("etcd")
            .filter(|_| self.is_ready("etcd"))
            .unwrap_or_default();
        let version = numbers(&tag).iter().map(u32::to_string).collect::<Vec<_>>();
        // One that has no peers and does not answer has nobody to tell for it.
        let told = !version.is_empty() || !self.member.peers.is_empty();
        EtcdStatus {
            healthy: self.etcd_healthy(),
            leads: self.member.leads,
            version: version.join("."),
            cluster_version: if told {
                self.member.cluster_version.clone()
            } else {
                String::new()
            },
            behind: self.member.behind,
            peers: self.member.peers.clone(),
        }
    }

    /// The others decide only while most of the members that vote are up.
    fn others_decide(&self) -> Answer<()> {
        let own = self.member.own.is_some_and(|own| !own.learner);
        let voters = self.member.peers.len() + usize::from(own);
        let healthy = self.member.peers.iter().filter(|peer| peer.healthy).count();
        if healthy * 2 > voters {
            Ok(())
        } else {
            Err(refused("ask", "etcd", "no other member is healthy"))
        }
    }

    pub(super) fn listed_members(&self) -> Answer<Vec<EtcdMember>> {
        self.others_decide()?;
        let others = self.member.peers.iter().map(|peer| EtcdMember {
            id: format!("of {}", peer.name),
            name: peer.name.clone(),
            peer_urls: vec![peer_url(&peer.name)],
            learner: false,
        });
        let own = self.member.own.map(|own| EtcdMember {
            id: own.id.to_string(),
            name: if own.started {
                self.machine.address.clone()
            } else {
                String::new()
            },
            peer_urls: vec![peer_url(&self.machine.address)],
            learner: own.learner,
        });
        Ok(others.chain(own).collect())
    }

    pub(super) fn remove_member(&mut self, id: &str) -> Answer<()> {
        self.others_decide()?;
        self.member.own = self.member.own.filter(|own| own.id.to_string() != id);
        Ok(())
    }

    pub(super) fn add_learner(&mut self, url: &str) -> Answer<Vec<EtcdMember>> {
        self.others_decide()?;
        if self.member.own.is_some() || url != peer_url(&self.machine.address) {
            return Err(refused("add", url, "Peer URLs already exists"));
        }
        self.member.added += 1;
        self.member.own = Some(Own {
            id: FIRST + self.member.added,
            learner: true,
            started: false,
        });
        self.listed_members()
    }

    pub(super) fn promote_learner(&mut self, id: &str) -> Answer<bool> {
        self.others_decide()?;
        let caught_up = self.is_ready("etcd");
        let own = self.member.own.as_mut().filter(|own| own.id.to_string() == id);
        let Some(own) = own else {
            return Err(refused("promote", id, "member not found"));
        };
        own.learner &= !caught_up;
        Ok(!own.learner)
    }
}
