//! Absolute figures: transactions per second, and other costs of a transaction.

use super::{ExportedReport, Exporter, UniqueNames, one_line, patch_of};
use crate::document::{Document, Node, heading, literal, paragraph, table, title};
use crate::legend::level;
use crate::number;
use crate::report::warnings;
use crate::workload_name;
use perfquilt_judge::attribution::{Attribution, Effect, EffectKind, TransactionCost};
use perfquilt_model::counted::percent;
use perfquilt_model::observation::{CLIENT_OPERATION, Meter};
use perfquilt_model::point::Point;

/// Absolute figures of each point.
pub(super) const RATES: Exporter = Exporter::new(
    "rates",
    "Transactions per second and other costs of each point, as Markdown",
    |data| Ok(rates(data.attribution)),
);

/// Returns the rates of an experiment as Markdown: one table per meter, one row per workload and point, with the
/// effect against point 0. Times are shown as transactions per second, other meters as costs.
pub(super) fn rates(attribution: &Attribution) -> ExportedReport {
    let workloads = UniqueNames::of_workloads(attribution, &one_line);
    let mut nodes = vec![title(literal(attribution.base()))];
    for meter in Meter::ALL {
        let costs = attribution.costs.iter();
        let costs: Vec<&TransactionCost> = costs
            .filter(|cost| cost.meter == meter && attribution.workloads.contains(&cost.workload))
            .filter(|cost| cost.point != Point::Control)
            .collect();
        if !costs.is_empty() {
            nodes.extend([
                heading(head(meter)),
                of_meter(attribution, meter, &costs, &workloads),
            ]);
        }
    }
    nodes.push(paragraph(
        "Figures are geometric means over blocks. Their intervals hold what differs between blocks, which points share: \
         servers are compared by the last column.",
    ));
    nodes.extend(warnings(&attribution.warnings));
    workloads.on(Document(nodes).markdown())
}

/// Returns the table of a meter's costs.
fn of_meter(
    attribution: &Attribution,
    meter: Meter,
    costs: &[&TransactionCost],
    workloads: &UniqueNames<'_>,
) -> Node {
    let part = |cost: &TransactionCost| clients_part(attribution, cost);
    let has_parts = costs.iter().any(|cost| part(cost).is_some());
    table(head(meter), costs)
        .names("workload", |cost| {
            literal(workload_name(workloads.get(&cost.workload)))
        })
        .names("server", |cost| literal(&server(attribution, cost.point)))
        .figures(head(meter), |cost| figure(meter, cost.estimate))
        .figures(
            format!("{:.0} % interval", level(attribution, meter)),
            |cost| between(meter, cost),
        )
        .figures("against point 0", |cost| gain(attribution, cost))
        .figures("client's part", |cost| {
            part(cost).map_or(String::new(), |part| format!("{:.0} %", 100.0 * part))
        })
        .only_if(has_parts)
        .node()
}

/// Returns the client's share of the processor time that client and server took together, if the client reported its
/// own.
fn clients_part(attribution: &Attribution, server: &TransactionCost) -> Option<f64> {
    if server.meter != Meter::Cpu {
        return None;
    }
    let own = format!("{}/{CLIENT_OPERATION}", server.workload);
    let mut costs = attribution.costs.iter();
    let client = costs.find(|cost| {
        (cost.meter, cost.point) == (Meter::Time, server.point) && cost.workload == own
    })?;
    Some(client.estimate / (client.estimate + server.estimate))
}

fn head(meter: Meter) -> &'static str {
    match meter {
        Meter::Time => "transactions a second",
        Meter::Cpu => "transactions a second of processor time",
        Meter::Instructions => "instructions a transaction",
        Meter::Cycles => "cycles a transaction",
        Meter::L1iMisses => "instruction cache misses a transaction",
        Meter::BranchMisses => "mispredicted branches a transaction",
        Meter::FrontendBound => "share of issue slots the front end left empty",
        Meter::Rss => "peak resident memory of the server, in bytes",
        Meter::ContextSwitches => "context switches a transaction",
        Meter::IoBytes => "bytes read and written a transaction",
        Meter::IoCalls => "reads and writes a transaction",
        Meter::ServerReads => "reads of data files a transaction, as the server counts",
        Meter::ServerWrites => "writes of data files and logs a transaction, as the server counts",
        Meter::ServerSyncs => "syncs a transaction, as the server counts",
    }
}

fn server(attribution: &Attribution, point: Point) -> String {
    let patch = patch_of(attribution, point);
    let name = patch.map_or(attribution.base(), |patch| &patch.name);
    format!("{point}: {name}")
}

/// Converts a time in nanoseconds to a rate per second; other costs are unchanged.
fn value(meter: Meter, cost: f64) -> f64 {
    match meter {
        Meter::Time | Meter::Cpu => 1e9 / cost,
        _ => cost,
    }
}

fn figure(meter: Meter, cost: f64) -> String {
    let value = value(meter, cost);
    match meter {
        Meter::FrontendBound => percent(value),
        _ => grouped(value),
    }
}

/// Formats a value: from 100 on without decimals and in groups of three, below with three decimals, and below 1 with
/// four significant digits: `1,234,567`, `12.340`, `0.001234`.
fn grouped(value: f64) -> String {
    if value >= 100.0 {
        return number::grouped(value);
    }
    if value <= 0.0 {
        return format!("{value:.3}");
    }
    let scale = |places: usize| 10f64.powi(i32::try_from(places).unwrap_or(0));
    match (3..10usize).find(|&places| value * scale(places) >= 1000.0) {
        Some(places) => format!("{value:.places$}"),
        None => format!("{value:.3e}"),
    }
}

fn between(meter: Meter, cost: &TransactionCost) -> String {
    match (cost.low, cost.high) {
        (Some(low), Some(high)) => {
            let (a, b) = (figure(meter, low), figure(meter, high));
            match meter {
                Meter::Time | Meter::Cpu => format!("{b} to {a}"),
                _ => format!("{a} to {b}"),
            }
        }
        _ => "?".to_owned(),
    }
}

/// Returns the effect of the point against the bare release on this workload.
fn gain(attribution: &Attribution, cost: &TransactionCost) -> String {
    let mut effects = attribution.patches.iter().flat_map(|patch| &patch.effects);
    let found = effects.find(|effect: &&Effect| {
        (effect.point, effect.against) == (cost.point, Point::BASE)
            && matches!(effect.kind, EffectKind::Cumulative | EffectKind::Alone)
            && (effect.meter, effect.workload.as_str()) == (cost.meter, cost.workload.as_str())
    });
    found.map_or_else(String::new, |effect| {
        let verdict = effect.verdict;
        format!(
            "{} {verdict}",
            number::named(effect, number::decimals(cost.meter, [effect].into_iter()))
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Experiment;
    use perfquilt_model::observation::PlannedBlocks;

    #[test]
    fn the_clients_part_is_shown_where_the_client_reported_its_own_time() {
        let mut attribution = Experiment::new(&[(0.01, 0.0)]).attribution();
        assert!(!rates(&attribution).text.contains("client's part"));
        let of_time =
            |cost: &&TransactionCost| cost.meter == Meter::Time && cost.point == Point::BASE;
        let time = attribution.costs.iter().find(of_time).unwrap().clone();
        let server = TransactionCost {
            meter: Meter::Cpu,
            estimate: 30_000.0,
            ..time.clone()
        };
        let client = TransactionCost {
            workload: format!("{}/client", time.workload),
            estimate: 10_000.0,
            ..time
        };
        attribution.costs.extend([server, client]);
        let text = rates(&attribution).text;
        assert!(text.contains("| 33,333 |"), "{text}");
        assert!(text.contains(" 25 % |"), "{text}");
    }

    #[test]
    fn the_level_is_that_of_the_intervals() {
        let mut experiment = Experiment::new(&[(0.01, 0.0)]);
        let instructions = "| instructions a transaction | 95 % interval |";
        let time = |level: u32| format!("| transactions a second | {level} % interval |");
        let text = rates(&experiment.attribution()).text;
        assert!(text.contains(&time(95)), "{text}");
        let plan = |workload: &&str| PlannedBlocks::fixed(workload, Meter::Time, 40);
        experiment.supplement.planned = experiment.workloads.iter().map(plan).collect();
        // The experiment is unfinished, so its intervals hold at every look.
        let text = rates(&experiment.attribution()).text;
        assert!(text.contains(&time(99)), "{text}");
        assert!(text.contains(instructions), "{text}");
    }

    #[test]
    fn a_workload_may_have_a_slash_in_its_name() {
        let mut experiment = Experiment::new(&[(0.01, 0.0)]);
        experiment.workloads = vec!["read/write"];
        let text = rates(&experiment.attribution()).text;
        assert!(text.contains("| read/write |"), "{text}");
    }

    #[test]
    fn figures_are_grouped() {
        assert_eq!(grouped(1_234_567.4), "1,234,567");
        assert_eq!(grouped(999.6), "1,000");
        assert_eq!(grouped(123.0), "123");
        assert_eq!(grouped(12.34), "12.340");
        assert_eq!(grouped(0.25), "0.2500");
        assert_eq!(grouped(0.001_234_4), "0.001234");
        assert_eq!(grouped(1.5e-12), "1.500e-12");
        assert_eq!(grouped(0.0), "0.000");
        assert_eq!(figure(Meter::Time, 46_719.0), "21,405");
        assert_eq!(figure(Meter::FrontendBound, 0.815), "81.5 %");
    }
}
