//! The commands about a real cluster and an upgrade in it, with what people can write after each. What they do lives in the
//! module named like the command.

use afloat_api::clusterupgrade::{Day, Window};
use afloat_api::node::BUNDLE_KEY;
use afloat_bundle::PublicKeys;
use afloat_core::KubernetesVersion;
use clap::{Args, ValueEnum};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

/// Where the operator lives unless told otherwise.
pub const HOME: &str = "afloat-system";

pub const UPGRADE_EXAMPLES: &str = "\
Examples:
  afloat upgrade --to v1.36.3                                  look, ask, begin, and follow to the end
  afloat upgrade --to v1.36.3 --dry-run                        only look: what would stop it, and what it would do
  afloat upgrade --to v1.36.3 --accept node/worker-5:Cordoned  begin although the preflight warns of this
  afloat upgrade --to v1.36.3 --max-unavailable 25% --max-failed 2 --yes
  afloat upgrade --to v1.36.3 --window 'Sat,Sun 22:30+4h Europe/Berlin' --no-wait
  afloat upgrade --to v1.36.3 --bundle mirror/afloat/bundle:v1.36.3-2 --etcd-version 3.6.9-0   newer parts of the version that is there
  afloat upgrade --to v1.36.3 --dry-run -o yaml > upgrade.yaml the object, for GitOps

The same command again changes nothing and follows what is under way. Ctrl-C stops the looking, not the upgrade.

Exit codes: 0 done, 1 failed, 2 bad usage, 3 refused by preflight, 4 timed out but still going on, 5 paused, 130 detached";

pub const STATUS_EXAMPLES: &str = "\
Examples:
  afloat status                 the upgrade that is under way, else the last one
  afloat status --watch         redrawn in place; piped, one line per change
  afloat status -o json         for scripts, with all nodes and times as RFC 3339
  afloat status edge-1 -o wide  also group, zone and attempt of each node, and every wait";

pub const EXPLAIN_EXAMPLES: &str = "\
Examples:
  afloat explain            from the upgrade down to the one object that blocks, and the commands that free it
  afloat explain -o json    the same for scripts";

pub const PAUSE_EXAMPLES: &str = "\
Examples:
  afloat pause              no further node starts; a node that has begun is finished
  afloat pause worker-3     this node is held before it begins, the others go on
  afloat resume             lets the upgrade go on
  afloat resume worker-3    lets the node go on";

pub const WISH_EXAMPLES: &str = "\
Examples:
  afloat defer worker-2     put back as it was, taken last
  afloat rollback worker-2  its upgrade is undone, now or after the upgrade has ended
  afloat abort              ends the upgrade: nodes in flight are put back, the others stay as they are";

pub const CONTROLLER_EXAMPLES: &str = "\
Examples:
  afloat controller                                  in its pod: the account and the namespace of the pod
  afloat controller --kubeconfig sandbox.yaml --no-leader-election --listen 127.0.0.1:8080";

/// Which cluster, and where in it.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Cluster")]
pub struct Place {
    /// The kubeconfig to use [default: $KUBECONFIG, ~/.kube/config, or the account of the pod]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// The namespace the operator runs in
    #[arg(short, long, value_name = "NAME", env = "AFLOAT_NAMESPACE", default_value = HOME, hide_env = true)]
    pub namespace: String,
}

/// How to print an object instead of words about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    Json,
    Yaml,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatusOutput {
    /// A table for people
    Text,
    /// The table with groups, zones, attempts, and every node and wait
    Wide,
    Json,
    Yaml,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExplainOutput {
    Text,
    Json,
}

#[derive(Args, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Upgrade {
    /// The version of Kubernetes to arrive at, as v1.36.3
    #[arg(long, value_name = "VERSION", value_parser = version)]
    pub to: KubernetesVersion,
    /// Name of the upgrade [default: from the version, as to-v1-36-3]
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub name: Option<String>,
    /// The bundle to take, instead of the one known for the version; with the version that is there, it brings its newer runtime, plugins, etcd
    #[arg(long, value_name = "IMAGE", value_parser = image)]
    pub bundle: Option<String>,
    /// Image tag of etcd, where the bundle brings another than kubeadm asks for, as 3.6.8-0
    #[arg(long, value_name = "TAG", value_parser = image_tag)]
    pub etcd_version: Option<String>,
    /// The same of CoreDNS, as v1.14.2
    #[arg(long, value_name = "TAG", value_parser = image_tag)]
    pub core_dns_version: Option<String>,
    /// Accept a warning of the preflight, as it is printed there; may be repeated
    #[arg(long, value_name = "KIND/NAME:REASON")]
    pub accept: Vec<String>,
    /// How many workers may be out of service at once, as 2 or 25% [default: 1]
    #[arg(long, value_name = "N|P%", value_parser = share)]
    pub max_unavailable: Option<IntOrString>,
    /// How many workers may fail and be set aside before the upgrade stops [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..=5000))]
    pub max_failed: Option<i32>,
    /// Nodes that wait for `afloat resume NODE` before they are disrupted
    #[arg(long, value_name = "NODE,…", value_delimiter = ',', conflicts_with = "pause_all")]
    pub pause_nodes: Vec<String>,
    /// Every node waits for `afloat resume NODE`
    #[arg(long)]
    pub pause_all: bool,
    /// Evict pods that no controller would bring back; they are gone
    #[arg(long)]
    pub evict_unmanaged: bool,
    /// Evict pods with data in an emptyDir; the data is lost
    #[arg(long)]
    pub delete_emptydir_data: bool,
    /// When nodes may be disrupted: [DAYS ]START+LENGTH[ ZONE], as 'Sat,Sun 22:30+4h Europe/Berlin'
    #[arg(long, value_name = "WINDOW", value_parser = window)]
    pub window: Option<Window>,
    /// Only look: nothing is changed
    #[arg(long)]
    pub dry_run: bool,
    /// Begin and end at once, without following
    #[arg(long)]
    pub no_wait: bool,
    /// Stop following after so long, as 2h or 90m; the upgrade goes on
    #[arg(long, value_name = "TIME", value_parser = length)]
    pub timeout: Option<Duration>,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    /// Print the object instead of words: as it would be applied with --dry-run, else as it is at the end
    #[arg(short, long, value_enum)]
    pub output: Option<Form>,
    #[command(flatten)]
    pub place: Place,
}

#[derive(Args, Debug)]
pub struct Status {
    /// Name of the upgrade [default: the one under way, else the last one]
    pub name: Option<String>,
    /// Go on until it ends: redrawn in place, or one line per change when piped
    #[arg(long, short)]
    pub watch: bool,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = StatusOutput::Text)]
    pub output: StatusOutput,
    #[command(flatten)]
    pub place: Place,
}

#[derive(Args, Debug)]
pub struct Explain {
    /// Name of the upgrade [default: the one under way, else the last one]
    pub name: Option<String>,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = ExplainOutput::Text)]
    pub output: ExplainOutput,
    #[command(flatten)]
    pub place: Place,
}

#[derive(Args, Debug)]
pub struct Hold {
    /// A node, or the name of an upgrade [default: the upgrade under way]
    pub subject: Option<String>,
    #[command(flatten)]
    pub place: Place,
}

#[derive(Args, Debug)]
pub struct Wish {
    /// The node
    pub node: String,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    #[command(flatten)]
    pub place: Place,
}

#[derive(Args, Debug)]
pub struct Abort {
    /// Name of the upgrade [default: the one under way]
    pub name: Option<String>,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    /// End at once, without waiting until the nodes are put back
    #[arg(long)]
    pub no_wait: bool,
    #[command(flatten)]
    pub place: Place,
}

#[derive(Args, Debug)]
pub struct Controller {
    /// Where /metrics, /healthz and /readyz are served
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    pub listen: SocketAddr,
    /// Work at once, without asking whether another operator does
    #[arg(long)]
    pub no_leader_election: bool,
    /// How the control planes are asked whether they are ready
    #[arg(long, value_enum, default_value_t = Probe::Endpoints)]
    pub probe: Probe,
    /// Image of the Jobs of Harvester's upgrades [default: afloat at this version]
    #[arg(long, value_name = "IMAGE", env = "AFLOAT_IMAGE", hide_env = true)]
    pub image: Option<String>,
    /// Where admission for Harvester's front door is served; without it checks are made when an Upgrade starts
    #[arg(long, value_name = "ADDRESS")]
    pub webhook_listen: Option<SocketAddr>,
    /// Certificate of the webhook, as PEM [default: made and renewed by itself, in the Secret afloat-webhook]
    #[arg(long, value_name = "FILE", requires = "webhook_key")]
    pub webhook_certificate: Option<PathBuf>,
    /// Key of the certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "webhook_certificate")]
    pub webhook_key: Option<PathBuf>,
    /// Public keys: nodes refuse bundles that none of them signed [default: any bundle is taken]
    #[arg(long, value_name = "KEY", env = BUNDLE_KEY, hide_env_values = true, value_parser = bundle_key)]
    pub bundle_key: Option<String>,
    #[command(flatten)]
    pub place: Place,
}

/// How the control planes are asked whether they are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Probe {
    /// Each API server's own /readyz, at its node's address
    Endpoints,
    /// The pods that mirror them, where their addresses cannot be reached
    Mirrors,
}

/// The text of a public key's file, in one line.
fn bundle_key(text: &str) -> Result<String, String> {
    let keys: PublicKeys = text.parse().map_err(|error| format!("{error}"))?;
    Ok(keys.to_env())
}

fn version(text: &str) -> Result<KubernetesVersion, String> {
    let whole = if text.starts_with('v') {
        text.to_owned()
    } else {
        format!("v{text}")
    };
    KubernetesVersion::from_str(&whole).map_err(|error| error.to_string())
}

fn name(text: &str) -> Result<String, String> {
    let fits = (1..=63).contains(&text.len())
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && !text.starts_with('-')
        && !text.ends_with('-');
    if fits {
        Ok(text.to_owned())
    } else {
        Err("write at most 63 lower-case letters, digits and dashes, as in edge-1".to_owned())
    }
}

fn image(text: &str) -> Result<String, String> {
    let name = text.rsplit_once('/').map(|(_, name)| name);
    if text.contains(char::is_whitespace) || text.len() > 512 || name.is_none_or(str::is_empty) {
        return Err("write the whole reference, as in mirror.example:5000/afloat/bundle:v1.36.3-2".to_owned());
    }
    Ok(text.to_owned())
}

fn image_tag(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || ['_', '.', '-'].contains(&c);
    if text.is_empty() || text.len() > 128 || !text.chars().all(fits) || text.starts_with(['.', '-']) {
        return Err("write the tag alone, as in 3.6.8-0".to_owned());
    }
    Ok(text.to_owned())
}

fn share(text: &str) -> Result<IntOrString, String> {
    let problem = || "write a number from 1 up, or a share from 1% to 100%".to_owned();
    match text.strip_suffix('%') {
        Some(digits) => match digits.parse::<u8>() {
            Ok(1..=100) => Ok(IntOrString::String(text.to_owned())),
            _ => Err(problem()),
        },
        None => match text.parse::<i32>() {
            Ok(count) if count > 0 => Ok(IntOrString::Int(count)),
            _ => Err(problem()),
        },
    }
}

/// `90s`, `30m`, `2h`, `1h30m`.
pub fn length(text: &str) -> Result<Duration, String> {
    let problem = || "write a length of time with its unit, as 90s, 30m, 2h or 1h30m".to_owned();
    let (mut seconds, mut number) = (0_u64, String::new());
    for c in text.chars() {
        let unit = match c {
            '0'..='9' => {
                number.push(c);
                continue;
            }
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            _ => return Err(problem()),
        };
        let count: u64 = std::mem::take(&mut number).parse().map_err(|_| problem())?;
        let part = count.checked_mul(unit).ok_or_else(problem)?;
        seconds = seconds.checked_add(part).ok_or_else(problem)?;
    }
    if !number.is_empty() || seconds == 0 {
        return Err(problem());
    }
    Ok(Duration::from_secs(seconds))
}

/// `[DAYS ]START+LENGTH[ ZONE]`
fn window(text: &str) -> Result<Window, String> {
    let shape = "write [DAYS ]START+LENGTH[ ZONE], as 22:30+4h or 'Sat,Sun 22:30+4h Europe/Berlin'";
    let mut words = text.split_whitespace().peekable();
    let mut window = Window::default();
    if let Some(days) = words.next_if(|word| !word.contains('+')) {
        let days: Result<Vec<Day>, _> = days.split(',').map(Day::from_str).collect();
        window.days = days.map_err(|_| format!("days are Mon, Tue, Wed, Thu, Fri, Sat, Sun; {shape}"))?;
    }
    let (start, lasts) = words.next().and_then(|word| word.split_once('+')).ok_or(shape)?;
    start.clone_into(&mut window.start);
    let minutes = length(lasts)?.as_secs() / 60;
    window.duration_minutes = i32::try_from(minutes)
        .ok()
        .filter(|minutes| (5..=1440).contains(minutes))
        .ok_or("a window lasts from 5m to 24h")?;
    window.time_zone = words.next().map(str::to_owned);
    if words.next().is_some() {
        return Err(shape.to_owned());
    }
    // The core knows the time zones; the moment does not matter.
    afloat_core::window::state(&window, jiff::Timestamp::UNIX_EPOCH).map_err(|error| error.to_string())?;
    Ok(window)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_have_units() {
        for (text, seconds) in [("90s", 90), ("30m", 1800), ("1h30m", 5400), ("1d", 86_400)] {
            assert_eq!(length(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "5", "h", "5x", "0s", "1h5"] {
            assert!(length(text).is_err(), "{text}");
        }
    }

    #[test]
    fn windows_read_as_people_say_them() {
        let weekend = window("Sat,Sun 22:30+4h Europe/Berlin").unwrap();
        assert_eq!(weekend.days, [Day::Sat, Day::Sun]);
        assert_eq!((weekend.start.as_str(), weekend.duration_minutes), ("22:30", 240));
        assert_eq!(weekend.time_zone.as_deref(), Some("Europe/Berlin"));
        assert_eq!(window("01:00+90m").unwrap().duration_minutes, 90);
        for text in [
            "22:30",
            "Someday 22:30+4h",
            "25:00+4h",
            "22:30+1m",
            "22:30+4h Nowhere/Never",
            "22:30+4h UTC x",
        ] {
            assert!(window(text).is_err(), "{text}");
        }
    }

    #[test]
    fn versions_shares_and_names_are_checked_before_anything_is_asked_of_the_cluster() {
        assert_eq!(version("1.36.3").unwrap().to_string(), "v1.36.3");
        assert!(version("latest").is_err());
        assert_eq!(share("25%"), Ok(IntOrString::String("25%".to_owned())));
        assert_eq!(share("3"), Ok(IntOrString::Int(3)));
        assert!(share("0").is_err() && share("101%").is_err() && share("some").is_err());
        assert!(name("edge-1").is_ok() && name("Edge").is_err() && name("-x").is_err());
    }
}
