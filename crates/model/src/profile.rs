//! Costs of a server's functions.

use std::collections::{BTreeMap, BTreeSet};

/// Cost of a function per transaction, in instructions or the sampled event, and the number of calls.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FunctionCosts {
    /// Exclusive cost, without callees.
    pub own: f64,
    /// Inclusive cost, with callees; in sampled profiles, only with functions inlined into it. Direct recursion is
    /// counted once; in longer cycles, functions on the cycle are counted more than once.
    pub inclusive: f64,
    /// Number of calls; 0 where it was inlined, and in sampled profiles.
    pub calls: f64,
}

/// Cost of a transaction on one server, by function.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CostTable {
    /// Total cost.
    pub total: f64,
    /// Cost of one sample; 0 if every event was counted.
    pub sample: f64,
    /// Costs by function name.
    pub functions: BTreeMap<String, FunctionCosts>,
    /// Names of functions that were inlined into another function somewhere.
    pub inlined: BTreeSet<String>,
    /// Calls and their total cost, by the names of caller and callee.
    pub calls: BTreeMap<(String, String), FunctionCosts>,
    /// Total cost of inlined functions, by the names of the enclosing and the inlined function.
    pub nested: BTreeMap<(String, String), f64>,
    /// Exclusive cost by function, file and line, where lines are known.
    pub lines: BTreeMap<(String, String, u32), f64>,
}
