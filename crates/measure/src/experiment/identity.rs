//! How an experiment is measured: the harness, and the facts of the machine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use perfquilt_bench::meter::Counter;
use perfquilt_bench::server;
use perfquilt_bench::workload;
use perfquilt_bench::workload::{Placement, allowed_cpus};
use perfquilt_config::Layouts;
use perfquilt_config::workspace::Workspace;
use perfquilt_judge::stats::REDUCTION;
use perfquilt_model::error::Result;
use perfquilt_model::observation::Meter;
use perfquilt_system::host::KernelFields;

/// The version of the measuring protocol, beside the parts that [`harness`] digests: how servers are started,
/// warmed up and ordered, and which transactions are counted. A change that may alter readings of the same
/// servers increments it.
pub const PROTOCOL: u32 = 5;

/// Returns the identity of the harness: the measuring protocol, the reduction of slices, the drivers, how
/// servers run, the source of counts (`counter`, empty without counts), and how code layouts vary. Observations of
/// different harnesses do not mix.
pub fn harness(ws: &Workspace, counter: &str, layouts: Layouts) -> Result<String> {
    let mut digest = Sha256::new();
    digest.update(format!("protocol {PROTOCOL}, reduction {REDUCTION}\n"));
    digest.update(workload::identity());
    digest.update(server::identity(ws, server::adapter(ws)?.as_ref())?);
    digest.update(counter);
    digest.update(match layouts {
        Layouts::Off => "",
        Layouts::Padded => "padded by lines and pages, common to the points of a block",
    });
    Ok(format!(
        "perfquilt {} {}",
        env!("CARGO_PKG_VERSION"),
        &hex::encode(digest.finalize())[..12]
    ))
}

/// The measuring tools of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// The facts of [`machine_facts`].
    pub machine: BTreeMap<String, String>,
    /// The meters that can be counted.
    pub meters: Vec<Meter>,
    /// How they are counted; empty if nothing is.
    pub counter: String,
}

impl Facts {
    /// Returns the facts of this machine; `counts` tells whether a meter is to be counted.
    pub fn here(counts: bool) -> Result<Self> {
        let counter = counts.then(Counter::detect).transpose()?;
        let counter = counter.as_ref();
        Ok(Facts {
            machine: machine_facts(counter),
            meters: counter
                .map(|counter| counter.meters.clone())
                .unwrap_or_default(),
            counter: counter.map(Counter::describe).unwrap_or_default(),
        })
    }
}

/// Returns processor, cores, memory, kernel and virtualisation of this machine, and how it is used.
pub fn machine_facts(counter: Option<&Counter>) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let processor = KernelFields::read("/proc/cpuinfo");
    let field = |name: &str| processor.get(name).map(str::to_owned);
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            facts.insert(name.to_owned(), value);
        }
    };
    add(
        "processor",
        field("model name").or_else(|| field("CPU part").map(|part| format!("ARM part {part}"))),
    );
    add("cores", Some(allowed_cpus().len().to_string()));
    let memory = KernelFields::read("/proc/meminfo").number("MemTotal");
    let gib = |kib: u64| format!("{:.0} GiB", kib as f64 / f64::from(1 << 20));
    add("memory", memory.map(gib));
    let uname = rustix::system::uname();
    add(
        "kernel",
        Some(format!(
            "{} {}",
            uname.sysname().to_string_lossy(),
            uname.release().to_string_lossy()
        )),
    );
    add(
        "virtualisation",
        field("flags").map(|flags| {
            let virtual_machine = flags.split(' ').any(|flag| flag == "hypervisor");
            if virtual_machine {
                "virtual machine"
            } else {
                "none"
            }
            .to_owned()
        }),
    );
    let scheduling = Placement::of_this_machine().scheduling();
    add("scheduling", Some(scheduling.to_owned()));
    add("counter", counter.map(Counter::describe));
    facts
}

/// Returns the seed of all random choices in the experiment of `key`.
pub fn seed(key: &str) -> u64 {
    let digest = Sha256::digest(key);
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest[..8]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_facts() {
        let facts = machine_facts(None);
        assert!(facts.contains_key("kernel"), "{facts:?}");
        assert!(facts["cores"].parse::<u32>().unwrap() > 0);
    }

    #[test]
    fn seeds_differ_by_key() {
        assert_ne!(seed("a"), seed("b"));
        assert_eq!(seed("a"), seed("a"));
    }
}
