//! The design of an experiment: which points are measured together, and in which blocks.

use std::num::NonZeroU32;

use super::plan::{Block, Scope, plan};
use super::spec::Spec;
use super::windows;
use perfquilt_model::comparable::Comparable;
use perfquilt_model::observation::{ExperimentHeader, PlannedBlocks};
use perfquilt_model::point::Point;

/// The points of an experiment, divided into windows. A pure function of what is measured.
pub(super) struct Design<'a> {
    pub(super) spec: &'a Spec<'a>,
    /// The points to measure, in order.
    pub(super) points: Vec<Point>,
    /// The points that are measured together; one window for a short series.
    pub(super) windows: Vec<Vec<Point>>,
    /// The points of the end-to-end check; none without one.
    pub(super) end_to_end: Vec<Point>,
}

impl<'a> Design<'a> {
    /// Returns the design for measuring `points` of the programs in `observed`. A release against itself has no series, hence
    /// no total to check: it is without `end_to_end`.
    pub(super) fn new(
        spec: &'a Spec<'a>,
        observed: &Comparable,
        points: Vec<Point>,
        end_to_end: bool,
    ) -> Self {
        let header = &spec.header;
        let together = spec.query(observed, &[]).together();
        let windows = windows::windows(&points, &together);
        Design {
            spec,
            end_to_end: if end_to_end {
                end_to_end_points(header, observed, &points)
            } else {
                Vec::new()
            },
            windows,
            points,
        }
    }

    /// Returns the most servers that run at once on a lane.
    pub(super) fn most_servers(&self) -> usize {
        self.windows.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Returns whether all points are measured at once.
    pub(super) fn has_one_window(&self) -> bool {
        self.windows.len() < 2
    }

    /// Returns the blocks of `seed`, with `timed_blocks` in each window; `lanes` is the distance between blocks that share
    /// layouts.
    pub(super) fn blocks(&self, seed: u64, lanes: u32, timed_blocks: u32) -> Vec<Block> {
        let spec = self.spec;
        let blocks_of = |is_none: bool, blocks| if is_none { 0 } else { blocks };
        plan(&Scope {
            seed,
            points: &self.points,
            windows: &self.windows,
            lanes,
            workloads: &spec.preset.workloads,
            blocks: blocks_of(spec.readings.timed.is_empty(), timed_blocks),
            count_blocks: blocks_of(spec.readings.counted.is_empty(), spec.preset.count_blocks),
            layouts: spec.layouts,
            direct: &self.end_to_end,
        })
    }

    /// Returns the blocks that the preset asks for, with `timed_blocks` in each window. The stopping rule looks at complete
    /// waves only if there is a `wave`.
    pub(super) fn planned(
        &self,
        timed_blocks: u32,
        wave: Option<NonZeroU32>,
    ) -> Vec<PlannedBlocks> {
        let mut all = self.spec.requested();
        let windows = u32::try_from(self.windows.len()).unwrap_or(u32::MAX);
        for plan in all.iter_mut().filter(|plan| plan.meter.is_timed()) {
            plan.blocks = timed_blocks;
            plan.min_blocks = plan.min_blocks.map(|least| least.min(timed_blocks));
            plan.windows = NonZeroU32::new(windows).filter(|count| count.get() > 1);
            plan.wave = wave;
        }
        all
    }
}

/// Returns the points of the end-to-end check: the release and the last step that was built; none when no other
/// patch is measured with them, since every block compares them directly then, and none for servers that are no series,
/// which have no total.
fn end_to_end_points(
    header: &ExperimentHeader,
    observed: &Comparable,
    measured: &[Point],
) -> Vec<Point> {
    if header.is_of_servers() {
        return Vec::new();
    }
    let is_step = |point: &Point| matches!(point, Point::Step(_));
    let points = observed.programs().map(|(point, _)| point);
    let Some(last) = points.filter(is_step).max() else {
        return Vec::new();
    };
    let full = header.server_of(last);
    let steps: Vec<Point> = measured.iter().copied().filter(is_step).collect();
    if steps.len() > 2 && steps.contains(&full) && full != Point::BASE {
        vec![Point::BASE, full]
    } else {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_model::comparable::Part;

    fn observed(steps: usize) -> Comparable {
        let points = (0..=steps).map(Point::Step);
        points.fold(Comparable::default(), |observed, point| {
            observed.with(Part::Program(point), format!("server {point}"))
        })
    }

    #[test]
    fn the_total_is_checked_where_three_states_of_a_series_are_measured() {
        let mut header = ExperimentHeader::new("toy-1", "quick");
        let all: Vec<Point> = (0..3).map(Point::Step).collect();
        let check = |header: &ExperimentHeader, points: &[Point]| {
            end_to_end_points(header, &observed(2), points)
        };
        assert_eq!(check(&header, &all), [Point::BASE, Point::Step(2)]);
        assert!(check(&header, &all[..2]).is_empty());
        // The last patch's server is that of the first.
        header.identical.insert(Point::Step(2), Point::Step(1));
        assert_eq!(check(&header, &all), [Point::BASE, Point::Step(1)]);
        header.identical.insert(Point::Step(2), Point::BASE);
        assert!(check(&header, &all).is_empty());
    }

    #[test]
    fn servers_that_are_no_series_have_no_end_to_end_check() {
        let mut header = ExperimentHeader::new("toy-1", "quick");
        let all: Vec<Point> = (0..3).map(Point::Step).collect();
        header.base = Some("a".to_owned());
        assert!(end_to_end_points(&header, &observed(2), &all).is_empty());
    }
}
