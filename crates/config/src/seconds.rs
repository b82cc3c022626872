//! Settings in seconds.

use std::time::Duration;

use jiff::SignedDuration;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::document::{Document, SettingPath};
use perfquilt_model::error::Result;

/// The longest duration that can be given; a longer one is a slip.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// Parses a duration such as `30m`, `1h 30m` or `90s`: above 0, and at most a year.
pub fn parse_duration(text: &str) -> std::result::Result<Duration, &'static str> {
    let parsed: SignedDuration = text.parse().map_err(|_| match text.trim().parse::<f64>() {
        Ok(_) => "a duration needs a unit, as in `30m`, `1h 30m` and `90s`",
        Err(_) => "`30m`, `1h 30m` and `90s` are durations",
    })?;
    match Duration::try_from(parsed) {
        Ok(duration) if duration > LONGEST => Err("a duration is at most a year"),
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("a duration is longer than 0"),
    }
}

/// Reads a duration.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_duration(&text).map(Some).map_err(D::Error::custom)
}

/// Maximum of settings in seconds: one day.
const MAX_SECONDS: f64 = 86_400.0;

/// Checks that the setting at `path`, which messages call `shown`, is a duration: above 0 and at most a day.
pub(super) fn check(
    document: &Document,
    path: SettingPath<'_>,
    value: f64,
    shown: &str,
) -> Result<()> {
    if value > 0.0 && value <= MAX_SECONDS {
        Ok(())
    } else {
        let fault = format!("{shown} is more than 0 and at most a day (86400)");
        Err(document.error(path, fault))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        let seconds = |text| parse_duration(text).map(|duration| duration.as_secs());
        assert_eq!(seconds("30m"), Ok(1800));
        assert_eq!(seconds("1h 30m"), Ok(5400));
        assert_eq!(seconds("90s"), Ok(90));
        assert_eq!(seconds("8760h"), Ok(8760 * 3600));
        for wrong in ["", "30", "-5m", "0s", "soon", "9999999999999h"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
