//! Chores of the house that are not part of the product: `cargo xtask components` builds the real parts that tests run against.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod builtin_schemas;
mod components;
mod definitions;
mod generate;

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "Chores of the Afloat workspace",
    disable_help_subcommand = true
)]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Build etcd, kube-apiserver, kubectl and the other real parts into the cache
    Components(components::Arguments),
    /// Write which built-in kinds a running kube-apiserver has, with their schemas, to crates/apischema/data
    BuiltinSchemas(builtin_schemas::Args),
    /// Write the CRD manifests and reference pages from the types in crates/api
    Generate {
        /// Write nothing; fail and say what differs
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().chore {
        Chore::Components(arguments) => components::run(&arguments),
        Chore::BuiltinSchemas(arguments) => builtin_schemas::run(&arguments),
        Chore::Generate { check } => generate::run(check),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
