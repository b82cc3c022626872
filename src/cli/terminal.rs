//! Progress on a terminal: one bar a running step; plain lines when standard error is no terminal.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::progress::{Progress, Step};
use crate::report::fit;

/// Draws progress on standard error.
pub struct Terminal {
    bars: MultiProgress,
    columns: Option<usize>,
    quiet: bool,
}

impl Terminal {
    /// Draws bars on a terminal of so many columns, writes lines where there is none; `quiet` hides everything but
    /// warnings.
    pub fn new(columns: Option<usize>, quiet: bool) -> Self {
        let target = if columns.is_some() && !quiet {
            ProgressDrawTarget::stderr_with_hz(8)
        } else {
            ProgressDrawTarget::hidden()
        };
        Terminal {
            bars: MultiProgress::with_draw_target(target),
            columns,
            quiet,
        }
    }

    /// Writes a line on standard error without tearing a bar.
    #[allow(clippy::print_stderr)]
    pub fn line(&self, text: &str) {
        self.bars.suspend(|| eprintln!("{text}"));
    }
}

impl Progress for Terminal {
    fn begin(&self, name: &str, total: Option<u64>) -> Box<dyn Step> {
        // A bar draws itself as soon as it is told anything: first it must know where.
        let bar = self.bars.add(match total {
            Some(total) => ProgressBar::new(total),
            None => ProgressBar::no_length(),
        });
        let form = Form::of(self.columns.unwrap_or(80));
        bar.set_style(match total {
            Some(_) => form.counted(),
            None => form.open(),
        });
        bar.set_prefix(fit(name, form.name));
        bar.enable_steady_tick(Duration::from_millis(250));
        if self.columns.is_none() && !self.quiet {
            self.line(&format!("{name} …"));
        }
        Box::new(Bar {
            bar,
            form,
            bars: self.bars.clone(),
            visible: !self.quiet,
        })
    }

    fn note(&self, line: &str) {
        if !self.quiet {
            self.line(line);
        }
    }

    fn warn(&self, line: &str) {
        self.line(&format!("warning: {line}"));
    }
}

/// How steps are drawn in the room there is: a line each, whatever their names are.
#[derive(Debug, Clone, Copy)]
struct Form {
    /// Columns for the name of a step.
    name: usize,
    /// A bar and the time that is left besides numbers.
    wide: bool,
}

impl Form {
    fn of(columns: usize) -> Self {
        match columns {
            // Name, bar, numbers and time; what is left is for what is worked on now.
            60.. => Form {
                name: columns - 44,
                wide: true,
            },
            _ => Form {
                name: (columns / 2).max(8),
                wide: false,
            },
        }
    }

    /// Of known size.
    fn counted(self) -> ProgressStyle {
        style(match self.wide {
            true => "{prefix} [{bar:20}] {pos}/{len} ETA {eta} {wide_msg}",
            false => "{prefix} {pos}/{len} {wide_msg}",
        })
    }

    /// Of unknown size.
    fn open(self) -> ProgressStyle {
        style("{prefix} {spinner} {elapsed} {wide_msg}")
    }

    /// Of known time.
    fn foretold(self) -> ProgressStyle {
        style(match self.wide {
            true => "{prefix} [{bar:20}] {percent:>3} % {wide_msg}",
            false => "{prefix} {percent} % {wide_msg}",
        })
    }
}

/// The length of a bar whose share is known.
const THOUSANDTHS: u64 = 1000;

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

struct Bar {
    bar: ProgressBar,
    form: Form,
    bars: MultiProgress,
    visible: bool,
}

impl Step for Bar {
    fn update(&self, done: u64, total: Option<u64>, message: &str) {
        if let Some(total) = total
            && self.bar.length() != Some(total)
        {
            self.bar.set_length(total);
            self.bar.set_style(self.form.counted());
        }
        self.bar.set_position(done);
        self.bar.set_message(message.to_owned());
    }

    fn foretold(&self, share: f64, message: &str) {
        if self.bar.length() != Some(THOUSANDTHS) {
            self.bar.set_length(THOUSANDTHS);
            self.bar.set_style(self.form.foretold());
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        self.bar
            .set_position((share * THOUSANDTHS as f64).round() as u64);
        self.bar.set_message(message.to_owned());
    }

    #[allow(clippy::print_stderr)]
    fn finish(self: Box<Self>, summary: &str) {
        self.bar.finish_and_clear();
        if self.visible && !summary.is_empty() {
            self.bars.suspend(|| eprintln!("{summary}"));
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        self.bars.remove(&self.bar);
    }
}
