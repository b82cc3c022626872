//! Reads the results of the driver.

use std::collections::BTreeMap;
use std::path::Path;

use super::BlockSlices;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::Slices;
use perfquilt_model::point::Point;

/// Reads the slices of a run over the servers of `points`, in the order of the driver's arguments.
pub(super) fn read_slices(file: &Path, points: &[Point]) -> Result<BlockSlices> {
    let bytes = std::fs::read(file).map_err(|e| Error::io("read", file, &e))?;
    let slices = parse_slices(&bytes, points).map_err(|fault| {
        Error::client_result(format!("the driver's result is unusable: {fault}"))
    })?;
    match (slices.rounds, slices.discarded_rounds) {
        (0, discarded @ 1..) => Err(Error::transactions_restarted(format!(
            "no usable round: in all {discarded}, transactions were restarted (a deadlock or \
             a duplicate key)"
        ))
        .hint("reduce the conflicts between the workload's threads")),
        _ => Ok(slices),
    }
}

/// Parses a header line `perfquilt-slices 1 KEY=NUMBER…`, then one row of `servers` little-endian floats per
/// slice: wall-clock nanoseconds of every slice, then processor nanoseconds if `cpu=1`.
fn parse_slices(bytes: &[u8], points: &[Point]) -> Result<BlockSlices, String> {
    let end = bytes
        .iter()
        .position(|&byte| byte == b'\n')
        .ok_or("no header line")?;
    let head = std::str::from_utf8(&bytes[..end]).map_err(|_| "the header line is not text")?;
    let mut words = head.split(' ');
    if (words.next(), words.next()) != (Some("perfquilt-slices"), Some("1")) {
        return Err(format!("unknown header line `{head}`"));
    }
    let fields: BTreeMap<&str, u64> = words
        .map(|word| {
            word.split_once('=')
                .and_then(|(key, value)| Some((key, value.parse().ok()?)))
                .ok_or_else(|| format!("unknown field `{word}`"))
        })
        .collect::<Result<_, String>>()?;
    let field = |name: &str| {
        let found = fields.get(name).copied();
        found.ok_or_else(|| format!("no field `{name}`"))
    };
    let size = |name: &str| field(name).map(|value| usize::try_from(value).unwrap_or(usize::MAX));
    let (servers, rows, with_cpu) = (size("servers")?, size("rows")?, field("cpu")? == 1);
    if servers != points.len() {
        return Err(format!("{servers} servers instead of {}", points.len()));
    }
    let body = &bytes[end + 1..];
    let series = rows.checked_mul(servers).and_then(|n| n.checked_mul(4));
    let expected = series.and_then(|n| n.checked_mul(if with_cpu { 2 } else { 1 }));
    if expected != Some(body.len()) {
        return Err(format!("{} bytes for {rows} rows", body.len()));
    }
    let transactions = field("transactions")?;
    let read = |body: &[u8]| {
        let mut slices: Vec<Slices> = points
            .iter()
            .map(|&point| Slices {
                point,
                values: Vec::with_capacity(rows),
                transactions_per_slice: transactions,
            })
            .collect();
        for (index, chunk) in body.chunks_exact(4).enumerate() {
            let value = f32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
            slices[index % servers].values.push(value);
        }
        slices
    };
    let (time, cpu) = body.split_at(series.unwrap_or(0));
    let timed = field("slices")?.saturating_mul(transactions).max(1);
    let untimed = field("lead")?.saturating_mul(field("threads")?);
    Ok(BlockSlices {
        time: read(time),
        cpu: if with_cpu { read(cpu) } else { Vec::new() },
        operations: BTreeMap::new(),
        usage: BTreeMap::new(),
        rounds: field("rounds")?,
        discarded_rounds: field("spoiled")?,
        untimed_share: untimed as f64 / timed as f64,
    })
}

/// Reads the failure reported by the driver: the server it was connected to (from 1; 0 for none) and the message.
pub(super) fn read_failure(file: &Path) -> Option<(usize, Vec<String>)> {
    let text = std::fs::read_to_string(file).ok()?;
    let mut lines = text.lines();
    let server = lines.next()?.parse().ok()?;
    // Lua's stack trace below the message does not help users.
    let lines = lines
        .take_while(|line| *line != "stack traceback:")
        .map(str::to_owned)
        .collect();
    Some((server, lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINTS: [Point; 2] = [Point::Step(0), Point::Control];

    fn result(head: &str, values: &[f32]) -> Vec<u8> {
        let mut bytes = format!("{head}\n").into_bytes();
        values
            .iter()
            .for_each(|value| bytes.extend(value.to_le_bytes()));
        bytes
    }

    #[test]
    fn rows_become_columns() {
        let bytes = result(
            "perfquilt-slices 1 servers=2 rows=2 rounds=1 slices=2 transactions=3 lead=1 threads=1 spoiled=4 cpu=1",
            &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
        );
        let measured = parse_slices(&bytes, &POINTS).unwrap();
        assert_eq!(measured.time[0].values, [1.0, 3.0]);
        assert_eq!(measured.time[1].values, [2.0, 4.0]);
        assert_eq!(measured.time[1].point, Point::Control);
        assert_eq!(measured.cpu[1].values, [6.0, 8.0]);
        assert_eq!(measured.time[0].transactions_per_slice, 3);
        assert_eq!((measured.rounds, measured.discarded_rounds), (1, 4));
        // One transaction before two slices of three.
        assert_eq!(measured.untimed_share, 1.0 / 6.0);
    }

    #[test]
    fn only_discarded_rounds_are_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("slices");
        let head = "perfquilt-slices 1 servers=2 rows=0 rounds=0 slices=2 transactions=3 lead=1 threads=1 spoiled=4 cpu=0";
        std::fs::write(&file, result(head, &[])).unwrap();
        let error = read_slices(&file, &POINTS).unwrap_err();
        assert!(error.message().contains("in all 4"), "{error}");
    }

    #[test]
    fn damaged_results_are_refused() {
        let head = "perfquilt-slices 1 servers=2 rows=1 rounds=1 slices=1 transactions=3 lead=0 threads=1 spoiled=0 cpu=0";
        assert!(parse_slices(&result(head, &[1.0, 2.0]), &POINTS).is_ok());
        for (head, values) in [
            (head, &[1.0f32][..]),
            (head, &[1.0, 2.0, 3.0]),
            ("perfquilt-slices 2", &[]),
            ("perfquilt-slices 1 servers=2", &[]),
            ("perfquilt-slices 1 servers=x", &[]),
            (
                "perfquilt-slices 1 servers=3 rows=0 rounds=0 slices=1 transactions=1 lead=0 threads=1 spoiled=0 cpu=0",
                &[],
            ),
            (
                "perfquilt-slices 1 servers=2 rows=18446744073709551615 rounds=1 slices=1 transactions=3 lead=0 threads=1 spoiled=0 cpu=0",
                &[],
            ),
            ("", &[]),
        ] {
            assert!(
                parse_slices(&result(head, values), &POINTS).is_err(),
                "{head}"
            );
        }
        assert!(parse_slices(b"no end", &POINTS).is_err());
    }

    #[test]
    fn failures_name_the_server_without_luas_stack() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("error");
        std::fs::write(&file, "2\nlost connection\nstack traceback:\n\tx\n").unwrap();
        assert_eq!(
            read_failure(&file),
            Some((2, vec!["lost connection".to_owned()]))
        );
        assert_eq!(read_failure(&folder.path().join("none")), None);
    }
}
