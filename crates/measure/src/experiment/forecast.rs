//! Forecasts of an experiment: blocks, width, memory and time, before anything is measured. Pure.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::cluster::ROW_BLOCKS;
use super::lengths::share;
use super::plan::{FEWEST_FOR_REPEATS, direct_blocks};
use super::progress::words;
use super::windows::FIRST_LOOK_BLOCKS;
use perfquilt_config::Preset;
use perfquilt_judge::attribution::FEWEST_MACHINES_AS_UNITS;
use perfquilt_judge::stats::half_width;
use perfquilt_model::point::Point;

/// The variances of a value that are assumed where nothing was measured, as MariaDB has them on a shared virtual
/// machine: what restarts and layouts change, and what the slices of a block of one second leave.
const ASSUMED: (f64, f64) = (0.0095 * 0.0095, 2.0 * 0.0075 * 0.0075);
/// Seconds to link and start a server, where nothing was measured.
const START_SECONDS: f64 = 0.5;
/// Seconds to connect a client and to warm up, a workload.
const CONNECT_SECONDS: f64 = 1.0;
/// Seconds to start a server and to count one workload on it.
const COUNT_SECONDS: (f64, f64) = (8.0, 6.0);
/// The most blocks that a forecast considers.
const FORESEEABLE: u32 = 100_000;

/// The basis of a forecast's noise figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoiseSource {
    /// The experiment of this name.
    Experiment(String),
    /// Typical figures of a shared virtual machine.
    Assumed,
}

/// An experiment as it is expected to be.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Forecast {
    /// Points to measure, the control included.
    pub points: usize,
    /// Windows of points; 1 where every block has all points.
    pub windows: usize,
    /// Servers that run at once on a lane.
    pub servers: usize,
    /// Lanes, of each machine.
    pub lanes: usize,
    /// Machines of the cluster that measures; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machines: Option<u32>,
    /// Memory that all servers of a machine need at once, in bytes; `null` before their data was prepared.
    pub memory: Option<u64>,
    /// Memory available for servers, in bytes; `null` on a cluster.
    pub available_memory: Option<u64>,
    /// The expected number of timed blocks of each window.
    pub blocks: u32,
    /// Their maximum number.
    pub most_blocks: u32,
    /// Counted blocks.
    pub count_blocks: u32,
    /// Seconds that a block's slices measure a workload, for up to six servers together.
    pub block_seconds: f64,
    /// The expected half-width of a patch's 95 % interval on one workload, as a fraction of speed; the widest over
    /// workloads.
    pub half_width: f64,
    /// The standard deviation of a value in a block, the largest over workloads.
    pub noise: f64,
    /// The basis of the noise.
    pub noise_source: NoiseSource,
    /// The expected duration in seconds, without builds.
    pub seconds: f64,
}

impl Forecast {
    /// Returns the lanes and machines that each have all servers of a block, in words that follow *at once*; empty for a
    /// single lane of this machine.
    pub fn places(&self) -> String {
        match (self.lanes, self.machines) {
            (1, None) => String::new(),
            (lanes, None) => format!(" on each of {lanes} lanes"),
            (1, Some(machines)) => format!(" on each of {machines} machines"),
            (lanes, Some(machines)) => format!(" on each of {lanes} lanes of {machines} machines"),
        }
    }

    /// Returns the expected duration in words.
    pub fn duration(&self) -> String {
        seconds_in_words(self.seconds)
    }

    /// Returns a warning if the experiment is expected to take longer than its `budget`, in seconds: two blocks are
    /// measured, and everything is counted, whatever the budget is.
    pub fn over_budget(&self, budget: f64) -> Option<String> {
        // Less is within what a forecast can tell.
        (self.seconds > 1.1 * budget + 1.0).then(|| {
            format!(
                "{} of the budget are left to measure, and the least that a report needs takes about {}",
                seconds_in_words(budget),
                self.duration()
            )
        })
    }
}

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let windows = match self.windows {
            1 => String::new(),
            windows => format!(" in each of {windows} windows"),
        };
        if self.blocks > 0 {
            write!(
                f,
                "{} blocks{windows}, ±{:.2} %, ",
                self.blocks,
                100.0 * self.half_width
            )?;
        }
        write!(f, "{} servers at once{}, ", self.servers, self.places())?;
        if let Some(memory) = self.memory {
            write!(f, "{:.1} GiB, ", memory as f64 / f64::from(1 << 30))?;
        }
        write!(f, "about {}", self.duration())
    }
}

fn seconds_in_words(seconds: f64) -> String {
    words((seconds * 1000.0).round().max(0.0) as u64)
}

/// The number of points of each window.
#[derive(Debug, Clone, Default)]
pub(super) struct WindowSizes {
    /// Of the windows; one if all points are measured at once.
    pub windows: Vec<usize>,
    /// Of the first look's windows.
    pub first_look: Vec<usize>,
}

impl WindowSizes {
    /// Returns the sizes of `windows` and those of the first look.
    pub(super) fn of(windows: &[Vec<Point>], first_look: &[Vec<Point>]) -> Self {
        let sizes = |windows: &[Vec<Point>]| windows.iter().map(Vec::len).collect();
        WindowSizes {
            windows: sizes(windows),
            first_look: sizes(first_look),
        }
    }

    /// Returns the largest number of servers that run at once on a lane.
    pub(super) fn most_servers(&self) -> usize {
        let all = self.windows.iter().chain(&self.first_look);
        all.copied().max().unwrap_or(0)
    }
}

/// What a forecast depends on.
#[derive(Debug, Clone)]
pub(super) struct ForecastBasis<'a> {
    /// The settings.
    pub preset: &'a Preset,
    /// Whether times are measured.
    pub timed: bool,
    /// Whether counts are measured.
    pub counted: bool,
    /// The sizes of windows.
    pub windows: &'a WindowSizes,
    /// All points.
    pub points: usize,
    /// Whether there is a closure check.
    pub closure: bool,
    /// The variance of a value in a block, by workload, where it is known.
    pub noise: &'a BTreeMap<String, f64>,
    /// Where it is known from.
    pub source: NoiseSource,
    /// The workloads.
    pub workloads: Vec<&'a str>,
    /// The number of lanes, of each machine.
    pub lanes: usize,
    /// The cluster that measures; `None` for this machine.
    pub cluster: Option<ClusterSize>,
    /// The number of processors that count side by side.
    pub processors: usize,
    /// Seconds to use; `None` without a limit.
    pub budget: Option<f64>,
    /// Memory that all servers of a machine need at once, and the memory available for them, as far as known.
    pub memory: (Option<u64>, Option<u64>),
}

/// The machines of a cluster.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClusterSize {
    /// How many measure at once.
    pub machines: u32,
    /// The standard deviation of a point's cost between machines, as a fraction; 0 where it is not known.
    pub between: f64,
}

impl ClusterSize {
    /// Returns the number of blocks of a wave.
    fn wave(self) -> u32 {
        self.machines.saturating_mul(ROW_BLOCKS)
    }
}

impl ForecastBasis<'_> {
    /// Returns the forecast.
    pub(super) fn forecast(&self) -> Forecast {
        let preset = self.preset;
        let fewest = preset.min_blocks().unwrap_or(2).max(2);
        let most_blocks = match self.budget {
            Some(budget) => self.within(budget),
            None => preset.blocks,
        };
        let enough = |blocks: u32| {
            let resolution = preset.resolution.unwrap_or(0.0);
            self.width(blocks) <= resolution
        };
        let blocks = match preset.resolution {
            Some(_) => first((fewest, most_blocks.max(fewest)), &enough),
            None => most_blocks,
        };
        let blocks = if self.timed {
            blocks.min(most_blocks)
        } else {
            0
        };
        Forecast {
            points: self.points,
            windows: self.windows.windows.len(),
            servers: self.windows.most_servers(),
            lanes: self.lanes,
            machines: self.cluster.map(|cluster| cluster.machines),
            memory: self.memory.0,
            available_memory: self.memory.1,
            blocks,
            most_blocks: if self.timed { most_blocks } else { 0 },
            count_blocks: if self.counted { preset.count_blocks } else { 0 },
            block_seconds: preset.block_seconds,
            half_width: self.width(blocks),
            noise: self.variance().sqrt(),
            noise_source: self.source.clone(),
            seconds: self.duration(blocks),
        }
    }

    /// Returns the largest number of blocks that take at most `budget` seconds, at least two.
    fn within(&self, budget: f64) -> u32 {
        let too_long = |blocks: u32| self.duration(blocks) > budget;
        first((3, FORESEEABLE), &too_long) - 1
    }

    /// Returns the largest variance of a value in a block over workloads.
    fn variance(&self) -> f64 {
        let (between, within) = ASSUMED;
        let assumed = between + within / self.preset.block_seconds;
        let of = |name: &&str| self.noise.get(*name).copied().unwrap_or(assumed);
        self.workloads.iter().map(of).fold(0.0, f64::max)
    }

    /// Returns the half-width of a comparison of two points after `blocks`.
    fn width(&self, blocks: u32) -> f64 {
        // Two blocks run the same layouts in all but short experiments.
        let short = blocks < FEWEST_FOR_REPEATS && self.preset.resolution.is_none();
        let units = if short { blocks } else { blocks.div_ceil(2) };
        let noise = 2.0 * self.variance() / f64::from(blocks.max(1));
        match self.cluster {
            Some(cluster) if cluster.machines as usize >= FEWEST_MACHINES_AS_UNITS => {
                let machines = cluster.machines.min(blocks.div_ceil(ROW_BLOCKS));
                let between = 2.0 * cluster.between.powi(2) / f64::from(machines.max(1));
                half_width((noise + between).sqrt(), machines as usize)
            }
            _ => half_width(noise.sqrt(), units as usize),
        }
    }

    /// Returns the seconds that an experiment with `blocks` takes.
    fn duration(&self, blocks: u32) -> f64 {
        let mut seconds = 0.0;
        let machines = self
            .cluster
            .map_or(1.0, |cluster| f64::from(cluster.machines));
        if self.timed {
            let lanes = match self.cluster {
                // A row is measured by one machine.
                Some(_) => self.lanes.clamp(1, ROW_BLOCKS as usize),
                None => self.lanes.max(1),
            } as f64;
            let blocks = self.whole_waves(blocks);
            let each = |sizes: &[usize]| -> f64 {
                let blocks = sizes.iter().map(|&servers| self.block(servers));
                blocks.sum()
            };
            let first_look = f64::from(FIRST_LOOK_BLOCKS) * each(&self.windows.first_look);
            let direct = if self.closure {
                f64::from(direct_blocks(blocks)) * self.block(self.points.min(6))
            } else {
                0.0
            };
            let windows = f64::from(blocks) * each(&self.windows.windows);
            seconds += (first_look + windows + direct) / lanes / machines;
        }
        if self.counted {
            let (start, count) = COUNT_SECONDS;
            let point = start + count * self.workloads.len() as f64;
            let points = self.points as f64 / self.processors.max(1) as f64;
            // One machine counts a block.
            let side_by_side = machines.min(f64::from(self.preset.count_blocks)).max(1.0);
            seconds += f64::from(self.preset.count_blocks) * points * point / side_by_side;
        }
        seconds
    }

    /// Returns the number of blocks of each window that are measured before a cluster looks whether `blocks` are done.
    fn whole_waves(&self, blocks: u32) -> u32 {
        match self.cluster {
            Some(cluster) if self.windows.windows.len() <= 1 => {
                blocks.next_multiple_of(cluster.wave().max(1))
            }
            _ => blocks,
        }
    }

    /// Returns the seconds of a block with so many servers.
    fn block(&self, servers: usize) -> f64 {
        let workloads = self.workloads.len() as f64;
        let overhead = servers as f64 * START_SECONDS + workloads * CONNECT_SECONDS;
        overhead + share(servers) * workloads * self.preset.block_seconds
    }
}

/// Returns the first number in a range for which `fits`, which holds from some number on; the last one if it never
/// does.
fn first((mut low, mut high): (u32, u32), fits: &dyn Fn(u32) -> bool) -> u32 {
    while low < high {
        let middle = low.midpoint(high);
        if fits(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    static NOTHING: BTreeMap<String, f64> = BTreeMap::new();

    fn preset(resolution: Option<f64>) -> Preset {
        let resolution = resolution.map_or(String::new(), |r| format!("resolution = {r}\n"));
        let text = format!(
            "recipe = \"r\"\nworkloads = [\"w\"]\nmeters = [\"time\"]\nblocks = 60\nblock_seconds = 2.0\n\
             {resolution}"
        );
        toml::from_str(&text).unwrap()
    }

    fn sizes(windows: &[usize], first_look: &[usize]) -> WindowSizes {
        WindowSizes {
            windows: windows.to_vec(),
            first_look: first_look.to_vec(),
        }
    }

    fn basis<'a>(preset: &'a Preset, windows: &'a WindowSizes) -> ForecastBasis<'a> {
        ForecastBasis {
            preset,
            timed: true,
            counted: false,
            windows,
            points: 6,
            closure: false,
            noise: &NOTHING,
            source: NoiseSource::Assumed,
            workloads: vec!["w"],
            lanes: 1,
            cluster: None,
            processors: 2,
            budget: None,
            memory: (None, None),
        }
    }

    #[test]
    fn as_many_blocks_as_the_resolution_needs() {
        let preset = preset(Some(0.008));
        let six = sizes(&[6], &[]);
        let forecast = basis(&preset, &six).forecast();
        assert!((10..60).contains(&forecast.blocks), "{forecast:?}");
        assert!(forecast.half_width <= 0.008);
        // Six servers, a client and the slices.
        let each = 6.0 * START_SECONDS + CONNECT_SECONDS + 2.0;
        assert_eq!(forecast.seconds, f64::from(forecast.blocks) * each);
        let two = ForecastBasis {
            lanes: 2,
            ..basis(&preset, &six)
        };
        assert_eq!(two.forecast().seconds, forecast.seconds / 2.0);
    }

    #[test]
    fn a_cluster_measures_whole_waves_on_all_machines() {
        let preset = preset(Some(0.008));
        let six = sizes(&[6], &[]);
        let on = |machines, between| ForecastBasis {
            cluster: Some(ClusterSize { machines, between }),
            ..basis(&preset, &six)
        };
        let block = on(3, 0.0).block(6);
        let few = on(3, 0.0).forecast();
        assert_eq!(few.machines, Some(3));
        // Blocks are the units on few machines.
        assert_eq!(few.blocks, basis(&preset, &six).forecast().blocks);
        let waves = few.seconds / (4.0 * block);
        assert_eq!(waves, waves.round());
        // A row of four blocks on each of sixty machines is one wave.
        assert!((on(60, 0.0).forecast().seconds - 4.0 * block).abs() < 1e-9);
        // As many machines that differ are units that no number of blocks makes more of.
        let wide = on(8, 0.01).forecast();
        assert!(
            wide.half_width > 0.008 && wide.blocks == wide.most_blocks,
            "{wide:?}"
        );
    }

    #[test]
    fn a_budget_is_used_and_not_exceeded() {
        let preset = preset(None);
        let (one, two) = (sizes(&[6], &[]), sizes(&[6, 6], &[]));
        for budget in [60.0, 600.0, 7200.0] {
            let basis = ForecastBasis {
                budget: Some(budget),
                ..basis(&preset, &two)
            };
            let forecast = basis.forecast();
            assert!(forecast.seconds <= budget, "{forecast:?}");
            assert!(basis.duration(forecast.blocks + 1) > budget);
            assert_eq!(forecast.over_budget(budget), None);
        }
        let basis = ForecastBasis {
            budget: Some(1.0),
            ..basis(&preset, &one)
        };
        assert_eq!(basis.forecast().blocks, 2);
        assert_eq!(
            basis.forecast().over_budget(1.0).as_deref(),
            Some(
                "1 s of the budget are left to measure, and the least that a report needs takes about 12 s"
            )
        );
    }

    #[test]
    fn long_series_take_as_long_as_their_servers() {
        let preset = preset(None);
        let seconds = |windows: &[usize], first_look: &[usize]| {
            let sizes = sizes(windows, first_look);
            basis(&preset, &sizes).forecast().seconds
        };
        let (one, many) = (seconds(&[10], &[]), seconds(&[10; 9], &[]));
        assert!((many / one - 9.0).abs() < 1e-9);
        // Sixty blocks in each of nine windows, and twelve in each of two.
        let looked = seconds(&[10; 9], &[10, 5]);
        assert!(looked > 1.02 * many && looked < 1.05 * many);
    }
}
