//! A site: a lab of real machines with Afloat installed in it, as an administrator without a way out would: a bundle made of files,
//! pushed to the site's registry, the kinds and the manifests applied. The tests beside it upgrade such sites and break them.
//! What a lab is lives in `afloat-lab`, which knows nothing of Afloat.

mod account;
mod breaks;
mod endpoints;
mod error;
mod haystack;
mod moments;
mod read;
mod run;
mod site;
mod table;

pub use account::{Account, Filling, NodeAccount};
pub use endpoints::{Endpoints, Seen};
pub use error::Error;
pub use haystack::Haystack;
pub use moments::{Entry, Moments};
pub use run::{Followed, States};
pub use site::Site;
