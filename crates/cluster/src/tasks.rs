//! Tasks with one result each, carried out as jobs: builds, questions about machines.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::dispatch::Dispatch;
use super::scheduler::{JobArray, Scheduler};
use perfquilt_model::error::Result;
use perfquilt_model::progress;
use perfquilt_system::caches::remove_file;
use perfquilt_system::files::{read_untrusted, write_file};
use perfquilt_system::process::check_interrupted;

/// Time between two queries of the scheduler.
const SCHEDULER_INTERVAL: Duration = Duration::from_secs(2);
/// Time between two checks for results.
const RESULT_INTERVAL: Duration = Duration::from_millis(100);
/// The largest file of a result, in bytes.
const LARGEST: u64 = 64 << 20;

/// The coordinator's verdict on a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultVerdict {
    /// The task is done.
    Done,
    /// The task failed on this machine; another one is to try it.
    Retry,
}

/// Returns the path of a task's result, in the folder of its file.
pub fn result_of(task: &Path) -> PathBuf {
    task.with_extension("result.json")
}

/// Carries out the tasks of `array` with the contents `tasks`, by number, and returns the numbers of those that are lost. `accept` gets the
/// bytes of each result, which are not trusted: it returns an error for what is no result.
///
/// Results that are there already count. The jobs that are left are cancelled when this function returns.
pub fn run(
    scheduler: &dyn Scheduler,
    array: JobArray,
    tasks: &BTreeMap<u32, Vec<u8>>,
    accept: &mut dyn FnMut(u32, &[u8]) -> Result<ResultVerdict>,
) -> Result<BTreeSet<u32>> {
    let array = JobArray {
        tasks: tasks.keys().copied().collect(),
        ..array
    };
    let mut dispatch = Dispatch::new(scheduler, array);
    for (&number, content) in tasks {
        write_file(&dispatch.task_file(number), content)?;
    }
    let ended = wait(&mut dispatch, tasks, accept);
    if !dispatch.is_over()
        && let Err(error) = dispatch.cancel()
    {
        progress::warn(error.warning("jobs may be left in the queue"));
    }
    ended
}

fn wait(
    dispatch: &mut Dispatch<'_>,
    tasks: &BTreeMap<u32, Vec<u8>>,
    accept: &mut dyn FnMut(u32, &[u8]) -> Result<ResultVerdict>,
) -> Result<BTreeSet<u32>> {
    let mut open: BTreeSet<u32> = tasks.keys().copied().collect();
    let mut asked: Option<Instant> = None;
    loop {
        check_interrupted()?;
        for task in open.clone() {
            let path = result_of(&dispatch.task_file(task));
            let found = read_untrusted(&path, LARGEST);
            let verdict = match found {
                Ok(None) => continue,
                Ok(Some(bytes)) => accept(task, &bytes),
                Err(error) => Err(error),
            };
            if let Err(error) = &verdict {
                progress::warn(error.clone().into());
            }
            if verdict.is_ok_and(|verdict| verdict == ResultVerdict::Done) {
                open.remove(&task);
                dispatch.finish(task);
            } else {
                // Another attempt publishes its result under the same name.
                remove_file(&path)?;
                dispatch.retry(task);
            }
        }
        if open.is_empty() {
            return Ok(dispatch.lost.clone());
        }
        if asked.is_none_or(|asked| asked.elapsed() >= SCHEDULER_INTERVAL) {
            let warnings = dispatch.poll()?.into_iter();
            warnings.for_each(progress::warn);
            open.retain(|task| !dispatch.lost.contains(task));
            asked = Some(Instant::now());
        }
        std::thread::sleep(RESULT_INTERVAL);
    }
}
