//! `ci/quickstart`: which program it takes, and what it prints.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Machine, said};

const THIS_VERSION: &str = "if [ \"$1\" = --version ]; then echo perfquilt 1.2.3; exit; fi\n";

/// A project of version 1.2.3 with the script, on a machine where every package is installed.
fn project(programs: &[&str]) -> (Machine, PathBuf) {
    let mut all = vec![
        "sh", "sed", "head", "find", "ls", "awk", "cut", "df", "nproc", "date", "mkdir", "tar",
        "gzip", "uname", "sort", "dirname", "fold",
    ];
    all.extend(programs);
    let machine = Machine::with(&all);
    machine.script(
        "dpkg-query",
        "shift 3; for p; do echo \"installed $p\"; done",
    );
    machine.file("Cargo.toml", "[package]\nversion = \"1.2.3\"\n");
    machine.file("Cargo.lock", "");
    machine.file("src/main.rs", "");
    machine.file("crates/one/src/lib.rs", "");
    machine.file("examples/redis/series", "");
    machine.file("ci/packages.txt", "gcc required program:gcc compiles\n");
    for (name, text) in [
        ("quickstart", include_str!("../../ci/quickstart")),
        ("install-deps", include_str!("../../ci/install-deps")),
    ] {
        let path = machine.file(&format!("ci/{name}"), text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let script = machine.path().join("ci/quickstart");
    (machine, script)
}

/// A program that says it is version 1.2.3 and notes its other calls, as `name`, in `calls`.
fn program(machine: &Machine, path: &str, name: &str) -> PathBuf {
    let calls = machine.path().join("calls").display().to_string();
    let text = format!("#!/bin/sh\n{THIS_VERSION}echo \"{name} $*\" >> {calls}\n");
    let path = machine.file(path, &text);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn calls(machine: &Machine) -> String {
    fs::read_to_string(machine.path().join("calls")).unwrap_or_default()
}

fn make_older(path: &Path) {
    let hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(hour_ago).unwrap();
}

#[test]
fn a_program_of_this_version_on_path_is_used() {
    let (machine, script) = project(&[]);
    program(&machine, "bin/perfquilt", "on-path");
    let output = machine.run(&script, &["--demo"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(
        calls(&machine),
        "on-path -C examples/redis build --recipe make\non-path -C examples/redis run --preset demo\n"
    );
    let said = said(&output);
    let before = said.find("what this takes").unwrap();
    let work = said.find("== building Redis").unwrap();
    let after = said.find("where the time went").unwrap();
    assert!(before < work && work < after, "{said}");
    assert!(said.contains("version 1.2.3 found"), "{said}");
    assert!(said.contains("memory: 4 GB") && said.contains("disk: 1 GB"));
    assert!(said[after..].contains("building Redis"), "{said}");
    assert!(said.trim_end().ends_with("measuring Redis: the demo"));
}

#[test]
fn a_plan_runs_nothing() {
    let (machine, script) = project(&[]);
    program(&machine, "bin/perfquilt", "on-path");
    let output = machine.run(&script, &["--plan"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(calls(&machine), "");
    assert!(said(&output).contains("MariaDB"), "{}", said(&output));
}

#[test]
fn a_program_of_another_version_is_not_used() {
    let (machine, script) = project(&[]);
    machine.script("perfquilt", "echo perfquilt 1.2.2");
    let output = machine.run(&script, &["--demo"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("no perfquilt 1.2.3 on PATH") && said(&output).contains("hint:"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_program_older_than_its_sources_is_compiled_again() {
    let (machine, script) = project(&[]);
    let built = program(&machine, "target/release/perfquilt", "built");
    program(&machine, "bin/cargo", "cargo");
    make_older(&built);
    let output = machine.run(&script, &["--demo"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(
        calls(&machine).starts_with("cargo build --release"),
        "{}",
        calls(&machine)
    );

    // It is the newest file now.
    fs::remove_file(machine.path().join("calls")).unwrap();
    program(&machine, "target/release/perfquilt", "built");
    let output = machine.run(&script, &["--demo"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(calls(&machine).starts_with("built "), "{}", calls(&machine));
}

#[test]
fn the_archive_of_a_release_is_used() {
    let (machine, script) = project(&[]);
    let name = format!(
        "perfquilt-1.2.3-{}-unknown-linux-musl",
        std::env::consts::ARCH
    );
    program(
        &machine,
        &format!("target/dist/{name}/perfquilt"),
        "released",
    );
    let dist = machine.path().join("target/dist");
    let packed = Command::new("tar")
        .args(["-czf", &format!("{name}.tar.gz"), &name])
        .current_dir(&dist)
        .status()
        .unwrap();
    assert!(packed.success());
    let output = machine.run(&script, &["--demo"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(
        calls(&machine).starts_with("released "),
        "{}",
        calls(&machine)
    );
}

#[test]
fn a_failure_says_where_the_time_went() {
    let (machine, script) = project(&[]);
    machine.script("perfquilt", &format!("{THIS_VERSION}exit 3"));
    let output = machine.run(&script, &["--demo"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        said(&output).contains("where the time went"),
        "{}",
        said(&output)
    );
}
