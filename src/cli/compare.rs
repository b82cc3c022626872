//! `perfquilt compare`: compares two experiments patch by patch.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::Context;
use super::output_file::{deliver, identity, writable};
use super::pager::PagerStart;
use super::report_options::{self, choose_format, format_by_suffix};
use perfquilt_config::workspace::Workspace;
use perfquilt_judge::attribution::{self, Attribution, SUITE};
use perfquilt_model::error::{Error, Result};
use perfquilt_report::comparison;
use perfquilt_results::analyse;
use perfquilt_store::{Store, jsonl};

/// Arguments of `perfquilt compare`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt compare mariadb-10.11.18-quick mariadb-11.8.6-quick     before and after a rebase
  perfquilt compare intel.jsonl.gz amd.jsonl.gz                     the same series on two machines
  perfquilt compare OLD NEW --workload oltp_read_only
  perfquilt compare OLD NEW --format html --output comparison.html")]
pub struct Arguments {
    /// First experiment: its name in the workspace's store, or an observation file (docs/json.md)
    before: String,
    /// Second experiment, likewise
    after: String,
    /// Workload to compare (default: all that both have)
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,
    /// Format of the comparison (--json is short for json)
    #[arg(long, value_enum)]
    format: Option<ComparisonFormat>,
    /// File to write to instead of standard output; without --format, its suffix chooses the format: .html, .md or .json
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// A format of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ComparisonFormat {
    /// Table for a terminal
    Terminal,
    /// Markdown for a pull request or a file
    Markdown,
    /// Page for browsers
    Html,
    /// JSON document for programs
    Json,
}

/// Runs `perfquilt compare`.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when there is no such experiment, file or workload, or when the
/// output file cannot be written.
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let output = arguments.output.as_deref();
    let usual = format_by_suffix(output, arguments.format, ComparisonFormat::Terminal)?;
    let format = choose_format(context, arguments.format, ComparisonFormat::Json, usual)?;
    if let Some(file) = &arguments.output {
        writable(file)?;
        let inputs = [&arguments.before, &arguments.after];
        let written = identity(file);
        if written.is_some() && inputs.iter().any(|of| identity(Path::new(of)) == written) {
            let fault = Error::usage("the comparison would overwrite one of its input files");
            return Err(fault.at(file, None));
        }
    } else if format == ComparisonFormat::Html && context.output.is_terminal() {
        let fault = Error::usage("refusing to write HTML to a terminal");
        return Err(fault.hint("--output comparison.html"));
    }
    let ws = context.workspace_if_any()?;
    let before = read(ws.as_ref(), &arguments.before)?;
    let after = read(ws.as_ref(), &arguments.after)?;
    let mut compared = attribution::compare(&before, &after);
    if let Some(name) = &arguments.workload {
        let known = compared.tables.iter().map(|table| &table.workload);
        let known: Vec<&String> = known.filter(|known| *known != SUITE).collect();
        if !known.contains(&name) {
            return Err(Error::unknown(
                "workload of both experiments",
                name,
                known.into_iter(),
            ));
        }
        compared.tables.retain(|table| table.workload == *name);
    }
    let text = match format {
        ComparisonFormat::Terminal => {
            let columns = context.output.width();
            comparison::terminal(&compared, columns, context.output.color())
        }
        ComparisonFormat::Markdown => comparison::markdown(&compared),
        ComparisonFormat::Html => perfquilt_report::comparison_page(&compared)?,
        ComparisonFormat::Json => {
            let text = serde_json::to_string_pretty(&compared);
            text.map_err(|error| Error::internal(format!("cannot write JSON: {error}")))? + "\n"
        }
    };
    if arguments.output.is_none() && format == ComparisonFormat::Terminal {
        return context.output.page(&text, PagerStart::Top);
    }
    deliver(context, arguments.output.as_deref(), &text)
}

/// Reads and judges an experiment: a file if there is one of this name, otherwise one of the workspace's store.
fn read(ws: Option<&Workspace>, name: &str) -> Result<Attribution> {
    let path = Path::new(name);
    let margin = report_options::margin(ws);
    let file = if path.is_file() {
        jsonl::read(analyse::open(path)?, path)?
    } else if let Some(ws) = ws {
        let store = Store::open_existing(&ws.results())?;
        let id = store.find(name)?;
        analyse::stored(&store, id)?
    } else {
        let fault = Error::usage(format!("there is no file `{name}`, and no workspace here"));
        return Err(fault.hint("give two observation files, or `-C DIR` for a workspace"));
    };
    attribution::attribute_with(&file.header, &file.observations, &file.supplement, &margin)
}
