//! The processor quota of this process's control group, as containers have: `cpu.max` of version 2, `cpu.cfs_quota_us` of
//! version 1. A group that has used its quota stands still until the next period.

use std::path::{Path, PathBuf};
use std::time::Duration;

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
        let read = |name| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        ControlGroups {
            folders: folders(&read("cgroup"), &read("mountinfo")),
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

/// Returns the folders of the groups that have processor time as their resource, the innermost first, from the texts of
/// `/proc/self/cgroup` (cgroups(7)) and `/proc/self/mountinfo` (proc(5)).
fn folders(groups: &str, mounts: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let is_second = controllers.is_empty();
        if !is_second && !controllers.split(',').any(|name| name == "cpu") {
            continue;
        }
        let mount = mounts.lines().filter_map(mount_of);
        let Some(mount) = mount
            .filter(|mount| mount.is_second == is_second)
            .find(|mount| is_second || mount.options.split(',').any(|name| name == "cpu"))
        else {
            continue;
        };
        // A container often sees its group as the root, and its path from outside.
        let inside = Path::new(path)
            .strip_prefix(&mount.root)
            .unwrap_or(Path::new(""));
        let folder = mount.point.join(inside);
        let above = folder.ancestors();
        let above = above.take_while(|folder| folder.starts_with(&mount.point));
        folders.extend(above.map(Path::to_path_buf));
    }
    folders
}

/// A mounted hierarchy of control groups.
struct Mount<'a> {
    /// The group that is mounted.
    root: PathBuf,
    /// Where it is mounted.
    point: PathBuf,
    /// Whether it is of version 2.
    is_second: bool,
    /// The options of the file system, with the controllers of version 1.
    options: &'a str,
}

fn mount_of(line: &str) -> Option<Mount<'_>> {
    let (own, rest) = line.split_once(" - ")?;
    let mut own = own.split(' ').skip(3);
    let mut rest = rest.split(' ');
    let (root, point) = (unescaped(own.next()?), unescaped(own.next()?));
    let is_second = match rest.next()? {
        "cgroup2" => true,
        "cgroup" => false,
        _ => return None,
    };
    Some(Mount {
        root: root.into(),
        point: point.into(),
        is_second,
        options: rest.nth(1).unwrap_or_default(),
    })
}

/// Replaces the octal escapes of blanks, tabs, line ends and backslashes in a path of `mountinfo`.
fn unescaped(path: &str) -> String {
    [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ]
    .iter()
    .fold(path.to_owned(), |path, (escape, byte)| {
        path.replace(escape, byte)
    })
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
    let value = |name: &str| {
        let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
        let (_, value) = pairs.find(|(found, _)| *found == name)?;
        value.trim().parse().ok()
    };
    let microseconds = value("throttled_usec").map(Duration::from_micros);
    microseconds.or_else(|| value("throttled_time").map(Duration::from_nanos))
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
            folders: folders(cgroup, mounts),
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
