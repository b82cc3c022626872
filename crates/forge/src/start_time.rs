//! When measurements began, which orders their results.

/// Returns a time as forges take it; `None` for a text that is no time, and for one after `now`, as only a wrong clock or a
/// forged file has: nothing could replace such a result.
pub(super) fn past_time(text: &str, now: jiff::Timestamp) -> Option<String> {
    let time: jiff::Timestamp = text.parse().ok()?;
    let time = jiff::Timestamp::from_second(time.as_second()).ok()?;
    (time <= now).then(|| time.to_string())
}

/// Returns whether a measurement that began at `one` began before that of `other`; false if either time is unknown or no
/// time. Both are texts as in RFC 3339.
pub(super) fn is_before(one: Option<&str>, other: Option<&str>) -> bool {
    let time = |text: Option<&str>| text.and_then(|text| text.parse::<jiff::Timestamp>().ok());
    time(one)
        .zip(time(other))
        // Forges keep whole seconds.
        .is_some_and(|(one, other)| one.as_second() < other.as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_past_times_are_starts() {
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        let past = |text: &str| past_time(text, now);
        assert_eq!(
            past("2026-01-02T04:04:04.5+01:00").as_deref(),
            Some("2026-01-02T03:04:04Z")
        );
        for other in ["", "yesterday", "2026-01-02", "2026-01-02T03:04:06Z"] {
            assert_eq!(past(other), None, "{other}");
        }
    }

    #[test]
    fn only_known_times_order_measurements() {
        let (early, late) = (Some("2026-01-02T03:04:05Z"), Some("2026-01-02T03:04:06Z"));
        assert!(is_before(early, late));
        assert!(!is_before(late, early));
        assert!(!is_before(early, Some("2026-01-02T03:04:05.9Z")));
        assert!(is_before(early, Some("2026-01-02T02:04:06-01:00")));
        for unknown in [None, Some(""), Some("yesterday")] {
            assert!(!is_before(early, unknown) && !is_before(unknown, late));
        }
    }
}
