//! `perfquilt calibrate`: measures the bare release against copies of itself on this machine.

use std::path::{Path, PathBuf};

use clap::Args;

use super::Context;
use super::choices;
use super::measuring::{DEFAULT_PRESET, FreshOption, with_blocks};
use super::output_file::writable;
use perfquilt_calibrate::{Calibration, Page, Request};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress;
use perfquilt_model::warning::Warning;

/// Arguments of `perfquilt calibrate`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt calibrate --repeats 1            a quick check of a new machine
  perfquilt calibrate --repeats 20           false claims, coverage; takes hours

Simulations with known answers are in the source tree: ci/calibrate")]
pub struct Arguments {
    /// Number of experiments; finished ones are not repeated
    #[arg(long, value_name = "N", value_parser = choices::number::<u32>, default_value_t = 20)]
    repeats: u32,
    /// Preset of the experiments
    #[arg(long, value_name = "NAME", default_value = DEFAULT_PRESET)]
    preset: String,
    /// Number of copies of the release in place of patches
    #[arg(long, value_name = "N", value_parser = choices::number::<usize>, default_value_t = 4)]
    copies: usize,
    /// Number of blocks instead of the preset's
    #[arg(long, value_name = "N", value_parser = choices::number::<u32>)]
    blocks: Option<u32>,
    #[command(flatten)]
    fresh: FreshOption,
    /// Markdown page to update with the results
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The name of what this command does, from when it also simulated
    #[arg(long, hide = true)]
    real: bool,
}

/// Runs `perfquilt calibrate`.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) for nonsensical numbers and a page that cannot be written; [`Kind::Inconclusive`](perfquilt_model::error::Kind::Inconclusive) when more experiments
/// than chance explains claim a difference; those of [`perfquilt_calibrate::calibrate`].
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    if let Some(file) = &arguments.output {
        writable(file)?;
        Page::calibration(file)?;
    }
    if arguments.real {
        let words = "`--real` is what `calibrate` does: leave it out";
        progress::warn(Warning::old_name(words));
    }
    if arguments.repeats == 0 || arguments.copies == 0 {
        return Err(Error::arguments("--repeats and --copies are at least 1"));
    }
    let ws = arguments.fresh.workspace(context)?;
    let preset = ws.config.preset(&arguments.preset)?.clone();
    let preset = with_blocks(preset, arguments.blocks)?;
    // The page is updated after every experiment, as all of them take hours and may be interrupted.
    let mut save = |found: &Calibration| match &arguments.output {
        Some(file) => update(file, "real", &found.markdown()),
        None => Ok(()),
    };
    let found = perfquilt_calibrate::calibrate(
        &ws,
        &Request {
            preset: &preset,
            name: &arguments.preset,
            copies: arguments.copies,
            repeats: arguments.repeats,
        },
        &mut save,
    )?;
    context.output.result(&found, || found.markdown())?;
    if found.breaks_promise() {
        let (claims, repeats) = (found.false_experiments(), found.repeats.len());
        let fault = format!(
            "{claims} of {repeats} experiments claim a difference between copies of the same server, more than chance explains"
        );
        return Err(Error::calibration(fault));
    }
    Ok(())
}

/// Replaces a part of the page in `file`.
fn update(file: &Path, part: &str, body: &str) -> Result<()> {
    Page::calibration(file)?.with(part, body).save()
}
