//! Tasks with one result each, carried out as jobs: builds, questions about machines.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::dispatch::{Dispatch, Notice, Silence};
use super::engine::{Engine, JobArray};
use perfquilt_model::error::Result;
use perfquilt_model::progress::Progress;
use perfquilt_system::caches::remove_file;
use perfquilt_system::files::{read_untrusted, write_file};
use perfquilt_system::process::check_interrupted;

/// Time between two questions to the engine.
pub const LOOK: Duration = Duration::from_secs(2);
/// Time between two looks for results.
const POLL: Duration = Duration::from_millis(100);
/// The largest file of a result, in bytes.
const LARGEST: u64 = 64 << 20;

/// The head's verdict on a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// The task is done.
    Done,
    /// The task failed on this machine; another one is to try it.
    Retry,
}

/// Returns the path of a task's result, in the folder of its file.
pub fn result_of(task: &Path) -> PathBuf {
    task.with_extension("result.json")
}

/// Carries out the tasks with these contents as rows of `array`, and returns the rows that are lost. `accept` gets the
/// bytes of each result, which are not trusted: it returns an error for what is no result.
///
/// Results that are there already count. The jobs that are left are cancelled when this function returns.
///
/// # Errors
/// [`Kind::Interrupted`](perfquilt_model::error::Kind::Interrupted);
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when the engine refuses the jobs;
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the folder cannot be written.
pub fn run(
    engine: &dyn Engine,
    array: JobArray,
    tasks: &BTreeMap<u32, Vec<u8>>,
    progress: &dyn Progress,
    accept: &mut dyn FnMut(u32, &[u8]) -> Result<Reply>,
) -> Result<BTreeSet<u32>> {
    let rows = tasks.keys().copied().collect();
    let mut dispatch = Dispatch::new(engine, JobArray { rows, ..array });
    for (&row, task) in tasks {
        write_file(&dispatch.task_file(row), task)?;
    }
    let ended = wait(&mut dispatch, tasks, progress, accept);
    if !dispatch.is_over()
        && let Err(error) = dispatch.cancel()
    {
        progress.warn(&format!("jobs may be left in the queue: {error}"));
    }
    ended
}

fn wait(
    dispatch: &mut Dispatch<'_>,
    tasks: &BTreeMap<u32, Vec<u8>>,
    progress: &dyn Progress,
    accept: &mut dyn FnMut(u32, &[u8]) -> Result<Reply>,
) -> Result<BTreeSet<u32>> {
    let mut open: BTreeSet<u32> = tasks.keys().copied().collect();
    let mut lost = BTreeSet::new();
    let mut silence = Silence::default();
    let mut asked: Option<Instant> = None;
    loop {
        check_interrupted()?;
        for row in open.clone() {
            let path = result_of(&dispatch.task_file(row));
            let found = read_untrusted(&path, LARGEST);
            let reply = match found {
                Ok(None) => continue,
                Ok(Some(bytes)) => accept(row, &bytes),
                Err(error) => Err(error),
            };
            if let Err(error) = &reply {
                progress.warn(&error.to_string());
            }
            if reply.is_ok_and(|reply| reply == Reply::Done) {
                open.remove(&row);
                dispatch.finish(row);
            } else {
                // Another attempt publishes its result under the same name.
                remove_file(&path)?;
                dispatch.retry(row);
            }
        }
        if open.is_empty() {
            return Ok(lost);
        }
        if asked.is_none_or(|asked| asked.elapsed() >= LOOK) {
            let notices = dispatch.look()?;
            for notice in silence.new_only(notices) {
                progress.warn(&notice.to_string());
                if let Notice::Lost { row } = notice {
                    open.remove(&row);
                    lost.insert(row);
                }
            }
            asked = Some(Instant::now());
        }
        std::thread::sleep(POLL);
    }
}
