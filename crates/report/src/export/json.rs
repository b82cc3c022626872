//! The attribution document itself.

use super::{ExportedReport, Exporter, ReportData, indented_json};
use perfquilt_model::error::Result;

/// The attribution document, unrounded (docs/json.md).
pub(super) struct Json;

impl Exporter for Json {
    fn name(&self) -> &'static str {
        "json"
    }

    fn help(&self) -> &'static str {
        "Attribution document"
    }

    fn export(&self, data: &ReportData<'_>) -> Result<ExportedReport> {
        Ok(indented_json(data.attribution)?.into())
    }
}
