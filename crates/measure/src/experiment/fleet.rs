//! Starts all servers of a block at the same time.

use std::sync::mpsc;

use perfquilt_machine::server::{Launch, Running, ServerAdapter};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::point::Point;

/// Starts a server for every launch, all at once, and passes the outcomes to `body` in the launches' order.
/// Kills the servers that `body` does not stop when it returns.
pub(super) fn with_fleet<R>(
    adapter: &dyn ServerAdapter,
    launches: &[(Point, Launch<'_>)],
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
                let outcome = adapter.start(launch);
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
