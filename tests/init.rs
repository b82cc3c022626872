//! `perfquilt init`: the bundled files are those of the repository, and the result is a workspace.

use std::fs;
use std::path::Path;

use crate::common::TestEnvironment;

fn files(folder: &Path, below: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder.join(below)).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{below}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            files(folder, &name, found);
        } else {
            found.push(name);
        }
    }
    found.sort();
}

#[test]
fn a_new_workspace_has_the_repositorys_configuration() {
    let environment = TestEnvironment::with_fixture("toy");
    let made = environment.run(&["init", "new"]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let next: Vec<&str> = made.stdout.lines().skip(2).collect();
    let next: Vec<String> = next
        .iter()
        .map(|line| line.chars().take(18).collect())
        .collect();
    assert_eq!(
        next,
        ["  cd ./new", "  perfquilt doctor", "  perfquilt edit  "]
    );
    let status = environment.run(&["-C", "new", "status"]);
    assert!(status.stdout.contains("0 patches"), "{}", status.stdout);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let new = environment.workspace().join("new");
    assert_same_configuration(root, &new);
    let listed = environment.run(&["-C", "new", "upstream", "list"]);
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    assert!(
        listed.stdout.contains("mariadb-10.11.18"),
        "{}",
        listed.stdout
    );
    let linted = environment.run(&["-C", "new", "lint"]);
    assert_eq!(linted.code, Some(0), "{}", linted.stderr);
}

#[test]
fn a_new_workspace_for_another_server_has_the_configuration_of_its_example() {
    let environment = TestEnvironment::with_fixture("toy");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    for server in [
        "memcached",
        "mysql",
        "nginx",
        "postgresql",
        "redis",
        "valkey",
    ] {
        let made = environment.run(&["init", "--server", server, server]);
        assert_eq!(made.code, Some(0), "{}", made.stderr);
        let new = environment.workspace().join(server);
        assert_same_configuration(&root.join(server), &new);
        let linted = environment.run(&["-C", server, "lint"]);
        assert_eq!(linted.code, Some(0), "{}", linted.stderr);
    }
    let refused = environment.run(&["init", "--server", "valky", "new"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("valkey"), "{}", refused.stderr);
}

/// Compares the configuration of a new workspace with the one it was made of.
fn assert_same_configuration(root: &Path, new: &Path) {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    files(root, "bench-config", &mut ours);
    files(new, "bench-config", &mut theirs);
    assert_eq!(ours, theirs);
    for name in ours {
        let ours = fs::read_to_string(root.join(&name)).unwrap();
        // Presets for the series of examples stay where they are, and so do the series of single releases.
        let presets: Vec<&str> = ours.split("\n\n").collect();
        let of_example = |text: &&&str| text.contains("[preset.replay");
        let count = presets.iter().filter(of_example).count();
        assert_eq!(
            count,
            if root.join("examples").exists() && name == "bench-config/perfquilt.toml" {
                2
            } else {
                0
            }
        );
        let others: Vec<&str> = presets.into_iter().filter(|of| !of_example(&of)).collect();
        let ours = others.join("\n\n");
        let lines = ours.split_inclusive('\n');
        // Nor are the workloads for patches that it does not have.
        let own = ["patches =", "exercises ="];
        let is_own = |line: &&str| own.iter().any(|start| line.starts_with(start));
        let kept = |line: &&str| !(name.ends_with(".toml") && is_own(line));
        assert_eq!(
            lines.filter(kept).collect::<String>(),
            fs::read_to_string(new.join(&name)).unwrap(),
            "{name}"
        );
    }
}

#[test]
fn a_workspace_is_never_overwritten() {
    let environment = TestEnvironment::with_fixture("toy");
    let refused = environment.run(&["init"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("[PQ0116]"), "{}", refused.stderr);
}

#[test]
fn a_path_that_cannot_be_a_workspace_is_wrong_usage() {
    let environment = TestEnvironment::with_fixture("toy");
    environment.write("file", "");
    for (path, cause) in [
        ("file", "file is not a folder"),
        ("file/new", "file is not a folder"),
        ("/proc/x", "cannot create a workspace in /proc/x: "),
    ] {
        let refused = environment.run(&["init", path]);
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        assert!(refused.stderr.contains(cause), "{}", refused.stderr);
        assert!(
            refused.stderr.contains("`perfquilt init DIR`"),
            "{}",
            refused.stderr
        );
    }
}
