//! Workloads: `bench-config/workloads/NAME.toml`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::document::{Document, Section, SettingPath};
use perfquilt_model::error::{Error, Result};

/// A workload: what its requests are, in the settings of the client that sends them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The name: the file's name without `.toml`.
    #[serde(skip)]
    pub name: String,
    /// One-line description.
    pub description: String,
    /// The client that runs the workload: `sysbench`, `requests`, `command` or `sql-bench`.
    pub kind: String,
    /// Patches (numbers or prefixes of names) that this workload is meant for; informational.
    #[serde(default)]
    pub exercises: Vec<String>,
    /// Files and folders that the client reads without being seen to (`{config}/PATH` and paths from `bench-config/` on).
    #[serde(default)]
    pub inputs: Vec<String>,
    /// The section named after the kind, which its client reads.
    #[serde(skip)]
    pub settings: Section,
    /// The folder `bench-config/` of its workspace, at which the paths of its settings start.
    #[serde(skip)]
    pub bench_config: PathBuf,
    #[serde(skip)]
    document: Document,
}

impl Workload {
    /// Reads the workload called `name` from a document.
    fn read(name: &str, document: Document) -> Result<Self> {
        let (mut workload, mut tables): (Workload, _) = document.parse_without_tables(&[&[]])?;
        let tables = tables.pop().unwrap_or_default();
        workload.name = name.to_owned();
        workload.settings = document.section(&[&workload.kind.replace('-', "_")], tables);
        workload.document = document;
        Ok(workload)
    }

    /// Returns the workload called `name` with this content of its file.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        Self::read(name, Document::new(&shown(name), text))
    }

    /// Adds the place of a setting to an error: the workload's file, and the line of the setting or of the nearest
    /// table around it.
    pub fn locate(&self, setting: SettingPath<'_>, error: Error) -> Error {
        self.document.locate(setting, error)
    }
}

/// Returns a workload's file in messages.
fn shown(name: &str) -> String {
    format!("bench-config/workloads/{name}.toml")
}

/// Reads the workloads of the workspace at `root`, by name.
pub(super) fn load(root: &Path) -> Result<BTreeMap<String, Workload>> {
    let folder = root.join("bench-config/workloads");
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(Error::io("read", &folder, &error)),
    };
    let mut workloads = BTreeMap::new();
    for entry in entries {
        let path = entry.map_err(|e| Error::io("read", &folder, &e))?.path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let Some(name) = path.file_stem().and_then(|stem| stem.to_str()) else {
            continue;
        };
        let mut workload = Workload::read(name, Document::read(&path, &shown(name))?)?;
        workload.bench_config = root.join("bench-config");
        workloads.insert(name.to_owned(), workload);
    }
    Ok(workloads)
}
