//! Which files of a source tree steer its build.
//!
//! What a build tree was configured with lives on in it: the values of options in CMake's cache, what a
//! `configure` script wrote, objects that a makefile does not make again when its flags change. So a
//! build tree is configured anew for a point whose build files are others. Otherwise its server would
//! depend on which point was built before.

use perfquilt_patches::stack::Counts;

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
/// How names of build files begin.
const BEGINNINGS: &[&str] = &["Makefile", "configure"];
/// How they end. Scripts are among them: many a build begins with one.
const ENDINGS: &[&str] = &[".ac", ".am", ".cmake", ".in", ".m4", ".mak", ".mk", ".sh"];
/// How names of files end that no build looks for: tests of a server, their expected results, remarks.
const UNSEEN: &[&str] = &[".md", ".result", ".rst", ".test"];

/// What counts of a file called `name` (without its folder) when a build is configured. A pattern in a
/// build file may find any file, so that it counts that a source file is there, but not what it holds.
pub fn steers(name: &str) -> Counts {
    let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    let begins = BEGINNINGS.iter().any(|start| name.starts_with(start));
    if begins || NAMES.contains(&name) || ends(ENDINGS) {
        Counts::Content
    } else if ends(UNSEEN) {
        Counts::Nothing
    } else {
        Counts::Name
    }
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
            assert_eq!(steers(name), Counts::Content, "{name}");
        }
        for name in ["item.cc", "item.h", "words", "my_makefile.c"] {
            assert_eq!(steers(name), Counts::Name, "{name}");
        }
        for name in ["join.test", "join.result", "README.md"] {
            assert_eq!(steers(name), Counts::Nothing, "{name}");
        }
    }
}
