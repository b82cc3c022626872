//! Effects as tables, as a waterfall of the series, and as forest plots by workload.

use maud::{Markup, html};

use super::super::text::clean;
use super::super::view::{Label, Row, SeparateEffects, Tone, View};
use super::super::{number, tail};
use super::chart::{self, Ink, Mark, axis, estimate_marks};
use super::frame::{Name, Sentence, captioned, drawing, key, scroll};
use super::raw::{self, Distribution};
use perfquilt_judge::attribution::{Effect, ShownChange, TailFigure, Verdict};
use perfquilt_model::error::Result;
use perfquilt_model::observation::Meter;

impl Tone {
    /// Returns the class in `style.css`.
    fn class(self) -> &'static str {
        match self {
            Tone::Good => "good",
            Tone::Bad => "bad",
            Tone::Open => "open",
            Tone::Quiet => "quiet",
        }
    }
}

fn ink(effect: &Effect) -> Ink {
    match effect.verdict {
        _ if effect.is_stale() => Ink::Quiet,
        Verdict::Faster => Ink::Good,
        Verdict::Slower => Ink::Bad,
        Verdict::NoEffect | Verdict::NoTypicalEffect => Ink::Quiet,
        Verdict::Mixed | Verdict::Unclear => Ink::Open,
    }
}

/// Renders an effect as text with machine-readable values in its attributes.
pub(super) fn figure(effect: &Effect, places: usize) -> Markup {
    let text = number::effect(effect, places);
    let shown = effect.shown();
    html! {
        data value=(shown.estimate) data-low=[shown.low] data-high=[shown.high] { (text) }
    }
}

/// Renders a table with the view's columns.
pub(super) fn table(view: &View<'_>, about: &str, rows: &[&Row<'_>]) -> Markup {
    columns(about, &view.heads(), view.nouns().one, rows)
}

fn columns(about: &str, heads: &[(&str, usize)], noun: &str, rows: &[&Row<'_>]) -> Markup {
    let judged = rows.iter().any(|row| !row.verdict.is_empty());
    let table = html! {
        table.effects role="table" {
            thead { tr role="row" {
                th.n scope="col" { "#" }
                th scope="col" { (noun) }
                @for (head, _) in heads { th.n scope="col" { (head) } }
                th scope="col" { @if judged { "verdict" } @else { "remarks" } }
            } }
            tbody { @for row in rows { (line(row, heads)) } }
        }
    };
    scroll(about, &table)
}

fn line(row: &Row<'_>, heads: &[(&str, usize)]) -> Markup {
    let class = match row.label {
        Label::Total => "total",
        _ => "",
    };
    html! {
        tr role="row" class=[Some(class).filter(|class| !class.is_empty())] {
            td.n role="cell" { @match row.label {
                Label::Patch { index, .. } | Label::Workload { index, .. } => (index),
                Label::Total | Label::Control => "",
            } }
            th scope="row" role="rowheader" { @match row.label {
                Label::Patch { name, title, .. } => {
                    (Name(name))
                    @if !title.is_empty() { br; (clean(title)) }
                }
                Label::Workload { name, .. } => (Name(name)),
                Label::Total => "total",
                Label::Control => "control (A/A)",
            } }
            @for (effect, (head, places)) in row.effects.iter().zip(heads) {
                td.n role="cell" data-label=(head) { @match effect {
                    None => "–",
                    Some(effect) if effect.is_stale() => i { (figure(effect, *places)) },
                    Some(effect) if effect.is_shown() => b { (figure(effect, *places)) },
                    Some(effect) => (figure(effect, *places)),
                } }
            }
            td role="cell" class=(row.tone.class()) {
                (row.verdict)
                @if !row.notes.is_empty() {
                    div.soft { (Sentence(&row.notes.join("; "))) }
                }
            }
        }
    }
}

/// Renders how the patches add up to the series, one drawing per meter.
pub(super) fn waterfall(view: &View<'_>) -> Result<Markup> {
    if view.attribution.is_of_servers() {
        return Ok(html! {});
    }
    let unexecuted = view.has_unexecuted();
    let mut drawings = Vec::new();
    for (column, (meter, places)) in view.columns.iter().enumerate() {
        let steps = steps(view, column);
        if let Some(svg) = chart::rows(
            &format!(
                "{}: what each patch adds to the series",
                meter.shown_quantity()
            ),
            &format!("{} against the bare release", axis(&[*meter])),
            &steps.iter().map(Step::row).collect::<Vec<_>>(),
        )? {
            let table = steps_table(meter.shown_quantity(), &steps, *places);
            let caption = html! {
                (meter.shown_quantity()) ":" (key(Ink::Good, false, meter.better()))
                (key(Ink::Bad, false, meter.worse()))
                (key(Ink::Open, false, "unclear"))
                (key(Ink::Quiet, false, if unexecuted { "no effect, not executed" } else { "no effect" }))
                ". Each patch's bar begins where the one above ends, that of the total at 0; lines are intervals."
            };
            drawings.push(drawing(&svg, &caption, &table));
        }
    }
    Ok(html! {
        @if !drawings.is_empty() {
            section aria-labelledby="adds-up" {
                h2 #adds-up { "How the series adds up" }
                div.charts { @for drawing in &drawings { (drawing) } }
            }
        }
    })
}

/// A bar of the waterfall, in fractions of the release's speed or count.
struct Step<'a> {
    label: String,
    from: f64,
    to: f64,
    interval: Option<(f64, f64)>,
    effect: &'a Effect,
}

impl Step<'_> {
    fn row(&self) -> chart::ChartRow {
        let percent = |fraction: f64| 100.0 * fraction;
        let ends = (percent(self.from), percent(self.to));
        let mut marks = vec![Mark::Bar(ends, 12, ink(self.effect))];
        if let Some((low, high)) = self.interval {
            marks.push(Mark::Whisker((percent(low), percent(high)), 0, Ink::Text));
        }
        chart::ChartRow {
            label: self.label.clone(),
            marks,
        }
    }
}

/// Returns the bars of a column: each patch starts where the previous one ended, the total starts at 0.
fn steps<'a>(view: &View<'a>, column: usize) -> Vec<Step<'a>> {
    let mut reached = 1.0;
    let mut steps = Vec::new();
    for row in &view.rows {
        let Some(effect) = row.effects[column] else {
            continue;
        };
        let (label, from) = match row.label {
            Label::Patch { index, name, .. } => (format!("{index}  {name}"), reached),
            Label::Total => ("total".to_owned(), 1.0),
            Label::Control | Label::Workload { .. } => continue,
        };
        let shown = effect.shown();
        let at = |effect: f64| from * (1.0 + effect) - 1.0;
        steps.push(Step {
            label,
            from: from - 1.0,
            to: at(shown.estimate),
            interval: shown.ends().map(|(low, high)| (at(low), at(high))),
            effect,
        });
        reached = from * (1.0 + shown.estimate);
    }
    steps
}

fn steps_table(meter: &str, steps: &[Step<'_>], places: usize) -> Markup {
    let table = html! {
        table {
            thead { tr {
                th scope="col" { "patch" }
                th.n scope="col" { "from" }
                th.n scope="col" { "to" }
                th.n scope="col" { "its effect" }
            } }
            tbody { @for step in steps {
                tr {
                    th scope="row" { (clean(&step.label)) }
                    td.n { (number::signed(step.from, places)) " %" }
                    td.n { (number::signed(step.to, places)) " %" }
                    td.n { (figure(step.effect, places)) }
                }
            } }
        }
    };
    scroll(&format!("{meter}: the bars of the drawing"), &table)
}

/// Renders typical time, mean and tail of each patch, and the distribution of slices with and without the series.
pub(super) fn tail(view: &View<'_>, distributions: &[Distribution]) -> Result<Markup> {
    let Some((meter, places)) = view.columns.first().copied() else {
        return Ok(html! {});
    };
    let lines = tail::rows(view.attribution, meter);
    if lines.is_empty() {
        return Ok(html! {});
    }
    let table = html! {
        table {
            thead { tr {
                th scope="col" { (view.nouns().one) }
                @for head in tail::HEADS { th.n scope="col" { (head) } }
            } }
            tbody { @for line in &lines {
                tr {
                    th scope="row" { (clean(&line.name)) }
                    @for (text, shown) in line.cells(places) {
                        td.n { @if shown { b { (text) } } @else { (text) } }
                    }
                }
            } }
        }
    };
    let about = format!("Typical time, mean and tail of each {}", view.nouns().one);
    let table = scroll(&about, &table);
    let marks: Vec<chart::ChartRow> = lines.iter().map(tail_marks).collect();
    let caption = html! {
        @for (head, ink) in TAIL_INKS { (key(ink, ink != Ink::Second, head)) }
        ". Marks are estimates, lines their intervals."
    };
    let mut drawings = raw::tails(view, distributions)?;
    if let Some(svg) = chart::rows(&about, &axis(&[meter]), &marks)? {
        drawings.insert(0, captioned(&svg, &caption));
    }
    Ok(html! {
        section aria-labelledby="tail" {
            h2 #tail { "Mean and tail" }
            p { (tail::ABOUT) }
            (table)
            @if !drawings.is_empty() { div.charts { @for drawing in &drawings { (drawing) } } }
        }
    })
}

/// The statistics of [`tail_marks`] that are fractions of speed.
const TAIL_INKS: [(&str, Ink); 3] = [
    ("typical speed", Ink::First),
    ("mean", Ink::Second),
    ("99th percentile", Ink::Third),
];

/// Returns the marks of typical time, mean and 99th percentile, below each other.
fn tail_marks(line: &tail::TailRow<'_>) -> chart::ChartRow {
    let meter = line.effect.meter;
    let of =
        |figure: &TailFigure| ShownChange::of(meter, figure.estimate, figure.low.zip(figure.high));
    let figures = [
        Some(line.effect.shown()),
        line.tail.mean.as_ref().map(of),
        line.tail.p99.as_ref().map(of),
    ];
    let mut marks = Vec::new();
    for ((figure, (_, ink)), dy) in figures.into_iter().zip(TAIL_INKS).zip([-6, 0, 6]) {
        if let Some(figure) = figure {
            marks.extend(estimate_marks(&figure, dy, ink));
        }
    }
    chart::ChartRow {
        label: line.name.clone(),
        marks,
    }
}

/// Renders the effects in order, alone and without, if such points were measured.
pub(super) fn separate_effects(view: &View<'_>) -> Result<Markup> {
    let mut tables = Vec::new();
    for table in &view.separate_effects {
        let heads = SeparateEffects::HEADS.map(|head| (head, table.places));
        let rows: Vec<&Row<'_>> = table.rows.iter().collect();
        let inks = [Ink::First, Ink::Second, Ink::Third];
        let lanes: Vec<chart::ChartRow> = rows.iter().map(|row| lane(row, &inks)).collect();
        let about = format!(
            "{} ({})",
            view.nouns().separately,
            table.meter.shown_quantity()
        );
        let body = columns(&about, &heads, view.nouns().one, &rows);
        let caption = html! {
            (table.meter.shown_quantity()) ":"
            @for (head, ink) in SeparateEffects::HEADS.iter().zip(inks) { (key(ink, ink != Ink::Second, head)) }
        };
        tables.push(match chart::rows(&about, &axis(&[table.meter]), &lanes)? {
            Some(svg) => drawing(&svg, &caption, &body),
            None => body,
        });
    }
    Ok(html! {
        @if !tables.is_empty() {
            section aria-labelledby="apart" {
                h2 #apart { "Each " (view.nouns().one) " by itself" }
                p { (view.nouns().separately) "." }
                div.charts { @for table in &tables { (table) } }
            }
        }
    })
}

/// Returns the marks of a row: its effects below each other, each with its interval.
fn lane(row: &Row<'_>, inks: &[Ink]) -> chart::ChartRow {
    let label = match row.label {
        Label::Patch { index, name, .. } | Label::Workload { index, name, .. } => {
            format!("{index}  {name}")
        }
        Label::Total => "total".to_owned(),
        Label::Control => "control (A/A)".to_owned(),
    };
    let shown: Vec<_> = row.effects.iter().zip(inks).collect();
    let first = -3 * (i32::try_from(shown.len()).unwrap_or(1) - 1);
    let mut marks = Vec::new();
    for (place, (effect, ink)) in shown.into_iter().enumerate() {
        let Some(effect) = effect else { continue };
        if !effect.executed {
            marks.push(Mark::Tick(0.0, Ink::Quiet));
            continue;
        }
        let dy = first + 6 * i32::try_from(place).unwrap_or(0);
        marks.extend(estimate_marks(&effect.shown(), dy, *ink));
    }
    chart::ChartRow { label, marks }
}

/// Renders the effects on every workload, one drawing per workload.
pub(super) fn forests(view: &View<'_>) -> Result<Markup> {
    let inks = [Ink::First, Ink::Second];
    let caption = html! {
        @for ((meter, _), ink) in view.columns.iter().zip(inks) {
            (key(ink, ink == Ink::First, meter.shown_quantity()))
        }
        @if view.has_unexecuted() { (key(Ink::Quiet, false, number::NOT_EXECUTED)) }
        ". Marks are estimates, lines their intervals."
    };
    let mut drawings = Vec::new();
    for workload in &view.attribution.workloads {
        let rows: Vec<Row<'_>> = if view.has_suite() {
            view.rows_of(workload)
        } else {
            Vec::new()
        };
        let rows: Vec<&Row<'_>> = if rows.is_empty() {
            view.rows.iter().collect()
        } else {
            rows.iter().collect()
        };
        let lanes: Vec<chart::ChartRow> = rows.iter().map(|row| lane(row, &inks)).collect();
        let about = format!("Effect of each {} on {}", view.nouns().one, clean(workload));
        let body = table(view, &about, &rows);
        drawings.push(html! {
            div {
                h3 { (Name(workload)) }
                @match chart::rows(&about, &axis(&view.meters()), &lanes)? {
                    Some(svg) => (drawing(&svg, &caption, &body)),
                    None => p.soft { "No figures." },
                }
            }
        });
    }
    let rows = view.rows_with_effect();
    Ok(html! {
        @if !drawings.is_empty() {
            section aria-labelledby="workloads" {
                h2 #workloads { "Workload by workload" }
                @if view.has_suite() && view.has_intervals() {
                    p { @match rows.len() {
                        0 => "No single workload shows an effect.",
                        1 => { "One pair of " (view.nouns().one) " and workload shows an effect." }
                        n => { (n) " pairs of " (view.nouns().one) " and workload show an effect." }
                    } }
                }
                div.charts { @for drawing in &drawings { (drawing) } }
                (further(view))
            }
        }
    })
}

/// Renders the effects on meters without a column.
fn further(view: &View<'_>) -> Markup {
    let further = view.further();
    let figure_of = |meter: Meter, effect: &Effect| {
        figure(effect, number::decimals(meter, [effect].into_iter()))
    };
    html! {
        @if !further.is_empty() {
            h3 { (view.further_heading()) }
            ul { @for (index, meter, effect) in further {
                li {
                    (view.nouns().one) " " (index) ", " (meter) " of "
                    (Name(super::super::workload_name(&effect.workload))) ": "
                    (figure_of(meter, effect))
                }
            } }
        }
    }
}
