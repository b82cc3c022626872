//! What the functions of a server cost.

use std::collections::{BTreeMap, BTreeSet};

/// What a function costs a transaction, in instructions or whatever was sampled by, and calls of it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FunctionCosts {
    /// Its own cost, without that of what it calls.
    pub own: f64,
    /// With that of what it calls; from samples, of what was inlined into it alone. Calls of itself are counted
    /// once; in larger cycles, what is on the way round is counted more than once.
    pub inclusive: f64,
    /// Calls of it; none where it was inlined, and from samples.
    pub calls: f64,
}

/// What a transaction costs one server, by function.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CostTable {
    /// Everything.
    pub total: f64,
    /// By name.
    pub functions: BTreeMap<String, FunctionCosts>,
    /// The names that were, somewhere, inlined into another function.
    pub inlined: BTreeSet<String>,
    /// Calls and what they cost altogether, by the names of caller and callee.
    pub calls: BTreeMap<(String, String), FunctionCosts>,
    /// What inlined functions cost altogether, by the names of the function they were inlined into and their
    /// own.
    pub nested: BTreeMap<(String, String), f64>,
    /// Own cost by function, file and line; where lines are known.
    pub lines: BTreeMap<(String, String, u32), f64>,
}
