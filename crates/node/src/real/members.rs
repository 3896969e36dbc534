//! Who is a member of etcd, asked of and changed through a healthy one among the others: the member of this node is away or broken when
//! this is called for.

use std::io;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::host::{Answer, EtcdMember};
use crate::real::etcd::{Gateway, Member, Members, of_member};
use crate::real::manifests::host_and_port;
use crate::real::units::refused;

/// What etcd says of a learner that cannot be promoted yet, of one that was, and of a member that is not there.
const NOT_YET: &str = "in sync with leader";
const NO_LEARNER: &str = "can only promote a learner";
const NO_MEMBER: &str = "member not found";

const LIST: &str = "/v3/cluster/member/list";

impl Gateway {
    /// The members as the first of the others tells them that has a leader: it asks that one.
    pub(super) fn listed_by_others(&self, known: &[Member]) -> io::Result<Vec<Member>> {
        let body = json!({"linearizable": true}).to_string();
        let mut told = self.others(known).filter_map(|member| {
            let answer = of_member(member, |host, port| self.post::<Members>(host, port, LIST, &body));
            answer.filter(|answer| !answer.members.is_empty())
        });
        let told = told.next().map(|answer| answer.members);
        told.ok_or_else(|| io::Error::other("no other member answers"))
    }

    fn listed(&self) -> Answer<Vec<Member>> {
        let known = self.recall()?;
        let failed = |error: io::Error| refused("list", "etcd's members", error.to_string());
        self.listed_by_others(&known).map_err(failed)
    }

    pub fn members(&self) -> Answer<Vec<EtcdMember>> {
        Ok(told(self.listed()?))
    }

    /// Asks a healthy one of the others, once: whether it was done after all is seen by who is listed then.
    fn ask_another<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Answer<io::Result<T>> {
        let members = self.listed()?;
        let healthy = self.others(&members).find(|member| self.is_healthy(member));
        let Some(healthy) = healthy else {
            return Err(refused("ask", "etcd", "no other member is healthy".to_owned()));
        };
        let place = healthy.client_urls.iter().find_map(|url| host_and_port(url));
        Ok(match place {
            Some((host, port)) => self.post(&host, port, path, &body.to_string()),
            None => Err(io::Error::other("it has no address")),
        })
    }

    pub fn remove(&self, id: &str) -> Answer<()> {
        match self.ask_another::<Value>("/v3/cluster/member/remove", &json!({"ID": id}))? {
            Ok(_) => Ok(()),
            Err(error) if error.to_string().contains(NO_MEMBER) => Ok(()),
            Err(error) => Err(refused("remove", "this node's etcd member", error.to_string())),
        }
    }

    pub fn add(&self, peer_url: &str) -> Answer<Vec<EtcdMember>> {
        let body = json!({"peerURLs": [peer_url], "isLearner": true});
        match self.ask_another::<Members>("/v3/cluster/member/add", &body)? {
            Ok(added) => Ok(told(added.members)),
            Err(error) => Err(refused("add", "this node to etcd", error.to_string())),
        }
    }

    pub fn promote(&self, id: &str) -> Answer<bool> {
        match self.ask_another::<Value>("/v3/cluster/member/promote", &json!({"ID": id}))? {
            Ok(_) => Ok(true),
            Err(error) => promoted(&error.to_string())
                .ok_or_else(|| refused("promote", "this node's etcd member", error.to_string())),
        }
    }
}

/// What a refusal to promote means, if it is one that was to be expected.
fn promoted(said: &str) -> Option<bool> {
    if said.contains(NOT_YET) {
        Some(false)
    } else {
        said.contains(NO_LEARNER).then_some(true)
    }
}

fn told(members: Vec<Member>) -> Vec<EtcdMember> {
    let members = members.into_iter().map(|member| EtcdMember {
        id: member.id,
        name: member.name,
        peer_urls: member.peer_urls,
        learner: member.is_learner,
    });
    members.collect()
}

#[cfg(test)]
mod tests;
