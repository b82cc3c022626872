//! The processor quota of this process's control group, as containers have: `cpu.max` of version 2, `cpu.cfs_quota_us` of
//! version 1. A group that has used its quota stands still until the next period.

use std::path::{Path, PathBuf};
use std::time::Duration;

use perfquilt_system::control_groups::{Groups, value};

/// A quota.
#[derive(Debug, Clone, PartialEq)]
pub struct CpuQuota {
    /// The processors whose time the group may use: 0.5 is half a processor.
    pub processors: f64,
    /// The file with the quota.
    pub file: PathBuf,
}

/// The control groups that this process is in, with all groups above that it can see.
#[derive(Debug, Clone, Default)]
pub struct ControlGroups {
    folders: Vec<PathBuf>,
}

impl ControlGroups {
    /// Finds the groups of this process.
    pub fn of_this_process() -> Self {
        let groups = Groups::of(std::process::id());
        ControlGroups {
            folders: groups.folders("cpu"),
        }
    }

    /// Returns the smallest quota of any of the groups; `None` if none has one.
    pub fn quota(&self) -> Option<CpuQuota> {
        let quotas = self.folders.iter().filter_map(|folder| quota(folder));
        quotas.min_by(|one, other| one.processors.total_cmp(&other.processors))
    }

    /// Returns the time for which the groups with a quota stood still because they had used it, all processors together.
    pub fn throttled(&self) -> Duration {
        let limited = self.folders.iter().filter(|folder| quota(folder).is_some());
        limited.filter_map(|folder| throttled(folder)).sum()
    }
}

fn quota(folder: &Path) -> Option<CpuQuota> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let (quota, period, file) = match read("cpu.max") {
        Some(text) => {
            let (quota, period) = text.trim().split_once(' ')?;
            (quota.to_owned(), period.to_owned(), "cpu.max")
        }
        None => {
            let file = "cpu.cfs_quota_us";
            (read(file)?, read("cpu.cfs_period_us")?, file)
        }
    };
    // No quota is `max` or -1.
    let quota: f64 = quota.trim().parse().ok().filter(|quota| *quota > 0.0)?;
    let period: f64 = period.trim().parse().ok().filter(|period| *period > 0.0)?;
    Some(CpuQuota {
        processors: quota / period,
        file: folder.join(file),
    })
}

fn throttled(folder: &Path) -> Option<Duration> {
    let text = std::fs::read_to_string(folder.join("cpu.stat")).ok()?;
    let microseconds = value(&text, "throttled_usec").map(Duration::from_micros);
    microseconds.or_else(|| value(&text, "throttled_time").map(Duration::from_nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, files: &[(&str, &str)]) {
        std::fs::create_dir_all(folder).unwrap();
        for (name, text) in files {
            std::fs::write(folder.join(name), text).unwrap();
        }
    }

    fn groups(cgroup: &str, mounts: &str) -> ControlGroups {
        ControlGroups {
            folders: Groups::read(cgroup, mounts).folders("cpu"),
        }
    }

    #[test]
    fn the_smallest_quota_of_all_groups_above_counts() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(&root.join("a/b"), &[("cpu.max", "max 100000\n")]);
        let stat = "usage_usec 9\nnr_throttled 3\nthrottled_usec 2500000\n";
        write(
            &root.join("a"),
            &[("cpu.max", "150000 100000\n"), ("cpu.stat", stat)],
        );
        let mount = format!(
            "31 23 0:26 / {} rw - cgroup2 cgroup2 rw,nsdelegate",
            root.display()
        );
        let inner = groups("0::/a/b\n", &mount);
        let quota = inner.quota().unwrap();
        assert_eq!(quota.processors, 1.5);
        assert_eq!(quota.file, root.join("a/cpu.max"));
        assert_eq!(inner.throttled(), Duration::from_millis(2500));
        // A fraction of a processor, in the group itself.
        write(&root.join("a/b"), &[("cpu.max", "25000 50000\n")]);
        assert_eq!(inner.quota().unwrap().processors, 0.5);
        assert_eq!(groups("0::/\n", &mount).quota(), None);
        assert_eq!(groups("0::/\n", &mount).throttled(), Duration::ZERO);
    }

    #[test]
    fn version_1_has_the_group_of_the_processor_controller() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("with blank");
        write(
            &root.join("c"),
            &[
                ("cpu.cfs_quota_us", "50000\n"),
                ("cpu.cfs_period_us", "100000\n"),
                (
                    "cpu.stat",
                    "nr_periods 9\nnr_throttled 2\nthrottled_time 7000000\n",
                ),
            ],
        );
        write(
            &root,
            &[
                ("cpu.cfs_quota_us", "-1\n"),
                ("cpu.cfs_period_us", "100000\n"),
            ],
        );
        let shown = root.display().to_string().replace(' ', "\\040");
        let mounts = format!(
            "30 25 0:27 / /elsewhere rw - cgroup cgroup rw,memory\n\
             31 25 0:28 / {shown} rw - cgroup cgroup rw,cpu,cpuacct"
        );
        let found = groups("4:memory:/m\n2:cpu,cpuacct:/c\n0::/\n", &mounts);
        assert_eq!(found.quota().unwrap().processors, 0.5);
        assert_eq!(found.throttled(), Duration::from_millis(7));
        assert_eq!(groups("2:cpuset:/c\n", &mounts).quota(), None);
        // A container: the path is the one outside, and its group is mounted as the root.
        let mounts = mounts.replace("0:28 /", "0:28 /docker/1");
        let inside = root.join("c").display().to_string().replace(' ', "\\040");
        let mounts = mounts.replace(&shown, &inside);
        let found = groups("2:cpu,cpuacct:/docker/1\n", &mounts);
        assert_eq!(found.quota().unwrap().processors, 0.5);
    }

    #[test]
    fn what_cannot_be_read_is_no_quota() {
        for (cgroup, mounts) in [
            ("", ""),
            ("x", "y"),
            ("0::/", "1 2 3"),
            ("0::/../..", "- -"),
        ] {
            assert_eq!(groups(cgroup, mounts).quota(), None);
        }
    }
}
