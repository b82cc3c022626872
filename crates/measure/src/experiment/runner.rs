//! Carries a plan out block by block, storing each, skipping those that are stored.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::executor::{Event, Executor};
use super::plan::{Block, Reading};
use super::progress::{Forecast, words};
use super::values::{functions_of, observation, round_number, transactions_of};
use super::{note, stopping};
use perfquilt_config::{Workload, WorkloadKind};
use perfquilt_judge::attribution::{self, Stopping};
use perfquilt_judge::stats::{self, BlockValue};
use perfquilt_machine::meter::Counts;
use perfquilt_machine::workload::Measured;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::observation::Slices;
use perfquilt_model::observation::{Meter, Moment, Observation, Planned, Supplement};
use perfquilt_model::point::Point;
use perfquilt_model::progress::{Progress, Step};
use perfquilt_store::{Brought, ExperimentId, Meanwhile, SliceBlob, Store};
use perfquilt_system::process::check_interrupted;

/// Nanoseconds of undisturbed work that a counted block aims at, for every workload: callgrind makes
/// of it some seconds.
const COUNTED_NANOSECONDS: f64 = 4e7;
/// Transactions counted where no time is known.
const COUNTED_BY_DEFAULT: u64 = 200;

/// The experiment being measured.
pub(super) struct Runner<'a> {
    store: &'a Store,
    id: ExperimentId,
    timed: &'a [Meter],
    counted: &'a [Meter],
    workloads: BTreeMap<String, &'a Workload>,
    planned: Vec<Planned>,
    /// Points measured through another.
    identical: BTreeMap<Point, Point>,
    margin: &'a dyn Fn(Meter) -> f64,
    /// The blocks that are stored, the direct ones marked.
    done: BTreeMap<(String, Meter), BTreeSet<(bool, u32)>>,
    /// The state of the stopping rule behind the last timed block, and how many values were stored
    /// and points had failed then.
    newest: RefCell<Option<(usize, Option<Stopping>)>>,
}

impl<'a> Runner<'a> {
    /// Looks up what is stored already. `planned` says when the experiment ends.
    pub(super) fn new(
        store: &'a Store,
        id: ExperimentId,
        timed: &'a [Meter],
        counted: &'a [Meter],
        workloads: &[&'a Workload],
        planned: Vec<Planned>,
        margin: &'a dyn Fn(Meter) -> f64,
    ) -> Result<Self> {
        let mut done = BTreeMap::new();
        for workload in workloads {
            for &meter in timed.iter().chain(counted) {
                let mut blocks = BTreeSet::new();
                for direct in [false, true] {
                    let stored = store.blocks_done(id, &workload.name, meter, direct)?;
                    blocks.extend(stored.into_iter().map(|number| (direct, number)));
                }
                done.insert((workload.name.clone(), meter), blocks);
            }
        }
        Ok(Runner {
            store,
            id,
            timed,
            counted,
            workloads: workloads
                .iter()
                .map(|workload| (workload.name.clone(), *workload))
                .collect(),
            planned,
            identical: store.header(id)?.identical,
            margin,
            done,
            newest: RefCell::new(None),
        })
    }

    fn meters(&self, reading: Reading) -> &'a [Meter] {
        match reading {
            Reading::Timed => self.timed,
            Reading::Counted => self.counted,
        }
    }

    fn is_done(&self, workload: &str, meter: Meter, block: &Block) -> bool {
        self.done
            .get(&(workload.to_owned(), meter))
            .is_some_and(|blocks| blocks.contains(&(block.direct, block.stored_as(0))))
    }

    /// What is left of a block: the workloads of which some meter is missing.
    fn left(&self, block: &Block, failed: &BTreeMap<Point, Error>) -> Block {
        let mut left = block.clone();
        left.points.retain(|point| !failed.contains_key(point));
        left.workloads.retain(|workload| {
            self.meters(block.reading)
                .iter()
                .any(|&meter| !self.is_done(workload, meter, block))
        });
        left
    }

    /// What of `block` is still to be measured, and the state of the stopping rule before it; `timed` is
    /// the number of timed blocks that are planned before it.
    fn todo(
        &self,
        block: &Block,
        timed: u32,
        failed: &BTreeMap<Point, Error>,
    ) -> Result<(Block, Option<Stopping>)> {
        let left = self.left(block, failed);
        let stops = self.planned.iter().any(|plan| plan.resolution.is_some());
        if left.workloads.is_empty() || !stops {
            return Ok((left, None));
        }
        let number = match block.reading {
            Reading::Timed => timed,
            Reading::Counted => u32::MAX,
        };
        let state = self.state(number, failed)?;
        let left = match (&state, block.reading) {
            (Some(state), Reading::Timed) if !block.direct => {
                stopping::needed(left, state, &self.identical)
            }
            (Some(state), Reading::Timed) if !stopping::needs_direct(block.number, state) => {
                Block {
                    workloads: Vec::new(),
                    ..left
                }
            }
            _ => left,
        };
        Ok((left, state))
    }

    /// The state of the stopping rule before the timed block `number`, when `failed` points are left
    /// out.
    fn state(&self, number: u32, failed: &BTreeMap<Point, Error>) -> Result<Option<Stopping>> {
        let of_timed = || {
            self.done
                .iter()
                .filter(|((_, meter), _)| self.timed.contains(meter))
        };
        // Direct blocks are no part of the rule, and sort behind the others.
        let last = of_timed().filter_map(|(_, blocks)| blocks.range(..(true, 0)).last());
        let newest = last.max().is_none_or(|&(_, last)| last < number);
        // Behind the last block, the state is the same until something is stored.
        let stored = failed.len() + of_timed().map(|(_, blocks)| blocks.len()).sum::<usize>();
        if let Some((at, state)) = &*self.newest.borrow()
            && newest
            && *at == stored
        {
            return Ok(state.clone());
        }
        let (mut header, observations) = self.store.load(self.id)?;
        for (point, error) in failed {
            header.failed.insert(*point, error.message().to_owned());
        }
        let state = stopping::before(number, &header, &observations, &self.planned)?;
        if newest {
            *self.newest.borrow_mut() = Some((stored, state.clone()));
        }
        Ok(state)
    }

    /// Whether nothing of `blocks` is left to be measured when `failed` points are left out.
    ///
    /// # Errors
    /// As [`Store::load`].
    pub(super) fn is_complete(
        &self,
        blocks: &[Block],
        failed: &BTreeMap<Point, Error>,
    ) -> Result<bool> {
        let mut timed = 0;
        for block in blocks {
            if is_of_use(&self.todo(block, timed, failed)?.0) {
                return Ok(false);
            }
            timed += u32::from(is_of_the_rule(block));
        }
        Ok(true)
    }

    /// Measures what is left of `blocks`. Returns the points that failed, and how it ended.
    pub(super) fn drive(
        &mut self,
        blocks: &[Block],
        block_seconds: f64,
        executor: &mut dyn Executor,
        progress: &dyn Progress,
    ) -> (BTreeMap<Point, Error>, Result<()>) {
        let mut failed = BTreeMap::new();
        let end = self.drive_into(&mut failed, blocks, block_seconds, executor, progress);
        (failed, end)
    }

    fn drive_into(
        &mut self,
        failed: &mut BTreeMap<Point, Error>,
        blocks: &[Block],
        block_seconds: f64,
        executor: &mut dyn Executor,
        progress: &dyn Progress,
    ) -> Result<()> {
        let total = |of: &Block| {
            let same = |b: &&Block| (b.reading, b.direct) == (of.reading, of.direct);
            blocks.iter().filter(same).count()
        };
        let mut forecast = Forecast::new(
            block_seconds,
            self.workloads.len(),
            blocks.first().map_or(0, |block| block.points.len()),
        );
        let mut step: Option<Box<dyn Step>> = None;
        let started = Instant::now();
        let mut timed = 0;
        for (place, planned) in blocks.iter().enumerate() {
            check_interrupted()?;
            let (block, state) = self.todo(planned, timed, failed)?;
            timed += u32::from(is_of_the_rule(planned));
            if !is_of_use(&block) {
                continue;
            }
            let left: Vec<&Block> = blocks[place..]
                .iter()
                .filter(|block| !self.left(block, failed).workloads.is_empty())
                .collect();
            let coming = forecast.milliseconds(&left, state.as_ref());
            let step = step.get_or_insert_with(|| progress.begin("measure", None));
            let kind = match block.reading {
                Reading::Timed if block.direct => "direct block",
                Reading::Timed => "block",
                Reading::Counted => "counted block",
            };
            let most = match (block.reading, &state) {
                (Reading::Timed, Some(_)) => "at most ",
                _ => "",
            };
            let name = format!("{kind} {} of {most}{}", block.number + 1, total(&block));
            let past = started.elapsed().as_secs_f64() * 1000.0;
            let line = stopping::message(&name, state.as_ref(), coming);
            step.foretold(past / (past + coming as f64), &line);
            let transactions = match block.reading {
                Reading::Timed => BTreeMap::new(),
                Reading::Counted => self.transactions(&block)?,
            };
            let began = Instant::now();
            executor.run(
                &block,
                &transactions,
                &mut |event| match self.take_in(&block, event)? {
                    Taken::Stored(workload) => self.tell(&name, &workload, &block, progress),
                    Taken::Failed(point, error) => {
                        leave_out(point, &error, progress);
                        failed.insert(point, error);
                        Ok(())
                    }
                },
            )?;
            forecast.learn(block.reading, began.elapsed());
        }
        if let Some(step) = step {
            step.finish(&format!(
                "measured in {}",
                words(u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX))
            ));
        }
        Ok(())
    }

    /// Measures `block` and nothing else, storing it. Returns the points that failed.
    ///
    /// # Errors
    /// As [`Executor::run`].
    pub(super) fn measure(
        &mut self,
        block: &Block,
        executor: &mut dyn Executor,
        progress: &dyn Progress,
    ) -> Result<BTreeMap<Point, Error>> {
        let transactions = match block.reading {
            Reading::Timed => BTreeMap::new(),
            Reading::Counted => self.transactions(block)?,
        };
        let mut failed = BTreeMap::new();
        executor.run(block, &transactions, &mut |event| {
            if let Taken::Failed(point, error) = self.take_in(block, event)? {
                leave_out(point, &error, progress);
                failed.insert(point, error);
            }
            Ok(())
        })?;
        Ok(failed)
    }

    /// Stores what a block brought.
    fn take_in(&mut self, block: &Block, event: Event) -> Result<Taken> {
        match event {
            Event::Timed {
                workload,
                measured,
                moment,
            } => {
                self.store_timed(block, &workload, measured, moment)?;
                Ok(Taken::Stored(workload))
            }
            Event::Counted { workload, readings } => {
                self.store_counted(block, &workload, &readings)?;
                Ok(Taken::Stored(workload))
            }
            Event::Failed { point, error } => Ok(Taken::Failed(point, error)),
        }
    }

    fn store_timed(
        &mut self,
        block: &Block,
        workload: &str,
        measured: Measured,
        moment: Option<Moment>,
    ) -> Result<()> {
        // What was timed apart, and the slices themselves, are of this meter.
        let with_time =
            self.timed.contains(&Meter::Time) && !self.is_done(workload, Meter::Time, block);
        let mut observations = Vec::new();
        for &meter in self.timed {
            if self.is_done(workload, meter, block) {
                continue;
            }
            let slices = if meter == Meter::Cpu {
                &measured.cpu
            } else {
                &measured.time
            };
            let values = stats::reduce_block(slices);
            if values.len() != slices.len() || values.is_empty() {
                let name = match self.workloads.get(workload).map(|w| w.kind) {
                    Some(WorkloadKind::Sysbench) => "the driver",
                    _ => "the client",
                };
                return Err(Error::new(
                    Kind::Bench,
                    format!("{name} of workload {workload} returned no usable {meter} slices"),
                ));
            }
            for (copy, reduced, slices) in numbered(values, slices) {
                let point = reduced.point;
                let n = transactions_of(slices);
                observations.push(Observation {
                    block: block.stored_as(copy),
                    layout: block.layout(point, copy),
                    mean: reduced.tail.map(|tail| tail.mean),
                    slow: reduced.tail.map(|tail| tail.slow),
                    p99: reduced.tail.and_then(|tail| tail.p99),
                    ..observation(block, workload, meter, point, reduced.value, n)
                });
            }
        }
        let operations = measured.operations.into_iter().filter(|_| with_time);
        for (name, rows) in operations {
            // An operation that no slice of a server has is missing there.
            let rows: Vec<Slices> = rows.into_iter().filter(has_slices).collect();
            for (copy, reduced, row) in numbered(stats::reduce_block(&rows), &rows) {
                let (point, n) = (reduced.point, transactions_of(row));
                let part = format!("{workload}/{name}");
                observations.push(Observation {
                    block: block.stored_as(copy),
                    layout: block.layout(point, copy),
                    ..observation(block, &part, Meter::Time, point, reduced.value, n)
                });
            }
        }
        let slices: Vec<SliceBlob> = if with_time {
            let mut copies = Copies::default();
            measured
                .time
                .into_iter()
                .map(|slices| SliceBlob {
                    block: block.stored_as(copies.of(slices.point)),
                    workload: workload.to_owned(),
                    point: slices.point,
                    direct: block.direct,
                    txns_per_slice: slices.transactions_per_slice,
                    nanoseconds: slices.nanoseconds,
                })
                .collect()
        } else {
            Vec::new()
        };
        let brought = Brought {
            observations: &observations,
            slices: &slices,
            meanwhile: Some(Meanwhile {
                workload,
                direct: block.direct,
                block: block.stored_as(0),
                moment,
                spoiled_rounds: measured.spoiled_rounds,
            }),
            ..Brought::default()
        };
        self.store.append_block(self.id, &brought)?;
        self.mark(block, workload);
        Ok(())
    }

    fn store_counted(
        &mut self,
        block: &Block,
        workload: &str,
        readings: &BTreeMap<Point, Counts>,
    ) -> Result<()> {
        let mut observations = Vec::new();
        let mut functions = Vec::new();
        for (&point, counts) in readings {
            functions.extend(functions_of(block, workload, point, counts));
            for reading in &counts.counted {
                let wanted = self.counted.contains(&reading.meter)
                    && !self.is_done(workload, reading.meter, block);
                if wanted {
                    observations.push(observation(
                        block,
                        workload,
                        reading.meter,
                        point,
                        reading.value,
                        reading.n,
                    ));
                }
            }
        }
        let brought = Brought {
            observations: &observations,
            functions: &functions,
            ..Brought::default()
        };
        self.store.append_block(self.id, &brought)?;
        self.mark(block, workload);
        Ok(())
    }

    fn mark(&mut self, block: &Block, workload: &str) {
        for &meter in self.meters(block.reading) {
            let numbers =
                (0..block.copies.max(1)).map(|copy| (block.direct, block.stored_as(copy)));
            self.done
                .entry((workload.to_owned(), meter))
                .or_default()
                .extend(numbers);
        }
    }

    /// How many transactions each workload counts: about the same work for all, decided by what the
    /// base took in the timed blocks.
    fn transactions(&self, block: &Block) -> Result<BTreeMap<String, u64>> {
        let (header, observations) = self.store.load(self.id)?;
        Ok(block
            .workloads
            .iter()
            .map(|name| {
                let workload = self.workloads.get(name);
                let of_sysbench = workload
                    .and_then(|workload| workload.sysbench.as_ref())
                    .map(|settings| u64::from(settings.count_transactions));
                // A command cannot do less than one run, and its own size was chosen already.
                let of_command = workload
                    .and_then(|workload| workload.command.as_ref())
                    .map(|settings| settings.transactions);
                let configured = of_sysbench.or(of_command).unwrap_or(0);
                let mut times: Vec<f64> = observations
                    .iter()
                    .filter(|o| o.workload == *name && o.meter == Meter::Time)
                    .filter(|o| o.point == Point::BASE && o.experiment == header.experiment)
                    .map(|o| o.value)
                    .collect();
                let count = match (configured, stats::median(&mut times)) {
                    (0, Some(time)) => round_number(COUNTED_NANOSECONDS / time),
                    (0, None) => COUNTED_BY_DEFAULT,
                    (configured, _) => configured,
                };
                (name.clone(), count)
            })
            .collect())
    }

    fn tell(
        &self,
        name: &str,
        workload: &str,
        block: &Block,
        progress: &dyn Progress,
    ) -> Result<()> {
        let (header, observations) = self.store.load(self.id)?;
        let supplement = Supplement {
            planned: self.planned.clone(),
            ..Supplement::default()
        };
        let attribution =
            attribution::attribute_with(&header, &observations, &supplement, self.margin)?;
        for &meter in self.meters(block.reading).iter().take(1) {
            let effects = if block.direct {
                note::closure(&attribution, workload, meter)
            } else {
                note::effects(&attribution, workload, meter)
            };
            progress.note(&format!("{name} · {workload} · {meter}: {effects}"));
        }
        Ok(())
    }
}

/// How often each point came so far.
#[derive(Default)]
struct Copies(BTreeMap<Point, u32>);

impl Copies {
    /// The next copy of a point, from 0.
    fn of(&mut self, point: Point) -> u32 {
        let next = self.0.entry(point).or_default();
        *next += 1;
        *next - 1
    }
}

/// Values with the slices they were made of, one each, and which copy of its point each is.
fn numbered(values: Vec<BlockValue>, slices: &[Slices]) -> Vec<(u32, BlockValue, &Slices)> {
    let mut copies = Copies::default();
    let each = values.into_iter().zip(slices);
    each.map(|(value, slices)| (copies.of(value.point), value, slices))
        .collect()
}

/// Whether there is a slice that a value can be made of.
fn has_slices(slices: &Slices) -> bool {
    slices
        .nanoseconds
        .iter()
        .any(|ns| ns.is_finite() && *ns > 0.0)
}

/// What became of an event.
enum Taken {
    /// A workload's observations are stored.
    Stored(String),
    /// A point is left out from here on.
    Failed(Point, Error),
}

fn leave_out(point: Point, error: &Error, progress: &dyn Progress) {
    let lines: Vec<&str> = std::iter::once(error.message())
        .chain(error.detail_lines().iter().map(String::as_str))
        .collect();
    progress.warn(&format!(
        "point {point} is left out from here on: {}",
        lines.join("\n  ")
    ));
}

/// Whether the stopping rule looks at what is measured in `block`.
fn is_of_the_rule(block: &Block) -> bool {
    block.reading == Reading::Timed && !block.direct
}

/// Whether anything can be learnt from what is left of a block.
fn is_of_use(block: &Block) -> bool {
    let is_base = |point: &Point| matches!(*point, Point::BASE | Point::Control);
    !block.workloads.is_empty() && !block.points.iter().all(is_base)
}
