//! `[server]`: how a built server runs.

use std::path::PathBuf;

use serde::Deserialize;

use super::document::{Document, Section};
use super::seconds;
use perfquilt_model::error::Result;

/// `[server]`: how a built server runs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// The adapter that runs the server: `mariadb`, `mysql`, `postgresql` or `command`.
    pub adapter: String,
    /// The server's own configuration file.
    pub config: Option<PathBuf>,
    /// Where data is, and what commits wait for (for the adapter `command`, only the former).
    #[serde(default)]
    pub disk: Disk,
    /// Files and folders that the server reads without being seen to (`{config}/PATH` and paths from `bench-config/` on).
    #[serde(default)]
    pub inputs: Vec<String>,
    /// Seconds until a server must be ready.
    #[serde(default = "default_start_seconds")]
    pub start_seconds: f64,
    /// `[server.ADAPTER]`, which the adapter reads.
    #[serde(skip)]
    pub settings: Section,
}

/// Where the data of measured servers is, and what their commits wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Disk {
    /// On the RAM disk, if there is room; no commit waits for a disk.
    #[default]
    Memory,
    /// On the disk of the caches; commits wait until it has stored them.
    Durable,
}

fn default_start_seconds() -> f64 {
    60.0
}

impl Default for Server {
    fn default() -> Self {
        Server {
            adapter: String::new(),
            config: None,
            disk: Disk::default(),
            inputs: Vec::new(),
            start_seconds: default_start_seconds(),
            settings: Section::default(),
        }
    }
}

impl Server {
    pub(super) fn check(&self, document: &Document) -> Result<()> {
        seconds::check(
            document,
            &["server", "start_seconds"],
            self.start_seconds,
            "`start_seconds`",
        )
    }
}
