//! Whether workloads execute some code, found out by jobs.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::files::BlockTask;
use super::worker::Here;
use super::{ask, digest_of};
use crate::experiment::machine::ExecutionQuestion;
use crate::task::{self, TaskKind};
use perfquilt_cluster::scheduler::Scheduler;
use perfquilt_cluster::tasks::ResultVerdict;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::failure::Failure;
use perfquilt_model::progress;

/// Questions for one machine.
#[derive(Debug, Serialize, Deserialize)]
struct ExecutionTask {
    #[serde(flatten)]
    task: BlockTask,
    questions: Vec<ExecutionQuestion>,
}

/// Returns for each question whether the workload executes the code, as the machines of the cluster find; `None` where
/// they could not find out. `task` has the servers and workloads.
pub(in crate::experiment) fn executes(
    ws: &Workspace,
    scheduler: &dyn Scheduler,
    task: &BlockTask,
    questions: &[ExecutionQuestion],
) -> Result<Vec<Option<bool>>> {
    let machines = usize::try_from(ws.config.cluster.machines.get()).unwrap_or(usize::MAX);
    let size = questions.len().div_ceil(machines).max(1);
    let mut files = BTreeMap::new();
    for (number, chunk) in (0_u32..).zip(questions.chunks(size)) {
        let bytes = task::to_bytes(&ExecutionTask {
            task: BlockTask {
                kind: TaskKind::Execution,
                ..task.clone()
            },
            questions: chunk.to_vec(),
        })?;
        files.insert(number, bytes);
    }
    let name = format!(
        "execution-{}",
        digest_of(files.values().flatten().copied().collect::<Vec<u8>>())
    );
    let mut answers: BTreeMap<u32, Vec<Option<bool>>> = BTreeMap::new();
    let tasks = (name.as_str(), &files);
    let mut take = |number, found: Result<Vec<Option<bool>>, Failure>| match found {
        Ok(found) => {
            answers.insert(number, found);
            ResultVerdict::Done
        }
        Err(failure) => {
            progress::warn(Error::from(failure.cut()).into());
            ResultVerdict::Retry
        }
    };
    ask(ws, scheduler, tasks, &mut take)?;
    let found = (0_u32..)
        .zip(questions.chunks(size))
        .flat_map(|(number, chunk)| match answers.remove(&number) {
            Some(found) if found.len() == chunk.len() => found,
            _ => vec![None; chunk.len()],
        });
    Ok(found.collect())
}

/// Answers the questions of the file `path`. Publishes nothing when interrupted.
pub fn answer_execution(path: &Path) -> Result<()> {
    let task: ExecutionTask = task::read(path)?;
    task::answer(path, find_out(&task))
}

fn find_out(task: &ExecutionTask) -> Result<Vec<Option<bool>>> {
    let here = Here::open(&task.task)?;
    here.machine()?.executes(&task.questions)
}
