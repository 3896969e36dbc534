//! `bench-upgrades`: what whole upgrades cost. The operator, a process of its own, upgrades simulated clusters of 10 to 5,000 nodes on the
//! embedded API server and on a real one; how soon it goes on when a step has ended, and what an upgrade of Harvester costs, is measured in
//! this process. Tables go to standard output, the same as JSON beside the other figures of `make bench`.

mod handovers;
mod harvester;
mod load;
mod operator;
mod server;
mod upgrade;

use std::path::PathBuf;
use std::process::ExitCode;

use afloat_bench::figures::{self, Document, Figure, tell};
use clap::{Parser, ValueEnum};
use serde_json::json;

/// As the `afloat` binary has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Whole upgrades on the embedded API server
    Embedded,
    /// Whole upgrades on a real kube-apiserver with etcd
    Real,
    /// How soon the operator goes on when a step has ended
    Handovers,
    /// Upgrades of Harvester-like clusters
    Harvester,
}

#[derive(Parser)]
#[command(name = "bench-upgrades", about = "Measures what whole upgrades cost")]
struct Arguments {
    /// The afloat whose operator is measured
    #[arg(long, value_name = "FILE")]
    afloat: PathBuf,
    /// What is measured
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Handovers, Part::Harvester, Part::Embedded, Part::Real])]
    parts: Vec<Part>,
    /// No cluster with more nodes than this
    #[arg(long, value_name = "NODES", default_value_t = u32::MAX)]
    most: u32,
    /// The JSON that the figures are added to
    #[arg(long, value_name = "FILE", default_value_os_t = figures::default_output())]
    output: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match measure(&arguments).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Measures what was asked for; whether every bar holds.
async fn measure(arguments: &Arguments) -> anyhow::Result<bool> {
    let mut document = Document::open(&arguments.output);
    let mut figures: Vec<Figure> = Vec::new();
    let wanted = |part: Part| arguments.parts.contains(&part);
    if wanted(Part::Handovers) {
        figures.extend(tell(handovers::measure().await?));
    }
    if wanted(Part::Harvester) {
        let rows = harvester::measure(arguments.most).await?;
        figures.extend(tell(harvester::figures(&rows)));
        document.put(
            "harvester",
            json!(rows.iter().map(harvester::Row::json).collect::<Vec<_>>()),
        );
    }
    let mut rows = Vec::new();
    for (part, which) in [
        (Part::Embedded, server::Which::Embedded),
        (Part::Real, server::Which::Real),
    ] {
        if wanted(part) {
            rows.extend(upgrade::measure(which, &arguments.afloat, arguments.most).await?);
        }
    }
    if !rows.is_empty() {
        figures.extend(tell(upgrade::figures(&rows)));
        document.put(
            "upgrades",
            json!(rows.iter().map(upgrade::Row::json).collect::<Vec<_>>()),
        );
    }
    document.put("costs", json!(figures.iter().map(Figure::json).collect::<Vec<_>>()));
    document.write()?;
    Ok(figures.iter().all(Figure::holds))
}
