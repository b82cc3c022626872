//! Measures the bare release repeatedly against copies of itself: every effect found is false.

mod disturbance;
mod page;
mod planted;
pub mod random;

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;
use statrs::distribution::{Binomial, DiscreteCDF};

use perfquilt_config::Preset;
use perfquilt_config::workspace::Workspace;
use perfquilt_judge::attribution::{Attribution, Effect, EffectKind, Verdict};
use perfquilt_judge::stats::{self, BlockTable, Interval, Units};
use perfquilt_measure::experiment;
use perfquilt_measure::run::{build_points, prepare};
use perfquilt_model::counted::percent;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{ExperimentHeader, Meter, Observation, ObservationFile};
use perfquilt_model::point::Point;
use perfquilt_model::progress;
use perfquilt_results::analyse;
use perfquilt_store::Store;
use planted::DRAWS;

pub use disturbance::{Disturbance, following};
pub use page::Page;
pub use planted::Planted;

/// The results of the experiments on a real server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Calibration {
    /// Version of this document: 1.
    pub schema: u32,
    /// The release.
    pub release: String,
    /// The preset.
    pub preset: String,
    /// The machine: processor, cores, virtualisation.
    pub machine: String,
    /// The measuring harness.
    pub harness: String,
    /// Copies of the release in place of patches.
    pub copies: usize,
    /// Requested experiments.
    pub wanted: u32,
    /// The finished experiments.
    pub repeats: Vec<Repeat>,
    /// The probability of differences between copies as large as these if no difference persists from block to
    /// block, over all experiments together.
    pub exchangeable: f64,
    /// The mean deviation of values from their blocks' means, and its standard error, as fractions, by position
    /// in the block's order.
    pub places: Vec<(f64, f64)>,
    /// What the rules make of these experiments with faults planted into them, by fault.
    pub planted: Vec<Planted>,
}

/// One experiment. Verdicts and intervals are those of the copies, in order, on the main meter.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Repeat {
    /// Blocks of the main meter.
    pub blocks: u32,
    /// Copies called faster.
    pub faster: u32,
    /// Copies called slower, or faster by one statistic and slower by another.
    pub slower: u32,
    /// Copies shown to have no effect.
    pub no_effect: u32,
    /// Copies with an unclear verdict.
    pub unclear: u32,
    /// Intervals that contain 0.
    pub held: u32,
    /// Intervals.
    pub intervals: u32,
    /// Their half-widths, as fractions of speed.
    pub half_widths: Vec<f64>,
    /// Copies that have a verdict on instructions.
    pub counted: u32,
    /// Copies called faster or slower by instructions.
    pub counted_claims: u32,
    /// The probability of differences between copies as large as these if no difference persists from block to
    /// block.
    pub exchangeable: f64,
}

/// The share of experiments that may claim an effect where there is none: the error rate of a family of rows.
const FALSE_CLAIMS: f64 = 0.05;
/// The probability of a chance that is not believed.
const UNLIKELY: f64 = 0.01;

impl Calibration {
    /// Returns the number of experiments that claim an effect, on time or on instructions, whichever are more.
    pub fn false_experiments(&self) -> u32 {
        let timed = self.sum(|repeat| u32::from(repeat.faster + repeat.slower > 0));
        timed.max(self.sum(|repeat| u32::from(repeat.counted_claims > 0)))
    }

    /// Returns whether more experiments claim an effect than chance explains (1 %, binomial distribution) where one in
    /// twenty may.
    pub fn breaks_promise(&self) -> bool {
        let silent = |found: u32| self.repeats.len() as u64 - u64::from(found);
        Binomial::new(1.0 - FALSE_CLAIMS, self.repeats.len() as u64)
            .is_ok_and(|chance| chance.cdf(silent(self.false_experiments())) < UNLIKELY)
    }

    /// Returns the median half-width of the intervals, as a fraction of speed; 0 without any.
    fn half_width(&self) -> f64 {
        let widths = self.repeats.iter().flat_map(|repeat| &repeat.half_widths);
        stats::median(&mut widths.copied().collect::<Vec<_>>()).unwrap_or(0.0)
    }

    fn sum(&self, count: impl Fn(&Repeat) -> u32) -> u32 {
        self.repeats.iter().map(count).sum()
    }
}

/// Experiments of the release against itself.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The preset.
    pub preset: &'a Preset,
    /// The preset's name.
    pub name: &'a str,
    /// The number of copies of the release, each in the place of a patch.
    pub copies: usize,
    /// The number of experiments.
    pub repeats: u32,
}

/// Runs experiments of the bare release against itself, each from fresh servers. Stores
/// finished experiments and blocks in a store separate from the results, and reuses them.
///
/// Calls `each` with the results so far after each experiment.
pub fn calibrate(
    ws: &Workspace,
    request: &Request<'_>,
    each: &mut dyn FnMut(&Calibration) -> Result<()>,
) -> Result<Calibration> {
    let &Request {
        preset,
        name,
        copies,
        repeats,
    } = request;
    let prepared = prepare(ws, None)?;
    let mut built = build_points(
        ws,
        &prepared,
        (&preset.recipe, preset.on.as_deref()),
        &[Point::BASE],
    )?;
    let base = match built.pop() {
        Some(point) => point.built?,
        None => return Err(Error::internal("the release was not built")),
    };
    let store = Store::open(&ws.state().join("calibration.db"))?;
    let mut real = Calibration {
        schema: 1,
        release: prepared.release.name.clone(),
        preset: name.to_owned(),
        machine: String::new(),
        harness: String::new(),
        copies,
        wanted: repeats,
        repeats: Vec::new(),
        exchangeable: 1.0,
        places: Vec::new(),
        planted: Vec::new(),
    };
    let mut tables: Vec<Vec<Vec<f64>>> = Vec::new();
    let mut places: Vec<Vec<f64>> = Vec::new();
    for repeat in 1..=repeats {
        let mut header = ExperimentHeader::new(&prepared.release.name, &preset.recipe);
        header.experiment = format!("{}-against-itself-{repeat}", prepared.release.name);
        header.series = (1..=copies)
            .map(|copy| format!("copy {copy} of experiment {repeat}"))
            .collect();
        progress::note(&format!("experiment {repeat} of {repeats}"));
        let outcome = experiment::against_itself(ws, preset, &base, header, &store)?;
        let failed = outcome.failed;
        let mut errors = failed
            .points
            .into_values()
            .chain(failed.workloads.into_values());
        if let Some(error) = errors.next() {
            return Err(error);
        }
        let file = analyse::stored(&store, outcome.id)?;
        let judge =
            |file: &ObservationFile| analyse::attribution(file, &|meter| ws.config.margin(meter));
        let attribution = judge(&file)?;
        let meter = attribution.main_meter().unwrap_or(Meter::Time);
        planted::plant(&mut real.planted, (repeat, &file), meter, &judge)?;
        let (header, observations) = (file.header, file.observations);
        real.machine = ["processor", "cores", "virtualisation"]
            .into_iter()
            .filter_map(|fact| {
                let value = header.machine.get(fact)?;
                Some(match fact {
                    "cores" => format!("{value} cores"),
                    _ => value.clone(),
                })
            })
            .collect::<Vec<_>>()
            .join(", ");
        real.harness = header.harness;
        real.repeats.push(judged(&attribution));
        tables.push(rows(&observations, meter, &mut places));
        let found = stats::exchangeability(&tables, PERMUTATIONS, 1);
        real.exchangeable = found.all;
        for (repeat, own) in real.repeats.iter_mut().zip(&found.each) {
            repeat.exchangeable = *own;
        }
        real.places = places.iter().map(|values| mean(values)).collect();
        each(&real)?;
    }
    Ok(real)
}

/// Random permutations of copies behind a probability.
const PERMUTATIONS: u32 = 9999;

/// Returns the logarithms of an experiment's values, one row per unit and workload, with the copies in the same
/// order. Adds each value's deviation from its block's mean to `places`.
fn rows(observations: &[Observation], meter: Meter, places: &mut Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let mut tables: BTreeMap<&str, BlockTable> = BTreeMap::new();
    let mut units = Units::default();
    let of_meter = || {
        observations
            .iter()
            .filter(|o| o.meter == meter && !o.direct)
    };
    let mut blocks: BTreeMap<(&str, u32), Vec<(usize, f64)>> = BTreeMap::new();
    for o in of_meter() {
        let table = tables.entry(&o.workload).or_default();
        table.insert(o.block, o.point, o.value, o.n);
        units.note(o.block, o.point, o.layout);
        let block = blocks.entry((&o.workload, o.block)).or_default();
        block.push((o.order as usize, o.value.ln()));
    }
    for values in blocks.values() {
        let mean = values.iter().map(|(_, log)| log).sum::<f64>() / values.len() as f64;
        for (place, log) in values {
            if places.len() <= *place {
                places.resize(place + 1, Vec::new());
            }
            places[*place].push(log - mean);
        }
    }
    tables
        .values()
        .flat_map(|table| units.mean_rows(&table.complete()))
        .collect()
}

/// Returns the mean and its standard error; NaN where they are undefined.
fn mean(values: &[f64]) -> (f64, f64) {
    Interval::of(values).map_or((f64::NAN, f64::NAN), |interval| {
        (interval.estimate, interval.standard_error)
    })
}

fn judged(attribution: &Attribution) -> Repeat {
    let effects_of = |meter: Meter| -> Vec<&Effect> {
        let patches = attribution.patches.iter();
        patches
            .filter_map(|patch| attribution.main_effect(&patch.effects, EffectKind::InOrder, meter))
            .collect()
    };
    let meter = attribution.main_meter().unwrap_or(Meter::Time);
    let effects = effects_of(meter);
    let with = |effects: &[&Effect], wanted: &[Verdict]| {
        let found = effects.iter().filter(|e| wanted.contains(&e.verdict));
        u32::try_from(found.count()).unwrap_or(u32::MAX)
    };
    let half_widths: Vec<f64> = effects
        .iter()
        .filter_map(|effect| Some((effect.high? - effect.low?) / 2.0))
        .collect();
    let counted = match meter {
        Meter::Instructions => Vec::new(),
        _ => effects_of(Meter::Instructions),
    };
    let intervals = u32::try_from(half_widths.len()).unwrap_or(u32::MAX);
    let missed = effects.iter().filter(|effect| effect.leaves_out_zero());
    Repeat {
        blocks: attribution
            .progress
            .iter()
            .filter(|progress| progress.meter == meter)
            .map(|progress| progress.done)
            .max()
            .unwrap_or(0),
        faster: with(&effects, &[Verdict::Faster]),
        slower: with(&effects, &[Verdict::Slower, Verdict::Mixed]),
        no_effect: with(&effects, &[Verdict::NoEffect]),
        unclear: with(&effects, &[Verdict::Unclear, Verdict::NoTypicalEffect]),
        held: intervals - u32::try_from(missed.count()).unwrap_or(0),
        intervals,
        half_widths,
        counted: u32::try_from(counted.len()).unwrap_or(u32::MAX),
        counted_claims: with(&counted, &[Verdict::Faster, Verdict::Slower]),
        exchangeable: 1.0,
    }
}

impl Calibration {
    /// Returns the part of the page on a real server.
    pub fn markdown(&self) -> String {
        let mut page = format!(
            "## The bare release against itself\n\n\
             {} of {} experiments of preset `{}` on {}, release {}, with {} copies of its server in place of \
             patches and {:.1} blocks on average, measured by {}:\n\n",
            self.repeats.len(),
            self.wanted,
            self.preset,
            self.machine,
            self.release,
            self.copies,
            f64::from(self.sum(|repeat| repeat.blocks)) / self.repeats.len().max(1) as f64,
            self.harness,
        );
        let claims = self.sum(|repeat| repeat.faster + repeat.slower);
        let others = self.sum(|repeat| repeat.no_effect + repeat.unclear);
        let held = self.sum(|repeat| repeat.held);
        let intervals = self.sum(|repeat| repeat.intervals);
        let _ = writeln!(
            page,
            "- verdicts other than `no effect` and `unclear`: **{}** of {} on time{}\n\
             - 95 % intervals of time that include 0: {} of {} ({})\n\
             - median half-width of these intervals: ±{}",
            claims,
            claims + others,
            match self.sum(|repeat| repeat.counted) {
                0 => String::new(),
                n => {
                    let claims = self.sum(|repeat| repeat.counted_claims);
                    format!(", **{claims}** of {n} on instructions")
                }
            },
            held,
            intervals,
            percent(f64::from(held) / f64::from(intervals.max(1))),
            format_args!("{:.2} %", 100.0 * self.half_width()),
        );
        let _ = writeln!(
            page,
            "- permutation test of whether anything stays with a copy from block to block: p = {:.3} over all \
             experiments; below 0.05 in {} of {}\n\
             - cost by place in a block's order, against the block's mean: {}",
            self.exchangeable,
            self.repeats
                .iter()
                .filter(|repeat| repeat.exchangeable < 0.05)
                .count(),
            self.repeats.len(),
            self.places
                .iter()
                .map(|(mean, error)| {
                    format!("{:+.2} % ± {:.2}", 100.0 * mean, 100.0 * error).replace('-', "−")
                })
                .collect::<Vec<_>>()
                .join(", "),
        );
        self.add_planted(&mut page);
        page
    }

    /// Adds the table of planted faults.
    fn add_planted(&self, page: &mut String) {
        let _ = write!(
            page,
            "\nEach experiment again with planted faults, {DRAWS} times each, its blocks in random order; these share its values. No copy has an effect; \
             the rates that the rules are known for are in docs/statistics.md:\n\n\
             | planted | experiments with a false claim | intervals that include 0 |\n|:--|--:|--:|\n"
        );
        for found in &self.planted {
            let share = |part: u32, all: u32| percent(f64::from(part) / f64::from(all.max(1)));
            let _ = writeln!(
                page,
                "| {} | {} | {} |",
                found.scenario,
                share(found.false_claims, found.experiments),
                share(found.held, found.intervals),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results of `repeats` experiments, of which the first `claiming` claim an effect.
    fn real(repeats: usize, claiming: usize) -> Calibration {
        let repeat = |index: usize| Repeat {
            blocks: 24,
            faster: 2 * u32::from(index < claiming),
            slower: 0,
            no_effect: 2,
            unclear: 0,
            held: 4,
            intervals: 4,
            half_widths: vec![0.005; 4],
            counted: 0,
            counted_claims: 0,
            exchangeable: 0.5,
        };
        Calibration {
            schema: 1,
            release: String::new(),
            preset: String::new(),
            machine: String::new(),
            harness: String::new(),
            copies: 4,
            wanted: 20,
            repeats: (0..repeats).map(repeat).collect(),
            exchangeable: 0.5,
            places: Vec::new(),
            planted: Vec::new(),
        }
    }

    #[test]
    fn one_experiment_in_twenty_may_claim_an_effect() {
        for (repeats, most) in [(0, 0), (1, 1), (2, 1), (20, 4), (40, 6)] {
            let allowed = real(repeats, most);
            assert!(!allowed.breaks_promise(), "{most} of {repeats}");
            assert_eq!(allowed.false_experiments(), most as u32);
            if most < repeats {
                assert!(
                    real(repeats, most + 1).breaks_promise(),
                    "{} of {repeats}",
                    most + 1
                );
            }
        }
    }
}
