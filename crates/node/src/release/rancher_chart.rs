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

/// What helm says of one revision of it.
#[derive(Debug, Deserialize)]
struct Revision {
    revision: u64,
    status: String,
}

/// The helm of the release, with the account of the server it runs on.
struct Helm<'a> {
    program: &'a str,
    run: &'a str,
}

impl Helm<'_> {
    fn tell(&self, host: &mut dyn Host, what: &str, args: &[&str]) -> Answer<String> {
        let account = ["--kubeconfig", ACCOUNT, "--namespace", NAMESPACE];
        let all: Vec<&str> = args.iter().chain(&account).copied().collect();
        let what = format!("helm-{what}");
        to_end(host, self.run, &what, &command(self.program, &all, SECONDS))
    }

    fn installed(&self, host: &mut dyn Host, what: &str) -> Answer<Installed> {
        let said = self.tell(
            host,
            what,
            &["list", "--all", "--filter", "^rancher$", "--output", "json"],
        )?;
        let mut all: Vec<Installed> =
            serde_json::from_str(&said).map_err(|error| wrong("helm list", &error.to_string()))?;
        all.pop()
            .ok_or_else(|| wrong(RELEASE, &format!("helm knows no such release in {NAMESPACE}")))
    }

    /// Puts back the last revision that ran: the one before the newest may itself be one that was broken off.
    fn roll_back(&self, host: &mut dyn Host) -> Answer<()> {
        let said = self.tell(host, "history", &["history", RELEASE, "--output", "json"])?;
        let all: Vec<Revision> =
            serde_json::from_str(&said).map_err(|error| wrong("helm history", &error.to_string()))?;
        let ran = all
            .iter()
            .rfind(|one| matches!(one.status.as_str(), "deployed" | "superseded"));
        let Some(ran) = ran else {
            let problem = format!(
                "a helm that applied it was killed, and no revision is left to go back to. What it made stays when helm forgets it, and helm \
                 takes it over when Rancher is installed again: kubectl -n {NAMESPACE} delete secret -l owner=helm,name={RELEASE}"
            );
            return Err(wrong(RELEASE, &problem));
        };
        let revision = ran.revision.to_string();
        let args = ["rollback", RELEASE, &revision, "--wait", "--timeout", ROLLED_OUT_WITHIN];
        self.tell(host, "rollback", &args).map(|_| ())
    }
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
    let helm = Helm { program, run };
    let mut installed = helm.installed(host, "list")?;
    if is_pending(&installed) {
        // A helm outlives the pod that asked for it. Whether it is still at work or was killed cannot be told from what it left: it is
        // ended first, and then says itself that it failed, unless there was none.
        host.end_jobs()?;
        installed = helm.installed(host, "list-again")?;
    }
    if installed.status == "deployed" && installed.app_version == version {
        return Ok(format!("Rancher {version} is there already"));
    }
    // Helm refuses to begin anew until what was broken off is undone.
    if is_pending(&installed) {
        helm.roll_back(host)?;
        installed = helm.installed(host, "list-rolled-back")?;
    }
    let image = format!("rancherImageTag={version}");
    let args = [
        "upgrade",
        RELEASE,
        chart,
        "--reset-then-reuse-values",
        "--set-string",
        &image,
        "--wait",
        "--timeout",
        ROLLED_OUT_WITHIN,
    ];
    helm.tell(host, "upgrade", &args)?;
    Ok(format!("Rancher went from {} to {version}", installed.app_version))
}

fn is_pending(installed: &Installed) -> bool {
    installed.status.starts_with("pending-")
}

fn wrong(object: &str, message: &str) -> HostError {
    HostError::Failed {
        action: "upgrade Rancher with",
        object: object.to_owned(),
        message: message.to_owned(),
    }
}
