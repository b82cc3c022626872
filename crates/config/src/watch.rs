//! `[watch]`: the lines of upstream that `perfquilt watch` follows.

use std::path::PathBuf;

use serde::Deserialize;

use super::document::Document;
use super::upstream::DebianSource;
use super::{Config, fraction};
use perfquilt_model::error::Result;
use perfquilt_model::observation::Meter;

/// `[watch]`: what `perfquilt watch` does with what is new upstream.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Watch {
    /// The folder of the reports, relative to the workspace.
    pub reports: PathBuf,
    /// The number of the issue or pull request in the repository of `[bot]` that gets each report as a comment; on GitLab, of
    /// a merge request.
    pub comment_on: Option<u64>,
    /// Seconds between two looks, at least 1.
    pub seconds: u32,
    /// Whether to build the points on what is new; by default if the preset's recipe exists.
    pub build: Option<bool>,
    /// Whether to run the server's own tests there; needs `build`.
    pub test: bool,
    /// Whether to measure whether it is slower; by default if the points are built.
    pub measure: Option<bool>,
    /// The preset for building and measuring.
    pub preset: String,
    /// The meter that decides.
    pub meter: Meter,
    /// The smallest loss to report, as a fraction of speed; by default that of a bisection.
    #[serde(deserialize_with = "fraction::deserialize")]
    pub size: Option<f64>,
    /// The most blocks of a comparison.
    pub blocks: usize,
    /// `[[watch.line]]`: the lines to follow.
    pub line: Vec<WatchedLine>,
}

/// A line of upstream: exactly one of `git` and `debian`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchedLine {
    /// Its name in reports.
    pub name: String,
    /// A branch of a git repository.
    pub git: Option<BranchSource>,
    /// A Debian source package: the newest version in its suite.
    pub debian: Option<DebianSource>,
    /// The release whose series is tried on it (default: the current one).
    pub release: Option<String>,
}

/// A branch of a git repository.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BranchSource {
    /// Any remote that `git fetch` accepts.
    pub remote: String,
    /// The branch.
    pub branch: String,
}

impl Default for Watch {
    fn default() -> Self {
        Watch {
            reports: "watch-reports".into(),
            comment_on: None,
            seconds: 3600,
            build: None,
            test: false,
            measure: None,
            preset: "quick".into(),
            meter: Meter::Time,
            size: None,
            blocks: 400,
            line: Vec::new(),
        }
    }
}

impl Watch {
    pub(super) fn check(&self, config: &Config, document: &Document) -> Result<()> {
        if self.seconds == 0 {
            return Err(document.error(&["watch", "seconds"], "`seconds` must be at least 1"));
        }
        if self.comment_on.is_some() && config.bot.repository.is_empty() {
            let fault = "`comment_on` needs `repository` in [bot]";
            return Err(document.error(&["watch", "comment_on"], fault));
        }
        if let Some(fault) = self
            .size
            .and_then(|size| fraction::width_fault("size", size))
        {
            return Err(document.error(&["watch", "size"], fault));
        }
        for (index, line) in self.line.iter().enumerate() {
            let place = index.to_string();
            let at = |key: &str, fault: String| {
                Err(document.error(&["watch", "line", &place, key], fault))
            };
            let name = &line.name;
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
            if name.is_empty() || !name.chars().all(is_plain) {
                let fault = format!("the name {name:?} may only have letters, digits and -_.+");
                return at("name", fault);
            }
            if self.line[..index].iter().any(|other| other.name == *name) {
                return at("name", format!("the line {name} is configured twice"));
            }
            if line.git.is_some() == line.debian.is_some() {
                return at(
                    "name",
                    format!("the line {name} needs exactly one of git and debian"),
                );
            }
            if let Some(release) = &line.release {
                let known = config.release(Some(release));
                known.map_err(|error| {
                    document.locate(&["watch", "line", &place, "release"], error)
                })?;
            }
        }
        Ok(())
    }
}
