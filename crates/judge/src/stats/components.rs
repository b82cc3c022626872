//! Variance components: code layout against restart.

use std::collections::BTreeMap;

use super::robust::{deviations, mean_row};
use super::table::BlockTable;
use super::units::Units;

/// Standard deviations of a point's value after subtracting block and point effects, as fractions of the
/// value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Components {
    /// Between the layouts of one binary.
    pub layout: f64,
    /// Between fresh starts in the same layout, including the uncertainty within a block.
    pub start: f64,
    /// Of one value in one block: both components together.
    pub total: f64,
}

impl BlockTable {
    /// Splits the variance of values around block and point into components, from blocks that ran the same
    /// layouts more than once. `None` if no layout was repeated or there are fewer than two units, points or
    /// complete blocks.
    ///
    /// The one-way random model with unequal group sizes, by the method of moments (Searle, Casella and
    /// McCulloch, *Variance Components*, 1992, section 3.6), on values minus their block's mean: with `n_u`
    /// blocks in unit `u`, `N` in all, `U` units and `p` points,
    ///
    /// ```text
    /// MSW = Σ_u Σ_b Σ_p (z(b,p) − z̄(u,p))² / ((N − U)(p − 1))             estimates start²
    /// MSB = Σ_u n_u Σ_p (z̄(u,p) − z̄(p))²  / ((U − 1)(p − 1))             estimates start² + n₀ · layout²
    /// n₀  = (N − Σ_u n_u² / N) / (U − 1)
    /// ```
    pub fn components(&self, units: &Units) -> Option<Components> {
        let mut by_unit: BTreeMap<u32, Vec<Vec<f64>>> = BTreeMap::new();
        for (block, values) in self.complete().rows() {
            let of_unit = by_unit.entry(units.of(block)).or_default();
            of_unit.push(deviations(values));
        }
        let points = self.points().len();
        let blocks: usize = by_unit.values().map(Vec::len).sum();
        let of_points = points.checked_sub(1).filter(|&free| free > 0)? as f64;
        let of_units = by_unit.len().checked_sub(1).filter(|&free| free > 0)? as f64;
        let of_starts = (blocks - by_unit.len()) as f64;
        if of_starts == 0.0 {
            return None;
        }
        let all = mean_row(by_unit.values().flatten());
        let (mut within, mut between, mut squares) = (0.0, 0.0, 0.0);
        for rows in by_unit.values() {
            let own = mean_row(rows.iter());
            let n = rows.len() as f64;
            between += n * distance(&own, &all);
            within += rows.iter().map(|row| distance(row, &own)).sum::<f64>();
            squares += n * n;
        }
        let blocks = blocks as f64;
        let start = within / (of_starts * of_points);
        let n0 = (blocks - squares / blocks) / of_units;
        let layout = ((between / (of_units * of_points) - start) / n0).max(0.0);
        Some(Components {
            layout: layout.sqrt(),
            start: start.sqrt(),
            total: (layout + start).sqrt(),
        })
    }
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum()
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use perfquilt_model::point::Point;

    /// Draws a uniform value with the given standard deviation.
    fn noise(random: &mut StdRng, sd: f64) -> f64 {
        sd * 3f64.sqrt() * random.random_range(-1.0..1.0)
    }

    fn simulated(layout: f64, start: f64, blocks: u32, repeat: u32) -> (BlockTable, Units) {
        let mut random = StdRng::seed_from_u64(3);
        let (mut table, mut units) = (BlockTable::default(), Units::default());
        let mut shifts = [0.0; 4];
        for block in 0..blocks {
            if repeat == 0 || block % repeat != repeat - 1 {
                shifts = std::array::from_fn(|_| noise(&mut random, layout));
            }
            for (point, shift) in shifts.iter().enumerate() {
                let seed = shift.to_bits();
                units.note(block, Point::Step(point), seed);
                let value = shift + noise(&mut random, start) + f64::from(block);
                assert!(table.insert(block, Point::Step(point), value.exp(), 1));
            }
        }
        (table, units)
    }

    #[test]
    fn layout_and_restart_are_told_apart() {
        for (layout, start) in [(0.01, 0.004), (0.0, 0.004), (0.003, 0.006)] {
            let (table, units) = simulated(layout, start, 600, 4);
            let found = table.components(&units).unwrap();
            assert!((found.layout - layout).abs() < 0.001, "{found:?}");
            assert!((found.start - start).abs() < 0.0005, "{found:?}");
            let total = found.layout.hypot(found.start);
            assert!((found.total - total).abs() < 1e-12);
        }
    }

    #[test]
    fn without_repeats_nothing_is_claimed() {
        let (table, units) = simulated(0.01, 0.004, 50, 0);
        assert_eq!(table.components(&units), None);
        assert_eq!(BlockTable::default().components(&Units::default()), None);
    }

    #[test]
    fn points_that_are_missing_cost_their_blocks() {
        let (mut table, units) = simulated(0.01, 0.004, 40, 4);
        let before = table.components(&units);
        assert!(table.insert(90, Point::Step(0), 5.0, 1));
        assert_eq!(table.components(&units), before);
    }
}
