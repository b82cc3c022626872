//! What a ninja run will do and how long each step took last time, for an ETA that knows that not all
//! steps are alike.

use std::collections::HashMap;

use super::ninja_log::NinjaLog;

/// Steps to come with their expected seconds.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Seconds by the step's description.
    expected: HashMap<String, f64>,
    steps: u64,
    total: f64,
    done: f64,
}

impl Plan {
    /// From the descriptions a dry run lists and the durations of earlier runs. Steps that were never
    /// run are expected to take as long as the mean of those that were.
    pub(super) fn new(steps: impl IntoIterator<Item = String>, log: &NinjaLog) -> Plan {
        let known: Vec<(String, Option<f64>)> = steps
            .into_iter()
            .map(|step| {
                let seconds = step
                    .split_whitespace()
                    .next_back()
                    .and_then(|output| log.seconds(output));
                (step, seconds)
            })
            .collect();
        let measured: Vec<f64> = known.iter().filter_map(|(_, seconds)| *seconds).collect();
        if measured.is_empty() {
            return Plan::default();
        }
        let mean = measured.iter().sum::<f64>() / measured.len() as f64;
        // A step costs something even when the log's resolution says 0.
        let expected: HashMap<String, f64> = known
            .into_iter()
            .map(|(step, seconds)| (step, seconds.unwrap_or(mean).max(0.001)))
            .collect();
        Plan {
            steps: expected.len() as u64,
            total: expected.values().sum(),
            expected,
            done: 0.0,
        }
    }

    /// Notes that a step is done; gives how much of the whole is done, expressed in steps of `total`
    /// so that a bar shows familiar numbers. `done` (of `total`) is ninja's own count.
    pub(super) fn advance(&mut self, step: &str, done: u64, total: u64) -> u64 {
        if let Some(seconds) = self.expected.remove(step) {
            self.done += seconds;
        }
        // A dry run sees nothing of what a renewed build file will bring.
        let covers = self.steps >= total / 2;
        if !covers || self.total <= 0.0 || done >= total {
            return done;
        }
        let fraction = (self.done / self.total).clamp(0.0, 1.0);
        ((fraction * total as f64) as u64).min(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_history_steps_count_alike() {
        let mut plan = Plan::new(["Building a.o".to_owned()], &NinjaLog::default());
        assert_eq!(plan.advance("Building a.o", 1, 4), 1);
    }

    #[test]
    fn a_plan_that_misses_most_steps_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let text = "# ninja log v5\n0\t9000\t1\tCMake...\ta\n";
        std::fs::write(folder.path().join(".ninja_log"), text).unwrap();
        let mut plan = Plan::new(
            ["Re-running CMake...".to_owned()],
            &NinjaLog::read(folder.path()),
        );
        assert_eq!(plan.advance("Building C object a.o", 1, 10), 1);
    }

    #[test]
    fn long_steps_weigh_more() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(
            folder.path().join(".ninja_log"),
            "# ninja log v5\n0\t9000\t1\tlong.o\ta\n0\t1000\t1\tshort.o\tb\n",
        )
        .unwrap();
        let log = NinjaLog::read(folder.path());
        let steps = ["Building C object short.o", "Building C object long.o"];
        let mut plan = Plan::new(steps.map(str::to_owned), &log);
        assert_eq!(plan.advance(steps[0], 1, 2), 0);
        assert_eq!(plan.advance(steps[1], 2, 2), 2);
        assert_eq!(plan.done, 10.0);
    }
}
