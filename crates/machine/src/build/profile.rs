//! Profile-guided builds: an instrumented server is trained, and its profile kept in
//! `CACHE/profiles/KEY/FOLDER`, for the compiler to use.
//!
//! KEY is a digest of what was instrumented and of what it was trained with. What is in the folder is not
//! decided by that alone (a server's threads do not take turns the same way twice), so a built server
//! remembers the digest of the very profile it was made with, and counts only as long as that is the one
//! that is kept: points that are compared never mix two trainings. FOLDER begins that digest: compilers are
//! told the path, and build systems know by their commands what was compiled with another profile.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::builder::Builder;
use super::cache::{is_whole, list};
use super::identity::of_files;
use super::work::remove;
use super::{BuildItem, Built, SourceTree};
use perfquilt_config::{ProfileOf, Recipe};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::progress::Progress;
use perfquilt_system::caches;
use perfquilt_system::digest::{add, hex};
use perfquilt_system::process::{Command, find_program};

/// What is known of a profile, beside its files.
const META: &str = "profile.json";
/// Where the files of a profile are until their digest is known.
const GATHERED: &str = "gathered";
/// Part of every key: raised when the same inputs would give another profile.
const FORM: &str = "perfquilt-profile 2";
/// Where an instrumented server would leave its counts if it were not told otherwise, below the working
/// folder.
const ASIDE: &str = "{build}/../profile";

/// Makes an instrumented server do what its profile is to be of.
pub trait Training: Send + Sync + std::fmt::Debug {
    /// Digest of what is done.
    ///
    /// # Errors
    /// Whatever keeps it from being known.
    fn identity(&self) -> Result<String>;

    /// Runs the built `server` with `env` in its environment, and ends it so that it writes its counts.
    ///
    /// # Errors
    /// [`Kind::Bench`](perfquilt_model::error::Kind::Bench) when server or client fail.
    fn train(
        &self,
        server: &Built,
        label: &str,
        env: &[(String, String)],
        progress: &dyn Progress,
    ) -> Result<()>;
}

/// A compiler's ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compiler {
    Gcc,
    Clang,
}

impl Compiler {
    fn of(tools: &[String]) -> Self {
        let is_clang = |line: &String| line.starts_with("cc: ") && line.contains("clang");
        if tools.iter().any(is_clang) {
            Compiler::Clang
        } else {
            Compiler::Gcc
        }
    }

    /// Flags of the instrumented build.
    fn generate(self) -> String {
        match self {
            // Counters of threads are added up without losses where that can be done.
            Compiler::Gcc => format!(
                "-fprofile-generate={ASIDE} -fprofile-prefix-path={{build}} -fprofile-update=prefer-atomic"
            ),
            Compiler::Clang => format!("-fprofile-generate={ASIDE} -fprofile-update=prefer-atomic"),
        }
    }

    /// Flags of the build that uses the profile. What does not fit it is told and is no error.
    fn using(self) -> &'static str {
        match self {
            Compiler::Gcc => {
                "-fprofile-use={profile} -fprofile-prefix-path={build} -fprofile-correction \
                 -Wmissing-profile -Wno-error=missing-profile -Wno-error=coverage-mismatch"
            }
            Compiler::Clang => "-fprofile-use={profile}/default.profdata -Wno-error=backend-plugin",
        }
    }

    /// Makes the server write its counts below `into`.
    fn env(self, into: &Path) -> Vec<(String, String)> {
        let into = into.display().to_string();
        match self {
            Compiler::Gcc => vec![("GCOV_PREFIX".into(), into)],
            Compiler::Clang => vec![("LLVM_PROFILE_FILE".into(), format!("{into}/%p-%m.profraw"))],
        }
    }

    /// Makes of what a server wrote below `raw` what the compiler reads in `to`.
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
                Error::build("the instrumented server wrote no profile when it ended").hint(
                    "are the compiler's flags (CFLAGS, CXXFLAGS, LDFLAGS) used by this build, and does \
                     the server end by itself when it is asked to?",
                ),
            );
        }
        if self == Compiler::Gcc {
            for from in &found {
                let name = from.file_name().unwrap_or_default();
                std::fs::copy(from, to.join(name)).map_err(|e| Error::io("copy", from, &e))?;
            }
            return Ok(());
        }
        if find_program("llvm-profdata").is_none() {
            return Err(Error::usage("`llvm-profdata` is not installed")
                .hint("it comes with LLVM, in the version of the compiler"));
        }
        Command::new("llvm-profdata")
            .args(["merge", "-o"])
            .arg(to.join("default.profdata"))
            .args(found)
            .run_ok(perfquilt_model::error::Kind::Build)
            .map(|_| ())
    }
}

/// What a compiler says of a profile: how many functions it does not fit, and how many files it knows nothing of.
///
/// Gcc tells of a function several times, by kind of counter. What has only moved in its file ("source locations …
/// have changed") fits. Clang's words are those for counts of its intermediate code.
pub(super) fn misfits(output: &[String]) -> (u64, u64) {
    let changed: BTreeSet<(&str, &str)> = output
        .iter()
        .filter_map(
            |line| match line.split_once(" does not match its profile data") {
                // Its place, and its name: instances of a template share the place.
                Some((told, _)) => told.split_once(": warning").map(|(place, told)| {
                    let name = told.rsplit_once("function ").map_or(told, |(_, name)| name);
                    (place, name)
                }),
                None => line.split_once("(hash mismatch)"),
            },
        )
        .collect();
    let without = [
        "profile count data file not found [-Wmissing-profile]",
        "no profile data available for function",
    ];
    let is_without = |line: &&String| without.iter().any(|words| line.contains(words));
    (
        changed.len() as u64,
        output.iter().filter(is_without).count() as u64,
    )
}

/// A kept profile.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Meta {
    /// Digest of the files.
    digest: String,
    /// The folder they are in.
    folder: String,
    /// What was instrumented.
    of: String,
    /// Size in bytes by name in that folder.
    files: BTreeMap<String, u64>,
}

/// A profile in the cache.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    /// The folder of its files.
    pub(super) dir: PathBuf,
    pub(super) digest: String,
    pub(super) of: String,
}

/// What a profile-guided recipe needs beside its builder.
#[derive(Debug, Clone)]
pub(super) struct Guide {
    /// Builds the instrumented servers.
    instrumented: Box<Builder>,
    compiler: Compiler,
    /// The bare release, where its profile is everybody's.
    shared: Option<BuildItem>,
    training: Arc<dyn Training>,
    /// Digest of the training.
    identity: String,
    profiles: PathBuf,
    /// Why there is no shared profile: what failed once is not tried again for every point.
    failed: Arc<OnceLock<Error>>,
}

impl Guide {
    pub(super) fn new(
        instrumented: Builder,
        of: ProfileOf,
        base: BuildItem,
        training: Arc<dyn Training>,
        cache: &Path,
    ) -> Result<Self> {
        Ok(Guide {
            compiler: Compiler::of(instrumented.toolchain()),
            instrumented: Box::new(instrumented),
            shared: (of == ProfileOf::Base).then_some(base),
            identity: training.identity()?,
            training,
            profiles: cache.join("profiles"),
            failed: Arc::default(),
        })
    }

    /// The key of the profile that the server made of `tree` is compiled with.
    pub(super) fn key(&self, tree: &str) -> String {
        let tree = self.shared.as_ref().map_or(tree, |base| &base.tree);
        let mut digest = Sha256::new();
        for part in [FORM, &self.instrumented.key(tree), &self.identity] {
            add(&mut digest, part.as_bytes());
        }
        hex(&digest.finalize())[..40].to_owned()
    }

    /// That profile, if it is kept and whole.
    pub(super) fn kept(&self, tree: &str) -> Option<Kept> {
        let dir = self.profiles.join(self.key(tree));
        if !caches::hold(&dir.join(META)) {
            return None;
        }
        kept_in(&dir)
    }

    /// That profile; what it takes is built and trained where it is not kept.
    pub(super) fn profile(
        &self,
        item: &BuildItem,
        source: &dyn SourceTree,
        progress: &dyn Progress,
    ) -> Result<Kept> {
        if let Some(kept) = self.kept(&item.tree) {
            return Ok(kept);
        }
        let Some(shared) = &self.shared else {
            return self.make(item, source, progress);
        };
        if let Some(failed) = self.failed.get() {
            return Err(failed.clone());
        }
        let made = self.make(shared, source, progress);
        if let Err(error) = &made
            && error.kind() != Kind::Interrupted
        {
            let _ = self.failed.set(error.clone());
        }
        made
    }

    /// Builds and trains what is to be trained, and keeps its profile.
    fn make(
        &self,
        trained: &BuildItem,
        source: &dyn SourceTree,
        progress: &dyn Progress,
    ) -> Result<Kept> {
        let label = format!("{}, instrumented", trained.label);
        let instrumented = BuildItem {
            label: label.clone(),
            ..trained.clone()
        };
        let server = self.instrumented.build(&instrumented, source, progress)?;
        std::fs::create_dir_all(&self.profiles)
            .map_err(|e| Error::io("create", &self.profiles, &e))?;
        let folder = |what: &str| {
            tempfile::Builder::new()
                .prefix(&format!(".{what}-"))
                .tempdir_in(&self.profiles)
                .map_err(|e| Error::io("create a folder in", &self.profiles, &e))
        };
        let (raw, ready) = (folder("raw")?, folder("partial")?);
        let step = progress.begin(&format!("training {label}"), None);
        let env = self.compiler.env(raw.path());
        self.training.train(&server, &label, &env, progress)?;
        let gathered = ready.path().join(GATHERED);
        std::fs::create_dir(&gathered).map_err(|e| Error::io("create", &gathered, &e))?;
        self.compiler.gather(raw.path(), &gathered)?;
        step.finish(&format!("trained {label}"));
        describe(ready.path(), &trained.label)?;
        let dir = self.profiles.join(self.key(&trained.tree));
        // What is not whole would be in the way; whoever was quicker with a whole one was right.
        if self.kept(&trained.tree).is_none() {
            remove(&dir)?;
            std::fs::rename(ready.path(), &dir).map_err(|e| Error::io("write", &dir, &e))?;
        }
        self.kept(&trained.tree)
            .ok_or_else(|| Error::internal(format!("{} is not whole", dir.display())))
    }
}

/// Gives the files gathered in `dir` their folder, and writes what is known of them.
fn describe(dir: &Path, of: &str) -> Result<()> {
    let gathered = dir.join(GATHERED);
    let files = list(&gathered)?;
    let digest = of_files(&gathered, &files)?;
    let folder = digest[..8].to_owned();
    std::fs::rename(&gathered, dir.join(&folder)).map_err(|e| Error::io("write", dir, &e))?;
    let meta = Meta {
        digest,
        folder,
        of: of.to_owned(),
        files,
    };
    let text = serde_json::to_vec_pretty(&meta)
        .map_err(|error| Error::internal(format!("cannot describe a profile: {error}")))?;
    let path = dir.join(META);
    std::fs::write(&path, text).map_err(|e| Error::io("write", &path, &e))
}

/// The profile described in `dir`, if it is whole.
fn kept_in(dir: &Path) -> Option<Kept> {
    let text = std::fs::read(dir.join(META)).ok()?;
    let meta: Meta = serde_json::from_slice(&text).ok()?;
    let dir = dir.join(&meta.folder);
    is_whole(&dir, &meta.files).then_some(Kept {
        dir,
        digest: meta.digest,
        of: meta.of,
    })
}

/// `recipe` for an instrumented build, and for one that uses a profile: the compiler's flags come by the
/// environment, as CMake and most makefiles take them.
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
    fn compilers_are_told_apart_and_their_words_counted() {
        let gcc = ["cc: cc (Debian 12.2.0-14+deb12u1) 12.2.0".to_owned()];
        assert_eq!(Compiler::of(&gcc), Compiler::Gcc);
        let clang = [
            "machine: x".to_owned(),
            "cc: Debian clang version 14.0.6".to_owned(),
        ];
        assert_eq!(Compiler::of(&clang), Compiler::Clang);
        let said = [
            "a.c:3:5: warning: profile for function 'f' not found in profile data [-Wmissing-profile]",
            "a.c:9:1: warning: the control flow of function 'g' does not match its profile data (counter 'arcs') [-Wcoverage-mismatch]",
            "a.c:9:1: warning: number of counters in profile data for function 'g' does not match its profile data (counter 'topn', expected 2 and have 3) [-Wcoverage-mismatch]",
            "a.c:9:1: warning: the control flow of function 'g<int>' does not match its profile data (counter 'arcs') [-Wcoverage-mismatch]",
            "a.c:20:1: warning: source locations for function 'h' have changed, the profile data may be out of date [-Wcoverage-mismatch]",
            "warning: c.c: function control flow change detected (hash mismatch) main Hash = 27 [-Wbackend-plugin]",
            "b.c:1:1: warning: 'b.gcda' profile count data file not found [-Wmissing-profile]",
            "b.c:1:1: warning: unused variable",
        ];
        assert_eq!(misfits(&said.map(str::to_owned)), (3, 1));
    }

    #[test]
    fn another_profile_has_another_path() {
        let folder = tempfile::tempdir().unwrap();
        let kept = |name: &str, counts: &str| {
            let dir = folder.path().join(name);
            std::fs::create_dir_all(dir.join(GATHERED)).unwrap();
            std::fs::write(dir.join(GATHERED).join("a.gcda"), counts).unwrap();
            describe(&dir, "x-1").unwrap();
            kept_in(&dir).unwrap()
        };
        let (one, other, same) = (kept("a", "1"), kept("b", "2"), kept("c", "1"));
        assert_ne!(one.dir.file_name(), other.dir.file_name());
        assert_eq!(one.dir.file_name(), same.dir.file_name());
        assert!(one.digest != other.digest && one.dir.join("a.gcda").is_file());
        std::fs::write(one.dir.join("a.gcda"), "").unwrap();
        assert!(kept_in(&folder.path().join("a")).is_none(), "half of one");
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
    fn a_server_that_wrote_nothing_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let error = Compiler::Gcc
            .gather(folder.path(), folder.path())
            .unwrap_err();
        assert!(error.message().contains("wrote no profile"));
    }
}
