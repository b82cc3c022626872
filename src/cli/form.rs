//! The form of a report: which, where it goes, and the exit code it ends with.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use rustix::fs::{Access, access};

use super::Context;
use perfquilt_config::workspace::Workspace;
use perfquilt_judge::attribution::{self, Attribution, Verdict};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::observation::{Meter, RecordedRow};
use perfquilt_report::{Beside, Data, Distribution};
use perfquilt_store::jsonl;
use perfquilt_system::files::write_file;

/// How results are shown; shared by the commands that end in a report.
#[derive(Debug, Clone, Default, Args)]
pub struct Form {
    /// The report's form (--json is short for json)
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Write the report to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// A flame graph that `perfquilt profile --flame-graph` wrote, to be part of the page
    #[arg(long, value_name = "FILE")]
    flame_graph: Option<PathBuf>,
    /// End with exit code 6 when a patch or the whole series is slower, 7 when a patch is unclear
    #[arg(long, value_enum, value_name = "WHAT", value_delimiter = ',')]
    fail_on: Vec<FailOn>,
}

impl Form {
    /// The form asked for by `--format` or `--json`.
    ///
    /// # Errors
    /// [`Kind::Usage`] when they contradict each other, or ask for what only a page can show.
    pub fn format(&self, context: &Context) -> Result<Format> {
        let format = chosen(context, self.format, Format::Json, Format::Terminal)?;
        if self.flame_graph.is_some() && format != Format::Html {
            let fault = Error::usage("only a page has room for a flame graph");
            return Err(fault.hint("--format html"));
        }
        Ok(format)
    }

    /// Refuses, before hours of work, what [`show`] would refuse behind it.
    ///
    /// # Errors
    /// [`Kind::Usage`] as [`Form::format`] and [`writable`], when a page would go to a terminal, and when the flame
    /// graph cannot be read.
    pub fn check(&self, context: &Context) -> Result<()> {
        if self.format(context)? == Format::Html {
            self.page(context)?;
        }
        self.output.as_deref().map_or(Ok(()), writable)
    }

    /// Refuses to write the report over one of the files it is made from; `-` is standard input.
    ///
    /// # Errors
    /// [`Kind::Usage`] when it would.
    pub fn spare<'f>(&self, mut inputs: impl Iterator<Item = &'f PathBuf>) -> Result<()> {
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
            Err(Error::usage("the report would overwrite what it is made from").at(output, None))
        } else {
            Ok(())
        }
    }

    /// The flame graph of a page that goes to where a page can.
    fn page(&self, context: &Context) -> Result<Option<Vec<u8>>> {
        if self.output.is_none() && context.output.is_terminal() {
            return Err(Error::usage("a page is not for a terminal").hint("--output report.html"));
        }
        self.flame_graph.as_deref().map(flame_graph).transpose()
    }
}

/// The form that `--format` and `--json` ask for together.
///
/// # Errors
/// [`Kind::Usage`] when they contradict each other.
pub fn chosen<F: PartialEq>(context: &Context, given: Option<F>, json: F, usual: F) -> Result<F> {
    match (given, context.output.json()) {
        (None, true) => Ok(json),
        (Some(format), true) if format == json => Ok(json),
        (Some(_), true) => Err(Error::usage("--json and --format ask for different forms")),
        (format, false) => Ok(format.unwrap_or(usual)),
    }
}

/// How results that have neither page nor raw data are shown.
#[derive(Debug, Clone, Default, Args)]
pub struct TextForm {
    /// The report's form (--json is short for json)
    #[arg(long, value_enum)]
    format: Option<TextFormat>,
}

/// A report's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TextFormat {
    /// For people
    Terminal,
    /// For a pull request or a file
    Markdown,
    /// For programs
    Json,
}

impl TextForm {
    /// As [`Form::format`].
    ///
    /// # Errors
    /// As [`Form::format`].
    pub fn format(&self, context: &Context) -> Result<TextFormat> {
        chosen(context, self.format, TextFormat::Json, TextFormat::Terminal)
    }
}

/// A report's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table for people
    Terminal,
    /// The same as Markdown, with noise, method and machine folded away
    Markdown,
    /// One page with drawings and the data, for browsers
    Html,
    /// The attribution document
    Json,
    /// The raw observations
    Jsonl,
    /// Every effect as comma-separated values
    Csv,
    /// The raw observations in Go's benchmark format, for `benchstat -col /point`
    Gobench,
    /// The costs of all points in the Bencher Metric Format
    Bmf,
    /// The costs for github-action-benchmark's tool `customSmallerIsBetter`
    GithubActionBenchmark,
    /// Effects and costs as OpenMetrics text
    Openmetrics,
    /// Every operation of sql-bench's programs, as sql-bench prints them and with what is known
    SqlBench,
    /// What each point does in a second, and its other costs, as Markdown
    Rates,
}

impl Format {
    /// Whether it shows more than the attribution holds.
    pub fn needs_observations(self) -> bool {
        matches!(self, Format::Html | Format::Jsonl | Format::Gobench)
    }
}

/// A result that ends the program with an exit code of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// A patch, or the whole series, is slower
    Regression,
    /// A patch is unclear or has no figures, or blocks are missing
    Inconclusive,
}

/// An experiment to be reported on.
pub struct Shown {
    /// What was measured.
    pub file: jsonl::File,
    /// The table of sql-bench results it was made from, if it was made from one.
    pub recorded: Option<Vec<RecordedRow>>,
    /// Its slices, for a page.
    pub distributions: Vec<Distribution>,
    /// Whether it is in the workspace's store, so that more can be done with it.
    pub stored: bool,
}

/// Prints the report of an experiment in the form asked for.
///
/// # Errors
/// [`Kind::Regression`] and [`Kind::Inconclusive`] where `--fail-on` asks for them;
/// [`Kind::Usage`] when observations do not fit the header.
pub fn show(
    context: &Context,
    form: &Form,
    shown: &Shown,
    margin: &dyn Fn(Meter) -> f64,
) -> Result<()> {
    let jsonl::File {
        header,
        supplement,
        observations,
    } = &shown.file;
    let attribution = attribution::attribute_with(header, observations, supplement, margin)?;
    let format = form.format(context)?;
    let text = match format {
        Format::Html => page(context, form, shown, &attribution)?,
        Format::Jsonl => {
            let mut bytes = Vec::new();
            jsonl::write(&mut bytes, header, supplement, observations)?;
            String::from_utf8_lossy(&bytes).into_owned()
        }
        Format::Gobench => perfquilt_report::go_benchmark(header, observations),
        Format::Markdown => perfquilt_report::markdown(&attribution, shown.stored),
        _ => of_attribution(context, format, &attribution, shown.recorded.as_deref())?,
    };
    deliver(context, form.output.as_deref(), &text)?;
    if shown.stored && format == Format::Terminal {
        let next = perfquilt_report::next_command(&attribution);
        context.output.progress().note(&next);
    }
    fail(&attribution, &form.fail_on)
}

/// Prints the report of an attribution, whose observations are not at hand, in the form asked for.
///
/// # Errors
/// As [`show`].
pub fn print(context: &Context, form: &Form, attribution: &Attribution) -> Result<()> {
    let text = of_attribution(context, form.format(context)?, attribution, None)?;
    deliver(context, form.output.as_deref(), &text)?;
    fail(attribution, &form.fail_on)
}

fn of_attribution(
    context: &Context,
    format: Format,
    attribution: &Attribution,
    recorded: Option<&[RecordedRow]>,
) -> Result<String> {
    let output = &context.output;
    Ok(match format {
        Format::Terminal => perfquilt_report::terminal(attribution, output.width(), output.color()),
        Format::Markdown => perfquilt_report::markdown(attribution, false),
        Format::Json => perfquilt_report::json(attribution)?,
        Format::SqlBench => {
            perfquilt_report::sql_bench(attribution, recorded, output.width(), output.color())?
        }
        Format::Rates => perfquilt_report::rates(attribution),
        Format::Csv => perfquilt_report::csv(attribution)?,
        Format::Bmf => perfquilt_report::bencher(attribution)?,
        Format::GithubActionBenchmark => perfquilt_report::github_action_benchmark(attribution)?,
        Format::Openmetrics => perfquilt_report::openmetrics(attribution),
        Format::Html | Format::Jsonl | Format::Gobench => {
            return Err(Error::internal("there are no raw observations to print"));
        }
    })
}

/// The page, and beside it the observations where they are too many for it.
fn page(
    context: &Context,
    form: &Form,
    shown: &Shown,
    attribution: &Attribution,
) -> Result<String> {
    let flame_graph = form.page(context)?;
    let mut beside = Beside {
        header: &shown.file.header,
        observations: &shown.file.observations,
        distributions: &shown.distributions,
        data: Data::Command,
        flame_graph: flame_graph.as_deref(),
        stored: shown.stored,
    };
    // There is nothing beside a device or a pipe.
    let output = form.output.as_deref();
    let output = output.filter(|output| output.is_file() || !output.exists());
    // Too many are not even compressed, where nobody would get the result.
    let few = shown.file.observations.len() <= perfquilt_report::MOST_EMBEDDED / LEAST_BYTES;
    let bytes = if few || output.is_some() {
        Some(jsonl::compressed(&shown.file)?)
    } else {
        None
    };
    match (bytes, output) {
        (Some(bytes), _) if bytes.len() <= perfquilt_report::MOST_EMBEDDED => {
            beside.data = Data::Embedded(&bytes);
            perfquilt_report::html(attribution, &beside)
        }
        (Some(bytes), Some(output)) => {
            let file = beside_page(output);
            write_file(&file, &bytes)?;
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            beside.data = Data::File(&name, bytes.len() as u64);
            perfquilt_report::html(attribution, &beside)
        }
        _ => perfquilt_report::html(attribution, &beside),
    }
}

/// The observations of the page `output`. `report.jsonl.gz` may be what it is made from.
fn beside_page(output: &Path) -> PathBuf {
    output.with_extension("observations.jsonl.gz")
}

/// A compressed observation takes more.
const LEAST_BYTES: usize = 8;

/// The most that a flame graph may have: it is a part of the page.
const FLAME_GRAPH: usize = 8 << 20;

fn flame_graph(file: &Path) -> Result<Vec<u8>> {
    let bytes = std::fs::read(file).map_err(|error| {
        Error::usage(format!("cannot read {}: {error}", file.display()))
            .hint("`perfquilt profile A B --flame-graph FILE` writes one")
    })?;
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(1000)]).into_owned();
    if !head.contains("<svg") {
        return Err(Error::usage("not a flame graph: no SVG").at(file, None));
    }
    if bytes.len() > FLAME_GRAPH {
        return Err(Error::usage("a flame graph of more than 8 MiB").at(file, None));
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
    let note = format!("{} is written", file.display());
    context.output.progress().note(&note);
    Ok(())
}

fn write(file: &Path, bytes: &[u8]) -> Result<()> {
    // An old report stays until the new one is whole; what is no plain file is written into.
    let plain = std::fs::symlink_metadata(file).is_ok_and(|found| found.is_file());
    if plain && access(folder_of(file), Access::WRITE_OK).is_ok() {
        write_file(file, bytes)
    } else {
        std::fs::write(file, bytes).map_err(|error| Error::io("write", file, &error))
    }
}

/// Refuses a place where nothing can be written, before anything is done for it.
///
/// # Errors
/// [`Kind::Usage`] when `file` is a folder, is in none, or must not be written.
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

/// Device and inode of a plain file.
fn identity(file: &Path) -> Option<(u64, u64)> {
    let found = std::fs::metadata(file).ok()?;
    found.is_file().then(|| (found.dev(), found.ino()))
}

/// The margins of the workspace, where there is one.
pub fn margin(ws: Option<&Workspace>) -> impl Fn(Meter) -> f64 {
    move |meter| match ws {
        Some(ws) => ws.config.margin(meter),
        None => Meter::default_margin(meter),
    }
}

fn fail(attribution: &Attribution, fail_on: &[FailOn]) -> Result<()> {
    let names = |verdict| {
        let patches = attribution.patches_with(verdict);
        let names: Vec<&str> = patches.iter().map(|patch| patch.name.as_str()).collect();
        names.join(", ")
    };
    if fail_on.contains(&FailOn::Regression) && attribution.is_regression() {
        let patches = attribution.slower_patches();
        let names: Vec<&str> = patches.iter().map(|patch| patch.name.as_str()).collect();
        return Err(Error::new(Kind::Regression, slower(&names.join(", "))));
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

/// What is slower: the patches of these names, or all of them together where none is by itself.
fn slower(names: &str) -> String {
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
        assert_eq!(slower("a.patch, b.patch"), "slower: a.patch, b.patch");
        assert_eq!(slower(""), "slower: the whole series");
    }

    fn to(output: &Path) -> Form {
        Form {
            output: Some(output.to_owned()),
            ..Form::default()
        }
    }

    #[test]
    fn a_report_never_overwrites_what_it_is_made_from() {
        let folder = tempfile::tempdir().unwrap();
        let input = folder.path().join("in.jsonl");
        let link = folder.path().join("link.jsonl");
        let other = folder.path().join("other.txt");
        std::fs::write(&input, "in").unwrap();
        std::fs::write(&other, "other").unwrap();
        std::fs::hard_link(&input, &link).unwrap();
        for (output, spared) in [(&input, false), (&link, false), (&other, true)] {
            let inputs = [folder.path().join("none"), input.clone()];
            let found = to(output).spare(inputs.iter());
            assert_eq!(found.is_ok(), spared, "{}", output.display());
        }
        let device = PathBuf::from("/dev/null");
        assert!(to(&device).spare([&device].into_iter()).is_ok());
        assert!(Form::default().spare([&input].into_iter()).is_ok());
    }

    #[test]
    fn a_bad_place_is_told_before_the_work() {
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
    fn a_page_never_overwrites_what_it_is_made_from() {
        let beside = beside_page(Path::new("out/report.html"));
        assert_eq!(beside, Path::new("out/report.observations.jsonl.gz"));
    }
}
