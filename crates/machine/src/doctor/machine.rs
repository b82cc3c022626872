//! What this machine offers and what the caches hold.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::meter::Counter;
use perfquilt_model::observation::Meter;

/// What matters for building and measuring.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Processors this process may use.
    pub cores: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of memory that could be had now.
    pub memory_available: u64,
    /// Bytes free where the caches are.
    pub disk_free: u64,
    /// Bytes free on the RAM disk; 0 when there is none.
    pub ram_disk_free: u64,
    /// The meters that the processor's own counters give, each with perf's events for it. Of the others
    /// valgrind counts `instructions` and simulates `l1i_misses`; the rest cannot be had.
    pub counters: BTreeMap<Meter, String>,
    /// Why `run --sandbox` and the bot can make no sandbox; `None` when they can.
    pub no_sandbox: Option<String>,
}

/// One cache and its size.
#[derive(Debug, Clone, Serialize)]
pub struct Holding {
    /// What it holds.
    pub what: String,
    /// Where.
    #[serde(serialize_with = "perfquilt_system::files::as_text")]
    pub path: PathBuf,
    /// Entries at its top.
    pub entries: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

impl Machine {
    /// Looks at this machine; `cache` is where the caches are or will be.
    pub fn look(cache: &Path) -> Machine {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = field(&text, "model name").unwrap_or("unknown").to_owned();
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = |name: &str| {
            let value = field(&meminfo, name)?.split_whitespace().next()?;
            value.parse::<u64>().ok()
        };
        Machine {
            processor,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: kib("MemTotal").unwrap_or(0) * 1024,
            memory_available: kib("MemAvailable").unwrap_or(0) * 1024,
            disk_free: cache.ancestors().find_map(free).unwrap_or(0),
            ram_disk_free: free(Path::new("/dev/shm")).unwrap_or(0),
            counters: counters(),
            no_sandbox: crate::sandbox::works().err(),
        }
    }
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

/// Bytes an ordinary user may still write below `path`.
fn free(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// What perf counts here: it is asked to.
fn counters() -> BTreeMap<Meter, String> {
    let counter = Counter::hardware().ok().flatten();
    counter.map_or_else(BTreeMap::new, |counter| {
        counter.events().into_iter().collect()
    })
}

/// What lies below the cache and below a workspace's state; only what is there.
pub fn holdings(cache: &Path, state: Option<&Path>) -> Vec<Holding> {
    let mut places: Vec<(String, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(cache).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let what = match name.as_str() {
            "data" => "prepared data",
            "builds" => "built servers",
            "relink" => "objects to link them again",
            "work" => "source and build trees",
            "ccache" => "compiled units (ccache)",
            other => other,
        };
        places.push((what.to_owned(), entry.path()));
    }
    places.sort();
    if let Some(state) = state {
        places.push(("this workspace's state".to_owned(), state.to_owned()));
    }
    places
        .into_iter()
        // Locks lie beside the caches.
        .filter(|(_, path)| path.is_dir())
        .map(|(what, path)| {
            let entries = std::fs::read_dir(&path).map_or(0, |entries| entries.count() as u64);
            Holding {
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
    fn sizes_are_those_of_all_files_below() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("builds/k/bin")).unwrap();
        std::fs::write(folder.path().join("builds/k/bin/x"), [0; 1000]).unwrap();
        std::fs::write(folder.path().join("builds/k/y"), [0; 24]).unwrap();
        std::os::unix::fs::symlink("/", folder.path().join("builds/k/loop")).unwrap();
        std::fs::write(folder.path().join("measuring.lock"), "").unwrap();
        let held = holdings(folder.path(), Some(Path::new("/no/such/place")));
        assert_eq!(held.len(), 1);
        assert_eq!(
            (held[0].what.as_str(), held[0].entries),
            ("built servers", 1)
        );
        assert!((1024..2048).contains(&held[0].bytes));
    }

    #[test]
    fn this_machine_has_cores_and_memory() {
        let machine = Machine::look(Path::new("/no/such/cache"));
        assert!(machine.cores > 0 && machine.memory > 0 && machine.disk_free > 0);
    }
}
