//! The report as text for a terminal.

use super::{ExportedReport, Exporter, ReportData};
use crate::report::terminal;
use perfquilt_model::error::Result;

/// The report as text, as wide as the terminal.
pub(super) struct Terminal;

impl Exporter for Terminal {
    fn name(&self) -> &'static str {
        "terminal"
    }

    fn help(&self) -> &'static str {
        "Table for a terminal"
    }

    fn export(&self, data: &ReportData<'_>) -> Result<ExportedReport> {
        let document = terminal(data.attribution, data.details);
        Ok(document.terminal(data.columns, data.color).into())
    }
}
