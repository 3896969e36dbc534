//! The upgrade in a sandbox: the real operator on the simulated cluster, an upgrade asked for as a person would, followed to
//! its end. How it is shown is in `follow`, as for any cluster.

use std::time::Duration;

use afloat_api::clusterupgrade::DrainOption;
use afloat_api::{ClusterUpgrade, ClusterUpgradeSpec, Reason};
use afloat_core::view::Key;
use afloat_operator::OperatorConfig;
use afloat_operator::hci::HciOptions;
use afloat_sim::clock::Clock;
use afloat_sim::kubelet::HealthBoard;
use afloat_sim::scenario::{Scenario, Trouble};
use afloat_sim::tier2;
use clap::ValueEnum;
use kube::api::PostParams;
use tokio::task::JoinHandle;

use crate::cluster::{Cluster, Scope};
use crate::follow::{Manner, WhenHeld, follow};
use crate::problem::{Code, Problem};
use crate::screen::{Screen, interrupted};

/// What goes wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// kubeadm fails once on worker-1, and is tried again
    KubeadmOnce,
    /// kubeadm fails on worker-1 whatever is tried: the node is put back and the upgrade stops
    KubeadmAlways,
    /// The operator is killed and started again every few seconds
    OperatorKilled,
}

/// What was asked for beside what the scenario has.
pub fn add_failures(trouble: &mut Trouble, faults: &[Fault]) {
    let count = if faults.contains(&Fault::KubeadmAlways) {
        u32::MAX
    } else {
        u32::from(faults.contains(&Fault::KubeadmOnce))
    };
    if count > 0 {
        trouble.kubeadm_failures.insert("worker-1".to_owned(), count);
    }
}

/// What the person accepts: what was asked for, and what the scenario is about.
pub fn accepted(scenario: Scenario, asked: &[String]) -> Vec<String> {
    let downtime = format!("clusterupgrade/{}/{NAME}:{}", tier2::HOME, Reason::ApiDowntime);
    let of_scenario = (scenario == Scenario::TwoControlPlanesAccepted).then_some(downtime);
    asked.iter().cloned().chain(of_scenario).collect()
}

/// How long an operator lives that is killed on purpose.
const LIFE: Duration = Duration::from_secs(3);

/// The operator in this process; it ends when this is dropped.
pub struct Operator(JoinHandle<()>);

impl Drop for Operator {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Operator {
    pub fn start(client: kube::Client, clock: Clock, health: HealthBoard, faults: &[Fault], hci: HciOptions) -> Self {
        let mortal = faults.contains(&Fault::OperatorKilled);
        Self(tokio::spawn(async move {
            loop {
                let config = OperatorConfig {
                    hci: hci.clone(),
                    ..tier2::operator(client.clone(), clock, health.clone(), "sandbox")
                };
                let life = async {
                    if mortal {
                        tokio::time::sleep(LIFE).await;
                    } else {
                        std::future::pending::<()>().await;
                    }
                };
                // Dropped in the middle of whatever it does, as a killed process is.
                tokio::select! {
                    ended = afloat_operator::run(config, std::future::pending()) => {
                        if let Err(error) = ended {
                            tracing::warn!(%error, "the operator ended");
                        }
                        return;
                    }
                    () = life => {}
                }
            }
        }))
    }
}

/// Asks for the upgrade, as a person would who accepts what a sandbox loses.
async fn ask(client: &kube::Client, wish: &Wish<'_>) -> Result<Key, Problem> {
    let spec = ClusterUpgradeSpec {
        kubernetes_version: wish.to.to_owned(),
        accept: wish.accept.to_vec(),
        drain: Some(DrainOption {
            delete_empty_dir_data: Some(true),
            evict_unmanaged_pods: Some(true),
            ..DrainOption::default()
        }),
        budget: Some(afloat_api::clusterupgrade::Budget {
            max_unavailable: Some(k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(
                i32::try_from(wish.workers / 4).unwrap_or(1).max(1),
            )),
            max_failed: Some(wish.max_failed),
            ..afloat_api::clusterupgrade::Budget::default()
        }),
        ..ClusterUpgradeSpec::default()
    };
    let upgrade = ClusterUpgrade::new(NAME, spec);
    let api: kube::Api<ClusterUpgrade> = kube::Api::namespaced(client.clone(), tier2::HOME);
    api.create(&PostParams::default(), &upgrade)
        .await
        .map_err(|error| Problem::new(Code::Failed, "the sandbox refused the upgrade").source(&error))?;
    Ok(Key::new(tier2::HOME, NAME))
}

/// What a sandbox is asked for.
pub struct Wish<'a> {
    pub to: &'a str,
    pub workers: usize,
    pub accept: &'a [String],
    /// Nodes that may fail and be set aside.
    pub max_failed: i32,
    /// Somebody can reach the cluster, and let go on what is held.
    pub served: bool,
}

/// Asks for the upgrade and follows it to its end, or to where only a person could help.
pub async fn run(client: &kube::Client, wish: &Wish<'_>, speed: f64) -> Result<Code, Problem> {
    let mut screen = Screen::stdout();
    screen.say(&format!(
        "Upgrading in place to {}, {speed} times as quick as life",
        wish.to
    ));
    let key = ask(client, wish).await?;
    let cluster = Cluster::of(client.clone(), tier2::HOME);
    let mut live = cluster.look(Scope::Everything).await?;
    let manner = Manner {
        limit: None,
        when_held: if wish.served {
            WhenHeld::Stays
        } else {
            WhenHeld::EndsAll
        },
        wide: false,
        silent: false,
    };
    follow(&mut live, &key, &mut screen, manner, interrupted()).await
}

/// The name of the sandbox's upgrade.
pub const NAME: &str = "sandbox";
