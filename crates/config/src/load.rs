//! Loading and merging of the configuration. Every error names the file and, if known, the line.

use std::collections::BTreeMap;
use std::path::Path;

use serde::de::DeserializeOwned;

use super::check::{check, check_workload, line_of};
use super::{Config, Recipe, ReleaseSource, SeriesFiles, Workload};
use crate::CONFIG_FILE;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::files::read_text;

impl Config {
    /// Reads the configuration and the workloads of the workspace at `root`.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage), naming the file and, if known, the line;
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when a file cannot be read.
    pub fn load(root: &Path) -> Result<Config> {
        let file = root.join(CONFIG_FILE);
        let text = read_text(&file, CONFIG_FILE)?;
        let mut config: Config = parse(CONFIG_FILE, &text)?;
        config.recipe = resolve_inheritance(&config.recipe, &text)?;
        config.workloads = load_workloads(root)?;
        check(&config, &text)?;
        Ok(config)
    }

    /// Returns the configured release with a version or a name such as `mariadb-10.11.18`; `None` selects the
    /// current release.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage), listing the known releases.
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

    /// Returns the paths of the series for a release: its own folder, if it has one, or else those of `[series]`.
    ///
    /// # Errors
    /// See [`Config::release`].
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

    /// Returns the recipe called `name`.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage), suggesting the nearest known name.
    pub fn recipe(&self, name: &str) -> Result<&Recipe> {
        self.recipe
            .get(name)
            .ok_or_else(|| Error::unknown("recipe", name, self.recipe.keys()))
    }

    /// Returns the preset called `name`.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage), suggesting the nearest known name.
    pub fn preset(&self, name: &str) -> Result<&super::Preset> {
        self.preset
            .get(name)
            .ok_or_else(|| Error::unknown("preset", name, self.preset.keys()))
    }

    /// Returns the workload called `name`.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage), suggesting the nearest known name.
    pub fn workload(&self, name: &str) -> Result<&Workload> {
        self.workloads
            .get(name)
            .ok_or_else(|| Error::unknown("workload", name, self.workloads.keys()))
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
        let text = read_text(&path, &shown)?;
        let mut workload: Workload = parse(&shown, &text)?;
        workload.name = name.to_owned();
        check_workload(&workload, &shown, &text)?;
        workloads.insert(name.to_owned(), workload);
    }
    Ok(workloads)
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
                    return Err(
                        Error::unknown("recipe", &parent_name, recipes.keys()).at(CONFIG_FILE, at)
                    );
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

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_model::error::Kind;

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
        assert_eq!(line, Some(7), "{message}");
        let twice = GOOD.replace(
            "[recipe.base]\n",
            "[[upstream.release]]\nversion = \"1.0\"\ndirectory = \"other\"\n\n[recipe.base]\n",
        );
        let (line, message) = refused(&twice);
        assert_eq!(line, Some(11), "{message}");
        assert!(message.contains("twice"), "{message}");
    }

    #[test]
    fn invalid_values_name_their_line() {
        for (good, bad) in [
            ("block_seconds = 1.0", "block_seconds = -60.0"),
            ("block_seconds = 1.0", "block_seconds = 0.0"),
            ("block_seconds = 1.0", "block_seconds = nan"),
            ("block_seconds = 1.0", "block_seconds = inf"),
            ("block_seconds = 1.0", "block_seconds = 86401.0"),
            ("blocks = 4\n", "blocks = 4\ncount_blocks = 0\n"),
            ("[server]\n", "[server]\nstart_seconds = -1.0\n"),
            (
                "[server]\n",
                "[bot]\nrepository = \"o/r\"\nsteering = [\"sql/x.yy\"]\n\n[server]\n",
            ),
        ] {
            let config = GOOD.replace(good, bad);
            let wrong = bad.lines().rfind(|line| line.contains('=')).unwrap();
            let (line, message) = refused(&config);
            assert_eq!(line, line_of(&config, wrong), "{bad}: {message}");
        }
        for (good, bad) in [
            ("[[\"make\"]]", "[[]]"),
            ("ready = [\"true\"]", "ready = []"),
        ] {
            let (line, message) = refused(&GOOD.replace(good, bad));
            assert!(
                line.is_some() && message.contains("empty command"),
                "{message}"
            );
        }
    }

    #[test]
    fn installed_files_stay_inside_the_result() {
        for name in [
            "/tmp/x",
            "../toy",
            "bin/../../toy",
            "build.json",
            "relink/x",
            "",
        ] {
            let header = "[recipe.base.install]\n";
            let config = GOOD.replace(header, &format!("{header}\"{name}\" = \"{{build}}/x\"\n"));
            let (line, message) = refused(&config);
            let wanted = line_of(&config, &format!("\"{name}\" ="));
            assert_eq!(line, wanted, "{message}");
        }
        for name in ["../a.o", "link.json"] {
            let relink = format!(
                "[recipe.base.relink]\nkeep = {{ \"{name}\" = \"{{build}}/a.o\" }}\ncommand = [\"cc\", \"{{output}}\"]\n[server]\n"
            );
            let config = GOOD.replace("[server]\n", &relink);
            let (line, message) = refused(&config);
            assert_eq!(line, line_of(&config, "keep"), "{message}");
        }
    }

    #[test]
    fn unknown_placeholders_of_recipes_name_their_line() {
        let elsewhere = GOOD.replace(
            "[recipe.base]\n",
            "[series]\nfile = \"{output}\"\n[recipe.base]\n",
        );
        for (good, bad) in [
            (
                "[[\"make\", \"extra\"]]",
                "[\n  [\"make\", \"{output}\"],\n]",
            ),
            ("{build}/toy", "{output}/toy"),
        ] {
            let config = elsewhere.replace(good, bad);
            let (line, message) = refused(&config);
            let last = config
                .lines()
                .rev()
                .position(|line| line.contains("{output}"));
            let wanted = last.map(|behind| config.lines().count() - behind);
            assert_eq!(line, wanted, "{message}");
            assert!(message.contains("there are {build}, {config}"), "{message}");
        }
    }

    #[test]
    fn invalid_values_of_workloads_name_their_line() {
        let handler = "description = \"x\"\nkind = \"handler\"\n\n[handler]\nengine = \"Aria\"\nform = \"text\"\n";
        let sysbench = "description = \"x\"\nkind = \"sysbench\"\n\n[sysbench]\nscript = \"a\"\n";
        for (text, wrong) in [
            (WORKLOAD.replace("= 10", "= 0"), "transactions = 0"),
            (
                WORKLOAD.replace("= 10", "= 9223372036854775807"),
                "transactions",
            ),
            (WORKLOAD.replace("[\"true\"]", "[]"), "run = []"),
            (format!("{WORKLOAD}prepare = []\n"), "prepare"),
            (format!("{WORKLOAD}rate = '('\n"), "rate"),
            (format!("{WORKLOAD}seconds = 'no group'\n"), "seconds = 'no"),
            (format!("{WORKLOAD}limit_seconds = 0\n"), "limit_seconds"),
            (format!("{handler}rows = 0\n"), "rows"),
            (format!("{handler}threads = 0\n"), "threads"),
            (format!("{sysbench}threads = 0\n"), "threads"),
        ] {
            let error = load(GOOD, &text).unwrap_err();
            assert_eq!(error.kind(), Kind::Usage, "{error}");
            let line = line_of(&text, wrong).unwrap();
            let place = format!("bench-config/workloads/ping.toml:{line}: ");
            assert!(error.to_string().starts_with(&place), "{place}{error}");
        }
    }

    #[test]
    fn workload_kind_and_section_agree() {
        let error = load(GOOD, "description = \"x\"\nkind = \"sysbench\"\n").unwrap_err();
        assert!(error.to_string().contains("workloads/ping.toml"), "{error}");
    }
}
