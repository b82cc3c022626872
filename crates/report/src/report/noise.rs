//! The section on noise: the control, machines and lanes, the conditions on the machine, and the parts of the noise.

use super::Content;
use crate::document::chart::{ChartRow, Mark, axis, stacked};
use crate::document::{
    Chart, Drawing, Ink, Node, drawings, keys, literal, name, paragraph, section, sentence, table,
};
use crate::nouns::Nouns;
use crate::number;
use crate::text::{capital, clean};
use perfquilt_judge::attribution::{Attribution, MachineNoise, NoiseSpread};
use perfquilt_judge::stats::GroupFigures;
use perfquilt_model::counted::percent;
use perfquilt_model::observation::{Conditions, Meter};

/// Returns the section on noise; nothing if no noise is known.
pub(crate) fn noise(of: &Content<'_>) -> Vec<Node> {
    let attribution = of.view.attribution;
    let noise = &attribution.noise;
    let is_known = noise.spread.iter().any(|spread| spread.block_sd.is_some());
    let mut nodes = Vec::new();
    nodes.extend(control(attribution));
    nodes.extend(machines(attribution));
    nodes.extend(lanes(attribution));
    nodes.extend(describe_conditions(&noise.conditions).map(paragraph));
    nodes.extend(parts_of_noise(&noise.spread));
    section("noise", "Noise", nodes.into_iter().filter(|_| is_known))
}

/// Says how often the control's interval misses 0.
fn control(attribution: &Attribution) -> Option<Node> {
    let controls = &attribution.noise.control;
    let missed = controls
        .iter()
        .filter(|control| control.contains_zero == Some(false))
        .count();
    let base = Nouns::of(attribution).base;
    let mut words = format!(
        "{} was measured a second time as if it were another point: its interval misses 0 in {missed} of {} cases; expect one \
         in twenty.",
        capital(base),
        controls.len()
    );
    if attribution.uses_control() {
        let base = base.replace("bare ", "");
        words += &format!(" Effects against {base} are against the mean of both.");
    }
    (!controls.is_empty()).then(|| paragraph(words))
}

/// A part of the noise: its colour, and its standard deviation.
type Part = (Ink, fn(&NoiseSpread) -> Option<f64>);

const PARTS: [(&str, Part); 3] = [
    ("by layout", (Ink::First, |spread| spread.layout_sd)),
    ("by restart", (Ink::Second, |spread| spread.restart_sd)),
    ("in a block", (Ink::Third, |spread| spread.within_sd)),
];

/// Draws the standard deviations of single values, divided into their parts.
fn parts_of_noise(spreads: &[NoiseSpread]) -> Option<Node> {
    let shown = spreads.iter().filter(|spread| spread.block_sd.is_some());
    let bars = shown.clone().map(|spread| {
        let all = 100.0 * spread.block_sd.unwrap_or(0.0);
        let mut rest = all;
        let mut share = |sd: Option<f64>| {
            let share = (100.0 * sd? / all).powi(2) * all;
            let share = share.min(rest);
            rest -= share;
            Some(share)
        };
        let parts = PARTS.map(|(_, (ink, sd))| (share(sd(spread)).unwrap_or(0.0), ink));
        ChartRow {
            label: format!("{} of {}", spread.meter, spread.workload),
            marks: stacked(parts.into_iter().chain([(rest, Ink::Quiet)])),
        }
    });
    let about = "Standard deviation of one value in one block, by workload and meter";
    let table = table(about, shown.clone())
        .names("workload", |spread| name(&spread.workload))
        .words("meter", |spread| spread.meter.to_string())
        .figures("blocks", |spread| spread.blocks.to_string())
        .figures("in all", |spread| known(spread.block_sd))
        .each(PARTS, |spread, (_, sd)| known(sd(spread)));
    let parts = PARTS.map(|(words, (ink, _))| (ink, false, words));
    let parts = parts
        .into_iter()
        .chain([(Ink::Quiet, false, "not attributed")]);
    let drawing = Drawing::new(Chart::of_rows(about, "%", bars.collect()), table.node())
        .heading("Standard deviations of one point's value in one block")
        .caption(keys(
            parts,
            ". A bar is as long as the standard deviation of one point's value in one block; its parts are the shares of \
             its variance.",
        ));
    drawings(shown.clone().next().map(|_| drawing))
}

fn known(share: Option<f64>) -> String {
    share.map_or("unknown".to_owned(), number::spread)
}

/// Values of one workload and meter that one lane or machine measured: its name, the workload, the meter, the figures.
type Measured<'a> = (String, &'a str, Meter, &'a GroupFigures);

/// Returns what each lane measured, and how far lanes differ.
fn lanes(attribution: &Attribution) -> Vec<Node> {
    let all = &attribution.noise.lanes;
    let measured = all.iter().flat_map(|of| {
        let lanes = of.lanes.iter();
        lanes.map(move |lane| {
            (
                format!("lane {}", lane.lane),
                &*of.workload,
                of.meter,
                &lane.figures,
            )
        })
    });
    let smallest = all.iter().map(|of| of.p_value).fold(1.0, f64::min);
    let about = format!(
        "Blocks were measured in several lanes at once. That all lanes find the same differences between points has p = \
         {smallest:.2}, the smallest of all workloads."
    );
    compared("lane", about, &measured.collect::<Vec<_>>())
}

/// Returns what each machine measured, and what that means for intervals.
fn machines(attribution: &Attribution) -> Vec<Node> {
    let all = &attribution.noise.machines;
    let measured = all.iter().flat_map(|of| {
        let machines = of.machines.iter();
        machines.map(move |it| (clean(&it.machine), &*of.workload, of.meter, &it.figures))
    });
    match describe_machines(all) {
        Some(about) => compared("machine", about, &measured.collect::<Vec<_>>()),
        None => Vec::new(),
    }
}

/// Compares lanes or machines with each other, one drawing per meter.
fn compared(noun: &str, about: String, measured: &[Measured<'_>]) -> Vec<Node> {
    let mut meters: Vec<Meter> = measured.iter().map(|(_, _, meter, _)| *meter).collect();
    meters.sort_unstable();
    meters.dedup();
    let caption = keys(
        [
            (Ink::First, true, "control there"),
            (Ink::Second, false, "largest difference from the others"),
        ],
        ". Both are 0 where nothing but chance differs.",
    );
    let signed = |meter: Meter, share: f64| format!("{} %", number::signed(meter.shown(share), 2));
    let of_meter = |meter: Meter| {
        let title = format!("What each {noun} measured, {meter}");
        let own = || measured.iter().filter(move |(_, _, of, _)| *of == meter);
        let marks = |(name, workload, _, figures): &Measured<'_>| {
            let percent = |share| 100.0 * meter.shown(share);
            let control = figures
                .control
                .map(|it| Mark::Dot(percent(it), -3, Ink::First));
            let difference = Mark::Square(percent(figures.largest_difference), 3, Ink::Second);
            ChartRow {
                label: format!("{workload}: {name}"),
                marks: control.into_iter().chain([difference]).collect(),
            }
        };
        let table = table(title.clone(), own())
            .names(noun, |(place, ..)| literal(place))
            .words("workload", |(_, workload, ..)| name(workload))
            .figures("blocks", |(.., figures)| figures.blocks.to_string())
            .figures("varies by", |(.., figures)| known(figures.block_sd))
            .figures("control", |(.., figures)| {
                let control = figures.control.map(|it| signed(meter, it));
                control.unwrap_or("unknown".to_owned())
            })
            .figures("largest difference", |(.., figures)| {
                signed(meter, figures.largest_difference)
            });
        let chart = Chart::of_rows(title.clone(), axis(&[meter]), own().map(marks).collect());
        Drawing::new(chart, table.node())
            .heading(title)
            .caption(caption.clone())
    };
    let drawn = drawings(meters.into_iter().map(of_meter));
    let words = drawn.is_some().then(|| paragraph(sentence(&about)));
    words.into_iter().chain(drawn).collect()
}

/// Says which machines the intervals hold for, and by how much machines differ at most; `None` for a single machine.
fn describe_machines(machines: &[MachineNoise]) -> Option<String> {
    let first = machines.first()?;
    let count = first.machines.len();
    let whom = if first.units {
        format!(
            "{count} machines measured, and each counts as one value: intervals hold for machines of this class."
        )
    } else {
        let names: Vec<String> = first.machines.iter().map(|of| clean(&of.machine)).collect();
        format!(
            "Intervals hold on these machines only ({}), with blocks as units; from six machines on they hold for the class.",
            names.join(", ")
        )
    };
    let widest = machines.iter().map(|of| of.between_sd).fold(0.0, f64::max);
    let smallest = machines.iter().map(|of| of.p_value).fold(1.0, f64::min);
    Some(format!(
        "{whom} From machine to machine a point varies by {}{} (p = {smallest:.2}).",
        if machines.len() > 1 { "at most " } else { "" },
        number::spread(widest),
    ))
}

/// Describes the conditions on the machine in a sentence; of several workloads, the worst values.
fn describe_conditions(conditions: &[Conditions]) -> Option<String> {
    let most = |of: fn(&Conditions) -> f64| conditions.iter().map(of).fold(0.0, f64::max);
    let share = |of: fn(&Conditions) -> f64| percent(most(of));
    let pages: u64 = conditions.iter().map(|of| of.major_faults).sum();
    let at_most = match conditions.len() {
        0 => return None,
        1 => "",
        _ => "at most ",
    };
    let throttled = if most(|of| of.throttled.worst) > 0.0 {
        format!(
            " A processor quota stopped processes for {at_most}{} of the time ({} in the worst block).",
            share(|of| of.throttled.mean),
            share(|of| of.throttled.worst),
        )
    } else {
        String::new()
    };
    let standstills = match conditions.iter().map(|of| of.standstills).sum::<u64>() {
        0 => String::new(),
        1 => {
            " One block or round was measured again because a server, its client or the machine stood still."
                .to_owned()
        }
        more => format!(
            " Blocks or rounds were measured again {more} times because a server, its client or the machine stood still."
        ),
    };
    Some(format!(
        "Of the processor's time meanwhile, the hypervisor took {at_most}{} ({} in the worst block) \
         and {at_most}{} went unused. Interruptions of servers per second: {at_most}{:.0}; pages they \
         read from a disk: {pages}.{throttled}{standstills}",
        share(|of| of.steal.mean),
        share(|of| of.steal.worst),
        share(|of| of.idle.mean),
        most(|of| of.preempted),
    ))
}
