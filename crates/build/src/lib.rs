//! Builds points in one source tree and one build tree per recipe, moved from point to point, and caches runnable
//! servers by content.
//!
//! A point is built in `CACHE/work/RELEASE-RECIPE-DIGEST/{src,build}`. That path is stable, because compilers
//! write paths into their output and ccache's keys contain them. The runnable server is copied to a temporary
//! folder and renamed to `CACHE/builds/KEY`, so that entries are always complete; they include the inputs for
//! relinking the executable in another layout. KEY is a digest of everything the result depends on: the tree's
//! object id, the recipe with the content of the files it names, and the tool chain.
//!
//! # Example
//!
//! Servers are the same if what is loaded of their files is the same, whatever the files' places and times:
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use perfquilt_build::identity_of_files;
//!
//! let server = |script: &str| {
//!     let folder = tempfile::tempdir().unwrap();
//!     std::fs::write(folder.path().join("server.sh"), script).unwrap();
//!     let files = BTreeMap::from([("server.sh".to_owned(), script.len() as u64)]);
//!     identity_of_files(folder.path(), &files)
//! };
//! assert_eq!(server("exec sleep 1")?, server("exec sleep 1")?);
//! assert_ne!(server("exec sleep 1")?, server("exec sleep 2")?);
//! # Ok::<(), perfquilt_model::Error>(())
//! ```

mod attempt;
mod build_files;
mod builder;
mod cache;
mod changed_code;
mod cmake;
mod code_size;
mod command;
mod common_layout;
mod diagnose;
mod files;
mod heads;
mod identity;
mod key;
mod line_numbers;
mod link_command;
mod linked_code;
mod newcomers;
mod ninja;
mod ninja_log;
mod object_sections;
mod opened;
mod padded_copy;
mod padding;
mod plan;
mod profile;
mod profile_warnings;
mod relink;
mod run;
mod shared_libraries;
pub mod test_suite;
mod toolchain;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use perfquilt_model::error::Result;
use perfquilt_model::observation::PointBuild;
use perfquilt_model::point::Point;

pub use build_files::is_read;
pub use builder::Builder;
pub(crate) use builder::WorkTree;
pub use cache::is_intact;
pub use changed_code::{ChangedCode, CodeComparison};
pub use identity::identity_of_files;
pub use perfquilt_model::observation::ProfileUse;
pub use profile::Training;
pub use relink::{Relink, sweep};
pub(crate) use run::{Line, Log, ProgramRun, run_within};
pub use shared_libraries::needed_libraries;

/// The paths that a move writes (`true`) or removes.
pub type Changes = BTreeMap<String, bool>;

/// Moves a source tree from point to point.
pub trait SourceTree {
    /// Returns what [`SourceTree::move_to`] would do in `dir`; `None` if the files there are unknown.
    fn changes(&self, tree: &str, dir: &Path) -> Result<Option<Changes>>;

    /// Checks out the git tree `tree` in `dir`, which is created if missing. Files that are the same in both trees
    /// keep their times; unmanaged files (objects of a build in the source tree) stay.
    /// After a failure, the next call must be able to recover.
    fn move_to(&self, tree: &str, dir: &Path) -> Result<()>;
}

/// A point to build, with the details for building it and for messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuildItem {
    /// Label for messages: `mariadb-10.11.18 + 0002-x.patch`.
    pub label: String,
    /// The point.
    pub point: Point,
    /// The patch that distinguishes this point from the previous one; `None` for the bare release.
    pub patch: Option<String>,
    /// The files that the patch touches, relative to the source tree; empty when unknown.
    pub touches: Vec<String>,
    /// Object id of the point's git tree.
    pub tree: String,
    /// That of the bare release. What differs from it is newer than the rest of a clean tree, as after `patch`, so that a
    /// build generates again what the release ships ready-made.
    pub base: String,
    /// The release's name.
    pub release: String,
}

/// A runnable server in the cache.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Built {
    /// Digest of everything the server depends on; the name of its folder.
    pub key: String,
    /// The folder with `bin/…`, `share/…` as in the recipe's `install`.
    #[serde(serialize_with = "perfquilt_system::files::as_text")]
    pub dir: PathBuf,
    /// SHA-256 of everything that matters at run time: the loadable content of the executables and
    /// libraries and the bytes of the other installed files. Two points with the same identity are
    /// the same server, even if their sources differ.
    pub identity: String,
    /// Time of the build, by phase.
    pub seconds: BuildSeconds,
    /// Compiled units, those from ccache included.
    pub compiled_units: u64,
    /// Whether it came from the cache.
    pub cached: bool,
    /// The profile it was compiled with, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileUse>,
}

impl Built {
    /// Returns a server that exists in `dir`, without a record of its build.
    pub fn existing(key: &str, dir: impl Into<PathBuf>, identity: &str) -> Self {
        Built {
            key: key.to_owned(),
            dir: dir.into(),
            identity: identity.to_owned(),
            seconds: BuildSeconds::default(),
            compiled_units: 0,
            cached: true,
            profile: None,
        }
    }

    /// Returns the source files that programs opened while they built it; `None` if that is unknown.
    pub fn opened(&self) -> Option<BTreeSet<String>> {
        cache::opened(&self.dir)
    }

    /// Returns the record of this build that is stored with the observations of `point`. `binary` is the measured
    /// executable in the folder.
    pub fn record(&self, point: Point, binary: Option<&str>) -> PointBuild {
        PointBuild {
            point,
            key: self.key.clone(),
            configure: self.seconds.configure,
            compile: self.seconds.compile,
            link: self.seconds.link,
            overhead: self.seconds.overhead,
            units: self.compiled_units,
            cached: self.cached,
            code_bytes: binary.and_then(|binary| code_size::code_bytes(&self.dir.join(binary))),
            profile: self.profile.clone(),
        }
    }
}

/// Wall-clock seconds of one build.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct BuildSeconds {
    /// CMake, or the recipe's `configure` commands.
    pub configure: f64,
    /// All ninja steps except linking, or the recipe's `build` commands. While compiling and linking
    /// ran in parallel, each gets its share of the time.
    pub compile: f64,
    /// Linking and archiving.
    pub link: f64,
    /// Overhead of perfquilt itself: moving the source tree, planning, copying the result.
    pub overhead: f64,
}

impl BuildSeconds {
    /// Returns the sum of all phases.
    pub fn total(&self) -> f64 {
        self.configure + self.compile + self.link + self.overhead
    }
}
