//! Chooses how many blocks are measured side by side, and on which processors.

use std::num::NonZeroU32;

use perfquilt_bench::cpu_quota::CpuQuota;
use perfquilt_bench::server::ServerSpace;
use perfquilt_config::{Disk, Lanes};
use perfquilt_model::error::{Error, Result};

/// Returns the lanes to use for `requested`. Servers that store their data on a disk share it, so the default is then one
/// lane.
pub(super) fn wanted(disk: Disk, requested: Lanes) -> Lanes {
    match (disk, requested) {
        // Commits of several lanes would wait for one disk.
        (Disk::Durable, Lanes::Auto) => Lanes::Count(NonZeroU32::MIN),
        (_, requested) => requested,
    }
}

/// Returns the lanes for which a processor quota suffices, of the `possible` ones: each uses as many processors as its
/// clients have `threads`. One lane stays in any case.
pub(super) fn within_quota(
    possible: Vec<Vec<usize>>,
    threads: u32,
    quota: Option<&CpuQuota>,
) -> Vec<Vec<usize>> {
    let Some(quota) = quota else {
        return possible;
    };
    let enough = quota.processors / f64::from(threads.max(1));
    // A fraction of a lane is none; the conversion saturates.
    match enough.floor() as usize {
        0 | 1 => vec![possible.concat()],
        enough => {
            let spare = possible.len().saturating_sub(enough);
            possible.into_iter().skip(spare).collect()
        }
    }
}

/// Describes a quota that is smaller than the processors, with what to do.
pub(super) fn describe_quota(quota: &CpuQuota) -> String {
    format!(
        "a quota of {} processors applies here ({}): the kernel stops all processes for the rest of a period once they have used \
         it, which measurements show as noise; give whole processors instead (`cpuset`, `docker run --cpuset-cpus`), or no quota",
        (quota.processors * 100.0).round() / 100.0,
        quota.file.display()
    )
}

/// Returns the processors of each lane: `possible` are those of as many lanes as there are cores for, `servers` the
/// servers of one lane.
pub(super) fn choose(
    requested: Lanes,
    possible: Vec<Vec<usize>>,
    servers: &ServerSpace,
) -> Result<Vec<Vec<usize>>> {
    let count = match requested {
        Lanes::Auto => automatic(possible.len(), servers),
        Lanes::Count(count) => {
            let count = within_cores(count, possible.len())?;
            check_memory(count, servers)?;
            count
        }
    };
    // A single lane has all processors, so that it links on all of them.
    if count == 1 {
        return Ok(vec![possible.concat()]);
    }
    // The kernel handles most interrupts on the first processors.
    let spare = possible.len() - count;
    Ok(possible.into_iter().skip(spare).collect())
}

/// Returns how many of the `possible` lanes there is memory for, at least one.
pub(super) fn automatic(possible: usize, servers: &ServerSpace) -> usize {
    possible.min(servers.sets_in_memory()).max(1)
}

/// Returns the requested number of lanes.
pub(super) fn within_cores(count: NonZeroU32, possible: usize) -> Result<usize> {
    let count = usize::try_from(count.get()).unwrap_or(usize::MAX);
    if count > possible {
        return Err(Error::lanes(format!(
            "{count} lanes need more cores than this machine has, or than its processor quota allows: {possible} at most"
        ))
        .hint("a lane has a physical core for each client thread of the workloads; `lanes = \"auto\"` in the preset takes as many lanes as possible"));
    }
    Ok(count)
}

fn check_memory(count: usize, servers: &ServerSpace) -> Result<()> {
    let fitting = servers.sets_in_memory();
    // A single lane may use the disk.
    if count > 1 && count > fitting {
        return Err(Error::lanes_memory(format!(
            "{count} lanes of {} servers need {} MiB of memory, but only {} MiB are available",
            servers.servers,
            servers.times(count).memory() >> 20,
            ServerSpace::available_memory() >> 20,
        ))
        .hint(format!(
            "`lanes = {}` in the preset fits; or measure fewer points at once",
            fitting.max(1)
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {

    use perfquilt_model::error::Kind;

    use super::*;

    const SMALL: ServerSpace = ServerSpace {
        servers: 1,
        bytes: 1,
    };
    const HUGE: ServerSpace = ServerSpace {
        servers: 6,
        bytes: 1 << 50,
    };

    fn four() -> Vec<Vec<usize>> {
        vec![vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7]]
    }

    fn count(lanes: u32) -> Lanes {
        Lanes::Count(NonZeroU32::new(lanes).unwrap())
    }

    #[test]
    fn the_last_cores_are_taken_and_a_single_lane_has_all() {
        assert_eq!(
            choose(count(2), four(), &SMALL).unwrap(),
            [[2, 6], [3, 7]].map(Vec::from)
        );
        assert_eq!(
            choose(count(1), four(), &SMALL).unwrap(),
            [vec![0, 4, 1, 5, 2, 6, 3, 7]]
        );
        let error = choose(count(5), four(), &SMALL).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        assert!(error.message().contains("4 at most"), "{error}");
    }

    #[test]
    fn a_quota_limits_the_lanes() {
        let lanes = |processors: f64, threads: u32| {
            let quota = CpuQuota {
                processors,
                file: "/sys/fs/cgroup/cpu.max".into(),
            };
            within_quota(four(), threads, Some(&quota)).len()
        };
        assert_eq!(
            [0.5, 1.0, 1.9, 2.0, 3.5, 8.0].map(|of| lanes(of, 1)),
            [1, 1, 1, 2, 3, 4]
        );
        assert_eq!([3.0, 4.0].map(|of| lanes(of, 2)), [1, 2]);
        assert_eq!(within_quota(four(), 1, None), four());
        let half = CpuQuota {
            processors: 0.5,
            file: "/sys/fs/cgroup/cpu.max".into(),
        };
        let words = describe_quota(&half);
        assert!(
            words.contains("0.5 processors") && words.contains("cpu.max"),
            "{words}"
        );
    }

    #[test]
    fn memory_limits_the_lanes() {
        assert_eq!(choose(Lanes::Auto, four(), &HUGE).unwrap().len(), 1);
        let error = choose(count(3), four(), &HUGE).unwrap_err();
        assert_eq!(error.kind(), Kind::Bench);
        assert!(
            error
                .hint_text()
                .is_some_and(|hint| hint.contains("`lanes = 1`")),
            "{error:?}"
        );
        assert_eq!(choose(count(1), four(), &HUGE).unwrap().len(), 1);
    }
}
