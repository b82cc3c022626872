//! Decides whether observations of two experiments are comparable.

use std::collections::{BTreeMap, BTreeSet};

use super::lengths::LENGTH;
use super::plan::Reading;
use perfquilt_model::observation::ExperimentHeader;
use perfquilt_store::ExperimentIdentity;

/// The name, among the facts of a machine, of the cluster that measures.
pub(super) const CLUSTER: &str = "cluster";

/// The machine facts that affect observations.
const MACHINE_FACTS: [&str; 6] = [
    "processor",
    "cores",
    "kernel",
    "virtualisation",
    "scheduling",
    CLUSTER,
];

/// The conditions of an experiment's observations: machine, harness, settings and workloads. Servers are
/// compared one by one, since each effect has two of them.
#[derive(Debug, Clone, Copy)]
pub struct Fingerprint<'a> {
    machine: &'a BTreeMap<String, String>,
    harness: &'a str,
    recipe: &'a str,
    /// Release, recipe and length of a block.
    protocol: &'a str,
    workloads: &'a BTreeMap<String, String>,
}

impl<'a> Fingerprint<'a> {
    /// Returns the fingerprint of an experiment with this header and identity.
    pub fn of(header: &'a ExperimentHeader, identity: &'a ExperimentIdentity) -> Self {
        Fingerprint {
            machine: &header.machine,
            harness: &header.harness,
            recipe: &header.recipe,
            protocol: &identity.protocol,
            workloads: &identity.workloads,
        }
    }

    /// Returns why observations made under `earlier` do not hold here, as a fragment; `None` where they do.
    /// Ignores workloads.
    pub fn difference(self, earlier: Fingerprint<'_>) -> Option<String> {
        if let Some(machine) = self.other_machine(earlier) {
            return Some(machine);
        }
        if self.harness != earlier.harness {
            return Some(format!("measured with {}", earlier.harness));
        }
        (self.protocol != earlier.protocol).then(|| "measured with other settings".to_owned())
    }

    /// Returns whether both have the same workload called `name`.
    pub fn same_workload(self, earlier: Fingerprint<'_>, name: &str) -> bool {
        self.workloads.get(name) == earlier.workloads.get(name)
    }

    /// Returns the identity of a workload without the length of its blocks.
    fn work(self, name: &str) -> Option<&'a str> {
        let identity = self.workloads.get(name)?;
        identity.split(LENGTH).next()
    }

    /// Returns whether single blocks made under `earlier` are comparable: read by any of `harnesses`, on the
    /// same machine, with the same `workload`. The length of a block does not change the counts.
    pub fn accepts_blocks(
        self,
        earlier: Fingerprint<'_>,
        reading: Reading,
        workload: &str,
        harnesses: &BTreeSet<String>,
    ) -> bool {
        let same_settings = match reading {
            Reading::Timed => self.protocol == earlier.protocol,
            Reading::Counted => self.recipe == earlier.recipe,
        };
        let same_workload = match reading {
            Reading::Timed => self.same_workload(earlier, workload),
            Reading::Counted => self.work(workload) == earlier.work(workload),
        };
        same_settings
            && same_workload
            && harnesses.contains(earlier.harness)
            && self.other_machine(earlier).is_none()
    }

    /// Returns the first differing machine fact, as a fragment.
    fn other_machine(self, earlier: Fingerprint<'_>) -> Option<String> {
        let name = MACHINE_FACTS
            .into_iter()
            .find(|name| self.machine.get(*name) != earlier.machine.get(*name))?;
        let value = earlier.machine.get(name).map_or("unknown", String::as_str);
        Some(format!("{name} was {value}"))
    }
}

/// Returns the facts of `machine` that affect observations, with their names.
pub fn machine_facts(
    machine: &BTreeMap<String, String>,
) -> impl Iterator<Item = (&'static str, Option<&String>)> {
    MACHINE_FACTS
        .into_iter()
        .map(|name| (name, machine.get(name)))
}
