//! The work of a cluster's job: one task of a file.

use std::path::Path;

use crate::task::{TaskKind, kind_of};
use crate::{experiment, run};
use perfquilt_model::error::Result;

/// Carries out the task in the file `path` on this machine, called `machine`, and publishes its results beside it.
pub fn work(path: &Path, machine: &str) -> Result<()> {
    match kind_of(path)? {
        TaskKind::Blocks => experiment::measure_blocks(path, machine),
        TaskKind::Build => run::build_task(path, machine),
        TaskKind::Execution => experiment::answer_execution(path),
        TaskKind::Facts => experiment::answer_facts(path),
    }
}
