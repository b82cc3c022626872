//! Forecasts of an experiment: blocks, width, memory and time, before anything is measured. Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::cluster::TASK_BLOCKS;
use super::lengths::share;
use super::plan::{FEWEST_FOR_REPEATS, direct_blocks};
use super::remaining::{BlockTimes, words};
use perfquilt_config::Preset;
use perfquilt_judge::attribution::{Design, ExpectedWidth, Scatter};
use perfquilt_model::error::Result;
use perfquilt_model::warning::Warning;
use perfquilt_store::BlockDuration;

/// Assumptions about a server without measurements.
#[derive(Debug)]
pub(super) struct Guess {
    /// The variances of a value: what restarts and layouts change, and what the slices of a block of one second leave.
    variance: (f64, f64),
    /// Seconds to link and start a server.
    start: f64,
    /// Seconds to connect a client and to warm up, a workload.
    connect: f64,
    /// Seconds to start a server and to count one workload on it.
    count: (f64, f64),
}

/// MariaDB on a shared virtual machine.
pub(super) const DATABASE: Guess = Guess {
    variance: (0.006 * 0.006, 2.0 * 0.0045 * 0.0045),
    start: 0.5,
    connect: 1.0,
    count: (4.0, 1.5),
};
/// Redis on a shared virtual machine.
pub(super) const SMALL_SERVER: Guess = Guess {
    variance: (0.006 * 0.006, 2.0 * 0.006 * 0.006),
    start: 0.2,
    connect: 0.5,
    count: (1.0, 0.8),
};
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
    /// The ends of the range in which this half-width lies in nine experiments of ten; absent where it is a guess. With few
    /// blocks, a measured standard deviation is far from the true one by chance alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_width_range: Option<(f64, f64)>,
    /// The standard deviation of a value in a block, the largest over workloads.
    pub noise: f64,
    /// The basis of the noise.
    pub noise_source: NoiseSource,
    /// The workloads whose noise is a guess, because no experiment timed them.
    pub guessed_noise: Vec<String>,
    /// The expected duration in seconds, without builds.
    pub seconds: f64,
    /// Whether the duration is a guess, because no experiment with such blocks was measured.
    pub guessed_seconds: bool,
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

    /// Returns whether an experiment found nothing that duration or width could be known from.
    pub fn is_guess(&self) -> bool {
        self.guessed_seconds || self.noise_source == NoiseSource::Assumed && self.blocks > 0
    }

    /// Returns the expected width in words: `±0.42 %`, or that so few blocks have no interval.
    pub fn width(&self) -> String {
        if self.half_width.is_finite() {
            format!("±{:.2} %", 100.0 * self.half_width)
        } else {
            "no interval".to_owned()
        }
    }

    /// Returns the range of widths in words that follow the width; empty where it is a guess.
    pub fn range(&self) -> String {
        let words = |(low, high): (f64, f64)| {
            format!(
                " ({:.2} to {:.2} in 9 runs of 10)",
                100.0 * low,
                100.0 * high
            )
        };
        let range = self.half_width_range.filter(|(_, high)| high.is_finite());
        range.map_or_else(String::new, words)
    }

    /// Returns the expected duration in words.
    pub fn duration(&self) -> String {
        seconds_in_words(self.seconds)
    }

    /// Returns a warning if the experiment is expected to take longer than its `budget`, in seconds: two blocks are
    /// measured, and everything is counted, whatever the budget is.
    pub fn over_budget(&self, budget: f64) -> Option<Warning> {
        // Less is within what a forecast can tell.
        (self.seconds > 1.1 * budget + 1.0).then(|| {
            let left = match budget {
                budget if budget < 1.0 => "less than a second".to_owned(),
                budget => seconds_in_words(budget),
            };
            Warning::short_budget(format!(
                "{left} of the budget is left to measure, and the least that a report needs takes about {}",
                self.duration()
            ))
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
                "{} blocks{windows}, {}{}, ",
                self.blocks,
                self.width(),
                self.range()
            )?;
        }
        write!(f, "{} servers at once{}, ", self.servers, self.places())?;
        if let Some(memory) = self.memory {
            write!(f, "{:.1} GiB, ", memory as f64 / f64::from(1 << 30))?;
        }
        write!(f, "about {}", self.duration())?;
        if self.is_guess() {
            f.write_str(" (a guess: nothing comparable was measured before)")?;
        }
        Ok(())
    }
}

/// How long the blocks of earlier experiments took, as a share of what [`Guess`] assumes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    /// Starting servers and connecting clients; `None` where nothing was timed.
    timed: Option<f64>,
    /// Counting; `None` where nothing was counted.
    counted: Option<f64>,
}

impl Pace {
    /// Returns the pace of the blocks of an experiment that counted on `processors`.
    pub(super) fn of(blocks: &[BlockDuration], guess: &Guess, processors: usize) -> Self {
        let mean = |counted: bool, share: &dyn Fn(&BlockDuration) -> f64| {
            let shares: Vec<f64> = blocks
                .iter()
                .filter(|block| block.counted == counted && !block.direct && block.workloads > 0)
                .map(share)
                .filter(|share| share.is_finite())
                .collect();
            let count = shares.len() as f64;
            (count > 0.0).then(|| (shares.iter().sum::<f64>() / count).max(0.0))
        };
        Pace {
            timed: mean(false, &|block| {
                (block.seconds - block.slices)
                    / guess.overhead(block.servers.into(), block.workloads.into())
            }),
            counted: mean(true, &|block| {
                // Lanes count side by side, each on its processors.
                let (servers, workloads) = (block.servers.into(), block.workloads.into());
                block.seconds
                    / f64::from(block.lanes.max(1))
                    / guess.counting(servers, workloads, processors)
            }),
        }
    }

    /// Returns this pace, completed by another one.
    pub(super) fn or(self, other: Pace) -> Self {
        Pace {
            timed: self.timed.or(other.timed),
            counted: self.counted.or(other.counted),
        }
    }

    /// Returns whether it is known for timed or counted blocks, as far as these are measured.
    pub(super) fn is_known(self, timed: bool, counted: bool) -> bool {
        (!timed || self.timed.is_some()) && (!counted || self.counted.is_some())
    }
}

impl Guess {
    /// Returns the seconds that servers and workloads of a timed block take beside its slices.
    fn overhead(&self, servers: f64, workloads: f64) -> f64 {
        servers * self.start + workloads * self.connect
    }

    /// Returns the seconds of a counted block whose servers are counted on all processors side by side.
    fn counting(&self, servers: f64, workloads: f64, processors: usize) -> f64 {
        let (start, count) = self.count;
        servers / processors.max(1) as f64 * (start + count * workloads)
    }
}

fn seconds_in_words(seconds: f64) -> String {
    words((seconds * 1000.0).round().max(0.0) as u64)
}

/// Inputs of a forecast.
#[derive(Debug, Clone)]
pub(super) struct ForecastBasis<'a> {
    /// The settings.
    pub preset: &'a Preset,
    /// Whether times are measured.
    pub timed: bool,
    /// Whether counts are measured.
    pub counted: bool,
    /// The number of points of each window; one if all points are measured at once.
    pub windows: Vec<usize>,
    /// All points.
    pub points: usize,
    /// Whether there is an end-to-end check.
    pub end_to_end: bool,
    /// How values scatter, by workload, where it is known.
    pub noise: &'a BTreeMap<String, Scatter>,
    /// Where it is known from.
    pub source: NoiseSource,
    /// Whether all blocks run the same code layout, as those of an earlier experiment did.
    pub one_layout: bool,
    /// How long blocks took, where that is known.
    pub pace: Pace,
    /// Assumptions where nothing is known.
    pub guess: &'a Guess,
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
        self.machines.saturating_mul(TASK_BLOCKS)
    }
}

impl ForecastBasis<'_> {
    /// Returns the largest number of servers that run at once on a lane.
    fn most_servers(&self) -> usize {
        self.windows.iter().copied().max().unwrap_or(0)
    }

    /// Returns the forecast.
    pub(super) fn forecast(&self) -> Result<Forecast> {
        let preset = self.preset;
        let most_blocks = match self.budget {
            Some(budget) => self.within(budget),
            None => preset.blocks,
        };
        let expected = if self.timed {
            self.expected(most_blocks)?
        } else {
            ExpectedWidth {
                half_width: 0.0,
                range: (0.0, 0.0),
                blocks: vec![0; self.workloads.len()],
            }
        };
        let by_workload = &expected.blocks;
        let blocks = by_workload.iter().copied().max().unwrap_or(0);
        let guessed = |name: &&&str| self.timed && !self.noise.contains_key(**name);
        let guessed_noise: Vec<String> = self
            .workloads
            .iter()
            .filter(guessed)
            .map(|name| (*name).to_owned())
            .collect();
        Ok(Forecast {
            points: self.points,
            windows: self.windows.len(),
            servers: self.most_servers(),
            lanes: self.lanes,
            machines: self.cluster.map(|cluster| cluster.machines),
            memory: self.memory.0,
            available_memory: self.memory.1,
            blocks,
            most_blocks: if self.timed { most_blocks } else { 0 },
            count_blocks: if self.counted { preset.count_blocks } else { 0 },
            block_seconds: preset.block_seconds,
            half_width: expected.half_width,
            half_width_range: (self.timed && guessed_noise.is_empty()).then_some(expected.range),
            noise: self.largest_noise(),
            noise_source: self.source.clone(),
            guessed_noise,
            seconds: self.duration(by_workload),
            guessed_seconds: !self.pace.is_known(self.timed, self.counted),
        })
    }

    /// Returns the expected seconds of a block.
    pub(super) fn block_times(&self) -> BlockTimes {
        BlockTimes {
            timed: self.block(self.most_servers(), self.workloads.len()),
            counted: self.counted_block() * self.lanes.max(1) as f64,
        }
    }

    /// Returns the widths and blocks to be expected of at most so many blocks, by judging simulated ones.
    fn expected(&self, most: u32) -> Result<ExpectedWidth> {
        let scatters: Vec<Cow<'_, Scatter>> = self
            .workloads
            .iter()
            .map(|workload| self.scatter(workload))
            .collect();
        let fewest = self.preset.min_blocks().unwrap_or(2).max(2);
        let design = Design {
            workloads: scatters.iter().map(Cow::as_ref).collect(),
            // Beside these, a window has the release and its control.
            patches: self.most_servers().saturating_sub(2),
            blocks: most,
            resolution: self.preset.resolution.map(|width| (width, fewest)),
            repeats: !self.one_layout && most >= FEWEST_FOR_REPEATS,
            lanes: u32::try_from(self.lanes).unwrap_or(u32::MAX),
            machines: self
                .cluster
                .map(|cluster| (cluster.machines, cluster.between)),
        };
        design.expected()
    }

    /// Returns the largest number of blocks that take at most `budget` seconds, at least two.
    fn within(&self, budget: f64) -> u32 {
        let too_long = |blocks: u32| self.duration(&vec![blocks; self.workloads.len()]) > budget;
        let (mut low, mut high) = (2, FORESEEABLE - 1);
        while low < high {
            let middle = low.midpoint(high);
            if too_long(middle + 1) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    /// Returns how the values of the workload `name` scatter.
    fn scatter(&self, name: &str) -> Cow<'_, Scatter> {
        let (between, within) = self.guess.variance;
        let assumed = || Scatter::Assumed((between + within / self.preset.block_seconds).sqrt());
        match self.noise.get(name) {
            Some(known) => Cow::Borrowed(known),
            None => Cow::Owned(assumed()),
        }
    }

    /// Returns the largest standard deviation of a value in a block over workloads.
    fn largest_noise(&self) -> f64 {
        let noise = |name: &&str| self.scatter(name).sd();
        self.workloads.iter().map(noise).fold(0.0, f64::max)
    }

    /// Returns the seconds that an experiment with so many blocks of each workload takes.
    fn duration(&self, by_workload: &[u32]) -> f64 {
        let mut seconds = 0.0;
        let workloads = self.workloads.len();
        let machines = self
            .cluster
            .map_or(1.0, |cluster| f64::from(cluster.machines));
        if self.timed {
            let lanes = match self.cluster {
                // A task is measured by one machine.
                Some(_) => self.lanes.clamp(1, TASK_BLOCKS as usize),
                None => self.lanes.max(1),
            } as f64;
            let each = |sizes: &[usize], workloads: usize| -> f64 {
                let blocks = sizes.iter().map(|&servers| self.block(servers, workloads));
                blocks.sum()
            };
            let mut by_workload: Vec<u32> = by_workload
                .iter()
                .map(|&blocks| self.whole_waves(blocks))
                .collect();
            by_workload.sort_unstable();
            let blocks = by_workload.last().copied().unwrap_or(0);
            let direct = if self.end_to_end {
                f64::from(direct_blocks(blocks)) * self.block(self.points.min(6), workloads)
            } else {
                0.0
            };
            // Blocks leave out workloads whose intervals are narrow enough.
            let mut windows = 0.0;
            let mut before = 0;
            for (done, &end) in by_workload.iter().enumerate() {
                windows += f64::from(end - before) * each(&self.windows, workloads - done);
                before = end;
            }
            seconds += (windows + direct) / lanes / machines;
        }
        if self.counted {
            // One machine counts a block.
            let side_by_side = machines.min(f64::from(self.preset.count_blocks)).max(1.0);
            seconds += f64::from(self.preset.count_blocks) * self.counted_block() / side_by_side;
        }
        seconds
    }

    /// Returns the number of blocks of each window that are measured before a cluster looks whether `blocks` are done.
    fn whole_waves(&self, blocks: u32) -> u32 {
        match self.cluster {
            Some(cluster) if self.windows.len() <= 1 => {
                blocks.next_multiple_of(cluster.wave().max(1))
            }
            _ => blocks,
        }
    }

    /// Returns the seconds of a timed block.
    fn block(&self, servers: usize, workloads: usize) -> f64 {
        let overhead = self.guess.overhead(servers as f64, workloads as f64);
        overhead * self.pace.timed.unwrap_or(1.0)
            + share(servers) * workloads as f64 * self.preset.block_seconds
    }

    /// Returns the seconds that all lanes together take for a counted block.
    fn counted_block(&self) -> f64 {
        let (servers, workloads) = (self.points as f64, self.workloads.len() as f64);
        let guess = self.guess.counting(servers, workloads, self.processors);
        guess * self.pace.counted.unwrap_or(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_config::DEFAULT_MIN_BLOCKS;

    static NOTHING: BTreeMap<String, Scatter> = BTreeMap::new();

    fn preset(resolution: Option<f64>) -> Preset {
        let resolution = resolution.map_or(String::new(), |r| format!("resolution = {r}\n"));
        let text = format!(
            "recipe = \"r\"\nworkloads = [\"w\"]\nmeters = [\"time\"]\nblocks = 60\nblock_seconds = 2.0\n\
             {resolution}"
        );
        toml::from_str(&text).unwrap()
    }

    fn basis<'a>(preset: &'a Preset, windows: &[usize]) -> ForecastBasis<'a> {
        ForecastBasis {
            preset,
            timed: true,
            counted: false,
            windows: windows.to_vec(),
            points: 6,
            end_to_end: false,
            noise: &NOTHING,
            source: NoiseSource::Assumed,
            one_layout: false,
            pace: Pace::default(),
            guess: &DATABASE,
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
        let preset = preset(Some(0.005));
        let six = [6];
        let forecast = basis(&preset, &six).forecast().unwrap();
        assert!((10..60).contains(&forecast.blocks), "{forecast:?}");
        assert!(forecast.half_width <= 0.005);
        // Six servers, a client and the slices.
        let each = 6.0 * DATABASE.start + DATABASE.connect + 2.0;
        assert_eq!(forecast.seconds, f64::from(forecast.blocks) * each);
        let two = ForecastBasis {
            lanes: 2,
            ..basis(&preset, &six)
        };
        let two = two.forecast().unwrap();
        assert_eq!(two.seconds, f64::from(two.blocks) * each / 2.0);
        assert!((20..45).contains(&two.blocks), "{two:?}");
    }

    fn took(
        counted: bool,
        (servers, workloads, lanes): (u32, u32, u32),
        seconds: f64,
    ) -> BlockDuration {
        BlockDuration {
            counted,
            direct: false,
            block: 0,
            servers,
            workloads,
            lanes,
            slices: if counted {
                0.0
            } else {
                f64::from(workloads) * 2.0
            },
            seconds,
        }
    }

    #[test]
    fn an_experiment_like_an_earlier_one_takes_as_long() {
        let preset = preset(None);
        let six = [6];
        let blocks = [
            took(false, (6, 1, 1), 2.5),
            took(false, (6, 1, 1), 3.5),
            took(true, (6, 1, 2), 8.0),
        ];
        let known = ForecastBasis {
            counted: true,
            pace: Pace::of(&blocks, &DATABASE, 2),
            ..basis(&preset, &six)
        };
        let forecast = known.forecast().unwrap();
        assert!(!forecast.guessed_seconds);
        // Two lanes counted blocks of eight seconds side by side, and sixty blocks of three seconds are timed.
        let counting = f64::from(preset.count_blocks) * 4.0;
        assert!(
            (forecast.seconds - 60.0 * 3.0 - counting).abs() < 1e-9,
            "{forecast:?}"
        );
        // Slices that are longer take longer, starts do not.
        let long = Preset {
            block_seconds: 4.0,
            ..preset.clone()
        };
        let known = ForecastBasis {
            preset: &long,
            pace: known.pace,
            ..basis(&preset, &six)
        };
        assert!((known.forecast().unwrap().seconds - 60.0 * 5.0).abs() < 1e-9);
        let guess = ForecastBasis {
            counted: true,
            pace: Pace::of(&blocks[..2], &DATABASE, 2),
            ..basis(&preset, &six)
        };
        assert!(guess.forecast().unwrap().guessed_seconds && guess.forecast().unwrap().is_guess());
    }

    #[test]
    fn each_workload_has_its_own_noise_and_its_own_number_of_blocks() {
        let mut preset = preset(Some(0.005));
        preset.workloads = vec!["calm".into(), "noisy".into(), "new".into()];
        let six = [6];
        // The standard deviation of an effect.
        let of = |sd: f64| Scatter::Assumed(sd / 2f64.sqrt());
        let noise = BTreeMap::from([
            ("calm".to_owned(), of(0.002)),
            ("noisy".to_owned(), of(0.012)),
        ]);
        let known = ForecastBasis {
            noise: &noise,
            workloads: vec!["calm", "noisy"],
            source: NoiseSource::Experiment("e".into()),
            ..basis(&preset, &six)
        };
        let (each, forecast) = (
            known.expected(60).unwrap().blocks,
            known.forecast().unwrap(),
        );
        assert!(each[0] == DEFAULT_MIN_BLOCKS && each[1] > 20, "{each:?}");
        assert_eq!(forecast.blocks, each[1]);
        assert!(
            forecast.half_width <= 0.005 && forecast.half_width > 0.004,
            "{forecast:?}"
        );
        // Later blocks have one workload.
        let block = |workloads| known.block(6, workloads);
        let expected = f64::from(each[0]) * block(2) + f64::from(each[1] - each[0]) * block(1);
        assert!((forecast.seconds - expected).abs() < 1e-9);
        let with_new = ForecastBasis {
            workloads: vec!["calm", "new"],
            ..known
        };
        assert_eq!(with_new.forecast().unwrap().guessed_noise, ["new"]);
    }

    #[test]
    fn blocks_that_have_no_interval_say_so() {
        let (preset, six) = (preset(None), [6]);
        let mut forecast = basis(&preset, &six).forecast().unwrap();
        assert!(forecast.to_string().contains('±'), "{forecast}");
        forecast.half_width = f64::INFINITY;
        forecast.half_width_range = Some((0.01, f64::INFINITY));
        let text = forecast.to_string();
        assert!(text.contains("no interval, "), "{text}");
        assert!(!text.contains("inf"), "{text}");
    }

    #[test]
    fn a_cluster_measures_whole_waves_on_all_machines() {
        let preset = preset(Some(0.008));
        let six = [6];
        let on = |machines, between| ForecastBasis {
            cluster: Some(ClusterSize { machines, between }),
            ..basis(&preset, &six)
        };
        let block = on(3, 0.0).block(6, 1);
        let few = on(3, 0.0).forecast().unwrap();
        assert_eq!(few.machines, Some(3));
        // Blocks are the units on few machines.
        let alone = basis(&preset, &six).forecast().unwrap().blocks;
        assert!(few.blocks.abs_diff(alone) <= alone / 2, "{few:?} {alone}");
        let waves = few.seconds / (4.0 * block);
        assert_eq!(waves, waves.round());
        // A task of four blocks on each of sixty machines is one wave.
        assert!((on(60, 0.0).forecast().unwrap().seconds - 4.0 * block).abs() < 1e-9);
        // As many machines that differ are units that no number of blocks makes more of.
        let wide = on(8, 0.01).forecast().unwrap();
        assert!(
            wide.half_width > 0.008 && wide.blocks == wide.most_blocks,
            "{wide:?}"
        );
    }

    #[test]
    fn a_budget_is_used_and_not_exceeded() {
        let preset = preset(None);
        let (one, two) = ([6], [6, 6]);
        for budget in [60.0, 600.0, 7200.0] {
            let basis = ForecastBasis {
                budget: Some(budget),
                ..basis(&preset, &two)
            };
            let forecast = basis.forecast().unwrap();
            assert!(forecast.seconds <= budget, "{forecast:?}");
            assert!(basis.duration(&[forecast.blocks + 1]) > budget);
            assert_eq!(forecast.over_budget(budget), None);
        }
        let basis = ForecastBasis {
            budget: Some(1.0),
            ..basis(&preset, &one)
        };
        assert_eq!(basis.forecast().unwrap().blocks, 2);
        assert_eq!(
            basis.forecast().unwrap().over_budget(1.0),
            Some(Warning::short_budget(
                "1 s of the budget is left to measure, and the least that a report needs takes about 12 s"
            ))
        );
        let little = basis.forecast().unwrap().over_budget(0.001).unwrap();
        assert!(
            little
                .message()
                .starts_with("less than a second of the budget"),
            "{little}"
        );
    }

    #[test]
    fn long_series_take_as_long_as_their_servers() {
        let preset = preset(None);
        let seconds = |windows: &[usize]| basis(&preset, windows).forecast().unwrap().seconds;
        let (one, many) = (seconds(&[10]), seconds(&[10; 9]));
        assert!((many / one - 9.0).abs() < 1e-9);
    }
}
