//! Trees that perfquilt makes of a series.

use std::path::Path;

use perfquilt_config::workspace::Workspace;
use perfquilt_model::Error;
use perfquilt_model::point::Point;
use perfquilt_rebase::PointTrees;
use perfquilt_series::series::Series;
use perfquilt_series::stack;
use perfquilt_series::upstream;

use super::{TestEnvironment, listing};

/// The result of a series on a tree: the files, or the number of patches before the first that fails.
pub type Meaning = Result<Vec<(String, String, Vec<u8>)>, usize>;

/// The tree after the whole series, exported to the folder `out`.
pub fn ours(space: &TestEnvironment) -> Meaning {
    let ws = Workspace::open(&space.workspace()).unwrap();
    let series = match Series::load(&ws) {
        Ok(series) => series,
        Err(error) => return without_unreadable(space, &error),
    };
    let release = upstream::ensure(&ws, None).unwrap();
    match stack::apply(&ws, &release, &series) {
        Ok(stack) => {
            let out = space.path("out");
            let top = stack.tree(Point::Step(series.patches().len())).unwrap();
            stack::export(&ws.object_store(), &top, &out).unwrap();
            Ok(listing(&out))
        }
        Err(error) => {
            let file = error.location().expect("a place").file.clone();
            let failed = series.patches().iter().position(|p| *p.shown == file);
            Err(failed.expect("a patch of the series"))
        }
    }
}

/// The result of a series with a patch that cannot be read, such as one of words only, for which `patch` fails as well:
/// an earlier patch may not apply.
fn without_unreadable(space: &TestEnvironment, error: &Error) -> Meaning {
    let text = space.read("series");
    let file = &error.location().expect("a place").file;
    let name = file.strip_prefix("patches").expect("a patch");
    let is_patch = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
    let is_other = |line: &&str| line.split(' ').next().map(Path::new) != Some(name);
    let before: Vec<&str> = text.lines().filter(is_patch).take_while(is_other).collect();
    let unreadable = before.len();
    space.write("series", before.join("\n") + "\n");
    let earlier = ours(space);
    space.write("series", text);
    Err(earlier.err().unwrap_or(unreadable))
}
