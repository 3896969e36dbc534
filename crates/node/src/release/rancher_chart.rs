//! Rancher's own chart: taken out of the installer image that a release brings for Rancher's agent, and applied by the helm that lies beside
//! it there. The values that people gave stay. Runs on a server of RKE2, whose account helm uses.

use serde::Deserialize;

use super::lists::file_name;
use super::server::AGENT_ARCHIVES;
use super::{command, images, to_end};
use crate::host::{Answer, Host, HostError};

const INSTALLER: &str = "docker.io/rancher/system-agent-installer-rancher";
const MOUNTED: &str = "/run/afloat-rancher";
const ACCOUNT: &str = "/etc/rancher/rke2/rke2.yaml";
const NAMESPACE: &str = "cattle-system";
const RELEASE: &str = "rancher";
/// How long helm waits until every replica is as it has to be, and how long it is waited for itself.
const ROLLED_OUT_WITHIN: &str = "20m";
const SECONDS: u32 = 25 * 60;

/// What helm says of a release.
#[derive(Debug, Deserialize)]
struct Installed {
    status: String,
    app_version: String,
}

/// Brings Rancher to this version, as `v2.12.2`, and says what was done.
pub fn upgrade(host: &mut dyn Host, run: &str, version: &str) -> Answer<String> {
    let image = bring_installer(host, run, version)?;
    host.write(
        &format!("{MOUNTED}/here"),
        b"the installer of Rancher is mounted here\n",
        0o600,
    )?;
    // What an earlier attempt left mounted; most often there is none.
    let _ = unmount(host, run, "before");
    let mount = images::ctr(&["images", "mount", &image, MOUNTED], SECONDS);
    to_end(host, run, "mount", &mount)?;
    let done = apply(host, run, version);
    let unmounted = unmount(host, run, "after");
    let done = done?;
    unmounted?;
    Ok(done)
}

fn unmount(host: &mut dyn Host, run: &str, when: &str) -> Answer<()> {
    let unmount = images::ctr(&["images", "unmount", "--rm", MOUNTED], SECONDS);
    to_end(host, run, &format!("unmount-{when}"), &unmount).map(|_| ())
}

/// The installer lies among the archives that Rancher's agent reads, and is not known to containerd unless somebody has imported it.
fn bring_installer(host: &mut dyn Host, run: &str, version: &str) -> Answer<String> {
    let image = format!("{INSTALLER}:{version}");
    if images::present(host, run)?.contains(&image) {
        return Ok(image);
    }
    for archive in host.list(AGENT_ARCHIVES)? {
        images::import(host, run, &archive.path)?;
    }
    if images::present(host, &format!("{run}-imported"))?.contains(&image) {
        return Ok(image);
    }
    Err(wrong(
        &image,
        &format!("no archive in {AGENT_ARCHIVES} has it: the images of the release are not all on this node"),
    ))
}

fn apply(host: &mut dyn Host, run: &str, version: &str) -> Answer<String> {
    let files = host.list(MOUNTED)?;
    let found = |is: fn(&str) -> bool| {
        files
            .iter()
            .find(|file| is(file_name(&file.path)))
            .map(|file| file.path.as_str())
    };
    let chart = found(|name| {
        name.strip_suffix(".tgz")
            .is_some_and(|chart| chart.starts_with("rancher-"))
    });
    let (Some(chart), Some(program)) = (chart, found(|name| name == "helm")) else {
        let there: Vec<&str> = files.iter().map(|file| file_name(&file.path)).collect();
        let problem = format!(
            "it holds no helm with a chart of Rancher beside it, but {}",
            there.join(", ")
        );
        return Err(wrong(INSTALLER, &problem));
    };
    let helm = |args: &[&str]| {
        let account = ["--kubeconfig", ACCOUNT, "--namespace", NAMESPACE];
        let all: Vec<&str> = args.iter().chain(&account).copied().collect();
        command(program, &all, SECONDS)
    };
    let list = helm(&["list", "--all", "--filter", "^rancher$", "--output", "json"]);
    let said = to_end(host, run, "helm-list", &list)?;
    let installed: Vec<Installed> =
        serde_json::from_str(&said).map_err(|error| wrong("helm list", &error.to_string()))?;
    let Some(installed) = installed.first() else {
        return Err(wrong(RELEASE, &format!("helm knows no such release in {NAMESPACE}")));
    };
    if installed.status == "deployed" && installed.app_version == version {
        return Ok(format!("Rancher {version} is there already"));
    }
    // Whoever applied it was killed meanwhile, and helm refuses to begin anew until that is undone.
    if installed.status.starts_with("pending-") {
        let rollback = helm(&["rollback", RELEASE, "--wait", "--timeout", ROLLED_OUT_WITHIN]);
        to_end(host, run, "helm-rollback", &rollback)?;
    }
    let image = format!("rancherImageTag={version}");
    let upgrade = helm(&[
        "upgrade",
        RELEASE,
        chart,
        "--reset-then-reuse-values",
        "--set-string",
        &image,
        "--wait",
        "--timeout",
        ROLLED_OUT_WITHIN,
    ]);
    to_end(host, run, "helm-upgrade", &upgrade)?;
    Ok(format!("Rancher went from {} to {version}", installed.app_version))
}

fn wrong(object: &str, message: &str) -> HostError {
    HostError::Failed {
        action: "upgrade Rancher with",
        object: object.to_owned(),
        message: message.to_owned(),
    }
}
