//! The report as text for a terminal.

use std::fmt::Write;

use super::nouns::Nouns;
use super::page::{BOLD, DIM, TextPage};
use super::text::{clean, fit, long, width};
use super::view::{Label, Row, SeparateEffects, Tone, View};
use super::{functions, number};
use perfquilt_judge::attribution::Attribution;
use perfquilt_model::observation::Meter;

/// Smallest width that is fitted, in columns.
const NARROWEST: usize = 40;
/// Smallest width of a table's column of names, in columns; below it, too, each figure has a line of its own.
const MIN_NAME: usize = 12;
/// Smallest width of a table, in columns; below it, each figure has a line of its own.
const MIN_TABLE: usize = 60;

/// Returns the report as text of at most `columns` columns, with the answer last, where a terminal shows it; `color` allows
/// ANSI colours, `details` adds functions, noise and builds.
pub(super) fn terminal(
    attribution: &Attribution,
    columns: usize,
    color: bool,
    details: bool,
) -> String {
    let view = View::new(attribution);
    let mut page = TextPage::new(columns.max(NARROWEST), color);
    let scope = view.scope(&|name| clean(name));
    let recipe = match attribution.recipe.as_str() {
        "" => String::new(),
        recipe => format!(", recipe {}", clean(recipe)),
    };
    page.paragraph(
        &format!("{}{recipe}: {scope}", clean(attribution.base())),
        "",
    );
    if details {
        page.builds(attribution);
        page.noise(attribution);
        page.functions(attribution);
    }
    page.separate_effects(&view);
    page.workloads(&view);
    page.warnings(attribution);
    page.one_layout(attribution);
    page.blank();
    page.of_meters(&view, &view.rows.iter().collect::<Vec<_>>());
    page.blank();
    page.paragraph(&view.legend(), DIM);
    if !details {
        page.paragraph("`--details` adds functions, noise and builds.", DIM);
    }
    page.provenance(&view);
    page.blank();
    page.paragraph(&view.headline(&|name| clean(name)), BOLD);
    page.paragraph(&view.tally(&|name| clean(name)), "");
    page.text
}

impl TextPage {
    /// Appends a table with the view's columns.
    fn of_meters(&mut self, view: &View<'_>, rows: &[&Row<'_>]) {
        self.columns(&view.heads(), view.nouns().one, rows);
    }

    /// Appends a table with columns given by head and decimals; the names get the remaining width.
    fn columns(&mut self, heads: &[(&str, usize)], noun: &str, rows: &[&Row<'_>]) {
        let cells: Vec<Vec<String>> = rows
            .iter()
            .map(|row| {
                row.effects
                    .iter()
                    .zip(heads)
                    .map(|(effect, (_, places))| {
                        effect.map_or("–".to_owned(), |effect| number::effect(effect, *places))
                    })
                    .collect()
            })
            .collect();
        if self.width < MIN_TABLE {
            return self.stacked(heads, rows, &cells);
        }
        let judged = rows.iter().any(|row| !row.verdict.is_empty());
        let verdicts = rows.iter().map(|row| width(row.verdict));
        let verdicts = verdicts.fold(MIN_VERDICT, usize::max);
        let verdict_room = if judged { 2 + verdicts } else { 0 };
        let widths: Vec<usize> = heads
            .iter()
            .enumerate()
            .map(|(column, (head, _))| {
                cells
                    .iter()
                    .map(|row| width(&row[column]))
                    .fold(width(head), usize::max)
            })
            .collect();
        let names: Vec<String> = rows.iter().map(|row| name(row)).collect();
        let longest = names.iter().map(|name| width(name)).fold(5, usize::max);
        // The number and a gap of two columns; figures and the verdict have their gap in front.
        let digits = digits(rows);
        let lead = digits + 2;
        let figures: usize = widths.iter().map(|width| width + 2).sum();
        let room = self.width.saturating_sub(lead + figures + verdict_room);
        if room < MIN_NAME {
            return self.stacked(heads, rows, &cells);
        }
        let first = longest.min(room);
        let mut head = format!("{:>digits$}  {noun:first$}", "#");
        for ((text, _), width) in heads.iter().zip(&widths) {
            let _ = write!(head, "  {text:>width$}");
        }
        if judged {
            head.push_str("  verdict");
        }
        let head = self.styled(&head, BOLD);
        let _ = writeln!(self.text, "{head}");
        let mut previous = None;
        for ((row, cells), name) in rows.iter().zip(&cells).zip(&names) {
            if matches!(row.label, Label::Total) && previous.is_some() {
                let rule = "─".repeat(lead + first + figures + verdict_room);
                let rule = self.styled(&rule, DIM);
                let _ = writeln!(self.text, "{rule}");
            }
            // The number of a patch stands in its first row only.
            let number = match row.label {
                Label::Patch { index, .. } | Label::Workload { index, .. }
                    if previous != Some(index) =>
                {
                    previous = Some(index);
                    index.to_string()
                }
                _ => String::new(),
            };
            let name = fit(name, first);
            let pad = first - width(&name);
            let _ = write!(self.text, "{number:>digits$}  {name}{:pad$}", "");
            for ((cell, column), effect) in cells.iter().zip(&widths).zip(&row.effects) {
                let gap = column - width(cell);
                let cell = if effect.is_some_and(|effect| effect.is_stale()) {
                    self.styled(cell, DIM)
                } else {
                    cell.clone()
                };
                let _ = write!(self.text, "  {:gap$}{cell}", "");
            }
            if judged {
                let verdict = self.styled(row.verdict, colour(row.tone));
                let _ = write!(self.text, "  {verdict}");
            }
            self.remarks(row, lead + first + figures, verdicts);
        }
    }

    /// Appends a table for narrow terminals: below each row's name, one line per figure.
    fn stacked(&mut self, heads: &[(&str, usize)], rows: &[&Row<'_>], cells: &[Vec<String>]) {
        let longest = heads.iter().map(|(head, _)| width(head)).max().unwrap_or(0);
        let digits = digits(rows);
        for (row, cells) in rows.iter().zip(cells) {
            let number = match row.label {
                Label::Patch { index, .. } | Label::Workload { index, .. } => index.to_string(),
                _ => String::new(),
            };
            let name = fit(&name(row), self.width - digits - 2);
            self.line(&format!("{number:>digits$}  {name}"), BOLD);
            for ((head, _), cell) in heads.iter().zip(cells) {
                self.indented(&format!("{head:<longest$}  {cell}"), 4, "");
            }
            if !row.verdict.is_empty() {
                self.indented(row.verdict, 4, colour(row.tone));
            }
            let title = match row.label {
                Label::Patch { title, .. } => clean(title),
                _ => String::new(),
            };
            for (text, style) in [(title, DIM), (long(&row.notes.join("; ")), "")] {
                if !text.is_empty() {
                    self.indented(&text, 4, style);
                }
            }
        }
    }

    /// Appends title and notes of a row after `used` columns and a verdict padded to `verdicts` columns. Notes follow
    /// the verdict if they fit, else they go below.
    fn remarks(&mut self, row: &Row<'_>, used: usize, verdicts: usize) {
        let mut notes = long(&row.notes.join("; "));
        let pad = verdicts.saturating_sub(width(row.verdict)) + 2;
        let behind = used + 2 + width(row.verdict) + pad + width(&notes) <= self.width;
        if behind && !notes.is_empty() {
            let _ = write!(self.text, "{:pad$}{notes}", "");
            notes.clear();
        }
        self.blank();
        let title = match row.label {
            Label::Patch { title, .. } => clean(title),
            _ => String::new(),
        };
        if !title.is_empty() {
            self.indented(&title, 4, DIM);
        }
        if !notes.is_empty() {
            self.indented(&notes, 4, "");
        }
    }

    /// Appends the sources of reused figures, the closure check and the unused observations.
    fn provenance(&mut self, view: &View<'_>) {
        let name = |text: &str| long(text);
        for line in view.origins(&name) {
            self.paragraph(&line, DIM);
        }
        if let Some(line) = view.closure() {
            self.paragraph(&line, "");
        }
        let left_out = view.left_out(&name);
        if !left_out.is_empty() {
            self.blank();
            self.paragraph("Observations that no figure uses:", "");
            for line in left_out {
                self.indented(&line, 2, "");
            }
        }
    }

    fn warnings(&mut self, attribution: &Attribution) {
        for warning in &attribution.warnings {
            self.blank();
            self.paragraph(&format!("Note: {}", long(warning)), "");
        }
    }

    fn separate_effects(&mut self, view: &View<'_>) {
        for table in &view.separate_effects {
            self.blank();
            self.paragraph(
                &format!(
                    "{} ({}):",
                    view.nouns().separately,
                    table.meter.shown_quantity()
                ),
                "",
            );
            let heads = SeparateEffects::HEADS.map(|head| (head, table.places));
            self.columns(
                &heads,
                view.nouns().one,
                &table.rows.iter().collect::<Vec<_>>(),
            );
        }
    }

    fn workloads(&mut self, view: &View<'_>) {
        if view.has_suite() && view.has_intervals() {
            let noun = view.nouns().one;
            let shown = view.rows_with_effect();
            let unexecuted: Vec<&Row<'_>> = view.unexecuted_rows().collect();
            let chosen = |row: &&Row<'_>| {
                let mut effects = row.effects.iter().flatten();
                effects.any(|effect| effect.is_shown() || !effect.executed)
            };
            let rows: Vec<&Row<'_>> = view.details.iter().filter(chosen).collect();
            let empty = |row: &&Row<'_>| row.effects.iter().all(Option::is_none);
            let without = view.details.iter().filter(empty).count();
            let others = view.details.len() - rows.len() - without;
            self.blank();
            if shown.is_empty() {
                self.paragraph("No single workload shows an effect.", "");
            }
            if !rows.is_empty() {
                let words = match (shown.is_empty(), unexecuted.is_empty()) {
                    (_, true) => "there is an effect".to_owned(),
                    (true, false) => format!("the {noun} is not executed"),
                    (false, false) => {
                        format!("there is an effect, or the {noun} is not executed")
                    }
                };
                self.paragraph(&format!("By workload, where {words}:"), "");
                self.of_meters(view, &rows);
            }
            if !shown.is_empty() && others > 0 {
                self.paragraph(
                    &format!("{others} further pairs of {noun} and workload show none."),
                    DIM,
                );
            }
            match without {
                0 => {}
                1 => self.paragraph(
                    &format!("One pair of {noun} and workload has no figures."),
                    DIM,
                ),
                n => {
                    let words = format!("{n} pairs of {noun} and workload have no figures.");
                    self.paragraph(&words, DIM);
                }
            }
        }
        let further = view.further();
        if further.is_empty() {
            return;
        }
        self.blank();
        self.paragraph(&format!("{}:", view.further_heading()), "");
        for (index, meter, effect) in further {
            let workload = clean(super::workload_name(&effect.workload));
            let figure = number::effect(effect, number::decimals(meter, [effect].into_iter()));
            self.indented(&format!("{index}  {meter} of {workload}: {figure}"), 1, "");
        }
    }

    fn functions(&mut self, attribution: &Attribution) {
        let lines = functions::lines(attribution, &|name| clean(name));
        if lines.is_empty() {
            return;
        }
        self.blank();
        self.paragraph(functions::HEAD, "");
        for (index, workload, changes) in lines {
            self.indented(&format!("{index}  {}", clean(&workload)), 1, "");
            self.indented(&changes, 4, "");
        }
    }

    fn noise(&mut self, attribution: &Attribution) {
        let lines: Vec<String> = attribution
            .noise
            .spread
            .iter()
            .filter_map(|spread| {
                let block = spread.block_sd?;
                let parts: Vec<String> = [
                    ("layout", spread.layout_sd),
                    ("restart", spread.restart_sd),
                    ("within a block", spread.within_sd),
                ]
                .into_iter()
                .filter_map(|(name, sd)| Some(format!("{name} {}", number::spread(sd?))))
                .collect();
                let parts = if parts.is_empty() {
                    String::new()
                } else {
                    format!(" ({})", parts.join(", "))
                };
                Some(format!(
                    "{} of {}: {}{parts}",
                    spread.meter,
                    clean(&spread.workload),
                    number::spread(block)
                ))
            })
            .collect();
        if lines.is_empty() {
            return;
        }
        self.blank();
        self.paragraph("Noise of one value in one block (standard deviation):", "");
        for line in lines {
            self.indented(&line, 2, "");
        }
        let noise = &attribution.noise;
        let words = super::describe_machines(&noise.machines);
        for words in words
            .into_iter()
            .chain(super::describe_conditions(&noise.conditions))
        {
            self.paragraph(&words, "");
        }
    }

    /// Appends that the code layout is part of the effects, if there was only one.
    fn one_layout(&mut self, attribution: &Attribution) {
        let mut spread = attribution.noise.spread.iter();
        let timed = spread
            .any(|spread| spread.blocks > 0 && matches!(spread.meter, Meter::Time | Meter::Cpu));
        if timed && attribution.noise.layouts < 2 {
            self.blank();
            self.paragraph(
                "All times come from one code layout a point, whose luck is part of the effects.",
                "",
            );
        }
    }

    fn builds(&mut self, attribution: &Attribution) {
        if attribution.builds.is_empty() {
            return;
        }
        self.blank();
        self.paragraph("Builds (configure, compile, link):", "");
        for build in &attribution.builds {
            let from = if build.cached { ", from the cache" } else { "" };
            self.indented(
                &format!(
                    "{}: {}, {}, {}{from}",
                    Nouns::of(attribution).point(build.point),
                    number::seconds(build.configure),
                    number::seconds(build.compile),
                    number::seconds(build.link)
                ),
                2,
                "",
            );
        }
        if let Some(words) = super::code_size::describe(attribution) {
            self.paragraph(&words, "");
        }
        if let Some(words) = super::profile_guided::describe(attribution, &clean) {
            self.paragraph(&words, "");
        }
    }
}

/// Minimum width of verdicts, that of `no effect`, so that tables with and without it look alike.
const MIN_VERDICT: usize = 9;

/// Returns the number of digits of the rows' numbers, at least two.
fn digits(rows: &[&Row<'_>]) -> usize {
    let numbers = rows.iter().filter_map(|row| match row.label {
        Label::Patch { index, .. } | Label::Workload { index, .. } => Some(index),
        Label::Total | Label::Control => None,
    });
    numbers.max().unwrap_or(0).to_string().len().max(2)
}

fn name(row: &Row<'_>) -> String {
    match row.label {
        Label::Patch { name, .. } => clean(name),
        Label::Total => "total".to_owned(),
        Label::Control => "control (A/A)".to_owned(),
        Label::Workload { workload, .. } => clean(workload),
    }
}

fn colour(tone: Tone) -> &'static str {
    match tone {
        Tone::Good => "\x1b[32m",
        Tone::Bad => "\x1b[31m",
        Tone::Open => "\x1b[33m",
        Tone::Quiet => DIM,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Experiment;
    use super::*;
    use perfquilt_judge::attribution::attribute_with;
    use perfquilt_model::observation::Observation;
    use perfquilt_model::point::Point;

    /// Returns an experiment's report with its white space collapsed to single blanks.
    fn words(experiment: &Experiment, observations: &[Observation]) -> String {
        let (header, supplement) = (&experiment.header, &experiment.supplement);
        let attribution = attribute_with(header, observations, supplement, &Meter::default_margin);
        let text = terminal(&attribution.unwrap(), 80, false, true);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn points_that_share_no_block_have_notes_in_their_rows() {
        let mut experiment = Experiment::new(&[(0.03, 0.03), (0.0, 0.0)]);
        experiment.workloads.truncate(1);
        let shown = |experiment: &Experiment| {
            let mut observations = experiment.observations();
            for observation in &mut observations {
                if observation.point == Point::Step(1) {
                    observation.block += 100;
                }
            }
            words(experiment, &observations)
        };
        let text = shown(&experiment);
        for words in [
            "no block has both points",
            "against the bare release, the last before it that shares blocks with it",
            "Some points share no block",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(!text.contains("the last before it with figures"), "{text}");
        experiment.gains.truncate(1);
        experiment.header.series.truncate(1);
        experiment.header.titles.truncate(1);
        experiment.blocks = 1;
        let text = shown(&experiment);
        let words = "a single run of each gives no interval";
        assert!(text.contains(words), "{text}");
    }

    #[test]
    fn what_was_not_measured_is_not_said_to_have_no_effect() {
        let experiment = Experiment::new(&[(0.02, 0.02), (-0.02, -0.02)]);
        let mut observations = experiment.observations();
        let lacks = |o: &Observation| o.point == Point::Step(2) && o.workload == "oltp_read_only";
        observations.retain(|observation| !lacks(observation));
        let text = words(&experiment, &observations);
        for words in [
            "no figures on 1 of 2 workloads",
            "One pair of patch and workload has no figures.",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(!text.contains("show none"), "{text}");
        // One workload after the other.
        let mut observations = experiment.observations();
        for observation in &mut observations {
            if observation.workload == "oltp_read_only" {
                observation.block += 100;
            }
        }
        let text = words(&experiment, &observations);
        for words in [
            "No figure for the series over all workloads",
            "no block has it on all workloads",
            "By workload, where there is an effect",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn columns_fit_many_patches_and_the_longest_verdict() {
        let mut experiment = Experiment::new(&[]);
        experiment.gains = vec![(0.01, 0.01); 101];
        let name = |k: usize| {
            format!("{k:04}-a-patch-whose-name-takes-all-of-the-room-of-its-column.patch")
        };
        experiment.header.series = (1..=101).map(name).collect();
        experiment.header.titles = vec![String::new(); 101];
        experiment.workloads.truncate(1);
        experiment.blocks = 3;
        let mut attribution = experiment.attribution();
        attribution.patches[0].reason = Some("it was not asked for".into());
        let text = terminal(&attribution, 80, false, true);
        assert!(text.contains("no figures"), "{text}");
        for line in text.lines() {
            assert!(width(line) <= 80, "{line}");
        }
        for k in [9, 99, 101] {
            let number = format!("{k:>3}  {k:04}-");
            let lines = text.lines();
            let lines = lines.filter(|line| line.starts_with(&number));
            assert_eq!(lines.count(), 1, "{k}: {text}");
        }
    }

    #[test]
    fn notes_are_kept_whole() {
        let mut attribution = Experiment::new(&[(0.01, 0.01)]).attribution();
        let reason = format!("it is {}not separable", "very ".repeat(60));
        attribution.patches[0].reason = Some(reason);
        for columns in [40, 80] {
            let text = terminal(&attribution, columns, false, true);
            let words: Vec<&str> = text.split_whitespace().collect();
            assert!(words.join(" ").contains("very not separable"), "{text}");
        }
    }
}
