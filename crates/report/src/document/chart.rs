//! SVG drawings for pages. Their colours are CSS variables of the page, so that they follow its light or dark scheme.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::text::{clean, fit};
use perfquilt_judge::attribution::ShownChange;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::Meter;

/// Width of a drawing in pixels; it is small so that text stays readable when a phone shrinks the drawing.
const WIDTH: u32 = 400;
/// Size of letters in pixels.
const LETTER_SIZE: f64 = 12.0;
const ROW: u32 = 22;
const LABELS: u32 = 158;
const FIGURES: u32 = 58;
/// Maximum length of a row's label, in columns.
const LETTERS: usize = 22;
const BOTTOM: u32 = 38;
const TOP: u32 = 8;
/// Height of a drawing with a vertical axis, in pixels.
const HEIGHT: u32 = 220;
/// Right margin in pixels, for the half of the last axis label that exceeds the axis.
const RIGHT: u32 = 24;

/// A colour by its meaning; `style.css` defines a variable of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ink {
    /// Text.
    Text,
    /// Axes and other background lines.
    Line,
    /// Grid lines.
    Grid,
    /// Faster.
    Good,
    /// Slower.
    Bad,
    /// No effect.
    Quiet,
    /// Unclear.
    Open,
    /// The first of several categories.
    First,
    Second,
    Third,
    Fourth,
}

impl Ink {
    /// The names of their variables in `style.css`, in the order of the inks.
    const NAMES: [&'static str; 11] = [
        "text", "soft", "grid", "good", "bad", "quiet", "open", "first", "second", "third",
        "fourth",
    ];

    /// Returns the name of its variable in `style.css`.
    pub(crate) fn name(self) -> &'static str {
        Ink::NAMES[self as usize]
    }

    /// Returns the placeholder colour that [`finished`] replaces by the variable.
    fn color(self) -> RGBColor {
        placeholder(self as usize)
    }
}

fn placeholder(place: usize) -> RGBColor {
    RGBColor(1, 254, place as u8)
}

/// A mark in a row of a drawing. Offsets are pixels below the middle of the row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mark {
    /// A filled bar with its height in pixels.
    Bar(Ends, u32, Ink),
    /// A line with ends.
    Whisker(Ends, i32, Ink),
    /// A disc.
    Dot(f64, i32, Ink),
    /// A square.
    Square(f64, i32, Ink),
    /// A short line across.
    Tick(f64, Ink),
}

/// A drawing, not yet drawn.
#[derive(Debug, Clone)]
pub(crate) struct Chart {
    /// Its content, for screen readers.
    pub(crate) about: String,
    /// The label of the axis of values.
    pub(crate) unit: String,
    pub(crate) content: ChartContent,
}

/// The content of a drawing.
#[derive(Debug, Clone)]
pub(crate) enum ChartContent {
    /// Rows from the top down over one horizontal axis that includes 0.
    Rows(Vec<ChartRow>),
    /// Rows over an axis that need not include 0.
    RowsWithoutZero(Vec<ChartRow>),
    /// Series over a horizontal axis of whole numbers with this label; the axis of values includes 0.
    Series(&'static str, Vec<Series>),
    /// Shares, down to the rarest, over ratios along an axis with this label; both axes are logarithmic.
    Shares(&'static str, f64, Vec<Curve>),
}

impl Chart {
    /// Returns a drawing of rows over an axis with the label `unit`.
    pub(crate) fn of_rows(
        about: impl Into<String>,
        unit: impl Into<String>,
        rows: Vec<ChartRow>,
    ) -> Self {
        Chart::new(about, unit, ChartContent::Rows(rows))
    }

    pub(crate) fn new(
        about: impl Into<String>,
        unit: impl Into<String>,
        content: ChartContent,
    ) -> Self {
        Chart {
            about: about.into(),
            unit: unit.into(),
            content,
        }
    }

    /// Draws it; `None` if there is nothing to draw.
    pub(crate) fn draw(&self) -> Result<Option<String>> {
        let unit = &clean(&self.unit);
        let svg = match &self.content {
            ChartContent::Rows(shown) => rows(unit, shown, Some((0.0, 0.0))),
            ChartContent::RowsWithoutZero(shown) => rows(unit, shown, None),
            ChartContent::Series(across, shown) => series(across, unit, shown),
            ChartContent::Shares(across, rarest, shown) => shares(across, unit, *rarest, shown),
        };
        let svg = svg.map_err(|error| Error::internal(format!("cannot draw: {error}")))?;
        Ok(svg.map(|svg| finished(&svg, &clean(&self.about))))
    }
}

/// Returns the label of an axis of changes on `meters`: `% of speed`, `% instructions`.
pub(crate) fn axis(meters: &[Meter]) -> String {
    let quantities: Vec<&str> = meters.iter().map(|meter| meter.shown_quantity()).collect();
    format!("% {}", quantities.join(", % "))
}

/// Returns the mark of an estimate, a square for [`Ink::Second`], and the line of its interval.
fn estimate_marks(of: &ShownChange, dy: i32, ink: Ink) -> Vec<Mark> {
    let percent = |fraction: f64| 100.0 * fraction;
    let line = of
        .ends()
        .map(|(low, high)| Mark::Whisker((percent(low), percent(high)), dy, ink));
    let at = percent(of.estimate);
    let mark = match ink {
        Ink::Second => Mark::Square(at, dy, ink),
        _ => Mark::Dot(at, dy, ink),
    };
    line.into_iter().chain([mark]).collect()
}

/// Returns a row of changes below each other, each in its colour and with its interval.
pub(crate) fn changes_row(
    label: String,
    changes: &[Option<ShownChange>],
    inks: &[Ink],
) -> ChartRow {
    let count = i32::try_from(changes.len().min(inks.len())).unwrap_or(1);
    let places = (-3 * (count - 1)..).step_by(6);
    let marks = places.zip(changes.iter().zip(inks));
    let marks = marks.filter_map(|(dy, (of, ink))| Some(estimate_marks(of.as_ref()?, dy, *ink)));
    ChartRow {
        label,
        marks: marks.flatten().collect(),
    }
}

/// Returns bars that stand behind each other, from 0 on, for lengths with their colours.
pub(crate) fn stacked(lengths: impl IntoIterator<Item = (f64, Ink)>) -> Vec<Mark> {
    let mut from = 0.0;
    let lengths = lengths.into_iter().filter(|(length, _)| *length > 0.0);
    let bars = lengths.map(|(length, ink)| {
        let ends = (from, from + length);
        from += length;
        Mark::Bar(ends, 12, ink)
    });
    bars.collect()
}

/// The ends of a mark or interval: from, to.
pub(crate) type Ends = (f64, f64);

impl Mark {
    fn ends(self) -> Ends {
        match self {
            Mark::Bar(ends, ..) | Mark::Whisker(ends, ..) => ends,
            Mark::Dot(at, ..) | Mark::Square(at, ..) | Mark::Tick(at, _) => (at, at),
        }
    }
}

/// A row of a drawing: its label, which may be untrusted text, and its marks.
#[derive(Debug, Clone)]
pub(crate) struct ChartRow {
    pub(crate) label: String,
    pub(crate) marks: Vec<Mark>,
}

/// What drawing returns.
type Drawn<T> = std::result::Result<T, DrawingAreaErrorKind<std::io::Error>>;

/// Draws rows over an axis that includes the ends `least`.
fn rows(unit: &str, rows: &[ChartRow], least: Option<Ends>) -> Drawn<Option<String>> {
    let ends = || rows.iter().flat_map(|row| row.marks.iter());
    let range = span(ends().map(|mark| mark.ends()).chain(least));
    let Some(range) = range.filter(|_| ends().next().is_some()) else {
        return Ok(None);
    };
    let count = u32::try_from(rows.len()).unwrap_or(u32::MAX).min(2000);
    let size = (WIDTH, TOP + count * ROW + BOTTOM);
    drawn(size, |root| {
        let places = 0.0..f64::from(count);
        let mut chart = framed(root, LABELS).build_cartesian_2d(range.clone(), places)?;
        let inside = range.start..range.end;
        mesh(&mut chart, unit, None)?;
        let place = |value: f64, row: usize| -> (i32, i32) {
            let value = value.clamp(inside.start, inside.end);
            let row = f64::from(count) - row as f64 - 0.5;
            chart.plotting_area().map_coordinate(&(value, row))
        };
        if least.is_some() {
            let top = place(0.0, 0);
            let bottom = place(0.0, rows.len().saturating_sub(1));
            let half = i32::try_from(ROW / 2).unwrap_or(0);
            let ends = vec![(top.0, top.1 - half), (bottom.0, bottom.1 + half)];
            root.draw(&PathElement::new(ends, Ink::Line.color()))?;
        }
        let style = letters(HPos::Right);
        for (number, row) in rows.iter().take(count as usize).enumerate() {
            let (_, y) = place(range.start, number);
            let at = (i32::try_from(LABELS).unwrap_or(0) - 6, y);
            let label = fit(&clean(&row.label), LETTERS);
            root.draw(&Text::new(label, at, style.clone()))?;
            for mark in &row.marks {
                one(root, *mark, &|value| place(value, number))?;
            }
        }
        Ok(())
    })
    .map(Some)
}

type Root<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Returns what `draw` draws in an area of this size.
fn drawn(size: (u32, u32), draw: impl FnOnce(&Root<'_>) -> Drawn<()>) -> Drawn<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw(&root)?;
        root.present()?;
    }
    Ok(svg)
}

fn one(root: &Root<'_>, mark: Mark, place: &dyn Fn(f64) -> (i32, i32)) -> Drawn<()> {
    match mark {
        Mark::Bar((from, to), height, ink) => {
            let half = i32::try_from(height / 2).unwrap_or(0);
            let ((x0, y), (x1, _)) = (place(from), place(to));
            // Even the smallest bar is one pixel wide.
            let x1 = if x0 == x1 { x0 + 1 } else { x1 };
            let corners = [(x0.min(x1), y - half), (x0.max(x1), y + half)];
            root.draw(&Rectangle::new(corners, ink.color().filled()))
        }
        Mark::Whisker((low, high), dy, ink) => {
            let ((x0, y), (x1, _)) = (place(low), place(high));
            let y = y + dy;
            for ends in [
                vec![(x0, y), (x1, y)],
                vec![(x0, y - 3), (x0, y + 3)],
                vec![(x1, y - 3), (x1, y + 3)],
            ] {
                root.draw(&PathElement::new(ends, ink.color().stroke_width(1)))?;
            }
            Ok(())
        }
        Mark::Dot(at, dy, ink) => {
            let (x, y) = place(at);
            root.draw(&Circle::new((x, y + dy), 4, ink.color().filled()))
        }
        Mark::Square(at, dy, ink) => {
            let (x, y) = place(at);
            let corners = [(x - 3, y + dy - 3), (x + 3, y + dy + 3)];
            root.draw(&Rectangle::new(corners, ink.color().filled()))
        }
        Mark::Tick(at, ink) => {
            let (x, y) = place(at);
            let ends = vec![(x, y - 7), (x, y + 7)];
            root.draw(&PathElement::new(ends, ink.color().stroke_width(2)))
        }
    }
}

/// Returns a chart with room for the labels of both axes.
fn framed<'a, 'b>(root: &'a Root<'b>, labels: u32) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut builder = ChartBuilder::on(root);
    builder
        .margin_top(TOP)
        .margin_right(RIGHT)
        .x_label_area_size(BOTTOM)
        .y_label_area_size(labels);
    builder
}

/// Points over a horizontal axis, each with its interval where there is one.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub(crate) ink: Ink,
    /// Whether a line connects the points.
    pub(crate) joined: bool,
    /// Place, value, interval.
    pub(crate) points: Vec<(f64, f64, Option<Ends>)>,
}

fn series(across: &str, unit: &str, shown: &[Series]) -> Drawn<Option<String>> {
    let all = || shown.iter().flat_map(|one| &one.points);
    let places = span(all().map(|(at, ..)| (*at - 0.5, *at + 0.5)));
    let Some(places) = places else {
        return Ok(None);
    };
    let ends = all().map(|(_, value, interval)| interval.unwrap_or((*value, *value)));
    let Some(values) = span(ends.chain([(0.0, 0.0)])) else {
        return Ok(None);
    };
    drawn((WIDTH, HEIGHT), |root| {
        let mut chart = framed(root, FIGURES).build_cartesian_2d(places.clone(), values)?;
        mesh(&mut chart, across, Some(unit))?;
        let zero = [(places.start, 0.0), (places.end, 0.0)];
        let line = LineSeries::new(zero, Ink::Line.color());
        chart.draw_series(line)?;
        for one in shown {
            let color = one.ink.color();
            if one.joined {
                let points = one.points.iter().map(|(at, value, _)| (*at, *value));
                let line = LineSeries::new(points, color.stroke_width(1));
                chart.draw_series(line)?;
            }
            for (at, value, interval) in &one.points {
                if let Some((low, high)) = interval {
                    let ends = vec![(*at, *low), (*at, *high)];
                    let line = PathElement::new(ends, color.stroke_width(1));
                    chart.plotting_area().draw(&line)?;
                }
                if !one.joined {
                    let dot = Circle::new((*at, *value), 3, color.filled());
                    chart.plotting_area().draw(&dot)?;
                }
            }
        }
        Ok(())
    })
    .map(Some)
}

/// A falling curve of shares.
#[derive(Debug, Clone)]
pub(crate) struct Curve {
    pub(crate) ink: Ink,
    /// Ratio above 0, share above 0.
    pub(crate) points: Vec<(f64, f64)>,
}

fn shares(across: &str, unit: &str, rarest: f64, curves: &[Curve]) -> Drawn<Option<String>> {
    let reached = curves.iter().flat_map(|curve| &curve.points);
    let reached = reached.filter(|(_, share)| *share >= rarest);
    let Some(ends) = span(reached.map(|(ratio, _)| (ratio.log2(), ratio.log2()))) else {
        return Ok(None);
    };
    let ends = ends.start.max(-1.0)..ends.end.max(1.0);
    drawn((WIDTH, HEIGHT), |root| {
        let mut chart =
            framed(root, FIGURES).build_cartesian_2d(ends.clone(), rarest.log10()..0.0)?;
        let whole = |value: &f64| Some(*value).filter(|value| is_whole(*value));
        let ratio =
            |value: &f64| whole(value).map_or(String::new(), |of| format!("{} ×", of.exp2()));
        let share = |value: &f64| {
            whole(value).map_or(String::new(), |of| format!("{} %", 100.0 * 10f64.powf(of)))
        };
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(Ink::Grid.color())
            .axis_style(Ink::Line.color())
            .label_style(letters(HPos::Center))
            .x_labels(6)
            .x_label_formatter(&ratio)
            .x_desc(across)
            .y_labels(5)
            .y_label_formatter(&share)
            .y_desc(unit)
            .draw()?;
        for curve in curves {
            let points = curve.points.iter();
            let points = points.map(|(ratio, share)| (ratio.log2(), share.log10()));
            let inside = points.filter(|(ratio, _)| *ratio >= ends.start);
            let line = LineSeries::new(inside, curve.ink.color().stroke_width(2));
            chart.draw_series(line)?;
        }
        Ok(())
    })
    .map(Some)
}

/// Returns whether a value is a whole number, apart from rounding errors.
fn is_whole(value: f64) -> bool {
    (value - value.round()).abs() <= 1e-6
}

type Plot<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws grid, axes and their labels; without `values`, the label of the vertical axis, that axis is left out.
fn mesh(chart: &mut Plot<'_, '_>, across: &str, values: Option<&str>) -> Drawn<()> {
    let (x, y) = (chart.x_range(), chart.y_range());
    let whole = values.is_some();
    let across_label = move |value: &f64| {
        if !whole {
            figure(*value, &x)
        } else if is_whole(*value) {
            format!("{value:.0}")
        } else {
            String::new()
        }
    };
    let value_label = move |value: &f64| figure(*value, &y);
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(TRANSPARENT)
        .bold_line_style(Ink::Grid.color())
        .axis_style(Ink::Line.color())
        .label_style(letters(HPos::Center))
        .x_labels(5)
        .x_label_formatter(&across_label)
        .x_desc(across);
    match values {
        Some(words) => mesh
            .y_labels(6)
            .y_label_formatter(&value_label)
            .y_desc(words)
            .draw(),
        None => mesh.disable_y_axis().disable_y_mesh().draw(),
    }
}

/// Returns the text style of all drawings; the backend divides font sizes by 1.24.
fn letters(side: HPos) -> TextStyle<'static> {
    TextStyle {
        font: ("sans-serif", LETTER_SIZE * 1.24).into_font(),
        color: Ink::Text.color().to_backend_color(),
        pos: Pos::new(side, VPos::Center),
    }
}

/// Formats a label of an axis over `range`, with the decimals that distinguish its steps, and a true minus sign.
fn figure(value: f64, range: &Range<f64>) -> String {
    let step = (range.end - range.start) / 10.0;
    let places = (0..6)
        .find(|&places| step >= 10f64.powi(-places))
        .unwrap_or(6);
    let text = format!("{value:.0$}", usize::try_from(places).unwrap_or(0));
    match text.strip_prefix('-') {
        Some(zero) if zero.bytes().all(|b| b == b'0' || b == b'.') => zero.to_owned(),
        Some(rest) => format!("−{rest}"),
        None => text,
    }
}

/// Returns the range that contains all of `ends`, with some margin; `None` when there are no finite ends, or the range
/// overflows.
fn span(ends: impl Iterator<Item = Ends>) -> Option<Range<f64>> {
    let finite = ends.filter(|(a, b)| a.is_finite() && b.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), (a, b)| {
        (low.min(a).min(b), high.max(a).max(b))
    });
    if low > high {
        return None;
    }
    let room = match high - low {
        width if width > 0.0 => 0.04 * width,
        _ => (0.01 * high.abs()).max(1e-9),
    };
    let range = low - room..high + room;
    (range.start.is_finite() && range.end.is_finite()).then_some(range)
}

/// Replaces colours by the page's variables, removes redundant attributes, and adds the label for screen readers.
fn finished(svg: &str, about: &str) -> String {
    let mut text = svg.to_owned();
    for (place, name) in Ink::NAMES.iter().enumerate() {
        let RGBColor(r, g, b) = placeholder(place);
        text = text.replace(
            &format!("\"#{r:02X}{g:02X}{b:02X}\""),
            &format!("\"var(--{name})\""),
        );
    }
    for idle in [
        " opacity=\"1\"",
        " stroke=\"none\"",
        " stroke-width=\"1\"",
        " font-family=\"sans-serif\"",
        "\n",
    ] {
        text = text.replace(idle, "");
    }
    let about = maud::html! { (about) }.into_string().replace('"', "&quot;");
    match text
        .split_once(" width=\"")
        .zip(text.split_once(" viewBox"))
    {
        Some((_, (_, behind))) => {
            let size = format!("<svg role=\"img\" aria-label=\"{about}\" viewBox{behind}");
            size.replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1)
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawings_have_the_pages_colours_and_harmless_words() {
        let marks = vec![
            Mark::Bar((0.0, 1.5), 8, Ink::Good),
            Mark::Whisker((1.0, 2.0), 0, Ink::Text),
            Mark::Dot(1.5, 0, Ink::Bad),
        ];
        let label = "<script>&\"\u{202e}".to_owned();
        let row = ChartRow { label, marks };
        let svg = Chart::of_rows("effects of \"a\" <b>", "%", vec![row]);
        let svg = svg.draw().unwrap().unwrap();
        for part in [
            "var(--good)",
            "var(--bad)",
            "aria-label=\"effects of &quot;a&quot; &lt;b&gt;\"",
            "&lt;script&gt;",
        ] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        assert!(!svg.contains("#01FE") && !svg.contains("<script") && !svg.contains('\u{202e}'));
        assert!(!svg.contains("xmlns") && !svg.contains(" width=\"400\""));
    }

    #[test]
    fn nothing_is_no_drawing_and_odd_numbers_are_no_panic() {
        let of_rows = |rows: &[ChartRow]| super::rows("%", rows, Some((0.0, 0.0))).unwrap();
        assert_eq!(of_rows(&[]), None);
        let endless = ChartRow {
            label: String::new(),
            marks: vec![Mark::Bar((0.0, f64::MAX), 8, Ink::Good)],
        };
        assert_eq!(of_rows(&[endless]), None);
        assert_eq!(super::rows("%", &[], None).unwrap(), None);
        for ends in [
            (0.0, 0.0),
            (f64::NAN, 1.0),
            (-1e300, 1e300),
            (1e-300, 1e-300),
        ] {
            let row = ChartRow {
                label: String::new(),
                marks: vec![Mark::Whisker(ends, 0, Ink::Open)],
            };
            assert!(of_rows(&[row]).is_some(), "{ends:?}");
        }
        let one = Series {
            ink: Ink::First,
            joined: true,
            points: vec![(3.0, 1.0, None)],
        };
        assert!(series("block", "%", &[one]).unwrap().is_some());
        assert_eq!(series("block", "%", &[]).unwrap(), None);
    }

    #[test]
    fn figures_of_an_axis() {
        assert_eq!(figure(-0.5, &(-2.0..2.0)), "−0.5");
        assert_eq!(figure(-0.0001, &(-2.0..2.0)), "0.0");
        assert_eq!(figure(40.0, &(0.0..100.0)), "40");
    }
}
