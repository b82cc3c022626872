//! Effects of groups of neighbouring patches.

use std::collections::BTreeSet;

use super::document::{EffectKind, Group};
use super::effects::Effects;
use perfquilt_model::point::Point;

impl Effects<'_> {
    /// Computes the effects of the patches between two points of the first look together, whose timed observations are
    /// all that there are. The last group ends with the series, whose binary may be that of an earlier point.
    pub(super) fn of_groups(&self) -> Vec<Group> {
        let timed = self.sources[0]
            .each()
            .filter(|(meter, ..)| meter.is_timed());
        let points = timed.flat_map(|(_, _, table)| table.points());
        let mut ends: BTreeSet<usize> = points.filter_map(Point::step).collect();
        if !ends.is_empty() {
            ends.insert(self.header.series.len());
        }
        let mut before = 0;
        let group = |last: usize| {
            let against = [Point::Step(before)];
            let group = Group {
                first: before + 1,
                last,
                effects: self.of_kind(EffectKind::Group, Point::Step(last), &against),
            };
            before = last;
            group
        };
        let groups = ends.into_iter().map(group);
        groups.filter(|group| !group.effects.is_empty()).collect()
    }
}
