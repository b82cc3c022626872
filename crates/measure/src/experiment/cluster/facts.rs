//! Facts about the machines of a class, from one of them.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{ask, digest_of};
use crate::experiment::identity::Facts;
use crate::task::{self, SCHEMA, TaskKind};
use perfquilt_cluster::scheduler::Scheduler;
use perfquilt_cluster::tasks::ResultVerdict;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::failure::Failure;
use perfquilt_model::progress;

/// The question.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    kind: TaskKind,
    schema: u32,
    /// Whether a meter is to be counted.
    counts: bool,
}

/// Asks a machine of the cluster of the scheduler called `on` what it measures with.
pub(in crate::experiment) fn facts(
    ws: &Workspace,
    (on, scheduler): (&str, &dyn Scheduler),
    counts: bool,
) -> Result<Facts> {
    let question = task::to_bytes(&Question {
        kind: TaskKind::Facts,
        schema: SCHEMA,
        counts,
    })?;
    // Coordinators that ask at the same time have jobs of their own.
    let asker = format!("{} {}", ws.root().display(), std::process::id());
    let name = format!("facts-{}", digest_of(asker));
    let tasks = BTreeMap::from([(0, question)]);
    let step = progress::begin("ask a machine of the cluster what it measures with", None);
    let mut answer: Option<Result<Facts, Failure>> = None;
    ask(ws, scheduler, (&name, &tasks), &mut |_, found| {
        answer = Some(found);
        ResultVerdict::Done
    })?;
    match answer {
        Some(Ok(facts)) => {
            step.finish("");
            Ok(facts)
        }
        Some(Err(failure)) => Err(failure.cut().into()),
        None => Err(Error::cluster("no machine of the cluster answers").hint(format!(
            "every job ended without having run `PROGRAM worker FILE` to its end, on a machine that sees {}; \
             `perfquilt doctor --on {on}` checks the cluster",
            ws.root().display()
        ))),
    }
}

/// Answers the question of the file `path`. Publishes nothing when interrupted.
pub fn answer(path: &Path) -> Result<()> {
    let question: Question = task::read(path)?;
    task::answer(path, Facts::here(question.counts))
}
