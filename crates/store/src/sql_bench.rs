//! Tables of sql-bench results as tab-separated text, the format of results published before this program
//! existed.
//!
//! Columns `level` (`test`, `operation`, `total`), `name`, `commands`, `base_seconds`, then one column per run of
//! another server, relative to the base. A column has its server's name; `relative_1`, `relative_2`… are runs of one
//! server without a name.

use std::io::BufRead;
use std::path::Path;

use super::file_error::unreadable;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{
    ExcludedReadings, ExperimentHeader, Meter, Observation, ObservationFile, RecordedRow,
    RecordedTable, RowLevel, Supplement,
};
use perfquilt_model::point::Point;

/// The first columns of the first line.
const HEAD: [&str; 4] = ["level", "name", "commands", "base_seconds"];

/// The name of the first server.
const BASE: &str = "the base";

/// The name of the server of columns that are only numbered.
const CHANGED: &str = "the changed server";

/// A table and its observations.
#[derive(Debug, Clone)]
pub struct ImportedTable {
    /// The table.
    pub table: RecordedTable,
    /// The observations: the base as block 0, and each run of another server as a block of its own,
    /// because no two of them ran at the same time.
    pub file: ObservationFile,
}

/// The columns of runs.
#[derive(Debug, Default)]
struct Columns {
    /// The servers after the base, in the order of their first runs.
    servers: Vec<String>,
    /// The place of each column's server in `servers`.
    runs: Vec<usize>,
}

impl Columns {
    /// Reads the first line; `None` if it is none of such a table.
    fn read(line: &str) -> Option<Self> {
        let names = line.strip_prefix(&HEAD.join("\t"))?.strip_prefix('\t')?;
        let mut columns = Columns::default();
        for name in names.split('\t') {
            let name = server(name.trim())?;
            let known = columns.servers.iter().position(|server| server == name);
            columns.runs.push(known.unwrap_or(columns.servers.len()));
            if known.is_none() {
                columns.servers.push(name.to_owned());
            }
        }
        Some(columns)
    }

    fn headings(&self) -> Vec<String> {
        let mut headings = Vec::with_capacity(self.runs.len());
        for (place, server) in self.runs.iter().enumerate() {
            let same = |runs: &[usize]| runs.iter().filter(|other| *other == server).count();
            let name = &self.servers[*server];
            headings.push(match same(&self.runs) {
                1 => name.clone(),
                _ => format!("{name}, run {}", same(&self.runs[..=place])),
            });
        }
        headings
    }
}

/// Returns the server of a column; `None` if it has no name, or the base's.
fn server(column: &str) -> Option<&str> {
    let Some(name) = column.strip_prefix("relative") else {
        return Some(column).filter(|name| !name.is_empty() && *name != BASE);
    };
    let number = name.trim_start_matches('_');
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    Some(if is_number { CHANGED } else { column })
}

/// The byte order mark that spreadsheets write.
const MARK: &str = "\u{feff}";

/// Returns whether a file that begins with `line` is such a table.
pub fn is_table(line: &[u8]) -> bool {
    let line = line.strip_prefix(MARK.as_bytes()).unwrap_or(line);
    line.starts_with(HEAD.join("\t").as_bytes())
}

/// Reads a table; `shown` is its name in errors, and its stem is the experiment's name.
pub fn read(input: impl BufRead, shown: &Path) -> Result<ImportedTable> {
    let mut rows: Vec<RecordedRow> = Vec::new();
    let mut columns = Columns::default();
    for (number, line) in input.lines().enumerate() {
        let line = line.map_err(|error| unreadable(shown, &error))?;
        let line = line.trim_end_matches('\r');
        let line = line
            .strip_prefix(MARK)
            .filter(|_| number == 0)
            .unwrap_or(line);
        let at = |fault: String| Error::foreign_results(fault).at(shown, Some(number + 1));
        if number == 0 {
            columns = Columns::read(line).ok_or_else(|| {
                let head = HEAD.join(", ");
                at(format!(
                    "the columns {head} and one per run, with its server's name, are needed"
                ))
            })?;
        } else if !line.is_empty() {
            let row = row(line, columns.runs.len()).map_err(at)?;
            let same = |other: &RecordedRow| other.level == row.level && other.name == row.name;
            if rows.iter().any(same) {
                return Err(at(format!("`{}` is listed twice", row.name)));
            }
            rows.push(row);
        }
    }
    if !rows.iter().any(|row| row.level == RowLevel::Total) {
        return Err(Error::foreign_results("the row `total` is missing").at(shown, None));
    }
    let name = shown.file_stem().unwrap_or_default().to_string_lossy();
    let file = file(&name, &rows, columns.servers.clone(), &columns.runs);
    file.header
        .check()
        .map_err(|fault| Error::foreign_results(fault).at(shown, Some(1)))?;
    let columns = columns.headings();
    Ok(ImportedTable {
        table: RecordedTable { columns, rows },
        file,
    })
}

fn row(line: &str, runs: usize) -> Result<RecordedRow, String> {
    let fields: Vec<&str> = line.split('\t').collect();
    if fields.len() != HEAD.len() + runs {
        let wanted = HEAD.len() + runs;
        return Err(format!(
            "{wanted} columns are needed, there are {}",
            fields.len()
        ));
    }
    let number = |text: &str| match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok(number),
        _ => Err(format!("`{text}` is not a number of 0 or more")),
    };
    let level = match fields[0] {
        "test" => RowLevel::Program,
        "operation" => RowLevel::Operation,
        "total" => RowLevel::Total,
        other => {
            return Err(format!(
                "`level` is `{other}`: it must be test, operation or total"
            ));
        }
    };
    let commands = match fields[2] {
        "" => None,
        text => match text.parse() {
            Ok(0) | Err(_) => return Err(format!("`commands` is `{text}`")),
            Ok(commands) => Some(commands),
        },
    };
    let relative = |text: &&str| match *text {
        "" => Ok(None),
        text => number(text).map(Some),
    };
    Ok(RecordedRow {
        level,
        name: fields[1].to_owned(),
        commands,
        seconds: number(fields[3])?,
        relative: fields[HEAD.len()..]
            .iter()
            .map(relative)
            .collect::<Result<_, _>>()?,
    })
}

/// Returns the observations of `rows`; `runs` has the place in `servers` of each column's server.
fn file(name: &str, rows: &[RecordedRow], servers: Vec<String>, runs: &[usize]) -> ObservationFile {
    let mut header = ExperimentHeader {
        series: servers,
        base: Some(BASE.to_owned()),
        experiment: name.to_owned(),
        ..ExperimentHeader::new(name, "")
    };
    let mut supplement = Supplement::default();
    if rows.iter().all(|row| row.seconds.fract() == 0.0) {
        supplement.clock.insert(Meter::Time, 1e9);
    }
    let mut observations = Vec::new();
    for row in rows {
        let of_run = |(run, relative): (usize, &Option<f64>)| {
            let point = Point::Step(runs[run] + 1);
            Some((run + 1, point, relative.as_ref()? * row.seconds))
        };
        let base = (0, Point::BASE, row.seconds);
        let all = row.relative.iter().enumerate().filter_map(of_run);
        let mut untimed = 0;
        for (block, point, seconds) in std::iter::once(base).chain(all) {
            if seconds <= 0.0 {
                untimed += 1;
                continue;
            }
            let n = row.commands.unwrap_or(1);
            observations.push(Observation {
                experiment: header.experiment.clone(),
                n,
                ..Observation::new(
                    u32::try_from(block).unwrap_or(u32::MAX),
                    point,
                    &row.workload(),
                    Meter::Time,
                    seconds * 1e9 / n as f64,
                )
            });
        }
        if untimed > 0 {
            supplement.left_out.push(ExcludedReadings {
                workload: row.workload(),
                meter: Meter::Time,
                count: untimed,
                reason: "its clock had not moved".to_owned(),
            });
        }
    }
    for point in (1..=header.series.len()).map(Point::Step) {
        if !observations
            .iter()
            .any(|observation| observation.point == point)
        {
            let why = "its columns have no time above 0".to_owned();
            header.failed.insert(point, why);
        }
    }
    ObservationFile {
        header,
        supplement,
        observations,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "level\tname\tcommands\tbase_seconds\trelative_1\trelative_2\n\
        test\tselect\t\t417.00\t0.959\t0.868\n\
        operation\tcreate_index\t8\t0.00\t1.000\t0.000\n\
        operation\tcount\t100\t3.00\t0.667\t\n\
        total\tTOTALS\t\t3619.00\t0.978\t0.975\n";

    fn table(text: &str) -> Result<ImportedTable> {
        read(text.as_bytes(), Path::new("seed.tsv"))
    }

    #[test]
    fn runs_are_blocks_of_their_own() {
        let table = table(TABLE).unwrap();
        assert_eq!(table.table.rows.len(), 4);
        let of = |name: &str| -> Vec<(u32, f64, u64)> {
            let of_row = table
                .file
                .observations
                .iter()
                .filter(|o| o.workload == name);
            of_row.map(|o| (o.block, o.value, o.n)).collect()
        };
        assert_eq!(of("TOTALS/test-select").len(), 3);
        let count = of("TOTALS/count");
        assert_eq!(count.len(), 2);
        assert_eq!((count[0].0, count[0].1, count[0].2), (0, 3e7, 100));
        assert!((count[1].1 - 0.667 * 3e7).abs() < 1.0);
        assert!(of("TOTALS/create_index").is_empty());
        assert_eq!(table.file.supplement.left_out[0].count, 3);
        assert_eq!(table.file.supplement.clock[&Meter::Time], 1e9);
        assert_eq!(table.file.header.experiment, "seed");
    }

    #[test]
    fn columns_are_servers_by_their_names() {
        let with = |first: &str, second: &str| {
            let text = TABLE.replacen("relative_1", first, 1);
            table(&text.replacen("relative_2", second, 1))
        };
        for (first, second, servers, headings) in [
            (
                "relative_1",
                "relative_2",
                &[CHANGED][..],
                ["the changed server, run 1", "the changed server, run 2"],
            ),
            ("new", "new", &["new"], ["new, run 1", "new, run 2"]),
            // The numbers may be versions.
            ("db_5", "db_6", &["db_5", "db_6"], ["db_5", "db_6"]),
            ("relative", "b", &[CHANGED, "b"], [CHANGED, "b"]),
            (
                "relative_a",
                "relative_1",
                &["relative_a", CHANGED],
                ["relative_a", CHANGED],
            ),
        ] {
            let read = with(first, second).unwrap();
            assert_eq!(read.file.header.base.as_deref(), Some(BASE));
            assert_eq!(read.file.header.series, servers, "{first}");
            assert_eq!(read.table.columns, headings, "{first}");
            let total = read.file.observations.iter();
            let points: Vec<(u32, Point)> = total
                .filter(|of| of.workload == "TOTALS")
                .map(|of| (of.block, of.point))
                .collect();
            let last = Point::Step(servers.len());
            let expected = [(0, Point::BASE), (1, Point::Step(1)), (2, last)];
            assert_eq!(points, expected, "{first}");
        }
        let error = with("new", "").unwrap_err().to_string();
        assert!(error.contains("seed.tsv:1"), "{error}");
    }

    #[test]
    fn a_server_without_any_time_is_named_as_failed() {
        let text = TABLE.replace("relative_2", "other");
        let text: String = text
            .lines()
            .map(|line| match line.rsplit_once('\t') {
                Some((row, "other")) => format!("{row}\tother\n"),
                Some((row, _)) => format!("{row}\t\n"),
                None => unreachable!(),
            })
            .collect();
        let failed = table(&text).unwrap().file.header.failed;
        assert_eq!(failed.keys().collect::<Vec<_>>(), [&Point::Step(2)]);
    }

    #[test]
    fn what_is_no_table_is_refused_with_its_line() {
        for (from, to, line) in [
            ("relative_1\t", "", "seed.tsv:2"),
            ("417.00", "many", "seed.tsv:2"),
            (
                "operation\tcount\t100",
                "operation\tcreate_index\t100",
                "seed.tsv:4",
            ),
            ("test\tselect", "suite\tselect", "seed.tsv:2"),
            ("level\tname", "name\tlevel", "seed.tsv:1"),
            ("total\tTOTALS", "test\tTOTALS", "seed.tsv"),
        ] {
            let text = TABLE.replacen(from, to, 1);
            let error = table(&text).unwrap_err().to_string();
            assert!(error.contains(line), "{from}: {error}");
        }
    }
}
