//! A table of results as sql-bench's `compare-results --relative` prints it.

/// The workload that all rows are part of.
const WHOLE: &str = "TOTALS";

/// What a row is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// A program.
    Program,
    /// An operation of some program.
    Operation,
    /// All operations together.
    Total,
}

/// A row of a table whose first column is in seconds and whose others are relative to it.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedRow {
    /// What it is of.
    pub level: Level,
    /// The name of the program or operation.
    pub name: String,
    /// The number of SQL commands; `None` where the table tells none.
    pub commands: Option<u64>,
    /// Seconds of the first column.
    pub seconds: f64,
    /// The other columns, as parts of the first: below 1 is faster. `None` where a column lacks the row.
    pub relative: Vec<Option<f64>>,
}

impl RecordedRow {
    /// The name of the workload that the row's observations are of: programs and operations are parts of the
    /// whole.
    pub fn workload(&self) -> String {
        match self.level {
            Level::Total => WHOLE.to_owned(),
            // As the program is called, which no operation is.
            Level::Program => format!("{WHOLE}/test-{}", self.name),
            Level::Operation => format!("{WHOLE}/{}", self.name),
        }
    }
}
