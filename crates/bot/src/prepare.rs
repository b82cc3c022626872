//! From a job in the queue to a workspace in which it can be carried out.

use super::area::Area;
use super::job::{Guard, Ready};
use super::places::Places;
use super::source;
use super::worker::Bot;
use perfquilt_config::Approval;
use perfquilt_forge::Found;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::progress::Progress;
use perfquilt_patches::series::Series;
use perfquilt_patches::upstream;
use perfquilt_store::queue::{Job, Queue};

/// A job that can be carried out.
#[derive(Debug)]
pub(super) struct Prepared {
    /// The commit.
    pub head: String,
    /// Its workspace.
    pub ready: Ready,
    /// How many patches its series has; `None` when it cannot be read, which the job itself tells.
    pub patches: Option<usize>,
}

/// What a pull request brings.
#[derive(Debug)]
pub(super) enum Brought {
    /// A series.
    Series(Prepared),
    /// Nothing that is a series: why.
    Nothing {
        /// The commit.
        head: String,
        /// Why.
        error: Error,
    },
    /// Changes of files that steer builds, which nobody approved.
    Steering {
        /// The commit.
        head: String,
        /// The files.
        files: Vec<String>,
    },
    /// Another commit than the one the job is about.
    Newer,
    /// The job is not wanted any more.
    Unwanted,
}

impl Bot {
    /// Where pull requests are fetched from.
    pub(super) fn remote(&self) -> String {
        let configured = self.workspace.config.bot.remote.clone();
        configured.unwrap_or_else(|| format!("https://github.com/{}.git", self.repository))
    }

    /// Makes the workspace of `job`, in which code runs as `guard` says, unless `unwanted` says meanwhile that it is
    /// not wanted. Runs nothing that the pull request brings.
    ///
    /// # Errors
    /// When the commits or the release cannot be had; [`Kind::Interrupted`].
    pub(super) fn prepare(
        &self,
        queue: &Queue,
        found: &Found,
        job: &Job,
        guard: Guard,
        unwanted: &dyn Fn() -> bool,
        progress: &dyn Progress,
    ) -> Result<Brought> {
        let ws = &self.workspace;
        let places = Places::new(ws);
        let Some(head) = source::fetch(&places, &ws.config, &self.remote(), found, unwanted)?
        else {
            return Ok(Brought::Unwanted);
        };
        if !job.job.head.is_empty() && head != job.job.head {
            return Ok(Brought::Newer);
        }
        queue.takes(job.id, &head)?;
        let folder = places.job(job.id);
        let theirs = match source::workspace(&places, ws, found, &head, &folder) {
            Err(error) if error.kind() == Kind::Series => {
                return Ok(Brought::Nothing { head, error });
            }
            made => made?,
        };
        let asked = match ws.config.bot.approval {
            Approval::Nobody => false,
            Approval::Strangers => !job.job.trusted,
            Approval::Everybody => true,
        };
        let repository = self.repository.to_string();
        if asked && !queue.is_approved(&repository, job.job.number, &head)? {
            let files = source::steering(ws, &theirs);
            if !files.is_empty() {
                return Ok(Brought::Steering { head, files });
            }
        }
        let release = upstream::ensure(&theirs, None, progress)?;
        source::remember(&places, &theirs)?;
        let area = match guard {
            Guard::Apart => {
                let whose = (&self.repository, job.job.number);
                Some(Area::open(&places, ws, whose, &release)?)
            }
            Guard::Bare | Guard::Shared => None,
        };
        if let Some(area) = &area {
            source::with_state(&folder, &area.state)?;
        }
        let ready = Ready::new(ws, &places, &folder, guard, area.as_ref())?;
        let series = Series::load(&theirs).ok();
        Ok(Brought::Series(Prepared {
            head,
            ready,
            patches: series.map(|series| series.patches().len()),
        }))
    }
}
