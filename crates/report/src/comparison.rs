//! Two experiments compared patch by patch.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::document::chart::{ChartRow, axis, changes_row};
use super::document::{
    Cell, Chart, Document, Drawing, Figure, Folding, Ink, Node, Style, Text, drawings, estimates,
    folded, list, literal, name, note, paragraph, sentence, soft, table, title,
};
use super::nouns::Nouns;
use super::number;
use super::number::units;
use super::report::warnings;
use super::text::capital;
use perfquilt_judge::attribution::{
    ComparedExperiment, Comparison, ComparisonRow, ComparisonTable, DifferenceVerdict, Effect,
    EffectDifference, Replication, SUITE, ShownChange,
};
use perfquilt_model::observation::Meter;

/// Returns what the two experiments are called.
fn sides(comparison: &Comparison) -> [&'static str; 2] {
    if comparison.replicates {
        ["there", "here"]
    } else {
        ["before", "after"]
    }
}

/// Returns what the figures mean.
fn legend(comparison: &Comparison) -> String {
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
fn nouns(comparison: &Comparison) -> &'static Nouns {
    Nouns::of_points(comparison.is_of_servers())
}

/// Returns the figures of a row as text: before, after, difference.
fn cells(row: &ComparisonRow, meter: Meter, places: usize) -> [String; 3] {
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
fn verdict(row: &ComparisonRow) -> String {
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
fn position(row: &ComparisonRow) -> String {
    match (row.index_before, row.index_after) {
        (Some(before), Some(after)) if before != after => format!("{before}→{after}"),
        (_, Some(at)) | (Some(at), None) => at.to_string(),
        (None, None) => String::new(),
    }
}

/// Returns the name of a row's patch as it is, or `total`.
fn label(row: &ComparisonRow) -> &str {
    row.patch.as_deref().unwrap_or("total")
}

/// Returns the decimals of a table.
fn places(table: &ComparisonTable) -> usize {
    let rows = table.patches.iter().chain([&table.total]);
    let effects = rows.flat_map(|row| row.before.iter().chain(&row.after));
    number::decimals(table.meter, effects)
}

/// Returns the rows of a table that have a figure.
fn rows(table: &ComparisonTable) -> impl Iterator<Item = &ComparisonRow> {
    let rows = table.patches.iter().chain([&table.total]);
    rows.filter(|row| row.before.is_some() || row.after.is_some())
}

/// Says what a table is about: `time, all 6 workloads`.
fn about(table: &ComparisonTable) -> String {
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
fn describe(of: &ComparedExperiment) -> String {
    let mut facts = vec![name(&of.release)];
    if !of.recipe.is_empty() {
        facts.push(format!("recipe {}", name(&of.recipe)));
    }
    if let Some(day) = of.started.get(..10) {
        facts.push(literal(day));
    }
    format!("{} ({})", name(&of.experiment), facts.join(", "))
}

/// Returns the first sentence: what the series is worth in the second experiment against the first.
fn headline(comparison: &Comparison) -> String {
    let Some(table) = comparison.main_tables().next() else {
        return "The experiments have no workload and meter in common".to_owned();
    };
    if comparison.replicates {
        let count = |kind: Replication| comparison.replications(kind);
        let (holds, fails) = (count(Replication::Holds), count(Replication::DoesNotHold));
        let open = count(Replication::CannotTell);
        let all = holds + fails + open;
        return format!("{holds} of {all} verdicts hold; {fails} do not, {open} cannot be told");
    }
    if comparison.is_of_servers() {
        return counts(comparison, table);
    }
    let [before, after, figure] = cells(&table.total, table.meter, places(table));
    let quantity = table.meter.shown_quantity();
    let on = match table.workload.as_str() {
        SUITE => String::new(),
        workload => format!(" on {}", name(workload)),
    };
    match table.total.difference.map(|difference| difference.verdict) {
        None => format!("The series{on}: {before} before and {after} after, in {quantity}"),
        Some(DifferenceVerdict::Unclear) => format!(
            "Whether the series is worth more or less{on} is unclear: {figure} in {quantity}"
        ),
        Some(verdict) => format!("The series is {verdict}{on}: {figure} in {quantity}"),
    }
}

/// Returns the counts of [`counts`] for the first main table, unless the headline has them.
fn tally(comparison: &Comparison) -> Option<String> {
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
    for change in [
        DifferenceVerdict::More,
        DifferenceVerdict::Less,
        DifferenceVerdict::Same,
        DifferenceVerdict::Unclear,
    ] {
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
    let only = |is_there: fn(&ComparisonRow) -> bool| {
        table.patches.iter().filter(|row| !is_there(row)).count()
    };
    for (which, count) in [
        ("before", only(|row| row.index_after.is_some())),
        ("after", only(|row| row.index_before.is_some())),
    ] {
        if count > 0 {
            let _ = write!(text, "; {count} only {which}");
        }
    }
    text
}

/// Returns the significant differences on single workloads of a comparison that has figures over all workloads.
fn on_single_workloads(
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

/// Returns the document: the answer, both experiments, and each patch before and after.
pub fn document(comparison: &Comparison) -> Document {
    let mut nodes = vec![title(headline(comparison))];
    let sides = sides(comparison);
    let both = [&comparison.before, &comparison.after].map(|of| describe(of).into());
    let facts = sides.into_iter().map(Text::from).zip(both);
    nodes.push(Node::Facts(facts.collect()));
    let counts = tally(comparison).filter(|_| !comparison.replicates);
    nodes.extend(counts.map(|words| paragraph(words + ".")));
    let reason = comparison.incomparable.iter();
    nodes.extend(reason.map(|reason| note(sentence(reason))));
    nodes.extend(warnings(&comparison.warnings));
    nodes.push(soft(legend(comparison)));
    let noun = nouns(comparison);
    let main = comparison
        .main_tables()
        .map(|table| Node::Drawings(vec![drawing(table, noun.one, comparison, false)]));
    nodes.extend(folded(Folding::Open, noun.many, capital(noun.many), main));
    let shown =
        list(on_single_workloads(comparison).map(|(table, row)| single_workload(table, row)));
    nodes.extend(folded(
        Folding::Open,
        "single",
        "On single workloads",
        shown,
    ));
    let tables = comparison
        .tables
        .iter()
        .filter(|table| table.workload != SUITE);
    let by_workload = tables.filter(|_| comparison.has_suite());
    let by_workload = drawings(by_workload.map(|table| drawing(table, noun.one, comparison, true)));
    nodes.extend(folded(
        if comparison.replicates {
            Folding::Open
        } else {
            Folding::LeftOut
        },
        "workloads",
        "Workload by workload",
        by_workload,
    ));
    nodes.push(machines(comparison));
    Document(nodes)
}

/// Returns a difference on a single workload as a line.
fn single_workload(table: &ComparisonTable, row: &ComparisonRow) -> Text {
    let [before, after, difference] = cells(row, table.meter, places(table));
    let mut line = Text::from(format!(
        "{} {}, {}: {before} → {after}: {difference}, ",
        position(row),
        name(label(row)),
        about(table)
    ));
    line.push(Text::from(verdict(row)).strong());
    line
}

/// Returns a table with its drawing.
fn drawing(table: &ComparisonTable, noun: &str, comparison: &Comparison, folded: bool) -> Drawing {
    let about = Text::from(about(table));
    let [before, after] = sides(comparison);
    let words = format!(
        "Effect of each {noun} in both experiments: {}",
        about.plain()
    );
    let chart = Chart::of_rows(words, axis(&[table.meter]), rows(table).map(lane).collect());
    let drawing = Drawing::new(chart, figures(table, noun, comparison, about.plain()))
        .heading(about)
        .caption(estimates([(Ink::First, before), (Ink::Second, after)]));
    Drawing { folded, ..drawing }
}

fn lane(row: &ComparisonRow) -> ChartRow {
    let label = format!("{}  {}", position(row), label(row));
    let changes = [&row.before, &row.after].map(|of| of.as_ref().map(Effect::shown));
    changes_row(
        label.trim().to_owned(),
        &changes,
        &[Ink::First, Ink::Second],
    )
}

fn figures(of: &ComparisonTable, noun: &str, comparison: &Comparison, about: String) -> Node {
    let places = places(of);
    let [before, after] = sides(comparison);
    let own = |effect: &Option<Effect>| {
        let verdict = effect.as_ref().map(|effect| effect.verdict.to_string());
        verdict.unwrap_or("–".to_owned())
    };
    table(about, rows(of))
        .figures("#", |row| position(row))
        .names(noun, |row| {
            row.patch.as_deref().map_or("total".to_owned(), name)
        })
        .each(
            [before, after, "difference"].into_iter().zip(0..),
            |row, at: &usize| Figure::plain(&cells(row, of.meter, places)[*at]),
        )
        .words("verdict", |row| {
            let verdict = Text::from(verdict(row));
            let (verdict, style) = match row.difference.map(|difference| difference.verdict) {
                Some(DifferenceVerdict::More) => (verdict.strong(), Style::Good),
                Some(DifferenceVerdict::Less) => (verdict.strong(), Style::Bad),
                Some(DifferenceVerdict::Unclear) => (verdict, Style::Open),
                Some(DifferenceVerdict::Same) | None => (verdict, Style::Quiet),
            };
            Cell::from(verdict).styled(style)
        })
        .only_if(!comparison.replicates)
        .words("verdict", |row| {
            let [before, after] = [own(&row.before), own(&row.after)];
            Text::from(if before == after {
                before
            } else {
                format!("{before} → {after}")
            })
        })
        .only_if(comparison.replicates)
        .words("outcome", |row| {
            let mut words = row.replication.map_or("–".to_owned(), |it| it.to_string());
            if let Some(size) = row
                .difference
                .map(|of| of.verdict)
                .filter(|of| of.is_shown())
            {
                words += &format!(", {size}");
            }
            let style = match row.replication {
                Some(Replication::Holds) => Style::Good,
                Some(Replication::DoesNotHold) => Style::Bad,
                Some(Replication::CannotTell) | None => Style::Open,
            };
            Cell::from(Text::from(words).strong()).styled(style)
        })
        .only_if(comparison.replicates)
        .total_if(|row| row.patch.is_none())
        .stacking()
        .node()
}

/// Returns what both experiments say of their machines and methods.
fn machines(comparison: &Comparison) -> Node {
    let both = [&comparison.before, &comparison.after];
    let machine = both.into_iter().flat_map(|of| of.machine.keys());
    let machine = machine.collect::<BTreeSet<_>>().into_iter();
    let machine = machine.map(|key| {
        let value = |of: &ComparedExperiment| of.machine.get(key).cloned();
        (&**key, both.map(|of| value(of).unwrap_or("–".to_owned())))
    });
    let facts = machine.chain([
        ("started", both.map(|of| of.started.clone())),
        ("harness", both.map(|of| of.harness.clone())),
    ]);
    let side = |[before, after]: &[String; 2], at: usize| {
        let style = if before == after {
            Style::Plain
        } else {
            Style::Open
        };
        Cell::from(literal([before, after][at])).styled(style)
    };
    let table = table("Machines and method of both experiments", facts)
        .names("", |(key, _)| literal(key))
        .words(sides(comparison)[0], |(_, sides)| side(sides, 0))
        .words(sides(comparison)[1], |(_, sides)| side(sides, 1));
    let title = "Machines and method".into();
    let folding = if comparison.replicates {
        Folding::Open
    } else {
        Folding::LeftOut
    };
    Node::Section("method", folding, title, vec![table.node()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Experiment;
    use crate::text::width;
    use perfquilt_judge::attribution::compare;
    use perfquilt_model::warning::Warning;

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
            let text = document(&compared).terminal(columns, false);
            let widest = text.lines().map(width).max().unwrap();
            assert!(widest <= columns, "{text}");
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.starts_with("The series is worth less: −"), "{text}");
            let tally = "2 patches in both: 1 worth less, 1 the same; 1 only after";
            assert!(words.contains(tally), "{text}");
        }
        let page = document(&compared).html().unwrap();
        let lost = "<td class=\"bad\" role=\"cell\"><b>worth less</b></td>";
        assert_eq!(page.matches(lost).count(), 2 * 3, "{page}");
        assert_eq!(page.matches("<svg role=\"img\"").count(), 6);
        assert_eq!(
            document(&compared)
                .markdown()
                .matches("**worth less**")
                .count(),
            2 + 2 + 4
        );
    }

    #[test]
    fn every_form() {
        let compared = comparison("mariadb-11.8.6");
        insta::assert_snapshot!(crate::tests::forms(&[
            ("40 columns", document(&compared).terminal(40, false)),
            ("80 columns", document(&compared).terminal(80, false)),
            ("120 columns", document(&compared).terminal(120, true)),
            ("Markdown", document(&compared).markdown()),
            ("page", document(&compared).html().unwrap()),
        ]));
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
        let (page, markdown) = (
            document(&compared).html().unwrap(),
            document(&compared).markdown(),
        );
        let (_, page) = page.split_once("</style>").unwrap();
        let text = document(&compared).terminal(80, false);
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
        assert_eq!(compared.warnings, [Warning::other_bases(words)]);
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
            document(&compared).terminal(80, true),
            document(&compared).html().unwrap(),
        );
        assert!(!text.contains("\u{1b}[2J"), "{text}");
        assert!(!page.contains("<img") && !page.contains('\u{1b}'), "{page}");
        let markdown = document(&compared).markdown();
        assert!(markdown.contains("`<img src=x>¦ˋ@octocatˋ"), "{markdown}");
    }
}
