//! The sections on functions, noise and builds.

use maud::{Markup, html};

use super::super::nouns::Nouns;
use super::super::text::{capital, clean};
use super::super::{functions, number};
use super::chart::{self, ChartRow, Ink, Mark};
use super::frame::{Name, drawing, key, scroll};
use super::places;
use perfquilt_judge::attribution::{Attribution, NoiseSpread};
use perfquilt_model::error::Result;
use perfquilt_model::observation::FunctionChange;

/// Renders the functions whose instructions the patches changed.
pub(super) fn functions(attribution: &Attribution) -> Result<Markup> {
    let changes = &attribution.functions;
    let mut drawings = Vec::new();
    for patch in &attribution.patches {
        let of_patch: Vec<&FunctionChange> = changes
            .iter()
            .filter(|change| change.patch == patch.index)
            .collect();
        let lanes: Vec<ChartRow> = largest(&of_patch)
            .iter()
            .map(|change| lane(change))
            .collect();
        let about = format!(
            "Instructions by function, {} {}",
            Nouns::of(attribution).one,
            patch.index
        );
        if let Some(svg) = chart::rows(&about, "% of the workload's instructions", &lanes)? {
            let caption =
                html! { "The functions that changed most, on the workload each changed most." };
            let body = function_table(&about, &of_patch);
            drawings.push(html! {
                div { h3 { (patch.index) " " (Name(&patch.name)) } (drawing(&svg, &caption, &body)) }
            });
        }
    }
    Ok(html! {
        @if !drawings.is_empty() {
            section aria-labelledby="functions" {
                h2 #functions { "Functions" }
                p { (functions::HEAD.trim_end_matches(':')) "." }
                div.charts { @for drawing in &drawings { (drawing) } }
            }
        }
    })
}

/// Returns the functions to draw: those that changed most, each on the workload where it changed most.
fn largest<'a>(changes: &[&'a FunctionChange]) -> Vec<&'a FunctionChange> {
    const MOST: usize = 12;
    let mut sorted = changes.to_vec();
    sorted.sort_by(|a, b| b.share.abs().total_cmp(&a.share.abs()));
    let mut shown: Vec<&FunctionChange> = Vec::new();
    for change in sorted {
        if shown.len() < MOST && shown.iter().all(|other| other.function != change.function) {
            shown.push(change);
        }
    }
    shown
}

fn lane(change: &FunctionChange) -> ChartRow {
    let ink = match change.share {
        share if share < 0.0 => Ink::Good,
        _ => Ink::Bad,
    };
    let percent = 100.0 * change.share;
    let mut marks = vec![Mark::Bar((0.0, percent), 10, ink)];
    let half = change.half_width * (change.share / (change.after - change.before)).abs();
    if half.is_finite() {
        let ends = (percent - 100.0 * half, percent + 100.0 * half);
        marks.push(Mark::Whisker(ends, 0, Ink::Text));
    }
    ChartRow {
        label: functions::short(&change.function),
        marks,
    }
}

fn function_table(about: &str, changes: &[&FunctionChange]) -> Markup {
    let table = html! {
        table {
            thead { tr {
                th scope="col" { "function" }
                th scope="col" { "workload" }
                th.n scope="col" { "before" }
                th.n scope="col" { "after" }
                th.n scope="col" { "share" }
            } }
            tbody { @for change in changes {
                tr {
                    th scope="row" { (Name(&change.function)) }
                    td { (Name(&change.workload)) }
                    td.n { (format!("{:.1}", change.before)) }
                    td.n { (format!("{:.1} ± {:.1}", change.after, change.half_width)) }
                    td.n { data value=(change.share) { (number::signed(change.share, 3)) " %" } }
                }
            } }
        }
    };
    scroll(about, &table)
}

/// Returns the components of the noise of one value.
fn parts(spread: &NoiseSpread) -> [(&'static str, Option<f64>, Ink); 3] {
    [
        ("between layouts", spread.layout_sd, Ink::First),
        ("between restarts", spread.restart_sd, Ink::Second),
        ("within a block", spread.within_sd, Ink::Third),
    ]
}

/// Renders the noise of the measurement and its components.
pub(super) fn noise(attribution: &Attribution) -> Result<Markup> {
    let spreads: Vec<&NoiseSpread> = attribution
        .noise
        .spread
        .iter()
        .filter(|spread| spread.block_sd.is_some())
        .collect();
    if spreads.is_empty() {
        return Ok(html! {});
    }
    let lanes: Vec<ChartRow> = spreads.iter().map(|spread| noise_lane(spread)).collect();
    let about = "Standard deviation of one value in one block, by workload and meter";
    let caption = html! {
        @for (name, _, ink) in parts(spreads[0]) { (key(ink, false, name)) }
        (key(Ink::Quiet, false, "not attributed"))
        ". A bar is as long as the standard deviation of one point's value in one block; its parts are \
         the shares of its variance."
    };
    let body = noise_table(about, &spreads);
    let controls = &attribution.noise.control;
    let missed = controls
        .iter()
        .filter(|control| control.contains_zero == Some(false))
        .count();
    let base = Nouns::of(attribution).base;
    Ok(html! {
        section aria-labelledby="noise" {
            h2 #noise { "Noise" }
            @if !controls.is_empty() {
                p {
                    (capital(base)) " was measured a second time as if it were another point: its interval \
                     misses 0 in " (missed) " of " (controls.len()) " cases; one in twenty is to be expected."
                    @if attribution.uses_control() {
                        " Effects against " (base.replace("bare ", "")) " are against the mean of both."
                    }
                }
            }
            @if let Some(words) = super::super::describe_machines(&attribution.noise.machines) {
                (places::machines(attribution, &words)?)
            }
            (places::lanes(attribution)?)
            @if let Some(words) = super::super::describe_conditions(&attribution.noise.conditions) {
                p { (words) }
            }
            @match chart::rows(about, "%", &lanes)? {
                Some(svg) => (drawing(&svg, &caption, &body)),
                None => (body),
            }
        }
    })
}

fn noise_lane(spread: &NoiseSpread) -> ChartRow {
    let all = 100.0 * spread.block_sd.unwrap_or(0.0);
    let mut from = 0.0;
    let mut marks = Vec::new();
    for (_, sd, ink) in parts(spread) {
        let Some(sd) = sd.filter(|_| all > 0.0) else {
            continue;
        };
        let share = (100.0 * sd / all).powi(2);
        let to = (from + share * all).min(all);
        marks.push(Mark::Bar((from, to), 12, ink));
        from = to;
    }
    if from < all {
        marks.push(Mark::Bar((from, all), 12, Ink::Quiet));
    }
    ChartRow {
        label: format!("{} of {}", spread.meter, spread.workload),
        marks,
    }
}

fn noise_table(about: &str, spreads: &[&NoiseSpread]) -> Markup {
    let show = |sd: Option<f64>| sd.map_or("unknown".to_owned(), number::spread);
    let table = html! {
        table {
            thead { tr {
                th scope="col" { "workload" }
                th scope="col" { "meter" }
                th.n scope="col" { "blocks" }
                th.n scope="col" { "in all" }
                @for (name, _, _) in parts(spreads[0]) { th.n scope="col" { (name) } }
            } }
            tbody { @for spread in spreads {
                tr {
                    th scope="row" { (Name(&spread.workload)) }
                    td { (spread.meter) }
                    td.n { (spread.blocks) }
                    td.n { (show(spread.block_sd)) }
                    @for (_, sd, _) in parts(spread) { td.n { (show(sd)) } }
                }
            } }
        }
    };
    scroll(about, &table)
}

/// Renders the build times of the points.
pub(super) fn builds(attribution: &Attribution) -> Result<Markup> {
    let builds = &attribution.builds;
    if builds.is_empty() {
        return Ok(html! {});
    }
    let names = ["configure", "compile", "link", "tool's own"];
    let inks = [Ink::First, Ink::Second, Ink::Third, Ink::Fourth];
    let parts =
        |b: &perfquilt_model::observation::PointBuild| [b.configure, b.compile, b.link, b.overhead];
    let all: f64 = builds.iter().flat_map(parts).sum();
    let lanes: Vec<ChartRow> = builds
        .iter()
        .map(|build| {
            let mut from = 0.0;
            let bar = |(seconds, ink): (f64, Ink)| {
                let to = from + seconds;
                Mark::Bar((std::mem::replace(&mut from, to), to), 12, ink)
            };
            let taken = parts(build).into_iter().zip(inks);
            ChartRow {
                label: Nouns::of(attribution).point(build.point),
                marks: taken
                    .filter(|(seconds, _)| *seconds > 0.0)
                    .map(bar)
                    .collect(),
            }
        })
        .collect();
    let caption = html! {
        @for (name, ink) in names.iter().zip(inks) { (key(ink, false, name)) }
        ". Of a server from the cache: what its build took when it was made."
    };
    let table = html! {
        table {
            thead { tr {
                th scope="col" { "point" }
                @for name in names { th.n scope="col" { (name) } }
                th.n scope="col" { "units" }
            } }
            tbody { @for build in builds {
                tr {
                    th scope="row" {
                        (Nouns::of(attribution).point(build.point)) @if build.cached { " (from the cache)" }
                    }
                    @for seconds in parts(build) { td.n { (number::seconds(seconds)) } }
                    td.n { (build.units) }
                }
            } }
        }
    };
    let about = "Seconds of building, by point";
    let body = scroll(about, &table);
    Ok(html! {
        section aria-labelledby="builds" {
            h2 #builds { "Builds" }
            p { (number::seconds(all)) " in all." }
            @if let Some(words) = super::super::code_size::describe(attribution) {
                p { (words) }
            }
            @if let Some(words) = super::super::profile_guided::describe(attribution, &clean) {
                p { (words) }
            }
            @match chart::rows(about, "seconds", &lanes)? {
                Some(svg) => (drawing(&svg, &caption, &body)),
                None => (body),
            }
        }
    })
}
