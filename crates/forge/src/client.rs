//! The client for GitHub's REST API.

use std::sync::{Mutex, MutexGuard, PoisonError};

use http::Uri;
use serde::de::DeserializeOwned;

use super::Repository;
use super::auth::Credentials;
use super::retry::{ResponseInfo, RetryPolicy};
use super::session::GitHubSession;
use super::transport::{Request, RequestError, Transport, get, parse};
use perfquilt_model::error::{Error, Result};

/// The entries of a page of a list, the most that GitHub gives.
pub(super) const PAGE: usize = 100;

/// A connection to GitHub for one repository.
pub struct Client {
    transport: Transport,
    credentials: Credentials,
    session: Mutex<Option<GitHubSession>>,
}

impl Client {
    /// Returns a client for `repository` at the API `api` ([`super::API`] or that of a GitHub Enterprise
    /// server). Sends nothing yet.
    pub fn new(
        repository: Repository,
        api: &str,
        credentials: Credentials,
        policy: RetryPolicy,
    ) -> Result<Self> {
        let api = api.trim_end_matches('/').to_owned();
        if !may_have_token(&api) {
            return Err(
                Error::arguments(format!("`{api}` is not an API address")).hint(
                    "the token is sent there, so it must begin with https://, for example https://api.github.com",
                ),
            );
        }
        Ok(Client {
            transport: Transport::new(repository, api, policy)?,
            credentials,
            session: Mutex::new(None),
        })
    }

    /// Returns a path below the repository's API path.
    pub(super) fn path(&self, rest: &str) -> String {
        self.transport.path(rest)
    }

    /// Returns the repository.
    pub(super) fn repository(&self) -> &Repository {
        &self.transport.repository
    }

    /// Waits before the next round of an operation, see [`Transport::pause`].
    pub(super) fn pause(&self, error: &Error, info: &ResponseInfo, attempts: u32) -> Result<bool> {
        self.transport.pause(error, info, attempts)
    }

    fn kept_session(&self) -> MutexGuard<'_, Option<GitHubSession>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the session; creates or renews it when necessary.
    pub(super) fn session(&self) -> Result<GitHubSession> {
        let mut current = self.kept_session();
        if let Some(session) = current.as_ref()
            && session.is_valid()
        {
            return Ok(session.clone());
        }
        let session = GitHubSession::new(&self.transport, &self.credentials)?;
        *current = Some(session.clone());
        Ok(session)
    }

    /// Discards `session`, whose token was refused, so that the next request creates a new one. Returns whether
    /// that may help: a user's token cannot be renewed.
    pub(super) fn invalidate(&self, session: &GitHubSession) -> bool {
        let mut current = self.kept_session();
        if current
            .as_ref()
            .is_some_and(|kept| kept.secret == session.secret)
        {
            *current = None;
        }
        matches!(self.credentials, Credentials::App { .. })
    }

    /// Sends a request and parses its response as `T`.
    pub(super) fn call<T: DeserializeOwned>(
        &self,
        request: &Request<'_>,
    ) -> Result<T, RequestError> {
        let text = self.send_authenticated(request)?;
        parse(request, &text).map_err(|error| {
            if request.repeatable {
                RequestError::Other(error)
            } else {
                RequestError::Uncertain(error, ResponseInfo::default())
            }
        })
    }

    /// Sends a request and discards the response.
    pub(super) fn execute(&self, request: &Request<'_>) -> Result<(), RequestError> {
        self.send_authenticated(request).map(|_| ())
    }

    /// Sends a request and returns the response's body. Renews an expired token once, if possible.
    fn send_authenticated(&self, request: &Request<'_>) -> Result<String, RequestError> {
        let session = self.session().map_err(RequestError::Other)?;
        match self.transport.send(&session.secret, request) {
            Err(RequestError::Refused(401, ..)) if self.invalidate(&session) => {
                let session = self.session().map_err(RequestError::Other)?;
                self.transport.send(&session.secret, request)
            }
            sent => sent,
        }
    }

    /// Returns all entries of a paginated list.
    pub(super) fn all<T: DeserializeOwned>(
        &self,
        purpose: &str,
        path: &str,
    ) -> Result<Vec<T>, RequestError> {
        self.all_of(purpose, path, |page: Vec<T>| page)
    }

    /// Returns all entries of a paginated list whose pages are objects; `entries` takes them out of a page.
    pub(super) fn all_of<P: DeserializeOwned, T>(
        &self,
        purpose: &str,
        path: &str,
        entries: impl Fn(P) -> Vec<T>,
    ) -> Result<Vec<T>, RequestError> {
        const MAX_PAGES: usize = 200;
        let mut all = Vec::new();
        for number in 1..=MAX_PAGES {
            let page = entries(self.page(purpose, path, number)?);
            let last = page.len() < PAGE;
            all.extend(page);
            if last {
                break;
            }
        }
        Ok(all)
    }

    /// Returns the page `number`, from 1, of a list with [`PAGE`] entries a page.
    pub(super) fn page<P: DeserializeOwned>(
        &self,
        purpose: &str,
        path: &str,
        number: usize,
    ) -> Result<P, RequestError> {
        let with = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{with}per_page={PAGE}&page={number}");
        self.call(&get(purpose, path))
    }

    /// Returns the login that perfquilt posts under.
    pub(super) fn login(&self) -> Result<String> {
        Ok(self.session()?.login)
    }
}

/// Returns whether a token may be sent to `api`: only encrypted, or to this machine itself.
fn may_have_token(api: &str) -> bool {
    let Ok(uri) = api.parse::<Uri>() else {
        return false;
    };
    match (uri.scheme_str(), uri.host()) {
        (Some("https"), Some(_)) => uri.query().is_none(),
        (Some("http"), Some(host)) => ["127.0.0.1", "localhost", "[::1]"].contains(&host),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secret;

    #[test]
    fn a_token_is_sent_to_safe_addresses_only() {
        let to = |api: &str| {
            let credentials = Credentials::Token {
                token: Secret::new("t"),
                login: None,
            };
            Client::new(
                "a/b".parse().unwrap(),
                api,
                credentials,
                RetryPolicy::default(),
            )
        };
        assert!(to("https://api.github.com").is_ok());
        assert!(to("http://127.0.0.1:8080/api/v3/").is_ok());
        for bad in [
            "http://api.github.com",
            "api.github.com",
            "",
            "http://127.0.0.1.evil.example",
        ] {
            assert!(to(bad).is_err(), "{bad}");
        }
    }
}
