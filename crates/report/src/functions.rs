//! The functions whose cost a patch changed, in one line per patch and workload.

use std::collections::BTreeMap;

use super::number;
use perfquilt_judge::attribution::Attribution;
use perfquilt_model::observation::FunctionChange;

/// Heading of the lines.
pub(super) const HEAD: &str = "Functions whose own instructions changed, as shares of all instructions of the workload (− is fewer):";

/// Maximum number of workloads shown per patch; those that changed most are shown.
const MAX_WORKLOADS: usize = 2;
/// Maximum number of functions shown per workload.
const MAX_FUNCTIONS: usize = 4;

/// Returns the number of the patch, the workload, and the functions with their shares: `f −1.20 %, g +0.31 %; more`.
/// `name` escapes a function's name.
pub(super) fn lines(
    attribution: &Attribution,
    name: &dyn Fn(&str) -> String,
) -> Vec<(usize, String, String)> {
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
            lines.push((patch, workload.to_owned(), row(&changes, name)));
        }
    }
    lines
}

/// Formats functions with their shares: `f −1.20 %, g +0.31 %; more`. The number of further functions is unknown, as
/// only the largest changes are stored.
pub(super) fn row(changes: &[&FunctionChange], name: &dyn Fn(&str) -> String) -> String {
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
