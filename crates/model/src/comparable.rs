//! What values were observed of, and whether two of them may be compared.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::observation::ExperimentHeader;
use crate::point::Point;

/// The machine's fact that names the cluster which measured.
pub const CLUSTER: &str = "cluster";

/// The facts that make a class of machines: values of two classes are never combined.
const CLASS: [&str; 6] = [
    "processor",
    "cores",
    "kernel",
    "virtualisation",
    "scheduling",
    CLUSTER,
];

/// A part of what a value was observed of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Part {
    /// A fact of the machine, by name.
    Machine(String),
    /// The client, the adapter, and how each meter is read.
    Harness,
    /// The release whose data the servers have.
    Release,
    /// The recipe of the servers.
    Recipe,
    /// The settings and inputs of a workload.
    Workload(String),
    /// The seconds that a block measures a workload.
    Seconds(String),
    /// The program that ran as a point.
    Program(Point),
}

impl Part {
    /// Returns whether values of `workload` have this part, and those of other workloads another one.
    pub fn is_of(&self, workload: &str) -> bool {
        matches!(self, Part::Workload(name) | Part::Seconds(name) if name == workload)
    }

    /// Returns whether the header of an experiment has this part.
    pub fn is_in_header(&self) -> bool {
        !matches!(
            self,
            Part::Workload(_) | Part::Seconds(_) | Part::Program(_)
        )
    }

    /// Returns whether this part is the same for all values of an experiment.
    pub fn is_condition(&self) -> bool {
        match self {
            Part::Machine(fact) => CLASS.contains(&fact.as_str()),
            other => other.is_in_header(),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b' ');
        match self {
            Part::Machine(fact) if is_plain(fact) => f.write_str(fact),
            Part::Machine(fact) => f.write_str(&quoted(fact)),
            Part::Harness => f.write_str("harness"),
            Part::Release => f.write_str("release"),
            Part::Recipe => f.write_str("recipe"),
            Part::Workload(name) => write!(f, "workload {}", quoted(name)),
            Part::Seconds(name) => write!(f, "seconds of {}", quoted(name)),
            Part::Program(point) => write!(f, "program of point {point}"),
        }
    }
}

/// Quotes a text, which may be from an observation file of somebody else.
fn quoted(text: &str) -> String {
    format!("`{}`", text.replace('`', "'"))
}

/// What values were observed of, in named parts. Every key under which values are stored is a digest of it, and it alone
/// decides whether two values may be compared.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "Vec<(Part, String)>", into = "Vec<(Part, String)>")]
pub struct Comparable(BTreeMap<Part, String>);

impl From<Vec<(Part, String)>> for Comparable {
    fn from(parts: Vec<(Part, String)>) -> Self {
        Comparable(parts.into_iter().collect())
    }
}

impl From<Comparable> for Vec<(Part, String)> {
    fn from(parts: Comparable) -> Self {
        parts.0.into_iter().collect()
    }
}

impl Comparable {
    /// Returns the conditions in the header of an experiment.
    pub fn of(header: &ExperimentHeader) -> Self {
        let (release, recipe) = (&header.release, &header.recipe);
        Self::new(&header.machine, &header.harness, release, recipe).conditions()
    }

    /// Returns what was measured on `machine`, all of whose facts are parts, with `harness`, on servers of `release` built
    /// with `recipe`.
    pub fn new(
        machine: &BTreeMap<String, String>,
        harness: &str,
        release: &str,
        recipe: &str,
    ) -> Self {
        let machine = machine.iter();
        let machine = machine.map(|(name, fact)| (Part::Machine(name.clone()), fact.clone()));
        let others = [
            (Part::Harness, harness),
            (Part::Release, release),
            (Part::Recipe, recipe),
        ];
        let others = others.map(|(part, value)| (part, value.to_owned()));
        Comparable(machine.chain(others).collect())
    }

    /// Returns these parts with another one.
    #[must_use]
    pub fn with(mut self, part: Part, value: impl Into<String>) -> Self {
        self.0.insert(part, value.into());
        self
    }

    /// Returns these parts with those of `others`.
    #[must_use]
    pub fn and(mut self, others: Comparable) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Returns a part's value.
    pub fn get(&self, part: &Part) -> Option<&str> {
        self.0.get(part).map(String::as_str)
    }

    /// Returns the parts that `matter` to a question.
    #[must_use]
    pub fn only(&self, matter: impl Fn(&Part) -> bool) -> Self {
        let parts = self.0.iter().filter(|(part, _)| matter(part));
        Comparable(
            parts
                .map(|(part, value)| (part.clone(), value.clone()))
                .collect(),
        )
    }

    /// Returns the parts that all values of an experiment share: those of the class of machines, the harness, the release
    /// and the recipe.
    #[must_use]
    pub fn conditions(&self) -> Self {
        self.only(Part::is_condition)
    }

    /// Iterates over the programs by point.
    pub fn programs(&self) -> impl DoubleEndedIterator<Item = (Point, &str)> {
        self.0.iter().filter_map(|(part, program)| match part {
            Part::Program(point) => Some((*point, program.as_str())),
            _ => None,
        })
    }

    /// Iterates over the names of the workloads, with their parts.
    pub fn workloads(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|(part, value)| match part {
            Part::Workload(name) => Some((name.as_str(), value.as_str())),
            _ => None,
        })
    }

    /// Returns the first part in which values observed of `other` differ from those of these parts; `None` if they may be
    /// compared.
    pub fn difference(&self, other: &Comparable) -> Option<Difference> {
        self.differences(other).next()
    }

    /// Iterates over the parts that differ.
    pub fn differences<'a>(
        &'a self,
        other: &'a Comparable,
    ) -> impl Iterator<Item = Difference> + 'a {
        let parts: BTreeSet<&Part> = self.0.keys().chain(other.0.keys()).collect();
        let differ = parts
            .into_iter()
            .filter(|part| self.get(part) != other.get(part));
        differ.map(|part| Difference {
            part: part.clone(),
            ours: self.get(part).map(str::to_owned),
            theirs: other.get(part).map(str::to_owned),
        })
    }
}

/// One line a part.
impl fmt::Display for Comparable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = self.0.iter();
        parts.try_for_each(|(part, value)| writeln!(f, "{part} {value:?}"))
    }
}

/// A part in which two observations differ: why they cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The part.
    pub part: Part,
    /// Its value here; `None` if unknown.
    pub ours: Option<String>,
    /// Its value there, likewise.
    pub theirs: Option<String>,
}

/// A noun phrase: ``kernel `Linux 5.10` instead of `Linux 6.1` ``.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [theirs, ours] = [&self.theirs, &self.ours].map(|value| shown(value.as_deref()));
        write!(f, "{} {theirs} instead of {ours}", self.part)
    }
}

/// Quotes a value and shortens a digest; a part without a value is unknown.
fn shown(value: Option<&str>) -> String {
    match value.unwrap_or_default() {
        "" => "unknown".to_owned(),
        digest if digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit()) => {
            quoted(&digest[..12])
        }
        value => quoted(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(kernel: &str) -> Comparable {
        let machine = [("kernel", kernel), ("lanes", "2")];
        let machine = machine.map(|(name, fact)| (name.to_owned(), fact.to_owned()));
        Comparable::new(&machine.into(), "perfquilt 1", "toy-1", "make")
            .with(Part::Workload("load".into()), "d".repeat(64))
            .with(Part::Seconds("load".into()), "2")
            .with(Part::Program(Point::BASE), "p")
    }

    #[test]
    fn the_first_part_that_differs_is_named_with_both_values() {
        let here = observed("Linux 6");
        assert_eq!(here.difference(&here), None);
        let said = |other: &Comparable| here.difference(other).unwrap().to_string();
        assert_eq!(
            said(&observed("Linux 5")),
            "kernel `Linux 5` instead of `Linux 6`"
        );
        let edited = (Part::Workload("load".into()), "e".repeat(64));
        assert_eq!(
            said(&here.clone().with(edited.0, edited.1)),
            "workload `load` `eeeeeeeeeeee` instead of `dddddddddddd`"
        );
        let other = here.only(|part| *part != Part::Harness);
        assert_eq!(said(&other), "harness unknown instead of `perfquilt 1`");
        let hostile = here.clone().with(Part::Machine("<b>`".into()), "`@all`");
        assert_eq!(said(&hostile), "`<b>'` `'@all'` instead of unknown");
        let both = observed("Linux 5").with(Part::Recipe, "plain");
        assert_eq!(here.differences(&both).count(), 2);
    }

    #[test]
    fn conditions_are_those_of_every_value() {
        let here = observed("Linux 6");
        let many_lanes = here.clone().with(Part::Machine("lanes".into()), "8");
        let other_program = many_lanes.with(Part::Program(Point::BASE), "q");
        assert_eq!(here.conditions(), other_program.conditions());
        let longer = here.clone().with(Part::Seconds("load".into()), "4");
        let of = |observed: &Comparable, name: &str| observed.only(|part| part.is_of(name));
        assert_ne!(of(&here, "load"), of(&longer, "load"));
        assert_eq!(of(&here, "load"), of(&other_program, "load"));
        assert_eq!(of(&here, "other"), Comparable::default());
        assert_ne!(here.to_string(), longer.to_string());
    }
}
