//! What Harvester's way of upgrading wants done on a host before it is drained, beside what Rancher does itself: three small things to files
//! and one unit, each of which can be done again without harm. When they are done is decided in the core.

use crate::host::{Answer, Host, HostError, UnitOrder, UnitState};

const AGENT: &str = "rancher-system-agent.service";
/// Where an earlier upgrade told the agent not to start RKE2; it lies in memory, and a reboot clears it too.
const AGENT_DROP_IN: &str = "/run/systemd/system/rancher-system-agent.service.d";
const CANAL_CONFIG: &str = "/var/lib/rancher/rke2/server/manifests/rke2-canal-config.yaml";
const DISABLED_CHARTS: &str = "/etc/rancher/rke2/config.yaml.d/40-disable-charts.yaml";
/// RKE2 brings these since v1.25.7 and Harvester has its own.
const SNAPSHOT_CHARTS: &str = "disable:
- rke2-snapshot-controller
- rke2-snapshot-controller-crd
- rke2-snapshot-validation-webhook
";

/// Takes Rancher's agent out of what an earlier upgrade left it in, and starts it anew.
pub fn recover_agent(host: &mut dyn Host) -> Answer<()> {
    if host.unit(AGENT)? == UnitState::Unknown {
        return Err(HostError::Failed {
            action: "restart",
            object: AGENT.to_owned(),
            message: "there is no such unit: this machine is not Rancher's".to_owned(),
        });
    }
    host.remove(AGENT_DROP_IN)?;
    host.reload_units()?;
    host.order(AGENT, UnitOrder::Restart)
}

/// Takes away the configuration of canal that the new release brings by itself.
pub fn remove_canal_config(host: &mut dyn Host) -> Answer<()> {
    host.remove(CANAL_CONFIG)
}

/// Keeps RKE2's own snapshot charts from being installed beside Harvester's.
pub fn disable_charts(host: &mut dyn Host) -> Answer<()> {
    if host.read(DISABLED_CHARTS)?.as_deref() == Some(SNAPSHOT_CHARTS.as_bytes()) {
        return Ok(());
    }
    host.write(DISABLED_CHARTS, SNAPSHOT_CHARTS.as_bytes(), 0o600)
}
