//! The commands of the documents work: the tutorial's commands are run (those of other documents in
//! `docs_commands.rs`), every command of perfquilt's is one, and every link leads to a file.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::documents::{commands, root, without_remark};

/// Every Markdown file that people read, with its text.
fn documents() -> Vec<(PathBuf, String)> {
    let mut files: Vec<PathBuf> = [
        "README.md",
        "CONTRIBUTING.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
    ]
    .iter()
    .map(|name| root().join(name))
    .collect();
    for folder in ["docs", "docs/results", "ci/bench"] {
        let entries = std::fs::read_dir(root().join(folder)).unwrap();
        files.extend(entries.map(|entry| entry.unwrap().path()));
    }
    files.retain(|file| file.extension().is_some_and(|end| end == "md"));
    files.sort();
    let read = |file: PathBuf| {
        let text = std::fs::read_to_string(&file).unwrap();
        (file, text)
    };
    files.into_iter().map(read).collect()
}

/// Runs a script with the tool on `PATH` and nothing of the user's environment.
fn bash(folder: &Path, script: &str) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_perfquilt"));
    let path = format!("{}:/usr/bin:/bin", program.parent().unwrap().display());
    Command::new("/bin/bash")
        .args(["-e", "-u", "-c", script])
        .current_dir(folder)
        .env_clear()
        .env("PATH", path)
        .env("HOME", folder.join("home"))
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .env("TMPDIR", folder)
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env("GIT_AUTHOR_NAME", "a")
        .env("GIT_AUTHOR_EMAIL", "a@example.invalid")
        .env("GIT_COMMITTER_NAME", "a")
        .env("GIT_COMMITTER_EMAIL", "a@example.invalid")
        .output()
        .unwrap()
}

/// `line` without its remark, up to what another program gets.
fn own_part(line: &str) -> &str {
    [" | ", " && ", "; "]
        .iter()
        .fold(without_remark(line), |line, end| {
            line.split(end).next().unwrap()
        })
        .trim()
}

#[test]
fn every_command_of_the_documents_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut checked = 0;
    let mut wrong = Vec::new();
    for (file, text) in documents() {
        for (number, line) in commands(&text) {
            let place = format!("{}:{number}", file.strip_prefix(root()).unwrap().display());
            let first = line.split(' ').next().unwrap();
            if let Some(script) = first.strip_prefix("ci/") {
                assert!(root().join("ci").join(script).exists(), "{place}: {line}");
            }
            let own = own_part(&line);
            let called = own.split(' ').any(|word| word == "perfquilt");
            if !called || own.starts_with('#') || own.starts_with("git ") {
                continue;
            }
            // All arguments are looked at before help is given.
            let output = bash(folder.path(), &format!("{own} --help"));
            if !output.status.success() {
                wrong.push(format!(
                    "{place}: {line}\n{}",
                    String::from_utf8_lossy(&output.stderr)
                ));
            }
            checked += 1;
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(checked > 60, "{checked}");
}

#[test]
fn commands_within_sentences_are_ones() {
    let named = regex::Regex::new("`(perfquilt [a-z][^`]*)`").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut seen = std::collections::BTreeSet::new();
    let mut wrong = Vec::new();
    for (file, text) in documents() {
        for found in named.captures_iter(&text) {
            // What stands for a number or a word of a list.
            let command = found[1]
                .replace("--fuzz N", "--fuzz 1")
                .replace("report --format FORMAT", "report --format csv")
                .replace("FILE --format FORMAT", "FILE --format csv");
            if !seen.insert(command.clone()) {
                continue;
            }
            let output = bash(folder.path(), &format!("{command} --help"));
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                wrong.push(format!("{}: {command}\n{said}", file.display()));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(seen.len() > 40, "{seen:#?}");
}

#[test]
fn the_tutorial_works() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("home")).unwrap();
    std::os::unix::fs::symlink(root().join("tests"), folder.path().join("tests")).unwrap();
    let text = std::fs::read_to_string(root().join("docs/tutorial.md")).unwrap();
    let lines: Vec<String> = commands(&text).into_iter().map(|(_, line)| line).collect();
    assert!(lines.len() >= 20, "{lines:?}");
    let script = lines.join("\n");
    let output = bash(folder.path(), &script);
    let (out, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{out}\n{errors}");
    // What the text promises.
    let made = |name: &str| std::fs::read_to_string(folder.path().join("first-series").join(name));
    assert!(made("report.html").unwrap().contains("</html>"));
    assert!(made("tree/work.h").unwrap().contains("20000u"));
    let document: serde_json::Value = serde_json::from_str(&made("report.json").unwrap()).unwrap();
    let effect = |patch: usize| &document["patches"][patch]["effects"][0];
    // Beside other tests, five blocks may be too few for a verdict.
    assert!(
        effect(0)["estimate"].as_f64().unwrap() > 0.3,
        "{document:#}"
    );
    assert_eq!(effect(1)["identical"], true);
    assert!(made("series").unwrap().contains("a-fifth-of-the-rounds"));
    assert!(out.contains("the whole series"), "{out}");
}

#[test]
fn links_lead_to_files_and_headings() {
    let link = regex::Regex::new(r"\]\(([^)#\s]*)(?:#([^)]*))?\)").unwrap();
    let mut headings = 0;
    for (file, text) in documents() {
        for found in link.captures_iter(&text) {
            let target = &found[1];
            if target.contains("://") {
                continue;
            }
            let path = match target {
                "" => file.clone(),
                target => file.parent().unwrap().join(target),
            };
            assert!(path.exists(), "{}: {target}", file.display());
            if let Some(anchor) = found.get(2) {
                let text = std::fs::read_to_string(&path).unwrap();
                let there = text
                    .lines()
                    .any(|line| heading(line).as_deref() == Some(anchor.as_str()));
                assert!(there, "{}: {}", file.display(), &found[0]);
                headings += 1;
            }
        }
    }
    assert!(headings > 10, "{headings}");
}

#[test]
fn the_reference_says_what_every_command_reads_and_writes() {
    let reference = std::fs::read_to_string(root().join("docs/reference.md")).unwrap();
    let (_, table) = reference
        .split_once("## What each command reads and writes")
        .unwrap();
    let table = table.split("\n## ").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let mut listed: Vec<String> = rows
        .flat_map(|row| row.split('|').nth(1).unwrap().split(','))
        .map(|name| name.trim().trim_matches('`').to_owned())
        .collect();
    let help = bash(root(), "perfquilt --help");
    let help = String::from_utf8(help.stdout).unwrap();
    let (commands, _) = help.split_once("\nOptions:").unwrap();
    let command = regex::Regex::new(r"(?m)^  ([a-z]+)  ").unwrap();
    let mut there: Vec<String> = command
        .captures_iter(commands)
        .map(|found| found[1].to_owned())
        .collect();
    listed.sort();
    there.sort();
    assert_eq!(listed, there);
    assert!(there.len() > 20, "{there:?}");
}

/// `ci/docs` makes its table of contents from the README's.
#[test]
fn the_readme_lists_every_page() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let (_, table) = readme.split_once("## Documentation").unwrap();
    let mut missing = documents();
    missing.retain(|(file, _)| {
        let name = file.strip_prefix(root()).unwrap().to_str().unwrap();
        let in_docs = name.starts_with("docs/") && name.matches('/').count() == 1;
        in_docs && !table.contains(&format!("]({name})"))
    });
    assert_eq!(missing, []);
}

/// Adds all Rust code below `folder` to `text`.
fn sources(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|end| end == "rs") {
            text.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn the_promises_of_the_tables_have_tests() {
    let mut text = String::new();
    for folder in ["crates", "src", "tests"] {
        sources(&root().join(folder), &mut text);
    }
    let test = regex::Regex::new(r"^[a-z]+(?:_[a-z0-9]+)+$").unwrap();
    for (table, least) in [("bot", 40), ("field", 80)] {
        let table = root().join(format!("docs/{table}-promises.tsv"));
        let table = std::fs::read_to_string(table).unwrap();
        let mut checked = 0;
        for row in table.lines().skip(1) {
            let (promise, tests) = row.split_once('\t').unwrap();
            // Paths are separate words, with slashes.
            let words = tests.split([' ', ',', ';']);
            for name in words.filter(|word| test.is_match(word)) {
                assert!(text.contains(&format!("fn {name}(")), "{promise}: {name}");
                checked += 1;
            }
        }
        assert!(checked > least, "{checked}");
    }
}

/// The name that GitHub gives to a heading.
fn heading(line: &str) -> Option<String> {
    let title = line.strip_prefix('#')?.trim_start_matches('#').trim();
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let name: String = title.to_lowercase().chars().filter(kept).collect();
    Some(name.replace(' ', "-"))
}

#[test]
fn every_benchmark_is_listed_and_starts() {
    let page = std::fs::read_to_string(root().join("ci/bench/README.md")).unwrap();
    let mut started = 0;
    for entry in std::fs::read_dir(root().join("ci/bench")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.extension().is_some() || path.is_dir() {
            continue;
        }
        assert!(page.contains(&format!("| `ci/bench/{name}` |")), "{name}");
        let text = std::fs::read_to_string(&path).unwrap();
        if text.starts_with("#!/usr/bin/env python3\n") {
            let help = bash(root(), &format!("python3 -B ci/bench/{name} --help"));
            assert!(help.status.success(), "{name}: {help:?}");
            started += 1;
        }
    }
    assert!(started > 15, "{started}");
}

/// The Debian package takes documents by their endings.
#[test]
fn every_document_is_in_the_package() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let assets = manifest["package"]["metadata"]["deb"]["assets"].as_array();
    let sources = assets
        .unwrap()
        .iter()
        .map(|asset| asset[0].as_str().unwrap());
    let mut endings: Vec<&str> = sources
        .filter_map(|source| source.strip_prefix("docs/*."))
        .collect();
    let files = std::fs::read_dir(root().join("docs")).unwrap();
    let files = files
        .map(|file| file.unwrap().path())
        .filter(|path| path.is_file());
    let ending = |path: PathBuf| path.extension().unwrap().to_str().unwrap().to_owned();
    let found: std::collections::BTreeSet<String> = files.map(ending).collect();
    endings.sort_unstable();
    assert_eq!(endings, found.iter().collect::<Vec<_>>());
}
