//! Strategies that choose the next block.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::collected::Collected;
use super::failed::Failed;
use super::lengths::share;
use super::plan::{Block, BlockKind, Reading, Scope, single};
use super::recorder::Recorder;
use super::remaining::{BlockTimes, RemainingTime};
use super::stopping;
use perfquilt_judge::attribution::Stopping;
use perfquilt_model::error::Result;
use perfquilt_model::point::Point;

/// The state of an experiment between two blocks.
pub struct SoFar<'s, 'a> {
    /// The stored blocks.
    pub recorder: &'s Recorder<'a>,
    /// Their observations.
    pub collected: &'s mut Collected<'a>,
    /// Points and workloads that later blocks leave out.
    pub failed: &'s Failed,
    /// The number of lanes.
    pub lanes: u32,
    /// The number of blocks of a wave, if the stopping rule looks at complete waves only.
    pub wave: Option<u32>,
    /// The blocks that other lanes are measuring.
    pub running: &'s [Block],
    /// The state of the stopping rule after all stored blocks, if it ended the experiment. Another number of lanes
    /// decides from other blocks, and must not continue it.
    pub ended: Option<&'s Stopping>,
}

/// The next step of an experiment.
pub enum Next {
    /// Measure this block.
    Measure(NextBlock),
    /// Ask again when a running block has ended: it decides what comes next.
    Wait,
    /// No block is left.
    End,
}

/// A block to measure.
pub struct NextBlock {
    /// The block.
    pub block: Block,
    /// How it appears in the progress output; `None` if the caller reports progress itself.
    pub announcement: Option<Announcement>,
}

/// The progress output of a block.
pub struct Announcement {
    /// The block's name, such as `block 3 of 24`.
    pub name: String,
    /// The line beside the progress bar.
    pub line: String,
    /// The estimated share of the experiment's time that has passed.
    pub share: f64,
}

/// Chooses blocks one at a time.
pub trait Strategy {
    /// Returns the next step. It is [`Next::Wait`] only while blocks are running.
    fn next(&mut self, so_far: &mut SoFar<'_, '_>) -> Result<Next>;

    /// Learns how long a block took. Returns the seconds that the settings give to its slices, if forecasts of later
    /// experiments can learn from it, too.
    fn finished(&mut self, _block: &Block, _elapsed: Duration) -> Option<f64> {
        None
    }

    /// Returns whether more blocks come after those of this strategy.
    fn is_pilot(&self) -> bool {
        false
    }
}

/// The blocks of an experiment in the order of its plan, until its stopping rule ends it.
pub struct PlannedExperiment<'p> {
    blocks: &'p [Block],
    /// All points of these blocks.
    points: BTreeSet<Point>,
    /// The index of the next block.
    place: usize,
    /// Timed blocks over all points before that index.
    timed: u32,
    forecast: RemainingTime,
    started: Instant,
    block_seconds: f64,
    /// No block begins that would not end before this moment.
    deadline: Option<Instant>,
    pilot: bool,
}

impl<'p> PlannedExperiment<'p> {
    /// Begins with the first of `blocks`; a block measures `block_seconds` a workload, and is expected to take so long. No
    /// block begins that would not end before the `deadline`.
    pub fn new(
        blocks: &'p [Block],
        block_seconds: f64,
        expected: BlockTimes,
        deadline: Option<Instant>,
    ) -> Self {
        PlannedExperiment {
            blocks,
            points: blocks
                .iter()
                .flat_map(|block| &block.points)
                .copied()
                .collect(),
            place: 0,
            timed: 0,
            forecast: RemainingTime::new(expected),
            started: Instant::now(),
            block_seconds,
            deadline,
            pilot: false,
        }
    }

    /// Returns the strategy as that of the first blocks, which show how long the others will take.
    pub fn into_pilot(self) -> Self {
        PlannedExperiment {
            pilot: true,
            ..self
        }
    }

    /// Returns the part of `block` that is still needed, and the state of the stopping rule before it.
    fn needed(
        &self,
        block: &Block,
        so_far: &mut SoFar<'_, '_>,
    ) -> Result<(Block, Option<Stopping>)> {
        let mut rest = so_far.recorder.rest(block, so_far.failed);
        if block.kind.reading() == Reading::Timed {
            let unexecuted = so_far.collected.unexecuted();
            let points = &self.points;
            rest.workloads
                .retain(|workload| !unexecuted.is_untimed(workload, points));
        }
        if rest.workloads.is_empty() || !so_far.collected.has_stopping_rule() {
            return Ok((rest, None));
        }
        let number = match block.kind.reading() {
            Reading::Timed => self.known(so_far),
            Reading::Counted => u32::MAX,
        };
        let state = match so_far.ended {
            Some(ended) => Some(ended.clone()),
            None => so_far.collected.stopping_before(number, so_far.failed)?,
        };
        if so_far.ended.is_some() && block.kind == BlockKind::Timed {
            let workloads = Vec::new();
            return Ok((Block { workloads, ..rest }, state));
        }
        let rest = match &state {
            Some(state) => {
                let points = rest.points.clone();
                let collected = &*so_far.collected;
                stopping::still_needed(rest, state, &|workload, point| {
                    collected.measured_for(&points, workload, point)
                })
            }
            None => rest,
        };
        Ok((rest, state))
    }

    /// Returns how many timed blocks decide about the next one: those of complete waves, if there are waves. Otherwise
    /// all blocks before it do with one lane; each further lane may be measuring one of these.
    fn known(&self, so_far: &SoFar<'_, '_>) -> u32 {
        match so_far.wave {
            Some(wave) => self.timed - self.timed % wave.max(1),
            None => self.timed.saturating_sub(so_far.lanes.saturating_sub(1)),
        }
    }

    /// Returns whether `block` would end after the deadline. Two blocks are measured anyway.
    fn is_late(&self, block: &Block) -> bool {
        let Some(deadline) = self.deadline.filter(|_| self.timed >= 2) else {
            return false;
        };
        let block = Duration::from_millis(self.forecast.milliseconds(&[block], None));
        Instant::now() + block > deadline
    }

    /// Returns whether a running block decides about the next one. What a block measures thus depends on the
    /// number of lanes, but not on which of them is faster.
    fn must_wait(&self, so_far: &SoFar<'_, '_>) -> bool {
        let known = self.known(so_far);
        let decides = |block: &Block| block.kind == BlockKind::Timed && block.number < known;
        let stops = so_far.collected.has_stopping_rule();
        stops && so_far.running.iter().any(decides)
    }

    fn announcement(
        &self,
        block: &Block,
        state: Option<&Stopping>,
        so_far: &SoFar<'_, '_>,
    ) -> Announcement {
        let left: Vec<&Block> = self.blocks[self.place..]
            .iter()
            .filter(|block| !so_far.recorder.is_stored(block))
            .collect();
        let coming = self.forecast.milliseconds(&left, state) / u64::from(so_far.lanes.max(1));
        let kind = match block.kind {
            BlockKind::Timed => "block",
            BlockKind::EndToEnd => "end-to-end block",
            BlockKind::Counted => "counted block",
        };
        let most = match (block.kind.reading(), state) {
            (Reading::Timed, Some(_)) => "at most ",
            _ => "",
        };
        let same = self.blocks.iter().filter(|other| other.kind == block.kind);
        let (total, number) = (same.count(), block.number + 1);
        let name = format!("{kind} {number} of {most}{total}");
        let past = self.started.elapsed().as_secs_f64() * 1000.0;
        Announcement {
            line: stopping::message(&name, state, coming),
            share: past / (past + coming as f64),
            name,
        }
    }
}

impl Strategy for PlannedExperiment<'_> {
    fn next(&mut self, so_far: &mut SoFar<'_, '_>) -> Result<Next> {
        while let Some(planned) = self.blocks.get(self.place) {
            if self.must_wait(so_far) {
                return Ok(Next::Wait);
            }
            let (block, state) = self.needed(planned, so_far)?;
            if informative(&block) && self.is_late(&block) {
                return Ok(Next::End);
            }
            let announcement =
                informative(&block).then(|| self.announcement(&block, state.as_ref(), so_far));
            self.place += 1;
            self.timed += u32::from(planned.kind == BlockKind::Timed);
            if announcement.is_some() {
                return Ok(Next::Measure(NextBlock {
                    block,
                    announcement,
                }));
            }
        }
        Ok(Next::End)
    }

    fn finished(&mut self, block: &Block, elapsed: Duration) -> Option<f64> {
        self.forecast.learn(block.kind.reading(), elapsed);
        let seconds = share(block.servers().len()) * self.block_seconds;
        Some(match block.kind.reading() {
            Reading::Timed => block.workloads.len() as f64 * seconds,
            Reading::Counted => 0.0,
        })
    }

    fn is_pilot(&self) -> bool {
        self.pilot
    }
}

/// Requested blocks, of any points; ends when fewer than two of the points are left.
pub struct RequestedBlocks<'a> {
    /// The numbers of the blocks.
    numbers: std::ops::Range<u32>,
    scope: Scope<'a>,
    kind: BlockKind,
    /// The points of each.
    points: Vec<Point>,
}

impl<'a> RequestedBlocks<'a> {
    /// Begins with the first of `numbers`, all over the points of `scope`.
    pub fn new(numbers: std::ops::Range<u32>, scope: Scope<'a>, kind: BlockKind) -> Self {
        RequestedBlocks {
            numbers,
            points: scope.points.to_vec(),
            scope,
            kind,
        }
    }
}

impl Strategy for RequestedBlocks<'_> {
    fn next(&mut self, so_far: &mut SoFar<'_, '_>) -> Result<Next> {
        self.points
            .retain(|point| !so_far.failed.points.contains_key(point));
        // These blocks have one workload.
        if self.points.len() < 2 || !so_far.failed.workloads.is_empty() {
            return Ok(Next::End);
        }
        let scope = Scope {
            points: &self.points,
            ..self.scope
        };
        Ok(match self.numbers.next() {
            Some(number) => Next::Measure(NextBlock {
                block: single(&scope, self.kind, number),
                announcement: None,
            }),
            None => Next::End,
        })
    }
}

/// Returns whether a block can contribute to an effect.
fn informative(block: &Block) -> bool {
    !block.workloads.is_empty() && !block.points.iter().all(Point::is_unpatched)
}
