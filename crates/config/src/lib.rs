//! `bench-config/perfquilt.toml` and `bench-config/workloads/*.toml`.

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

pub use bot::{Approval, Bot, Kind as BotKind, Untrusted, UseSandbox};
pub use commands::{Association, Commands};
pub use files::config_files;
pub use patterns::{BadSetting, Patterns};
pub use placeholders::{expand, expand_word};
pub use sandbox::Limits;
pub use server::{Adapter, CommandServer, Server};
pub use workload::{
    CommandWorkload, HandlerForm, HandlerWorkload, SqlBenchWorkload, SysbenchWorkload, Workload,
    WorkloadKind,
};

/// The configuration's path inside a workspace.
pub const CONFIG_FILE: &str = "bench-config/perfquilt.toml";

/// The whole configuration of a workspace, workloads included.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where releases come from.
    pub upstream: Upstream,
    /// Where the series is.
    #[serde(default)]
    pub series: SeriesFiles,
    /// How points are built, by name.
    pub recipe: BTreeMap<String, Recipe>,
    /// How a built server is run.
    pub server: Server,
    /// What `run` does, by name; `quick` is the default.
    pub preset: BTreeMap<String, Preset>,
    /// Equivalence margins by meter, as fractions of speed: an effect shown to lie within
    /// ± margin is `no effect`.
    #[serde(default)]
    pub margin: BTreeMap<Meter, f64>,
    /// What the bot does.
    #[serde(default)]
    pub bot: Bot,
    /// Who may command it.
    #[serde(default)]
    pub commands: Commands,
    /// What code of pull requests may have of the machine.
    #[serde(default)]
    pub sandbox: Limits,
    /// Workloads by name, from `bench-config/workloads/NAME.toml`.
    #[serde(skip)]
    pub workloads: BTreeMap<String, Workload>,
}

impl Config {
    /// The equivalence margin of a meter: the configured one, else that of [`Meter::default_margin`].
    pub fn margin(&self, meter: Meter) -> f64 {
        self.margin
            .get(&meter)
            .copied()
            .unwrap_or_else(|| meter.default_margin())
    }
}

/// `[upstream]`: the server's name and the releases known.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// The server's name, first part of a release's name (`mariadb` in `mariadb-10.11.18`).
    pub name: String,
    /// The version of the release the series is for.
    pub current: String,
    /// `[[upstream.release]]`: the releases.
    #[serde(default)]
    pub release: Vec<ReleaseSource>,
}

/// One release: its version and exactly one place it comes from.
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
    /// A folder with a series of this release's own: a file `series` and the patches it names. A
    /// relative path starts at the workspace. Without, the release takes the series of `[series]`.
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
    /// The suite's source archive differs from the machine's default one, for example
    /// `debian-security`; the default is the archive of the machine's own suite.
    pub archive: Option<String>,
}

/// A tarball by file or address.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TarballSource {
    /// A file (relative to the workspace) or an address.
    pub url: String,
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
}

/// A tag in a git repository.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GitSource {
    /// Anything `git fetch` takes.
    pub remote: String,
    /// The tag.
    pub tag: String,
}

/// `[series]`: where series and patches are, relative to the workspace.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SeriesFiles {
    /// The series file.
    pub file: PathBuf,
    /// The folder of the patches.
    pub patches: PathBuf,
    /// How many lines of context may be ignored where a hunk fits nowhere otherwise.
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

/// What configures and compiles a source tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BuildSystem {
    /// CMake with Ninja, out of tree.
    Cmake,
    /// Commands of the configuration, run in a source tree of their own.
    Command,
}

/// Which linker a recipe uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Linker {
    /// The fastest there is: mold, else lld, else the compiler's own choice.
    Auto,
    /// The compiler's own choice.
    Default,
    /// mold.
    Mold,
    /// LLVM's lld.
    Lld,
}

/// `[recipe.NAME]`: how a point is built.
///
/// In commands and paths, `{src}` is the source tree, `{build}` the build tree (the same as `{src}`
/// for [`BuildSystem::Command`]), `{jobs}` the number of parallel jobs and `{config}` the workspace's
/// `bench-config/`; another name in braces is refused.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Recipe {
    /// One line for people.
    pub description: String,
    /// Another recipe whose settings hold where this one has none; lists are appended to its lists.
    pub inherits: Option<String>,
    /// The build system.
    pub system: Option<BuildSystem>,
    /// Arguments of `cmake` (only [`BuildSystem::Cmake`]).
    pub cmake_args: Vec<String>,
    /// A CMake file included by every `project()` of the tree (`CMAKE_PROJECT_INCLUDE`), relative to
    /// `bench-config/`: it can change targets without touching the upstream tree.
    pub cmake_include: Option<PathBuf>,
    /// The linker (only [`BuildSystem::Cmake`]); without, the compiler's own choice or what
    /// `cmake_args` say.
    pub linker: Option<Linker>,
    /// Ninja targets that make up the server.
    pub targets: Vec<String>,
    /// Commands run before the first compilation, and for points with other build files (only
    /// [`BuildSystem::Command`]).
    pub configure: Vec<Vec<String>>,
    /// Commands run for every point (only [`BuildSystem::Command`]).
    pub build: Vec<Vec<String>>,
    /// What makes up the runnable server: path inside the result to path of the file or folder to
    /// copy, with placeholders. Stars in the last part of the latter take every file that matches
    /// into the folder of the former.
    pub install: BTreeMap<String, String>,
    /// The measured executable inside the result.
    pub binary: Option<String>,
    /// Extra environment of every command.
    pub env: BTreeMap<String, String>,
    /// How the measured executable is linked again (only [`BuildSystem::Command`]; of CMake's builds
    /// ninja knows it).
    pub relink: Option<Relink>,
    /// Compiles with a profile, of what an instrumented server did.
    pub profile: Option<Profile>,
}

/// `[recipe.NAME.profile]`: profile-guided optimisation. The compiler's flags for it are added to `CFLAGS`,
/// `CXXFLAGS` and `LDFLAGS` of the recipe.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// What the instrumented server is trained with, one workload after the other.
    pub workloads: Vec<String>,
    /// Transactions of each.
    pub transactions: u64,
    /// Whose profile a point is compiled with.
    #[serde(default)]
    pub of: ProfileOf,
}

/// Whose profile a point is compiled with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProfileOf {
    /// The bare release's, so that points differ by their patches alone; what a patch changes has no
    /// profile then.
    #[default]
    Base,
    /// Its own, as it would be shipped.
    Point,
}

/// The file in a built point that describes it.
pub const BUILD_RECORD: &str = "build.json";
/// The folder in a built point with what links its executable again.
pub const RELINK_FOLDER: &str = "relink";
/// The file in [`RELINK_FOLDER`] that says how to link, or why that is impossible.
pub const RELINK_RECORD: &str = "link.json";

/// First parts of paths that [`Recipe::install`] may not use.
pub const INSTALL_RESERVED: &[&str] = &[BUILD_RECORD, RELINK_FOLDER];
/// First parts of names that [`Relink::keep`] may not use.
pub const KEEP_RESERVED: &[&str] = &[RELINK_RECORD];

/// How the layout of code and data is varied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layouts {
    /// Not at all: servers run as they were linked
    Off,
    /// Functions and data move apart, by some bytes each, and keep their order
    Padded,
    /// Functions and data come in a random order
    Shuffled,
}

/// `[recipe.NAME.relink]`: links the measured executable again, so that code layout can be varied
/// without compiling anything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relink {
    /// What the link needs, kept beside the built server: a name, and the file to copy, with placeholders. Stars in the last part of the latter take every file that matches into a folder of
    /// that name.
    pub keep: BTreeMap<String, String>,
    /// The command, run where these things are. `{output}` is the executable to write.
    pub command: Vec<String>,
    /// Words added to it where sections are to be shuffled. `{seed}` is a number from 1 to 2³¹ − 1 that
    /// stands for the order.
    #[serde(default)]
    pub shuffle: Vec<String>,
}

/// `[preset.NAME]`: an experiment.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// One line for people.
    #[serde(default)]
    pub description: String,
    /// The recipe.
    pub recipe: String,
    /// Workload names.
    pub workloads: Vec<String>,
    /// The meters.
    pub meters: Vec<Meter>,
    /// Blocks of the timed meters for each workload; every block restarts every server. With
    /// `resolution`, the most there may be.
    pub blocks: u32,
    /// Ends the experiment when the 95 % interval of every patch's effect, on the first timed meter,
    /// is at most ± this, as a fraction of speed.
    pub resolution: Option<f64>,
    /// The least blocks of an experiment with `resolution`; without, [`DEFAULT_MIN_BLOCKS`], or all if
    /// there are fewer.
    pub min_blocks: Option<u32>,
    /// Seconds of measuring in one block of one workload, all points together.
    pub block_seconds: f64,
    /// Blocks of the counting meters (`instructions`, …).
    #[serde(default = "default_count_blocks")]
    pub count_blocks: u32,
    /// How the timed blocks vary the servers' code layouts; without, [`Layouts::Padded`] where the
    /// servers can be linked again.
    pub layouts: Option<Layouts>,
    /// Settings of all sql-bench workloads, in the place of their own.
    #[serde(default)]
    pub sql_bench: SqlBenchSettings,
}

fn default_count_blocks() -> u32 {
    3
}

/// `[preset.NAME.sql_bench]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqlBenchSettings {
    /// As [`SqlBenchWorkload::engine`].
    pub engine: Option<String>,
    /// As [`SqlBenchWorkload::small`].
    pub small: Option<bool>,
}

/// The widest resolution, as a share of the margin, at which at least eight of ten patches without effect are
/// called so (`perfquilt calibrate`): with the interval just as wide, four patches and two one-sided tests
/// adjusted by Holm.
pub const REACHES_MARGIN: f64 = 0.55;

/// The least blocks before an experiment may end by itself: from here on, intervals keep their promise
/// when it does (`perfquilt calibrate`).
pub const DEFAULT_MIN_BLOCKS: u32 = 10;

impl Preset {
    /// The workload called `name` as this preset runs it.
    ///
    /// # Errors
    /// As [`Config::workload`].
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

    /// Says in a sentence why patches without effect will hardly ever be called so, where the resolution is too
    /// coarse for the margin of the first timed meter; `margin` is a fraction of speed by meter.
    pub fn unreachable_margin(&self, margin: &dyn Fn(Meter) -> f64) -> Option<String> {
        let resolution = self.resolution?;
        let mut timed = Meter::ALL.into_iter().filter(|meter| meter.is_timed());
        let meter = timed.find(|meter| self.meters.contains(meter))?;
        let margin = margin(meter);
        let enough = REACHES_MARGIN * margin;
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

    /// The least blocks of an experiment that may end by itself; `None` for one of a fixed number.
    pub fn min_blocks(&self) -> Option<u32> {
        self.resolution?;
        Some(
            self.min_blocks
                .unwrap_or(DEFAULT_MIN_BLOCKS)
                .min(self.blocks),
        )
    }
}
