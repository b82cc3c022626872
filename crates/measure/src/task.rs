//! Tasks of jobs on a cluster: what they have in common.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use perfquilt_cluster::exchange::publish;
use perfquilt_cluster::tasks::result_of;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::failure::Failure;
use perfquilt_system::files::read_untrusted;
use perfquilt_system::process::check_interrupted_soon;

/// The version of the files of tasks and their results.
pub(crate) const SCHEMA: u32 = 3;
/// The largest file of a task, in bytes.
const LARGEST: u64 = 256 << 20;

/// The kind of a task, the field `kind` of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskKind {
    /// To measure blocks.
    Blocks,
    /// To build points.
    Build,
    /// To find out whether workloads execute some code.
    Execution,
    /// To tell what the machine measures with.
    Facts,
}

/// The fields that all files of tasks have.
#[derive(Deserialize)]
struct Common {
    kind: TaskKind,
    schema: u32,
}

/// Returns the kind of the task in the file `path`.
pub fn kind_of(path: &Path) -> Result<TaskKind> {
    let common: Common = read(path)?;
    if common.schema == SCHEMA {
        Ok(common.kind)
    } else {
        let fault = format!("its schema is {}, not {SCHEMA}", common.schema);
        Err(wrong(path, &fault).hint("install the same version of perfquilt on all machines"))
    }
}

/// Reads the task in the file `path`.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let missing = || Error::task(format!("there is no {}", path.display()));
    let bytes = read_untrusted(path, LARGEST)?.ok_or_else(missing)?;
    serde_json::from_slice(&bytes).map_err(|error| wrong(path, &error.to_string()))
}

fn wrong(path: &Path, why: &str) -> Error {
    Error::task(format!("not a task of `--on`: {why}")).at(path, None)
}

/// Writes a task or a result as JSON.
pub(crate) fn to_bytes<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value)
        .map_err(|error| Error::internal(format!("cannot write a job's file: {error}")))
}

/// Publishes the answer to the task in the file `path`: its outcome, or why there is none. Publishes nothing when interrupted.
pub(crate) fn answer<T: Serialize>(path: &Path, outcome: Result<T>) -> Result<()> {
    let answer = match outcome {
        Err(error) if error.kind() == Kind::Interrupted => return Err(error),
        Err(error) => {
            check_interrupted_soon()?;
            Err(Failure::new(&error, None))
        }
        Ok(value) => Ok(value),
    };
    publish(&result_of(path), &to_bytes(&answer)?).map(drop)
}
