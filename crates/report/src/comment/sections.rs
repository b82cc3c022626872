//! The sections of a comment, in their order.

use super::length::Section;
use super::{MeasurementStatus, Notice, PendingApproval, PullRequestRef};
use crate::bisect::document as bisect_document;
use crate::document::markdown::render;
use crate::document::{
    self, Document, Folding, Inline, Node, Style, Target, Text, heading, list, name, note,
    paragraph, sentence,
};
use crate::escape::address;
use crate::nouns::point_name;
use crate::number;
use crate::report::{self, Content, EffectRows, Form};
use crate::text::{capital, short_commit};
use crate::view::{EffectRow, Label, SeparateEffects, View};
use perfquilt_judge::attribution::{Attribution, EffectKind, SUITE, effect_on};
use perfquilt_model::error::Kind;
use perfquilt_model::failure::Failure;

/// Maximum number of failures shown in full.
pub(super) const MAX_FAILURES: usize = 5;
/// Maximum number of files listed that need an approval.
const MAX_FILES: usize = 20;
/// Message for an interrupted run.
const INTERRUPTED: &str =
    "The run was interrupted. Finished blocks are kept; the next run continues.";
/// What figures of untrusted code mean: it runs beside what measures it.
const UNAPPROVED: &str =
    "Measured from code that nobody has approved: it could have influenced its own figures.";

/// Returns the sections in the order of the comment; their ranks are the order of removal. Sections that need measured
/// effects are empty without a view.
pub(super) fn sections(
    notice: &Notice<'_>,
    view: Option<&View<'_>>,
    status: MeasurementStatus,
    title: &str,
) -> Vec<Section> {
    let columns = notice.columns;
    let mark = super::status::mark(status);
    let heading = document::title(match columns {
        Some(_) => title.to_owned(),
        None => format!("{mark} {title}"),
    });
    let answer = match notice.answer.trim_end() {
        "" => String::new(),
        answer => format!("\n{answer}\n"),
    };
    let content = view.map(|view| Content {
        checkout: checkout(&notice.subject),
        ..Content::new(view, Form::Comment)
    });
    let measured = |rank, of: &dyn Fn(&View<'_>) -> Vec<Node>| {
        Section::new(
            rank,
            view.map_or(String::new(), |view| written(&of(view), columns)),
        )
    };
    let shown = content.iter().flat_map(Content::sections);
    let mut shown = shown.map(|(rank, nodes)| Section::new(rank, written(&nodes, columns)));
    [
        Section::new(0, rendered(&[heading], 2, columns)),
        Section::new(1, written(&activity(notice), columns)),
        Section::new(1, answer),
        Section::new(1, written(&introduction(notice, view), columns)),
        view.map_or_else(
            || Section::new(0, String::new()),
            |view| main_table(view, columns),
        ),
        Section::new(2, written(&failures(notice.failures), columns)),
        measured(2, &|view| legend(view, columns)),
        measured(4, &report::provenance),
    ]
    .into_iter()
    // The effects on single workloads.
    .chain(shown.next())
    .chain([Section::new(2, bisection(notice))])
    // Plain text cannot fold the rest.
    .chain(shown.take_while(|_| columns.is_none()))
    .chain([Section::new(1, written(&[links(notice)], columns))])
    .collect()
}

/// Writes nodes in the form of the comment; Markdown has headings from `level` on.
fn rendered(nodes: &[Node], level: usize, columns: Option<usize>) -> String {
    match columns {
        Some(columns) => Document(nodes.to_vec()).terminal(columns, false),
        None => render(nodes, level),
    }
}

/// Writes nodes as a section, which begins with a blank line.
fn written(nodes: &[Node], columns: Option<usize>) -> String {
    match rendered(nodes, 2, columns) {
        none if none.is_empty() => none,
        text => format!("\n{text}"),
    }
}

/// Returns the meaning of the table's figures, and the warnings.
fn legend(view: &View<'_>, columns: Option<usize>) -> Vec<Node> {
    // Plain text has no bold figures, of which the legend speaks.
    let words = match columns {
        Some(_) => document::soft(view.legend()),
        None => report::legend(view),
    };
    [words]
        .into_iter()
        .chain(report::warnings(&view.attribution.warnings))
        .collect()
}

/// Returns the last line of a shortened comment, which says where the whole report is.
pub(super) fn shortened(notice: &Notice<'_>) -> String {
    let whole = match (&notice.subject.report, notice.attribution) {
        (Some(link), _) if address(link).is_some() => link_to("the whole report", link),
        (_, Some(attribution)) => {
            let of = name(&attribution.experiment);
            format!("`perfquilt report --format markdown --details` of {of}").into()
        }
        _ => "the log of the run".into(),
    };
    let words = "This comment was too long and leaves something out, which is in ";
    let parts = [words.into(), whole, ".".into()];
    written(&[paragraph(Text::joined(parts, ""))], notice.columns)
}

fn link_to(words: &str, link: &str) -> Text {
    Inline::Link(words.to_owned(), Target::Web(link.to_owned())).into()
}

/// Says what happens now, and what waits for an approval.
fn activity(notice: &Notice<'_>) -> Vec<Node> {
    let activity = notice.activity.as_deref();
    let activity = activity.map(|activity| note(sentence(activity)));
    let approval = notice.pending_approval.iter().flat_map(approval);
    activity.into_iter().chain(approval).collect()
}

/// Returns the number of patches per verdict, the earlier effect, and the scope of the measurement.
fn introduction(notice: &Notice<'_>, view: Option<&View<'_>>) -> Vec<Node> {
    let moved = notice.subject.moved_on.as_ref().map(|moved| {
        note(format!(
            "This is about {}; the pull request has moved on to {}.",
            commit(&notice.subject.head),
            commit(moved)
        ))
    });
    let measured = view.into_iter().flat_map(|view| {
        let tally = paragraph(view.tally(&name) + ".");
        let earlier = notice
            .earlier
            .and_then(|before| earlier_total(before, view));
        let earlier = earlier.map(paragraph).into_iter();
        [tally]
            .into_iter()
            .chain(earlier)
            .chain([report::subject(view)])
    });
    let unapproved = view.filter(|_| notice.unapproved).map(|_| note(UNAPPROVED));
    moved
        .into_iter()
        .chain(unapproved)
        .chain(measured)
        .collect()
}

/// Returns the files to be reviewed, and the command that approves them.
fn approval(pending: &PendingApproval) -> Vec<Node> {
    let words = note(format!(
        "Not run yet: {} changes files that control the build. After a review, an authorised user can run it with {}. A newer \
         commit needs an approval of its own.",
        commit(&pending.head),
        name(&format!("@{} approve {}", pending.name, pending.head))
    ));
    let files = pending.files.iter().take(MAX_FILES).map(|file| name(file));
    let more = pending.files.len().saturating_sub(MAX_FILES);
    let more = (more > 0).then(|| format!("and {more} more"));
    let files = list(files.chain(more));
    [words].into_iter().chain(files).collect()
}

/// Renders the report of a bisection, one heading level lower, without the changed files, which the pull request shows.
fn bisection(notice: &Notice<'_>) -> String {
    let mut failed = failures(notice.bisection_failures);
    if !failed.is_empty() {
        failed.insert(0, heading("Bisection"));
    }
    let Some(mut found) = notice.bisection.cloned() else {
        return written(&failed, notice.columns);
    };
    for culprit in &mut found.culprits {
        culprit.files.clear();
    }
    found.next.clear();
    let found = rendered(&bisect_document(&found).0, 3, notice.columns);
    format!("{}\n{found}", written(&failed, notice.columns))
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
    let total = effect_on(&before.total, EffectKind::Total, meter, workload)?;
    let places = number::decimals(meter, [total].into_iter());
    Some(format!(
        "Before, on {}, it was {}.",
        name(&before.release),
        number::named(total, places)
    ))
}

fn commit(id: &str) -> String {
    name(short_commit(id))
}

/// Renders the main table: one row per patch, with the effect without it beside the one in order if both are known.
fn main_table(view: &View<'_>, columns: Option<usize>) -> Section {
    let mut heads = view.heads();
    if let (Some((_, places)), Some(_)) = (heads.first().copied(), without(view)) {
        heads.insert(1, ("without it", places));
    }
    let rows: Vec<EffectRow<'_>> = view
        .rows
        .iter()
        .map(|row| with_effect_without(row, view))
        .collect();
    let all: Vec<&EffectRow<'_>> = rows.iter().collect();
    let write = |rows: &[&EffectRow<'_>]| {
        let noun = view.nouns().one;
        let table = EffectRows {
            noun,
            heads: &heads,
            rows,
        };
        let table = table.table(&format!("Effect of each {noun}"), Form::Comment);
        let left_out = all.len() - rows.len();
        let words = (left_out > 0)
            .then(|| paragraph(format!("{left_out} further rows are left out here.")));
        let nodes: Vec<Node> = [table].into_iter().chain(words).collect();
        written(&nodes, columns)
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
fn with_effect_without<'a>(row: &EffectRow<'a>, view: &View<'a>) -> EffectRow<'a> {
    let mut effects = row.effects.clone();
    if let (Some(table), false) = (without(view), effects.is_empty()) {
        let effect = row.label.patch().and_then(|patch| {
            let (kind, meter) = (EffectKind::Without, table.meter);
            view.attribution.main_effect(&patch.effects, kind, meter)
        });
        effects.insert(1, effect);
    }
    EffectRow {
        effects,
        ..row.clone()
    }
}

/// Selects at most `keep` rows and returns them in their order. The total comes first, then slower or failed rows, faster
/// rows, and the rest.
fn most_important<'r, 'a>(rows: &[&'r EffectRow<'a>], keep: usize) -> Vec<&'r EffectRow<'a>> {
    let weight = |row: &EffectRow<'_>| match (row.label, row.style) {
        (Label::Total, _) => 0,
        (_, Style::Bad) => 1,
        (_, Style::Good) => 2,
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
        if failure.is_interruption() {
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

/// Returns commits and links in one line.
fn links(notice: &Notice<'_>) -> Node {
    let subject: &PullRequestRef = &notice.subject;
    let mut parts: Vec<Text> = Vec::new();
    // Nobody has the commits that were made of mails.
    if notice.columns.is_some() && !subject.base.is_empty() {
        parts.push(format!("on {}", commit(&subject.base)).into());
    } else if notice.columns.is_none() && !subject.head.is_empty() {
        let base = match subject.base.as_str() {
            "" => String::new(),
            base => format!(" on {}", commit(base)),
        };
        parts.push(format!("{}{base}", commit(&subject.head)).into());
    }
    for (words, link) in [("run", &subject.run), ("whole report", &subject.report)] {
        let link = link.as_deref().filter(|link| address(link).is_some());
        parts.extend(link.map(|link| link_to(words, link)));
    }
    parts.push(concat!("perfquilt ", env!("CARGO_PKG_VERSION")).into());
    Node::Footer(Text::joined(parts, " · "))
}
