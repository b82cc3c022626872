//! Strategies that choose the next block.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::collected::Collected;
use super::plan::{Block, Reading};
use super::progress::Forecast;
use super::recorder::Recorder;
use super::stopping;
use perfquilt_judge::attribution::Stopping;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::point::Point;

/// The state of an experiment between two blocks.
pub struct SoFar<'s, 'a> {
    /// The stored blocks.
    pub recorder: &'s Recorder<'a>,
    /// Their observations.
    pub collected: &'s mut Collected,
    /// Points that later blocks leave out.
    pub failed: &'s BTreeMap<Point, Error>,
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
    /// Returns the next block, or `None` at the end.
    ///
    /// # Errors
    /// The errors of [`Collected::stopping_before`].
    fn next(&mut self, so_far: &mut SoFar<'_, '_>) -> Result<Option<NextBlock>>;

    /// Records how long a block took.
    fn finished(&mut self, _reading: Reading, _elapsed: Duration) {}
}

/// The blocks of an experiment in the order of its plan, until its stopping rule ends it.
pub struct PlannedExperiment<'p> {
    blocks: &'p [Block],
    /// The index of the next block.
    place: usize,
    /// Timed blocks over all points before that index.
    timed: u32,
    forecast: Forecast,
    started: Instant,
}

impl<'p> PlannedExperiment<'p> {
    /// Begins with the first of `blocks`; a block measures `block_seconds` a workload.
    pub fn new(blocks: &'p [Block], block_seconds: f64) -> Self {
        let first = blocks.first();
        let (workloads, points) = first.map_or((0, 0), |b| (b.workloads.len(), b.points.len()));
        PlannedExperiment {
            blocks,
            place: 0,
            timed: 0,
            forecast: Forecast::new(block_seconds, workloads, points),
            started: Instant::now(),
        }
    }

    /// Returns the part of `block` that is still needed, and the state of the stopping rule before it.
    fn needed(
        &self,
        block: &Block,
        so_far: &mut SoFar<'_, '_>,
    ) -> Result<(Block, Option<Stopping>)> {
        let rest = so_far.recorder.rest(block, so_far.failed);
        if rest.workloads.is_empty() || !so_far.collected.has_stopping_rule() {
            return Ok((rest, None));
        }
        let number = match block.reading {
            Reading::Timed => self.timed,
            Reading::Counted => u32::MAX,
        };
        let state = so_far.collected.stopping_before(number, so_far.failed)?;
        let rest = match (&state, block.reading) {
            (Some(state), Reading::Timed) if !block.direct => {
                stopping::needed(rest, state, so_far.collected.identical())
            }
            (Some(state), Reading::Timed) if !stopping::needs_direct(block.number, state) => {
                Block {
                    workloads: Vec::new(),
                    ..rest
                }
            }
            _ => rest,
        };
        Ok((rest, state))
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
        let coming = self.forecast.milliseconds(&left, state);
        let kind = match block.reading {
            Reading::Timed if block.direct => "direct block",
            Reading::Timed => "block",
            Reading::Counted => "counted block",
        };
        let most = match (block.reading, state) {
            (Reading::Timed, Some(_)) => "at most ",
            _ => "",
        };
        let same = |b: &&Block| (b.reading, b.direct) == (block.reading, block.direct);
        let total = self.blocks.iter().filter(same).count();
        let name = format!("{kind} {} of {most}{total}", block.number + 1);
        let past = self.started.elapsed().as_secs_f64() * 1000.0;
        Announcement {
            line: stopping::message(&name, state, coming),
            share: past / (past + coming as f64),
            name,
        }
    }
}

impl Strategy for PlannedExperiment<'_> {
    fn next(&mut self, so_far: &mut SoFar<'_, '_>) -> Result<Option<NextBlock>> {
        while let Some(planned) = self.blocks.get(self.place) {
            let (block, state) = self.needed(planned, so_far)?;
            let announcement =
                informative(&block).then(|| self.announcement(&block, state.as_ref(), so_far));
            self.place += 1;
            self.timed += u32::from(planned.reading == Reading::Timed && !planned.direct);
            if announcement.is_some() {
                return Ok(Some(NextBlock {
                    block,
                    announcement,
                }));
            }
        }
        Ok(None)
    }

    fn finished(&mut self, reading: Reading, elapsed: Duration) {
        self.forecast.learn(reading, elapsed);
    }
}

/// Requested blocks, of any points; ends when fewer than two of the points are left.
pub struct RequestedBlocks<F> {
    /// The numbers of the blocks.
    numbers: std::ops::Range<u32>,
    /// The points of each.
    points: Vec<Point>,
    /// Draws the block with a number over these points.
    draw: F,
}

impl<F: Fn(u32, &[Point]) -> Block> RequestedBlocks<F> {
    /// Begins with the first of `numbers`.
    pub fn new(numbers: std::ops::Range<u32>, points: Vec<Point>, draw: F) -> Self {
        RequestedBlocks {
            numbers,
            points,
            draw,
        }
    }
}

impl<F: Fn(u32, &[Point]) -> Block> Strategy for RequestedBlocks<F> {
    fn next(&mut self, so_far: &mut SoFar<'_, '_>) -> Result<Option<NextBlock>> {
        self.points
            .retain(|point| !so_far.failed.contains_key(point));
        if self.points.len() < 2 {
            return Ok(None);
        }
        let number = self.numbers.next();
        Ok(number.map(|number| NextBlock {
            block: (self.draw)(number, &self.points),
            announcement: None,
        }))
    }
}

/// Returns whether a block can contribute to an effect.
fn informative(block: &Block) -> bool {
    let is_base = |point: &Point| matches!(*point, Point::BASE | Point::Control);
    !block.workloads.is_empty() && !block.points.iter().all(is_base)
}
