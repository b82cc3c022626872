//! Stores the results of blocks, and tracks which blocks are stored.

use std::collections::{BTreeMap, BTreeSet};

use super::executor::Place;
use super::failed::Failed;
use super::plan::{Block, BlockKind};
use super::readings::Readings;
use super::values::{functions_of, transactions_of};
use perfquilt_bench::meter::CountResult;
use perfquilt_bench::meter::MeterReading;
use perfquilt_bench::workload::BlockSlices;
use perfquilt_judge::stats::{self, BlockValue};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{HostSample, Meter, Observation, RowName, Slices};
use perfquilt_model::point::Point;
use perfquilt_store::{
    BlockConditions, BlockDuration, BlockResult, ExperimentId, SliceBlob, Store,
};

/// Stores the blocks of one experiment.
pub struct Recorder<'a> {
    store: &'a Store,
    id: ExperimentId,
    experiment: String,
    readings: &'a Readings,
    /// The numbers of the stored blocks by workload and meter; end-to-end blocks have `true`.
    done: BTreeMap<(String, Meter), BTreeSet<(bool, u32)>>,
}

impl<'a> Recorder<'a> {
    /// Looks up the stored blocks of experiment `id`.
    pub fn new(store: &'a Store, id: ExperimentId, readings: &'a Readings) -> Result<Self> {
        let mut done = BTreeMap::new();
        for workload in &readings.workloads {
            for &meter in readings.timed.iter().chain(&readings.counted) {
                let mut blocks = BTreeSet::new();
                for direct in [false, true] {
                    let stored = store.blocks_done(id, &workload.name, meter, direct)?;
                    blocks.extend(stored.into_iter().map(|number| (direct, number)));
                }
                done.insert((workload.name.clone(), meter), blocks);
            }
        }
        Ok(Recorder {
            store,
            id,
            experiment: store.header(id)?.experiment,
            readings,
            done,
        })
    }

    /// Returns the meters and workloads.
    pub fn readings(&self) -> &'a Readings {
        self.readings
    }

    fn is_done(&self, workload: &str, meter: Meter, block: &Block) -> bool {
        self.done
            .get(&(workload.to_owned(), meter))
            .is_some_and(|blocks| blocks.contains(&(block.is_end_to_end(), block.stored_as(0))))
    }

    /// Returns the rest of a block: without `failed` points and workloads, and without workloads whose meters are all
    /// stored.
    pub fn rest(&self, block: &Block, failed: &Failed) -> Block {
        let mut rest = block.clone();
        rest.points
            .retain(|point| !failed.points.contains_key(point));
        let reading = block.kind.reading();
        rest.workloads.retain(|workload| {
            self.is_open(workload, block) && !failed.has_workload(workload, reading)
        });
        rest
    }

    /// Returns whether every meter of every workload of `block` is stored.
    pub fn is_stored(&self, block: &Block) -> bool {
        !block
            .workloads
            .iter()
            .any(|workload| self.is_open(workload, block))
    }

    /// Returns whether some meter of `workload` in `block` is not stored.
    fn is_open(&self, workload: &str, block: &Block) -> bool {
        let mut meters = self.readings.meters(block.kind.reading()).iter();
        meters.any(|&meter| !self.is_done(workload, meter, block))
    }

    /// Stores how long `block` took on one of `lanes`, and the seconds that the settings give to its slices.
    pub fn record_duration(
        &self,
        block: &Block,
        lanes: u32,
        (seconds, slices): (f64, f64),
    ) -> Result<()> {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let duration = BlockDuration {
            counted: block.kind == BlockKind::Counted,
            direct: block.is_end_to_end(),
            block: block.number,
            servers: count(block.servers().len()),
            workloads: count(block.workloads.len()),
            lanes,
            slices,
            seconds,
        };
        self.store.record_duration(self.id, &duration)
    }

    /// Returns the observation of one point in `block`.
    fn observation(
        &self,
        (block, place): (&Block, &Place),
        workload: &str,
        point: Point,
        MeterReading { meter, value, n }: MeterReading,
    ) -> Observation {
        let order = block.points.iter().position(|other| *other == point);
        Observation {
            experiment: self.experiment.clone(),
            order: order.and_then(|o| u32::try_from(o).ok()).unwrap_or(0),
            n,
            direct: block.is_end_to_end(),
            lane: place.lane,
            machine: place.machine.clone(),
            ..Observation::new(block.number, point, workload, meter, value)
        }
    }

    /// Returns the observations of a row, a workload or its operation, reduced from the slices of its points. They were
    /// measured from a time on to another, if both are known.
    fn reduced(
        &self,
        (block, place): (&Block, &Place),
        (row, meter): (&str, Meter),
        slices: &[Slices],
        (began, ended): (Option<f64>, Option<f64>),
    ) -> Vec<Observation> {
        let mut copies = Copies::default();
        let values = stats::reduce_block(slices).into_iter().zip(slices);
        let observation = |(reduced, slices): (BlockValue, &Slices)| {
            let point = reduced.point;
            let copy = copies.of(point);
            let reading = MeterReading {
                meter,
                value: reduced.value,
                n: transactions_of(slices),
            };
            Observation {
                block: block.stored_as(copy),
                layout: block.layout(point, copy),
                began,
                ended,
                mean: reduced.tail.map(|tail| tail.mean),
                slow: reduced.tail.map(|tail| tail.slow),
                p99: reduced.tail.and_then(|tail| tail.p99),
                stalled: reduced.tail.map(|tail| tail.stalled),
                ..self.observation((block, place), row, point, reading)
            }
        };
        values.map(observation).collect()
    }

    /// Stores the slices of a workload in `block`, which was measured at `place`, and what they are reduced to.
    pub fn store_timed(
        &mut self,
        (block, place): (&Block, &Place),
        workload: &str,
        (measured, sample): (BlockSlices, Option<HostSample>),
    ) -> Result<Vec<Observation>> {
        // Operation times and the slices themselves belong to the time meter.
        let with_time = self.readings.timed.contains(&Meter::Time)
            && !self.is_done(workload, Meter::Time, block);
        let mut observations = Vec::new();
        // Without a second lane nothing else is measured at the time.
        let time = sample.filter(|sample| place.lane.is_some() && sample.began > 0.0);
        let began = time.map(|sample| sample.began);
        let times = (began, time.map(|sample| sample.began + sample.seconds));
        for &meter in &self.readings.timed {
            if self.is_done(workload, meter, block) {
                continue;
            }
            let slices = measured.of(meter);
            let of_meter = self.reduced((block, place), (workload, meter), slices, times);
            if of_meter.len() != slices.len() || of_meter.is_empty() {
                return Err(unusable(workload, meter));
            }
            observations.extend(of_meter);
        }
        let operations = measured.operations.into_iter().filter(|_| with_time);
        for (name, slices) in operations {
            // A server without slices of an operation has no value for it.
            let slices: Vec<Slices> = slices.into_iter().filter(has_slices).collect();
            let row = RowName::operation(workload, &name).to_string();
            let of_row = self.reduced((block, place), (&row, Meter::Time), &slices, times);
            observations.extend(of_row.into_iter().map(Observation::without_tail));
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
                    direct: block.is_end_to_end(),
                    transactions_per_slice: slices.transactions_per_slice,
                    values: slices.values,
                })
                .collect()
        } else {
            Vec::new()
        };
        let conditions = BlockConditions {
            workload: workload.to_owned(),
            direct: block.is_end_to_end(),
            block: block.stored_as(0),
            sample,
            discarded_rounds: measured.discarded_rounds,
        };
        let result = BlockResult {
            observations: &observations,
            slices: &slices,
            conditions: Some(&conditions),
            ..BlockResult::default()
        };
        self.store.append_block(self.id, &result)?;
        self.mark(block, workload);
        Ok(observations)
    }

    /// Stores the counts of a workload in `block`, which was measured at `place`.
    pub fn store_counted(
        &mut self,
        (block, place): (&Block, &Place),
        workload: &str,
        readings: &BTreeMap<Point, CountResult>,
    ) -> Result<Vec<Observation>> {
        let mut observations = Vec::new();
        let mut functions = Vec::new();
        for (&point, counts) in readings {
            functions.extend(functions_of(block, workload, point, counts));
            for reading in &counts.readings {
                let wanted = self.readings.counted.contains(&reading.meter)
                    && !self.is_done(workload, reading.meter, block);
                if wanted {
                    let at = (block, place);
                    observations.push(self.observation(at, workload, point, *reading));
                }
            }
        }
        let result = BlockResult {
            observations: &observations,
            functions: &functions,
            ..BlockResult::default()
        };
        self.store.append_block(self.id, &result)?;
        self.mark(block, workload);
        Ok(observations)
    }

    fn mark(&mut self, block: &Block, workload: &str) {
        for &meter in self.readings.meters(block.kind.reading()) {
            let numbers =
                (0..block.copies.max(1)).map(|copy| (block.is_end_to_end(), block.stored_as(copy)));
            self.done
                .entry((workload.to_owned(), meter))
                .or_default()
                .extend(numbers);
        }
    }
}

/// Returns the error of a workload without values of a meter.
fn unusable(workload: &str, meter: Meter) -> Error {
    if meter.is_usage() {
        return Error::meter_failed(format!(
            "workload {workload}: the kernel, or the server itself, reports no {meter} of any server"
        ))
        .hint(format!("leave `{meter}` out of `meters`, or run perfquilt as the servers' user"));
    }
    Error::client_result(format!(
        "the client of workload {workload} returned no usable {meter} slices"
    ))
}

/// Counts how often each point occurred so far.
#[derive(Default)]
struct Copies(BTreeMap<Point, u32>);

impl Copies {
    /// Returns the next copy number of a point, from 0.
    fn of(&mut self, point: Point) -> u32 {
        let next = self.0.entry(point).or_default();
        *next += 1;
        *next - 1
    }
}

/// Returns whether there is a slice that yields a value.
fn has_slices(slices: &Slices) -> bool {
    slices.values.iter().any(|ns| ns.is_finite() && *ns > 0.0)
}
