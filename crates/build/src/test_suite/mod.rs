//! Runs the server's own tests in the work tree of a point, and keeps the results by content.
//!
//! Results are in `CACHE/tests/KEY/tests.json`. KEY is a digest of the server's key (tree, recipe, tool chain) and of
//! the section `test` with the files that it names, so the same tests of the same tree run once.

mod format;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use regex::Regex;

use crate::{BuildItem, Builder, Line, Log, ProgramRun, SourceTree, WorkTree, run_within};
use format::{ResultReader, WHOLE};
use perfquilt_config::{TESTS_PLACEHOLDER, TestFormat, TestSuite, expand, expand_word, read_files};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress::{self, Step};
use perfquilt_model::server_tests::{TestOutcome, TestRecord};
use perfquilt_system::process::{Command, last_lines};
use perfquilt_system::{caches, digest, files};

/// The default limit of a command.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(2 * 3600);
/// Part of every key: raised when the same output would be read differently.
const FORMAT_VERSION: &str = "perfquilt-tests 4";
/// File of a cached result.
const RECORD: &str = "tests.json";
/// Lines of output in an error.
const SHOWN_LINES: usize = 20;

/// Names that can be part of a command: other names may be read as options or by a shell.
static SELECTABLE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^[A-Za-z0-9_./][A-Za-z0-9_./:+-]*$").ok());

/// Runs the tests of one recipe and release.
#[derive(Debug)]
pub struct SuiteRunner<'a> {
    builder: &'a Builder,
    suite: &'a TestSuite,
    /// Digest of the suite.
    digest: String,
}

impl<'a> SuiteRunner<'a> {
    /// Creates a runner of the tests of `builder`'s recipe.
    pub fn new(builder: &'a Builder) -> Result<Self> {
        let Some(suite) = builder.suite() else {
            let recipe = &builder.recipe_name;
            return Err(
                Error::recipe(format!("recipe `{recipe}` has no tests")).hint(format!(
                    "add a section [recipe.{recipe}.test], which docs/testing.md describes"
                )),
            );
        };
        // Repetitions and limits do not change what a run finds.
        let deciding = TestSuite {
            repeat: 0,
            timeout: None,
            ..suite.clone()
        };
        let mut parts = vec![FORMAT_VERSION.into(), format!("{deciding:?}").into_bytes()];
        let words = [&suite.command, &suite.select].into_iter().flatten();
        let words = words
            .chain(suite.prepare.iter().flatten())
            .chain(suite.env.values());
        for (name, bytes) in read_files(words.map(String::as_str), &builder.config)? {
            parts.extend([name.into_bytes(), bytes]);
        }
        Ok(SuiteRunner {
            builder,
            suite,
            digest: digest::of(parts)[..40].to_owned(),
        })
    }

    /// Returns how often failing tests are repeated.
    pub fn repetitions(&self) -> u32 {
        self.suite.repeat
    }

    /// Returns the results of the git tree `tree` if the cache has them and they count.
    pub fn cached(&self, tree: &str) -> Option<TestRecord> {
        let folder = self.folder(tree);
        if !self.builder.answers.counts(&folder.to_string_lossy()) {
            return None;
        }
        let path = folder.join(RECORD);
        let text = std::fs::read(&path).ok()?;
        let record: TestRecord = serde_json::from_slice(&text).ok()?;
        caches::touch(&path);
        (record.suite == self.digest).then_some(record)
    }

    /// Returns the results of `item`, from the cache or from a run of all tests. `expected` is the number of tests, if
    /// known.
    ///
    /// # Errors
    /// The errors of [`Builder::build`]; [`Kind::Bench`](perfquilt_model::error::Kind::Bench) when the tests cannot be
    /// run or end without results; [`Kind::Interrupted`](perfquilt_model::error::Kind::Interrupted).
    pub fn run(
        &self,
        item: &BuildItem,
        expected: Option<u64>,
        source: &dyn SourceTree,
    ) -> Result<TestRecord> {
        if let Some(record) = self.cached(&item.tree) {
            return Ok(record);
        }
        let mut log = Log::create(&self.log_path(item, ""))?;
        let record = self
            .builder
            .in_work_tree(item, source, &mut log, &mut |tree, log| {
                let step = progress::begin(&format!("testing {}", item.label), expected);
                let mut record = TestRecord {
                    suite: self.digest.clone(),
                    ..TestRecord::default()
                };
                self.run_once(tree, None, &mut record, log, (step.as_ref(), expected))
                    .map_err(|error| self.of_item(item, error, log))?;
                let failed = record.failed().count();
                step.finish(&format!(
                    "tested {}: {} tests, {failed} failed",
                    item.label,
                    record.tests.len()
                ));
                Ok(record)
            })?;
        self.keep(&item.tree, &record)?;
        Ok(record)
    }

    /// Runs the tests called `names` of `item` until each has `runs` results, adds the results to `record`, and keeps
    /// them.
    pub fn repeat(
        &self,
        item: &BuildItem,
        (names, runs): (&[String], u32),
        record: &mut TestRecord,
        source: &dyn SourceTree,
    ) -> Result<()> {
        let has = |record: &TestRecord, name: &String| {
            record
                .tests
                .get(name)
                .is_some_and(|counts| counts.runs() >= runs)
        };
        if names.iter().all(|name| has(record, name)) {
            return Ok(());
        }
        let mut log = Log::create(&self.log_path(item, "-repeated"))?;
        self.builder
            .in_work_tree(item, source, &mut log, &mut |tree, log| {
                let label = format!("repeating {} tests of {}", names.len(), item.label);
                let step = progress::begin(&label, None);
                // A test that is skipped this time would never have all its runs.
                for _ in 0..runs {
                    let open: Vec<String> = names
                        .iter()
                        .filter(|name| !has(record, name))
                        .cloned()
                        .collect();
                    if open.is_empty() {
                        break;
                    }
                    self.run_once(tree, Some(&open), record, log, (step.as_ref(), None))
                        .map_err(|error| self.of_item(item, error, log))?;
                }
                step.finish("");
                Ok(())
            })?;
        self.keep(&item.tree, record)
    }

    /// Runs all tests once, or those called `only`, and adds the results to `record`.
    fn run_once(
        &self,
        tree: &WorkTree<'_>,
        only: Option<&[String]>,
        record: &mut TestRecord,
        log: &mut Log,
        (step, total): (&dyn Step, Option<u64>),
    ) -> Result<()> {
        for words in &self.suite.prepare {
            let ran = self.execute(tree, &expand(words, &tree.values)?, log, &mut |line| {
                step.update(0, total, line);
            })?;
            if !ran.success {
                return Err(died(&ran, "a command of `prepare`"));
            }
        }
        let mut reader = ResultReader::new(self.suite.format)?;
        let words = match only {
            Some(only) => self.selecting(tree, only)?,
            None => expand(&self.suite.command, &tree.values)?,
        };
        let ran = self.execute(tree, &words, log, &mut |line| {
            if let Some(name) = reader.line(line) {
                let name = name.to_owned();
                step.update(reader.len() as u64, total, &name);
            }
        })?;
        let mut results = reader.finish();
        if self.suite.format == TestFormat::ExitStatus {
            let outcome = if ran.success {
                TestOutcome::Passed
            } else {
                TestOutcome::Failed
            };
            results.insert(WHOLE.to_owned(), outcome);
        }
        if results.is_empty() {
            return Err(died(&ran, "the tests").hint(
                "no line of the output is the result of a test; check `command` and `format` of the recipe's tests",
            ));
        }
        let failed = results
            .values()
            .any(|outcome| *outcome == TestOutcome::Failed);
        if !ran.success && !failed {
            return Err(died(&ran, "the tests, of which none failed,"));
        }
        if let Some(only) = only {
            results.retain(|name, _| only.contains(name));
        }
        record.add(&results, ran.elapsed.as_secs_f64());
        Ok(())
    }

    /// Returns the command that runs the tests called `names`, or all tests where that is impossible.
    fn selecting(&self, tree: &WorkTree<'_>, names: &[String]) -> Result<Vec<String>> {
        // A combination (`main.x 'innodb'`) is not part of the name by which a test is chosen.
        let mut chosen: Vec<&str> = names
            .iter()
            .map(|name| {
                name.split_once(" '")
                    .map_or(name.as_str(), |(name, _)| name)
            })
            .collect();
        chosen.dedup();
        let selectable = |name: &&str| {
            SELECTABLE
                .as_ref()
                .is_some_and(|pattern| pattern.is_match(name))
        };
        if self.suite.select.is_empty() || !chosen.iter().all(selectable) {
            return expand(&self.suite.command, &tree.values);
        }
        let mut values = tree.values.clone();
        values.insert(TESTS_PLACEHOLDER.to_owned(), chosen.join(" "));
        let placeholder = format!("{{{TESTS_PLACEHOLDER}}}");
        let mut words = Vec::new();
        for word in &self.suite.select {
            if *word == placeholder {
                words.extend(chosen.iter().map(|name| (*name).to_owned()));
            } else {
                words.push(expand_word(word, &values)?);
            }
        }
        Ok(words)
    }

    fn execute(
        &self,
        tree: &WorkTree<'_>,
        words: &[String],
        log: &mut Log,
        listener: &mut dyn FnMut(&str),
    ) -> Result<ProgramRun> {
        let directory = match &self.suite.directory {
            Some(directory) => PathBuf::from(expand_word(directory, &tree.values)?),
            None => tree.build.clone(),
        };
        let command = Command::from_words(words)?.directory(&directory);
        let mut command = tree.work.command(command, &tree.env);
        for (name, value) in &self.suite.env {
            command = command.env(name, expand_word(value, &tree.values)?);
        }
        if self.suite.ordinary_user {
            command = command.ordinary_user();
        }
        let limit = self.suite.timeout.unwrap_or(DEFAULT_TIMEOUT);
        run_within(&command, log, Some(limit), &mut |line| {
            listener(line);
            Line::Output
        })
    }

    /// Returns the folder of the results of `tree`.
    fn folder(&self, tree: &str) -> PathBuf {
        let key = &digest::of([&self.builder.key(tree), &self.digest])[..40];
        self.builder.cache_dir.join("tests").join(key)
    }

    fn keep(&self, tree: &str, record: &TestRecord) -> Result<()> {
        let text = serde_json::to_vec(record).map_err(Error::json)?;
        let folder = self.folder(tree);
        files::write_file(&folder.join(RECORD), &text)?;
        self.builder.answers.add(&folder.to_string_lossy());
        Ok(())
    }

    /// Returns the path of the log of the tests of `item`.
    pub fn log_path(&self, item: &BuildItem, suffix: &str) -> PathBuf {
        let build_log = self.builder.log_path(item);
        let name = build_log.file_name().unwrap_or_default().to_string_lossy();
        let name = name.replacen("build-", "test-", 1);
        let name = name.strip_suffix(".log").unwrap_or(&name);
        self.builder.logs.join(format!("{name}{suffix}.log"))
    }

    /// Adds the point and the log to an error.
    fn of_item(&self, item: &BuildItem, error: Error, log: &Log) -> Error {
        let log = format!("the whole log: {}", shown(&log.path));
        let error = error.details([format!("in {}", item.label)]);
        error.hint_after(&log)
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Returns the error of a command that failed.
fn died(ran: &ProgramRun, what: &str) -> Error {
    let output = last_lines(&ran.output.join("\n"), SHOWN_LINES);
    Error::test_suite(format!("{what} {}", ran.ended)).details(output)
}
