//! The files that commands were seen to read, remembered between runs.
//!
//! What a command reads depends on what it read before, so the records form a chain, as ccache's manifests do: a record
//! belongs to the contents of all files before it, and tells which files were opened then. A changed file leads to another
//! record, or to none, and then the command is traced again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Inputs, Trace};
use perfquilt_model::error::Result;
use perfquilt_series::state;
use perfquilt_system::digest;
use perfquilt_system::files::write_file;

/// The records of a command's runs.
#[derive(Debug, Clone)]
pub struct Records {
    folder: PathBuf,
    /// The digest of the command's words.
    command: String,
}

/// The name of a file in [`Inputs`], and the digest of its content, empty if there is none.
type Contents = BTreeMap<String, String>;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    read: Contents,
}

impl Records {
    /// Returns the records in `folder` of a command with these `words`, run in `directory`.
    pub fn of(folder: PathBuf, words: &[String], directory: Option<&str>) -> Self {
        let command = digest::of(words.iter().map(String::as_str).chain(directory));
        Records { folder, command }
    }

    /// Returns the names of the files that the command writes.
    fn written(&self) -> BTreeSet<String> {
        read_json(&self.outputs()).unwrap_or_default()
    }

    /// Returns the path of the list of files that the command writes.
    fn outputs(&self) -> PathBuf {
        self.folder.join(format!("{}.json", &self.command[..24]))
    }

    /// Returns the path of the record of a state.
    fn state(&self, inputs: &Inputs) -> PathBuf {
        let mut state = Sha256::new();
        digest::add(&mut state, self.command.as_bytes());
        inputs.digest(&mut state);
        let state = hex::encode(state.finalize());
        self.folder
            .join(format!("{}-{}.json", &self.command[..24], &state[..24]))
    }

    /// Adds to `inputs`, the files that the words name, what the command was seen to read in this state, and leaves out
    /// what it writes. Returns whether a run in this state was seen.
    pub fn complete(&self, inputs: &mut Inputs) -> bool {
        let written = self.written();
        inputs.files.retain(|name, _| !written.contains(name));
        loop {
            let Some(Record { read }) = read_json(&self.state(inputs)) else {
                return false;
            };
            let present = inputs.contents(read.keys().map(|name| inputs.path(name)));
            inputs.observed.extend(present.clone());
            if present == read {
                return true;
            }
            let before = inputs.changed.clone();
            inputs.changed.extend(present);
            if inputs.changed == before {
                // It changed while it was traced.
                return false;
            }
        }
    }

    /// Remembers what a run in the state of `inputs` opened, and adds it to them, except the `outputs` of programs beside it.
    pub fn remember(
        &self,
        inputs: &mut Inputs,
        trace: &Trace,
        outputs: &BTreeSet<PathBuf>,
    ) -> Result<()> {
        let mut written = self.written();
        written.extend(outputs.iter().map(|path| inputs.name(path)));
        write_file(&self.outputs(), &state::text(&written)?)?;
        inputs.files.retain(|name, _| !written.contains(name));
        let read = trace
            .read
            .iter()
            .filter(|path| !written.contains(&inputs.name(path)));
        let read = inputs.contents(read.cloned());
        inputs.observed.extend(read.clone());
        write_file(&self.state(inputs), &state::text(&Record { read })?)
    }
}

fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> Option<T> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}
