//! What a release of Harvester expects RKE2 to be configured with before its new version starts, as files of its configuration folder. A file
//! that a person may have changed is left as it is.

use crate::host::{Answer, Host};

const FOLDER: &str = "/etc/rancher/rke2/config.yaml.d";
/// How many pods a node may have.
const MOST_PODS: u64 = 200;
/// Archives that RKE2 reads when it starts.
pub const SERVER_ARCHIVES: &str = "/var/lib/rancher/rke2/agent/images";
/// Archives that Rancher's agent reads.
pub const AGENT_ARCHIVES: &str = "/var/lib/rancher/agent/images";
/// The state that the kubelet keeps of processors is of the system it was installed with, and a restart brings it back: with another policy
/// by then the kubelet would not start.
const CLEAN_KUBELET: &str = "name: Cleanup Kubelet
stages:
  initramfs:
  - commands:
    - rm -f /var/lib/kubelet/cpu_manager_state
";

/// Writes it.
pub fn configure(host: &mut dyn Host) -> Answer<()> {
    let most_pods = format!("kubelet-arg:\n- \"max-pods={MOST_PODS}\"\n");
    put(host, &format!("{FOLDER}/99-max-pods.yaml"), &most_pods)?;
    if let Some((system, kube)) = reserved(processors(host)?) {
        let reserves = format!("kubelet-arg+:\n- \"system-reserved=cpu={system}m\"\n- \"kube-reserved=cpu={kube}m\"\n");
        let file = format!("{FOLDER}/99-z00-harvester-reserved-resources.yaml");
        put_once(host, &file, &reserves)?;
    }
    // Volumes of Longhorn are devices, and importers of images do not run as root.
    put_once(
        host,
        &format!("{FOLDER}/91-harvester-cdi.yaml"),
        "\"nonroot-devices\": true\n",
    )?;
    put(host, "/oem/91_cleanup_kubelet.yaml", CLEAN_KUBELET)
}

fn put(host: &mut dyn Host, path: &str, text: &str) -> Answer<()> {
    if host.read(path)?.as_deref() == Some(text.as_bytes()) {
        return Ok(());
    }
    host.write(path, text.as_bytes(), 0o600)
}

fn put_once(host: &mut dyn Host, path: &str, text: &str) -> Answer<()> {
    if host.size(path)?.is_some() {
        return Ok(());
    }
    host.write(path, text.as_bytes(), 0o600)
}

/// How many processors the machine has, whatever this process may use of them.
fn processors(host: &mut dyn Host) -> Answer<u64> {
    let text = host.read("/proc/cpuinfo")?.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let count = text.lines().filter(|line| line.starts_with("processor")).count();
    Ok(u64::try_from(count).unwrap_or_default())
}

/// Thousandths of a processor for the system and for Kubernetes. What upstream takes: 6 % of the first processor, 1 % of the second, half a
/// per cent of the next two, a quarter of all others, 400 more for that many pods; that twice, two parts to three.
fn reserved(processors: u64) -> Option<(u64, u64)> {
    let share = match processors {
        0 => return None,
        1 => 60,
        2 => 70,
        3 | 4 => 80,
        more => 80 + (more - 4) * 5 / 2,
    };
    let twice = (share + 400) * 2;
    Some((twice * 2 / 5, twice * 3 / 5))
}

/// Removes archives that were read: they would be read again at every start, and fill the disk.
pub fn remove_archives(host: &mut dyn Host, names: &[&str]) -> Answer<()> {
    for name in names {
        host.remove(&format!("{SERVER_ARCHIVES}/{name}"))?;
    }
    Ok(())
}
