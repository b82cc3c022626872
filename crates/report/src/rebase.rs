//! The result of a rebase as text for a terminal and as Markdown.

use std::fmt::Write;

use super::escape::{code, fenced, markdown as escape, markdown_uncut, shell};
use super::page::{BOLD, DIM, TextPage};
use super::text::{clean, fit, fit_end, long, width};
use super::{number, server_tests};
use perfquilt_model::observation::Meter;
use perfquilt_model::rebase::{
    BuildResult, Decision, EffectChange, LandingPlace, MeasuredEffect, PatchRemoval, PatchReport,
    Report, Status, TestResult,
};
use perfquilt_model::server_tests::TestFailure;

/// Smallest width that is fitted, in columns.
const NARROWEST: usize = 60;
/// Maximum number of lines shown of a patch's range-diff; `--json` has all.
const MOST_LINES: usize = 60;
/// Maximum number of places shown of a patch's changes.
const MOST_PLACES: usize = 10;

const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";

/// Returns the verdict on the rebase: `ready`, `2 untested`, `NEEDS 1 DECISION`.
fn verdict(report: &Report) -> String {
    match (report.decisions, report.untested()) {
        (0, 0) => "ready".to_owned(),
        (0, untested) => format!("{untested} untested"),
        (1, _) => "NEEDS 1 DECISION".to_owned(),
        (more, _) => format!("NEEDS {more} DECISIONS"),
    }
}

fn tally(report: &Report) -> String {
    let count = report.patches.len();
    let noun = if count == 1 { "patch" } else { "patches" };
    let parts: Vec<String> = report
        .counts()
        .iter()
        .map(|(status, count)| format!("{count} {status}"))
        .collect();
    format!("{count} {noun}: {}", parts.join(", "))
}

/// A group of patches that ask the same of their maintainer.
struct Group {
    title: String,
    /// One line a patch, and for a decision the command that opens it.
    patches: Vec<(String, Option<String>)>,
}

/// Sums a rebase up: what goes in by itself, what to review, what the release has, what needs a decision and why.
fn summary(report: &Report) -> Vec<Group> {
    let chosen = |wanted: &dyn Fn(&PatchReport) -> bool| -> Vec<&PatchReport> {
        report
            .patches
            .iter()
            .filter(|patch| wanted(patch))
            .collect()
    };
    let line = |patch: &PatchReport, why: &str| format!("{} {}: {why}", patch.index, patch.name);
    let mut groups = Vec::new();
    let certain =
        chosen(&|patch| patch.status.applies() && patch.review.is_none() && !is_broken(patch));
    if !certain.is_empty() {
        let parts: Vec<String> = Status::ALL
            .into_iter()
            .filter_map(|status| {
                let count = certain.iter().filter(|it| it.status == status).count();
                (count > 0).then(|| format!("{count} {status}"))
            })
            .collect();
        groups.push(Group {
            title: format!("Applies: {}", parts.join(", ")),
            patches: Vec::new(),
        });
    }
    let mut add = |title: &str, patches: Vec<(String, Option<String>)>| {
        if !patches.is_empty() {
            groups.push(Group {
                title: format!("{title}: {}", patches.len()),
                patches,
            });
        }
    };
    let review = chosen(&|patch| patch.status.applies() && patch.review.is_some());
    let lines = review.iter().map(|patch| {
        let why = patch.review.as_deref().unwrap_or_default();
        (line(patch, why), None)
    });
    add("Applies, review needed", lines.collect());
    let broken = chosen(&|patch| matches!(patch.build, Some(BuildResult::Failed(_))));
    let lines = broken.iter().filter_map(|patch| match &patch.build {
        Some(BuildResult::Failed(error)) => Some((line(patch, error), None)),
        _ => None,
    });
    add("Applies, but does not build", lines.collect());
    let untestable = chosen(&|patch| matches!(patch.tests, Some(TestResult::Failed(_))));
    let lines = untestable.iter().filter_map(|patch| match &patch.tests {
        Some(TestResult::Failed(error)) => Some((line(patch, error), None)),
        _ => None,
    });
    add("Applies, but its tests could not run", lines.collect());
    let failing = chosen(&|patch| !new_failures(patch).is_empty());
    let lines = failing.iter().map(|patch| {
        let failures: Vec<String> = new_failures(patch).iter().map(server_tests::runs).collect();
        (line(patch, &failures.join("; ")), None)
    });
    add("Applies, but tests newly fail", lines.collect());
    let upstream = chosen(&|patch| patch.status == Status::Upstream);
    let lines = upstream.iter().map(|it| (line(it, &it.evidence), None));
    add(
        "The release has it already (may be dropped)",
        lines.collect(),
    );
    let open = chosen(&|patch| patch.status.needs_decision());
    let lines = open.iter().map(|patch| {
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
        (line(patch, &why), Some(resolve_command(report, patch)))
    });
    add("Needs a decision", lines.collect());
    let untested = chosen(&|patch| patch.status == Status::Untested);
    let lines = untested.iter().map(|it| (line(it, &it.evidence), None));
    add("Waits for a decision", lines.collect());
    groups
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
    let mut places: Vec<String> = patch.places.iter().map(place).collect();
    if places.len() > MOST_PLACES {
        let more = places.len() - MOST_PLACES;
        places.truncate(MOST_PLACES);
        places.push(format!("… {more} more places (--json has all)"));
    }
    places
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

/// Returns the report of a rebase as text of at most `columns` columns; `color` allows ANSI colours. `lines` adds the
/// lines of every conflict and of every patch that changed.
pub fn terminal(report: &Report, columns: usize, color: bool, lines: bool) -> String {
    let mut page = TextPage::new(columns.max(NARROWEST), color);
    let style = if report.ready { GREEN } else { YELLOW };
    page.indented(
        &format!(
            "{} → {}: {}",
            clean(&report.from),
            clean(&report.to),
            verdict(report)
        ),
        0,
        if color { style } else { "" },
    );
    page.indented(&tally(report), 0, "");
    if let Some(tests) = &report.tests {
        page.indented(&format!("{}.", server_tests::of_release(tests)), 0, "");
    }
    for group in summary(report) {
        page.heading(&clean(&group.title));
        for (patch, command) in group.patches {
            page.indented(&long(&patch), 2, "");
            if let Some(command) = command {
                page.indented(&command, 4, DIM);
            }
        }
    }
    page.heading("Every patch");
    page.decisions_table(report);
    let has_lines =
        |patch: &PatchReport| !patch.decisions.is_empty() || !patch.range_diff.is_empty();
    if lines {
        for patch in &report.patches {
            page.decisions(report, patch);
        }
        page.range_diffs(report);
        page.places(report);
    } else if report.patches.iter().any(has_lines) {
        page.blank();
        let text = "--conflicts shows the lines of conflicts and of patches that changed";
        page.indented(text, 0, DIM);
    }
    let drops = further_drops(report);
    if !drops.is_empty() {
        page.heading("May be dropped (nothing is dropped by itself)");
        for drop in drops {
            page.indented(
                &format!(
                    "{} {}: {}",
                    drop.index,
                    clean(&drop.name),
                    long(&drop.reason)
                ),
                2,
                "",
            );
        }
    }
    for note in &report.notes {
        page.blank();
        page.indented(&long(note), 0, "");
    }
    page.written(report);
    if !report.next.is_empty() {
        page.blank();
    }
    for (index, command) in report.next.iter().enumerate() {
        let word = if index == 0 { "next:" } else { "" };
        let _ = writeln!(page.text, "{word:<6}{}", clean(command));
    }
    page.text
}

impl TextPage {
    fn heading(&mut self, text: &str) {
        self.blank();
        self.indented(text, 0, BOLD);
    }

    /// Appends a line of source text, cut at the width.
    fn source(&mut self, text: &str, indent: usize, style: &str) {
        let text: String = text.replace('\t', "    ");
        let text = fit_end(&clean(&text), self.width - indent);
        let line = self.styled(text.trim_end(), style);
        let _ = writeln!(self.text, "{:indent$}{line}", "");
    }

    fn decisions_table(&mut self, report: &Report) {
        let digits = report.patches.len().to_string().len();
        let speeds: Vec<String> = report
            .patches
            .iter()
            .map(|patch| patch.effect.as_ref().map_or_else(String::new, speed))
            .collect();
        let longest = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
        let speed_width = longest(&mut speeds.iter().map(|text| width(text)));
        let status_width = longest(
            &mut report
                .patches
                .iter()
                .map(|patch| patch.status.to_string().len()),
        );
        let gap = if speed_width > 0 { 2 + speed_width } else { 0 };
        let left = self
            .width
            .saturating_sub(digits + 2 + 2 + status_width + 2 + gap);
        let wanted = longest(&mut report.patches.iter().map(|p| width(&clean(&p.evidence))));
        let names = longest(&mut report.patches.iter().map(|p| width(&clean(&p.name))));
        // The evidence gets up to two thirds of the room, the names the rest, but at least 18 columns.
        let name_width = names.min(left.saturating_sub(wanted.min(left * 2 / 3)).max(18));
        let evidence_width = left.saturating_sub(name_width);
        for (patch, speed) in report.patches.iter().zip(&speeds) {
            let name = fit(&clean(&patch.name), name_width);
            let pad = name_width.saturating_sub(width(&name));
            let status = format!("{:status_width$}", patch.status);
            let status = self.styled(&status, tone(patch.status));
            let evidence = fit(&clean(&patch.evidence), evidence_width);
            let mut line = format!(
                "{:>digits$}  {name}{:pad$}  {status}  {evidence}",
                patch.index, ""
            );
            if !speed.is_empty() {
                let pad = evidence_width.saturating_sub(width(&evidence));
                let _ = write!(line, "{:pad$}  {speed}", "");
            }
            let _ = writeln!(self.text, "{}", line.trim_end());
            for note in notes(patch) {
                self.indented(&long(&note), digits + 4, DIM);
            }
        }
    }

    fn decisions(&mut self, report: &Report, patch: &PatchReport) {
        if patch.decisions.is_empty() {
            return;
        }
        self.heading(&format!("Patch {} {}", patch.index, clean(&patch.name)));
        for decision in &patch.decisions {
            self.indented(&clean(&place(decision)), 0, "");
            self.indented(&long(&decision.what), 2, DIM);
            if let Some(line) = decision.line {
                self.indented("now:", 2, DIM);
                if decision.now.is_empty() {
                    self.indented("(nothing)", 4, DIM);
                }
                let digits = (line + decision.now.len()).to_string().len();
                for (offset, text) in decision.now.iter().enumerate() {
                    let number = line + offset;
                    self.source(&format!("{number:>digits$}  {text}"), 4, "");
                }
            }
            self.changes("the patch:", &decision.patch);
            self.changes("upstream since then:", &decision.upstream);
            for remark in remarks(decision) {
                self.indented(&long(&remark), 2, "");
            }
        }
        let command = resolve_command(report, patch);
        let _ = writeln!(self.text, "  open it: {command}");
    }

    fn changes(&mut self, title: &str, lines: &[String]) {
        if lines.is_empty() {
            return;
        }
        self.indented(title, 2, DIM);
        for line in lines {
            self.source(line, 4, diff_tone(line));
        }
    }

    fn range_diffs(&mut self, report: &Report) {
        let changed: Vec<&PatchReport> = report
            .patches
            .iter()
            .filter(|patch| !patch.range_diff.is_empty())
            .collect();
        if changed.is_empty() {
            return;
        }
        self.heading("Patches that changed");
        for patch in changed {
            self.indented(
                &format!("{0}: old ! {0}: new {1}", patch.index, clean(&patch.name)),
                0,
                "",
            );
            for line in patch.range_diff.iter().take(MOST_LINES) {
                self.source(line, 4, diff_tone(line));
            }
            if patch.range_diff.len() > MOST_LINES {
                let more = patch.range_diff.len() - MOST_LINES;
                self.indented(&format!("… {more} more lines (--json has all)"), 4, DIM);
            }
        }
    }

    fn places(&mut self, report: &Report) {
        let placed = |patch: &&PatchReport| !patch.places.is_empty();
        for (index, patch) in report.patches.iter().filter(placed).enumerate() {
            if index == 0 {
                self.heading("Where the changes are, in files that upstream changed too");
            }
            self.indented(&format!("{} {}", patch.index, clean(&patch.name)), 0, "");
            for place in places(patch) {
                self.indented(&clean(&place), 4, DIM);
            }
        }
    }

    fn written(&mut self, report: &Report) {
        let Some(written) = &report.written else {
            return;
        };
        self.blank();
        match (&written.branch, &written.commit, &written.folder) {
            (Some(branch), Some(commit), _) => {
                let short = commit.get(..12).unwrap_or(commit);
                self.indented(
                    &format!("written: branch {} ({short})", clean(branch)),
                    0,
                    GREEN,
                );
            }
            (_, _, Some(folder)) => {
                self.indented(&format!("written: {}", clean(folder)), 0, GREEN);
            }
            _ => {}
        }
        for file in &written.files {
            self.indented(&clean(file), 2, "");
        }
        for aside in &written.set_aside {
            self.indented(
                &format!(
                    "{} is a comment in the series now: {}",
                    clean(&aside.name),
                    long(&aside.reason)
                ),
                2,
                "",
            );
        }
    }
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

fn tone(status: Status) -> &'static str {
    match status {
        Status::Exact | Status::Offset => GREEN,
        Status::Merged | Status::Resolved | Status::Partly | Status::Upstream => YELLOW,
        Status::Changed | Status::Conflict | Status::Untested => RED,
    }
}

fn diff_tone(line: &str) -> &'static str {
    match line.as_bytes().first() {
        Some(b'+') => GREEN,
        Some(b'-') => RED,
        Some(b'@') => DIM,
        _ => "",
    }
}

/// Returns the report of a rebase as GitHub-flavoured Markdown. Names and source lines cannot introduce markup. The lines
/// of every conflict and of every patch that changed are folded unless `lines`.
pub fn markdown(report: &Report, lines: bool) -> String {
    let folded = if lines { "<details open>" } else { "<details>" };
    let mut page = String::new();
    let _ = writeln!(
        page,
        "## {} → {}: {}\n\n{}.\n",
        escape(&report.from),
        escape(&report.to),
        verdict(report),
        tally(report)
    );
    if let Some(tests) = &report.tests {
        let _ = writeln!(page, "{}.\n", server_tests::of_release(tests));
    }
    for group in summary(report) {
        let _ = writeln!(page, "**{}**\n", escape(&group.title));
        for (patch, _) in &group.patches {
            let _ = writeln!(page, "- {}", markdown_uncut(patch));
        }
        if !group.patches.is_empty() {
            page.push('\n');
        }
    }
    let speeds = report.patches.iter().any(|patch| patch.effect.is_some());
    let (head, line) = if speeds {
        (" speed old → new |", " --- |")
    } else {
        ("", "")
    };
    let _ = writeln!(page, "| # | patch | status | evidence |{head}");
    let _ = writeln!(page, "| --: | --- | --- | --- |{line}");
    for patch in &report.patches {
        let mut evidence = markdown_uncut(&patch.evidence);
        for note in notes(patch) {
            let _ = write!(evidence, "<br>{}", markdown_uncut(&note));
        }
        let status = if patch.status.needs_decision() {
            format!("**{}**", patch.status)
        } else {
            patch.status.to_string()
        };
        let _ = write!(
            page,
            "| {} | {} | {status} | {evidence} |",
            patch.index,
            code(&patch.name)
        );
        if speeds {
            let speed = patch.effect.as_ref().map_or("–".to_owned(), speed);
            let _ = write!(page, " {speed} |");
        }
        page.push('\n');
    }
    for patch in report.patches.iter().filter(|p| !p.decisions.is_empty()) {
        let _ = writeln!(
            page,
            "\n{folded}<summary>Patch {}, {}: {}</summary>",
            patch.index,
            patch.status,
            escape(&patch.name)
        );
        for decision in &patch.decisions {
            let _ = writeln!(
                page,
                "\n{}: {}",
                code(&place(decision)),
                markdown_uncut(&decision.what)
            );
            if let Some(line) = decision.line {
                let digits = (line + decision.now.len()).to_string().len();
                let now: Vec<String> = decision
                    .now
                    .iter()
                    .enumerate()
                    .map(|(offset, text)| format!("{:>digits$}  {text}", line + offset))
                    .collect();
                block(&mut page, "Now:", "", &now);
            }
            block(&mut page, "The patch:", "diff", &decision.patch);
            block(
                &mut page,
                "Upstream since then:",
                "diff",
                &decision.upstream,
            );
            for remark in remarks(decision) {
                let _ = writeln!(page, "\n{}.", markdown_uncut(&remark));
            }
        }
        let _ = writeln!(page, "\nOpen it: {}", code(&resolve_command(report, patch)));
        page.push_str("\n</details>\n");
    }
    let changed = report.patches.iter().filter(|p| !p.range_diff.is_empty());
    for patch in changed {
        let _ = writeln!(
            page,
            "\n{folded}<summary>Patch {} changed: {}</summary>",
            patch.index,
            escape(&patch.name)
        );
        block(&mut page, "", "diff", &patch.range_diff);
        page.push_str("\n</details>\n");
    }
    for patch in report.patches.iter().filter(|p| !p.places.is_empty()) {
        let _ = writeln!(
            page,
            "\n{folded}<summary>Patch {}, where its changes are: {}</summary>\n",
            patch.index,
            escape(&patch.name)
        );
        for place in places(patch) {
            let _ = writeln!(page, "- {}", markdown_uncut(&place));
        }
        page.push_str("\n</details>\n");
    }
    let drops = further_drops(report);
    if !drops.is_empty() {
        page.push_str("\nMay be dropped (nothing is dropped by itself):\n\n");
        for drop in drops {
            let _ = writeln!(
                page,
                "- {} {}: {}",
                drop.index,
                code(&drop.name),
                markdown_uncut(&drop.reason)
            );
        }
    }
    for note in &report.notes {
        let _ = writeln!(page, "\n{}", markdown_uncut(note));
    }
    if let Some(written) = &report.written {
        let place = written.branch.as_ref().or(written.folder.as_ref());
        let _ = writeln!(
            page,
            "\nWritten: {}",
            code(place.map_or("", String::as_str))
        );
        for aside in &written.set_aside {
            let _ = writeln!(
                page,
                "- {} is a comment in the series now: {}",
                code(&aside.name),
                markdown_uncut(&aside.reason)
            );
        }
    }
    if !report.next.is_empty() {
        block(&mut page, "Next:", "sh", &report.next);
    }
    page
}

/// Appends a titled code block without trailing blanks; nothing if there are no lines.
fn block(page: &mut String, title: &str, language: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    if !title.is_empty() {
        let _ = writeln!(page, "\n{title}");
    }
    let lines: Vec<String> = lines
        .iter()
        .map(|line| line.trim_end().to_owned())
        .collect();
    let _ = writeln!(page, "\n{}", fenced(language, &lines));
}
