//! The configuration: `bench-config/perfquilt.toml` and `bench-config/workloads/*.toml`.
//!
//! # Example
//!
//! ```
//! use perfquilt_config::{Config, Workload, init};
//!
//! let folder = tempfile::tempdir().unwrap();
//! init::init(folder.path(), init::template("redis")?)?;
//! let config = Config::load(folder.path())?;
//! assert_eq!(config.upstream.name, "redis");
//! assert!(config.preset("quick").is_ok());
//!
//! // Every error names the file and the line.
//! let error = Workload::parse("ping", "description = \"pings\"\nkint = \"command\"").unwrap_err();
//! assert!(error.to_string().starts_with("bench-config/workloads/ping.toml:2: "), "{error}");
//! # Ok::<(), perfquilt_model::Error>(())
//! ```

mod bot;
mod cluster;
mod commands;
mod document;
mod files;
mod fraction;
pub mod init;
mod load;
mod mail;
pub mod packages;
mod placeholders;
mod preset;
mod recipe;
mod recorded;
mod sandbox;
mod seconds;
mod server;
mod test_suite;
mod toml_message;
mod upstream;
mod watch;
mod words;
mod workload;
pub mod workspace;

use std::collections::BTreeMap;

use serde::Deserialize;

use document::Document;
use perfquilt_model::observation::Meter;

pub use bot::{ApprovalPolicy, Bot, RepositoryKind, SandboxMode, UntrustedPolicy};
pub use cluster::Cluster;
pub use commands::{Association, Commands};
pub use document::{Section, SettingPath};
pub use files::read_files;
pub use fraction::{MAX_WIDTH, parse_fraction, width_fault};
pub use mail::Mail;
pub use placeholders::{expand, expand_word};
pub use preset::{DEFAULT_MIN_BLOCKS, Lanes, Layouts, MAX_RESOLUTION_PER_MARGIN, Preset};
pub use recipe::{
    BUILD_RECORD, BuildSystem, INSTALL_RESERVED, KEEP_RESERVED, Linker, Profile, ProfileSource,
    RELINK_FOLDER, RELINK_RECORD, Recipe, Relink,
};
pub use recorded::{read_recorded, write_recorded};
pub use sandbox::SandboxLimits;
pub use seconds::parse_duration;
pub use server::{Disk, Server};
pub use test_suite::{TESTS_PLACEHOLDER, TestFormat, TestSuite};
pub use upstream::{DebianSource, GitSource, ReleaseSource, SeriesFiles, TarballSource, Upstream};
pub use watch::{BranchSource, Watch, WatchedLine};
pub use words::{KERNEL_FOLDERS, declared_files, files_below, interpreters, named_files};
pub use workload::Workload;

/// The configuration's path inside a workspace.
pub const CONFIG_FILE: &str = "bench-config/perfquilt.toml";

/// The configuration of a workspace, including workloads.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Releases and their sources.
    pub upstream: Upstream,
    /// Locations of the series and its patches.
    #[serde(default)]
    pub series: SeriesFiles,
    /// Recipes for building points, by name. A workspace that only keeps a series needs none.
    #[serde(default)]
    pub recipe: BTreeMap<String, Recipe>,
    /// How a built server runs.
    #[serde(default)]
    pub server: Server,
    /// How jobs run on the machines of a cluster.
    #[serde(default)]
    pub cluster: Cluster,
    /// Presets of `run`, by name; `quick` is the default.
    #[serde(default)]
    pub preset: BTreeMap<String, Preset>,
    /// Equivalence margins by meter, as fractions of speed (`0.005` or `"0.5 %"`), at most 0.2: an effect shown to lie
    /// within ± margin is `no effect`.
    #[serde(default, deserialize_with = "fraction::deserialize_by_meter")]
    pub margin: BTreeMap<Meter, f64>,
    /// The lines of upstream to follow.
    #[serde(default)]
    pub watch: Watch,
    /// Settings of the bot.
    #[serde(default)]
    pub bot: Bot,
    /// Users authorised to command the bot.
    #[serde(default)]
    pub commands: Commands,
    /// Resource limits for code from pull requests.
    #[serde(default)]
    pub sandbox: SandboxLimits,
    /// Workloads by name, from `bench-config/workloads/NAME.toml`.
    #[serde(skip)]
    pub workloads: BTreeMap<String, Workload>,
    #[serde(skip)]
    document: Document,
}

impl Config {
    /// Returns the equivalence margin of a meter: the configured one, or else [`Meter::default_margin`].
    pub fn margin(&self, meter: Meter) -> f64 {
        self.margin
            .get(&meter)
            .copied()
            .unwrap_or_else(|| meter.default_margin())
    }
}
