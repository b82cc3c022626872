//! Releases, series, and the stacks that a series makes of a release: parsing, applying, editing, rebasing.
//!
//! The only crate that knows git2.

pub mod edit;
pub mod import;
pub mod lint;
pub mod rebase;
pub mod series;
pub mod stack;
pub mod upstream;
