//! Runs ninja and reports progress from its status lines.

use std::collections::{BTreeSet, HashSet};
use std::path::{Component, Path, PathBuf};

use super::ninja_log::{NinjaLog, StepTimes, attribute};
use super::plan::StepPlan;
use super::run::{Line, Log, ProgramRun, run_within};
use super::work::Work;
use perfquilt_model::error::Result;
use perfquilt_model::progress::Step;
use perfquilt_system::process::Command;

/// Prefix of every status line; no compiler writes it.
const MARK: &str = "@perfquilt@ ";

/// Arguments of one run of ninja.
pub(super) struct Ninja<'a> {
    pub work: &'a Work,
    pub targets: &'a [String],
    pub jobs: usize,
    pub env: &'a [(String, String)],
}

/// A finished run of ninja.
pub(super) struct NinjaRun {
    pub program: ProgramRun,
    pub times: StepTimes,
}

impl Ninja<'_> {
    fn command(&self) -> Command {
        let command = Command::new("ninja")
            .directory(&self.work.build())
            .env("NINJA_STATUS", format!("{MARK}%f %t "))
            .args(["-j".to_owned(), self.jobs.to_string()]);
        self.work.command(command, self.env)
    }

    /// Builds the targets. A failed build is not an error here, as in [`run_within`].
    pub(super) fn run(&self, log: &mut Log, step: &dyn Step) -> Result<NinjaRun> {
        let before = NinjaLog::read(&self.work.build());
        let mut plan = self.plan(&before)?;
        let mut linked = HashSet::new();
        let command = self.command().args(self.targets);
        let program = run_within(&command, log, None, &mut |line| match parse_status(line) {
            Some((done, total, description)) => {
                if description.starts_with("Linking ")
                    && let Some(output) = description.split_whitespace().next_back()
                {
                    linked.insert(output.to_owned());
                }
                let weighed = plan.advance(description, done, total);
                step.update(weighed, Some(total), short(description));
                Line::Status(format!("[{done}/{total}] {description}"))
            }
            None => Line::Output,
        })?;
        let after = NinjaLog::read(&self.work.build());
        let times = attribute(&after.since(&before), &|output| linked.contains(output));
        Ok(NinjaRun { program, times })
    }

    /// Lists the steps of a dry run; empty without timings of earlier runs, which it needs for weights.
    fn plan(&self, before: &NinjaLog) -> Result<StepPlan> {
        if before.is_empty() {
            return Ok(StepPlan::default());
        }
        let output = self.command().arg("-n").args(self.targets).run()?;
        let text = output.stdout_text();
        let steps = text
            .lines()
            .filter_map(parse_status)
            .map(|(_, _, description)| description.to_owned());
        Ok(StepPlan::new(steps, before))
    }
}

/// Returns the files below `src` whose changes ninja knows to follow in the build tree `build`: named in its rules, or by a
/// compiler.
pub(super) fn followed(build: &Path, src: &Path, targets: &[String]) -> BTreeSet<String> {
    let list = |args: &[&str]| {
        let command = Command::new("ninja").directory(build).args(["-t"]);
        let output = command.args(args).run();
        // A file that is not listed is built from a clean tree, which is right and slow.
        output.map_or_else(|_| String::new(), |output| output.stdout_text())
    };
    let targets = targets.iter().map(String::as_str);
    let inputs: Vec<&str> = ["inputs", "build.ninja"]
        .into_iter()
        .chain(targets)
        .collect();
    [list(&["deps"]), list(&inputs)]
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(|line| {
            normal(&build.join(line.trim()))
                .strip_prefix(src)
                .ok()
                .map(shown)
        })
        .collect()
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Resolves `.` and `..` in a path by its text.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut done, part| {
        match part {
            Component::ParentDir => {
                done.pop();
            }
            Component::CurDir => {}
            part => done.push(part),
        }
        done
    })
}

fn parse_status(line: &str) -> Option<(u64, u64, &str)> {
    let mut fields = line.strip_prefix(MARK)?.splitn(3, ' ');
    let done = fields.next()?.parse().ok()?;
    let total = fields.next()?.parse().ok()?;
    Some((done, total, fields.next()?.trim()))
}

/// Returns `item_func.cc.o` for `Building CXX object sql/CMakeFiles/sql.dir/item_func.cc.o`.
fn short(description: &str) -> &str {
    let last = description.split_whitespace().next_back().unwrap_or("");
    last.rsplit('/').next().unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_lines_are_distinguished_from_output() {
        let line = "@perfquilt@ 3 10 Building C object x/a.c.o";
        assert_eq!(
            parse_status(line),
            Some((3, 10, "Building C object x/a.c.o"))
        );
        assert_eq!(short("Building C object x/a.c.o"), "a.c.o");
        for other in ["FAILED: x/a.c.o", "@perfquilt@ x 10 y", "@perfquilt@ 3"] {
            assert_eq!(parse_status(other), None, "{other}");
        }
    }
}
