//! Finds the patches that change nothing but comments, and whose binaries differ all the same, because of `__LINE__`.

use std::collections::{BTreeMap, BTreeSet};

use super::Prepared;
use perfquilt_build::Built;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::Result;
use perfquilt_model::point::Point;
use perfquilt_patches::stack::format::moved_lines;
use perfquilt_patches::upstream::Objects;

/// Returns the points whose server differs from that of the point before in line numbers alone.
pub(super) fn points(
    ws: &Workspace,
    prepared: &Prepared,
    built: &[(Point, Built)],
) -> Result<BTreeSet<Point>> {
    let servers: BTreeMap<Point, &Built> = built
        .iter()
        .map(|(point, server)| (*point, server))
        .collect();
    let store = Objects::open(&ws.object_store())?;
    let mut found = BTreeSet::new();
    for k in 1..=prepared.series.patches().len() {
        let (before, point) = (Point::Step(k - 1), Point::Step(k));
        let (Some(old), Some(new)) = (servers.get(&before), servers.get(&point)) else {
            continue;
        };
        if old.identity == new.identity {
            continue;
        }
        let trees = [before, point].map(|point| prepared.stack.tree(point));
        let [old_tree, new_tree] = trees;
        let moved = moved_lines(&store, &old_tree?, &new_tree?)?;
        if let Some(moved) = moved
            && new.differs_in_line_numbers(old, &moved)?
        {
            found.insert(point);
        }
    }
    Ok(found)
}
