//! Chooses which observations of earlier experiments to reuse, and which points to measure. Pure.
//!
//! An effect compares two binaries on workloads, with a meter, on a machine, with a harness. Where all of these
//! match a finished experiment, its observations still hold, and the new experiment measures only the points of
//! the other effects.

use std::collections::{BTreeMap, BTreeSet};

use perfquilt_model::comparable::Comparable;
use perfquilt_model::observation::{ExperimentHeader, PlannedBlocks, ReusedFrom};
use perfquilt_model::point::Point;
use perfquilt_store::EarlierExperiment;

/// A new experiment that looks for earlier observations to reuse.
#[derive(Debug)]
pub(super) struct ReuseQuery<'a> {
    /// Its header, with machine, harness and identical points.
    pub(super) header: &'a ExperimentHeader,
    /// What its values are observed of.
    pub(super) observed: &'a Comparable,
    /// The blocks it is to have.
    pub(super) planned: &'a [PlannedBlocks],
}

impl ReuseQuery<'_> {
    /// Returns the earlier experiments to reuse, `earlier` being in the order of preference. Stale ones come
    /// last: their figures stand in until fresh ones are measured.
    pub(super) fn origins(&self, earlier: &[EarlierExperiment]) -> Vec<ReusedFrom> {
        let mut open = self.pairs();
        let mut origins = Vec::new();
        for holds in [true, false] {
            for experiment in earlier {
                let stale = self.stale(experiment);
                if holds != stale.is_none() || !self.asks_no_more_than(experiment, holds) {
                    continue;
                }
                let points = self.shared(experiment, holds);
                let before = open.len();
                open.retain(|pair| !pair.iter().all(|point| points.contains_key(point)));
                if open.len() < before {
                    origins.push(ReusedFrom {
                        experiment: experiment.header.experiment.clone(),
                        started: experiment.header.started.clone(),
                        points,
                        stale,
                    });
                }
            }
        }
        origins
    }

    /// Returns whether the observations of `origins` still answer the query: another run of an experiment may
    /// ask for more blocks or meters than the one that chose them. `earlier` is as for [`ReuseQuery::origins`].
    pub(super) fn is_answered_by(
        &self,
        origins: &[ReusedFrom],
        earlier: &[EarlierExperiment],
    ) -> bool {
        let is_answered = |origin: &ReusedFrom| {
            let from = earlier
                .iter()
                .find(|other| other.header.experiment == origin.experiment);
            from.is_some_and(|from| {
                let shared = self.shared(from, true);
                self.asks_no_more_than(from, true)
                    && origin.points.keys().all(|point| shared.contains_key(point))
            })
        };
        let mut holding = origins.iter().filter(|origin| origin.stale.is_none());
        holding.all(is_answered)
    }

    /// Returns the points to measure when the observations of `origins` are reused: the points of the remaining
    /// effects, the release and its control. Empty when `origins` cover all effects.
    pub(super) fn left(&self, origins: &[ReusedFrom]) -> BTreeSet<Point> {
        let is_answered = |pair: &BTreeSet<Point>| {
            origins
                .iter()
                .filter(|origin| origin.stale.is_none())
                .any(|origin| pair.iter().all(|point| origin.points.contains_key(point)))
        };
        let mut left: BTreeSet<Point> = self
            .pairs()
            .into_iter()
            .filter(|pair| !is_answered(pair))
            .flatten()
            .collect();
        if !left.is_empty() {
            left.extend([Point::BASE, Point::Control]);
        }
        left
    }

    /// Returns the sets of points that an effect compares within a block: pairs, and the four points of each
    /// interaction.
    pub(super) fn together(&self) -> Vec<BTreeSet<Point>> {
        let full = Point::Step(self.header.series.len());
        let mut sets = Vec::new();
        for (point, _) in self.observed.programs() {
            if let Point::Without(k) = point {
                let four = [
                    Point::Step(k.saturating_sub(1)),
                    Point::Step(k),
                    point,
                    full,
                ];
                sets.push(four.map(|p| self.header.server_of(p)).into());
            }
        }
        sets.extend(self.pairs());
        sets
    }

    /// Returns the pairs of points whose comparison is an effect; points of the same binary count as one.
    fn pairs(&self) -> Vec<BTreeSet<Point>> {
        let points: BTreeSet<Point> = self.observed.programs().map(|(point, _)| point).collect();
        let steps: Vec<Point> = points
            .iter()
            .copied()
            .filter(|point| matches!(point, Point::Step(_)))
            .collect();
        let mut pairs: Vec<[Point; 2]> = if self.header.is_of_servers() {
            steps.iter().map(|&step| [Point::BASE, step]).collect()
        } else {
            steps.windows(2).map(|two| [two[0], two[1]]).collect()
        };
        if let (Some(&first), Some(&last)) = (steps.first(), steps.last()) {
            pairs.push([first, last]);
        }
        let full = Point::Step(self.header.series.len());
        for &point in &points {
            match point {
                Point::Alone(_) => pairs.push([Point::BASE, point]),
                Point::Without(_) => pairs.push([point, full]),
                Point::Step(_) | Point::Control => {}
            }
        }
        let mut distinct: Vec<BTreeSet<Point>> = Vec::new();
        for pair in pairs {
            let pair = pair.into_iter().map(|p| self.header.server_of(p));
            let pair: BTreeSet<Point> = pair.collect();
            let known = pair.iter().all(|point| points.contains(point));
            if pair.len() == 2 && known && !distinct.contains(&pair) {
                distinct.push(pair);
            }
        }
        distinct
    }

    /// Maps the points of this experiment to the points of `earlier` with the same binary; if `holds`, only
    /// those that `earlier` measured in all blocks.
    fn shared(&self, earlier: &EarlierExperiment, holds: bool) -> BTreeMap<Point, Point> {
        let usable = |point: &Point| {
            let measured = if holds {
                self.has_all_blocks(earlier, *point)
            } else {
                earlier.measured.contains_key(point)
            };
            measured && !earlier.header.failed.contains_key(point)
        };
        let there: BTreeMap<&str, Point> = earlier
            .observed
            .programs()
            .rev()
            .filter(|(point, _)| usable(point))
            .map(|(point, program)| (program, point))
            .collect();
        let mut shared: BTreeMap<Point, Point> = self
            .observed
            .programs()
            .filter(|(point, _)| self.header.server_of(*point) == *point)
            .filter_map(|(point, program)| Some((point, *there.get(program)?)))
            .collect();
        if shared.get(&Point::BASE) == Some(&Point::BASE) && usable(&Point::Control) {
            shared.insert(Point::Control, Point::Control);
        }
        shared
    }

    /// Returns whether `earlier` measured `point` in as many blocks as requested: a server that was missing in
    /// some of them has wider intervals than the others. An experiment with a stopping rule left out points
    /// whose intervals were narrow enough.
    fn has_all_blocks(&self, earlier: &EarlierExperiment, point: Point) -> bool {
        let Some(measured) = earlier.measured.get(&point) else {
            return false;
        };
        self.planned.iter().all(|plan| {
            let ended_by_itself = earlier.planned.iter().any(|other| {
                (&other.workload, other.meter) == (&plan.workload, plan.meter)
                    && other.min_blocks.is_some()
            });
            let blocks = measured.get(&(plan.workload.clone(), plan.meter));
            ended_by_itself || blocks.copied().unwrap_or(0) >= plan.blocks
        })
    }

    /// Returns whether `earlier` has the requested workloads and meters, none of which failed, and, if `holds`, as many
    /// blocks.
    fn asks_no_more_than(&self, earlier: &EarlierExperiment, holds: bool) -> bool {
        let (ours, theirs) = (self.observed, &earlier.observed);
        let same = |(name, _): (&str, &str)| {
            ours.only(|part| part.is_of(name)) == theirs.only(|part| part.is_of(name))
        };
        ours.workloads().all(same)
            && self.planned.iter().all(|plan| {
                earlier.planned.iter().any(|other| {
                    (&other.workload, other.meter) == (&plan.workload, plan.meter)
                        && !earlier.header.has_failed(&plan.workload, plan.meter)
                        && (!holds || is_as_exact(other, plan))
                })
            })
    }

    /// Returns why figures of `earlier` do not hold here and now.
    fn stale(&self, earlier: &EarlierExperiment) -> Option<String> {
        let here = self.observed.conditions();
        let difference = here.difference(&earlier.observed.conditions())?;
        Some(difference.to_string())
    }
}

/// Returns whether a finished experiment with the plan `other` is as precise as one with `plan` will be. An
/// experiment extended after its end or shortened before it is not: its intervals stay wider.
fn is_as_exact(other: &PlannedBlocks, plan: &PlannedBlocks) -> bool {
    !other.extended
        && other.blocks >= plan.blocks
        && match (other.resolution, plan.resolution) {
            // It may have ended early by the resolution of the meter that was read beside this one.
            (None, None) => other.min_blocks.is_none() || plan.min_blocks.is_some(),
            (None, Some(_)) => other.min_blocks.is_none(),
            (Some(reached), Some(wanted)) => reached <= wanted,
            (Some(_), None) => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_model::comparable::Part;
    use perfquilt_model::observation::{FailedWorkload, Meter};

    fn header(name: &str, binaries: &[&str]) -> ExperimentHeader {
        let mut header = ExperimentHeader::new("toy-1", "quick");
        header.experiment = name.into();
        header.series = (1..binaries.len()).map(|k| format!("{k}.patch")).collect();
        header.harness = "perfquilt 1".into();
        header.machine = BTreeMap::from([("kernel".into(), "Linux 6".into())]);
        for (k, binary) in binaries.iter().enumerate() {
            let first = binaries.iter().position(|other| other == binary).unwrap();
            if first < k {
                header.identical.insert(Point::Step(k), Point::Step(first));
            }
        }
        header
    }

    fn observed(header: &ExperimentHeader, binaries: &[&str]) -> Comparable {
        let programs = binaries.iter().enumerate();
        let load = || "load".to_owned();
        programs.fold(
            Comparable::of(header)
                .with(Part::Workload(load()), "digest")
                .with(Part::Seconds(load()), "2"),
            |observed, (k, binary)| observed.with(Part::Program(Point::Step(k)), *binary),
        )
    }

    fn planned(blocks: u32) -> Vec<PlannedBlocks> {
        vec![PlannedBlocks::fixed("load", Meter::Time, blocks)]
    }

    fn earlier(name: &str, binaries: &[&str]) -> EarlierExperiment {
        let header = header(name, binaries);
        let steps = (0..binaries.len()).map(Point::Step);
        let blocks = || BTreeMap::from([(("load".to_owned(), Meter::Time), 12)]);
        EarlierExperiment {
            measured: steps
                .filter(|point| !header.identical.contains_key(point))
                .chain([Point::Control])
                .map(|point| (point, blocks()))
                .collect(),
            observed: observed(&header, binaries),
            header,
            planned: planned(12),
            unexecuted: Vec::new(),
        }
    }

    /// Returns the reused experiments, and the points left to measure.
    fn ask(binaries: &[&str], earlier: &[EarlierExperiment]) -> (Vec<ReusedFrom>, Vec<Point>) {
        let header = header("new", binaries);
        let observed = observed(&header, binaries);
        let question = ReuseQuery {
            header: &header,
            observed: &observed,
            planned: &planned(12),
        };
        let origins = question.origins(earlier);
        let left = question.left(&origins).into_iter().collect();
        (origins, left)
    }

    fn steps(numbers: &[usize]) -> Vec<Point> {
        let mut points: Vec<Point> = numbers.iter().copied().map(Point::Step).collect();
        points.push(Point::Control);
        points
    }

    #[test]
    fn without_an_earlier_experiment_everything_is_measured() {
        let (origins, left) = ask(&["a", "b", "c"], &[]);
        assert_eq!(origins, []);
        assert_eq!(left, steps(&[0, 1, 2]));
    }

    #[test]
    fn an_edited_patch_and_those_behind_it_are_measured() {
        let old = earlier("old", &["a", "b", "c", "d", "e"]);
        let (origins, left) = ask(&["a", "b", "c", "D", "E"], &[old]);
        assert_eq!(left, steps(&[0, 2, 3, 4]));
        assert_eq!(origins.len(), 1);
        assert_eq!(origins[0].points[&Point::Step(2)], Point::Step(2));
        assert!(!origins[0].points.contains_key(&Point::Step(3)));
    }

    #[test]
    fn comments_and_dropped_tails_leave_nothing_to_measure() {
        let old = || earlier("old", &["a", "b", "c", "d"]);
        // A patch without effect on the binary in between shifts the numbers of the points.
        let (origins, left) = ask(&["a", "b", "b", "c", "d"], &[old()]);
        assert_eq!(left, []);
        assert_eq!(origins[0].points[&Point::Step(3)], Point::Step(2));
        assert_eq!(ask(&["a", "b", "c"], &[old()]).1, []);
        // The earlier experiment measured a prefix, never the whole series: only the total is new.
        let mut partial = old();
        partial.measured.remove(&Point::BASE);
        assert_eq!(ask(&["a", "b", "c"], &[partial]).1, steps(&[0, 1, 2]));
    }

    #[test]
    fn servers_that_are_no_series_are_measured_with_the_base() {
        let binaries = ["a", "b", "c", "d"];
        let mut new = header("new", &binaries);
        new.base = Some("a".into());
        let observed = observed(&new, &binaries);
        let question = ReuseQuery {
            header: &new,
            observed: &observed,
            planned: &planned(12),
        };
        let with_base = [1, 2, 3].map(|k| BTreeSet::from([Point::BASE, Point::Step(k)]));
        assert_eq!(question.together(), with_base);
        // Neither has `c` together with the base.
        let old = [
            earlier("one", &["a", "b", "d"]),
            earlier("two", &["b", "c", "d"]),
        ];
        let left = question.left(&question.origins(&old));
        let left: Vec<Point> = left.into_iter().collect();
        assert_eq!(left, steps(&[0, 2]));
    }

    #[test]
    fn several_experiments_complete_each_other_the_latest_first() {
        let one = earlier("one", &["a", "b", "c"]);
        let two = earlier("two", &["a", "b", "X", "Y"]);
        let (origins, left) = ask(&["a", "b", "c", "Z"], &[two, one]);
        let names: Vec<&str> = origins.iter().map(|o| o.experiment.as_str()).collect();
        assert_eq!(names, ["two", "one"]);
        assert_eq!(left, steps(&[0, 2, 3]));
    }

    #[test]
    fn other_machines_and_harnesses_are_stale_and_measured_again() {
        let all = ["a", "b", "c"];
        for (part, value, why) in [
            (
                Part::Machine("kernel".into()),
                "Linux 5",
                "kernel `Linux 5` instead of `Linux 6`",
            ),
            (
                Part::Harness,
                "perfquilt 0",
                "harness `perfquilt 0` instead of `perfquilt 1`",
            ),
            (Part::Recipe, "slow", "recipe `slow` instead of `quick`"),
        ] {
            let mut old = earlier("old", &all);
            old.observed = old.observed.with(part, value);
            let (origins, left) = ask(&all, &[old]);
            assert_eq!(origins[0].stale.as_deref(), Some(why));
            assert_eq!(left, steps(&[0, 1, 2]));
        }
    }

    #[test]
    fn less_than_what_is_asked_for_is_not_carried() {
        let all = ["a", "b"];
        let mut short = earlier("short", &all);
        short.planned[0].blocks = 6;
        let mut early = earlier("early", &all);
        early.planned[0].resolution = Some(0.005);
        let mut other = earlier("other", &all);
        other.observed = other.observed.with(Part::Workload("load".into()), "edited");
        let mut longer = earlier("longer", &all);
        longer.observed = longer.observed.with(Part::Seconds("load".into()), "4");
        let mut failed = earlier("failed", &all);
        failed
            .header
            .failed
            .insert(Point::Step(1), "crashed".into());
        // Its server crashed, and another run continued with it.
        let mut broken = earlier("broken", &all);
        broken.planned[0].min_blocks = Some(2);
        broken.header.failed_workloads = vec![FailedWorkload {
            workload: "load".into(),
            meters: vec![Meter::Time],
            reason: "the client exited with 1".into(),
        }];
        let mut away = earlier("away", &all);
        let blocks = away.measured.get_mut(&Point::Step(1)).unwrap();
        blocks.insert(("load".into(), Meter::Time), 7);
        let mut extended = earlier("extended", &all);
        extended.planned[0].extended = true;
        for old in [short, early, other, longer, failed, broken, away, extended] {
            let (origins, left) = ask(&all, &[old]);
            assert_eq!(origins, []);
            assert_eq!(left, steps(&[0, 1]));
        }
    }

    #[test]
    fn points_that_needed_fewer_blocks_are_carried() {
        let all = ["a", "b"];
        let wanted = [PlannedBlocks {
            min_blocks: Some(4),
            resolution: Some(0.005),
            ..PlannedBlocks::fixed("load", Meter::Time, 60)
        }];
        let mut old = earlier("old", &all);
        old.planned = wanted.to_vec();
        let header = header("new", &all);
        let observed = observed(&header, &all);
        let question = ReuseQuery {
            header: &header,
            observed: &observed,
            planned: &wanted,
        };
        let origins = question.origins(&[old]);
        assert_eq!(question.left(&origins), BTreeSet::new());
    }

    #[test]
    fn what_another_meter_ended_early_does_not_stand_for_all_blocks() {
        let all = ["a", "b"];
        let cpu = |blocks| PlannedBlocks::fixed("load", Meter::Cpu, blocks);
        let beside = || PlannedBlocks {
            min_blocks: Some(4),
            ..cpu(60)
        };
        let by_itself = PlannedBlocks {
            resolution: Some(0.005),
            ..beside()
        };
        let mut old = earlier("old", &all);
        old.planned = vec![beside()];
        for blocks in old.measured.values_mut() {
            blocks.insert(("load".into(), Meter::Cpu), 5);
        }
        let header = header("new", &all);
        let observed = observed(&header, &all);
        for (plan, carried) in [(cpu(12), 0), (by_itself, 0), (beside(), 1)] {
            let question = ReuseQuery {
                header: &header,
                observed: &observed,
                planned: &[plan],
            };
            assert_eq!(question.origins(std::slice::from_ref(&old)).len(), carried);
        }
    }

    #[test]
    fn what_was_carried_must_answer_what_is_asked_later() {
        let all = ["a", "b"];
        let old = [earlier("old", &all)];
        let (origins, _) = ask(&all, &old);
        let header = header("new", &all);
        let observed = observed(&header, &all);
        let is_answered = |planned: &[PlannedBlocks], earlier: &[EarlierExperiment]| {
            let question = ReuseQuery {
                header: &header,
                observed: &observed,
                planned,
            };
            question.is_answered_by(&origins, earlier)
        };
        assert!(is_answered(&planned(12), &old) && is_answered(&planned(6), &old));
        assert!(!is_answered(&planned(13), &old));
        let both = [
            planned(12),
            vec![PlannedBlocks::fixed("load", Meter::Cpu, 12)],
        ]
        .concat();
        assert!(!is_answered(&both, &old));
        assert!(!is_answered(&planned(12), &[]));
        // Stale figures cover no effect.
        let stale = ReusedFrom {
            stale: Some("other".into()),
            ..origins[0].clone()
        };
        let question = ReuseQuery {
            header: &header,
            observed: &observed,
            planned: &both,
        };
        assert!(question.is_answered_by(&[stale], &old));
    }

    #[test]
    fn points_apart_are_pairs_too() {
        let header = header("new", &["a", "b", "c"]);
        let observed = observed(&header, &["a", "b", "c"])
            .with(Part::Program(Point::Alone(2)), "alone")
            .with(Part::Program(Point::Without(1)), "alone");
        let question = ReuseQuery {
            header: &header,
            observed: &observed,
            planned: &planned(12),
        };
        let old = earlier("old", &["a", "b", "c"]);
        let left = question.left(&question.origins(&[old]));
        let expected = [
            Point::BASE,
            Point::Step(2),
            Point::Alone(2),
            Point::Without(1),
            Point::Control,
        ];
        assert_eq!(left, BTreeSet::from(expected));
    }
}
