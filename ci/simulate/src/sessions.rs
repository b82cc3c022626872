//! Sessions: what somebody does with experiments, from a single look at one to a history of thirty.

use serde::Deserialize;

use super::checks::{Hits, hit, share_of};
use super::experiment::{Blocks, Experiment, judged};
use super::scenario::{EXPERIMENT, header, points};
use perfquilt_calibrate::random::Noise;
use perfquilt_config::DEFAULT_MIN_BLOCKS;
use perfquilt_judge::attribution::{
    self, Attribution, Collector, DifferenceVerdict, Effect, EffectKind, Stopping,
};
use perfquilt_measure::experiment;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{
    Meter, Observation, PlannedBlocks, PointBuild, PointFunctions, Supplement,
};
use perfquilt_model::point::Point;
use perfquilt_report::history::history;

/// What is done with experiments.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Session {
    /// Judges an experiment of a planned number of blocks.
    #[default]
    Once,
    /// Gives the first patch the minimum detectable effect of an experiment without effects, and measures again.
    Detectable,
    /// Judges few blocks after experiments on the same machine that showed this correlation of consecutive ones.
    Earlier(f64),
    /// Ends measuring by a resolution, after so many blocks at least, or as many as by default.
    Ended(f64, Option<u32>),
    /// Ends a planned experiment with a budget as soon as an interval excludes 0.
    Interrupted,
    /// Has more blocks join three times, twice as many in all each time, while nothing is claimed; asks for any claim.
    Joined,
    /// Measures again, when the gain is this; asks for a patch that is reported to help no longer.
    Lost(f64),
    /// The same; asks for a gaining patch that is called unchanged.
    Same(f64),
    /// Measures so many variants of a patch; asks for the best one's interval.
    Variants(u32),
    /// Measures so many releases; asks for any claim in their history.
    Releases(u32),
}

/// Counts the hits of an experiment.
type Asked<'a> = dyn Fn(&Experiment, &Attribution) -> Hits + 'a;

impl Session {
    pub(super) fn run(self, of: &Experiment, asked: &Asked<'_>, noise: &mut Noise) -> Result<Hits> {
        let once =
            |of: &Experiment, noise: &mut Noise| judged(of.patches(), &of.observations(noise));
        match self {
            Session::Once => Ok(asked(of, &once(of, noise)?)),
            Session::Detectable => {
                let before = once(of, noise)?;
                let first = main(&before).next();
                let Some(size) = first.and_then(|first| first.minimum_detectable) else {
                    return Ok((0, 1));
                };
                let of = gaining(of, size)?;
                Ok(asked(&of, &once(&of, noise)?))
            }
            Session::Earlier(correlation) => {
                let known = Supplement {
                    earlier_correlation: Some(correlation),
                    ..Supplement::default()
                };
                let (header, all) = (header(of.patches()), of.observations(noise));
                let margin = &Meter::default_margin;
                let found = attribution::attribute_with(&header, &all, &known, margin)?;
                Ok(asked(of, &found))
            }
            Session::Ended(resolution, least) => {
                let least = least.unwrap_or(DEFAULT_MIN_BLOCKS);
                Ok(asked(
                    of,
                    &ended(of, (resolution, least), noise, &mut |collector| {
                        collector.stopping()
                    })?,
                ))
            }
            Session::Interrupted => Ok(asked(of, &interrupted(of, noise)?)),
            Session::Joined => joined(of, noise),
            Session::Lost(gain) => {
                let (old, new) = (once(of, noise)?, once(&gaining(of, gain)?, noise)?);
                let names = old.patches.iter().map(|patch| patch.name.as_str());
                let changes = attribution::changes(&old, Some(&new), names);
                Ok(hit(changes.iter().any(|change| change.no_longer_helps)))
            }
            Session::Same(gain) => {
                let (mut old, mut new) = (once(of, noise)?, once(&gaining(of, gain)?, noise)?);
                "old".clone_into(&mut old.started);
                "new".clone_into(&mut new.started);
                Ok(hit(is_called_the_same(&old, &new)))
            }
            Session::Variants(count) => best_variant(of, count, noise),
            Session::Releases(count) => unchanged_history(of, count, noise),
        }
    }
}

/// Returns the effects that the patches' verdicts are about.
pub(super) fn main(found: &Attribution) -> impl Iterator<Item = &Effect> {
    let meter = found.main_meter().unwrap_or(Meter::Time);
    let patches = found.patches.iter();
    patches.filter_map(move |patch| found.main_effect(&patch.effects, EffectKind::InOrder, meter))
}

pub(super) fn claims(found: &Attribution) -> bool {
    main(found).any(|effect| effect.verdict.is_shown())
}

/// Returns the same experiment whose gaining patches gain `gain`.
fn gaining(of: &Experiment, gain: f64) -> Result<Experiment> {
    let mut blocks = blocks(of)?.clone();
    blocks.effects = vec![gain];
    Ok(Experiment::Blocks(Box::new(blocks)))
}

fn blocks(of: &Experiment) -> Result<&Blocks> {
    match of {
        Experiment::Blocks(blocks) => Ok(blocks.as_ref()),
        _ => Err(Error::internal("a session needs an experiment of blocks")),
    }
}

fn planned(plans: Vec<PlannedBlocks>) -> Supplement {
    Supplement {
        planned: plans,
        ..Supplement::default()
    }
}

/// Measures what the stopping rule needs, until it ends; `look` returns its state after each block.
pub(super) fn ended(
    of: &Experiment,
    (resolution, least): (f64, u32),
    noise: &mut Noise,
    look: &mut dyn FnMut(&Collector<'_>) -> Option<Stopping>,
) -> Result<Attribution> {
    let observations = of.observations(noise);
    let header = header(of.patches());
    let names = of.workloads();
    let plan = |name: &String| PlannedBlocks {
        min_blocks: Some(least),
        resolution: Some(resolution),
        ..PlannedBlocks::fixed(name, Meter::Time, blocks_of(&observations))
    };
    let supplement = planned(names.iter().map(plan).collect());
    let mut collector = Collector::new(&header, &supplement)?;
    let all = points(of.patches());
    let mut state = None;
    for of_block in observations.chunk_by(|a, b| a.block == b.block) {
        let (points, workloads) = match &state {
            Some(state) => experiment::needed(&all, &names, state),
            None => (all.clone(), names.clone()),
        };
        if workloads.is_empty() {
            break;
        }
        let is_needed =
            |one: &&Observation| points.contains(&one.point) && workloads.contains(&one.workload);
        for one in of_block.iter().filter(is_needed) {
            collector.add(one)?;
        }
        state = look(&collector);
    }
    Ok(collector.finish(&Meter::default_margin))
}

/// Judges the first blocks of an experiment as those of one that was extended after somebody saw it.
fn extended(blocks: &Blocks, observations: &[Observation]) -> Result<Attribution> {
    let plan = PlannedBlocks {
        extended: true,
        ..PlannedBlocks::fixed("0", Meter::Time, blocks_of(observations))
    };
    attribution::attribute_with(
        &header(blocks.patches),
        observations,
        &planned(vec![plan]),
        &Meter::default_margin,
    )
}

fn blocks_of(observations: &[Observation]) -> u32 {
    observations.last().map_or(0, |last| last.block + 1)
}

/// Returns the observations of the first `count` blocks.
fn first(observations: &[Observation], count: u32) -> &[Observation] {
    &observations[..observations.partition_point(|one| one.block < count)]
}

fn interrupted(of: &Experiment, noise: &mut Noise) -> Result<Attribution> {
    let blocks = blocks(of)?;
    let all = of.observations(noise);
    for count in 3..blocks.blocks {
        let seen = first(&all, count);
        if main(&judged(blocks.patches, seen)?).any(Effect::leaves_out_zero) {
            return extended(blocks, seen);
        }
    }
    judged(blocks.patches, &all)
}

fn joined(of: &Experiment, noise: &mut Noise) -> Result<Hits> {
    let blocks = blocks(of)?;
    let all = of.observations(noise);
    if claims(&judged(blocks.patches, first(&all, blocks.blocks / 8))?) {
        return Ok(hit(true));
    }
    for part in [4, 2, 1] {
        if claims(&extended(blocks, first(&all, blocks.blocks / part))?) {
            return Ok(hit(true));
        }
    }
    Ok(hit(false))
}

/// Returns whether a comparison calls a patch with an odd number the same.
fn is_called_the_same(old: &Attribution, new: &Attribution) -> bool {
    let compared = attribution::compare(old, new);
    let mut rows = compared.main_tables().flat_map(|table| &table.patches);
    rows.any(|row| {
        let changed = row.index_after.is_some_and(|index| index % 2 == 1);
        let difference = row.difference.as_ref();
        changed && difference.is_some_and(|of| of.verdict == DifferenceVerdict::Same)
    })
}

fn best_variant(of: &Experiment, count: u32, noise: &mut Noise) -> Result<Hits> {
    let mut variants = Vec::new();
    for number in 0..count {
        let mut found = judged(of.patches(), &of.observations(noise))?;
        found.experiment = format!("{EXPERIMENT}-{number}");
        let server = |point: Point, key: String| PointBuild {
            point,
            key,
            ..PointBuild::default()
        };
        found.builds = vec![
            server(Point::BASE, "release".to_owned()),
            server(Point::Step(1), format!("variant {number}")),
        ];
        variants.push(found);
    }
    let history = history(&variants, Meter::Time, None);
    let best = history.patches.iter().flat_map(|patch| &patch.best);
    let chosen: Vec<bool> = best.map(|of| of.low > 0.0 || of.high < 0.0).collect();
    Ok(share_of(
        chosen.iter().filter(|wrong| **wrong).count(),
        chosen.len(),
    ))
}

fn unchanged_history(of: &Experiment, count: u32, noise: &mut Noise) -> Result<Hits> {
    let mut releases = Vec::new();
    for number in 0..count {
        let mut found = judged(of.patches(), &of.observations(noise))?;
        found.experiment = format!("{EXPERIMENT}-{number}");
        releases.push(found);
    }
    let history = history(&releases, Meter::Time, None);
    let mut moments = history.patches.iter().flat_map(|patch| &patch.moments);
    Ok(hit(
        moments.any(|of| of.verdict.is_shown() || of.change.is_some())
    ))
}

/// Simulates the instructions of functions in six counted blocks, of which the patch changed one; returns the share of others
/// among those that are named.
pub(super) fn false_functions(count: u32, noise: &mut Noise) -> Hits {
    let name = |function: u32| format!("function {function}");
    let mut counted = Vec::new();
    for block in 0..6 {
        for point in [0usize, 1] {
            let mut cost = |function: u32| {
                let changed = function == 0 && point == 1;
                1e4 * (1.0 + 0.01 * noise.normal()) + if changed { 1e3 } else { 0.0 }
            };
            counted.push(PointFunctions {
                workload: "work".to_owned(),
                block,
                point: Point::Step(point),
                functions: (0..count).map(|of| (name(of), cost(of))).collect(),
            });
        }
    }
    let found = attribution::function_changes(&header(1), &counted);
    let wrong = found.iter().filter(|of| of.function != name(0)).count();
    share_of(wrong, found.len())
}
