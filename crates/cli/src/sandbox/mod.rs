//! `afloat sandbox`: an API server in this process, a simulated cluster on it, and a view of it. Here is the order of
//! things; the server is in `embedded`, the kubeconfig in `kubeconfig`, what is shown in `show`.

mod embedded;
mod kubeconfig;
mod show;

use crate::args::{Output, Sandbox};
use crate::problem::{Code, Problem};
use crate::terminal;
use afloat_sim::clock::{Clock, Timings};
use afloat_sim::scenario::{Scenario, Shape};
use afloat_sim::world::{Cast, World, WorldOptions};
use embedded::Embedded;
use show::Show;
use std::time::Duration;

/// `--once` gives up then: a cluster that has not settled by now never will.
const SETTLE: Duration = Duration::from_mins(2);
/// How much quicker than life a cluster is that is only printed once.
const ONCE_SPEED: f64 = 20.0;

pub async fn run(arguments: Sandbox) -> Result<(), Problem> {
    if arguments.list_scenarios {
        terminal::print(&scenarios());
        return Ok(());
    }
    if matches!(arguments.output, Output::Json | Output::Yaml) && !arguments.once {
        return Err(
            Problem::new(Code::BadUsage, "-o json and -o yaml print one state and need --once")
                .help("afloat sandbox --once -o json"),
        );
    }
    let shape = shape(&arguments);
    let server = Embedded::start(&shape.version, arguments.seed).await?;
    let cluster = arguments.scenario.describe(&shape);
    let nodes = cluster.machines.len();
    let speed = arguments.speed.unwrap_or(if arguments.once { ONCE_SPEED } else { 1.0 });
    let options = WorldOptions {
        seed: arguments.seed,
        clock: Clock::starting_at(jiff::Timestamp::now()),
        timings: Timings::default().faster(speed),
        cast: Cast::default(),
    };
    let world = World::start(server.client(), cluster, options);
    let show = Show::new(&server.client(), shape.version, nodes, arguments.output);
    if arguments.once {
        return show.once(world.populate(), SETTLE).await;
    }
    let service = if arguments.serve {
        Some(server.serve(arguments.listen, arguments.kubeconfig).await?)
    } else {
        None
    };
    if let Some(service) = &service {
        terminal::print(&service.instructions());
    }
    let result = show.live(world.populate(), service.is_some()).await;
    if let Some(service) = service {
        service.end().await;
    }
    result
}

fn shape(arguments: &Sandbox) -> Shape {
    let mut shape = arguments.scenario.default_shape();
    if let Some(control_planes) = arguments.control_planes {
        shape.control_planes = control_planes;
    }
    if let Some(workers) = arguments.workers {
        shape.workers = workers;
    }
    shape
}

fn scenarios() -> String {
    let line = |scenario: &Scenario| format!("{:<12} {}\n", scenario.name(), scenario.summary());
    Scenario::ALL.iter().map(line).collect::<Vec<_>>().concat()
}
