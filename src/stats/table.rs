//! Blocks × points of one workload and meter, and contrasts over blocks.

use std::collections::{BTreeMap, BTreeSet};

use crate::point::Point;

/// The logarithms of one workload's and meter's values, by block and point.
///
/// The model is `y(block, point) = block + point + error` with errors of a block's points that may
/// be correlated and of different spread. A contrast of points (weights that add up to 0) is therefore
/// taken inside every block, where the block's own effect cancels, and then averaged over blocks: its
/// variance is that of the full covariance matrix of the points, `w' S w / n`, without assuming that
/// points vary alike. A block that lacks one of a contrast's points says nothing about this contrast
/// and is left out of it alone.
#[derive(Debug, Clone, Default)]
pub struct BlockTable {
    /// By block, the points in order: few enough that a sorted vector beats a map.
    blocks: BTreeMap<u32, Vec<(Point, f64)>>,
    points: BTreeSet<Point>,
    values: u64,
    transactions: u64,
}

/// How values vary once block and point are taken out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Standard deviation of a value around block + point, as a fraction of the value.
    pub sd: f64,
    /// Blocks that have all points, from which it was taken.
    pub blocks: usize,
}

impl BlockTable {
    /// Adds a value (a cost above 0) that stands for so many transactions. Returns `false`, changing
    /// nothing, when the block already has this point.
    pub fn insert(&mut self, block: u32, point: Point, cost: f64, transactions: u64) -> bool {
        let cells = self.blocks.entry(block).or_default();
        // Mostly they come in order.
        if cells.last().is_none_or(|last| last.0 < point) {
            cells.push((point, cost.ln()));
        } else {
            match cells.binary_search_by_key(&point, |cell| cell.0) {
                Ok(_) => return false,
                Err(place) => cells.insert(place, (point, cost.ln())),
            }
        }
        if !self.points.contains(&point) {
            self.points.insert(point);
        }
        self.values += 1;
        self.transactions = self.transactions.saturating_add(transactions);
        true
    }

    /// Transactions that all values stand for.
    pub fn transactions(&self) -> u64 {
        self.transactions
    }

    /// Transactions that one value stands for, on average; `None` without values.
    pub fn transactions_a_value(&self) -> Option<f64> {
        (self.values > 0).then(|| self.transactions as f64 / self.values as f64)
    }

    /// The blocks that have a value.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// The blocks in order, each with its points in order and the logarithms of their values.
    pub fn cells(&self) -> impl Iterator<Item = (u32, &[(Point, f64)])> {
        self.blocks
            .iter()
            .map(|(&block, cells)| (block, cells.as_slice()))
    }

    /// The last block that has a value.
    pub fn last(&self) -> Option<u32> {
        self.blocks.last_key_value().map(|(&block, _)| block)
    }

    /// The points that have a value in some block.
    pub fn points(&self) -> &BTreeSet<Point> {
        &self.points
    }

    /// Blocks that lack a point which another block has.
    pub fn incomplete_blocks(&self) -> usize {
        let points = self.points.len();
        self.blocks.values().filter(|c| c.len() < points).count()
    }

    /// `Σ weight · ln(cost)` in every block that has all of the weights' points, by block in order.
    pub fn contrast(&self, weights: &[(Point, f64)]) -> Vec<(u32, f64)> {
        // Where a point is in a block that has all of them.
        let places: Vec<usize> = weights
            .iter()
            .map(|(point, _)| self.points.range(..point).count())
            .collect();
        self.blocks
            .iter()
            .filter_map(|(&block, cells)| {
                let mut sum = 0.0;
                for ((point, weight), &place) in weights.iter().zip(&places) {
                    sum += weight * value_of(cells, *point, place)?;
                }
                Some((block, sum))
            })
            .collect()
    }

    /// The log ratio `cost(before) / cost(after)` in every block that has both points, by block in order.
    pub fn log_ratio(&self, before: Point, after: Point) -> Vec<(u32, f64)> {
        self.contrast(&[(before, 1.0), (after, -1.0)])
    }

    /// The spread of values around block + point, over the blocks that have all points; `None` with
    /// fewer than two such blocks or points.
    pub fn spread(&self) -> Option<Spread> {
        let points = &self.points;
        let rows: Vec<Vec<f64>> = self
            .blocks
            .values()
            .filter(|cells| cells.len() == points.len())
            .map(|cells| cells.iter().map(|cell| cell.1).collect())
            .collect();
        Some(Spread {
            sd: two_way_sd(&rows)?,
            blocks: rows.len(),
        })
    }
}

/// The value of `point` in a block's cells, first looked for at `place`.
fn value_of(cells: &[(Point, f64)], point: Point, place: usize) -> Option<f64> {
    match cells.get(place) {
        Some(cell) if cell.0 == point => Some(cell.1),
        _ => {
            let place = cells.binary_search_by_key(&point, |cell| cell.0).ok()?;
            Some(cells[place].1)
        }
    }
}

/// The standard deviation that row and column effects leave in a complete table; `None` with fewer than
/// two rows or columns.
pub(super) fn two_way_sd(rows: &[Vec<f64>]) -> Option<f64> {
    let (n, p) = (rows.len(), rows.first().map_or(0, Vec::len));
    if n < 2 || p < 2 {
        return None;
    }
    let columns: Vec<f64> = (0..p)
        .map(|column| rows.iter().map(|row| row[column]).sum::<f64>() / n as f64)
        .collect();
    let all = columns.iter().sum::<f64>() / p as f64;
    let squares: f64 = rows
        .iter()
        .map(|row| {
            let own = row.iter().sum::<f64>() / p as f64;
            row.iter()
                .zip(&columns)
                .map(|(value, column)| (value - own - column + all).powi(2))
                .sum::<f64>()
        })
        .sum();
    Some((squares / ((n - 1) * (p - 1)) as f64).sqrt())
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
    }

    #[test]
    fn block_effects_cancel_and_missing_points_cost_only_their_own_contrasts() {
        let table = table(&[
            &[Some(100.0), Some(50.0), Some(25.0)],
            &[Some(300.0), Some(150.0), None],
            &[None, Some(10.0), Some(5.0)],
        ]);
        let ln2 = 2f64.ln();
        let first = table.log_ratio(Point::Step(0), Point::Step(1));
        let blocks = |of: &[(u32, f64)]| of.iter().map(|(block, _)| *block).collect::<Vec<_>>();
        assert_eq!(blocks(&first), [0, 1]);
        assert!(first.iter().all(|(_, v)| (v - ln2).abs() < 1e-12));
        let second = table.log_ratio(Point::Step(1), Point::Step(2));
        assert_eq!(blocks(&second), [0, 2]);
        assert_eq!(table.incomplete_blocks(), 2);
        assert_eq!(table.spread(), None);
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
        assert!((spread.sd - (variance / 2.0).sqrt()).abs() < 1e-12);
    }
}
