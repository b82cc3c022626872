//! The sections of a comment, in their order.

use std::fmt::Write;

use super::length::Section;
use super::{MeasurementStatus, Notice, PendingApproval, PullRequestRef};
use crate::bisect::document as bisect_document;
use crate::document::markdown::render;
use crate::document::{Folding, Node, Text, name, note, paragraph, sentence};
use crate::escape::{address, code};
use crate::method::commands;
use crate::nouns::point_name;
use crate::number;
use crate::report;
use crate::text::capital;
use crate::view::{Label, Row, SeparateEffects, Tone, View};
use perfquilt_judge::attribution::{Attribution, SUITE};
use perfquilt_model::error::Kind;
use perfquilt_model::failure::Failure;

/// Maximum number of rows in an unfolded table of workloads.
const MAX_OPEN_ROWS: usize = 12;
/// Maximum number of failures shown in full.
pub(super) const MAX_FAILURES: usize = 5;
/// Maximum number of files listed that need an approval.
const MAX_FILES: usize = 20;
/// Message for an interrupted run.
const INTERRUPTED: &str =
    "The run was interrupted. Finished blocks are kept; the next run continues.";
/// Digits of a commit's id that are shown.
const SHORT_ID: usize = 12;

/// Returns the sections in the order of the comment; their ranks are the order of removal. Sections that need measured
/// effects are empty without a view.
pub(super) fn sections(
    notice: &Notice<'_>,
    view: Option<&View<'_>>,
    status: MeasurementStatus,
    title: &str,
) -> Vec<Section> {
    let heading = format!("## {} {title}\n", super::status::mark(status));
    let measured = |rank, of: &dyn Fn(&View<'_>) -> Vec<Node>| {
        Section::new(rank, view.map_or(String::new(), |view| written(&of(view))))
    };
    let of = |rank, of: &dyn Fn(&Attribution) -> Option<Node>| {
        measured(rank, &|view| of(view.attribution).into_iter().collect())
    };
    vec![
        Section::new(0, heading),
        Section::new(1, introduction(notice, view)),
        view.map_or_else(|| Section::new(0, String::new()), main_table),
        Section::new(2, written(&failures(notice.failures))),
        measured(2, &legend),
        measured(4, &report::provenance),
        measured(5, &|view| report::shown_workloads(view, MAX_OPEN_ROWS)),
        Section::new(2, bisection(notice)),
        measured(7, &report::separate_effects),
        measured(13, &|view| {
            report::all_workloads(view).into_iter().collect()
        }),
        of(8, &report::changed_functions),
        of(9, &report::noise),
        of(11, &|attribution| Some(report::method(attribution))),
        of(10, &|attribution| Some(report::machine(attribution))),
        of(12, &report::builds),
        measured(6, &|view| vec![reproduce(notice, view)]),
        Section::new(1, links(&notice.subject)),
    ]
}

/// Writes nodes as a section, which begins with a blank line.
fn written(nodes: &[Node]) -> String {
    match render(nodes, 2) {
        none if none.is_empty() => none,
        text => format!("\n{text}"),
    }
}

/// Returns the meaning of the table's figures, and the warnings.
fn legend(view: &View<'_>) -> Vec<Node> {
    [report::legend(view)]
        .into_iter()
        .chain(report::warnings(view.attribution))
        .collect()
}

/// Returns the commands that repeat the measurement.
fn reproduce(notice: &Notice<'_>, view: &View<'_>) -> Node {
    let mut lines = checkout(&notice.subject);
    lines.extend(commands(view.attribution, "markdown", true));
    report::reproduce(lines)
}

/// Returns the last line of a shortened comment, which says where the whole report is.
pub(super) fn shortened(notice: &Notice<'_>) -> String {
    let whole = match (&notice.subject.report, notice.attribution) {
        (Some(link), _) if address(link).is_some() => format!("[the whole report]({link})"),
        (_, Some(attribution)) => {
            let name = code(&attribution.experiment);
            format!("`perfquilt report --format markdown` of {name}")
        }
        _ => "the log of the run".to_owned(),
    };
    format!("\nThis comment was too long and leaves something out, which is in {whole}.\n")
}

/// Renders the current activity, the number of patches per verdict, and the scope of the measurement.
fn introduction(notice: &Notice<'_>, view: Option<&View<'_>>) -> String {
    let mut text = String::new();
    if let Some(activity) = &notice.activity {
        text += &written(&[note(sentence(activity))]);
    }
    if let Some(pending_approval) = &notice.pending_approval {
        text.push_str(&approval(pending_approval));
    }
    if !notice.answer.is_empty() {
        let _ = writeln!(text, "\n{}", notice.answer.trim_end());
    }
    if let Some(moved) = &notice.subject.moved_on {
        let _ = writeln!(
            text,
            "\n> This is about {}; the pull request has moved on to {}.",
            commit(&notice.subject.head),
            commit(moved)
        );
    }
    let Some(view) = view else {
        return text;
    };
    let _ = writeln!(text, "\n{}.", view.tally(&|name| code(name)));
    if let Some(line) = notice
        .earlier
        .and_then(|before| earlier_total(before, view))
    {
        let _ = writeln!(text, "\n{line}");
    }
    text + &written(&[report::subject(view)])
}

/// Renders the files to be reviewed, and the command that approves them.
fn approval(pending_approval: &PendingApproval) -> String {
    let mut text = format!(
        "\n> Not run yet: {} changes files that control the build. After a review, an authorised user can run it \
         with `@{} approve {}`. A newer commit needs an approval of its own.\n",
        commit(&pending_approval.head),
        pending_approval.name,
        pending_approval.head
    );
    text.push('\n');
    for file in pending_approval.files.iter().take(MAX_FILES) {
        let _ = writeln!(text, "- {}", code(file));
    }
    let more = pending_approval.files.len().saturating_sub(MAX_FILES);
    if more > 0 {
        let _ = writeln!(text, "- and {more} more");
    }
    text
}

/// Renders the report of a bisection, one heading level lower, without the changed files, which the pull request shows.
fn bisection(notice: &Notice<'_>) -> String {
    let failed = match written(&failures(notice.bisection_failures)) {
        none if none.is_empty() => none,
        failed => format!("\n### Bisection\n{failed}"),
    };
    let Some(mut found) = notice.bisection.cloned() else {
        return failed;
    };
    for culprit in &mut found.culprits {
        culprit.files.clear();
    }
    found.next.clear();
    format!("{failed}\n{}", render(&bisect_document(&found).0, 3))
}

/// Describes the total effect in the earlier experiment, on the current meter and workload.
fn earlier_total(before: &Attribution, view: &View<'_>) -> Option<String> {
    let now = view.attribution;
    let meter = now.main_meter()?;
    let workload = now.main_workload(meter)?;
    // Means over different workloads are not comparable.
    if workload == SUITE && before.workloads != now.workloads {
        return None;
    }
    let mut totals = before.total.iter();
    let total = totals.find(|total| total.meter == meter && total.workload == workload)?;
    let places = number::decimals(meter, [total].into_iter());
    Some(format!(
        "Before, on {}, it was {}.",
        code(&before.release),
        number::named(total, places)
    ))
}

fn commit(id: &str) -> String {
    match id.char_indices().nth(SHORT_ID) {
        Some((end, _)) => code(&id[..end]),
        None => code(id),
    }
}

/// Renders the main table: one row per patch, with the effect without it beside the one in order if both are known.
fn main_table(view: &View<'_>) -> Section {
    let mut heads = view.heads();
    if let (Some((_, places)), Some(_)) = (heads.first().copied(), without(view)) {
        heads.insert(1, ("without it", places));
    }
    let rows: Vec<Row<'_>> = view
        .rows
        .iter()
        .map(|row| with_effect_without(row, view))
        .collect();
    let all: Vec<&Row<'_>> = rows.iter().collect();
    let write = |rows: &[&Row<'_>]| {
        let table = report::columns(&heads, view.nouns().one, rows);
        let left_out = all.len() - rows.len();
        let words = (left_out > 0)
            .then(|| paragraph(format!("{left_out} further rows are left out here.")));
        written(&[table].into_iter().chain(words).collect::<Vec<_>>())
    };
    let mut shorter = Vec::new();
    let mut keep = all.len();
    while keep > 2 {
        keep /= 2;
        shorter.push(write(&most_important(&all, keep)));
    }
    Section {
        rank: 0,
        text: write(&all),
        shorter,
    }
}

/// Returns the table of the main meter that has effects without a patch.
fn without<'v, 'a>(view: &'v View<'a>) -> Option<&'v SeparateEffects<'a>> {
    let (meter, _) = view.columns.first()?;
    let table = view
        .separate_effects
        .iter()
        .find(|table| table.meter == *meter)?;
    let known = table
        .rows
        .iter()
        .any(|row| row.effects[SeparateEffects::WITHOUT].is_some());
    known.then_some(table)
}

/// Returns a main row with the effect without the patch after the first figure, if the table has a column for it.
fn with_effect_without<'a>(row: &Row<'a>, view: &View<'a>) -> Row<'a> {
    let mut effects = row.effects.clone();
    if let (Some(table), false) = (without(view), effects.is_empty()) {
        let effect = match row.label {
            Label::Patch { index, .. } => table
                .rows
                .iter()
                .find(|row| matches!(row.label, Label::Patch { index: i, .. } if i == index))
                .and_then(|row| row.effects[SeparateEffects::WITHOUT]),
            _ => None,
        };
        effects.insert(1, effect);
    }
    Row {
        label: row.label,
        effects,
        verdict: row.verdict,
        tone: row.tone,
        notes: row.notes.clone(),
        no_longer_helps: row.no_longer_helps,
    }
}

/// Selects at most `keep` rows and returns them in their order. The total comes first, then slower or failed rows, faster
/// rows, and the rest.
fn most_important<'r, 'a>(rows: &[&'r Row<'a>], keep: usize) -> Vec<&'r Row<'a>> {
    let weight = |row: &Row<'_>| match (row.label, row.tone) {
        (Label::Total, _) => 0,
        (_, Tone::Bad) => 1,
        (_, Tone::Good) => 2,
        (Label::Control, _) => 3,
        _ => 4,
    };
    let mut places: Vec<usize> = (0..rows.len()).collect();
    places.sort_by_key(|&place| weight(rows[place]));
    places.truncate(keep);
    places.sort_unstable();
    places.into_iter().map(|place| rows[place]).collect()
}

/// Returns the failures, each with its place and the output of the failed program.
fn failures(failures: &[Failure]) -> Vec<Node> {
    let mut nodes = Vec::new();
    for failure in failures.iter().take(MAX_FAILURES) {
        if failure.kind == Kind::Interrupted {
            nodes.push(paragraph(INTERRUPTED));
            continue;
        }
        let mut text = Text::default();
        if let Some(point) = failure.point {
            text.push(Text::from(capital(&point_name(point))).strong());
            text.push(": ");
        }
        if let Some(place) = &failure.place {
            text.push(format!("{}: ", name(place)));
        }
        text.push(sentence(&failure.message));
        nodes.push(paragraph(text));
        if !failure.details.is_empty() {
            let said = match failure.kind {
                Kind::Build => "Output of the compiler",
                Kind::Bench => "Output of the server or its client",
                _ => "Details",
            };
            let details = vec![Node::Code("text", failure.details.clone())];
            nodes.push(Node::Details(Folding::Folded, said.into(), details));
        }
        if let Some(hint) = &failure.hint {
            let mut next = Text::from("Next: ");
            next.push(sentence(hint));
            nodes.push(paragraph(next));
        }
    }
    if failures.len() > MAX_FAILURES {
        nodes.push(paragraph(format!(
            "And {} more.",
            failures.len() - MAX_FAILURES
        )));
    }
    nodes
}

/// Returns the commands that check out the measured commit.
fn checkout(subject: &PullRequestRef) -> Vec<String> {
    let id = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    match subject.number {
        Some(number) if id(&subject.head) => vec![
            "# the commit that was measured".to_owned(),
            format!(
                "git fetch origin pull/{number}/head && git checkout {}",
                subject.head
            ),
        ],
        _ => Vec::new(),
    }
}

/// Renders commits and links in one line.
fn links(subject: &PullRequestRef) -> String {
    let mut parts = Vec::new();
    if !subject.head.is_empty() {
        let base = match subject.base.as_str() {
            "" => String::new(),
            base => format!(" on {}", commit(base)),
        };
        parts.push(format!("{}{base}", commit(&subject.head)));
    }
    for (words, link) in [("run", &subject.run), ("whole report", &subject.report)] {
        if let Some(link) = link.as_deref().and_then(address) {
            parts.push(format!("[{words}]({link})"));
        }
    }
    parts.push(concat!("perfquilt ", env!("CARGO_PKG_VERSION")).to_owned());
    format!("\n<sub>{}</sub>\n", parts.join(" · "))
}
