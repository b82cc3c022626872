//! Sessions of a GitHub App.

use std::time::{Duration, Instant};

use super::{jwt, model};
use crate::Secret;
use crate::client::Session;
use crate::transport::{RequestError, Transport, get, post};
use perfquilt_model::error::Result;

/// When a session of an App is renewed: its token is valid for an hour.
const TOKEN_LIFETIME: Duration = Duration::from_secs(50 * 60);
/// The clock difference, in seconds, from which GitHub may reject an App's own token.
const MAX_CLOCK_SKEW: i64 = 20;

/// Authenticates as the App, finds its installation in the repository and requests a token for it.
pub(super) fn from_app(transport: &Transport, id: &str, key: &Secret) -> Result<Session> {
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
    let response = transport.check_status(&request, response, &token)?;
    let app: model::App = transport.parse(&request, &response.body)?;
    let request = get(
        "find where the GitHub App is installed",
        transport.path("installation"),
    );
    let found = match transport.send(&token, &request) {
        Err(RequestError::Refused(404, _, error)) => {
            return Err(error.hint(format!(
                "install the App {} in {}",
                app.slug, transport.repository
            )));
        }
        other => other?,
    };
    let installation: model::Installation = transport.parse(&request, &found.body)?;
    let request = post(
        "get a token for the GitHub App",
        format!("/app/installations/{}/access_tokens", installation.id),
        serde_json::json!({ "repositories": [transport.repository.name] }),
    );
    // A superfluous token does no harm.
    let request = &request.repeatable();
    let given = transport.send(&token, request)?;
    let given: model::InstallationToken = transport.parse(request, &given.body)?;
    Ok(Session {
        secret: Secret::new(&given.token),
        login: format!("{}[bot]", app.slug),
        expires: Some(expires),
    })
}
