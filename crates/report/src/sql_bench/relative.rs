//! The table of sql-bench's `compare-results --relative`, without intervals.

use std::collections::BTreeMap;

use super::{costs, format_seconds, head, label, program, seconds};
use crate::document::{Node, literal, name, paragraph, table};
use crate::text::width;
use perfquilt_judge::attribution::Attribution;
use perfquilt_model::observation::{CLIENT_OPERATION, RecordedRow, RecordedTable, RowLevel};
use perfquilt_model::point::Point;

/// Seconds by point and workload or operation, and the number of commands.
type Sum<'a> = (BTreeMap<Point, BTreeMap<&'a str, f64>>, f64);

/// The table without intervals.
pub(super) struct RelativeTable {
    /// The headings of the columns after the first.
    heads: Vec<String>,
    rows: Vec<RecordedRow>,
}

impl RelativeTable {
    pub(super) fn recorded(table: &RecordedTable) -> Self {
        RelativeTable {
            heads: table.columns.iter().map(|column| name(column)).collect(),
            rows: table.rows.clone(),
        }
    }

    pub(super) fn measured(attribution: &Attribution) -> Self {
        let points: Vec<Point> = (0..=attribution.patches.len())
            .map(Point::Step)
            .filter(|point| costs(attribution).any(|cost| cost.point == *point))
            .collect();
        // Operations of the same name in several programs are added up.
        let mut sums: BTreeMap<(RowLevel, &str), Sum<'_>> = BTreeMap::new();
        for cost in costs(attribution) {
            let seconds = seconds(cost);
            let (level, name) = match program(attribution, &cost.workload) {
                Some((_, Some(CLIENT_OPERATION))) => continue,
                Some((_, Some(operation))) => (RowLevel::Operation, operation),
                _ => (RowLevel::Program, cost.workload.as_str()),
            };
            let mut add = |row: (RowLevel, &'_ str)| {
                let row = sums.entry((
                    row.0,
                    if row.0 == RowLevel::Total {
                        "TOTALS"
                    } else {
                        name
                    },
                ));
                let (by_point, commands) = row.or_default();
                let parts = by_point.entry(cost.point).or_default();
                parts.insert(&cost.workload, seconds);
                if cost.point == Point::BASE {
                    *commands += cost.transactions;
                }
            };
            add((level, name));
            if level == RowLevel::Operation {
                add((RowLevel::Total, name));
            }
        }
        let rows = sums.into_iter().filter_map(|((level, name), sum)| {
            let (by_point, commands) = sum;
            let base = by_point.get(&Point::BASE)?;
            let seconds: f64 = base.values().sum();
            let relative = points.iter().filter(|point| **point != Point::BASE);
            Some(RecordedRow {
                level,
                name: name.to_owned(),
                commands: (level == RowLevel::Operation).then_some(commands.round() as u64),
                seconds,
                // Sums over different parts are not comparable.
                relative: relative
                    .map(|point| {
                        let parts = by_point.get(point)?;
                        let sum: f64 = parts.values().sum();
                        parts.keys().eq(base.keys()).then_some(sum / seconds)
                    })
                    .collect(),
            })
        });
        RelativeTable {
            rows: rows.collect(),
            heads: points
                .iter()
                .filter(|point| **point != Point::BASE)
                .map(|point| head(attribution, *point))
                .collect(),
        }
    }
}

impl RelativeTable {
    /// Returns sql-bench's table, with the last columns that fit into `columns` columns of a terminal.
    pub(super) fn nodes(&self, columns: usize) -> Vec<Node> {
        const FIGURE: usize = 8;
        let labels = self.rows.iter().map(|row| label(&row.name, row.commands));
        let labels: Vec<String> = labels.collect();
        let longest = labels.iter().map(|label| width(label)).fold(9, usize::max);
        let fit_columns = columns.saturating_sub(longest.min(36) + 10) / FIGURE;
        let skipped = self.heads.len().saturating_sub(fit_columns.max(1));
        let numbers = skipped + 1..=self.heads.len();
        let heads = numbers.clone().zip(&self.heads[skipped..]);
        let heads = heads.map(|(number, head)| (number.to_string().into(), head.into()));
        let hidden = (skipped > 0).then(|| {
            paragraph(format!(
                "({skipped} more columns need a wider terminal, or a pipe.)"
            ))
        });
        let mut level = None;
        let rows = self.rows.iter().zip(&labels).map(|(row, label)| {
            let is_apart = level.replace(row.level) != Some(row.level);
            (row, label, is_apart)
        });
        let table = table("Relative times", rows)
            .names("operation", |(_, label, _)| literal(label))
            .figures("seconds", |(row, ..)| format_seconds(row.seconds))
            .each(
                numbers.map(|number| (number.to_string(), number - 1)),
                |(row, ..), at| match row.relative.get(*at).copied().flatten() {
                    Some(relative) => format!("{relative:.3}"),
                    None => "–".to_owned(),
                },
            )
            .total_if(|(.., is_apart)| *is_apart);
        let about = paragraph(
            "Time relative to the first column, which is in seconds: below 1 is faster. As sql-bench's compare-results prints it:",
        );
        let heads = Node::Facts(heads.collect());
        [about, heads]
            .into_iter()
            .chain(hidden)
            .chain([table.node()])
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::document;
    use super::super::tests::experiment;
    use super::*;

    #[test]
    fn sums_of_different_parts_are_not_compared() {
        let table = RelativeTable::measured(&experiment());
        let relative = |name: &str| {
            let mut rows = table.rows.iter();
            rows.find(|row| row.name == name).unwrap().relative[0]
        };
        assert_eq!(relative("a"), Some(1.0));
        assert_eq!(relative("b"), None);
        assert_eq!(relative("TOTALS"), None);
    }

    #[test]
    fn a_clients_own_time_is_no_operation() {
        let mut attribution = experiment();
        for of in &mut attribution.operations {
            of.operation = CLIENT_OPERATION.to_owned();
        }
        assert!(document(&attribution, None, 80).is_err());
        attribution.costs[0].workload = format!("program/{CLIENT_OPERATION}");
        let rows = RelativeTable::measured(&attribution).rows;
        assert!(rows.iter().all(|row| row.name != CLIENT_OPERATION));
    }
}
