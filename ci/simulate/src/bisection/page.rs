//! Formats the results as a part of the page, and as a summary for the terminal.

use std::fmt::Write;

use super::{Bisections, DRIFT, Performance, RIGHT, Setting, VALUE_SD, VALUE_SECONDS};
use perfquilt_judge::bisect::{DEFAULT_ERROR, DEFAULT_SIZE};
use perfquilt_model::counted::percent;

impl Bisections {
    /// Returns the part of the page on bisections. `table` is the file name of [`Bisections::table`].
    pub fn markdown(&self, table: &str) -> String {
        let mut page = format!(
            "## Bisections\n\n\
             {} sessions in each of [{} cases]({table}), with culprits at random places and the noise of a real server: \
             {:.2} % a value, restarts and layouts included, and on a shared machine {:.0} % from run to run, which drops out \
             within blocks. perfquilt looks for {:.1} % or more (or the culprit's size, if less) at an error rate of {:.0} %. A \
             value takes {VALUE_SECONDS:.0} s; nothing is built before. Seed {}, {:.0} s on {} threads, version {}.\n\n",
            self.sessions,
            self.cases.len(),
            100.0 * VALUE_SD,
            100.0 * DRIFT,
            100.0 * DEFAULT_SIZE,
            100.0 * DEFAULT_ERROR,
            self.seed,
            self.seconds,
            self.threads,
            self.version,
        );
        let _ = write!(
            page,
            "Promised: at least {:.0} % of the sessions that name a change name nothing but culprits, and as many find a single \
             culprit, or say that there is none. ",
            100.0 * RIGHT,
        );
        match self.faults() {
            faults if faults.is_empty() => page.push_str("Every promise is kept.\n"),
            faults => {
                let _ = writeln!(page, "**Not kept:** {}.", faults.join("; "));
            }
        }
        page
    }

    /// Returns all cases as tab-separated values, one per line after a line of names.
    pub fn table(&self) -> String {
        let mut table =
            "machine\tchanges\tculprits\tright\tof\texact\tbenchmark\tbuilds\n".to_owned();
        for case in &self.cases {
            let culprits = case.setting.described_culprits();
            let cells = case.performance.cells().join("\t");
            let _ = writeln!(
                table,
                "{}\t{}\t{culprits}\t{cells}",
                case.machine, case.setting.changes
            );
        }
        table
    }

    /// Returns the summary for a terminal.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{} sessions a case, seed {}, {:.0} s\n\n",
            self.sessions, self.seed, self.seconds
        );
        for case in &self.cases {
            let _ = writeln!(
                text,
                "{}, {} changes, culprits: {}\n  {}",
                case.machine,
                case.setting.changes,
                case.setting.described_culprits(),
                case.performance.line(),
            );
        }
        text
    }
}

impl Performance {
    /// Returns the cells of a row of a table: right, named, exact, benchmark and builds.
    fn cells(&self) -> [String; 5] {
        [
            self.right.map_or("–".to_owned(), percent),
            percent(self.named),
            percent(self.exact),
            minutes(self.seconds),
            format!("{:.1}, {}", self.builds, self.builds_worst),
        ]
    }

    /// Returns a line for a terminal.
    fn line(&self) -> String {
        let [right, named, exact, time, _] = self.cells();
        let builds = self.builds;
        format!("right {right:>7} of {named:>7}  exact {exact:>7}  {time:>9}  {builds:>5.1} builds")
    }
}

impl Setting {
    /// Returns the number and size of culprits, as in `3 of 0.5 %`.
    fn described_culprits(&self) -> String {
        match self.culprits {
            0 => "none".to_owned(),
            count => format!("{count} of {}", percent(self.size)),
        }
    }
}

fn minutes(seconds: f64) -> String {
    match seconds / 60.0 {
        minutes if minutes < 10.0 => format!("{minutes:.1} min"),
        minutes => format!("{minutes:.0} min"),
    }
}
