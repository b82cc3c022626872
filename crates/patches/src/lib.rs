//! Releases, series, and the stacks that a series makes of a release: parsing, applying, editing, rebasing.
//!
//! The only crate that knows git2.
//!
//! # Example
//!
//! A series of one patch, applied to a release that is a folder:
//!
//! ```
//! use perfquilt_config::workspace::Workspace;
//! use perfquilt_model::point::Point;
//! use perfquilt_model::progress::Silent;
//! use perfquilt_patches::series::Series;
//! use perfquilt_patches::{stack, upstream};
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
//! let release = upstream::ensure(&workspace, None, &Silent)?;
//! let stack = stack::apply(&workspace, &release, &Series::load(&workspace)?)?;
//! assert_eq!(stack.steps[0].title, "work: fewer rounds");
//! assert_eq!(stack.tree(Point::BASE)?, release.tree);
//! assert_ne!(stack.tree(Point::Step(1))?, release.tree);
//! # Ok::<(), perfquilt_model::Error>(())
//! ```

pub mod edit;
pub mod import;
pub mod lint;
mod points;
pub mod rebase;
pub mod series;
pub mod stack;
mod state;
pub mod upstream;
