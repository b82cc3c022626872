//! The files that the words of a command name.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use perfquilt_model::error::{Error, Result};
use perfquilt_system::process::find_program;

/// Characters around paths in a shell's command line, a list, or an option with a value.
const AROUND_PATHS: &[char] = &[
    ';', '\'', '"', '(', ')', ',', ':', '&', '|', '<', '>', '`', '=', '@',
];
/// The begin of options with a file that the command writes.
const OUTPUTS: [&str; 2] = ["--out", "--log"];
/// Folders whose files are no files of a disk.
pub const KERNEL_FOLDERS: [&str; 3] = ["/proc", "/sys", "/dev"];
/// Folders of the system's packages, whose programs change with the packages' versions.
const PACKAGES: [&str; 6] = ["/usr/bin", "/usr/sbin", "/usr/lib", "/bin", "/sbin", "/lib"];
/// The most interpreters of interpreters: a script may name a script.
const MOST_INTERPRETERS: usize = 4;
/// The longest first line of a script that the kernel reads.
const LONGEST_FIRST_LINE: u64 = 256;

/// Returns the files that `words` name: as whole words, behind `=` or `@`, as parts of a shell's command line, by paths that
/// begin in `directory`, if it is known, or as programs on `PATH`. A path with a placeholder belongs to one server, not to the command.
pub fn named_files<'a>(
    words: impl IntoIterator<Item = &'a str>,
    directory: Option<&Path>,
) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut is_output = false;
    for word in words {
        let skipped = is_output || OUTPUTS.iter().any(|begin| word.starts_with(begin));
        is_output = word == "-o";
        if skipped {
            continue;
        }
        let word = &without_redirections(word);
        let behind = |mark: char| word.split_once(mark).map_or("", |(_, rest)| rest);
        let whole = [word.as_str(), behind('='), behind('@')];
        let parts = word.split(|c: char| c.is_whitespace() || AROUND_PATHS.contains(&c));
        for name in whole.into_iter().chain(parts) {
            if name.is_empty() || name.contains('{') {
                continue;
            }
            let path = directory.unwrap_or(Path::new("")).join(name);
            found.extend((path.is_absolute() && is_file(&path)).then_some(path));
            let is_program = !name.contains('/');
            found.extend(is_program.then(|| find_program(name)).flatten());
        }
    }
    found
}

/// Returns the files that `words` of a build or a test name by absolute paths or as programs on `PATH`, and what runs those that
/// are scripts. The system's packages are not among them: their versions are known.
pub(crate) fn own_files<'a>(words: impl IntoIterator<Item = &'a str>) -> BTreeSet<PathBuf> {
    let mut found = named_files(words, None);
    let of_scripts: Vec<_> = found.iter().flat_map(|path| interpreters(path)).collect();
    found.extend(of_scripts);
    found.retain(|path| !PACKAGES.iter().any(|folder| path.starts_with(folder)));
    found
}

/// Returns a shell's command line without the files to which it redirects output.
fn without_redirections(line: &str) -> String {
    let mut parts = line.split('>');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |kept, part| {
        let rest = part.trim_start();
        let end = rest.find(|c: char| c.is_whitespace() || c == ';');
        kept + end.map_or("", |end| &rest[end..])
    })
}

/// Whether a path is that of a file that keeps its content.
fn is_file(path: &Path) -> bool {
    !KERNEL_FOLDERS.iter().any(|folder| path.starts_with(folder)) && path.is_file()
}

/// Returns the files that `path`, of the configuration's `inputs`, stands for: itself, or all below it.
pub fn declared_files(path: &Path) -> Result<BTreeSet<PathBuf>> {
    let unread = |e: &std::io::Error| {
        Error::input_unreadable(format!("cannot read {}: {e}", path.display()))
            .hint("`inputs` of the configuration names it")
    };
    if !std::fs::metadata(path).map_err(|e| unread(&e))?.is_dir() {
        return Ok([path.to_path_buf()].into());
    }
    below(path).map_err(|e| unread(&e))
}

/// Returns the files below `folder`, following links.
pub fn files_below(folder: &Path) -> Result<BTreeSet<PathBuf>> {
    below(folder).map_err(|e| Error::io("read", folder, &e))
}

fn below(folder: &Path) -> std::io::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        // A link may lead to a folder that contains it.
        if !seen.insert(std::fs::canonicalize(&folder)?) {
            continue;
        }
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(&folder)? {
            paths.push(entry?.path());
        }
        paths.sort_unstable();
        for path in paths {
            match std::fs::metadata(&path) {
                Ok(kind) if kind.is_dir() => folders.push(path),
                Ok(kind) if kind.is_file() => drop(found.insert(path)),
                _ => {}
            }
        }
    }
    Ok(found)
}

/// Returns the programs that run the script `path`, none if it is no script.
pub fn interpreters(path: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut script = path.to_path_buf();
    for _ in 0..MOST_INTERPRETERS {
        let Some(words) = first_line(&script) else {
            break;
        };
        let named = words.iter().map(|word| {
            // Behind `env`, a name is a program on `PATH`.
            let path = word.starts_with('/').then(|| PathBuf::from(word));
            path.or_else(|| find_program(word))
        });
        let named: Vec<PathBuf> = named.flatten().filter(|path| is_file(path)).collect();
        let Some(last) = named.last() else {
            break;
        };
        script.clone_from(last);
        found.extend(named);
    }
    found
}

/// Returns the words behind `#!` in the first line of a script.
fn first_line(path: &Path) -> Option<Vec<String>> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(LONGEST_FIRST_LINE).read_to_end(&mut bytes).ok()?;
    let line = bytes.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    Some(line.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use std::fs::write;

    use super::*;

    /// Returns the names of the files below `folder` that a word names.
    fn found(word: &str, folder: &Path) -> Vec<String> {
        let word = word.replace("FOLDER", folder.to_str().unwrap());
        let files = named_files([word.as_str()], Some(folder)).into_iter();
        let below = files.filter_map(|path| Some(path.strip_prefix(folder).ok()?.to_owned()));
        below.map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn a_file_is_found_wherever_a_word_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        for name in ["a.sql", "b.py", "with blank", "c=d"] {
            write(folder.join(name), name).unwrap();
        }
        for (word, names) in [
            ("FOLDER/a.sql", &["a.sql"][..]),
            ("a.sql", &["a.sql"]),
            ("./a.sql", &["./a.sql"]),
            ("--file=FOLDER/a.sql", &["a.sql"]),
            ("@FOLDER/a.sql", &["a.sql"]),
            ("data=@a.sql", &["a.sql"]),
            ("FOLDER/with blank", &["with blank"]),
            ("--file=FOLDER/with blank", &["with blank"]),
            ("FOLDER/c=d", &["c=d"]),
            (
                "python3 'FOLDER/b.py' < FOLDER/a.sql; true",
                &["a.sql", "b.py"],
            ),
            ("FOLDER/b.py:FOLDER/a.sql", &["a.sql", "b.py"]),
            ("sh b.py > a.sql 2>&1; cat b.py", &["b.py"]),
            ("--output=a.sql", &[]),
            ("{server}/a.sql", &[]),
            ("FOLDER", &[]),
            ("FOLDER/none", &[]),
            ("/dev/null", &[]),
            ("", &[]),
        ] {
            let found: Vec<String> = found(word, folder)
                .into_iter()
                .map(|name| name.replace("././", "./"))
                .collect();
            let plain = |name: &str| name.trim_start_matches("./").to_owned();
            let expected: Vec<String> = names.iter().map(|name| plain(name)).collect();
            let found: Vec<String> = found.iter().map(|name| plain(name)).collect();
            assert_eq!(found, expected, "{word}");
        }
        let shell = named_files(["sh", "-c", "exec cat x"], Some(folder));
        let names = ["sh", "cat"].map(|name| find_program(name).unwrap());
        assert!(names.iter().all(|path| shell.contains(path)), "{shell:?}");
    }

    #[test]
    fn what_runs_a_script_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let script = |name: &str, text: &str| {
            let path = folder.path().join(name);
            write(&path, text).unwrap();
            path
        };
        let shell = find_program("sh").unwrap();
        let direct = script("direct", "#!/bin/sh -e\n");
        assert!(interpreters(&direct).contains(Path::new("/bin/sh")));
        let by_path = script("by-path", "#!/usr/bin/env -S sh -e\n");
        assert!(interpreters(&by_path).contains(&shell));
        let nested = script("nested", &format!("#!{}\n", direct.display()));
        let of_nested = interpreters(&nested);
        assert!(of_nested.contains(&direct) && of_nested.contains(Path::new("/bin/sh")));
        assert!(interpreters(&script("text", "no script")).is_empty());
        assert!(interpreters(&folder.path().join("none")).is_empty());
        // One that names itself ends.
        let own = folder.path().join("own");
        write(&own, format!("#!{}\n", own.display())).unwrap();
        assert_eq!(interpreters(&own), [own.clone()].into());
    }

    #[test]
    fn a_declared_folder_stands_for_its_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        for name in ["a", "sub/b"] {
            write(folder.path().join(name), name).unwrap();
        }
        std::os::unix::fs::symlink("..", folder.path().join("sub/up")).unwrap();
        assert_eq!(declared_files(folder.path()).unwrap().len(), 2);
        let error = declared_files(&folder.path().join("none")).unwrap_err();
        assert!(error.message().contains("none"), "{error}");
    }
}
