//! The engine: events in, the next action out.

mod narrow;

use std::collections::{BTreeMap, BTreeSet};

use super::evidence::{Event, Evidence, Explained};
use super::judge::{Judgement, Sample};
use super::outcome::{
    Conclusion, Cost, Culprit, Decision, Effect, Ending, How, Measured, Outcome, Rest,
};
use super::question::Question;

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Build a state and tell with [`Event::Built`] or [`Event::Unusable`].
    Build {
        /// The state's place.
        state: usize,
    },
    /// Measure a block of these states and tell with [`Event::Block`]; a state that fails is told with
    /// [`Event::Unusable`].
    Measure {
        /// The states' places, ascending.
        states: Vec<usize>,
        /// Blocks until the next decision.
        blocks: usize,
    },
    /// An end of the range cannot be used, so that nothing can be compared.
    Broken {
        /// The state's place.
        state: usize,
    },
    /// Everything is decided: [`Engine::outcome`].
    Done,
}

/// What is known of a state's server.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Server {
    Unknown,
    Built,
    Dead,
}

/// A part of the range that is judged by itself.
#[derive(Debug, Clone)]
struct Span {
    from: usize,
    to: usize,
    /// Only blocks of the session from this event on count; `None`: all blocks do.
    since: Option<usize>,
    /// A change that was arrived at: which one in the order of naming, from 1.
    named: Option<u32>,
    verdict: Option<Verdict>,
    /// Why it is a range and no single change.
    range: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Unchanged,
    Confirmed,
    Undecided,
}

/// A changed span that is being narrowed down.
#[derive(Debug, Clone)]
struct Search {
    from: usize,
    to: usize,
    /// The states between that divide it; empty until they are chosen.
    middles: Vec<usize>,
}

/// Decides from the question and the events alone.
#[derive(Debug, Clone)]
pub struct Engine {
    question: Question,
    servers: Vec<Server>,
    evidence: Evidence,
    /// Events so far.
    events: usize,
    spans: Vec<Span>,
    search: Option<Search>,
    named: u32,
    /// Squares and degrees of freedom of a value's deviation in the rounds of searches that are over.
    spread: (f64, f64),
    action: Action,
    path: Vec<Decision>,
    cost: Cost,
    /// First state with a server, by its identity.
    identities: BTreeMap<String, usize>,
    /// By the ends of a change.
    explained: BTreeMap<(usize, usize), Explained>,
}

/// Blocks before the first look where deviations must be estimated.
const FIRST: usize = 4;

/// Blocks of good and bad before a deviation that is known beforehand is relied on.
const REPEATS: usize = 3;

/// So many times the deviation known beforehand may be seen before it is not believed any more.
const TRUSTED: f64 = 2.0;

impl Engine {
    /// An engine that knows nothing yet.
    pub fn new(question: Question) -> Self {
        let last = question.last();
        let mut engine = Engine {
            servers: vec![Server::Unknown; question.states.len()],
            question,
            evidence: Evidence::default(),
            events: 0,
            spans: vec![Span {
                from: 0,
                to: last,
                since: None,
                named: None,
                verdict: None,
                range: None,
            }],
            search: None,
            named: 0,
            spread: (0.0, 0.0),
            action: Action::Done,
            path: Vec::new(),
            cost: Cost::default(),
            identities: BTreeMap::new(),
            explained: BTreeMap::new(),
        };
        engine.action = engine.decide();
        engine
    }

    /// What is to be done now.
    pub fn action(&self) -> &Action {
        &self.action
    }

    /// What is asked.
    pub fn question(&self) -> &Question {
        &self.question
    }

    /// What it cost so far.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// The decisions so far.
    pub fn path(&self) -> &[Decision] {
        &self.path
    }

    /// Takes in what happened. Decisions are made when what was asked for is there, never between.
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
                let own = block.source.is_empty();
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
            // A server that was found in the cache while others are measured changes nothing yet.
            (Action::Measure { .. }, Event::Built { .. }) => true,
            _ => false,
        };
        if !waiting {
            self.action = self.decide();
        }
    }

    fn built(&mut self, state: usize, identity: &str) {
        if self.servers[state] != Server::Dead {
            self.servers[state] = Server::Built;
        }
        let first = *self.identities.entry(identity.to_owned()).or_insert(state);
        if first != state {
            self.evidence.same_server(state, first);
        }
        // What fails at one state fails at all whose server it is.
        if self.servers[first] == Server::Dead && self.servers[state] == Server::Built {
            self.skip_like(state, first);
        }
    }

    fn unusable(&mut self, state: usize, reason: &str) {
        self.skip(state, reason.to_owned());
        for other in 0..self.servers.len() {
            if self.servers[other] == Server::Built && self.evidence.are_same(state, other) {
                self.skip_like(other, state);
            }
        }
    }

    /// Leaves `state` out because it is the server of `other`, which cannot be used.
    fn skip_like(&mut self, state: usize, other: usize) {
        let label = &self.question.states[other].label;
        let reason = format!("it is the same server as {label}");
        self.skip(state, reason);
    }

    fn skip(&mut self, state: usize, reason: String) {
        self.servers[state] = Server::Dead;
        self.note(How::Skipped { state, reason });
    }

    fn note(&mut self, how: How) {
        self.path.push(Decision {
            after: self.cost.blocks,
            how,
        });
    }

    /// Goes on until something is to be done.
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

    /// Judges the spans that are open. `None` when there is something to be searched or judged again.
    fn survey(&mut self) -> Option<Action> {
        for end in [0, self.question.last()] {
            if self.servers[end] == Server::Dead {
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
                    self.note(How::Changed(self.measured(from, to, span.since)));
                    self.search = Some(Search {
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

    /// A span whose end crashed after it had been chosen reaches to the next state that can be used;
    /// both neighbours are judged again then. Returns whether that happened.
    fn merge_dead_end(&mut self, place: usize) -> bool {
        let end = self.spans[place].to;
        let dead = self.servers[end] == Server::Dead && place + 1 < self.spans.len();
        if !dead {
            return false;
        }
        let next = self.spans.remove(place + 1);
        let span = &mut self.spans[place];
        span.to = next.to;
        span.since = Some(self.events);
        span.verdict = None;
        span.named = None;
        span.range = None;
        true
    }

    /// The error rates of calling a span changed, and of calling it unchanged.
    ///
    /// A change can be missed where the range it is in is judged, where what is left of it is judged
    /// again, and where it is named and judged by itself: a third of the error rate each.
    fn errors(&self, named: Option<u32>) -> (f64, f64) {
        let error = self.question.error;
        let missed = error / 3.0;
        match named {
            // The sum over all that are ever named is the error rate.
            Some(number) => (error / (f64::from(number) * f64::from(number + 1)), missed),
            None => (error / 2.0, missed),
        }
    }

    fn settle(&mut self, place: usize, judgement: Judgement) {
        let span = self.spans[place].clone();
        let measured = self.measured(span.from, span.to, span.since);
        let named = span.named.is_some();
        let (verdict, how) = match judgement {
            Judgement::Changed => (Verdict::Confirmed, How::Confirmed(measured)),
            Judgement::Unchanged if named => (Verdict::Unchanged, How::Refuted(measured)),
            Judgement::Unchanged => (Verdict::Unchanged, How::Unchanged(measured)),
            Judgement::Open => (Verdict::Undecided, How::Undecided(measured)),
        };
        self.spans[place].verdict = Some(verdict);
        self.note(how);
    }

    /// A change was arrived at: the span it is in falls into what is before it, itself, and what is
    /// behind it, all to be judged from fresh blocks.
    fn name(&mut self, from: usize, to: usize, range: Option<String>) {
        self.note(How::Named { from, to });
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
            verdict: None,
            range,
        };
        let pieces = [
            span(old.from, from, None, None),
            span(from, to, Some(number), range),
            span(to, old.to, None, None),
        ];
        let pieces = pieces.into_iter().filter(|piece| piece.from < piece.to);
        self.spans.splice(place..place, pieces);
    }

    /// Asks for blocks of `states`, of which there are `blocks` already, or first for their servers.
    fn measure(&self, states: BTreeSet<usize>, blocks: usize) -> Action {
        if let Some(&state) = states
            .iter()
            .find(|&&state| self.servers[state] == Server::Unknown)
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
        let left = self.question.most_blocks.saturating_sub(blocks).max(1);
        let next = match blocks {
            0 => first,
            n => n.div_ceil(8),
        };
        Action::Measure {
            states: servers.into_iter().collect(),
            blocks: next.min(left),
        }
    }

    /// The deviation known beforehand, where good and bad were seen to repeat as well as that. Counts of
    /// some servers depend on what they draw at their start.
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

    fn measured(&self, from: usize, to: usize, since: Option<usize>) -> Measured {
        let effect = if self.evidence.are_same(from, to) {
            Some(Effect::none())
        } else {
            self.sample(from, to, since)
                .map(|sample| sample.effect(self.question.error))
        };
        Measured { from, to, effect }
    }

    /// Whether two states are known to be the same server.
    pub fn are_same(&self, a: usize, b: usize) -> bool {
        self.evidence.are_same(a, b)
    }

    /// What is known now.
    pub fn outcome(&self) -> Outcome {
        let total = self.measured(0, self.question.last(), None);
        let done = self.action == Action::Done;
        let (mut culprits, mut rest, mut next) = (Vec::new(), Vec::new(), Vec::new());
        let mut undecided = false;
        for span in &self.spans {
            let measured = self.measured(span.from, span.to, span.since);
            let unchanged = span.verdict == Some(Verdict::Unchanged);
            undecided |= span.verdict == Some(Verdict::Undecided);
            if span.named.is_some() && !unchanged {
                let of = |text: fn(&super::State) -> &String| {
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
                    confirmed: span.verdict == Some(Verdict::Confirmed),
                    range: span.range.clone(),
                    files: explained.map_or(Vec::new(), |known| known.files.clone()),
                    functions: explained.and_then(|known| known.functions.clone()),
                });
                next.extend(explained.iter().flat_map(|known| known.next.clone()));
                continue;
            }
            let ending = match (unchanged, self.evidence.are_same(span.from, span.to)) {
                (true, true) => Ending::Identical,
                (true, false) => Ending::Unchanged,
                (false, _) => Ending::Undecided,
            };
            rest.push(Rest { measured, ending });
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
        Outcome {
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

    /// Whether the whole range changed the other way round.
    fn is_opposite(&self) -> bool {
        let last = self.question.last();
        !self.evidence.are_same(0, last)
            && self
                .sample(0, last, None)
                .is_some_and(|sample| sample.is_opposite(self.question.direction))
    }
}

/// The standard deviation of two values or more.
pub(super) fn standard_deviation(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    if values.len() < 2 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (n - 1.0)).sqrt())
}
