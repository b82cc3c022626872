//! Narrowing a changed span down to a change.

use std::collections::BTreeSet;

use super::super::judge::{Judgement, Sample};
use super::super::outcome::{How, Part};
use super::super::search::Parts;
use super::{Action, Engine, FIRST, Search, Server};

/// So many states of a span are tried before it counts as one that cannot be divided.
const TRIED: usize = 16;

/// So many states divide a span at most, where they are there already: with servers at both ends, three
/// between them need the fewest starts a bit of the answer.
const MIDDLES: usize = 3;

impl Engine {
    /// Narrows a changed span down by one step. `None` when there is more to decide at once.
    pub(super) fn narrow(&mut self, mut search: Search) -> Option<Action> {
        let (from, to) = (search.from, search.to);
        if [from, to]
            .map(|end| &self.servers[end])
            .contains(&&Server::Dead)
        {
            // It crashed meanwhile: the span this is in is judged and searched again without it.
            return None;
        }
        if to - from == 1 {
            self.name(from, to, None);
            return None;
        }
        search
            .middles
            .retain(|&middle| self.servers[middle] != Server::Dead);
        if search.middles.is_empty() {
            search.middles = self.middles(from, to);
        }
        if search.middles.is_empty() {
            let states = to - from - 1;
            let tried = self.dead_between(from, to);
            let reason = if tried < states {
                format!("{tried} of the {states} states between were tried, none can be used")
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
            .find(|&&state| self.servers[state] == Server::Unknown)
            && rows.len() < FIRST
        {
            self.search = Some(search);
            return Some(Action::Build { state: unknown });
        }
        let open: Vec<usize> = (0..states.len() - 1)
            .filter(|&part| !self.evidence.are_same(states[part], states[part + 1]))
            .collect();
        if let [only] = open.as_slice() {
            self.turn(&states, *only, Part::OnlyOne);
            return None;
        }
        let small = open.iter().all(|&part| self.is_small(&rows, part));
        if let Some((part, why)) = self.part(&states, &rows, &open).filter(|_| !small) {
            let (squares, freedom) = Parts {
                rows: &rows,
                open: &open,
                whole: None,
                spread: (0.0, 0.0),
                known_sd: None,
            }
            .residuals();
            self.spread.0 += squares;
            self.spread.1 += freedom;
            self.turn(&states, part, why);
            return None;
        }
        if small {
            let reason = "it is the sum of smaller changes: no part of it has one of the size";
            self.name(from, to, Some(reason.to_owned()));
            return None;
        }
        if rows.len() >= self.question.most_blocks {
            self.note(How::Undecided(self.measured(from, to, None)));
            let reason = format!(
                "{} blocks did not tell in which part of it the change is",
                rows.len()
            );
            self.name(from, to, Some(reason));
            return None;
        }
        self.search = Some(search);
        Some(self.measure(states.into_iter().collect(), rows.len()))
    }

    /// Whether a part of a changed span is shown to have no change of the size by itself.
    fn is_small(&self, rows: &[Vec<f64>], part: usize) -> bool {
        let ratios: Vec<f64> = rows.iter().map(|row| row[part] - row[part + 1]).collect();
        Sample::of(&ratios, self.known_sd()).is_some_and(|sample| {
            let error = self.question.error / 10.0;
            sample.judge(&self.question, error, error) == Judgement::Unchanged
        })
    }

    /// The part that goes on to be searched, if that is clear.
    fn part(&self, states: &[usize], rows: &[Vec<f64>], open: &[usize]) -> Option<(usize, Part)> {
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
            return Some((part, Part::Shown));
        }
        let parts = Parts {
            rows,
            open,
            whole: self.others(states, rows),
            spread: self.spread,
            known_sd,
        };
        Some((parts.likeliest(&self.question)?, Part::Likelier))
    }

    /// The change from the first of `states` to the last, as the mean of the log of cost, and the number
    /// of blocks behind it: all that have both but those of this round, which are the `rows`.
    fn others(&self, states: &[usize], rows: &[Vec<f64>]) -> Option<(f64, usize)> {
        let last = states.len() - 1;
        let all = self.evidence.rows(&[states[0], states[last]], None);
        let others = all.len().checked_sub(rows.len()).filter(|n| *n > 0)?;
        let sum: f64 = all.iter().map(|row| row[1] - row[0]).sum();
        let of_round: f64 = rows.iter().map(|row| row[last] - row[0]).sum();
        Some(((sum - of_round) / others as f64, others))
    }

    /// Goes on in one part of a span.
    fn turn(&mut self, states: &[usize], chosen: usize, why: Part) {
        let parts = states
            .windows(2)
            .map(|ends| self.measured(ends[0], ends[1], None))
            .collect();
        self.note(How::Narrowed { parts, chosen, why });
        self.search = Some(Search {
            from: states[chosen],
            to: states[chosen + 1],
            middles: Vec::new(),
        });
    }

    /// States to divide a span by: one near its middle, and with it others that need no build.
    fn middles(&self, from: usize, to: usize) -> Vec<usize> {
        let is_there = |state: &usize| match self.servers[*state] {
            Server::Built => true,
            Server::Dead => false,
            Server::Unknown => {
                self.evidence.is_stored(*state)
                    && self.evidence.rows(&[from, *state, to], None).len() >= FIRST
            }
        };
        let there: Vec<usize> = (from + 1..to).filter(is_there).collect();
        let near = |ideal: usize, among: &[usize], reach: usize| {
            let mut sorted = among.to_vec();
            sorted.sort_by_key(|&state| (state.abs_diff(ideal), state));
            sorted
                .first()
                .copied()
                .filter(|state| state.abs_diff(ideal) <= reach)
        };
        let middle = from.midpoint(to);
        let reach = (to - from) / 8;
        let untried = || {
            if self.dead_between(from, to) < TRIED {
                self.untried(from, to)
            } else {
                None
            }
        };
        let first = near(middle, &there, reach)
            .or_else(untried)
            .or_else(|| near(middle, &there, to - from));
        let Some(first) = first else {
            return Vec::new();
        };
        let mut middles = BTreeSet::from([first]);
        for quarter in [1, 3] {
            let ideal = from + (to - from) * quarter / 4;
            if middles.len() < MIDDLES
                && self.servers[first] != Server::Unknown
                && let Some(state) = near(ideal, &there, reach.max(1))
            {
                middles.insert(state);
            }
        }
        middles.into_iter().collect()
    }

    /// The middle of the stretch of untried states that lies best: the longest ones count, and of these
    /// the one nearest to the middle.
    fn untried(&self, from: usize, to: usize) -> Option<usize> {
        let mut stretches: Vec<(usize, usize)> = Vec::new();
        for state in from + 1..to {
            if self.servers[state] == Server::Dead {
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
            .filter(|&state| self.servers[state] == Server::Dead)
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bisect::tests::question;
    use crate::bisect::{Block, Event};

    #[test]
    fn what_other_blocks_say_is_without_those_of_the_round() {
        let mut engine = Engine::new(question(3));
        let mut measured = |number: u32, values: &[(usize, f64)]| {
            engine.apply(&Event::Block(Block {
                number,
                values: values.iter().map(|(k, log)| (*k, log.exp())).collect(),
                ..Block::default()
            }));
        };
        measured(0, &[(0, 1.0), (2, 1.1)]);
        measured(1, &[(0, 2.0), (2, 2.1)]);
        measured(2, &[(0, 1.0), (1, 1.2), (2, 1.3)]);
        let states = [0, 1, 2];
        let rows = engine.evidence.rows(&states, None);
        assert_eq!(rows.len(), 1);
        let (mean, blocks) = engine.others(&states, &rows).unwrap();
        assert!((mean - 0.1).abs() < 1e-9 && blocks == 2, "{mean} {blocks}");
        assert_eq!(
            engine.others(&[0, 2], &engine.evidence.rows(&[0, 2], None)),
            None
        );
    }
}
