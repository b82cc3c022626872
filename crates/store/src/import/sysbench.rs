//! The output of `sysbench … run`.

use std::path::Path;

use super::{ImportedServer, ImportedValue, at};
use perfquilt_model::error::Result;
use perfquilt_model::observation::Meter;

/// Returns whether a line is the first one of a run's output.
pub(super) fn is_head(line: &str) -> bool {
    line.strip_prefix("sysbench ")
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Reads the runs of a log: the time per event is the run's seconds over its events, whatever the number of
/// threads.
pub(super) fn read(text: &str, path: &Path, name: &str) -> Result<Vec<ImportedServer>> {
    let mut readings = Vec::new();
    let mut seconds = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if is_head(line) {
            seconds = None;
        }
        // The latter is the name since sysbench 1.1.
        let time = value(line, "total time:").or_else(|| value(line, "time elapsed:"));
        if let Some(found) = time {
            let found = found.strip_suffix('s').unwrap_or(found);
            let found = found.trim().parse::<f64>().ok();
            let found = found.filter(|s| s.is_finite() && *s > 0.0);
            let fault = || at(path, number, format!("`{line}` has no number of seconds"));
            seconds = Some(found.ok_or_else(fault)?);
        }
        if let Some(found) = value(line, "total number of events:") {
            let events = found.parse::<u64>().ok().filter(|n| *n > 0);
            let fault = || {
                at(
                    path,
                    number,
                    format!("`{line}`: a run needs at least one event"),
                )
            };
            let events = events.ok_or_else(fault)?;
            let fault = || {
                at(
                    path,
                    number,
                    "events without `total time:` or `time elapsed:` before".to_owned(),
                )
            };
            let seconds = seconds.take().ok_or_else(fault)?;
            readings.push(ImportedValue {
                workload: "sysbench".to_owned(),
                meter: Meter::Time,
                value: 1e9 * seconds / events as f64,
                n: events,
            });
        }
    }
    Ok(vec![ImportedServer {
        name: name.to_owned(),
        readings,
        ..ImportedServer::default()
    }])
}

fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.strip_prefix(key).map(str::trim)
}
