//! A scheduler of commands from the configuration, for queueing systems without an adapter.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use serde::Deserialize;

use super::{CALL_TIMEOUT, JobArray, JobState, Listing, Scheduler, failure};
use perfquilt_config::{Section, expand};
use perfquilt_model::error::{Error, Result};
use perfquilt_system::process::{Command, Output};
use perfquilt_system::threads::lock;

/// `[cluster.command]`: commands with placeholders. `submit` runs once for each task and knows `{name}` (of the task's
/// job), `{class}`, `{minutes}`, `{folder}` (of its files), `{program}`, `{file}` (of its task) and `{not_on}` (machines on which
/// the task failed before, separated by commas): the job is to run `PROGRAM worker FILE`. `cancel` knows `{name}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandScheduler {
    /// Queues a job that runs `PROGRAM worker FILE`; knows `{name}` (of the job), `{class}`, `{minutes}`, `{folder}`
    /// (of its files), `{program}`, `{file}` (of its task) and `{not_on}` (machines on which the task failed, separated
    /// by commas).
    submit: Vec<String>,
    /// Prints the state of each job on a line: its name, then `queued`, `held REASON`, `running MACHINE` or `ended`.
    /// Lines about other jobs are ignored.
    list: Vec<String>,
    /// Cancels the job `{name}`.
    cancel: Vec<String>,
    /// The processes that `submit` left in its process group.
    #[serde(skip)]
    cut_off: Mutex<BTreeSet<String>>,
}

impl CommandScheduler {
    /// Reads the settings.
    pub fn read(section: &Section) -> Result<Self> {
        let commands: CommandScheduler = section.parse()?.ok_or_else(|| {
            section.error(&[], "scheduler `command` needs a [cluster.command] section")
        })?;
        let known = |names: &[&str]| -> BTreeMap<String, String> {
            let named = names.iter().map(|name| ((*name).to_owned(), String::new()));
            named.collect()
        };
        let job = [
            "name", "class", "minutes", "folder", "program", "file", "not_on",
        ];
        for (key, words, names) in [
            ("submit", &commands.submit, &job[..]),
            ("list", &commands.list, &[]),
            ("cancel", &commands.cancel, &["name"]),
        ] {
            if words.first().is_none_or(String::is_empty) {
                return Err(section.error(&[key], format!("`{key}` is an empty command")));
            }
            expand(words, &known(names)).map_err(|error| section.locate(&[key], error))?;
        }
        Ok(commands)
    }
}

/// Returns the name of a task's job.
fn job_name(array: &str, task: u32) -> String {
    format!("{array}.{task}")
}

fn call(words: &[String]) -> Result<Output> {
    Command::from_words(words)?
        .network()
        .uninterruptible()
        .run_within(CALL_TIMEOUT)
}

/// Parses the lines of `list`.
fn parse(text: &str, names: &[String]) -> BTreeMap<(String, u32), JobState> {
    let job = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, state) = (words.next()?, words.next()?);
        let rest = words.collect::<Vec<&str>>().join(" ");
        let (array, task) = name.rsplit_once('.')?;
        if !names.iter().any(|name| name == array) {
            return None;
        }
        let state = match state {
            "queued" => JobState::Queued,
            "held" => JobState::Held(rest),
            "running" => JobState::Running(rest),
            "ended" => JobState::Ended,
            _ => return None,
        };
        Some(((array.to_owned(), task.parse().ok()?), state))
    };
    text.lines().filter_map(job).collect()
}

impl Scheduler for CommandScheduler {
    fn submit(&self, array: &JobArray) -> Result<()> {
        for &task in &array.tasks {
            let values = BTreeMap::from([
                ("name".to_owned(), job_name(&array.name, task)),
                ("class".to_owned(), array.class.clone()),
                ("minutes".to_owned(), array.minutes.to_string()),
                ("folder".to_owned(), array.folder.display().to_string()),
                ("program".to_owned(), array.program.display().to_string()),
                (
                    "file".to_owned(),
                    array.task_file(task).display().to_string(),
                ),
                ("not_on".to_owned(), array.not_on.join(",")),
            ]);
            let output = call(&expand(&self.submit, &values)?)?;
            if !output.success() {
                let fault = failure("`submit` of [cluster.command]", &output);
                return Err(Error::scheduler(fault));
            }
            lock(&self.cut_off).extend(output.cut_off);
        }
        Ok(())
    }

    fn list(&self, names: &[String]) -> Listing {
        match call(&self.list) {
            Ok(output) if output.success() => Listing::Known(parse(&output.stdout_text(), names)),
            Ok(output) => Listing::Unknown(failure("`list` of [cluster.command]", &output)),
            Err(error) => Listing::Unknown(error.message().to_owned()),
        }
    }

    fn cut_off(&self) -> BTreeSet<String> {
        lock(&self.cut_off).clone()
    }

    fn cancel(&self, names: &[String]) -> Result<()> {
        let Listing::Known(jobs) = self.list(names) else {
            return Err(Error::scheduler(
                "`list` of [cluster.command] failed, so nothing was cancelled",
            ));
        };
        let mut failed = Vec::new();
        for ((array, task), state) in jobs {
            if state == JobState::Ended {
                continue;
            }
            let values = BTreeMap::from([("name".to_owned(), job_name(&array, task))]);
            let output = call(&expand(&self.cancel, &values)?)?;
            if !output.success() {
                failed.extend(output.tail(1));
            }
        }
        if failed.is_empty() {
            return Ok(());
        }
        Err(Error::scheduler("`cancel` of [cluster.command] failed").details(failed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_says_so_with_what_it_wrote() {
        let scheduler = |submit: &str, list: &str| CommandScheduler {
            submit: ["sh", "-c", submit].map(str::to_owned).into(),
            list: ["sh", "-c", list].map(str::to_owned).into(),
            cancel: vec!["true".to_owned()],
            cut_off: Mutex::default(),
        };
        let array = JobArray {
            name: "p-1".into(),
            tasks: vec![0],
            class: String::new(),
            folder: "/".into(),
            program: "/bin/true".into(),
            minutes: 1,
            not_on: Vec::new(),
        };
        let failing = scheduler("echo no quota >&2; exit 3", "exit 4");
        let error = failing.submit(&array).unwrap_err();
        let words = "`submit` of [cluster.command] exited with 3: no quota";
        assert_eq!(error.message(), words);
        let words = "`list` of [cluster.command] exited with 4";
        assert_eq!(failing.list(&[]), Listing::Unknown(words.to_owned()));
        assert!(failing.cut_off().is_empty());
        // A job must be a process of its own.
        let background = scheduler("sleep 60 >&- 2>&- & :", "true");
        background.submit(&array).unwrap();
        assert_eq!(background.cut_off().len(), 1);
    }

    #[test]
    fn lines_of_others_are_ignored() {
        let text = "p-1.0 queued\np-1.3  held  no such class\np-1.4 running node 7\nother.1 running x\n\
                    p-1.x queued\np-1.5 ended\np-1.6 sleeping\n\n";
        let found = parse(text, &["p-1".to_owned()]);
        let state = |task: u32| found.get(&("p-1".to_owned(), task));
        assert_eq!(state(0), Some(&JobState::Queued));
        assert_eq!(state(3), Some(&JobState::Held("no such class".into())));
        assert_eq!(state(4), Some(&JobState::Running("node 7".into())));
        assert_eq!(state(5), Some(&JobState::Ended));
        assert_eq!(found.len(), 4);
    }
}
