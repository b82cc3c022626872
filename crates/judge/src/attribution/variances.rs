//! Knowledge of a contrast's variance beyond its own blocks: pooled variances of counts, priors of timed values.

use std::collections::{BTreeMap, BTreeSet};

use super::correlation::TableKey;
use super::tables::{NamesByMeter, ObservationSource, ValueRow, rows};
use crate::stats::{BlockTable, SharedVariance, VariancePrior, shared_rows};
use perfquilt_model::observation::{Meter, Statistic};
use perfquilt_model::point::Point;

/// Pooled variances of tables of counts, by the source's index, statistic, meter and workload.
#[derive(Default)]
pub(super) struct SharedSpreads(BTreeMap<TableKey, BTreeMap<String, ValueSpread>>);

/// The residual variance of a table's values after subtracting block and point effects.
#[derive(Clone, Copy)]
struct ValueSpread {
    variance: f64,
    degrees_of_freedom: f64,
    range: f64,
}

impl ValueSpread {
    /// That of equal values.
    const NONE: ValueSpread = ValueSpread {
        variance: 0.0,
        degrees_of_freedom: 1.0,
        range: 0.0,
    };
}

/// The priors of the variances of timed tables, by the source's index and meter, and by workload, operation or suite.
#[derive(Default)]
pub(super) struct Priors(BTreeMap<(usize, Meter), BTreeMap<String, VariancePrior>>);

impl Priors {
    /// Estimates the priors of the meters whose values are no counts.
    pub(super) fn of(sources: &[ObservationSource], workloads: &NamesByMeter) -> Self {
        let mut priors = Priors::default();
        for (place, source) in sources.iter().enumerate() {
            // Machines have variances of their own.
            if source.machines.units(false).is_some() || source.machines.strata().is_some() {
                continue;
            }
            for (&meter, tables) in source.blocks.iter().filter(|(meter, _)| !is_count(**meter)) {
                let of_rows =
                    rows(tables, workloads.get(&meter)).filter_map(|(workload, tables)| {
                        let units = source.independent(ValueRow { meter, workload }, false);
                        let of_sums =
                            VariancePrior::of(&units.rows_by_unit(&shared_rows(&tables)?))?;
                        let count = tables.len() as f64;
                        let prior = VariancePrior {
                            variance: of_sums.variance / (count * count),
                            ..of_sums
                        };
                        Some((workload.to_owned(), prior))
                    });
                let of_rows = of_rows.collect();
                priors.0.insert((place, meter), of_rows);
            }
        }
        priors
    }

    pub(super) fn get(&self, place: usize, row: ValueRow<'_>) -> Option<VariancePrior> {
        let of_meter = self.0.get(&(place, row.meter))?;
        of_meter.get(row.workload).copied()
    }
}

impl SharedSpreads {
    /// Estimates the variances for the counting meters, what servers use and the shares of slow slices: those of the
    /// means over independent units, which intervals are taken over. The workloads that were not timed (`untimed`) have equal
    /// values.
    pub(super) fn of(sources: &[ObservationSource], untimed: &BTreeSet<String>) -> Self {
        let mut spreads = SharedSpreads::default();
        for (place, source) in sources.iter().enumerate() {
            let counted = source.blocks.iter().filter(|(meter, _)| is_count(**meter));
            let shares = Statistic::ALL.iter().copied().filter(|of| of.is_share());
            let shares = shares.flat_map(|of| {
                let tables = source.tails.get(&of).into_iter().flatten();
                tables.map(move |(meter, tables)| (Some(of), meter, tables))
            });
            let tables = counted
                .map(|(meter, tables)| (None, meter, tables))
                .chain(shares);
            for (statistic, &meter, tables) in tables {
                let of = |workload: &str, table: &BlockTable| {
                    let units = source.independent(ValueRow { meter, workload }, false);
                    let window = table.largest_window();
                    let means = units.averaged(&window.complete());
                    let (variance, range) = means.variance_and_range()?;
                    let degrees_of_freedom = (means.len() - 1) * (window.points().len() - 1);
                    Some(ValueSpread {
                        variance,
                        degrees_of_freedom: degrees_of_freedom as f64,
                        range,
                    })
                };
                let equal = untimed.iter().filter(|_| meter.is_timed());
                let known = tables
                    .iter()
                    .filter_map(|(name, table)| Some((name.clone(), of(name, table)?)))
                    .chain(equal.map(|name| (name.clone(), ValueSpread::NONE)));
                spreads.0.insert((place, statistic, meter), known.collect());
            }
        }
        spreads
    }

    /// Returns the pooled variance of a contrast over `workloads`; `None` if its values are not counts or
    /// there are too few.
    pub(super) fn shared(
        &self,
        key: TableKey,
        workloads: &[&str],
        weights: &[(Point, f64)],
    ) -> Option<SharedVariance> {
        let of_meter = self.0.get(&key)?;
        let each = workloads.iter().map(|name| of_meter.get(*name));
        let each: Vec<&ValueSpread> = each.collect::<Option<_>>()?;
        let n = each.len() as f64;
        let squares: f64 = weights.iter().map(|(_, weight)| weight * weight).sum();
        let sides: f64 = weights.iter().map(|(_, weight)| weight.abs()).sum::<f64>() / 2.0;
        let variance: f64 = each.iter().map(|of| of.variance).sum();
        let parts: f64 = each
            .iter()
            .map(|of| of.variance.powi(2) / of.degrees_of_freedom)
            .sum();
        Some(SharedVariance {
            variance: variance * squares / (n * n),
            // Satterthwaite's approximation; exact for a single workload.
            degrees_of_freedom: if parts > 0.0 {
                variance.powi(2) / parts
            } else {
                each.iter().map(|of| of.degrees_of_freedom).sum()
            },
            range: each.iter().map(|of| of.range).sum::<f64>() * sides / n,
        })
    }
}

/// Returns whether the values of `meter` are counts, of events or of what a server uses: starts may agree exactly or lie
/// far apart, so few of them show little of their variance.
pub(super) fn is_count(meter: Meter) -> bool {
    !meter.is_timed() || meter.is_usage()
}

/// Returns how far apart two states are in which a server may start, as a fraction of a count: hash seeds and addresses were
/// seen to change instructions by 4 · 10⁻⁴, and what a server uses by a per cent.
pub(super) fn states(meter: Meter) -> f64 {
    if meter.is_usage() { 1e-2 } else { 4e-4 }
}
