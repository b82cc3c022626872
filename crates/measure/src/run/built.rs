//! Points whose servers another machine built.

use std::path::{Path, PathBuf};

use super::{MeasuredRun, RunJob};
use crate::experiment::{Server, Servers};
use perfquilt_build::{Built, Relink};
use perfquilt_config::Layouts;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::ExperimentHeader;
use perfquilt_model::point::Point;
use perfquilt_model::progress;
use perfquilt_model::warning::Warning;

/// The server of a point.
#[derive(Debug, Clone)]
pub struct BuiltServer {
    /// The point.
    pub point: Point,
    /// Its folder.
    pub dir: PathBuf,
    /// The identity of its program.
    pub identity: String,
}

impl RunJob<'_> {
    /// Measures `servers`, the points of `header`'s series. Where this machine cannot link them again, with a warning they run in the
    /// layout in which they are.
    pub fn run_built(
        &self,
        header: ExperimentHeader,
        servers: Vec<BuiltServer>,
    ) -> Result<MeasuredRun> {
        let mut preset = self.preset.clone();
        let base = servers.iter().find(|server| server.point == Point::BASE);
        if preset.layouts != Some(Layouts::Off)
            && let Some(Err(why)) = base.map(|base| self.try_link(&base.dir))
        {
            preset.layouts = Some(Layouts::Off);
            let details = why.detail_lines().join("; ");
            progress::warn(Warning::one_layout(format!(
                "code layouts are not varied, so times come from a single layout: {why}: {details}"
            )));
        }
        let servers = servers.into_iter().map(
            |BuiltServer {
                 point,
                 dir,
                 identity,
             }| {
                let built = Built::existing(&identity, dir, &identity);
                (point, Server::new(point, &built, &header))
            },
        );
        let servers: Servers = servers.collect();
        let job = RunJob {
            preset: &preset,
            ..*self
        };
        job.measure_points(header, &servers, &[])
    }

    /// Links the server in the folder `server` once, where programs of a sandbox may write.
    fn try_link(&self, server: &Path) -> Result<()> {
        let relink = Relink::of(server, Layouts::Padded).map_err(Error::relink)?;
        let work = self.ws.cache().join("work");
        let folder = std::fs::create_dir_all(&work).and_then(|()| tempfile::tempdir_in(&work));
        let folder = folder.map_err(|e| Error::io("make a folder in", &work, &e))?;
        relink.link(1, &folder.path().join("executable"))
    }
}
