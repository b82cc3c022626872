//! Computes the keys of results and the names of working folders from everything a build depends on.

use std::path::Path;

use sha2::{Digest, Sha256};

use perfquilt_config::{Recipe, read_files};
use perfquilt_model::error::Result;
use perfquilt_system::digest;

/// Part of every key: raised when the same inputs would give another result.
const KEY_FORMAT: &str = "perfquilt-build 4";

/// Returns the key of the server built from the git tree `tree` by the recipe with the digest `recipe`, with
/// these tools and the profile with the key `profile`.
pub(super) fn of_server(
    tree: &str,
    recipe: &str,
    tools: &[String],
    profile: Option<&str>,
) -> String {
    let tools = tools.iter().map(String::as_str).chain(profile);
    digest::of([KEY_FORMAT, tree, recipe].into_iter().chain(tools))[..40].to_owned()
}

/// Returns the digest of the part of a recipe that determines the build tree, without what is installed from it.
pub(super) fn of_configuration(
    recipe: &Recipe,
    include: Option<&str>,
    config: &Path,
) -> Result<String> {
    let configuration = Recipe {
        targets: Vec::new(),
        install: Default::default(),
        binary: None,
        relink: None,
        ..recipe.clone()
    };
    of_recipe(&configuration, include, config)
}

/// Returns the digest of everything in a recipe that a result depends on, including the content of the files that it names,
/// below `bench-config/` (`config`) and elsewhere. `include` is the content of `cmake_include`.
pub(super) fn of_recipe(recipe: &Recipe, include: Option<&str>, config: &Path) -> Result<String> {
    let mut digest = Sha256::new();
    let mut add = |label: &str, value: &[u8]| {
        for part in [label.as_bytes(), value] {
            digest::add(&mut digest, part);
        }
    };
    // The compilers that are used unless the recipe names others.
    let mut words: Vec<&str> = vec!["cc", "c++"];
    // Version of the relink inputs stored with the server.
    add("kept", b"2");
    add("system", format!("{:?}", recipe.system).as_bytes());
    add("linker", format!("{:?}", recipe.linker).as_bytes());
    // The inputs for relinking this executable are stored.
    if let Some(binary) = &recipe.binary {
        add("binary", binary.as_bytes());
    }
    for (label, list) in [("arg", &recipe.cmake_args), ("target", &recipe.targets)] {
        for word in list {
            add(label, word.as_bytes());
            words.push(word);
        }
    }
    for (label, commands) in [("configure", &recipe.configure), ("build", &recipe.build)] {
        for command in commands {
            add(label, command.len().to_string().as_bytes());
            for word in command {
                add(label, word.as_bytes());
                words.push(word);
            }
        }
    }
    for (label, map) in [("install", &recipe.install), ("env", &recipe.env)] {
        for (name, value) in map {
            add(label, name.as_bytes());
            add(label, value.as_bytes());
            words.push(value);
        }
    }
    if let Some(relink) = &recipe.relink {
        for (name, path) in &relink.keep {
            add("keep", name.as_bytes());
            add("keep", path.as_bytes());
            words.push(path);
        }
        for word in &relink.command {
            add("relink", word.as_bytes());
            words.push(word);
        }
    }
    add("include", include.unwrap_or_default().as_bytes());
    for (name, bytes) in read_files(words.into_iter(), config)? {
        add("file", name.as_bytes());
        add("file", &bytes);
    }
    Ok(hex::encode(digest.finalize()))
}

/// Returns the name of the folder with the source and build tree of a recipe whose configuration has this digest.
pub(super) fn work_name(release: &str, recipe: &str, configuration: &str) -> String {
    format!(
        "{}-{}-{}",
        file_name(release),
        file_name(recipe),
        &configuration[..8]
    )
}

/// Replaces the characters of `text` that are unsafe in a file name.
pub(super) fn file_name(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "-_.+".contains(c) {
                c
            } else {
                '-'
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installed_files_and_named_files_change_the_digest() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path();
        std::fs::create_dir(config.join("cmake")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(config.join(name), text).unwrap();
        for name in ["build.sh", "cmake/a", "kept"] {
            write(name, "1");
        }
        let line = "{config}/build.sh {jobs}; {config}/cmake".to_owned();
        let relink = perfquilt_config::Relink {
            keep: [("x".to_owned(), "{config}/kept".to_owned())].into(),
            ..Default::default()
        };
        let recipe = Recipe {
            build: vec![vec!["sh".to_owned(), "-c".to_owned(), line]],
            binary: Some("bin/a".to_owned()),
            relink: Some(relink),
            ..Recipe::default()
        };
        let digest = |recipe: &Recipe| of_recipe(recipe, None, config).unwrap();
        let mut seen = vec![digest(&recipe)];
        for name in ["build.sh", "cmake/a", "kept"] {
            write(name, "2");
            let after = digest(&recipe);
            assert!(!seen.contains(&after), "{name}");
            seen.push(after);
        }
        let configured = of_configuration(&recipe, None, config).unwrap();
        let other = Recipe {
            binary: Some("bin/b".to_owned()),
            ..recipe
        };
        assert!(!seen.contains(&digest(&other)));
        assert_eq!(of_configuration(&other, None, config).unwrap(), configured);
        std::fs::remove_file(config.join("build.sh")).unwrap();
        assert!(of_recipe(&other, None, config).is_err());
    }
}
