//! Sends single requests to GitHub, with retries and error messages.

use std::time::Duration;

use http::header::{ACCEPT, USER_AGENT};
use octocrab::Octocrab;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::refusal::{Refusal, RefusedResponse};
use super::retry::{self, ResponseInfo, RetryDecision, RetryPolicy};
use super::{Repository, Secret, model};
use perfquilt_model::error::{Error, Result};

/// Sends requests to GitHub's API for one repository, without a session.
#[derive(Debug, Clone)]
pub(super) struct Transport {
    pub(super) repository: Repository,
    /// The URL of the API.
    pub(super) api: String,
    pub(super) policy: RetryPolicy,
}

/// Why a request failed.
#[derive(Debug)]
pub(super) enum RequestError {
    /// GitHub refused the request with this status for this cause; it had no effect.
    Refused(u16, Refusal, Error),
    /// It is unknown whether the request took effect; contains the response, if there was one.
    Uncertain(Error, ResponseInfo),
    /// Any other failure.
    Other(Error),
}

impl From<RequestError> for Error {
    fn from(failure: RequestError) -> Self {
        match failure {
            RequestError::Refused(_, _, error)
            | RequestError::Uncertain(error, _)
            | RequestError::Other(error) => error,
        }
    }
}

/// An API request.
#[derive(Debug, Clone)]
pub(super) struct Request<'a> {
    /// The purpose, as the end of `cannot …` in errors.
    pub purpose: &'a str,
    pub method: Method,
    pub path: String,
    pub body: Option<Value>,
}

/// The HTTP methods in use. [`Method::Post`] is not retried when it may have taken effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Post,
    /// An idempotent POST, which is retried.
    PostIdempotent,
    Patch,
    Delete,
}

/// The status and body of a response, and its headers that matter for retries.
pub(super) struct Response {
    pub(super) info: ResponseInfo,
    body: String,
    /// The `Date` header, in seconds since 1970.
    pub(super) date: Option<i64>,
    /// The target of a redirect.
    location: Option<String>,
}

impl Transport {
    /// Returns a path below the repository's API path.
    pub(super) fn path(&self, rest: &str) -> String {
        format!("/repos/{}/{rest}", self.repository)
    }

    /// Waits before the next round, after it was unknown for the `attempts`th time whether a request took effect,
    /// the last time with this `error` and `info`. Returns `false` instead of waiting too long.
    pub(super) async fn pause(&self, error: &Error, info: &ResponseInfo, attempts: u32) -> bool {
        match retry::decide(&self.policy, info, attempts, Duration::ZERO, jitter()) {
            RetryDecision::Wait(wait) => {
                if attempts == 1 {
                    tracing::warn!("{error}; perfquilt looks whether it was done, and tries again");
                } else {
                    tracing::debug!("{error}; again in {wait:?}");
                }
                tokio::time::sleep(wait).await;
            }
            RetryDecision::GiveUp | RetryDecision::TooLong(_) => return false,
        }
        true
    }

    /// Returns a connection that authenticates with `token`.
    pub(super) fn connect(&self, token: &Secret) -> Result<Octocrab> {
        let agent = concat!("perfquilt/", env!("CARGO_PKG_VERSION"));
        let failed = |error: octocrab::Error| {
            Error::forge(format!(
                "cannot talk to {}: {}",
                self.api,
                error_text(&error, token)
            ))
            .hint("install the root certificates with `apt-get install ca-certificates`")
        };
        Octocrab::builder()
            .base_uri(self.api.as_str())
            .map_err(failed)?
            .add_header(USER_AGENT, agent.to_owned())
            .add_header(ACCEPT, "application/vnd.github+json".to_owned())
            .personal_token(token.expose().to_owned())
            .set_connect_timeout(Some(self.policy.response_timeout))
            .build()
            .map_err(failed)
    }

    /// Sends a request, with retries, and returns the body of a successful response.
    pub(super) async fn send(
        &self,
        octocrab: &Octocrab,
        secret: &Secret,
        request: &Request<'_>,
    ) -> Result<String, RequestError> {
        let response = self.send_with_retries(octocrab, secret, request).await?;
        self.check_status(request, response, secret)
    }

    /// Sends a request, with retries, and returns the final response.
    pub(super) async fn send_with_retries(
        &self,
        octocrab: &Octocrab,
        secret: &Secret,
        request: &Request<'_>,
    ) -> Result<Response, RequestError> {
        let mut waited = Duration::ZERO;
        for attempts in 1.. {
            let (info, failed) = match self.once(octocrab, request).await {
                Ok(response)
                    if response.info.status.is_some_and(|status| status < 500)
                        && response.info.refusal != Some(Refusal::Limited) =>
                {
                    return Ok(response);
                }
                Ok(response) => (response.info, Ok(response)),
                Err(why) => (ResponseInfo::default(), Err(secret.scrub(&why))),
            };
            let may_be_done = info.status.is_none_or(|status| status >= 500);
            if request.method == Method::Post && may_be_done {
                return Err(RequestError::Uncertain(
                    self.no_response_error(request, &failed),
                    info,
                ));
            }
            match retry::decide(&self.policy, &info, attempts, waited, jitter()) {
                RetryDecision::Wait(wait) => {
                    let (purpose, why) = (request.purpose, failure_text(&failed));
                    if attempts == 1 {
                        let minutes = self.policy.max_total_wait.as_secs().div_ceil(60);
                        let limit = match info.refusal {
                            Some(Refusal::Limited) => ", which limits requests",
                            _ => "",
                        };
                        let seconds = wait.as_secs_f64().ceil();
                        tracing::warn!(
                            "cannot {purpose}: {}: {why}{limit}; trying again in {seconds} s, for up to \
                             {minutes} min",
                            self.host()
                        );
                    } else {
                        tracing::debug!("cannot {purpose} ({why}), again in {wait:?}");
                    }
                    tokio::time::sleep(wait).await;
                    waited += wait;
                }
                RetryDecision::TooLong(wait) => {
                    let minutes = wait.as_secs().div_ceil(60);
                    return Err(RequestError::Other(
                        self.no_response_error(request, &failed).hint(format!(
                            "GitHub's limit on requests is used up; try again in {minutes} min"
                        )),
                    ));
                }
                RetryDecision::GiveUp => {
                    return failed.map_err(|_: String| {
                        RequestError::Other(self.no_response_error(
                            request,
                            &Err(format!("no response after {attempts} attempts")),
                        ))
                    });
                }
            }
        }
        Err(RequestError::Other(Error::internal("no more attempts")))
    }

    /// Sends a request once. The error describes the network failure.
    async fn once(&self, octocrab: &Octocrab, request: &Request<'_>) -> Result<Response, String> {
        let path = request.path.as_str();
        let body = request.body.as_ref();
        let exchange = async {
            let response = match request.method {
                Method::Get => octocrab._get(path).await,
                Method::Post | Method::PostIdempotent => octocrab._post(path, body).await,
                Method::Patch => octocrab._patch(path, body).await,
                Method::Delete => octocrab._delete(path, body).await,
            }
            .map_err(|error| chain(&error))?;
            let status = response.status().as_u16();
            let head = |name: &str| {
                response
                    .headers()
                    .get(name)?
                    .to_str()
                    .ok()
                    .map(str::to_owned)
            };
            let number = |name: &str| head(name)?.trim().parse::<u64>().ok();
            let date = head("date").and_then(|text| seconds(&text));
            let retry_after_text = head("retry-after");
            let mut info = ResponseInfo {
                status: Some(status),
                retry_after: retry_after_text
                    .as_deref()
                    .and_then(|text| retry_after(text, date)),
                remaining: number("x-ratelimit-remaining"),
                reset_in: number("x-ratelimit-reset").map(|reset| {
                    let now = date.unwrap_or_else(|| jiff::Timestamp::now().as_second());
                    reset.saturating_sub(u64::try_from(now).unwrap_or(0))
                }),
                refusal: None,
            };
            let demands_sso = head("x-github-sso").is_some();
            let location = head("location");
            let body = octocrab
                .body_to_string(response)
                .await
                .map_err(|error| chain(&error))?;
            info.refusal = (400..500).contains(&status).then(|| {
                Refusal::of(&RefusedResponse {
                    status,
                    body: &body,
                    has_retry_after: retry_after_text.is_some(),
                    remaining: info.remaining,
                    demands_sso,
                })
            });
            Ok(Response {
                info,
                body,
                date,
                location,
            })
        };
        match tokio::time::timeout(self.policy.response_timeout, exchange).await {
            Ok(result) => result,
            Err(_) => Err(format!(
                "no response within {} s",
                self.policy.response_timeout.as_secs_f64()
            )),
        }
    }

    pub(super) fn check_status(
        &self,
        request: &Request<'_>,
        response: Response,
        secret: &Secret,
    ) -> Result<String, RequestError> {
        let status = response.info.status.unwrap_or(0);
        if (200..300).contains(&status) {
            return Ok(response.body);
        }
        let said: model::Problem = serde_json::from_str(&response.body).unwrap_or_default();
        let said = secret.scrub(&said.text());
        let mut error = Error::forge(format!(
            "cannot {}: {} answered {status}{}",
            request.purpose,
            self.host(),
            if said.is_empty() {
                String::new()
            } else {
                format!(", {said}")
            }
        ));
        let place = response.location.filter(|to| !to.is_empty());
        let place = place.map_or(String::new(), |to| format!(" ({})", secret.scrub(&to)));
        let refusal = response.info.refusal.unwrap_or_default();
        error = match status {
            301 | 302 | 307 | 308 => error.hint(format!(
                "{} was moved{place}: use its new name",
                self.repository
            )),
            401 => error.hint("the token is wrong, or no longer valid"),
            _ if refusal == Refusal::Locked => error.hint(
                "the conversation is locked; anyone with write access to the repository can unlock it",
            ),
            _ if refusal == Refusal::Archived => error.hint(format!(
                "{} is archived, and nobody can write to it; its owner can unarchive it",
                self.repository
            )),
            _ if refusal == Refusal::SingleSignOn => error.hint(
                "authorise the token for the organisation's single sign-on, in the owner's settings of tokens",
            ),
            403 if request.method != Method::Get => error.hint(
                "the token needs `pull-requests: write` and `checks: write` for this repository, unless GitHub names another cause",
            ),
            403 | 404 => error.hint(format!(
                "check that {} exists and that the token can read it",
                self.repository
            )),
            500.. => error.transient(),
            _ => error,
        };
        Err(match status {
            300..=499 => RequestError::Refused(status, refusal, error),
            _ => RequestError::Other(error),
        })
    }

    fn no_response_error(&self, request: &Request<'_>, failed: &Result<Response, String>) -> Error {
        Error::forge(format!(
            "cannot {}: {}: {}",
            request.purpose,
            self.host(),
            failure_text(failed)
        ))
        .hint("run the same command again; it never posts twice")
        .transient()
    }

    fn host(&self) -> &str {
        self.api.split("://").nth(1).unwrap_or(&self.api)
    }
}

pub(super) fn get(purpose: &str, path: String) -> Request<'_> {
    Request {
        purpose,
        method: Method::Get,
        path,
        body: None,
    }
}

pub(super) fn parse<T: DeserializeOwned>(request: &Request<'_>, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| {
        Error::forge(format!(
            "cannot {}: the response cannot be read: {error}",
            request.purpose
        ))
    })
}

/// Returns a number in 0..1 that differs between processes, as jitter for waits.
fn jitter() -> f64 {
    f64::from(jiff::Timestamp::now().subsec_nanosecond().unsigned_abs() % 1000) / 1000.0
}

fn failure_text(failed: &Result<Response, String>) -> String {
    match failed {
        Ok(response) => format!("it answered {}", response.info.status.unwrap_or(0)),
        Err(why) => why.clone(),
    }
}

fn error_text(error: &octocrab::Error, secret: &Secret) -> String {
    secret.scrub(&chain(error))
}

/// Returns the causes of an error, without duplicates.
fn chain(error: &octocrab::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut next: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        if !parts.iter().any(|part| part.contains(&text)) && !text.is_empty() {
            parts.push(text.lines().next().unwrap_or_default().to_owned());
        }
        next = error.source();
    }
    parts.join(": ")
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

/// Percent-encodes `text` as one segment of a path.
pub(super) fn encode_segment(text: &str) -> String {
    const RESERVED: AsciiSet = NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'~');
    utf8_percent_encode(text, &RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_paths() {
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(seconds("soon"), None);
        let date = Some(784_111_777);
        assert_eq!(retry_after(" 7 ", date), Some(7));
        let later = "Sun, 06 Nov 1994 08:50:07 GMT";
        assert_eq!(retry_after(later, date), Some(30));
        assert_eq!(retry_after(later, None), Some(0));
        assert_eq!(retry_after("soon", date), None);
        assert_eq!(
            encode_segment("perf: no effect/ü"),
            "perf%3A%20no%20effect%2F%C3%BC"
        );
    }
}
