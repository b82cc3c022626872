//! `perfquilt doctor`: checks this machine for what the workspace needs.

use std::fmt::Write;

use clap::Args;
use serde::Serialize;

use super::Context;
use super::choices;
use super::output::{pad, size};
use super::plain::{plain, plain_lines};
use perfquilt_bench::doctor::{CacheUsage, DoctorReport, Machine, RECOMMENDED_DISK, examine};
use perfquilt_bench::sandbox::Protection;
use perfquilt_bot::bot_protections;
use perfquilt_cluster::doctor::{self, Check};
use perfquilt_config::packages::{PackageStatus, Requirement};
use perfquilt_config::workspace::{Workspace, cache_dir};
use perfquilt_measure::experiment::ask_machine;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress;
use perfquilt_report::{width, wrap};

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
        (Some(on), Some(workspace)) => cluster_checks(workspace, on),
        (Some(_), None) => {
            return Err(Error::doctor(
                "`--on` needs a workspace, whose [cluster] it checks",
            ));
        }
        (None, _) => Vec::new(),
    };
    let protections = match (&workspace, arguments.bot) {
        (Some(workspace), true) => bot_protections(workspace),
        (None, true) => {
            return Err(Error::doctor(
                "`--bot` needs the workspace that the bot serves",
            ));
        }
        (_, false) => Vec::new(),
    };
    let document = Document {
        report: &examination,
        cluster: &checks,
        protections: &protections,
    };
    let (columns, all) = (context.output.width(), context.global.verbose > 0);
    let text = || plain_lines(&text(&document, columns, all));
    context.output.result(&document, text)?;
    if workspace.is_none() {
        progress::note(
            "no workspace here: only general requirements were checked (name one with `-C DIR`)",
        );
    }
    if let Some(failed) = checks.iter().find(|check| !check.ok) {
        return Err(Error::doctor(format!("{}: {}", failed.what, failed.found)));
    }
    match examination.missing().as_slice() {
        [] => Ok(()),
        missing => Err(Error::doctor(format!("missing: {}", missing.join(", ")))),
    }
}

/// Checks the queue and the shared folders, and runs a job unless one of these is not as it must be.
fn cluster_checks(workspace: &Workspace, on: &str) -> Vec<Check> {
    let mut checks = doctor::examine(workspace, on);
    if checks.iter().any(|check| !check.ok) {
        return checks;
    }
    let described = ask_machine(workspace, on).map(|facts| {
        let fact = |name: &str| facts.get(name).map_or("unknown", String::as_str);
        let (cores, processor) = (fact("cores"), fact("processor"));
        let (memory, scheduling) = (fact("memory"), fact("scheduling"));
        format!("{cores} × {processor}, {memory}, scheduling {scheduling}")
    });
    checks.push(Check::of("job", described));
    checks
}

/// Text in parts, each below its heading, in lines of at most `columns` columns.
struct Listing {
    text: String,
    columns: usize,
}

impl Listing {
    /// Begins a part.
    fn heading(&mut self, text: &str) {
        let gap = if self.text.is_empty() { "" } else { "\n" };
        let _ = writeln!(self.text, "{gap}{text}");
    }

    /// Appends rows: their first cells in columns, the last one wrapped beside them.
    fn rows<const N: usize>(&mut self, rows: &[([String; N], String)]) {
        let widths: [usize; N] = std::array::from_fn(|at| {
            let cells = rows.iter().map(|(cells, _)| width(&cells[at]));
            cells.max().unwrap_or(0)
        });
        for (cells, words) in rows {
            let padded = cells.iter().zip(widths);
            let head: String = padded
                .map(|(cell, room)| format!("{}  ", pad(cell, room)))
                .collect();
            let indent = 2 + width(&head);
            let lines = wrap(words, self.columns.saturating_sub(indent).max(20));
            let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
            let words = lines.join(&format!("\n{:indent$}", ""));
            let _ = writeln!(self.text, "  {head}{words}");
        }
    }

    /// Appends a line to a part.
    fn line(&mut self, text: &str) {
        let _ = writeln!(self.text, "  {text}");
    }

    /// Appends the limits on code of pull requests, with what would make one hold.
    fn protections(&mut self, protections: &[Protection]) {
        if protections.is_empty() {
            return;
        }
        self.heading("limits on code of pull requests");
        let mut rows = Vec::new();
        for one in protections {
            let state = if one.holds { "ok" } else { "PARTLY" };
            let cells = [state.to_owned(), one.what.to_owned()];
            rows.push((cells, plain(&one.found)));
            if let Some(otherwise) = &one.otherwise {
                let cells = [String::new(), String::new()];
                rows.push((cells, format!("better: {}", plain(otherwise))));
            }
        }
        self.rows(&rows);
    }

    /// Appends the packages, those that are present only if `all` are to be listed.
    fn packages(&mut self, packages: &[PackageStatus], all: bool) {
        const LONGEST_VERSION: usize = 24;
        self.heading("programs and packages");
        let shown = packages.iter().filter(|found| all || !found.present);
        let rows: Vec<_> = shown
            .map(|found| {
                let (state, need) = match (found.present, found.need) {
                    (true, Requirement::Required) => ("ok", ""),
                    (true, Requirement::Recommended) => ("ok", " (recommended)"),
                    (true, Requirement::Optional) => ("ok", " (optional)"),
                    (false, Requirement::Required) => ("MISSING", ""),
                    (false, Requirement::Recommended) => ("missing", " (recommended)"),
                    (false, Requirement::Optional) => ("-", " (optional)"),
                };
                let version = found.version.as_deref().unwrap_or_default();
                let version = version.chars().take(LONGEST_VERSION).collect();
                let cells = [state.to_owned(), found.package.to_owned(), version];
                (cells, format!("{}{need}", found.purpose))
            })
            .collect();
        self.rows(&rows);
        let hidden = packages.len() - rows.len();
        if hidden > 0 {
            self.line(&format!("{hidden} are there (`-v` lists them)"));
        }
    }

    fn machine(&mut self, machine: &Machine) {
        self.heading("this machine");
        let mut rows = Vec::new();
        let mut row = |name: &str, words: String| rows.push(([name.to_owned()], words));
        row(
            "processor",
            format!("{} × {}", machine.cores, machine.processor),
        );
        if let Some(words) = quota(machine) {
            row("quota", words);
        }
        row(
            "memory",
            format!(
                "{} ({} available)",
                size(machine.memory),
                size(machine.memory_available)
            ),
        );
        let short = if machine.disk_free < RECOMMENDED_DISK {
            format!("; a large server needs {}", size(RECOMMENDED_DISK))
        } else {
            String::new()
        };
        row(
            "disk",
            format!("{} free for the caches{short}", size(machine.disk_free)),
        );
        row(
            "RAM disk",
            match machine.ram_disk_free {
                0 => "none: servers' data will be on disk".to_owned(),
                free => format!("{} free (/dev/shm)", size(free)),
            },
        );
        if machine.counters.is_empty() {
            row(
                "counting",
                "no readable hardware counters: valgrind counts instructions and simulates the instruction \
                 cache; cycles, branch_misses and frontend_bound are unavailable"
                    .to_owned(),
            );
        }
        for (place, (meter, events)) in machine.counters.iter().enumerate() {
            let name = if place == 0 { "counting" } else { "" };
            row(name, format!("{meter}: {events}"));
        }
        row(
            "sampling",
            match (machine.sampling, &machine.no_sampling) {
                (Some(unit), _) => format!("{unit} by function: `perfquilt profile --source perf`"),
                (None, why) => format!("none: {}", why.as_deref().unwrap_or("unknown")),
            },
        );
        row(
            "sandbox",
            match &machine.no_sandbox {
                None => "works (bubblewrap)".to_owned(),
                Some(why) => format!("none, so untrusted patches are not run: {why}"),
            },
        );
        self.rows(&rows);
    }

    fn caches(&mut self, caches: &[CacheUsage]) {
        if caches.is_empty() {
            return;
        }
        self.heading("caches");
        let room = caches
            .iter()
            .map(|held| width(&held.what))
            .max()
            .unwrap_or(0);
        for held in caches {
            let path = plain(&held.path.to_string_lossy());
            let (what, bytes) = (pad(&held.what, room), size(held.bytes));
            self.line(&format!("{what}  {bytes:>9}  {path}"));
        }
        self.line("`perfquilt clean` removes what was unused for 30 days");
    }

    fn cluster(&mut self, checks: &[Check]) {
        if checks.is_empty() {
            return;
        }
        self.heading("cluster");
        let rows: Vec<_> = checks
            .iter()
            .map(|check| {
                let state = if check.ok { "ok" } else { "FAILED" };
                let cells = [state.to_owned(), check.what.to_owned()];
                (cells, plain(&check.found))
            })
            .collect();
        self.rows(&rows);
    }

    /// Appends what is missing, with the command that installs it.
    fn result(&mut self, examination: &DoctorReport) {
        match (&examination.repair, examination.ok) {
            (None, _) => self.heading("nothing is missing"),
            (Some(command), ok) => {
                self.heading(if ok {
                    "complete the setup with"
                } else {
                    "install the missing packages with"
                });
                self.line(&plain(command));
            }
        }
    }
}

/// Formats the report, with the packages that are present only if `all` are to be listed.
fn text(document: &Document<'_>, columns: usize, all: bool) -> String {
    let mut listing = Listing {
        text: String::new(),
        columns,
    };
    let report = document.report;
    listing.protections(document.protections);
    listing.packages(&report.packages, all);
    listing.machine(&report.machine);
    listing.caches(&report.caches);
    listing.cluster(document.cluster);
    if let Some(release) = &report.release {
        listing.heading("release");
        let state = if release.imported {
            "fetched"
        } else {
            "not fetched yet"
        };
        listing.line(&format!("{}  {state}", release.name));
    }
    listing.result(report);
    listing.text
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
