//! Shows progress on standard error: one bar per running step on a terminal, lines otherwise.

use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};

use super::plain::{plain, plain_lines};
use perfquilt_model::progress::{INTERIM_SECONDS, Progress, Step};
use perfquilt_model::warning::Warning;
use perfquilt_report::fit;

/// Draws progress on standard error.
pub struct Terminal {
    bars: MultiProgress,
    columns: Option<usize>,
    quiet: bool,
    /// The time between two interim lines: none on a terminal.
    interim_period: Duration,
    /// How many interim lines were written, and when the last one.
    interim: Mutex<(u32, Instant)>,
}

/// Interim lines that come at once, so that a log soon shows what to expect.
const FIRST: u32 = 3;

/// Returns the time between two later interim lines in a log: a minute, unless [`INTERIM_SECONDS`] gives another.
fn log_period() -> Duration {
    let given = std::env::var(INTERIM_SECONDS).ok();
    let seconds = given.and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(60))
}

impl Terminal {
    /// Draws bars on a terminal of `columns` columns, or writes lines without a terminal; `quiet` hides everything
    /// but warnings.
    pub fn new(columns: Option<usize>, quiet: bool) -> Self {
        let target = if columns.is_some() && !quiet {
            ProgressDrawTarget::term_like_with_hz(Box::new(Screen::default()), 8)
        } else {
            ProgressDrawTarget::hidden()
        };
        Terminal {
            bars: MultiProgress::with_draw_target(target),
            columns,
            quiet,
            interim_period: match columns {
                Some(_) => Duration::ZERO,
                None => log_period(),
            },
            interim: Mutex::new((0, Instant::now())),
        }
    }

    /// Writes one or several lines on standard error without tearing a bar.
    pub fn line(&self, text: &str) {
        line(&self.bars, text);
    }
}

/// Writes lines of untrusted text on standard error, with control characters replaced.
fn line(bars: &MultiProgress, text: &str) {
    let text = plain_lines(text);
    // A closed standard error must not end the work.
    bars.suspend(|| {
        let _ = writeln!(std::io::stderr(), "{text}");
    });
}

/// Standard error as a target for progress bars. It ignores write errors, for instance after the terminal was closed,
/// on which indicatif's own target would end the program.
#[derive(Debug, Default)]
struct Screen {
    /// The text to write at the next flush.
    pending: Mutex<String>,
}

impl Screen {
    fn size() -> Option<(u16, u16)> {
        let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok()?;
        (size.ws_row > 0 && size.ws_col > 0).then_some((size.ws_row, size.ws_col))
    }

    fn add(&self, text: &str) -> std::io::Result<()> {
        if let Ok(mut pending) = self.pending.lock() {
            pending.push_str(text);
        }
        Ok(())
    }

    /// Moves the cursor by `n` in `direction`, the letter of the escape sequence.
    fn cursor(&self, n: usize, direction: char) -> std::io::Result<()> {
        match n {
            0 => Ok(()),
            n => self.add(&format!("\x1b[{n}{direction}")),
        }
    }
}

impl TermLike for Screen {
    fn width(&self) -> u16 {
        Screen::size().map_or(80, |(_, columns)| columns)
    }

    fn height(&self) -> u16 {
        Screen::size().map_or(24, |(rows, _)| rows)
    }

    fn move_cursor_up(&self, n: usize) -> std::io::Result<()> {
        self.cursor(n, 'A')
    }

    fn move_cursor_down(&self, n: usize) -> std::io::Result<()> {
        self.cursor(n, 'B')
    }

    fn move_cursor_right(&self, n: usize) -> std::io::Result<()> {
        self.cursor(n, 'C')
    }

    fn move_cursor_left(&self, n: usize) -> std::io::Result<()> {
        self.cursor(n, 'D')
    }

    fn write_line(&self, text: &str) -> std::io::Result<()> {
        self.add(text)?;
        self.add("\n")
    }

    fn write_str(&self, text: &str) -> std::io::Result<()> {
        self.add(text)
    }

    fn clear_line(&self) -> std::io::Result<()> {
        self.add("\r\x1b[2K")
    }

    fn flush(&self) -> std::io::Result<()> {
        if let Ok(mut pending) = self.pending.lock() {
            let _ = std::io::stderr().write_all(pending.as_bytes());
            pending.clear();
        }
        Ok(())
    }
}

impl Progress for Terminal {
    fn begin(&self, name: &str, total: Option<u64>) -> Box<dyn Step> {
        let name = &plain(name);
        // A bar is added before it is configured, as every change draws it.
        let bar = self.bars.add(match total {
            Some(total) => ProgressBar::new(total),
            None => ProgressBar::no_length(),
        });
        let layout = BarLayout::fitting(self.columns.unwrap_or(80));
        bar.set_style(match total {
            Some(_) => layout.counted(),
            None => layout.open(),
        });
        bar.set_prefix(fit(name, layout.name));
        bar.enable_steady_tick(Duration::from_millis(250));
        if self.columns.is_none() && !self.quiet {
            self.line(&format!("{name} …"));
        }
        Box::new(Bar {
            bar,
            layout,
            bars: self.bars.clone(),
            visible: !self.quiet,
        })
    }

    fn note(&self, line: &str) {
        if !self.quiet {
            self.line(line);
        }
    }

    fn interim(&self, line: &str) {
        let interim = self.interim.lock();
        let mut interim = interim.unwrap_or_else(PoisonError::into_inner);
        let (written, last) = *interim;
        if written < FIRST || last.elapsed() >= self.interim_period {
            *interim = (written.saturating_add(1), Instant::now());
            self.note(line);
        }
    }

    fn warn(&self, warning: Warning) {
        self.line(&format!("warning: {warning}"));
    }
}

/// The layout of progress bars, each of which must fit into one line.
#[derive(Debug, Clone, Copy)]
struct BarLayout {
    /// Columns for the name of a step.
    name: usize,
    /// Whether there is room for a bar and the remaining time beside the numbers.
    wide: bool,
}

impl BarLayout {
    fn fitting(columns: usize) -> Self {
        match columns {
            // Bar, numbers and time take 44 columns; the message gets the rest.
            60.. => BarLayout {
                name: columns - 44,
                wide: true,
            },
            _ => BarLayout {
                name: (columns / 2).max(8),
                wide: false,
            },
        }
    }

    /// Returns the style of a step of known size.
    fn counted(self) -> ProgressStyle {
        style(if self.wide {
            "{prefix} [{bar:20}] {pos}/{len} ETA {eta} {wide_msg}"
        } else {
            "{prefix} {pos}/{len} {wide_msg}"
        })
    }

    /// Returns the style of a step of unknown size.
    fn open(self) -> ProgressStyle {
        style("{prefix} {spinner} {elapsed} {wide_msg}")
    }

    /// Returns the style of a step of predicted duration.
    fn predicted(self) -> ProgressStyle {
        style(if self.wide {
            "{prefix} [{bar:20}] {percent:>3} % {wide_msg}"
        } else {
            "{prefix} {percent} % {wide_msg}"
        })
    }
}

/// Length of the bar of a step of predicted duration.
const THOUSANDTHS: u64 = 1000;

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

struct Bar {
    bar: ProgressBar,
    layout: BarLayout,
    bars: MultiProgress,
    visible: bool,
}

impl Step for Bar {
    fn update(&self, done: u64, total: Option<u64>, message: &str) {
        if let Some(total) = total
            && self.bar.length() != Some(total)
        {
            self.bar.set_length(total);
            self.bar.set_style(self.layout.counted());
        }
        self.bar.set_position(done);
        self.bar.set_message(plain(message));
    }

    fn estimate(&self, share: f64, message: &str) {
        if self.bar.length() != Some(THOUSANDTHS) {
            self.bar.set_length(THOUSANDTHS);
            self.bar.set_style(self.layout.predicted());
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        self.bar
            .set_position((share * THOUSANDTHS as f64).round() as u64);
        self.bar.set_message(plain(message));
    }

    fn finish(self: Box<Self>, summary: &str) {
        self.bar.finish_and_clear();
        if self.visible && !summary.is_empty() {
            line(&self.bars, summary);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        self.bars.remove(&self.bar);
    }
}
