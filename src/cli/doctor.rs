//! `perfquilt doctor`: checks this machine for what the workspace needs.

use std::fmt::Write;

use clap::Args;
use serde::Serialize;

use super::Context;
use super::choices;
use super::output::size;
use super::plain::{plain, plain_lines};
use perfquilt_bench::doctor::{DoctorReport, Machine, RECOMMENDED_DISK, examine};
use perfquilt_bench::sandbox::Protection;
use perfquilt_bot::bot_protections;
use perfquilt_cluster::doctor::{self, Check};
use perfquilt_config::packages::{PackageStatus, Requirement};
use perfquilt_config::workspace::{Workspace, cache_dir};
use perfquilt_measure::experiment::ask_machine;
use perfquilt_model::error::{Error, Result};
use perfquilt_report::wrap;

/// Check that this machine has what the workspace needs.
///
/// Outside a workspace, it checks what every workspace needs. It exits with 2 when something required is missing;
/// the last line is then the command that installs it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt doctor
  perfquilt doctor -v              also list what is installed
  perfquilt doctor --on slurm
  perfquilt doctor --bot
  perfquilt doctor --json | jq -r .repair")]
pub struct Arguments {
    /// Check a cluster too, by running a job on it: slurm or command, with the settings of [cluster]
    #[arg(long, value_name = "SCHEDULER", value_parser = choices::scheduler)]
    on: Option<String>,
    /// Say which limits on code of pull requests this machine enforces, and how to get the others
    #[arg(long)]
    bot: bool,
}

/// The report on this machine, and on a cluster if one was named.
#[derive(Debug, Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    report: &'a DoctorReport,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cluster: &'a Vec<Check>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    protections: &'a Vec<Protection>,
}

/// Runs `perfquilt doctor`.
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let workspace = context.workspace_if_any()?;
    let cache = match &workspace {
        Some(workspace) => workspace.cache().to_owned(),
        None => cache_dir()?,
    };
    let examination = examine(workspace.as_ref(), &cache)?;
    let checks = match (&arguments.on, &workspace) {
        (Some(on), Some(workspace)) => cluster_checks(context, workspace, on),
        (Some(_), None) => {
            return Err(Error::usage(
                "`--on` needs a workspace, whose [cluster] it checks",
            ));
        }
        (None, _) => Vec::new(),
    };
    let protections = match (&workspace, arguments.bot) {
        (Some(workspace), true) => bot_protections(workspace),
        (None, true) => {
            return Err(Error::usage(
                "`--bot` needs the workspace that the bot serves",
            ));
        }
        (_, false) => Vec::new(),
    };
    if context.output.json() {
        context.output.print_json(&Document {
            report: &examination,
            cluster: &checks,
            protections: &protections,
        })?;
    } else {
        let columns = context.output.width();
        let all = context.global.verbose > 0;
        let text = protected(&protections, columns) + &text(&examination, &checks, columns, all);
        context.output.print(&plain_lines(&text))?;
    }
    if workspace.is_none() {
        context.output.progress().note(
            "no workspace here: only general requirements were checked (name one with `-C DIR`)",
        );
    }
    if let Some(failed) = checks.iter().find(|check| !check.ok) {
        return Err(Error::usage(format!("{}: {}", failed.what, failed.found)));
    }
    match examination.missing().as_slice() {
        [] => Ok(()),
        missing => Err(Error::usage(format!("missing: {}", missing.join(", ")))),
    }
}

/// Checks the queue and the shared folders, and runs a job unless one of these is not as it must be.
fn cluster_checks(context: &Context, workspace: &Workspace, on: &str) -> Vec<Check> {
    let mut checks = doctor::examine(workspace, on);
    if checks.iter().any(|check| !check.ok) {
        return checks;
    }
    let facts = ask_machine(workspace, on, context.output.progress());
    checks.push(match facts {
        Ok(facts) => {
            let of = |name: &str| facts.get(name).map_or("unknown", String::as_str);
            Check {
                what: "job",
                ok: true,
                found: format!(
                    "{} × {}, {}, scheduling {}",
                    of("cores"),
                    of("processor"),
                    of("memory"),
                    of("scheduling")
                ),
            }
        }
        Err(error) => Check {
            what: "job",
            ok: false,
            found: error.to_string(),
        },
    });
    checks
}

/// Describes which limits on code of pull requests hold; empty for none.
fn protected(protections: &[Protection], columns: usize) -> String {
    let mut text = String::new();
    if protections.is_empty() {
        return text;
    }
    text.push_str("limits on code of pull requests\n");
    let width = protections.iter().map(|one| one.what.len()).max();
    let width = width.unwrap_or(0);
    for one in protections {
        let state = if one.holds { "ok" } else { "PARTLY" };
        let head = format!("  {state:<6}  {:<width$}  ", one.what);
        entry(&mut text, &head, &plain(&one.found), columns);
        if let Some(otherwise) = &one.otherwise {
            let head = format!("  {:<6}  {:<width$}  ", "", "");
            entry(
                &mut text,
                &head,
                &format!("better: {}", plain(otherwise)),
                columns,
            );
        }
    }
    text.push('\n');
    text
}

/// Appends `head` and `words`, wrapped beside it.
fn entry(text: &mut String, head: &str, words: &str, columns: usize) {
    let indent = head.chars().count();
    let lines = wrap(words, columns.saturating_sub(indent).max(20));
    let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    let _ = writeln!(text, "{head}{}", lines.join(&format!("\n{:indent$}", "")));
}

/// Formats the report, with the packages that are present only if `all` are to be listed.
fn text(examination: &DoctorReport, checks: &[Check], columns: usize, all: bool) -> String {
    let mut text = String::from("programs and packages\n");
    let found = examination.packages.iter();
    let found: Vec<&PackageStatus> = found.filter(|found| all || !found.present).collect();
    let width = |of: fn(&PackageStatus) -> usize| found.iter().copied().map(of).max().unwrap_or(0);
    let name = width(|found| found.package.len());
    let version = width(|found| found.version.as_ref().map_or(0, |v| v.len().min(24)));
    for found in &found {
        let state = match (found.present, found.need) {
            (true, _) => "ok",
            (false, Requirement::Required) => "MISSING",
            (false, Requirement::Recommended) => "missing",
            (false, Requirement::Optional) => "-",
        };
        let need = match found.need {
            Requirement::Required => "",
            Requirement::Recommended => " (recommended)",
            Requirement::Optional => " (optional)",
        };
        let mut shown = found.version.clone().unwrap_or_default();
        shown.truncate(24);
        let head = format!(
            "  {state:<7}  {:<name$}  {shown:<version$}  ",
            found.package
        );
        entry(
            &mut text,
            &head,
            &format!("{}{need}", found.purpose),
            columns,
        );
    }
    let hidden = examination.packages.len() - found.len();
    if hidden > 0 {
        let _ = writeln!(text, "  {hidden} are there (`-v` lists them)");
    }
    let machine = &examination.machine;
    let _ = writeln!(text, "\nthis machine");
    let _ = writeln!(
        text,
        "  processor  {} × {}",
        machine.cores, machine.processor
    );
    if let Some(words) = quota(machine) {
        entry(&mut text, "  quota      ", &words, columns);
    }
    let _ = writeln!(
        text,
        "  memory     {} ({} available)",
        size(machine.memory),
        size(machine.memory_available)
    );
    let short = if machine.disk_free < RECOMMENDED_DISK {
        format!("; a large server needs {}", size(RECOMMENDED_DISK))
    } else {
        String::new()
    };
    let _ = writeln!(
        text,
        "  disk       {} free for the caches{short}",
        size(machine.disk_free)
    );
    let ram_disk = match machine.ram_disk_free {
        0 => "none: servers' data will be on disk".to_owned(),
        free => format!("{} free (/dev/shm)", size(free)),
    };
    let _ = writeln!(text, "  RAM disk   {ram_disk}");
    if machine.counters.is_empty() {
        let words = "no readable hardware counters: valgrind counts instructions and simulates the instruction \
                     cache; cycles, branch_misses and frontend_bound are unavailable";
        entry(&mut text, "  counting   ", words, columns);
    }
    for (place, (meter, events)) in machine.counters.iter().enumerate() {
        let head = if place == 0 { "counting" } else { "" };
        entry(
            &mut text,
            &format!("  {head:<10} "),
            &format!("{meter}: {events}"),
            columns,
        );
    }
    let sampling = match (machine.sampling, &machine.no_sampling) {
        (Some(unit), _) => format!("{unit} by function: `perfquilt profile --source perf`"),
        (None, why) => format!("none: {}", why.as_deref().unwrap_or("unknown")),
    };
    entry(&mut text, "  sampling   ", &sampling, columns);
    let sandbox = match &machine.no_sandbox {
        None => "works (bubblewrap)".to_owned(),
        Some(why) => format!("none, so untrusted patches are not run: {why}"),
    };
    entry(&mut text, "  sandbox    ", &sandbox, columns);
    if !examination.caches.is_empty() {
        let _ = writeln!(text, "\ncaches");
        let width = examination.caches.iter().map(|held| held.what.len()).max();
        let width = width.unwrap_or(0);
        for held in &examination.caches {
            let _ = writeln!(
                text,
                "  {:<width$}  {:>9}  {}",
                held.what,
                size(held.bytes),
                plain(&held.path.to_string_lossy())
            );
        }
        text.push_str("  `perfquilt clean` removes what was unused for 30 days\n");
    }
    if !checks.is_empty() {
        text.push_str("\ncluster\n");
        let width = checks
            .iter()
            .map(|check| check.what.len())
            .max()
            .unwrap_or(0);
        for check in checks {
            let state = if check.ok { "ok" } else { "FAILED" };
            let head = format!("  {state:<6}  {:<width$}  ", check.what);
            entry(&mut text, &head, &plain(&check.found), columns);
        }
    }
    if let Some(release) = &examination.release {
        let state = if release.imported {
            "fetched"
        } else {
            "not fetched yet"
        };
        let _ = writeln!(text, "\nrelease\n  {}  {state}", release.name);
    }
    match (&examination.repair, examination.ok) {
        (None, _) => text.push_str("\nnothing is missing\n"),
        (Some(command), ok) => {
            let head = if ok {
                "complete the setup with"
            } else {
                "install the missing packages with"
            };
            let _ = writeln!(text, "\n{head}\n  {}", plain(command));
        }
    }
    text
}

/// Describes the processor quota of this process's control group, with what to do; `None` without one.
fn quota(machine: &Machine) -> Option<String> {
    let processors = machine.cpu_quota?;
    let throttled = if machine.throttled > 0.0 {
        format!(
            "; it has stopped processes for {:.1} s so far",
            machine.throttled
        )
    } else {
        String::new()
    };
    Some(format!(
        "{} processors ({}){throttled}. The kernel stops all processes for the rest of a period once they have used the \
         quota; give whole processors instead (`cpuset`, `docker run --cpuset-cpus`)",
        (processors * 100.0).round() / 100.0,
        machine.cpu_quota_file.as_deref().unwrap_or_default(),
    ))
}
