//! Two experiments compared patch by patch, as text for a terminal and as Markdown.

use std::fmt::Write;

use super::escape::{code, markdown as escape, markdown_uncut};
use super::nouns::Nouns;
use super::number;
use super::number::units;
use super::page::{BOLD, DIM, TextPage};
use super::text::{capital, clean, fit, fit_end, long, width};
use perfquilt_judge::attribution::{
    Change, ComparedExperiment, Comparison, ComparisonRow, ComparisonTable, Effect,
    EffectDifference, SUITE, ShownChange,
};
use perfquilt_model::observation::Meter;

/// Smallest width that is fitted, in columns.
const NARROWEST: usize = 40;
/// Smallest width of a patch's name beside its figures; with less room, the figures go below it.
const NARROWEST_NAME: usize = 14;

/// The heads of the columns of figures.
pub(super) const HEADS: [&str; 3] = ["before", "after", "difference"];

/// Returns what the figures mean.
pub(super) fn legend(comparison: &Comparison) -> String {
    let mut meters: Vec<Meter> = comparison.tables.iter().map(|table| table.meter).collect();
    meters.dedup();
    let units = units(&meters);
    let (against, judged) = if comparison.is_of_servers() {
        (
            " against the base of the same experiment",
            "servers are judged together",
        )
    } else {
        ("", "patches are judged together, and the total by itself")
    };
    let typical = if meters.iter().any(|meter| meter.is_shown_as_speed()) {
        " Speed is that of a typical transaction."
    } else {
        ""
    };
    format!(
        "{units}{against}. The difference is the second effect against the first; its interval has the error of both. \
         {}.{typical}",
        capital(judged)
    )
}

/// Returns the nouns of a comparison.
pub(super) fn nouns(comparison: &Comparison) -> &'static Nouns {
    Nouns::of_points(comparison.is_of_servers())
}

/// Returns the figures of a row as text: before, after, difference.
pub(super) fn cells(row: &ComparisonRow, meter: Meter, places: usize) -> [String; 3] {
    let figure = |effect: &Option<Effect>| {
        let effect = effect.as_ref();
        effect.map_or("–".to_owned(), |effect| number::effect(effect, places))
    };
    let difference = row.difference.as_ref();
    [
        figure(&row.before),
        figure(&row.after),
        difference.map_or("–".to_owned(), |difference| {
            shown(difference, meter, places)
        }),
    ]
}

fn shown(difference: &EffectDifference, meter: Meter, places: usize) -> String {
    let ends = difference.low.zip(difference.high);
    number::change(&ShownChange::of(meter, difference.estimate, ends), places)
}

/// Returns the verdict on a row.
pub(super) fn verdict(row: &ComparisonRow) -> String {
    match (&row.before, &row.after, &row.difference) {
        (_, _, Some(difference)) => difference.verdict.to_string(),
        (Some(_), None, _) if row.patch.is_some() && row.index_after.is_none() => {
            "only before".to_owned()
        }
        (None, Some(_), _) if row.patch.is_some() && row.index_before.is_none() => {
            "only after".to_owned()
        }
        _ => String::new(),
    }
}

/// Returns the position of a row's patch, `3` or `3→4`, and an empty text for the whole series.
pub(super) fn position(row: &ComparisonRow) -> String {
    match (row.index_before, row.index_after) {
        (Some(before), Some(after)) if before != after => format!("{before}→{after}"),
        (_, Some(at)) | (Some(at), None) => at.to_string(),
        (None, None) => String::new(),
    }
}

/// Returns the name of a row's patch as it is, or `total`.
pub(super) fn name(row: &ComparisonRow) -> &str {
    row.patch.as_deref().unwrap_or("total")
}

/// Returns the decimals of a table.
pub(super) fn places(table: &ComparisonTable) -> usize {
    let rows = table.patches.iter().chain([&table.total]);
    let effects = rows.flat_map(|row| row.before.iter().chain(&row.after));
    number::decimals(table.meter, effects)
}

/// Returns the rows of a table that have a figure.
pub(super) fn rows(table: &ComparisonTable) -> impl Iterator<Item = &ComparisonRow> {
    let rows = table.patches.iter().chain([&table.total]);
    rows.filter(|row| row.before.is_some() || row.after.is_some())
}

/// Returns the title of a table: `time, all 6 workloads`.
pub(super) fn title(table: &ComparisonTable, name: &dyn Fn(&str) -> String) -> String {
    match table.workload.as_str() {
        SUITE => format!(
            "{}, all {} workloads",
            table.meter.shown_quantity(),
            table.workloads
        ),
        workload => format!("{}, {}", table.meter.shown_quantity(), name(workload)),
    }
}

/// Describes a compared experiment: name, release, recipe, day.
pub(super) fn describe(of: &ComparedExperiment, name: &dyn Fn(&str) -> String) -> String {
    let mut facts = vec![name(&of.release)];
    if !of.recipe.is_empty() {
        facts.push(format!("recipe {}", name(&of.recipe)));
    }
    if let Some(day) = of.started.get(..10) {
        facts.push(clean(day));
    }
    format!("{} ({})", name(&of.experiment), facts.join(", "))
}

/// Returns the first sentence: what the series is worth in the second experiment against the first.
pub(super) fn headline(comparison: &Comparison) -> String {
    let total = comparison.main_tables().next();
    let Some(table) = total else {
        return "The experiments have no workload and meter in common".to_owned();
    };
    if comparison.is_of_servers() {
        return counts(comparison, table);
    }
    let places = places(table);
    let [before, after, figure] = cells(&table.total, table.meter, places);
    let quantity = table.meter.shown_quantity();
    let on = match table.workload.as_str() {
        SUITE => String::new(),
        workload => format!(" on {}", clean(workload)),
    };
    match table.total.difference.map(|difference| difference.verdict) {
        Some(Change::More | Change::Less | Change::Same) => format!(
            "The series is {}{on}: {figure} in {quantity}",
            verdict(&table.total)
        ),
        Some(Change::Unclear) => {
            format!(
                "Whether the series is worth more or less{on} is unclear: {figure} in {quantity}"
            )
        }
        None => format!("The series{on}: {before} before and {after} after, in {quantity}"),
    }
}

/// Returns the counts of [`counts`] for the first main table, unless the headline has them.
pub(super) fn tally(comparison: &Comparison) -> Option<String> {
    let table = comparison.main_tables().next()?;
    (!comparison.is_of_servers()).then(|| counts(comparison, table))
}

/// Counts the patches of a table by verdict: `4 patches in both: 1 worth less, 3 unclear`.
fn counts(comparison: &Comparison, table: &ComparisonTable) -> String {
    let both = table
        .patches
        .iter()
        .filter(|row| row.index_before.is_some() && row.index_after.is_some());
    let both: Vec<&ComparisonRow> = both.collect();
    let mut parts = Vec::new();
    for change in [Change::More, Change::Less, Change::Same, Change::Unclear] {
        let of = |row: &&&ComparisonRow| row.difference.is_some_and(|it| it.verdict == change);
        match both.iter().filter(of).count() {
            0 => {}
            count => parts.push(format!("{count} {change}")),
        }
    }
    let nouns = nouns(comparison);
    let noun = if both.len() == 1 {
        nouns.one
    } else {
        nouns.many
    };
    let mut text = format!("{} {noun} in both", both.len());
    if !parts.is_empty() {
        let _ = write!(text, ": {}", parts.join(", "));
    }
    for (which, count) in [
        (
            "before",
            table
                .patches
                .iter()
                .filter(|row| row.index_after.is_none())
                .count(),
        ),
        (
            "after",
            table
                .patches
                .iter()
                .filter(|row| row.index_before.is_none())
                .count(),
        ),
    ] {
        if count > 0 {
            let _ = write!(text, "; {count} only {which}");
        }
    }
    text
}

/// Returns the significant differences on single workloads of a comparison that has figures over all workloads.
pub(super) fn on_single_workloads(
    comparison: &Comparison,
) -> impl Iterator<Item = (&ComparisonTable, &ComparisonRow)> {
    let suite = comparison.has_suite();
    let single = comparison
        .tables
        .iter()
        .filter(move |table| suite && table.workload != SUITE);
    single.flat_map(|table| {
        let shown = |row: &&ComparisonRow| row.difference.is_some_and(|it| it.verdict.is_shown());
        table
            .patches
            .iter()
            .filter(shown)
            .map(move |row| (table, row))
    })
}

/// Returns the comparison as text of at most `columns` columns; `color` allows ANSI colours.
pub fn terminal(comparison: &Comparison, columns: usize, color: bool) -> String {
    let mut page = TextPage::new(columns.max(NARROWEST), color);
    page.paragraph(&headline(comparison), BOLD);
    for (word, of) in [
        ("before", &comparison.before),
        ("after ", &comparison.after),
    ] {
        page.paragraph(&format!("{word}  {}", describe(of, &clean)), "");
    }
    if let Some(words) = tally(comparison) {
        page.paragraph(&words, "");
    }
    for line in comparison.incomparable.iter().chain(&comparison.warnings) {
        page.paragraph(&long(line), "");
    }
    for table in comparison.main_tables() {
        page.blank();
        page.line(&fit_end(&title(table, &clean), page.width), BOLD);
        page.comparison_table(table);
    }
    let mut first = true;
    for (table, row) in on_single_workloads(comparison) {
        if std::mem::take(&mut first) {
            page.blank();
            page.line("On single workloads", BOLD);
        }
        let [before, after, difference] = cells(row, table.meter, places(table));
        let text = format!(
            "{} {}, {}: {before} → {after}: {difference}, {}",
            position(row),
            clean(name(row)),
            title(table, &clean),
            verdict(row)
        );
        page.indented(&text, 2, "");
    }
    page.blank();
    page.paragraph(&legend(comparison), DIM);
    page.text
}

impl TextPage {
    fn comparison_table(&mut self, table: &ComparisonTable) {
        let places = places(table);
        let lines: Vec<(&ComparisonRow, String, [String; 3], String)> = rows(table)
            .map(|row| {
                (
                    row,
                    position(row),
                    cells(row, table.meter, places),
                    verdict(row),
                )
            })
            .collect();
        let widest = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
        let digits = widest(&mut lines.iter().map(|(_, at, ..)| width(at)));
        let verdicts = widest(&mut lines.iter().map(|(.., verdict)| width(verdict)));
        let figures: Vec<usize> = (0..3)
            .map(|column| {
                widest(&mut lines.iter().map(|(_, _, cells, _)| width(&cells[column])))
                    .max(HEADS[column].len())
            })
            .collect();
        let columns = figures.iter().map(|room| room + 2).sum::<usize>() + 2 + verdicts;
        let longest = widest(&mut lines.iter().map(|(row, ..)| width(&clean(name(row)))));
        let room = self.width.saturating_sub(digits + 2 + columns);
        // With less room, the figures go below the name; in columns, if these fit.
        let beside = room >= NARROWEST_NAME.min(longest);
        let below = !beside && digits + columns <= self.width;
        let name_width = if beside { room.min(longest) } else { 0 };
        let right = |text: &str, room: usize| {
            format!("  {}{text}", " ".repeat(room.saturating_sub(width(text))))
        };
        let in_columns = |cells: &[String; 3]| -> String {
            let cells = cells.iter().zip(&figures);
            cells.map(|(text, room)| right(text, *room)).collect()
        };
        if beside || below {
            let gap = if beside {
                digits + 2 + name_width
            } else {
                digits
            };
            let heads = in_columns(&HEADS.map(str::to_owned));
            self.line(&format!("{}{heads}", " ".repeat(gap)), DIM);
        }
        for (row, at, cells, verdict) in &lines {
            let number = format!("{}{at}  ", " ".repeat(digits - width(at)));
            let room = if beside {
                name_width
            } else {
                self.width - digits - 2
            };
            let name = fit(&clean(name(row)), room);
            if beside {
                let gap = " ".repeat(name_width - width(&name));
                self.line(
                    &format!("{number}{name}{gap}{}  {verdict}", in_columns(cells)),
                    "",
                );
                continue;
            }
            self.line(&format!("{number}{name}"), "");
            if below {
                let gap = " ".repeat(digits);
                self.line(&format!("{gap}{}  {verdict}", in_columns(cells)), "");
            } else {
                self.indented(&format!("{} → {}", cells[0], cells[1]), digits + 2, "");
                self.indented(format!("{} {verdict}", cells[2]).trim(), digits + 2, "");
            }
        }
    }
}

/// Returns the comparison as Markdown.
pub fn markdown(comparison: &Comparison) -> String {
    let mut page = format!("## {}\n\n", escape(&headline(comparison)));
    for (word, of) in [("before", &comparison.before), ("after", &comparison.after)] {
        let _ = writeln!(page, "- {word}: {}", describe(of, &code));
    }
    if let Some(words) = tally(comparison) {
        let _ = writeln!(page, "\n{words}.");
    }
    for line in comparison.incomparable.iter().chain(&comparison.warnings) {
        let _ = writeln!(page, "\n> {}", markdown_uncut(line));
    }
    for table in comparison.main_tables() {
        markdown_table(&mut page, table, nouns(comparison).one);
    }
    let mut first = true;
    for (table, row) in on_single_workloads(comparison) {
        if std::mem::take(&mut first) {
            page.push_str("\n### On single workloads\n\n");
        }
        let [before, after, difference] = cells(row, table.meter, places(table));
        let _ = writeln!(
            page,
            "- {} {}, {}: {before} → {after}: {difference}, **{}**",
            position(row),
            code(name(row)),
            title(table, &code),
            verdict(row)
        );
    }
    let _ = writeln!(page, "\n{}", legend(comparison));
    page
}

/// Appends a table; `noun` is what its rows are.
fn markdown_table(page: &mut String, table: &ComparisonTable, noun: &str) {
    let places = places(table);
    let _ = writeln!(page, "\n### {}\n", title(table, &code));
    let _ = writeln!(
        page,
        "| # | {noun} | {} | |\n|--:|:--|--:|--:|--:|:--|",
        HEADS.join(" | ")
    );
    for row in rows(table) {
        let cells = cells(row, table.meter, places)
            .map(|cell| escape(&cell))
            .join(" | ");
        let name = row.patch.as_deref().map_or("total".to_owned(), code);
        let verdict = match row.difference {
            Some(difference) if difference.verdict.is_shown() => format!("**{}**", verdict(row)),
            _ => verdict(row),
        };
        let _ = writeln!(page, "| {} | {name} | {cells} | {verdict} |", position(row));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison_page;
    use crate::tests::Experiment;
    use perfquilt_judge::attribution::compare;

    fn comparison(name: &str) -> Comparison {
        let old = Experiment::new(&[(0.03, 0.02), (0.01, 0.01)]);
        let mut new = Experiment::new(&[(0.01, 0.02), (0.01, 0.01), (0.0, 0.0)]);
        new.header.release = name.to_owned();
        new.header.started = "2026-02-02T03:04:05Z".into();
        compare(&old.attribution(), &new.attribution())
    }

    #[test]
    fn every_width_is_fitted_and_every_form_says_the_same() {
        let compared = comparison("mariadb-11.8.6");
        for columns in [40, 60, 80, 120] {
            let text = terminal(&compared, columns, false);
            let widest = text.lines().map(width).max().unwrap();
            assert!(widest <= columns, "{text}");
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.starts_with("The series is worth less: −"), "{text}");
            let tally = "2 patches in both: 1 worth less, 1 the same; 1 only after";
            assert!(words.contains(tally), "{text}");
        }
        let page = comparison_page(&compared).unwrap();
        let lost = "<td role=\"cell\" class=\"bad\">worth less</td>";
        assert_eq!(page.matches(lost).count(), 2 * 3, "{page}");
        assert_eq!(page.matches("<svg role=\"img\"").count(), 6);
        assert_eq!(markdown(&compared).matches("**worth less**").count(), 2 + 2);
    }

    /// Two experiments on three servers that are no series.
    fn of_servers() -> [Experiment; 2] {
        [(0.03, 0.02), (0.01, 0.02)].map(|first| {
            let mut experiment = Experiment::new(&[first, (0.01, 0.01)]);
            experiment.header.base = Some("old".to_owned());
            experiment.header.started = format!("2026-02-02T03:04:05.{}Z", first.0);
            experiment
        })
    }

    #[test]
    fn servers_that_are_no_series_are_called_servers() {
        let [old, new] = of_servers();
        let compared = compare(&old.attribution(), &new.attribution());
        let (page, markdown) = (comparison_page(&compared).unwrap(), markdown(&compared));
        let (_, page) = page.split_once("</style>").unwrap();
        let text = terminal(&compared, 80, false);
        assert!(text.starts_with("2 servers in both: "), "{text}");
        for text in [&text, &markdown, page] {
            assert!(text.contains("0001-string-append"), "{text}");
            assert!(!text.contains("The bases differ"), "{text}");
            let words = text.replace(".patch", "").to_lowercase();
            for word in ["series", "patch", "total"] {
                assert!(!words.contains(word), "{word}: {text}");
            }
        }
    }

    #[test]
    fn servers_compared_with_different_bases_are_called_so() {
        let [old, mut new] = of_servers();
        new.header.base = Some("other".to_owned());
        let compared = compare(&old.attribution(), &new.attribution());
        let words = "The bases differ (`old` and `other`): a difference may be theirs.";
        assert_eq!(compared.warnings, [words]);
    }

    #[test]
    fn a_series_and_other_servers_have_no_differences() {
        let [old, mut new] = of_servers();
        new.header.base = None;
        let compared = compare(&old.attribution(), &new.attribution());
        let why = compared.incomparable.as_deref().unwrap();
        assert!(why.starts_with("One is a series of patches"), "{why}");
        let mut rows = compared.tables.iter().flat_map(|table| &table.patches);
        assert!(rows.all(|row| row.difference.is_none()));
    }

    #[test]
    fn hostile_names_stay_words() {
        let compared = comparison("<img src=x>|`@octocat`\u{1b}[2J");
        let (text, page) = (
            terminal(&compared, 80, true),
            comparison_page(&compared).unwrap(),
        );
        assert!(!text.contains("\u{1b}[2J"), "{text}");
        assert!(!page.contains("<img") && !page.contains('\u{1b}'), "{page}");
        let markdown = markdown(&compared);
        assert!(markdown.contains("`<img src=x>¦ˋ@octocatˋ"), "{markdown}");
    }
}
