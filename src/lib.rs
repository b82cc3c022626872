//! The command line of perfquilt. ARCHITECTURE.md lists the crates behind it and their invariants.

pub mod cli;
