//! Comparison of the groups that measured different blocks of one experiment: lanes of a machine, or machines.

use std::collections::BTreeMap;

use serde::Serialize;

use super::interval::{Interval, speed};
use super::multiplicity::holm;
use super::robust::deviations;
use super::table::{BlockTable, two_way_sd};
use perfquilt_model::point::Point;

/// The values of a table by group.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupComparison {
    /// The groups by number.
    pub groups: BTreeMap<u32, GroupFigures>,
    /// Standard deviation of a point's true cost between groups, against the mean of a block's points; 0 where groups
    /// differ by no more than blocks of one group explain. By the method of moments (one-way random model, Searle,
    /// Casella and McCulloch, *Variance Components*, 1992), averaged over points.
    pub between_sd: f64,
    /// P-value under the hypothesis that all groups find the same differences between points: the smallest of Welch's
    /// tests of each point in each group against the other groups, adjusted by Holm.
    pub p_value: f64,
}

/// The values that one lane or machine measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct GroupFigures {
    /// Number of its complete blocks.
    pub blocks: usize,
    /// Standard deviation of a value around block and point, as a fraction of the value; `null` with fewer than two
    /// blocks.
    pub block_sd: Option<f64>,
    /// The control's apparent effect there in the mean over blocks, as a fraction of speed; `null` without a control.
    pub control: Option<f64>,
    /// The largest difference of a point from its mean at the other places, as a fraction of speed.
    pub largest_difference: f64,
}

/// The least number of complete blocks in a group to be tested.
const FEWEST: usize = 4;

impl BlockTable {
    /// Compares the groups that measured the complete blocks of this table; `groups` has the group of each block. Groups
    /// with fewer than four blocks are described and not tested. `None` with fewer than two tested groups or two points.
    pub fn compare_groups(&self, groups: &BTreeMap<u32, u32>) -> Option<GroupComparison> {
        let complete = self.complete();
        let points = self.points();
        let mut by_group: BTreeMap<u32, Vec<Vec<f64>>> = BTreeMap::new();
        for (block, row) in complete.rows() {
            let group = *groups.get(&block)?;
            by_group.entry(group).or_default().push(row.to_vec());
        }
        let is_tested = |rows: &Vec<Vec<f64>>| rows.len() >= FEWEST;
        let tested = by_group.values().filter(|rows| is_tested(rows));
        if tested.count() < 2 || points.len() < 2 {
            return None;
        }
        let mut p_values = Vec::new();
        let mut figures = BTreeMap::new();
        for (&own_group, rows) in &by_group {
            let others: Vec<Vec<f64>> = by_group
                .iter()
                .filter(|(other, _)| **other != own_group)
                .flat_map(|(_, rows)| rows)
                .map(|row| deviations(row))
                .collect();
            let own: Vec<Vec<f64>> = rows.iter().map(|row| deviations(row)).collect();
            let mut largest_difference = 0.0f64;
            for column in 0..points.len() {
                let values = |rows: &[Vec<f64>]| -> Vec<f64> {
                    rows.iter().map(|row| row[column]).collect()
                };
                if let Some(found) = Interval::of_two_samples(&values(&own), &values(&others)) {
                    p_values.extend(is_tested(rows).then(|| found.p_value()));
                    largest_difference = largest_difference.max(found.estimate.abs());
                }
            }
            let index = |point| points.binary_search(&point).ok();
            let control = index(Point::BASE).zip(index(Point::Control));
            let mean_of = |(base, control): (usize, usize)| {
                let sum: f64 = rows.iter().map(|row| row[base] - row[control]).sum();
                speed(sum / rows.len() as f64)
            };
            let own_figures = GroupFigures {
                blocks: rows.len(),
                block_sd: two_way_sd(&rows.concat(), points.len()),
                control: control.map(mean_of),
                largest_difference: speed(largest_difference),
            };
            figures.insert(own_group, own_figures);
        }
        let p_value = holm(&p_values).into_iter().fold(1.0, f64::min);
        by_group.retain(|_, rows| is_tested(rows));
        Some(GroupComparison {
            groups: figures,
            between_sd: between_sd(&by_group, points.len()),
            p_value,
        })
    }
}

/// Estimates the standard deviation of a point's cost between groups from the rows of each.
fn between_sd(by_group: &BTreeMap<u32, Vec<Vec<f64>>>, points: usize) -> f64 {
    let groups = by_group.len() as f64;
    let blocks: f64 = by_group.values().map(|rows| rows.len() as f64).sum();
    let squares: f64 = by_group
        .values()
        .map(|rows| (rows.len() as f64).powi(2))
        .sum();
    let n0 = (blocks - squares / blocks) / (groups - 1.0);
    let centred: Vec<Vec<Vec<f64>>> = by_group
        .values()
        .map(|rows| rows.iter().map(|row| deviations(row)).collect())
        .collect();
    let mean = |values: &mut dyn Iterator<Item = f64>, count: f64| values.sum::<f64>() / count;
    let variance = |point: usize| {
        let all = mean(&mut centred.iter().flatten().map(|row| row[point]), blocks);
        let (mut between, mut within) = (0.0, 0.0);
        for rows in &centred {
            let count = rows.len() as f64;
            let own = mean(&mut rows.iter().map(|row| row[point]), count);
            between += count * (own - all).powi(2);
            within += rows
                .iter()
                .map(|row| (row[point] - own).powi(2))
                .sum::<f64>();
        }
        (between / (groups - 1.0) - within / (blocks - groups)) / n0
    };
    let sum: f64 = (0..points).map(variance).sum();
    (sum / points as f64).max(0.0).sqrt()
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// Simulates blocks of four points that alternate between two lanes; on the second, the last point is slower by
    /// `shift` and values vary `spread` times as much.
    fn table(random: &mut StdRng, shift: f64, spread: f64) -> (BlockTable, BTreeMap<u32, u32>) {
        let points = [
            Point::Step(0),
            Point::Step(1),
            Point::Step(2),
            Point::Control,
        ];
        let mut table = BlockTable::default();
        let mut lanes = BTreeMap::new();
        for block in 0..40 {
            let lane = block % 2;
            lanes.insert(block, lane);
            let common: f64 = random.random_range(-0.1..0.1);
            for (index, point) in points.into_iter().enumerate() {
                let sd = if lane == 1 { 0.01 * spread } else { 0.01 };
                let noise = sd * 3f64.sqrt() * random.random_range(-1.0..1.0);
                let own = if lane == 1 && index == 2 { shift } else { 0.0 };
                table.insert_plain(block, point, common + noise + own, 1);
            }
        }
        (table, lanes)
    }

    #[test]
    fn equal_lanes_differ_in_five_of_a_hundred() {
        let mut random = StdRng::seed_from_u64(1);
        let mut found = 0;
        for _ in 0..1000 {
            let (table, lanes) = table(&mut random, 0.0, 1.0);
            found += usize::from(table.compare_groups(&lanes).unwrap().p_value < 0.05);
        }
        assert!(found <= 65, "{found}");
    }

    #[test]
    fn a_point_that_is_slower_on_one_lane_is_found() {
        let mut random = StdRng::seed_from_u64(2);
        let (shifted, lanes) = table(&mut random, 0.03, 1.0);
        let found = shifted.compare_groups(&lanes).unwrap();
        assert!(found.p_value < 0.01, "{found:?}");
        for lane in found.groups.values() {
            assert!(
                lane.blocks == 20 && lane.largest_difference > 0.01,
                "{found:?}"
            );
            assert!(lane.control.unwrap().abs() < 0.01, "{found:?}");
        }
        assert!((0.005..0.02).contains(&found.between_sd), "{found:?}");
        let (restless, lanes) = table(&mut random, 0.0, 3.0);
        let found = restless.compare_groups(&lanes).unwrap();
        let sd = |lane: u32| found.groups[&lane].block_sd.unwrap();
        assert!(sd(1) > 2.0 * sd(0), "{found:?}");
    }

    #[test]
    fn a_lane_with_few_blocks_spoils_no_comparison() {
        let mut random = StdRng::seed_from_u64(4);
        let (shifted, mut lanes) = table(&mut random, 0.03, 1.0);
        for block in [0, 2] {
            lanes.insert(block, 2);
        }
        let found = shifted.compare_groups(&lanes).unwrap();
        assert!(found.p_value < 0.01, "{found:?}");
        let blocks: Vec<usize> = found.groups.values().map(|of| of.blocks).collect();
        assert_eq!(blocks, [18, 20, 2]);
        assert!((0.005..0.02).contains(&found.between_sd), "{found:?}");
    }

    #[test]
    fn few_blocks_or_one_lane_are_not_compared() {
        let mut random = StdRng::seed_from_u64(3);
        let (table, mut lanes) = table(&mut random, 0.0, 1.0);
        assert!(table.compare_groups(&BTreeMap::new()).is_none());
        lanes.values_mut().for_each(|lane| *lane = 0);
        assert!(table.compare_groups(&lanes).is_none());
        lanes.insert(0, 1);
        assert!(table.compare_groups(&lanes).is_none());
    }
}
