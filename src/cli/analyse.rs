//! `perfquilt analyse FILE`: reports on an observation file from any source.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use clap::Args;

use super::Context;
use super::report_options::{self, ReportInput, ReportOptions, decisions, print_attribution, show};
use perfquilt_config::{parse_fraction, width_fault};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::Meter;
use perfquilt_report::RequiredInput;
use perfquilt_results::analyse;
use perfquilt_results::merge::merge;
use perfquilt_store::{import, jsonl, sql_bench};

/// Arguments of `perfquilt analyse`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt analyse observations.jsonl.gz
  perfquilt analyse base.log patched.log           sysbench, one file per server
  perfquilt analyse hyperfine.json                 hyperfine --export-json
  perfquilt analyse old.txt new.txt                go test -bench . -count 10
  perfquilt analyse x86.jsonl.gz aarch64.jsonl.gz  one series on two machines
  perfquilt analyse observations.jsonl --format html --output report.html")]
pub struct Arguments {
    /// Observation file (docs/json.md), table of sql-bench results (docs/sql-bench.md), or output of sysbench,
    /// hyperfine or Go benchmarks (docs/formats.md), optionally compressed with gzip; - is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Files of further servers, one each, compared with the first; or observation files of the same series from
    /// further machines
    #[arg(value_name = "FURTHER")]
    further: Vec<PathBuf>,
    /// Equivalence margin of a meter as a fraction of speed, such as time=0.005 or time=0.5%
    #[arg(long, value_name = "METER=FRACTION", value_parser = parse_margin)]
    margin: Vec<(Meter, f64)>,
    #[command(flatten)]
    report: ReportOptions,
}

/// Runs `perfquilt analyse`.
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let required = arguments.report.format(context)?.0.required_input;
    let all = || std::iter::once(&arguments.file).chain(&arguments.further);
    if all().filter(|path| *path == Path::new("-")).count() > 1 {
        return Err(Error::arguments("standard input can be given only once"));
    }
    let input = analyse::open(&arguments.file)?;
    arguments.report.check(context)?;
    arguments.report.refuse_overwrite(all())?;
    let ws = context.workspace_if_any()?;
    let usual = report_options::margin(ws.as_ref());
    let margin = |meter| {
        let given = arguments.margin.iter().rfind(|(m, _)| *m == meter);
        given.map_or_else(|| usual(meter), |(_, margin)| *margin)
    };
    let (head, input) = analyse::head(input, &arguments.file)?;
    let foreign = import::detect(&head);
    if format_name(&head).is_none() && !head.trim_ascii().is_empty() {
        return Err(import::unknown(&arguments.file, &head));
    }
    if foreign.is_none() && !arguments.further.is_empty() && sql_bench::is_table(&head) {
        return Err(Error::arguments(
            "tables of sql-bench results come in one file",
        ));
    }
    let (file, recorded) = if let Some(foreign) = foreign {
        let mut inputs = vec![(arguments.file.clone(), input)];
        for path in &arguments.further {
            inputs.push((path.clone(), further_input(&arguments.file, &head, path)?));
        }
        (import::read(foreign, inputs)?, None)
    } else if sql_bench::is_table(&head) {
        let imported = sql_bench::read(input, &arguments.file)?;
        (imported.file, Some(imported.table))
    } else if !arguments.further.is_empty() {
        let mut files = vec![(
            arguments.file.as_path(),
            jsonl::read(input, &arguments.file)?,
        )];
        for path in &arguments.further {
            let input = further_input(&arguments.file, &head, path)?;
            files.push((path, jsonl::read(input, path)?));
        }
        (merge(files)?, None)
    } else if required >= RequiredInput::Observations {
        (jsonl::read(input, &arguments.file)?, None)
    } else {
        // Observations are read one by one, so that a large file need not fit into memory.
        let mut attribution = analyse::read(input, &arguments.file, &margin)?;
        attribution.decide(&decisions(ws.as_ref())?);
        return print_attribution(context, &arguments.report.paged(), &attribution);
    };
    let shown = ReportInput {
        file,
        recorded,
        distributions: Vec::new(),
        stored: false,
        decisions: decisions(ws.as_ref())?,
    };
    show(context, &arguments.report.paged(), &shown, &margin)
}

/// Opens a further file, which must have the format of `first`; `head` is the beginning of that file.
fn further_input(first: &Path, head: &[u8], path: &Path) -> Result<Box<dyn BufRead>> {
    let (own_head, input) = analyse::head(analyse::open(path)?, path)?;
    if format_name(&own_head).is_none() && !own_head.trim_ascii().is_empty() {
        return Err(import::unknown(path, &own_head));
    }
    if let (Some(format), Some(own)) = (format_name(head), format_name(&own_head))
        && format != own
    {
        return Err(Error::arguments(format!(
            "the files have different formats: {} is {format}, {} is {own}",
            first.display(),
            path.display()
        ))
        .hint("pass files of one format, one per server or machine"));
    }
    Ok(input)
}

/// Returns the name of the format of a file that begins with `head`, with its article; `None` if it is unknown.
fn format_name(head: &[u8]) -> Option<&'static str> {
    match import::detect(head) {
        Some(form) => Some(form.name),
        None if sql_bench::is_table(head) => Some("a table of sql-bench results"),
        None if import::is_observation_file(head) => Some("an observation file"),
        None => None,
    }
}

fn parse_margin(text: &str) -> Result<(Meter, f64), String> {
    let (meter, margin) = text.split_once('=').ok_or("METER=FRACTION is needed")?;
    let meter: Meter = meter
        .parse()
        .map_err(|error: Error| match error.hint_text() {
            Some(hint) => format!("{error}; {hint}"),
            None => error.to_string(),
        })?;
    let margin = parse_fraction(margin)?;
    match width_fault(&format!("margin of {meter}"), margin) {
        Some(fault) => Err(fault),
        None => Ok((meter, margin)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margins() {
        assert_eq!(parse_margin("time=0.005"), Ok((Meter::Time, 0.005)));
        assert_eq!(
            parse_margin("instructions=1 %"),
            Ok((Meter::Instructions, 0.01))
        );
        for wrong in ["time", "time=", "time=-1", "time=nan", "tim=1", "time=100%"] {
            assert!(parse_margin(wrong).is_err(), "{wrong}");
        }
        let both = parse_margin("time=0.5").unwrap_err();
        assert!(both.contains("±50 %") && both.contains("0.005"), "{both}");
        let message = parse_margin("tim=1").unwrap_err();
        assert!(message.ends_with("did you mean `time`?"), "{message}");
    }
}
