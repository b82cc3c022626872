//! Authenticated sessions with GitHub.

use std::time::{Duration, Instant};

use super::auth::Credentials;
use super::refusal::Refusal;
use super::transport::{NO_API, RequestError, Transport, get, parse, post};
use super::{Secret, jwt, model};
use perfquilt_model::error::Result;

/// When a session of an App is renewed: its token is valid for an hour.
const TOKEN_LIFETIME: Duration = Duration::from_secs(50 * 60);
/// The clock difference, in seconds, from which GitHub may reject an App's own token.
const MAX_CLOCK_SKEW: i64 = 20;

/// An authenticated connection and its expiry.
#[derive(Clone)]
pub(super) struct GitHubSession {
    pub(super) secret: Secret,
    pub(super) login: String,
    expires: Option<Instant>,
}

impl GitHubSession {
    /// Authenticates with `credentials`.
    pub(super) fn new(transport: &Transport, credentials: &Credentials) -> Result<Self> {
        match credentials {
            Credentials::Token { token, login } => {
                GitHubSession::from_token(transport, token, login.as_deref())
            }
            Credentials::App { id, key } => GitHubSession::from_app(transport, id, key),
        }
    }

    /// Returns whether the session has not expired.
    pub(super) fn is_valid(&self) -> bool {
        self.expires.is_none_or(|expires| Instant::now() < expires)
    }

    fn from_token(transport: &Transport, token: &Secret, login: Option<&str>) -> Result<Self> {
        let login = match login {
            Some(login) => login.to_owned(),
            None => {
                let request = get("look up the login of the token", "/user".to_owned());
                match transport.send(token, &request) {
                    Ok(text) => parse::<model::User>(&request, &text)?.login,
                    Err(RequestError::Refused(403, Refusal::Other, error))
                        if error.hint_text() != Some(NO_API) =>
                    {
                        return Err(error.hint(
                            "a workflow's token cannot query it: set PERFQUILT_LOGIN to the login of its comments, \
                             for example github-actions[bot]",
                        ));
                    }
                    Err(failure) => return Err(failure.into()),
                }
            }
        };
        Ok(GitHubSession {
            secret: token.clone(),
            login,
            expires: None,
        })
    }

    /// Authenticates as the App, finds its installation in the repository and requests a token for it.
    fn from_app(transport: &Transport, id: &str, key: &Secret) -> Result<Self> {
        let expires = Instant::now() + TOKEN_LIFETIME;
        let mut now = jiff::Timestamp::now().as_second();
        let request = get("find the GitHub App", "/app".to_owned());
        let mut token = jwt::sign(id, key, now)?;
        let mut response = transport.send_with_retries(&token, &request)?;
        if response.info.status == Some(401)
            && let Some(date) = response
                .date
                .filter(|date| (date - now).abs() > MAX_CLOCK_SKEW)
        {
            tracing::debug!("this clock and GitHub's differ by {} s", date - now);
            now = date;
            token = jwt::sign(id, key, now)?;
            response = transport.send_with_retries(&token, &request)?;
        }
        let app: model::App = parse(
            &request,
            &transport.check_status(&request, response, &token)?,
        )?;
        let request = get(
            "find where the GitHub App is installed",
            transport.path("installation"),
        );
        let text = match transport.send(&token, &request) {
            Err(RequestError::Refused(404, _, error)) => {
                return Err(error.hint(format!(
                    "install the App {} in {}",
                    app.slug, transport.repository
                )));
            }
            other => other?,
        };
        let installation: model::Installation = parse(&request, &text)?;
        let request = post(
            "get a token for the GitHub App",
            format!("/app/installations/{}/access_tokens", installation.id),
            serde_json::json!({ "repositories": [transport.repository.name] }),
        );
        // A superfluous token does no harm.
        let request = &request.repeatable();
        let text = transport.send(&token, request)?;
        let given: model::InstallationToken = parse(request, &text)?;
        Ok(GitHubSession {
            secret: Secret::new(&given.token),
            login: format!("{}[bot]", app.slug),
            expires: Some(expires),
        })
    }
}
