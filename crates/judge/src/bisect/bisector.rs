//! The bisector, which derives the next action from the events.

mod narrow;

use std::collections::{BTreeMap, BTreeSet};

use super::evidence::{Event, Evidence, Explanation};
use super::judge::{Judgement, Sample};
use super::outcome::{
    BisectOutcome, Conclusion, Culprit, Decision, DecisionKind, RemainingSpan, SessionCost,
    SpanEffect, SpanStatus,
};
use super::question::Question;
use crate::stats::SpeedChange;

/// The next action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Build a state and report it with [`Event::Built`] or [`Event::Unusable`].
    Build {
        /// The state's index.
        state: usize,
    },
    /// Measure a block of these states and report it with [`Event::Block`], and a failing state with
    /// [`Event::Unusable`].
    Measure {
        /// The states' indices, ascending.
        states: Vec<usize>,
        /// Number of blocks until the next decision.
        blocks: usize,
    },
    /// An end of the range cannot be used, so there is nothing to compare.
    Broken {
        /// The state's index.
        state: usize,
    },
    /// The bisection is finished; [`Bisector::outcome`] returns the result.
    Done,
}

/// The state of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ServerState {
    Unknown,
    Built,
    Dead,
}

/// A part of the range that is tested separately.
#[derive(Debug, Clone, Default)]
struct Span {
    from: usize,
    to: usize,
    /// The first event of the session whose blocks count; `None` if all blocks count.
    since: Option<usize>,
    /// The number of a named change in the order of naming, from 1.
    named: Option<u32>,
    verdict: Option<SpanVerdict>,
    /// Its effect when it had its verdict.
    decided: Option<SpeedChange>,
    /// The reason why it is a range instead of a single change.
    range: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SpanVerdict {
    Unchanged,
    Confirmed,
    Undecided,
}

/// A changed span that the bisector is narrowing down.
#[derive(Debug, Clone)]
struct NarrowingSearch {
    from: usize,
    to: usize,
    /// The intermediate states that divide it; empty until they are chosen.
    middles: Vec<usize>,
}

/// The search, whose state follows from the question and the events alone.
#[derive(Debug, Clone)]
pub struct Bisector {
    question: Question,
    servers: Vec<ServerState>,
    evidence: Evidence,
    /// Number of events so far.
    events: usize,
    spans: Vec<Span>,
    search: Option<NarrowingSearch>,
    named: u32,
    /// Residual sum of squares and its degrees of freedom in finished search rounds.
    spread: (f64, f64),
    action: Action,
    path: Vec<Decision>,
    cost: SessionCost,
    /// The first state with a server, by the server's identity.
    identities: BTreeMap<String, usize>,
    /// Explanations by the ends of a change.
    explained: BTreeMap<(usize, usize), Explanation>,
}

/// Number of blocks before the first look if the standard deviation must be estimated.
pub(super) const FIRST: usize = 4;

/// Number of blocks that must confirm a prior standard deviation.
pub(super) const REPEATS: usize = 3;

/// The largest ratio of the observed to the prior standard deviation at which the prior is used.
pub(super) const TRUSTED: f64 = 2.0;

impl Bisector {
    /// Creates a bisector without events.
    pub fn new(question: Question) -> Self {
        let last = question.last();
        let mut bisector = Bisector {
            servers: vec![ServerState::Unknown; question.states.len()],
            question,
            evidence: Evidence::default(),
            events: 0,
            spans: vec![Span {
                from: 0,
                to: last,
                ..Span::default()
            }],
            search: None,
            named: 0,
            spread: (0.0, 0.0),
            action: Action::Done,
            path: Vec::new(),
            cost: SessionCost::default(),
            identities: BTreeMap::new(),
            explained: BTreeMap::new(),
        };
        bisector.action = bisector.decide();
        bisector
    }

    /// Returns the next action.
    pub fn action(&self) -> &Action {
        &self.action
    }

    /// Returns the question.
    pub fn question(&self) -> &Question {
        &self.question
    }

    /// Returns the cost so far.
    pub fn cost(&self) -> SessionCost {
        self.cost
    }

    /// Returns the decisions so far.
    pub fn path(&self) -> &[Decision] {
        &self.path
    }

    /// Applies an event. The bisector decides once the requested results are complete, never before.
    pub fn apply(&mut self, event: &Event) {
        if let Event::Explained(explained) = event {
            let place = (explained.from, explained.to);
            self.explained.insert(place, explained.clone());
            return;
        }
        let since = self.events;
        self.events += 1;
        let stored = match event {
            Event::Built {
                state,
                identity,
                seconds,
                cached,
            } => {
                self.built(*state, identity);
                if !cached {
                    self.cost.builds += 1;
                    self.cost.build_seconds += seconds;
                }
                false
            }
            Event::Unusable { state, reason, .. } => {
                self.unusable(*state, reason);
                false
            }
            Event::Imported | Event::Explained(_) => false,
            Event::Block(block) => {
                self.evidence.add(block, since);
                let own = block.source.is_none();
                if own {
                    self.cost.blocks += 1;
                    self.cost.values += u32::try_from(block.values.len()).unwrap_or(u32::MAX);
                    self.cost.seconds += block.seconds;
                } else {
                    self.cost.stored += 1;
                }
                !own
            }
        };
        let waiting = match (&mut self.action, event) {
            _ if stored => true,
            (Action::Measure { blocks, .. }, Event::Block(_)) if *blocks > 1 => {
                *blocks -= 1;
                true
            }
            (Action::Build { state }, Event::Built { state: other, .. }) => state != other,
            // A server found in the cache during a measurement does not affect the current action.
            (Action::Measure { .. }, Event::Built { .. }) => true,
            _ => false,
        };
        if !waiting {
            self.action = self.decide();
        }
    }

    fn built(&mut self, state: usize, identity: &str) {
        if self.servers[state] != ServerState::Dead {
            self.servers[state] = ServerState::Built;
        }
        let first = *self.identities.entry(identity.to_owned()).or_insert(state);
        if first != state {
            self.evidence.same_server(state, first);
        }
        // A failure of one state applies to all states with the same server.
        if self.servers[first] == ServerState::Dead && self.servers[state] == ServerState::Built {
            self.skip_like(state, first);
        }
    }

    fn unusable(&mut self, state: usize, reason: &str) {
        self.skip(state, reason.to_owned());
        for other in 0..self.servers.len() {
            if self.servers[other] == ServerState::Built && self.evidence.are_same(state, other) {
                self.skip_like(other, state);
            }
        }
    }

    /// Skips `state` because it has the same server as `other`, which cannot be used.
    fn skip_like(&mut self, state: usize, other: usize) {
        let label = &self.question.states[other].label;
        let reason = format!("it is the same server as {label}");
        self.skip(state, reason);
    }

    fn skip(&mut self, state: usize, reason: String) {
        self.servers[state] = ServerState::Dead;
        self.note(DecisionKind::Skipped { state, reason });
    }

    fn note(&mut self, how: DecisionKind) {
        self.path.push(Decision {
            after: self.cost.blocks,
            how,
        });
    }

    /// Decides until an action is due.
    fn decide(&mut self) -> Action {
        loop {
            let action = match self.search.take() {
                Some(search) => self.narrow(search),
                None => self.survey(),
            };
            if let Some(action) = action {
                return action;
            }
        }
    }

    /// Tests the open spans. Returns `None` if there is a span to search or to test again.
    fn survey(&mut self) -> Option<Action> {
        for end in [0, self.question.last()] {
            if self.servers[end] == ServerState::Dead {
                return Some(Action::Broken { state: end });
            }
        }
        let mut wanted = BTreeSet::new();
        let mut least = usize::MAX;
        for place in 0..self.spans.len() {
            if self.merge_dead_end(place) {
                return None;
            }
            if self.spans[place].verdict.is_some() {
                continue;
            }
            let span = self.spans[place].clone();
            let (from, to) = (span.from, span.to);
            if self.evidence.are_same(from, to) {
                self.settle(place, Judgement::Unchanged);
                continue;
            }
            let sample = self.sample(from, to, span.since);
            let (alpha, missed) = self.errors(span.named);
            let judgement = sample.map_or(Judgement::Open, |sample| {
                sample.judge(&self.question, alpha, missed)
            });
            match judgement {
                Judgement::Changed if span.named.is_none() => {
                    self.note(DecisionKind::Changed(self.measured(from, to, span.since)));
                    self.search = Some(NarrowingSearch {
                        from,
                        to,
                        middles: Vec::new(),
                    });
                    return None;
                }
                Judgement::Open => {
                    let blocks = sample.map_or(0, |sample| sample.blocks());
                    if blocks >= self.question.most_blocks {
                        self.settle(place, Judgement::Open);
                        continue;
                    }
                    least = least.min(blocks);
                    wanted.extend([from, to]);
                }
                decided => self.settle(place, decided),
            }
        }
        if wanted.is_empty() {
            Some(Action::Done)
        } else {
            Some(self.measure(wanted, least))
        }
    }

    /// Extends a span whose end crashed after it had been chosen to the next usable state; both neighbours
    /// are tested again then. Returns whether that happened.
    fn merge_dead_end(&mut self, place: usize) -> bool {
        let end = self.spans[place].to;
        let dead = self.servers[end] == ServerState::Dead && place + 1 < self.spans.len();
        if !dead {
            return false;
        }
        let next = self.spans.remove(place + 1);
        self.spans[place] = Span {
            from: self.spans[place].from,
            to: next.to,
            since: Some(self.events),
            ..Span::default()
        };
        true
    }

    /// Returns the error rates of calling a span changed, and of calling it unchanged.
    ///
    /// A change can be missed in the test of the range that contains it, in the repeated test of the
    /// remaining range, and in the test of the named change: each has a third of the error rate.
    fn errors(&self, named: Option<u32>) -> (f64, f64) {
        let error = self.question.error;
        let missed = error / 3.0;
        match named {
            // The sum over all named changes is the error rate.
            Some(number) => (error / (f64::from(number) * f64::from(number + 1)), missed),
            None => (error / 2.0, missed),
        }
    }

    fn settle(&mut self, place: usize, judgement: Judgement) {
        let span = self.spans[place].clone();
        let measured = self.measured(span.from, span.to, span.since);
        let named = span.named.is_some();
        let (verdict, how) = match judgement {
            Judgement::Changed => (SpanVerdict::Confirmed, DecisionKind::Confirmed(measured)),
            Judgement::Unchanged if named => {
                (SpanVerdict::Unchanged, DecisionKind::Refuted(measured))
            }
            Judgement::Unchanged => (SpanVerdict::Unchanged, DecisionKind::Unchanged(measured)),
            Judgement::Open => (SpanVerdict::Undecided, DecisionKind::Undecided(measured)),
        };
        self.spans[place].verdict = Some(verdict);
        self.spans[place].decided = measured.effect;
        self.note(how);
    }

    /// Names a change: splits the span that contains it into the part before, the change itself and the part
    /// after, all to be tested from fresh blocks.
    fn name(&mut self, from: usize, to: usize, range: Option<String>) {
        self.note(DecisionKind::Named { from, to });
        self.named += 1;
        let number = self.named;
        let Some(place) = self
            .spans
            .iter()
            .position(|span| span.from <= from && to <= span.to)
        else {
            return;
        };
        let old = self.spans.remove(place);
        let now = Some(self.events);
        let span = |from, to, named, range| Span {
            from,
            to,
            since: now,
            named,
            range,
            ..Span::default()
        };
        let pieces = [
            span(old.from, from, None, None),
            span(from, to, Some(number), range),
            span(to, old.to, None, None),
        ];
        let pieces = pieces.into_iter().filter(|piece| piece.from < piece.to);
        self.spans.splice(place..place, pieces);
    }

    /// Requests blocks of `states`, which have `blocks` blocks already, or first their servers.
    fn measure(&self, states: BTreeSet<usize>, blocks: usize) -> Action {
        if let Some(&state) = states
            .iter()
            .find(|&&state| self.servers[state] == ServerState::Unknown)
        {
            return Action::Build { state };
        }
        let servers: BTreeSet<usize> = states
            .into_iter()
            .map(|state| self.evidence.server_of(state))
            .collect();
        let first = match (self.question.known_sd, self.known_sd()) {
            (_, Some(_)) => 1,
            (Some(_), None) if self.cost.blocks == 0 => REPEATS,
            _ => FIRST,
        };
        Action::Measure {
            states: servers.into_iter().collect(),
            blocks: self.question.next_blocks(blocks, first),
        }
    }

    /// Returns the prior standard deviation if the blocks of good and bad confirm it. The counts of some
    /// servers depend on random values at their start.
    fn known_sd(&self) -> Option<f64> {
        let known = self.question.known_sd?;
        let last = self.question.last();
        let rows = self.evidence.rows(&[0, last], None);
        let ratios: Vec<f64> = rows.iter().map(|row| row[0] - row[1]).collect();
        let seen = standard_deviation(&ratios)?;
        let repeats = ratios.len() >= REPEATS && seen <= TRUSTED * known;
        (repeats || self.evidence.are_same(0, last)).then_some(known)
    }

    fn sample(&self, from: usize, to: usize, since: Option<usize>) -> Option<Sample> {
        let rows = self.evidence.rows(&[from, to], since);
        let ratios: Vec<f64> = rows.iter().map(|row| row[0] - row[1]).collect();
        Sample::of(&ratios, self.known_sd())
    }

    fn measured(&self, from: usize, to: usize, since: Option<usize>) -> SpanEffect {
        let effect = if self.evidence.are_same(from, to) {
            Some(SpeedChange::NONE)
        } else {
            self.sample(from, to, since)
                .map(|sample| sample.effect(self.question.error))
        };
        SpanEffect { from, to, effect }
    }

    /// Returns whether two states are known to have the same server.
    pub fn are_same(&self, a: usize, b: usize) -> bool {
        self.evidence.are_same(a, b)
    }

    /// Returns the current result.
    pub fn outcome(&self) -> BisectOutcome {
        let total = self.measured(0, self.question.last(), None);
        let done = self.action == Action::Done;
        let (mut culprits, mut rest, mut next) = (Vec::new(), Vec::new(), Vec::new());
        let mut undecided = false;
        for span in &self.spans {
            let mut measured = self.measured(span.from, span.to, span.since);
            // Intervals hold at all looks together, so also the narrowest of them.
            measured.effect = measured.effect.map(|now| match span.decided {
                Some(then) if then.width() < now.width() => then,
                _ => now,
            });
            let unchanged = span.verdict == Some(SpanVerdict::Unchanged);
            undecided |= span.verdict == Some(SpanVerdict::Undecided);
            if span.named.is_some() && !unchanged {
                let of = |text: fn(&super::Revision) -> &String| {
                    let states = &self.question.states[span.from + 1..=span.to];
                    states.iter().map(|state| text(state).clone()).collect()
                };
                let explained = self.explained.get(&(span.from, span.to));
                culprits.push(Culprit {
                    from: span.from,
                    to: span.to,
                    names: of(|state| &state.name),
                    titles: of(|state| &state.title),
                    effect: measured.effect,
                    confirmed: span.verdict == Some(SpanVerdict::Confirmed),
                    range: span.range.clone(),
                    files: explained.map_or(Vec::new(), |known| known.files.clone()),
                    functions: explained.and_then(|known| known.functions.clone()),
                });
                next.extend(explained.iter().flat_map(|known| known.next.clone()));
                continue;
            }
            let ending = match (unchanged, self.evidence.are_same(span.from, span.to)) {
                (true, true) => SpanStatus::Identical,
                (true, false) => SpanStatus::Unchanged,
                (false, _) => SpanStatus::Undecided,
            };
            rest.push(RemainingSpan { measured, ending });
        }
        let conclusion = if !done {
            Conclusion::Unfinished
        } else if culprits.iter().any(|culprit| culprit.confirmed) {
            Conclusion::Found
        } else if undecided {
            Conclusion::Undecided
        } else if self.is_opposite() {
            Conclusion::Opposite
        } else {
            Conclusion::Nothing
        };
        BisectOutcome {
            schema: super::SCHEMA,
            question: self.question.clone(),
            conclusion,
            culprits,
            rest,
            total,
            path: self.path.clone(),
            cost: self.cost,
            notes: Vec::new(),
            next,
        }
    }

    /// Returns whether the whole range changed in the opposite direction.
    fn is_opposite(&self) -> bool {
        let last = self.question.last();
        !self.evidence.are_same(0, last)
            && self
                .sample(0, last, None)
                .is_some_and(|sample| sample.is_opposite(self.question.direction))
    }
}

/// Returns the sample standard deviation; `None` with fewer than two values.
pub(super) fn standard_deviation(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    if values.len() < 2 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (n - 1.0)).sqrt())
}
