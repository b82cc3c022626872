//! Dates in the headers of patches.

use jiff::civil;

/// A point in time and its UTC offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub seconds: i64,
    /// Minutes east of UTC.
    pub offset_minutes: i32,
}

/// Parses Mercurial's date: seconds since 1970 and the offset in seconds *west* of UTC.
pub(super) fn mercurial_date(text: &str) -> Option<Timestamp> {
    let (seconds, offset) = text.split_once(' ')?;
    let west: i32 = offset.trim().parse().ok()?;
    // Python writes the seconds as a decimal number.
    let whole = seconds.split('.').next().unwrap_or_default();
    Some(Timestamp {
        seconds: whole.parse().ok()?,
        offset_minutes: -west / 60,
    })
}

/// Parses a date in RFC 2822 (`Mon, 3 Jun 2024 10:00:00 +0200`), in git's own formats (`Mon Jun 3 10:00:00 2024 +0200`,
/// `1717401600 +0200`) or in ISO 8601 with or without a time.
pub(super) fn timestamp(text: &str) -> Option<Timestamp> {
    let text = text.lines().next().unwrap_or_default().trim();
    let text = text.strip_prefix('@').unwrap_or(text);
    let stamp = |moment: jiff::Timestamp, offset: jiff::tz::Offset| Timestamp {
        seconds: moment.as_second(),
        offset_minutes: offset.seconds() / 60,
    };
    if let Ok(zoned) = jiff::fmt::rfc2822::parse(text) {
        return Some(stamp(zoned.timestamp(), zoned.offset()));
    }
    for format in [
        "%a %b %d %H:%M:%S %Y %z",
        "%Y-%m-%d %H:%M:%S %z",
        "%Y-%m-%dT%H:%M:%S%:z",
        "%s %z",
    ] {
        if let Ok(parsed) = jiff::fmt::strtime::parse(format, text)
            && let (Ok(moment), Some(offset)) = (parsed.to_timestamp(), parsed.offset())
        {
            return Some(stamp(moment, offset));
        }
    }
    // Queues of Mercurial have `Date: 1717401600 -7200` in the header of a mail; fewer digits are words.
    if text.split('.').next().is_some_and(|it| it.len() > 8)
        && let Some(date) = mercurial_date(text)
    {
        return Some(date);
    }
    let utc = |moment: civil::DateTime| {
        let zoned = moment.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
        Some(stamp(zoned.timestamp(), zoned.offset()))
    };
    let date: civil::Date = text.split(['T', ' ']).next()?.parse().ok()?;
    match text.trim_end_matches('Z').parse::<civil::DateTime>() {
        Ok(moment) => utc(moment),
        Err(_) => utc(date.at(0, 0, 0, 0)),
    }
}

fn formatted(date: Timestamp, format: &str) -> String {
    let offset = jiff::tz::Offset::from_seconds(date.offset_minutes * 60);
    let moment = jiff::Timestamp::from_second(date.seconds);
    let (Ok(offset), Ok(moment)) = (offset, moment) else {
        return String::new();
    };
    let zoned = moment.to_zoned(jiff::tz::TimeZone::fixed(offset));
    zoned.strftime(format).to_string()
}

/// Returns a date as mails have it (RFC 2822).
pub(super) fn date_text(date: Timestamp) -> String {
    formatted(date, "%a, %-d %b %Y %H:%M:%S %z")
}

/// Returns a date as `git log` prints it.
pub(super) fn git_date_text(date: Timestamp) -> String {
    formatted(date, "%a %b %-d %H:%M:%S %Y %z")
}

/// Returns a date as commits have it.
pub(super) fn raw_date_text(date: Timestamp) -> String {
    formatted(date, "%s %z")
}

/// Returns the day of a date, as DEP-3 has it.
pub(super) fn day_text(date: Timestamp) -> String {
    formatted(date, "%Y-%m-%d")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (text, seconds) in [
            ("Mon Jun 3 10:00:00 2024 +0200", Some(1_717_401_600)),
            ("2024-06-03 10:00:00 +0200", Some(1_717_401_600)),
            ("2024-06-03T08:00:00Z", Some(1_717_401_600)),
            ("2024-06-03", Some(1_717_372_800)),
            ("@1717401600 +0200", Some(1_717_401_600)),
            ("1717401600 +0200", Some(1_717_401_600)),
            ("1717401600 -7200", Some(1_717_401_600)),
            ("1717401600.0 0", Some(1_717_401_600)),
            ("12 30", None),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(timestamp(text).map(|t| t.seconds), seconds, "{text}");
        }
    }
}
