//! The observation file that a report was made from.

use super::{ExportedReport, Exporter, ReportData, RequiredInput};
use perfquilt_model::error::Result;

/// The raw observations, which `perfquilt analyse` reads (docs/json.md).
pub(super) struct Jsonl;

impl Exporter for Jsonl {
    fn name(&self) -> &'static str {
        "jsonl"
    }

    fn help(&self) -> &'static str {
        "Raw observations"
    }

    fn required_input(&self) -> RequiredInput {
        RequiredInput::Observations
    }

    fn export(&self, data: &ReportData<'_>) -> Result<ExportedReport> {
        let mut bytes = Vec::new();
        data.observations()?.write(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned().into())
    }
}
