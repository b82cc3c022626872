//! The drawing of the rules' power (SVG).

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::power::{EFFECTS, Power, RATE};
use perfquilt_model::error::{Error, Result};

/// The width and height of one panel.
const PANEL: (u32, u32) = (420, 320);

/// The margin for the last label below an axis, half of which extends past its end.
const LAST_LABEL: u32 = 22;

/// Colours that remain distinct with colour blindness: Okabe and Ito.
const COLORS: [RGBColor; 5] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 86, 86),
];

type Panel<'a, 'b> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws the share of experiments in which each rule finds an effect, over its size: one panel per machine.
pub(crate) fn powers(powers: &[Power]) -> Result<String> {
    let mut text = String::new();
    {
        let rows = powers.len().div_ceil(2).max(1);
        let size = (2 * PANEL.0, u32::try_from(rows).unwrap_or(1) * PANEL.1);
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        let panels = area.split_evenly((rows, 2));
        for (place, (panel, power)) in panels.iter().zip(powers).enumerate() {
            // One legend suffices, as the colours are the same everywhere, and in other panels the lines would
            // run behind it.
            curves(panel, power, place == 0)?;
        }
        area.present().map_err(failed)?;
    }
    Ok(text)
}

fn curves(panel: &Panel<'_, '_>, power: &Power, legend: bool) -> Result<()> {
    let largest = EFFECTS.iter().copied().fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(panel)
        .caption(power.machine, ("sans-serif", 16))
        .margin(10)
        .margin_right(LAST_LABEL)
        .x_label_area_size(34)
        .y_label_area_size(44)
        .build_cartesian_2d(0.0..100.0 * largest, 0.0..100.0)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .x_desc("effect, % of speed")
        .y_desc("found, %")
        .light_line_style(WHITE)
        .draw()
        .map_err(failed)?;
    for (rule, color) in power.rules.iter().zip(COLORS) {
        let first = (0.0, 100.0 * RATE);
        let points = EFFECTS.iter().zip(&rule.found);
        let points = points.map(|(effect, found)| (100.0 * effect, 100.0 * found));
        chart
            .draw_series(LineSeries::new(
                std::iter::once(first).chain(points),
                color.stroke_width(2),
            ))
            .map_err(failed)?
            .label(rule.rule)
            .legend(move |(x, y)| {
                PathElement::new(vec![(x, y), (x + 16, y)], color.stroke_width(2))
            });
    }
    if !legend {
        return Ok(());
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .draw()
        .map_err(failed)
}

fn failed<E: std::error::Error + Send + Sync>(error: DrawingAreaErrorKind<E>) -> Error {
    Error::internal(format!("cannot draw: {error}"))
}
