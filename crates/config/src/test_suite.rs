//! `[recipe.NAME.test]`: the server's own tests.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::document::Document;
use super::placeholders::{expand_word, list};
use super::seconds;
use perfquilt_model::error::Result;

/// Placeholder of `select`: the tests to run.
pub const TESTS_PLACEHOLDER: &str = "tests";

/// The output format of a test runner, in which each test's result is one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TestFormat {
    /// `mysql-test-run.pl` of MariaDB and MySQL.
    Mtr,
    /// PostgreSQL's `pg_regress`.
    PgRegress,
    /// The Test Anything Protocol, one test a line.
    Tap,
    /// Perl's `prove`, one file a line.
    Prove,
    /// CMake's `ctest`.
    Ctest,
    /// `runtest` of Redis and Valkey.
    Redis,
    /// No lines: the command's exit status is the result of the only test.
    ExitStatus,
}

/// `[recipe.NAME.test]`: the server's own tests, run in the work tree of a point.
///
/// Words may contain the placeholders of recipes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestSuite {
    /// Ninja targets that the tests need besides the server.
    #[serde(default)]
    pub targets: Vec<String>,
    /// Commands run in the build tree before the tests of every point.
    #[serde(default)]
    pub prepare: Vec<Vec<String>>,
    /// The command that runs all tests. It continues after a failing test.
    pub command: Vec<String>,
    /// The command that runs some tests, by default `command` as a whole. Their names replace the word `{tests}`, a
    /// word each, or a part of a word, with blanks between them.
    #[serde(default)]
    pub select: Vec<String>,
    /// The format of the command's output.
    pub format: TestFormat,
    /// The folder of the commands, by default the build tree.
    pub directory: Option<String>,
    /// Further environment variables of the commands.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// How often perfquilt repeats a failing test.
    #[serde(default = "default_repeat")]
    pub repeat: u32,
    /// The time after which perfquilt ends a command, by default `"2h"`.
    #[serde(default, deserialize_with = "seconds::deserialize")]
    pub timeout: Option<Duration>,
    /// Whether root becomes an ordinary user, in a user namespace, for tests that refuse root.
    #[serde(default)]
    pub ordinary_user: bool,
}

fn default_repeat() -> u32 {
    3
}

impl TestSuite {
    /// Returns the words of the commands and of the environment, each with its path below the section.
    pub(super) fn words(&self) -> Vec<(Vec<String>, &str)> {
        let mut words = Vec::new();
        list("targets", &self.targets, &mut words);
        for (index, command) in self.prepare.iter().enumerate() {
            list(&format!("prepare.{index}"), command, &mut words);
        }
        list("command", &self.command, &mut words);
        list("select", &self.select, &mut words);
        let directory = self.directory.iter();
        words.extend(directory.map(|word| (vec!["directory".to_owned()], word.as_str())));
        words.extend(self.env.iter().map(|(name, word)| {
            let path = vec!["env".to_owned(), name.clone()];
            (path, word.as_str())
        }));
        words
    }

    /// Checks the section of the recipe called `name`, which ninja builds if `with_ninja` is set.
    pub(super) fn check(&self, name: &str, with_ninja: bool, document: &Document) -> Result<()> {
        let section = ["recipe", name, "test"];
        let complain = |key: &str, fault: &str| {
            let setting = [&section[..], &[key]].concat();
            Err(document.error(&setting, format!("the tests of recipe `{name}`: {fault}")))
        };
        if self.command.first().is_none_or(String::is_empty) {
            return complain("command", "`command` is empty");
        }
        let mut prepare = self.prepare.iter();
        if prepare.any(|words| words.first().is_none_or(String::is_empty)) {
            return complain("prepare", "`prepare` has an empty command");
        }
        if !self.targets.is_empty() && !with_ninja {
            return complain(
                "targets",
                "`targets` are ninja's; `prepare` runs what this recipe needs",
            );
        }
        let placeholder = format!("{{{TESTS_PLACEHOLDER}}}");
        if !self.select.is_empty() && !self.select.iter().any(|word| word.contains(&placeholder)) {
            return complain(
                "select",
                "`select` needs {tests}, the tests to run, or it runs all of them",
            );
        }
        Ok(())
    }

    /// Refuses unknown placeholders in the section of the recipe called `name`; `values` has those of recipes.
    pub(super) fn check_placeholders(
        &self,
        name: &str,
        values: &BTreeMap<String, String>,
        document: &Document,
    ) -> Result<()> {
        let mut of_select = values.clone();
        of_select.insert(TESTS_PLACEHOLDER.to_owned(), String::new());
        for (path, word) in self.words() {
            let known = if path[0] == "select" {
                &of_select
            } else {
                values
            };
            expand_word(word, known).map_err(|error| {
                let mut setting = vec!["recipe", name, "test"];
                setting.extend(path.iter().map(String::as_str));
                document.locate(&setting, error)
            })?;
        }
        Ok(())
    }
}
