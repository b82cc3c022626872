//! Releases, series, and the stacks that a series makes of a release.
//!
//! # Example
//!
//! A series of one patch, applied to a release that is a folder:
//!
//! ```
//! use perfquilt_config::workspace::Workspace;
//! use perfquilt_series::series::Series;
//! use perfquilt_series::{stack, upstream};
//!
//! let folder = tempfile::tempdir().unwrap();
//! let write = |name: &str, text: &str| {
//!     let path = folder.path().join(name);
//!     std::fs::create_dir_all(path.parent().unwrap()).unwrap();
//!     std::fs::write(path, text).unwrap();
//! };
//! write("upstream/work.h", "#define ROUNDS 100\n");
//! write("series", "0001-fewer-rounds.patch\n");
//! write(
//!     "patches/0001-fewer-rounds.patch",
//!     "Subject: work: fewer rounds\n\n--- a/work.h\n+++ b/work.h\n@@ -1 +1 @@\n-#define ROUNDS 100\n+#define ROUNDS 25\n",
//! );
//! write(
//!     "bench-config/perfquilt.toml",
//!     "[upstream]\nname = \"toy\"\ncurrent = \"1.0\"\n\n[[upstream.release]]\nversion = \"1.0\"\ndirectory = \"upstream\"\n",
//! );
//!
//! let workspace = Workspace::open_with_cache(folder.path(), folder.path().join("cache"))?;
//! let release = upstream::ensure(&workspace, None)?;
//! let stack = stack::apply(&workspace, &release, &Series::load(&workspace)?)?;
//! assert_eq!(stack.steps[0].title, "work: fewer rounds");
//! assert_ne!(stack.steps[0].tree, release.tree);
//! # Ok::<(), perfquilt_model::Error>(())
//! ```

pub mod series;
pub mod stack;
pub mod state;
pub mod upstream;
