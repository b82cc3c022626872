//! First preprocessor lines that a CMake file of the recipe has decided by.
//!
//! Whether a unit can use a precompiled header depends on what it defines before its first
//! `#include`. A CMake file of a recipe reads that while configuring; a patch that changes those lines
//! afterwards would not be noticed, since CMake does not depend on sources. So such a file lists the
//! units it has looked at in `perfquilt/watch.txt` of the build tree, one path a line, and makes the
//! configuration depend on `perfquilt/heads.txt` (which it creates, since CMake forgets dependencies
//! that are not there). That file is kept here: it changes when one of those first lines does, and
//! then ninja runs CMake again.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::work::write_whole;
use perfquilt_model::error::{Error, Result};

/// Preprocessor lines of a unit that count.
const LINES: usize = 2;

/// Brings `heads.txt` up to date; `configured` tells that CMake has just looked at the sources itself.
pub(super) fn note(build: &Path, configured: bool) -> Result<()> {
    let folder = build.join("perfquilt");
    let Ok(watched) = std::fs::read_to_string(folder.join("watch.txt")) else {
        return Ok(());
    };
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
        return Ok(());
    }
    write_whole(&file, &text)?;
    if configured {
        // Older than what CMake has made: nothing is to be done again.
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        File::options()
            .write(true)
            .open(&file)
            .and_then(|file| file.set_modified(long_ago))
            .map_err(|e| Error::io("write", &file, &e))?;
    }
    Ok(())
}

/// The first `#include`, `#define` and `#undef` lines of a unit; none for one that is gone.
fn head(path: &Path) -> Vec<String> {
    let Ok(file) = File::open(path) else {
        return Vec::new();
    };
    let mut reader = BufReader::new(file);
    let mut found = Vec::new();
    let mut line = Vec::new();
    while found.len() < LINES && reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        let text = String::from_utf8_lossy(&line);
        let directive = text.trim_start().strip_prefix('#').map(str::trim_start);
        if directive.is_some_and(|word| {
            ["include", "define", "undef"]
                .iter()
                .any(|name| word.starts_with(name))
        }) {
            found.push(text.trim().to_owned());
        }
        line.clear();
    }
    found
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
        note(&build, true).unwrap();
        assert!(!heads.exists(), "nothing is watched");

        std::fs::write(
            build.join("perfquilt/watch.txt"),
            format!("{}\n", unit.display()),
        )
        .unwrap();
        let time = || std::fs::metadata(&heads).unwrap().modified().unwrap();
        let write = |text: &str| std::fs::write(&unit, text).unwrap();
        write("/* x */\n#ifdef Y\n  # include <a.h>\n#include \"b.h\"\n#define C\n");
        note(&build, true).unwrap();
        let before = time();
        assert!(before < SystemTime::now() - Duration::from_secs(3600));
        let text = std::fs::read_to_string(&heads).unwrap();
        assert!(
            text.ends_with("\t# include <a.h>\t#include \"b.h\"\n"),
            "{text}"
        );

        write("/* y */\n\n# include <a.h>\n#include \"b.h\"\n#define D\nint x;\n");
        note(&build, false).unwrap();
        assert_eq!(time(), before, "what follows does not count");

        write("#define MYSQL_LEX 1\n#include <a.h>\n#include \"b.h\"\n");
        note(&build, false).unwrap();
        assert!(time() > before);
    }
}
