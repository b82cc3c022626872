//! The report as one page that holds everything: no script, nothing loaded, for light and dark, screens of any
//! width and those who do not see the drawings.

mod chart;
mod details;
mod effects;
pub(super) mod frame;
mod history;
mod raw;
#[cfg(test)]
mod tests;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use maud::{Markup, html};

use super::markdown::{commands, method_words};
use super::number;
use super::text::clean;
use super::view::{View, words_of};
use frame::{Name, Sentence};
use perfquilt_judge::attribution::Attribution;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{ExperimentHeader, Observation};

pub use raw::Distribution;

/// What a page shows beside the attribution document.
#[derive(Debug, Clone, Copy)]
pub struct Beside<'a> {
    /// The experiment.
    pub header: &'a ExperimentHeader,
    /// Its observations.
    pub observations: &'a [Observation],
    /// Its slices, summed up; empty where none were kept.
    pub distributions: &'a [Distribution],
    /// The observations to be taken away.
    pub data: Data<'a>,
    /// A flame graph (SVG), where a profile was given.
    pub flame_graph: Option<&'a [u8]>,
    /// Whether the experiment is in a workspace's store, so that commands can go on with it.
    pub stored: bool,
}

/// Where a page's reader finds the raw observations.
#[derive(Debug, Clone, Copy)]
pub enum Data<'a> {
    /// In the page: an observation file, compressed with gzip.
    Embedded(&'a [u8]),
    /// In a file of this name beside the page, of so many bytes: there are too many for a page.
    File(&'a str, u64),
    /// Where they were: a command writes them.
    Command,
}

/// The largest compressed data, in bytes, that a page embeds: with it, a page stays below 3 MB.
pub const MOST_EMBEDDED: usize = 1_100_000;

/// The report as a page: the verdict first, then every effect as drawing and table, then what was read, how
/// noisy it was, and the data. Names and titles cannot introduce markup.
///
/// # Errors
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when a drawing or document cannot be written.
pub fn html(attribution: &Attribution, beside: &Beside<'_>) -> Result<String> {
    let view = View::new(attribution);
    let functions = details::functions(attribution)?;
    let flame_graph = flame_graph(beside, !functions.0.is_empty());
    let sections = [
        ("patches", "Patches", patches(&view)),
        ("adds-up", "How it adds up", effects::waterfall(&view)?),
        ("apart", "Each by itself", effects::apart(&view)?),
        ("workloads", "Workloads", effects::forests(&view)?),
        (
            "tail",
            "Mean and tail",
            effects::tail(&view, beside.distributions)?,
        ),
        ("functions", "Functions", functions),
        ("flame-graph", "Flame graph", flame_graph),
        (
            "slices",
            "Slices",
            raw::distributions(beside.distributions)?,
        ),
        (
            "blocks",
            "Blocks",
            raw::drift(&view, beside.header, beside.observations)?,
        ),
        ("noise", "Noise", details::noise(attribution)?),
        ("builds", "Builds", details::builds(attribution)?),
        ("method", "Method", method(attribution)),
        ("data", "Data", data(attribution, beside)?),
    ];
    // A figure keeps its unit.
    let headline = view.headline().replace(" %", "\u{a0}%");
    let recipe = match attribution.recipe.as_str() {
        "" => html! {},
        recipe => html! { ", recipe " (Name(recipe)) },
    };
    let body = html! {
        header {
            h1 { (headline) }
            (alerts(attribution, beside.stored))
            p { (view.tally(&|name| clean(name))) "." }
            p.soft {
                (Name(attribution.base())) (recipe) ": " (view.scope(&|name| clean(name))) "."
            }
            nav aria-label="Sections" { ul {
                @for (id, name, section) in &sections {
                    @if !section.0.is_empty() { li { a href={ "#" (id) } { (name) } } }
                }
            } }
        }
        main { @for (_, _, section) in &sections { (section) } }
        footer {
            p { "perfquilt " (env!("CARGO_PKG_VERSION")) ", experiment " (Name(&attribution.experiment)) }
        }
    };
    let title = format!("{}: {headline}", attribution.base());
    Ok(frame::page(&title, None, &body))
}

/// What makes this report less than a whole one.
fn alerts(attribution: &Attribution, stored: bool) -> Markup {
    html! {
        @if !attribution.is_complete() {
            div.alert role="note" {
                strong { "This experiment is not finished. " }
                "Its intervals hold at every look and are wider than those at the end"
                @if stored { "; " code { "perfquilt run" } " goes on where it stopped" }
                "."
            }
        }
        @if !attribution.failed.is_empty() {
            div.alert role="note" {
                strong { (attribution.failed.len()) " of the points could not be built or measured." }
                ul { @for (point, reason) in &attribution.failed {
                    li { (words_of(*point)) ": " (Sentence(reason)) }
                } }
            }
        }
    }
}

fn patches(view: &View<'_>) -> Markup {
    let rows: Vec<_> = view.rows.iter().collect();
    let left_out = view.left_out(&clean);
    html! {
        section aria-labelledby="patches" {
            h2 #patches { "Patches" }
            (effects::table(view, "Effect of each patch", &rows))
            p.soft { (view.legend()) }
            @for line in view.origins(&clean) { p.soft { (line) } }
            @if let Some(line) = view.closure() { p { (line) "." } }
            @for warning in &view.attribution.warnings { p.note { (Sentence(warning)) } }
            @if !left_out.is_empty() {
                p { "Observations that no figure uses:" }
                ul { @for line in left_out { li { (line) } } }
            }
        }
    }
}

/// `listed` is whether a section above tells of functions.
fn flame_graph(beside: &Beside<'_>, listed: bool) -> Markup {
    let Some(svg) = beside.flame_graph else {
        return html! {};
    };
    // As an image it cannot act; saved and opened by itself it can be searched and zoomed.
    let address = format!("data:image/svg+xml;base64,{}", STANDARD.encode(svg));
    html! {
        section aria-labelledby="flame-graph" {
            h2 #flame-graph { "Flame graph" }
            p {
                a href=(address) download="flame-graph.svg" { "Save the flame graph" }
                " to search and zoom in it"
                @if listed { "; the functions that changed are listed above" }
                "."
            }
            div.scroll tabindex="0" role="region" aria-label="Flame graph" {
                img src=(address) alt="Differential flame graph of two points";
            }
        }
    }
}

fn method(attribution: &Attribution) -> Markup {
    let facts = [
        ("started", &attribution.started),
        ("harness", &attribution.harness),
        ("experiment", &attribution.experiment),
    ];
    html! {
        section aria-labelledby="method" {
            h2 #method { "Machine and method" }
            dl {
                @for (key, value) in &attribution.machine { dt { (clean(key)) } dd { (clean(value)) } }
                @for (key, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
                    dt { (key) } dd { (clean(value)) }
                }
                @for (meter, margin) in &attribution.margins {
                    dt { "margin of " (meter) } dd { "±" (number::margin(*margin)) }
                }
            }
            p { (Sentence(&method_words(attribution))) }
        }
    }
}

fn data(attribution: &Attribution, beside: &Beside<'_>) -> Result<Markup> {
    let name = file_name(&attribution.experiment);
    let mut document = GzEncoder::new(Vec::new(), Compression::default());
    let document = serde_json::to_writer(&mut document, attribution)
        .map_err(Into::into)
        .and_then(|()| document.finish())
        .map_err(|error| Error::internal(format!("cannot write JSON: {error}")))?;
    let link = |kind: &str, bytes: &[u8]| format!("data:{kind};base64,{}", STANDARD.encode(bytes));
    let observations = beside.observations.len();
    Ok(html! {
        section aria-labelledby="data" {
            h2 #data { "Data" }
            ul {
                li { @match beside.data {
                    Data::Embedded(bytes) => {
                        a href=(link("application/gzip", bytes)) download={ (name) ".jsonl.gz" } {
                            "All " (observations) " observations"
                        }
                        ", exactly as they were stored (JSON Lines, gzip); "
                        code { "perfquilt analyse" } " reads the file."
                    }
                    Data::File(file, bytes) => {
                        a href=(address(file)) { "All " (observations) " observations" }
                        ", exactly as they were stored (" (file) ", " (bytes / 1_000_000)
                        " MB: too much for a page). Keep it beside this page."
                    }
                    Data::Command => {
                        "All " (observations) " observations are too much for a page; "
                        @if beside.stored { "a command below writes them." }
                        @else { "they are in the file that was analysed." }
                    }
                } }
                li {
                    a href=(link("application/gzip", &document)) download={ (name) ".json.gz" } {
                        "Every effect of this page"
                    }
                    ", unrounded: the attribution document (JSON, gzip)."
                }
            }
            h3 { "Do it again" }
            pre tabindex="0" {
                @for line in commands(attribution, "html", beside.stored) { (clean(&line)) "\n" }
            }
        }
    })
}

/// The address of a file beside the page, whatever characters its name has.
fn address(name: &str) -> String {
    let mut address = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            address.push(char::from(byte))
        } else {
            address.push_str(&format!("%{byte:02X}"))
        }
    }
    address
}

/// An experiment's name as that of a file, whatever characters it has.
fn file_name(experiment: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "-_.".contains(c) {
            c
        } else {
            '-'
        }
    };
    let name: String = experiment.chars().take(100).map(plain).collect();
    match name.trim_start_matches('.') {
        "" => "experiment".to_owned(),
        name => name.to_owned(),
    }
}
