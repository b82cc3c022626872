//! Quantities read while a server works.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

use crate::error::Error;

/// The facts about a meter.
struct Facts {
    description: &'static str,
    unit: &'static str,
    go_unit: &'static str,
    is_timed: bool,
    noun: &'static str,
}

/// Defines [`Meter`] with one entry a meter, so that none can lack a fact. Its comment is its description.
macro_rules! meters {
    ($($(#[doc = $doc:literal])* $variant:ident { $($fact:ident: $value:expr,)* })*) => {
        /// A quantity read while a server works. All meters are costs: less is faster.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[derive(Serialize, Deserialize, Display, IntoStaticStr)]
        #[serde(rename_all = "snake_case")]
        #[strum(serialize_all = "snake_case")]
        pub enum Meter {
            $($(#[doc = $doc])* $variant,)*
        }

        impl Meter {
            /// Every meter, in the order in which reports show them.
            pub const ALL: [Meter; [$(Meter::$variant),*].len()] = [$(Meter::$variant),*];

            const fn facts(self) -> Facts {
                match self {
                    $(Meter::$variant => Facts { description: concat!($($doc),*), $($fact: $value,)* },)*
                }
            }
        }
    };
}

meters! {
    /// Wall-clock time.
    Time {
        unit: "ns/txn",
        go_unit: "ns/op",
        is_timed: true,
        noun: "time",
    }
    /// Processor time of the server's processes.
    Cpu {
        unit: "ns/txn",
        go_unit: "cpu-ns/op",
        is_timed: true,
        noun: "processor time",
    }
    /// Instructions.
    Instructions {
        unit: "instructions/txn",
        go_unit: "instructions/op",
        is_timed: false,
        noun: "instructions",
    }
    /// Processor cycles.
    Cycles {
        unit: "cycles/txn",
        go_unit: "cycles/op",
        is_timed: false,
        noun: "cycles",
    }
    /// Misses of the first-level instruction cache.
    L1iMisses {
        unit: "misses/txn",
        go_unit: "L1i-misses/op",
        is_timed: false,
        noun: "instruction-cache misses",
    }
    /// Mispredicted branches.
    BranchMisses {
        unit: "misses/txn",
        go_unit: "branch-misses/op",
        is_timed: false,
        noun: "mispredicted branches",
    }
    /// Share of issue slots that the front end left empty, from 0 to 1.
    FrontendBound {
        unit: "ratio",
        go_unit: "frontend-bound",
        is_timed: false,
        noun: "empty issue slots",
    }
    /// Peak resident memory of the server's processes up to the end of a block; shared memory counts once.
    Rss {
        unit: "bytes",
        go_unit: "peak-rss-bytes",
        is_timed: true,
        noun: "memory",
    }
    /// Context switches of the server's threads.
    ContextSwitches {
        unit: "switches/txn",
        go_unit: "context-switches/op",
        is_timed: true,
        noun: "context switches",
    }
    /// Bytes that the server reads and writes by calls for files and pipes, cached or not.
    IoBytes {
        unit: "bytes/txn",
        go_unit: "io-bytes/op",
        is_timed: true,
        noun: "bytes read and written",
    }
    /// Calls by which the server reads and writes files and pipes.
    IoCalls {
        unit: "calls/txn",
        go_unit: "io-calls/op",
        is_timed: true,
        noun: "reads and writes",
    }
    /// Reads of data files, by the server's own counters.
    ServerReads {
        unit: "reads/txn",
        go_unit: "server-reads/op",
        is_timed: true,
        noun: "reads of data files",
    }
    /// Writes of data files and logs, by the server's own counters.
    ServerWrites {
        unit: "writes/txn",
        go_unit: "server-writes/op",
        is_timed: true,
        noun: "writes of data files",
    }
    /// Flushes of data files and logs to the disk, by the server's own counters.
    ServerSyncs {
        unit: "syncs/txn",
        go_unit: "server-syncs/op",
        is_timed: true,
        noun: "syncs",
    }
}

impl Meter {
    /// Returns the name in configuration, command line and files.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns one or more sentences that say what the meter reads.
    pub fn description(self) -> &'static str {
        self.facts().description.trim_start()
    }

    /// Returns the unit of [`Observation::value`](super::Observation::value).
    pub fn unit(self) -> &'static str {
        self.facts().unit
    }

    /// Returns the unit in Go's benchmark format, where an operation is a transaction.
    pub fn go_unit(self) -> &'static str {
        self.facts().go_unit
    }

    /// Returns the equivalence margin, as a fraction of speed, that applies unless the configuration sets one.
    pub fn default_margin(self) -> f64 {
        match self {
            Meter::Instructions => 0.001,
            _ => 0.01,
        }
    }

    /// Returns what it measures, for sentences: `processor time`, `context switches`.
    pub fn noun(self) -> &'static str {
        self.facts().noun
    }

    /// Whether the meter is read in timed blocks; the others are counted.
    pub fn is_timed(self) -> bool {
        self.facts().is_timed
    }

    /// Whether the meter is read once a timed block, from what the kernel knows of the server's processes or what the
    /// server counts itself.
    pub fn is_usage(self) -> bool {
        use Meter::{ContextSwitches, IoBytes, IoCalls, Rss};
        matches!(self, Rss | ContextSwitches | IoBytes | IoCalls) || self.is_storage()
    }

    /// Whether the server itself counts it, so that only adapters that know its counters have it.
    pub fn is_storage(self) -> bool {
        use Meter::{ServerReads, ServerSyncs, ServerWrites};
        matches!(self, ServerReads | ServerWrites | ServerSyncs)
    }
}

/// Wall-clock time, which most presets read.
impl Default for Meter {
    fn default() -> Self {
        Meter::Time
    }
}

impl FromStr for Meter {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Meter::ALL
            .into_iter()
            .find(|meter| meter.name() == text)
            .ok_or_else(|| {
                let names = Meter::ALL.map(Meter::name);
                let all = format!("meters are {}", names.join(", "));
                Error::arguments(format!("`{text}` is not a meter")).near(
                    text,
                    names.into_iter(),
                    all,
                )
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_files() {
        for meter in Meter::ALL {
            let json = serde_json::to_string(&meter).unwrap();
            assert_eq!(json, format!("\"{meter}\""));
            assert_eq!(meter.name().parse::<Meter>().unwrap(), meter);
        }
        let hint = |text: &str| {
            let error = text.parse::<Meter>().unwrap_err();
            error.hint_text().unwrap_or_default().to_owned()
        };
        assert_eq!(hint("tiem"), "did you mean `time`?");
        assert!(hint("seconds").starts_with("meters are time, cpu, "));
    }
}
