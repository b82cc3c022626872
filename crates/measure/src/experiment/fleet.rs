//! Starts all servers of a block at the same time.

use std::path::PathBuf;
use std::sync::mpsc;

use perfquilt_bench::server::{Launch, Running, ServerAdapter};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::point::Point;

/// The folders of one start of a server, which are removed when this is dropped.
#[derive(Debug)]
pub(super) struct StartFolders {
    /// Its own, with data and log.
    pub(super) dir: PathBuf,
    /// That with the program.
    pub(super) server: PathBuf,
    /// Whether no other start has this program.
    pub(super) is_private: bool,
}

impl StartFolders {
    /// Chooses the folder of a private program. Returns that of the program before.
    pub(super) fn make_private(&mut self, server: PathBuf) -> PathBuf {
        self.is_private = true;
        std::mem::replace(&mut self.server, server)
    }
}

impl Drop for StartFolders {
    fn drop(&mut self) {
        // The adapter removes the folders of servers that ran; the folders of the others would pile up.
        let _ = std::fs::remove_dir_all(&self.dir);
        if self.is_private {
            let _ = std::fs::remove_dir_all(&self.server);
        }
    }
}

/// Starts a server for every launch, all at once, and passes the outcomes to `body` in the launches' order. A server that
/// fails to start is started once more, in the folders that `renew` makes for the launch with this index: a machine may
/// fail for a moment, and one failure would leave the point out, or end the run if it is the release. Kills the servers
/// that `body` does not stop when it returns.
pub(super) fn with_fleet<R>(
    adapter: &dyn ServerAdapter,
    launches: &[(Point, Launch<'_>)],
    renew: &(dyn Fn(usize, &Error) -> Result<StartFolders> + Sync),
    body: impl FnOnce(Vec<(Point, Result<Running>)>) -> R,
) -> R {
    std::thread::scope(|scope| {
        let (outcomes, inbox) = mpsc::channel();
        // The kernel kills a server when the thread that started it ends, so each thread stays until
        // its end of this channel is dropped, after `body`.
        let mut held = Vec::with_capacity(launches.len());
        for (index, (_, launch)) in launches.iter().enumerate() {
            let (hold, released) = mpsc::channel::<()>();
            held.push(hold);
            let outcomes = outcomes.clone();
            scope.spawn(move || {
                let mut outcome = adapter.start(launch);
                // They stay as long as the server.
                let mut renewed = None;
                if let Err(first) = &outcome
                    && may_pass(first)
                    && let Ok(folders) = renew(index, first)
                {
                    let StartFolders { dir, server, .. } = renewed.insert(folders);
                    let launch = launch.clone();
                    outcome = adapter.start(&Launch {
                        dir,
                        server,
                        ..launch
                    });
                }
                let sent = outcomes.send((index, outcome)).is_ok();
                // The receiver must not wait for a thread that has nothing more to send.
                drop(outcomes);
                if sent {
                    // Ends with an error when the other side is dropped, which is the signal.
                    let _ = released.recv();
                }
            });
        }
        drop(outcomes);
        let mut started: Vec<(Point, Result<Running>)> = launches
            .iter()
            .map(|(point, _)| (*point, Err(Error::internal("the server was not started"))))
            .collect();
        for (index, outcome) in inbox {
            started[index].1 = outcome;
        }
        let result = body(started);
        drop(held);
        result
    })
}

/// Returns whether another start may succeed: not after one that took too long, which would take as long again.
fn may_pass(error: &Error) -> bool {
    error.kind() == Kind::Bench && error.exceeded_start_timeout().is_none()
}
