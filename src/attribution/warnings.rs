//! What a reader must know to judge the figures.

use super::collect::Source;
use super::document::{Attribution, SUITE};
use crate::stats::{BlockTable, median};

/// One sentence each.
pub(super) fn warnings(attribution: &Attribution, source: &Source) -> Vec<String> {
    let mut warnings = Vec::new();
    warnings.extend(control(attribution));
    warnings.extend(closure(attribution));
    for (meter, workload, table) in source.each() {
        let incomplete = table.incomplete_blocks();
        if incomplete > 0 {
            let why = match &attribution.stopping {
                Some(rule) if rule.meter == meter => {
                    " (left out when its effects were known well enough, or failed)"
                }
                _ => "",
            };
            warnings.push(format!(
                "{incomplete} of {} blocks of {workload} ({meter}) lack a point{why}; every effect \
                 uses the blocks that have both its points, so effects need not add up exactly.",
                table.blocks()
            ));
        }
        let still = table.spread().is_some_and(|s| s.sd < 1e-12 && s.blocks > 2);
        if still && meter != crate::observation::Meter::Instructions {
            warnings.push(format!(
                "All blocks of {workload} ({meter}) agree to the last digit: check that these \
                 are measured values."
            ));
        }
        let wild = wild_blocks(table);
        if let Some(first) = wild.first() {
            warnings.push(format!(
                "{} of {} blocks of {workload} ({meter}) have a value far from the others (block \
                 {first}{}): a clock that jumped, or another unit? They are used, and make the \
                 intervals wide.",
                wild.len(),
                table.blocks(),
                if wild.len() > 1 { " first" } else { "" },
            ));
        }
    }
    warnings
}

fn control(attribution: &Attribution) -> Option<String> {
    let control = &attribution.noise.control;
    let off: Vec<String> = control
        .iter()
        .filter(|control| control.contains_zero == Some(false))
        .map(|control| match control.effect.workload.as_str() {
            SUITE => format!("{} over all workloads", control.effect.meter),
            workload => format!("{} of {workload}", control.effect.meter),
        })
        .collect();
    (!off.is_empty()).then(|| {
        format!(
            "The control, the same binary measured twice, differs from itself in {} of {} \
             intervals ({}). One interval in twenty misses by chance even when all is well; \
             read effects of that size with care.",
            off.len(),
            control.len(),
            off.join(", ")
        )
    })
}

fn closure(attribution: &Attribution) -> Option<String> {
    let meter = attribution.main_meter()?;
    let check = attribution.main_closure(meter)?;
    (check.consistent == Some(false)).then(|| {
        "The closure check fails: what the series is worth where all points take turns is not what it \
         is worth measured directly against the release. One such check in twenty fails by chance; \
         else the points disturb each other, and the effects are not those of a server alone."
            .to_owned()
    })
}

/// Of `block + point`, residuals this many robust standard deviations away are not noise.
const WILD: f64 = 100.0;

/// The least deviation (10 %) that is called wild, however calm the others are.
const LEAST: f64 = 0.1;

/// Whether no point moves against the block's first by as much as half of [`LEAST`] over `blocks`, so
/// that none can be far from what is usual.
fn is_calm<'t>(blocks: impl Iterator<Item = (u32, &'t [Cell])>, points: usize) -> bool {
    let mut ranges = vec![(f64::INFINITY, f64::NEG_INFINITY); points];
    for (_, cells) in blocks {
        for (range, cell) in ranges.iter_mut().zip(cells) {
            let ratio = cell.1 - cells[0].1;
            *range = (range.0.min(ratio), range.1.max(ratio));
        }
    }
    ranges.iter().all(|(low, high)| high - low < LEAST / 2.0)
}

type Cell = (crate::point::Point, f64);

/// Blocks with a value that lies absurdly far from the others'.
fn wild_blocks(table: &BlockTable) -> Vec<u32> {
    let points = table.points();
    let complete = || table.cells().filter(|row| row.1.len() == points.len());
    if points.len() < 2 || complete().count() < 4 || is_calm(complete(), points.len()) {
        return Vec::new();
    }
    let center = |cells: &[Cell]| {
        median(&mut cells.iter().map(|cell| cell.1).collect::<Vec<f64>>()).unwrap_or(0.0)
    };
    let typical: Vec<f64> = (0..points.len())
        .map(|column| {
            let mut values: Vec<f64> = complete()
                .map(|(_, cells)| cells[column].1 - center(cells))
                .collect();
            median(&mut values).unwrap_or(0.0)
        })
        .collect();
    let farthest: Vec<(u32, f64)> = complete()
        .map(|(block, cells)| {
            let center = center(cells);
            let far = cells
                .iter()
                .zip(&typical)
                .map(|(cell, typical)| (cell.1 - center - typical).abs())
                .fold(0.0, f64::max);
            (block, far)
        })
        .collect();
    let mut sizes: Vec<f64> = farthest.iter().map(|(_, far)| *far).collect();
    let usual = median(&mut sizes).unwrap_or(0.0);
    farthest
        .into_iter()
        .filter(|(_, far)| *far > LEAST.max(WILD * usual))
        .map(|(block, _)| block)
        .collect()
}
