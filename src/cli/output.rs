//! Prints results on standard output, and progress and errors on standard error.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use super::Global;
use super::pager::{self, PagerStart};
use super::plain::plain;
use super::terminal::Terminal;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::progress;
use perfquilt_report::{Document, fit_end, width};

/// The output streams of a command.
pub struct Output {
    terminal: Arc<Terminal>,
    color: bool,
    json: bool,
    /// Whether long reports may go through a pager.
    pages: bool,
}

impl Output {
    /// Decides on colours and progress bars from the flags, the streams and `NO_COLOR`.
    pub fn new(global: &Global) -> Self {
        let interactive = std::io::stderr().is_terminal();
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let color = match global.color {
            clap::ColorChoice::Always => true,
            clap::ColorChoice::Never => false,
            clap::ColorChoice::Auto => std::io::stdout().is_terminal() && !no_color,
        };
        let columns = if interactive {
            Some(columns(std::io::stderr()))
        } else {
            None
        };
        let terminal = Arc::new(Terminal::new(columns, global.quiet));
        progress::report_to(terminal.clone());
        Output {
            terminal,
            color,
            json: global.json,
            pages: !global.no_pager && !global.json,
        }
    }

    /// Returns whether results may be coloured.
    pub fn color(&self) -> bool {
        self.color
    }

    /// Returns whether standard output is a terminal.
    pub fn is_terminal(&self) -> bool {
        std::io::stdout().is_terminal()
    }

    /// Returns the width of standard output in columns: the terminal's, else that of `COLUMNS`, else 80.
    pub fn width(&self) -> usize {
        columns(std::io::stdout())
    }

    /// Returns whether `--json` is given.
    pub fn json(&self) -> bool {
        self.json
    }

    /// Prints `text` on standard output. A pipe that the reader closed is no error.
    pub fn print(&self, text: &str) -> Result<()> {
        let mut out = std::io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        match written {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(Error::file(format!("cannot write the result: {error}")))
            }
            _ => Ok(()),
        }
    }

    /// Prints `text` like [`Output::print`], through the user's pager if it is longer than the terminal.
    pub fn page(&self, text: &str, start: PagerStart) -> Result<()> {
        if self.pages && pager::page(text, start) {
            return Ok(());
        }
        self.print(text)
    }

    /// Returns a document as a terminal shows it.
    pub fn terminal(&self, document: &Document) -> String {
        document.terminal(self.width(), self.color())
    }

    /// Prints `value` as one JSON document on standard output.
    pub fn print_json(&self, value: &impl Serialize) -> Result<()> {
        self.print(&json(value)?)
    }

    /// Prints a result: as the JSON document, if that is requested, or as the text.
    pub fn result(&self, json: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
        if self.json {
            self.print_json(json)
        } else {
            self.print(&text())
        }
    }

    /// Prints an error as `error: LOCATION: MESSAGE [CODE]`, its details and `hint: …`.
    pub fn error(&self, error: &Error) {
        let text = plain(&error.to_string());
        self.terminal.line(&if error.kind() == Kind::Interrupted {
            text
        } else {
            format!("error: {text} [{}]", error.code())
        });
        for line in error.detail_lines() {
            self.terminal.line(&format!("  {}", plain(line)));
        }
        if let Some(hint) = error.hint_text() {
            self.terminal.line(&format!("hint: {}", plain(hint)));
        }
    }

    /// Combines the result of the work, `done`, with that of writing it to a file, `written`. If both failed, the
    /// error of `written` is printed and that of `done` is returned.
    pub fn combine<T>(&self, done: Result<T>, written: Result<()>) -> Result<T> {
        match (done, written) {
            (Ok(_), Err(error)) => Err(error),
            (Err(first), Err(error)) => {
                self.error(&error);
                Err(first)
            }
            (done, Ok(())) => done,
        }
    }

    /// Prints all `errors` but the last, which is returned to end the program.
    pub fn errors(&self, mut errors: Vec<Error>) -> Result<()> {
        let Some(last) = errors.pop() else {
            return Ok(());
        };
        errors.iter().for_each(|error| self.error(error));
        Err(last)
    }
}

/// Returns the width in columns of the terminal behind `stream`, else that of `COLUMNS`, else 80.
fn columns(stream: impl rustix::fd::AsFd) -> usize {
    let terminal = rustix::termios::tcgetwinsize(stream)
        .ok()
        .map(|size| usize::from(size.ws_col));
    let given = || {
        std::env::var("COLUMNS")
            .ok()?
            .parse()
            .ok()
            .filter(|&columns| columns > 0)
    };
    terminal
        .filter(|&columns| columns > 0)
        .or_else(given)
        .unwrap_or(80)
}

/// Returns `text` in at most `room` columns, with a `…` where it was cut; control characters are replaced.
pub fn cut(text: &str, room: usize) -> String {
    let text = fit_end(&plain(text), room);
    match text.strip_suffix('…') {
        Some(start) => format!("{}…", start.trim_end()),
        None => text.trim_end().to_owned(),
    }
}

/// Pads `text` with blanks to `room` columns.
pub fn pad(text: &str, room: usize) -> String {
    let blanks = room.saturating_sub(width(text));
    format!("{text}{}", " ".repeat(blanks))
}

/// Returns a path as text for a JSON document; invalid UTF-8 is replaced.
pub fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Formats a number of bytes: `23.5 GiB`.
pub fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    if unit == "B" {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {unit}")
    }
}

/// Returns `value` as one JSON document.
pub fn json(value: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_string_pretty(value).map_err(Error::json)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutting_counts_columns_and_disarms() {
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("数据库", 6), "数据库");
        assert_eq!(cut("数据库", 5), "数据…");
        assert_eq!(pad("数据", 6), "数据  ");
        assert_eq!(cut("a\u{1b}[2J", 9), "a\u{fffd}[2J");
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(3 << 40), "3.0 TiB");
    }
}
