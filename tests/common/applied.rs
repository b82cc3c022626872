//! Trees that perfquilt makes of a series.

use perfquilt_config::workspace::Workspace;
use perfquilt_model::point::Point;
use perfquilt_model::progress::Silent;
use perfquilt_patches::series::Series;
use perfquilt_patches::stack;
use perfquilt_patches::upstream;

use super::{TestEnvironment, listing};

/// The result of a series on a tree: the files, or the number of patches before the first that fails.
pub type Meaning = Result<Vec<(String, String, Vec<u8>)>, usize>;

/// The tree after the whole series, exported to the folder `out`.
pub fn ours(space: &TestEnvironment) -> Meaning {
    let ws = Workspace::open(&space.workspace()).unwrap();
    let series = Series::load(&ws).unwrap_or_else(|error| panic!("{error}"));
    let release = upstream::ensure(&ws, None, &Silent).unwrap();
    match stack::apply(&ws, &release, &series) {
        Ok(stack) => {
            let out = space.path("out");
            let top = stack.tree(Point::Step(series.patches().len())).unwrap();
            stack::export(&ws.object_store(), &top, &out, &Silent).unwrap();
            Ok(listing(&out))
        }
        Err(error) => {
            let file = error.location().expect("a place").file.clone();
            let failed = series.patches().iter().position(|p| *p.shown == file);
            Err(failed.expect("a patch of the series"))
        }
    }
}
