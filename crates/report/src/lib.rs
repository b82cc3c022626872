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
//!             schema: 1,
//!             experiment: header.experiment.clone(),
//!             block,
//!             order: order as u32,
//!             point: point.parse()?,
//!             layout: 0,
//!             workload: "requests".to_owned(),
//!             meter: Meter::Time,
//!             unit: Meter::Time.unit().to_owned(),
//!             value: cost + machine,
//!             n: 5000,
//!             direct: false,
//!             mean: None,
//!             slow: None,
//!             p99: None,
//!             stalled: None,
//!             lane: None,
//!             began: None,
//!             ended: None,
//!             machine: None,
//!         });
//!     }
//! }
//!
//! let attribution = attribute(&header, &observations, &Meter::default_margin)?;
//! let data = ReportData::new(&attribution);
//! let markdown = EXPORTERS.iter().find(|exporter| exporter.name() == "markdown").unwrap();
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
mod html;
mod legend;
mod method;
mod next;
mod nouns;
mod number;
mod origin;
mod page;
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

use perfquilt_judge::attribution::{MachineNoise, SUITE};
use perfquilt_model::observation::Conditions;

pub use comment::{Notice, PendingApproval, comment, hide};
pub use document::Document;
pub use document::frame::{Name, page, scroll};
pub use export::{EXPORTERS, ExportedReport, Exporter, JSON, ReportData, RequiredInput, TERMINAL};
pub use flame_graph::flame_graph;
pub use html::Distribution;
pub use next::next_command;
pub use text::{capital, clean, fit, fit_end, is_deceptive, long, width, wrap};

/// Returns the display name of a workload.
fn workload_name(workload: &str) -> &str {
    match workload {
        SUITE => "all workloads",
        name => name,
    }
}

/// Says which machines the intervals hold for, and by how much machines differ at most; `None` for a single machine.
fn describe_machines(machines: &[MachineNoise]) -> Option<String> {
    let first = machines.first()?;
    let count = first.machines.len();
    let whom = if first.units {
        format!(
            "{count} machines measured, and each counts as one value: intervals hold for machines of this class."
        )
    } else {
        let names: Vec<String> = first
            .machines
            .iter()
            .map(|of| text::clean(&of.machine))
            .collect();
        format!(
            "Intervals hold on these machines only ({}), with blocks as units; from six machines on they hold for the class.",
            names.join(", ")
        )
    };
    let widest = machines.iter().map(|of| of.between_sd).fold(0.0, f64::max);
    let smallest = machines.iter().map(|of| of.p_value).fold(1.0, f64::min);
    Some(format!(
        "{whom} From machine to machine a point varies by {}{} (p = {smallest:.2}).",
        if machines.len() > 1 { "at most " } else { "" },
        number::spread(widest),
    ))
}

/// Describes the conditions on the machine in a sentence; of several workloads, the worst values.
fn describe_conditions(conditions: &[Conditions]) -> Option<String> {
    let most = |of: fn(&Conditions) -> f64| conditions.iter().map(of).fold(0.0, f64::max);
    let share = |of: fn(&Conditions) -> f64| format!("{:.1} %", 100.0 * most(of));
    let pages: u64 = conditions.iter().map(|of| of.major_faults).sum();
    let at_most = match conditions.len() {
        0 => return None,
        1 => "",
        _ => "at most ",
    };
    let throttled = if most(|of| of.throttled.worst) > 0.0 {
        format!(
            " A processor quota stopped processes for {at_most}{} of the time ({} in the worst block).",
            share(|of| of.throttled.mean),
            share(|of| of.throttled.worst),
        )
    } else {
        String::new()
    };
    let standstills = match conditions.iter().map(|of| of.standstills).sum::<u64>() {
        0 => String::new(),
        1 => {
            " One block or round was measured again because a server, its client or the machine stood still."
                .to_owned()
        }
        more => format!(
            " Blocks or rounds were measured again {more} times because a server, its client or the machine stood still."
        ),
    };
    Some(format!(
        "Of the processor's time meanwhile, the hypervisor took {at_most}{} ({} in the worst block) \
         and {at_most}{} went unused. Interruptions of servers per second: {at_most}{:.0}; pages they \
         read from a disk: {pages}.{throttled}{standstills}",
        share(|of| of.steal.mean),
        share(|of| of.steal.worst),
        share(|of| of.idle.mean),
        most(|of| of.preempted),
    ))
}
