//! Formats the comparisons as parts of a page.

use std::fmt::Write;

use crate::bisection::Case;
use crate::power::{self, EFFECTS, Power, RATE, VALUES};
use perfquilt_calibrate::bisection::{Machine, Setting, culprits, introduction};
use perfquilt_report::capital;

/// The text above the parts.
pub(crate) const INTRODUCTION: &str = "\
# Other projects' methods

This page compares perfquilt's decisions with those of other projects on the same simulated noise: rules that call a change of
speed, and ways to bisect a regression. `ci/peers` writes the parts of this page; its program, `crates/peers`, is a
developer's tool and no part of perfquilt. [calibration.md](calibration.md) tests perfquilt's own promises.
";

/// The conditions of a run.
#[derive(Debug)]
pub(crate) struct Conditions {
    /// The day, in UTC.
    pub(crate) date: String,
    pub(crate) seed: u64,
    pub(crate) seconds: f64,
}

impl Conditions {
    fn text(&self) -> String {
        format!(
            "{}, seed {}, {:.0} s on {} threads, version {}.",
            self.date,
            self.seed,
            self.seconds,
            rayon::current_num_threads(),
            env!("CARGO_PKG_VERSION"),
        )
    }
}

/// Returns the part on decision rules; `plot` is the file name of its drawing.
pub(crate) fn rules(
    powers: &[Power],
    comparisons: usize,
    conditions: &Conditions,
    plot: &str,
) -> String {
    let mut page = String::new();
    let _ = writeln!(
        page,
        "## Decision rules\n\n\
         All rules get the same values: {VALUES} a side, one of each side per block. Every rule gets the threshold \
         at which {:.1} % of comparisons without effect are called a change; the tables have the share of effects of a \
         known size that it then finds. *Own threshold*: false positives with the rule's default threshold. {comparisons} \
         comparisons without effect a machine, {} with each effect. {}\n",
        100.0 * RATE,
        power::with_effect(comparisons),
        conditions.text(),
    );
    for rule in powers.first().map_or(&[][..], |power| &power.rules) {
        let _ = writeln!(page, "- *{}*: {}.", rule.rule, rule.description);
    }
    let _ = writeln!(page, "\n![Share of effects found, by size]({plot})");
    for power in powers {
        let _ = writeln!(
            page,
            "\n**{}**: {}. Effects found:\n",
            capital(power.machine),
            power.description
        );
        page.push_str("| rule | own threshold |");
        for effect in EFFECTS {
            let _ = write!(page, " {:.1} % |", 100.0 * effect);
        }
        page.push_str("\n|:--|--:|");
        page.push_str(&"--:|".repeat(EFFECTS.len()));
        page.push('\n');
        for rule in &power.rules {
            let _ = write!(
                page,
                "| {} | {:.1} % |",
                rule.rule,
                100.0 * rule.false_positives
            );
            for found in &rule.found {
                let _ = write!(page, " {:.0} % |", 100.0 * found);
            }
            page.push('\n');
        }
    }
    page
}

/// The columns of a case's method.
const COLUMNS: [&str; 8] = [
    "changes",
    "culprits",
    "method",
    "right",
    "of",
    "exact",
    "benchmark",
    "builds",
];

/// Returns the rows of a case, with the cells of [`COLUMNS`].
fn rows(case: &Case) -> impl Iterator<Item = Vec<String>> {
    let setting = case.setting;
    case.methods.iter().map(move |(method, performance)| {
        let mut row = vec![
            setting.changes.to_string(),
            culprits(setting.culprits, setting.size),
            (*method).to_owned(),
        ];
        row.extend(performance.cells());
        row
    })
}

/// Returns every case of every machine, separated by tabs.
pub(crate) fn bisection_table(cases: &[Case]) -> String {
    let mut table = format!("machine\t{}\n", COLUMNS.join("\t"));
    for case in cases {
        for row in rows(case) {
            let _ = writeln!(table, "{}\t{}", case.setting.machine.name(), row.join("\t"));
        }
    }
    table
}

/// Whether the page shows the case: one culprit at most among 64 changes, where the machine's speed varies.
fn shown(setting: &Setting) -> bool {
    setting.machine == Machine::Shared && setting.changes == 64 && setting.culprits <= 1
}

/// Returns the part on methods of bisecting; `table` is the file name of [`bisection_table`].
pub(crate) fn bisections(
    cases: &[Case],
    sessions: usize,
    conditions: &Conditions,
    table: &str,
) -> String {
    let mut page = String::new();
    let _ = writeln!(
        page,
        "## Methods of bisecting\n\n{} The costs of a value are the same for all methods. {}\n\n\
         - *right*: of the sessions that name a change, those that name only culprits. *Of*: \
         the share of sessions that name one.\n\
         - *exact*: sessions that name the culprits, all of them and nothing else; without a culprit, those \
         that say so.\n\
         - *benchmark*: minutes a session, on average. *Builds*: servers built on average, and in the worst \
         of twenty sessions.\n\
         - *git bisect run*: the script measures a state once, or takes the mean of 5 runs, and compares it \
         with the middle between good and bad; if bad is not slower than good by half the given size, \
         it ends. *Mean of enough*: as many runs as are needed to be right in 99 %, with noise and size known \
         beforehand.\n\
         - *Pinpoint's rule*: 10 attempts, doubled up to 160 while the smaller p-value of Kolmogorov-Smirnov \
         and Mann-Whitney lies between 1 % and what a change of the size exceeds in 1 % of cases; the middle \
         between states that differ is tried next.\n",
        introduction(sessions),
        conditions.text(),
    );
    let _ = writeln!(
        page,
        "[All cases]({table}): three machines, 8 to 1024 changes, up to three culprits. Here those of 64 changes on {}, whose speed varies from run to run.\n\n\
         | {} |\n|--:|:--|:--|--:|--:|--:|--:|--:|",
        Machine::Shared.name(),
        COLUMNS.join(" | "),
    );
    for row in cases
        .iter()
        .filter(|case| shown(&case.setting))
        .flat_map(rows)
    {
        let _ = writeln!(page, "| {} |", row.join(" | "));
    }
    page.push('\n');
    page.push_str(
        "perfquilt compares states within blocks, where a shared machine's speed drops out; the other methods \
         compare runs at different times.\n",
    );
    page
}
