//! A builder of text reports for terminals.

use std::fmt::Write;

use super::text::wrap;

pub(super) const BOLD: &str = "\x1b[1m";
pub(super) const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

/// Text for a terminal, built line by line.
pub(super) struct TextPage {
    /// Width in columns.
    pub(super) width: usize,
    /// Whether ANSI colours are allowed.
    pub(super) color: bool,
    pub(super) text: String,
}

impl TextPage {
    pub(super) fn new(width: usize, color: bool) -> Self {
        TextPage {
            width,
            color,
            text: String::new(),
        }
    }

    pub(super) fn blank(&mut self) {
        self.text.push('\n');
    }

    pub(super) fn styled(&self, text: &str, style: &str) -> String {
        if self.color && !style.is_empty() && !text.is_empty() {
            format!("{style}{text}{RESET}")
        } else {
            text.to_owned()
        }
    }

    pub(super) fn line(&mut self, text: &str, style: &str) {
        let text = self.styled(text.trim_end(), style);
        let _ = writeln!(self.text, "{text}");
    }

    pub(super) fn paragraph(&mut self, text: &str, style: &str) {
        self.indented(text, 0, style);
    }

    pub(super) fn indented(&mut self, text: &str, indent: usize, style: &str) {
        for line in wrap(text, self.width.saturating_sub(indent)) {
            let line = self.styled(line.trim_end(), style);
            let _ = writeln!(self.text, "{:indent$}{line}", "");
        }
    }
}
