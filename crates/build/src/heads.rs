//! Tracks the first preprocessor lines of sources that a CMake file of the recipe has read.
//!
//! Whether a unit can use a precompiled header depends on its definitions before the first `#include`. A CMake file
//! of a recipe reads them while configuring. CMake would not notice a patch that changes those lines later, since
//! its configuration does not depend on sources. So such a CMake file lists the units it has read in
//! `perfquilt/watch.txt` of the build tree, one path per line, and makes the configuration depend on
//! `perfquilt/heads.txt` (which it creates, since CMake drops dependencies on missing files). This module
//! maintains that file: it changes with the first lines of any listed unit, and ninja then runs CMake again.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::work::write_atomically;
use perfquilt_model::error::{Error, Result};

/// Number of preprocessor lines recorded for each unit.
const LINES: usize = 2;

/// Updates `heads.txt` and returns the units listed there; `configured` means that CMake has just read the sources itself.
pub(super) fn update(build: &Path, configured: bool) -> Result<HashSet<PathBuf>> {
    let folder = build.join("perfquilt");
    let Ok(watched) = std::fs::read_to_string(folder.join("watch.txt")) else {
        return Ok(HashSet::new());
    };
    let units = watched.lines().map(PathBuf::from).collect();
    let mut text = String::new();
    for path in watched.lines() {
        text.push_str(path);
        for line in head(Path::new(path)) {
            text.push('\t');
            text.push_str(&line);
        }
        text.push('\n');
    }
    let file = folder.join("heads.txt");
    if std::fs::read_to_string(&file).is_ok_and(|found| found == text) {
        return Ok(units);
    }
    write_atomically(&file, &text)?;
    if configured {
        // A time older than CMake's output, so that ninja does not configure again.
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        File::options()
            .write(true)
            .open(&file)
            .and_then(|file| file.set_modified(long_ago))
            .map_err(|e| Error::io("write", &file, &e))?;
    }
    Ok(units)
}

/// Returns the first `#include`, `#define` and `#undef` lines of a unit; none if the file is missing.
fn head(path: &Path) -> Vec<String> {
    let directive = |line: Vec<u8>| {
        let text = String::from_utf8_lossy(&line);
        let word = text.trim().strip_prefix('#')?.trim_start();
        let mut names = ["include", "define", "undef"].into_iter();
        let is_one = names.any(|name| word.starts_with(name));
        is_one.then(|| text.trim().to_owned())
    };
    let reader = File::open(path).map(BufReader::new);
    let lines = reader.into_iter().flat_map(|reader| reader.split(b'\n'));
    lines
        .map_while(Result::ok)
        .filter_map(directive)
        .take(LINES)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_lines_count() {
        let folder = tempfile::tempdir().unwrap();
        let (unit, build) = (folder.path().join("a.cc"), folder.path().join("build"));
        std::fs::create_dir_all(build.join("perfquilt")).unwrap();
        let heads = build.join("perfquilt/heads.txt");
        update(&build, true).unwrap();
        assert!(!heads.exists(), "nothing is watched");

        std::fs::write(
            build.join("perfquilt/watch.txt"),
            format!("{}\n", unit.display()),
        )
        .unwrap();
        let time = || std::fs::metadata(&heads).unwrap().modified().unwrap();
        let write = |text: &str| std::fs::write(&unit, text).unwrap();
        write("/* x */\n#ifdef Y\n  # include <a.h>\n#include \"b.h\"\n#define C\n");
        update(&build, true).unwrap();
        let before = time();
        assert!(before < SystemTime::now() - Duration::from_secs(3600));
        let text = std::fs::read_to_string(&heads).unwrap();
        assert!(
            text.ends_with("\t# include <a.h>\t#include \"b.h\"\n"),
            "{text}"
        );

        write("/* y */\n\n# include <a.h>\n#include \"b.h\"\n#define D\nint x;\n");
        update(&build, false).unwrap();
        assert_eq!(time(), before, "later lines do not count");

        write("#define MYSQL_LEX 1\n#include <a.h>\n#include \"b.h\"\n");
        update(&build, false).unwrap();
        assert!(time() > before);
    }
}
