//! Tables of blocks × points for one workload and meter, and contrasts over blocks.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use perfquilt_model::point::Point;

use super::column::{Column, seek};
use super::robust::{add_row, deviations, median};

/// The logarithms of one workload's and meter's values, by block and point.
///
/// The model is `y(block, point) = block + point + error` with errors of a block's points that may be
/// correlated and have different variances. A contrast of points (weights that add up to 0) is therefore
/// taken inside every block, where the block's own effect cancels, and then averaged over blocks: its
/// variance is that of the full covariance matrix of the points, `w' S w / n`, without assuming equal
/// variances of points. A block that lacks one of a contrast's points is excluded from this contrast only.
///
/// Memory and the time of every question are linear in the values, however few of the points a block has.
#[derive(Debug, Clone, Default)]
pub struct BlockTable {
    /// The blocks that have a value.
    blocks: BTreeSet<u32>,
    /// The block of the last value: values come block by block.
    newest: Option<u32>,
    /// Sorted.
    points: Vec<Point>,
    /// The logarithms of each point, by block.
    columns: Vec<Column>,
    values: u64,
    transactions: u64,
}

/// The blocks of a table that have all of its points.
#[derive(Debug, Clone, Default)]
pub struct CompleteBlocks {
    blocks: Vec<u32>,
    /// The logarithms, block by block, each in the order of the points.
    values: Vec<f64>,
    points: usize,
}

impl CompleteBlocks {
    /// Returns the number of blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Returns whether there are no complete blocks.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns the standard deviation around block + point; `None` with fewer than two blocks or points.
    pub fn spread(&self) -> Option<f64> {
        two_way_sd(&self.values, self.points)
    }

    /// Returns the residual variance of a value, and the largest distance between two values of one point
    /// after subtracting each block's median; `None` with fewer than two blocks or three points.
    pub fn variance_and_range(&self) -> Option<(f64, f64)> {
        if self.points < 3 {
            return None;
        }
        let sd = self.spread()?;
        let mut ends = vec![(f64::INFINITY, f64::NEG_INFINITY); self.points];
        for (_, row) in self.rows() {
            let own = median(&mut row.to_vec())?;
            for ((low, high), value) in ends.iter_mut().zip(row) {
                *low = low.min(value - own);
                *high = high.max(value - own);
            }
        }
        let range = ends
            .iter()
            .map(|(low, high)| high - low)
            .fold(0.0, f64::max);
        Some((sd * sd, range))
    }

    /// Returns blocks with the rows of values `rows`, numbered from 0.
    pub(super) fn of_rows(rows: &[Vec<f64>]) -> Self {
        CompleteBlocks {
            blocks: (0..).take(rows.len()).collect(),
            values: rows.concat(),
            points: rows.first().map_or(0, Vec::len),
        }
    }

    /// Iterates over the blocks in order, each with the logarithms of its values in the order of the points.
    pub fn rows(&self) -> impl Iterator<Item = (u32, &[f64])> {
        let values = self.values.chunks_exact(self.points.max(1));
        self.blocks.iter().copied().zip(values)
    }
}

impl BlockTable {
    /// Adds a value (a cost above 0) measured over `transactions`. Returns `false`, changing nothing, if the
    /// block already has this point.
    pub fn insert(&mut self, block: u32, point: Point, cost: f64, transactions: u64) -> bool {
        self.insert_plain(block, point, cost.ln(), transactions)
    }

    /// Adds a value that is compared by differences instead of ratios, and is therefore not converted to a
    /// logarithm. Returns `false`, changing nothing, if the block already has this point.
    pub fn insert_plain(
        &mut self,
        block: u32,
        point: Point,
        value: f64,
        transactions: u64,
    ) -> bool {
        let found = self.points.binary_search(&point);
        let place = found.unwrap_or_else(|place| place);
        if found.is_err() {
            self.points.insert(place, point);
            self.columns.insert(place, Column::default());
        }
        if !self.columns[place].insert(block, value) {
            return false;
        }
        if self.newest != Some(block) {
            self.newest = Some(block);
            self.blocks.insert(block);
        }
        self.values += 1;
        self.transactions = self.transactions.saturating_add(transactions);
        true
    }

    /// Returns the number of transactions behind all values.
    pub fn transactions(&self) -> u64 {
        self.transactions
    }

    /// Returns the mean number of transactions per value; `None` without values.
    pub fn transactions_a_value(&self) -> Option<f64> {
        (self.values > 0).then(|| self.transactions as f64 / self.values as f64)
    }

    /// Returns the number of values.
    pub fn values(&self) -> usize {
        usize::try_from(self.values).unwrap_or(usize::MAX)
    }

    /// Returns the number of blocks that have a value.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the numbers of the blocks that have a value, sorted.
    pub fn block_numbers(&self) -> Vec<u32> {
        self.blocks.iter().copied().collect()
    }

    /// Returns the last block that has a value.
    pub fn last(&self) -> Option<u32> {
        self.blocks.last().copied()
    }

    /// Returns the points that have a value in at least one block, sorted.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Returns the number of blocks that lack a point which another block has.
    pub fn incomplete_blocks(&self) -> usize {
        if self.has_all() {
            return 0;
        }
        let rows = self.rows();
        let all = rows
            .each()
            .filter(|(_, row)| row.len() == self.points.len());
        rows.blocks.len() - all.count()
    }

    /// Returns the distinct sets of points of blocks, each with its number of blocks.
    pub fn point_sets(&self) -> BTreeMap<Vec<Point>, u64> {
        if self.has_all() && !self.blocks.is_empty() {
            return BTreeMap::from([(self.points.clone(), self.blocks.len() as u64)]);
        }
        let rows = self.rows();
        let sets = rows.sets().into_iter();
        sets.map(|(places, blocks)| (self.points_at(places), blocks))
            .collect()
    }

    /// Returns the points of each block, sorted both.
    pub fn points_by_block(&self) -> Vec<(u32, Vec<Point>)> {
        let rows = self.rows();
        let each = rows.each();
        each.map(|(block, places)| (block, self.points_at(places)))
            .collect()
    }

    fn points_at(&self, places: &[u32]) -> Vec<Point> {
        let places = places.iter().map(|place| *place as usize);
        places.map(|place| self.points[place]).collect()
    }

    /// Returns the number of blocks that have each point.
    pub fn blocks_by_point(&self) -> BTreeMap<Point, u64> {
        let blocks = self.columns.iter().map(|column| column.len() as u64);
        let each = self.points.iter().copied().zip(blocks);
        each.filter(|(_, blocks)| *blocks > 0).collect()
    }

    fn has_all(&self) -> bool {
        self.values == self.blocks.len() as u64 * self.points.len() as u64
    }

    /// Returns the values by block.
    fn rows(&self) -> Rows {
        let blocks: Vec<u32> = self.blocks.iter().copied().collect();
        let mut starts = vec![0usize; blocks.len() + 1];
        let each_place = |note: &mut dyn FnMut(usize, u32)| {
            for (place, column) in (0u32..).zip(&self.columns) {
                let mut row = 0;
                for &block in column.sorted().0 {
                    row = seek(&blocks, row, block);
                    note(row, place);
                }
            }
        };
        each_place(&mut |row, _| starts[row + 1] += 1);
        for row in 0..blocks.len() {
            starts[row + 1] += starts[row];
        }
        let mut next = starts.clone();
        let mut places = vec![0u32; self.values()];
        each_place(&mut |row, place| {
            places[next[row]] = place;
            next[row] += 1;
        });
        Rows {
            blocks,
            starts,
            places,
        }
    }

    /// Returns the columns of `points`; `None` if one has no values.
    fn columns_of(&self, points: impl Iterator<Item = Point>) -> Option<Vec<&Column>> {
        let column = |point: Point| {
            let place = self.points.binary_search(&point).ok()?;
            Some(&self.columns[place])
        };
        points.map(column).collect()
    }

    /// Calls `each` with the block and the values, in their order, of every block that all of `columns` have, sorted by
    /// block, until it returns `false`. The time is that of the shortest column, times a logarithm.
    fn shared(&self, columns: &[&Column], mut each: impl FnMut(u32, &[f64]) -> bool) {
        let sorted: Vec<(&[u32], &[f64])> = columns.iter().map(|column| column.sorted()).collect();
        let Some((blocks, _)) = sorted.iter().min_by_key(|(blocks, _)| blocks.len()) else {
            self.blocks.iter().all(|&block| each(block, &[]));
            return;
        };
        #[cfg(test)]
        super::column::counted::step();
        let mut places = vec![0; sorted.len()];
        let mut values = vec![0.0; sorted.len()];
        'blocks: for &block in *blocks {
            for ((column, place), value) in sorted.iter().zip(&mut places).zip(&mut values) {
                *place = seek(column.0, *place, block);
                match column.0.get(*place) {
                    Some(found) if *found == block => *value = column.1[*place],
                    Some(_) => continue 'blocks,
                    None => return,
                }
            }
            if !each(block, &values) {
                return;
            }
        }
    }

    /// Returns whether any block has all points of the weights. Of a long series, most pairs of points are only asked this.
    pub fn shares_block(&self, weights: &[(Point, f64)]) -> bool {
        let Some(columns) = self.columns_of(weights.iter().map(|(point, _)| *point)) else {
            return false;
        };
        let mut found = false;
        self.shared(&columns, |_, _| {
            found = true;
            false
        });
        found
    }

    /// Returns `Σ weight · ln(cost)` for every block that has all points of the weights, sorted by block.
    pub fn contrast(&self, weights: &[(Point, f64)]) -> Vec<(u32, f64)> {
        let Some(columns) = self.columns_of(weights.iter().map(|(point, _)| *point)) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        self.shared(&columns, |block, values| {
            let terms = weights.iter().zip(values);
            let sum: f64 = terms.map(|((_, weight), value)| weight * value).sum();
            if !sum.is_nan() {
                found.push((block, sum));
            }
            true
        });
        found
    }

    /// Returns the mean of the logarithms of `point`; `None` without values.
    pub fn mean(&self, point: Point) -> Option<f64> {
        let place = self.points.binary_search(&point).ok()?;
        self.columns[place].mean()
    }

    /// Returns the logarithms of `points` in their order, for every block that has all of them, sorted by block.
    pub fn rows_of(&self, points: &[Point]) -> Vec<(u32, Vec<f64>)> {
        let Some(columns) = self.columns_of(points.iter().copied()) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        self.shared(&columns, |block, values| {
            found.push((block, values.to_vec()));
            true
        });
        found
    }

    /// Returns the table of the points that most blocks have in common: the table itself where some block has all
    /// points, else one of the windows that a long series is measured in. Noise is estimated from it, which needs
    /// blocks with the same points.
    pub fn largest_window(&self) -> Cow<'_, BlockTable> {
        if self.has_all() {
            return Cow::Borrowed(self);
        }
        let rows = self.rows();
        let sets = rows.sets();
        if sets.keys().any(|places| places.len() == self.points.len()) {
            return Cow::Borrowed(self);
        }
        // The number of values that comparisons of one point with the others rest on.
        let size = |places: &[u32], blocks: u64| blocks * (places.len().max(1) as u64 - 1);
        let largest = sets
            .iter()
            .max_by_key(|(places, blocks)| (size(places, **blocks), **places));
        let Some((places, _)) = largest else {
            return Cow::Borrowed(self);
        };
        let mut window = BlockTable::default();
        let columns: Vec<&Column> = places
            .iter()
            .map(|place| &self.columns[*place as usize])
            .collect();
        let points = self.points_at(places);
        self.shared(&columns, |block, values| {
            for (&point, &value) in points.iter().zip(values) {
                window.insert_plain(block, point, value, 0);
            }
            true
        });
        Cow::Owned(window)
    }

    /// Returns the table of the blocks for which `keeps` is true.
    #[must_use]
    pub fn filtered(&self, keeps: &dyn Fn(u32) -> bool) -> BlockTable {
        let transactions = self.transactions_a_value().unwrap_or(0.0);
        // All points stay known, even those that no block has left.
        let columns: Vec<Column> = self.columns.iter().map(|of| of.filtered(keeps)).collect();
        let values = columns.iter().map(|column| column.len() as u64).sum();
        let blocks = self.blocks.iter().copied().filter(|block| keeps(*block));
        BlockTable {
            blocks: blocks.collect(),
            newest: None,
            points: self.points.clone(),
            columns,
            values,
            transactions: (transactions * values as f64).round() as u64,
        }
    }

    /// Returns the blocks that have all points.
    pub fn complete(&self) -> CompleteBlocks {
        let points = self.points.len();
        let mut complete = CompleteBlocks {
            blocks: Vec::with_capacity(self.blocks.len()),
            values: Vec::with_capacity(if self.has_all() { self.values() } else { 0 }),
            points,
        };
        let columns: Vec<&Column> = self.columns.iter().collect();
        self.shared(&columns, |block, values| {
            complete.blocks.push(block);
            complete.values.extend(values);
            true
        });
        complete
    }

    /// Returns the standard deviation around block + point over complete blocks; `None` with fewer than two
    /// such blocks or points.
    pub fn spread(&self) -> Option<f64> {
        self.complete().spread()
    }
}

/// The points of blocks, by their places among a table's points.
struct Rows {
    /// Sorted.
    blocks: Vec<u32>,
    /// Where the places of each block begin, and the end of the last.
    starts: Vec<usize>,
    /// The places of the points of each block, sorted.
    places: Vec<u32>,
}

impl Rows {
    /// Iterates over the blocks in order, each with the places of its points.
    fn each(&self) -> impl Iterator<Item = (u32, &[u32])> {
        let ends = self.starts.windows(2);
        let rows = ends.map(|ends| &self.places[ends[0]..ends[1]]);
        self.blocks.iter().copied().zip(rows)
    }

    /// Returns the distinct sets of points, each with its number of blocks.
    fn sets(&self) -> HashMap<&[u32], u64> {
        let mut sets: HashMap<&[u32], u64> = HashMap::new();
        for (_, places) in self.each() {
            *sets.entry(places).or_default() += 1;
        }
        sets
    }
}

/// Returns the residual standard deviation of a complete table after subtracting row and column effects, with
/// `values` row by row; `None` with fewer than two rows or columns.
pub(super) fn two_way_sd(values: &[f64], columns: usize) -> Option<f64> {
    let (n, p) = (values.len() / columns.max(1), columns);
    if n < 2 || p < 2 {
        return None;
    }
    let mut means = vec![0.0; p];
    for row in values.chunks_exact(p) {
        add_row(&mut means, row);
    }
    means.iter_mut().for_each(|sum| *sum /= n as f64);
    let all = means.iter().sum::<f64>() / p as f64;
    let squares: f64 = values
        .chunks_exact(p)
        .map(|row| {
            let own = row.iter().sum::<f64>() / p as f64;
            row.iter()
                .zip(&means)
                .map(|(value, column)| (value - own - column + all).powi(2))
                .sum::<f64>()
        })
        .sum();
    Some((squares / ((n - 1) * (p - 1)) as f64).sqrt())
}

/// Returns the variance of each point's values after subtracting the effects of rows and points, unbiased where the points'
/// errors are independent, whatever their variances are; 0 where that of the others explains it. Needs three points and two
/// rows.
pub(super) fn point_variances(rows: &[Vec<f64>]) -> Vec<f64> {
    let points = rows.first().map_or(0, Vec::len);
    let centred: Vec<Vec<f64>> = rows.iter().map(|row| deviations(row)).collect();
    let free = rows.len() as f64 - 1.0;
    let apparent: Vec<f64> = (0..points)
        .map(|point| {
            let column: Vec<f64> = centred.iter().map(|row| row[point]).collect();
            deviations(&column).iter().map(|of| of * of).sum::<f64>() / free
        })
        .collect();
    let count = points as f64;
    // A point's deviation from its row has the variance σ²(1 − 2/p) + Σσ²/p².
    let all = apparent.iter().sum::<f64>() / (1.0 - count.recip());
    let own = |of: f64| ((of - all / (count * count)) / (1.0 - 2.0 / count)).max(0.0);
    apparent.into_iter().map(own).collect()
}

/// Returns the rows of the blocks that all of `tables` have, each the sum over the tables; `None` if most blocks of the
/// tables have other points.
pub fn shared_rows(tables: &[&BlockTable]) -> Option<BTreeMap<u32, Vec<f64>>> {
    let windows: Vec<_> = tables.iter().map(|table| table.largest_window()).collect();
    let points = windows.first()?.points();
    if windows.iter().any(|window| window.points() != points) {
        return None;
    }
    let mut shared: BTreeMap<u32, (Vec<f64>, usize)> = BTreeMap::new();
    for window in &windows {
        for (block, row) in window.complete().rows() {
            let (sums, count) = shared
                .entry(block)
                .or_insert_with(|| (vec![0.0; row.len()], 0));
            add_row(sums, row);
            *count += 1;
        }
    }
    let whole = shared
        .into_iter()
        .filter(|(_, (_, count))| *count == windows.len());
    Some(whole.map(|(block, (row, _))| (block, row)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[&[Option<f64>]]) -> BlockTable {
        let mut table = BlockTable::default();
        for (block, row) in (0..).zip(rows) {
            for (point, cost) in row.iter().enumerate() {
                if let Some(cost) = cost {
                    assert!(table.insert(block, Point::Step(point), *cost, 1));
                }
            }
        }
        table
    }

    #[test]
    fn a_cell_is_filled_once() {
        let mut table = table(&[&[Some(1.0)]]);
        assert!(!table.insert(0, Point::BASE, 2.0, 1));
        assert!(table.insert(1, Point::BASE, 2.0, 1));
        assert!(!table.insert(0, Point::BASE, 2.0, 1));
    }

    #[test]
    fn block_effects_cancel_and_missing_points_cost_only_their_own_contrasts() {
        let table = table(&[
            &[Some(100.0), Some(50.0), Some(25.0)],
            &[Some(300.0), Some(150.0), None],
            &[None, Some(10.0), Some(5.0)],
        ]);
        let ln2 = 2f64.ln();
        let first = table.contrast(&[(Point::Step(0), 1.0), (Point::Step(1), -1.0)]);
        let blocks = |of: &[(u32, f64)]| of.iter().map(|(block, _)| *block).collect::<Vec<_>>();
        assert_eq!(blocks(&first), [0, 1]);
        assert!(first.iter().all(|(_, v)| (v - ln2).abs() < 1e-12));
        let second = table.contrast(&[(Point::Step(1), 1.0), (Point::Step(2), -1.0)]);
        assert_eq!(blocks(&second), [0, 2]);
        assert_eq!(table.incomplete_blocks(), 2);
        assert_eq!(table.spread(), None);
        let [a, b, c] = [0, 1, 2].map(Point::Step);
        let held = [(vec![a, b], 1), (vec![a, b, c], 1), (vec![b, c], 1)];
        assert_eq!(table.point_sets(), BTreeMap::from(held));
        assert_eq!(table.contrast(&[(a, 1.0), (Point::Step(3), -1.0)]), []);
    }

    #[test]
    fn the_order_in_which_values_come_does_not_matter() {
        let values = [
            (0, 0, 8.0),
            (0, 1, 4.0),
            (1, 0, 2.0),
            (1, 1, 1.0),
            (7, 1, 3.0),
            (7, 0, 5.0),
        ];
        let of = |order: [usize; 6]| {
            let mut table = BlockTable::default();
            for (block, point, cost) in order.map(|at| values[at]) {
                assert!(table.insert(block, Point::Step(point), cost, 1));
            }
            let complete = table.complete();
            let rows = complete.rows().map(|(block, row)| (block, row.to_vec()));
            let rows: Vec<(u32, Vec<f64>)> = rows.collect();
            assert_eq!(table.last(), Some(7));
            (
                table.contrast(&[(Point::Step(0), 1.0), (Point::Step(1), -1.0)]),
                rows,
            )
        };
        let first = of([0, 1, 2, 3, 4, 5]);
        assert_eq!(first.0.len(), 3);
        assert_eq!(first, of([5, 4, 3, 2, 1, 0]));
        assert_eq!(first, of([2, 5, 0, 4, 1, 3]));
    }

    #[test]
    fn noise_is_estimated_from_blocks_with_the_same_points() {
        let mut table = BlockTable::default();
        // Blocks take turns between two windows, which share points 0 and 2; one block lacks a point.
        for block in 0..21u32 {
            let points: &[usize] = match block {
                7 => &[0, 3],
                even if even % 2 == 0 => &[0, 1, 2],
                _ => &[0, 2, 3],
            };
            for &point in points {
                assert!(table.insert(block, Point::Step(point), f64::from(block + 1), 1));
            }
        }
        assert!(table.complete().is_empty());
        let window = table.largest_window();
        let steps = [0, 1, 2].map(Point::Step);
        assert_eq!((window.points(), window.complete().len()), (&steps[..], 11));
        assert_eq!(window.largest_window().blocks(), 11);
    }

    #[test]
    fn points_share_a_block_or_none() {
        let mut table = BlockTable::default();
        // More blocks than a word has bits; points 1 and 2 share the last one, points 0 and 2 none.
        for block in 0..130u32 {
            let point = if block % 2 == 0 { 0 } else { 1 };
            assert!(table.insert(block, Point::Step(point), 1.0, 1));
        }
        assert!(table.insert(129, Point::Step(2), 2.0, 1));
        let shares = |points: &[usize]| {
            let weights: Vec<(Point, f64)> = points
                .iter()
                .map(|&point| (Point::Step(point), 1.0))
                .collect();
            let shares = table.shares_block(&weights);
            assert_eq!(shares, !table.contrast(&weights).is_empty());
            shares
        };
        assert!(shares(&[1, 2]) && shares(&[0]) && shares(&[]));
        assert!(!shares(&[0, 2]) && !shares(&[0, 1]) && !shares(&[0, 3]));
        let kept = table.filtered(&|block| block != 129);
        assert!(!kept.shares_block(&[(Point::Step(2), 1.0)]));
    }

    #[test]
    fn spread_is_what_block_and_point_leave() {
        // Two points: half the sample variance of the log ratio.
        let rows: [[f64; 2]; 3] = [[100.0, 110.0], [200.0, 210.0], [50.0, 60.0]];
        let options: Vec<Vec<Option<f64>>> = rows
            .iter()
            .map(|row| row.iter().map(|v| Some(*v)).collect())
            .collect();
        let slices: Vec<&[Option<f64>]> = options.iter().map(Vec::as_slice).collect();
        let logs: Vec<f64> = rows.iter().map(|[a, b]| (a / b).ln()).collect();
        let mean = logs.iter().sum::<f64>() / 3.0;
        let variance = logs.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / 2.0;
        let spread = table(&slices).spread().unwrap();
        assert!((spread - (variance / 2.0).sqrt()).abs() < 1e-12);
    }
}
