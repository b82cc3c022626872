//! Who the program is on GitHub: a connection with a token, made when it is first needed and renewed in time.

use std::time::{Duration, Instant};

use http::header::{ACCEPT, USER_AGENT};
use octocrab::Octocrab;

use super::auth::Credentials;
use super::client::{Call, Fault, Method, Shared, get, parse, said};
use super::{Secret, jwt, model};
use perfquilt_model::error::{Error, Result};

/// An App's token holds an hour; a new one is asked for before.
const TOKEN_LIFE: Duration = Duration::from_secs(50 * 60);
/// Clocks that differ by more than this make an App's own token invalid.
const SKEW: i64 = 20;

/// An authenticated connection, and until when it is.
#[derive(Clone)]
pub(super) struct Session {
    pub(super) octocrab: Octocrab,
    pub(super) secret: Secret,
    pub(super) login: String,
    ends: Option<Instant>,
}

impl Shared {
    /// The connection, made or renewed if need be.
    pub(super) async fn session(&self) -> Result<Session> {
        let mut kept = self.session.lock().await;
        if let Some(session) = kept.as_ref()
            && session.ends.is_none_or(|ends| Instant::now() < ends)
        {
            return Ok(session.clone());
        }
        let session = match &self.credentials {
            Credentials::Token { token, login } => self.by_token(token, login.as_deref()).await?,
            Credentials::App { id, key } => self.by_app(id, key).await?,
        };
        *kept = Some(session.clone());
        Ok(session)
    }

    /// Forgets the connection `session`, whose token is refused, so that a new one is made. Returns whether that
    /// may help: a user's token stays what it is.
    pub(super) async fn forget(&self, session: &Session) -> bool {
        let mut kept = self.session.lock().await;
        if kept
            .as_ref()
            .is_some_and(|kept| kept.secret == session.secret)
        {
            *kept = None;
        }
        matches!(self.credentials, Credentials::App { .. })
    }

    async fn by_token(&self, token: &Secret, login: Option<&str>) -> Result<Session> {
        let octocrab = self.octocrab(token)?;
        let login = match login {
            Some(login) => login.to_owned(),
            None => {
                let call = get("find out whose token this is", "/user".to_owned());
                match self.send(&octocrab, token, &call).await {
                    Ok(text) => parse::<model::User>(&call, &text)?.login,
                    Err(Fault::Refused(403, error)) => {
                        return Err(error.hint(
                            "a workflow's token does not tell: set PERFQUILT_LOGIN to the name its comments have, \
                             for example github-actions[bot]",
                        ));
                    }
                    Err(fault) => return Err(fault.into()),
                }
            }
        };
        Ok(Session {
            octocrab,
            secret: token.clone(),
            login,
            ends: None,
        })
    }

    /// Proves to be the App, finds its installation in the repository and gets a token for that.
    async fn by_app(&self, id: &str, key: &Secret) -> Result<Session> {
        let ends = Instant::now() + TOKEN_LIFE;
        let mut now = jiff::Timestamp::now().as_second();
        let call = get("find the GitHub App", "/app".to_owned());
        let token = jwt::sign(id, key, now)?;
        let octocrab = self.octocrab(&token)?;
        let mut raw = self.answered(&octocrab, &token, &call).await?;
        let (mut octocrab, mut token) = (octocrab, token);
        if raw.answer.status == Some(401)
            && let Some(date) = raw.date.filter(|date| (date - now).abs() > SKEW)
        {
            tracing::debug!("this clock and GitHub's differ by {} s", date - now);
            now = date;
            token = jwt::sign(id, key, now)?;
            octocrab = self.octocrab(&token)?;
            raw = self.answered(&octocrab, &token, &call).await?;
        }
        let app: model::App = parse(&call, &self.judged(&call, raw, &token)?)?;
        let call = get(
            "find where the GitHub App is installed",
            self.path("installation"),
        );
        let text = match self.send(&octocrab, &token, &call).await {
            Err(Fault::Refused(404, error)) => {
                return Err(error.hint(format!(
                    "install the App {} in {}",
                    app.slug, self.repository
                )));
            }
            other => other?,
        };
        let installation: model::Installation = parse(&call, &text)?;
        let call = Call {
            what: "get a token for the GitHub App",
            // A token too many does no harm.
            method: Method::PostAgain,
            path: format!("/app/installations/{}/access_tokens", installation.id),
            body: Some(serde_json::json!({ "repositories": [self.repository.name] })),
        };
        let text = self.send(&octocrab, &token, &call).await?;
        let given: model::InstallationToken = parse(&call, &text)?;
        let secret = Secret::new(&given.token);
        Ok(Session {
            octocrab: self.octocrab(&secret)?,
            secret,
            login: format!("{}[bot]", app.slug),
            ends: Some(ends),
        })
    }

    fn octocrab(&self, token: &Secret) -> Result<Octocrab> {
        let agent = concat!("perfquilt/", env!("CARGO_PKG_VERSION"));
        let failed = |error: octocrab::Error| {
            Error::forge(format!(
                "cannot talk to {}: {}",
                self.api,
                said(&error, token)
            ))
            .hint("`apt-get install ca-certificates` brings the certificates of the web")
        };
        Octocrab::builder()
            .base_uri(self.api.as_str())
            .map_err(failed)?
            .add_header(USER_AGENT, agent.to_owned())
            .add_header(ACCEPT, "application/vnd.github+json".to_owned())
            .personal_token(token.expose().to_owned())
            .set_connect_timeout(Some(self.policy.answer))
            .build()
            .map_err(failed)
    }
}
