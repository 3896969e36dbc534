//! Images of a release: brought to a node before anything there needs them, and those of the release before removed when nobody does any
//! more. All of it happens on the host; which images these are, the repository says.

use jiff::Timestamp;

use super::{Errand, HostDone, HostWork, Look, first_open};
use crate::view::View;

/// One look of the Job that prepares a node (H21).
pub fn prepare(_: &View, errand: &Errand, host: &HostDone, _: Timestamp) -> Look {
    first_open(&[HostWork::PreloadImages], host).unwrap_or_else(|| Look::Done {
        says: format!("node {} has the images of the release", errand.node),
    })
}

/// One look of the Job that cleans a node up (H9, H26).
pub fn clean_up(_: &View, errand: &Errand, host: &HostDone, _: Timestamp) -> Look {
    first_open(&[HostWork::RemoveOldImages], host).unwrap_or_else(|| Look::Done {
        says: format!("node {} keeps what the release needs", errand.node),
    })
}
