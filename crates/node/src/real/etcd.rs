//! This node's etcd member and its peers, asked through etcd's own JSON gateway with the certificates that kubeadm made for it. No
//! data is read or written: versions, indexes and who leads. Who is a member is changed in `members`.

use std::io;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::host::{Answer, EtcdPeer, EtcdStatus};
use crate::real::https::{self, Request, Trust, ask};
use crate::real::manifests::{first_url, flag, host_and_port};
use crate::real::units::refused;
use crate::real::{files, wrong_file};
use crate::steps::stand_aside::CAUGHT_UP;

/// Certificates to speak to etcd with, the one made for health checks first.
const CERTIFICATES: [&str; 2] = ["healthcheck-client", "server"];

/// What `/v3/maintenance/status` says. The gateway writes 64-bit numbers as texts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    header: Header,
    version: String,
    leader: String,
    raft_index: String,
    raft_applied_index: String,
    is_learner: bool,
    errors: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Header {
    member_id: String,
}

impl Status {
    fn is_healthy(&self) -> bool {
        !["", "0"].contains(&self.leader.as_str()) && self.errors.is_empty() && !self.is_learner
    }

    fn leads(&self) -> bool {
        self.is_healthy() && self.leader == self.header.member_id
    }

    /// Entries it has to apply until it is where the leader was.
    fn behind(&self, index: u64) -> u64 {
        index.saturating_sub(number(&self.raft_applied_index))
    }

    /// To be compared: 3.6.10 is newer than 3.6.9.
    fn release(&self) -> Vec<u64> {
        self.version.split('.').map(number).collect()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Members {
    pub members: Vec<Member>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Member {
    #[serde(rename = "ID")]
    pub id: String,
    pub name: String,
    #[serde(rename = "peerURLs")]
    pub peer_urls: Vec<String>,
    #[serde(rename = "clientURLs")]
    pub client_urls: Vec<String>,
    #[serde(rename = "isLearner")]
    pub is_learner: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Version {
    etcdserver: String,
    etcdcluster: String,
}

/// Speaks to the members of a cluster.
pub struct Gateway {
    trust: Trust,
    host: String,
    port: u16,
    /// Of this node's member.
    name: String,
    /// Where the others find it, which it has before it has a name among them.
    peer_urls: Vec<String>,
    /// Where the members are written down for when this one can no longer name them.
    remembered: std::path::PathBuf,
}

impl Gateway {
    /// With kubeadm's certificates, to where the manifest says that the member listens.
    pub fn new(pki: &Path, manifest: &str, remembered: std::path::PathBuf) -> Answer<Self> {
        let file = |name: &str| files::read(&pki.join("etcd").join(name)).map(Option::unwrap_or_default);
        let authority = file("ca.crt")?;
        let mut pair = (Vec::new(), Vec::new());
        for name in CERTIFICATES {
            pair = (file(&format!("{name}.crt"))?, file(&format!("{name}.key"))?);
            if !pair.0.is_empty() {
                break;
            }
        }
        let trust = https::known(&authority, &pair.0, &pair.1).map_err(wrong_file(&pki.join("etcd")))?;
        let listens = first_url(manifest, "listen-client-urls");
        let peer_urls = flag(manifest, "initial-advertise-peer-urls").unwrap_or_default();
        let (host, port) = listens.unwrap_or_else(|| ("127.0.0.1".to_owned(), 2379));
        Ok(Self {
            trust,
            host,
            port,
            name: flag(manifest, "name").unwrap_or_default().to_owned(),
            peer_urls: peer_urls.split(',').map(str::to_owned).collect(),
            remembered,
        })
    }

    /// To a member that needs no certificates.
    #[cfg(test)]
    pub(super) fn plain(name: &str, client: (&str, u16), peer_url: &str, remembered: std::path::PathBuf) -> Self {
        Self {
            trust: Trust::Plain,
            host: client.0.to_owned(),
            port: client.1,
            name: name.to_owned(),
            peer_urls: vec![peer_url.to_owned()],
            remembered,
        }
    }

    /// How this node's member is; one that does not answer is not healthy.
    pub fn status(&self) -> Answer<EtcdStatus> {
        let own = self.post::<Status>(&self.host, self.port, "/v3/maintenance/status", "{}");
        let Ok(own) = own else {
            return Ok(self.seen_by_others(&self.recall()?));
        };
        let members = self.post::<Members>(&self.host, self.port, "/v3/cluster/member/list", "{}");
        let members = match members {
            Ok(found) if !found.members.is_empty() => {
                self.remember(&found.members)?;
                found.members
            }
            _ => self.recall()?,
        };
        let version = self.get_version(&self.host, self.port).unwrap_or_default();
        let index = number(&own.raft_index);
        let others = self.others(&members).filter(|member| member.id != own.header.member_id);
        let peers: Vec<_> = others.map(|member| self.peer(member, index)).collect();
        let furthest = peers.iter().map(|(_, index)| *index).max().unwrap_or(0);
        Ok(EtcdStatus {
            healthy: own.is_healthy(),
            leads: own.leads(),
            version: if version.etcdserver.is_empty() {
                own.version
            } else {
                version.etcdserver
            },
            cluster_version: version.etcdcluster,
            behind: furthest.saturating_sub(number(&own.raft_applied_index)),
            peers: peers.into_iter().map(|(peer, _)| peer).collect(),
        })
    }

    /// All but this node's own, under whatever id: one that was just added has no name, one that was removed may be remembered.
    pub(super) fn others<'a>(&'a self, members: &'a [Member]) -> impl Iterator<Item = &'a Member> {
        let own = |member: &Member| {
            let here = member.peer_urls.iter().any(|url| self.peer_urls.contains(url));
            here || member.name == self.name
        };
        members.iter().filter(move |member| !own(member))
    }

    /// Gives leadership to another member, if this one has it.
    pub fn hand_over(&self) -> Answer<()> {
        let failed = |error: io::Error| refused("hand over", "etcd's leadership", error.to_string());
        let own: Status = self
            .post(&self.host, self.port, "/v3/maintenance/status", "{}")
            .map_err(failed)?;
        if !own.leads() {
            return Ok(());
        }
        let members: Members = self
            .post(&self.host, self.port, "/v3/cluster/member/list", "{}")
            .map_err(failed)?;
        let others = members.members.iter();
        let others = others.filter(|member| member.id != own.header.member_id);
        let asked = others.filter_map(|member| Some((member, self.status_of(member)?)));
        let Some(heir) = heir(number(&own.raft_index), asked) else {
            return Err(refused(
                "hand over",
                "etcd's leadership",
                "no other member is healthy".to_owned(),
            ));
        };
        let body = format!("{{\"targetID\":\"{}\"}}", heir.id);
        let moved = self.post::<serde_json::Value>(&self.host, self.port, "/v3/maintenance/transfer-leadership", &body);
        moved.map(|_| ()).map_err(failed)
    }

    fn status_of(&self, member: &Member) -> Option<Status> {
        of_member(member, |host, port| {
            self.post(host, port, "/v3/maintenance/status", "{}")
        })
    }

    /// How another member is, and how far.
    fn peer(&self, member: &Member, index: u64) -> (EtcdPeer, u64) {
        let status = self.status_of(member);
        let reached = status.as_ref().map_or(0, |status| number(&status.raft_index));
        let peer = EtcdPeer {
            name: if member.name.is_empty() {
                member.id.clone()
            } else {
                member.name.clone()
            },
            healthy: status.as_ref().is_some_and(Status::is_healthy),
            behind: status.map_or(0, |status| status.behind(index)),
        };
        (peer, reached)
    }

    /// Whether a member answers and has a leader.
    pub(super) fn is_healthy(&self, member: &Member) -> bool {
        self.peer(member, 0).0.healthy
    }

    /// What there is to know while the member here is away: which version all have agreed on decides what may be undone.
    fn seen_by_others(&self, members: &[Member]) -> EtcdStatus {
        // Who is a member may have changed since they were written down.
        let fresh = self.listed_by_others(members).ok();
        let members = fresh.as_deref().unwrap_or(members);
        let others: Vec<_> = self.others(members).collect();
        let mut versions = others
            .iter()
            .filter_map(|member| of_member(member, |host, port| self.get_version(host, port)));
        EtcdStatus {
            cluster_version: versions.next().unwrap_or_default().etcdcluster,
            peers: others.iter().map(|member| self.peer(member, 0).0).collect(),
            ..EtcdStatus::default()
        }
    }

    pub(super) fn post<T: DeserializeOwned>(&self, host: &str, port: u16, path: &str, body: &str) -> io::Result<T> {
        let body = Some(body);
        self.ask(&Request { host, port, path, body })
    }

    fn get_version(&self, host: &str, port: u16) -> io::Result<Version> {
        let (path, body) = ("/version", None);
        self.ask(&Request { host, port, path, body })
    }

    fn ask<T: DeserializeOwned>(&self, request: &Request<'_>) -> io::Result<T> {
        let answered = ask(request, &self.trust)?;
        if !answered.is_ok() {
            return Err(io::Error::other(format!(
                "it answered {}: {}",
                answered.status,
                String::from_utf8_lossy(&answered.body).trim()
            )));
        }
        serde_json::from_slice(&answered.body).map_err(io::Error::from)
    }

    fn remember(&self, members: &[Member]) -> Answer<()> {
        let lines = members.iter().map(|member| {
            let urls = member.client_urls.join(" ");
            format!("{} {} {urls}\n", member.id, member.name)
        });
        let text: String = lines.collect();
        if files::read(&self.remembered)?.as_deref() == Some(text.as_bytes()) {
            return Ok(());
        }
        files::write(&self.remembered, text.as_bytes(), 0o600)
    }

    pub(super) fn recall(&self) -> Answer<Vec<Member>> {
        let text = files::read(&self.remembered)?.unwrap_or_default();
        Ok(recalled(&String::from_utf8_lossy(&text)))
    }
}

/// Who is to lead next. A write that a follower hands on while leadership moves is dropped, and the follower is not told: it waits for
/// seconds and fails. So leadership moves seldom: to a member that is newer already, else to the one whose turn comes last, as control planes
/// go by name. One that has to catch up first is taken only where all have to: it makes that moment longer.
fn heir<'a>(index: u64, others: impl Iterator<Item = (&'a Member, Status)>) -> Option<&'a Member> {
    let healthy = others.filter(|(_, status)| status.is_healthy());
    let best = healthy.max_by(|(one, status), (other, its)| {
        let late = |status: &Status| status.behind(index).saturating_sub(CAUGHT_UP);
        let later = late(its).cmp(&late(status));
        later
            .then_with(|| status.release().cmp(&its.release()))
            .then_with(|| one.name.cmp(&other.name))
    });
    best.map(|(member, _)| member)
}

/// The first answer that one of a member's addresses gives.
pub(super) fn of_member<T>(member: &Member, ask: impl Fn(&str, u16) -> io::Result<T>) -> Option<T> {
    let places = member.client_urls.iter().filter_map(|url| host_and_port(url));
    let mut answers = places.filter_map(|(host, port)| ask(&host, port).ok());
    answers.next()
}

fn recalled(text: &str) -> Vec<Member> {
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace().map(str::to_owned);
        Some(Member {
            id: words.next()?,
            name: words.next()?,
            client_urls: words.collect(),
            ..Member::default()
        })
    });
    lines.collect()
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_as_the_gateway_writes_it() {
        let text = r#"{"header":{"cluster_id":"1","member_id":"77","revision":"9","raft_term":"2"},"version":"3.6.6",
            "dbSize":"20480","leader":"77","raftIndex":"812","raftTerm":"2","raftAppliedIndex":"810","storageVersion":"3.6.0"}"#;
        let status: Status = serde_json::from_str(text).unwrap();
        assert!(status.is_healthy() && status.leads());
        assert_eq!(
            (number(&status.raft_index), number(&status.raft_applied_index)),
            (812, 810)
        );
        let lost: Status =
            serde_json::from_str(r#"{"header":{"member_id":"77"},"errors":["etcdserver: no leader"]}"#).unwrap();
        assert!(!lost.is_healthy() && !lost.leads());
    }

    #[test]
    fn leadership_goes_to_who_keeps_it_longest() {
        let member = |name: &str| Member {
            name: name.to_owned(),
            ..Member::default()
        };
        let status = |version: &str, applied: u64| Status {
            version: version.to_owned(),
            leader: "1".to_owned(),
            raft_applied_index: applied.to_string(),
            ..Status::default()
        };
        let goes_to = |others: [(&str, Status); 2]| {
            let members = others.map(|(name, status)| (member(name), status));
            let heir = heir(5000, members.iter().map(|(member, status)| (member, status.clone())));
            heir.map_or_else(String::new, |member| member.name.clone())
        };
        let same = || status("3.6.9", 5000);
        assert_eq!(goes_to([("cp-3", same()), ("cp-2", same())]), "cp-3", "goes last");
        assert_eq!(goes_to([("cp-2", same()), ("cp-3", same())]), "cp-3", "goes last");
        assert_eq!(
            goes_to([("cp-1", status("3.6.10", 4990)), ("cp-3", same())]),
            "cp-1",
            "is done"
        );
        assert_eq!(
            goes_to([("cp-1", status("3.6.10", 0)), ("cp-3", same())]),
            "cp-3",
            "the newer one is far behind"
        );
        let lost = || Status::default();
        assert_eq!(goes_to([("cp-2", same()), ("cp-3", lost())]), "cp-2");
        assert_eq!(goes_to([("cp-2", lost()), ("cp-3", lost())]), "");
    }

    #[test]
    fn members_are_remembered_by_their_addresses() {
        let members =
            recalled("77 cp-1 https://10.0.0.1:2379\n78 cp-2 https://10.0.0.2:2379 https://[fd00::2]:2379\nhalf\n");
        assert_eq!(members.len(), 2);
        assert_eq!(members[1].client_urls.len(), 2);
    }
}
