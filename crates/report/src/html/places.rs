//! The lanes and machines that measured blocks, compared with each other.

use maud::{Markup, html};

use super::super::number;
use super::super::text::clean;
use super::chart::{self, ChartRow, Ink, Mark, axis};
use super::frame::{Name, drawing, key, scroll};
use perfquilt_judge::attribution::{Attribution, GroupFigures};
use perfquilt_model::error::Result;
use perfquilt_model::observation::Meter;

/// The values of one workload and meter at one place.
struct Place<'a> {
    name: String,
    workload: &'a str,
    meter: Meter,
    figures: &'a GroupFigures,
}

/// Renders what each lane measured, and how far lanes differ.
pub(super) fn lanes(attribution: &Attribution) -> Result<Markup> {
    let all = &attribution.noise.lanes;
    let places = all.iter().flat_map(|of| {
        of.lanes.iter().map(move |lane| Place {
            name: lane.lane.to_string(),
            workload: &of.workload,
            meter: of.meter,
            figures: &lane.figures,
        })
    });
    let smallest = all.iter().map(|of| of.p_value).fold(1.0, f64::min);
    let about = format!(
        "Blocks were measured in several lanes at once. That all lanes find the same differences between points \
         has p = {smallest:.2}, the smallest of all workloads."
    );
    render(
        ("lane", "What each lane measured"),
        &about,
        &places.collect::<Vec<_>>(),
    )
}

/// Renders what each machine measured; `about` says what that means for intervals.
pub(super) fn machines(attribution: &Attribution, about: &str) -> Result<Markup> {
    let places = attribution.noise.machines.iter().flat_map(|of| {
        of.machines.iter().map(move |machine| Place {
            name: clean(&machine.machine),
            workload: &of.workload,
            meter: of.meter,
            figures: &machine.figures,
        })
    });
    render(
        ("machine", "What each machine measured"),
        about,
        &places.collect::<Vec<_>>(),
    )
}

fn render((noun, title): (&str, &str), about: &str, places: &[Place<'_>]) -> Result<Markup> {
    if places.is_empty() {
        return Ok(html! {});
    }
    let mut meters: Vec<Meter> = places.iter().map(|place| place.meter).collect();
    meters.sort_unstable();
    meters.dedup();
    let caption = html! {
        (key(Ink::First, true, "control there"))
        (key(Ink::Second, false, "largest difference from the others"))
        ". Both are 0 where nothing but chance differs."
    };
    let mut drawings = Vec::new();
    for meter in meters {
        let of_meter: Vec<&Place<'_>> = places.iter().filter(|it| it.meter == meter).collect();
        let rows: Vec<ChartRow> = of_meter.iter().map(|place| row(noun, place)).collect();
        let title = format!("{title}, {meter}");
        let body = table(noun, &title, &of_meter);
        drawings.push(match chart::rows(&title, &axis(&[meter]), &rows)? {
            Some(svg) => drawing(&svg, &caption, &body),
            None => body,
        });
    }
    Ok(html! {
        h3 { (title) }
        p { (about) }
        div.charts { @for drawing in &drawings { div { (drawing) } } }
    })
}

fn row(noun: &str, place: &Place<'_>) -> ChartRow {
    let mut marks = Vec::new();
    if let Some(control) = place.figures.control {
        marks.push(Mark::Dot(
            100.0 * place.meter.shown(control),
            -3,
            Ink::First,
        ));
    }
    let difference = 100.0 * place.meter.shown(place.figures.largest_difference);
    marks.push(Mark::Square(difference, 3, Ink::Second));
    let noun = if noun == "lane" { "lane " } else { "" };
    ChartRow {
        label: format!("{}: {noun}{}", place.workload, place.name),
        marks,
    }
}

fn table(noun: &str, about: &str, places: &[&Place<'_>]) -> Markup {
    let show = |share: Option<f64>| share.map_or("unknown".to_owned(), number::spread);
    let signed = |meter: Meter, share: f64| format!("{} %", number::signed(meter.shown(share), 2));
    let table = html! {
        table {
            thead { tr {
                th scope="col" { (noun) }
                th scope="col" { "workload" }
                th.n scope="col" { "blocks" }
                th.n scope="col" { "a value varies by" }
                th.n scope="col" { "control" }
                th.n scope="col" { "largest difference from the others" }
            } }
            tbody { @for place in places {
                tr {
                    th scope="row" { (Name(&place.name)) }
                    td { (Name(place.workload)) }
                    td.n { (place.figures.blocks) }
                    td.n { (show(place.figures.block_sd)) }
                    td.n { (place.figures.control.map_or("unknown".to_owned(), |of| signed(place.meter, of))) }
                    td.n { (signed(place.meter, place.figures.largest_difference)) }
                }
            } }
        }
    };
    scroll(about, &table)
}
