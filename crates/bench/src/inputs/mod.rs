//! The files that a measurement reads besides the built servers: clients, wrappers, interpreters, scripts and data, wherever
//! they are, as far as words of commands name them or the configuration declares them. Their digests are part of the
//! identities of workloads and of the harness.

mod observed;
mod trace;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use sha2::Sha256;

use perfquilt_config::workspace::Workspace;
use perfquilt_config::{
    BUILD_RECORD, declared_files, files_below, interpreters, named_files, read_files,
};
use perfquilt_model::error::{Error, Result};
use perfquilt_system::digest::{self, FileStamp};

pub use observed::Records;
pub use trace::Trace;

/// The begin of the name of a file below `bench-config/`, which is the same in every copy of the workspace.
const CONFIG: &str = "{config}/";

/// Files that something reads, by path, with the digests of their contents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inputs {
    bench_config: PathBuf,
    files: BTreeMap<String, String>,
    /// Files that a traced run read without being named, which are part of the identity only since they differ from what
    /// that run read: by [`Records`], the named ones stand for them until then.
    observed: BTreeMap<String, String>,
    changed: BTreeMap<String, String>,
    /// Files of servers, whose contents are part of the servers' own identities.
    servers: BTreeMap<PathBuf, Option<FileStamp>>,
}

impl Inputs {
    /// Returns the files that the `words` of commands of the configuration in `bench_config` name, and all files of `declared`. The commands run
    /// in `directory`, or in that of this program.
    pub fn named(
        bench_config: &Path,
        (words, directory): (&[String], Option<&str>),
        declared: &[String],
    ) -> Result<Self> {
        let config = bench_config.to_string_lossy();
        let directory = directory.map(|word| PathBuf::from(word.replace("{config}", &config)));
        let directory = directory.or_else(|| std::env::current_dir().ok());
        let directory = &directory.unwrap_or_default();
        let mut inputs = Inputs {
            bench_config: bench_config.to_path_buf(),
            ..Inputs::default()
        };
        let both = words.iter().chain(declared).map(String::as_str);
        for (name, _) in read_files(both, bench_config)? {
            inputs.add(&bench_config.join(name))?;
        }
        for path in named_files(words.iter().map(String::as_str), Some(directory)) {
            inputs.add(&path)?;
        }
        for word in declared.iter().filter(|word| !word.contains(CONFIG)) {
            for path in declared_files(&bench_config.join(word))? {
                inputs.add(&path)?;
            }
        }
        // What runs a script is read, too.
        for path in inputs.paths() {
            for interpreter in interpreters(&path) {
                inputs.add(&interpreter)?;
            }
        }
        Ok(inputs)
    }

    /// Returns the files that commands of `ws` read, as far as they are named, declared or were observed (see [`Inputs::named`]), and
    /// the records to which a traced run must be added, if this is not known.
    pub fn known(
        ws: &Workspace,
        (words, directory): (&[String], Option<&str>),
        declared: &[String],
    ) -> Result<(Self, Option<Records>)> {
        let mut inputs = Inputs::named(&ws.bench_config(), (words, directory), declared)?;
        let records = Records::of(ws.state().join("inputs"), words, directory);
        let known = records.complete(&mut inputs);
        Ok((inputs, (!known).then_some(records)))
    }

    /// Adds a file with the digest of its present content; one that is not there has an empty one.
    fn add(&mut self, path: &Path) -> Result<()> {
        let digest = match digest::of_file(path) {
            Ok(digest) => digest,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => {
                return Err(Error::input_unreadable(format!(
                    "cannot read {}, which is part of the measurement: {error}",
                    path.display()
                )));
            }
        };
        self.files.insert(self.name(path), digest);
        Ok(())
    }

    /// Returns the files `paths` by name, with the digests of their present contents, empty where there is none.
    fn contents(&self, paths: impl IntoIterator<Item = PathBuf>) -> BTreeMap<String, String> {
        let content =
            |path: PathBuf| (self.name(&path), digest::of_file(&path).unwrap_or_default());
        paths.into_iter().map(content).collect()
    }

    fn name(&self, path: &Path) -> String {
        match path.strip_prefix(&self.bench_config) {
            Ok(below) => format!("{CONFIG}{}", below.display()),
            Err(_) => path.to_string_lossy().into_owned(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        match name.strip_prefix(CONFIG) {
            Some(below) => self.bench_config.join(below),
            None => name.into(),
        }
    }

    fn paths(&self) -> BTreeSet<PathBuf> {
        self.files.keys().map(|name| self.path(name)).collect()
    }

    /// Returns the paths of all files, also of those that were only seen to be read.
    pub fn all(&self) -> BTreeSet<PathBuf> {
        let names = self.files.keys().chain(self.observed.keys());
        names.map(|name| self.path(name)).collect()
    }

    /// Adds files and digests to `digest`.
    pub fn digest(&self, digest: &mut Sha256) {
        for (name, content) in self.files.iter().chain(&self.changed) {
            digest::add(digest, name.as_bytes());
            digest::add(digest, content.as_bytes());
        }
    }

    /// Adds the files of `other`, of the same workspace.
    pub fn extend(&mut self, other: Inputs) {
        self.bench_config = other.bench_config;
        self.files.extend(other.files);
        self.observed.extend(other.observed);
        self.changed.extend(other.changed);
        self.servers.extend(other.servers);
    }

    /// Adds the files of a server's folder as they are now; they are no part of [`Inputs::digest`].
    pub fn add_server(&mut self, folder: &Path) -> Result<()> {
        for path in files_below(folder)? {
            // Its time tells when the server was used last.
            if path != folder.join(BUILD_RECORD) {
                let stamp = FileStamp::of(&path).ok();
                self.servers.insert(path, stamp);
            }
        }
        Ok(())
    }

    /// Returns the first file whose content is another one now.
    pub fn changed(&self) -> Option<PathBuf> {
        let read = self.files.iter().chain(&self.observed);
        let named = read.map(|(name, content)| {
            let path = self.path(name);
            let now = digest::of_file(&path).unwrap_or_default();
            (now == *content, path)
        });
        let servers = self.servers.iter();
        let servers =
            servers.map(|(path, stamp)| (FileStamp::of(path).ok() == *stamp, path.clone()));
        let mut all = named.chain(servers);
        all.find_map(|(is_same, path)| (!is_same).then_some(path))
    }

    /// Checks that all files are what they were when the measurement began.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) with the first one that is not.
    pub fn check(&self) -> Result<()> {
        self.changed().map_or(Ok(()), |path| {
            let fault = format!(
                "{} changed while it was part of a measurement: this block does not count",
                path.display()
            );
            Err(Error::input_unreadable(fault).hint(
                "the same command measures with the file as it is now; if the client writes it, let it write into a folder without a file of that name",
            ))
        })
    }
}
