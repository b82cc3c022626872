//! The work of a cluster's job: one task of a file.

use std::path::Path;

use crate::task::{TaskKind, kind_of};
use crate::{experiment, run};
use perfquilt_model::error::Result;
use perfquilt_model::progress::Progress;

/// Carries out the task in the file `path` on this machine, called `machine`, and publishes its results beside it.
pub fn work(path: &Path, machine: &str, progress: &dyn Progress) -> Result<()> {
    match kind_of(path)? {
        TaskKind::Blocks => experiment::measure_blocks(path, machine, progress),
        TaskKind::Build => run::build_task(path, machine, progress),
        TaskKind::Execution => experiment::answer_execution(path, progress),
        TaskKind::Facts => experiment::answer_facts(path),
    }
}
