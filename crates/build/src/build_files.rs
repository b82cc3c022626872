//! Knows the files of a source tree that no build reads.

use std::ffi::OsStr;
use std::path::Path;

/// Suffixes of files that no build reads: tests of a server, their expected results, documentation.
const UNREAD: [&str; 4] = ["md", "result", "rst", "test"];

/// Whether a build may read the file with this path: all but documentation and the expected results of tests.
pub fn is_read(path: &str) -> bool {
    let end = Path::new(path).extension().and_then(OsStr::to_str);
    end.is_none_or(|end| !UNREAD.contains(&end))
}
