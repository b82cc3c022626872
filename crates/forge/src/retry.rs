//! When a request is tried again, and after how long. What GitHub asks for comes first
//! (<https://docs.github.com/en/rest/using-the-rest-api/best-practices-for-using-the-rest-api>).

use std::time::Duration;

/// How patiently requests are repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The first wait where GitHub names none; each further one is twice as long.
    pub first: Duration,
    /// The first wait after a secondary rate limit without a time, likewise.
    pub limited: Duration,
    /// All waits of one request together.
    pub patience: Duration,
    /// How long one answer may take.
    pub answer: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            first: Duration::from_secs(1),
            limited: Duration::from_secs(60),
            patience: Duration::from_secs(15 * 60),
            answer: Duration::from_secs(30),
        }
    }
}

/// What came back of a request, as far as trying again is concerned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// The status; `None` when there was no whole answer.
    pub status: Option<u16>,
    /// `Retry-After`, in seconds.
    pub retry_after: Option<u64>,
    /// `X-RateLimit-Remaining`.
    pub remaining: Option<u64>,
    /// Seconds from `Date` to `X-RateLimit-Reset`: both on GitHub's clock, ours may be wrong.
    pub reset_in: Option<u64>,
    /// Whether the message speaks of a rate limit.
    pub says_limited: bool,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Try again after this.
    Wait(Duration),
    /// Trying again would not help.
    GiveUp,
    /// It might help after this, which is longer than allowed.
    TooLong(Duration),
}

/// Waits of this length at most between two tries of our own.
const LONGEST: Duration = Duration::from_secs(120);

/// Decides after `tries` tries (1 or more) that waited `waited` together. `chance` in 0..1 spreads the
/// waits of several programs.
pub(super) fn next(
    policy: &Policy,
    answer: &Answer,
    tries: u32,
    waited: Duration,
    chance: f64,
) -> Next {
    let doubled = |first: Duration| {
        let wait = first
            .saturating_mul(1 << (tries - 1).min(20))
            .min(LONGEST.max(first));
        wait.mul_f64(0.75 + 0.5 * chance.clamp(0.0, 1.0))
    };
    let limited = matches!(answer.status, Some(403 | 429))
        && (answer.status == Some(429)
            || answer.says_limited
            || answer.retry_after.is_some()
            || answer.remaining == Some(0));
    let least = doubled(policy.first);
    // `Retry-After: 0`, or a time that has passed, must not make this a flood without an end.
    let told = |seconds: u64| Duration::from_secs(seconds).max(least);
    let wait = match (answer.status, answer.retry_after) {
        (None, _) | (Some(500..=599), None) => least,
        (Some(500..=599), Some(seconds)) => told(seconds),
        _ if !limited => return Next::GiveUp,
        (_, Some(seconds)) => told(seconds),
        _ => match (answer.remaining, answer.reset_in) {
            // A second more: the reset is rounded.
            (Some(0), Some(seconds)) => told(seconds.saturating_add(1)),
            _ => doubled(policy.limited),
        },
    };
    if waited.saturating_add(wait) <= policy.patience {
        Next::Wait(wait)
    } else if limited || answer.retry_after.is_some() {
        Next::TooLong(wait)
    } else {
        Next::GiveUp
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Answer = Answer {
        status: None,
        retry_after: None,
        remaining: None,
        reset_in: None,
        says_limited: false,
    };

    fn after(answer: Answer, tries: u32) -> Next {
        next(&Policy::default(), &answer, tries, Duration::ZERO, 0.5)
    }

    fn seconds(wait: u64) -> Next {
        Next::Wait(Duration::from_secs(wait))
    }

    #[test]
    fn faults_of_the_server_and_the_line() {
        assert_eq!(after(NOTHING, 1), seconds(1));
        let bad_gateway = Answer {
            status: Some(502),
            ..NOTHING
        };
        assert_eq!(after(bad_gateway, 3), seconds(4));
        assert_eq!(after(bad_gateway, 30), seconds(120));
        let told = Answer {
            retry_after: Some(7),
            ..bad_gateway
        };
        assert_eq!(after(told, 1), seconds(7));
    }

    #[test]
    fn limits() {
        let forbidden = Answer {
            status: Some(403),
            ..NOTHING
        };
        assert_eq!(
            after(
                Answer {
                    retry_after: Some(30),
                    ..forbidden
                },
                1
            ),
            seconds(30)
        );
        assert_eq!(
            after(
                Answer {
                    says_limited: true,
                    ..forbidden
                },
                1
            ),
            seconds(60)
        );
        assert_eq!(
            after(
                Answer {
                    says_limited: true,
                    ..forbidden
                },
                2
            ),
            seconds(120)
        );
        let used_up = Answer {
            remaining: Some(0),
            reset_in: Some(100),
            ..forbidden
        };
        assert_eq!(after(used_up, 1), seconds(101));
        assert_eq!(
            after(
                Answer {
                    status: Some(429),
                    ..NOTHING
                },
                1
            ),
            seconds(60)
        );
        let hour = Answer {
            reset_in: Some(3600),
            ..used_up
        };
        assert_eq!(after(hour, 1), Next::TooLong(Duration::from_secs(3601)));
        let endless = Answer {
            retry_after: Some(u64::MAX),
            ..forbidden
        };
        assert!(matches!(after(endless, 1), Next::TooLong(_)));
    }

    #[test]
    fn a_time_that_has_passed_is_no_leave_to_ask_at_once() {
        for status in [403, 429, 503] {
            let now = Answer {
                status: Some(status),
                retry_after: Some(0),
                ..NOTHING
            };
            assert_eq!(after(now, 1), seconds(1));
            assert_eq!(after(now, 3), seconds(4));
            let policy = Policy::default();
            let late = next(&policy, &now, 1, policy.patience, 0.5);
            assert_eq!(late, Next::TooLong(Duration::from_secs(1)));
        }
    }

    #[test]
    fn what_does_not_get_better() {
        for status in [301, 400, 401, 403, 404, 410, 422] {
            assert_eq!(
                after(
                    Answer {
                        status: Some(status),
                        ..NOTHING
                    },
                    1
                ),
                Next::GiveUp
            );
        }
        let policy = Policy::default();
        let late = next(&policy, &NOTHING, 1, policy.patience, 0.5);
        assert_eq!(late, Next::GiveUp);
    }
}
