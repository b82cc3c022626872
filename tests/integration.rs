//! All integration tests, in one program: it is linked once, and its tests share the machine's cores.
//!
//! A new file of tests is a line here; `architecture` compares the list with the folder. The examples of CONTRIBUTING.md
//! (`contributing.rs`) stay apart, because they are written as modules of other crates.

// A test fails by panicking, runs the tool from outside, and says why it was skipped.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    missing_docs
)]

// What tests share.
mod common;
mod experiment;
mod forge;

mod accessibility;
mod architecture;
mod bisect_git;
mod bisect_toy;
mod bisect_upstream;
mod bot;
mod build;
mod bundle;
mod calibrate;
mod clean;
mod cluster_toy;
mod decisions;
mod docs;
mod docs_commands;
mod doctor;
mod edit;
mod exports;
mod forecast_toy;
mod format;
mod fresh_toy;
mod full_disk;
mod import;
mod init;
mod lint;
mod matrix;
mod outcome;
mod package;
mod page;
mod parity;
mod parity_formats;
mod parity_series;
mod peers;
mod pgo_toy;
mod post;
mod post_command;
mod profile;
mod rebase;
mod rebase_files;
mod reference;
mod results;
mod run_toy;
mod sandbox;
mod schema;
mod series;
mod servers_toy;
mod sql_bench;
mod stack_cache;
mod terminal;
mod test_toy;
mod unexecuted_toy;
mod upstream;
mod watch;
mod worktree;

// On real servers: `ci/e2e`.
#[cfg(feature = "e2e")]
mod e2e_fork;
#[cfg(feature = "e2e")]
mod e2e_mariadb;
#[cfg(feature = "e2e")]
mod e2e_own_patch;
#[cfg(feature = "e2e")]
mod e2e_slurm;
