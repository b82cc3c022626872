//! The sections with the effects of the patches: in order, adding up, each by itself, and by workload.

use crate::document::chart::{ChartRow, Mark, axis, estimate_marks};
use crate::document::{
    Cell, Chart, Column, Drawing, Figure, Folding, Ink, Node, Style, Table, Text, drawings,
    estimates, key, list, literal, name, paragraph, section, sentence, soft,
};
use crate::view::{EffectRow, Label, SeparateEffects, View};
use crate::{number, workload_name};
use perfquilt_judge::attribution::{Effect, Verdict};
use perfquilt_model::observation::Meter;

/// Maximum number of rows in a table of workloads that is not folded.
const MAX_OPEN_ROWS: usize = 12;

/// Returns the table of the patches, the total and the control.
pub(crate) fn main_table(view: &View<'_>) -> Node {
    let about = format!("Effect of each {}", view.nouns().one);
    table(view, about, &view.rows.iter().collect::<Vec<_>>())
}

/// Returns a table with the view's columns.
fn table(view: &View<'_>, about: String, rows: &[&EffectRow<'_>]) -> Node {
    columns(about, &view.heads(), view.nouns().one, rows)
}

/// Returns a table with columns given by head and decimals; `noun` is what its rows are.
pub(crate) fn columns(
    about: String,
    heads: &[(&str, usize)],
    noun: &str,
    rows: &[&EffectRow<'_>],
) -> Node {
    let is_workload = |row: &&EffectRow<'_>| matches!(row.label, Label::Workload { .. });
    let by_workload = rows.iter().any(is_workload);
    let is_judged = rows.iter().any(|row| !row.verdict.is_empty());
    let mut columns = vec![Column::figures("#"), Column::names(noun)];
    if by_workload {
        columns = vec![
            Column::figures("#"),
            Column::names(noun).optional(),
            Column::names("workload"),
        ];
    }
    columns.extend(heads.iter().map(|(head, _)| Column::figures(*head)));
    columns.push(Column::words(if is_judged { "verdict" } else { "" }));
    let mut table = Table::new(about, columns).stacking();
    for row in rows {
        let mut cells = lead(&row.label);
        let effects = row.effects.iter().zip(heads);
        cells.extend(effects.map(|(effect, (_, places))| match effect {
            None => Cell::from(Figure::plain("–")),
            Some(effect) => {
                let style = if effect.is_stale() {
                    Style::Quiet
                } else {
                    Style::Plain
                };
                Cell::from(Figure::of(effect, *places)).styled(style)
            }
        }));
        let notes = Text::joined(row.notes.iter().map(|note| sentence(note)), "; ");
        cells.push(Cell::from(row.verdict).styled(row.style).remark(notes));
        table.push(cells, row.label == Label::Total);
    }
    Node::Table(table)
}

/// Returns the cells that name a row.
fn lead(label: &Label<'_>) -> Vec<Cell> {
    match *label {
        Label::Patch {
            index,
            name: of,
            title,
        } => {
            let of = Cell::from(name(of));
            let of = if title.is_empty() {
                of
            } else {
                of.below(literal(title))
            };
            vec![index.to_string().into(), of]
        }
        Label::Total | Label::Control => vec!["".into(), label.text().into()],
        Label::Workload {
            index,
            name: of,
            workload,
        } => vec![
            index.to_string().into(),
            name(of).into(),
            name(workload).into(),
        ],
    }
}

/// Returns the colour of an effect's bar.
fn ink(effect: &Effect) -> Ink {
    match effect.verdict {
        _ if effect.is_stale() => Ink::Quiet,
        Verdict::Faster => Ink::Good,
        Verdict::Slower => Ink::Bad,
        Verdict::NoEffect | Verdict::NoTypicalEffect => Ink::Quiet,
        Verdict::Mixed | Verdict::Unclear => Ink::Open,
    }
}

/// Returns the section on how the patches add up to the series, one drawing per meter.
pub(crate) fn adds_up(view: &View<'_>) -> Option<Node> {
    let is_series = !view.attribution.is_of_servers();
    let columns = (0..view.columns.len()).filter(|_| is_series);
    let steps = drawings(columns.filter_map(|column| waterfall(view, column)));
    section("adds-up", "How the series adds up", steps)
}

/// Draws a meter's effects: each patch's bar begins where the one before it ends, that of the total at 0. `None` if there
/// are none.
fn waterfall(view: &View<'_>, column: usize) -> Option<Drawing> {
    let (meter, places) = view.columns[column];
    let quantity = meter.shown_quantity();
    let about = format!("{quantity}: what each patch adds to the series");
    let columns = [
        Column::names("patch"),
        Column::figures("from"),
        Column::figures("to"),
        Column::figures("its effect"),
    ];
    let mut table = Table::new(about.clone(), columns);
    let mut bars = Vec::new();
    let mut reached = 1.0;
    for row in &view.rows {
        let from = match row.label {
            Label::Patch { .. } => reached,
            Label::Total => 1.0,
            Label::Control | Label::Workload { .. } => continue,
        };
        let Some(effect) = row.effects[column] else {
            continue;
        };
        let shown = effect.shown();
        let at = |effect: f64| from * (1.0 + effect) - 1.0;
        let percent = |effect: f64| 100.0 * at(effect);
        let bar = Mark::Bar((percent(0.0), percent(shown.estimate)), 12, ink(effect));
        let ends = shown.ends();
        let line =
            ends.map(|(low, high)| Mark::Whisker((percent(low), percent(high)), 0, Ink::Text));
        bars.push(ChartRow {
            label: row.label.text(),
            marks: [bar].into_iter().chain(line).collect(),
        });
        let reaches = |effect: f64| format!("{} %", number::signed(at(effect), places)).into();
        table.row([
            literal(&row.label.text()).into(),
            reaches(0.0),
            reaches(shown.estimate),
            Figure::of(effect, places).into(),
        ]);
        reached = from * (1.0 + shown.estimate);
    }
    let none = if view.has_unexecuted() {
        "no effect, not executed"
    } else {
        "no effect"
    };
    let keys = [
        key(Ink::Good, false, meter.better()),
        key(Ink::Bad, false, meter.worse()),
        key(Ink::Open, false, "unclear"),
        key(Ink::Quiet, false, none),
        ". Each patch's bar begins where the one above ends, that of the total at 0; lines are intervals.".into(),
    ];
    let unit = format!("{} against the bare release", axis(&[meter]));
    (!bars.is_empty()).then(|| {
        Drawing::new(Chart::of_rows(about, unit, bars), Node::Table(table))
            .heading(quantity)
            .caption(Text::joined(keys, ""))
    })
}

/// Returns the section with the effects of each patch in order, alone and without, one drawing per meter, if such points
/// were requested.
pub(crate) fn separately(view: &View<'_>) -> Option<Node> {
    let noun = view.nouns().one;
    let all = view.separate_effects.iter().map(|of| {
        let inks = [Ink::First, Ink::Second, Ink::Third];
        let rows: Vec<&EffectRow<'_>> = of.rows.iter().collect();
        let quantity = of.meter.shown_quantity();
        let about = format!("{} ({quantity})", view.nouns().separately);
        let heads = SeparateEffects::HEADS.map(|head| (head, of.places));
        let table = columns(about.clone(), &heads, noun, &rows);
        Drawing::new(forest(about, &[of.meter], &rows, &inks), table)
            .heading(quantity)
            .caption(estimates(inks.into_iter().zip(SeparateEffects::HEADS)))
    });
    let words = paragraph(format!("{}.", view.nouns().separately));
    let nodes = drawings(all).map(|all| [words, all]);
    section(
        "apart",
        format!("Each {noun} by itself"),
        nodes.into_iter().flatten(),
    )
}

/// Returns a drawing of rows: their effects below each other, each with its interval.
fn forest(about: String, meters: &[Meter], rows: &[&EffectRow<'_>], inks: &[Ink]) -> Chart {
    let lane = |row: &&EffectRow<'_>| {
        let shown: Vec<_> = row.effects.iter().zip(inks).collect();
        let first = -3 * (i32::try_from(shown.len()).unwrap_or(1) - 1);
        let mut marks = Vec::new();
        for (dy, (effect, ink)) in (first..).step_by(6).zip(shown) {
            match effect {
                None => {}
                Some(effect) if !effect.executed => marks.push(Mark::Tick(0.0, Ink::Quiet)),
                Some(effect) => marks.extend(estimate_marks(&effect.shown(), dy, *ink)),
            }
        }
        ChartRow {
            label: row.label.text(),
            marks,
        }
    };
    Chart::of_rows(about, axis(meters), rows.iter().map(lane).collect())
}

/// Returns the single workloads on which a patch has an effect or is not executed, and the effects on other meters.
pub(crate) fn single_workloads(view: &View<'_>) -> Vec<Node> {
    let noun = view.nouns().one;
    let mut nodes = Vec::new();
    if view.has_suite() && view.has_intervals() {
        let rows = view.rows_with_effect();
        let words = "By workload, where there is an effect";
        let table = table(view, words.to_owned(), &rows);
        match rows.len() {
            0 if view.total_has_cells() => nodes.push(paragraph(format!(
                "No {noun} by itself shows an effect on a single workload."
            ))),
            0 => nodes.push(paragraph("No single workload shows an effect.")),
            count if count > MAX_OPEN_ROWS => {
                let summary = format!("{words} ({count} rows)").into();
                nodes.push(Node::Details(Folding::Folded, summary, vec![table]));
            }
            _ => nodes.extend([paragraph(format!("{words}:")), table]),
        }
        let (without, others) = view.rows_without_effect();
        match others {
            _ if rows.is_empty() => {}
            0 => {}
            1 => nodes.push(soft(format!(
                "One further pair of {noun} and workload shows none."
            ))),
            n => nodes.push(soft(format!(
                "{n} further pairs of {noun} and workload show none."
            ))),
        }
        match without {
            0 => {}
            1 => nodes.push(soft(format!(
                "One pair of {noun} and workload has no figures."
            ))),
            n => nodes.push(soft(format!(
                "{n} pairs of {noun} and workload have no figures."
            ))),
        }
    }
    nodes.extend(view.unexecuted(&name).map(paragraph));
    nodes.extend(further(view));
    nodes
}

/// Returns the effects on meters without a column.
fn further(view: &View<'_>) -> Vec<Node> {
    let lines = view.further().into_iter().map(|(index, meter, effect)| {
        let (noun, workload) = (view.nouns().one, name(workload_name(&effect.workload)));
        let mut line = Text::from(format!(
            "{noun} {index}, {} of {workload}: ",
            name(meter.name())
        ));
        line.push(Figure::of(
            effect,
            number::decimals(meter, [effect].into_iter()),
        ));
        line
    });
    let lines = list(lines);
    lines
        .into_iter()
        .flat_map(|lines| [paragraph(view.further_heading() + ":"), lines])
        .collect()
}

/// Returns the section with all effects on every workload, one drawing per workload.
pub(crate) fn workloads(view: &View<'_>) -> Option<Node> {
    let inks = [Ink::First, Ink::Second];
    let meters = view.meters();
    let quantities = meters.iter().map(|meter| meter.shown_quantity());
    let mut caption = estimates(inks.into_iter().zip(quantities));
    if view.has_unexecuted() {
        caption.push(key(Ink::Quiet, false, number::NOT_EXECUTED));
    }
    let all = view.attribution.workloads.iter().map(|workload| {
        let own = if view.has_suite() {
            view.rows_of(workload)
        } else {
            Vec::new()
        };
        let rows = if own.is_empty() { &view.rows } else { &own };
        let rows: Vec<&EffectRow<'_>> = rows.iter().collect();
        let about = format!("Effect of each {} on {workload}", view.nouns().one);
        let chart = forest(about.clone(), &meters, &rows, &inks);
        Drawing::new(chart, table(view, about, &rows))
            .heading(name(workload))
            .caption(caption.clone())
    });
    section("workloads", "Workload by workload", drawings(all))
}
