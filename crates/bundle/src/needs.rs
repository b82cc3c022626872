//! What the servers of a bundle need of a machine, and what this one lacks.

use std::collections::BTreeSet;
use std::env::consts::ARCH;
use std::path::Path;

use crate::manifest::Needs;
use perfquilt_build::needed_libraries;
use perfquilt_config::Recipe;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::host::KernelFields;

/// Folders in which the dynamic linker looks beside those of its cache.
const FOLDERS: [&str; 5] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"];
/// How many names an error has.
const MOST_NAMED: usize = 8;

impl Needs {
    /// Returns what servers need that `recipe` built on this machine and that consist of the files at `paths`.
    pub(crate) fn of<'p>(recipe: &Recipe, paths: impl Iterator<Item = &'p Path> + Clone) -> Self {
        let own: BTreeSet<&str> = paths
            .clone()
            .filter_map(|path| path.file_name()?.to_str())
            .collect();
        let needed = paths.flat_map(needed_libraries);
        let words = recipe.cmake_args.iter().chain(recipe.env.values());
        let mut words = words.chain(recipe.configure.iter().chain(&recipe.build).flatten());
        Needs {
            architecture: ARCH.to_owned(),
            processor: words
                .any(|word| word.contains("=native"))
                .then(features)
                .unwrap_or_default(),
            libraries: needed.filter(|name| !own.contains(name.as_str())).collect(),
        }
    }

    /// Refuses servers that cannot run on this machine.
    pub(crate) fn check(&self) -> Result<()> {
        let cache = std::fs::read("/etc/ld.so.cache").unwrap_or_default();
        let is_here = |name: &String| {
            let entry = format!("/{name}\0");
            let mut entries = cache.windows(entry.len());
            entries.any(|bytes| bytes == entry.as_bytes())
                || FOLDERS
                    .iter()
                    .any(|folder| Path::new(folder).join(name).exists())
        };
        let features = features();
        let listed = |names: Vec<&String>| {
            let names: Vec<&str> = names
                .into_iter()
                .take(MOST_NAMED)
                .map(String::as_str)
                .collect();
            names.join(", ").escape_debug().to_string()
        };
        let processor = listed(self.processor.difference(&features).collect());
        let libraries = listed(
            self.libraries
                .iter()
                .filter(|name| !is_here(name))
                .collect(),
        );
        let fault = if self.architecture != ARCH {
            let there = self.architecture.escape_debug();
            format!("its servers are programs for {there}, and this machine's processor is {ARCH}")
        } else if !processor.is_empty() {
            format!(
                "its servers were compiled for another processor, and this one lacks {processor}"
            )
        } else if !libraries.is_empty() {
            format!("this machine lacks shared libraries of its servers: {libraries}")
        } else {
            return Ok(());
        };
        Err(Error::bundle_elsewhere(fault))
    }
}

/// Returns the features of this machine's processor.
fn features() -> BTreeSet<String> {
    let processor = KernelFields::read("/proc/cpuinfo");
    let words = processor.get("flags").or_else(|| processor.get("Features"));
    let words = words.unwrap_or_default().split_whitespace();
    words.map(str::to_owned).collect()
}
