//! The sections with the effects of the patches: in order, adding up, each by itself, and by workload.

use super::columns::EffectRows;
use super::{Content, Form};
use crate::document::chart::{ChartRow, Mark, axis, changes_row};
use crate::document::{
    Chart, Drawing, Figure, Folding, Ink, Node, Text, drawings, drawn, estimates, folded, key,
    keys, list, literal, name, paragraph, section, soft, table,
};
use crate::view::{EffectRow, Label, SeparateEffects, View};
use crate::{number, workload_name};
use perfquilt_judge::attribution::{Effect, Verdict};
use perfquilt_model::observation::Meter;

/// Maximum number of rows in a table of workloads that is not folded.
const MAX_OPEN_ROWS: usize = 12;

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
pub(crate) fn adds_up(of: &Content<'_>) -> Vec<Node> {
    let view = of.view;
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
    let mut steps = Vec::new();
    let mut reached = 1.0;
    for row in &view.rows {
        let from = match row.label {
            Label::Total => 1.0,
            Label::Control => continue,
            _ => reached,
        };
        if let Some(effect) = row.effects[column] {
            steps.push((row.label.text(), from, effect));
            reached = from * (1.0 + effect.shown().estimate);
        }
    }
    let bars = steps.iter().map(|(label, from, effect)| {
        let shown = effect.shown();
        let percent = |effect: f64| 100.0 * (from * (1.0 + effect) - 1.0);
        let bar = Mark::Bar((percent(0.0), percent(shown.estimate)), 12, ink(effect));
        let ends = shown.ends();
        let line =
            ends.map(|(low, high)| Mark::Whisker((percent(low), percent(high)), 0, Ink::Text));
        ChartRow {
            label: label.clone(),
            marks: [bar].into_iter().chain(line).collect(),
        }
    });
    let reaches = |of: f64| format!("{} %", number::signed(of - 1.0, places));
    let table = table(about.clone(), &steps)
        .names("patch", |(label, ..)| literal(label))
        .figures("from", |(_, from, _)| reaches(*from))
        .figures("to", |(_, from, effect)| {
            reaches(from * (1.0 + effect.shown().estimate))
        })
        .figures("its effect", |(.., effect)| Figure::of(effect, places));
    let none = if view.has_unexecuted() {
        "no effect, not executed"
    } else {
        "no effect"
    };
    let keys = keys(
        [
            (Ink::Good, false, meter.better()),
            (Ink::Bad, false, meter.worse()),
            (Ink::Open, false, "unclear"),
            (Ink::Quiet, false, none),
        ],
        ". Each patch's bar begins where the one above ends, that of the total at 0; lines are intervals.",
    );
    let unit = format!("{} against the bare release", axis(&[meter]));
    (!steps.is_empty()).then(|| {
        Drawing::new(Chart::of_rows(about, unit, bars.collect()), table.node())
            .heading(quantity)
            .caption(keys)
    })
}

/// Returns the section with the effects of each patch in order, alone and without, one drawing per meter, if such points
/// were requested.
pub(crate) fn separately(of: &Content<'_>) -> Vec<Node> {
    let nouns = of.view.nouns();
    let inks = [Ink::First, Ink::Second, Ink::Third];
    let all = of.view.separate_effects.iter().map(|effects| {
        let rows: Vec<&EffectRow<'_>> = effects.rows.iter().collect();
        let quantity = effects.meter.shown_quantity();
        let about = format!("{} ({quantity})", nouns.separately);
        let heads = SeparateEffects::HEADS.map(|head| (head, effects.places));
        let table = EffectRows {
            noun: nouns.one,
            heads: &heads,
            rows: &rows,
        };
        let table = table.table(&about, of.form);
        Drawing::new(forest(about, &[effects.meter], &rows, &inks), table)
            .heading(quantity)
            .caption(estimates(inks.into_iter().zip(SeparateEffects::HEADS)))
    });
    let title = format!("Each {} by itself", nouns.one);
    drawn("apart", title, format!("{}.", nouns.separately), all)
}

/// Returns a drawing of rows: their effects below each other, each with its interval.
fn forest(about: String, meters: &[Meter], rows: &[&EffectRow<'_>], inks: &[Ink]) -> Chart {
    let lane = |row: &&EffectRow<'_>| {
        let executed = row.effects.iter().map(|of| of.filter(|of| of.executed));
        let changes: Vec<_> = executed.map(|of| of.map(Effect::shown)).collect();
        let mut lane = changes_row(row.label.text(), &changes, inks);
        let others = row.effects.iter().flatten().filter(|of| !of.executed);
        lane.marks
            .extend(others.map(|_| Mark::Tick(0.0, Ink::Quiet)));
        lane
    };
    Chart::of_rows(about, axis(meters), rows.iter().map(lane).collect())
}

/// Returns the single workloads on which a patch has an effect or is not executed, and the effects on other meters.
pub(crate) fn single_workloads(of: &Content<'_>) -> Vec<Node> {
    let view = of.view;
    let noun = view.nouns().one;
    let mut nodes = Vec::new();
    if view.has_suite() && view.has_intervals() {
        let rows = view.rows_with_effect();
        let words = "By workload, where there is an effect";
        let table = of.table(words, &rows);
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
        let others = if rows.is_empty() { 0 } else { others };
        let pairs = |count: usize, which: &str, one: &str, several: &str| {
            let words = match count {
                0 => return None,
                1 => format!("One {which}pair of {noun} and workload {one}."),
                n => format!("{n} {which}pairs of {noun} and workload {several}."),
            };
            Some(soft(words))
        };
        nodes.extend(pairs(others, "further ", "shows none", "show none"));
        nodes.extend(pairs(without, "", "has no figures", "have no figures"));
    }
    nodes.extend(view.unexecuted(&name).map(paragraph));
    nodes.extend(further(view));
    match of.form {
        Form::MarkdownDetails | Form::Page => {
            folded(Folding::Open, "single", "On single workloads", nodes)
        }
        _ => nodes,
    }
}

/// Returns the effects on meters without a column.
fn further(view: &View<'_>) -> Vec<Node> {
    let lines = view.further().into_iter().map(|(index, effect)| {
        let (meter, workload) = (effect.meter, workload_name(&effect.workload));
        let mut line = Text::from(format!(
            "{} {index}, {} of {}: ",
            view.nouns().one,
            name(meter.name()),
            name(workload)
        ));
        let places = number::decimals(meter, [effect].into_iter());
        line.push(Figure::of(effect, places));
        line
    });
    let lines = list(lines);
    lines
        .into_iter()
        .flat_map(|lines| [paragraph(view.further_heading() + ":"), lines])
        .collect()
}

/// Returns the section with all effects on every workload, one drawing per workload.
pub(crate) fn workloads(of: &Content<'_>) -> Vec<Node> {
    let view = of.view;
    if !view.has_suite() && of.form != Form::Page {
        return Vec::new();
    }
    let noun = view.nouns().one;
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
        let about = format!("Effect of each {noun} on {workload}");
        let chart = forest(about.clone(), &meters, &rows, &inks);
        let table = of.table(&about, &rows);
        Drawing::new(chart, table)
            .heading(name(workload))
            .caption(caption.clone())
    });
    section("workloads", "Workload by workload", drawings(all))
}
