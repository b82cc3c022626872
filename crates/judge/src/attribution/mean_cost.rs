//! The mean cost of a request, which counts every slice, and whether its tail can be bounded.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};

use super::document::HeavyTail;
use crate::stats::{BlockTable, PermutationTest, Units, median};
use perfquilt_model::point::Point;

/// The least effective number of stalls, in blocks that have any, from which the mean has an interval. With fewer,
/// intervals of a simulated mean missed the true one more often than they say (tests of this module).
const FEWEST_STALLS: f64 = 6.0;

/// The same as a share of the blocks, where there are few of them.
const FEWEST_STALLED: f64 = 0.7;

/// The tables behind an effect on the mean: one of each kind for a workload.
pub(super) struct MeanCost<'t> {
    /// Logarithms of the means.
    means: &'t [&'t BlockTable],
    /// Logarithms of the typical values.
    typical: &'t [&'t BlockTable],
    /// The first requested points and their costs: interval and heavy tail use the same ones.
    first: OnceCell<(Vec<Point>, Vec<CostsByBlock>)>,
}

/// Costs of points in each block of a table, sorted by block.
type CostsByBlock = Vec<(u32, Vec<CostOfBlock>)>;

impl<'t> MeanCost<'t> {
    /// Returns the costs that tables of the logarithms of means and of typical values tell.
    pub(super) fn new(means: &'t [&'t BlockTable], typical: &'t [&'t BlockTable]) -> Self {
        MeanCost {
            means,
            typical,
            first: OnceCell::new(),
        }
    }

    /// Returns one value per block that all tables have, sorted, whose mean is the effect `Σ weight · ln mean cost` on the
    /// log scale, averaged over the tables.
    ///
    /// Operators pay for the sum of all requests. With a block's typical value `y` and the ratio `q` of its mean to it, the
    /// mean cost of a point is `exp(mean ln y) · mean q`: a start that is slower as a whole counts as it does for the typical
    /// time, and a stall as long as it is, where the mean of logarithms would count it for less the longer it is. With the
    /// mean `Q` over blocks, the values are `Σ weight · (ln y + ln Q + q/Q − 1)`: the linear part of the estimate
    /// (infinitesimal jackknife; B. Efron, *The Jackknife, the Bootstrap and Other Resampling Plans*, 1982, chapter 6).
    pub(super) fn contributions(&self, weights: &[(Point, f64)]) -> Vec<(u32, f64)> {
        let points: Vec<Point> = weights.iter().map(|(point, _)| *point).collect();
        let mut sums: BTreeMap<u32, f64> = BTreeMap::new();
        for rows in &*self.ratios(&points) {
            let means = mean_ratios(rows, points.len());
            for (block, row) in rows {
                let terms = weights.iter().zip(row.iter().zip(&means));
                let value = terms.map(|((_, weight), (of, mean))| {
                    weight * (of.typical + mean.ln() + of.ratio / mean - 1.0)
                });
                *sums.entry(*block).or_default() += value.sum::<f64>();
            }
        }
        let all = self.means.len() as f64;
        sums.into_iter()
            .map(|(block, sum)| (block, sum / all))
            .collect()
    }

    /// Returns, for each table, the blocks that all tables have with all of `points`, each with what the points cost.
    fn ratios(&self, points: &[Point]) -> Cow<'_, [CostsByBlock]> {
        let compute = || (points.to_vec(), self.compute_ratios(points));
        let (known, costs) = self.first.get_or_init(compute);
        if known == points {
            Cow::Borrowed(costs)
        } else {
            Cow::Owned(self.compute_ratios(points))
        }
    }

    fn compute_ratios(&self, points: &[Point]) -> Vec<CostsByBlock> {
        let tables = self.means.iter().zip(self.typical);
        let mut all: Vec<CostsByBlock> = tables
            .map(|(means, typical)| {
                let mut typical = typical.rows_of(points).into_iter().peekable();
                let rows = means.rows_of(points).into_iter();
                rows.filter_map(|(block, row)| {
                    while typical.next_if(|(there, _)| *there < block).is_some() {}
                    let (_, typical) = typical.next_if(|(there, _)| *there == block)?;
                    let pairs = row.iter().zip(typical);
                    let costs = pairs.map(|(mean, typical)| CostOfBlock {
                        typical,
                        ratio: (mean - typical).exp(),
                    });
                    Some((block, costs.collect()))
                })
                .collect()
            })
            .collect();
        if all.len() < 2 {
            return all;
        }
        let mut tables_with: HashMap<u32, usize> = HashMap::new();
        for (block, _) in all.iter().flatten() {
            *tables_with.entry(*block).or_default() += 1;
        }
        let count = all.len();
        for rows in &mut all {
            rows.retain(|(block, _)| tables_with.get(block) == Some(&count));
        }
        all
    }

    /// Returns the stalls that decide the effect on the mean, if they are too few for an interval: the mean of a
    /// distribution whose rare values carry much of it cannot be bounded by observations that have only a few of them.
    /// `stalled` has the shares of stalled slices.
    ///
    /// With the sums `e` of what stalls carry in a block ([`Stalls`]), the effective number is `(Σe)²/Σe²` (Kish, *Survey
    /// Sampling*, 1965). Effects whose stalls carry less than `least` of the cost are determined.
    pub(super) fn heavy_tail(
        &self,
        stalled: &[&BlockTable],
        weights: &[(Point, f64)],
        least: f64,
    ) -> Option<HeavyTail> {
        let mut carried: BTreeMap<u32, [f64; 2]> = BTreeMap::new();
        // The excess of stalls in units of the typical time, and their number of slices, by side.
        let mut lengths = [(0.0, 0.0); 2];
        for stalls in self.stalls(stalled, weights) {
            for (block, row) in &stalls.rows {
                let sums = carried.entry(*block).or_default();
                for ((of, mean), (_, weight)) in row.iter().zip(&stalls.means).zip(weights) {
                    let side = usize::from(*weight < 0.0);
                    lengths[side].0 += weight.abs() * of.excess;
                    lengths[side].1 += weight.abs() * of.share;
                    sums[side] += weight.abs() * of.excess / mean / self.means.len() as f64;
                }
            }
        }
        let n = carried.len() as f64;
        let each: Vec<f64> = carried.values().map(|[a, b]| a + b).collect();
        let sum: f64 = each.iter().sum();
        let squares: f64 = each.iter().map(|value| value * value).sum();
        let few = FEWEST_STALLS.min(FEWEST_STALLED * n);
        if !(sum / n > least && sum * sum < few * squares) {
            return None;
        }
        let of_side = |side: usize| carried.values().map(|of| of[side]).sum::<f64>() / n;
        let length = |side: usize| {
            let (excess, share) = lengths[side];
            (share > 0.0).then(|| 1.0 + excess / share)
        };
        Some(HeavyTail {
            length_before: length(0),
            length_after: length(1),
            blocks: each.iter().filter(|value| **value > 0.0).count(),
            of: carried.len(),
            carried: of_side(0).max(of_side(1)),
        })
    }

    /// Returns what stalls carry of the cost of each point of `weights`, by table.
    fn stalls(&self, stalled: &[&BlockTable], weights: &[(Point, f64)]) -> Vec<Stalls> {
        let points: Vec<Point> = weights.iter().map(|(point, _)| *point).collect();
        let all = self.ratios(&points);
        let tables = all.iter().zip(stalled);
        tables
            .map(|(rows, stalled)| Stalls::of(rows, &stalled.rows_of(&points), points.len()))
            .collect()
    }

    /// Tests whether the server after a change stalls as the servers before it do ([`PermutationTest`]): by what stalls carry in
    /// each of the independent `units`, or by how many there are where a server has some in all blocks. `None` where no
    /// server has any, or the contrast is not that of one server against others.
    pub(super) fn stalls_alike(
        &self,
        stalled: &[&BlockTable],
        weights: &[(Point, f64)],
        units: &Units,
    ) -> Option<PermutationTest> {
        let mut weights = weights.to_vec();
        weights.sort_by(|a, b| b.1.total_cmp(&a.1));
        let [before @ .., (_, after)] = weights.as_slice() else {
            return None;
        };
        let alike = before.iter().all(|(_, of)| *of == before[0].1 && *of > 0.0);
        if !alike || *after >= 0.0 {
            return None;
        }
        let tables = self.stalls(stalled, &weights);
        let by_length = tables.iter().all(|of| of.is_calm);
        let column = |place: usize| {
            let mut sums: BTreeMap<u32, f64> = BTreeMap::new();
            for (block, row) in tables.iter().flat_map(|of| &of.rows) {
                let of = &row[place];
                *sums.entry(*block).or_default() += if by_length { of.excess } else { of.share };
            }
            let sums: Vec<(u32, f64)> = sums.into_iter().collect();
            units.means(&sums)
        };
        let columns: Vec<Vec<f64>> = (0..weights.len()).map(column).collect();
        let rows = (0..columns[0].len()).map(|row| columns.iter().map(|of| of[row]).collect());
        PermutationTest::of(&rows.collect::<Vec<_>>())
    }
}

/// The part of points' costs that stalls carry, in the blocks of a table.
///
/// It is a block's mean over its typical value, less the same without stalls.
struct Stalls {
    /// By block, and by point.
    rows: Vec<(u32, Vec<StallsOfBlock>)>,
    /// The mean over blocks of the ratio of mean to typical value, by point.
    means: Vec<f64>,
    /// Whether each point has blocks without stalls, which tell what else its mean has.
    is_calm: bool,
}

/// The stalls of a point in a block.
struct StallsOfBlock {
    /// The cost that they carry, in units of the typical value.
    excess: f64,
    /// The share of the slices.
    share: f64,
}

impl Stalls {
    /// Returns those of a table; `stalled` has the shares of stalled slices of the same points, sorted by block.
    fn of(rows: &CostsByBlock, stalled: &[(u32, Vec<f64>)], points: usize) -> Self {
        let share = |block: u32, place: usize| {
            let found = stalled.binary_search_by_key(&block, |(block, _)| *block);
            found.map_or(0.0, |row| stalled[row].1[place])
        };
        let all = rows.iter().flat_map(|(_, row)| row);
        let smallest = all.map(|of| of.ratio).fold(f64::INFINITY, f64::min);
        // Shorter stalls of a point are in its calm blocks, too.
        let usual = |place: usize| {
            let calm = rows.iter().filter(|(block, _)| share(*block, place) <= 0.0);
            let mut calm: Vec<f64> = calm.map(|(_, row)| row[place].ratio).collect();
            median(&mut calm)
        };
        let usual: Vec<Option<f64>> = (0..points).map(usual).collect();
        let of_block = |(block, row): &(u32, Vec<CostOfBlock>)| {
            let of = |(place, cost): (usize, &CostOfBlock)| {
                let share = share(*block, place);
                let excess = (cost.ratio - usual[place].unwrap_or(smallest)).max(0.0);
                StallsOfBlock {
                    excess: if share > 0.0 { excess } else { 0.0 },
                    share,
                }
            };
            (*block, row.iter().enumerate().map(of).collect())
        };
        Stalls {
            rows: rows.iter().map(of_block).collect(),
            means: mean_ratios(rows, points),
            is_calm: usual.iter().all(Option::is_some),
        }
    }
}

/// The cost of a point in a block.
#[derive(Debug, Clone)]
struct CostOfBlock {
    /// Logarithm of the typical value.
    typical: f64,
    /// The mean in units of the typical value.
    ratio: f64,
}

/// Returns the mean ratio of each point.
fn mean_ratios(rows: &[(u32, Vec<CostOfBlock>)], points: usize) -> Vec<f64> {
    let n = rows.len() as f64;
    let mean = |place: usize| rows.iter().map(|(_, row)| row[place].ratio).sum::<f64>() / n;
    (0..points).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: Point = Point::BASE;
    const AFTER: Point = Point::Step(1);
    const WEIGHTS: [(Point, f64); 2] = [(BEFORE, 1.0), (AFTER, -1.0)];

    /// Twelve blocks, in which the second point's slices of `stalls` carry so much of a typical value.
    fn tables(stalls: &[(u32, f64)]) -> [BlockTable; 3] {
        let mut tables: [BlockTable; 3] = Default::default();
        for block in 0..12u32 {
            for point in [BEFORE, AFTER] {
                let own = 1000.0 * (1.0 + 0.01 * f64::from((block * 7) % 5));
                let stall = stalls.iter().find(|of| of.0 == block && point == AFTER);
                let carried = stall.map_or(0.0, |of| of.1);
                let [typical, means, stalled] = &mut tables;
                typical.insert(block, point, own, 1);
                means.insert(block, point, own * (1.05 + carried), 1);
                stalled.insert_plain(block, point, if carried > 0.0 { 1e-3 } else { 0.0 }, 1);
            }
        }
        tables
    }

    fn of(stalls: &[(u32, f64)]) -> (f64, Option<HeavyTail>) {
        let [typical, means, stalled] = &tables(stalls);
        let (means, typical) = ([means], [typical]);
        let cost = MeanCost::new(&means, &typical);
        let values = cost.contributions(&WEIGHTS);
        assert_eq!(values.len(), 12);
        let mean = values.iter().map(|(_, value)| value).sum::<f64>() / 12.0;
        (mean, cost.heavy_tail(&[stalled], &WEIGHTS, 0.005))
    }

    #[test]
    fn a_stall_costs_the_same_in_one_block_as_in_many() {
        let every: Vec<(u32, f64)> = (0..12).map(|block| (block, 0.105)).collect();
        let expected = -(1.1f64).ln();
        assert!((of(&every).0 - expected).abs() < 1e-9);
        assert!((of(&[(5, 1.26)]).0 - expected).abs() < 1e-9);
    }

    #[test]
    fn few_stalls_that_carry_much_do_not_determine_a_mean() {
        let found = of(&[(5, 1.26)]).1.unwrap();
        assert_eq!((found.blocks, found.of), (1, 12));
        assert!((found.carried - 0.105 / 1.155).abs() < 1e-9, "{found:?}");
        // A slice in a thousand stalls for 1261 times the typical time; twice as long shows, though no oftener.
        assert_eq!(found.length_before, None);
        assert!(
            (found.length_after.unwrap() - 1261.0).abs() < 1e-6,
            "{found:?}"
        );
        let longer = of(&[(5, 2.52)]).1.unwrap();
        assert!(
            (longer.length_after.unwrap() - 2521.0).abs() < 1e-6,
            "{longer:?}"
        );
        let eight: Vec<(u32, f64)> = (0..8).map(|block| (block, 0.1)).collect();
        assert_eq!(of(&eight).1, None);
        // Eight of which one carries nearly all are one.
        let mut unlike = eight;
        unlike[3].1 = 5.0;
        assert!(of(&unlike).1.is_some());
        // Stalls that carry little do not matter.
        assert_eq!(of(&[(5, 0.05)]).1, None);
        assert_eq!(of(&[]).1, None);
    }
}
