//! Loading and merging of the configuration. Every error names the file and, if known, the line.

use std::path::Path;

use super::document::{Document, SettingPath};
use super::{Config, Recipe, ReleaseSource, SeriesFiles, Workload, fraction, recipe, workload};
use crate::CONFIG_FILE;
use perfquilt_model::error::{Error, Result};

impl Config {
    /// Reads the configuration and the workloads of the workspace at `root`.
    pub fn load(root: &Path) -> Result<Config> {
        let document = Document::read(&root.join(CONFIG_FILE), CONFIG_FILE)?;
        let (mut config, mut tables): (Config, _) =
            document.parse_without_tables(&[&["server"], &["cluster"]])?;
        for scheduler in tables.pop().unwrap_or_default() {
            let section = document.section(&["cluster", &scheduler], Vec::new());
            config.cluster.schedulers.insert(scheduler, section);
        }
        let server = &mut config.server;
        let tables = tables.pop().unwrap_or_default();
        server.settings = document.section(&["server", &server.adapter], tables);
        for (name, recipe) in &config.recipe {
            recipe.check_own(name, &document)?;
        }
        for (name, preset) in &mut config.preset {
            preset.name.clone_from(name);
        }
        config.recipe = recipe::resolve_inheritance(&config.recipe, &document)?;
        config.workloads = workload::load(root)?;
        config.check(&document)?;
        config.document = document;
        Ok(config)
    }

    fn check(&self, document: &Document) -> Result<()> {
        self.upstream.check(document)?;
        for (name, recipe) in &self.recipe {
            recipe.check(name, self, document)?;
        }
        for (name, preset) in &self.preset {
            preset.check(name, self, document)?;
        }
        self.server.check(document)?;
        self.cluster.check(document)?;
        self.watch.check(self, document)?;
        self.bot.check(self, document)?;
        self.commands.check(document)?;
        for (meter, margin) in &self.margin {
            let shown = format!("margin of {meter}");
            if let Some(fault) = fraction::width_fault(&shown, *margin) {
                return Err(document.error(&["margin", meter.name()], fault));
            }
        }
        Ok(())
    }

    /// Adds the place of a setting of `bench-config/perfquilt.toml` to an error: the file, and the line of the setting
    /// or of the nearest table around it.
    pub fn locate(&self, setting: SettingPath<'_>, error: Error) -> Error {
        self.document.locate(setting, error)
    }

    /// Returns the configured release with a version or a name such as `mariadb-10.11.18`; `None` selects the
    /// current release.
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
                let error = Error::release_missing(format!("there is no release `{wanted}`"))
                    .at(CONFIG_FILE, None);
                if releases.is_empty() {
                    return error.hint("add an [[upstream.release]] section");
                }
                let versions: Vec<&str> = releases.iter().map(|r| r.version.as_str()).collect();
                error.hint(format!("available: {}", versions.join(", ")))
            })
    }

    /// Returns the name of the release `version`, such as `mariadb-10.11.18`.
    pub fn release_name(&self, version: &str) -> String {
        format!("{}-{version}", self.upstream.name)
    }

    /// Returns the paths of the series for a release: its own folder, if it has one, or else those of `[series]`.
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
    pub fn recipe(&self, name: &str) -> Result<&Recipe> {
        let recipe = self.recipe.get(name);
        recipe.ok_or_else(|| match self.recipe.len() {
            0 => Config::lacks("[recipe.NAME]", "building"),
            _ => Error::unknown("recipe", name, self.recipe.keys()),
        })
    }

    /// Returns the preset called `name`.
    pub fn preset(&self, name: &str) -> Result<&super::Preset> {
        let preset = self.preset.get(name);
        preset.ok_or_else(|| match self.preset.len() {
            0 => Config::lacks("[preset.NAME]", "building and measuring"),
            _ => Error::unknown("preset", name, self.preset.keys()),
        })
    }

    /// Returns the error for a section that the configuration of a workspace which only keeps a series lacks.
    pub fn lacks(section: &str, what: &str) -> Error {
        Error::section_missing(format!("{what} needs a {section} section"))
            .at(CONFIG_FILE, None)
            .hint("docs/reference.md describes it; `perfquilt init` in an empty folder writes an example")
    }

    /// Returns the workload called `name`.
    pub fn workload(&self, name: &str) -> Result<&Workload> {
        self.workloads
            .get(name)
            .ok_or_else(|| Error::unknown("workload", name, self.workloads.keys()))
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

    /// Returns the number of the first line that contains `needle`, from 1.
    fn line_of(text: &str, needle: &str) -> Option<usize> {
        let index = text.lines().position(|line| line.contains(needle));
        index.map(|index| index + 1)
    }

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
        let line = error.location().and_then(|place| place.line);
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
    fn a_workspace_that_keeps_a_series_needs_upstream_only() {
        let end = GOOD.find("[recipe.base]").unwrap();
        let config = load(&GOOD[..end], WORKLOAD).unwrap();
        assert_eq!(config.release(None).unwrap().version, "1.0");
        for error in [
            config.recipe("quick").unwrap_err(),
            config.preset("quick").unwrap_err(),
        ] {
            assert!(error.to_string().contains("needs a ["), "{error}");
        }
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
    fn a_digest_is_checked_before_it_is_used() {
        let digits = "0aF9".repeat(16);
        let other = digits.replacen('0', "g", 1);
        for (digest, fine) in [
            (digits.as_str(), true),
            ("zz", false),
            ("", false),
            (&digits[1..], false),
            (other.as_str(), false),
        ] {
            let tarball =
                format!("[upstream.release.tarball]\nurl = \"x.tar\"\nsha256 = \"{digest}\"\n");
            let config = GOOD.replace("directory = \"upstream\"\n", &tarball);
            if fine {
                load(&config, WORKLOAD).unwrap();
                continue;
            }
            let (line, message) = refused(&config);
            assert_eq!(line, line_of(&config, "sha256"), "{message}");
            assert!(message.contains("64 hexadecimal digits"), "{message}");
            assert!(message.contains("`sha256sum FILE` prints it"), "{message}");
        }
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
        let (line, message) = refused(&GOOD.replace("[[\"make\"]]", "[[]]"));
        assert_eq!(line, line_of(GOOD, "[recipe.base]"));
        assert!(message.contains("empty command"), "{message}");
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
}
