//! Divides a long series into windows of neighbouring points, so that few servers run at once.

use std::collections::BTreeSet;

use perfquilt_model::point::Point;

/// The most points of a window besides the release and its control. With ten servers a round takes some 23 ms, and
/// disturbances that last longer than a round cancel in comparisons.
const MOST_POINTS: usize = 8;

/// Divides `points` into windows in which every one of `pairs` meets. Each window has the release and its control;
/// neighbouring windows share the point at which they meet. Returns one window with all points if they are few.
///
/// A pair with the release meets in every window that has its other point.
pub(super) fn windows(points: &[Point], pairs: &[BTreeSet<Point>]) -> Vec<Vec<Point>> {
    let others = points.iter().filter(|point| !point.is_unpatched()).count();
    if others <= MOST_POINTS {
        return vec![points.to_vec()];
    }
    let measured: BTreeSet<Point> = points.iter().copied().collect();
    let mut windows: Vec<BTreeSet<Point>> = Vec::new();
    for pair in pairs {
        let pair: BTreeSet<Point> = pair.iter().copied().filter(|p| !p.is_unpatched()).collect();
        if pair.is_empty() || !pair.is_subset(&measured) {
            continue;
        }
        if windows.iter().any(|window| pair.is_subset(window)) {
            continue;
        }
        match windows.last_mut() {
            Some(last) if last.union(&pair).count() <= MOST_POINTS => last.extend(pair),
            _ => windows.push(pair),
        }
    }
    let base = [Point::BASE, Point::Control];
    let base = base.into_iter().filter(|point| measured.contains(point));
    windows
        .into_iter()
        .map(|window| base.clone().chain(window).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(numbers: impl IntoIterator<Item = usize>) -> Vec<Point> {
        let mut points: Vec<Point> = numbers.into_iter().map(Point::Step).collect();
        points.push(Point::Control);
        points
    }

    fn in_order(points: &[Point]) -> Vec<BTreeSet<Point>> {
        let steps: Vec<Point> = points
            .iter()
            .copied()
            .filter(|point| *point != Point::Control)
            .collect();
        let total = BTreeSet::from([steps[0], steps[steps.len() - 1]]);
        let neighbours = steps.windows(2).map(|two| two.iter().copied().collect());
        neighbours.chain([total]).collect()
    }

    #[test]
    fn few_points_are_measured_at_once() {
        let points = steps(0..=8);
        assert_eq!(windows(&points, &in_order(&points)), [points]);
    }

    #[test]
    fn every_comparison_has_a_window_of_its_own_size() {
        for last in [9, 15, 60, 200] {
            let points = steps(0..=last);
            let pairs = in_order(&points);
            let windows = windows(&points, &pairs);
            for pair in &pairs {
                let meets = |window: &&Vec<Point>| pair.iter().all(|p| window.contains(p));
                assert!(windows.iter().any(|w| meets(&w)), "{pair:?}");
            }
            for window in &windows {
                assert!(window.contains(&Point::BASE) && window.contains(&Point::Control));
                assert!((4..=MOST_POINTS + 2).contains(&window.len()), "{window:?}");
            }
            // Neighbours share one point.
            assert_eq!(windows.len(), (last - 1).div_ceil(MOST_POINTS - 1));
        }
    }

    #[test]
    fn points_apart_are_with_their_partners() {
        let mut points = steps(0..=20);
        points.extend([Point::Alone(3), Point::Without(5)]);
        let mut pairs = in_order(&points[..21]);
        pairs.push(BTreeSet::from([Point::BASE, Point::Alone(3)]));
        pairs.push(BTreeSet::from([
            Point::Without(5),
            Point::Step(4),
            Point::Step(5),
            Point::Step(20),
        ]));
        let windows = windows(&points, &pairs);
        for pair in &pairs {
            assert!(
                windows.iter().any(|w| pair.iter().all(|p| w.contains(p))),
                "{pair:?}"
            );
        }
        assert!(windows.iter().all(|window| window.len() <= MOST_POINTS + 2));
    }

    #[test]
    fn points_that_are_not_measured_do_not_matter() {
        let points = steps((0..=20).filter(|k| *k != 7));
        let mut pairs = in_order(&points);
        pairs.push(BTreeSet::from([Point::Step(6), Point::Step(7)]));
        let windows = windows(&points, &pairs);
        assert!(!windows.concat().contains(&Point::Step(7)));
    }
}
