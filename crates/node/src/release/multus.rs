//! RKE2 brings its own multus with every version, as a manifest that a server applies when it starts. A file beside it keeps the server from that. One
//! that a person has put there stays theirs.

use crate::host::{Answer, Host};

const MANIFESTS: &str = "/var/lib/rancher/rke2/server/manifests";
const SKIP: &str = "/var/lib/rancher/rke2/server/manifests/rke2-multus.yaml.skip";
/// RKE2 looks only whether the file is there; we, whose it is.
const OURS: &str = "# here until the upgrade of the cluster is over (afloat)\n";

/// Keeps RKE2 from bringing it. A machine without manifests is no server, and would look like one with them.
pub fn hold(host: &mut dyn Host) -> Answer<()> {
    if host.list(MANIFESTS)?.is_empty() || host.size(SKIP)?.is_some() {
        return Ok(());
    }
    host.write(SKIP, OURS.as_bytes(), 0o600)
}

/// Lets RKE2 bring it again.
pub fn let_go(host: &mut dyn Host) -> Answer<()> {
    if host.read(SKIP)?.as_deref() == Some(OURS.as_bytes()) {
        return host.remove(SKIP);
    }
    Ok(())
}
