//! The points that can be compared: a long series may have values of few.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::tables::ObservationSource;
use super::unexecuted::Unexecuted;
use perfquilt_model::observation::ExperimentHeader;
use perfquilt_model::point::Point;

/// Points with values, and points that share a binary, for selecting contrasts to try.
pub(super) struct Points {
    /// For each point whose binary is another point's, the point that has its observations.
    servers: BTreeMap<Point, Point>,
    measured: BTreeSet<Point>,
    /// The points with values of their own or of their binary.
    comparable: BTreeSet<Point>,
    /// By the point that has their observations, the first of the series among these points.
    first: BTreeMap<Point, Point>,
}

impl Points {
    /// Finds the points with values in `sources`, which also stand for the points that are `unexecuted`.
    pub(super) fn of(
        header: &ExperimentHeader,
        sources: &[ObservationSource],
        unexecuted: &Unexecuted,
    ) -> Self {
        let tables = sources.iter().flat_map(ObservationSource::each);
        let measured = tables.flat_map(|(_, table)| table.points());
        let mut points = Points {
            servers: servers(&header.identical),
            measured: measured.copied().collect(),
            comparable: BTreeSet::new(),
            first: BTreeMap::new(),
        };
        let identical = header.identical.iter();
        let linked = identical.flat_map(|(&point, &same)| [point, same]);
        let all = points.measured.iter().copied().chain(linked);
        let same = unexecuted
            .points()
            .filter(|of| !header.failed.contains_key(of));
        points.comparable = all.chain(same).collect();
        if !unexecuted.is_empty() {
            points.comparable.insert(Point::BASE);
        }
        let of_series = |of: &&Point| matches!(of, Point::Step(_));
        let steps = points.comparable.iter().filter(of_series);
        for &step in steps {
            let server = points.servers.get(&step).copied().unwrap_or(step);
            points.first.entry(server).or_insert(step);
        }
        points
    }

    /// Returns the point whose observations stand for `point`: the measured one with the same binary. The
    /// control has the release's binary by design and is not replaced.
    pub(super) fn server_of(&self, point: Point) -> Point {
        self.servers.get(&point).copied().unwrap_or(point)
    }

    pub(super) fn is_measured(&self, point: Point) -> bool {
        self.measured.contains(&self.server_of(point))
    }

    /// Returns whether `point` may be compared with others.
    pub(super) fn is_comparable(&self, point: Point) -> bool {
        self.comparable.contains(&point)
    }

    /// Returns the first comparable point of the series, if it is before `point`, that has the same binary.
    pub(super) fn first_same(&self, point: Point) -> Option<Point> {
        let first = self.first.get(&self.server_of(point)).copied();
        first.filter(|first| *first < point && self.is_comparable(point))
    }

    /// Returns the patched points of the series that may be compared with the release, the last first.
    pub(super) fn patched(&self) -> Vec<Point> {
        let points = self.comparable.iter().rev().copied();
        points
            .filter(|point| matches!(point, Point::Step(1..)))
            .collect()
    }
}

/// Computes [`ExperimentHeader::server_of`] for all points at once, because chains may be as long as the
/// series.
fn servers(identical: &BTreeMap<Point, Point>) -> BTreeMap<Point, Point> {
    let mut servers: BTreeMap<Point, Point> = BTreeMap::new();
    for &point in identical.keys() {
        let mut path = Vec::new();
        let mut server = point;
        while server != Point::Control
            && let Some(&same) = identical.get(&server)
        {
            match servers.entry(server) {
                Entry::Occupied(known) => {
                    server = *known.get();
                    break;
                }
                // Replaced once the end of the chain is known; final if the chain is a cycle.
                Entry::Vacant(open) => {
                    open.insert(server);
                }
            }
            path.push(server);
            server = same;
        }
        for point in path {
            servers.insert(point, server);
        }
    }
    servers
}

#[cfg(test)]
mod tests {
    use super::super::tests::header;
    use super::*;

    #[test]
    fn chains_and_circles_end_where_the_header_says() {
        let mut header = header(6);
        let step = |pairs: &[(usize, usize)]| -> BTreeMap<Point, Point> {
            let pairs = pairs.iter();
            pairs
                .map(|&(a, b)| (Point::Step(a), Point::Step(b)))
                .collect()
        };
        header.identical = step(&[(2, 1), (3, 2), (5, 3), (6, 6)]);
        header.identical.insert(Point::Control, Point::BASE);
        header.identical.insert(Point::Without(1), Point::Step(5));
        let found = servers(&header.identical);
        let of = |point| found.get(&point).copied().unwrap_or(point);
        let steps = (0..=6).map(Point::Step);
        for point in steps.chain([Point::Control, Point::Without(1), Point::Alone(1)]) {
            assert_eq!(of(point), header.server_of(point), "{point}");
        }
        let circle = servers(&step(&[(1, 2), (2, 3), (3, 1)]));
        assert_eq!(circle[&Point::Step(1)], circle[&Point::Step(3)]);
    }

    #[test]
    fn a_series_has_an_end() {
        use perfquilt_model::observation::MOST_PATCHES;
        assert_eq!(header(MOST_PATCHES).check(), Ok(()));
        assert!(header(MOST_PATCHES + 1).check().is_err());
    }

    #[test]
    fn only_what_has_values_is_tried() {
        let mut header = header(1000);
        let known = [(Point::Step(700), Point::Step(300))];
        header.identical = BTreeMap::from(known);
        let mut source = ObservationSource::default();
        let tables = source
            .blocks
            .entry(perfquilt_model::observation::Meter::Time);
        let table = tables.or_default().entry("w".into()).or_default();
        for point in [0, 300, 500] {
            assert!(table.insert(0, Point::Step(point), 1.0, 1));
        }
        let sources = [source];
        let points = Points::of(&header, &sources, &Unexecuted::default());
        assert!(points.is_comparable(Point::Step(700)) && !points.is_comparable(Point::Step(701)));
        assert_eq!(points.first_same(Point::Step(700)), Some(Point::Step(300)));
        assert_eq!(points.first_same(Point::Step(500)), None);
        header.identical.insert(Point::Step(500), Point::BASE);
        let points = Points::of(&header, &sources, &Unexecuted::default());
        assert_eq!(points.first_same(Point::Step(500)), Some(Point::BASE));
        assert_eq!(points.patched(), [700, 500, 300].map(Point::Step));
        assert!(points.is_measured(Point::Step(700)) && !points.is_measured(Point::Step(701)));
    }
}
