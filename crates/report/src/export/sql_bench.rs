//! The tables of sql-bench.

use super::{ExportedReport, Exporter, ReportData};
use crate::sql_bench::sql_bench;
use perfquilt_model::error::Result;

/// Every operation as sql-bench prints it, and with intervals and verdicts.
pub(super) struct SqlBench;

impl Exporter for SqlBench {
    fn name(&self) -> &'static str {
        "sql-bench"
    }

    fn help(&self) -> &'static str {
        "Every operation of sql-bench's programs, as sql-bench prints them and with intervals and verdicts"
    }

    fn export(&self, data: &ReportData<'_>) -> Result<ExportedReport> {
        let text = sql_bench(data.attribution, data.recorded, data.columns, data.color)?;
        Ok(text.into())
    }
}
