//! Difference in differences: the same patch on two releases, to find the source of a loss.
//!
//! Every block has four servers: each release without and with the patch. Comparisons are contrasts of log
//! costs within blocks, so values that two contrasts share are not counted twice.

use serde::{Deserialize, Serialize};

use super::bisector::{FIRST, REPEATS, TRUSTED, standard_deviation};
use super::judge::{Judgement, Sample};
use super::outcome::SessionCost;
use super::question::{Direction, Question};
use crate::stats::SpeedChange;

/// The number of servers in a block.
pub const CELLS: usize = 4;

/// A comparison of the four states of a [`Question`], in this order: the old release without and with the
/// patch, the new one without and with it.
#[derive(Debug, Clone)]
pub struct DifferenceInDifferences {
    question: Question,
    releases: [String; 2],
    /// Logs of costs, one row per block.
    rows: Vec<[f64; CELLS]>,
    cost: SessionCost,
}

/// The source of a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossSource {
    /// The patch is worth less on the new release, which is no slower by itself.
    Patch,
    /// The new release is slower by itself, and the patch is worth as much as before.
    Upstream,
    /// Both.
    Both,
    /// Neither: no loss of the size.
    Nobody,
    /// The allowed number of blocks does not decide.
    Undecided,
}

/// The result of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LossTable {
    /// Version of this document: 1.
    pub schema: u32,
    /// The question; its four states are the table's cells.
    pub question: Question,
    /// The old release and the new one.
    pub releases: [String; 2],
    /// The effect of the patch on each release.
    pub patch: [Option<SpeedChange>; 2],
    /// The effect of the new release against the old one, without and with the patch.
    pub release: [Option<SpeedChange>; 2],
    /// The effect of the patch on the new release minus its effect on the old one.
    pub difference: Option<SpeedChange>,
    /// The source of the loss.
    pub whose: LossSource,
    /// The cost of the comparison.
    pub cost: SessionCost,
}

/// Weights of the cells' log costs in a contrast; the contrast is positive if the later one is faster.
type Weights = [f64; CELLS];

const OLD_PATCH: Weights = [1.0, -1.0, 0.0, 0.0];
const NEW_PATCH: Weights = [0.0, 0.0, 1.0, -1.0];
const WITHOUT: Weights = [1.0, 0.0, -1.0, 0.0];
const WITH: Weights = [0.0, 1.0, 0.0, -1.0];
const DIFFERENCE: Weights = [-1.0, 1.0, 1.0, -1.0];

impl DifferenceInDifferences {
    /// Creates a comparison without blocks.
    pub fn new(question: Question, releases: [String; 2]) -> Self {
        DifferenceInDifferences {
            question,
            releases,
            rows: Vec::new(),
            cost: SessionCost::default(),
        }
    }

    /// Adds a block: the costs of all four states, the number of distinct servers, and the seconds of
    /// measuring.
    pub fn add(&mut self, costs: [f64; CELLS], servers: usize, seconds: f64) {
        if costs.iter().all(|cost| cost.is_finite() && *cost > 0.0) {
            self.rows.push(costs.map(f64::ln));
        }
        self.cost.blocks += 1;
        self.cost.values += u32::try_from(servers).unwrap_or(u32::MAX);
        self.cost.seconds += seconds;
    }

    /// Records that a server was built in `seconds`.
    pub fn built(&mut self, seconds: f64) {
        self.cost.builds += 1;
        self.cost.build_seconds += seconds;
    }

    /// Returns the number of blocks to measure before the next look; 0 at the end.
    pub fn wanted(&self) -> usize {
        let n = self.rows.len();
        if self.whose() != LossSource::Undecided || n >= self.question.most_blocks {
            return 0;
        }
        self.question.next_blocks(n, FIRST)
    }

    fn sample(&self, weights: Weights) -> Option<Sample> {
        let values: Vec<f64> = self
            .rows
            .iter()
            .map(|row| row.iter().zip(&weights).map(|(value, w)| value * w).sum())
            .collect();
        // The prior standard deviation refers to the log ratio of two servers.
        let servers = weights.iter().map(|weight| weight * weight).sum::<f64>();
        let known = self.question.known_sd.map(|sd| sd * (servers / 2.0).sqrt());
        let seen = standard_deviation(&values).filter(|_| values.len() >= REPEATS);
        let repeats = |sd: &f64| seen.is_some_and(|seen| seen <= TRUSTED * sd);
        Sample::of(&values, known.filter(repeats))
    }

    /// Tests for a loss at half the error rate, because there are two tests.
    fn judge(&self, weights: Weights) -> Judgement {
        let question = Question {
            direction: Direction::Slower,
            ..self.question.clone()
        };
        let error = self.question.error / 2.0;
        self.sample(weights).map_or(Judgement::Open, |sample| {
            sample.judge(&question, error, error)
        })
    }

    fn whose(&self) -> LossSource {
        use Judgement::{Changed, Open, Unchanged};
        match (self.judge(WITHOUT), self.judge(DIFFERENCE)) {
            (Open, _) | (_, Open) => LossSource::Undecided,
            (Changed, Changed) => LossSource::Both,
            (Changed, Unchanged) => LossSource::Upstream,
            (Unchanged, Changed) => LossSource::Patch,
            (Unchanged, Unchanged) => LossSource::Nobody,
        }
    }

    /// Returns the current result.
    pub fn table(&self) -> LossTable {
        let effect = |weights| {
            self.sample(weights)
                .map(|sample| sample.effect(self.question.error))
        };
        LossTable {
            schema: super::SCHEMA,
            question: self.question.clone(),
            releases: self.releases.clone(),
            patch: [OLD_PATCH, NEW_PATCH].map(effect),
            release: [WITHOUT, WITH].map(effect),
            difference: effect(DIFFERENCE),
            whose: self.whose(),
            cost: self.cost,
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::bisect::tests::question;

    /// Simulates blocks until the comparison is decided; `levels` are logs of costs.
    fn measured(levels: [f64; CELLS], noise: f64) -> LossTable {
        let mut random = StdRng::seed_from_u64(5);
        let mut normal = move || crate::test_kit::sum_of_twelve(&mut random);
        let mut all = DifferenceInDifferences::new(question(4), ["a-1".into(), "a-2".into()]);
        while all.wanted() > 0 {
            for _ in 0..all.wanted() {
                let block = normal();
                all.add(
                    levels.map(|level| (block + level + noise * normal()).exp()),
                    CELLS,
                    1.0,
                );
            }
        }
        all.table()
    }

    #[test]
    fn the_loss_is_told_to_be_the_patchs_or_upstreams() {
        for (levels, whose) in [
            ([0.0, -0.05, 0.0, -0.05], LossSource::Nobody),
            ([0.0, -0.05, 0.03, -0.02], LossSource::Upstream),
            ([0.0, -0.05, 0.0, 0.0], LossSource::Patch),
            ([0.0, -0.05, 0.03, 0.03], LossSource::Both),
            ([0.0, -0.05, -0.02, -0.09], LossSource::Nobody),
        ] {
            let table = measured(levels, 0.005);
            assert_eq!(table.whose, whose, "{levels:?}: {table:#?}");
            let difference = table.difference.unwrap();
            let truth = (levels[2] - levels[3] - levels[0] + levels[1]).exp_m1();
            assert!(
                (difference.estimate - truth).abs() < 0.006,
                "{difference:?}"
            );
        }
    }

    #[test]
    fn what_is_not_decided_is_said() {
        let table = measured([0.0, -0.05, 0.004, -0.05], 0.1);
        assert_eq!(table.whose, LossSource::Undecided);
        assert_eq!(table.cost.blocks, 400);
    }

    #[test]
    fn counts_that_repeat_are_decided_at_the_first_look() {
        let mut ask = question(4);
        ask.known_sd = Some(0.0005);
        let mut all = DifferenceInDifferences::new(ask, ["a-1".into(), "a-2".into()]);
        assert_eq!(all.wanted(), 4);
        for more in [0.0, 0.01, 0.02, 0.0] {
            all.add([100.0 + more, 95.0, 103.0, 97.85 + more], CELLS, 1.0);
        }
        assert_eq!((all.wanted(), all.table().whose), (0, LossSource::Upstream));
    }
}
