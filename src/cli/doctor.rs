//! `perfquilt doctor`: checks this machine for what the workspace needs.

use std::fmt::Write;

use clap::Args;

use super::Context;
use super::output::size;
use super::plain::{plain, plain_lines};
use perfquilt_config::workspace::cache_dir;
use perfquilt_machine::doctor::{DoctorReport, Need, PackageStatus, RECOMMENDED_DISK, examine};
use perfquilt_model::error::{Error, Result};
use perfquilt_report::wrap;

/// Check that this machine has what the workspace needs.
///
/// Outside a workspace, it checks what every workspace needs. It exits with 2 when something required is missing;
/// the last line is then the command that installs it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt doctor
  perfquilt doctor --json | jq -r .repair")]
pub struct Arguments {}

/// Runs `perfquilt doctor`.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) for missing requirements or a wrong configuration.
pub fn run(context: &Context, _arguments: &Arguments) -> Result<()> {
    let workspace = context.workspace_if_any()?;
    let cache = match &workspace {
        Some(workspace) => workspace.cache().to_owned(),
        None => cache_dir()?,
    };
    let examination = examine(workspace.as_ref(), &cache)?;
    if context.output.json() {
        context.output.print_json(&examination)?;
    } else {
        let text = text(&examination, context.output.width());
        context.output.print(&plain_lines(&text))?;
    }
    if workspace.is_none() {
        context.output.progress().note(
            "no workspace here: only general requirements were checked (name one with `-C DIR`)",
        );
    }
    match examination.missing().as_slice() {
        [] => Ok(()),
        missing => Err(Error::usage(format!("missing: {}", missing.join(", ")))),
    }
}

fn text(examination: &DoctorReport, columns: usize) -> String {
    let mut text = String::from("programs and packages\n");
    let found = &examination.packages;
    let width = |of: fn(&PackageStatus) -> usize| found.iter().map(of).max().unwrap_or(0);
    let name = width(|found| found.package.len());
    let version = width(|found| found.version.as_ref().map_or(0, |v| v.len().min(24)));
    for found in found {
        let state = match (found.present, found.need) {
            (true, _) => "ok",
            (false, Need::Required) => "MISSING",
            (false, Need::Recommended) => "missing",
            (false, Need::Optional) => "-",
        };
        let need = match found.need {
            Need::Required => "",
            Need::Recommended => " (recommended)",
            Need::Optional => " (optional)",
        };
        let mut shown = found.version.clone().unwrap_or_default();
        shown.truncate(24);
        let head = format!(
            "  {state:<7}  {:<name$}  {shown:<version$}  ",
            found.package
        );
        let indent = head.chars().count();
        let room = columns.saturating_sub(indent).max(20);
        let lines = wrap(&format!("{}{need}", found.purpose), room);
        let _ = writeln!(text, "{head}{}", lines.join(&format!("\n{:indent$}", "")));
    }
    let machine = &examination.machine;
    let _ = writeln!(text, "\nthis machine");
    let _ = writeln!(
        text,
        "  processor  {} × {}",
        machine.cores, machine.processor
    );
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
        let _ = writeln!(
            text,
            "  counting   no readable hardware counters: valgrind counts instructions and simulates\n             \
             the instruction cache; cycles, branch_misses and frontend_bound are unavailable"
        );
    }
    for (place, (meter, events)) in machine.counters.iter().enumerate() {
        let head = if place == 0 { "counting" } else { "" };
        let _ = writeln!(text, "  {head:<10} {meter}: {events}");
    }
    let sandbox = match &machine.no_sandbox {
        None => "works (bubblewrap)".to_owned(),
        Some(why) => format!("none, so untrusted patches are not run: {why}"),
    };
    let _ = writeln!(text, "  sandbox    {sandbox}");
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
                "install what is missing with"
            };
            let _ = writeln!(text, "\n{head}\n  {}", plain(command));
        }
    }
    text
}
