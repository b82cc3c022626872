//! Formats the results as a part of the page, and as a summary for the terminal.

use std::fmt::Write;

use super::{Bisections, Case, DRIFT, Method, RIGHT, VALUE_SD, VALUE_SECONDS};
use perfquilt_judge::bisect::{DEFAULT_ERROR, DEFAULT_SIZE};
use perfquilt_report::capital;

impl Bisections {
    /// Returns the part of the page on bisections.
    pub fn markdown(&self) -> String {
        let mut page = String::new();
        let _ = writeln!(
            page,
            "## Bisections\n\n\
             {} sessions a case, with culprits at random places and the noise of a real server \
             ({:.2} % a value, restarts and layouts included). perfquilt looks for {:.1} % or more (for the \
             culprit's size where that is less) at an error rate of {:.0} %, and measures until everything is \
             decided. A value takes {VALUE_SECONDS:.0} s for everybody, start and warm-up included; nothing is \
             built before. Seed {}, {:.0} s on {} threads, version {}.\n",
            self.sessions,
            100.0 * VALUE_SD,
            100.0 * DEFAULT_SIZE,
            100.0 * DEFAULT_ERROR,
            self.seed,
            self.seconds,
            self.threads,
            self.version,
        );
        let _ = writeln!(
            page,
            "- *right*: of the sessions that name a change, those in which all that is named are culprits; at \
             least {:.0} % of perfquilt's must be. *Of*: the share of sessions that name one.\n\
             - *exact*: sessions that name the culprits, all of them and nothing else; without a culprit, those \
             that say so.\n\
             - *benchmark*: minutes a session, on average. *Builds*: servers built on average, and in the worst \
             of twenty sessions.\n\
             - *git bisect run*: the script measures a state once, or takes the mean of 5 runs, and compares it \
             with the middle between good and bad; where bad is not slower than good by half the size looked for, \
             it ends. *Mean of enough*: as many runs as it takes to be right in 99 %, with noise and size known \
             beforehand.\n\
             - *Pinpoint's rule*: 10 attempts, doubled up to 160 while the smaller p-value of Kolmogorov-Smirnov \
             and Mann-Whitney lies between 1 % and what a change of the size exceeds in 1 % of cases; the middle \
             between states that differ is tried next.\n",
            100.0 * RIGHT,
        );
        let mut machine = "";
        for case in &self.cases {
            if case.machine != machine {
                machine = case.machine;
                let _ = writeln!(
                    page,
                    "### On {machine}\n\n{}.\n\n\
                     | changes | culprits | method | right | of | exact | benchmark | builds |\n\
                     |--:|:--|:--|--:|--:|--:|--:|--:|",
                    capital(case.description)
                );
            }
            for (place, method) in case.methods.iter().enumerate() {
                let (changes, culprits) = match place {
                    0 => (case.changes.to_string(), culprits(case)),
                    _ => (String::new(), String::new()),
                };
                let _ = writeln!(
                    page,
                    "| {changes} | {culprits} | {} | {} | {} | {} | {} | {:.1}, {} |",
                    method.method,
                    right(method),
                    percent(method.named),
                    percent(method.exact),
                    minutes(method.seconds),
                    method.builds,
                    method.builds_worst,
                );
            }
            if self.cases.iter().rfind(|other| other.machine == machine) == Some(case) {
                page.push('\n');
            }
        }
        let _ = writeln!(
            page,
            "A shared machine's speed varies by {:.0} % from run to run. That hits all states of a block alike, \
             and drops out where states are compared within blocks.\n",
            100.0 * DRIFT
        );
        match self.faults() {
            faults if faults.is_empty() => page.push_str("Every promise is kept.\n"),
            faults => {
                let _ = writeln!(page, "**Not kept:** {}.", faults.join("; "));
            }
        }
        page
    }

    /// Returns the summary for a terminal.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{} sessions a case, seed {}, {:.0} s\n",
            self.sessions, self.seed, self.seconds
        );
        for case in &self.cases {
            let _ = writeln!(
                text,
                "\n{}, {} changes, {}",
                case.machine,
                case.changes,
                culprits(case)
            );
            for method in &case.methods {
                let _ = writeln!(
                    text,
                    "  {:<30} right {:>7} of {:>7}  exact {:>7}  {:>9}  {:>5.1} builds",
                    method.method,
                    right(method),
                    percent(method.named),
                    percent(method.exact),
                    minutes(method.seconds),
                    method.builds,
                );
            }
        }
        text
    }
}

fn culprits(case: &Case) -> String {
    match case.culprits {
        0 => "none".to_owned(),
        count => format!("{count} of {:.1} %", 100.0 * case.size),
    }
}

fn right(method: &Method) -> String {
    method.right.map_or("–".to_owned(), percent)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn minutes(seconds: f64) -> String {
    match seconds / 60.0 {
        minutes if minutes < 10.0 => format!("{minutes:.1} min"),
        minutes => format!("{minutes:.0} min"),
    }
}
