//! How the figures of a report come about, in words and commands.

use super::escape::shell;
use super::next::is_sandboxed;
use super::nouns::Nouns;
use super::text::clean;
use perfquilt_judge::attribution::Attribution;

/// The explanation of bold figures, the only bold text of a report.
pub(super) const SIGNIFICANT: &str = "Bold figures are significant.";

/// How points are interleaved; omitted if each point was measured in a run of its own. Backticks are the only markup
/// of this and the following texts.
const TURNS: &str = "\
The points' servers are alive at once and take turns every few milliseconds, so that what disturbs the \
machine disturbs them alike. ";

/// How figures are computed.
const METHOD: &str = "\
A block starts every server afresh and gives one value a point. An effect is the mean over blocks of the \
log ratio of two points' values; its interval takes blocks as the unit. `no effect` means that the effect is \
shown to lie within the margin and that neither mean nor tail say otherwise, `mixed` that something is faster and \
something slower, `unclear` that the blocks show nothing. ";

/// Describes the control of a point.
fn describe_control(base: &str) -> String {
    format!(
        "The control is {base} measured a second time as if it were another point; where every block has it, effects \
         against {} are against the mean of both. ",
        base.replace("bare ", "")
    )
}

/// Caveat of experiments with a single code layout.
const LAYOUT: &str = "All times come from one code layout a point: a small effect on `time` with unchanged `instructions` may be \
code that happened to move.";

/// Describes the method of an experiment; backticks are the only markup.
pub(super) fn describe_method(attribution: &Attribution) -> String {
    let layout = match attribution.noise.layouts {
        0 | 1 => LAYOUT.to_owned(),
        n => format!("Each point ran in {n} code layouts; blocks that share layouts count as one."),
    };
    let turns = if attribution.is_unpaired() { "" } else { TURNS };
    let control = describe_control(Nouns::of(attribution).base);
    format!("{turns}{METHOD}{control}{layout}")
}

/// Returns the commands that reproduce the report in `format`, with comments. If the experiment is not `stored`, the
/// input files are unknown and stand as FILE.
pub(super) fn commands(attribution: &Attribution, format: &str, stored: bool) -> Vec<String> {
    if !stored {
        return vec![format!("perfquilt analyse FILE --format {format}")];
    }
    let name = shell(&attribution.experiment);
    // A command that would not be shown whole is of no use.
    let known = attribution.command.as_ref();
    let (measuring, command) = match known.filter(|command| clean(command) == **command) {
        Some(command) => ("# builds", command.clone()),
        None => (
            "# with the preset and options of the run: builds",
            "perfquilt run".to_owned(),
        ),
    };
    let report = if is_sandboxed(attribution) {
        command.clone()
    } else {
        format!("perfquilt report {name}")
    };
    let mut lines = vec![
        format!("{measuring} and measures missing points, then reports"),
        command,
        "# this report from the stored observations".to_owned(),
        format!("{report} --format {format}"),
        "# the raw observations, for `perfquilt analyse`".to_owned(),
        format!("{report} --format jsonl"),
    ];
    let bundle = attribution.bundle.as_deref().unwrap_or_default();
    if !bundle.is_empty() && bundle.lines().all(|line| clean(line) == line) {
        lines.push("# whether the verdicts hold on another machine, without a compiler".to_owned());
        lines.extend(bundle.lines().map(str::to_owned));
    }
    lines
}
