//! Compares perfquilt's decisions with other projects' rules on simulated noise, and writes docs/peers.md.
//!
//! A developer's tool (`ci/peers`): the product does not depend on it.

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bisection;
mod page;
mod plot;
mod power;
mod rules;
mod two_sample;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;

use page::Conditions;
use perfquilt_calibrate::Page;
use perfquilt_model::error::Result;
use perfquilt_model::progress::{Progress, Silent, Step};
use perfquilt_system::files::write_file;

/// Compares perfquilt's decisions with other projects' rules on simulated noise
#[derive(Debug, Parser)]
#[command(name = "perfquilt-peers")]
struct Arguments {
    /// Number of simulated comparisons per machine; a tenth as many bisections per case
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = at_least_one)]
    experiments: usize,
    /// Seed of the simulation: the same seed gives the same figures
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Markdown page to update with the results; the drawing and the table of all bisections go beside it
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
}

fn at_least_one(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(error.to_string()),
    }
}

/// Prints the names of the steps.
struct StepNames;

impl Progress for StepNames {
    fn begin(&self, name: &str, total: Option<u64>) -> Box<dyn Step> {
        eprintln!("{name}");
        Silent.begin(name, total)
    }

    fn note(&self, line: &str) {
        eprintln!("{line}");
    }

    fn warn(&self, line: &str) {
        eprintln!("warning: {line}");
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let Arguments {
        experiments,
        seed,
        output,
    } = arguments;
    // An unreadable page ends the run before the simulation, not after.
    open(arguments)?;
    let started = Instant::now();
    let powers = power::powers(*experiments, *seed, &StepNames)?;
    let stem = output.file_stem().unwrap_or_default().to_string_lossy();
    let plot = format!("{stem}-power.svg");
    let part = page::rules(&powers, *experiments, &conditions(*seed, started), &plot);
    open(arguments)?.with("rules", &part).save()?;
    write_file(
        &output.with_file_name(plot),
        plot::powers(&powers)?.as_bytes(),
    )?;

    let started = Instant::now();
    let sessions = experiments.div_ceil(10);
    let cases = bisection::cases(sessions, *seed, &StepNames)?;
    let table = format!("{stem}-bisecting.tsv");
    let part = page::bisections(&cases, sessions, &conditions(*seed, started), &table);
    open(arguments)?.with("bisections", &part).save()?;
    write_file(
        &output.with_file_name(table),
        page::bisection_table(&cases).as_bytes(),
    )
}

fn open(arguments: &Arguments) -> Result<Page> {
    Page::open(&arguments.output, "ci/peers", page::INTRODUCTION)
}

fn conditions(seed: u64, started: Instant) -> Conditions {
    Conditions {
        date: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
        seed,
        seconds: started.elapsed().as_secs_f64(),
    }
}
