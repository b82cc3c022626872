//! Settings in seconds.

use super::document::{Document, SettingPath};
use perfquilt_model::error::Result;

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
