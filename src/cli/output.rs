//! Results on standard output, progress and errors on standard error.

use std::io::{IsTerminal, Write};

use serde::Serialize;

use super::Global;
use super::terminal::Terminal;
use crate::error::{Error, Kind, Result};
use crate::progress::Progress;

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
        let columns = match interactive {
            true => Some(columns(std::io::stderr())),
            false => None,
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

/// Compiler output and patch names are hostile text: nothing of theirs may steer the terminal.
pub fn plain(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_control() && c != '\t' {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
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
    use super::size;

    #[test]
    fn sizes_are_readable() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(3 << 40), "3.0 TiB");
    }
}
