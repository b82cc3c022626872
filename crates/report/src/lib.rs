//! Reports on attributions, bisections, rebases and profiles in several formats. The crate does no I/O.
//!
//! # Example
//!
//! ```
//! use perfquilt_judge::attribution::attribute;
//! use perfquilt_model::observation::{ExperimentHeader, Meter, Observation};
//! use perfquilt_report::{EXPORTERS, ReportData};
//!
//! let mut header = ExperimentHeader::new("toy-1.0", "make");
//! header.series = vec!["0001-fewer-rounds.patch".to_owned()];
//! // Nanoseconds a transaction: the release, the first patch, and the release again, in eight blocks.
//! let mut observations = Vec::new();
//! for block in 0..8 {
//!     let machine = f64::from(block * 5 % 8); // what the machine did to all points of the block
//!     let costs = [("0", 1000.0), ("1", 900.0 + f64::from(block % 3)), ("control", 1001.0)];
//!     for (order, (point, cost)) in costs.into_iter().enumerate() {
//!         observations.push(Observation {
//!             experiment: header.experiment.clone(),
//!             order: order as u32,
//!             n: 5000,
//!             ..Observation::new(block, point.parse()?, "requests", Meter::Time, cost + machine)
//!         });
//!     }
//! }
//!
//! let attribution = attribute(&header, &observations, &Meter::default_margin)?;
//! let data = ReportData::new(&attribution);
//! let markdown = EXPORTERS.iter().find(|exporter| exporter.name == "markdown").unwrap();
//! let report = markdown.export(&data)?.text;
//! assert!(report.contains("| faster |"), "{report}");
//! # Ok::<(), perfquilt_model::Error>(())
//! ```

pub mod bisect;
mod code_size;
mod comment;
pub mod comparison;
mod document;
mod escape;
mod export;
mod flame_graph;
mod functions;
pub mod history;
pub mod ledger;
mod legend;
pub mod matrix;
mod method;
mod next;
mod nouns;
mod number;
mod origin;
pub mod profile;
mod profile_guided;
pub mod rebase;
mod report;
mod sentences;
pub mod server_tests;
mod sql_bench;
mod tail;
#[cfg(test)]
mod tests;
mod text;
pub mod two_way;
mod view;
pub mod watch;

use perfquilt_judge::attribution::SUITE;

pub use comment::{Notice, PendingApproval, comment, hide};
pub use document::Document;
pub use document::frame::{Name, page, scroll};
pub use export::{EXPORTERS, ExportedReport, Exporter, JSON, ReportData, RequiredInput, TERMINAL};
pub use flame_graph::flame_graph;
pub use next::next_command;
pub use report::{BuiltServer, Distribution, built_servers};
pub use text::{capital, clean, fit, fit_end, is_deceptive, long, width, wrap};

/// Returns the display name of a workload.
fn workload_name(workload: &str) -> &str {
    match workload {
        SUITE => "all workloads",
        name => name,
    }
}
