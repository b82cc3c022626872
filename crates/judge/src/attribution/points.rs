//! Which points can be compared at all: a long series may have values of few.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::collect::Source;
use perfquilt_model::observation::ExperimentHeader;
use perfquilt_model::point::Point;

/// What is known of points before any contrast is tried.
pub(super) struct Points {
    /// By point that is another's binary, the point whose observations speak for it.
    servers: BTreeMap<Point, Point>,
    measured: BTreeSet<Point>,
    /// Those with values of their own or of their binary.
    comparable: BTreeSet<Point>,
}

impl Points {
    pub(super) fn of(header: &ExperimentHeader, sources: &[Source]) -> Self {
        let tables = sources.iter().flat_map(Source::each);
        let measured = tables.flat_map(|(_, _, table)| table.points());
        let mut points = Points {
            servers: servers(&header.identical),
            measured: measured.copied().collect(),
            comparable: BTreeSet::new(),
        };
        let identical = header.identical.iter();
        let linked = identical.flat_map(|(&point, &same)| [point, same]);
        let all = points.measured.iter().copied().chain(linked).collect();
        points.comparable = all;
        points
    }

    /// The point whose observations speak for `point`: the one with the same binary that was
    /// measured. The control is the release's binary by intent and stays itself.
    pub(super) fn server_of(&self, point: Point) -> Point {
        self.servers.get(&point).copied().unwrap_or(point)
    }

    pub(super) fn is_measured(&self, point: Point) -> bool {
        self.measured.contains(&self.server_of(point))
    }

    /// The points of the series before `point` that it may be compared with, the nearest first; none where
    /// nothing is known of it.
    pub(super) fn before(&self, point: Point) -> impl Iterator<Item = Point> + Clone {
        let known = self.comparable.contains(&point);
        let before = self.comparable.range(..point).rev().copied();
        before.filter(move |other| known && matches!(other, Point::Step(_)))
    }

    /// The points of the series with a patch that may be compared with the release, the last first.
    pub(super) fn patched(&self) -> Vec<Point> {
        let points = self.comparable.iter().rev().copied();
        points
            .filter(|point| matches!(point, Point::Step(1..)))
            .collect()
    }
}

/// As [`ExperimentHeader::server_of`], for all points at once: chains may be as long as the series.
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
                // Until its end is known; for good where the chain is a circle.
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
        let mut source = Source::default();
        let tables = source
            .blocks
            .entry(perfquilt_model::observation::Meter::Time);
        let table = tables.or_default().entry("w".into()).or_default();
        for point in [0, 300, 500] {
            assert!(table.insert(0, Point::Step(point), 1.0, 1));
        }
        let points = Points::of(&header, &[source]);
        let before = |point| points.before(Point::Step(point)).collect::<Vec<_>>();
        assert_eq!(before(700), [500, 300, 0].map(Point::Step));
        assert!(before(701).is_empty());
        assert_eq!(points.patched(), [700, 500, 300].map(Point::Step));
        assert!(points.is_measured(Point::Step(700)) && !points.is_measured(Point::Step(701)));
    }
}
