//! The report as Markdown.

use super::{ExportedReport, Exporter, ReportData};
use crate::report::whole;
use perfquilt_model::error::Result;

/// The report as GitHub-flavoured Markdown.
pub(super) struct Markdown;

impl Exporter for Markdown {
    fn name(&self) -> &'static str {
        "markdown"
    }

    fn help(&self) -> &'static str {
        "The same as Markdown, with noise, method and machine folded away"
    }

    fn export(&self, data: &ReportData<'_>) -> Result<ExportedReport> {
        Ok(whole(data.attribution, data.stored, None)?
            .markdown()
            .into())
    }
}
