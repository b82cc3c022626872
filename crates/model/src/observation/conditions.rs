//! Conditions on the machine during the measurement.

use serde::{Deserialize, Serialize};

/// Conditions on the host while one workload was measured in one block.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSample {
    /// Duration in seconds.
    pub seconds: f64,
    /// When it began, in seconds since 1970; 0 if unknown.
    #[serde(default)]
    pub began: f64,
    /// Share of the measuring processors' time that the hypervisor gave to other machines (steal time).
    pub steal: f64,
    /// Share of the measuring processors' time in which they were idle.
    pub idle: f64,
    /// Involuntary context switches of the servers' threads, all servers together.
    pub preempted: u64,
    /// Major page faults of the servers: pages read from a disk.
    pub major_faults: u64,
    /// Minor page faults of the servers.
    pub minor_faults: u64,
    /// The lowest and the highest frequency of the measuring processors in MHz; `None` if the kernel
    /// does not report it.
    pub mhz: Option<(f64, f64)>,
    /// Seconds for which the kernel stopped processes because the processor quota of their control group was used up, all
    /// processors together.
    #[serde(default)]
    pub throttled: f64,
    /// How often the block was measured again because a server, its client or the machine had stood still.
    #[serde(default)]
    pub standstills: u64,
}

/// Conditions on the host while one workload was measured, over all its blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// The workload.
    pub workload: String,
    /// Number of blocks with a recorded sample.
    pub blocks: usize,
    /// Share of the measuring processors' time that the hypervisor gave to other machines (steal time).
    pub steal: Share,
    /// Share of the measuring processors' time in which they were idle.
    pub idle: Share,
    /// Involuntary context switches of the servers' threads per second.
    pub preempted: f64,
    /// Major page faults of the servers (pages read from a disk), in total.
    pub major_faults: u64,
    /// Minor page faults of the servers per block.
    pub minor_faults: f64,
    /// The lowest and the highest frequency of the measuring processors in MHz; `null` if the kernel
    /// does not report it.
    pub mhz: Option<(f64, f64)>,
    /// Seconds for which the kernel stopped processes because a processor quota was used up, all processors together, per
    /// second of measuring.
    #[serde(default)]
    pub throttled: Share,
    /// How often blocks were measured again because a server, its client or the machine had stood still.
    #[serde(default)]
    pub standstills: u64,
}

/// A share of time.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Share {
    /// The mean over all blocks, weighted by duration.
    pub mean: f64,
    /// The largest share of any block.
    pub worst: f64,
}

impl Conditions {
    /// Summarises all `samples` of a workload; `None` if their total duration is not positive.
    pub fn over(workload: &str, samples: &[HostSample]) -> Option<Conditions> {
        let seconds: f64 = samples.iter().map(|sample| sample.seconds).sum();
        if !(seconds > 0.0 && seconds.is_finite()) {
            return None;
        }
        let share = |of: fn(&HostSample) -> f64| Share {
            mean: samples.iter().map(|m| of(m) * m.seconds).sum::<f64>() / seconds,
            worst: samples.iter().map(of).fold(0.0, f64::max),
        };
        let sum = |of: fn(&HostSample) -> u64| samples.iter().map(of).sum::<u64>();
        let mhz = samples.iter().filter_map(|sample| sample.mhz);
        Some(Conditions {
            workload: workload.to_owned(),
            blocks: samples.len(),
            steal: share(|sample| sample.steal),
            idle: share(|sample| sample.idle),
            preempted: sum(|sample| sample.preempted) as f64 / seconds,
            major_faults: sum(|sample| sample.major_faults),
            minor_faults: sum(|sample| sample.minor_faults) as f64 / samples.len() as f64,
            mhz: mhz.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1))),
            throttled: share(|sample| sample.throttled / sample.seconds.max(f64::MIN_POSITIVE)),
            standstills: sum(|sample| sample.standstills),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_weighted_by_time() {
        let short = HostSample {
            seconds: 1.0,
            began: 0.0,
            steal: 0.3,
            idle: 0.0,
            preempted: 3,
            major_faults: 1,
            minor_faults: 10,
            mhz: Some((2000.0, 2100.0)),
            throttled: 0.4,
            standstills: 1,
        };
        let long = HostSample {
            seconds: 3.0,
            steal: 0.1,
            mhz: None,
            throttled: 0.0,
            ..short
        };
        let found = Conditions::over("w", &[short, long]).unwrap();
        assert!((found.steal.mean - 0.15).abs() < 1e-12);
        assert_eq!(found.steal.worst, 0.3);
        assert_eq!((found.preempted, found.major_faults), (1.5, 2));
        assert_eq!(found.minor_faults, 10.0);
        assert_eq!(found.mhz, Some((2000.0, 2100.0)));
        assert!((found.throttled.mean - 0.1).abs() < 1e-12);
        assert!((found.throttled.worst - 0.4).abs() < 1e-12);
        assert_eq!(found.standstills, 2);
        assert_eq!(Conditions::over("w", &[]), None);
    }
}
