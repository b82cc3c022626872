//! Acceptances of slower patches, which the bot's own queue keeps: each is bound to the commit of the result and to the
//! bot's configuration, and so to programs and workloads that no author of a pull request can claim to be others.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use perfquilt_config::files_below;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::cut::at_most;
use perfquilt_model::error::{Error, Result};
use perfquilt_store::queue::Acceptance;
use perfquilt_system::digest;

use super::commits::SHORT_ID;

/// Files of `bench-config` that change neither programs nor workloads.
const RECORDS: [&str; 2] = ["decisions.toml", "upstream.lock"];

/// An acceptance for a comment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AcceptedPatch {
    /// The patch's number.
    pub patch: usize,
    /// Why it stays although it is slower.
    pub reason: String,
    /// Why the acceptance no longer holds.
    pub lapsed: Option<String>,
}

impl AcceptedPatch {
    /// Returns an acceptance as it applies to the result of commit `head` with the current configuration.
    pub fn of(stored: Acceptance, head: &str, configuration: &str) -> Self {
        let short = |commit| at_most(commit, SHORT_ID).to_owned();
        let lapsed = if stored.head != head {
            let (now, then) = (short(head), short(&stored.head));
            Some(format!("commit {now} instead of {then}"))
        } else if stored.configuration != configuration {
            Some("the configuration of recipes or workloads changed".to_owned())
        } else {
            None
        };
        AcceptedPatch {
            patch: stored.patch,
            reason: stored.reason,
            lapsed,
        }
    }
}

/// Returns a digest of the configuration, the workloads and the files beside them.
pub fn configuration_digest(ws: &Workspace) -> Result<String> {
    let folder = ws.bench_config();
    let mut all = Sha256::new();
    for path in files_below(&folder)? {
        let name = path.strip_prefix(&folder).unwrap_or(&path);
        if RECORDS.iter().any(|record| name == *record) {
            continue;
        }
        let content = digest::of_file(&path).map_err(|error| Error::io("read", &path, &error))?;
        digest::add(&mut all, name.as_os_str().as_encoded_bytes());
        digest::add(&mut all, content.as_bytes());
    }
    Ok(hex::encode(all.finalize()))
}
