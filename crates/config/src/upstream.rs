//! `[upstream]` and `[series]`: releases and the files of the series.

use std::path::PathBuf;

use serde::Deserialize;

use super::document::Document;
use perfquilt_model::error::{Error, Result};

/// `[upstream]`: the server's name and its releases.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// The server's name, the first part of release names (`mariadb` in `mariadb-10.11.18`).
    pub name: String,
    /// The version of the release that the series is for.
    pub current: String,
    /// `[[upstream.release]]`: the releases.
    #[serde(default)]
    pub release: Vec<ReleaseSource>,
}

/// One release: its version and exactly one source.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseSource {
    /// The upstream version.
    pub version: String,
    /// A Debian source package: the upstream tarball in it, without Debian's patches.
    pub debian: Option<DebianSource>,
    /// A tarball.
    pub tarball: Option<TarballSource>,
    /// A tag in a git repository.
    pub git: Option<GitSource>,
    /// An unpacked tree.
    pub directory: Option<PathBuf>,
    /// Addresses of further copies (`debian` and `tarball`), accepted with the recorded SHA-256 only.
    #[serde(default)]
    pub copies: Vec<String>,
    /// The folder of this release's own series, by default that of `[series]`.
    pub patches: Option<PathBuf>,
}

/// A Debian source package.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DebianSource {
    /// The source package.
    pub package: String,
    /// The suite, for example `bookworm`.
    pub suite: String,
    /// The archive (`debian-security`), if it is not that of the machine's own suite.
    pub archive: Option<String>,
}

/// A tarball, given by path or URL.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TarballSource {
    /// A path or a URL.
    pub url: String,
    /// Its SHA-256, in hexadecimal.
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
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SeriesFiles {
    /// The series file.
    pub file: PathBuf,
    /// The folder of the patches.
    pub patches: PathBuf,
    /// Context lines that may be ignored where a hunk does not apply otherwise.
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

impl TarballSource {
    /// Checks the digest of the release `version`, the `place`-th of the document.
    fn check(&self, version: &str, place: &str, document: &Document) -> Result<()> {
        let digest = &self.sha256;
        if digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Ok(());
        }
        let fault =
            format!("release {version}: sha256 must be 64 hexadecimal digits, not {digest:?}");
        Err(document
            .error(&["upstream", "release", place, "tarball", "sha256"], fault)
            .hint("`sha256sum FILE` prints it"))
    }
}

impl Upstream {
    pub(super) fn check(&self, document: &Document) -> Result<()> {
        let mut versions = self.release.iter().map(|release| &release.version);
        // A workspace may have a series before it has a release.
        if !self.release.is_empty() && !versions.any(|version| *version == self.current) {
            let versions = self.release.iter().map(|release| &release.version);
            let error = Error::unknown("release", &self.current, versions);
            return Err(document.locate(&["upstream", "current"], error));
        }
        for (index, release) in self.release.iter().enumerate() {
            let version = &release.version;
            let place = index.to_string();
            let complain = |message: String| {
                Err(document.error(&["upstream", "release", &place, "version"], message))
            };
            if self.release[..index]
                .iter()
                .any(|other| other.version == *version)
            {
                return complain(format!("release {version} is configured twice"));
            }
            let sources = [
                release.debian.is_some(),
                release.tarball.is_some(),
                release.git.is_some(),
                release.directory.is_some(),
            ];
            if sources.iter().filter(|given| **given).count() != 1 {
                return complain(format!(
                    "release {version} needs exactly one of debian, tarball, git and directory"
                ));
            }
            if let Some(tarball) = &release.tarball {
                tarball.check(version, &place, document)?;
            }
            if !release.copies.is_empty() && (release.git.is_some() || release.directory.is_some())
            {
                return Err(document.error(
                    &["upstream", "release", &place, "copies"],
                    "only debian and tarball have a source file with copies",
                ));
            }
        }
        Ok(())
    }
}
