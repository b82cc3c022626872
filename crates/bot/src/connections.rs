//! The service's HTTP connections, with limits on their number and duration.
//!
//! Anybody can connect, so the resources that clients can hold are bounded: the number of connections, the time
//! a request may take to arrive, and, through the maximum size of a delivery, the total memory.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use perfquilt_system::process;

/// How long a request's head may take to arrive: nobody genuine is silent, and silent connections take places.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a delivery may take to arrive after its head.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of concurrent connections; further ones wait.
const MAX_CONNECTIONS: usize = 256;
/// The maximum number of concurrent connections from one address, unless it is this machine's, on which a proxy speaks
/// for everybody; further ones are closed.
const MAX_PER_PEER: usize = 32;
/// The maximum lifetime of a connection. The head and body of its single request have their own limits; this
/// one ends connections of clients that do not read the response.
const MAX_AGE: Duration = Duration::from_secs(60);
/// How long open requests may take to finish when the bot stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// How often the accept loop checks for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Serves `app` on `listener` until a signal asks to stop, then waits up to [`SHUTDOWN_TIMEOUT`] for open
/// requests.
pub(super) async fn serve(mut listener: TcpListener, app: Router) {
    let mut http = http1::Builder::new();
    // With one request per connection, shutdown cannot cut off a later request.
    http.keep_alive(false);
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT);
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let peers = Peers::default();
    let graceful = GracefulShutdown::new();
    // Connections that outlast the shutdown end with it.
    let mut open = JoinSet::new();
    while !process::interrupted() {
        let next = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            (permit, Listener::accept(&mut listener).await)
        };
        let Ok((permit, (stream, address))) = timeout(POLL_INTERVAL, next).await else {
            continue;
        };
        let Some(peer) = peers.admit(address.ip()) else {
            continue;
        };
        let service = TowerToHyperService::new(app.clone());
        let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
        while open.try_join_next().is_some() {}
        open.spawn(async move {
            match timeout(MAX_AGE, connection).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!("a connection ended: {error}"),
                Err(_) => tracing::debug!("a connection was too slow"),
            }
            drop((permit, peer));
        });
    }
    drop(listener);
    // A client may never complete its request.
    let _ = timeout(SHUTDOWN_TIMEOUT, graceful.shutdown()).await;
}

/// The number of open connections of each address.
#[derive(Debug, Clone, Default)]
struct Peers(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// An open connection of an address; dropping it makes room.
#[derive(Debug)]
struct Peer {
    peers: Peers,
    address: IpAddr,
}

impl Peers {
    /// Counts a connection of `address`; returns `None` if it has too many.
    fn admit(&self, address: IpAddr) -> Option<Peer> {
        let address = address.to_canonical();
        let mut counts = self.0.lock().ok()?;
        let count = counts.entry(address).or_default();
        if *count >= MAX_PER_PEER && !address.is_loopback() {
            return None;
        }
        *count += 1;
        Some(Peer {
            peers: self.clone(),
            address,
        })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let Ok(mut counts) = self.peers.0.lock() else {
            return;
        };
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_takes_the_places_of_others() {
        let peers = Peers::default();
        let other: IpAddr = "192.0.2.7".parse().unwrap();
        let held: Vec<_> = (0..MAX_PER_PEER).map(|_| peers.admit(other)).collect();
        assert!(held.iter().all(Option::is_some));
        // The same address in the other notation is the same peer.
        assert!(peers.admit("::ffff:192.0.2.7".parse().unwrap()).is_none());
        assert!(peers.admit("192.0.2.8".parse().unwrap()).is_some());
        let proxy: Vec<_> = (0..MAX_CONNECTIONS)
            .map(|_| peers.admit("127.0.0.1".parse().unwrap()))
            .collect();
        assert!(proxy.iter().all(Option::is_some));
        drop((held, proxy));
        assert!(peers.admit(other).is_some());
        assert!(peers.0.lock().unwrap().is_empty());
    }
}
