//! Which functions a patch changed, in a line a patch and workload.

use std::collections::BTreeMap;

use super::number;
use crate::attribution::Attribution;
use crate::observation::FunctionChange;

/// What stands above the lines.
pub(super) const HEAD: &str =
    "Functions whose own instructions changed, as shares of all instructions of the workload:";

/// The most workloads told of a patch, the ones that changed most.
const WORKLOADS: usize = 2;
/// The most functions told of a workload.
const FUNCTIONS: usize = 4;

/// The patch's number, the workload, and the functions with their shares: `f −1.20 %, g +0.31 %; 3 more`.
/// `name` makes a function's name harmless.
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
        for (workload, changes) in workloads.into_iter().take(WORKLOADS) {
            lines.push((patch, workload.to_owned(), row(&changes, name)));
        }
    }
    lines
}

/// `f −1.20 %, g +0.31 %; 3 more`.
pub(super) fn row(changes: &[&FunctionChange], name: &dyn Fn(&str) -> String) -> String {
    let told: Vec<String> = changes
        .iter()
        .take(FUNCTIONS)
        .map(|change| {
            let share = number::signed(change.share, 2);
            format!("{} {share} %", name(&short(&change.function)))
        })
        .collect();
    let more = match changes.len().saturating_sub(FUNCTIONS) {
        0 => String::new(),
        n => format!("; {n} more"),
    };
    told.join(", ") + &more
}

/// A function's name without its parameters, which no reader needs to know it by.
pub(super) fn short(name: &str) -> String {
    let mut depth = 0;
    for (at, c) in name.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            // `operator()` has a pair of its own.
            '(' if depth == 0 && !name[..at].ends_with("operator") && at > 0 => {
                return name[..at].to_owned();
            }
            _ => {}
        }
    }
    name.to_owned()
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
            ("my_qsort2", "my_qsort2"),
        ] {
            assert_eq!(short(name), expected);
        }
    }
}
