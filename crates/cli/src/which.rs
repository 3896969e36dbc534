//! Which upgrade and which node a person means, and what they are told when there is none of that name.

use crate::board::{over, phase_of};
use crate::problem::{Code, Problem};
use afloat_api::ClusterUpgrade;
use afloat_core::objects::key_of;
use afloat_core::view::{Key, Node, View};
use std::sync::Arc;

/// Names that are listed before the rest is counted.
const LISTED: usize = 12;

/// The upgrade of this name; without one the upgrade under way, else the last one there was.
pub fn to_look_at<'a>(view: &'a View, name: Option<&str>) -> Result<&'a Arc<ClusterUpgrade>, Problem> {
    if let Some(name) = name {
        return named(view, name);
    }
    match under_way(view)?.or_else(|| own(view).max_by_key(|upgrade| born(upgrade))) {
        Some(upgrade) => Ok(upgrade),
        None => Err(none_at_all(view)),
    }
}

/// The upgrade of this name, or the one under way; one that is over cannot be changed any more.
pub fn to_change<'a>(view: &'a View, name: Option<&str>) -> Result<&'a Arc<ClusterUpgrade>, Problem> {
    let upgrade = match name {
        Some(name) => named(view, name)?,
        None => match under_way(view)? {
            Some(upgrade) => upgrade,
            None if own(view).next().is_none() => return Err(none_at_all(view)),
            None => {
                return Err(Problem::new(Code::Failed, "no upgrade is under way")
                    .because(format!("there are {}", listed(view)))
                    .help("afloat status NAME"));
            }
        },
    };
    let phase = phase_of(upgrade);
    if over(phase) {
        let name = key_of(&upgrade.metadata).name;
        return Err(Problem::new(Code::Failed, format!("{name} is over ({phase})"))
            .because("nothing of it is under way any more")
            .help(format!("afloat status {name}")));
    }
    Ok(upgrade)
}

/// The one upgrade that has begun; of those that have not, the only one.
fn under_way(view: &View) -> Result<Option<&Arc<ClusterUpgrade>>, Problem> {
    let open: Vec<&Arc<ClusterUpgrade>> = own(view).filter(|upgrade| !over(phase_of(upgrade))).collect();
    let begun = |upgrade: &&&Arc<ClusterUpgrade>| {
        let status = upgrade.status.as_ref();
        status.is_some_and(|status| status.started_at.is_some())
    };
    let mut started = open.iter().filter(begun);
    match (open.as_slice(), started.next(), started.next()) {
        (_, Some(one), None) | ([one], _, _) => Ok(Some(one)),
        ([], _, _) => Ok(None),
        _ => Err(Problem::new(Code::BadUsage, "several upgrades are there: name one")
            .because(listed(view))
            .help("afloat status NAME")),
    }
}

fn own(view: &View) -> impl Iterator<Item = &Arc<ClusterUpgrade>> {
    let own = view.upgrades.iter().filter(|(key, _)| key.namespace == view.home);
    own.map(|(_, upgrade)| upgrade)
}

fn born(upgrade: &ClusterUpgrade) -> (Option<jiff::Timestamp>, Option<String>) {
    let meta = &upgrade.metadata;
    (meta.creation_timestamp.as_ref().map(|time| time.0), meta.name.clone())
}

fn named<'a>(view: &'a View, name: &str) -> Result<&'a Arc<ClusterUpgrade>, Problem> {
    view.upgrades.get(&Key::new(&view.home, name)).ok_or_else(|| {
        if own(view).next().is_none() {
            return none_at_all(view);
        }
        Problem::new(Code::BadUsage, format!("there is no upgrade {name} in {}", view.home))
            .because(format!("there are {}", listed(view)))
    })
}

fn none_at_all(view: &View) -> Problem {
    Problem::new(Code::Failed, format!("there is no upgrade in {}", view.home))
        .help("to begin one: afloat upgrade --to VERSION")
        .help("where the operator runs elsewhere: --namespace NAME")
}

fn listed(view: &View) -> String {
    let words = own(view).map(|upgrade| {
        let name = key_of(&upgrade.metadata).name;
        format!("{name} ({}, to {})", phase_of(upgrade), upgrade.spec.kubernetes_version)
    });
    some(words.collect())
}

/// The node of this name.
pub fn node<'a>(view: &'a View, name: &str) -> Result<&'a Arc<Node>, Problem> {
    view.nodes.get(name).ok_or_else(|| {
        Problem::new(Code::BadUsage, format!("there is no node {name}")).because(format!("there are {}", nodes(view)))
    })
}

/// The names of the nodes.
pub fn nodes(view: &View) -> String {
    some(view.nodes.keys().map(ToString::to_string).collect())
}

fn some(mut names: Vec<String>) -> String {
    let hidden = names.len().saturating_sub(LISTED);
    names.truncate(LISTED);
    let text = names.join(", ");
    if hidden > 0 {
        format!("{text} and {hidden} more")
    } else {
        text
    }
}
