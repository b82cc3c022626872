//! Requests to GitHub that survive what networks and servers do.

use std::future::Future;
use std::time::Duration;

use http::Uri;
use octocrab::Octocrab;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

use super::auth::Credentials;
use super::retry::{self, Answer, Next, Policy};
use super::session::Session;
use super::{Repository, Secret, model};
use perfquilt_model::error::{Error, Result};
use perfquilt_system::process;

/// How often a waiting request looks whether somebody wants to stop.
const GLANCE: Duration = Duration::from_millis(200);
/// A connection to one repository's forge.
pub struct Client {
    runtime: Runtime,
    pub(super) shared: Shared,
}

/// What requests need.
pub(super) struct Shared {
    pub(super) repository: Repository,
    pub(super) api: String,
    pub(super) credentials: Credentials,
    pub(super) policy: Policy,
    pub(super) session: Mutex<Option<Session>>,
}

/// Why a request has no answer to go on with.
#[derive(Debug)]
pub(super) enum Fault {
    /// GitHub said no, with this status and message: nothing was done.
    Refused(u16, Error),
    /// Nobody knows whether it was done; what the answer said, if there was one.
    Unclear(Error, Answer),
    /// Anything else.
    Other(Error),
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(_, error) | Fault::Unclear(error, _) | Fault::Other(error) => error,
        }
    }
}

/// A request.
#[derive(Debug, Clone)]
pub(super) struct Call<'a> {
    /// What it is for, as the end of `cannot …`.
    pub what: &'a str,
    pub method: Method,
    pub path: String,
    pub body: Option<Value>,
}

/// The methods in use. [`Method::Post`] is not tried again where it may have been done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Post,
    /// A post that may be done twice without harm.
    PostAgain,
    Patch,
    Delete,
}

/// An answer's status and body, and what its head says about trying again.
pub(super) struct Raw {
    pub(super) answer: Answer,
    body: String,
    /// Its `Date`, in seconds since 1970.
    pub(super) date: Option<i64>,
    /// Where a redirect leads.
    location: Option<String>,
}

impl Client {
    /// A connection to `repository` through the interface at `api` ([`super::API`] or that of a server of
    /// one's own). Nothing is sent yet.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when `api` is no address of the web.
    pub fn new(
        repository: Repository,
        api: &str,
        credentials: Credentials,
        policy: Policy,
    ) -> Result<Self> {
        let api = api.trim_end_matches('/').to_owned();
        if !may_have_token(&api) {
            return Err(
                Error::usage(format!("`{api}` is no address of an interface")).hint(
                    "the token is sent there: it begins with https://, as https://api.github.com",
                ),
            );
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| {
                Error::internal(format!("cannot start the network's loop: {error}"))
            })?;
        Ok(Client {
            runtime,
            shared: Shared {
                repository,
                api,
                credentials,
                policy,
                session: Mutex::new(None),
            },
        })
    }

    /// The repository it talks about.
    pub fn repository(&self) -> &Repository {
        &self.shared.repository
    }

    /// Does `work` to its end, or until a signal asks to stop.
    pub(super) fn run<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.runtime.block_on(async {
            let mut work = std::pin::pin!(work);
            loop {
                match tokio::time::timeout(GLANCE, &mut work).await {
                    Ok(result) => return result,
                    Err(_) => process::check_interrupted()?,
                }
            }
        })
    }
}

impl Shared {
    /// A path below the repository's.
    pub(super) fn path(&self, rest: &str) -> String {
        format!("/repos/{}/{rest}", self.repository)
    }

    /// Sends a request and reads its answer as `T`.
    pub(super) async fn call<T: DeserializeOwned>(&self, call: &Call<'_>) -> Result<T, Fault> {
        let text = self.sent(call).await?;
        parse(call, &text).map_err(|error| match call.method {
            Method::Post => Fault::Unclear(error, Answer::default()),
            _ => Fault::Other(error),
        })
    }

    /// Sends a request whose answer does not matter.
    pub(super) async fn tell(&self, call: &Call<'_>) -> Result<(), Fault> {
        self.sent(call).await.map(|_| ())
    }

    /// Sends a request and returns what came back. A token that is no longer valid is renewed once, if it can be.
    async fn sent(&self, call: &Call<'_>) -> Result<String, Fault> {
        let session = self.session().await.map_err(Fault::Other)?;
        match self.send(&session.octocrab, &session.secret, call).await {
            Err(Fault::Refused(401, _)) if self.forget(&session).await => {
                let session = self.session().await.map_err(Fault::Other)?;
                self.send(&session.octocrab, &session.secret, call).await
            }
            sent => sent,
        }
    }

    /// Waits before something is looked at again, after it was unclear `tries` times whether it was done, the
    /// last time with this `answer`. Returns whether it did: not when that would take too long.
    pub(super) async fn pause(&self, answer: &Answer, tries: u32) -> bool {
        match retry::next(&self.policy, answer, tries, Duration::ZERO, chance()) {
            Next::Wait(wait) => tokio::time::sleep(wait).await,
            Next::GiveUp | Next::TooLong(_) => return false,
        }
        true
    }

    /// All entries of a list that GitHub hands out in pages.
    pub(super) async fn all<T: DeserializeOwned>(
        &self,
        what: &str,
        path: &str,
    ) -> Result<Vec<T>, Fault> {
        const PAGE: usize = 100;
        const MOST: usize = 200;
        let mut all = Vec::new();
        let with = if path.contains('?') { '&' } else { '?' };
        for page in 1..=MOST {
            let path = format!("{path}{with}per_page={PAGE}&page={page}");
            let some: Vec<T> = self
                .call(&Call {
                    what,
                    method: Method::Get,
                    path,
                    body: None,
                })
                .await?;
            let last = some.len() < PAGE;
            all.extend(some);
            if last {
                break;
            }
        }
        Ok(all)
    }

    /// The login under which this program writes.
    pub(super) async fn login(&self) -> Result<String> {
        Ok(self.session().await?.login)
    }

    /// Sends until there is an answer that is final, and makes a fault of what is no success.
    pub(super) async fn send(
        &self,
        octocrab: &Octocrab,
        secret: &Secret,
        call: &Call<'_>,
    ) -> Result<String, Fault> {
        let raw = self.answered(octocrab, secret, call).await?;
        self.judged(call, raw, secret)
    }

    /// The final answer: trying again would not change it.
    pub(super) async fn answered(
        &self,
        octocrab: &Octocrab,
        secret: &Secret,
        call: &Call<'_>,
    ) -> Result<Raw, Fault> {
        let mut waited = Duration::ZERO;
        for tries in 1.. {
            let (answer, failed) = match self.once(octocrab, call).await {
                Ok(raw)
                    if raw
                        .answer
                        .status
                        .is_some_and(|status| status < 500 && status != 429 && status != 403) =>
                {
                    return Ok(raw);
                }
                Ok(raw) => (raw.answer, Ok(raw)),
                Err(why) => (Answer::default(), Err(secret.scrub(&why))),
            };
            let may_be_done = answer.status.is_none_or(|status| status >= 500);
            if call.method == Method::Post && may_be_done {
                return Err(Fault::Unclear(self.unanswered(call, &failed), answer));
            }
            match retry::next(&self.policy, &answer, tries, waited, chance()) {
                Next::Wait(wait) => {
                    tracing::debug!("cannot {} ({}), again in {wait:?}", call.what, why(&failed));
                    tokio::time::sleep(wait).await;
                    waited += wait;
                }
                Next::TooLong(wait) => {
                    let minutes = wait.as_secs().div_ceil(60);
                    return Err(Fault::Other(self.unanswered(call, &failed).hint(format!(
                        "GitHub's limit on requests is used up; try again in {minutes} min"
                    ))));
                }
                Next::GiveUp => {
                    return failed.map_err(|_: String| {
                        Fault::Other(
                            self.unanswered(call, &Err(format!("no answer in {tries} tries"))),
                        )
                    });
                }
            }
        }
        Err(Fault::Other(Error::internal("no more tries")))
    }

    /// One try. The error is what went wrong on the line.
    async fn once(&self, octocrab: &Octocrab, call: &Call<'_>) -> Result<Raw, String> {
        let path = call.path.as_str();
        let body = call.body.as_ref();
        let exchange = async {
            let response = match call.method {
                Method::Get => octocrab._get(path).await,
                Method::Post | Method::PostAgain => octocrab._post(path, body).await,
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
            let mut answer = Answer {
                status: Some(status),
                retry_after: head("retry-after").and_then(|text| retry_after(&text, date)),
                remaining: number("x-ratelimit-remaining"),
                reset_in: None,
                says_limited: false,
            };
            if let (Some(reset), Some(date)) = (number("x-ratelimit-reset"), date) {
                answer.reset_in = Some(reset.saturating_sub(u64::try_from(date).unwrap_or(0)));
            }
            let location = head("location");
            let body = octocrab
                .body_to_string(response)
                .await
                .map_err(|error| chain(&error))?;
            answer.says_limited = status == 403 && body.contains("rate limit");
            Ok(Raw {
                answer,
                body,
                date,
                location,
            })
        };
        match tokio::time::timeout(self.policy.answer, exchange).await {
            Ok(result) => result,
            Err(_) => Err(format!(
                "no answer within {} s",
                self.policy.answer.as_secs_f64()
            )),
        }
    }

    pub(super) fn judged(
        &self,
        call: &Call<'_>,
        raw: Raw,
        secret: &Secret,
    ) -> Result<String, Fault> {
        let status = raw.answer.status.unwrap_or(0);
        if (200..300).contains(&status) {
            return Ok(raw.body);
        }
        let said: model::Problem = serde_json::from_str(&raw.body).unwrap_or_default();
        let said = secret.scrub(&said.message);
        let mut error = Error::forge(format!(
            "cannot {}: {} answers {status}{}",
            call.what,
            self.host(),
            if said.is_empty() {
                String::new()
            } else {
                format!(", {said}")
            }
        ));
        let place = raw.location.map(|to| secret.scrub(&to)).unwrap_or_default();
        error = match status {
            301 | 302 | 307 | 308 => error.hint(format!(
                "{} was moved ({place}): use its new name",
                self.repository
            )),
            401 => error.hint("the token is wrong, or no longer valid"),
            403 if call.method != Method::Get => error.hint(
                "the token needs `pull-requests: write` and `checks: write` for this repository",
            ),
            403 | 404 => error.hint(format!(
                "is it there, and may the token see {}?",
                self.repository
            )),
            500.. => error.passing(),
            _ => error,
        };
        Err(match status {
            300..=499 => Fault::Refused(status, error),
            _ => Fault::Other(error),
        })
    }

    fn unanswered(&self, call: &Call<'_>, failed: &Result<Raw, String>) -> Error {
        Error::forge(format!(
            "cannot {}: {}: {}",
            call.what,
            self.host(),
            why(failed)
        ))
        .hint("the same command again goes on; it never posts twice")
        .passing()
    }

    fn host(&self) -> &str {
        self.api.split("://").nth(1).unwrap_or(&self.api)
    }
}

/// Whether a token may be sent to `api`: encrypted, or to this machine itself.
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

pub(super) fn get(what: &str, path: String) -> Call<'_> {
    Call {
        what,
        method: Method::Get,
        path,
        body: None,
    }
}

pub(super) fn parse<T: DeserializeOwned>(call: &Call<'_>, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| {
        Error::forge(format!(
            "cannot {}: the answer cannot be read: {error}",
            call.what
        ))
    })
}

/// A number in 0..1 that differs from program to program: enough to keep waits apart.
fn chance() -> f64 {
    f64::from(jiff::Timestamp::now().subsec_nanosecond().unsigned_abs() % 1000) / 1000.0
}

fn why(failed: &Result<Raw, String>) -> String {
    match failed {
        Ok(raw) => format!("it answers {}", raw.answer.status.unwrap_or(0)),
        Err(why) => why.clone(),
    }
}

pub(super) fn said(error: &octocrab::Error, secret: &Secret) -> String {
    secret.scrub(&chain(error))
}

/// The causes of an error, each once.
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

/// A `Date` of HTTP (`Sun, 06 Nov 1994 08:49:37 GMT`) in seconds since 1970.
fn seconds(date: &str) -> Option<i64> {
    let time = jiff::fmt::rfc2822::parse(date).ok()?;
    Some(time.timestamp().as_second())
}

/// What `Retry-After` says, in seconds: their number, or a date, which is compared with the answer's own.
fn retry_after(text: &str, date: Option<i64>) -> Option<u64> {
    let text = text.trim();
    text.parse().ok().or_else(|| {
        let now = date.unwrap_or_else(|| jiff::Timestamp::now().as_second());
        u64::try_from(seconds(text)?.saturating_sub(now).max(0)).ok()
    })
}

/// `text` as one part of a path.
pub(super) fn part(text: &str) -> String {
    let mut result = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                result.push(char::from(byte))
            }
            _ => result.push_str(&format!("%{byte:02X}")),
        }
    }
    result
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
        assert_eq!(part("perf: no effect/ü"), "perf%3A%20no%20effect%2F%C3%BC");
    }

    #[test]
    fn a_token_is_sent_to_safe_places_only() {
        let to = |api: &str| {
            let credentials = Credentials::Token {
                token: Secret::new("t"),
                login: None,
            };
            Client::new("a/b".parse().unwrap(), api, credentials, Policy::default())
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
