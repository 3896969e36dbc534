//! Before the first node is upgraded RKE2 is kept from bringing its own multus, on every node; in the end it may again. Both are one file on the host.

use jiff::Timestamp;

use super::{Errand, HostDone, HostWork, Look, first_open, is_ending};
use crate::hci::turn::{Tri, condition_of};
use crate::view::View;

/// One look of the Job that holds it. Where the upgrade is over by then, nobody would let it go again.
pub fn hold_multus(view: &View, errand: &Errand, host: &HostDone, _: Timestamp) -> Look {
    let upgrade = view.hci.upgrades.get(&errand.upgrade);
    let runs = upgrade.is_some_and(|upgrade| condition_of(&upgrade.what, "Completed") == Some(Tri::Unknown));
    if !runs || is_ending(view, errand) {
        let says = format!("upgrade {} is over: multus is left as it is", errand.upgrade);
        return Look::Done { says };
    }
    first_open(&[HostWork::HoldMultus], host).unwrap_or_else(|| Look::Done {
        says: format!("node {} keeps the multus it has", errand.node),
    })
}

/// One look of the Job that lets it go.
pub fn let_multus_go(_: &View, errand: &Errand, host: &HostDone, _: Timestamp) -> Look {
    first_open(&[HostWork::LetMultusGo], host).unwrap_or_else(|| Look::Done {
        says: format!("node {} gets the multus of its RKE2", errand.node),
    })
}
