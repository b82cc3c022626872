//! Inspects this machine and the contents of the caches.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::cpu_quota::ControlGroups;
use crate::meter::Counter;
use crate::meter::samples::SamplingEvent;
use crate::server::{free_bytes, memory_available};
use perfquilt_model::observation::Meter;
use perfquilt_system::host::KernelFields;

/// Properties of this machine that matter for building and measuring.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Processors this process may use.
    pub cores: usize,
    /// The processor quota of this process's control group, in processors; `None` without one.
    pub cpu_quota: Option<f64>,
    /// The file with the quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_quota_file: Option<String>,
    /// Seconds for which the kernel has stopped processes of the group because the quota was used up, all processors
    /// together.
    pub throttled: f64,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of memory available now.
    pub memory_available: u64,
    /// Bytes free on the disk of the caches.
    pub disk_free: u64,
    /// Bytes free on the RAM disk; 0 if there is none.
    pub ram_disk_free: u64,
    /// The meters that the processor's own counters support, each with its perf events. Of the others, valgrind
    /// counts `instructions` and simulates `l1i_misses`; the rest are unavailable.
    pub counters: BTreeMap<Meter, String>,
    /// The unit in which `profile --source perf` samples time; `None` if perf cannot sample.
    pub sampling: Option<&'static str>,
    /// Why perf cannot sample, and what permits it; `None` if it can.
    pub no_sampling: Option<String>,
    /// Why `run --sandbox` and the bot cannot create a sandbox; `None` if they can.
    pub no_sandbox: Option<String>,
}

/// A cache and its size.
#[derive(Debug, Clone, Serialize)]
pub struct CacheUsage {
    /// Description of its content.
    pub what: String,
    /// Its folder.
    #[serde(serialize_with = "perfquilt_system::files::as_text")]
    pub path: PathBuf,
    /// Number of entries at the top level.
    pub entries: u64,
    /// Total bytes of all files.
    pub bytes: u64,
}

impl Machine {
    /// Inspects this machine; `cache` is the folder of the caches, which need not exist yet.
    pub fn inspect(cache: &Path) -> Machine {
        let processor = KernelFields::read("/proc/cpuinfo");
        let memory = KernelFields::read("/proc/meminfo").number("MemTotal");
        let groups = ControlGroups::of_this_process();
        let quota = groups.quota();
        let sampling = SamplingEvent::detect();
        let existing = cache.ancestors().find(|folder| folder.exists());
        Machine {
            cpu_quota: quota.as_ref().map(|quota| quota.processors),
            cpu_quota_file: quota.map(|quota| quota.file.display().to_string()),
            throttled: groups.throttled().as_secs_f64(),
            processor: processor.get("model name").unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: memory.unwrap_or(0) * 1024,
            memory_available: memory_available(),
            disk_free: existing.map_or(0, free_bytes),
            ram_disk_free: free_bytes(Path::new("/dev/shm")),
            counters: counters(),
            sampling: sampling.as_ref().ok().map(|by| by.unit()),
            no_sampling: sampling.err().map(|error| match error.hint_text() {
                Some(hint) => format!("{}: {hint}", error.message()),
                None => error.message().to_owned(),
            }),
            no_sandbox: crate::sandbox::check_support(&perfquilt_config::SandboxLimits::default())
                .err(),
        }
    }
}

/// Returns the meters that perf can read here, found by trying their events.
fn counters() -> BTreeMap<Meter, String> {
    let counter = Counter::hardware().ok().flatten();
    counter.map_or_else(BTreeMap::new, |counter| {
        counter.events().into_iter().collect()
    })
}

/// Lists the existing caches and a workspace's state with their sizes.
pub fn cache_usage(cache: &Path, state: Option<&Path>) -> Vec<CacheUsage> {
    let mut folders: Vec<(String, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(cache).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let what = match name.as_str() {
            "data" => "prepared data",
            "builds" => "built servers",
            "relink" => "objects for relinking them",
            "work" => "source and build trees",
            "ccache" => "compiled units (ccache)",
            other => other,
        };
        folders.push((what.to_owned(), entry.path()));
    }
    folders.sort();
    if let Some(state) = state {
        folders.push(("this workspace's state".to_owned(), state.to_owned()));
    }
    folders
        .into_iter()
        // Lock files are next to the caches.
        .filter(|(_, path)| path.is_dir())
        .map(|(what, path)| {
            let entries = std::fs::read_dir(&path).map_or(0, |entries| entries.count() as u64);
            CacheUsage {
                what,
                entries,
                bytes: perfquilt_system::caches::size(&path),
                path,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_include_all_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("builds/k/bin")).unwrap();
        std::fs::write(folder.path().join("builds/k/bin/x"), [0; 1000]).unwrap();
        std::fs::write(folder.path().join("builds/k/y"), [0; 24]).unwrap();
        std::os::unix::fs::symlink("/", folder.path().join("builds/k/loop")).unwrap();
        std::fs::write(folder.path().join("measuring.lock"), "").unwrap();
        let caches = cache_usage(folder.path(), Some(Path::new("/no/such/place")));
        assert_eq!(caches.len(), 1);
        assert_eq!(
            (caches[0].what.as_str(), caches[0].entries),
            ("built servers", 1)
        );
        assert!((1024..2048).contains(&caches[0].bytes));
    }

    #[test]
    fn this_machine_has_cores_and_memory() {
        let machine = Machine::inspect(Path::new("/no/such/cache"));
        assert!(machine.cores > 0 && machine.memory > 0 && machine.disk_free > 0);
        // Either it can sample, or it says what to do.
        assert_ne!(machine.sampling.is_some(), machine.no_sampling.is_some());
    }
}
