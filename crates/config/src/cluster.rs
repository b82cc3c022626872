//! `[cluster]`: how jobs run on the machines of a cluster.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::Deserialize;

use super::document::{Document, Section};
use super::placeholders::expand_word;
use perfquilt_model::error::Result;

/// The most machines that measure at once.
const MOST_MACHINES: u32 = 1000;

/// `[cluster]`: how jobs run on the machines of a cluster.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cluster {
    /// The class of like machines, or any if empty: for Slurm an expression of nodes' features (`--constraint`).
    pub class: String,
    /// How many machines measure at once, at most 1000.
    pub machines: NonZeroU32,
    /// Time limit of a job in minutes.
    pub minutes: NonZeroU32,
    /// The folder of jobs and their results, relative to the workspace.
    pub folder: PathBuf,
    /// Each machine's own folder for source and build trees, with its name for `{machine}`; by default one of the
    /// user's in `/var/tmp`. With the same path everywhere, ccache shares objects with debug information.
    pub scratch: Option<String>,
    /// perfquilt on the machines; by default the path of the running program.
    pub program: Option<PathBuf>,
    /// `[cluster.SCHEDULER]` by scheduler, which the schedulers read.
    #[serde(skip)]
    pub schedulers: BTreeMap<String, Section>,
}

impl Default for Cluster {
    fn default() -> Self {
        Cluster {
            class: String::new(),
            machines: NonZeroU32::new(4).unwrap_or(NonZeroU32::MIN),
            minutes: NonZeroU32::new(60).unwrap_or(NonZeroU32::MIN),
            folder: ".perfquilt/cluster".into(),
            scratch: None,
            program: None,
            schedulers: BTreeMap::new(),
        }
    }
}

impl Cluster {
    /// Returns the folder for source and build trees on the machine called `machine`, for the user with the id `user`.
    pub fn scratch(&self, machine: &str, user: u32) -> Result<PathBuf> {
        let names = BTreeMap::from([("machine".to_owned(), machine.to_owned())]);
        match &self.scratch {
            Some(scratch) => expand_word(scratch, &names).map(PathBuf::from),
            None => Ok(format!("/var/tmp/perfquilt-{user}").into()),
        }
    }

    pub(super) fn check(&self, document: &Document) -> Result<()> {
        if self.machines.get() > MOST_MACHINES {
            let fault = format!("`machines` is at most {MOST_MACHINES}");
            return Err(document.error(&["cluster", "machines"], fault));
        }
        if let Err(error) = self.scratch("", 0) {
            return Err(document.locate(&["cluster", "scratch"], error));
        }
        let is_word = |c: char| c.is_ascii_alphanumeric() || "-_.&|[]*".contains(c);
        if !self.class.chars().all(is_word) {
            let fault = "`class` has letters, digits and the operators of Slurm's constraints only";
            return Err(document.error(&["cluster", "class"], fault));
        }
        Ok(())
    }
}
