//! Simulates experiments and bisections whose answers are known, and checks the promises of docs/statistics.md with them.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use serde::Serialize;

use perfquilt_calibrate::Page;
use perfquilt_model::error::{Error, Result};
use perfquilt_simulate::{Bisections, Simulated, bisections, costs, simulated, text};
use perfquilt_system::files::write_file;

/// Simulates experiments with known answers.
#[derive(Debug, Parser)]
#[command(name = "simulate")]
struct Arguments {
    /// The subject of the simulation
    #[arg(value_enum, default_value_t = Subject::Experiments)]
    subject: Subject,
    /// Number of experiments per scenario; of bisections per case a tenth of it
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    experiments: u32,
    /// Seed of the simulation: the same seed gives the same figures
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Simulate only the promises whose names contain this
    #[arg(long, value_name = "TEXT", conflicts_with = "output")]
    only: Option<String>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// Markdown page to update with the results; tables go beside it
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Subject {
    /// Intervals and verdicts of experiments
    Experiments,
    /// Bisections
    Bisections,
    /// Seconds that experiments cost; no page has them
    Costs,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody reads it where it cannot be written.
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::from(error.kind().exit_code())
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let experiments = usize::try_from(arguments.experiments).unwrap_or(usize::MAX);
    let (seed, page) = (arguments.seed, arguments.output.as_deref());
    match arguments.subject {
        Subject::Experiments => {
            let found = simulated(experiments, seed, arguments.only.as_deref())?;
            print(arguments, &found, &text(&found))?;
            page.map_or(Ok(()), |file| write_simulated(file, &found))?;
            refuse(found.faults())
        }
        Subject::Bisections => {
            let found = bisections(experiments.div_ceil(10), seed)?;
            print(arguments, &found, &found.text())?;
            page.map_or(Ok(()), |file| write_bisected(file, &found))?;
            refuse(found.faults())
        }
        Subject::Costs => {
            let found = costs(experiments, seed)?;
            print(arguments, &found, &found.text())
        }
    }
}

fn print(arguments: &Arguments, found: &impl Serialize, text: &str) -> Result<()> {
    let text = if arguments.json {
        serde_json::to_string_pretty(found)
            .map_err(|error| Error::internal(format!("cannot write the figures: {error}")))?
    } else {
        text.to_owned()
    };
    writeln!(std::io::stdout(), "{}", text.trim_end())
        .map_err(|error| Error::internal(format!("cannot print the figures: {error}")))
}

fn refuse(faults: Vec<String>) -> Result<()> {
    if faults.is_empty() {
        return Ok(());
    }
    let faults = faults.join("\n  ");
    Err(Error::inconclusive(format!(
        "not every promise is kept:\n  {faults}"
    )))
}

fn write_simulated(file: &Path, found: &Simulated) -> Result<()> {
    let [scenarios, checks] = ["scenarios.tsv", "checks.tsv"].map(|name| beside(file, name));
    let body = found.markdown(&scenarios, &checks);
    Page::calibration(file)?.with("simulated", &body).save()?;
    write_file(
        &file.with_file_name(scenarios),
        found.scenarios().as_bytes(),
    )?;
    write_file(&file.with_file_name(checks), found.table().as_bytes())
}

fn write_bisected(file: &Path, found: &Bisections) -> Result<()> {
    let table = beside(file, "bisections.tsv");
    let body = found.markdown(&table);
    Page::calibration(file)?.with("bisections", &body).save()?;
    write_file(&file.with_file_name(table), found.table().as_bytes())
}

/// Returns the name of a file of results beside the page `file`.
fn beside(file: &Path, name: &str) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    format!("{stem}-{name}")
}
