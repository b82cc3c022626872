//! What else happened on the machine while it measured.

use serde::{Deserialize, Serialize};

/// What happened while one workload was measured in one block.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Moment {
    /// Seconds it lasted.
    pub seconds: f64,
    /// Share of the measuring processors' time that the hypervisor gave to other machines.
    pub steal: f64,
    /// Share of it in which they had nothing to do.
    pub idle: f64,
    /// How often a server's thread was taken off its processor without asking, all servers together.
    pub preempted: u64,
    /// Pages of the servers that had to be read from a disk.
    pub major_faults: u64,
    /// Other pages that the servers touched for the first time.
    pub minor_faults: u64,
    /// The lowest and the highest frequency of the measuring processors in MHz; `None` where the
    /// kernel does not tell.
    pub mhz: Option<(f64, f64)>,
}

/// What happened while one workload was measured, over all its blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// The workload.
    pub workload: String,
    /// Blocks it was recorded in.
    pub blocks: usize,
    /// Share of the measuring processors' time that the hypervisor gave to other machines.
    pub steal: Share,
    /// Share of it in which they had nothing to do.
    pub idle: Share,
    /// How often a second a server's thread was taken off its processor without asking.
    pub preempted: f64,
    /// Pages of the servers that had to be read from a disk, in all.
    pub major_faults: u64,
    /// Other pages that the servers touched for the first time, a block.
    pub minor_faults: f64,
    /// The lowest and the highest frequency of the measuring processors in MHz; `null` where the
    /// kernel does not tell.
    pub mhz: Option<(f64, f64)>,
}

/// A share of time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Over all blocks.
    pub mean: f64,
    /// In the block where it was largest.
    pub worst: f64,
}

impl Conditions {
    /// Over all `moments` of a workload; `None` without any that lasted.
    pub fn over(workload: &str, moments: &[Moment]) -> Option<Conditions> {
        let seconds: f64 = moments.iter().map(|moment| moment.seconds).sum();
        if !(seconds > 0.0 && seconds.is_finite()) {
            return None;
        }
        let share = |of: fn(&Moment) -> f64| Share {
            mean: moments.iter().map(|m| of(m) * m.seconds).sum::<f64>() / seconds,
            worst: moments.iter().map(of).fold(0.0, f64::max),
        };
        let sum = |of: fn(&Moment) -> u64| moments.iter().map(of).sum::<u64>();
        let mhz = moments.iter().filter_map(|moment| moment.mhz);
        Some(Conditions {
            workload: workload.to_owned(),
            blocks: moments.len(),
            steal: share(|moment| moment.steal),
            idle: share(|moment| moment.idle),
            preempted: sum(|moment| moment.preempted) as f64 / seconds,
            major_faults: sum(|moment| moment.major_faults),
            minor_faults: sum(|moment| moment.minor_faults) as f64 / moments.len() as f64,
            mhz: mhz.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_weighted_by_time() {
        let short = Moment {
            seconds: 1.0,
            steal: 0.3,
            idle: 0.0,
            preempted: 3,
            major_faults: 1,
            minor_faults: 10,
            mhz: Some((2000.0, 2100.0)),
        };
        let long = Moment {
            seconds: 3.0,
            steal: 0.1,
            mhz: None,
            ..short
        };
        let found = Conditions::over("w", &[short, long]).unwrap();
        assert!((found.steal.mean - 0.15).abs() < 1e-12);
        assert_eq!(found.steal.worst, 0.3);
        assert_eq!((found.preempted, found.major_faults), (1.5, 2));
        assert_eq!(found.minor_faults, 10.0);
        assert_eq!(found.mhz, Some((2000.0, 2100.0)));
        assert_eq!(Conditions::over("w", &[]), None);
    }
}
