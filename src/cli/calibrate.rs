//! `perfquilt calibrate`: does the method keep its promises, in simulation and on this machine?

use std::path::{Path, PathBuf};

use clap::Args;

use super::Context;
use super::bench::with_blocks;
use super::form::writable;
use perfquilt_calibrate::{Page, Real, Simulated};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_system::files::write_file;

/// Arguments of `perfquilt calibrate`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt calibrate --experiments 1000             a quick look
  perfquilt calibrate --output docs/calibration.md   the whole, with drawings beside the page
  perfquilt calibrate --bisect --output docs/calibration.md   bisections, beside what others do
  perfquilt calibrate --real --repeats 20            the release against itself, on this machine")]
pub struct Arguments {
    /// Simulated experiments a scenario
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10_000,
        conflicts_with = "real"
    )]
    experiments: usize,
    /// The seed of the simulation: the same gives the same figures
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "real")]
    seed: u64,
    /// Simulate bisections instead, a tenth as many a case
    #[arg(long, conflicts_with = "real")]
    bisect: bool,
    /// Measure the bare release against copies of itself, instead of simulating
    #[arg(long)]
    real: bool,
    /// Experiments of --real; finished ones are not measured again
    #[arg(long, value_name = "N", default_value_t = 20, requires = "real")]
    repeats: u32,
    /// The preset of --real
    #[arg(long, value_name = "NAME", default_value = "quick", requires = "real")]
    preset: String,
    /// Copies of the release in the place of patches, for --real
    #[arg(long, value_name = "N", default_value_t = 4, requires = "real")]
    copies: usize,
    /// Another number of blocks than the preset's, for --real
    #[arg(long, value_name = "N", requires = "real")]
    blocks: Option<u32>,
    /// Write the results into their part of this Markdown page, drawings beside it
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs `perfquilt calibrate`.
///
/// # Errors
/// [`Kind::Usage`] for nonsensical numbers, and when there is no place for the page; [`Kind::Internal`] when a file
/// cannot be written, once the results are printed;
/// [`Kind::Inconclusive`] when a promise is not kept; those of [`perfquilt_calibrate::real::real`].
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    if let Some(file) = &arguments.output {
        writable(file)?;
        old(file)?;
    }
    match (arguments.real, arguments.bisect) {
        (true, _) => real(context, arguments),
        (false, true) => bisected(context, arguments),
        (false, false) => simulated(context, arguments),
    }
}

fn bisected(context: &Context, arguments: &Arguments) -> Result<()> {
    if arguments.experiments == 0 {
        return Err(Error::usage("--experiments is at least 1"));
    }
    let sessions = arguments.experiments.div_ceil(10);
    let found =
        perfquilt_calibrate::bisections(sessions, arguments.seed, context.output.progress())?;
    let written = match &arguments.output {
        Some(file) => update(file, |page| page.with("bisections", &found.markdown())),
        None => Ok(()),
    };
    if context.output.json() {
        context.output.print_json(&found)?
    } else {
        context.output.print(&found.text())?
    }
    context.output.told(kept(found.faults()), written)
}

/// The error that stands for promises that are not kept.
fn kept(faults: Vec<String>) -> Result<()> {
    if faults.is_empty() {
        Ok(())
    } else {
        Err(Error::new(Kind::Inconclusive, "not every promise is kept").details(faults))
    }
}

fn simulated(context: &Context, arguments: &Arguments) -> Result<()> {
    if arguments.experiments == 0 {
        return Err(Error::usage("--experiments is at least 1"));
    }
    let progress = context.output.progress();
    let found = perfquilt_calibrate::simulated(arguments.experiments, arguments.seed, progress)?;
    let written = match &arguments.output {
        Some(file) => write_simulated(file, &found),
        None => Ok(()),
    };
    if context.output.json() {
        context.output.print_json(&found)?
    } else {
        context.output.print(&perfquilt_calibrate::text(&found))?
    }
    context.output.told(kept(found.faults()), written)
}

fn write_simulated(file: &Path, found: &Simulated) -> Result<()> {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    update(file, |page| page.with("simulated", &found.markdown(&stem)))?;
    for (name, svg) in found.plots()? {
        let plot = file.with_file_name(format!("{stem}-{name}"));
        write_file(&plot, svg.as_bytes())?;
    }
    Ok(())
}

fn real(context: &Context, arguments: &Arguments) -> Result<()> {
    if arguments.repeats == 0 || arguments.copies == 0 {
        return Err(Error::usage("--repeats and --copies are at least 1"));
    }
    let ws = context.workspace()?;
    let preset = ws.config.preset(&arguments.preset)?.clone();
    let preset = with_blocks(preset, arguments.blocks)?;
    // What is known is written after every experiment: it takes hours, and may be stopped.
    let mut keep = |found: &Real| match &arguments.output {
        Some(file) => update(file, |page| page.with("real", &found.markdown())),
        None => Ok(()),
    };
    let found = perfquilt_calibrate::real::real(
        &ws,
        &preset,
        &arguments.preset,
        arguments.copies,
        arguments.repeats,
        context.output.progress(),
        &mut keep,
    )?;
    if context.output.json() {
        context.output.print_json(&found)?
    } else {
        context.output.print(&found.markdown())?
    }
    match found.claims() + found.counted_claims() {
        0 => Ok(()),
        claims => Err(Error::new(
            Kind::Inconclusive,
            format!("{claims} verdicts claim a difference between copies of the same server"),
        )),
    }
}

fn update(file: &Path, change: impl FnOnce(Page) -> Page) -> Result<()> {
    write_file(file, change(Page::new(old(file)?)).text().as_bytes())
}

/// The page as it is, if there is one.
fn old(file: &Path) -> Result<Option<String>> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", file, &error)),
    }
}
