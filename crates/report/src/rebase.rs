//! The result of a rebase.

use std::fmt::Write;

use super::document::{
    Cell, Document, Folding, Node, Style, Text, heading, list, literal, name, note, paragraph,
    soft, table,
};
use super::escape::shell;
use super::text::{clean, short_commit};
use super::{number, server_tests};
use perfquilt_model::counted::counted;
use perfquilt_model::observation::Meter;
use perfquilt_model::rebase::{
    BuildResult, Decision, EffectChange, LandingPlace, MeasuredEffect, PatchRemoval, PatchReport,
    Report, Status, TestResult, Written,
};
use perfquilt_model::server_tests::TestFailure;

/// Maximum number of lines shown of a patch's range-diff; `--json` has all.
const MOST_LINES: usize = 60;
/// Maximum number of places shown of a patch's changes.
const MOST_PLACES: usize = 10;

/// Returns the verdict on the rebase: `ready`, `2 untested`, `NEEDS 1 DECISION`.
fn verdict(report: &Report) -> String {
    match (report.decisions, report.untested()) {
        (0, 0) => "ready".to_owned(),
        (0, untested) => format!("{untested} untested"),
        (open, _) => format!("NEEDS {}", counted(open, "DECISION", "DECISIONS")),
    }
}

fn tally(report: &Report) -> String {
    let count = report.patches.len();
    let patches = counted(count, "patch", "patches");
    format!("{patches}: {}", listed(&report.counts()))
}

fn listed(counts: &[(Status, usize)]) -> String {
    let parts = counts.iter();
    let parts = parts.map(|(status, count)| format!("{count} {status}"));
    parts.collect::<Vec<_>>().join(", ")
}

/// A group of patches that ask the same of their maintainer.
struct Group {
    title: String,
    /// One entry a patch; below a decision stands the command that opens it.
    patches: Vec<Cell>,
}

/// Sums a rebase up: what goes in by itself, what to review, what the release has, what needs a decision and why.
fn summary(report: &Report) -> Vec<Group> {
    let mut groups = Vec::new();
    let is_certain =
        |it: &&PatchReport| it.status.applies() && it.review.is_none() && !is_broken(it);
    let certain = Status::counts(report.patches.iter().filter(is_certain));
    if !certain.is_empty() {
        groups.push(Group {
            title: format!("Applies: {}", listed(&certain)),
            patches: Vec::new(),
        });
    }
    for (title, why) in GROUPS {
        let patches = report.patches.iter().filter_map(|patch| {
            let line = format!(
                "{} {}: {}",
                patch.index,
                name(&patch.name),
                literal(&why(patch)?)
            );
            let open = patch.status.needs_decision();
            let command = open.then(|| name(&resolve_command(report, patch)));
            Some(Cell::from(line).below(command))
        });
        let patches: Vec<Cell> = patches.collect();
        if !patches.is_empty() {
            groups.push(Group {
                title: format!("{title}: {}", patches.len()),
                patches,
            });
        }
    }
    groups
}

/// The title of a group, and why a patch is in it; `None` if it is not.
type GroupOf = (&'static str, fn(&PatchReport) -> Option<String>);

const GROUPS: [GroupOf; 7] = [
    ("Applies, review needed", |patch| {
        let review = patch.review.clone();
        review.filter(|_| patch.status.applies())
    }),
    ("Applies, but does not build", |patch| match &patch.build {
        Some(BuildResult::Failed(error)) => Some(error.clone()),
        _ => None,
    }),
    (
        "Applies, but its tests could not run",
        |patch| match &patch.tests {
            Some(TestResult::Failed(error)) => Some(error.clone()),
            _ => None,
        },
    ),
    ("Applies, but tests newly fail", |patch| {
        let failures: Vec<String> = new_failures(patch).iter().map(server_tests::runs).collect();
        (!failures.is_empty()).then(|| failures.join("; "))
    }),
    ("The release has it already (may be dropped)", |patch| {
        (patch.status == Status::Upstream).then(|| patch.evidence.clone())
    }),
    ("Needs a decision", |patch| {
        patch.status.needs_decision().then(|| open_decisions(patch))
    }),
    ("Waits for a decision", |patch| {
        (patch.status == Status::Untested).then(|| patch.evidence.clone())
    }),
];

/// Says what must be decided about a patch.
fn open_decisions(patch: &PatchReport) -> String {
    let mut why = patch.evidence.clone();
    if let Some(first) = patch.decisions.first() {
        let place = place(first);
        why = match patch.status {
            Status::Changed => format!("{why}; {place}: {}", first.what),
            _ => format!("{place}: {}", first.what),
        };
    }
    if patch.decisions.len() > 1 {
        let _ = write!(why, "; {} more places", patch.decisions.len() - 1);
    }
    why
}

/// Whether a patch that goes in does not build, or its tests fail or could not run.
fn is_broken(patch: &PatchReport) -> bool {
    matches!(patch.build, Some(BuildResult::Failed(_)))
        || matches!(patch.tests, Some(TestResult::Failed(_)))
        || !new_failures(patch).is_empty()
}

/// Returns the tests that newly fail with a patch.
fn new_failures(patch: &PatchReport) -> &[TestFailure] {
    match &patch.tests {
        Some(TestResult::Ran(tests)) => &tests.new,
        _ => &[],
    }
}

/// Returns the patches that may be dropped although the release does not have them.
fn further_drops(report: &Report) -> Vec<&PatchRemoval> {
    let has_it = |drop: &&PatchRemoval| {
        let patch = report.patches.iter().find(|it| it.index == drop.index);
        patch.is_none_or(|patch| patch.status != Status::Upstream)
    };
    report.drops.iter().filter(has_it).collect()
}

fn speed(effect: &EffectChange) -> String {
    let shown = |speed: f64| {
        let meter = effect.meter.parse::<Meter>();
        meter.map_or(speed, |meter| meter.shown(speed))
    };
    let percent =
        |worth: &MeasuredEffect| format!("{} %", number::signed(shown(worth.estimate), 1));
    let new = effect.new.as_ref().map_or("?".to_owned(), percent);
    let mark = if effect.no_longer_helps { " !" } else { "" };
    format!("{} → {new}{mark}", percent(&effect.old))
}

/// Returns the remarks on a patch besides its row in the table.
fn notes(patch: &PatchReport) -> Vec<String> {
    let mut notes = Vec::new();
    if !patch.without.is_empty() && patch.status.applies() {
        let list: Vec<String> = patch.without.iter().map(ToString::to_string).collect();
        let noun = if list.len() == 1 { "patch" } else { "patches" };
        notes.push(format!("tried without {noun} {}", list.join(", ")));
    }
    if let Some(why) = &patch.review {
        notes.push(format!("review needed: {why}"));
    }
    match &patch.build {
        Some(BuildResult::Ok) => notes.push("builds".to_owned()),
        Some(BuildResult::Failed(_)) => notes.push("does not build".to_owned()),
        None => {}
    }
    match &patch.tests {
        Some(TestResult::Ran(tests)) => notes.push(server_tests::of_patch(tests)),
        Some(TestResult::Failed(_)) => notes.push("its tests could not run".to_owned()),
        None => {}
    }
    notes.extend(patch.notes.iter().cloned());
    if let Some(effect) = &patch.effect
        && effect.no_longer_helps
    {
        notes.push(format!(
            "no longer helps: {} on {} ({})",
            speed(effect).trim_end_matches(" !"),
            effect.workload,
            effect.meter
        ));
    }
    notes
}

/// Returns the location of a decision: file, line and hunk.
fn place(decision: &Decision) -> String {
    let mut text = decision.file.clone();
    if let Some(line) = decision.line {
        let _ = write!(text, ":{line}");
    }
    if let Some(function) = &decision.function {
        let _ = write!(text, ", in `{function}`");
    }
    if let Some(hunk) = decision.hunk {
        let _ = write!(text, ", hunk {hunk} of {}", decision.hunks);
    }
    text
}

/// Returns a line of a file with its function.
fn at(file: &str, line: usize, function: Option<&str>) -> String {
    match function {
        Some(function) => format!("{file}:{line} (`{function}`)"),
        None => format!("{file}:{line}"),
    }
}

/// Returns the places of a patch's changes in files that upstream changed too, for the pages that show lines.
fn places(patch: &PatchReport) -> Vec<String> {
    let place = |place: &LandingPlace| at(&place.file, place.line, place.function.as_deref());
    cut_off(
        patch.places.iter().map(place).collect(),
        MOST_PLACES,
        "places",
    )
}

/// Leaves out the lines beyond the first `most`.
fn cut_off(mut lines: Vec<String>, most: usize, noun: &str) -> Vec<String> {
    let more = lines.len().saturating_sub(most);
    if more > 0 {
        lines.truncate(most);
        lines.push(format!("… {more} more {noun} (--json has all)"));
    }
    lines
}

/// Returns the remarks on a decision besides its lines.
fn remarks(decision: &Decision) -> Vec<String> {
    let mut remarks = Vec::new();
    if !decision.candidates.is_empty() {
        let places = decision.candidates.iter();
        let places: Vec<String> = places
            .map(|place| at(&decision.file, place.line, place.function.as_deref()))
            .collect();
        remarks.push(format!(
            "the file has the lines that the hunk expects at {}",
            places.join(", ")
        ));
    }
    if let Some(closest) = decision.closest {
        remarks.push(match (closest.expected, decision.line) {
            (0, None) => format!("{} % like what the patch leaves", closest.result),
            _ => format!(
                "closest match: line {}, {} % like what the patch expects, {} % like what it leaves",
                closest.line, closest.expected, closest.result
            ),
        });
    }
    if !decision.touched_by.is_empty() {
        remarks.push(format!(
            "lines written by earlier patches: {}",
            decision.touched_by.join(", ")
        ));
    }
    remarks
}

/// Returns the document: what to decide, every patch, and the lines of conflicts and of patches that changed, which are
/// folded unless `lines`.
pub fn document(report: &Report, lines: bool) -> Document {
    let style = if report.ready {
        Style::Good
    } else {
        Style::Open
    };
    let head = format!(
        "{} → {}: {}",
        name(&report.from),
        name(&report.to),
        verdict(report)
    );
    let mut nodes = vec![
        Node::Heading(1, style, head.into()),
        paragraph(tally(report) + "."),
    ];
    let tests = report.tests.as_ref().map(server_tests::of_release);
    nodes.extend(tests.map(|tests| paragraph(format!("{tests}."))));
    for group in summary(report) {
        nodes.push(heading(group.title));
        nodes.extend(list(group.patches));
    }
    nodes.extend([heading("Every patch"), every_patch(report)]);
    let folding = if lines {
        Folding::Open
    } else {
        Folding::LeftOut
    };
    let details = details(report);
    if !lines && details.iter().any(|(is_long, ..)| *is_long) {
        nodes.push(Node::Hint(
            "--conflicts shows the lines of conflicts and of patches that changed".into(),
        ));
    }
    nodes.extend(
        details
            .into_iter()
            .map(|(_, summary, nodes)| Node::Details(folding, summary.into(), nodes)),
    );
    let drops = further_drops(report).into_iter();
    let drops = list(drops.map(|drop| {
        format!(
            "{} {}: {}",
            drop.index,
            name(&drop.name),
            literal(&drop.reason)
        )
    }));
    if let Some(drops) = drops {
        nodes.extend([
            heading("May be dropped (perfquilt drops nothing by itself)"),
            drops,
        ]);
    }
    nodes.extend(report.notes.iter().map(|text| note(literal(text))));
    nodes.extend(report.written.iter().flat_map(written));
    if !report.next.is_empty() {
        nodes.push(Node::Next(
            report
                .next
                .iter()
                .map(|next| (next.clone(), String::new()))
                .collect(),
        ));
    }
    Document(nodes)
}

/// Returns the table of all patches.
fn every_patch(report: &Report) -> Node {
    table("Every patch", &report.patches)
        .figures("#", |patch| patch.index.to_string())
        .names("patch", |patch| name(&patch.name))
        .words("status", |patch| {
            let status = Text::from(patch.status.to_string());
            let status = if patch.status.needs_decision() {
                status.strong()
            } else {
                status
            };
            Cell::from(status).styled(tone(patch.status))
        })
        .words("speed old → new", |patch| {
            patch.effect.as_ref().map_or("–".to_owned(), speed)
        })
        .only_if(report.patches.iter().any(|patch| patch.effect.is_some()))
        .prose("evidence", |patch| {
            let notes = notes(patch);
            Cell::from(literal(&patch.evidence)).below(notes.iter().map(|note| literal(note)))
        })
        .node()
}

/// Returns the lines of decisions and of patches that changed, and the places of changes: whether they are many, a
/// summary, and what it sums up.
fn details(report: &Report) -> Vec<(bool, String, Vec<Node>)> {
    let mut details = Vec::new();
    let of = |patch: &PatchReport, what: &str| {
        format!("Patch {} {}{what}", patch.index, name(&patch.name))
    };
    for patch in &report.patches {
        if !patch.decisions.is_empty() {
            let mut nodes: Vec<Node> = patch.decisions.iter().flat_map(decision).collect();
            let open = format!("Open it: {}", name(&resolve_command(report, patch)));
            nodes.push(paragraph(open));
            details.push((true, of(patch, &format!(": {}", patch.status)), nodes));
        }
    }
    for patch in &report.patches {
        if !patch.range_diff.is_empty() {
            let lines = cut_off(patch.range_diff.clone(), MOST_LINES, "lines");
            details.push((true, of(patch, " changed"), vec![Node::Code("diff", lines)]));
        }
    }
    for patch in &report.patches {
        let places = list(places(patch).iter().map(|place| literal(place)));
        if let Some(places) = places {
            let what = ": its places in files that upstream changed too";
            details.push((false, of(patch, what), vec![places]));
        }
    }
    details
}

/// Returns a decision: its place, the lines there now, those of the patch and what upstream did to them.
fn decision(decision: &Decision) -> Vec<Node> {
    let mut nodes = vec![paragraph(format!(
        "{}: {}",
        name(&place(decision)),
        literal(&decision.what)
    ))];
    if let Some(line) = decision.line {
        let digits = (line + decision.now.len()).to_string().len();
        let now = (line..).zip(&decision.now);
        let now: Vec<String> = now
            .map(|(number, text)| format!("{number:>digits$}  {text}"))
            .collect();
        if now.is_empty() {
            nodes.push(soft("Now: nothing."));
        } else {
            nodes.extend([soft("Now:"), Node::Code("", now)]);
        }
    }
    for (title, lines) in [
        ("The patch:", &decision.patch),
        ("Upstream since then:", &decision.upstream),
    ] {
        if !lines.is_empty() {
            nodes.extend([soft(title), Node::Code("diff", lines.clone())]);
        }
    }
    nodes.extend(
        remarks(decision)
            .iter()
            .map(|remark| paragraph(literal(remark) + ".")),
    );
    nodes
}

/// Returns what was written.
fn written(written: &Written) -> Vec<Node> {
    let place = match (&written.branch, &written.commit, &written.folder) {
        (Some(branch), Some(commit), _) => {
            format!("branch {} ({})", name(branch), name(short_commit(commit)))
        }
        (_, _, folder) => name(folder.as_deref().unwrap_or_default()),
    };
    let files = written.files.iter().map(|file| name(file));
    let aside = written.set_aside.iter().map(|aside| {
        let why = literal(&aside.reason);
        format!(
            "{} is a comment in the series now: {why}",
            name(&aside.name)
        )
    });
    let head = Node::Heading(2, Style::Good, format!("written: {place}").into());
    [head].into_iter().chain(list(files.chain(aside))).collect()
}

fn resolve_command(report: &Report, patch: &PatchReport) -> String {
    let next = report.next.first().map_or("", String::as_str);
    let command = next.split(" --resolve").next().unwrap_or(next);
    let command = command.split(" --write").next().unwrap_or(command);
    if command.starts_with("perfquilt rebase") {
        clean(&format!("{command} --resolve {}", patch.index))
    } else {
        format!(
            "perfquilt rebase {} --resolve {}",
            shell(&report.version),
            patch.index
        )
    }
}

fn tone(status: Status) -> Style {
    match status {
        Status::Exact | Status::Offset => Style::Good,
        Status::Merged | Status::Resolved | Status::Partly | Status::Upstream => Style::Open,
        Status::Changed | Status::Conflict | Status::Untested => Style::Bad,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_model::rebase::{CandidatePlace, Closest, EvidenceLevel};
    use perfquilt_model::server_tests::PointTests;

    /// Returns a rebase with patches of every status; `name` is part of every name.
    fn report(name: &str) -> Report {
        let patch = |index: usize, status: Status| PatchReport {
            index,
            name: format!("{index:04}-{name}.patch"),
            title: format!("Title of {name}"),
            status,
            evidence: format!("evidence that {name} is {status}, at hunk 1 of 2"),
            evidence_level: Some(EvidenceLevel::Merge),
            review: None,
            build: None,
            same_program: false,
            tests: None,
            offset: 0,
            places: Vec::new(),
            without: Vec::new(),
            notes: Vec::new(),
            decisions: Vec::new(),
            range_diff: Vec::new(),
            effect: None,
            commit: None,
        };
        let statuses = (1..).zip(Status::ALL.iter().copied());
        let mut patches: Vec<PatchReport> = statuses.map(|(at, of)| patch(at, of)).collect();
        let point = perfquilt_model::point::Point::Step(1);
        patches[0].build = Some(BuildResult::Ok);
        patches[0].tests = Some(TestResult::Ran(PointTests {
            passed: 12,
            ..PointTests::new(point)
        }));
        patches[1].build = Some(BuildResult::Failed(format!("{name} does not compile")));
        patches[2].review = Some(format!("the lines around {name} changed"));
        patches[2].notes = vec![format!("a note on {name}")];
        patches[2].without = vec![7, 8];
        patches[2].places = vec![LandingPlace {
            file: format!("sql/{name}.cc"),
            line: 40,
            function: Some("scan".into()),
            was: None,
        }];
        let effect = |estimate| MeasuredEffect {
            experiment: "series-1".into(),
            estimate,
            low: None,
            high: None,
            verdict: "faster".into(),
        };
        patches[3].effect = Some(EffectChange {
            workload: "load".into(),
            meter: "time".into(),
            old: effect(0.02),
            new: Some(effect(0.001)),
            no_longer_helps: true,
        });
        patches[4].range_diff = vec!["@@ sql/a.cc".into(), "-old".into(), format!("+{name}")];
        patches[7].decisions = vec![Decision {
            hunk: Some(1),
            line: Some(98),
            function: Some(name.to_owned()),
            candidates: vec![CandidatePlace {
                line: 7,
                function: None,
            }],
            now: vec!["\tif (a)".into(), format!("\t\treturn {name};"), "}".into()],
            patch: vec!["-  old".into(), format!("+  {name}")],
            upstream: vec!["-  old".into(), "+  theirs".into()],
            closest: Some(Closest {
                line: 99,
                expected: 70,
                result: 20,
            }),
            touched_by: vec![format!("0001-{name}.patch")],
            ..Decision::new(
                format!("sql/{name}.cc"),
                format!("the lines of {name} are gone"),
                2,
            )
        }];
        Report {
            schema: 1,
            from: "srv-1".into(),
            to: format!("srv-2-{name}"),
            version: "2".into(),
            series: "series".into(),
            ready: false,
            decisions: 2,
            patches,
            tests: Some(PointTests {
                passed: 12,
                ..PointTests::new(perfquilt_model::point::Point::BASE)
            }),
            drops: vec![PatchRemoval {
                index: 1,
                name: format!("0001-{name}.patch"),
                reason: format!("{name} no longer helps"),
            }],
            notes: vec![format!("A note on {name}.")],
            written: Some(Written {
                branch: Some(format!("rebase-{name}")),
                commit: Some("0123456789abcdef".into()),
                folder: None,
                files: vec!["series".into()],
                set_aside: vec![PatchRemoval {
                    index: 9,
                    name: format!("0009-{name}.patch"),
                    reason: "it waits".into(),
                }],
            }),
            next: vec!["perfquilt rebase 2 --resolve 7".into(), "git diff".into()],
        }
    }

    #[test]
    fn every_form() {
        let report = report("a_*b");
        insta::assert_snapshot!(crate::tests::forms(&[
            ("60 columns", document(&report, false).terminal(60, false)),
            (
                "80 columns, lines",
                document(&report, true).terminal(80, false)
            ),
            ("100 columns", document(&report, false).terminal(100, true)),
            ("Markdown", document(&report, false).markdown()),
        ]));
    }
}
