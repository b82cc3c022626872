//! The report as a single self-contained page without scripts, for light and dark colour schemes, screens of any width
//! and screen readers.

mod details;
mod effects;
mod places;
mod raw;
#[cfg(test)]
mod tests;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use maud::{Markup, html};

use super::method::{SIGNIFICANT, commands, describe_method};
use super::nouns::Nouns;
use super::number;
use super::text::{capital, clean};
use super::view::View;
use crate::document::frame::{Name, Sentence};
use crate::document::{chart, frame};
use perfquilt_judge::attribution::Attribution;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{ExperimentHeader, Observation};

pub use raw::Distribution;

/// The content of a page besides the attribution document.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageContent<'a> {
    /// The experiment.
    pub(crate) header: &'a ExperimentHeader,
    /// Its observations.
    pub(crate) observations: &'a [Observation],
    /// The distributions of its slices; empty if none are stored.
    pub(crate) distributions: &'a [Distribution],
    /// The raw observations for download.
    pub(crate) data: RawData<'a>,
    /// A flame graph (SVG), if one was given.
    pub(crate) flame_graph: Option<&'a [u8]>,
    /// Whether the experiment is in a workspace's store, so that further commands can use it.
    pub(crate) stored: bool,
}

/// The location of the raw observations of a page.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RawData<'a> {
    /// In the page: an observation file, compressed with gzip.
    Embedded(&'a [u8]),
    /// In a file beside the page, with this name and size in bytes, because they are too large to embed.
    File(&'a str, u64),
    /// In the store or in the analysed file; a command writes them.
    Command,
}

/// Renders the report as a page: the verdict first, then every effect as drawing and table, then raw slices and blocks,
/// noise, and the data. Names and titles cannot introduce markup.
pub(crate) fn html(attribution: &Attribution, content: &PageContent<'_>) -> Result<String> {
    let view = View::new(attribution);
    let functions = details::functions(attribution)?;
    let flame_graph = flame_graph(content, !functions.0.is_empty());
    let points = capital(view.nouns().many);
    let sections = [
        (view.nouns().many, &*points, patches(&view)?),
        ("adds-up", "How it adds up", effects::waterfall(&view)?),
        ("apart", "Each by itself", effects::separate_effects(&view)?),
        ("workloads", "Workloads", effects::forests(&view)?),
        (
            "tail",
            "Mean and tail",
            effects::tail(&view, content.distributions)?,
        ),
        ("functions", "Functions", functions),
        ("flame-graph", "Flame graph", flame_graph),
        (
            "slices",
            "Slices",
            raw::distributions(view.nouns(), content.distributions)?,
        ),
        (
            "blocks",
            "Blocks",
            raw::drift(&view, content.header, content.observations)?,
        ),
        ("noise", "Noise", details::noise(attribution)?),
        ("builds", "Builds", details::builds(attribution)?),
        ("method", "Method", method(attribution)),
        ("data", "Data", data(attribution, content)?),
    ];
    let headline = view.headline(&|name| clean(name));
    let recipe = match attribution.recipe.as_str() {
        "" => html! {},
        recipe => html! { ", recipe " (Name(recipe)) },
    };
    let body = html! {
        header {
            h1 { (headline) }
            (alerts(attribution, content.stored))
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

/// Renders warnings that the experiment is unfinished or points failed.
fn alerts(attribution: &Attribution, stored: bool) -> Markup {
    html! {
        @if !attribution.is_complete() {
            div.alert role="note" {
                strong { "This experiment is not finished. " }
                "Its intervals hold at every look and are wider than those at the end"
                @if stored { "; " code { "perfquilt run" } " continues where it stopped" }
                "."
            }
        }
        @if !attribution.failed.is_empty() {
            div.alert role="note" {
                strong { (attribution.failed.len()) " of the points could not be built or measured." }
                ul { @for (point, reason) in &attribution.failed {
                    li { (Nouns::of(attribution).point(*point)) ": " (Sentence(reason)) }
                } }
            }
        }
    }
}

fn patches(view: &View<'_>) -> Result<Markup> {
    let rows: Vec<_> = view.rows.iter().collect();
    let left_out = view.left_out(&clean);
    let nouns = view.nouns();
    Ok(html! {
        section aria-labelledby=(nouns.many) {
            h2 id=(nouns.many) { (capital(nouns.many)) }
            (effects::table(view, &format!("Effect of each {}", nouns.one), &rows))
            p.soft { (view.legend()) " " (SIGNIFICANT) }
            @for line in view.origins(&clean) { p.soft { (line) } }
            @if let Some(line) = view.end_to_end() { p { (line) "." } }
            @for warning in &view.attribution.warnings { p.note { (Sentence(warning)) } }
            @if !left_out.is_empty() {
                p { "Observations that no figure uses:" }
                ul { @for line in left_out { li { (line) } } }
            }
        }
    })
}

/// Renders the flame graph, if there is one; `listed` says whether a section above lists functions.
fn flame_graph(content: &PageContent<'_>, listed: bool) -> Markup {
    let Some(svg) = content.flame_graph else {
        return html! {};
    };
    // An image cannot run scripts. Saved and opened by itself, the graph can be searched and zoomed.
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
    html! {
        section aria-labelledby="method" {
            h2 #method { "Machine and method" }
            dl {
                @for (key, value) in &attribution.machine { dt { (clean(key)) } dd { (clean(value)) } }
                @for (key, value) in attribution.provenance() {
                    dt { (key) } dd { (clean(value)) }
                }
                @for (meter, margin) in &attribution.margins {
                    dt { "margin of " (meter) } dd { "±" (number::margin(*margin)) }
                }
            }
            p { (Sentence(&describe_method(attribution))) }
        }
    }
}

fn data(attribution: &Attribution, content: &PageContent<'_>) -> Result<Markup> {
    let name = file_name(&attribution.experiment);
    let mut document = GzEncoder::new(Vec::new(), Compression::default());
    let document = serde_json::to_writer(&mut document, attribution)
        .map_err(Into::into)
        .and_then(|()| document.finish())
        .map_err(|error| Error::internal(format!("cannot write JSON: {error}")))?;
    let link = |kind: &str, bytes: &[u8]| format!("data:{kind};base64,{}", STANDARD.encode(bytes));
    let observations = content.observations.len();
    Ok(html! {
        section aria-labelledby="data" {
            h2 #data { "Data" }
            ul {
                li { @match content.data {
                    RawData::Embedded(bytes) => {
                        a href=(link("application/gzip", bytes)) download={ (name) ".jsonl.gz" } {
                            "All " (observations) " observations"
                        }
                        ", exactly as they were stored (JSON Lines, gzip); "
                        code { "perfquilt analyse" } " reads the file."
                    }
                    RawData::File(file, bytes) => {
                        a href=(address(file)) { "All " (observations) " observations" }
                        ", exactly as they were stored (" (file) ", " (bytes / 1_000_000)
                        " MB: too much for a page). Keep it beside this page."
                    }
                    RawData::Command => {
                        "All " (observations) " observations are too much for a page; "
                        @if content.stored { "a command below writes them." }
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
            h3 { "Reproduce this report" }
            pre tabindex="0" {
                @for line in commands(attribution, "html", content.stored) { (clean(&line)) "\n" }
            }
        }
    })
}

/// Returns the percent-encoded relative address of a file beside the page.
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

/// Converts an experiment's name to a safe file name.
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
