//! The trees of points: the release with the first patches, with one patch alone, or without one.

use std::ops::Range;

use crate::TreePair;
use crate::transfer::{is_at_its_place, transfer};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::point::Point;
use perfquilt_series::series::Patch;
use perfquilt_series::stack::trial::TrialTree;
use perfquilt_series::stack::{Stack, applies, chain, oid};
use perfquilt_series::upstream::Objects;

/// The trees of a stack's points.
pub trait PointTrees {
    /// Returns the tree of a point. [`Point::Alone`] and [`Point::Without`] are applied on demand: each hunk goes where
    /// it is in the stack.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) for a point beyond the series,
    /// [`Kind::Series`](perfquilt_model::error::Kind::Series) when a patch cannot be separated from the others.
    fn tree(&self, point: Point) -> Result<String>;
}

impl PointTrees for Stack {
    fn tree(&self, point: Point) -> Result<String> {
        let patches = self.series.patches();
        match point {
            Point::Control | Point::Step(0) => Ok(self.release.tree.clone()),
            Point::Step(k) => self
                .steps
                .get(k - 1)
                .map(|step| step.tree.clone())
                .ok_or_else(|| beyond(self, k)),
            Point::Alone(k) => {
                let patch = self.series.patch(k).ok_or_else(|| beyond(self, k))?;
                tree_of(self, 0, k - 1..k).map_err(|error| {
                    let needs = needed_by(self, k);
                    not_separable(
                        patch,
                        k,
                        &error,
                        &match needs {
                            Some(j) => format!("it needs patch {j} ({})", patches[j - 1].name),
                            None => "it needs earlier patches".to_owned(),
                        },
                    )
                })
            }
            Point::Without(k) => {
                let patch = self.series.patch(k).ok_or_else(|| beyond(self, k))?;
                tree_of(self, k - 1, k..patches.len()).map_err(|error| {
                    let failed = patches
                        .iter()
                        .position(|p| error.location().is_some_and(|place| place.file == *p.shown));
                    not_separable(
                        patch,
                        k,
                        &error,
                        &match failed {
                            Some(j) => format!("needed by patch {} ({})", j + 1, patches[j].name),
                            None => "a later patch needs it".to_owned(),
                        },
                    )
                })
            }
        }
    }
}

/// Returns the tree of the first `first` patches with those of `others`, which stand later in the series.
fn tree_of(stack: &Stack, first: usize, others: Range<usize>) -> Result<String> {
    let store = Objects::open(&stack.store)?;
    let patches = stack.series.patches();
    let chosen: Vec<&Patch> = patches[..first]
        .iter()
        .chain(&patches[others.clone()])
        .collect();
    let steps = chain(&store, &stack.release, &chosen, stack.fuzz)?;
    let mut plain = after(stack, first);
    let mut is_plain = true;
    for (index, step) in others.clone().zip(&steps[first..]) {
        let reached = TreePair {
            before: plain.to_owned(),
            after: step.tree.clone(),
        };
        let patch = &patches[index];
        is_plain &= is_at_its_place(&store, patch, &trees(stack, index), &reached)?;
        plain = &step.tree;
    }
    if is_plain {
        return Ok(plain.to_owned());
    }
    // Context alone would put a hunk into other lines, or does not say where it belongs.
    let mut tree = after(stack, first).to_owned();
    let mut target = TrialTree::new(&store, &tree)?;
    for index in others {
        let (patch, own) = (&patches[index], trees(stack, index));
        tree = transfer(&store, patch, &own, &mut target, &tree, stack.fuzz)?.tree;
    }
    target.finish()?;
    Ok(tree)
}

/// Returns the tree after the first `count` patches.
fn after(stack: &Stack, count: usize) -> &str {
    match count.checked_sub(1) {
        Some(index) => &stack.steps[index].tree,
        None => &stack.release.tree,
    }
}

/// Returns the trees before and after the patch at `index`.
fn trees(stack: &Stack, index: usize) -> TreePair {
    TreePair {
        before: after(stack, index).to_owned(),
        after: after(stack, index + 1).to_owned(),
    }
}

/// Returns the latest earlier patch that patch `k` depends on: the last patch of the shortest prefix of the series
/// on which `k` applies.
fn needed_by(stack: &Stack, k: usize) -> Option<usize> {
    let patches = stack.series.patches();
    let store = Objects::open(&stack.store).ok()?;
    let release = oid(&stack.release.tree).ok()?;
    // Patch k applies after the first k - 1 patches and not without them; bisect the number it needs.
    let (mut without, mut with) = (0, k - 1);
    while with - without > 1 {
        let middle = (without + with) / 2;
        let mut trial: Vec<&Patch> = patches[..middle].iter().collect();
        trial.push(&patches[k - 1]);
        if applies(&store, release, &trial, stack.fuzz) {
            with = middle;
        } else {
            without = middle;
        }
    }
    (with > 0).then_some(with)
}

fn beyond(stack: &Stack, k: usize) -> Error {
    Point::beyond(&format!("patch {k}"), stack.steps.len())
}

fn not_separable(patch: &Patch, k: usize, cause: &Error, why: &str) -> Error {
    let error = Error::not_separable(format!(
        "patch {k} ({}) is not separable: {why}",
        patch.name
    ))
    .details([cause.to_string()]);
    match cause.location() {
        Some(place) => error.at(place.file.clone(), place.line),
        None => error,
    }
}
