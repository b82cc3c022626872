//! When to retry a request, and after which wait. GitHub's own instructions come first
//! (<https://docs.github.com/en/rest/using-the-rest-api/best-practices-for-using-the-rest-api>).

use std::time::Duration;

/// The retry policy for requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The first wait when GitHub gives none; doubled for each further one.
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

/// The parts of a response that matter for retries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ResponseInfo {
    /// The status; `None` without a complete response.
    pub status: Option<u16>,
    /// `Retry-After`, in seconds.
    pub retry_after: Option<u64>,
    /// `X-RateLimit-Remaining`.
    pub remaining: Option<u64>,
    /// Seconds from `Date` to `X-RateLimit-Reset`. Both are on GitHub's clock, because the local clock may be
    /// wrong.
    pub reset_in: Option<u64>,
    /// Whether the message mentions a rate limit.
    pub says_limited: bool,
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

/// The maximum wait between two attempts, unless GitHub asks for more.
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
    let doubled = |first: Duration| {
        let wait = first
            .saturating_mul(1 << (attempts - 1).min(20))
            .min(MAX_WAIT.max(first));
        wait.mul_f64(0.75 + 0.5 * jitter.clamp(0.0, 1.0))
    };
    let limited = matches!(info.status, Some(403 | 429))
        && (info.status == Some(429)
            || info.says_limited
            || info.retry_after.is_some()
            || info.remaining == Some(0));
    let least = doubled(policy.first_wait);
    // `Retry-After: 0`, or a time in the past, must not cause an endless flood of requests.
    let requested = |seconds: u64| Duration::from_secs(seconds).max(least);
    let wait = match (info.status, info.retry_after) {
        (None, _) | (Some(500..=599), None) => least,
        (Some(500..=599), Some(seconds)) => requested(seconds),
        _ if !limited => return RetryDecision::GiveUp,
        (_, Some(seconds)) => requested(seconds),
        _ => match (info.remaining, info.reset_in) {
            // One second more, because the reset time is rounded.
            (Some(0), Some(seconds)) => requested(seconds.saturating_add(1)),
            _ => doubled(policy.rate_limited_wait),
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
        says_limited: false,
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
        let requested = ResponseInfo {
            retry_after: Some(7),
            ..bad_gateway
        };
        assert_eq!(after(requested, 1), seconds(7));
    }

    #[test]
    fn limits() {
        let forbidden = ResponseInfo {
            status: Some(403),
            ..NOTHING
        };
        assert_eq!(
            after(
                ResponseInfo {
                    retry_after: Some(30),
                    ..forbidden
                },
                1
            ),
            seconds(30)
        );
        assert_eq!(
            after(
                ResponseInfo {
                    says_limited: true,
                    ..forbidden
                },
                1
            ),
            seconds(60)
        );
        assert_eq!(
            after(
                ResponseInfo {
                    says_limited: true,
                    ..forbidden
                },
                2
            ),
            seconds(120)
        );
        let used_up = ResponseInfo {
            remaining: Some(0),
            reset_in: Some(100),
            ..forbidden
        };
        assert_eq!(after(used_up, 1), seconds(101));
        assert_eq!(
            after(
                ResponseInfo {
                    status: Some(429),
                    ..NOTHING
                },
                1
            ),
            seconds(60)
        );
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
            ..forbidden
        };
        assert!(matches!(after(endless, 1), RetryDecision::TooLong(_)));
    }

    #[test]
    fn a_past_retry_time_still_waits() {
        for status in [403, 429, 503] {
            let now = ResponseInfo {
                status: Some(status),
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
