//! The HTTP service: receives webhooks and serves the status page and metrics.
//!
//! The service answers a delivery once the queue's file contains it. A single thread writes to that file and
//! stores all pending deliveries in one transaction, so that a burst costs one write to the disk.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http_body_util::BodyExt as _;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::connections;
use super::metrics::{self, DeliveryOutcome, Metrics};
use super::page;
use super::webhook;
use perfquilt_config::Config;
use perfquilt_forge::webhook::{DeliveryHead, Rejection};
use perfquilt_forge::{Forge, Secret};
use perfquilt_model::error::{Error, Result};
use perfquilt_store::queue::{Queue, ReceivedDelivery};

/// The maximum size of a delivery, in bytes. Forges send up to 25 MB, but deliveries about pull requests and
/// comments, whose texts have at most 65,536 characters each, are far smaller.
const MAX_DELIVERY_BYTES: usize = 2 << 20;
/// The maximum number of deliveries that wait for the queue's file.
const BACKLOG: usize = 1024;
/// The maximum number of deliveries in one transaction.
const BATCH: usize = 256;
/// The minimum length of a webhook secret, in characters.
const MIN_SECRET_LENGTH: usize = 16;
/// The number of finished jobs on the status page.
pub(super) const RECENT_JOBS: usize = 20;

/// The parameters of the HTTP service.
#[derive(Clone)]
pub struct Service {
    /// The forge of the repository whose pull requests it serves; requests to it must end within seconds.
    pub forge: Arc<dyn Forge>,
    /// The secret that the forge signs webhooks with, or sends.
    pub secret: Secret,
    /// The configuration, with the permissions for commands.
    pub config: Config,
    /// The digest of the configuration and what belongs to it, which acceptances are bound to.
    pub configuration: String,
    /// The path of the queue's file.
    pub queue: std::path::PathBuf,
}

impl Service {
    fn open_queue(&self) -> Result<Queue> {
        Queue::open(&self.queue, self.forge.repository().to_string())
    }
}

/// A delivery that waits for the queue's file.
struct PendingDelivery {
    delivery: ReceivedDelivery,
    answer: oneshot::Sender<Option<bool>>,
}

struct Shared {
    service: Service,
    metrics: Metrics,
    queue_sender: mpsc::SyncSender<PendingDelivery>,
    progress: Arc<dyn Fn() -> String + Send + Sync>,
}

/// A bound listening socket.
#[derive(Debug)]
pub struct Listener {
    runtime: &'static Runtime,
    listener: TcpListener,
}

impl Listener {
    /// Returns the bound address; when the system chose the port, with that port.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(|e| cannot_serve(&e))
    }
}

/// Binds a listening socket to `address`; connections wait until [`serve`] is called.
pub fn listen(service: &Service, address: SocketAddr) -> Result<Listener> {
    if service.secret.expose().len() < MIN_SECRET_LENGTH {
        return Err(Error::bot_settings(format!(
            "the webhook's secret has fewer than {MIN_SECRET_LENGTH} characters"
        ))
        .hint(
            "generate one with `openssl rand -hex 32` and set it at the forge and in PERFQUILT_WEBHOOK_SECRET",
        ));
    }
    let runtime = perfquilt_forge::runtime()?;
    let listener = runtime
        .block_on(TcpListener::bind(address))
        .map_err(|error| {
            Error::bot_settings(format!("cannot listen at {address}: {error}"))
                .hint("choose another address with `--listen ADDRESS:PORT`")
        })?;
    Ok(Listener { runtime, listener })
}

fn cannot_serve(error: &std::io::Error) -> Error {
    Error::system_refused(format!("cannot serve: {error}"))
}

/// Serves connections to `listener` until a signal asks to stop, then gives open requests some seconds to
/// finish. `progress` returns the progress of the running job.
pub fn serve(
    service: Service,
    Listener { runtime, listener }: Listener,
    progress: Arc<dyn Fn() -> String + Send + Sync>,
) -> Result<()> {
    let queue = service.open_queue()?;
    if let Err(error) = queue.reserve() {
        tracing::warn!("{error}");
    }
    let (queue_sender, deliveries) = mpsc::sync_channel(BACKLOG);
    let writer = std::thread::Builder::new()
        .spawn(move || store_deliveries(&queue, &deliveries))
        .map_err(|error| Error::system_refused(format!("cannot start a thread: {error}")))?;
    let shared = Arc::new(Shared {
        service,
        metrics: Metrics::new(),
        queue_sender,
        progress,
    });
    runtime.block_on(async {
        let app = Router::new()
            .route("/", get(status_page))
            .route("/status.json", get(status_json))
            .route("/health", get(health))
            .route("/metrics", get(encoded_metrics))
            .route("/webhook", post(receive_delivery))
            .with_state(Arc::clone(&shared));
        connections::serve(listener, app).await;
    });
    drop(shared);
    // With the channel closed, the thread stores the remaining deliveries and ends.
    let _ = writer.join();
    Ok(())
}

/// Stores deliveries in the queue's file until the channel is closed.
fn store_deliveries(queue: &Queue, deliveries: &mpsc::Receiver<PendingDelivery>) {
    while let Ok(first) = deliveries.recv() {
        let mut batch = vec![first];
        batch.extend(deliveries.try_iter().take(BATCH - 1));
        let (taken, answers): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .map(|one| (one.delivery, one.answer))
            .unzip();
        let results = match queue.apply_deliveries(&taken, now()) {
            Ok(new) => new.into_iter().map(Some).collect(),
            Err(error) => {
                tracing::error!("{error}");
                vec![None; answers.len()]
            }
        };
        for (answer, result) in answers.into_iter().zip(results) {
            // The client may have disconnected; the delivery is stored all the same.
            let _ = answer.send(result);
        }
    }
}

/// Returns the current time, in seconds since 1970.
pub(super) fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// Returns whether a `Content-Type` is that of a form.
fn is_form(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

async fn receive_delivery(State(shared): State<Arc<Shared>>, request: Request<Body>) -> Response {
    let began = Instant::now();
    let read = read_delivery(&shared.service, request).await;
    let (outcome, status, text) = match read {
        Ok(delivery) => store_delivery(&shared, delivery).await,
        Err(refusal) => refusal,
    };
    shared.metrics.delivery(outcome, began.elapsed());
    (status, format!("{text}\n")).into_response()
}

/// What becomes of a delivery, and the response that says so.
type DeliveryAnswer = (DeliveryOutcome, StatusCode, String);

fn answer(outcome: DeliveryOutcome, status: StatusCode, text: &str) -> DeliveryAnswer {
    (outcome, status, text.to_owned())
}

/// Reads a delivery and its signature; the error is the answer to one that is refused or has nothing to do.
async fn read_delivery(
    service: &Service,
    request: Request<Body>,
) -> std::result::Result<ReceivedDelivery, DeliveryAnswer> {
    let (parts, body) = request.into_parts();
    let text = |name: &str| Some(parts.headers.get(name)?.to_str().ok()?.to_owned());
    let forged = |text: &str| answer(DeliveryOutcome::FORGED, StatusCode::UNAUTHORIZED, text);
    let malformed = |status, text: &str| answer(DeliveryOutcome::MALFORMED, status, text);
    let ignored = answer(DeliveryOutcome::IGNORED, StatusCode::OK, "nothing to do");
    let foreign = answer(
        DeliveryOutcome::FOREIGN,
        StatusCode::FORBIDDEN,
        "another repository's",
    );
    let Some(DeliveryHead { event, id, proof }) = service.forge.delivery_head(&text) else {
        return Err(forged("not a signed delivery of the forge"));
    };
    let body = match tokio::time::timeout(connections::REQUEST_TIMEOUT, read_body(body)).await {
        Ok(Ok(Some(body))) => body,
        Ok(Ok(None)) => return Err(malformed(StatusCode::PAYLOAD_TOO_LARGE, "too large")),
        Ok(Err(_)) => return Err(malformed(StatusCode::BAD_REQUEST, "cut off")),
        Err(_) => return Err(malformed(StatusCode::REQUEST_TIMEOUT, "too slow")),
    };
    if !proof.is_valid(&service.secret, &body) {
        return Err(forged("the signature is wrong"));
    }
    // The default for new webhooks of some forges. Even the first delivery, a ping, must fail, so that the setting is seen at once.
    if text("content-type").is_some_and(|content_type| is_form(&content_type)) {
        return Err(malformed(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the delivery has the content type application/x-www-form-urlencoded: set the webhook's \
             \"Content type\" to application/json",
        ));
    }
    if id.len() > 100 || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Err(malformed(StatusCode::BAD_REQUEST, "no id of a delivery"));
    }
    // It may ask the forge.
    let interpreting = service.clone();
    let interpreted = tokio::task::spawn_blocking(move || {
        let Service {
            forge,
            config,
            configuration,
            ..
        } = interpreting;
        webhook::interpret(id, &event, &body, &*forge, &config, &configuration)
    });
    let interpreted = interpreted.await.unwrap_or_else(|_| {
        let why = "the delivery cannot be interpreted".to_owned();
        Err(Rejection::Unknown(why))
    });
    match interpreted {
        Ok(delivery) if delivery.changes.is_empty() => Err(ignored),
        Ok(delivery) => Ok(delivery),
        Err(Rejection::OtherEvent) => Err(ignored),
        Err(Rejection::OtherRepository) => Err(foreign),
        Err(Rejection::Malformed(why)) => Err(malformed(StatusCode::BAD_REQUEST, &why)),
        Err(Rejection::Unknown(why)) => {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            Err(answer(DeliveryOutcome::REFUSED, status, &why))
        }
    }
}

/// Hands a delivery to the thread that stores all of them, and waits for it.
async fn store_delivery(shared: &Shared, delivery: ReceivedDelivery) -> DeliveryAnswer {
    let (sender, receiver) = oneshot::channel();
    let pending = PendingDelivery {
        delivery,
        answer: sender,
    };
    let refused = |status, text: &str| answer(DeliveryOutcome::REFUSED, status, text);
    if shared.queue_sender.try_send(pending).is_err() {
        return refused(StatusCode::SERVICE_UNAVAILABLE, "too many at once");
    }
    match receiver.await {
        Ok(Some(true)) => answer(DeliveryOutcome::ACCEPTED, StatusCode::ACCEPTED, "accepted"),
        Ok(Some(false)) => answer(DeliveryOutcome::DUPLICATE, StatusCode::OK, "known already"),
        _ => refused(StatusCode::INTERNAL_SERVER_ERROR, "cannot be stored"),
    }
}

/// Reads the body; `None` when it is too large. Even then, the whole body is read and discarded: a client whose
/// connection closes while it writes would never read the response.
async fn read_body(mut body: Body) -> std::result::Result<Option<Vec<u8>>, axum::Error> {
    let mut bytes = Vec::new();
    let mut length = 0usize;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        length = length.saturating_add(data.len());
        if length <= MAX_DELIVERY_BYTES {
            bytes.extend_from_slice(&data)
        } else {
            bytes = Vec::new()
        }
    }
    Ok((length <= MAX_DELIVERY_BYTES).then_some(bytes))
}

async fn health(State(shared): State<Arc<Shared>>) -> Response {
    let counts = blocking(move || shared.service.open_queue()?.counts()).await;
    or_unavailable(counts.map(|_| "ok\n"))
}

async fn encoded_metrics(State(shared): State<Arc<Shared>>) -> Response {
    let text = blocking(move || {
        let jobs = shared.service.open_queue()?.counts()?;
        shared.metrics.text(&jobs)
    });
    let kind = [(header::CONTENT_TYPE, metrics::CONTENT_TYPE)];
    or_unavailable(text.await.map(|text| (kind, text)))
}

async fn snapshot(shared: &Arc<Shared>) -> Result<page::Snapshot> {
    let inner = Arc::clone(shared);
    let (open, past) =
        blocking(move || inner.service.open_queue()?.list(RECENT_JOBS, now())).await?;
    Ok(page::Snapshot {
        repository: shared.service.forge.repository().to_string(),
        now: now(),
        progress: (shared.progress)(),
        open,
        past,
    })
}

async fn status_page(State(shared): State<Arc<Shared>>, RawQuery(query): RawQuery) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    let refreshes = query.as_deref() == Some(page::REFRESHING);
    let snapshot = snapshot(&shared).await;
    or_unavailable(snapshot.map(|snapshot| (headers, page::html(&snapshot, refreshes))))
}

async fn status_json(State(shared): State<Arc<Shared>>) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    let snapshot = snapshot(&shared).await;
    or_unavailable(snapshot.map(|snapshot| (kind, page::json(&snapshot))))
}

fn or_unavailable(result: Result<impl IntoResponse>) -> Response {
    result.map_or_else(
        |error| (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
        IntoResponse::into_response,
    )
}

/// Runs `work`, which reads a file, on a thread where it does not block deliveries.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(Error::store_damaged("the queue cannot be read")))
}
