//! The Go benchmark format (golang.org/design/14313-benchmark-format).

use std::collections::BTreeMap;
use std::path::Path;

use super::{ImportedServer, ImportedValue, at};
use perfquilt_model::error::Result;
use perfquilt_model::observation::{MOST_PATCHES, Meter, RowName};
use perfquilt_model::point::Point;

/// Returns whether a line is a result: `Benchmark` and a name that does not continue with a lower-case
/// letter, a count, and a value with its unit.
pub(super) fn is_line(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let name = words.next().and_then(|word| word.strip_prefix("Benchmark"));
    let named = name.is_some_and(|name| !name.starts_with(char::is_lowercase));
    let counted = words.next().is_some_and(|n| n.parse::<u64>().is_ok());
    named && counted && words.count() >= 2
}

fn meter(unit: &str) -> Option<Meter> {
    Meter::ALL.into_iter().find(|meter| meter.go_unit() == unit)
}

/// Reads the results of a file: of one server, or of the points that names give by `/point=`, separately for
/// each preceding `experiment:` line. Units other than costs of time or instructions are skipped.
pub(super) fn read(text: &str, path: &Path, stem: &str) -> Result<Vec<ImportedServer>> {
    let mut servers: BTreeMap<(usize, Option<Point>), Vec<ImportedValue>> = BTreeMap::new();
    let mut names: BTreeMap<usize, &str> = BTreeMap::new();
    let mut experiment = None;
    // Experiments are numbered in the order of their first results.
    let mut experiments: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        if let Some((key, value)) = line.split_once(": ") {
            if key == "experiment" {
                experiment = Some(value.trim());
            } else if let Some(place) = key.strip_prefix("patch-")
                && let Ok(place) = place.parse()
            {
                names.insert(place, value);
            }
        }
        if !is_line(line) {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let (workload, point) = name(words[0]).map_err(|fault| at(path, number, fault))?;
        let of = experiment.filter(|_| point.is_some());
        let next = experiments.len();
        let server = (*experiments.entry(of).or_insert(next), point);
        let n = words[1].parse::<u64>().unwrap_or(0);
        for pair in words[2..].chunks(2) {
            let [value, unit] = pair else {
                return Err(at(path, number, format!("`{}` has no unit", pair[0])));
            };
            let Some(meter) = meter(unit) else { continue };
            let value = value
                .parse::<f64>()
                .ok()
                .filter(|v| v.is_finite() && *v > 0.0);
            let (Some(value), true) = (value, n > 0) else {
                let fault = format!("`{} {unit}` of {n} operations is not a cost", pair[0]);
                return Err(at(path, number, fault));
            };
            servers.entry(server).or_default().push(ImportedValue {
                workload: workload.clone(),
                meter,
                value,
                n,
            });
        }
    }
    let named = servers.keys().all(|(_, point)| point.is_some());
    if named && !servers.is_empty() {
        // Patches without results are part of the series.
        for (&patch, _) in names.range(1..=MOST_PATCHES) {
            let point = Some(Point::Step(patch));
            servers.entry((0, point)).or_default();
        }
    }
    let mut by_place = vec![None; experiments.len()];
    for (name, place) in experiments {
        by_place[place] = name;
    }
    let server = |((place, point), readings): ((usize, Option<Point>), Vec<ImportedValue>)| {
        let name = match point {
            Some(Point::Step(k)) => names
                .get(&k)
                .map_or(format!("point {k}"), |n| (*n).to_owned()),
            Some(point) => point.to_string(),
            None => stem.to_owned(),
        };
        ImportedServer {
            name,
            point,
            experiment: by_place[place].map(str::to_owned),
            readings,
            ..ImportedServer::default()
        }
    };
    Ok(servers.into_iter().map(server).collect())
}

/// Splits a benchmark's name into workload and point, dropping the number of processors at its end.
fn name(text: &str) -> std::result::Result<(String, Option<Point>), String> {
    let text = text.strip_prefix("Benchmark").unwrap_or(text);
    let text = match text.rsplit_once('-') {
        Some((name, cores)) if !cores.is_empty() && cores.bytes().all(|b| b.is_ascii_digit()) => {
            name
        }
        _ => text,
    };
    let mut point = None;
    let mut workload = Vec::new();
    for part in text.split('/') {
        match (part.strip_prefix("point="), part.strip_prefix("workload=")) {
            (Some(word), _) => {
                let known = word.parse::<Point>();
                point = Some(known.map_err(|error| error.message().to_owned())?);
            }
            (None, Some(word)) => workload.push(word),
            (None, None) => workload.push(part),
        }
    }
    // `report --format gobench` writes `Server` before the workload and `operation=` after it.
    let mut operation = None;
    if point.is_some() && workload.first() == Some(&"Server") && workload.len() > 1 {
        workload.remove(0);
        if let [.., _, last] = workload[..] {
            operation = last.strip_prefix("operation=");
            workload.truncate(workload.len() - usize::from(operation.is_some()));
        }
    }
    // Only operations are separated by a slash; a benchmark's sub-benchmarks are not operations.
    let workload = workload.join(".");
    let workload = match (workload.is_empty(), operation) {
        (true, _) => "benchmark".to_owned(),
        (false, None) => workload,
        (false, Some(operation)) => RowName::operation(&workload, operation).to_string(),
    };
    Ok((workload, point))
}
