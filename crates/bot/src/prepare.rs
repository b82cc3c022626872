//! Prepares the workspace of a queued job.

use std::path::PathBuf;

use super::area::Area;
use super::bot::BotThread;
use super::job::{Isolation, JobEnvironment};
use super::paths::BotPaths;
use super::{fetch, job_workspace};
use perfquilt_config::ApprovalPolicy;
use perfquilt_config::workspace::Workspace;
use perfquilt_forge::PullRequest;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_series::series::Series;
use perfquilt_series::upstream;
use perfquilt_store::queue::Job;

/// A job that is ready to run.
#[derive(Debug)]
pub(super) struct PreparedJob {
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
    ///
    /// The reason.
    NoSeries(Error),
    /// The pull request changes files that control builds, and nobody has approved that.
    ///
    /// The paths of these files.
    NeedsApproval(Vec<String>),
    /// The pull request has a newer commit than the one the job names.
    Superseded,
    /// The job was cancelled.
    Cancelled,
}

impl BotThread<'_> {
    /// Returns the repository from which pull requests are fetched.
    pub(super) fn remote(&self) -> fetch::Remote {
        let ws = &self.bot.workspace;
        let remote = ws.config.bot.remote.clone();
        fetch::Remote {
            url: remote.unwrap_or_else(|| self.forge.git_url()),
            settings: fetch::settings_file(ws),
        }
    }

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
        let remote = self.remote();
        let folder = area.workspace();
        let make = || -> Result<Option<(Series, Workspace)>> {
            let fetched = fetch::fetch(&paths, &ws.config, &remote, found, &area, &cancelled)?;
            let fetched = fetched.ok_or_else(Error::interrupted)?;
            if fetched.head != job.job.head {
                return Ok(None);
            }
            let theirs = job_workspace::create(&paths, ws, &fetched, &folder, &cancelled)?;
            Ok(Some((Series::load_for_job(&theirs)?, theirs)))
        };
        // A series that the bot cannot read is not run: nobody could say whether it needs an approval.
        let (series, theirs) = match make() {
            Err(_) if cancelled() => return Ok(Preparation::Cancelled),
            Err(error) if error.kind() == Kind::Series => return Ok(Preparation::NoSeries(error)),
            Ok(None) => return Ok(Preparation::Superseded),
            Ok(Some(made)) => made,
            Err(error) => return Err(error),
        };
        let needs_approval = match ws.config.bot.approval {
            ApprovalPolicy::Nobody => false,
            ApprovalPolicy::Untrusted => !job.job.trusted,
            ApprovalPolicy::Everybody => true,
        };
        if needs_approval && !self.is_approved(job)? {
            let files = job_workspace::build_control_files(ws, &series);
            if !files.is_empty() {
                return Ok(Preparation::NeedsApproval(files));
            }
        }
        upstream::ensure(&theirs, None)?;
        job_workspace::save_lock_file(&paths, &theirs)?;
        let sandboxed = isolation == Isolation::Sandbox;
        if sandboxed {
            area.fill(ws)?;
            job_workspace::link_state(&folder, &area.state())?;
        }
        let environment = JobEnvironment::new(ws, &area, sandboxed, job.job.trusted)?;
        Ok(Preparation::Ready(Box::new(PreparedJob {
            environment,
            outcome: area.outcome(),
            patches: series.patches().len(),
        })))
    }
}
