//! The options of a report: its format, its destination and the exit code of its verdicts.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use rustix::fs::{Access, access};

use super::Context;
use perfquilt_config::workspace::Workspace;
use perfquilt_judge::attribution::{self, Attribution, Verdict};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::observation::{Meter, RecordedRow};
use perfquilt_report::{Distribution, PageContent, RawData};
use perfquilt_store::jsonl;
use perfquilt_system::files::write_file;

/// Report options, shared by the commands that end in a report.
#[derive(Debug, Clone, Default, Args)]
pub struct ReportOptions {
    /// Format of the report (--json is short for json)
    #[arg(long, value_enum)]
    format: Option<ReportFormat>,
    /// File to write the report to instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Flame graph to include in the page, as written by `perfquilt profile --flame-graph`
    #[arg(long, value_name = "FILE")]
    flame_graph: Option<PathBuf>,
    /// Result to fail on: exit code 6 when a patch or the whole series is slower, 7 when a patch is unclear
    #[arg(long, value_enum, value_name = "WHAT", value_delimiter = ',')]
    fail_on: Vec<FailOn>,
}

impl ReportOptions {
    /// Returns the format requested by `--format` or `--json`.
    ///
    /// # Errors
    /// [`Kind::Usage`] when the two contradict each other, or a flame graph is given for another format than HTML.
    pub fn format(&self, context: &Context) -> Result<ReportFormat> {
        let format = choose_format(
            context,
            self.format,
            ReportFormat::Json,
            ReportFormat::Terminal,
        )?;
        if self.flame_graph.is_some() && format != ReportFormat::Html {
            let fault = Error::usage("only HTML reports can include a flame graph");
            return Err(fault.hint("--format html"));
        }
        Ok(format)
    }

    /// Checks, before hours of work, everything that could make [`show`] fail after it.
    ///
    /// # Errors
    /// [`Kind::Usage`] as for [`ReportOptions::format`] and [`writable`], when a page would go to a terminal, and when the
    /// flame graph cannot be read.
    pub fn check(&self, context: &Context) -> Result<()> {
        if self.format(context)? == ReportFormat::Html {
            self.page_flame_graph(context)?;
        }
        self.output.as_deref().map_or(Ok(()), writable)
    }

    /// Checks that the report does not overwrite one of its input files; `-` is standard input.
    ///
    /// # Errors
    /// [`Kind::Usage`] if it would.
    pub fn refuse_overwrite<'f>(
        &self,
        mut inputs: impl Iterator<Item = &'f PathBuf>,
    ) -> Result<()> {
        let Some(output) = &self.output else {
            return Ok(());
        };
        let written = identity(output);
        let read = |input: &PathBuf| {
            if input == Path::new("-") {
                identity(Path::new("/dev/stdin"))
            } else {
                identity(input)
            }
        };
        if written.is_some() && inputs.any(|input| read(input) == written) {
            Err(Error::usage("the report would overwrite one of its input files").at(output, None))
        } else {
            Ok(())
        }
    }

    /// Reads the flame graph of a page; refuses to write the page to a terminal.
    fn page_flame_graph(&self, context: &Context) -> Result<Option<Vec<u8>>> {
        if self.output.is_none() && context.output.is_terminal() {
            return Err(
                Error::usage("refusing to write HTML to a terminal").hint("--output report.html")
            );
        }
        self.flame_graph
            .as_deref()
            .map(read_flame_graph)
            .transpose()
    }
}

/// Returns the format that `--format` and `--json` request together.
///
/// # Errors
/// [`Kind::Usage`] when the two contradict each other.
pub fn choose_format<F: PartialEq>(
    context: &Context,
    given: Option<F>,
    json: F,
    usual: F,
) -> Result<F> {
    match (given, context.output.json()) {
        (None, true) => Ok(json),
        (Some(format), true) if format == json => Ok(json),
        (Some(_), true) => Err(Error::usage(
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
    ///
    /// # Errors
    /// [`Kind::Usage`] when the two contradict each other.
    pub fn format(&self, context: &Context) -> Result<TextFormat> {
        choose_format(context, self.format, TextFormat::Json, TextFormat::Terminal)
    }
}

/// A report format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// Table for a terminal
    Terminal,
    /// The same as Markdown, with noise, method and machine folded away
    Markdown,
    /// One page with drawings and the data, for browsers
    Html,
    /// Attribution document
    Json,
    /// Raw observations
    Jsonl,
    /// Every effect as comma-separated values
    Csv,
    /// Raw observations in Go's benchmark format, for `benchstat -col /point`
    Gobench,
    /// Costs of all points in the Bencher Metric Format
    Bmf,
    /// Costs for github-action-benchmark's tool `customSmallerIsBetter`
    GithubActionBenchmark,
    /// Effects and costs as OpenMetrics text
    Openmetrics,
    /// Every operation of sql-bench's programs, as sql-bench prints them and with intervals and verdicts
    SqlBench,
    /// Transactions per second and other costs of each point, as Markdown
    Rates,
}

impl ReportFormat {
    /// Returns whether the format needs the raw observations besides the attribution.
    pub fn needs_observations(self) -> bool {
        matches!(
            self,
            ReportFormat::Html | ReportFormat::Jsonl | ReportFormat::Gobench
        )
    }
}

/// A result that ends the program with an exit code of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// A patch or the whole series is slower
    Regression,
    /// A patch is unclear or has no figures, or blocks are missing
    Inconclusive,
}

/// An experiment to report on.
pub struct ReportInput {
    /// The header, supplement and observations.
    pub file: jsonl::File,
    /// The table of sql-bench results that the observations were imported from, if any.
    pub recorded: Option<Vec<RecordedRow>>,
    /// The distributions of its slices, for a page.
    pub distributions: Vec<Distribution>,
    /// Whether the experiment is in the workspace's store, so that further commands can use it.
    pub stored: bool,
}

/// Prints the report of an experiment in the requested format.
///
/// # Errors
/// [`Kind::Regression`] and [`Kind::Inconclusive`] as requested by `--fail-on`; [`Kind::Usage`] when observations do
/// not fit the header.
pub fn show(
    context: &Context,
    form: &ReportOptions,
    input: &ReportInput,
    margin: &dyn Fn(Meter) -> f64,
) -> Result<()> {
    let jsonl::File {
        header,
        supplement,
        observations,
    } = &input.file;
    let attribution = attribution::attribute_with(header, observations, supplement, margin)?;
    let format = form.format(context)?;
    let text = match format {
        ReportFormat::Html => render_page(context, form, input, &attribution)?,
        ReportFormat::Jsonl => {
            let mut bytes = Vec::new();
            jsonl::write(&mut bytes, header, supplement, observations)?;
            String::from_utf8_lossy(&bytes).into_owned()
        }
        ReportFormat::Gobench => perfquilt_report::go_benchmark(header, observations),
        ReportFormat::Markdown => perfquilt_report::markdown(&attribution, input.stored),
        _ => render_attribution(context, format, &attribution, input.recorded.as_deref())?,
    };
    deliver(context, form.output.as_deref(), &text)?;
    if input.stored && format == ReportFormat::Terminal {
        let next = perfquilt_report::next_command(&attribution);
        context.output.progress().note(&next);
    }
    fail_on_verdict(&attribution, &form.fail_on)
}

/// Prints the report of an attribution, without its observations, in the requested format.
///
/// # Errors
/// Those of [`show`].
pub fn print_attribution(
    context: &Context,
    form: &ReportOptions,
    attribution: &Attribution,
) -> Result<()> {
    let text = render_attribution(context, form.format(context)?, attribution, None)?;
    deliver(context, form.output.as_deref(), &text)?;
    fail_on_verdict(attribution, &form.fail_on)
}

fn render_attribution(
    context: &Context,
    format: ReportFormat,
    attribution: &Attribution,
    recorded: Option<&[RecordedRow]>,
) -> Result<String> {
    let output = &context.output;
    Ok(match format {
        ReportFormat::Terminal => {
            perfquilt_report::terminal(attribution, output.width(), output.color())
        }
        ReportFormat::Markdown => perfquilt_report::markdown(attribution, false),
        ReportFormat::Json => perfquilt_report::json(attribution)?,
        ReportFormat::SqlBench => {
            perfquilt_report::sql_bench(attribution, recorded, output.width(), output.color())?
        }
        ReportFormat::Rates => perfquilt_report::rates(attribution),
        ReportFormat::Csv => perfquilt_report::csv(attribution)?,
        ReportFormat::Bmf => perfquilt_report::bencher(attribution)?,
        ReportFormat::GithubActionBenchmark => {
            perfquilt_report::github_action_benchmark(attribution)?
        }
        ReportFormat::Openmetrics => perfquilt_report::openmetrics(attribution),
        ReportFormat::Html | ReportFormat::Jsonl | ReportFormat::Gobench => {
            return Err(Error::internal("there are no raw observations to print"));
        }
    })
}

/// Renders the page; writes the observations to a file beside it if they are too many to embed.
fn render_page(
    context: &Context,
    form: &ReportOptions,
    input: &ReportInput,
    attribution: &Attribution,
) -> Result<String> {
    let flame_graph = form.page_flame_graph(context)?;
    let mut content = PageContent {
        header: &input.file.header,
        observations: &input.file.observations,
        distributions: &input.distributions,
        data: RawData::Command,
        flame_graph: flame_graph.as_deref(),
        stored: input.stored,
    };
    // A device or a pipe has no file beside it.
    let output = form.output.as_deref();
    let output = output.filter(|output| output.is_file() || !output.exists());
    // Too many observations are not compressed when there is no file to write them to.
    let few = input.file.observations.len() <= perfquilt_report::MOST_EMBEDDED / LEAST_BYTES;
    let bytes = if few || output.is_some() {
        Some(jsonl::compressed(&input.file)?)
    } else {
        None
    };
    match (bytes, output) {
        (Some(bytes), _) if bytes.len() <= perfquilt_report::MOST_EMBEDDED => {
            content.data = RawData::Embedded(&bytes);
            perfquilt_report::html(attribution, &content)
        }
        (Some(bytes), Some(output)) => {
            let file = beside_page(output);
            write_file(&file, &bytes)?;
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            content.data = RawData::File(&name, bytes.len() as u64);
            perfquilt_report::html(attribution, &content)
        }
        _ => perfquilt_report::html(attribution, &content),
    }
}

/// Returns the path of the observations of the page `output`. It is not `report.jsonl.gz`, which may be the page's
/// own input.
fn beside_page(output: &Path) -> PathBuf {
    output.with_extension("observations.jsonl.gz")
}

/// Lower bound of the size of a compressed observation, in bytes.
const LEAST_BYTES: usize = 8;

/// Largest flame graph that a page includes, in bytes.
const MAX_FLAME_GRAPH: usize = 8 << 20;

fn read_flame_graph(file: &Path) -> Result<Vec<u8>> {
    let bytes = std::fs::read(file).map_err(|error| {
        Error::usage(format!("cannot read {}: {error}", file.display()))
            .hint("`perfquilt profile A B --flame-graph FILE` writes one")
    })?;
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(1000)]).into_owned();
    if !head.contains("<svg") {
        return Err(Error::usage("not a flame graph: no SVG").at(file, None));
    }
    if bytes.len() > MAX_FLAME_GRAPH {
        return Err(Error::usage("the flame graph is larger than 8 MiB").at(file, None));
    }
    Ok(bytes)
}

/// Prints a result, or writes it to `file`.
///
/// # Errors
/// [`Kind::Internal`] when it cannot be written.
pub fn deliver(context: &Context, file: Option<&Path>, text: &str) -> Result<()> {
    let Some(file) = file else {
        return context.output.print(text);
    };
    write(file, text.as_bytes())?;
    let note = format!("wrote {}", file.display());
    context.output.progress().note(&note);
    Ok(())
}

fn write(file: &Path, bytes: &[u8]) -> Result<()> {
    // A plain file is replaced atomically, so that the old report stays until the new one is whole; devices, pipes and
    // links are written to directly.
    let plain = std::fs::symlink_metadata(file).is_ok_and(|found| found.is_file());
    if plain && access(folder_of(file), Access::WRITE_OK).is_ok() {
        write_file(file, bytes)
    } else {
        std::fs::write(file, bytes).map_err(|error| Error::io("write", file, &error))
    }
}

/// Checks that `file` can be written, before any work is done for it.
///
/// # Errors
/// [`Kind::Usage`] when `file` is a folder, its folder does not exist, or permissions forbid writing it.
pub fn writable(file: &Path) -> Result<()> {
    let refused = |why: &str| Error::usage(format!("cannot write {}: {why}", file.display()));
    let folder = folder_of(file);
    if file.is_dir() {
        return Err(refused("it is a folder"));
    }
    if !folder.is_dir() {
        let fault = refused(&format!("there is no folder {}", folder.display()));
        return Err(fault.hint(format!("mkdir -p {}", folder.display())));
    }
    let place = if file.exists() { file } else { folder };
    access(place, Access::WRITE_OK)
        .map_err(|error| refused(&std::io::Error::from(error).to_string()))
}

fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Returns device and inode of a plain file.
fn identity(file: &Path) -> Option<(u64, u64)> {
    let found = std::fs::metadata(file).ok()?;
    found.is_file().then(|| (found.dev(), found.ino()))
}

/// Returns the margins of the workspace, or the default ones without a workspace.
pub fn margin(ws: Option<&Workspace>) -> impl Fn(Meter) -> f64 {
    move |meter| match ws {
        Some(ws) => ws.config.margin(meter),
        None => Meter::default_margin(meter),
    }
}

fn fail_on_verdict(attribution: &Attribution, fail_on: &[FailOn]) -> Result<()> {
    let names = |verdict| {
        let patches = attribution.patches_with(verdict);
        let names: Vec<&str> = patches.iter().map(|patch| patch.name.as_str()).collect();
        names.join(", ")
    };
    if fail_on.contains(&FailOn::Regression) && attribution.is_regression() {
        let patches = attribution.slower_patches();
        let names: Vec<&str> = patches.iter().map(|patch| patch.name.as_str()).collect();
        return Err(Error::new(
            Kind::Regression,
            slower_message(&names.join(", ")),
        ));
    }
    if fail_on.contains(&FailOn::Inconclusive) && attribution.is_inconclusive() {
        let mixed = names(Verdict::Mixed);
        let message = match names(Verdict::Unclear) {
            _ if !attribution.is_complete() => "blocks are still to be measured".to_owned(),
            names if names.is_empty() && !mixed.is_empty() => {
                format!("faster in part and slower in part: {mixed}")
            }
            names if names.is_empty() => "some patches have no figures".to_owned(),
            names => format!("unclear: {names}"),
        };
        return Err(Error::new(Kind::Inconclusive, message));
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
    fn a_bad_path_is_refused_before_the_work() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("report.md");
        let refused = |file: &Path| writable(file).unwrap_err();
        assert!(writable(&file).is_ok());
        assert!(writable(Path::new("/dev/null")).is_ok());
        assert!(refused(folder.path()).message().ends_with("it is a folder"));
        let nowhere = refused(&folder.path().join("none/report.md"));
        assert_eq!(nowhere.kind(), Kind::Usage);
        assert!(nowhere.message().contains("there is no folder"));
        assert!(
            nowhere
                .hint_text()
                .is_some_and(|hint| hint.starts_with("mkdir -p "))
        );
    }

    #[test]
    fn an_old_report_is_replaced_and_a_link_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("report.md");
        let link = folder.path().join("link.md");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for (to, text) in [(&file, "first"), (&file, "second"), (&link, "third")] {
            write(to, text.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        }
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn the_observations_of_a_page_never_overwrite_its_input() {
        let beside = beside_page(Path::new("out/report.html"));
        assert_eq!(beside, Path::new("out/report.observations.jsonl.gz"));
    }
}
