//! The functions whose costs a patch changed.

use std::collections::{BTreeMap, BTreeSet};

use crate::stats::{FEWEST_COUNTED, Interval, LEVEL, benjamini_hochberg};
use perfquilt_model::observation::{ExperimentHeader, FunctionChange, PointFunctions};
use perfquilt_model::point::Point;

/// The most functions reported per patch and workload.
const MOST_FUNCTIONS: usize = 8;

/// The least change that is reported, as a share of all instructions.
const LEAST_SHARE: f64 = 1e-4;

/// Returns the functions whose own instructions each patch of `header`'s series changed, by patch and
/// workload, largest change first.
///
/// A patch is compared block by block with the nearest earlier point that has observations; patches without
/// counts of that point in this experiment are omitted, and so are those with fewer than [`FEWEST_COUNTED`] common
/// blocks, in which a function whose cost varies from start to start may show equal ones. The false discovery rate per patch and workload is at
/// most 5 % (Benjamini and Hochberg).
pub fn function_changes(
    header: &ExperimentHeader,
    counted: &[PointFunctions],
) -> Vec<FunctionChange> {
    let mut by_workload: BTreeMap<&str, Blocks<'_>> = BTreeMap::new();
    for of in counted {
        let blocks = by_workload.entry(&of.workload).or_default();
        blocks
            .entry(of.point)
            .or_default()
            .insert(of.block, &of.functions);
    }
    let mut changes = Vec::new();
    for patch in 1..=header.series.len() {
        let point = Point::Step(patch);
        if header.failed.contains_key(&point) || header.server_of(point) != point {
            continue;
        }
        let earlier = || (0..patch).rev().map(Point::Step);
        for (workload, blocks) in &by_workload {
            // The patch's effect compares with this point. If only another experiment counted it, no other
            // point can replace it: the result would include the patches between them.
            let before = earlier()
                .filter(|before| !header.failed.contains_key(before))
                .map(|before| header.server_of(before))
                .find(|before| blocks.contains_key(before) || is_reused(header, *before))
                .and_then(|before| blocks.get(&before));
            if let (Some(before), Some(after)) = (before, blocks.get(&point))
                && before.keys().filter(|of| after.contains_key(of)).count() >= FEWEST_COUNTED
            {
                changes.extend(compared(patch, workload, before, after));
            }
        }
    }
    changes
}

/// Returns whether values of `point` are reused from an earlier experiment that is not stale.
fn is_reused(header: &ExperimentHeader, point: Point) -> bool {
    let mut origins = header.reused.iter();
    origins.any(|origin| origin.stale.is_none() && origin.points.contains_key(&point))
}

/// The functions' own instructions per transaction, by point and block.
type Blocks<'a> = BTreeMap<Point, BTreeMap<u32, &'a BTreeMap<String, f64>>>;

/// Returns the functions whose own instructions differ between two servers that executed the same
/// transactions of `workload` in the blocks of `before` and `after`; largest change first, at most eight.
/// `patch` is the patch that the changes are attributed to. The false discovery rate is at most 5 %
/// (Benjamini and Hochberg).
pub fn compared(
    patch: usize,
    workload: &str,
    before: &BTreeMap<u32, &BTreeMap<String, f64>>,
    after: &BTreeMap<u32, &BTreeMap<String, f64>>,
) -> Vec<FunctionChange> {
    let pairs: Vec<_> = before
        .iter()
        .filter_map(|(block, before)| Some((*before, *after.get(block)?)))
        .collect();
    let n = pairs.len() as f64;
    let all: f64 = pairs
        .iter()
        .map(|(b, _)| b.values().sum::<f64>())
        .sum::<f64>()
        / n;
    let names: BTreeSet<&String> = pairs
        .iter()
        .flat_map(|(b, a)| b.keys().chain(a.keys()))
        .collect();
    let mut found = Vec::new();
    let mut p_values = Vec::new();
    for name in names {
        let of = |costs: &BTreeMap<String, f64>| costs.get(name).copied().unwrap_or(0.0);
        let differences: Vec<f64> = pairs.iter().map(|(b, a)| of(a) - of(b)).collect();
        let Some(interval) = Interval::of(&differences) else {
            continue;
        };
        p_values.push(interval.p_value());
        found.push(FunctionChange {
            patch,
            workload: workload.to_owned(),
            function: name.clone(),
            before: pairs.iter().map(|(b, _)| of(b)).sum::<f64>() / n,
            after: pairs.iter().map(|(_, a)| of(a)).sum::<f64>() / n,
            half_width: interval.half_width,
            share: interval.estimate / all,
        });
    }
    let adjusted = benjamini_hochberg(&p_values);
    let mut reported: Vec<FunctionChange> = found
        .into_iter()
        .zip(adjusted)
        .filter(|(change, p)| *p <= 1.0 - LEVEL && change.share.abs() >= LEAST_SHARE)
        .map(|(change, _)| change)
        .collect();
    reported.sort_by(|a, b| b.share.abs().total_cmp(&a.share.abs()));
    reported.truncate(MOST_FUNCTIONS);
    reported
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribution::tests::header;

    fn counted(point: usize, block: u32, costs: &[(&str, f64)]) -> PointFunctions {
        PointFunctions {
            workload: "w".into(),
            block,
            point: Point::Step(point),
            functions: costs
                .iter()
                .map(|(name, cost)| ((*name).to_owned(), *cost))
                .collect(),
        }
    }

    #[test]
    fn a_patch_is_explained_by_what_it_changed_and_noise_is_not() {
        let mut all = Vec::new();
        for block in 0..6 {
            // The allocator's cost varies between starts.
            let noise = [40.0, 90.0, 60.0][block as usize % 3];
            let other = [70.0, 50.0, 80.0][block as usize % 3];
            all.push(counted(
                0,
                block,
                &[("hot", 900.0), ("malloc", noise), ("gone", 60.0)],
            ));
            all.push(counted(
                1,
                block,
                &[("hot", 700.0), ("malloc", other), ("new", 5.0)],
            ));
            all.push(counted(
                2,
                block,
                &[("hot", 700.0), ("malloc", other), ("new", 5.0)],
            ));
        }
        let changes = function_changes(&header(2), &all);
        let reported: Vec<(usize, &str)> = changes
            .iter()
            .map(|c| (c.patch, c.function.as_str()))
            .collect();
        assert_eq!(reported, [(1, "hot"), (1, "gone"), (1, "new")]);
        assert_eq!((changes[0].before, changes[0].after), (900.0, 700.0));
        let all = 900.0 + 60.0 + (40.0 + 90.0 + 60.0) / 3.0;
        assert!((changes[0].share + 200.0 / all).abs() < 1e-12);
    }

    #[test]
    fn a_patch_is_not_put_down_to_those_before_it() {
        // Point 1 was counted by an earlier experiment, point 2 by this one.
        let counted: Vec<PointFunctions> = (0..6)
            .flat_map(|block| {
                [(0, 9.0), (2, 5.0), (3, 4.0)].map(|(k, cost)| counted(k, block, &[("f", cost)]))
            })
            .collect();
        let patches = |header: &ExperimentHeader| -> Vec<usize> {
            let changes = function_changes(header, &counted);
            changes.iter().map(|change| change.patch).collect()
        };
        let mut header = header(3);
        // Point 1 has no values, so patch 2 includes patch 1.
        assert_eq!(patches(&header), [2, 3]);
        header.reused = vec![perfquilt_model::observation::ReusedFrom {
            experiment: "earlier".into(),
            points: [0, 1, 2].map(|k| (Point::Step(k), Point::Step(k))).into(),
            ..Default::default()
        }];
        assert_eq!(patches(&header), [3]);
        header.reused[0].stale = Some("other".into());
        assert_eq!(patches(&header), [2, 3]);
    }

    #[test]
    fn few_blocks_and_the_same_binary_tell_nothing() {
        let blocks = |count: u32| -> Vec<PointFunctions> {
            let both =
                |block| [(0, 10.0), (1, 5.0)].map(|(k, cost)| counted(k, block, &[("f", cost)]));
            (0..count).flat_map(both).collect()
        };
        assert!(function_changes(&header(1), &blocks(5)).is_empty());
        let mut same = header(1);
        same.identical.insert(Point::Step(1), Point::BASE);
        assert!(function_changes(&same, &blocks(6)).is_empty());
        assert_eq!(function_changes(&header(1), &blocks(6)).len(), 1);
    }
}
