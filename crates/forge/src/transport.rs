//! Sends single requests to GitHub, with retries and error messages.

use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::{Agent, http};

use super::exchange::{self, HttpRequest, Response, exchange};
use super::refusal::Refusal;
use super::retry::{self, ResponseInfo, RetryDecision, RetryPolicy};
use super::{Repository, Secret, model};
use perfquilt_model::error::{Error, Result};

/// Sends requests to GitHub's API for one repository, without a session.
#[derive(Debug, Clone)]
pub(super) struct Transport {
    pub(super) repository: Repository,
    /// The URL of the API.
    api: String,
    policy: RetryPolicy,
    agent: Agent,
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

impl Transport {
    /// Connects to nothing yet.
    pub(super) fn new(repository: Repository, api: String, policy: RetryPolicy) -> Result<Self> {
        let agent = exchange::agent(&api, policy.response_timeout)?;
        Ok(Transport {
            repository,
            api,
            policy,
            agent,
        })
    }

    /// Returns a path below the repository's API path.
    pub(super) fn path(&self, rest: &str) -> String {
        format!("/repos/{}/{rest}", self.repository)
    }

    /// Waits before the next round, after it was unknown for the `attempts`th time whether a request took effect,
    /// the last time with this `error` and `info`. Returns `false` instead of waiting too long.
    pub(super) fn pause(&self, error: &Error, info: &ResponseInfo, attempts: u32) -> Result<bool> {
        match retry::decide(&self.policy, info, attempts, Duration::ZERO, jitter()) {
            RetryDecision::Wait(wait) => {
                if attempts == 1 {
                    tracing::warn!("{error}; perfquilt looks whether it was done, and tries again");
                } else {
                    tracing::debug!("{error}; again in {wait:?}");
                }
                exchange::sleep(wait)?;
                Ok(true)
            }
            RetryDecision::GiveUp | RetryDecision::TooLong(_) => Ok(false),
        }
    }

    /// Sends a request, with retries, and returns the body of a successful response.
    pub(super) fn send(
        &self,
        secret: &Secret,
        request: &Request<'_>,
    ) -> Result<String, RequestError> {
        let response = self.send_with_retries(secret, request)?;
        self.check_status(request, response, secret)
    }

    /// Sends a request, with retries, and returns the final response.
    pub(super) fn send_with_retries(
        &self,
        secret: &Secret,
        request: &Request<'_>,
    ) -> Result<Response, RequestError> {
        let http = self.http(secret, request).map_err(RequestError::Other)?;
        let mut waited = Duration::ZERO;
        for attempts in 1.. {
            let sent = exchange(&self.agent, http.clone()).map_err(RequestError::Other)?;
            let (info, failed) = match sent {
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
                    exchange::sleep(wait).map_err(RequestError::Other)?;
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

    fn http(&self, secret: &Secret, request: &Request<'_>) -> Result<HttpRequest> {
        let method = match request.method {
            Method::Get => http::Method::GET,
            Method::Post | Method::PostIdempotent => http::Method::POST,
            Method::Patch => http::Method::PATCH,
            Method::Delete => http::Method::DELETE,
        };
        let url = format!("{}{}", self.api, request.path);
        let body = request.body.as_ref().map(Value::to_string);
        exchange::request(method, &url, secret, body).map_err(|error| {
            let why = secret.scrub(&error.to_string());
            Error::forge(format!("cannot {}: {why}", request.purpose))
        })
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
    fn paths() {
        assert_eq!(
            encode_segment("perf: no effect/ü"),
            "perf%3A%20no%20effect%2F%C3%BC"
        );
    }
}
