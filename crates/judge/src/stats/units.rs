//! Independent units of blocks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{LazyLock, OnceLock};

use statrs::distribution::{ContinuousCDF, FisherSnedecor};

use super::column::seek;
use super::interval::Interval;
use super::robust::{add_row, deviations};
use super::sequential::StoppingRule;
use super::table::CompleteBlocks;
use perfquilt_model::point::Point;

/// Blocks grouped into independent units.
///
/// A block starts every server afresh, so blocks are independent with one exception: two blocks that ran a
/// point's server in the same code layout share that layout's effect. Such blocks form one unit; a unit
/// counts as one value, the mean of its blocks, and intervals are taken over units. Where a pool of layouts
/// is used in changing combinations, all blocks are connected; the variance is then estimated by components
/// of layout instead ([`Units::interval`]). Blocks in the linker's own order (layout 0) are units of their
/// own: their layout was never varied, so they carry no information on its effect.
#[derive(Debug, Clone, Default)]
pub struct Units {
    /// The first block that ran a point in a layout.
    first: HashMap<(Point, u64), u32>,
    /// By point and block, the first block that ran the point in the same layout; absent for the first.
    repeats: HashMap<(Point, u32), u32>,
    /// By block, an earlier block of its unit; absent for the first.
    earlier: BTreeMap<u32, u32>,
    /// Whether the units are given, rather than found by layouts.
    given: bool,
    /// Whether blocks that share layouts are independent, since layouts show no variance.
    without_effect: bool,
    /// The blocks in `earlier`, in order, and their units; computed on first use.
    joined: OnceLock<(Vec<u32>, Vec<u32>)>,
}

/// Layouts show no variance if the p-value of their F test over all points is above this.
const LAYOUTS_SHOWN: f64 = 0.2;
/// The least degrees of freedom between layouts, over all points, for this test: with fewer it finds too little.
const FEWEST_BETWEEN: f64 = 20.0;
/// Layouts show in a single contrast if the p-value of its own F test is below this.
const SHOWN_IN_CONTRAST: f64 = 0.05;

impl Units {
    /// Returns the units of blocks that share nothing.
    pub fn none() -> &'static Self {
        static NONE: LazyLock<Units> = LazyLock::new(Units::default);
        &NONE
    }

    /// Returns the units where layouts have no effect: the blocks. A contrast whose own values resemble each other within
    /// layouts (F test at 5 %) keeps the units that share them.
    #[must_use]
    pub fn without_effect(&self) -> Self {
        Units {
            without_effect: true,
            ..self.clone()
        }
    }

    /// Returns whether layouts show no variance in `rows`, one per block, each with the logarithms of the costs of the same
    /// points: the F test of the mean squares between and within the units that share layouts, over all points together,
    /// each divided by its standard deviation, has a p-value above 20 %. `false` where too little repeats to tell.
    ///
    /// A test at such a level before pooling costs little coverage: T. A. Bancroft, *On biases in estimation due to the use
    /// of preliminary tests of significance*, Annals of Mathematical Statistics 15 (1944).
    pub fn show_no_variance(&self, rows: &BTreeMap<u32, Vec<f64>>) -> bool {
        let points = rows.values().next().map_or(0, Vec::len);
        if self.given || points < 2 {
            return false;
        }
        let centred: Vec<Vec<f64>> = rows.values().map(|row| deviations(row)).collect();
        let (mut between, mut within, mut counts) = (0.0, 0.0, (0, 0));
        for point in 0..points {
            let column: Vec<f64> = centred.iter().map(|row| row[point]).collect();
            let column = deviations(&column);
            let squares: f64 = column.iter().map(|value| value * value).sum();
            if squares > 0.0 {
                let values: Vec<(u32, f64)> = rows.keys().copied().zip(column).collect();
                let parts = self.squares(&values);
                between += parts.between / squares;
                within += parts.within / squares;
                counts = (parts.units, values.len());
            }
        }
        let (units, blocks) = counts;
        let free = (points - 1) as f64;
        let of_units = units.saturating_sub(1) as f64 * free;
        let of_blocks = (blocks - units) as f64 * free;
        // Crossed layouts connect most blocks.
        let is_crossed = units * 2 < blocks;
        of_units >= FEWEST_BETWEEN
            && !is_crossed
            && f_test((between, of_units), (within, of_blocks)) > LAYOUTS_SHOWN
    }

    /// Splits the squares of `values`, sorted by block, around their mean into those between and within units.
    fn squares(&self, values: &[(u32, f64)]) -> Squares {
        let mean = values.iter().map(|(_, value)| value).sum::<f64>() / values.len().max(1) as f64;
        let mut by_unit: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        let mut all = 0.0;
        for &(block, value) in values {
            let (sum, count) = by_unit.entry(self.of_layouts(block)).or_default();
            *sum += value - mean;
            *count += 1.0;
            all += (value - mean).powi(2);
        }
        let between: f64 = by_unit.values().map(|(sum, count)| sum * sum / count).sum();
        Squares {
            between,
            within: (all - between).max(0.0),
            units: by_unit.len(),
        }
    }

    /// Returns whether the values of a contrast resemble each other within layouts.
    fn show_in(&self, values: &[(u32, f64)]) -> bool {
        let parts = self.squares(values);
        let of_units = parts.units.saturating_sub(1) as f64;
        let of_blocks = (values.len() - parts.units) as f64;
        f_test((parts.between, of_units), (parts.within, of_blocks)) < SHOWN_IN_CONTRAST
    }

    /// Records that `block` ran `point` in the layout with the seed `layout`.
    pub fn note(&mut self, block: u32, point: Point, layout: u64) {
        if layout == 0 {
            return;
        }
        let other = *self.first.entry((point, layout)).or_insert(block);
        if other == block {
            return;
        }
        self.repeats.insert((point, block), other);
        let (a, b) = (self.find(other), self.find(block));
        if a != b {
            self.earlier.insert(a.max(b), a.min(b));
            self.joined.take();
        }
    }

    /// Returns whether any two blocks share a layout.
    pub fn repeat(&self) -> bool {
        !self.earlier.is_empty()
    }

    /// Returns the units in which the blocks of a group are together; `groups` has the group of each block.
    pub fn of_groups(groups: &BTreeMap<u32, u32>) -> Self {
        let mut first: BTreeMap<u32, u32> = BTreeMap::new();
        let mut units = Units {
            given: true,
            ..Units::default()
        };
        for (&block, &group) in groups {
            let unit = *first.entry(group).or_insert(block);
            if unit != block {
                units.earlier.insert(block, unit);
            }
        }
        units
    }

    /// Finds the unit of `block` so far, compressing the path: if each block shares a layout with the next,
    /// the path would be as long as the number of blocks.
    fn find(&mut self, block: u32) -> u32 {
        let mut unit = block;
        while let Some(&earlier) = self.earlier.get(&unit) {
            unit = earlier;
        }
        let mut at = block;
        while let Some(earlier) = self.earlier.get_mut(&at) {
            at = std::mem::replace(earlier, unit);
        }
        unit
    }

    /// Returns the unit of `block`, identified by its first block.
    pub fn of(&self, block: u32) -> u32 {
        if self.without_effect {
            return block;
        }
        self.of_layouts(block)
    }

    /// Returns the first of the blocks that share layouts with `block`.
    fn of_layouts(&self, block: u32) -> u32 {
        let (blocks, units) = self.joined();
        let place = blocks.binary_search(&block);
        place.map_or(block, |place| units[place])
    }

    /// Returns the blocks in `earlier`, in order, and their units.
    fn joined(&self) -> (&[u32], &[u32]) {
        let (blocks, units) = self.joined.get_or_init(|| {
            let mut blocks: Vec<u32> = Vec::with_capacity(self.earlier.len());
            let mut units: Vec<u32> = Vec::with_capacity(self.earlier.len());
            for (&block, &earlier) in &self.earlier {
                // Blocks ascend and an earlier block has a smaller number, so its unit is known.
                let place = blocks.binary_search(&earlier);
                units.push(place.map_or(earlier, |place| units[place]));
                blocks.push(block);
            }
            (blocks, units)
        });
        (blocks, units)
    }

    /// Returns the largest number of layouts in which one point ran; 1 if layouts were not varied.
    pub fn layouts(&self) -> usize {
        let mut of_point: HashMap<Point, usize> = HashMap::new();
        for (point, _) in self.first.keys() {
            *of_point.entry(*point).or_default() += 1;
        }
        of_point.into_values().max().unwrap_or(1)
    }

    /// Returns `rows`, one per block, averaged over the blocks of each unit, in order.
    pub fn rows_by_unit(&self, rows: &BTreeMap<u32, Vec<f64>>) -> Vec<Vec<f64>> {
        let rows = rows.iter().map(|(block, row)| (*block, row.as_slice()));
        self.means_by_unit(rows).into_values().collect()
    }

    /// Returns the rows of a table's complete blocks, averaged over the blocks of each unit, in order.
    pub fn mean_rows(&self, complete: &CompleteBlocks) -> Vec<Vec<f64>> {
        self.means_by_unit(complete.rows()).into_values().collect()
    }

    /// Returns `rows`, each with its block, averaged over the blocks of each unit, by unit.
    pub(crate) fn means_by_unit<'r>(
        &self,
        rows: impl Iterator<Item = (u32, &'r [f64])>,
    ) -> BTreeMap<u32, Vec<f64>> {
        let mut by_unit: BTreeMap<u32, (Vec<f64>, f64)> = BTreeMap::new();
        for (block, row) in rows {
            let (sums, blocks) = by_unit
                .entry(self.of(block))
                .or_insert_with(|| (vec![0.0; row.len()], 0.0));
            add_row(sums, row);
            *blocks += 1.0;
        }
        let mean = |(unit, (sums, blocks)): (u32, (Vec<f64>, f64))| {
            (unit, sums.into_iter().map(|sum| sum / blocks).collect())
        };
        by_unit.into_iter().map(mean).collect()
    }

    /// Returns the rows of [`Units::mean_rows`] as blocks, numbered from 0.
    pub fn averaged(&self, complete: &CompleteBlocks) -> CompleteBlocks {
        CompleteBlocks::of_rows(&self.mean_rows(complete))
    }

    /// Returns one value per unit, in order: the mean over its blocks of `values`, which are sorted by block.
    pub fn means(&self, values: &[(u32, f64)]) -> Vec<f64> {
        if self.earlier.is_empty() || self.without_effect {
            return values.iter().map(|(_, value)| *value).collect();
        }
        self.means_of_layouts(values)
    }

    fn means_of_layouts(&self, values: &[(u32, f64)]) -> Vec<f64> {
        let (blocks, units) = self.joined();
        let mut place = 0;
        let unit = |&(block, value): &(u32, f64)| {
            place = seek(blocks, place, block);
            let is_joined = blocks.get(place) == Some(&block);
            (if is_joined { units[place] } else { block }, value)
        };
        let mut by_unit: Vec<(u32, f64)> = values.iter().map(unit).collect();
        // A stable sort is fast here: the values are nearly sorted.
        by_unit.sort_by_key(|(unit, _)| *unit);
        by_unit
            .chunk_by(|a, b| a.0 == b.0)
            .map(|unit| unit.iter().map(|(_, value)| value).sum::<f64>() / unit.len() as f64)
            .collect()
    }

    /// Returns the interval for the mean of `values` (sorted by block), contrasts of `points`; `None` without
    /// values.
    ///
    /// The interval is taken over units if there are as many as a point has layouts. Where layouts are
    /// crossed (few of them, in changing combinations over many blocks), the blocks form one unit or few, and
    /// the variance of the mean is `(Σ_p MS_p − (F − 1) MS_e) / n` over the `F` points whose layouts repeat:
    /// `MS_p` is the mean square between the layouts of point `p`, `MS_e` the residual mean square, on the
    /// degrees of freedom of F. E. Satterthwaite, *An approximate distribution of estimates of variance
    /// components*, Biometrics Bulletin 2 (1946). The variance is never less than the largest of its parts,
    /// which raises the coverage above 95 % where layouts have no effect. The crossed random model: Searle,
    /// Casella and McCulloch, *Variance Components* (1992), chapter 5.
    pub fn interval(
        &self,
        points: &[Point],
        values: &[(u32, f64)],
        stopping_rule: StoppingRule,
    ) -> Option<Interval> {
        let means = if self.without_effect && self.show_in(values) {
            self.means_of_layouts(values)
        } else {
            self.means(values)
        };
        let over_units = || Interval::under(&means, stopping_rule);
        // Where layouts are drawn for the experiment, two blocks have the same ones.
        if self.given || means.len() * 2 >= values.len() {
            return over_units();
        }
        let of_points: Vec<Vec<u32>> = points
            .iter()
            .map(|&point| self.layouts_of(point, values))
            .collect();
        let counts = of_points.iter().map(|layouts| distinct(layouts));
        let fewest = counts.min().unwrap_or(values.len());
        if means.len() >= fewest {
            return over_units();
        }
        Some(crossed(values, &of_points, fewest, stopping_rule))
    }

    /// Returns the layout in which each value's block ran `point`, identified by the first block that used
    /// it.
    fn layouts_of(&self, point: Point, values: &[(u32, f64)]) -> Vec<u32> {
        let of = |&(block, _): &(u32, f64)| self.repeats.get(&(point, block)).copied();
        values
            .iter()
            .map(|value| of(value).unwrap_or(value.0))
            .collect()
    }
}

/// Sums of squares between and within units.
struct Squares {
    between: f64,
    within: f64,
    units: usize,
}

/// Returns the p-value of the ratio of two sums of squares, each with its degrees of freedom; 1 without any.
fn f_test(between: (f64, f64), within: (f64, f64)) -> f64 {
    if between.1 < 1.0 || within.1 < 1.0 || within.0 <= 0.0 {
        return 1.0;
    }
    let ratio = (between.0 / between.1) / (within.0 / within.1);
    FisherSnedecor::new(between.1, within.1).map_or(1.0, |f| f.sf(ratio))
}

fn distinct(layouts: &[u32]) -> usize {
    layouts.iter().collect::<BTreeSet<_>>().len()
}

fn crossed(
    values: &[(u32, f64)],
    of_points: &[Vec<u32>],
    fewest: usize,
    stopping_rule: StoppingRule,
) -> Interval {
    let n = values.len() as f64;
    let mean = values.iter().map(|(_, value)| value).sum::<f64>() / n;
    let residuals: Vec<f64> = values.iter().map(|(_, value)| value - mean).collect();
    let all: f64 = residuals.iter().map(|r| r * r).sum();
    let (mut left, mut freedom_left) = (all, n - 1.0);
    let mut squares: Vec<(f64, f64)> = Vec::new();
    for layouts in of_points {
        let mut sums: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        for (&layout, residual) in layouts.iter().zip(&residuals) {
            let (sum, count) = sums.entry(layout).or_default();
            *sum += residual;
            *count += 1.0;
        }
        // A point whose layouts never repeat varies with the blocks.
        if sums.len() == values.len() {
            continue;
        }
        let between: f64 = sums.values().map(|(sum, count)| sum * sum / count).sum();
        let degrees_of_freedom = (sums.len() - 1) as f64;
        left -= between;
        freedom_left -= degrees_of_freedom;
        if degrees_of_freedom > 0.0 {
            squares.push((between / degrees_of_freedom, degrees_of_freedom));
        }
    }
    if squares.is_empty() || fewest < 2 {
        return Interval::unknown(mean, fewest, stopping_rule);
    }
    let error = left.max(0.0) / freedom_left.max(1.0);
    let sum: f64 = squares.iter().map(|(square, _)| square).sum();
    let largest = squares
        .iter()
        .map(|(square, _)| *square)
        .fold(all / (n - 1.0), f64::max);
    let variance = (sum - (squares.len() - 1) as f64 * error).max(largest);
    let parts: f64 = squares
        .iter()
        .map(|(square, degrees_of_freedom)| square * square / degrees_of_freedom)
        .sum();
    let degrees_of_freedom = if parts > 0.0 {
        (variance * variance / parts).min(n - 1.0)
    } else {
        n - 1.0
    };
    let error = (variance / n).sqrt();
    Interval::with(mean, error, fewest, degrees_of_freedom, stopping_rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Point = Point::Step(0);
    const B: Point = Point::Step(1);

    #[test]
    fn blocks_of_the_linkers_own_layout_stand_alone() {
        let mut units = Units::default();
        for block in 0..3 {
            units.note(block, A, 0);
        }
        let values = [(0, 1.0), (1, 2.0), (2, 4.0)];
        assert_eq!(units.means(&values), [1.0, 2.0, 4.0]);
    }

    #[test]
    fn blocks_that_share_a_layout_of_any_point_are_one() {
        let mut units = Units::default();
        for (block, a, b) in [(0, 5, 6), (1, 7, 8), (2, 7, 9), (3, 10, 11), (4, 12, 9)] {
            units.note(block, A, a);
            units.note(block, B, b);
        }
        let of: Vec<u32> = (0..5).map(|block| units.of(block)).collect();
        assert_eq!(of, [0, 1, 1, 3, 1]);
        let values = [(0, 1.0), (1, 2.0), (2, 6.0), (4, 1.0)];
        assert_eq!(units.means(&values), [1.0, 3.0]);
    }

    /// Twenty-four blocks of six points, two of which share a layout each, and their units. A layout does `common` to each
    /// value, and `own` to those of the last point.
    fn in_pairs(common: f64, own: f64) -> (Units, BTreeMap<u32, Vec<f64>>) {
        let mut units = Units::default();
        let mut rows = BTreeMap::new();
        let mut state = 7u64;
        let mut uniform = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 11) as f64 / (1u64 << 53) as f64 - 0.5
        };
        for pair in 0..12 {
            let layout: Vec<f64> = (0..6).map(|_| uniform()).collect();
            for block in [2 * pair, 2 * pair + 1] {
                units.note(block, A, u64::from(pair) + 1);
                let mut row: Vec<f64> = layout.iter().map(|of| common * of + uniform()).collect();
                row[5] += own * layout[5];
                rows.insert(block, row);
            }
        }
        (units, rows)
    }

    #[test]
    fn layouts_without_effect_leave_blocks_as_units_except_where_they_show() {
        let (units, rows) = in_pairs(3.0, 0.0);
        assert!(!units.show_no_variance(&rows));
        let contrast = |rows: &BTreeMap<u32, Vec<f64>>, point: usize| -> Vec<(u32, f64)> {
            let values = rows.iter();
            values
                .map(|(block, row)| (*block, row[point] - row[0]))
                .collect()
        };
        let count = |units: &Units, values: &[(u32, f64)]| {
            let found = units.interval(&[A, B], values, StoppingRule::FixedSample);
            found.unwrap().blocks
        };
        let (units, rows) = in_pairs(0.0, 0.0);
        assert!(units.show_no_variance(&rows));
        assert_eq!(count(&units, &contrast(&rows, 1)), 12);
        assert_eq!(count(&units.without_effect(), &contrast(&rows, 1)), 24);
        // One server that layouts matter to, among five that they do not.
        let (units, rows) = in_pairs(0.0, 4.0);
        assert_eq!(count(&units.without_effect(), &contrast(&rows, 1)), 24);
        assert_eq!(count(&units.without_effect(), &contrast(&rows, 5)), 12);
    }

    #[test]
    fn the_same_seed_at_two_points_is_two_layouts() {
        let mut units = Units::default();
        units.note(0, A, 5);
        units.note(1, B, 5);
        assert_ne!(units.of(0), units.of(1));
        assert_eq!(units.layouts(), 1);
        units.note(1, A, 6);
        assert_eq!(units.layouts(), 2);
    }

    /// Every step of every block on its way to the first would be five thousand million steps.
    #[test]
    fn a_chain_of_blocks_is_walked_once() {
        const BLOCKS: u32 = 100_000;
        let mut units = Units::default();
        for block in (0..BLOCKS).rev() {
            units.note(block, A, u64::from(block) + 1);
            units.note(block, A, u64::from(block) + 2);
        }
        for _ in 0..BLOCKS {
            units.note(BLOCKS - 1, A, 1);
        }
        assert!((0..BLOCKS).all(|block| units.of(block) == 0));
        let values: Vec<(u32, f64)> = (0..BLOCKS).map(|block| (block, 2.0)).collect();
        assert_eq!(units.means(&values), [2.0]);
    }

    #[test]
    fn the_order_of_lines_does_not_matter() {
        let mut units = Units::default();
        for block in [3, 1, 2] {
            units.note(block, A, 5);
        }
        for block in [4, 0] {
            units.note(block, B, 9);
        }
        units.note(4, A, 5);
        let of: Vec<u32> = (0..5).map(|block| units.of(block)).collect();
        assert_eq!(of, [0; 5]);
    }
}
