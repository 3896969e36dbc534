//! `afloat sandbox`: an API server in this process, a simulated cluster on it, and the real operator that upgrades it. Here is
//! the order of things; the server is in `embedded`, the kubeconfig in `kubeconfig`, the picture of a cluster in `show`, the
//! upgrade in `upgrade`.

mod embedded;
mod harvester;
mod kubeconfig;
mod show;
pub mod upgrade;

use crate::args::{Output, Sandbox, SandboxScenario};
use crate::problem::{Code, Problem};
use crate::terminal;
use afloat_operator::hci::HciOptions;
use afloat_sim::clock::{Clock, Timings};
use afloat_sim::scenario::{Scenario, Shape};
use afloat_sim::tier2;
use afloat_sim::world::{Cast, Machines, World, WorldOptions};
use embedded::Embedded;
use show::Show;
use std::time::Duration;
use upgrade::Operator;

/// `--once` gives up then: a cluster that has not settled by now never will.
const SETTLE: Duration = Duration::from_mins(2);
/// How much quicker than life a cluster is that nobody works on by hand.
const QUICK: f64 = 20.0;
/// The version an upgrade leads to unless told otherwise.
pub const DEFAULT_TARGET: &str = "v1.36.3";

pub async fn run(arguments: Sandbox) -> Result<Code, Problem> {
    if arguments.list_scenarios {
        terminal::print(&scenarios());
        return Ok(Code::Done);
    }
    if matches!(arguments.output, Output::Json | Output::Yaml) && !arguments.once {
        return Err(
            Problem::new(Code::BadUsage, "-o json and -o yaml print one state and need --once")
                .help("afloat sandbox --once -o json"),
        );
    }
    match arguments.scenario {
        SandboxScenario::Harvester(scenario) => harvester::run(arguments, scenario).await,
        SandboxScenario::Kubeadm(scenario) => run_kubeadm(arguments, scenario).await,
    }
}

async fn run_kubeadm(arguments: Sandbox, scenario: Scenario) -> Result<Code, Problem> {
    let shape = shape(&arguments, scenario);
    let to = arguments.to.clone().unwrap_or_else(|| DEFAULT_TARGET.to_owned());
    let versions = tier2::releases(&shape.version, &to);
    let server = Embedded::start(&shape.version, arguments.seed).await?;
    let cluster = scenario.describe(&shape);
    let nodes = cluster.machines.len();
    let quick = arguments.once || !arguments.serve;
    let speed = arguments.speed.unwrap_or(if quick { QUICK } else { 1.0 });
    let clock = Clock::starting_at(jiff::Timestamp::now());
    let mut trouble = scenario.trouble();
    upgrade::add_failures(&mut trouble, &arguments.faults);
    let options = WorldOptions {
        seed: arguments.seed,
        clock,
        timings: Timings::default().faster(speed),
        cast: Cast::default(),
        machines: Machines {
            versions: versions.clone(),
            trouble,
        },
    };
    let world = World::start(server.client(), cluster, options);
    server.depends_on(world.health());
    let mut show = Show::new(&server.client(), shape.version.clone(), nodes, arguments.output);
    if arguments.once {
        return show.once(world.populate(), SETTLE).await.map(|()| Code::Done);
    }
    let service = if arguments.serve {
        Some(server.serve(arguments.listen, arguments.kubeconfig).await?)
    } else {
        None
    };
    show.settle(world.populate(), SETTLE).await?;
    world.lose_power().await;
    tier2::lay_ground(&server.client(), &shape.version, &versions)
        .await
        .map_err(|failure| Problem::new(Code::Failed, "the sandbox could not be prepared").source(&failure))?;
    let _operator = Operator::start(
        server.client(),
        clock,
        world.health(),
        &arguments.faults,
        HciOptions::default(),
    );
    if let Some(service) = &service {
        terminal::print(&service.instructions(&commands(&to)));
    }
    let asked = arguments.to.is_some() || service.is_none();
    let mut code = Code::Done;
    if asked {
        let workers = nodes - usize::try_from(shape.control_planes).unwrap_or(nodes);
        let accept = upgrade::accepted(scenario, &arguments.accept);
        let wish = upgrade::Wish {
            to: &to,
            workers,
            accept: &accept,
            max_failed: i32::from(scenario == Scenario::KubeadmFails),
            served: service.is_some(),
        };
        code = upgrade::run(&server.client(), &wish, speed).await?;
    }
    if let Some(service) = service {
        // The cluster is there already: nothing is filled in any more.
        show.live(std::future::ready(Ok(())), true).await?;
        service.end().await;
    }
    Ok(code)
}

/// What a person does in the other shell.
fn commands(to: &str) -> String {
    format!(
        "kubectl get nodes\n  kubectl get pods -A -w\n  afloat upgrade --to {to} --evict-unmanaged --delete-emptydir-data\n  \
         afloat status --watch\n  afloat explain"
    )
}

fn shape(arguments: &Sandbox, scenario: Scenario) -> Shape {
    let mut shape = scenario.default_shape();
    if let Some(from) = &arguments.from {
        shape.version.clone_from(from);
    }
    if let Some((control_planes, workers)) = arguments.nodes {
        shape.control_planes = control_planes;
        shape.workers = workers;
    }
    if let Some(control_planes) = arguments.control_planes {
        shape.control_planes = control_planes;
    }
    if let Some(workers) = arguments.workers {
        shape.workers = workers;
    }
    shape
}

fn scenarios() -> String {
    let line = |scenario: &SandboxScenario| format!("{:<30} {}\n", scenario.name(), scenario.summary());
    SandboxScenario::all()
        .map(|scenario| line(&scenario))
        .collect::<Vec<_>>()
        .concat()
}
