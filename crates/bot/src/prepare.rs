//! Prepares the workspace of a queued job.

use std::path::PathBuf;

use super::area::Area;
use super::bot::{Bot, BotThread};
use super::job::{Isolation, JobEnvironment};
use super::paths::BotPaths;
use super::{fetch, job_workspace};
use perfquilt_config::ApprovalPolicy;
use perfquilt_forge::PullRequest;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_series::series::Series;
use perfquilt_series::upstream;
use perfquilt_store::queue::Job;

/// A job that is ready to run.
#[derive(Debug)]
pub(super) struct PreparedJob {
    /// The head commit.
    pub head: String,
    /// Its workspace and sandbox.
    pub environment: JobEnvironment,
    /// The folder for its outcome.
    pub outcome: PathBuf,
    /// The number of patches in the series.
    pub patches: usize,
}

/// The result of preparing a job.
#[derive(Debug)]
pub(super) enum Preparation {
    /// The job is ready to run.
    Ready(Box<PreparedJob>),
    /// The pull request has no usable series.
    NoSeries {
        /// The head commit.
        head: String,
        /// The reason.
        error: Error,
    },
    /// The pull request changes files that control builds, and nobody has approved that.
    NeedsApproval {
        /// The head commit.
        head: String,
        /// The paths of these files.
        files: Vec<String>,
    },
    /// The pull request has a newer commit than the one the job names.
    Superseded,
    /// The job was cancelled.
    Cancelled,
}

impl Bot {
    /// Returns the repository from which pull requests are fetched.
    pub(super) fn remote(&self) -> fetch::Remote {
        let config = &self.workspace.config.bot;
        let remote = config.remote.clone();
        fetch::Remote {
            url: remote.unwrap_or_else(|| format!("https://github.com/{}.git", self.repository)),
            settings: fetch::settings_file(&self.workspace),
        }
    }
}

impl BotThread<'_> {
    /// Creates the workspace of `job`, with the given isolation, unless the job is cancelled meanwhile.
    /// Executes no code from the pull request.
    pub(super) fn prepare(
        &self,
        found: &PullRequest,
        job: &Job,
        isolation: Isolation,
    ) -> Result<Preparation> {
        let ws = &self.bot.workspace;
        let paths = BotPaths::new(ws);
        let cancelled = || self.is_cancelled(job);
        let area = Area::of(&paths, job.id);
        let remote = self.bot.remote();
        let fetched = match fetch::fetch(&paths, &ws.config, &remote, found, &area, &cancelled) {
            Err(_) if cancelled() => return Ok(Preparation::Cancelled),
            Err(error) if error.kind() == Kind::Series => {
                let head = found.head.clone();
                return Ok(Preparation::NoSeries { head, error });
            }
            fetched => fetched?,
        };
        let Some(fetched) = fetched else {
            return Ok(Preparation::Cancelled);
        };
        let head = fetched.head.clone();
        if !job.job.head.is_empty() && head != job.job.head {
            return Ok(Preparation::Superseded);
        }
        self.queue.record_head(job.id, &head)?;
        let folder = area.workspace();
        let about = (found.number, &fetched);
        let made = job_workspace::create(&paths, ws, about, &folder, &cancelled)
            .and_then(|theirs| Ok((Series::load_for_job(&theirs)?, theirs)));
        // A series that the bot cannot read is not run: nobody could say whether it needs an approval.
        let (series, theirs) = match made {
            Err(_) if cancelled() => return Ok(Preparation::Cancelled),
            Err(error) if error.kind() == Kind::Series => {
                return Ok(Preparation::NoSeries { head, error });
            }
            made => made?,
        };
        let needs_approval = match ws.config.bot.approval {
            ApprovalPolicy::Nobody => false,
            ApprovalPolicy::Untrusted => !job.job.trusted,
            ApprovalPolicy::Everybody => true,
        };
        let repository = &self.bot.repository;
        let number = job.job.number;
        let approved = || {
            self.queue
                .is_approved(&repository.to_string(), number, &head)
        };
        if needs_approval && !approved()? {
            let files = job_workspace::build_control_files(ws, &series);
            if !files.is_empty() {
                return Ok(Preparation::NeedsApproval { head, files });
            }
        }
        upstream::ensure(&theirs, None, self.progress)?;
        job_workspace::save_lock_file(&paths, &theirs)?;
        let sandboxed = isolation == Isolation::Sandbox;
        if sandboxed {
            area.fill(ws)?;
            job_workspace::link_state(&folder, &area.state())?;
        }
        let environment = JobEnvironment::new(ws, &area, sandboxed, job.job.trusted)?;
        Ok(Preparation::Ready(Box::new(PreparedJob {
            head,
            environment,
            outcome: area.outcome(),
            patches: series.patches().len(),
        })))
    }
}
