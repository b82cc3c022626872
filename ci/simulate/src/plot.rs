//! The drawing of the results (SVG).

use plotters::coord::Shift;
use plotters::prelude::*;

use super::Simulated;
use perfquilt_model::error::{Error, Result};

/// The width and height of one panel.
const PANEL: (u32, u32) = (420, 320);

/// The margin for the last label below an axis, half of which extends past its end.
const LAST_LABEL: u32 = 22;

/// Colours that remain distinct with colour blindness: Okabe and Ito.
const COLORS: [RGBColor; 2] = [RGBColor(0, 114, 178), RGBColor(230, 159, 0)];

type Panel<'a, 'b> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws the false positives of the null experiments by scenario, and the coverage, each with its limits.
pub(super) fn families(simulated: &Simulated) -> Result<String> {
    let mut text = String::new();
    {
        let area =
            SVGBackend::with_string(&mut text, (2 * PANEL.0, PANEL.1 + 60)).into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        let panels = area.split_evenly((1, 2));
        let names: Vec<&str> = simulated.families.iter().map(|f| f.scenario).collect();
        let errors = |of: fn(&super::Family) -> f64| -> Vec<f64> {
            simulated.families.iter().map(|f| 100.0 * of(f)).collect()
        };
        if let [left, right] = &panels[..] {
            dots(
                left,
                "experiments with a false claim, %",
                &names,
                0.0..8.0,
                &[super::FALSE_POSITIVES * 100.0],
                &[
                    ("at the end", errors(|f| f.false_positives)),
                    ("stopping by hand", errors(|f| f.false_positives_peeking)),
                ],
            )?;
            dots(
                right,
                "95 % intervals that contain the true effect, %",
                &names,
                92.0..100.0,
                &[super::COVERAGE.0 * 100.0, super::COVERAGE.1 * 100.0],
                &[("patches", errors(|f| f.coverage))],
            )?;
        }
        area.present().map_err(failed)?;
    }
    Ok(text)
}

/// Draws one row per name with a dot for each series, and `limits` as lines.
fn dots(
    panel: &Panel<'_, '_>,
    caption: &str,
    names: &[&str],
    range: std::ops::Range<f64>,
    limits: &[f64],
    series: &[(&str, Vec<f64>)],
) -> Result<()> {
    let rows = names.len();
    let mut chart = ChartBuilder::on(panel)
        .caption(caption, ("sans-serif", 15))
        .margin(10)
        .margin_right(LAST_LABEL)
        .x_label_area_size(24)
        .y_label_area_size(104)
        .build_cartesian_2d(range.clone(), -0.5..rows as f64 - 0.5)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .y_labels(rows)
        .y_label_formatter(&|row| {
            let place = row.round().max(0.0) as usize;
            // The first name is at the top.
            rows.checked_sub(place + 1)
                .and_then(|place| names.get(place))
                .map_or(String::new(), |name| (*name).to_owned())
        })
        .light_line_style(WHITE)
        .draw()
        .map_err(failed)?;
    for &limit in limits {
        let ends = [(limit, -0.5), (limit, rows as f64 - 0.5)];
        chart
            .draw_series(LineSeries::new(ends, RED.mix(0.6).stroke_width(1)))
            .map_err(failed)?;
    }
    for ((name, values), color) in series.iter().zip(COLORS) {
        let points = values.iter().enumerate().map(|(place, value)| {
            let row = rows as f64 - 1.0 - place as f64;
            Circle::new(
                (value.clamp(range.start, range.end), row),
                4,
                color.filled(),
            )
        });
        chart
            .draw_series(points)
            .map_err(failed)?
            .label(*name)
            .legend(move |(x, y)| Circle::new((x + 8, y), 4, color.filled()));
    }
    if series.len() < 2 {
        // The caption names the only series.
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
