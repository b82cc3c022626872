//! Sends single requests to a forge, with retries and error messages.

use std::time::Duration;

use http::Method;
use octocrab::Octocrab;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::exchange::{self, HttpRequest, Response, exchange};
use super::protocol::Protocol;
use super::refusal::{Problem, Refusal};
use super::retry::{self, Purpose, ResponseInfo, RetryDecision, RetryPolicy, jitter};
use super::{Repository, Secret};
use perfquilt_model::error::{Error, Result};

/// Sends requests to a forge's API for one repository, without a session.
#[derive(Debug, Clone)]
pub(super) struct Transport {
    pub(super) protocol: &'static Protocol,
    pub(super) repository: Repository,
    /// The URL of the API.
    pub(super) api: String,
    policy: RetryPolicy,
    octocrab: Octocrab,
}

/// Why a request failed.
#[derive(Debug)]
pub(super) enum RequestError {
    /// The forge refused the request with this status for this cause; it had no effect.
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
    /// Whether it is retried when it may have taken effect.
    pub repeatable: bool,
}

impl Request<'_> {
    /// Makes a POST repeatable, because it is idempotent.
    pub(super) fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self
    }
}

impl Transport {
    /// Connects to nothing yet.
    pub(super) fn new(
        protocol: &'static Protocol,
        repository: Repository,
        api: String,
        policy: RetryPolicy,
    ) -> Result<Self> {
        let octocrab = exchange::connect(protocol, &api, &policy)?;
        Ok(Transport {
            protocol,
            repository,
            api,
            policy,
            octocrab,
        })
    }

    /// Returns a path below the repository's API path.
    pub(super) fn path(&self, rest: &str) -> String {
        format!("{}/{rest}", (self.protocol.repository)(&self.repository))
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

    /// Sends a request, with retries, and returns a successful response.
    pub(super) fn send(
        &self,
        secret: &Secret,
        request: &Request<'_>,
    ) -> Result<Response, RequestError> {
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
        let sent = exchange::wait(exchange(self.protocol, &self.octocrab, http))
            .map_err(RequestError::Other)?;
        let single = !request.repeatable;
        match sent {
            Ok(response) => {
                let (info, status) = (response.info, response.info.status.unwrap_or(0));
                let failed = |why: &str| self.no_response_error(request, why);
                if let Some(wait) = info.too_long {
                    let minutes = wait.as_secs().div_ceil(60);
                    return Err(RequestError::Other(
                        failed(&format!("it answered {status}")).hint(format!(
                            "{}'s limit on requests is used up; try again in {minutes} min",
                            self.protocol.name
                        )),
                    ));
                }
                if single && status >= 500 {
                    let error = failed(&format!("it answered {status}"));
                    return Err(RequestError::Uncertain(error, info));
                }
                Ok(response)
            }
            Err(failure) => {
                let why = secret.scrub(&failure.why);
                if failure.distrusted {
                    let error = self.no_response_error(request, &why);
                    let hint = "if its certificate is of your own authority, SSL_CERT_FILE names the file with that authority's";
                    return Err(RequestError::Other(error.hint(hint)));
                }
                Err(if single && !failure.unsent {
                    let error = self.no_response_error(request, &why);
                    RequestError::Uncertain(error, ResponseInfo::default())
                } else {
                    let why = format!("{why}, after {} attempts", failure.attempts);
                    RequestError::Other(self.no_response_error(request, &why))
                })
            }
        }
    }

    fn http(&self, secret: &Secret, request: &Request<'_>) -> Result<HttpRequest> {
        let url = format!("{}{}", self.api, request.path);
        let body = request.body.as_ref().map(Value::to_string);
        let mut http = exchange::request(self.protocol, request.method.clone(), &url, secret, body)
            .map_err(|error| {
                let why = secret.scrub(&error.to_string());
                Error::forge_unreachable(format!("cannot {}: {why}", request.purpose))
            })?;
        http.extensions_mut().insert(Purpose {
            words: request.purpose.to_owned(),
            repeatable: request.repeatable,
        });
        Ok(http)
    }

    pub(super) fn check_status(
        &self,
        request: &Request<'_>,
        response: Response,
        secret: &Secret,
    ) -> Result<Response, RequestError> {
        let status = response.info.status.unwrap_or(0);
        if (200..300).contains(&status) {
            return Ok(response);
        }
        let said: Problem = serde_json::from_str(&response.body).unwrap_or_default();
        let said = secret.scrub(&said.text());
        let mut error = Error::forge_refused(format!(
            "cannot {}: {} answered {status}{}",
            request.purpose,
            exchange::host(&self.api),
            if said.is_empty() {
                String::new()
            } else {
                format!(", {said}")
            }
        ));
        let place = response.location.filter(|to| !to.is_empty());
        let place = place.map_or(String::new(), |to| secret.scrub(&to));
        let refusal = response.info.refusal.unwrap_or_default();
        let repository = &self.repository;
        error = match status {
            300..=399 if place.contains("/login") => error.hint(self.protocol.no_api),
            301 | 302 | 307 | 308 => error.hint(format!(
                "{repository} was moved ({place}): use its new name"
            )),
            401 => error.hint("the token is wrong, expired or revoked: create a new one"),
            403 | 404 if said.is_empty() && is_page(&response.body) => error.hint(self.protocol.no_api),
            _ if let Some(hint) = refusal.hint(repository) => error.hint(hint),
            403 | 404 if let Some(needed) = response.needed => error.hint(format!(
                "the token needs `{needed}` for {repository}, which its owner grants in its settings"
            )),
            403 if request.method != Method::GET => error.hint(format!(
                "the token needs {} for this repository, unless {} names another cause",
                self.protocol.permissions, self.protocol.name
            )),
            403 | 404 => error.hint(format!(
                "check that {repository} exists and that the token can read it"
            )),
            500.. => error.transient(),
            _ => error,
        };
        Err(match status {
            300..=499 => RequestError::Refused(status, refusal, error),
            _ => RequestError::Other(error),
        })
    }

    /// Parses the body of a successful response.
    pub(super) fn parse<T: DeserializeOwned>(
        &self,
        request: &Request<'_>,
        text: &str,
    ) -> Result<T> {
        serde_json::from_str(text).map_err(|error| {
            let purpose = request.purpose;
            if is_page(text) {
                return Error::forge_answer(format!(
                    "cannot {purpose}: the response is a web page"
                ))
                .hint(self.protocol.no_api);
            }
            Error::forge_answer(format!(
                "cannot {purpose}: the response cannot be read: {error}"
            ))
            .hint("run the same command again; it never posts twice")
        })
    }

    fn no_response_error(&self, request: &Request<'_>, why: &str) -> Error {
        Error::forge_unreachable(format!(
            "cannot {}: {}: {why}",
            request.purpose,
            exchange::host(&self.api)
        ))
        .hint("run the same command again; it never posts twice")
        .transient()
    }
}

fn request(method: Method, purpose: &str, path: String, body: Option<Value>) -> Request<'_> {
    Request {
        purpose,
        repeatable: method != Method::POST,
        method,
        path,
        body,
    }
}

pub(super) fn get(purpose: &str, path: String) -> Request<'_> {
    request(Method::GET, purpose, path, None)
}

pub(super) fn post(purpose: &str, path: String, body: Value) -> Request<'_> {
    request(Method::POST, purpose, path, Some(body))
}

pub(super) fn put(purpose: &str, path: String, body: Value) -> Request<'_> {
    request(Method::PUT, purpose, path, Some(body))
}

pub(super) fn patch(purpose: &str, path: String, body: Value) -> Request<'_> {
    request(Method::PATCH, purpose, path, Some(body))
}

pub(super) fn delete(purpose: &str, path: String) -> Request<'_> {
    request(Method::DELETE, purpose, path, None)
}

/// Returns `None` where somebody has removed what a request is about.
pub(super) fn unless_gone<T>(sent: Result<T, RequestError>) -> Result<Option<T>> {
    match sent {
        Err(RequestError::Refused(404 | 410, ..)) => Ok(None),
        sent => Ok(Some(sent?)),
    }
}

/// Returns whether a response is a web page, as login pages and proxies send.
fn is_page(text: &str) -> bool {
    text.trim_start().starts_with('<')
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
