//! Text that grows line by line, for reports of plain tables.

use std::fmt::Write;

use super::text::wrap;

pub(super) const BOLD: &str = "\x1b[1m";
pub(super) const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

/// A report on a terminal.
pub(super) struct Page {
    /// Columns.
    pub(super) width: usize,
    /// Whether ANSI colours are allowed.
    pub(super) color: bool,
    pub(super) text: String,
}

impl Page {
    pub(super) fn line(&mut self, text: &str, style: &str) {
        let text = text.trim_end();
        let _ = match self.color && !style.is_empty() && !text.is_empty() {
            true => writeln!(self.text, "{style}{text}{RESET}"),
            false => writeln!(self.text, "{text}"),
        };
    }

    pub(super) fn paragraph(&mut self, text: &str) {
        for line in wrap(text, self.width) {
            self.line(&line, "");
        }
    }
}
