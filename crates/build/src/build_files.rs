//! Classifies the files of a source tree by their effect on how its build is configured.
//!
//! A build tree keeps its configuration: option values in CMake's cache, the output of a `configure` script,
//! objects that a makefile does not rebuild when its flags change. So the builder configures the tree again for
//! a point with different build files. Otherwise the server would depend on the point built before it.

use perfquilt_patches::stack::RelevantPart;

/// Names of build files.
const NAMES: &[&str] = &[
    "CMakeLists.txt",
    "GNUmakefile",
    "SConscript",
    "SConstruct",
    "VERSION",
    "makefile",
    "meson.build",
    "meson.options",
    "meson_options.txt",
    "wscript",
];
/// Prefixes of the names of build files.
const PREFIXES: &[&str] = &["Makefile", "configure"];
/// Suffixes of the names of build files. Scripts are among them because many builds start with one.
const SUFFIXES: &[&str] = &[".ac", ".am", ".cmake", ".in", ".m4", ".mak", ".mk", ".sh"];
/// Suffixes of files that no build reads: tests of a server, their expected results, documentation.
const IGNORED_SUFFIXES: &[&str] = &[".md", ".result", ".rst", ".test"];

/// Returns which part of a file called `name` (without its folder) affects the configuration of a build. Patterns
/// in build files can match any file, so the existence of a source file counts, but not its content.
pub fn build_relevance(name: &str) -> RelevantPart {
    let has_suffix = |suffixes: &[&str]| suffixes.iter().any(|suffix| name.ends_with(suffix));
    let has_prefix = PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    if has_prefix || NAMES.contains(&name) || has_suffix(SUFFIXES) {
        RelevantPart::Content
    } else if has_suffix(IGNORED_SUFFIXES) {
        RelevantPart::Nothing
    } else {
        RelevantPart::Name
    }
}

/// Whether a build may read the file with this path: all but documentation and the expected results of tests.
pub fn is_read(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    build_relevance(name) != RelevantPart::Nothing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_files_count_with_their_content_and_sources_by_name() {
        for name in [
            "CMakeLists.txt",
            "Makefile",
            "Makefile.am",
            "config.h.in",
            "configure",
            "configure.ac",
            "plugin.cmake",
            "meson.build",
        ] {
            assert_eq!(build_relevance(name), RelevantPart::Content, "{name}");
        }
        for name in ["item.cc", "item.h", "words", "my_makefile.c"] {
            assert_eq!(build_relevance(name), RelevantPart::Name, "{name}");
        }
        for name in ["join.test", "join.result", "README.md"] {
            assert_eq!(build_relevance(name), RelevantPart::Nothing, "{name}");
        }
    }
}
