//! Tables of results in the format of sql-bench's `compare-results --relative`.

/// Name of the workload that contains all rows.
const WHOLE_WORKLOAD: &str = "TOTALS";

/// The level of aggregation of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowLevel {
    /// One program.
    Program,
    /// One operation of a program.
    Operation,
    /// All operations together.
    Total,
}

/// A table of results.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedTable {
    /// The headings of the columns after the first: servers, with the number of the run if there are several.
    pub columns: Vec<String>,
    /// The rows in the file's order.
    pub rows: Vec<RecordedRow>,
}

/// A row of a table whose first column is in seconds and whose others are relative to it.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedRow {
    /// The level of aggregation.
    pub level: RowLevel,
    /// The name of the program or operation.
    pub name: String,
    /// The number of SQL commands; `None` if the table has none.
    pub commands: Option<u64>,
    /// Seconds of the first column.
    pub seconds: f64,
    /// The other columns as ratios to the first: below 1 is faster. `None` where a column lacks the row.
    pub relative: Vec<Option<f64>>,
}

impl RecordedRow {
    /// Returns the workload's name for observations of this row. Programs and operations are parts of the whole
    /// workload.
    pub fn workload(&self) -> String {
        match self.level {
            RowLevel::Total => WHOLE_WORKLOAD.to_owned(),
            // The program's own name, which no operation has.
            RowLevel::Program => format!("{WHOLE_WORKLOAD}/test-{}", self.name),
            RowLevel::Operation => format!("{WHOLE_WORKLOAD}/{}", self.name),
        }
    }
}
