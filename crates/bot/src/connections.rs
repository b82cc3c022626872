//! The connections of the service: how many at once, and how long each may be silent.
//!
//! Anybody can connect. What strangers can hold is bounded therefore: connections, the time a request may
//! take to come, and by the size of a delivery the memory of all together.

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

use super::serve::PATIENCE;
use perfquilt_system::process;

/// Connections at once; more wait until one ends.
const MOST: usize = 32;
/// How old a connection can become: its one request's head and body have their own limits, and who does not read
/// the answer ends here.
const AGE: Duration = Duration::from_secs(60);
/// How long what is on its way may take when the bot is to stop.
const LAST_PATIENCE: Duration = Duration::from_secs(3);
/// How often is looked whether it is.
const GLANCE: Duration = Duration::from_millis(100);

/// Has `app` answer who connects to `listener` until a signal asks to stop; then what is on its way is
/// finished, for some seconds.
pub(super) async fn serve(mut listener: TcpListener, app: Router) {
    let mut http = http1::Builder::new();
    // One request a connection: none is cut off in the middle of its next one.
    http.keep_alive(false);
    http.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    let places = Arc::new(Semaphore::new(MOST));
    let graceful = GracefulShutdown::new();
    while !process::interrupted() {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, Listener::accept(&mut listener).await)
        };
        let Ok((place, (stream, _))) = timeout(GLANCE, next).await else {
            continue;
        };
        let service = TowerToHyperService::new(app.clone());
        let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            match timeout(AGE, connection).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!("a connection ended: {error}"),
                Err(_) => tracing::debug!("a connection was too slow"),
            }
            drop(place);
        });
    }
    drop(listener);
    // Half a request may never become a whole one.
    let _ = timeout(LAST_PATIENCE, graceful.shutdown()).await;
}
