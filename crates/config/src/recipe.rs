//! `[recipe.NAME]`: how points are built.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use super::document::Document;
use super::placeholders::list;
use super::{Config, TestSuite, expand_word};
use perfquilt_model::error::{Error, Result};

/// Placeholders of recipes.
const PLACEHOLDERS: &[&str] = &["src", "build", "jobs", "config", "profile"];
/// Additional placeholders of the section `relink`.
const RELINK_PLACEHOLDERS: &[&str] = &["output"];

/// The build system of a recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BuildSystem {
    /// CMake with Ninja, out of tree.
    Cmake,
    /// Commands in the configuration, run in a separate source tree.
    Command,
}

/// The linker of a recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Linker {
    /// The fastest available: mold, else lld, else the compiler's default.
    Auto,
    /// The compiler's default.
    Default,
    /// The mold linker.
    Mold,
    /// LLVM's lld.
    Lld,
}

/// `[recipe.NAME]`: how a point is built.
///
/// In commands and paths, `{src}` is the source tree, `{build}` the build tree (the same as `{src}`
/// for [`BuildSystem::Command`]), `{jobs}` the number of parallel jobs and `{config}` the workspace's
/// `bench-config/`. Other names in braces are refused.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Recipe {
    /// One-line description.
    pub description: String,
    /// A parent recipe: supplies missing settings, and its lists come first.
    pub inherits: Option<String>,
    /// The build system.
    pub system: Option<BuildSystem>,
    /// Arguments of `cmake` (only `cmake`).
    pub cmake_args: Vec<String>,
    /// A CMake file that every `project()` of the tree includes (`CMAKE_PROJECT_INCLUDE`).
    pub cmake_include: Option<PathBuf>,
    /// The linker (only `cmake`), unless linker flags choose one; by default that of `cmake_args`, else the compiler's.
    pub linker: Option<Linker>,
    /// Ninja targets that make up the server (only `cmake`).
    pub targets: Vec<String>,
    /// Commands before the first compilation of a set of build files (only `command`).
    pub configure: Vec<Vec<String>>,
    /// Commands for every point (only `command`).
    pub build: Vec<Vec<String>>,
    /// The runnable server: maps a path in the result (not `build.json` or `relink`) to the file or folder to copy
    /// there, links followed. With `*` in its last part, all matching files go into the folder named by the key.
    pub install: BTreeMap<String, String>,
    /// The measured executable inside the result.
    pub binary: Option<String>,
    /// Further environment variables of its commands.
    pub env: BTreeMap<String, String>,
    /// `[recipe.NAME.relink]`: how to relink the measured executable (only `command`).
    pub relink: Option<Relink>,
    /// `[recipe.NAME.profile]`: profile-guided optimisation.
    pub profile: Option<Profile>,
    /// `[recipe.NAME.test]`: the server's own tests.
    pub test: Option<TestSuite>,
}

/// `[recipe.NAME.profile]`: profile-guided optimisation. perfquilt adds the compiler's flags to `CFLAGS`,
/// `CXXFLAGS` and `LDFLAGS` of the recipe.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Training workloads, run one after the other.
    pub workloads: Vec<String>,
    /// Transactions of each.
    pub transactions: u64,
    /// The profile that a point is compiled with.
    #[serde(default)]
    pub of: ProfileSource,
}

/// The profile that a point is compiled with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProfileSource {
    /// The bare release's, so that points differ only in their patches; changed code then has no profile.
    #[default]
    Base,
    /// The point's own, as it would be shipped.
    Point,
}

/// File in a built point that describes the build.
pub const BUILD_RECORD: &str = "build.json";
/// Folder in a built point with the files for relinking its executable.
pub const RELINK_FOLDER: &str = "relink";
/// File in [`RELINK_FOLDER`] with the link command, or the reason why relinking is impossible.
pub const RELINK_RECORD: &str = "link.json";

/// Reserved first components of paths in [`Recipe::install`].
pub const INSTALL_RESERVED: &[&str] = &[BUILD_RECORD, RELINK_FOLDER];
/// Reserved first components of names in [`Relink::keep`].
pub const KEEP_RESERVED: &[&str] = &[RELINK_RECORD];

/// `[recipe.NAME.relink]`: relinks the measured executable, so that the code layout can be varied without
/// compiling anything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relink {
    /// Inputs of the link, kept beside the built server: maps names to files as `install` does.
    pub keep: BTreeMap<String, String>,
    /// The link command, run in the folder with these inputs; `{output}` is the executable to write.
    pub command: Vec<String>,
}

impl Recipe {
    /// Checks the recipe called `name` as it was written, without the settings of its parents.
    pub(super) fn check_own(&self, name: &str, document: &Document) -> Result<()> {
        let of_recipe = |error: Error| error.details([format!("in recipe `{name}`")]);
        self.check_names(name, document).map_err(of_recipe)?;
        self.check_placeholders(name, document).map_err(of_recipe)
    }

    /// Refuses names of installed or kept files that lead out of the result or are reserved.
    fn check_names(&self, name: &str, document: &Document) -> Result<()> {
        let check = |section: &[&str], file: &str, reserved: &[&str]| {
            let path = Path::new(file);
            let complain = |message: String| {
                let setting = [&["recipe", name], section, &[file]].concat();
                Err(document.error(&setting, message))
            };
            let mut parts = path.components();
            if file.is_empty() || !parts.all(|part| matches!(part, Component::Normal(_))) {
                return complain(format!("`{file}` is not a path inside the result"));
            }
            if reserved.iter().any(|taken| path.starts_with(taken)) {
                return complain(format!("`{file}` is reserved for perfquilt"));
            }
            Ok(())
        };
        let mut installed = self.install.keys();
        installed.try_for_each(|file| check(&["install"], file, INSTALL_RESERVED))?;
        let mut kept = self.relink.iter().flat_map(|relink| relink.keep.keys());
        kept.try_for_each(|file| check(&["relink", "keep"], file, KEEP_RESERVED))
    }

    /// Refuses unknown placeholders.
    fn check_placeholders(&self, name: &str, document: &Document) -> Result<()> {
        let values = |names: &[&str]| -> BTreeMap<String, String> {
            let names = names.iter().map(|&name| name.to_owned());
            names.map(|name| (name, String::new())).collect()
        };
        let of_recipe = values(PLACEHOLDERS);
        let of_relink = values(&[PLACEHOLDERS, RELINK_PLACEHOLDERS].concat());
        let mut words: Vec<(Vec<String>, &str)> = Vec::new();
        list("cmake_args", &self.cmake_args, &mut words);
        list("targets", &self.targets, &mut words);
        for (key, commands) in [("configure", &self.configure), ("build", &self.build)] {
            for (index, command) in commands.iter().enumerate() {
                list(&format!("{key}.{index}"), command, &mut words);
            }
        }
        for (section, table) in [("install", &self.install), ("env", &self.env)] {
            words.extend(table.iter().map(|(key, word)| {
                let path = vec![section.to_owned(), key.clone()];
                (path, word.as_str())
            }));
        }
        if let Some(test) = &self.test {
            test.check_placeholders(name, &of_recipe, document)?;
        }
        let own = words.len();
        if let Some(relink) = &self.relink {
            list("relink.command", &relink.command, &mut words);
            words.extend(relink.keep.iter().map(|(key, word)| {
                let path = vec!["relink".to_owned(), "keep".to_owned(), key.clone()];
                (path, word.as_str())
            }));
        }
        for (index, (path, word)) in words.iter().enumerate() {
            let values = if index < own { &of_recipe } else { &of_relink };
            expand_word(word, values).map_err(|error| {
                let mut setting = vec!["recipe", name];
                setting.extend(path.iter().map(String::as_str));
                document.locate(&setting, error)
            })?;
        }
        Ok(())
    }

    /// Checks the recipe called `name` with the settings of its parents.
    pub(super) fn check(&self, name: &str, config: &Config, document: &Document) -> Result<()> {
        self.check_result(name, document)?;
        if let Some(relink) = &self.relink {
            let complain =
                |message: String| Err(document.error(&["recipe", name, "relink"], message));
            if self.system == Some(BuildSystem::Cmake) {
                return complain(format!(
                    "recipe `{name}` needs no `relink`: ninja knows how its executable is linked"
                ));
            }
            if !relink.command.iter().any(|word| word.contains("{output}")) {
                return complain(format!(
                    "`relink` of recipe `{name}` needs {{output}} in its command"
                ));
            }
        }
        if let (Some(test), Some(_)) = (&self.test, self.system) {
            test.check(name, self.system == Some(BuildSystem::Cmake), document)?;
        }
        if let Some(profile) = &self.profile {
            let section = ["recipe", name, "profile"];
            for workload in &profile.workloads {
                config
                    .workload(workload)
                    .map_err(|error| document.locate(&section, error))?;
            }
            if profile.workloads.is_empty() || profile.transactions == 0 {
                let fault = format!(
                    "the profile of recipe `{name}` needs a workload and some transactions"
                );
                return Err(document.error(&section, fault));
            }
        }
        Ok(())
    }

    /// Checks that the recipe builds a server; a recipe without `system` only serves as a parent.
    fn check_result(&self, name: &str, document: &Document) -> Result<()> {
        let complain = |message: String| Err(document.error(&["recipe", name], message));
        if self.system.is_none() {
            return Ok(());
        }
        if self.install.is_empty() {
            return complain(format!("recipe `{name}` installs nothing"));
        }
        let binary = self.binary.as_ref();
        let Some(binary) = binary else {
            return complain(format!(
                "recipe `{name}` needs `binary`, one of the paths it installs"
            ));
        };
        if !self.install.contains_key(binary) {
            let installed: Vec<&str> = self.install.keys().map(String::as_str).collect();
            let message = format!("recipe `{name}` does not install its `binary`, {binary}");
            let all = format!("it installs {}", installed.join(", "));
            let error = document.error(&["recipe", name, "binary"], message);
            return Err(error.near(binary, installed.iter().copied(), all));
        }
        let mut commands = self.configure.iter().chain(&self.build);
        if commands.any(|words| words.first().is_none_or(String::is_empty)) {
            return complain(format!("recipe `{name}` has an empty command"));
        }
        Ok(())
    }
}

/// Returns the recipes with the settings of their parents.
pub(super) fn resolve_inheritance(
    recipes: &BTreeMap<String, Recipe>,
    document: &Document,
) -> Result<BTreeMap<String, Recipe>> {
    recipes
        .keys()
        .map(|name| {
            let mut chain = vec![name.as_str()];
            let mut resolved = recipes[name].clone();
            let mut parent = resolved.inherits.clone();
            while let Some(parent_name) = parent.take() {
                let place = ["recipe", chain[chain.len() - 1], "inherits"];
                let Some((key, recipe)) = recipes.get_key_value(&parent_name) else {
                    let unknown = Error::unknown("recipe", &parent_name, recipes.keys());
                    return Err(document.locate(&place, unknown));
                };
                if chain.contains(&key.as_str()) {
                    let circle = chain.join(" → ");
                    let fault = format!("recipes inherit in a circle: {circle} → {key}");
                    return Err(document.error(&place, fault));
                }
                chain.push(key);
                resolved = merge(recipe, resolved);
                parent = recipe.inherits.clone();
            }
            Ok((name.clone(), resolved))
        })
        .collect()
}

fn merge(parent: &Recipe, child: Recipe) -> Recipe {
    let join = |a: &[String], b: Vec<String>| a.iter().cloned().chain(b).collect();
    let map = |a: &BTreeMap<String, String>, b: BTreeMap<String, String>| {
        a.clone().into_iter().chain(b).collect()
    };
    let commands = |a: &[Vec<String>], b: Vec<Vec<String>>| a.iter().cloned().chain(b).collect();
    Recipe {
        description: child.description,
        inherits: child.inherits,
        system: child.system.or(parent.system),
        cmake_args: join(&parent.cmake_args, child.cmake_args),
        cmake_include: child.cmake_include.or_else(|| parent.cmake_include.clone()),
        linker: child.linker.or(parent.linker),
        targets: join(&parent.targets, child.targets),
        configure: commands(&parent.configure, child.configure),
        build: commands(&parent.build, child.build),
        install: map(&parent.install, child.install),
        binary: child.binary.or_else(|| parent.binary.clone()),
        env: map(&parent.env, child.env),
        relink: child.relink.or_else(|| parent.relink.clone()),
        profile: child.profile.or_else(|| parent.profile.clone()),
        test: child.test.or_else(|| parent.test.clone()),
    }
}
