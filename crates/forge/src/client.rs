//! The client for a forge's REST API.

use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use http::Uri;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::exchange::Response;
use super::forge::{CreatedComment, ForgeComment};
use super::protocol::Protocol;
use super::refusal::Refusal;
use super::retry::{ResponseInfo, RetryPolicy};
use super::transport::{Request, RequestError, Transport, get};
use super::{Credentials, Repository, Secret};
use perfquilt_model::error::{Error, Result};
use perfquilt_system::threads::lock;

/// The most pages of a list.
const MAX_PAGES: usize = 200;

/// An authenticated connection and its expiry.
#[derive(Clone)]
pub(super) struct Session {
    pub secret: Secret,
    /// The login that perfquilt posts under.
    pub login: String,
    pub expires: Option<Instant>,
}

impl Session {
    /// Returns the session of a token, whose login it queries unless it is known.
    pub(super) fn from_token(
        transport: &Transport,
        token: &Secret,
        login: Option<&str>,
    ) -> Result<Self> {
        let protocol = transport.protocol;
        let login = match login {
            Some(login) => login.to_owned(),
            None => {
                let request = get("look up the login of the token", "/user".to_owned());
                match transport.send(token, &request) {
                    Ok(response) => {
                        let user: Value = transport.parse(&request, &response.body)?;
                        let login = user["login"].as_str().or(user["username"].as_str());
                        let missing =
                            || Error::forge_refused("the account of the token has no login");
                        login.ok_or_else(missing)?.to_owned()
                    }
                    Err(RequestError::Refused(403, Refusal::Other, error))
                        if error.hint_text() != Some(protocol.no_api) =>
                    {
                        return Err(error.hint(format!(
                            "a workflow's token cannot query it: set PERFQUILT_LOGIN to the login of its comments, \
                             for example {}",
                            protocol.workflow_login
                        )));
                    }
                    Err(failure) => return Err(failure.into()),
                }
            }
        };
        Ok(Session {
            secret: token.clone(),
            login,
            expires: None,
        })
    }

    /// Returns the session of a token; an App has none here.
    pub(super) fn of_token(transport: &Transport, credentials: &Credentials) -> Result<Self> {
        match credentials {
            Credentials::Token { token, login } => {
                Session::from_token(transport, token, login.as_deref())
            }
            Credentials::App { .. } => Err(Error::credentials(format!(
                "{} has no Apps with a key",
                transport.protocol.name
            ))
            .hint("use the token of an account of its own")),
        }
    }

    /// Returns whether the session has not expired.
    fn is_valid(&self) -> bool {
        self.expires.is_none_or(|expires| Instant::now() < expires)
    }
}

/// Returns a session for credentials.
pub(super) type Authenticate = fn(&Transport, &Credentials) -> Result<Session>;

/// A connection to a forge for one repository.
pub(super) struct Client {
    pub transport: Transport,
    pub credentials: Credentials,
    authenticate: Authenticate,
    session: Mutex<Option<Session>>,
}

impl Client {
    /// Returns a client for `repository` at the API `api`. Sends nothing yet.
    pub(super) fn new(
        protocol: &'static Protocol,
        authenticate: Authenticate,
        repository: Repository,
        api: &str,
        credentials: Credentials,
        policy: RetryPolicy,
    ) -> Result<Self> {
        let api = api.trim_end_matches('/').to_owned();
        if !may_have_token(&api) {
            return Err(Error::arguments(format!("`{api}` is not an API address"))
                .hint("the token is sent there, so it must begin with https://"));
        }
        Ok(Client {
            transport: Transport::new(protocol, repository, api, policy)?,
            credentials,
            authenticate,
            session: Mutex::new(None),
        })
    }

    /// Returns a path below the repository's API path.
    pub(super) fn path(&self, rest: &str) -> String {
        self.transport.path(rest)
    }

    /// Returns the address of the repository's pages, of a forge whose API's path is `api`.
    pub(super) fn pages_of(&self, api: &str) -> String {
        let address = &self.transport.api;
        let host = address.strip_suffix(api).unwrap_or(address);
        format!("{host}/{}", self.repository())
    }

    /// Returns the repository.
    pub(super) fn repository(&self) -> &Repository {
        &self.transport.repository
    }

    /// Waits before the next round of an operation, see [`Transport::pause`].
    pub(super) fn pause(&self, error: &Error, info: &ResponseInfo, attempts: u32) -> Result<bool> {
        self.transport.pause(error, info, attempts)
    }

    fn kept_session(&self) -> MutexGuard<'_, Option<Session>> {
        lock(&self.session)
    }

    /// Returns the session; creates or renews it when necessary.
    pub(super) fn session(&self) -> Result<Session> {
        let mut current = self.kept_session();
        if let Some(session) = current.as_ref()
            && session.is_valid()
        {
            return Ok(session.clone());
        }
        let session = (self.authenticate)(&self.transport, &self.credentials)?;
        *current = Some(session.clone());
        Ok(session)
    }

    /// Discards `session`, whose token was refused, so that the next request creates a new one. Returns whether
    /// that may help: a user's token cannot be renewed.
    pub(super) fn invalidate(&self, session: &Session) -> bool {
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
        self.call_page(request).map(|(parsed, _)| parsed)
    }

    /// As [`Client::call`], also with whether a further page follows.
    fn call_page<T: DeserializeOwned>(
        &self,
        request: &Request<'_>,
    ) -> Result<(T, bool), RequestError> {
        let response = self.send_authenticated(request)?;
        let parsed = self.transport.parse(request, &response.body);
        let parsed = parsed.map_err(|error| {
            if request.repeatable {
                RequestError::Other(error)
            } else {
                RequestError::Uncertain(error, ResponseInfo::default())
            }
        });
        Ok((parsed?, response.has_next))
    }

    /// Sends the request that creates a comment, for the `attempt`th time, and waits where it is unknown whether that was
    /// done.
    pub(super) fn create<T: DeserializeOwned>(
        &self,
        request: &Request<'_>,
        attempt: u32,
        read: impl Fn(T) -> ForgeComment,
    ) -> Result<CreatedComment> {
        match self.call(request) {
            Ok(comment) => Ok(CreatedComment::Done(read(comment))),
            Err(RequestError::Uncertain(error, info)) => {
                if self.pause(&error, &info, attempt)? {
                    Ok(CreatedComment::Unknown(error))
                } else {
                    Err(error)
                }
            }
            Err(failure) => Err(failure.into()),
        }
    }

    /// Sends a request and discards the response.
    pub(super) fn execute(&self, request: &Request<'_>) -> Result<(), RequestError> {
        self.send_authenticated(request).map(|_| ())
    }

    /// Sends a request and returns the response. Renews an expired token once, if possible.
    fn send_authenticated(&self, request: &Request<'_>) -> Result<Response, RequestError> {
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
        let mut all = Vec::new();
        self.pages(purpose, path, MAX_PAGES, |page| {
            let page = entries(page);
            let count = page.len();
            all.extend(page);
            count
        })?;
        Ok(all)
    }

    /// Reads a paginated list in at most `most` pages; `take` takes the entries out of a page and returns their number.
    pub(super) fn pages<P: DeserializeOwned>(
        &self,
        purpose: &str,
        path: &str,
        most: usize,
        mut take: impl FnMut(P) -> usize,
    ) -> Result<(), RequestError> {
        let protocol = self.transport.protocol;
        let (parameter, size) = protocol.page;
        let with = if path.contains('?') { '&' } else { '?' };
        for number in 1..=most {
            let path = format!("{path}{with}{parameter}={size}&page={number}");
            let (page, has_next) = self.call_page(&get(purpose, path))?;
            let is_full = take(page) >= size;
            if !(if protocol.has_links {
                has_next
            } else {
                is_full
            }) {
                break;
            }
        }
        Ok(())
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
                &crate::github::PROTOCOL,
                Session::of_token,
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
