//! Two experiments compared patch by patch, as a page.

use maud::{Markup, html};

use super::super::comparison::{
    HEADS, cells, describe, headline, legend, name, nouns, places, position, rows, tally, title,
    verdict,
};
use super::super::text::{capital, clean};
use super::chart::{self, ChartRow, Ink};
use super::effects::{axis, estimate_marks};
use super::frame::{self, Name, Sentence, captioned, drawing, key, scroll};
use perfquilt_judge::attribution::{Change, Comparison, ComparisonRow, ComparisonTable, SUITE};
use perfquilt_model::error::Result;

/// Renders the comparison as a page.
pub fn comparison_page(comparison: &Comparison) -> Result<String> {
    let noun = nouns(comparison);
    let mut main = Vec::new();
    for table in comparison.main_tables() {
        main.push((
            title(table, &clean),
            draw(table, noun.one)?,
            figures(table, noun.one),
        ));
    }
    let mut single = Vec::new();
    if comparison.has_suite() {
        let workloads = comparison
            .tables
            .iter()
            .filter(|table| table.workload != SUITE);
        for table in workloads {
            single.push((
                title(table, &clean),
                draw(table, noun.one)?,
                figures(table, noun.one),
            ));
        }
    }
    let headline = headline(comparison);
    let caption = html! {
        (key(Ink::First, true, HEADS[0])) (key(Ink::Second, false, HEADS[1]))
        ". Marks are estimates, lines their intervals."
    };
    let body = html! {
        header {
            h1 { (headline) }
            @if let Some(words) = &comparison.incomparable {
                div.alert role="note" { (Sentence(words)) }
            }
            @if let Some(words) = tally(comparison) { p { (words) "." } }
            dl {
                dt { "before" } dd { (describe(&comparison.before, &clean)) }
                dt { "after" } dd { (describe(&comparison.after, &clean)) }
            }
            @for warning in &comparison.warnings { p.note { (Sentence(warning)) } }
            p.soft { (legend(comparison)) }
        }
        main {
            section aria-labelledby=(noun.many) {
                h2 id=(noun.many) { (capital(noun.many)) }
                @for (about, svg, table) in &main {
                    h3 { (about) }
                    @if let Some(svg) = svg { (captioned(svg, &caption)) }
                    (table)
                }
            }
            @if !single.is_empty() {
                section aria-labelledby="workloads" {
                    h2 #workloads { "Workload by workload" }
                    div.charts { @for (about, svg, table) in &single {
                        div {
                            h3 { (about) }
                            @match svg {
                                Some(svg) => (drawing(svg, &caption, table)),
                                None => (table),
                            }
                        }
                    } }
                }
            }
            (machines(comparison))
        }
        footer { p { "perfquilt " (env!("CARGO_PKG_VERSION")) } }
    };
    Ok(frame::page(&format!("perfquilt: {headline}"), None, &body))
}

/// Draws the effects of a table; `None` if it has none.
fn draw(table: &ComparisonTable, noun: &str) -> Result<Option<String>> {
    let lanes: Vec<ChartRow> = rows(table).map(lane).collect();
    let about = title(table, &clean);
    let about = format!("Effect of each {noun} in both experiments: {about}");
    chart::rows(&about, &axis(&[table.meter]), &lanes)
}

fn lane(row: &ComparisonRow) -> ChartRow {
    let mut marks = Vec::new();
    for (effect, dy, ink) in [(&row.before, -3, Ink::First), (&row.after, 3, Ink::Second)] {
        let Some(effect) = effect else { continue };
        marks.extend(estimate_marks(&effect.shown(), dy, ink));
    }
    ChartRow {
        label: format!("{}  {}", position(row), name(row))
            .trim()
            .to_owned(),
        marks,
    }
}

fn figures(of: &ComparisonTable, noun: &str) -> Markup {
    let about = title(of, &clean);
    let places = places(of);
    let table = html! {
        table.effects role="table" {
            thead { tr role="row" {
                th.n scope="col" { "#" }
                th scope="col" { (noun) }
                @for head in HEADS { th.n scope="col" { (head) } }
                th scope="col" { "verdict" }
            } }
            tbody { @for row in rows(of) {
                tr role="row" class=[row.patch.is_none().then_some("total")] {
                    td.n role="cell" { (position(row)) }
                    th scope="row" role="rowheader" { @match &row.patch {
                        Some(name) => (Name(name)),
                        None => "total",
                    } }
                    @for (text, head) in cells(row, of.meter, places).iter().zip(HEADS) {
                        td.n role="cell" data-label=(head) { (text) }
                    }
                    td role="cell" class=(tone(row)) { (verdict(row)) }
                }
            } }
        }
    };
    scroll(&about, &table)
}

fn tone(row: &ComparisonRow) -> &'static str {
    match row.difference.map(|difference| difference.verdict) {
        Some(Change::More) => "good",
        Some(Change::Less) => "bad",
        Some(Change::Unclear) => "open",
        Some(Change::Same) | None => "quiet",
    }
}

/// Renders what both experiments say of their machines and methods.
fn machines(comparison: &Comparison) -> Markup {
    let (before, after) = (&comparison.before, &comparison.after);
    let mut keys: Vec<&String> = before.machine.keys().chain(after.machine.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut facts: Vec<(&str, [&str; 2])> = keys
        .into_iter()
        .map(|key| {
            let sides = [before, after].map(|of| of.machine.get(key).map_or("–", String::as_str));
            (key.as_str(), sides)
        })
        .collect();
    facts.push(("started", [&before.started, &after.started]));
    facts.push(("harness", [&before.harness, &after.harness]));
    let table = html! {
        table {
            thead { tr {
                td {}
                th scope="col" { "before" }
                th scope="col" { "after" }
            } }
            tbody { @for (name, sides) in &facts {
                tr {
                    th scope="row" { (clean(name)) }
                    @for text in sides {
                        td { @if sides[0] == sides[1] { (clean(text)) } @else { span.open { (clean(text)) } } }
                    }
                }
            } }
        }
    };
    html! {
        section aria-labelledby="method" {
            h2 #method { "Machines and method" }
            (scroll("Machines and method of both experiments", &table))
        }
    }
}
