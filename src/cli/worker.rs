//! `perfquilt worker`: carries out a task, as a job of a cluster.

use std::path::PathBuf;

use clap::Args;

use perfquilt_measure::worker;
use perfquilt_model::error::Result;
use perfquilt_system::host::host_name;

/// Arguments of `worker`.
#[derive(Debug, Clone, Args)]
pub struct Arguments {
    /// Name of this machine in the results (default: its host name)
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,
    /// File of the task, which `--on SCHEDULER` has written
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<()> {
    let machine = arguments.machine.clone().unwrap_or_else(host_name);
    worker::work(&arguments.file, &machine)
}
