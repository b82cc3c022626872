//! The functions whose cost the patches changed.

use std::collections::BTreeMap;

use super::document::chart::{ChartRow, Mark};
use super::document::{Chart, Drawing, Figure, Ink, Node, drawn, name, paragraph, section, table};
use super::nouns::Nouns;
use super::number;
use perfquilt_judge::attribution::Attribution;
use perfquilt_model::observation::FunctionChange;

/// The meaning of the figures.
const ABOUT: &str = "Functions whose own instructions changed, as shares of all instructions of the workload (− is fewer).";

/// Maximum number of workloads shown per patch; those that changed most are shown.
const MAX_WORKLOADS: usize = 2;
/// Maximum number of functions shown per workload.
const MAX_FUNCTIONS: usize = 4;

/// Returns the section on the functions that changed, in one line per patch and workload; nothing if there are none.
pub(super) fn in_short(attribution: &Attribution) -> Vec<Node> {
    let lines = lines(attribution);
    let table = table("Functions", &lines)
        .figures("#", |(index, ..)| index.to_string())
        .names("workload", |(_, workload, _)| name(workload))
        .prose("functions", |(.., changes)| changes);
    let nodes = [paragraph(ABOUT), table.node()];
    section(
        "functions",
        "Functions",
        nodes.into_iter().filter(|_| !lines.is_empty()),
    )
}

/// Returns the section on all functions that changed, one drawing per patch.
pub(super) fn in_full(attribution: &Attribution) -> Vec<Node> {
    let all = attribution.patches.iter().filter_map(|patch| {
        let changes = attribution.functions.iter();
        let own: Vec<&FunctionChange> = changes.filter(|of| of.patch == patch.index).collect();
        let about = format!(
            "Instructions by function, {} {}",
            Nouns::of(attribution).one,
            patch.index
        );
        let bars = largest(&own).into_iter().map(bar).collect();
        let table = table(about.clone(), &own)
            .names("function", |change| name(&change.function))
            .words("workload", |change| name(&change.workload))
            .figures("before", |change| format!("{:.1}", change.before))
            .figures("after", |change| {
                format!("{:.1} ± {:.1}", change.after, change.half_width)
            })
            .figures("share", |change| {
                let share = format!("{} %", number::signed(change.share, 3));
                Figure::valued(share, change.share)
            });
        let unit = "% of the workload's instructions";
        let drawing = Drawing::new(Chart::of_rows(about, unit, bars), table.node())
            .heading(format!("{} {}", patch.index, name(&patch.name)))
            .caption("The functions that changed most, on the workload each changed most.");
        (!own.is_empty()).then_some(drawing)
    });
    drawn("functions", "Functions", ABOUT, all)
}

/// Returns the functions to draw: those that changed most, each on the workload where it changed most.
fn largest<'a>(changes: &[&'a FunctionChange]) -> Vec<&'a FunctionChange> {
    const MOST: usize = 12;
    let mut sorted = changes.to_vec();
    sorted.sort_by(|a, b| b.share.abs().total_cmp(&a.share.abs()));
    let mut shown: Vec<&FunctionChange> = Vec::new();
    for change in sorted {
        if shown.len() < MOST && shown.iter().all(|other| other.function != change.function) {
            shown.push(change);
        }
    }
    shown
}

fn bar(change: &FunctionChange) -> ChartRow {
    let ink = if change.share < 0.0 {
        Ink::Good
    } else {
        Ink::Bad
    };
    let percent = 100.0 * change.share;
    let mut marks = vec![Mark::Bar((0.0, percent), 10, ink)];
    let half = 100.0 * change.half_width * (change.share / (change.after - change.before)).abs();
    if half.is_finite() {
        marks.push(Mark::Whisker(
            (percent - half, percent + half),
            0,
            Ink::Text,
        ));
    }
    ChartRow {
        label: short(&change.function),
        marks,
    }
}

/// Returns the number of the patch, the workload, and the functions with their shares: `f −1.20 %, g +0.31 %; more`.
fn lines(attribution: &Attribution) -> Vec<(usize, String, String)> {
    let mut by_row: BTreeMap<(usize, &str), Vec<&FunctionChange>> = BTreeMap::new();
    for change in &attribution.functions {
        let row = by_row.entry((change.patch, &change.workload)).or_default();
        row.push(change);
    }
    let size = |changes: &[&FunctionChange]| -> f64 {
        changes.iter().map(|change| change.share.abs()).sum()
    };
    let mut by_patch: BTreeMap<usize, Vec<(&str, Vec<&FunctionChange>)>> = BTreeMap::new();
    for ((patch, workload), changes) in by_row {
        by_patch.entry(patch).or_default().push((workload, changes));
    }
    let mut lines = Vec::new();
    for (patch, mut workloads) in by_patch {
        workloads.sort_by(|a, b| size(&b.1).total_cmp(&size(&a.1)));
        for (workload, changes) in workloads.into_iter().take(MAX_WORKLOADS) {
            lines.push((patch, workload.to_owned(), row(&changes)));
        }
    }
    lines
}

/// Formats functions with their shares: `f −1.20 %, g +0.31 %; more`. The number of further functions is unknown, as
/// only the largest changes are stored.
pub(super) fn row(changes: &[&FunctionChange]) -> String {
    let shown: Vec<String> = changes
        .iter()
        .take(MAX_FUNCTIONS)
        .map(|change| {
            let share = number::signed(change.share, 2);
            format!("{} {share} %", name(&short(&change.function)))
        })
        .collect();
    let more = if changes.len() > MAX_FUNCTIONS {
        "; more"
    } else {
        ""
    };
    shown.join(", ") + more
}

/// Returns a function's name without its last parameter list, which is not needed to recognise it.
pub(super) fn short(name: &str) -> String {
    let whole = name.split(" [clone ").next().unwrap_or(name);
    let whole = whole.strip_suffix(" const").unwrap_or(whole);
    if !whole.ends_with(')') {
        return name.to_owned();
    }
    let mut depth = 0;
    let opening = whole.char_indices().rev().find(|(_, c)| {
        match c {
            ')' => depth += 1,
            '(' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    let head = opening.map_or("", |(at, _)| &whole[..at]);
    // The parentheses of `operator()` and of an anonymous namespace belong to the name.
    if head.is_empty() || head.ends_with("operator") || head.ends_with("::") {
        name.to_owned()
    } else {
        head.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_parameters_only() {
        for (name, expected) in [
            (
                "String::append(char const*, unsigned int)",
                "String::append",
            ),
            ("List<A(*)(B)>::push(A*)", "List<A(*)(B)>::push"),
            ("Hash::operator()(int)", "Hash::operator()"),
            ("(below main)", "(below main)"),
            ("ns::(anonymous namespace)", "ns::(anonymous namespace)"),
            (
                "ns::(anonymous namespace)::f(int)",
                "ns::(anonymous namespace)::f",
            ),
            (
                "f(A)::{lambda(int)#1}::operator()(int) const",
                "f(A)::{lambda(int)#1}::operator()",
            ),
            ("operator<(A, B)", "operator<"),
            ("Item::fix(THD*) const", "Item::fix"),
            ("scan(int) [clone .part.0]", "scan"),
            ("my_qsort2", "my_qsort2"),
        ] {
            assert_eq!(short(name), expected);
        }
    }
}
