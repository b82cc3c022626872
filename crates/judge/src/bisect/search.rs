//! Locates the change in a part of a changed span.

use super::judge::KNOWN_DEGREES_OF_FREEDOM;
use super::question::{Direction, Question};
use crate::stats::deviations;

/// A comparison of the parts of a span.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    /// Logs of costs of the states that divide the span, one row per unit.
    pub(super) rows: &'a [Vec<f64>],
    /// The parts that may contain the change: the others have the same server at both ends.
    pub(super) open: &'a [usize],
    /// The change of the whole span estimated from other blocks: the estimate (log of cost) and the number of
    /// blocks.
    pub(super) whole: Option<(f64, usize)>,
    /// Residual sum of squares and its degrees of freedom in earlier rounds.
    pub(super) spread: (f64, f64),
    /// The prior standard deviation of a log ratio, if it is known.
    pub(super) known_sd: Option<f64>,
}

/// The error probability of one decision on a part. Fresh blocks reveal a wrong decision, so it costs time
/// but never leads to a wrong result.
const WRONG_TURN: f64 = 0.01;

/// The least degrees of freedom of a usable variance estimate.
const LEAST_DEGREES_OF_FREEDOM: f64 = 6.0;

impl Parts<'_> {
    /// Returns the residual sum of squares after subtracting block and state effects in these rows, and its
    /// degrees of freedom.
    pub(super) fn residuals(&self) -> (f64, f64) {
        let Some(width) = self.rows.first().map(Vec::len) else {
            return (0.0, 0.0);
        };
        if self.rows.len() < 2 || width < 2 {
            return (0.0, 0.0);
        }
        let centred = centred(self.rows);
        let means = means(&centred);
        let squares = centred
            .iter()
            .flat_map(|row| row.iter().zip(&means))
            .map(|(value, mean)| (value - mean).powi(2))
            .sum();
        (squares, ((self.rows.len() - 1) * (width - 1)) as f64)
    }

    /// Returns the part that is far likelier than any other to contain the change, if there is one.
    ///
    /// Each part's fit of "one change of at least the size, here" to the states' means is a Gaussian log
    /// likelihood, maximised over the change. The ratio of the best to the next best reaches `(1 − ε)/ε` with
    /// probability at most ε if the former does not contain the change (Wald, *Sequential Analysis*, 1947).
    pub(super) fn likeliest(&self, question: &Question) -> Option<usize> {
        let (squares, degrees_of_freedom) = self.residuals();
        let (mut squares, mut degrees_of_freedom) =
            (squares + self.spread.0, degrees_of_freedom + self.spread.1);
        if let Some(sd) = self.known_sd {
            // The variance of one value is half the variance of a log ratio.
            squares += KNOWN_DEGREES_OF_FREEDOM * sd * sd / 2.0;
            degrees_of_freedom += KNOWN_DEGREES_OF_FREEDOM;
        }
        if degrees_of_freedom < LEAST_DEGREES_OF_FREEDOM || self.rows.is_empty() || squares <= 0.0 {
            return None;
        }
        let floor = self.known_sd.map_or(0.0, |sd| sd * sd / 2.0);
        let variance = (squares / degrees_of_freedom).max(floor);
        let means = means(&centred(self.rows));
        let n = self.rows.len() as f64;
        let mut fits: Vec<(f64, usize)> = self
            .open
            .iter()
            .map(|&part| (self.fit(&means, part, n, variance, question), part))
            .collect();
        fits.sort_by(|a, b| b.0.total_cmp(&a.0));
        let needed = ((1.0 - WRONG_TURN) / WRONG_TURN).ln() + (self.open.len() as f64 - 1.0).ln();
        match fits.as_slice() {
            [best, next, ..] if best.0 - next.0 >= needed => Some(best.1),
            _ => None,
        }
    }

    /// Returns the log likelihood of one change in `part`, up to a constant.
    fn fit(&self, means: &[f64], part: usize, n: f64, variance: f64, question: &Question) -> f64 {
        let (before, after) = means.split_at(part + 1);
        let average = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let (left, right) = (average(before), average(after));
        let squares = |values: &[f64], mean: f64| -> f64 {
            values.iter().map(|value| (value - mean).powi(2)).sum()
        };
        let rest = squares(before, left) + squares(after, right);
        // The loss of log likelihood for a change other than the best one, from these rows and from other
        // blocks.
        let sides = (before.len() * after.len()) as f64 / means.len() as f64;
        let here = (n * sides / (2.0 * variance), right - left);
        let other = self.whole.map_or((0.0, 0.0), |(estimate, blocks)| {
            (blocks as f64 / (4.0 * variance), estimate)
        });
        let best = (here.0 * here.1 + other.0 * other.1) / (here.0 + other.0);
        // Values are logs of costs: slower is more.
        let (slower, faster) = (question.loss(), -question.gain());
        let change = match question.direction {
            Direction::Slower => best.max(slower),
            Direction::Faster => best.min(faster),
            Direction::Both if best >= 0.0 => best.max(slower),
            Direction::Both => best.min(faster),
        };
        -(n * rest / (2.0 * variance)
            + here.0 * (change - here.1).powi(2)
            + other.0 * (change - other.1).powi(2))
    }
}

/// Returns the rows minus their block effects.
fn centred(rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
    rows.iter().map(|row| deviations(row)).collect()
}

fn means(rows: &[Vec<f64>]) -> Vec<f64> {
    let width = rows.first().map_or(0, Vec::len);
    (0..width)
        .map(|column| rows.iter().map(|row| row[column]).sum::<f64>() / rows.len() as f64)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bisect::tests::question;

    /// Simulates rows around `levels` with a standard deviation of 1 %, in blocks that differ much more.
    fn rows(levels: &[f64], n: usize) -> Vec<Vec<f64>> {
        use rand::SeedableRng;
        use rand::rngs::StdRng;
        let mut random = StdRng::seed_from_u64(3);
        let mut normal = move || crate::test_kit::sum_of_twelve(&mut random);
        (0..n)
            .map(|_| {
                let block = normal();
                levels
                    .iter()
                    .map(|level| block + level + 0.01 * normal())
                    .collect()
            })
            .collect()
    }

    fn likeliest(levels: &[f64], n: usize, open: &[usize]) -> Option<usize> {
        let rows = rows(levels, n);
        let parts = Parts {
            rows: &rows,
            open,
            whole: None,
            spread: (0.0, 0.0),
            known_sd: None,
        };
        parts.likeliest(&question(levels.len()))
    }

    #[test]
    fn a_change_is_found_in_its_part() {
        for part in 0..3 {
            let levels: Vec<f64> = (0..4)
                .map(|state| if state > part { 0.05 } else { 0.0 })
                .collect();
            assert_eq!(likeliest(&levels, 8, &[0, 1, 2]), Some(part));
        }
        // Small against the noise: not yet.
        assert_eq!(likeliest(&[0.0, 0.0, 0.004], 6, &[0, 1]), None);
        assert_eq!(
            likeliest(&[0.0, 0.05, 0.05], 2, &[0, 1]),
            None,
            "too few rows"
        );
    }

    #[test]
    fn of_two_changes_the_larger_one_goes_first() {
        assert_eq!(likeliest(&[0.0, 0.01, 0.04], 40, &[0, 1]), Some(1));
        assert_eq!(likeliest(&[0.0, 0.03, 0.04], 40, &[0, 1]), Some(0));
    }

    #[test]
    fn what_is_known_of_the_whole_helps() {
        let rows = rows(&[0.0, 0.006, 0.006], 12);
        let decide = |whole| {
            let parts = Parts {
                rows: &rows,
                open: &[0, 1],
                whole,
                spread: (0.0, 0.0),
                known_sd: None,
            };
            let question = question(3);
            let of = |part| parts.fit(&means(&centred(&rows)), part, 12.0, 1e-4, &question);
            of(0) - of(1)
        };
        assert!(decide(Some((0.006, 100))) > decide(None));
    }
}
