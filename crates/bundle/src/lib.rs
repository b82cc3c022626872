//! Runs as single files, which other machines measure again without a compiler.
//!
//! # Example
//!
//! A bundle is read only as it was written:
//!
//! ```
//! let folder = tempfile::tempdir().unwrap();
//! let file = folder.path().join("bundle");
//! std::fs::write(&file, "no bundle").unwrap();
//! let error = perfquilt_bundle::check(&file).unwrap_err();
//! assert_eq!(error.code(), perfquilt_model::Error::bundle("").code());
//! ```

mod archive;
mod make;
mod manifest;
mod needs;
mod replay;
#[cfg(test)]
mod tests;

use std::path::Path;

pub use make::make;
pub use manifest::{Manifest, Needs, PackedFile};
use perfquilt_model::error::Result;
use perfquilt_model::point::Point;
pub use replay::{Replay, measure};

/// The preset of a bundle's configuration.
const PRESET: &str = "bundle";

/// Returns the folder of a point's server.
fn server_folder(point: Point) -> String {
    format!("servers/{}", point.to_string().replace(':', "-"))
}

/// Checks every byte of the bundle at `path` without unpacking it.
pub fn check(path: &Path) -> Result<Manifest> {
    archive::read(path, None)
}
