//! The command line of perfquilt. ARCHITECTURE.md has the map of the crates behind it and their invariants.

pub mod cli;
