//! The configuration: `bench-config/perfquilt.toml` and `bench-config/workloads/*.toml`.

mod bot;
mod check;
mod commands;
mod files;
pub mod init;
mod load;
mod patterns;
mod placeholders;
mod sandbox;
mod server;
mod workload;
pub mod workspace;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use perfquilt_model::observation::Meter;

pub use bot::{ApprovalPolicy, Bot, RepositoryKind, SandboxMode, UntrustedPolicy};
pub use commands::{Association, Commands};
pub use files::config_files;
pub use patterns::{InvalidSetting, Patterns};
pub use placeholders::{expand, expand_word};
pub use sandbox::SandboxLimits;
pub use server::{Adapter, CommandServer, Server};
pub use workload::{
    CommandWorkload, HandlerForm, HandlerWorkload, SqlBenchWorkload, SysbenchWorkload, Workload,
    WorkloadKind,
};

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
    /// Recipes for building points, by name.
    pub recipe: BTreeMap<String, Recipe>,
    /// How a built server runs.
    pub server: Server,
    /// Presets of `run`, by name; `quick` is the default.
    pub preset: BTreeMap<String, Preset>,
    /// Equivalence margins by meter, as fractions of speed: an effect shown to lie within
    /// ± margin is `no effect`.
    #[serde(default)]
    pub margin: BTreeMap<Meter, f64>,
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

/// `[upstream]`: the server's name and its releases.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// The server's name, the first part of release names (`mariadb` in `mariadb-10.11.18`).
    pub name: String,
    /// The version of the release the series is for.
    pub current: String,
    /// `[[upstream.release]]`: the releases.
    #[serde(default)]
    pub release: Vec<ReleaseSource>,
}

/// One release: its version and exactly one source.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseSource {
    /// The upstream version, for example `10.11.18`.
    pub version: String,
    /// A Debian source package, fetched by the machine's own apt.
    pub debian: Option<DebianSource>,
    /// A tarball.
    pub tarball: Option<TarballSource>,
    /// A tag in a git repository.
    pub git: Option<GitSource>,
    /// An unpacked tree; a relative path starts at the workspace.
    pub directory: Option<PathBuf>,
    /// A folder with a separate series for this release: a file `series` and its patches. A relative path
    /// starts at the workspace. By default, the release uses the series of `[series]`.
    pub patches: Option<PathBuf>,
}

/// A Debian source package.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DebianSource {
    /// The source package's name.
    pub package: String,
    /// The suite, for example `bookworm`.
    pub suite: String,
    /// The source archive, for example `debian-security`; the default is the archive of the machine's own
    /// suite.
    pub archive: Option<String>,
}

/// A tarball, given by path or URL.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TarballSource {
    /// A path (relative to the workspace) or a URL.
    pub url: String,
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
}

/// A tag in a git repository.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GitSource {
    /// Any remote that `git fetch` accepts.
    pub remote: String,
    /// The tag.
    pub tag: String,
}

/// `[series]`: paths of the series and its patches, relative to the workspace.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SeriesFiles {
    /// The series file.
    pub file: PathBuf,
    /// The folder of the patches.
    pub patches: PathBuf,
    /// Fuzz: the number of context lines that may be ignored if a hunk does not apply otherwise.
    pub fuzz: usize,
}

impl Default for SeriesFiles {
    fn default() -> Self {
        SeriesFiles {
            file: "series".into(),
            patches: "patches".into(),
            fuzz: 0,
        }
    }
}

/// The build system of a recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BuildSystem {
    /// CMake with Ninja, out of tree.
    Cmake,
    /// Commands in the configuration, run in a separate source tree.
    Command,
}

/// The linker of a recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Linker {
    /// The fastest available: mold, else lld, else the compiler's default.
    Auto,
    /// The compiler's default.
    Default,
    /// The mold linker.
    Mold,
    /// LLVM's lld.
    Lld,
}

/// `[recipe.NAME]`: how a point is built.
///
/// In commands and paths, `{src}` is the source tree, `{build}` the build tree (the same as `{src}`
/// for [`BuildSystem::Command`]), `{jobs}` the number of parallel jobs and `{config}` the workspace's
/// `bench-config/`. Other names in braces are refused.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Recipe {
    /// One-line description.
    pub description: String,
    /// A parent recipe that supplies the settings missing here; lists are appended to the parent's lists.
    pub inherits: Option<String>,
    /// The build system.
    pub system: Option<BuildSystem>,
    /// Arguments of `cmake` (only [`BuildSystem::Cmake`]).
    pub cmake_args: Vec<String>,
    /// A CMake file included by every `project()` of the tree (`CMAKE_PROJECT_INCLUDE`), relative to
    /// `bench-config/`: it can change targets without touching the upstream tree.
    pub cmake_include: Option<PathBuf>,
    /// The linker (only [`BuildSystem::Cmake`]); by default the compiler's default or the one given in
    /// `cmake_args`.
    pub linker: Option<Linker>,
    /// Ninja targets that make up the server.
    pub targets: Vec<String>,
    /// Commands run before the first compilation, and for points with different build files (only
    /// [`BuildSystem::Command`]).
    pub configure: Vec<Vec<String>>,
    /// Commands run for every point (only [`BuildSystem::Command`]).
    pub build: Vec<Vec<String>>,
    /// Files of the runnable server: maps a path inside the result to the path of the file or folder to copy,
    /// with placeholders. Stars in the last part of the source path copy every matching file into the folder
    /// that the key names.
    pub install: BTreeMap<String, String>,
    /// The measured executable inside the result.
    pub binary: Option<String>,
    /// Additional environment variables of every command.
    pub env: BTreeMap<String, String>,
    /// How to relink the measured executable (only [`BuildSystem::Command`]; for CMake builds, ninja provides
    /// the command).
    pub relink: Option<Relink>,
    /// Profile-guided optimisation.
    pub profile: Option<Profile>,
}

/// `[recipe.NAME.profile]`: profile-guided optimisation. perfquilt adds the compiler's flags to `CFLAGS`,
/// `CXXFLAGS` and `LDFLAGS` of the recipe.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Training workloads of the instrumented server, run one after the other.
    pub workloads: Vec<String>,
    /// Transactions of each training workload.
    pub transactions: u64,
    /// The profile that a point is compiled with.
    #[serde(default)]
    pub of: ProfileSource,
}

/// The profile that a point is compiled with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProfileSource {
    /// The bare release's profile, so that points differ only in their patches. Changed code then has no
    /// profile.
    #[default]
    Base,
    /// The point's own profile, as it would be shipped.
    Point,
}

/// File in a built point that describes the build.
pub const BUILD_RECORD: &str = "build.json";
/// Folder in a built point with the files for relinking its executable.
pub const RELINK_FOLDER: &str = "relink";
/// File in [`RELINK_FOLDER`] with the link command, or the reason why relinking is impossible.
pub const RELINK_RECORD: &str = "link.json";

/// Reserved first components of paths in [`Recipe::install`].
pub const INSTALL_RESERVED: &[&str] = &[BUILD_RECORD, RELINK_FOLDER];
/// Reserved first components of names in [`Relink::keep`].
pub const KEEP_RESERVED: &[&str] = &[RELINK_RECORD];

/// How the timed blocks vary the layout of code and data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layouts {
    /// No variation: servers run as they were linked
    Off,
    /// Random padding between functions and data, which keep their order
    Padded,
    /// Random order of functions and data
    Shuffled,
}

/// `[recipe.NAME.relink]`: relinks the measured executable, so that the code layout can be varied without
/// compiling anything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relink {
    /// Inputs of the link, kept beside the built server: maps a name to the path of the file to copy, with
    /// placeholders. Stars in the last part of the path copy every matching file into a folder of that name.
    pub keep: BTreeMap<String, String>,
    /// The link command, run in the folder with these inputs. `{output}` is the executable to write.
    pub command: Vec<String>,
    /// Arguments added to the command to shuffle sections. `{seed}` is a number from 1 to 2³¹ − 1 that
    /// determines the order.
    #[serde(default)]
    pub shuffle: Vec<String>,
}

/// `[preset.NAME]`: the settings of an experiment.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// One-line description.
    #[serde(default)]
    pub description: String,
    /// The recipe.
    pub recipe: String,
    /// Workload names.
    pub workloads: Vec<String>,
    /// The meters.
    pub meters: Vec<Meter>,
    /// Blocks of the timed meters for each workload; every block restarts every server. With `resolution`,
    /// this is the maximum.
    pub blocks: u32,
    /// Ends the experiment when the 95 % interval of every patch's effect, on the first timed meter,
    /// is at most ± this, as a fraction of speed.
    pub resolution: Option<f64>,
    /// The minimum number of blocks of an experiment with `resolution`; by default [`DEFAULT_MIN_BLOCKS`], or
    /// `blocks` if that is smaller.
    pub min_blocks: Option<u32>,
    /// Measuring time in seconds of one block of one workload, all points together.
    pub block_seconds: f64,
    /// Blocks of the counting meters (`instructions`, …).
    #[serde(default = "default_count_blocks")]
    pub count_blocks: u32,
    /// How the timed blocks vary the servers' code layouts; by default [`Layouts::Padded`] if the servers can
    /// be relinked.
    pub layouts: Option<Layouts>,
    /// Settings that override those of all sql-bench workloads.
    #[serde(default)]
    pub sql_bench: SqlBenchSettings,
}

fn default_count_blocks() -> u32 {
    3
}

/// `[preset.NAME.sql_bench]`: settings that override those of all sql-bench workloads.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqlBenchSettings {
    /// Overrides [`SqlBenchWorkload::engine`].
    pub engine: Option<String>,
    /// Overrides [`SqlBenchWorkload::small`].
    pub small: Option<bool>,
}

/// The largest resolution, as a share of the margin, at which at least eight of ten patches without effect are
/// reported as such. `perfquilt calibrate` determined it for intervals of exactly that width, four patches and two
/// one-sided tests with Holm's correction.
pub const MAX_RESOLUTION_PER_MARGIN: f64 = 0.55;

/// The default minimum number of blocks before an experiment may stop early. From here on, intervals keep their
/// coverage under early stopping (checked by `perfquilt calibrate`).
pub const DEFAULT_MIN_BLOCKS: u32 = 10;

impl Preset {
    /// Returns the workload called `name` with this preset's overrides.
    ///
    /// # Errors
    /// See [`Config::workload`].
    pub fn workload(
        &self,
        config: &Config,
        name: &str,
    ) -> perfquilt_model::error::Result<Workload> {
        let mut workload = config.workload(name)?.clone();
        if let Some(own) = &mut workload.sql_bench {
            let all = &self.sql_bench;
            own.small = all.small.unwrap_or(own.small);
            if let Some(engine) = &all.engine {
                own.engine.clone_from(engine);
            }
        }
        Ok(workload)
    }

    /// Returns a warning if the resolution is too coarse for the margin of the first timed meter, so that patches
    /// without effect are seldom reported as such; `margin` returns a meter's margin as a fraction of speed.
    pub fn unreachable_margin(&self, margin: &dyn Fn(Meter) -> f64) -> Option<String> {
        let resolution = self.resolution?;
        let mut timed = Meter::ALL.into_iter().filter(|meter| meter.is_timed());
        let meter = timed.find(|meter| self.meters.contains(meter))?;
        let margin = margin(meter);
        let enough = MAX_RESOLUTION_PER_MARGIN * margin;
        let percent = |fraction: f64| {
            let text = format!("{:.3}", 100.0 * fraction);
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        (resolution > enough * (1.0 + 1e-9)).then(|| {
            format!(
                "with a resolution of {} % and a margin of ±{} % for {meter}, patches without effect are seldom \
                 called so: choose `resolution = {}` or less, or a wider margin in [margin]",
                percent(resolution),
                percent(margin),
                enough,
            )
        })
    }

    /// Returns the minimum number of blocks of an experiment with early stopping; `None` for a fixed number of
    /// blocks.
    pub fn min_blocks(&self) -> Option<u32> {
        self.resolution?;
        Some(
            self.min_blocks
                .unwrap_or(DEFAULT_MIN_BLOCKS)
                .min(self.blocks),
        )
    }
}
