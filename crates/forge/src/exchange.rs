//! Requests to a forge: octocrab on this process's network runtime. Its service sends one request, and the layer
//! [`Retries`] around it repeats what may be repeated.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use octocrab::{AuthState, OctoBody, Octocrab, OctocrabBuilder};
use rustls::{ClientConfig, RootCertStore};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tower::retry::RetryLayer;

use super::Secret;
use super::protocol::Protocol;
use super::refusal::RefusedResponse;
use super::retry::{HttpResponse, NoResponse, ResponseInfo, Retries, RetryPolicy};
use perfquilt_model::error::{Error, Result};
use perfquilt_system::process;

/// The maximum size of a response, in MiB. A page has a hundred comments at most, of some 64 KiB each.
const MAX_RESPONSE_MIB: usize = 64;
/// How often a pending request checks for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A request: its method, its URL, its headers, and JSON if it has a body.
pub(super) type HttpRequest = http::Request<String>;
type HttpClient = legacy::Client<HttpsConnector<HttpConnector>, OctoBody>;

/// The status and body of a response, and its headers that matter for messages.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) info: ResponseInfo,
    pub(super) body: String,
    /// The `Date` header, in seconds since 1970.
    pub(super) date: Option<i64>,
    /// The target of a redirect.
    pub(super) location: Option<String>,
    /// The permissions that the request needs, as the forge names them for this kind of token; `None` if the token has them.
    pub(super) needed: Option<String>,
    /// Whether `Link` tells that there is a next page.
    pub(super) has_next: bool,
}

/// Returns the runtime of this process's network traffic.
pub fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(running) = RUNTIME.get() {
        return Ok(running);
    }
    let started = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| {
            Error::system_refused(format!("cannot start the network runtime: {error}"))
        })?;
    Ok(RUNTIME.get_or_init(|| started))
}

/// Waits for `future` on the runtime, unless a signal asks to stop.
pub(super) fn wait<T>(future: impl Future<Output = T>) -> Result<T> {
    runtime()?.block_on(async {
        let mut future = pin!(future);
        loop {
            process::check_interrupted()?;
            if let Ok(done) = timeout(POLL_INTERVAL, future.as_mut()).await {
                return Ok(done);
            }
        }
    })
}

/// Returns a client for the API `api`, which follows no redirect: a token must not reach another server. Sends nothing yet.
pub(super) fn connect(
    protocol: &'static Protocol,
    api: &str,
    policy: &RetryPolicy,
) -> Result<Octocrab> {
    let tls =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::system_refused(format!("cannot set up TLS: {error}")))?
            .with_root_certificates(roots(api)?)
            .with_no_client_auth();
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .build();
    let client: HttpClient = legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .build(connector);
    let limit = policy.response_timeout;
    let exchange = tower::service_fn(move |request: http::Request<OctoBody>| {
        let client = client.clone();
        async move {
            timeout(limit, respond(protocol, &client, request))
                .await
                .unwrap_or_else(|_| {
                    let limit = limit.as_secs_f64();
                    Err(NoResponse::after_sending(format!(
                        "no response within {limit} s"
                    )))
                })
        }
    });
    let retries = Retries::new(*policy, host(api));
    // octocrab starts a task.
    let _context = runtime()?.enter();
    let Ok(octocrab) = OctocrabBuilder::new_empty()
        .with_service(exchange)
        .with_layer(&RetryLayer::new(retries))
        .with_auth(AuthState::None)
        .build();
    Ok(octocrab)
}

/// Returns the host of the API `api`, for messages.
pub(super) fn host(api: &str) -> &str {
    api.split("://").nth(1).unwrap_or(api)
}

/// Returns the certificates that this system trusts, if `api` needs any.
fn roots(api: &str) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    if api.starts_with("https:") {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            let errors = found.errors.iter();
            let errors: String = errors.map(|error| format!(": {error}")).collect();
            return Err(Error::forge_unreachable(format!(
                "cannot talk to {api}: this system has no root certificates{errors}"
            ))
            .hint("install the root certificates with `apt-get install ca-certificates`"));
        }
    }
    Ok(roots)
}

/// Returns a request with the headers that the forge demands.
pub(super) fn request(
    protocol: &Protocol,
    method: http::Method,
    url: &str,
    token: &Secret,
    body: Option<String>,
) -> http::Result<HttpRequest> {
    let (name, prefix) = protocol.token;
    let mut authorization = HeaderValue::try_from(format!("{prefix}{}", token.expose()))?;
    authorization.set_sensitive(true);
    let mut request = http::Request::builder()
        .method(method)
        .uri(url)
        .header(USER_AGENT, concat!("perfquilt/", env!("CARGO_PKG_VERSION")))
        .header(name, authorization);
    for (name, value) in protocol.headers {
        request = request.header(*name, *value);
    }
    if body.is_some() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    request.body(body.unwrap_or_default())
}

/// Sends a request, with retries, and returns the last response.
pub(super) async fn exchange(
    protocol: &Protocol,
    octocrab: &Octocrab,
    request: HttpRequest,
) -> Result<Response, NoResponse> {
    let (parts, body) = octocrab.execute(request).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    let info = parts.extensions.get().copied().unwrap_or_default();
    Ok(Response::new(
        protocol,
        info,
        &parts.headers,
        String::from_utf8_lossy(&body).into_owned(),
    ))
}

/// Sends a request once.
async fn respond(
    protocol: &Protocol,
    client: &HttpClient,
    request: http::Request<OctoBody>,
) -> Result<HttpResponse, NoResponse> {
    let sent = client.request(request).await;
    let (mut parts, body) = sent
        .map_err(|error| NoResponse {
            unsent: error.is_connect(),
            distrusted: is_distrusted(&error),
            ..NoResponse::after_sending(cause(&error))
        })?
        .into_parts();
    let body = Limited::new(body, MAX_RESPONSE_MIB << 20);
    let body = body.collect().await.map_err(|error| {
        NoResponse::after_sending(if error.is::<LengthLimitError>() {
            format!("the response is larger than {MAX_RESPONSE_MIB} MiB")
        } else {
            cause(error.as_ref())
        })
    })?;
    let body = body.to_bytes();
    let info = ResponseInfo::new(
        protocol,
        parts.status.as_u16(),
        &parts.headers,
        &String::from_utf8_lossy(&body),
    );
    parts.extensions.insert(info);
    Ok(HttpResponse::from_parts(parts, Full::new(body)))
}

/// Returns the innermost cause of an error, which names the address or the fault.
fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Returns whether the cause of an error is that the server's certificate is not trusted: no retry changes that.
fn is_distrusted(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| {
        match error.downcast_ref::<std::io::Error>() {
            // The error inside is none of its sources.
            Some(error) => error.get_ref().map(|inner| inner as _),
            None => error.source(),
        }
    });
    let faults = causes.find_map(|cause| cause.downcast_ref());
    matches!(faults, Some(rustls::Error::InvalidCertificate(_)))
}

impl NoResponse {
    fn after_sending(why: String) -> Self {
        NoResponse {
            why,
            unsent: false,
            distrusted: false,
            attempts: 1,
        }
    }
}

impl std::fmt::Display for NoResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for NoResponse {}

impl From<octocrab::Error> for NoResponse {
    fn from(error: octocrab::Error) -> Self {
        match error {
            octocrab::Error::Service { source, .. } => match source.downcast::<NoResponse>() {
                Ok(failure) => *failure,
                Err(other) => NoResponse::after_sending(cause(other.as_ref())),
            },
            other => NoResponse::after_sending(cause(&other)),
        }
    }
}

pub(super) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

impl ResponseInfo {
    fn new(protocol: &Protocol, status: u16, headers: &HeaderMap, body: &str) -> Self {
        let header = |name: &str| header(headers, name);
        let number = |name: &str| header(name)?.trim().parse::<u64>().ok();
        let date = header("date").and_then(seconds);
        let remaining = number(protocol.limit.0);
        ResponseInfo {
            status: Some(status),
            retry_after: header("retry-after").and_then(|text| retry_after(text, date)),
            remaining,
            reset_in: number(protocol.limit.1).map(|reset| {
                let now = date.unwrap_or_else(|| jiff::Timestamp::now().as_second());
                reset.saturating_sub(u64::try_from(now).unwrap_or(0))
            }),
            refusal: (400..500).contains(&status).then(|| {
                (protocol.refusal)(&RefusedResponse {
                    status,
                    body,
                    has_retry_after: header("retry-after").is_some(),
                    remaining,
                    demands_sso: headers.keys().any(|name| name.as_str().ends_with("-sso")),
                })
            }),
            too_long: None,
        }
    }
}

impl Response {
    fn new(protocol: &Protocol, info: ResponseInfo, headers: &HeaderMap, body: String) -> Self {
        let header = |name: &str| header(headers, name);
        let needed = (protocol.needed)(headers, &body);
        Response {
            info,
            body,
            date: header("date").and_then(seconds),
            location: header("location").map(str::to_owned),
            needed,
            has_next: header("link").is_some_and(|link| link.contains("rel=\"next\"")),
        }
    }
}

/// Parses an HTTP `Date` (`Sun, 06 Nov 1994 08:49:37 GMT`) into seconds since 1970.
fn seconds(date: &str) -> Option<i64> {
    let time = jiff::fmt::rfc2822::parse(date).ok()?;
    Some(time.timestamp().as_second())
}

/// Parses `Retry-After` into seconds. The header has a number of seconds, or a date, which is compared with the
/// response's own `date`.
fn retry_after(text: &str, date: Option<i64>) -> Option<u64> {
    let text = text.trim();
    text.parse().ok().or_else(|| {
        let now = date.unwrap_or_else(|| jiff::Timestamp::now().as_second());
        u64::try_from(seconds(text)?.saturating_sub(now).max(0)).ok()
    })
}

/// Waits for `time`, unless a signal asks to stop.
pub(super) fn sleep(time: Duration) -> Result<()> {
    wait(async { tokio::time::sleep(time).await })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::github::PROTOCOL;
    use crate::refusal::Refusal;
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    /// Sends a request to a server that does `serve`; returns the lines of the request and the response.
    fn exchanged(
        body: Option<&str>,
        serve: impl FnOnce(&mut TcpStream) + Send + 'static,
    ) -> (Vec<String>, Result<Response, NoResponse>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let api = format!("http://{}", listener.local_addr().unwrap());
        let server = thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            let lines = BufReader::new(connection.try_clone().unwrap()).lines();
            let lines = lines.map_while(std::io::Result::ok);
            let lines: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            serve(&mut connection);
            lines
        });
        let method = if body.is_some() {
            http::Method::PATCH
        } else {
            http::Method::GET
        };
        let (token, body) = (Secret::new("ghp_secret"), body.map(str::to_owned));
        let request = request(&PROTOCOL, method, &format!("{api}/user"), &token, body).unwrap();
        let policy = RetryPolicy {
            max_total_wait: Duration::ZERO,
            ..RetryPolicy::default()
        };
        let octocrab = connect(&PROTOCOL, &api, &policy).unwrap();
        let response = wait(exchange(&PROTOCOL, &octocrab, request)).unwrap();
        (server.join().unwrap(), response)
    }

    #[test]
    fn a_request_has_what_the_forge_demands() {
        let serve = |connection: &mut TcpStream| {
            let head = "HTTP/1.1 403 Forbidden\r\ncontent-length: 4\r\nretry-after: 7\r\n\r\n";
            connection.write_all(head.as_bytes()).unwrap();
            connection.write_all(b"no \xff").unwrap();
        };
        let (lines, response) = exchanged(Some("{}"), serve);
        assert_eq!(lines[0], "PATCH /user HTTP/1.1");
        for header in [
            "accept: application/vnd.github+json",
            "authorization: Bearer ghp_secret",
            "content-type: application/json",
            "content-length: 2",
            concat!("user-agent: perfquilt/", env!("CARGO_PKG_VERSION")),
            "x-github-api-version: 2022-11-28",
        ] {
            let sent = |line: &&String| line.eq_ignore_ascii_case(header);
            assert_eq!(lines.iter().filter(sent).count(), 1, "{header}: {lines:?}");
        }
        let response = response.unwrap();
        assert_eq!(response.info.status, Some(403));
        assert_eq!(response.info.retry_after, Some(7));
        assert_eq!(response.info.refusal, Some(Refusal::Limited));
        // Not all of the network speaks UTF-8.
        assert!(response.body.starts_with("no "), "{}", response.body);
        assert!(
            !exchanged(None, |_| {})
                .0
                .iter()
                .any(|line| line.starts_with("content-"))
        );
    }

    #[test]
    fn a_response_that_ends_early_or_never_is_a_failure() {
        let failed = |serve: fn(&mut TcpStream)| exchanged(None, serve).1.unwrap_err().why;
        let why = failed(|_| {});
        assert!(why.contains("connection closed"), "{why}");
        let early = |connection: &mut TcpStream| {
            let start = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n{";
            connection.write_all(start).unwrap();
        };
        let why = failed(early);
        assert!(why.contains("end of file"), "{why}");
        let endless = |connection: &mut TcpStream| {
            connection.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            while connection.write_all(&[b' '; 1 << 16]).is_ok() {}
        };
        let why = failed(endless);
        assert!(why.contains("larger"), "{why}");
        let no_http = failed(|connection| connection.write_all(b"SSH-2.0-x\r\n\r\n").unwrap());
        assert!(!no_http.is_empty());
    }

    /// Waiting does not make a certificate trusted.
    #[test]
    fn an_unknown_authority_is_no_reason_to_try_again() {
        use rustls::ServerConnection;
        use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let api = format!("https://{}", listener.local_addr().unwrap());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = include_bytes!("../../../tests/fixtures/github/tls/cert.pem");
        let key = include_bytes!("../../../tests/fixtures/github/tls/key.pem");
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(chain).unwrap()],
                PrivateKeyDer::from_pem_slice(key).unwrap(),
            )
            .unwrap();
        let server = thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            let mut tls = ServerConnection::new(Arc::new(config)).unwrap();
            tls.complete_io(&mut connection).unwrap_err()
        });
        let begun = std::time::Instant::now();
        let request = request(
            &PROTOCOL,
            http::Method::GET,
            &format!("{api}/user"),
            &Secret::new("x"),
            None,
        );
        let octocrab = connect(&PROTOCOL, &api, &RetryPolicy::default()).unwrap();
        let failure = wait(exchange(&PROTOCOL, &octocrab, request.unwrap()))
            .unwrap()
            .unwrap_err();
        assert!(failure.distrusted, "{failure}");
        assert!(failure.why.contains("UnknownIssuer"), "{failure}");
        assert!(begun.elapsed() < Duration::from_secs(20));
        let told = server.join().unwrap().to_string();
        assert!(told.contains("alert"), "{told}");
    }

    #[test]
    fn a_token_that_no_header_can_have_is_not_shown() {
        let error = request(
            &PROTOCOL,
            http::Method::GET,
            "http://127.0.0.1/",
            &Secret::new("a\nb"),
            None,
        );
        assert!(!error.unwrap_err().to_string().contains("a\nb"));
    }

    #[test]
    fn dates() {
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(seconds("soon"), None);
        let date = Some(784_111_777);
        assert_eq!(retry_after(" 7 ", date), Some(7));
        let later = "Sun, 06 Nov 1994 08:50:07 GMT";
        assert_eq!(retry_after(later, date), Some(30));
        assert_eq!(retry_after(later, None), Some(0));
        assert_eq!(retry_after("soon", date), None);
    }
}
