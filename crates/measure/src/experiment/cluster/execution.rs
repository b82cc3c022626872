//! Whether workloads execute some code, found out by jobs.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::files::BlockTask;
use super::worker::Here;
use super::{ask, digest_of};
use crate::experiment::machine::{ExecutionQuestion, ThisMachine};
use crate::task::{self, TaskKind};
use perfquilt_build::ChangedCode;
use perfquilt_cluster::scheduler::Scheduler;
use perfquilt_cluster::tasks::ResultVerdict;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::point::Point;
use perfquilt_model::progress::Progress;

/// An [`ExecutionQuestion`] as it is stored in a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PackedQuestion {
    point: Point,
    code: ChangedCode,
    workload: String,
    seconds: f64,
}

/// Questions for one machine.
#[derive(Debug, Serialize, Deserialize)]
struct ExecutionTask {
    #[serde(flatten)]
    task: BlockTask,
    questions: Vec<PackedQuestion>,
}

/// Returns for each question whether the workload executes the code, as the machines of the cluster find; `None` where
/// they could not find out. `task` has the servers and workloads.
pub(in crate::experiment) fn executes(
    ws: &Workspace,
    scheduler: &dyn Scheduler,
    task: &BlockTask,
    questions: &[ExecutionQuestion<'_>],
    progress: &dyn Progress,
) -> Result<Vec<Option<bool>>> {
    let machines = usize::try_from(ws.config.cluster.machines.get()).unwrap_or(usize::MAX);
    let size = questions.len().div_ceil(machines).max(1);
    let mut files = BTreeMap::new();
    for (number, chunk) in (0_u32..).zip(questions.chunks(size)) {
        let pack = |question: &ExecutionQuestion<'_>| PackedQuestion {
            point: question.point,
            code: question.code.clone(),
            workload: question.workload.name.clone(),
            seconds: question.seconds,
        };
        let bytes = task::to_bytes(&ExecutionTask {
            task: BlockTask {
                kind: TaskKind::Execution,
                ..task.clone()
            },
            questions: chunk.iter().map(pack).collect(),
        })?;
        files.insert(number, bytes);
    }
    let name = format!(
        "execution-{}",
        digest_of(files.values().flatten().copied().collect::<Vec<u8>>())
    );
    let mut answers: BTreeMap<u32, Vec<Option<bool>>> = BTreeMap::new();
    ask(
        ws,
        scheduler,
        (&name, &files),
        progress,
        &mut |number, found| match found {
            Ok(found) => {
                answers.insert(number, found);
                ResultVerdict::Done
            }
            Err(failure) => {
                progress.warn(&failure.message);
                ResultVerdict::Retry
            }
        },
    )?;
    let found = (0_u32..)
        .zip(questions.chunks(size))
        .flat_map(|(number, chunk)| match answers.remove(&number) {
            Some(found) if found.len() == chunk.len() => found,
            _ => vec![None; chunk.len()],
        });
    Ok(found.collect())
}

/// Answers the questions of the file `path`. Publishes nothing when interrupted.
pub fn answer_execution(path: &Path, progress: &dyn Progress) -> Result<()> {
    let task: ExecutionTask = task::read(path)?;
    task::answer(path, find_out(&task, progress))
}

fn find_out(task: &ExecutionTask, progress: &dyn Progress) -> Result<Vec<Option<bool>>> {
    let here = Here::open(&task.task)?;
    let setup = here.setup(&task.task)?;
    let workload = |name: &String| {
        let mut found = here.workloads.iter();
        found
            .find(|workload| workload.name == *name)
            .ok_or_else(|| Error::usage(format!("there is no workload {name:?}")))
    };
    let questions = task.questions.iter().map(|packed| {
        Ok(ExecutionQuestion {
            point: packed.point,
            code: &packed.code,
            workload: workload(&packed.workload)?,
            seconds: packed.seconds,
        })
    });
    let questions: Vec<ExecutionQuestion<'_>> = questions.collect::<Result<_>>()?;
    ThisMachine::new(&here.ws, setup, progress)?.executes(&questions)
}
