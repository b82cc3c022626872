//! Comparison of an old patch with the new one in the format of `git range-diff`: the difference between two
//! diffs.

use std::fmt::Write;

use super::TreePair;
use crate::line_runs::{LineRun, line_runs, marked};
use perfquilt_model::error::Result;
use perfquilt_series::stack::format::diff;
use perfquilt_series::upstream::Objects;

/// Number of context lines around a difference.
const CONTEXT: usize = 3;

/// Returns the difference between the diffs of two pairs of trees; empty if only line numbers differ.
pub fn compare(objects: &Objects, old: &TreePair, new: &TreePair) -> Result<Vec<String>> {
    let old = normalised(&diff(objects, &old.before, &old.after)?);
    let new = normalised(&diff(objects, &new.before, &new.after)?);
    difference(&old, &new)
}

/// Removes the parts of a diff that vary between releases: line numbers and object names.
fn normalised(diff: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(diff);
    let mut lines: Vec<String> = Vec::new();
    let mut file = String::new();
    let mut in_hunk = false;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("diff --git ") {
            in_hunk = false;
            file = rest
                .rsplit_once(" b/")
                .map_or(rest, |(_, name)| name)
                .trim_end_matches('"')
                .to_owned();
            lines.push(format!(" ## {file} ##"));
        } else if line.starts_with("@@ ") {
            in_hunk = true;
            let function = line.splitn(3, "@@").nth(2).unwrap_or_default();
            lines.push(format!("@@ {file}:{function}"));
        } else if in_hunk {
            lines.push(line.to_owned());
        } else if [
            "rename ",
            "old mode ",
            "new mode ",
            "deleted file ",
            "new file ",
            "copy ",
        ]
        .iter()
        .any(|start| line.starts_with(start))
        {
            lines.push(format!(" ## {line} ##"));
        }
    }
    lines
}

fn difference(old: &[String], new: &[String]) -> Result<Vec<String>> {
    let joined = |lines: &[String]| {
        lines.iter().fold(String::new(), |mut text, line| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{line}");
            text
        })
    };
    let runs = line_runs(joined(old).as_bytes(), joined(new).as_bytes())?;
    let mut out = Vec::new();
    let mut rest = runs.as_slice();
    while let Some(first) = rest.first() {
        let near = |a: &LineRun, b: &LineRun| b.old_start - a.old_end() <= 2 * CONTEXT;
        let count = 1 + rest
            .windows(2)
            .take_while(|pair| near(&pair[0], &pair[1]))
            .count();
        let (group, after) = rest.split_at(count);
        rest = after;
        let start = first.old_start.saturating_sub(CONTEXT);
        if let Some(head) = old[..start]
            .iter()
            .rev()
            .find(|line| line.starts_with("@@ "))
        {
            out.push(format!("@@ {}", head.trim_start_matches("@@ ")));
        }
        let end = group.last().map_or(start, LineRun::old_end) + CONTEXT;
        let lines = marked(old, new, group, start..end.min(old.len()));
        out.extend(lines.iter().map(|(mark, line)| format!("{mark} {line}")));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_numbers_are_ignored() {
        let diff = |start: usize, context: &str| {
            format!(
                "diff --git a/f b/f\nindex {start}..0 100644\n--- a/f\n+++ b/f\n@@ -{start},3 +{start},3 @@ int f()\n {context}\n-old\n+new\n end\n"
            )
        };
        let compare = |a: &str, b: &str| {
            difference(&normalised(a.as_bytes()), &normalised(b.as_bytes())).unwrap()
        };
        assert!(compare(&diff(3, "x"), &diff(90, "x")).is_empty());
        assert_eq!(
            compare(&diff(3, "x"), &diff(90, "y")),
            [
                "   ## f ##",
                "  @@ f: int f()",
                "-  x",
                "+  y",
                "  -old",
                "  +new",
                "   end"
            ]
        );
    }
}
