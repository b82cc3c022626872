//! The manifest of a bundle: what it is of, what a machine needs to run it, and every file with its digest.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use perfquilt_model::point::Point;

/// The name of the manifest, in the archive and in the folder of an unpacked bundle.
pub(crate) const MANIFEST: &str = "manifest.json";
/// The run's observations.
pub(crate) const OBSERVATIONS: &str = "observations.jsonl";
/// The version of the format.
const FORMAT: u32 = 1;
/// The most files of a bundle.
const MOST_FILES: usize = 200_000;
/// The largest file of a bundle, in bytes: the number has eleven octal digits in an archive.
const LARGEST: u64 = (8 << 30) - 1;
/// The longest path, in bytes.
const LONGEST_PATH: usize = 512;

/// What a bundle is of, and its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of the bundle's format.
    pub format: u32,
    /// The version of perfquilt that made it.
    pub perfquilt: String,
    /// The run.
    pub experiment: String,
    /// The commit of the workspace that was measured; empty if unknown.
    pub commit: String,
    /// The digest of the series.
    pub series: String,
    /// What the servers need of a machine.
    pub needs: Needs,
    /// The identities of the servers' programs, by point.
    pub servers: BTreeMap<Point, String>,
    /// The files, by path.
    pub files: BTreeMap<String, PackedFile>,
}

/// What the servers of a bundle need of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Needs {
    /// The architecture of its processor.
    pub architecture: String,
    /// The processor's features that a compiler told to use this machine's own may have used.
    pub processor: BTreeSet<String>,
    /// The shared libraries that are not in the bundle.
    pub libraries: BTreeSet<String>,
}

/// A file of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackedFile {
    /// The digest of its content.
    pub sha256: String,
    /// Its size.
    pub bytes: u64,
    /// Whether it is a program.
    pub executable: bool,
}

impl Manifest {
    /// Returns the manifest of a run without files.
    pub(crate) fn new(experiment: &str, commit: String) -> Self {
        Manifest {
            format: FORMAT,
            perfquilt: env!("CARGO_PKG_VERSION").to_owned(),
            experiment: experiment.to_owned(),
            commit,
            series: String::new(),
            needs: Needs::default(),
            servers: BTreeMap::new(),
            files: BTreeMap::new(),
        }
    }

    /// Returns the only text that stands for this manifest.
    pub(crate) fn text(&self) -> Result<Vec<u8>, String> {
        self.check()?;
        serde_json::to_vec_pretty(self).map_err(|error| error.to_string())
    }

    /// Reads a manifest. A text with a name twice, or in another form than perfquilt writes, is none.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
            perfquilt: String,
        }
        let wrong = |error: serde_json::Error| format!("its manifest is wrong: {error}");
        let version: Version = serde_json::from_slice(text).map_err(wrong)?;
        if version.format != FORMAT {
            let (format, maker) = (version.format, version.perfquilt.escape_debug());
            return Err(format!(
                "it has format {format}, of perfquilt {maker}, and this version reads format {FORMAT}"
            ));
        }
        let manifest: Manifest = serde_json::from_slice(text).map_err(wrong)?;
        if manifest.text()? == text {
            Ok(manifest)
        } else {
            Err("its manifest is not written as perfquilt writes it".to_owned())
        }
    }

    /// Returns the places of each distinct content, by digest.
    pub(crate) fn contents(&self) -> BTreeMap<&str, Vec<(&str, &PackedFile)>> {
        let mut contents: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for (path, file) in &self.files {
            let places = contents.entry(&file.sha256).or_default();
            places.push((path.as_str(), file));
        }
        contents
    }

    fn check(&self) -> Result<(), String> {
        if self.files.len() > MOST_FILES {
            return Err(format!("it has more than {MOST_FILES} files"));
        }
        let contents = self.contents();
        let mut files = BTreeSet::new();
        let mut folders = BTreeSet::new();
        let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        for (path, file) in &self.files {
            // Some file systems take names that differ in case for the same.
            let folded = path.to_ascii_lowercase();
            let above = folded
                .match_indices('/')
                .map(|(end, _)| folded[..end].to_owned());
            folders.extend(above);
            let digest = &file.sha256;
            let fault = if !is_plain(path) {
                "is not a plain path inside a bundle"
            } else if !files.insert(folded) {
                "differs from another path in case alone"
            } else if digest.len() != 64 || !digest.bytes().all(is_digit) {
                "has no SHA-256"
            } else if file.bytes > LARGEST || contents[digest.as_str()][0].1.bytes != file.bytes {
                "is too large, or its digest stands for two sizes"
            } else {
                continue;
            };
            return Err(format!("`{}` {fault}", path.escape_debug()));
        }
        match files.intersection(&folders).next() {
            Some(both) => Err(format!("`{both}` is a file and a folder")),
            None => Ok(()),
        }
    }
}

/// Returns whether `path` leads to a place inside a bundle, is the same on every file system, and is shown as it is: no empty, hidden
/// or relative part, in printable ASCII.
fn is_plain(path: &str) -> bool {
    let is_plain = |part: &str| {
        let bytes = part.as_bytes();
        bytes
            .iter()
            .all(|b| (b' '..=b'~').contains(b) && *b != b'\\')
            && !part.starts_with(['.', ' '])
            && !part.ends_with(['.', ' '])
            && !part.is_empty()
    };
    let top = path.split('/').next().unwrap_or_default();
    path.len() <= LONGEST_PATH
        && path.split('/').all(is_plain)
        && (["servers", "workspace"].contains(&top) && path.len() > top.len()
            || path == OBSERVATIONS)
}
