//! What earlier experiments on the same class of machines tell about one with few blocks.

use perfquilt_judge::attribution::{attribute_with, earlier_correlation};
use perfquilt_model::comparable::{Comparable, Part};
use perfquilt_model::error::Result;
use perfquilt_model::observation::{ExperimentHeader, Meter, Supplement};
use perfquilt_store::{ExperimentId, Store};

/// The number of blocks from which on an experiment's own blocks tell how much they resemble each other.
const ENOUGH_BLOCKS: u32 = 12;
/// The number of earlier experiments that are read, the latest first.
const MOST_EXPERIMENTS: usize = 10;

/// Returns the supplement of an experiment with the correlation of consecutive blocks in earlier ones on the same class of
/// machines and a note on it, where fewer than twelve blocks are planned.
pub(crate) fn with_correlation(
    store: &Store,
    id: ExperimentId,
    mut supplement: Supplement,
) -> Result<Supplement> {
    if !has_few_blocks(&supplement) {
        return Ok(supplement);
    }
    let class = |header: &ExperimentHeader| {
        Comparable::of(header).only(|part| matches!(part, Part::Machine(_)))
    };
    let own = class(&store.header(id)?);
    let listed = store.list()?.into_iter();
    let is_earlier = |of: &ExperimentId| *of < id;
    let earlier = listed.filter(|of| is_earlier(&of.id) && class(&of.header) == own);
    let mut judged = Vec::new();
    for of in earlier.take(MOST_EXPERIMENTS) {
        let known = store.supplement(of.id)?;
        // Its own correlation is no better known.
        if has_few_blocks(&known) {
            continue;
        }
        let (header, observations) = store.load(of.id)?;
        let margin = &Meter::default_margin;
        judged.push(attribute_with(&header, &observations, &known, margin)?);
    }
    if let Some(correlation) = earlier_correlation(&judged) {
        supplement.notes.push(format!(
            "Consecutive blocks of earlier experiments on this class of machines have a correlation of {correlation:.2}: with \
             fewer than {ENOUGH_BLOCKS} blocks, intervals are as wide as at least this makes them."
        ));
        supplement.earlier_correlation = Some(correlation);
    }
    Ok(supplement)
}

/// Whether fewer timed blocks are planned than tell how much they resemble each other.
fn has_few_blocks(of: &Supplement) -> bool {
    let timed = of.planned.iter().filter(|plan| plan.meter.is_timed());
    let most = timed.map(|plan| plan.all_blocks()).max();
    most.is_some_and(|most| most < ENOUGH_BLOCKS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_model::observation::{Observation, PlannedBlocks};
    use perfquilt_model::point::Point;

    /// Stores an experiment whose blocks wander in a wave of sixteen blocks, each server in its own.
    fn experiment(store: &Store, name: &str, machine: &str, blocks: u32) -> ExperimentId {
        let mut header = ExperimentHeader::new("toy-1.0", "none");
        header.experiment = name.to_owned();
        header.series = vec!["a.patch".to_owned()];
        header.machine.insert("processor".into(), machine.into());
        let id = store.begin(&header, name).unwrap();
        let plan = PlannedBlocks::fixed("w", Meter::Time, blocks);
        store.plan(id, &[plan]).unwrap();
        let points = [Point::BASE, Point::Step(1), Point::Control];
        let of_block = |block: u32| {
            (0..).zip(points).map(move |(place, point)| {
                let turn =
                    std::f64::consts::TAU * (f64::from(block) / 16.0 + f64::from(place) / 3.0);
                let value = 1e5 * (1.0 + 0.01 * turn.sin());
                Observation {
                    experiment: name.to_owned(),
                    ..Observation::new(block, point, "w", Meter::Time, value)
                }
            })
        };
        let all: Vec<Observation> = (0..blocks).flat_map(of_block).collect();
        store.append(id, &all, &[]).unwrap();
        id
    }

    #[test]
    fn few_blocks_take_the_correlation_of_three_earlier_experiments_on_their_class_of_machines() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("results.db")).unwrap();
        let found = |id| crate::analyse::supplement(&store, id).unwrap();
        experiment(&store, "a", "one", 16);
        experiment(&store, "b", "one", 16);
        experiment(&store, "short", "one", 5);
        experiment(&store, "elsewhere", "other", 16);
        let too_early = experiment(&store, "few", "one", 5);
        assert_eq!(found(too_early).earlier_correlation, None);
        experiment(&store, "c", "one", 16);
        let few = experiment(&store, "few again", "one", 5);
        let supplement = found(few);
        let correlation = supplement.earlier_correlation.unwrap();
        assert!((0.5..1.0).contains(&correlation), "{correlation}");
        assert!(supplement.notes[0].contains("class of machines"));
        // What is measured later does not change a report.
        assert_eq!(found(too_early).earlier_correlation, None);
        let many = experiment(&store, "many", "one", 12);
        assert_eq!(found(many).earlier_correlation, None);
        let width = |supplement: &Supplement| {
            let (header, observations) = store.load(few).unwrap();
            let margin = &Meter::default_margin;
            let judged = attribute_with(&header, &observations, supplement, margin).unwrap();
            let effect = &judged.patches[0].effects[0];
            effect.high.unwrap() - effect.low.unwrap()
        };
        assert!(width(&supplement) > 1.3 * width(&store.supplement(few).unwrap()));
    }
}
