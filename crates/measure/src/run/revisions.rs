//! The sources of a bisection's states.

use super::request::{BisectRequest, RevisionRange};
use super::{Prepared, build_item};
use perfquilt_build::BuildItem;
use perfquilt_judge::bisect::{Direction, NextCommand, Revision};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::point::Point;
use perfquilt_rebase::PointTrees;

/// Provides the states of a bisection and their sources.
pub trait Revisions {
    /// Returns the states.
    fn range(&self) -> &RevisionRange;

    /// Returns the build input of a state; makes its tree if necessary.
    ///
    /// # Errors
    /// [`Kind::Series`](perfquilt_model::error::Kind::Series) when the state has no sources: the series does not
    /// apply to it.
    fn item(&self, state: usize) -> Result<BuildItem>;

    /// Returns the hint for choosing another end of the range instead of `which` (`good` or `bad`), which
    /// cannot be measured.
    fn another_end(&self, which: &str) -> String {
        format!("name another one with `--{which}`")
    }

    /// Returns the commands to suggest after these changes were found with the settings `request`.
    fn next(&self, from: usize, to: usize, request: &BisectRequest) -> Vec<NextCommand>;
}

/// The points of a series from one to another.
#[derive(Debug)]
pub struct SeriesRevisions<'a> {
    prepared: &'a Prepared,
    version: Option<String>,
    good: usize,
    range: RevisionRange,
}

impl<'a> SeriesRevisions<'a> {
    /// Selects the points from `good` (by default the bare release) to `bad` (by default the whole series).
    /// `version` is the release the user named, if any.
    pub fn new(
        prepared: &'a Prepared,
        version: Option<&str>,
        good: Option<Point>,
        bad: Option<Point>,
    ) -> Result<Self> {
        let count = prepared.series.patches().len();
        let step = |point: Option<Point>, default: usize, what: &str| match point {
            None => Ok(default),
            Some(Point::Step(k)) if k <= count => Ok(k),
            Some(Point::Step(k)) => Err(Point::beyond(&format!("point {k} for --{what}"), count)),
            Some(other) => Err(Error::point(format!(
                "--{what} is a point of the series in order, not {other}"
            ))
            .hint("0 is the bare release, K the first K patches")),
        };
        let (good, bad) = (step(good, 0, "good")?, step(bad, count, "bad")?);
        if good > bad {
            return Err(Error::point(format!(
                "point {good} comes after point {bad} in the series"
            ))
            .hint(format!(
                "`--good {bad} --bad {good} --direction faster` finds the change that makes it faster from {bad} to \
                 {good}"
            )));
        }
        let patches = prepared.series.patches();
        let states = (good..=bad)
            .map(|k| {
                let patch = k.checked_sub(1).and_then(|index| patches.get(index));
                Ok(Revision {
                    label: k.to_string(),
                    name: patch
                        .map_or(&prepared.release.name, |patch| &patch.name)
                        .clone(),
                    title: patch.map_or(String::new(), |patch| patch.title.clone()),
                    tree: prepared.stack.tree(Point::Step(k))?,
                })
            })
            .collect::<Result<_>>()?;
        Ok(SeriesRevisions {
            prepared,
            version: version.map(str::to_owned),
            good,
            range: RevisionRange {
                release: prepared.release.name.clone(),
                noun: "patch",
                states,
            },
        })
    }
}

impl Revisions for SeriesRevisions<'_> {
    fn range(&self) -> &RevisionRange {
        &self.range
    }

    fn item(&self, state: usize) -> Result<BuildItem> {
        build_item(self.prepared, Point::Step(self.good + state))
    }

    fn next(&self, from: usize, to: usize, request: &BisectRequest) -> Vec<NextCommand> {
        let workload = &request.question.workload;
        let release = self
            .version
            .as_ref()
            .map_or(String::new(), |version| format!(" --release {version}"));
        // A patch that later ones stand on cannot be left out.
        let separable: Vec<usize> = (self.good + from + 1..=self.good + to)
            .filter(|&k| self.prepared.stack.tree(Point::Without(k)).is_ok())
            .collect();
        let points: String = separable.iter().map(|k| format!(" --point {k}")).collect();
        let at = |k: usize| match &self.version {
            Some(version) => format!("{version}:{k}"),
            None => k.to_string(),
        };
        let (first, last) = (self.good + from + 1, self.good + to);
        let which = if first == last {
            format!("patch {first}")
        } else {
            format!("patches {first} to {last}")
        };
        let mut next = Vec::new();
        if !separable.is_empty() {
            next.push(NextCommand {
                what: match separable.as_slice() {
                    [k] => format!("what the series is worth without patch {k}"),
                    _ => format!("what the series is worth without {which}, each by itself"),
                },
                command: format!(
                    "perfquilt run{release}{points} --effects without --workload {workload}{}",
                    request.with_preset()
                ),
            });
        }
        next.push(NextCommand {
            what: "in which functions the instructions differ".to_owned(),
            command: format!(
                "perfquilt profile {} {} --workload {workload}{}",
                at(self.good + from),
                at(self.good + to),
                request.with_recipe()
            ),
        });
        // Nobody mends a gain.
        if request.question.direction != Direction::Faster {
            next.push(NextCommand {
                what: format!(
                    "to mend or drop {which}: edit it as a git commit, then `perfquilt refresh`"
                ),
                command: format!("perfquilt edit{release}"),
            });
        }
        next
    }
}
