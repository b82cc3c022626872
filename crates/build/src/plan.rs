//! Weighs the steps of a ninja run by their duration in earlier runs, for a realistic ETA.

use std::collections::HashMap;

use super::ninja_log::NinjaLog;

/// Pending steps with their expected seconds.
#[derive(Debug, Default)]
pub(super) struct StepPlan {
    /// Seconds by the step's description.
    expected: HashMap<String, f64>,
    steps: u64,
    total: f64,
    done: f64,
}

impl StepPlan {
    /// Creates a plan from the step descriptions of a dry run and the durations of earlier runs. The expected time
    /// of a new step is the mean of the known ones.
    pub(super) fn new(steps: impl IntoIterator<Item = String>, log: &NinjaLog) -> StepPlan {
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
            return StepPlan::default();
        }
        let mean = measured.iter().sum::<f64>() / measured.len() as f64;
        // The log rounds short steps to 0.
        let expected: HashMap<String, f64> = known
            .into_iter()
            .map(|(step, seconds)| (step, seconds.unwrap_or(mean).max(0.001)))
            .collect();
        StepPlan {
            steps: expected.len() as u64,
            total: expected.values().sum(),
            expected,
            done: 0.0,
        }
    }

    /// Marks a step as done and returns the overall progress, scaled to `total` steps so that a progress bar
    /// shows ninja's numbers. `done` (of `total`) is ninja's own count.
    pub(super) fn advance(&mut self, step: &str, done: u64, total: u64) -> u64 {
        if let Some(seconds) = self.expected.remove(step) {
            self.done += seconds;
        }
        // A dry run does not see the steps of a build file that is about to be regenerated.
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
    fn without_history_steps_have_equal_weight() {
        let mut plan = StepPlan::new(["Building a.o".to_owned()], &NinjaLog::default());
        assert_eq!(plan.advance("Building a.o", 1, 4), 1);
    }

    #[test]
    fn a_plan_that_misses_most_steps_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let text = "# ninja log v5\n0\t9000\t1\tCMake...\ta\n";
        std::fs::write(folder.path().join(".ninja_log"), text).unwrap();
        let mut plan = StepPlan::new(
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
        let mut plan = StepPlan::new(steps.map(str::to_owned), &log);
        assert_eq!(plan.advance(steps[0], 1, 2), 0);
        assert_eq!(plan.advance(steps[1], 2, 2), 2);
        assert_eq!(plan.done, 10.0);
    }
}
