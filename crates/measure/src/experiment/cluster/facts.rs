//! Facts about the machines of a class, from one of them.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{KEY_LENGTH, jobs};
use crate::experiment::identity::Facts;
use crate::task::{self, SCHEMA, TaskKind};
use perfquilt_cluster::exchange::publish;
use perfquilt_cluster::scheduler::Scheduler;
use perfquilt_cluster::tasks::{self, ResultVerdict, result_of};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::failure::Failure;
use perfquilt_model::progress::Progress;
use perfquilt_system::process::check_interrupted_soon;

/// The question.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    kind: TaskKind,
    schema: u32,
    /// Whether a meter is to be counted.
    counts: bool,
}

/// The answer of a machine.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
enum Answer {
    /// Its measuring tools.
    Facts(Facts),
    /// It cannot measure.
    Failed(Failure),
}

/// Asks a machine of the cluster what it measures with.
pub(in crate::experiment) fn facts(
    ws: &Workspace,
    scheduler: &dyn Scheduler,
    counts: bool,
    progress: &dyn Progress,
) -> Result<Facts> {
    let question = task::to_bytes(&Question {
        kind: TaskKind::Facts,
        schema: SCHEMA,
        counts,
    })?;
    // Coordinators that ask at the same time have jobs of their own.
    let asker = format!("{} {}", ws.root().display(), std::process::id());
    let name: String = hex::encode(Sha256::digest(asker))
        .chars()
        .take(KEY_LENGTH)
        .collect();
    let array = jobs(ws, &format!("facts-{name}"))?;
    let folder = array.folder.clone();
    let step = progress.begin("ask a machine of the cluster what it measures with", None);
    let mut answer = None;
    let asked = tasks::run(
        scheduler,
        array,
        &BTreeMap::from([(0, question)]),
        progress,
        &mut |_, bytes| {
            let read: Answer = serde_json::from_slice(bytes)
                .map_err(|error| Error::usage(format!("a machine's answer is damaged: {error}")))?;
            answer = Some(read);
            Ok(ResultVerdict::Done)
        },
    );
    // A folder that cannot be removed disturbs nobody.
    let _ = std::fs::remove_dir_all(&folder);
    asked?;
    match answer {
        Some(Answer::Facts(facts)) => {
            step.finish("");
            Ok(facts)
        }
        Some(Answer::Failed(failure)) => Err(failure.cut().into()),
        None => Err(Error::bench("no machine of the cluster answers")
            .hint("`perfquilt doctor --on SCHEDULER` checks the cluster")),
    }
}

/// Answers the question of the file `path`. Publishes nothing when interrupted.
pub fn answer(path: &Path) -> Result<()> {
    let question: Question = task::read(path)?;
    let answer = match Facts::here(question.counts) {
        Ok(facts) => Answer::Facts(facts),
        Err(error) => {
            check_interrupted_soon()?;
            Answer::Failed(Failure::new(&error, None))
        }
    };
    publish(&result_of(path), &task::to_bytes(&answer)?).map(|_| ())
}
