//! Evidence that a release already has a patch, or a part of it.

use std::collections::BTreeSet;

use super::three_way::{FileMerge, FileMergeResult};
use perfquilt_model::error::Result;
use perfquilt_series::series::path::shown;
use perfquilt_series::series::{FileDiff, Patch, Presence};
use perfquilt_series::stack::conflict::contains_result;
use perfquilt_series::stack::trial::TrialTree;
use perfquilt_series::upstream::Release;

/// Returns every path that a patch names.
pub fn named_paths(patch: &Patch) -> BTreeSet<Vec<u8>> {
    patch
        .files
        .iter()
        .flat_map(FileDiff::names)
        .cloned()
        .collect()
}

/// Returns how many of a diff's hunks the tree's file already contains, and the number of hunks. `path` is the
/// file's new path if upstream moved it.
fn hunks_there(
    tree: &mut TrialTree<'_>,
    diff: &FileDiff,
    path: Option<&[u8]>,
) -> Result<(usize, usize)> {
    for name in path.into_iter().chain(diff.names().map(Vec::as_slice)) {
        if let Some(file) = tree.file(name)? {
            let there = diff
                .hunks
                .iter()
                .filter(|hunk| contains_result(hunk, &file.content))
                .count();
            return Ok((there, diff.hunks.len()));
        }
    }
    Ok((
        0,
        if diff.after == Presence::Absent {
            0
        } else {
            diff.hunks.len()
        },
    ))
}

/// Returns whether the tree already contains a part of a cleanly merging patch, and notes that name the parts.
pub fn parts_upstream(
    tree: &mut TrialTree<'_>,
    patch: &Patch,
    merges: &[FileMerge],
) -> Result<(bool, Vec<String>)> {
    let mut notes = Vec::new();
    for merge in merges {
        if matches!(merge.result, FileMergeResult::Upstream) {
            notes.push(format!("the release has all of {}", shown(&merge.path)));
            continue;
        }
        for diff in &patch.files {
            if diff.new.as_ref() != Some(&merge.old_path) {
                continue;
            }
            let (there, all) = hunks_there(tree, diff, Some(&merge.path))?;
            // A hunk that only removes lines leaves nothing to recognise.
            if there > 0 && all > there {
                notes.push(format!(
                    "the release has {there} of {all} hunks of {}",
                    shown(&merge.path)
                ));
            }
        }
    }
    Ok((!notes.is_empty(), notes))
}

/// Returns the version in a header's `Applied-Upstream:` that `release` contains: one of the same release branch
/// that is not later.
pub fn claim(patch: &Patch, release: &Release) -> Option<String> {
    let field = patch.header.field("applied-upstream")?;
    words(field)
        .find(|word| {
            let (Some(claimed), Some(version)) = (numbers(word), numbers(&release.version)) else {
                return false;
            };
            // Version numbers do not tell whether 10.11.20 was released before 11.8.6.
            claimed.len() == version.len()
                && claimed.len() > 1
                && claimed[..claimed.len() - 1] == version[..version.len() - 1]
                && claimed <= version
        })
        .map(str::to_owned)
}

/// Returns the commit ids in a header's `Applied-Upstream:`.
pub fn claimed_commits(patch: &Patch) -> Vec<String> {
    let field = patch.header.field("applied-upstream").unwrap_or_default();
    words(field)
        .map(|word| word.strip_prefix("commit:").unwrap_or(word))
        .map(|word| word.rsplit('/').next().unwrap_or(word))
        .filter(|word| (7..=40).contains(&word.len()))
        .filter(|word| word.bytes().all(|b| b.is_ascii_hexdigit()))
        .map(str::to_ascii_lowercase)
        .collect()
}

/// Returns the header's statement that the patch was taken from upstream, in a few words: DEP-3's `Origin: upstream` or
/// `Origin: backport`, or git's line about the picked commit.
pub fn upstream_origin(patch: &Patch) -> Option<String> {
    const PICKED: &str = "(cherry picked from commit ";
    if let Some(origin) = patch.header.field("origin") {
        let first = origin.lines().next().unwrap_or_default().trim();
        let kind = first.split([',', ' ', ':']).next().unwrap_or_default();
        if ["upstream", "backport"]
            .iter()
            .any(|known| kind.eq_ignore_ascii_case(known))
        {
            let short: String = first.chars().take(60).collect();
            return Some(format!("Origin: {short}"));
        }
    }
    if let Some(field) = patch.header.field("applied-upstream") {
        let first = field.lines().next().unwrap_or_default();
        let short: String = first.chars().take(60).collect();
        return Some(format!("Applied-Upstream: {short}"));
    }
    let (_, rest) = patch.header.body.split_once(PICKED)?;
    let commit: String = rest.chars().take_while(char::is_ascii_hexdigit).collect();
    (commit.len() >= 7).then(|| format!("picked from {}", &commit[..commit.len().min(12)]))
}

fn words(field: &str) -> impl Iterator<Item = &str> {
    field
        .split(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '(' | ')'))
        .filter(|word| !word.is_empty())
}

/// Parses a version such as `10.11.18`, ignoring a leading `v` or server name.
fn numbers(text: &str) -> Option<Vec<u64>> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let digits = &text[start..];
    digits
        .split('.')
        .map(|number| number.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_series::series::SeriesEntry;

    fn patch(field: &str) -> Patch {
        let entry = SeriesEntry {
            name: "x".into(),
            strip: 1,
            reverse: false,
            flags: Default::default(),
            line: 1,
        };
        let text = format!(
            "Subject: x\nApplied-Upstream: {field}\n\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n"
        );
        Patch::parse(&entry, "x", text.as_bytes()).unwrap()
    }

    fn release(version: &str) -> Release {
        Release {
            name: format!("s-{version}"),
            version: version.into(),
            commit: String::new(),
            tree: String::new(),
            sha256: String::new(),
        }
    }

    #[test]
    fn versions_count_within_their_branch() {
        let claimed = |field: &str, version: &str| claim(&patch(field), &release(version));
        assert_eq!(claimed("10.11.17", "10.11.18").as_deref(), Some("10.11.17"));
        assert_eq!(
            claimed("mariadb-10.11.18, https://example.org/x", "10.11.18").as_deref(),
            Some("mariadb-10.11.18")
        );
        assert_eq!(claimed("10.11.19", "10.11.18"), None);
        assert_eq!(claimed("10.11.20", "11.8.6"), None);
        assert_eq!(claimed("11", "11.8.6"), None);
        assert_eq!(claimed("yes", "11.8.6"), None);
    }

    #[test]
    fn commits_are_found_in_addresses_too() {
        assert_eq!(
            claimed_commits(&patch(
                "11.4.2, commit:3FA91C2, https://example.org/c/0123456789"
            )),
            ["3fa91c2", "0123456789"]
        );
        assert!(claimed_commits(&patch("soon")).is_empty());
    }
}
