//! `perfquilt rebase`: move the series to another release and report on every patch.

use clap::{Args, ValueEnum};

use super::Context;
use crate::error::{Error, Result};
use crate::rebase::{self, Report, Request};
use crate::report;

/// Arguments of `perfquilt rebase`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The release to move the series to
    release: String,
    /// The release whose series it is (default: the current one)
    #[arg(long, value_name = "RELEASE")]
    from: Option<String>,
    /// The report's form (--json is short for json)
    #[arg(long, value_enum)]
    format: Option<Format>,
}

/// A report's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Terminal,
    /// For a pull request or a file
    Markdown,
    /// For programs
    Json,
}

/// Runs the subcommand.
///
/// # Errors
/// [`Kind::Series`](crate::error::Kind::Series) while there is something to decide; as
/// [`rebase::rebase`].
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let format = match (arguments.format, context.output.json()) {
        (None | Some(Format::Json), true) => Format::Json,
        (Some(_), true) => {
            return Err(Error::usage("--json and --format ask for different forms"));
        }
        (format, false) => format.unwrap_or(Format::Terminal),
    };
    let ws = context.workspace()?;
    let progress = context.output.progress();
    let request = Request {
        to: arguments.release.clone(),
        from: arguments.from.clone(),
    };
    let mut rebased = rebase::rebase(&ws, &request, progress)?;
    rebase::add_effects(&ws, &mut rebased.report)?;
    show(context, format, &rebased.report)?;
    undecided(&rebased.report)
}

fn show(context: &Context, format: Format, report: &Report) -> Result<()> {
    let output = &context.output;
    match format {
        Format::Terminal => output.print(&report::rebase::terminal(
            report,
            output.width(),
            output.color(),
        )),
        Format::Markdown => output.print(&report::rebase::markdown(report)),
        Format::Json => output.print_json(report),
    }
}

/// The error that stands for open decisions.
fn undecided(report: &Report) -> Result<()> {
    let noun = |count: usize, word: &str| match count {
        1 => format!("1 {word}"),
        _ => format!("{count} {word}s"),
    };
    if report.ready {
        return Ok(());
    }
    let error = Error::series(format!(
        "{} to make, {} untested",
        noun(report.decisions, "decision"),
        report.untested()
    ));
    Err(match report.next.first() {
        Some(command) => error.hint(format!("`{command}` opens the first")),
        None => error,
    })
}
