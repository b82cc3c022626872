//! Results on standard output, progress and errors on standard error.

use std::io::{IsTerminal, Write};
use std::path::Path;

use serde::Serialize;

use super::Global;
use super::terminal::Terminal;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::progress::Progress;
use perfquilt_report::{fit_end, is_deceptive, width};

/// Where a command's words go.
pub struct Output {
    terminal: Terminal,
    color: bool,
    json: bool,
}

impl Output {
    /// Decides on colour and bars from the flags, the streams and `NO_COLOR`.
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
        Output {
            terminal: Terminal::new(columns, global.quiet),
            color,
            json: global.json,
        }
    }

    /// What the library reports progress to.
    pub fn progress(&self) -> &dyn Progress {
        &self.terminal
    }

    /// Whether results may be coloured.
    pub fn color(&self) -> bool {
        self.color
    }

    /// Whether standard output is a terminal.
    pub fn is_terminal(&self) -> bool {
        std::io::stdout().is_terminal()
    }

    /// Columns of standard output: the terminal's, else those of `COLUMNS`, else 80.
    pub fn width(&self) -> usize {
        columns(std::io::stdout())
    }

    /// Whether the user wants JSON.
    pub fn json(&self) -> bool {
        self.json
    }

    /// Prints `text` on standard output.
    ///
    /// # Errors
    /// [`Kind::Internal`] when it cannot be written; a closed pipe is the reader's right and ends
    /// quietly.
    pub fn print(&self, text: &str) -> Result<()> {
        let mut out = std::io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        match written {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(Error::internal(format!("cannot write the result: {error}")))
            }
            _ => Ok(()),
        }
    }

    /// Prints `value` as one JSON document on standard output.
    ///
    /// # Errors
    /// As [`Output::print`].
    pub fn print_json(&self, value: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_string_pretty(value)
            .map_err(|error| Error::internal(format!("cannot write JSON: {error}")))?;
        text.push('\n');
        self.print(&text)
    }

    /// Prints an error as `error: PLACE: MESSAGE`, its details and `hint: …`.
    pub fn error(&self, error: &Error) {
        let word = if error.kind() == Kind::Interrupted {
            String::new()
        } else {
            "error: ".to_owned()
        };
        self.terminal
            .line(&format!("{word}{}", plain(&error.to_string())));
        for line in error.detail_lines() {
            self.terminal.line(&format!("  {}", plain(line)));
        }
        if let Some(hint) = error.hint_text() {
            self.terminal.line(&format!("hint: {}", plain(hint)));
        }
    }

    /// What `done` says, where it was `told` to a file too: of two errors the first is the one the program ends
    /// with, and the other one is printed.
    ///
    /// # Errors
    /// That of `done`, else that of `told`.
    pub fn told<T>(&self, done: Result<T>, told: Result<()>) -> Result<T> {
        match (done, told) {
            (Ok(_), Err(error)) => Err(error),
            (Err(first), Err(error)) => {
                self.error(&error);
                Err(first)
            }
            (done, Ok(())) => done,
        }
    }

    /// Prints all `errors` but the last, which is the one the program ends with.
    ///
    /// # Errors
    /// The last of them.
    pub fn errors(&self, mut errors: Vec<Error>) -> Result<()> {
        let Some(last) = errors.pop() else {
            return Ok(());
        };
        errors.iter().for_each(|error| self.error(error));
        Err(last)
    }
}

/// Columns of the terminal behind `stream`, else those of `COLUMNS`, else 80.
fn columns(stream: impl rustix::fd::AsFd) -> usize {
    let terminal = rustix::termios::tcgetwinsize(stream)
        .ok()
        .map(|size| usize::from(size.ws_col));
    let given = || std::env::var("COLUMNS").ok()?.parse().ok();
    terminal
        .filter(|&columns| columns > 0)
        .or_else(given)
        .unwrap_or(80)
}

/// Compiler output and patch names are hostile text: nothing of theirs may steer the terminal, or show other
/// letters than it has.
pub fn plain(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\t' => c,
            c if c.is_control() || is_deceptive(c) => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// As [`plain`], of text that has several lines.
pub fn plain_lines(text: &str) -> String {
    text.split('\n').map(plain).collect::<Vec<_>>().join("\n")
}

/// At most `room` columns, the last of which then has a `…`; names and titles are hostile text.
pub fn cut(text: &str, room: usize) -> String {
    let text = fit_end(&plain(text), room);
    match text.strip_suffix('…') {
        Some(kept) => format!("{}…", kept.trim_end()),
        None => text.trim_end().to_owned(),
    }
}

/// `text` followed by blanks up to `room` columns.
pub fn pad(text: &str, room: usize) -> String {
    let blanks = room.saturating_sub(width(text));
    format!("{text}{}", " ".repeat(blanks))
}

/// A path as text, for a document: JSON has no other. What is not UTF-8 in it is replaced.
pub fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// `1 patch` or `3 patches`: so many of what is called `one` or `several`.
pub fn counted(count: usize, one: &str, several: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {several}"),
    }
}

/// `23.5 GiB`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_disarmed() {
        assert_eq!(plain("a\tb\u{1b}[2J\nc"), "a\tb\u{fffd}[2J\u{fffd}c");
        assert_eq!(plain("safe\u{202e}cc.exe"), "safe\u{fffd}cc.exe");
        assert_eq!(plain_lines("a\r\n\u{7}b\n"), "a\u{fffd}\n\u{fffd}b\n");
    }

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
