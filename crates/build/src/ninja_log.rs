//! Reads `.ninja_log`: the steps that ninja ran, when and for how long.

use std::collections::{HashMap, HashSet};
use std::path::Path;

/// The latest step that made an output. Times are milliseconds since the start of that ninja run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LogEntry {
    pub start: u64,
    pub end: u64,
    mtime: i128,
    command: u64,
}

/// The latest log entry of every output.
#[derive(Debug, Clone, Default)]
pub(super) struct NinjaLog {
    entries: HashMap<String, LogEntry>,
}

impl NinjaLog {
    /// Reads the log of a build tree. A missing log or one of an unknown format counts as empty, since only
    /// timings depend on it.
    pub(super) fn read(build: &Path) -> NinjaLog {
        std::fs::read(build.join(".ninja_log"))
            .map(|bytes| Self::parse(&String::from_utf8_lossy(&bytes)))
            .unwrap_or_default()
    }

    fn parse(text: &str) -> NinjaLog {
        // Versions 5 to 7 differ only in how the command's digest is computed.
        let known = ["# ninja log v5", "# ninja log v6", "# ninja log v7"];
        let mut lines = text.lines();
        if !lines.next().is_some_and(|first| known.contains(&first)) {
            return NinjaLog::default();
        }
        let entries = lines
            .filter_map(|line| {
                let mut fields = line.split('\t');
                let start = fields.next()?.parse().ok()?;
                let end = fields.next()?.parse().ok()?;
                let mtime = fields.next()?.parse().ok()?;
                let output = fields.next()?.to_owned();
                let command = u64::from_str_radix(fields.next()?, 16).ok()?;
                let entry = LogEntry {
                    start,
                    end,
                    mtime,
                    command,
                };
                Some((output, entry))
            })
            .collect();
        NinjaLog { entries }
    }

    /// Returns the seconds that the latest step for `output` took.
    pub(super) fn seconds(&self, output: &str) -> Option<f64> {
        let entry = self.entries.get(output)?;
        Some(entry.end.saturating_sub(entry.start) as f64 / 1000.0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the steps that ran between `before` and this log.
    pub(super) fn since(&self, before: &NinjaLog) -> Vec<(&str, LogEntry)> {
        self.entries
            .iter()
            .filter(|(output, entry)| before.entries.get(*output) != Some(*entry))
            .map(|(output, entry)| (output.as_str(), *entry))
            .collect()
    }
}

/// Time of one ninja run by kind of step.
#[derive(Debug, Default, PartialEq)]
pub(super) struct StepTimes {
    /// Wall-clock seconds of linking; while steps of both kinds ran in parallel, the time is divided by their
    /// number.
    pub link: f64,
    /// Wall-clock seconds of re-running CMake because its inputs changed.
    pub configure: f64,
    /// Object files and precompiled headers compiled.
    pub units: u64,
}

/// Attributes the wall-clock time of a run to the kinds of its steps `ran`; `is_link` recognises outputs of
/// linking.
pub(super) fn attribute(ran: &[(&str, LogEntry)], is_link: &dyn Fn(&str) -> bool) -> StepTimes {
    let mut times = StepTimes::default();
    // A step with several outputs has one entry for each.
    let mut seen = HashSet::new();
    let mut changes: Vec<(u64, i64, bool)> = Vec::new();
    for (output, entry) in ran {
        if is_unit(output) {
            times.units += 1;
        }
        if !seen.insert(*entry) {
            continue;
        }
        if *output == "build.ninja" {
            // ninja restarts its clock after this step.
            times.configure += entry.end.saturating_sub(entry.start) as f64 / 1000.0;
            continue;
        }
        let link = is_link(output);
        changes.push((entry.start, 1, link));
        changes.push((entry.end.max(entry.start), -1, link));
    }
    changes.sort_unstable_by_key(|&(time, step, _)| (time, step));
    let (mut linking, mut running, mut last) = (0_i64, 0_i64, 0_u64);
    for (time, step, link) in changes {
        if running > 0 {
            times.link += (time - last) as f64 / 1000.0 * linking as f64 / running as f64;
        }
        running += step;
        linking += if link { step } else { 0 };
        last = time;
    }
    times
}

/// Whether `output` is a compiled unit, by its extension.
pub(super) fn is_unit(output: &str) -> bool {
    let extension = Path::new(output).extension();
    extension.is_some_and(|e| e == "o" || e == "gch" || e == "pch")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "# ninja log v5\n0\t100\t1\ta.o\tab\n100\t200\t1\tapp\tac\n";

    #[test]
    fn the_latest_entry_counts() {
        let log = NinjaLog::parse(&format!("{BEFORE}5\t2005\t2\ta.o\tab\n"));
        assert_eq!(log.seconds("a.o"), Some(2.0));
        assert_eq!(log.seconds("b.o"), None);
        let ran = log.since(&NinjaLog::parse(BEFORE));
        assert_eq!(ran.len(), 1);
        assert_eq!(ran[0].0, "a.o");
    }

    #[test]
    fn unknown_formats_count_as_empty() {
        for text in ["", "# ninja log v99\n0\t1\t1\ta.o\tab\n", "garbage\u{0}"] {
            assert!(NinjaLog::parse(text).is_empty(), "{text}");
        }
        let torn = NinjaLog::parse("# ninja log v5\n0\t100\t1\ta.o\n7\n");
        assert!(torn.is_empty());
    }

    #[test]
    fn time_of_parallel_steps_is_shared() {
        // Compiling 0..4 s, linking 2..6 s: the link's share is 1 s of 2..4 and 2 s of 4..6.
        let log = NinjaLog::parse(
            "# ninja log v5\n0\t4000\t1\ta.o\ta\n2000\t6000\t1\tlibx.a\tb\n0\t500\t1\tbuild.ninja\tc\n",
        );
        let ran = log.since(&NinjaLog::default());
        let times = attribute(&ran, &|output| output == "libx.a");
        assert_eq!(
            times,
            StepTimes {
                link: 3.0,
                configure: 0.5,
                units: 1
            }
        );
    }

    #[test]
    fn one_step_with_two_outputs_counts_once() {
        let log = NinjaLog::parse("# ninja log v5\n0\t1000\t1\tapp\ta\n0\t1000\t1\tapp.map\ta\n");
        let ran = log.since(&NinjaLog::default());
        assert_eq!(attribute(&ran, &|_| true).link, 1.0);
    }
}
