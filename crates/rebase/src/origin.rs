//! What patches' headers and earlier rebases tell about them.

use std::collections::BTreeSet;

use super::resolve;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::Result;
use perfquilt_model::matrix::PatchOrigin;
use perfquilt_series::series::Patch;

/// Fields about upstream: those of DEP-3, and those of perfquilt and of git's trailers.
const FIELDS: [&str; 6] = [
    "bug",
    "forwarded",
    "origin",
    "applied-upstream",
    "upstream",
    "link",
];
/// The most addresses of a patch's text.
const MOST_ADDRESSES: usize = 3;

/// Returns what is known of each patch.
pub(super) fn origins(ws: &Workspace, patches: &[&Patch]) -> Result<Vec<PatchOrigin>> {
    let resolved = resolve::resolved(ws)?;
    let origin = |patch: &&Patch| {
        let ours = resolved.iter().filter(|text| {
            let release = text.strip_prefix(&*patch.name);
            release.is_some_and(|rest| rest.starts_with(" on "))
        });
        PatchOrigin {
            owner: patch.header.author.as_ref().map(|author| {
                let email = Some(&author.email).filter(|email| !email.is_empty());
                email.map_or(author.name.clone(), |email| {
                    format!("{} <{email}>", author.name)
                })
            }),
            upstream: links(patch),
            conflicts: ours.cloned().collect(),
        }
    };
    Ok(patches.iter().map(origin).collect())
}

/// Returns the fields about upstream and the addresses in the text.
fn links(patch: &Patch) -> Vec<String> {
    let is_link = |name: &str| {
        let name = name.to_ascii_lowercase();
        FIELDS.contains(&&*name) || name.starts_with("bug-")
    };
    let fields = patch.header.fields.iter();
    let fields = fields.filter(|(name, value)| is_link(name) && !value.trim().is_empty());
    let mut found: Vec<String> = fields
        .map(|(name, value)| {
            format!(
                "{name}: {}",
                value.lines().next().unwrap_or_default().trim()
            )
        })
        .collect();
    let words = patch.header.body.split_whitespace();
    let addresses = words.map(|word| word.trim_matches(['<', '>', '(', ')', ',', '.', ';']));
    let addresses: BTreeSet<&str> = addresses
        .filter(|word| word.starts_with("https://") || word.starts_with("http://"))
        .filter(|word| !found.iter().any(|field| field.contains(word)))
        .collect();
    let addresses: Vec<String> = addresses.into_iter().map(str::to_owned).collect();
    found.extend(addresses.into_iter().take(MOST_ADDRESSES));
    found
}
