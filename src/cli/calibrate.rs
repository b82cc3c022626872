//! `perfquilt calibrate`: checks the error rates of intervals and verdicts, by simulation or on this machine.

use std::path::{Path, PathBuf};

use clap::Args;

use super::Context;
use super::choices;
use super::measuring::DEFAULT_PRESET;
use super::measuring::with_blocks;
use super::output_file::writable;
use perfquilt_calibrate::real::RealRequest;
use perfquilt_calibrate::{Bisections, Page, Real, Simulated};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_system::files::write_file;

/// Arguments of `perfquilt calibrate`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt calibrate --experiments 1000             a quick check
  perfquilt calibrate --output docs/calibration.md   the full simulation, drawing and tables in files beside the page
  perfquilt calibrate --bisect --output docs/calibration.md   bisections
  perfquilt calibrate --real --repeats 20            the release against itself, on this machine")]
pub struct Arguments {
    /// Number of simulated experiments per scenario
    #[arg(
        long,
        value_name = "N",
        value_parser = choices::number::<usize>,
        default_value_t = 10_000,
        conflicts_with = "real"
    )]
    experiments: usize,
    /// Seed of the simulation: the same seed gives the same figures
    #[arg(long, value_name = "N", value_parser = choices::number::<u64>, default_value_t = 1, conflicts_with = "real")]
    seed: u64,
    /// Simulate bisections instead, a tenth as many per case
    #[arg(long, conflicts_with = "real")]
    bisect: bool,
    /// Simulate what experiments cost in seconds instead
    #[arg(long, conflicts_with_all = ["real", "bisect", "output"])]
    cost: bool,
    /// Measure the bare release against copies of itself, instead of simulating
    #[arg(long)]
    real: bool,
    /// Number of experiments of --real; finished ones are not repeated
    #[arg(long, value_name = "N", value_parser = choices::number::<u32>, default_value_t = 20, requires = "real")]
    repeats: u32,
    /// Preset of --real
    #[arg(long, value_name = "NAME", default_value = DEFAULT_PRESET, requires = "real")]
    preset: String,
    /// Number of copies of the release in place of patches, for --real
    #[arg(long, value_name = "N", value_parser = choices::number::<usize>, default_value_t = 4, requires = "real")]
    copies: usize,
    /// Number of blocks instead of the preset's, for --real
    #[arg(long, value_name = "N", value_parser = choices::number::<u32>, requires = "real")]
    blocks: Option<u32>,
    /// Markdown page to update with the results; drawing and tables go beside it
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs `perfquilt calibrate`.
///
/// # Errors
/// [`Kind::Usage`] for nonsensical numbers and a page that cannot be written; [`Kind::Internal`] when writing a file
/// fails, after the results are printed; [`Kind::Inconclusive`] when an error rate exceeds its limit; those of
/// [`perfquilt_calibrate::real::real`].
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    if let Some(file) = &arguments.output {
        writable(file)?;
        Page::calibration(file)?;
    }
    if arguments.cost {
        return cost(context, arguments);
    }
    match (arguments.real, arguments.bisect) {
        (true, _) => real(context, arguments),
        (false, true) => bisected(context, arguments),
        (false, false) => simulated(context, arguments),
    }
}

fn cost(context: &Context, arguments: &Arguments) -> Result<()> {
    refuse_none(arguments)?;
    let progress = context.output.progress();
    let found = perfquilt_calibrate::costs(arguments.experiments, arguments.seed, progress)?;
    if context.output.json() {
        context.output.print_json(&found)
    } else {
        context.output.print(&found.text())
    }
}

/// Refuses a simulation of no experiment.
fn refuse_none(arguments: &Arguments) -> Result<()> {
    if arguments.experiments == 0 {
        return Err(Error::usage("--experiments is at least 1"));
    }
    Ok(())
}

fn bisected(context: &Context, arguments: &Arguments) -> Result<()> {
    refuse_none(arguments)?;
    let sessions = arguments.experiments.div_ceil(10);
    let found =
        perfquilt_calibrate::bisections(sessions, arguments.seed, context.output.progress())?;
    let written = match &arguments.output {
        Some(file) => write_bisected(file, &found),
        None => Ok(()),
    };
    if context.output.json() {
        context.output.print_json(&found)?
    } else {
        context.output.print(&found.text())?
    }
    context
        .output
        .combine(refuse_faults(found.faults()), written)
}

/// Returns an error if there are `faults`.
fn refuse_faults(faults: Vec<String>) -> Result<()> {
    if faults.is_empty() {
        Ok(())
    } else {
        Err(Error::new(Kind::Inconclusive, "not every promise is kept").details(faults))
    }
}

fn simulated(context: &Context, arguments: &Arguments) -> Result<()> {
    refuse_none(arguments)?;
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
    context
        .output
        .combine(refuse_faults(found.faults()), written)
}

fn write_simulated(file: &Path, found: &Simulated) -> Result<()> {
    let (plot, table) = (beside(file, "errors.svg"), beside(file, "checks.tsv"));
    update(file, "simulated", &found.markdown(&plot, &table))?;
    write_file(&file.with_file_name(table), found.table().as_bytes())?;
    write_file(&file.with_file_name(plot), found.plot()?.as_bytes())
}

fn write_bisected(file: &Path, found: &Bisections) -> Result<()> {
    let table = beside(file, "bisections.tsv");
    update(file, "bisections", &found.markdown(&table))?;
    write_file(&file.with_file_name(table), found.table().as_bytes())
}

/// Returns the name of a file of results beside the page `file`.
fn beside(file: &Path, name: &str) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    format!("{stem}-{name}")
}

fn real(context: &Context, arguments: &Arguments) -> Result<()> {
    if arguments.repeats == 0 || arguments.copies == 0 {
        return Err(Error::usage("--repeats and --copies are at least 1"));
    }
    let ws = context.workspace()?;
    let preset = ws.config.preset(&arguments.preset)?.clone();
    let preset = with_blocks(preset, arguments.blocks)?;
    // The page is updated after every experiment, as all of them take hours and may be interrupted.
    let mut save = |found: &Real| match &arguments.output {
        Some(file) => update(file, "real", &found.markdown()),
        None => Ok(()),
    };
    let found = perfquilt_calibrate::real::real(
        &ws,
        &RealRequest {
            preset: &preset,
            name: &arguments.preset,
            copies: arguments.copies,
            repeats: arguments.repeats,
        },
        context.output.progress(),
        &mut save,
    )?;
    if context.output.json() {
        context.output.print_json(&found)?
    } else {
        context.output.print(&found.markdown())?
    }
    if found.breaks_promise() {
        let (claims, of) = (found.false_experiments(), found.repeats.len());
        let fault = format!(
            "{claims} of {of} experiments claim a difference between copies of the same server, more than chance explains"
        );
        return Err(Error::new(Kind::Inconclusive, fault));
    }
    Ok(())
}

/// Replaces a part of the page in `file`.
fn update(file: &Path, part: &str, body: &str) -> Result<()> {
    Page::calibration(file)?.with(part, body).save()
}
