//! Recognises servers that differ in nothing but the numbers of source lines that `__LINE__` left in them.

use std::path::Path;

use super::Built;
use super::files::list;
use super::identity::loaded_sections;
use perfquilt_config::{BUILD_RECORD, RELINK_FOLDER};
use perfquilt_model::error::{Error, Result};
use perfquilt_series::stack::MovedLines;

impl Built {
    /// Returns whether this server differs from the one of `before` in line numbers alone, given that its sources have the
    /// same code on other lines: every byte that a process would load and that differs is part of a number (binary, or as
    /// text of the same length) that is that of a moved line in the one and in the other.
    pub fn differs_in_line_numbers(&self, before: &Built, moved: &MovedLines) -> Result<bool> {
        if moved.is_empty() || self.identity == before.identity {
            return Ok(false);
        }
        let names = |dir: &Path| -> Result<Vec<String>> {
            let mut files = list(dir)?;
            files.retain(|name, _| {
                name != BUILD_RECORD && !Path::new(name).starts_with(RELINK_FOLDER)
            });
            Ok(files.into_keys().collect())
        };
        let files = names(&self.dir)?;
        if files != names(&before.dir)? {
            return Ok(false);
        }
        let read = |path: &Path| std::fs::read(path).map_err(|e| Error::io("read", path, &e));
        for name in files {
            let (old, new) = (read(&before.dir.join(&name))?, read(&self.dir.join(&name))?);
            if old != new && !is_explained(&old, &new, moved) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns whether two programs or libraries differ in the numbers of moved lines alone.
fn is_explained(old: &[u8], new: &[u8], moved: &MovedLines) -> bool {
    let Some((old, new)) = loaded_sections(old).zip(loaded_sections(new)) else {
        return false;
    };
    old.len() == new.len()
        && old.iter().zip(&new).all(|(old, new)| {
            (old.name, old.header) == (new.name, new.header)
                && are_numbers(old.content, new.content, moved)
        })
}

/// Returns whether two contents of the same length differ in the numbers of moved lines alone.
fn are_numbers(old: &[u8], new: &[u8], moved: &MovedLines) -> bool {
    let mut at = 0;
    while let Some(next) = (at..old.len()).find(|&place| old[place] != new[place]) {
        let end = binary(old, new, next, moved).or_else(|| decimal(old, new, next, moved));
        match end {
            Some(end) => at = end,
            None => return false,
        }
    }
    true
}

/// Returns the end of the number of one, two or four bytes that contains the byte at `place`.
fn binary(old: &[u8], new: &[u8], place: usize, moved: &MovedLines) -> Option<usize> {
    let number = |bytes: &[u8]| {
        let mut number = [0; 4];
        number[..bytes.len()].copy_from_slice(bytes);
        u32::from_le_bytes(number)
    };
    let places = [4, 2, 1].into_iter().flat_map(|length| {
        let first = (place + 1).saturating_sub(length);
        (first..=place).map(move |start| start..start + length)
    });
    let mut found = places.filter(|range| {
        let both = old.get(range.clone()).zip(new.get(range.clone()));
        both.is_some_and(|(old, new)| moved.has(number(old), number(new)))
    });
    found.next().map(|range| range.end)
}

/// Returns the end of the number in digits that contains the byte at `place`.
fn decimal(old: &[u8], new: &[u8], place: usize, moved: &MovedLines) -> Option<usize> {
    let is_digit = |at: &usize| old[*at].is_ascii_digit() && new[*at].is_ascii_digit();
    let start = (0..=place).rev().take_while(is_digit).last()?;
    let end = (place..old.len()).take_while(is_digit).last()? + 1;
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
    let both = number(&old[start..end]).zip(number(&new[start..end]));
    both.filter(|(old, new)| moved.has(*old, *new)).map(|_| end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_model::error::Kind;
    use perfquilt_system::process::Command;

    /// Compiles a program.
    fn built(folder: &Path, name: &str, source: &str) -> Built {
        let dir = folder.join(name);
        std::fs::create_dir_all(&dir).unwrap();
        // The path is the same in all builds.
        std::fs::write(folder.join("a.c"), source).unwrap();
        Command::new("cc")
            .args(["-O2", "-Wno-builtin-macro-redefined", "a.c", "-o"])
            .arg(dir.join("server"))
            .directory(folder)
            .run_ok(Kind::Build)
            .unwrap();
        let files = list(&dir).unwrap();
        let identity = super::super::identity::identity_of_files(&dir, &files).unwrap();
        Built::existing(name, dir, &identity)
    }

    /// Returns whether code moves from one source to the other, and the lines.
    fn moved(old: &str, new: &str) -> Option<MovedLines> {
        let mut moved = MovedLines::default();
        let is_same = moved.add(b"a.c", old.as_bytes(), new.as_bytes());
        is_same.then_some(moved)
    }

    #[test]
    fn line_numbers_alone_are_told_from_everything_else() {
        let folder = tempfile::tempdir().unwrap();
        let source = "#include <stdlib.h>\n#include <stdio.h>\n\
            #define TEXT_(x) #x\n#define TEXT(x) TEXT_(x)\n\
            int main(int count, char **words) {\n\
            if (count > 1) { printf(\"line %d\", __LINE__); }\n\
            if (count > 2) { puts(\"a.c:\" TEXT(__LINE__)); }\n\
            return count == 3;\n}\n";
        let longer = source.replace("int main", "/* The\n * start. */\nint main");
        let old = built(folder.path(), "old", source);
        let differs = |name: &str, text: &str, lines: Option<MovedLines>| {
            let new = built(folder.path(), name, text);
            assert_ne!(old.identity, new.identity, "{name}");
            lines.is_some_and(|lines| new.differs_in_line_numbers(&old, &lines).unwrap())
        };
        assert!(differs("comment", &longer, moved(source, &longer)));
        let changed = longer.replace("== 3", "== 4");
        assert!(!differs("code", &changed, moved(source, &changed)));
        // What the compiler makes of the same code in another way, such as the time of day.
        for (name, from, to) in [
            ("constant", "== 3", "== 4"),
            ("text", "TEXT_(x)\n", "TEXT_(x) \"!\"\n"),
        ] {
            let stamped = longer.replacen(from, to, 2);
            assert!(!differs(name, &stamped, moved(source, &longer)));
        }
    }
}
