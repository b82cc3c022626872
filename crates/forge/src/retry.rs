//! When to retry a request, and after which wait. The forge's own instructions come first.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use octocrab::OctoBody;
use tokio::time::Sleep;
use tower::retry::Policy;

use super::refusal::Refusal;

/// A complete response, as the layers pass it on; its extensions contain [`ResponseInfo`].
pub(super) type HttpResponse = http::Response<Full<Bytes>>;

/// No complete response to a request.
#[derive(Debug)]
pub(super) struct NoResponse {
    pub(super) why: String,
    /// Whether no connection came about, so that nothing was sent.
    pub(super) unsent: bool,
    /// Whether the server's certificate is not trusted.
    pub(super) distrusted: bool,
    /// The number of attempts.
    pub(super) attempts: u32,
}

/// The retry policy for requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The first wait when the forge gives none; doubled for each further one.
    pub first_wait: Duration,
    /// The first wait after a secondary rate limit without a given time; doubled for each further one.
    pub rate_limited_wait: Duration,
    /// The maximum total wait of one request.
    pub max_total_wait: Duration,
    /// The timeout of one response.
    pub response_timeout: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy {
            first_wait: Duration::from_secs(1),
            rate_limited_wait: Duration::from_secs(60),
            max_total_wait: Duration::from_secs(15 * 60),
            response_timeout: Duration::from_secs(30),
        }
    }
}

impl RetryPolicy {
    /// Returns the policy of a request for which somebody waits, as a forge does for the answer to its delivery.
    pub fn hasty() -> Self {
        RetryPolicy {
            max_total_wait: Duration::from_secs(2),
            response_timeout: Duration::from_secs(3),
            ..RetryPolicy::default()
        }
    }
}

/// The parts of a response that matter for retries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ResponseInfo {
    /// The status; `None` without a complete response.
    pub status: Option<u16>,
    /// `Retry-After`, in seconds.
    pub retry_after: Option<u64>,
    /// The number of requests left.
    pub remaining: Option<u64>,
    /// Seconds from `Date` to the time from which there are more. Both are on the forge's clock, because the local clock may
    /// be wrong.
    pub reset_in: Option<u64>,
    /// Why the request was refused; `None` if it was not.
    pub refusal: Option<Refusal>,
    /// The wait after which a retry might help, if it exceeds the policy.
    pub too_long: Option<Duration>,
}

/// What a retry must know of a request; an extension of it.
#[derive(Debug, Clone)]
pub(super) struct Purpose {
    /// The purpose, as the end of `cannot …`.
    pub words: String,
    /// Whether it may be repeated when it is unknown whether it took effect.
    pub repeatable: bool,
}

/// The retries of one request, as a layer.
#[derive(Debug, Clone)]
pub(super) struct Retries {
    policy: RetryPolicy,
    host: String,
    attempts: u32,
    waited: Duration,
}

impl Retries {
    pub(super) fn new(policy: RetryPolicy, host: &str) -> Self {
        Retries {
            policy,
            host: host.to_owned(),
            attempts: 0,
            waited: Duration::ZERO,
        }
    }
}

impl Policy<http::Request<OctoBody>, HttpResponse, NoResponse> for Retries {
    type Future = Sleep;

    fn retry(
        &mut self,
        request: &mut http::Request<OctoBody>,
        result: &mut Result<HttpResponse, NoResponse>,
    ) -> Option<Sleep> {
        self.attempts += 1;
        let purpose = request.extensions().get::<Purpose>()?;
        let (info, why, unknown) = match result {
            Ok(response) => {
                let info: ResponseInfo = response.extensions().get().copied()?;
                let status = info.status.unwrap_or(0);
                (info, format!("it answered {status}"), status >= 500)
            }
            Err(failure) if failure.distrusted => return None,
            Err(failure) => {
                failure.attempts = self.attempts;
                (
                    ResponseInfo::default(),
                    failure.why.clone(),
                    !failure.unsent,
                )
            }
        };
        if unknown && !purpose.repeatable {
            return None;
        }
        let decision = decide(&self.policy, &info, self.attempts, self.waited, jitter());
        let wait = match (decision, result) {
            (RetryDecision::Wait(wait), _) => wait,
            (RetryDecision::TooLong(wait), Ok(response)) => {
                response.extensions_mut().insert(ResponseInfo {
                    too_long: Some(wait),
                    ..info
                });
                return None;
            }
            _ => return None,
        };
        let (host, words) = (&self.host, &purpose.words);
        if self.attempts == 1 {
            let minutes = self.policy.max_total_wait.as_secs().div_ceil(60);
            let limit = match info.refusal {
                Some(Refusal::Limited) => ", which limits requests",
                _ => "",
            };
            let seconds = wait.as_secs_f64().ceil();
            tracing::warn!(
                "cannot {words}: {host}: {why}{limit}; trying again in {seconds} s, for up to {minutes} min"
            );
        } else {
            tracing::debug!("cannot {words} ({why}), again in {wait:?}");
        }
        self.waited += wait;
        Some(tokio::time::sleep(wait))
    }

    fn clone_request(
        &mut self,
        request: &http::Request<OctoBody>,
    ) -> Option<http::Request<OctoBody>> {
        let mut clone = http::Request::new(request.body().try_clone()?);
        *clone.method_mut() = request.method().clone();
        *clone.uri_mut() = request.uri().clone();
        *clone.headers_mut() = request.headers().clone();
        *clone.extensions_mut() = request.extensions().clone();
        Some(clone)
    }
}

/// Returns a number in 0..1 that differs between processes, as jitter for waits.
pub(super) fn jitter() -> f64 {
    f64::from(jiff::Timestamp::now().subsec_nanosecond().unsigned_abs() % 1000) / 1000.0
}

/// Whether to retry a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryDecision {
    /// Retry after this wait.
    Wait(Duration),
    /// A retry would not help.
    GiveUp,
    /// A retry might help after this wait, which exceeds the policy.
    TooLong(Duration),
}

/// The maximum wait between two attempts at a server that fails.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// Decides about a retry after `attempts` attempts (1 or more) with a total wait of `waited`. `jitter` in 0..1
/// spreads the waits of concurrent processes.
pub(super) fn decide(
    policy: &RetryPolicy,
    info: &ResponseInfo,
    attempts: u32,
    waited: Duration,
    jitter: f64,
) -> RetryDecision {
    let jitter = jitter.clamp(0.0, 1.0);
    let doubled = |first: Duration| first.saturating_mul(1 << (attempts - 1).min(20));
    let limited = info.refusal == Some(Refusal::Limited);
    let least = doubled(policy.first_wait).min(MAX_WAIT.max(policy.first_wait));
    let least = least.mul_f64(0.75 + 0.5 * jitter);
    // `Retry-After: 0`, or a time in the past, must not cause an endless flood of requests.
    let requested = |seconds: u64| Duration::from_secs(seconds).max(least);
    let wait = match (info.status, info.retry_after) {
        // A conflict passes: somebody else's change to the same object is being carried out.
        (None, _) | (Some(409 | 500..=599), None) => least,
        (Some(409 | 500..=599), Some(seconds)) => requested(seconds),
        _ if !limited => return RetryDecision::GiveUp,
        (_, Some(seconds)) => requested(seconds),
        _ => match (info.remaining, info.reset_in) {
            // One second more, because the reset time is rounded.
            (Some(0), Some(seconds)) => requested(seconds.saturating_add(1)),
            // Forges ask for a minute at least, and for more after each further refusal.
            _ => doubled(policy.rate_limited_wait).mul_f64(1.0 + 0.25 * jitter),
        },
    };
    if waited.saturating_add(wait) <= policy.max_total_wait {
        RetryDecision::Wait(wait)
    } else if limited || info.retry_after.is_some() {
        RetryDecision::TooLong(wait)
    } else {
        RetryDecision::GiveUp
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: ResponseInfo = ResponseInfo {
        status: None,
        retry_after: None,
        remaining: None,
        reset_in: None,
        refusal: None,
        too_long: None,
    };

    fn after(info: ResponseInfo, attempts: u32) -> RetryDecision {
        decide(
            &RetryPolicy::default(),
            &info,
            attempts,
            Duration::ZERO,
            0.5,
        )
    }

    fn seconds(wait: u64) -> RetryDecision {
        RetryDecision::Wait(Duration::from_secs(wait))
    }

    #[test]
    fn server_and_network_failures() {
        assert_eq!(after(NOTHING, 1), seconds(1));
        let bad_gateway = ResponseInfo {
            status: Some(502),
            ..NOTHING
        };
        assert_eq!(after(bad_gateway, 3), seconds(4));
        assert_eq!(after(bad_gateway, 30), seconds(120));
        let conflict = ResponseInfo {
            status: Some(409),
            refusal: Some(Refusal::Other),
            ..NOTHING
        };
        assert_eq!(after(conflict, 1), seconds(1));
        let requested = ResponseInfo {
            retry_after: Some(7),
            ..bad_gateway
        };
        assert_eq!(after(requested, 1), seconds(7));
    }

    #[test]
    fn limits() {
        let limited = ResponseInfo {
            status: Some(403),
            refusal: Some(Refusal::Limited),
            ..NOTHING
        };
        let asked = ResponseInfo {
            retry_after: Some(30),
            ..limited
        };
        assert_eq!(after(asked, 1), seconds(30));
        let used_up = ResponseInfo {
            remaining: Some(0),
            reset_in: Some(100),
            ..limited
        };
        assert_eq!(after(used_up, 1), seconds(101));
        let hour = ResponseInfo {
            reset_in: Some(3600),
            ..used_up
        };
        assert_eq!(
            after(hour, 1),
            RetryDecision::TooLong(Duration::from_secs(3601))
        );
        let endless = ResponseInfo {
            retry_after: Some(u64::MAX),
            ..limited
        };
        assert!(matches!(after(endless, 1), RetryDecision::TooLong(_)));
    }

    #[test]
    fn a_limit_without_a_time_waits_a_minute_at_least_and_longer_each_time() {
        let limited = ResponseInfo {
            status: Some(429),
            refusal: Some(Refusal::Limited),
            ..NOTHING
        };
        let policy = RetryPolicy::default();
        for jitter in [0.0, 0.5, 1.0] {
            let mut least = Duration::from_secs(60);
            for attempts in 1..4 {
                let decision = decide(&policy, &limited, attempts, Duration::ZERO, jitter);
                let RetryDecision::Wait(wait) = decision else {
                    panic!("{decision:?}");
                };
                assert!(wait >= least && wait < least * 2, "{wait:?}");
                least *= 2;
            }
        }
    }

    #[test]
    fn a_past_retry_time_still_waits() {
        for (status, refusal) in [
            (403, Some(Refusal::Limited)),
            (429, Some(Refusal::Limited)),
            (503, None),
        ] {
            let now = ResponseInfo {
                status: Some(status),
                refusal,
                retry_after: Some(0),
                ..NOTHING
            };
            assert_eq!(after(now, 1), seconds(1));
            assert_eq!(after(now, 3), seconds(4));
            let policy = RetryPolicy::default();
            let late = decide(&policy, &now, 1, policy.max_total_wait, 0.5);
            assert_eq!(late, RetryDecision::TooLong(Duration::from_secs(1)));
        }
    }

    #[test]
    fn permanent_failures_are_not_retried() {
        for status in [301, 400, 401, 403, 404, 410, 422] {
            assert_eq!(
                after(
                    ResponseInfo {
                        status: Some(status),
                        refusal: Some(Refusal::Other),
                        ..NOTHING
                    },
                    1
                ),
                RetryDecision::GiveUp
            );
        }
        let policy = RetryPolicy::default();
        let late = decide(&policy, &NOTHING, 1, policy.max_total_wait, 0.5);
        assert_eq!(late, RetryDecision::GiveUp);
    }
}
