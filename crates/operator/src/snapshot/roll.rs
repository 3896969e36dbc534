//! A roll call: which nodes there are and in which state, at one moment. While nothing happens to any node their watch says nothing (kube keeps
//! its bookmarks to itself); what was asked tells up to when that silence was the truth.

use std::collections::BTreeMap;

use afloat_core::objects::target_of;
use afloat_core::view::{Node, NodeName, Revision, View};
use kube::api::ListParams;
use kube::{Api, Client};

use super::raw::RawNode;
use crate::clients::bounded;

/// Nodes asked for at once.
const PAGE: u32 = 500;

/// The nodes there were at a revision, each in its own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RollCall {
    pub revision: Revision,
    pub nodes: BTreeMap<NodeName, Revision>,
}

/// Asks etcd, and no cache; of each node for its metadata alone.
pub async fn call(client: &Client) -> Result<RollCall, String> {
    let api: Api<RawNode> = Api::all(client.clone());
    let mut params = ListParams::default().limit(PAGE);
    let mut roll = RollCall::default();
    loop {
        let page = bounded(api.list_metadata(&params))
            .await
            .map_err(|error| error.to_string())?;
        let revision = page.metadata.resource_version.as_deref().unwrap_or_default();
        roll.revision = Revision(
            revision
                .parse()
                .map_err(|_| format!("a list of nodes says that it is of {revision:?}"))?,
        );
        for node in &page.items {
            let target = target_of(&node.metadata);
            roll.nodes.insert(NodeName::from(target.key.name), target.revision);
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(roll),
        }
    }
}

/// What the view still lacks of a roll call.
#[derive(Debug)]
pub struct Lacking {
    pub revision: Revision,
    /// Nodes that are to be seen in this state or a later one; none for those that were not there.
    nodes: BTreeMap<NodeName, Option<Revision>>,
}

impl Lacking {
    pub fn of(roll: RollCall, view: &View) -> Self {
        let revision = roll.revision;
        let mut nodes: BTreeMap<NodeName, Option<Revision>> =
            view.nodes.keys().map(|name| (name.clone(), None)).collect();
        nodes.extend(roll.nodes.into_iter().map(|(name, newest)| (name, Some(newest))));
        let mut lacking = Self { revision, nodes };
        lacking
            .nodes
            .retain(|name, newest| !is_seen(view.nodes.get(name).map(AsRef::as_ref), *newest, revision));
        lacking
    }

    /// A node was seen as it is in the view now, or gone.
    pub fn told(&mut self, view: &View, name: &str) {
        let node = view.nodes.get(name).map(AsRef::as_ref);
        if self
            .nodes
            .get(name)
            .is_some_and(|newest| is_seen(node, *newest, self.revision))
        {
            self.nodes.remove(name);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

fn is_seen(node: Option<&Node>, newest: Option<Revision>, at: Revision) -> bool {
    match (node, newest) {
        (Some(node), Some(newest)) => node.revision >= newest,
        // It may have joined since.
        (Some(node), None) => node.revision > at,
        (None, newest) => newest.is_none(),
    }
}
