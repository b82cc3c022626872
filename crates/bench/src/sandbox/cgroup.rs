//! A control group for one sandbox: the kernel counts its processes and its memory, and refuses more.
//!
//! Version 2 where this program may make groups below its own (root, or a service with `Delegate=yes`), version 1 where
//! the controllers are there. Without either, the limits per user and [`super::SandboxProcess`] have to do.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use perfquilt_config::SandboxLimits;
use perfquilt_system::control_groups::{Groups, value};
use perfquilt_system::process::process_tree;

/// Time for the kernel to remove the last processes of a group after they were killed.
const REMOVAL: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(10);
/// The group that this program moves itself and what it started to, because a group of version 2 has either processes or
/// limited children.
const OWN: &str = "perfquilt-service";

/// Microseconds in which a group uses its share of the processors.
const CPU_PERIOD: u64 = 100_000;

/// Start of the names of groups; the process that made one follows.
const PREFIX: &str = "perfquilt-";

/// A group with limits. Dropping it removes it.
#[derive(Debug)]
pub(super) struct Cgroup {
    /// One folder of version 2, or one per controller of version 1.
    folders: Vec<PathBuf>,
    limits: SandboxLimits,
}

impl Cgroup {
    /// Makes a group with `limits`; `None` where this program may not.
    pub(super) fn create(limits: &SandboxLimits) -> Option<Self> {
        let groups = Groups::of(std::process::id());
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        let controllers = controllers(limits);
        let second = groups.own("").and_then(|own| {
            let parent = delegated(own, controllers)?;
            make(vec![parent.join(&name)], limits)
        });
        second.or_else(|| {
            let folders: Option<Vec<PathBuf>> = controllers
                .iter()
                .map(|controller| Some(groups.own(controller)?.join(&name)))
                .collect();
            make(folders?, limits)
        })
    }

    /// Returns what the group is, in words.
    pub(super) fn described(&self) -> String {
        let version = if self.folders.len() == 1 { 2 } else { 1 };
        format!("a control group (version {version})")
    }

    /// Returns the files that a process writes `0` to in order to join.
    pub(super) fn entrances(&self) -> impl Iterator<Item = PathBuf> {
        self.folders
            .iter()
            .map(|folder| folder.join("cgroup.procs"))
    }

    /// Returns the limit that the group has reached, in words.
    pub(super) fn exceeded(&self) -> Option<String> {
        let count = |file: &str, key: &str| -> u64 {
            let texts = self.folders.iter().map(|folder| folder.join(file));
            texts
                .filter_map(|path| std::fs::read_to_string(path).ok())
                .filter_map(|text| value(&text, key))
                .sum()
        };
        if count("pids.events", "max") > 0 {
            return Some(format!("more than {} processes", self.limits.processes));
        }
        let killed = count("memory.events", "oom_kill") + count("memory.oom_control", "oom_kill");
        (killed > 0).then(|| format!("more than {} MiB of memory", self.limits.memory_mib))
    }

    /// Kills every process of the group at once, where the kernel can.
    pub(super) fn kill(&self) {
        for folder in &self.folders {
            let _ = std::fs::write(folder.join("cgroup.kill"), "1");
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for folder in &self.folders {
            let mut left = REMOVAL;
            while let Err(error) = std::fs::remove_dir(folder)
                && error.kind() == ErrorKind::ResourceBusy
                && !left.is_zero()
            {
                std::thread::sleep(PAUSE);
                left = left.saturating_sub(PAUSE);
            }
        }
    }
}

/// Removes the groups that programs left beside `folder` which were killed: nothing runs in them, or the kernel refuses.
fn sweep(folder: &Path) {
    let above = folder.parent().into_iter();
    for entry in above
        .filter_map(|above| std::fs::read_dir(above).ok())
        .flatten()
        .flatten()
    {
        let name = entry.file_name().into_string().unwrap_or_default();
        let process = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split_once('-'));
        let is_gone = |(process, _): (&str, &str)| {
            process.parse::<u32>().is_ok() && !Path::new("/proc").join(process).exists()
        };
        if process.is_some_and(is_gone) {
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

/// Creates the folders and sets the limits; undoes everything if the kernel refuses one of them.
fn make(folders: Vec<PathBuf>, limits: &SandboxLimits) -> Option<Cgroup> {
    let mut group = Cgroup {
        folders: Vec::new(),
        limits: limits.clone(),
    };
    for folder in folders {
        sweep(&folder);
        std::fs::create_dir(&folder).ok()?;
        group.folders.push(folder);
    }
    let set = |file: &str, text: &str| -> bool {
        let mut paths = group.folders.iter().map(|folder| folder.join(file));
        paths.any(|path| path.exists() && std::fs::write(path, text).is_ok())
    };
    // RAM disks count as memory of the group.
    let bytes = (limits.memory_mib.saturating_mul(7) / 4).saturating_mul(1 << 20);
    let (bytes, processes) = (bytes.to_string(), limits.processes.to_string());
    let holds = set("pids.max", &processes)
        && (set("memory.max", &bytes) || set("memory.limit_in_bytes", &bytes))
        && (limits.cpus == 0 || {
            let quota = limits.cpus.saturating_mul(CPU_PERIOD);
            set("cpu.max", &format!("{quota} {CPU_PERIOD}"))
                || (set("cpu.cfs_period_us", &CPU_PERIOD.to_string())
                    && set("cpu.cfs_quota_us", &quota.to_string()))
        });
    // Where there is no swap, these do not exist.
    for (file, text) in [
        ("memory.swap.max", "0"),
        ("memory.memsw.limit_in_bytes", &*bytes),
        ("memory.oom.group", "1"),
    ] {
        set(file, text);
    }
    holds.then_some(group)
}

/// Returns the controllers that enforce `limits`. A group of the processor's controller has no real-time time of its own in
/// version 1, so it is made only for a limit that was asked for.
fn controllers(limits: &SandboxLimits) -> &'static [&'static str] {
    if limits.cpus == 0 {
        &["pids", "memory"]
    } else {
        &["pids", "memory", "cpu"]
    }
}

/// Returns a folder of version 2 below which groups have the limits of `controllers`; `None` where there is none.
fn delegated(own: &Path, controllers: &[&str]) -> Option<PathBuf> {
    let wanted: Vec<String> = controllers.iter().map(|name| format!("+{name}")).collect();
    let wanted = wanted.join(" ");
    let enable = || std::fs::write(own.join("cgroup.subtree_control"), &wanted);
    let words = std::fs::read_to_string(own.join("cgroup.controllers")).ok()?;
    let has = |name: &&str| words.split_whitespace().any(|word| word == *name);
    if !controllers.iter().all(has) {
        return None;
    }
    let inner = own.join(OWN);
    let mut left = REMOVAL;
    loop {
        match enable() {
            Ok(()) => return Some(own.to_owned()),
            Err(error) if error.kind() == ErrorKind::ResourceBusy && !left.is_zero() => {}
            Err(_) => return None,
        }
        // The group has processes. Those of somebody else stay, unless they are about to end.
        let ours = process_tree(std::process::id());
        let here = std::fs::read_to_string(own.join("cgroup.procs")).ok()?;
        let here: Vec<u32> = here.lines().filter_map(|line| line.parse().ok()).collect();
        if here.iter().all(|process| ours.contains(process)) {
            let _ = std::fs::create_dir(&inner);
            for process in here {
                // It may have ended.
                let _ = std::fs::write(inner.join("cgroup.procs"), process.to_string());
            }
        }
        std::thread::sleep(PAUSE);
        left = left.saturating_sub(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "9:name=systemd:/\n8:pids:/\n4:memory:/a/b\n3:cpu,cpuacct:/\n0::/\n";
    const FIRST_MOUNTS: &str = "\
30 24 0:26 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
31 24 0:27 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory
32 24 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn the_own_group_is_found_in_both_versions() {
        let groups = Groups::read(FIRST, FIRST_MOUNTS);
        let of = |controller| groups.own(controller).map(Path::to_owned);
        assert_eq!(of("memory"), Some("/sys/fs/cgroup/memory/a/b".into()));
        assert_eq!(of(""), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(of("pids"), None);
        // In a container, the mount shows a part only.
        let mounts = "32 24 0:28 /x /sys/fs/cgroup rw - cgroup2 cgroup rw";
        let groups = Groups::read("0::/x/y\n", mounts);
        assert_eq!(groups.own(""), Some(Path::new("/sys/fs/cgroup/y")));
    }

    /// A folder that looks like a group of version 2 whose controllers can be enabled.
    fn group_of_version_2(controllers: &str, processes: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("cgroup.controllers", controllers),
            ("cgroup.procs", processes),
        ] {
            std::fs::write(folder.path().join(file), text).unwrap();
        }
        folder
    }

    #[test]
    fn groups_are_made_only_where_all_controllers_are_delegated() {
        let delegated = |own: &Path| delegated(own, &["pids", "memory"]);
        let folder = group_of_version_2("cpu memory pids\n", "1\n");
        assert_eq!(delegated(folder.path()).as_deref(), Some(folder.path()));
        let enabled = std::fs::read_to_string(folder.path().join("cgroup.subtree_control"));
        assert_eq!(enabled.unwrap(), "+pids +memory");
        let with_cpu = super::delegated(folder.path(), &["pids", "memory", "cpu"]);
        assert_eq!(with_cpu.as_deref(), Some(folder.path()));
        let folder = group_of_version_2("cpu memory\n", "1\n");
        assert_eq!(delegated(folder.path()), None);
        // The kernel refuses, and another process is here.
        let folder = group_of_version_2("memory pids\n", "1\n");
        std::fs::create_dir(folder.path().join("cgroup.subtree_control")).unwrap();
        assert_eq!(delegated(folder.path()), None);
        assert!(!folder.path().join(OWN).exists());
    }

    #[test]
    fn what_the_group_has_reached_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let group = Cgroup {
            folders: vec![folder.path().join("group")],
            limits: SandboxLimits {
                processes: 150,
                memory_mib: 400,
                ..SandboxLimits::default()
            },
        };
        let write = |file: &str, text: &str| {
            std::fs::create_dir_all(&group.folders[0]).unwrap();
            std::fs::write(group.folders[0].join(file), text).unwrap();
        };
        write("pids.events", "max 0\n");
        write("memory.events", "low 0\noom 0\noom_kill 0\n");
        assert_eq!(group.exceeded(), None);
        write("memory.events", "low 0\noom 1\noom_kill 3\n");
        assert_eq!(group.exceeded().unwrap(), "more than 400 MiB of memory");
        write("pids.events", "max 2\n");
        assert_eq!(group.exceeded().unwrap(), "more than 150 processes");
        std::mem::forget(group);
    }

    #[test]
    fn groups_of_killed_programs_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = perfquilt_system::process::Command::new("true")
            .spawn()
            .unwrap();
        let gone = child.id();
        child.kill().unwrap();
        let own = std::process::id();
        let names = [
            format!("{PREFIX}{gone}-0"),
            format!("{PREFIX}{own}-0"),
            "perfquilt-service".to_owned(),
            "other".to_owned(),
        ];
        for name in &names {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        sweep(&folder.path().join("new"));
        let left = names
            .iter()
            .filter(|name| folder.path().join(name).exists());
        assert_eq!(
            left.collect::<Vec<_>>(),
            names[1..].iter().collect::<Vec<_>>()
        );
    }

    /// Where this machine allows it: the kernel refuses the process that is one too many.
    #[test]
    fn the_kernel_refuses_one_process_too_many() {
        let limits = SandboxLimits {
            processes: 3,
            memory_mib: 64,
            ..SandboxLimits::default()
        };
        let Some(group) = Cgroup::create(&limits) else {
            assert!(
                !rustix::process::geteuid().is_root() || !Path::new("/sys/fs/cgroup/pids").exists()
            );
            return;
        };
        let mut command = perfquilt_system::process::Command::new("sh")
            .args(["-c", "sleep 5 & sleep 5 & sleep 5 & wait"]);
        for path in group.entrances() {
            command = command.writing(&path, b"0").unwrap();
        }
        let mut child = command.spawn().unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while group.exceeded().is_none() {
            assert!(std::time::Instant::now() < until, "it is not refused");
            std::thread::sleep(Duration::from_millis(10));
        }
        child.kill().unwrap();
        let folders = group.folders.clone();
        drop(group);
        assert!(folders.iter().all(|folder| !folder.exists()));
    }

    /// Where this machine allows it: the group's processes have so many processors' time.
    #[test]
    fn the_kernel_limits_processor_time_that_was_asked_for() {
        let limits = SandboxLimits {
            processes: 30,
            memory_mib: 64,
            cpus: 1,
            ..SandboxLimits::default()
        };
        let Some(group) = Cgroup::create(&limits) else {
            assert!(
                !rustix::process::geteuid().is_root() || !Path::new("/sys/fs/cgroup/cpu").exists()
            );
            return;
        };
        let read = |file: &str| {
            let folders = group.folders.iter().map(|folder| folder.join(file));
            folders
                .filter_map(|path| std::fs::read_to_string(path).ok())
                .next()
        };
        let second = read("cpu.max");
        let (quota, period) = match &second {
            Some(text) => text
                .trim()
                .split_once(' ')
                .map(|(a, b)| (a.to_owned(), b.to_owned())),
            None => read("cpu.cfs_quota_us").zip(read("cpu.cfs_period_us")),
        }
        .unwrap();
        assert_eq!(quota.trim(), period.trim());
    }
}
