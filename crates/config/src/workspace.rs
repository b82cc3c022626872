//! Paths of a workspace: series, patches, configuration, state and caches.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::CONFIG_FILE;
use crate::Config;
use perfquilt_model::error::{Error, Result};

/// A folder with `series`, `patches/` and `bench-config/`, and its parsed configuration.
#[derive(Debug, Clone)]
pub struct Workspace {
    root: PathBuf,
    cache: PathBuf,
    scratch: Option<PathBuf>,
    answers: StoredAnswers,
    /// The parsed `bench-config/perfquilt.toml`.
    pub config: Config,
}

impl Workspace {
    /// Opens the workspace whose root is `dir` or the nearest folder above it that has a
    /// configuration.
    pub fn open(dir: &Path) -> Result<Self> {
        Self::open_with_cache(dir, cache_dir()?)
    }

    /// Like [`Workspace::open`], with `cache` in place of the user's cache folder.
    pub fn open_with_cache(dir: &Path, cache: PathBuf) -> Result<Self> {
        let start = std::path::absolute(dir).map_err(|e| Error::io("find", dir, &e))?;
        if !start.is_dir() {
            let fault = format!("there is no folder {}", start.display());
            return Err(Error::no_workspace(fault).hint("`perfquilt init DIR` makes a workspace"));
        }
        let root = start
            .ancestors()
            .find(|folder| folder.join(CONFIG_FILE).is_file())
            .ok_or_else(|| {
                Error::no_workspace(format!(
                    "no workspace here: neither {} nor a folder above it has {CONFIG_FILE}",
                    start.display()
                ))
                .hint("`perfquilt init` makes one, `perfquilt -C DIR …` names one elsewhere")
            })?
            .to_path_buf();
        let config = Config::load(&root)?;
        Ok(Workspace {
            root,
            cache,
            scratch: None,
            answers: StoredAnswers::default(),
            config,
        })
    }

    /// Builds in the folder `scratch` of this machine alone; the cache is shared with other machines then.
    #[must_use]
    pub fn build_in(mut self, scratch: PathBuf) -> Self {
        self.scratch = Some(scratch);
        self
    }

    /// Uses no stored answers but those that this process stores itself, if the command is `fresh`.
    #[must_use]
    pub fn asking(mut self, fresh: bool) -> Self {
        self.answers = StoredAnswers(fresh.then(Arc::default));
        self
    }

    /// Returns which stored answers count.
    pub fn answers(&self) -> &StoredAnswers {
        &self.answers
    }

    /// Returns the folder of this machine alone for source and build trees; `None` where the cache is not shared with
    /// other machines.
    pub fn scratch(&self) -> Option<&Path> {
        self.scratch.as_deref()
    }

    /// Returns the workspace's root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns `path` in the form for stored files: relative to the root if it is in the workspace, so that a
    /// workspace can be moved and copied. `root().join(…)` restores the full path.
    pub fn written(&self, path: &Path) -> PathBuf {
        let root = self.root.canonicalize();
        let inner = path.strip_prefix(&self.root).ok();
        let inner = inner.or_else(|| path.strip_prefix(root.as_ref().ok()?).ok());
        inner.unwrap_or(path).to_owned()
    }

    /// Returns `bench-config/`, the base of relative paths in the configuration.
    pub fn bench_config(&self) -> PathBuf {
        self.root.join("bench-config")
    }

    /// Returns `.perfquilt/`: object store, results and locks. Does not create it.
    pub fn state(&self) -> PathBuf {
        self.root.join(".perfquilt")
    }

    /// Returns the path of the bare git repository with releases and stacks.
    pub fn object_store(&self) -> PathBuf {
        self.state().join("objects.git")
    }

    /// Returns the path of the SQLite file with raw observations.
    pub fn results(&self) -> PathBuf {
        self.state().join("results.db")
    }

    /// Returns the path of the lock file with the releases' versions and digests, which belongs under version
    /// control.
    pub fn lock_file(&self) -> PathBuf {
        self.bench_config().join("upstream.lock")
    }

    /// Returns `$XDG_CACHE_HOME/perfquilt`, shared by all workspaces: downloads, build trees, built servers.
    pub fn cache(&self) -> &Path {
        &self.cache
    }
}

/// Which stored answers count, those of builds, tests and earlier measurements: all of them or, for a fresh question, those
/// that this process stored.
#[derive(Debug, Clone, Default)]
pub struct StoredAnswers(Option<Arc<Mutex<BTreeSet<String>>>>);

impl StoredAnswers {
    /// Returns whether the question is a fresh one.
    pub fn is_fresh(&self) -> bool {
        self.0.is_some()
    }

    /// Returns whether the answer stored under `key` counts.
    pub fn counts(&self, key: &str) -> bool {
        let own = self.0.as_ref();
        own.is_none_or(|own| own.lock().is_ok_and(|own| own.contains(key)))
    }

    /// Remembers that this process stored the answer under `key`.
    pub fn add(&self, key: &str) {
        if let Some(Ok(mut own)) = self.0.as_ref().map(|own| own.lock()) {
            own.insert(key.to_owned());
        }
    }
}

/// Returns `$XDG_CACHE_HOME/perfquilt`, or `$HOME/.cache/perfquilt` if that is not an absolute path.
pub fn cache_dir() -> Result<PathBuf> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .map(|base| base.join("perfquilt"))
        .ok_or_else(|| {
            Error::cache("no cache folder: neither XDG_CACHE_HOME nor HOME is an absolute path")
                .hint("set XDG_CACHE_HOME to a folder with about 10 GB of room")
        })
}
