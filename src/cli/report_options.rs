//! The options of a report: its format, its destination and the exit code of its verdicts.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::Context;
use super::choices::{self, ReportFormat};
use super::output::json;
use super::output_file::{deliver, refuse_overwrite, writable};
use super::pager::PagerStart;
use perfquilt_config::workspace::Workspace;
use perfquilt_judge::attribution::{Attribution, Verdict};
use perfquilt_model::decision::PatchDecision;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{Meter, ObservationFile, RecordedTable};
use perfquilt_model::progress;
use perfquilt_report::{Distribution, Document, EXPORTERS, JSON, ReportData, TERMINAL};
use perfquilt_results::analyse;
use perfquilt_system::files::write_file;

/// Report options, shared by the commands that end in a report.
#[derive(Debug, Clone, Default, Args)]
pub struct ReportOptions {
    /// Format of the report (--json is short for json)
    #[arg(long, value_parser = choices::report_format())]
    format: Option<ReportFormat>,
    /// File to write the report to instead of standard output; without --format, its suffix chooses the format: .html,
    /// .md, .json, .jsonl or .csv
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Flame graph to include in the page, as written by `perfquilt profile --flame-graph`
    #[arg(long, value_name = "FILE")]
    flame_graph: Option<PathBuf>,
    /// Result to fail on: exit code 6 when a patch or the whole series is slower, 7 when the result is inconclusive
    #[arg(long, value_enum, value_name = "RESULT", value_delimiter = ',')]
    fail_on: Vec<FailOn>,
    /// Also show functions, noise and builds (terminal, markdown); pages always have them
    #[arg(long)]
    details: bool,
    /// Whether a report on a terminal may go through the pager.
    #[arg(skip)]
    pages: bool,
}

impl ReportOptions {
    /// Returns the same options for a command that only shows a report, whose readers expect a pager.
    pub fn paged(&self) -> Self {
        ReportOptions {
            pages: true,
            ..self.clone()
        }
    }

    /// Returns the format requested by `--format` or `--json`, else that of the output file's suffix.
    pub fn format(&self, context: &Context) -> Result<ReportFormat> {
        let usual = match self.format {
            None if !context.output.json() => self.usual_format()?,
            _ => ReportFormat(TERMINAL),
        };
        let format = choose_format(context, self.format, ReportFormat(JSON), usual)?;
        if self.flame_graph.is_some() && !format.0.includes_flame_graph {
            let including = EXPORTERS
                .iter()
                .filter(|format| format.includes_flame_graph);
            let names: Vec<&str> = including.map(|format| format.name).collect();
            let fault = Error::arguments(format!(
                "only {} reports can include a flame graph",
                names.join(" and ").to_uppercase()
            ));
            return Err(fault.hint(format!("--format {}", names.join(" or "))));
        }
        Ok(format)
    }

    /// Returns the format of the report if none is requested.
    fn usual_format(&self) -> Result<ReportFormat> {
        let of_name = |name: &str| EXPORTERS.iter().copied().find(|format| format.name == name);
        let format = match &self.output {
            Some(output) => format_of_suffix(output, of_name)?,
            None => None,
        };
        Ok(ReportFormat(format.unwrap_or(TERMINAL)))
    }

    /// Checks, before hours of work, everything that could make [`show`] fail after it.
    pub fn check(&self, context: &Context) -> Result<()> {
        let format = self.format(context)?;
        self.check_destination(context, format)?;
        self.read_flame_graph()?;
        self.output.as_deref().map_or(Ok(()), writable)
    }

    /// Checks that the report does not overwrite one of its input files.
    pub fn refuse_overwrite(&self, inputs: impl Iterator<Item: AsRef<Path>>) -> Result<()> {
        refuse_overwrite("report", self.output.as_deref(), inputs)
    }

    /// Refuses to write to a terminal what nobody can read there.
    fn check_destination(&self, context: &Context, format: ReportFormat) -> Result<()> {
        let to_terminal = self.output.is_none() && context.output.is_terminal();
        if format.0.is_for_terminals || !to_terminal {
            return Ok(());
        }
        let name = format.0.name;
        let fault = format!("refusing to write {} to a terminal", name.to_uppercase());
        Err(Error::arguments(fault).hint(format!("--output report.{name}")))
    }

    fn read_flame_graph(&self) -> Result<Option<Vec<u8>>> {
        self.flame_graph
            .as_deref()
            .map(read_flame_graph)
            .transpose()
    }
}

/// Suffixes of output files, and the formats that they stand for.
const SUFFIXES: &[(&str, &str)] = &[
    ("html", "html"),
    ("htm", "html"),
    ("md", "markdown"),
    ("markdown", "markdown"),
    ("json", "json"),
    ("jsonl", "jsonl"),
    ("csv", "csv"),
];

/// Suffixes of plain text, as which a terminal's report is written.
const TEXT_SUFFIXES: [&str; 4] = ["txt", "text", "log", "out"];

/// Returns the format that the suffix of `output` stands for, found by its value of `--format`; `None` for plain text and
/// without a suffix.
fn format_of_suffix<F>(output: &Path, of_name: impl Fn(&str) -> Option<F>) -> Result<Option<F>> {
    let Some(suffix) = output.extension() else {
        return Ok(None);
    };
    let suffix = suffix.to_string_lossy().to_ascii_lowercase();
    if TEXT_SUFFIXES.contains(&suffix.as_str()) {
        return Ok(None);
    }
    let known = SUFFIXES.iter().find(|(known, _)| *known == suffix);
    let format = known.and_then(|(_, name)| of_name(name));
    format.map(Some).ok_or_else(|| {
        let known = SUFFIXES.iter().filter(|(_, name)| of_name(name).is_some());
        let known: Vec<String> = known.map(|(suffix, _)| format!(".{suffix}")).collect();
        Error::arguments(format!(
            "cannot write {}: no format of this report has the suffix .{suffix}",
            output.display()
        ))
        .hint(format!(
            "{} and .txt do; `--format` writes a format to any file",
            known.join(", ")
        ))
    })
}

/// Returns the format that the suffix of the output file stands for, unless one was `given`; else `usual`.
pub fn format_by_suffix<F: ValueEnum>(
    output: Option<&Path>,
    given: Option<F>,
    usual: F,
) -> Result<F> {
    let (None, Some(output)) = (given, output) else {
        return Ok(usual);
    };
    let format = format_of_suffix(output, |name| F::from_str(name, false).ok())?;
    Ok(format.unwrap_or(usual))
}

/// Returns the format that `--format` and `--json` request together.
pub fn choose_format<F: PartialEq>(
    context: &Context,
    given: Option<F>,
    json: F,
    usual: F,
) -> Result<F> {
    match (given, context.output.json()) {
        (None, true) => Ok(json),
        (Some(format), true) if format == json => Ok(json),
        (Some(_), true) => Err(Error::arguments(
            "--json and --format request different formats",
        )),
        (format, false) => Ok(format.unwrap_or(usual)),
    }
}

/// Report options of results that have neither page nor raw data.
#[derive(Debug, Clone, Default, Args)]
pub struct TextReportOptions {
    /// Format of the report (--json is short for json)
    #[arg(long, value_enum)]
    format: Option<TextFormat>,
}

/// A format of results that have neither page nor raw data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TextFormat {
    /// Table for a terminal
    Terminal,
    /// Markdown for a pull request or a file
    Markdown,
    /// JSON document for programs
    Json,
}

impl TextReportOptions {
    /// Returns the format requested by `--format` or `--json`.
    pub fn format(&self, context: &Context) -> Result<TextFormat> {
        choose_format(context, self.format, TextFormat::Json, TextFormat::Terminal)
    }

    /// Prints a result in the requested format.
    pub fn print(
        &self,
        context: &Context,
        document: &Document,
        value: &impl Serialize,
    ) -> Result<()> {
        match self.format(context)? {
            TextFormat::Terminal => context.output.print(&context.output.terminal(document)),
            TextFormat::Markdown => context.output.print(&document.markdown()),
            TextFormat::Json => context.output.print_json(value),
        }
    }
}

/// Report options of results that have a page, but no raw data.
#[derive(Debug, Clone, Default, Args)]
pub struct DocumentOptions {
    /// Format (--json is short for json)
    #[arg(long, value_enum)]
    format: Option<DocumentFormat>,
    /// File to write to instead of standard output; without --format, its suffix chooses the format: .html, .md or .json
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// A format of results that have a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DocumentFormat {
    /// Table for a terminal
    Terminal,
    /// Markdown for a pull request or a file
    Markdown,
    /// Page for browsers
    Html,
    /// JSON document for programs
    Json,
}

impl DocumentOptions {
    /// Returns the file to write to.
    pub fn output(&self) -> Option<&Path> {
        self.output.as_deref()
    }

    /// Returns the requested format, before any work is done for it.
    ///
    /// # Errors
    /// Where the file cannot be written, or a terminal would show a page's source.
    pub fn format(&self, context: &Context) -> Result<DocumentFormat> {
        let output = self.output();
        let usual = format_by_suffix(output, self.format, DocumentFormat::Terminal)?;
        let format = choose_format(context, self.format, DocumentFormat::Json, usual)?;
        if let Some(file) = output {
            writable(file)?;
        } else if format == DocumentFormat::Html && context.output.is_terminal() {
            let fault = Error::arguments("refusing to write HTML to a terminal");
            return Err(fault.hint("--output report.html"));
        }
        Ok(format)
    }

    /// Writes a result in `format`: as `document`, or as the JSON of `value`.
    pub fn write(
        &self,
        context: &Context,
        format: DocumentFormat,
        document: &Document,
        value: &impl Serialize,
    ) -> Result<()> {
        let text = match format {
            DocumentFormat::Terminal => context.output.terminal(document),
            DocumentFormat::Markdown => document.markdown(),
            DocumentFormat::Html => document.html()?,
            DocumentFormat::Json => json(value)?,
        };
        if self.output.is_none() && format == DocumentFormat::Terminal {
            return context.output.page(&text, PagerStart::Top);
        }
        deliver(context, self.output(), &text)
    }
}

/// A result that ends the program with an exit code of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// A patch or the whole series is slower
    Regression,
    /// A patch is unclear, mixed or without figures, or blocks are missing
    Inconclusive,
}

/// An experiment to report on.
pub struct ReportInput {
    /// The header, supplement and observations.
    pub file: ObservationFile,
    /// The table of sql-bench results that the observations were imported from, if any.
    pub recorded: Option<RecordedTable>,
    /// The distributions of its slices, for formats that require them.
    pub distributions: Vec<Distribution>,
    /// Whether the experiment is in the workspace's store, so that further commands can use it.
    pub stored: bool,
    /// The workspace's decisions on patches.
    pub decisions: Vec<PatchDecision>,
}

/// Prints the report of an experiment in the requested format.
///
/// # Errors
/// [`Kind::Regression`](perfquilt_model::error::Kind::Regression) and [`Kind::Inconclusive`](perfquilt_model::error::Kind::Inconclusive) as requested by `--fail-on`; [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when observations do
/// not fit the header.
pub fn show(
    context: &Context,
    options: &ReportOptions,
    input: &ReportInput,
    margin: &dyn Fn(Meter) -> f64,
) -> Result<()> {
    let mut attribution = analyse::attribution(&input.file, margin)?;
    attribution.decide(&input.decisions);
    let data = ReportData {
        file: Some(&input.file),
        distributions: &input.distributions,
        recorded: input.recorded.as_ref(),
        stored: input.stored,
        ..ReportData::new(&attribution)
    };
    export(context, options, &data)?;
    if input.stored && options.format(context)? == ReportFormat(TERMINAL) {
        let next = perfquilt_report::next_command(&attribution);
        progress::note(&next);
    }
    fail_on_verdict(&attribution, &options.fail_on)
}

/// Prints the report of an attribution, without its observations, in the requested format.
pub fn print_attribution(
    context: &Context,
    options: &ReportOptions,
    attribution: &Attribution,
) -> Result<()> {
    export(context, options, &ReportData::new(attribution))?;
    fail_on_verdict(attribution, &options.fail_on)
}

/// Renders `data` in the requested format, and writes the result with the file beside it if it has one.
fn export(context: &Context, options: &ReportOptions, data: &ReportData<'_>) -> Result<()> {
    let format = options.format(context)?;
    options.check_destination(context, format)?;
    let flame_graph = options.read_flame_graph()?;
    // A device or a pipe has no file beside it.
    let output = options.output.as_deref();
    let plain = output.filter(|output| output.is_file() || !output.exists());
    let companion = plain.map(companion_path);
    let name = companion.as_deref().and_then(Path::file_name);
    let name = name.map(|name| name.to_string_lossy());
    let exported = format.0.export(&ReportData {
        flame_graph: flame_graph.as_deref(),
        columns: context.output.width(),
        color: context.output.color(),
        details: options.details,
        companion: name.as_deref(),
        ..*data
    })?;
    if let (Some(file), Some(bytes)) = (companion, &exported.companion) {
        write_file(&file, bytes)?;
    }
    for note in &exported.notes {
        progress::note(note);
    }
    if options.pages && output.is_none() && format == ReportFormat(TERMINAL) {
        return context.output.page(&exported.text, PagerStart::End);
    }
    deliver(context, output, &exported.text)
}

/// Returns the path of the observations beside the report `output`. It is not `report.jsonl.gz`, which may be the
/// report's own input.
fn companion_path(output: &Path) -> PathBuf {
    output.with_extension("observations.jsonl.gz")
}

/// Largest flame graph that a page includes, in bytes.
const MAX_FLAME_GRAPH: usize = 8 << 20;

fn read_flame_graph(file: &Path) -> Result<Vec<u8>> {
    let bytes = std::fs::read(file).map_err(|error| {
        Error::input_unreadable(format!("cannot read {}: {error}", file.display()))
            .hint("`perfquilt profile A B --flame-graph FILE` writes one")
    })?;
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(1000)]).into_owned();
    if !head.contains("<svg") {
        return Err(Error::arguments("not a flame graph: no SVG").at(file, None));
    }
    if bytes.len() > MAX_FLAME_GRAPH {
        return Err(Error::arguments("the flame graph is larger than 8 MiB").at(file, None));
    }
    Ok(bytes)
}

/// Returns the margins of the workspace, or the default ones without a workspace.
pub fn margin(ws: Option<&Workspace>) -> impl Fn(Meter) -> f64 {
    move |meter| match ws {
        Some(ws) => ws.config.margin(meter),
        None => Meter::default_margin(meter),
    }
}

/// Returns the decisions on patches that a workspace has.
pub fn decisions(ws: Option<&Workspace>) -> Result<Vec<PatchDecision>> {
    ws.map_or(Ok(Vec::new()), perfquilt_results::decisions::read)
}

fn fail_on_verdict(attribution: &Attribution, fail_on: &[FailOn]) -> Result<()> {
    let names = |verdict| {
        let patches = attribution.patches_with(verdict);
        let names: Vec<&str> = patches.iter().map(|patch| patch.name.as_str()).collect();
        names.join(", ")
    };
    if fail_on.contains(&FailOn::Regression) && attribution.is_regression() {
        let patches = attribution.unaccepted_patches();
        let names: Vec<&str> = patches.iter().map(|patch| patch.name.as_str()).collect();
        return Err(Error::regression(slower_message(&names.join(", "))));
    }
    if fail_on.contains(&FailOn::Inconclusive) && attribution.is_inconclusive() {
        let mixed = names(Verdict::Mixed);
        let typical = names(Verdict::NoTypicalEffect);
        let message = match names(Verdict::Unclear) {
            _ if !attribution.is_complete() => "measurement incomplete".to_owned(),
            names if names.is_empty() && !mixed.is_empty() => {
                format!("faster in part and slower in part: {mixed}")
            }
            unclear if unclear.is_empty() && !typical.is_empty() => {
                format!("no typical effect, and mean or slow slices may differ by more: {typical}")
            }
            names if names.is_empty() => "some patches have no figures".to_owned(),
            names => format!("unclear: {names}"),
        };
        return Err(Error::inconclusive(message));
    }
    Ok(())
}

/// Returns the message for slower patches of these names, or for the whole series if no single patch is slower.
fn slower_message(names: &str) -> String {
    match names {
        "" => "slower: the whole series".to_owned(),
        names => format!("slower: {names}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_of_no_single_patch_is_named_too() {
        assert_eq!(
            slower_message("a.patch, b.patch"),
            "slower: a.patch, b.patch"
        );
        assert_eq!(slower_message(""), "slower: the whole series");
    }

    fn to(output: &Path) -> ReportOptions {
        ReportOptions {
            output: Some(output.to_owned()),
            ..ReportOptions::default()
        }
    }

    #[test]
    fn a_report_never_overwrites_its_input() {
        let folder = tempfile::tempdir().unwrap();
        let input = folder.path().join("in.jsonl");
        let link = folder.path().join("link.jsonl");
        let other = folder.path().join("other.txt");
        std::fs::write(&input, "in").unwrap();
        std::fs::write(&other, "other").unwrap();
        std::fs::hard_link(&input, &link).unwrap();
        for (output, spared) in [(&input, false), (&link, false), (&other, true)] {
            let inputs = [folder.path().join("none"), input.clone()];
            let found = to(output).refuse_overwrite(inputs.iter());
            assert_eq!(found.is_ok(), spared, "{}", output.display());
        }
        let device = PathBuf::from("/dev/null");
        assert!(to(&device).refuse_overwrite([&device].into_iter()).is_ok());
        assert!(
            ReportOptions::default()
                .refuse_overwrite([&input].into_iter())
                .is_ok()
        );
    }

    #[test]
    fn the_suffix_of_the_output_chooses_the_format() {
        for (file, format) in [
            ("out/report.html", "html"),
            ("REPORT.HTM", "html"),
            ("report.md", "markdown"),
            ("observations.jsonl", "jsonl"),
            ("effects.csv", "csv"),
            ("report.txt", "terminal"),
            ("report", "terminal"),
        ] {
            let chosen = to(Path::new(file)).usual_format().unwrap();
            assert_eq!(chosen.0.name, format, "{file}");
        }
        for file in ["report.pdf", "observations.jsonl.gz", "report.2026-11-26"] {
            let refused = to(Path::new(file)).usual_format().unwrap_err();
            let hint = refused.hint_text().unwrap();
            assert!(hint.starts_with(".html, .htm, .md, "), "{file}: {hint}");
        }
        let by_suffix = |file: &str, given| {
            format_by_suffix(Some(Path::new(file)), given, TextFormat::Terminal)
        };
        assert_eq!(by_suffix("a.json", None).unwrap(), TextFormat::Json);
        let refused = by_suffix("a.html", None).unwrap_err();
        let hint = refused.hint_text().unwrap();
        assert!(
            hint.starts_with(".md, .markdown, .json and .txt do"),
            "{hint}"
        );
        assert!(by_suffix("a.pdf", Some(TextFormat::Markdown)).is_ok());
        for (_, format) in SUFFIXES {
            assert!(EXPORTERS.iter().any(|of| of.name == *format), "{format}");
        }
    }

    #[test]
    fn the_observations_of_a_page_never_overwrite_its_input() {
        let beside = companion_path(Path::new("out/report.html"));
        assert_eq!(beside, Path::new("out/report.observations.jsonl.gz"));
    }
}
