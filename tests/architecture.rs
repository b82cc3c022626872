//! The invariants of ARCHITECTURE.md that can be read off the manifests and the source text.

mod modules;
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The direct dependencies of every crate of the workspace, by its name without `perfquilt-`; `cli` is the root.
/// Those for tests are left out.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    packages
        .iter()
        .map(|package| {
            let direct = package["dependencies"].as_array().unwrap().iter();
            let direct = direct
                .filter(|dependency| dependency["kind"].is_null())
                .map(|dependency| short(dependency["name"].as_str().unwrap()));
            (short(package["name"].as_str().unwrap()), direct.collect())
        })
        .collect()
}

fn short(package: &str) -> String {
    match package.strip_prefix("perfquilt-") {
        Some(name) => name.to_owned(),
        None if package == "perfquilt" => "cli".to_owned(),
        None => package.to_owned(),
    }
}

/// The arrows drawn in ARCHITECTURE.md: `crate → crate crate …`, a line each, in the block that begins with
/// "```arrows".
fn drawn() -> BTreeMap<String, BTreeSet<String>> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, block) = page.split_once("```arrows\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    block
        .lines()
        .map(|line| {
            let (from, to) = line.split_once('→').unwrap();
            let to = to.split_whitespace().map(str::to_owned);
            (from.trim().to_owned(), to.collect())
        })
        .collect()
}

#[test]
fn crates_depend_on_each_other_as_drawn() {
    let actual = dependencies();
    let names: BTreeSet<&String> = actual.keys().collect();
    let among_us: BTreeMap<String, BTreeSet<String>> = actual
        .iter()
        .map(|(name, direct)| {
            let ours = direct.iter().filter(|direct| names.contains(direct));
            (name.clone(), ours.cloned().collect())
        })
        .collect();
    assert_eq!(drawn(), among_us, "draw the arrows in ARCHITECTURE.md");
}

#[test]
fn every_file_of_tests_is_run() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let program = std::fs::read_to_string(tests.join("integration.rs")).unwrap();
    let entries = std::fs::read_dir(tests)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let modules = entries
        .filter(|path| {
            path.extension().is_some_and(|end| end == "rs") || path.join("mod.rs").exists()
        })
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .filter(|name| !["integration", "contributing"].contains(&name.as_str()));
    let missing: Vec<String> = modules
        .filter(|name| !program.lines().any(|line| line == format!("mod {name};")))
        .collect();
    assert_eq!(
        missing,
        Vec::<String>::new(),
        "lines of tests/integration.rs"
    );
}

#[test]
fn the_page_names_files_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let mut files: Vec<String> = Vec::new();
    for folder in ["crates", "src", "tests"] {
        let found = sources::sources(&root.join(folder));
        files.extend(found.iter().map(|(path, _)| path.display().to_string()));
    }
    let names = regex::Regex::new(r"`([\w/]+\.rs)`").unwrap();
    let missing: Vec<&str> = names
        .captures_iter(&page)
        .map(|name| name.get(1).unwrap().as_str())
        .filter(|name| !files.iter().any(|file| file.ends_with(&format!("/{name}"))))
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
}

/// Asserts that exactly `users` depend on `package`.
fn only(package: &str, users: &[&str]) {
    let dependencies = dependencies();
    let found = dependencies
        .iter()
        .filter(|(_, direct)| direct.contains(package))
        .map(|(name, _)| name.as_str());
    let found: BTreeSet<&str> = found.collect();
    assert_eq!(found, users.iter().copied().collect(), "users of {package}");
}

#[test]
fn libraries_stay_behind_their_walls() {
    only("clap", &["cli", "simulate"]);
    only("git2", &["import", "rebase", "series"]);
    only("rusqlite", &["store"]);
    only("octocrab", &["forge"]);
    only("tokio", &["bot", "forge"]);
    only("axum", &["bot"]);
}

#[test]
fn pure_crates_do_no_io() {
    for pure in ["model", "judge", "report"] {
        let dependencies = &dependencies()[pure];
        for impure in ["system", "config", "store", "rustix", "tempfile", "libc"] {
            assert!(!dependencies.contains(impure), "{pure} uses {impure}");
        }
        sources::only_in(
            &format!("crates/{pure}/src"),
            &[],
            &["std::fs", "std::env", "std::net", "std::process"],
        );
    }
    sources::only_in(
        "crates/series/src/series",
        &["/load.rs"],
        &["std::fs", "std::env", "perfquilt_system::process"],
    );
}

#[test]
fn a_forge_is_named_in_its_folder_only() {
    let names = [
        "GitHub",
        "GitLab",
        "Forgejo",
        "Gitea",
        "\"github\"",
        "\"gitlab\"",
    ];
    let folders = ["/github/", "/gitlab/", "/forgejo/"];
    sources::only_in("crates/forge/src", &folders, &names);
    sources::only_in("crates/bot/src", &[], &names);
}

#[test]
fn only_one_module_starts_processes() {
    sources::only_in(
        "crates",
        &["/system/src/process/"],
        &["std::process::Command", "libc::fork"],
    );
    sources::only_in("src", &[], &["std::process::Command", "libc::fork"]);
}

#[test]
fn libraries_never_print() {
    let print = [
        "println!",
        "eprintln!",
        "print!(",
        "eprint!(",
        "stdout().lock",
        "dbg!",
    ];
    // A build script tells cargo by printing.
    sources::only_in("crates", &["/config/build.rs"], &print);
    sources::only_in("src", &["/cli/output.rs", "/cli/terminal.rs"], &print);
}

#[test]
fn modules_of_a_folder_do_not_import_each_other_in_a_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = vec![root.join("src")];
    for entry in std::fs::read_dir(root.join("crates")).unwrap() {
        sources.push(entry.unwrap().path().join("src"));
    }
    let circles: Vec<String> = sources
        .iter()
        .flat_map(|source| modules::circles(source))
        .collect();
    assert!(circles.is_empty(), "{circles:#?}");
}

#[test]
fn circles_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("lib.rs", "mod a;\nmod b;\nmod c;\npub use b::Shared;\n");
    write("a.rs", "use crate::c::{\n    self, x::Y,\n};\n");
    write("b/mod.rs", "pub mod inner;\npub struct Shared;\n");
    write("b/inner.rs", "fn f() { super::super::a::g(); }\n");
    write(
        "c.rs",
        "pub mod x;\n#[cfg(test)]\nmod tests { use crate::a; }\n",
    );
    assert_eq!(modules::circles(folder.path()), Vec::<String>::new());
    // The re-exported name belongs to `b`.
    write("c/x.rs", "use crate::Shared;\npub struct Y;\n");
    let circles = modules::circles(folder.path());
    assert_eq!(circles.len(), 1, "{circles:?}");
    for name in ["a", "b", "c"] {
        assert!(circles[0].contains(name), "{circles:?}");
    }
}

/// A version of the compiler as numbers.
fn version(text: &str) -> Vec<u32> {
    text.split('.').map(|part| part.parse().unwrap()).collect()
}

#[test]
fn no_dependency_needs_a_newer_compiler_than_the_promised_one() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--offline", "--locked", "--format-version=1"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let promised = env!("CARGO_PKG_RUST_VERSION");
    let packages = metadata["packages"].as_array().unwrap();
    let newer: Vec<String> = packages
        .iter()
        .filter_map(|package| Some((package["name"].as_str()?, package["rust_version"].as_str()?)))
        .filter(|(_, needed)| version(needed) > version(promised))
        .map(|(name, needed)| format!("{name} needs Rust {needed}"))
        .collect();
    assert_eq!(
        newer,
        Vec::<String>::new(),
        "Cargo.toml promises {promised}"
    );
    assert!(packages.len() > 200, "{}", packages.len());
}

#[test]
fn the_fuzzers_lock_names_crates_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let lock = std::fs::read_to_string(root.join("fuzz/Cargo.lock")).unwrap();
    let lock: toml::Value = toml::from_str(&lock).unwrap();
    let actual = dependencies();
    let packages = lock["package"].as_array().unwrap().iter();
    let names = packages.map(|package| package["name"].as_str().unwrap());
    let ours = names.filter(|name| name.starts_with("perfquilt-"));
    let unknown: Vec<&str> = ours
        .filter(|name| *name != "perfquilt-fuzz" && !actual.contains_key(&short(name)))
        .collect();
    assert_eq!(
        unknown, [""; 0],
        "`cargo metadata` in fuzz/ writes its lock"
    );
}
