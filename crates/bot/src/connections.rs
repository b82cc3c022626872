//! The service's HTTP connections, with limits on their number and duration.
//!
//! Anybody can connect, so the resources that clients can hold are bounded: the number of connections, the time
//! a request may take to arrive, and, through the maximum size of a delivery, the total memory.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use perfquilt_system::process;

/// How long a request's head may take to arrive, and a delivery after it.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of concurrent connections; further ones wait.
const MAX_CONNECTIONS: usize = 32;
/// The maximum lifetime of a connection. The head and body of its single request have their own limits; this
/// one ends connections of clients that do not read the response.
const MAX_AGE: Duration = Duration::from_secs(60);
/// How long open requests may take to finish when the bot stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);
/// How often the accept loop checks for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Serves `app` on `listener` until a signal asks to stop, then waits up to [`SHUTDOWN_TIMEOUT`] for open
/// requests.
pub(super) async fn serve(mut listener: TcpListener, app: Router) {
    let mut http = http1::Builder::new();
    // With one request per connection, shutdown cannot cut off a later request.
    http.keep_alive(false);
    http.timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT);
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let graceful = GracefulShutdown::new();
    while !process::interrupted() {
        let next = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            (permit, Listener::accept(&mut listener).await)
        };
        let Ok((permit, (stream, _))) = timeout(POLL_INTERVAL, next).await else {
            continue;
        };
        let service = TowerToHyperService::new(app.clone());
        let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            match timeout(MAX_AGE, connection).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!("a connection ended: {error}"),
                Err(_) => tracing::debug!("a connection was too slow"),
            }
            drop(permit);
        });
    }
    drop(listener);
    // A client may never complete its request.
    let _ = timeout(SHUTDOWN_TIMEOUT, graceful.shutdown()).await;
}
