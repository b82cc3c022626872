//! Measures the blocks that a strategy chooses, and stores each.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Instant;

use super::collected::{Collected, NoteOn};
use super::executor::{BlockJob, Event, Executor, Place};
use super::failed::Failed;
use super::plan::{Block, BlockKind, Reading};
use super::readings::Readings;
use super::recorder::Recorder;
use super::remaining::words;
use super::strategy::{Next, NextBlock, SoFar, Strategy};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::observation::{Meter, PlannedBlocks};
use perfquilt_model::point::Point;
use perfquilt_model::progress::{self, Step};
use perfquilt_store::{ExperimentId, Store};
use perfquilt_system::process::check_interrupted;

/// A message of a lane to the driver.
enum Message {
    /// A result of the lane's block.
    Event {
        lane: u32,
        event: Box<Event>,
        /// Receives whether the result was stored.
        reply: Sender<Result<()>>,
    },
    /// The lane's block ended.
    Done { lane: u32, result: Result<()> },
}

/// A block that a lane is measuring.
struct RunningBlock {
    block: Block,
    /// Its name in the progress output, if it has one.
    name: Option<String>,
    place: Place,
    began: Instant,
    /// How many blocks began before it.
    order: u64,
}

/// The state of one run over all lanes.
struct Run<'p> {
    lanes: u32,
    /// Blocks of a wave, if the stopping rule looks at complete waves only.
    wave: Option<u32>,
    /// By lane.
    running: BTreeMap<u32, RunningBlock>,
    failed: Failed,
    step: Option<Box<dyn Step + 'p>>,
    /// How many blocks have begun.
    begun: u64,
    /// Lines about blocks, until those about the blocks that began before them are shown.
    held: BTreeMap<u64, Vec<String>>,
}

impl Run<'_> {
    /// Returns a lane without a block.
    fn idle(&self) -> Option<u32> {
        (0..self.lanes).find(|lane| !self.running.contains_key(lane))
    }

    /// Leaves a workload out of further blocks of one reading.
    fn fail_workload(&mut self, key: (String, Reading), error: Error) {
        let (workload, reading) = &key;
        // It may have failed on several lanes.
        if self.failed.has_workload(workload, *reading) {
            return;
        }
        let error = named(workload, error);
        let skipped = "it is skipped for the rest of this run; the next run tries it again";
        let words = format!("{}\n  {skipped}", with_details(&error));
        progress::warn(error.clone().reworded(words).into());
        self.failed.workloads.insert(key, error);
    }

    /// Shows the lines of all blocks up to the first one that is running, in the order in which these began.
    fn show_held(&mut self) {
        let first = self.running.values().map(|running| running.order).min();
        let shown = |order: u64| first.is_none_or(|first| order <= first);
        while let Some(entry) = self.held.first_entry().filter(|entry| shown(*entry.key())) {
            for line in entry.remove() {
                progress::interim(&line);
            }
        }
    }
}

/// Measures jobs on one lane until their queue ends. The lane is opened by its first job.
fn work(lane: u32, executor: &dyn Executor, jobs: &Receiver<BlockJob>, driver: &Sender<Message>) {
    let mut open = None;
    for job in jobs {
        let mut measure = || {
            let measuring = match &mut open {
                Some(open) => open,
                none => none.insert(executor.open(lane)?),
            };
            measuring.run(&job, &mut |event| {
                let (reply, replied) = mpsc::channel();
                let event = Box::new(event);
                let message = Message::Event { lane, event, reply };
                let gone = || Error::internal("the driver ended");
                driver.send(message).map_err(|_| gone())?;
                replied.recv().map_err(|_| gone())?
            })
        };
        // The driver would wait for ever for a lane that panicked.
        let result = catch_unwind(AssertUnwindSafe(&mut measure))
            .unwrap_or_else(|_| Err(Error::internal(format!("lane {lane} panicked"))));
        if driver.send(Message::Done { lane, result }).is_err() {
            return;
        }
    }
}

/// Measures one experiment.
pub struct Driver<'a> {
    recorder: Recorder<'a>,
    collected: Collected<'a>,
    margin: &'a dyn Fn(Meter) -> f64,
    /// Points and workloads that failed before.
    failed: Failed,
}

impl<'a> Driver<'a> {
    /// Continues experiment `id` of `store`; `planned` has its stopping rule. `margin` gives the equivalence margins as
    /// fractions of speed.
    pub fn new(
        store: &'a Store,
        id: ExperimentId,
        readings: &'a Readings,
        planned: Vec<PlannedBlocks>,
        margin: &'a dyn Fn(Meter) -> f64,
    ) -> Result<Self> {
        Ok(Driver {
            collected: Collected::load(store, id, planned, readings)?,
            recorder: Recorder::new(store, id, readings)?,
            margin,
            failed: Failed::default(),
        })
    }

    /// Returns the driver that leaves out points and workloads which `failed` before.
    pub fn without(self, failed: Failed) -> Self {
        Driver { failed, ..self }
    }

    /// Returns whether `strategy` has no block left without the points and workloads that `failed`.
    pub fn is_complete(&mut self, strategy: &mut dyn Strategy, failed: &Failed) -> Result<bool> {
        let state = self.collected.stopping_before(u32::MAX, failed)?;
        let mut so_far = SoFar {
            recorder: &self.recorder,
            collected: &mut self.collected,
            failed,
            lanes: 1,
            wave: None,
            running: &[],
            ended: state.as_ref().filter(|state| state.ended),
        };
        Ok(matches!(strategy.next(&mut so_far)?, Next::End))
    }

    /// Measures and stores the blocks of `strategy` on all lanes of `executor`. Returns the points and workloads that
    /// failed, and how it ended. After an error, blocks that other lanes have begun are still measured and stored.
    pub fn drive(
        &mut self,
        strategy: &mut dyn Strategy,
        executor: &dyn Executor,
    ) -> (Failed, Result<()>) {
        let mut run = Run {
            lanes: executor.lanes().max(1),
            wave: executor.wave(),
            running: BTreeMap::new(),
            failed: self.failed.clone(),
            step: None,
            begun: 0,
            held: BTreeMap::new(),
        };
        let started = Instant::now();
        let end = std::thread::scope(|scope| {
            let (to_driver, inbox) = mpsc::channel();
            let lanes: Vec<Sender<BlockJob>> = (0..run.lanes)
                .map(|lane| {
                    let (jobs, queue) = mpsc::channel();
                    let to_driver = to_driver.clone();
                    scope.spawn(move || work(lane, executor, &queue, &to_driver));
                    jobs
                })
                .collect();
            // The inbox must end when the lanes have.
            drop(to_driver);
            self.distribute(&mut run, strategy, &lanes, &inbox)
        });
        if let Some(step) = run.step {
            let elapsed = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            if end.is_ok() && !strategy.is_pilot() {
                step.finish(&format!("measured in {}", words(elapsed)));
            }
        }
        (run.failed, end)
    }

    /// Gives blocks to idle lanes and records what they report, until no block is left or one fails.
    fn distribute(
        &mut self,
        run: &mut Run<'_>,
        strategy: &mut dyn Strategy,
        lanes: &[Sender<BlockJob>],
        inbox: &Receiver<Message>,
    ) -> Result<()> {
        let mut end = Ok(());
        loop {
            while end.is_ok()
                && let Some(lane) = run.idle()
            {
                match self.next(run, strategy) {
                    Ok(Next::Measure(next)) => {
                        let job = self.assign(run, lane, next);
                        // A lane that ended has sent its error.
                        let _ = lanes[lane as usize].send(job);
                    }
                    Ok(Next::Wait | Next::End) => break,
                    Err(error) => end = Err(error),
                }
            }
            if run.running.is_empty() {
                return end;
            }
            let Ok(message) = inbox.recv() else {
                return end.and_then(|()| Err(Error::internal("the lanes ended")));
            };
            match message {
                Message::Event { lane, event, reply } => {
                    // Nobody waits for the reply on a lane that panicked.
                    let _ = reply.send(self.record(run, lane, *event));
                }
                Message::Done { lane, result } => {
                    let learned = match (run.running.remove(&lane), &result) {
                        (Some(running), Ok(())) => self.learn(run.lanes, &running, strategy),
                        _ => Ok(()),
                    };
                    end = end.and(result).and(learned);
                    run.show_held();
                }
            }
        }
    }

    /// Tells the `strategy` how long a block took, and stores it for the forecasts of later experiments.
    fn learn(&self, lanes: u32, running: &RunningBlock, strategy: &mut dyn Strategy) -> Result<()> {
        let elapsed = running.began.elapsed();
        match strategy.finished(&running.block, elapsed) {
            Some(slices) => {
                let took = (elapsed.as_secs_f64(), slices);
                self.recorder.record_duration(&running.block, lanes, took)
            }
            None => Ok(()),
        }
    }

    fn next(&mut self, run: &Run<'_>, strategy: &mut dyn Strategy) -> Result<Next> {
        check_interrupted()?;
        let running: Vec<Block> = run
            .running
            .values()
            .map(|running| running.block.clone())
            .collect();
        strategy.next(&mut SoFar {
            recorder: &self.recorder,
            collected: &mut self.collected,
            failed: &run.failed,
            lanes: run.lanes,
            wave: run.wave,
            running: &running,
            ended: None,
        })
    }

    /// Makes the job of measuring a block on `lane`, and announces it.
    fn assign(&self, run: &mut Run<'_>, lane: u32, next: NextBlock) -> BlockJob {
        if let Some(announcement) = &next.announcement {
            let step = run
                .step
                .get_or_insert_with(|| progress::begin("measure", None));
            step.estimate(announcement.share, &announcement.line);
        }
        let transactions = self.transactions(&next.block);
        let running = RunningBlock {
            block: next.block.clone(),
            name: next.announcement.map(|announced| announced.name),
            place: Place {
                machine: None,
                lane: (run.lanes > 1).then_some(lane),
            },
            began: Instant::now(),
            order: run.begun,
        };
        run.begun += 1;
        run.running.insert(lane, running);
        BlockJob {
            block: next.block,
            transactions,
        }
    }

    /// Stores an event of the block that runs on `lane`; reports its effects when it has a name.
    fn record(&mut self, run: &mut Run<'_>, lane: u32, event: Event) -> Result<()> {
        let Some(running) = run.running.get_mut(&lane) else {
            return Err(Error::internal("a lane without a block reports a result"));
        };
        let at = (&running.block, &running.place);
        let (workload, observations) = match event {
            Event::Timed {
                workload,
                measured,
                sample,
            } => match self.recorder.store_timed(at, &workload, (measured, sample)) {
                Ok(stored) => (workload, stored),
                // Its slices are unusable, those of other workloads need not be.
                Err(error) if error.kind() == Kind::Bench => {
                    let reading = running.block.kind.reading();
                    run.fail_workload((workload, reading), error);
                    return Ok(());
                }
                Err(error) => return Err(error),
            },
            Event::Counted { workload, readings } => {
                let stored = self.recorder.store_counted(at, &workload, &readings)?;
                (workload, stored)
            }
            Event::Placed(place) => {
                running.place = place;
                return Ok(());
            }
            Event::Failed { point, error } => {
                // Several lanes may have started its server.
                run.failed.points.entry(point).or_insert_with(|| {
                    warn_of_failure(point, &error);
                    error
                });
                return Ok(());
            }
            Event::WorkloadFailed { workload, error } => {
                let reading = running.block.kind.reading();
                run.fail_workload((workload, reading), error);
                return Ok(());
            }
        };
        for observation in observations {
            self.collected.add(observation)?;
        }
        if let Some(name) = &running.name
            && let Some(line) = self.line(name, &workload, &running.block)
        {
            run.held.entry(running.order).or_default().push(line);
            run.show_held();
        }
        Ok(())
    }

    /// Returns how many transactions a counted block counts, by workload.
    fn transactions(&self, block: &Block) -> BTreeMap<String, u64> {
        if block.kind.reading() == Reading::Timed {
            return BTreeMap::new();
        }
        let readings = self.recorder.readings();
        let workloads = block.workloads.iter();
        workloads
            .filter_map(|name| {
                let workload = readings.workload(name)?;
                Some((name.clone(), self.collected.transactions(workload)))
            })
            .collect()
    }

    /// Returns the line about a workload of the block called `name`; `None` before an effect can be estimated.
    fn line(&self, name: &str, workload: &str, block: &Block) -> Option<String> {
        let readings = self.recorder.readings();
        let &meter = readings.meters(block.kind.reading()).first()?;
        let on = match block.kind {
            BlockKind::EndToEnd => NoteOn::EndToEnd,
            BlockKind::Timed | BlockKind::Counted => NoteOn::Patches(&block.points),
        };
        let effects = self.collected.note(workload, meter, on, self.margin);
        // The blocks that it is compared with may still be measured on another lane.
        let quantity = meter.shown_quantity();
        (!effects.is_empty()).then(|| format!("{name} · {workload} · {quantity}: {effects}"))
    }
}

/// Returns the error with the workload's name in its message.
fn named(workload: &str, error: Error) -> Error {
    if error.message().contains(workload) {
        return error;
    }
    let message = format!("workload {workload}: {}", error.message());
    error.reworded(message)
}

/// Returns the lines of an error's message and details.
fn with_details(error: &Error) -> String {
    let details = error.detail_lines().iter().map(String::as_str);
    let lines = std::iter::once(error.message()).chain(details);
    lines.collect::<Vec<_>>().join("\n  ")
}

fn warn_of_failure(point: Point, error: &Error) {
    let error = error.clone().reworded(with_details(error));
    let words = format!("point {point} is skipped for the rest of this run");
    progress::warn(error.warning(words));
}
