//! The assumptions of intervals, each broken on purpose: experiments with known effects, described in `assumptions.json`.

use serde::Deserialize;

use super::random::Noise;
use super::scenario::{EXPERIMENT, header, points};
use perfquilt_judge::attribution::{self, Attribution, Effect, EffectKind, SUITE, Verdict};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{Meter, Observation};
use perfquilt_model::point::Point;

/// An experiment to simulate.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Assumption {
    pub(super) name: String,
    #[serde(default = "most")]
    pub(super) limits: (f64, f64),
    #[serde(default)]
    asks: Question,
    /// The patches whose intervals it asks for.
    #[serde(default = "first")]
    of: Vec<usize>,
    patches: usize,
    blocks: u32,
    #[serde(default = "time")]
    meter: Meter,
    /// The standard deviation of a value, as a fraction.
    #[serde(default = "usual")]
    sd: f64,
    /// How many times as much the second patch's server varies.
    #[serde(default = "once")]
    factor: f64,
    /// The step of values, as a fraction; 0 for none.
    #[serde(default)]
    step: f64,
    /// The blocks that the release and the first patch have of their own, as in other tools' files, and their standard deviations.
    #[serde(default)]
    apart: Vec<(u32, f64)>,
    /// The lanes that run at one time, and the share of each server's variance that is common to them.
    #[serde(default)]
    lanes: Option<(u32, f64)>,
    /// What happens to the starts of every server.
    #[serde(default)]
    every: Disturbance,
    /// What happens to those of the first patch's server besides.
    #[serde(default)]
    one: Disturbance,
    /// What the first patch gains, by workload.
    #[serde(default = "nothing")]
    effects: Vec<f64>,
}

fn most() -> (f64, f64) {
    (0.0, 0.055)
}

fn first() -> Vec<usize> {
    vec![1]
}

fn time() -> Meter {
    Meter::Time
}

fn usual() -> f64 {
    0.008
}

fn once() -> f64 {
    1.0
}

fn nothing() -> Vec<f64> {
    vec![0.0]
}

/// What happens to a server's starts.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Disturbance {
    /// The standard deviation of what a block adds to all servers alike.
    drift: f64,
    /// The correlation of a value with that of the block before, or of the lanes' round before.
    serial: f64,
    /// The probability of a state that costs `size`; the mean over all starts stays 0.
    share: f64,
    /// What states cost that were seen, all equally probable.
    seen: Vec<f64>,
    /// The number of consecutive blocks that cost `size`, at a random place.
    during: u32,
    size: f64,
}

/// What the share of a simulation counts.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Question {
    /// Experiments that say anything that is not true.
    #[default]
    Wrong,
    /// Intervals that contain the true effect.
    Covered,
    /// Experiments that find the effect.
    Found,
}

/// Returns the experiments that the file describes.
pub(super) fn all() -> Result<Vec<Assumption>> {
    serde_json::from_str(include_str!("assumptions.json"))
        .map_err(|error| Error::internal(format!("assumptions.json: {error}")))
}

impl Assumption {
    /// Returns the meaning of the share, in words.
    pub(super) fn what(&self) -> &'static str {
        match self.asks {
            Question::Wrong => "experiments with a false claim",
            Question::Covered => "95 % intervals that contain the true effect",
            Question::Found => "experiments that find the effect",
        }
    }

    /// Returns the number that divides the number of experiments: large ones take longer.
    pub(super) fn one_in(&self) -> usize {
        if self.patches > 10 || self.effects.len() > 1 {
            10
        } else {
            2
        }
    }

    /// Simulates one experiment; returns its contribution to the share, and what it is out of.
    pub(super) fn run(&self, noise: &mut Noise) -> Result<(u32, u32)> {
        let found = self.measure(noise)?;
        let effects = found.patches.iter().flat_map(|of| &of.effects);
        let in_order = effects.filter(|of| of.kind == EffectKind::InOrder);
        let mut in_order = in_order.filter(|of| of.meter == self.meter);
        let is_asked = |of: &&Effect| self.of.iter().any(|&step| of.point == Point::Step(step));
        Ok(match self.asks {
            Question::Wrong => (u32::from(in_order.any(|of| self.is_wrong(of))), 1),
            Question::Found => {
                let is_found = |of: &Effect| of.verdict.is_shown() && !self.is_wrong(of);
                (u32::from(in_order.any(is_found)), 1)
            }
            Question::Covered => in_order.filter(is_asked).fold((0, 0), |sum, of| {
                let truth = self.truths(of)[0];
                let has = of.low.is_none_or(|low| low <= truth)
                    && of.high.is_none_or(|high| truth <= high);
                (sum.0 + u32::from(has), sum.1 + 1)
            }),
        })
    }

    /// Returns the true effects that a row is about: one over all workloads speaks of each of them.
    fn truths(&self, effect: &Effect) -> &[f64] {
        let own = effect
            .workload
            .parse()
            .ok()
            .and_then(|place: usize| self.effects.get(place));
        match own {
            _ if effect.point != Point::Step(1) => &[0.0],
            Some(own) => std::slice::from_ref(own),
            None if effect.workload == SUITE => &self.effects,
            None => &[0.0],
        }
    }

    fn is_wrong(&self, effect: &Effect) -> bool {
        let mut truths = self.truths(effect).iter();
        let margin = self.meter.default_margin();
        match effect.verdict {
            Verdict::Faster => truths.all(|gain| *gain <= 0.0),
            Verdict::Slower => truths.all(|gain| *gain >= 0.0),
            Verdict::NoEffect => truths.any(|gain| gain.abs() > margin),
            _ => false,
        }
    }

    fn measure(&self, noise: &mut Noise) -> Result<Attribution> {
        let points = points(self.patches);
        let count = self.effects.len();
        let (lanes, common) = self.lanes.unwrap_or((1, 1.0));
        let mut errors: Vec<f64> = (0..points.len() * count).map(|_| noise.normal()).collect();
        let latest = f64::from(self.blocks - self.one.during.min(self.blocks) + 1);
        let begins = (latest * noise.uniform()).floor();
        let mut all = Vec::new();
        for block in 0..self.blocks {
            let drift = self.every.drift * noise.normal();
            let during = begins..begins + f64::from(self.one.during);
            for (place, &point) in points.iter().enumerate() {
                let own = self.apart.get(place).copied();
                let (runs, sd) = match own.filter(|(runs, _)| block < *runs) {
                    None if !self.apart.is_empty() => continue,
                    own => own.unwrap_or((0, self.sd)),
                };
                let (mut serial, mut factor) = (self.every.serial, 1.0);
                let mut log = drift + self.every.state(noise);
                if point == Point::Step(1) {
                    serial = serial.max(self.one.serial);
                    log += self.one.state(noise);
                    log += if during.contains(&f64::from(block)) {
                        self.one.size
                    } else {
                        0.0
                    };
                } else if point == Point::Step(2) {
                    factor = self.factor;
                }
                for (workload, gain) in self.effects.iter().enumerate() {
                    let error = &mut errors[place * count + workload];
                    if block % lanes == 0 {
                        *error = serial * *error + (1.0 - serial * serial).sqrt() * noise.normal();
                    }
                    let own = common.sqrt() * *error + (1.0 - common).sqrt() * noise.normal();
                    let gain = if matches!(point, Point::Step(1..)) {
                        gain.ln_1p()
                    } else {
                        0.0
                    };
                    let mut value = (log + factor * sd * own - gain).exp();
                    if self.step > 0.0 {
                        value = (value / self.step).round() * self.step;
                    }
                    let first = if runs > 0 && place > 0 {
                        self.blocks
                    } else {
                        0
                    };
                    all.push(Observation {
                        experiment: EXPERIMENT.to_owned(),
                        lane: self.lanes.map(|_| block % lanes),
                        ..Observation::new(
                            first + block,
                            point,
                            &workload.to_string(),
                            self.meter,
                            1e9 * value,
                        )
                    });
                }
            }
        }
        attribution::attribute(&header(self.patches), &all, &Meter::default_margin)
    }
}

impl Disturbance {
    /// Draws what a start's state costs, as a log; 0 on average.
    fn state(&self, noise: &mut Noise) -> f64 {
        if !self.seen.is_empty() {
            return noise.one_of(&self.seen);
        }
        if self.share == 0.0 {
            return 0.0;
        }
        let mean = (self.share * self.size).ln_1p();
        if noise.chance(self.share) {
            self.size.ln_1p() - mean
        } else {
            -mean
        }
    }
}
