//! How many blocks of each workload are measured: a section of the report.

use super::{Content, EVERYWHERE, Node, ReportSection, name, section, table};

/// It is the first one that a comment leaves out.
pub(super) const PROGRESS: ReportSection = ReportSection::new(EVERYWHERE, 13, progress);

fn progress(of: &Content<'_>) -> Vec<Node> {
    let progress = &of.view.attribution.progress;
    let table = table("Measured blocks", progress)
        .names("workload", |of| name(&of.workload))
        .words("meter", |of| of.meter.to_string())
        .figures("blocks", |of| of.done.to_string());
    let nodes = [table.node()];
    section(
        "progress",
        "Progress",
        nodes.into_iter().filter(|_| !progress.is_empty()),
    )
}
