//! Measures a bundle's servers on this machine.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::{ChildStderr, ChildStdout};

use tempfile::TempDir;

use crate::archive;
use crate::manifest::{MANIFEST, Manifest, OBSERVATIONS};
use crate::{PRESET, server_folder};
use perfquilt_bench::sandbox::{self, Sandbox};
use perfquilt_build::identity_of_files;
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{RELINK_FOLDER, SandboxLimits};
use perfquilt_judge::attribution::Attribution;
use perfquilt_measure::run::{BuiltServer, MeasuredRun, RunJob, RunRequest, run_in_sandbox};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::failure::Failure;
use perfquilt_model::observation::ExperimentHeader;
use perfquilt_results::analyse;
use perfquilt_results::outcome::{self, MAX_UNPACKED, RunOutcome, RunStart};
use perfquilt_store::{Store, jsonl};
use perfquilt_system::files;

/// The folders of an unpacked bundle for its workspace, the caches and what measuring leaves.
const WORKSPACE: &str = "workspace";
const CACHE: &str = "cache";
const OUTCOME: &str = "outcome";

/// A bundle in a folder of its own, which is removed with this value.
#[derive(Debug)]
pub struct Replay {
    folder: TempDir,
    ws: Workspace,
    /// What its maker found, judged here.
    pub there: Attribution,
}

impl Replay {
    /// Checks the bundle at `path` and unpacks it below the folder of caches `cache`, for this user only.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) for anything that [`make`](crate::make()) does not write, and for servers
    /// that cannot run here. Nothing of it has run then.
    pub fn unpack(path: &Path, cache: &Path) -> Result<Self> {
        let within = cache.join("bundles");
        files::make_private(&within)?;
        let folder = tempfile::Builder::new()
            .prefix("run-")
            .tempdir_in(&within)
            .map_err(|e| Error::io("make a folder in", &within, &e))?;
        let manifest = archive::read(path, Some(folder.path()))?;
        manifest.needs.check()?;
        let wrong = |error: Error| Error::bundle(error.message()).at(path, None);
        let ws = workspace(folder.path()).map_err(wrong)?;
        let observations = folder.path().join(OBSERVATIONS);
        let margin = |meter| ws.config.margin(meter);
        let there = analyse::file(&observations, MAX_UNPACKED, &margin)?;
        let measured: BTreeMap<_, _> = there.bound.programs().collect();
        for (point, identity) in &manifest.servers {
            let of_point = format!("{}/", server_folder(*point));
            let own = manifest.files.iter().filter_map(|(path, file)| {
                let below = path.strip_prefix(&of_point)?;
                (!below.starts_with(RELINK_FOLDER)).then(|| (below.to_owned(), file.bytes))
            });
            let found = identity_of_files(&folder.path().join(&of_point), &own.collect())?;
            if found != *identity || measured.get(point) != Some(&found.as_str()) {
                let fault =
                    format!("the program of point {point} is not the one that was measured");
                return Err(Error::bundle(fault).at(path, None));
            }
        }
        let text = manifest.text().map_err(Error::internal)?;
        files::write_file(&folder.path().join(MANIFEST), &text)?;
        for name in [CACHE, OUTCOME] {
            files::make_private(&folder.path().join(name))?;
        }
        Ok(Replay { folder, ws, there })
    }

    /// Returns its folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns what was found here, and what failed. Code of the bundle may have written it.
    pub fn here(&self) -> Result<(RunOutcome, Option<Attribution>)> {
        let margin = |meter| self.ws.config.margin(meter);
        outcome::read(&self.path().join(OUTCOME), &margin)
    }

    /// Runs this program with the arguments `words`, which measure the bundle in its folder, in a sandbox that has this folder and
    /// the system alone; returns its exit code. `relay` gets its streams.
    pub fn run_sandboxed(
        &self,
        words: &[OsString],
        relay: impl FnOnce(Option<ChildStdout>, Option<ChildStderr>),
    ) -> Result<u8> {
        // The bundle's own limits are its maker's.
        let limits = SandboxLimits::default();
        sandbox::check_support(&limits).map_err(|why| {
            Error::sandbox_unavailable(format!("there is no sandbox: {why}")).hint(
                "`perfquilt doctor` lists what is missing; `--no-sandbox` runs a bundle that you trust as you",
            )
        })?;
        let sandbox = Sandbox::new(&limits)
            .write(self.path())
            .env("XDG_CACHE_HOME", self.path().join(CACHE));
        run_in_sandbox(&sandbox, words, self.path(), relay)
    }
}

fn workspace(folder: &Path) -> Result<Workspace> {
    let cache = folder.join(CACHE).join("perfquilt");
    Workspace::open_with_cache(&folder.join(WORKSPACE), cache)
}

/// Measures the unpacked bundle in `folder` as the run `command`, and leaves there what was observed and what failed, for
/// [`Replay::here`].
pub fn measure(folder: &Path, command: &str) -> Result<()> {
    let start = RunStart::now(String::new(), None)?;
    let (failures, measured) = match measured(folder, command) {
        Ok((store, run)) => (run.failures(), Some((store, run.experiment))),
        Err(error) => (vec![Failure::new(&error, None)], None),
    };
    let measured = measured.as_ref().map(|(store, id)| (store, *id));
    outcome::write(&folder.join(OUTCOME), &start, failures, measured)
}

fn measured(folder: &Path, command: &str) -> Result<(Store, MeasuredRun)> {
    let path = folder.join(MANIFEST);
    let text = std::fs::read(&path).map_err(|e| Error::io("read", &path, &e))?;
    let manifest = Manifest::parse(&text).map_err(Error::bundle)?;
    let path = folder.join(OBSERVATIONS);
    let first = jsonl::Reader::new(analyse::open(&path)?, &path)?;
    let (there, planned) = (first.header, first.supplement.planned);
    let ws = workspace(folder)?;
    perfquilt_bench::check(&ws.config)?;
    // What has no server here had none there.
    let mut failed = there.failed;
    failed.retain(|point, _| !manifest.servers.contains_key(point));
    let header = ExperimentHeader {
        series: there.series,
        titles: there.titles,
        line_numbers: there.line_numbers,
        unread: there.unread,
        failed,
        command: Some(command.to_owned()),
        ..ExperimentHeader::new(&there.release, &there.recipe)
    };
    let servers = manifest
        .servers
        .into_iter()
        .map(|(point, identity)| BuiltServer {
            point,
            dir: folder.join(server_folder(point)),
            identity,
        });
    let mut preset = ws.config.preset(PRESET)?.clone();
    // A run that only repeated what was known planned no blocks.
    let mut timed = planned
        .iter()
        .filter(|plan| plan.meter.is_timed() && plan.blocks > 1);
    if let Some(plan) = timed.next() {
        preset.blocks = plan.blocks;
        (preset.resolution, preset.min_blocks) = (plan.resolution, plan.min_blocks);
    }
    let job = RunJob {
        ws: &ws,
        preset: &preset,
        wanted: &RunRequest::default(),
    };
    let run = job.run_built(header, servers.collect())?;
    Ok((Store::open_existing(&ws.results())?, run))
}
