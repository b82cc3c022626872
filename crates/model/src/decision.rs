//! Maintainers' decisions on patches that are slower, as `bench-config/decisions.toml` keeps them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::comparable::{Comparable, Difference, Part};
use crate::point::Point;

/// What a maintainer decided about a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionKind {
    /// Known to be slower, and kept.
    Keep,
    /// Dropped at the next rebase.
    Drop,
}

/// A decision on a patch, bound to the programs and the workloads that were measured when it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatchDecision {
    /// The patch's name in the series.
    pub patch: String,
    /// What was decided.
    pub decision: DecisionKind,
    /// Why.
    pub reason: String,
    /// When (RFC 3339, UTC).
    pub decided: String,
    /// The release.
    pub release: String,
    /// The recipe.
    pub recipe: String,
    /// The identity of the program before the patch.
    pub before: String,
    /// The identity of the program with the patch.
    pub program: String,
    /// The digests of the workloads that it is about, by name.
    pub workloads: BTreeMap<String, String>,
}

impl PatchDecision {
    /// Returns whether it is about the patch `name` on this release, built with this recipe.
    pub fn is_of(&self, name: &str, release: &str, recipe: &str) -> bool {
        (&*self.patch, &*self.release, &*self.recipe) == (name, release, recipe)
    }

    /// Returns why it no longer holds for the patch of number `patch`: the first program or workload of `observed` that is
    /// not the one it is bound to. Workloads that were not observed do not matter.
    pub fn lapsed(&self, patch: usize, observed: &Comparable) -> Option<Difference> {
        let programs = [(patch - 1, &self.before), (patch, &self.program)];
        let programs = programs.map(|(step, program)| (Part::Program(Point::Step(step)), program));
        let workloads = self.workloads.iter();
        let workloads = workloads.map(|(name, digest)| (Part::Workload(name.clone()), digest));
        let workloads = workloads.filter(|(part, _)| observed.get(part).is_some());
        let bound = programs.into_iter().chain(workloads);
        let bound = bound.fold(Comparable::default(), |all, (part, value)| {
            all.with(part, value)
        });
        let now = observed.only(|part| bound.get(part).is_some());
        bound.difference(&now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_holds_for_its_programs_and_workloads_alone() {
        let decision = PatchDecision {
            patch: "a.patch".into(),
            decision: DecisionKind::Keep,
            reason: "a fix".into(),
            decided: String::new(),
            release: "toy-1".into(),
            recipe: "make".into(),
            before: "p1".into(),
            program: "p2".into(),
            workloads: [("load".to_owned(), "w".to_owned())].into(),
        };
        let program = |step| Part::Program(Point::Step(step));
        let load = Part::Workload("load".into());
        let observed = Comparable::default()
            .with(program(1), "p1")
            .with(program(2), "p2")
            .with(program(3), "p3")
            .with(Part::Workload("other".into()), "x");
        let lapsed = |observed: &Comparable| {
            let difference = decision.lapsed(2, observed);
            difference.map_or_else(String::new, |why| why.to_string())
        };
        assert_eq!(lapsed(&observed), "");
        assert_eq!(lapsed(&observed.clone().with(load.clone(), "w")), "");
        assert_eq!(
            lapsed(&observed.clone().with(load, "v")),
            "workload `load` `v` instead of `w`"
        );
        assert_eq!(
            lapsed(&observed.clone().with(program(1), "q")),
            "program of point 1 `q` instead of `p1`"
        );
        let unknown = observed.only(|part| *part != program(2));
        assert_eq!(
            lapsed(&unknown),
            "program of point 2 unknown instead of `p2`"
        );
    }
}
