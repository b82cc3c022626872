//! Single exchanges with a server over HTTP.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use ureq::Agent;
use ureq::http::header::AUTHORIZATION;
use ureq::http::{self, HeaderMap, HeaderValue};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use super::Secret;
use super::refusal::{Refusal, RefusedResponse};
use super::retry::ResponseInfo;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::process;

/// The version of GitHub's API that perfquilt speaks.
const API_VERSION: &str = "2022-11-28";
/// The maximum size of a response. A page of GitHub's has a hundred comments of 65,536 characters at most.
const MAX_RESPONSE_BYTES: u64 = 64 << 20;
/// How often a pending request checks for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A request: its method, its URL, its headers, and JSON if it has a body.
pub(super) type HttpRequest = http::Request<Option<String>>;

/// The status and body of a response, and its headers that matter for retries.
pub(super) struct Response {
    pub(super) info: ResponseInfo,
    pub(super) body: String,
    /// The `Date` header, in seconds since 1970.
    pub(super) date: Option<i64>,
    /// The target of a redirect.
    pub(super) location: Option<String>,
}

/// Returns an HTTP client for the API `api`, which follows no redirect: a token must not reach another server.
pub(super) fn agent(api: &str, timeout: Duration) -> Result<Agent> {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
        .timeout_global(Some(timeout))
        .user_agent(concat!("perfquilt/", env!("CARGO_PKG_VERSION")))
        .accept("application/vnd.github+json");
    let config = if api.starts_with("https:") {
        config.tls_config(tls(api)?)
    } else {
        config
    };
    Ok(config.build().new_agent())
}

/// Returns settings by which servers are trusted as this system trusts them.
fn tls(api: &str) -> Result<TlsConfig> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let errors = found.errors.iter();
        let errors: String = errors.map(|error| format!(": {error}")).collect();
        return Err(Error::forge(format!(
            "cannot talk to {api}: this system has no root certificates{errors}"
        ))
        .hint("install the root certificates with `apt-get install ca-certificates`"));
    }
    let roots = found.certs.iter();
    let roots = roots.map(|root| Certificate::from_der(root).to_owned());
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::from(roots))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build())
}

/// Returns a request with the headers that GitHub demands.
pub(super) fn request(
    method: http::Method,
    url: &str,
    token: &Secret,
    body: Option<String>,
) -> http::Result<HttpRequest> {
    let mut authorization = HeaderValue::try_from(format!("Bearer {}", token.expose()))?;
    authorization.set_sensitive(true);
    let mut request = http::Request::builder()
        .method(method)
        .uri(url)
        .header(AUTHORIZATION, authorization)
        .header("x-github-api-version", API_VERSION);
    if body.is_some() {
        request = request.header(http::header::CONTENT_TYPE, "application/json");
    }
    request.body(body)
}

/// Sends a request and waits for its response. The inner error describes the failure of the network; the outer one is an
/// interrupt.
pub(super) fn exchange(agent: &Agent, request: HttpRequest) -> Result<Result<Response, String>> {
    process::check_interrupted()?;
    let (sender, receiver) = channel();
    let agent = agent.clone();
    // Nobody waits for the thread of an interrupted request, which ends with its timeout at the latest.
    let started = thread::Builder::new().spawn(move || sender.send(respond(&agent, request)));
    if let Err(error) = started {
        return Ok(Err(format!("cannot start a thread: {error}")));
    }
    loop {
        match receiver.recv_timeout(POLL_INTERVAL) {
            Ok(response) => return Ok(response),
            Err(RecvTimeoutError::Timeout) => process::check_interrupted()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::internal("the thread of a request ended early"));
            }
        }
    }
}

fn respond(agent: &Agent, request: HttpRequest) -> Result<Response, String> {
    let failed = |error: ureq::Error| match error {
        ureq::Error::Timeout(_) => {
            let timeout = agent.config().timeouts().global.unwrap_or_default();
            format!("no response within {} s", timeout.as_secs_f64())
        }
        // Without `io: ` before it.
        ureq::Error::Io(error) => error.to_string(),
        error => error.to_string(),
    };
    let (parts, body) = request.into_parts();
    let response = match body {
        Some(body) => agent.run(http::Request::from_parts(parts, body)),
        None => agent.run(http::Request::from_parts(parts, ())),
    };
    let (parts, mut body) = response.map_err(failed)?.into_parts();
    let body = body
        .with_config()
        .limit(MAX_RESPONSE_BYTES)
        .read_to_vec()
        .map_err(failed)?;
    let body = String::from_utf8_lossy(&body).into_owned();
    Ok(Response::new(parts.status.as_u16(), &parts.headers, body))
}

impl Response {
    fn new(status: u16, headers: &HeaderMap, body: String) -> Self {
        let header = |name: &str| headers.get(name)?.to_str().ok();
        let number = |name: &str| header(name)?.trim().parse::<u64>().ok();
        let date = header("date").and_then(seconds);
        let mut info = ResponseInfo {
            status: Some(status),
            retry_after: header("retry-after").and_then(|text| retry_after(text, date)),
            remaining: number("x-ratelimit-remaining"),
            reset_in: number("x-ratelimit-reset").map(|reset| {
                let now = date.unwrap_or_else(|| jiff::Timestamp::now().as_second());
                reset.saturating_sub(u64::try_from(now).unwrap_or(0))
            }),
            refusal: None,
        };
        info.refusal = (400..500).contains(&status).then(|| {
            Refusal::of(&RefusedResponse {
                status,
                body: &body,
                has_retry_after: header("retry-after").is_some(),
                remaining: info.remaining,
                demands_sso: header("x-github-sso").is_some(),
            })
        });
        Response {
            info,
            body,
            date,
            location: header("location").map(str::to_owned),
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
    let until = std::time::Instant::now() + time;
    loop {
        process::check_interrupted()?;
        let left = until.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(POLL_INTERVAL));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};

    /// Sends a request to a server that does `serve`; returns the lines of the request and the response.
    fn exchanged(
        body: Option<&str>,
        serve: impl FnOnce(&mut TcpStream) + Send + 'static,
    ) -> (Vec<String>, Result<Response, String>) {
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
        let request = request(method, &format!("{api}/user"), &token, body).unwrap();
        let agent = agent(&api, Duration::from_secs(20)).unwrap();
        let response = exchange(&agent, request).unwrap();
        (server.join().unwrap(), response)
    }

    #[test]
    fn a_request_has_what_github_demands() {
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
        let response = response.unwrap_or_else(|why| panic!("{why}"));
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
        let failed = |serve: fn(&mut TcpStream)| exchanged(None, serve).1.err().unwrap();
        assert_eq!(failed(|_| {}), "Peer disconnected");
        let early = |connection: &mut TcpStream| {
            let start = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n{";
            connection.write_all(start).unwrap();
        };
        assert_eq!(failed(early), "Peer disconnected");
        let endless = |connection: &mut TcpStream| {
            connection.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            while connection.write_all(&[b' '; 1 << 16]).is_ok() {}
        };
        let why = failed(endless);
        assert!(why.contains("larger"), "{why}");
        let no_http = failed(|connection| connection.write_all(b"SSH-2.0-x\r\n\r\n").unwrap());
        assert!(!no_http.is_empty());
    }

    #[test]
    fn a_token_that_no_header_can_have_is_not_shown() {
        let error = request(
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
