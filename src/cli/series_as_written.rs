//! `--series-as-written`: commands that measure the series stop while its edit branch has work that is not in it.

use clap::Args;

use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress;
use perfquilt_model::warning::Warning;
use perfquilt_rebase::edit;

/// The option of commands that measure the series.
#[derive(Debug, Clone, Args)]
pub struct SeriesChoice {
    /// Use the series files, even if the edit branch has changes that are not in them
    #[arg(long)]
    series_as_written: bool,
}

impl SeriesChoice {
    /// Checks that the series of `releases` (`None`: the current one) have all work of their edit branches, or warns
    /// where the option was given.
    pub fn check(&self, ws: &Workspace, releases: &[Option<&str>]) -> Result<()> {
        let branches = edit::unwritten(ws, Some(releases))?;
        let Some(first) = branches.first() else {
            return Ok(());
        };
        if self.series_as_written {
            for branch in &branches {
                let words = format!("{}; using the series as written", branch.sentence());
                progress::warn(Warning::unwritten_branch(words));
            }
            return Ok(());
        }
        Err(Error::series_unreadable(first.sentence())
            .details(branches[1..].iter().map(edit::UnwrittenBranch::sentence))
            .hint(format!(
                "{}; `--series-as-written` continues without this work",
                first.next()
            )))
    }
}
