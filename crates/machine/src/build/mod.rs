//! Builds points: one source tree and one build tree a recipe, moved from point to point, and a
//! content-addressed cache of runnable servers.
//!
//! A point is built in `CACHE/work/RELEASE-RECIPE-DIGEST/{src,build}`. That path is stable, because
//! compilers write paths into what they make and ccache's keys hold them. The runnable server is
//! copied to `CACHE/builds/KEY` under another name and appears there by a rename, so that what is
//! there is complete, with what it takes to link its executable again in another layout. KEY is a digest of everything the result depends on: the tree's object id, the
//! recipe with the content of the files it names, and the tool chain.

mod builder;
mod cache;
mod cmake;
mod command;
mod diagnose;
mod heads;
mod identity;
mod key;
mod link_command;
mod ninja;
mod ninja_log;
mod padding;
mod plan;
mod profile;
mod relink;
mod run;
mod steering;
mod toolchain;
mod work;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use perfquilt_model::error::Result;
use perfquilt_model::observation::PointBuild;
use perfquilt_model::point::Point;
use perfquilt_model::progress::Progress;

pub use builder::Builder;
pub use identity::of_files;
pub use perfquilt_model::observation::Profiled;
pub use profile::Training;
pub use relink::{Relink, sweep};
pub use steering::steers;

/// Moves a source tree from point to point.
pub trait SourceTree {
    /// Digest of what steers a build of the git tree `tree`: of what [`steers`] says of each of its files.
    ///
    /// # Errors
    /// The tree cannot be read.
    fn steering(&self, tree: &str) -> Result<String>;

    /// Makes `dir` (created when missing) hold exactly the files of the git tree `tree` among those it
    /// manages; files that are the same in both trees keep their times, files it does not manage
    /// (objects of a build in the source tree) stay.
    ///
    /// # Errors
    /// Whatever keeps it from doing so; the next call must then be able to go on.
    fn move_to(&self, tree: &str, dir: &Path, progress: &dyn Progress) -> Result<()>;
}

/// One point to build, with everything needed to do so and to talk about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildItem {
    /// For people: `mariadb-10.11.18 + 0002-x.patch`.
    pub label: String,
    /// The point.
    pub point: Point,
    /// The patch that makes this point differ from the one before; `None` for the bare release.
    pub patch: Option<String>,
    /// The files that patch touches, relative to the source tree; empty when unknown.
    pub touches: Vec<String>,
    /// Object id of the point's git tree.
    pub tree: String,
    /// The release's name.
    pub release: String,
}

/// A runnable server in the cache.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Built {
    /// Digest of everything it depends on; the folder's name.
    pub key: String,
    /// The folder with `bin/…`, `share/…` as the recipe's `install` says.
    #[serde(serialize_with = "perfquilt_system::files::as_text")]
    pub dir: PathBuf,
    /// SHA-256 of what the server is when it runs: the loadable content of the executables and
    /// libraries and the bytes of the other files installed. Two points with the same identity are
    /// the same server, whatever their sources look like.
    pub identity: String,
    /// Where the time went when it was built.
    pub seconds: BuildSeconds,
    /// Units that were compiled (or taken from ccache) for it.
    pub compiled_units: u64,
    /// Whether it was in the cache already.
    pub cached: bool,
    /// The profile it was compiled with, where it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profiled>,
}

impl Built {
    /// What is kept of it with the observations of `point`.
    pub fn record(&self, point: Point) -> PointBuild {
        PointBuild {
            point,
            key: self.key.clone(),
            configure: self.seconds.configure,
            compile: self.seconds.compile,
            link: self.seconds.link,
            overhead: self.seconds.overhead,
            units: self.compiled_units,
            cached: self.cached,
            profile: self.profile.clone(),
        }
    }
}

/// Wall-clock seconds of one build.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct BuildSeconds {
    /// CMake, or the recipe's `configure` commands.
    pub configure: f64,
    /// Everything ninja did but linking, or the recipe's `build` commands. Where compiling and
    /// linking went on side by side, each gets its share of that time.
    pub compile: f64,
    /// Linking and archiving.
    pub link: f64,
    /// The tool's own share: moving the source tree, planning, copying the result.
    pub overhead: f64,
}

impl BuildSeconds {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.configure + self.compile + self.link + self.overhead
    }
}
