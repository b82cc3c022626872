//! Runs the release's own sql-bench: Perl programs that time many kinds of statements.
//!
//! All points use the programs of the bare release, so that a patch cannot change its own benchmark.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::command::{CommandClient, CommandSettings, Runs};
use super::{
    BlockSlices, Client, ClientFailure, Environment, Requests, Setup, TimedBlock, WorkloadKind,
    settings,
};
use crate::server::Running;
use perfquilt_config::Section;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::point::Point;
use perfquilt_model::progress;
use perfquilt_series::upstream;
use perfquilt_system::process::{Command, find_program};

/// Folder of sql-bench in a release's tree.
const FOLDER: &str = "sql-bench";

/// Lines about operations, with the pattern of sql-bench's `run-all-tests` extended by exponents: with fractions of
/// seconds enabled, Perl's Benchmark module writes `4.1e-05`.
const OPERATIONS: &str = r"(?mi)^(?:estimated )?time (?:to|for) (?P<name>[^\s:]+)\s*\((?P<commands>\d+)(?::\d+)*\)[^:\n]*:[ \t]*(?P<seconds>[-+.e\d]+) ";

/// The line with the total time at the end.
const TOTAL: &str = r"(?mi)^total time:\s*([-+.e\d]+) ";

/// Timeout of a program in seconds. The longest one took a quarter of an hour on spinning disks.
const LIMIT_SECONDS: u64 = 7200;

/// The kind `sql-bench`.
pub(super) const KIND: WorkloadKind = WorkloadKind {
    name: "sql-bench",
    client: |workload| {
        Ok(Box::new(SqlBench {
            name: workload.name.clone(),
            settings: settings(workload)?,
            section: workload.settings.clone(),
        }))
    },
};

/// `[sql_bench]`: settings of a sql-bench workload.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct SqlBenchSettings {
    /// The program: `select` is `sql-bench/test-select` in the release's tree.
    program: String,
    /// The engine of its tables.
    #[serde(default = "myisam")]
    engine: String,
    /// Whether the program does only about a hundredth of its work.
    #[serde(default)]
    small: bool,
    /// Further command-line options of the program.
    #[serde(default)]
    options: Vec<String>,
}

fn myisam() -> String {
    "MyISAM".to_owned()
}

/// A workload of one program of sql-bench.
#[derive(Debug)]
struct SqlBench {
    name: String,
    settings: SqlBenchSettings,
    section: Section,
}

impl Client for SqlBench {
    fn identity(&self) -> Result<Vec<Vec<u8>>> {
        Ok(vec![format!("{:?}", self.settings).into_bytes()])
    }

    fn words(&self) -> Vec<String> {
        let options = self.settings.options.iter().cloned();
        std::iter::once("perl".to_owned()).chain(options).collect()
    }

    fn set_up(&self, setup: &Setup<'_>) -> Result<()> {
        let folder = setup.folder.join(FOLDER);
        if !folder.exists() {
            unpack_release(setup, &folder)?;
        }
        check(&self.settings, &self.section, &folder)
    }

    fn trace(
        &self,
        environment: &Environment,
        running: &Running,
        tracer: Vec<OsString>,
    ) -> Result<()> {
        self.client(environment).trace(environment, running, tracer)
    }

    fn after_start(&self, environment: &Environment, running: &Running) -> Result<()> {
        self.client(environment).after_start(environment, running)
    }

    fn interleave(
        &self,
        environment: &Environment,
        servers: &mut [(Point, Running)],
        block: &TimedBlock<'_>,
    ) -> Result<BlockSlices, ClientFailure> {
        let client = self.client(environment);
        client.interleave(environment, servers, block)
    }

    fn connect<'a>(
        &'a self,
        environment: &'a Environment,
        _running: &Running,
        _seed: u64,
    ) -> Result<Box<dyn Requests + 'a>> {
        Ok(Box::new(Runs(Cow::Owned(self.client(environment)))))
    }
}

impl SqlBench {
    /// Returns the client that runs the program.
    fn client(&self, environment: &Environment) -> CommandClient {
        CommandClient {
            name: self.name.clone(),
            settings: command(&self.settings, &environment.folder().join(FOLDER)),
        }
    }
}

/// Unpacks the sql-bench of the measured release into `folder`.
fn unpack_release(setup: &Setup<'_>, folder: &Path) -> Result<()> {
    let fetched = || upstream::ensure(setup.workspace, Some(setup.release));
    let release = progress::silently(fetched)?;
    let Some(files) = upstream::files_of(setup.workspace, &release, FOLDER)? else {
        let fault = format!("{} comes without {FOLDER}", release.name);
        return Err(Error::workload(fault)
            .hint("choose workloads of another kind, or a release that has it"));
    };
    unpack(&files, folder)
}

/// Writes the programs into `folder` under their installed names, without `.sh`.
fn unpack(files: &[(PathBuf, Vec<u8>)], folder: &Path) -> Result<()> {
    for (path, content) in files {
        let path = match path.extension() {
            Some(extension) if extension == "sh" => path.with_extension(""),
            _ => path.clone(),
        };
        let target = folder.join(path);
        let parent = target.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent).map_err(|e| Error::io("create", parent, &e))?;
        std::fs::write(&target, content).map_err(|e| Error::io("write", &target, &e))?;
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&target, mode).map_err(|e| Error::io("write", &target, &e))?;
    }
    Ok(())
}

/// Refuses unusable settings before anything is built or started for them.
fn check(settings: &SqlBenchSettings, section: &Section, folder: &Path) -> Result<()> {
    if !folder.join(program(settings)).is_file() {
        let programs = programs(folder);
        let error = Error::workload(format!(
            "this release's {FOLDER} has no program `{}`",
            settings.program
        ));
        return Err(section
            .locate(&["program"], error)
            .hint(format!("available: {}", programs.join(", "))));
    }
    let Some(perl) = find_program("perl") else {
        return Err(missing("perl", "perl"));
    };
    let driver = driver(folder);
    let loaded = Command::new(&perl)
        .args(["-MDBI", &format!("-MDBD::{driver}"), "-e", "1"])
        .run()?;
    if loaded.success() {
        Ok(())
    } else {
        Err(missing(
            &format!("Perl's DBD::{driver}"),
            &format!("libdbd-{}-perl", driver.to_lowercase()),
        )
        .details(loaded.tail(2)))
    }
}

fn missing(what: &str, package: &str) -> Error {
    Error::program_missing(format!("{FOLDER} needs {what}, which is not installed")).hint(format!(
        "install Debian's package {package}; `perfquilt doctor` lists everything that is missing"
    ))
}

/// Returns the Perl driver named in the programs: `MariaDB`, or `mysql` in releases before 10.11.
fn driver(folder: &Path) -> String {
    let text = std::fs::read(folder.join("server-cfg")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let named = text.split("\"DBI:").skip(1).find_map(|rest| {
        let name = rest.split(':').next()?;
        ["MariaDB", "mysql"]
            .into_iter()
            .find(|known| *known == name)
    });
    named.unwrap_or("MariaDB").to_owned()
}

fn program(settings: &SqlBenchSettings) -> String {
    format!("test-{}", settings.program)
}

/// Lists the available programs.
fn programs(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            name.strip_prefix("test-").map(str::to_owned)
        })
        .collect();
    names.sort();
    names
}

/// Returns the program as a client command; `folder` is where sql-bench was unpacked.
fn command(settings: &SqlBenchSettings, folder: &Path) -> CommandSettings {
    let words =
        |words: &[&str]| -> Vec<String> { words.iter().map(|word| (*word).to_owned()).collect() };
    let mut run = words(&[
        "perl",
        // Enables fractions of seconds; the programs' own --hires has no effect.
        "-MBenchmark=:hireswallclock",
        &program(settings),
        "--silent",
        "--socket={socket}",
        "--user=root",
        "--database=test",
        &format!("--create-options=ENGINE={}", settings.engine),
    ]);
    run.extend(settings.small.then(|| "--small-test".to_owned()));
    run.extend(settings.options.iter().cloned());
    CommandSettings {
        prepare: Some(words(&[
            "{server}/bin/mariadb",
            "--no-defaults",
            // From 11.4 on the client requires TLS by default, which the recipe's server may lack.
            "--skip-ssl",
            "--socket={socket}",
            "--user=root",
            "-e",
            "CREATE DATABASE IF NOT EXISTS test",
        ])),
        run,
        directory: Some(folder.to_string_lossy().into_owned()),
        transactions: 1,
        rate: None,
        seconds: Some(TOTAL.to_owned()),
        operations: Some(OPERATIONS.to_owned()),
        threads: 1,
        warm_up: false,
        limit_seconds: LIMIT_SECONDS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_operations_are_parsed() {
        let pattern = regex::Regex::new(OPERATIONS).unwrap();
        let lines = [
            (
                "Time for select_simple_join (50:150):  0.01234 wallclock secs ( 0.01 usr  0.00 sys =  0.01 CPU)",
                Some(("select_simple_join", "50", "0.01234")),
            ),
            (
                "Estimated time for select_big (70:17207): 12 wallclock secs (8.76 usr 0.05 sys + 0.00 cusr 0.00 csys = 8.81 CPU)",
                Some(("select_big", "70", "12")),
            ),
            (
                "Time to connect+select_1_row (1000): 4.1e-05 wallclock secs ( 0.00 usr + 0.00 sys = 0.00 CPU)",
                Some(("connect+select_1_row", "1000", "4.1e-05")),
            ),
            ("Total time: 11 wallclock secs (7 usr)", None),
            ("Time for a thing without a number: 3 secs", None),
        ];
        for (line, expected) in lines {
            let found = pattern.captures(line);
            let found = found
                .as_ref()
                .map(|found| (&found["name"], &found["commands"], &found["seconds"]));
            assert_eq!(found, expected, "{line}");
        }
        // A line without a time must not take the time of the next line.
        let two =
            "Time for an_operation (1)\nTime for insert_select_1_key (1):  0.0022 wallclock secs\n";
        let found: Vec<&str> = pattern
            .captures_iter(two)
            .map(|found| found.name("name").unwrap().as_str())
            .collect();
        assert_eq!(found, ["insert_select_1_key"]);
        let total = regex::Regex::new(TOTAL).unwrap();
        assert_eq!(
            &total
                .captures("x\nTotal time: 11.2345 wallclock secs (7 usr)")
                .unwrap()[1],
            "11.2345"
        );
    }

    #[test]
    fn programs_are_unpacked_under_their_installed_names() {
        let folder = tempfile::tempdir().unwrap();
        let files = [
            (PathBuf::from("test-a.sh"), b"#!".to_vec()),
            (PathBuf::from("Data/x/y.txt"), b"1".to_vec()),
            (
                PathBuf::from("server-cfg.sh"),
                b"  $self->{'data_source'} = \"DBI:mysql:database=$d\";".to_vec(),
            ),
        ];
        unpack(&files, folder.path()).unwrap();
        assert!(folder.path().join("Data/x/y.txt").is_file());
        assert_eq!(programs(folder.path()), ["a"]);
        assert_eq!(driver(folder.path()), "mysql");
    }
}
