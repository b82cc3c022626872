//! The service: takes webhooks, and shows what it does.
//!
//! A delivery is answered once it is in the queue's file. One thread owns that file's writing and takes all
//! deliveries that wait at the same time in one transaction, so that a burst costs one write to the disk.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http_body_util::BodyExt as _;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::connections;
use super::metrics::{Metrics, Received};
use super::page;
use super::webhook::{self, Heard};
use perfquilt_config::Config;
use perfquilt_forge::{Repository, Secret};
use perfquilt_model::error::{Error, Result};
use perfquilt_store::queue::{Change, Queue};

/// Bytes of a delivery that are taken. GitHub sends up to 25 MB, but of pull requests and comments, whose texts
/// have 65,536 characters each, far less.
const LARGEST: usize = 2 << 20;
/// How long a request's head may take to arrive, and a delivery after it.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Deliveries that may wait for the queue's file.
const BACKLOG: usize = 1024;
/// Deliveries in one transaction.
const BATCH: usize = 256;
/// The shortest secret that cannot be guessed.
const SHORTEST_SECRET: usize = 16;
/// Jobs that have ended and are shown.
pub(super) const PAST: usize = 20;

/// What the service is to do.
#[derive(Debug, Clone)]
pub struct Service {
    /// Whose pull requests.
    pub repository: Repository,
    /// What webhooks are signed with.
    pub secret: Secret,
    /// The configuration: who may command what.
    pub config: Config,
    /// Where the queue is.
    pub queue: std::path::PathBuf,
}

/// A delivery on its way into the queue's file.
struct Waiting {
    delivery: (String, Vec<Change>),
    answer: oneshot::Sender<Option<bool>>,
}

struct Shared {
    service: Service,
    metrics: Metrics,
    taker: mpsc::SyncSender<Waiting>,
    progress: Arc<dyn Fn() -> String + Send + Sync>,
}

/// A place that is listened at.
#[derive(Debug)]
pub struct Door {
    runtime: Runtime,
    listener: TcpListener,
}

impl Door {
    /// Where it is; of a port that was left to the system, which one it became.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the system does not say.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(|e| failed(&e))
    }
}

/// Listens at `address`; whoever connects is answered once [`serve`] is called.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when the secret of `service` is too short, or the address cannot
/// be listened at.
pub fn listen(service: &Service, address: SocketAddr) -> Result<Door> {
    if service.secret.expose().len() < SHORTEST_SECRET {
        return Err(Error::usage(format!(
            "the webhook's secret has less than {SHORTEST_SECRET} characters"
        ))
        .hint(
            "`openssl rand -hex 32` makes one; GitHub and PERFQUILT_WEBHOOK_SECRET get the same",
        ));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::internal(format!("cannot start the network's loop: {error}")))?;
    let listener = runtime
        .block_on(TcpListener::bind(address))
        .map_err(|error| {
            Error::usage(format!("cannot listen at {address}: {error}"))
                .hint("`--listen ADDRESS:PORT` names another place")
        })?;
    Ok(Door { runtime, listener })
}

fn failed(error: &std::io::Error) -> Error {
    Error::internal(format!("cannot serve: {error}"))
}

/// Serves who comes to `door` until a signal asks to stop; then what is on
/// its way is finished, for some seconds. `progress` says what the running job does at the moment.
///
/// # Errors
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the queue cannot be opened.
pub fn serve(
    service: Service,
    Door { runtime, listener }: Door,
    progress: Arc<dyn Fn() -> String + Send + Sync>,
) -> Result<()> {
    let queue = Queue::open(&service.queue)?;
    let (taker, deliveries) = mpsc::sync_channel(BACKLOG);
    let writer = std::thread::spawn(move || take(&queue, &deliveries));
    let shared = Arc::new(Shared {
        service,
        metrics: Metrics::default(),
        taker,
        progress,
    });
    runtime.block_on(async {
        let app = Router::new()
            .route("/", get(status_page))
            .route("/status.json", get(status_json))
            .route("/health", get(health))
            .route("/metrics", get(metrics))
            .route("/webhook", post(deliver))
            .with_state(Arc::clone(&shared));
        connections::serve(listener, app).await;
    });
    drop(runtime);
    drop(shared);
    // The channel is closed: the thread takes what is left and ends.
    let _ = writer.join();
    Ok(())
}

/// Takes deliveries into the queue's file until nobody can bring any more.
fn take(queue: &Queue, deliveries: &mpsc::Receiver<Waiting>) {
    while let Ok(first) = deliveries.recv() {
        let mut batch = vec![first];
        batch.extend(deliveries.try_iter().take(BATCH - 1));
        let (taken, answers): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .map(|one| (one.delivery, one.answer))
            .unzip();
        let results = match queue.take_all(&taken, now()) {
            Ok(new) => new.into_iter().map(Some).collect(),
            Err(error) => {
                tracing::error!("{error}");
                vec![None; answers.len()]
            }
        };
        for (answer, result) in answers.into_iter().zip(results) {
            // Whoever sent it may have gone; it is in the queue all the same.
            let _ = answer.send(result);
        }
    }
}

/// Seconds since 1970.
pub(super) fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

async fn deliver(State(shared): State<Arc<Shared>>, request: Request<Body>) -> Response {
    let began = Instant::now();
    let (heard, response) = delivered(&shared, request).await;
    shared.metrics.delivery(heard, began.elapsed());
    response
}

async fn delivered(shared: &Shared, request: Request<Body>) -> (Received, Response) {
    let (parts, body) = request.into_parts();
    let text = |name: &str| header_text(&parts.headers, name);
    let answer = |heard, status: StatusCode, words: &str| {
        (heard, (status, words.to_owned()).into_response())
    };
    let (Some(event), Some(id), Some(signature)) = (
        text("x-github-event"),
        text("x-github-delivery"),
        text("x-hub-signature-256"),
    ) else {
        return answer(
            Received::Forged,
            StatusCode::UNAUTHORIZED,
            "not a signed delivery of GitHub\n",
        );
    };
    let body = match tokio::time::timeout(PATIENCE, whole(body)).await {
        Ok(Ok(Some(body))) => body,
        Ok(Ok(None)) => {
            return answer(
                Received::Malformed,
                StatusCode::PAYLOAD_TOO_LARGE,
                "too large\n",
            );
        }
        Ok(Err(_)) => {
            return answer(Received::Malformed, StatusCode::BAD_REQUEST, "cut off\n");
        }
        Err(_) => {
            return answer(
                Received::Malformed,
                StatusCode::REQUEST_TIMEOUT,
                "too slow\n",
            );
        }
    };
    if !webhook::is_genuine(&shared.service.secret, &body, &signature) {
        return answer(
            Received::Forged,
            StatusCode::UNAUTHORIZED,
            "the signature is wrong\n",
        );
    }
    if id.len() > 100 || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return answer(
            Received::Malformed,
            StatusCode::BAD_REQUEST,
            "no id of a delivery\n",
        );
    }
    let service = &shared.service;
    let changes = match webhook::understand(&event, &body, &service.repository, &service.config) {
        Heard::Nothing => return answer(Received::Ignored, StatusCode::OK, "nothing to do\n"),
        Heard::Foreign => {
            return answer(
                Received::Foreign,
                StatusCode::FORBIDDEN,
                "another repository's\n",
            );
        }
        Heard::Malformed(why) => {
            return answer(
                Received::Malformed,
                StatusCode::BAD_REQUEST,
                &format!("{why}\n"),
            );
        }
        Heard::Changes(changes) => changes,
    };
    let (sender, receiver) = oneshot::channel();
    let waiting = Waiting {
        delivery: (id, changes),
        answer: sender,
    };
    if shared.taker.try_send(waiting).is_err() {
        return answer(
            Received::Refused,
            StatusCode::SERVICE_UNAVAILABLE,
            "too many at once\n",
        );
    }
    match receiver.await {
        Ok(Some(true)) => answer(Received::Accepted, StatusCode::ACCEPTED, "accepted\n"),
        Ok(Some(false)) => answer(Received::Duplicate, StatusCode::OK, "known already\n"),
        _ => answer(
            Received::Refused,
            StatusCode::INTERNAL_SERVER_ERROR,
            "cannot be stored\n",
        ),
    }
}

/// The body; `None` when it is too large. Then the rest is read and forgotten: a sender whose connection is
/// closed while it writes does not get to read why.
async fn whole(mut body: Body) -> std::result::Result<Option<Vec<u8>>, axum::Error> {
    let mut bytes = Vec::new();
    let mut length = 0usize;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        length = length.saturating_add(data.len());
        if length <= LARGEST {
            bytes.extend_from_slice(&data)
        } else {
            bytes = Vec::new()
        }
    }
    Ok((length <= LARGEST).then_some(bytes))
}

fn header_text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

async fn health(State(shared): State<Arc<Shared>>) -> Response {
    match blocking(move || Queue::open(&shared.service.queue)?.counts()).await {
        Ok(_) => (StatusCode::OK, "ok\n").into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
    }
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    let inner = Arc::clone(&shared);
    match blocking(move || Queue::open(&inner.service.queue)?.counts()).await {
        Ok(counts) => {
            let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
            (kind, shared.metrics.text(&counts)).into_response()
        }
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
    }
}

async fn snapshot(shared: &Arc<Shared>) -> Result<page::Snapshot> {
    let inner = Arc::clone(shared);
    let (open, past) =
        blocking(move || Queue::open(&inner.service.queue)?.list(PAST, now())).await?;
    Ok(page::Snapshot {
        repository: shared.service.repository.to_string(),
        now: now(),
        progress: (shared.progress)(),
        open,
        past,
    })
}

async fn status_page(State(shared): State<Arc<Shared>>) -> Response {
    match snapshot(&shared).await {
        Ok(snapshot) => {
            let headers = [
                (header::CONTENT_TYPE, "text/html; charset=utf-8"),
                (
                    header::CONTENT_SECURITY_POLICY,
                    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
                ),
                (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
                (header::CACHE_CONTROL, "no-store"),
            ];
            (headers, page::html(&snapshot)).into_response()
        }
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
    }
}

async fn status_json(State(shared): State<Arc<Shared>>) -> Response {
    match snapshot(&shared).await {
        Ok(snapshot) => {
            let kind = [(header::CONTENT_TYPE, "application/json")];
            (kind, page::json(&snapshot)).into_response()
        }
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
    }
}

/// Does what reads a file where it does not keep deliveries waiting.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(Error::internal("the queue cannot be read")))
}
