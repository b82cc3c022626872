//! Progress on a terminal: one bar a running step; plain lines when standard error is no terminal.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::progress::{Progress, Step};

/// Draws progress on standard error.
pub struct Terminal {
    bars: MultiProgress,
    interactive: bool,
    quiet: bool,
}

impl Terminal {
    /// `interactive` draws bars, otherwise steps are lines; `quiet` hides everything but warnings.
    pub fn new(interactive: bool, quiet: bool) -> Self {
        let target = if interactive && !quiet {
            ProgressDrawTarget::stderr_with_hz(8)
        } else {
            ProgressDrawTarget::hidden()
        };
        Terminal {
            bars: MultiProgress::with_draw_target(target),
            interactive,
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
        let bar = match total {
            Some(total) => ProgressBar::new(total),
            None => ProgressBar::no_length(),
        };
        bar.set_style(style(total.is_some()));
        bar.set_prefix(name.to_owned());
        let bar = self.bars.add(bar);
        bar.enable_steady_tick(Duration::from_millis(250));
        if !self.interactive && !self.quiet {
            self.line(&format!("{name} …"));
        }
        Box::new(Bar {
            bar,
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

fn style(sized: bool) -> ProgressStyle {
    let template = if sized {
        "{prefix} [{bar:20}] {pos}/{len} ETA {eta} {wide_msg}"
    } else {
        "{prefix} {spinner} {elapsed} {wide_msg}"
    };
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

struct Bar {
    bar: ProgressBar,
    bars: MultiProgress,
    visible: bool,
}

impl Step for Bar {
    fn update(&self, done: u64, total: Option<u64>, message: &str) {
        if let Some(total) = total
            && self.bar.length() != Some(total)
        {
            self.bar.set_length(total);
            self.bar.set_style(style(true));
        }
        self.bar.set_position(done);
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
