//! Whether workloads execute some code, found out by jobs.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::files::BlockTask;
use super::worker::Here;
use super::{KEY_LENGTH, jobs};
use crate::experiment::machine::{ExecutionQuestion, ThisMachine};
use crate::task::{self, TaskKind};
use perfquilt_build::ChangedCode;
use perfquilt_cluster::exchange::publish;
use perfquilt_cluster::scheduler::Scheduler;
use perfquilt_cluster::tasks::{self, ResultVerdict, result_of};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::failure::Failure;
use perfquilt_model::point::Point;
use perfquilt_model::progress::Progress;
use perfquilt_system::process::check_interrupted_soon;
use sha2::{Digest, Sha256};

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

/// The answers of a machine, in the order of the questions.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
enum Answer {
    /// Whether each workload executes the code; `None` where the machine could not find out.
    Executes(Vec<Option<bool>>),
    /// It cannot tell.
    Failed(Failure),
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
    let mut digest = Sha256::new();
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
        digest.update(&bytes);
        files.insert(number, bytes);
    }
    let name: String = hex::encode(digest.finalize())
        .chars()
        .take(KEY_LENGTH)
        .collect();
    let array = jobs(ws, &format!("execution-{name}"))?;
    let folder = array.folder.clone();
    let mut answers: BTreeMap<u32, Vec<Option<bool>>> = BTreeMap::new();
    let asked = tasks::run(scheduler, array, &files, progress, &mut |number, bytes| {
        let answer: Answer = serde_json::from_slice(bytes)
            .map_err(|error| Error::usage(format!("a machine's answer is damaged: {error}")))?;
        match answer {
            Answer::Executes(found) => {
                answers.insert(number, found);
                Ok(ResultVerdict::Done)
            }
            Answer::Failed(failure) => {
                progress.warn(&failure.cut().message);
                Ok(ResultVerdict::Retry)
            }
        }
    });
    // A folder that cannot be removed disturbs nobody.
    let _ = std::fs::remove_dir_all(&folder);
    asked?;
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
    let answer = match find_out(&task, progress) {
        Ok(found) => Answer::Executes(found),
        Err(error) if error.kind() == Kind::Interrupted => return Err(error),
        Err(error) => {
            check_interrupted_soon()?;
            Answer::Failed(Failure::new(&error, None))
        }
    };
    publish(&result_of(path), &task::to_bytes(&answer)?).map(|_| ())
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
