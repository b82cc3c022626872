//! Narrows a changed span down to a change.

use std::collections::BTreeSet;

use super::super::judge::{Judgement, Sample};
use super::super::outcome::{DecisionKind, NarrowingReason};
use super::super::search::Parts;
use super::{Action, Bisector, FIRST, NarrowingSearch, ServerState};

/// The number of unusable states after which a span counts as indivisible.
const TRIED: usize = 16;

/// The largest number of available states that divide a span: with servers at both ends, three intermediate
/// states need the fewest starts per bit of information.
const MIDDLES: usize = 3;

impl Bisector {
    /// Narrows a changed span down by one step. Returns `None` if there is another decision to make at once.
    pub(super) fn narrow(&mut self, mut search: NarrowingSearch) -> Option<Action> {
        let (from, to) = (search.from, search.to);
        if [from, to]
            .map(|end| &self.servers[end])
            .contains(&&ServerState::Dead)
        {
            // The end crashed in the meantime: the enclosing span is tested and searched again without it.
            return None;
        }
        if to - from == 1 {
            self.name(from, to, None);
            return None;
        }
        search
            .middles
            .retain(|&middle| self.servers[middle] != ServerState::Dead);
        if search.middles.is_empty() {
            search.middles = self.middles(from, to);
        }
        if search.middles.is_empty() {
            let states = to - from - 1;
            let tried = self.dead_between(from, to);
            let reason = if tried < states {
                format!("{tried} of the {states} states between were tried, and none can be used")
            } else if states == 1 {
                "the state between cannot be used".to_owned()
            } else {
                format!("none of the {states} states between can be used")
            };
            self.name(from, to, Some(reason));
            return None;
        }
        let mut states = vec![from];
        states.extend(&search.middles);
        states.push(to);
        let rows = self.evidence.rows(&states, None);
        if let Some(&unknown) = states
            .iter()
            .find(|&&state| self.servers[state] == ServerState::Unknown)
            && rows.len() < FIRST
        {
            self.search = Some(search);
            return Some(Action::Build { state: unknown });
        }
        let open: Vec<usize> = (0..states.len() - 1)
            .filter(|&part| !self.evidence.are_same(states[part], states[part + 1]))
            .collect();
        if let [only] = open.as_slice() {
            self.turn(&states, *only, NarrowingReason::OnlyOne);
            return None;
        }
        let small = open.iter().all(|&part| self.is_small(&rows, part));
        if let Some((part, why)) = self.part(&states, &rows, &open).filter(|_| !small) {
            let (squares, degrees_of_freedom) = Parts {
                rows: &rows,
                open: &open,
                whole: None,
                spread: (0.0, 0.0),
                known_sd: None,
            }
            .residuals();
            self.spread.0 += squares;
            self.spread.1 += degrees_of_freedom;
            self.turn(&states, part, why);
            return None;
        }
        if small {
            let reason = "it is the sum of smaller changes: no part of it has a change of the size";
            self.name(from, to, Some(reason.to_owned()));
            return None;
        }
        if rows.len() >= self.question.most_blocks {
            self.note(DecisionKind::Undecided(self.measured(from, to, None)));
            let reason = format!(
                "{} blocks did not decide which part of it contains the change",
                rows.len()
            );
            self.name(from, to, Some(reason));
            return None;
        }
        self.search = Some(search);
        Some(self.measure(states.into_iter().collect(), rows.len()))
    }

    /// Returns whether a part of a changed span has no change of the size by itself.
    fn is_small(&self, rows: &[Vec<f64>], part: usize) -> bool {
        let ratios: Vec<f64> = rows.iter().map(|row| row[part] - row[part + 1]).collect();
        Sample::of(&ratios, self.known_sd()).is_some_and(|sample| {
            let error = self.question.error / 10.0;
            sample.judge(&self.question, error, error) == Judgement::Unchanged
        })
    }

    /// Returns the part to search next, if it is clear.
    fn part(
        &self,
        states: &[usize],
        rows: &[Vec<f64>],
        open: &[usize],
    ) -> Option<(usize, NarrowingReason)> {
        let (known_sd, error) = (self.known_sd(), self.question.error);
        let loss = |part: usize| -> Vec<f64> {
            rows.iter().map(|row| row[part] - row[part + 1]).collect()
        };
        let shown = open.iter().filter_map(|&part| {
            let sample = Sample::of(&loss(part), known_sd)?;
            let judgement = sample.judge(&self.question, error / 2.0, error);
            (judgement == Judgement::Changed).then(|| (part, sample.effect(error).estimate.abs()))
        });
        if let Some((part, _)) = shown.max_by(|a, b| a.1.total_cmp(&b.1)) {
            return Some((part, NarrowingReason::Shown));
        }
        let parts = Parts {
            rows,
            open,
            whole: self.others(states, rows),
            spread: self.spread,
            known_sd,
        };
        Some((parts.likeliest(&self.question)?, NarrowingReason::Likelier))
    }

    /// Returns the mean change of the log of cost from the first of `states` to the last and the number of
    /// blocks behind it: all blocks that have both, except those of this round, which are the `rows`.
    fn others(&self, states: &[usize], rows: &[Vec<f64>]) -> Option<(f64, usize)> {
        let last = states.len() - 1;
        let all = self.evidence.rows(&[states[0], states[last]], None);
        let others = all.len().checked_sub(rows.len()).filter(|n| *n > 0)?;
        let sum: f64 = all.iter().map(|row| row[1] - row[0]).sum();
        let of_round: f64 = rows.iter().map(|row| row[last] - row[0]).sum();
        Some(((sum - of_round) / others as f64, others))
    }

    /// Continues the search in one part of a span.
    fn turn(&mut self, states: &[usize], chosen: usize, why: NarrowingReason) {
        let parts = states
            .windows(2)
            .map(|ends| self.measured(ends[0], ends[1], None))
            .collect();
        self.note(DecisionKind::Narrowed { parts, chosen, why });
        self.search = Some(NarrowingSearch {
            from: states[chosen],
            to: states[chosen + 1],
            middles: Vec::new(),
        });
    }

    /// Chooses the states to divide a span by: one near its middle, and with it others that need no build.
    fn middles(&self, from: usize, to: usize) -> Vec<usize> {
        let is_there = |state: &usize| match self.servers[*state] {
            ServerState::Built => true,
            ServerState::Dead => false,
            ServerState::Unknown => {
                self.evidence.is_stored(*state)
                    && self.evidence.rows(&[from, *state, to], None).len() >= FIRST
            }
        };
        let there: Vec<usize> = (from + 1..to).filter(is_there).collect();
        let near = |ideal: usize, among: &[usize], tolerance: usize| {
            let mut sorted = among.to_vec();
            sorted.sort_by_key(|&state| (state.abs_diff(ideal), state));
            sorted
                .first()
                .copied()
                .filter(|state| state.abs_diff(ideal) <= tolerance)
        };
        let middle = from.midpoint(to);
        let tolerance = (to - from) / 8;
        let untried = || {
            if self.dead_between(from, to) < TRIED {
                self.untried(from, to)
            } else {
                None
            }
        };
        let first = near(middle, &there, tolerance)
            .or_else(untried)
            .or_else(|| near(middle, &there, to - from));
        let Some(first) = first else {
            return Vec::new();
        };
        let mut middles = BTreeSet::from([first]);
        for quarter in [1, 3] {
            let ideal = from + (to - from) * quarter / 4;
            if middles.len() < MIDDLES
                && self.servers[first] != ServerState::Unknown
                && let Some(state) = near(ideal, &there, tolerance.max(1))
            {
                middles.insert(state);
            }
        }
        middles.into_iter().collect()
    }

    /// Returns the middle of the best stretch of untried states: of those at least half as long as the
    /// longest, the one nearest to the middle of the span.
    fn untried(&self, from: usize, to: usize) -> Option<usize> {
        let mut stretches: Vec<(usize, usize)> = Vec::new();
        for state in from + 1..to {
            if self.servers[state] == ServerState::Dead {
                continue;
            }
            match stretches.last_mut() {
                Some((_, end)) if *end + 1 == state => *end = state,
                _ => stretches.push((state, state)),
            }
        }
        let longest = stretches.iter().map(|(a, b)| b - a + 1).max()?;
        let middle = from.midpoint(to);
        stretches
            .into_iter()
            .filter(|(a, b)| 2 * (b - a + 1) >= longest)
            .map(|(a, b)| {
                if (a..=b).contains(&middle) && self.dead_between(from, to) == 0 {
                    middle
                } else {
                    a.midpoint(b)
                }
            })
            .min_by_key(|state| (state.abs_diff(middle), *state))
    }

    fn dead_between(&self, from: usize, to: usize) -> usize {
        (from + 1..to)
            .filter(|&state| self.servers[state] == ServerState::Dead)
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bisect::tests::question;
    use crate::bisect::{Event, MeasuredBlock};

    #[test]
    fn what_other_blocks_say_is_without_those_of_the_round() {
        let mut bisector = Bisector::new(question(3));
        let mut measured = |number: u32, values: &[(usize, f64)]| {
            bisector.apply(&Event::Block(MeasuredBlock {
                number,
                values: values.iter().map(|(k, log)| (*k, log.exp())).collect(),
                ..MeasuredBlock::default()
            }));
        };
        measured(0, &[(0, 1.0), (2, 1.1)]);
        measured(1, &[(0, 2.0), (2, 2.1)]);
        measured(2, &[(0, 1.0), (1, 1.2), (2, 1.3)]);
        let states = [0, 1, 2];
        let rows = bisector.evidence.rows(&states, None);
        assert_eq!(rows.len(), 1);
        let (mean, blocks) = bisector.others(&states, &rows).unwrap();
        assert!((mean - 0.1).abs() < 1e-9 && blocks == 2, "{mean} {blocks}");
        assert_eq!(
            bisector.others(&[0, 2], &bisector.evidence.rows(&[0, 2], None)),
            None
        );
    }
}
