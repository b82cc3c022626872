//! Runs a bisection: builds and measures the servers that the bisector requests, and stores the session.

use std::collections::BTreeMap;

use super::explain;
use super::jobs::PointBuilder;
use super::request::BisectRequest;
use super::revisions::Revisions;
use super::sessions::{self, Sessions, StoredSession};
use crate::experiment::adaptive::AdaptiveRunner;
use crate::experiment::spec::Spec;
use perfquilt_build::Built;
use perfquilt_config::workspace::Workspace;
use perfquilt_judge::bisect::{
    Action, BisectOutcome, Bisector, Event, Explanation, FileStat, MeasuredBlock, Question,
    Revision,
};
use perfquilt_judge::stats::{FEWEST_FOR_P99, FEWEST_SLICES};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::observation::{ExperimentHeader, FunctionChange};
use perfquilt_model::progress;
use perfquilt_model::warning::Warning;
use perfquilt_store::Store;

/// A finished session.
#[derive(Debug)]
pub struct Finished {
    /// Its name.
    pub name: String,
    /// Its result.
    pub outcome: BisectOutcome,
}

/// Returns the path of the store with the observations of bisections.
pub(super) fn results(ws: &Workspace) -> std::path::PathBuf {
    ws.state().join("bisect.db")
}

/// Runs a bisection, and resumes an earlier run of the same one.
///
/// # Errors
/// [`Kind::Usage`] for a question that makes no sense; [`Kind::Series`], [`Kind::Build`] and
/// [`Kind::Bench`] when an end of the range has no sources, cannot be built or cannot be measured;
/// [`Kind::Interrupted`]; everything finished is stored.
pub fn bisect(ws: &Workspace, states: &dyn Revisions, request: &BisectRequest) -> Result<Finished> {
    let question = request.question_of(states.range())?;
    note_edited(&Sessions::of(ws), &question);
    let store = Store::open(&results(ws))?;
    let mut run = BisectRun::open(ws, states, request, &question, &store)?;
    run.run(&|_| false)?;
    run.explain()?;
    Ok(Finished {
        outcome: run.bisector.outcome(),
        name: run.kept.name,
    })
}

/// Warns that the previous session asked the same about other sources.
fn note_edited(sessions: &Sessions, question: &Question) {
    let Ok(last) = sessions.find(None) else {
        return;
    };
    let old = &last.session.question;
    let ends = |states: &[Revision]| {
        let label = |state: Option<&Revision>| state.map(|state| state.label.clone());
        (label(states.first()), label(states.last()))
    };
    let same_ask = (&old.release, &old.workload, old.meter)
        == (&question.release, &question.workload, question.meter);
    let edited = old.states != question.states;
    let unfinished = *last.session.replay().action() != Action::Done;
    if same_ask && edited && unfinished && ends(&old.states) == ends(&question.states) {
        progress::warn(Warning::edited_series(format!(
            "the series was edited since bisection {} stopped; starting a new one, which reuses the measurements of unchanged servers",
            last.name
        )));
    }
}

/// A running session.
pub(super) struct BisectRun<'a> {
    ws: &'a Workspace,
    states: &'a dyn Revisions,
    kept: StoredSession,
    pub(super) bisector: Bisector,
    points: PointBuilder<'a>,
    request: &'a BisectRequest,
    runner: AdaptiveRunner<'a>,
    store: &'a Store,
    /// The keys of the states' builds, as far as their sources are known.
    keys: BTreeMap<usize, String>,
    /// The number of states of every stored block that the bisector has, by experiment and block number.
    imported: BTreeMap<(String, u32), usize>,
    /// The whole errors of the unusable states.
    errors: BTreeMap<usize, Error>,
}

impl<'a> BisectRun<'a> {
    /// Begins or resumes the session that asks `question`.
    pub(super) fn open(
        ws: &'a Workspace,
        states: &'a dyn Revisions,
        request: &'a BisectRequest,
        question: &Question,
        store: &'a Store,
    ) -> Result<Self> {
        let preset = &request.preset;
        let on = preset.on.as_deref();
        let points = PointBuilder::new(ws, &preset.recipe, on, states.item(0)?)?;
        let mut header = ExperimentHeader::new(&question.release, &preset.recipe);
        let changes = &question.states[1..];
        header.series = changes.iter().map(|state| state.name.clone()).collect();
        header.titles = changes.iter().map(|state| state.title.clone()).collect();
        let spec = Spec::of_question(ws, preset, question, header)?;
        // Other build settings make another server from the same sources.
        let context = format!("{}{}", spec.observed([])?, points.builder.key(""));
        let kept = Sessions::of(ws).open(question, &context, ws.answers().is_fresh(), store)?;
        let places = || question.states.iter().enumerate();
        let keys = places().filter(|(_, state)| !state.tree.is_empty());
        let keys = keys.map(|(place, state)| (place, points.builder.key(&state.tree)));
        let keys = keys.collect();
        let cached = places()
            .filter_map(|(place, state)| Some((place, points.builder.cached(&state.tree)?)))
            .collect();
        let name = format!("bisect-{}", kept.name);
        let runner = AdaptiveRunner::open(spec, question, name, &sessions::key(&kept.name), store)?;
        let bisector = kept.session.replay();
        let mut run = BisectRun {
            ws,
            states,
            bisector,
            kept,
            points,
            request,
            runner,
            store,
            keys,
            imported: BTreeMap::new(),
            errors: BTreeMap::new(),
        };
        run.begin(cached)?;
        Ok(run)
    }

    /// Gives the bisector the stored blocks, the servers in the cache, and blocks that were measured just before
    /// the session was killed.
    fn begin(&mut self, cached: BTreeMap<usize, Built>) -> Result<()> {
        let is_new = self.kept.session.events.is_empty();
        if !is_new {
            progress::note(&format!(
                "continuing bisection {}: {} blocks were measured",
                self.kept.name,
                self.bisector.cost().blocks
            ));
        }
        for event in &self.kept.session.events {
            if let Event::Block(block) = event
                && let Some(source) = &block.source
            {
                let place = (source.clone(), block.number);
                self.imported.insert(place, block.values.len());
            }
        }
        for (place, built) in cached {
            self.add_server(place, &built)?;
            if is_new {
                self.record(Event::Built {
                    state: place,
                    identity: built.identity.clone(),
                    seconds: 0.0,
                    cached: true,
                })?;
            }
        }
        if is_new {
            self.import()?;
        } else {
            let unknown = self.runner.blocks(self.next_number())?;
            self.tell_blocks(unknown)?;
        }
        self.kept.write()
    }

    /// Registers the server of a state.
    fn add_server(&mut self, state: usize, built: &Built) -> Result<()> {
        self.runner.add(state, built)?;
        self.keys.insert(state, built.key.clone());
        Ok(())
    }

    /// Applies an event to the bisector, records it in the session, and reports new decisions.
    fn record(&mut self, event: Event) -> Result<()> {
        let before = self.bisector.path().len();
        self.bisector.apply(&event);
        self.kept.session.events.push(event);
        for decision in &self.bisector.path()[before..] {
            let line = (self.request.describe)(self.bisector.question(), decision);
            progress::note(&line);
        }
        Ok(())
    }

    /// Returns the number after the session's last block. Numbers can be missing: a cluster may lose blocks.
    fn next_number(&self) -> u32 {
        let own = self
            .kept
            .session
            .events
            .iter()
            .filter_map(|event| match event {
                Event::Block(block) if block.source.is_none() => {
                    Some(block.number.saturating_add(1))
                }
                _ => None,
            });
        own.max().unwrap_or(0)
    }

    /// Gives the bisector blocks of this session.
    fn tell_blocks(&mut self, blocks: Vec<MeasuredBlock>) -> Result<()> {
        let mut blocks = blocks.into_iter();
        blocks.try_for_each(|block| self.record(Event::Block(block)))
    }

    /// Gives the bisector the blocks of earlier experiments that it does not have.
    fn import(&mut self) -> Result<()> {
        if self.kept.session.fresh {
            return Ok(());
        }
        let mut known = self.runner.known(self.store, &self.keys)?;
        if self.ws.results().is_file() {
            let results = Store::open_existing(&self.ws.results())?;
            known.extend(self.runner.known(&results, &self.keys)?);
        }
        let before = self.kept.session.events.len();
        for block in known {
            let place = (block.source.clone().unwrap_or_default(), block.number);
            let states = block.values.len();
            if self
                .imported
                .get(&place)
                .is_none_or(|imported| *imported < states)
            {
                self.imported.insert(place, states);
                self.record(Event::Block(block))?;
            }
        }
        if self.kept.session.events.len() > before {
            self.record(Event::Imported)
        } else {
            Ok(())
        }
    }

    /// Runs the bisector's actions until everything is decided, or `enough` returns true.
    pub(super) fn run(&mut self, enough: &dyn Fn(&Bisector) -> bool) -> Result<()> {
        while !enough(&self.bisector) {
            match self.bisector.action().clone() {
                Action::Build { state } => self.build(state)?,
                Action::Measure { states, blocks } => self.measure(&states, blocks)?,
                Action::Broken { state } => return Err(self.broken(state)),
                Action::Done => return Ok(()),
            }
            self.kept.write()?;
        }
        Ok(())
    }

    fn build(&mut self, state: usize) -> Result<()> {
        match self.make(state) {
            Ok((built, seconds)) => {
                self.add_server(state, &built)?;
                self.record(Event::Built {
                    state,
                    identity: built.identity.clone(),
                    seconds,
                    cached: built.cached,
                })?;
                self.import()
            }
            Err(error) if matches!(error.kind(), Kind::Build | Kind::Series) => {
                self.unusable(state, error, false)
            }
            Err(error) => Err(error),
        }
    }

    /// Builds the state's server; returns it with the seconds it took.
    fn make(&self, state: usize) -> Result<(Built, f64)> {
        self.points.build_one(&self.states.item(state)?)
    }

    fn unusable(&mut self, state: usize, error: Error, crashed: bool) -> Result<()> {
        let reason = error.to_string();
        self.errors.insert(state, error);
        self.record(Event::Unusable {
            state,
            reason,
            crashed,
        })
    }

    /// Ensures that these states have servers: the cache may have been emptied since the session stopped.
    fn make_ready(&mut self, states: &[usize]) -> Result<()> {
        for &state in states {
            if self.runner.server(state).is_none() {
                let (built, _) = self.make(state)?;
                self.add_server(state, &built)?;
            }
        }
        Ok(())
    }

    fn measure(&mut self, states: &[usize], blocks: usize) -> Result<()> {
        self.make_ready(states)?;
        let labels: Vec<&str> = states
            .iter()
            .map(|&state| self.bisector.question().states[state].label.as_str())
            .collect();
        let before = self.bisector.cost().blocks;
        let first = self.next_number();
        let count = u32::try_from(blocks).unwrap_or(u32::MAX);
        let numbers = first..first.saturating_add(count);
        let what = format!("{blocks} blocks of {}, after {before}", labels.join(", "));
        let measured = self.runner.measure(states, numbers, &what);
        // A failed measurement leaves whole blocks in the store; a resumed session reads them. A failure of the
        // base ends the measurement.
        let (measured, failed) = measured.map_err(|error| match error.kind() {
            Kind::Bench if states.contains(&0) => {
                let fault = self.unmeasured(0, &error);
                // The cause may be outside the server, such as a full disk.
                let hint = error.hint_text();
                let end = self.states.another_end("good");
                fault.hint_if(hint.map(|hint| format!("{hint}; or {end}")))
            }
            _ => error,
        })?;
        if measured.is_empty() && failed.is_empty() {
            return Err(no_values(self.bisector.question(), &labels));
        }
        self.tell_blocks(measured)?;
        for (state, error) in failed {
            self.unusable(state, error, true)?;
        }
        Ok(())
    }

    /// Explains the changes that were found, unless an earlier run explained them.
    fn explain(&mut self) -> Result<()> {
        let request = self.request;
        for culprit in self.bisector.outcome().culprits {
            let (from, to) = (culprit.from, culprit.to);
            let wanted = request.profile && culprit.confirmed && culprit.functions.is_none();
            if !wanted && !culprit.files.is_empty() {
                continue;
            }
            let trees = (self.states.item(from)?.tree, self.states.item(to)?.tree);
            let functions = if wanted {
                self.functions(from, to)?
            } else {
                culprit.functions
            };
            self.record(Event::Explained(Explanation {
                from,
                to,
                files: self.files(&trees.0, &trees.1)?,
                functions,
                next: self.states.next(from, to, request),
            }))?;
        }
        self.kept.write()
    }

    /// Returns the files that a change touches; none where git cannot list them.
    fn files(&self, before: &str, after: &str) -> Result<Vec<FileStat>> {
        let files = self.if_told("files", explain::files(self.ws, before, after))?;
        Ok(files.unwrap_or_default())
    }

    /// Returns the result of an explanation, `None` if it failed: the answer that names the change holds
    /// without it.
    fn if_told<T>(&self, what: &str, found: Result<T>) -> Result<Option<T>> {
        match found {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind() == Kind::Interrupted => Err(error),
            Err(error) => {
                let words = format!("cannot determine which {what} it is");
                progress::warn(error.warning(words));
                Ok(None)
            }
        }
    }

    /// Returns the functions that a change made more or less expensive; `None` where the profile fails.
    fn functions(&mut self, from: usize, to: usize) -> Result<Option<Vec<FunctionChange>>> {
        self.make_ready(&[from, to])?;
        let server = |state: usize| {
            let missing = || Error::internal(format!("state {state} has no server"));
            self.runner.server(state).ok_or_else(missing)
        };
        let servers = [server(from)?, server(to)?];
        let release = &self.bisector.question().release;
        let functions = explain::functions(self.ws, self.request, release, to, servers);
        self.if_told("functions", functions)
    }

    /// Returns the error that nothing can be compared because the end `state` has no usable server.
    fn broken(&self, state: usize) -> Error {
        // The failed server may belong to another state with the same binary.
        let mut errors = self.errors.iter();
        match errors.find(|(other, _)| self.bisector.are_same(state, **other)) {
            Some((_, error)) => self.unmeasured(state, error),
            None => Error::internal(format!("state {state} cannot be used")),
        }
    }

    /// Returns the error for an end of the range that cannot be measured.
    fn unmeasured(&self, state: usize, error: &Error) -> Error {
        let which = if state == 0 { "good" } else { "bad" };
        let label = &self.bisector.question().states[state].label;
        let message = format!("the {which} end, {label}, cannot be measured: {error}");
        let error = error.clone().reworded(message);
        error.hint(self.states.another_end(which))
    }
}

/// Returns the error for blocks of `labels` that have no value of what the question is about.
pub(super) fn no_values(question: &Question, labels: &[&str]) -> Error {
    let (workload, meter) = (&question.workload, question.meter);
    let error = Error::client_result(format!(
        "the workload {workload} gave no {meter} of {}",
        labels.join(", ")
    ));
    match meter.statistic {
        Some(_) => error.hint(format!(
            "a block has too few slices for that ({FEWEST_SLICES} are needed, {FEWEST_FOR_P99} for the 99th \
             percentile): more `block_seconds`, or shorter transactions"
        )),
        None => error,
    }
}
