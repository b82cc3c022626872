//! How a series fits upstream's commits, one after the other.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::mover::moved;
use super::{PatchStep, RebasedSeries, named_paths};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::Result;
use perfquilt_model::progress;
use perfquilt_model::rebase::{PatchReport, Status};
use perfquilt_series::series::Series;
use perfquilt_series::series::path::shown;
use perfquilt_series::upstream::{Objects, Release};

/// How a patch fits a commit, as far as a change of it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// It applies.
    Applies,
    /// The commit has it.
    Upstream,
    /// It needs a decision.
    Conflict,
    /// It depends on a patch that needs one.
    Untested,
}

impl Fit {
    fn of(patch: &PatchReport) -> Self {
        match patch.status {
            Status::Upstream => Fit::Upstream,
            Status::Changed | Status::Conflict => Fit::Conflict,
            Status::Untested => Fit::Untested,
            _ => Fit::Applies,
        }
    }
}

/// A series that is moved to commits of upstream's, without upstream's history as evidence: the same commit always gives
/// the same result.
pub struct FollowedSeries<'a> {
    /// The workspace.
    pub ws: &'a Workspace,
    /// The release that the series is for.
    pub from: &'a Release,
    /// The series.
    pub series: &'a Series,
    known: RefCell<BTreeMap<String, Vec<(Fit, String)>>>,
}

impl<'a> FollowedSeries<'a> {
    /// Returns the series, moved to no commit yet.
    pub fn new(ws: &'a Workspace, from: &'a Release, series: &'a Series) -> Self {
        FollowedSeries {
            ws,
            from,
            series,
            known: RefCell::default(),
        }
    }

    fn moved_to(&self, to: &Release) -> Result<(Vec<PatchReport>, Vec<PatchStep>)> {
        let objects = Objects::open(&self.ws.object_store())?;
        progress::silently(|| moved(self.ws, &objects, self.from, to, self.series, false))
    }

    /// Returns how each patch fits `to`, with the evidence.
    pub fn fits(&self, to: &Release) -> Result<Vec<(Fit, String)>> {
        if let Some(known) = self.known.borrow().get(&to.commit) {
            return Ok(known.clone());
        }
        let (patches, _) = self.moved_to(to)?;
        let fits = patches.iter();
        let fits: Vec<(Fit, String)> = fits
            .map(|patch| {
                let status = patch.status.to_string();
                let evidence = Some(&patch.evidence).filter(|of| !of.is_empty() && **of != status);
                let evidence = evidence.map(|of| format!("{status}: {of}"));
                (Fit::of(patch), evidence.unwrap_or(status))
            })
            .collect();
        self.known
            .borrow_mut()
            .insert(to.commit.clone(), fits.clone());
        Ok(fits)
    }

    /// Moves the series to `to`, to build it there.
    pub fn rebased(&self, to: &Release) -> Result<RebasedSeries> {
        let (patches, steps) = self.moved_to(to)?;
        Ok(RebasedSeries {
            report: super::report_of(self.from, to, patches),
            from: self.from.clone(),
            to: to.clone(),
            series: self.series.clone(),
            steps,
        })
    }

    /// Returns the paths that the patches name.
    pub fn paths(&self) -> BTreeSet<String> {
        let patches = self.series.patches().iter();
        let paths = patches.flat_map(named_paths);
        paths.map(|path| shown(&path)).collect()
    }
}

/// Finds the places in `0..=last` at which `state` changes: all of those in `likely`, and between two of these by bisection.
/// Returns each with the state before and at it.
pub fn changes<S: PartialEq + Clone>(
    last: usize,
    likely: &BTreeSet<usize>,
    state: &dyn Fn(usize) -> Result<S>,
) -> Result<Vec<(usize, S, S)>> {
    let mut found = Vec::new();
    let mut places: BTreeSet<usize> = likely.iter().copied().filter(|at| *at < last).collect();
    places.extend([0, last]);
    let places: Vec<usize> = places.into_iter().collect();
    for pair in places.windows(2) {
        let (low, high) = (pair[0], pair[1]);
        // The change is most likely at the upper end itself.
        let mut spans = vec![(low, state(low)?, high, state(high)?, high - 1)];
        while let Some((low, before, high, after, middle)) = spans.pop() {
            if before != after && high - low == 1 {
                found.push((high, before, after));
            } else if before != after {
                let between = state(middle)?;
                let upper = middle.midpoint(high);
                spans.push((middle, between.clone(), high, after, upper));
                spans.push((low, before, middle, between, low.midpoint(middle)));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn every_likely_place_and_changes_between_them_are_found() {
        let asked = Cell::new(0);
        let states = |changes: &'static [usize]| {
            move |at: usize| Ok(changes.iter().filter(|change| **change <= at).count() % 2)
        };
        let places = |last: usize, likely: &[usize], of: &'static [usize]| -> Vec<usize> {
            let state = |at: usize| {
                asked.set(asked.get() + 1);
                states(of)(at)
            };
            let likely = likely.iter().copied().collect();
            let found = changes(last, &likely, &state).unwrap();
            found
                .into_iter()
                .map(|(at, before, after)| {
                    assert_ne!(before, after);
                    at
                })
                .collect()
        };
        assert_eq!(places(200, &[], &[]), Vec::<usize>::new());
        assert_eq!(places(200, &[60, 120], &[60, 120]), [60, 120]);
        asked.set(0);
        assert_eq!(places(200, &[], &[77]), [77]);
        assert!(asked.get() < 14, "{}", asked.get());
        // A change that its file's name does not tell.
        assert_eq!(places(200, &[50, 150], &[99]), [99]);
        assert_eq!(places(1, &[1], &[1]), [1]);
    }
}
