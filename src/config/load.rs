//! Reading, merging and checking the configuration; every error names file and line.

use std::collections::BTreeMap;
use std::path::Path;

use serde::de::DeserializeOwned;

use super::{
    Adapter, Bot, BuildSystem, Config, Recipe, ReleaseSource, SeriesFiles, Workload, WorkloadKind,
};
use crate::error::{Error, Result};
use crate::forge::Repository;
use crate::workspace::CONFIG_FILE;

impl Config {
    /// Reads the configuration and the workloads of the workspace at `root`.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage), naming file and line.
    pub fn load(root: &Path) -> Result<Config> {
        let file = root.join(CONFIG_FILE);
        let text = std::fs::read_to_string(&file).map_err(|e| Error::io("read", &file, &e))?;
        let mut config: Config = parse(CONFIG_FILE, &text)?;
        config.recipe = resolve_inheritance(&config.recipe, &text)?;
        config.workloads = load_workloads(root)?;
        check(&config, &text)?;
        Ok(config)
    }

    /// The configured release that a version, or a name such as `mariadb-10.11.18`, means; `None` is
    /// the current one.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage), naming the nearest one there is.
    pub fn release(&self, version: Option<&str>) -> Result<&ReleaseSource> {
        let wanted = version.unwrap_or(&self.upstream.current);
        let bare = wanted
            .strip_prefix(&self.upstream.name)
            .and_then(|rest| rest.strip_prefix('-'))
            .unwrap_or(wanted);
        let releases = &self.upstream.release;
        releases
            .iter()
            .find(|source| source.version == wanted || source.version == bare)
            .ok_or_else(|| {
                let error =
                    Error::usage(format!("there is no release `{wanted}`")).at(CONFIG_FILE, None);
                if releases.is_empty() {
                    return error.hint("add an [[upstream.release]] section");
                }
                let versions: Vec<&str> = releases.iter().map(|r| r.version.as_str()).collect();
                error.hint(format!("there are: {}", versions.join(", ")))
            })
    }

    /// Where the series for a release is: in the folder of its own, if it has one, else where
    /// `[series]` says.
    ///
    /// # Errors
    /// As [`Config::release`].
    pub fn series_of(&self, version: Option<&str>) -> Result<SeriesFiles> {
        // A workspace may have a series before it has a release.
        if version.is_none() && self.release(None).is_err() {
            return Ok(self.series.clone());
        }
        Ok(match &self.release(version)?.patches {
            Some(folder) => SeriesFiles {
                file: folder.join("series"),
                patches: folder.clone(),
                fuzz: self.series.fuzz,
            },
            None => self.series.clone(),
        })
    }

    /// The recipe called `name`.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage), naming the nearest one there is.
    pub fn recipe(&self, name: &str) -> Result<&Recipe> {
        self.recipe
            .get(name)
            .ok_or_else(|| unknown("recipe", name, self.recipe.keys()))
    }

    /// The preset called `name`.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage), naming the nearest one there is.
    pub fn preset(&self, name: &str) -> Result<&super::Preset> {
        self.preset
            .get(name)
            .ok_or_else(|| unknown("preset", name, self.preset.keys()))
    }

    /// The workload called `name`.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage), naming the nearest one there is.
    pub fn workload(&self, name: &str) -> Result<&Workload> {
        self.workloads
            .get(name)
            .ok_or_else(|| unknown("workload", name, self.workloads.keys()))
    }
}

/// The error for a name that is not in the configuration, with the nearest that is.
pub(crate) fn unknown<'a>(
    what: &str,
    name: &str,
    known: impl Iterator<Item = &'a String> + Clone,
) -> Error {
    let error = Error::usage(format!("there is no {what} `{name}`"));
    let nearest = known
        .clone()
        .map(|candidate| (strsim::jaro_winkler(candidate, name), candidate))
        .filter(|(similarity, _)| *similarity > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match nearest {
        Some((_, candidate)) => error.hint(format!("did you mean `{candidate}`?")),
        None => {
            let names: Vec<&str> = known.map(String::as_str).collect();
            error.hint(format!("there are: {}", names.join(", ")))
        }
    }
}

fn parse<T: DeserializeOwned>(file: &str, text: &str) -> Result<T> {
    toml::from_str(text).map_err(|error| {
        let line = error
            .span()
            .map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let mut lines = error.message().lines();
        Error::usage(lines.next().unwrap_or("malformed").to_owned())
            .details(lines.map(str::to_owned))
            .at(file, line)
    })
}

fn load_workloads(root: &Path) -> Result<BTreeMap<String, Workload>> {
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
        let shown = format!("bench-config/workloads/{name}.toml");
        let text = std::fs::read_to_string(&path).map_err(|e| Error::io("read", &path, &e))?;
        let mut workload: Workload = parse(&shown, &text)?;
        workload.name = name.to_owned();
        let missing = match workload.kind {
            WorkloadKind::Sysbench => workload
                .sysbench
                .is_none()
                .then_some(("sysbench", "sysbench")),
            WorkloadKind::Command => workload.command.is_none().then_some(("command", "command")),
            WorkloadKind::SqlBench => workload
                .sql_bench
                .is_none()
                .then_some(("sql-bench", "sql_bench")),
            WorkloadKind::Handler => workload.handler.is_none().then_some(("handler", "handler")),
        };
        if let Some((kind, section)) = missing {
            return Err(
                Error::usage(format!("kind `{kind}` needs a [{section}] section")).at(shown, None),
            );
        }
        workloads.insert(name.to_owned(), workload);
    }
    Ok(workloads)
}

/// The line of the first `[section]` header or `key =` that contains `needle`.
fn line_of(text: &str, needle: &str) -> Option<usize> {
    text.lines()
        .position(|line| line.contains(needle))
        .map(|index| index + 1)
}

fn resolve_inheritance(
    recipes: &BTreeMap<String, Recipe>,
    text: &str,
) -> Result<BTreeMap<String, Recipe>> {
    recipes
        .keys()
        .map(|name| {
            let mut chain = vec![name.as_str()];
            let mut resolved = recipes[name].clone();
            let mut parent = resolved.inherits.clone();
            while let Some(parent_name) = parent.take() {
                let at = line_of(text, &format!("[recipe.{}]", chain[chain.len() - 1]));
                let Some((key, recipe)) = recipes.get_key_value(&parent_name) else {
                    return Err(unknown("recipe", &parent_name, recipes.keys()).at(CONFIG_FILE, at));
                };
                if chain.contains(&key.as_str()) {
                    return Err(Error::usage(format!(
                        "recipes inherit in a circle: {} → {key}",
                        chain.join(" → ")
                    ))
                    .at(CONFIG_FILE, at));
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
    }
}

fn check(config: &Config, text: &str) -> Result<()> {
    let wrong = |message: String, needle: &str| {
        Err(Error::usage(message).at(CONFIG_FILE, line_of(text, needle)))
    };
    for release in &config.upstream.release {
        let sources = [
            release.debian.is_some(),
            release.tarball.is_some(),
            release.git.is_some(),
            release.directory.is_some(),
        ];
        if sources.iter().filter(|given| **given).count() != 1 {
            return wrong(
                format!(
                    "release {} needs exactly one of debian, tarball, git and directory",
                    release.version
                ),
                &format!("\"{}\"", release.version),
            );
        }
    }
    for (name, recipe) in &config.recipe {
        let section = format!("[recipe.{name}]");
        match recipe.system {
            Some(BuildSystem::Cmake | BuildSystem::Command) => {}
            // A recipe that only others inherit from may leave it out.
            None => continue,
        }
        if recipe.install.is_empty() {
            return wrong(format!("recipe `{name}` installs nothing"), &section);
        }
        if !recipe
            .binary
            .as_ref()
            .is_some_and(|binary| recipe.install.contains_key(binary))
        {
            return wrong(
                format!("recipe `{name}` needs `binary`, one of the paths it installs"),
                &section,
            );
        }
    }
    for (name, recipe) in &config.recipe {
        let Some(relink) = &recipe.relink else {
            continue;
        };
        let complain = |message: String| wrong(message, &format!("[recipe.{name}.relink]"));
        if recipe.system == Some(BuildSystem::Cmake) {
            return complain(format!(
                "recipe `{name}` needs no `relink`: ninja knows how its executable is linked"
            ));
        }
        let has =
            |words: &[String], placeholder| words.iter().any(|word| word.contains(placeholder));
        if !has(&relink.command, "{output}") {
            return complain(format!(
                "`relink` of recipe `{name}` needs {{output}} in its command"
            ));
        }
        if !relink.shuffle.is_empty() && !has(&relink.shuffle, "{seed}") {
            return complain(format!(
                "`shuffle` of recipe `{name}` needs {{seed}}, or every order is the same"
            ));
        }
    }
    for (name, recipe) in &config.recipe {
        let Some(profile) = &recipe.profile else {
            continue;
        };
        let section = format!("[recipe.{name}.profile]");
        for workload in &profile.workloads {
            config
                .workload(workload)
                .map_err(|error| error.at(CONFIG_FILE, line_of(text, &section)))?;
        }
        if profile.workloads.is_empty() || profile.transactions == 0 {
            return wrong(
                format!("the profile of recipe `{name}` needs a workload and some transactions"),
                &section,
            );
        }
    }
    for (name, preset) in &config.preset {
        let section = format!("[preset.{name}]");
        let at = |error: Error| error.at(CONFIG_FILE, line_of(text, &section));
        let recipe = config.recipe(&preset.recipe).map_err(at)?;
        if recipe.system.is_none() {
            return wrong(
                format!("recipe `{}` has no `system`", preset.recipe),
                &section,
            );
        }
        for workload in &preset.workloads {
            config.workload(workload).map_err(at)?;
        }
        if preset.workloads.is_empty() || preset.meters.is_empty() || preset.blocks < 2 {
            return wrong(
                format!("preset `{name}` needs a workload, a meter and at least 2 blocks"),
                &section,
            );
        }
        if let Some(fault) = stopping_fault(preset) {
            return wrong(format!("preset `{name}`: {fault}"), &section);
        }
    }
    if config.server.adapter == Adapter::Command && config.server.command.is_none() {
        return wrong(
            "adapter `command` needs a [server.command] section".into(),
            "[server]",
        );
    }
    if config.bot != Bot::default() {
        let at = |error: Error| error.at(CONFIG_FILE, line_of(text, "[bot]"));
        config.bot.repository.parse::<Repository>().map_err(at)?;
        config.preset(&config.bot.preset).map_err(at)?;
    }
    let name = &config.commands.name;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    if name.is_empty() || !name.bytes().all(plain) {
        return wrong(
            format!("`{name}` is no name that can stand behind an @"),
            "[commands]",
        );
    }
    for (meter, margin) in &config.margin {
        if !(margin.is_finite() && *margin > 0.0 && *margin < 1.0) {
            return wrong(
                format!("margin of {meter} must lie between 0 and 1"),
                "[margin]",
            );
        }
    }
    Ok(())
}

/// What is wrong with when a preset's experiment ends.
fn stopping_fault(preset: &super::Preset) -> Option<String> {
    if preset
        .resolution
        .is_some_and(|resolution| !(resolution > 0.0 && resolution < 1.0))
    {
        return Some("`resolution` is a fraction of speed, as 0.005 for ±0.5 %".to_owned());
    }
    match preset.min_blocks {
        Some(_) if preset.resolution.is_none() => {
            Some("`min_blocks` says nothing without `resolution`".to_owned())
        }
        Some(least) if least < 2 || least > preset.blocks => Some(format!(
            "`min_blocks` is at least 2 and at most `blocks` ({})",
            preset.blocks
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    const GOOD: &str = r#"
[upstream]
name = "toy"
current = "1.0"

[[upstream.release]]
version = "1.0"
directory = "upstream"

[recipe.base]
system = "command"
build = [["make"]]
binary = "bin/toy"

[recipe.base.install]
"bin/toy" = "{build}/toy"

[recipe.quick]
inherits = "base"
build = [["make", "extra"]]

[server]
adapter = "command"
command = { start = ["{server}/bin/toy"], ready = ["true"] }

[preset.quick]
recipe = "quick"
workloads = ["ping"]
meters = ["time"]
blocks = 4
block_seconds = 1.0
"#;

    const WORKLOAD: &str = r#"
description = "pings"
kind = "command"

[command]
run = ["true"]
transactions = 10
"#;

    fn load(config: &str, workload: &str) -> Result<Config> {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("bench-config/workloads");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(root.path().join(CONFIG_FILE), config).unwrap();
        std::fs::write(folder.join("ping.toml"), workload).unwrap();
        Config::load(root.path())
    }

    fn refused(config: &str) -> (Option<usize>, String) {
        let error = load(config, WORKLOAD).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        let line = error.place().and_then(|place| place.line);
        let hint = error.hint_text().unwrap_or_default();
        (line, format!("{} {hint}", error.message()))
    }

    #[test]
    fn recipes_inherit() {
        let config = load(GOOD, WORKLOAD).unwrap();
        let quick = config.recipe("quick").unwrap();
        assert_eq!(quick.build, [vec!["make"], vec!["make", "extra"]]);
        assert_eq!(quick.binary.as_deref(), Some("bin/toy"));
        assert_eq!(config.workloads["ping"].name, "ping");
    }

    #[test]
    fn unknown_key_names_its_line() {
        let config = GOOD.replace("blocks = 4", "blokcs = 4");
        let (line, message) = refused(&config);
        assert_eq!(line, line_of(&config, "blokcs"), "{message}");
        assert!(message.contains("blokcs"), "{message}");
    }

    #[test]
    fn circle_is_refused() {
        let (line, message) =
            refused(&GOOD.replace("[recipe.base]\n", "[recipe.base]\ninherits = \"quick\"\n"));
        assert!(line.is_some());
        assert!(message.contains("circle"), "{message}");
    }

    #[test]
    fn misspelt_workload_is_guessed() {
        let (line, message) = refused(&GOOD.replace("[\"ping\"]", "[\"pimg\"]"));
        assert_eq!(line, line_of(GOOD, "[preset.quick]"));
        assert!(message.contains("did you mean `ping`?"), "{message}");
    }

    #[test]
    fn a_release_has_one_source() {
        let (line, message) = refused(&GOOD.replace("directory = \"upstream\"\n", ""));
        assert_eq!(line, Some(4), "{message}");
    }

    #[test]
    fn workload_kind_and_section_agree() {
        let error = load(GOOD, "description = \"x\"\nkind = \"sysbench\"\n").unwrap_err();
        assert!(error.to_string().contains("workloads/ping.toml"), "{error}");
    }
}
