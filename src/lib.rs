//! The command line of perfquilt. ARCHITECTURE.md lists the crates behind it and their invariants; each crate's front
//! page has an example. From a series to a report:
//!
//! - `perfquilt_config` reads a workspace, `perfquilt_series` parses its series and applies it to a release;
//! - `perfquilt_build` builds servers, `perfquilt_bench` starts and loads them, `perfquilt_measure` plans experiments and
//!   carries them out;
//! - `perfquilt_store` keeps observations, `perfquilt_results` reads them, `perfquilt_judge` attributes effects to patches;
//! - `perfquilt_report` renders the result, `perfquilt_forge` posts it, and `perfquilt_bot` serves pull requests.
//!
//! # Example
//!
//! ```
//! use std::process::ExitCode;
//!
//! let arguments = ["perfquilt", "analyse", "docs/results/2026-11-21-mariadb-10.11.18.jsonl.gz", "--format", "csv"];
//! assert_eq!(perfquilt::cli::main(arguments.map(Into::into)), ExitCode::SUCCESS);
//! ```

pub mod cli;
