//! The nouns for points in reports: patches of a series, or servers that are no series.

use perfquilt_judge::attribution::Attribution;
use perfquilt_model::point::Point;

/// The nouns of a report.
#[derive(Debug)]
pub(super) struct Nouns {
    /// A point.
    pub(super) one: &'static str,
    /// Several points.
    pub(super) many: &'static str,
    /// Point 0.
    pub(super) base: &'static str,
    /// The last point.
    pub(super) last: &'static str,
    /// Title of the tables of the effects of each by itself.
    pub(super) separately: &'static str,
    without: &'static str,
}

const PATCHES: Nouns = Nouns {
    one: "patch",
    many: "patches",
    base: "the bare release",
    last: "the whole series",
    separately: "Each patch in order, alone on the bare release, and as the whole series against the series without it",
    without: "the series without patch",
};

const SERVERS: Nouns = Nouns {
    one: "server",
    many: "servers",
    base: "the base",
    last: "the last server",
    separately: "Each server against the base",
    without: "without",
};

impl Nouns {
    /// Returns the nouns of a document.
    pub(super) fn of(attribution: &Attribution) -> &'static Nouns {
        Self::of_points(attribution.is_of_servers())
    }

    /// Returns the nouns of servers that are no series, or of patches.
    pub(super) fn of_points(servers: bool) -> &'static Nouns {
        if servers { &SERVERS } else { &PATCHES }
    }

    /// Returns the display name of a point.
    pub(super) fn point(&self, point: Point) -> String {
        match point {
            Point::BASE => self.base.to_owned(),
            Point::Step(k) => format!("{} {k}", self.one),
            Point::Alone(k) => format!("{} {k} alone", self.one),
            Point::Without(k) => format!("{} {k}", self.without),
            Point::Control => "the control".to_owned(),
        }
    }
}

/// Returns the display name of a point of a series.
pub(super) fn point_name(point: Point) -> String {
    PATCHES.point(point)
}
