//! Finds the patches that change nothing but line numbers of the server, and those that are not, or not wholly, in it.

use std::collections::BTreeMap;

use super::Prepared;
use perfquilt_build::{Built, is_read};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::Result;
use perfquilt_model::observation::ExperimentHeader;
use perfquilt_model::point::Point;
use perfquilt_rebase::PointTrees;
use perfquilt_series::stack::format::{changed_paths, moved_lines};
use perfquilt_series::upstream::Objects;

/// Adds to `header` the points whose server differs from that of the point before in line numbers alone, and those that
/// lack something of their patch.
pub(super) fn describe(
    ws: &Workspace,
    prepared: &Prepared,
    servers: &BTreeMap<Point, Built>,
    header: &mut ExperimentHeader,
) -> Result<()> {
    let store = Objects::open(&ws.object_store())?;
    for k in 1..=prepared.series.patches().len() {
        let (before, point) = (Point::Step(k - 1), Point::Step(k));
        let (Some(old), Some(new)) = (servers.get(&before), servers.get(&point)) else {
            continue;
        };
        let (old_tree, new_tree) = (prepared.stack.tree(before)?, prepared.stack.tree(point)?);
        let is_same = old.identity == new.identity;
        match moved_lines(&store, &old_tree, &new_tree)? {
            Some(moved) => {
                if !is_same && new.differs_in_line_numbers(old, &moved)? {
                    header.line_numbers.insert(point);
                }
            }
            None => {
                let paths = changed_paths(&store, &old_tree, &new_tree)?;
                let unread = unread(&paths, old, new, is_same);
                if is_same || !unread.is_empty() {
                    header.unread.insert(point, unread);
                }
            }
        }
    }
    Ok(())
}

/// Returns those of the changed `paths` that no program opened while it built either server. Documentation and expected
/// results of tests are worth a word only if the patch has nothing else in the server.
fn unread(paths: &[Vec<u8>], old: &Built, new: &Built, is_same: bool) -> Vec<String> {
    let (Some(old), Some(new)) = (old.opened(), new.opened()) else {
        return Vec::new();
    };
    paths
        .iter()
        .map(|path| String::from_utf8_lossy(path).into_owned())
        .filter(|path| !old.contains(path) && !new.contains(path))
        .filter(|path| is_same || is_read(path))
        .collect()
}
