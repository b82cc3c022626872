//! Slurm: jobs are tasks of arrays, found again by name. Accounting is not needed.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{CALL_TIMEOUT, JobArray, JobState, Listing, Scheduler, failure};
use perfquilt_config::Section;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_system::process::{Command, Output, quoted};

/// Reasons for which a pending job never starts by itself (`squeue`'s `%r`).
const NEVER: [&str; 8] = [
    "AssocGrpNodeLimit",
    "BadConstraints",
    "DependencyNeverSatisfied",
    "JobHeldAdmin",
    "JobHeldUser",
    "PartitionNodeLimit",
    "PartitionTimeLimit",
    "launch failed requeued held",
];

/// `[cluster.slurm]`: Slurm's settings.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Slurm {
    /// Further options of `sbatch`: `["--partition=measure", "--account=perf"]`.
    options: Vec<String>,
}

impl Slurm {
    /// Reads the settings.
    pub fn read(section: &Section) -> Result<Self> {
        let slurm: Slurm = section.parse()?.unwrap_or_default();
        let own = [
            "--array",
            "-a",
            "--job-name",
            "-J",
            "--export",
            "--exclusive",
            "--wrap",
        ];
        let name = |option: &String| option.split('=').next().unwrap_or_default().to_owned();
        if let Some(option) = slurm
            .options
            .iter()
            .map(name)
            .find(|name| own.contains(&name.as_str()))
        {
            let fault = format!("`{option}` is set by perfquilt");
            return Err(section.error(&["options"], fault));
        }
        Ok(slurm)
    }

    fn arguments(&self, array: &JobArray) -> Vec<String> {
        let tasks: Vec<String> = array.tasks.iter().map(u32::to_string).collect();
        let mut arguments = vec![
            "--parsable".to_owned(),
            // A submitter's environment is stored with the job, secrets included.
            "--export=NONE".to_owned(),
            // A lost task is submitted again by the coordinator: Slurm waits two minutes, and may hold it.
            "--no-requeue".to_owned(),
            "--exclusive".to_owned(),
            "--nodes=1".to_owned(),
            format!("--job-name={}", array.name),
            format!("--array={}", tasks.join(",")),
            format!("--time={}", array.minutes),
            format!("--chdir={}", array.folder.display()),
            format!("--output={}/%x-%a.log", array.folder.display()),
        ];
        if !array.class.is_empty() {
            arguments.push(format!("--constraint={}", array.class));
        }
        if !array.not_on.is_empty() {
            arguments.push(format!("--exclude={}", array.not_on.join(",")));
        }
        arguments.extend(self.options.iter().cloned());
        arguments
    }
}

/// Returns the script of an array's tasks.
fn script(array: &JobArray) -> String {
    let program = quoted(&array.program.display().to_string());
    let folder = quoted(&array.folder.display().to_string());
    let task = "task-\"$SLURM_ARRAY_TASK_ID\".json";
    let machine = "--machine \"$SLURMD_NODENAME\"";
    format!("#!/bin/sh\nexec {program} worker {machine} {folder}/{task}\n")
}

fn call(program: &str, arguments: &[String], stdin: &str) -> Result<Output> {
    // Jobs are cancelled when a signal asks this program to stop.
    let mut command = Command::new(program)
        .args(arguments)
        .network()
        .uninterruptible()
        .stdin(stdin);
    // Where Slurm's configuration is, unless at the usual place.
    if let Some(path) = std::env::var_os("SLURM_CONF") {
        command = command.env("SLURM_CONF", path);
    }
    command.run_within(CALL_TIMEOUT)
}

/// Parses `squeue`'s lines `NAME|JOB_TASK|STATE|NODE|REASON`.
fn parse(text: &str) -> BTreeMap<(String, u32), JobState> {
    let task = |line: &str| {
        let mut fields = line.trim().splitn(5, '|');
        let mut next = || fields.next().unwrap_or_default();
        let (name, id, state, node, reason) = (next(), next(), next(), next(), next());
        let task = id.rsplit_once('_')?.1.parse().ok()?;
        let state = match state {
            "PENDING" if NEVER.contains(&reason) => JobState::Held(reason.to_owned()),
            "PENDING" | "REQUEUED" | "REQUEUE_FED" | "SUSPENDED" | "STOPPED" => JobState::Queued,
            "REQUEUE_HOLD" | "SPECIAL_EXIT" | "RESV_DEL_HOLD" => JobState::Held(reason.to_owned()),
            "RUNNING" | "CONFIGURING" | "COMPLETING" | "STAGE_OUT" | "SIGNALING" | "RESIZING" => {
                JobState::Running(node.to_owned())
            }
            _ => JobState::Ended,
        };
        Some(((name.to_owned(), task), state))
    };
    let mut found = BTreeMap::new();
    for (key, state) in text.lines().filter_map(task) {
        // A task that was submitted twice is as far as the further one.
        let entry = found.entry(key).or_insert(JobState::Ended);
        if *entry == JobState::Ended || matches!(state, JobState::Running(_)) {
            *entry = state;
        }
    }
    found
}

impl Scheduler for Slurm {
    fn submit(&self, array: &JobArray) -> Result<()> {
        let output = call("sbatch", &self.arguments(array), &script(array))?;
        if output.success() {
            return Ok(());
        }
        let text = output.stderr_text();
        let refused =
            text.contains("Batch job submission failed") && !text.contains("Unable to contact");
        let kind = if refused { Kind::Usage } else { Kind::Bench };
        Err(Error::scheduler("sbatch did not take the jobs")
            .of_kind(kind)
            .details(output.tail(5)))
    }

    fn list(&self, names: &[String]) -> Listing {
        // Its JSON ignores filters and changes with versions; these fields do not.
        let arguments = [
            "-h",
            "-t",
            "all",
            "--array",
            "-n",
            &names.join(","),
            "-o",
            "%j|%i|%T|%N|%r",
        ];
        match call("squeue", &arguments.map(str::to_owned), "") {
            Ok(output) if output.success() => Listing::Known(parse(&output.stdout_text())),
            Ok(output) => Listing::Unknown(failure("squeue", &output)),
            Err(error) => Listing::Unknown(error.message().to_owned()),
        }
    }

    fn cancel(&self, names: &[String]) -> Result<()> {
        // It takes one name a call; jobs that have ended are no error.
        let each = names
            .iter()
            .map(|name| call("scancel", &[format!("--name={name}")], ""));
        let failed: Vec<String> = each
            .filter_map(|output| match output {
                Ok(output) if output.success() => None,
                Ok(output) => Some(output.tail(1).join("")),
                Err(error) => Some(error.message().to_owned()),
            })
            .collect();
        if failed.is_empty() {
            return Ok(());
        }
        Err(Error::scheduler("scancel failed").details(failed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array() -> JobArray {
        JobArray {
            name: "perfquilt-k-0-1".into(),
            tasks: vec![0, 3],
            class: "epyc".into(),
            folder: "/shared/it's".into(),
            program: "/opt/perfquilt".into(),
            minutes: 30,
            not_on: vec!["n1".into()],
        }
    }

    #[test]
    fn states_are_read() {
        let text = "a|7_0|RUNNING|n1|None\na|7_3|PENDING||Resources\na|7_4|PENDING||BadConstraints\n\
                    a|7_5|NODE_FAIL|n2|None\nb|8_0|COMPLETED|n1|None\nb|9_0|RUNNING|n2|None\n\
                    b|8_1|PENDING||launch failed requeued held\nnonsense\nx|7|RUNNING|n1|None\n";
        let found = parse(text);
        let state = |name: &str, task: u32| found[&(name.to_owned(), task)].clone();
        assert_eq!(state("a", 0), JobState::Running("n1".into()));
        assert_eq!(state("a", 3), JobState::Queued);
        assert_eq!(state("a", 4), JobState::Held("BadConstraints".into()));
        assert_eq!(state("a", 5), JobState::Ended);
        // Submitted twice: one attempt runs.
        assert_eq!(state("b", 0), JobState::Running("n2".into()));
        assert!(matches!(state("b", 1), JobState::Held(_)));
        assert_eq!(found.len(), 6);
    }

    #[test]
    fn the_environment_stays_at_home_and_paths_are_quoted() {
        let arguments = Slurm::default().arguments(&array());
        for option in [
            "--export=NONE",
            "--no-requeue",
            "--exclusive",
            "--array=0,3",
            "--constraint=epyc",
            "--exclude=n1",
        ] {
            assert!(
                arguments.iter().any(|argument| argument == option),
                "{option}"
            );
        }
        let script = script(&array());
        assert!(
            script.ends_with("/task-\"$SLURM_ARRAY_TASK_ID\".json\n"),
            "{script}"
        );
        assert!(script.contains("\"/shared/it's\"/task-"), "{script}");
    }
}
