//! Results as text: a page of documentation, and a summary for the terminal.

use std::fmt::Write;

use super::{COVERAGE, Check, FALSE_POSITIVES, Family, Simulated, family, scenario};
use perfquilt_model::counted::percent;
use perfquilt_report::wrap;

impl Simulated {
    /// Returns the part of the page on simulated experiments. `scenarios` and `checks` are the file names of
    /// [`Simulated::scenarios`] and of [`Simulated::table`].
    pub fn markdown(&self, scenarios: &str, checks: &str) -> String {
        let mut page = format!(
            "## Simulated experiments\n\n\
             {} experiments in each of [{} scenarios]({scenarios}), with {} patches without effect and a control, judged as in \
             every report after {} to {} blocks, as soon as every interval is ±{} % or narrower. Restarts have a standard deviation \
             of {} %. {}, seed {}, {:.0} s on {} threads, version {}.\n\n",
            self.experiments,
            self.families.len(),
            scenario::PATCHES,
            perfquilt_config::DEFAULT_MIN_BLOCKS,
            family::BLOCKS,
            100.0 * family::RESOLUTION,
            100.0 * scenario::RESTART,
            self.date,
            self.seed,
            self.seconds,
            self.threads,
            self.version,
        );
        page.push_str(
            "| scenario | false claims | by hand | naive | coverage |\n|:--|--:|--:|--:|--:|\n",
        );
        for family in &self.families {
            let _ = writeln!(
                page,
                "| {} | {} |",
                family.scenario,
                family.shares().join(" | ")
            );
        }
        let limit = percent(FALSE_POSITIVES);
        let coverage = span(COVERAGE.0, COVERAGE.1);
        let _ = writeln!(
            page,
            "| *limits* | {limit} | {limit} | | {coverage} |\n\n\
             - *false claims*: experiments that call a patch faster or slower;\n\
             - *by hand*: the same if somebody looks after every block and stops at such a call;\n\
             - *naive*: by hand, with Student's test and without adjustment;\n\
             - *coverage*: 95 % intervals that contain the true effect."
        );
        let (faults, by_chance) = (self.faults(), self.outside_by_chance());
        let within = match by_chance.len() {
            0 => String::new(),
            count => format!(
                " Of all figures, {count} lie outside their limits by no more than chance explains (binomial distribution)."
            ),
        };
        let _ = writeln!(
            page,
            "\n[{} further promises]({checks}) have experiments and limits of their own.{within}",
            self.checks.len()
        );
        if !faults.is_empty() {
            let _ = writeln!(page, "\n**Outside the limits**: {}.", faults.join("; "));
        } else if by_chance.is_empty() {
            page.push_str("\nEvery figure is within its limits.\n");
        }
        page
    }

    /// Returns all scenarios as tab-separated values, one per line after a line of names.
    pub fn scenarios(&self) -> String {
        let mut table = "scenario\tdescription\tfalse claims\tby hand\tnaive\tcoverage\tcoverage of the total\t\
                         blocks\tall blocks used\n"
            .to_owned();
        for family in &self.families {
            let _ = writeln!(
                table,
                "{}\t{}\t{}\t{}\t{:.1}\t{}",
                family.scenario,
                family.description,
                family.shares().join("\t"),
                percent(family.coverage_total),
                family.blocks,
                percent(family.budget_used),
            );
        }
        table
    }

    /// Returns all checks as tab-separated values, one per line after a line of names.
    pub fn table(&self) -> String {
        let mut table = "simulated\tshare of\texperiments\tfound\tlimits\n".to_owned();
        for check in &self.checks {
            let (found, limits) = (percent(check.share), check.limits());
            let (name, what, experiments) = (&check.name, &check.what, check.experiments);
            let _ = writeln!(table, "{name}\t{what}\t{experiments}\t{found}\t{limits}");
        }
        table
    }
}

impl Family {
    /// Returns the shares of false claims, also by hand and naive, and the coverage.
    fn shares(&self) -> [String; 4] {
        [
            self.false_positives,
            self.false_positives_peeking,
            self.false_positives_naive,
            self.coverage,
        ]
        .map(percent)
    }
}

impl Check {
    /// Returns the limits of the share.
    fn limits(&self) -> String {
        span(self.least, self.most)
    }
}

/// Writes two shares, as in `0.0 % to 5.5 %`.
fn span(least: f64, most: f64) -> String {
    format!("{} to {}", percent(least), percent(most))
}

/// Width of a promise in columns: with its figure and the longest limits, a line has 80.
const NAME: usize = 53;

/// Returns the summary for a terminal: one line per scenario and per check, and the limits.
pub fn text(simulated: &Simulated) -> String {
    let mut text = format!(
        "{} experiments a scenario, seed {}, {:.0} s\n\n\
         scenario         false claims  by hand   naive  coverage  blocks\n",
        simulated.experiments, simulated.seed, simulated.seconds
    );
    for family in &simulated.families {
        let [claims, by_hand, naive, coverage] = family.shares();
        let _ = writeln!(
            text,
            "{:<16} {claims:>12} {by_hand:>8} {naive:>7} {coverage:>9} {:>7.1}",
            family.scenario, family.blocks,
        );
    }
    let _ = writeln!(text, "\n{:<NAME$} {:>7}  limits", "promise", "found");
    for check in &simulated.checks {
        let mut name = wrap(&check.name, NAME);
        let last = name.pop().unwrap_or_default();
        for line in name {
            let _ = writeln!(text, "{}", line.trim_end());
        }
        let limits = check.limits();
        let _ = writeln!(
            text,
            "{:<NAME$} {:>7}  {limits}",
            last.trim_end(),
            percent(check.share)
        );
    }
    let _ = writeln!(
        text,
        "\nLimits: false claims {}, coverage {:.0} to {:.0} %.",
        percent(FALSE_POSITIVES),
        100.0 * COVERAGE.0,
        100.0 * COVERAGE.1,
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_calibration_can_be_shown() {
        let simulated = super::super::simulated(10, 1, None).unwrap();
        let page = simulated.markdown("page-scenarios.tsv", "page-checks.tsv");
        for part in [
            "\n| restarts | ",
            "(page-scenarios.tsv)",
            "(page-checks.tsv)",
        ] {
            assert!(page.contains(part), "{part}");
        }
        let table = simulated.scenarios();
        assert!(table.contains("\nrestarts\t"), "{table}");
        assert_eq!(table.lines().count(), 1 + simulated.families.len());
        let table = simulated.table();
        assert!(table.contains("\n20 patches at the margin\t"), "{table}");
        assert_eq!(table.lines().count(), 1 + simulated.checks.len());
        assert!(text(&simulated).contains("everything"));
    }
}
