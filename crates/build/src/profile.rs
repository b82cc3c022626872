//! Profile-guided builds: trains an instrumented server and caches its profile in
//! `CACHE/profiles/KEY/FOLDER`, where the compiler reads it.
//!
//! KEY is a digest of the instrumented server and of the training. They do not determine the profile (a server's
//! threads are never scheduled the same way twice), so a built server records the digest of the profile it was
//! compiled with and is valid only while the cache holds that profile: compared points never mix two
//! trainings. FOLDER is the beginning of that digest. Compilers get the path as an option, so a build system sees
//! from its commands which objects were compiled with another profile.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use super::files::{is_complete, list};
use super::identity::identity_of_files;
use super::work::remove;
use super::{BuildItem, Built, SourceTree};
use perfquilt_config::workspace::StoredAnswers;
use perfquilt_config::{ProfileSource, Recipe};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::progress;
use perfquilt_system::caches;
use perfquilt_system::digest;
use perfquilt_system::process::{Command, find_program};

/// File that describes a cached profile.
const META: &str = "profile.json";
/// Folder of a profile's files until their digest is known.
const GATHERED: &str = "gathered";
/// Part of every key: raised when the same inputs would give another profile.
const FORMAT: &str = "perfquilt-profile 2";
/// Folder, relative to the working folder, that instrumented servers write their counts to by default.
const DEFAULT_OUTPUT: &str = "{build}/../profile";

/// Runs the training workload on an instrumented server.
pub trait Training: Send + Sync + std::fmt::Debug {
    /// Returns the digest of the training workload.
    fn identity(&self) -> Result<String>;

    /// Trains the built `server` with `env` in its environment, and stops it cleanly so that it writes its counts into the
    /// folder `into`.
    fn train(
        &self,
        server: &Built,
        label: &str,
        env: &[(String, String)],
        into: &Path,
    ) -> Result<()>;
}

/// Builds the instrumented servers that profiles come from.
pub(super) trait InstrumentedBuilder: Send + Sync + std::fmt::Debug {
    /// Returns the key of the instrumented server of the git tree `tree`.
    fn key(&self, tree: &str) -> String;

    /// Builds the instrumented server of `item`, or takes it from the cache.
    fn build(&self, item: &BuildItem, source: &dyn SourceTree) -> Result<Built>;
}

/// A compiler family with its own profile options and formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compiler {
    Gcc,
    Clang,
}

impl Compiler {
    /// Recognises the compiler in the lines of a tool chain.
    fn of(tools: &[String]) -> Self {
        let is_clang = |line: &String| line.starts_with("cc: ") && line.contains("clang");
        if tools.iter().any(is_clang) {
            Compiler::Clang
        } else {
            Compiler::Gcc
        }
    }

    /// Returns the flags of the instrumented build.
    fn generate(self) -> String {
        match self {
            // Threads update shared counters atomically where the target supports it.
            Compiler::Gcc => format!(
                "-fprofile-generate={DEFAULT_OUTPUT} -fprofile-prefix-path={{build}} -fprofile-update=prefer-atomic"
            ),
            Compiler::Clang => {
                format!("-fprofile-generate={DEFAULT_OUTPUT} -fprofile-update=prefer-atomic")
            }
        }
    }

    /// Returns the flags of the build that uses the profile. A mismatch is a warning, not an error.
    fn using(self) -> &'static str {
        match self {
            Compiler::Gcc => {
                "-fprofile-use={profile} -fprofile-prefix-path={build} -fprofile-correction \
                 -Wmissing-profile -Wno-error=missing-profile -Wno-error=coverage-mismatch"
            }
            Compiler::Clang => "-fprofile-use={profile}/default.profdata -Wno-error=backend-plugin",
        }
    }

    /// Returns the environment that makes the server write its counts below `into`.
    fn env(self, into: &Path) -> Vec<(String, String)> {
        let into = into.display().to_string();
        match self {
            Compiler::Gcc => vec![("GCOV_PREFIX".into(), into)],
            Compiler::Clang => vec![("LLVM_PROFILE_FILE".into(), format!("{into}/%p-%m.profraw"))],
        }
    }

    /// Converts the counts that a server wrote below `raw` to the form the compiler reads, in `to`.
    fn gather(self, raw: &Path, to: &Path) -> Result<()> {
        let ending = match self {
            Compiler::Gcc => "gcda",
            Compiler::Clang => "profraw",
        };
        let found: Vec<PathBuf> = list(raw)?
            .keys()
            .map(|name| raw.join(name))
            .filter(|path| path.extension().is_some_and(|e| e == ending))
            .collect();
        if found.is_empty() {
            return Err(
                Error::profile("the instrumented server wrote no profile when it ended").hint(
                    "the build must use CFLAGS, CXXFLAGS and LDFLAGS, and the server must exit by itself \
                     when it is asked to stop",
                ),
            );
        }
        if self == Compiler::Gcc {
            for from in &found {
                let name = from.file_name().unwrap_or_default();
                std::fs::copy(from, to.join(name)).map_err(|e| Error::io("copy to", to, &e))?;
            }
            return Ok(());
        }
        if find_program("llvm-profdata").is_none() {
            return Err(Error::program_missing("`llvm-profdata` is not installed")
                .hint("install the LLVM tools of the compiler's version"));
        }
        Command::new("llvm-profdata")
            .args(["merge", "-o"])
            .arg(to.join("default.profdata"))
            .args(found)
            .writing_to(vec![to.to_owned()])
            .run_ok(perfquilt_model::error::Kind::Build)
            .map(|_| ())
    }
}

/// Content of [`META`].
#[derive(Debug, Clone, Serialize, Deserialize)]
struct ProfileRecord {
    /// Digest of the files.
    digest: String,
    /// Folder of the files.
    folder: String,
    /// Label of the instrumented point.
    of: String,
    /// Size in bytes of each file by its name in that folder.
    files: BTreeMap<String, u64>,
}

/// A profile in the cache.
#[derive(Debug, Clone)]
pub(super) struct CachedProfile {
    /// The folder of its files.
    pub(super) dir: PathBuf,
    pub(super) digest: String,
    /// Label of the instrumented point.
    pub(super) of: String,
}

/// Provides the profiles of a profile-guided recipe: from the cache, or by building and training servers.
#[derive(Debug, Clone)]
pub(super) struct ProfileProvider {
    instrumented: Arc<dyn InstrumentedBuilder>,
    compiler: Compiler,
    /// The bare release, if all points share its profile.
    shared: Option<BuildItem>,
    training: Arc<dyn Training>,
    /// Digest of the training.
    identity: String,
    profiles: PathBuf,
    /// Which profiles of earlier builds count.
    answers: StoredAnswers,
    /// Why there is no shared profile: a failed training is not repeated for every point.
    failed: Arc<OnceLock<Error>>,
}

impl ProfileProvider {
    /// Creates a provider of profiles for servers compiled with `tools`, the lines of a tool chain.
    pub(super) fn new(
        instrumented: Arc<dyn InstrumentedBuilder>,
        tools: &[String],
        of: ProfileSource,
        base: BuildItem,
        training: Arc<dyn Training>,
        (cache, answers): (&Path, StoredAnswers),
    ) -> Result<Self> {
        Ok(ProfileProvider {
            compiler: Compiler::of(tools),
            instrumented,
            shared: (of == ProfileSource::Base).then_some(base),
            identity: training.identity()?,
            training,
            profiles: cache.join("profiles"),
            answers,
            failed: Arc::default(),
        })
    }

    /// Returns the key of the profile that the server of `tree` is compiled with.
    pub(super) fn key(&self, tree: &str) -> String {
        let tree = self.shared.as_ref().map_or(tree, |base| &base.tree);
        digest::of([FORMAT, &self.instrumented.key(tree), &self.identity])[..40].to_owned()
    }

    /// Returns the profile for `tree` if the cache holds it completely and it counts.
    pub(super) fn cached(&self, tree: &str) -> Option<CachedProfile> {
        let key = self.key(tree);
        let dir = self.profiles.join(&key);
        if !self.answers.counts(&key) || !caches::pin(&dir.join(META)) {
            return None;
        }
        read_profile(&dir)
    }

    /// Returns the profile for `item`; builds and trains an instrumented server if the cache does not hold it.
    pub(super) fn profile(
        &self,
        item: &BuildItem,
        source: &dyn SourceTree,
    ) -> Result<CachedProfile> {
        if let Some(cached) = self.cached(&item.tree) {
            return Ok(cached);
        }
        let Some(shared) = &self.shared else {
            return self.train(item, source);
        };
        if let Some(failed) = self.failed.get() {
            return Err(failed.clone());
        }
        let trained = self.train(shared, source);
        if let Err(error) = &trained
            && error.kind() != Kind::Interrupted
        {
            let _ = self.failed.set(error.clone());
        }
        trained
    }

    /// Builds and trains the instrumented server of `trained`, and caches its profile.
    fn train(&self, trained: &BuildItem, source: &dyn SourceTree) -> Result<CachedProfile> {
        let label = format!("{}, instrumented", trained.label);
        let instrumented = BuildItem {
            label: label.clone(),
            ..trained.clone()
        };
        let server = self.instrumented.build(&instrumented, source)?;
        std::fs::create_dir_all(&self.profiles)
            .map_err(|e| Error::io("create", &self.profiles, &e))?;
        let folder = |what: &str| {
            tempfile::Builder::new()
                .prefix(&format!(".{what}-"))
                .tempdir_in(&self.profiles)
                .map_err(|e| Error::io("create a folder in", &self.profiles, &e))
        };
        let (raw, ready) = (folder("raw")?, folder("partial")?);
        let step = progress::begin(&format!("training {label}"), None);
        let env = self.compiler.env(raw.path());
        self.training.train(&server, &label, &env, raw.path())?;
        let gathered = ready.path().join(GATHERED);
        std::fs::create_dir(&gathered).map_err(|e| Error::io("create", &gathered, &e))?;
        self.compiler.gather(raw.path(), &gathered)?;
        step.finish(&format!("trained {label}"));
        describe(ready.path(), &trained.label)?;
        let key = self.key(&trained.tree);
        let dir = self.profiles.join(&key);
        // Another process may have published a complete profile first; an incomplete one would block the rename.
        if self.cached(&trained.tree).is_none() {
            remove(&dir)?;
            std::fs::rename(ready.path(), &dir).map_err(|e| Error::io("write", &dir, &e))?;
            self.answers.add(&key);
        }
        self.cached(&trained.tree)
            .ok_or_else(|| Error::internal(format!("{} is incomplete", dir.display())))
    }
}

/// Moves the files gathered in `dir` to the folder named after their digest, and writes their description.
fn describe(dir: &Path, of: &str) -> Result<()> {
    let gathered = dir.join(GATHERED);
    let files = list(&gathered)?;
    let digest = identity_of_files(&gathered, &files)?;
    let folder = digest[..8].to_owned();
    std::fs::rename(&gathered, dir.join(&folder)).map_err(|e| Error::io("write", dir, &e))?;
    let record = ProfileRecord {
        digest,
        folder,
        of: of.to_owned(),
        files,
    };
    let text = serde_json::to_vec_pretty(&record).map_err(Error::json)?;
    let path = dir.join(META);
    std::fs::write(&path, text).map_err(|e| Error::io("write", &path, &e))
}

/// Returns the profile described in `dir` if all its files are there.
fn read_profile(dir: &Path) -> Option<CachedProfile> {
    let text = std::fs::read(dir.join(META)).ok()?;
    let record: ProfileRecord = serde_json::from_slice(&text).ok()?;
    let dir = dir.join(&record.folder);
    is_complete(&dir, &record.files).then_some(CachedProfile {
        dir,
        digest: record.digest,
        of: record.of,
    })
}

/// Returns `recipe` for an instrumented build and for one that uses a profile. The compiler's flags are in the
/// environment, where CMake and most makefiles take them from.
pub(super) fn recipes(recipe: &Recipe, tools: &[String]) -> (Recipe, Recipe) {
    let compiler = Compiler::of(tools);
    let with = |flags: &str| {
        let mut recipe = Recipe {
            profile: None,
            ..recipe.clone()
        };
        for name in ["CFLAGS", "CXXFLAGS", "LDFLAGS"] {
            let value = recipe.env.entry(name.to_owned()).or_default();
            *value = format!("{value} {flags}").trim().to_owned();
        }
        recipe
    };
    (with(&compiler.generate()), with(compiler.using()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compilers_are_told_apart_by_their_version() {
        let gcc = ["cc: cc (Debian 12.2.0-14+deb12u1) 12.2.0".to_owned()];
        assert_eq!(Compiler::of(&gcc), Compiler::Gcc);
        let clang = [
            "machine: x".to_owned(),
            "cc: Debian clang version 14.0.6".to_owned(),
        ];
        assert_eq!(Compiler::of(&clang), Compiler::Clang);
    }

    #[test]
    fn another_profile_has_another_path() {
        let folder = tempfile::tempdir().unwrap();
        let profile = |name: &str, counts: &str| {
            let dir = folder.path().join(name);
            std::fs::create_dir_all(dir.join(GATHERED)).unwrap();
            std::fs::write(dir.join(GATHERED).join("a.gcda"), counts).unwrap();
            describe(&dir, "x-1").unwrap();
            read_profile(&dir).unwrap()
        };
        let (one, other, same) = (profile("a", "1"), profile("b", "2"), profile("c", "1"));
        assert_ne!(one.dir.file_name(), other.dir.file_name());
        assert_eq!(one.dir.file_name(), same.dir.file_name());
        assert!(one.digest != other.digest && one.dir.join("a.gcda").is_file());
        std::fs::write(one.dir.join("a.gcda"), "").unwrap();
        assert!(
            read_profile(&folder.path().join("a")).is_none(),
            "incomplete"
        );
    }

    #[test]
    fn flags_are_added_to_those_of_the_recipe() {
        let mut recipe = Recipe::default();
        recipe.env.insert("CFLAGS".into(), "-O3".into());
        let (generate, using) = recipes(&recipe, &[]);
        assert!(generate.env["CFLAGS"].starts_with("-O3 -fprofile-generate="));
        assert!(using.env["CXXFLAGS"].starts_with("-fprofile-use={profile} "));
    }

    #[test]
    fn a_server_that_wrote_no_profile_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let error = Compiler::Gcc
            .gather(folder.path(), folder.path())
            .unwrap_err();
        assert_eq!(error.code().to_string(), "PQ0503");
    }
}
