//! Events of a bisection, and rows of values for comparing states.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::outcome::{FileStat, NextCommand};
use crate::stats::Units;
use perfquilt_model::observation::FunctionChange;
use perfquilt_model::point::Point;

/// An event of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A state's server was built or found in the cache.
    Built {
        /// The state's index.
        state: usize,
        /// The server's identity: states with the same identity have the same server.
        identity: String,
        /// Seconds of building; 0 from the cache.
        seconds: f64,
        /// Whether the server came from the cache.
        cached: bool,
    },
    /// A state cannot be used.
    Unusable {
        /// The state's index.
        state: usize,
        /// The reason, in one line.
        reason: String,
        /// Whether its server was built and failed under the workload.
        crashed: bool,
    },
    /// Values of one block.
    Block(MeasuredBlock),
    /// All blocks of earlier experiments were imported; decisions wait for the last of them.
    Imported,
    /// Facts about a change beside its effect; decides nothing.
    Explained(Explanation),
}

/// Facts about a change that follow from its sources and servers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The last state without it.
    pub from: usize,
    /// The first state with it.
    pub to: usize,
    /// The files it changes.
    pub files: Vec<FileStat>,
    /// The functions whose own instructions it changed, largest change first; `None` if they were not
    /// counted.
    pub functions: Option<Vec<FunctionChange>>,
    /// The suggested next commands.
    pub next: Vec<NextCommand>,
}

/// One randomised block, whose servers were all started afresh.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredBlock {
    /// The earlier experiment that it is imported from; `None` for blocks of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The block's number in its source.
    pub number: u32,
    /// The cost per transaction, by state.
    pub values: BTreeMap<usize, f64>,
    /// Seeds of code layouts, by state; a missing state ran in the linker's order.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub layouts: BTreeMap<usize, u64>,
    /// Seconds of measuring; 0 for imported blocks.
    #[serde(default)]
    pub seconds: f64,
}

/// A block with logarithms of costs.
#[derive(Debug, Clone)]
struct EvidenceBlock {
    /// Number of earlier events.
    since: usize,
    block: MeasuredBlock,
}

/// All blocks of a session.
#[derive(Debug, Clone, Default)]
pub(super) struct Evidence {
    own: Vec<EvidenceBlock>,
    stored: Vec<EvidenceBlock>,
    /// States with values in earlier experiments.
    stored_states: BTreeSet<usize>,
    /// The first state with the same server, by state, if it is another one.
    same: BTreeMap<usize, usize>,
}

impl Evidence {
    /// Adds a block. An imported block that is added again, with more states known, replaces its earlier
    /// version.
    pub(super) fn add(&mut self, block: &MeasuredBlock, since: usize) {
        let mut block = block.clone();
        let values = &mut block.values;
        values.retain(|_, value| value.is_finite() && *value > 0.0);
        values.values_mut().for_each(|value| *value = value.ln());
        let entry = EvidenceBlock { since, block };
        if entry.block.source.is_none() {
            self.own.push(entry);
            return;
        }
        self.stored_states.extend(entry.block.values.keys());
        let (source, number) = (&entry.block.source, entry.block.number);
        let is_same = |old: &MeasuredBlock| old.number == number && old.source == *source;
        match self.stored.iter().position(|old| is_same(&old.block)) {
            Some(old) => self.stored[old] = entry,
            None => self.stored.push(entry),
        }
    }

    /// Returns whether earlier experiments have values of `state`.
    pub(super) fn is_stored(&self, state: usize) -> bool {
        self.stored_states.contains(&state)
    }

    /// Records that `state` has the same server as the earlier `first`.
    pub(super) fn same_server(&mut self, state: usize, first: usize) {
        self.same.insert(state, first);
    }

    /// Returns whether two states have the same server.
    pub(super) fn are_same(&self, a: usize, b: usize) -> bool {
        self.server_of(a) == self.server_of(b)
    }

    /// Returns the first state with the same server as `state`.
    pub(super) fn server_of(&self, state: usize) -> usize {
        self.same.get(&state).copied().unwrap_or(state)
    }

    /// Returns the logs of costs of `states`, one row per independent unit, from blocks that have all of
    /// them: all blocks, or those of the session from event `since` on.
    pub(super) fn rows(&self, states: &[usize], since: Option<usize>) -> Vec<Vec<f64>> {
        let mut rows = Vec::new();
        if since.is_none() {
            self.stored_rows(states, &mut rows);
        }
        let from = since.unwrap_or(0);
        // Blocks are in the order of events.
        let first = self.own.partition_point(|entry| entry.since < from);
        for entry in &self.own[first..] {
            rows.extend(self.row(entry, states));
        }
        rows
    }

    /// Returns the log of the cost of `state` in a block, which may be recorded under any state with the same
    /// server.
    fn value(&self, entry: &EvidenceBlock, state: usize) -> Option<f64> {
        let server = self.server_of(state);
        let values = &entry.block.values;
        let direct = values.get(&state).or_else(|| values.get(&server));
        direct.copied().or_else(|| {
            let others = self.same.iter().filter(|(_, first)| **first == server);
            others
                .filter_map(|(other, _)| values.get(other).copied())
                .next()
        })
    }

    fn row(&self, entry: &EvidenceBlock, states: &[usize]) -> Option<Vec<f64>> {
        states
            .iter()
            .map(|&state| self.value(entry, state))
            .collect()
    }

    /// Adds the rows of earlier experiments; blocks that share a layout of any of the states form one unit.
    fn stored_rows(&self, states: &[usize], rows: &mut Vec<Vec<f64>>) {
        let mut by_source: BTreeMap<Option<&str>, Vec<(&EvidenceBlock, Vec<f64>)>> =
            BTreeMap::new();
        for entry in &self.stored {
            if let Some(row) = self.row(entry, states) {
                by_source
                    .entry(entry.block.source.as_deref())
                    .or_default()
                    .push((entry, row));
            }
        }
        for blocks in by_source.into_values() {
            let mut units = Units::default();
            for (entry, _) in &blocks {
                for (&state, &layout) in &entry.block.layouts {
                    if states.contains(&state) {
                        units.note(entry.block.number, Point::Step(state), layout);
                    }
                }
            }
            let of_blocks = blocks
                .iter()
                .map(|(entry, row)| (entry.block.number, row.as_slice()));
            rows.extend(units.means_by_unit(of_blocks).into_values());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(source: &str, number: u32, values: &[(usize, f64)], layout: u64) -> MeasuredBlock {
        MeasuredBlock {
            source: (!source.is_empty()).then(|| source.to_owned()),
            number,
            values: values.iter().copied().collect(),
            layouts: values.iter().map(|(state, _)| (*state, layout)).collect(),
            seconds: 0.0,
        }
    }

    #[test]
    fn rows_are_of_blocks_that_have_all_states() {
        let mut evidence = Evidence::default();
        evidence.add(&block("", 0, &[(0, 1.0), (2, 2.0)], 0), 5);
        evidence.add(&block("", 1, &[(0, 1.0), (1, 3.0), (2, 2.0)], 0), 6);
        assert_eq!(evidence.rows(&[0, 2], None).len(), 2);
        assert_eq!(evidence.rows(&[0, 2], Some(6)).len(), 1);
        assert_eq!(evidence.rows(&[0, 1], None), [[0.0, 3f64.ln()]]);
        assert!(evidence.rows(&[0, 3], None).is_empty());
    }

    #[test]
    fn stored_blocks_that_share_layouts_are_one_and_come_again_with_more() {
        let mut evidence = Evidence::default();
        for (number, layout) in [(0, 7), (1, 7), (2, 8)] {
            evidence.add(&block("quick-1", number, &[(0, 1.0), (2, 2.0)], layout), 0);
        }
        assert_eq!(evidence.rows(&[0, 2], None).len(), 2);
        assert!(
            evidence.rows(&[0, 2], Some(0)).is_empty(),
            "only fresh ones"
        );
        let more = block("quick-1", 2, &[(0, 1.0), (1, 1.5), (2, 2.0)], 8);
        evidence.add(&more, 9);
        assert_eq!(evidence.rows(&[0, 2], None).len(), 2);
        assert_eq!(evidence.rows(&[0, 1, 2], None).len(), 1);
    }

    #[test]
    fn the_same_server_speaks_for_all_its_states() {
        let mut evidence = Evidence::default();
        evidence.add(&block("", 0, &[(0, 1.0), (1, 3.0)], 0), 0);
        evidence.same_server(2, 1);
        assert_eq!(evidence.rows(&[0, 2], None).len(), 1);
        assert!(evidence.are_same(1, 2) && !evidence.are_same(0, 2));
        evidence.add(&block("x", 0, &[(0, 1.0), (2, 3.0)], 0), 1);
        assert_eq!(evidence.rows(&[0, 1], None).len(), 2);
    }
}
