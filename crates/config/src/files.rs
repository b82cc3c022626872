//! Files that the configuration refers to; results depend on their content.

use std::collections::BTreeMap;
use std::path::Path;

use super::words;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::digest;

/// Prefix of such a file's path in a command, setting or path of the configuration.
const CONFIG_PREFIX: &str = "{config}/";
/// Characters that end such a path: a word may be a shell command line, a list, or a setting that contains a path.
const PATH_TERMINATORS: &[char] = &[
    ';', '\'', '"', '(', ')', ',', ':', '&', '|', '<', '>', '`', '\\',
];
/// Characters that make a path a pattern.
const PATTERN_CHARS: &[char] = &['*', '?', '[', '{', '$'];
/// Folder that the Python interpreter writes beside the programs it runs.
const PYTHON_CACHE: &str = "__pycache__";

/// Returns what results of the commands with these `words` depend on: the files below `config_dir`, by relative paths, with their
/// contents, and others outside the system's packages, by absolute paths, with the digests of their contents.
pub fn read_files<'a>(
    words: impl Iterator<Item = &'a str> + Clone,
    config_dir: &Path,
) -> Result<Vec<(String, Vec<u8>)>> {
    let mut found = config_files(words.clone(), config_dir)?;
    for path in words::own_files(words) {
        let digest = digest::of_file(&path);
        let digest = digest
            .map_err(|e| Error::input_unreadable(format!("cannot read {}: {e}", path.display())))?;
        found.push((path.to_string_lossy().into_owned(), digest.into_bytes()));
    }
    Ok(found)
}

/// Returns the files that `words` name as `{config}/PATH`: paths relative to `config_dir` and contents,
/// sorted by path. A folder stands for all files in it, and a path with stars or variables for all files in
/// the folder in front of them. Ancestors of `config_dir` stand for no file.
fn config_files<'a>(
    words: impl Iterator<Item = &'a str>,
    config_dir: &Path,
) -> Result<Vec<(String, Vec<u8>)>> {
    let mut found = BTreeMap::new();
    for word in words {
        for (at, _) in word.match_indices(CONFIG_PREFIX) {
            let path = named(&word[at + CONFIG_PREFIX.len()..]);
            if !is_ancestor(&config_dir.join(path), config_dir) {
                add(path.trim_end_matches('/'), config_dir, &mut found)
                    .map_err(|error| error.hint(format!("`{word}` names it")))?;
            }
        }
    }
    Ok(found.into_iter().collect())
}

/// Returns the path at the beginning of `rest`; for a pattern, the folder in front of it.
fn named(rest: &str) -> &str {
    let end = rest.find(|c: char| c.is_whitespace() || PATH_TERMINATORS.contains(&c));
    let path = &rest[..end.unwrap_or(rest.len())];
    match path.find(PATTERN_CHARS) {
        Some(at) => &path[..path[..at].rfind('/').map_or(0, |slash| slash + 1)],
        None => path,
    }
}

/// Whether `path` is an ancestor of `config_dir`.
fn is_ancestor(path: &Path, config_dir: &Path) -> bool {
    match (path.canonicalize(), config_dir.canonicalize()) {
        (Ok(path), Ok(config)) => config != path && config.starts_with(path),
        _ => false,
    }
}

fn add(name: &str, config_dir: &Path, found: &mut BTreeMap<String, Vec<u8>>) -> Result<()> {
    let path = config_dir.join(name);
    let unread = |error: &std::io::Error| {
        Error::input_unreadable(format!("cannot read {}: {error}", path.display()))
    };
    if !std::fs::metadata(&path).map_err(|e| unread(&e))?.is_dir() {
        let bytes = std::fs::read(&path).map_err(|e| unread(&e))?;
        found.insert(name.to_owned(), bytes);
        return Ok(());
    }
    for entry in std::fs::read_dir(&path).map_err(|e| unread(&e))? {
        let entry = entry.map_err(|e| unread(&e))?;
        if entry.file_name() == PYTHON_CACHE {
            continue;
        }
        let below = Path::new(name).join(entry.file_name());
        let below = below.to_string_lossy();
        // A link to a folder may lead in a circle, and a dangling link is no mistake.
        match std::fs::read_link(entry.path()) {
            Ok(to) if !entry.path().is_file() => {
                found.insert(below.into_owned(), to.to_string_lossy().into_owned().into());
            }
            _ => add(&below, config_dir, found)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(words: &[&str], config: &Path) -> Vec<String> {
        config_files(words.iter().copied(), config)
            .unwrap()
            .into_iter()
            .map(|(name, _)| name)
            .collect()
    }

    #[test]
    fn files_are_found_wherever_a_word_names_them() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("bench-config");
        std::fs::create_dir_all(config.join("cmake/sub")).unwrap();
        std::fs::create_dir_all(config.join("cmake/__pycache__")).unwrap();
        for name in [
            "a.sh",
            "b.map",
            "cmake/x",
            "cmake/sub/y",
            "cmake/__pycache__/z",
        ] {
            std::fs::write(config.join(name), name).unwrap();
        }
        std::os::unix::fs::symlink("..", config.join("cmake/around")).unwrap();
        let plain = ["{config}/a.sh"];
        assert_eq!(names(&plain, &config), ["a.sh"]);
        let line = ["{config}/a.sh {jobs} '{config}/b.map',x; cd {config}"];
        assert_eq!(names(&line, &config), ["a.sh", "b.map"]);
        let inner = ["cmake/around", "cmake/sub/y", "cmake/x"];
        for word in [
            "{config}/cmake",
            "-DX={config}/cmake/",
            "{config}/cmake/*.in",
        ] {
            assert_eq!(names(&[word], &config), inner, "{word}");
        }
        assert!(names(&["make", "{config}", "{config}/.."], &config).is_empty());
        let found = config_files(["{config}/a.sh"].into_iter(), &config).unwrap();
        assert_eq!(found[0].1, b"a.sh");
    }

    #[test]
    fn a_file_that_is_not_there_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let error = config_files(["sh {config}/none.sh"].into_iter(), folder.path()).unwrap_err();
        assert_eq!(error.kind(), perfquilt_model::error::Kind::Usage);
        assert!(error.message().contains("none.sh"), "{error}");
    }
}
