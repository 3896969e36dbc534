//! Runs the default simulated cluster on the API server that KUBECONFIG names, until it is interrupted: the same
//! world as in the sandbox, on any server. Meant for servers made to be thrown away.

use afloat_sim::clock::{Clock, Timings};
use afloat_sim::scenario::Scenario;
use afloat_sim::world::{Cast, Machines, World, WorldOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = kube::Client::try_default().await?;
    let scenario = Scenario::Default;
    let options = WorldOptions {
        seed: 1,
        clock: Clock::starting_at(jiff::Timestamp::now()),
        timings: Timings::default(),
        cast: Cast::default(),
        machines: Machines::default(),
    };
    let world = World::start(client, scenario.describe(&scenario.default_shape()), options);
    world.populate().await?;
    tokio::signal::ctrl_c().await?;
    Ok(())
}
