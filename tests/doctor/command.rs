use std::path::Path;
use std::process::Output;

use super::Machine;

const CONFIG: &str = r#"
[upstream]
name = "app"
current = "1"
[recipe.quick]
system = "cmake"
binary = "bin/app"
install = { "bin/app" = "{build}/app" }
[server]
adapter = "mariadb"
[preset]
"#;

fn doctor(machine: &Machine, args: &[&str]) -> (Option<i32>, String, String) {
    let program = Path::new(env!("CARGO_BIN_EXE_perfquilt"));
    let Output {
        status,
        stdout,
        stderr,
    } = machine.run(program, &[&["doctor"], args].concat());
    (
        status.code(),
        String::from_utf8(stdout).unwrap(),
        String::from_utf8(stderr).unwrap(),
    )
}

#[test]
fn what_is_missing_is_named_with_the_command_that_installs_it() {
    let machine = Machine::with(&["cc", "c++", "make"]);
    machine.file("bench-config/perfquilt.toml", CONFIG);
    machine.file(
        "bench-config/packages.txt",
        "libno-dev required header:no/such.h  nothing\nlibmaybe-dev optional header:no.h  nothing\n",
    );
    let (code, stdout, stderr) = doctor(&machine, &[]);
    assert_eq!(code, Some(2), "{stderr}");
    let last = stdout.lines().last().unwrap();
    for package in ["cmake", "ninja-build", "libno-dev", "ccache"] {
        assert!(last.contains(package), "{last}");
    }
    for package in ["gcc", "libmaybe-dev", "sysbench", "valgrind"] {
        assert!(!last.contains(package), "{last}");
    }
    assert!(
        stderr.contains("error: missing: cmake, ninja-build, pkg-config, libno-dev"),
        "{stderr}"
    );
}

fn machine_with_everything() -> Machine {
    let machine = Machine::with(&["cc", "c++", "make"]);
    for program in [
        "ccache",
        "mold",
        "quilt",
        "cmake",
        "ninja",
        "pkg-config",
        "strace",
        "bwrap",
        "git",
    ] {
        machine.script(program, "exit 0");
    }
    machine
}

#[test]
fn a_machine_that_has_everything_passes() {
    let machine = machine_with_everything();
    machine.file("bench-config/perfquilt.toml", CONFIG);
    let (code, stdout, stderr) = doctor(&machine, &["--json"]);
    assert_eq!(code, Some(0), "{stderr}");
    let document: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(document["ok"], true);
    assert!(document["install"].is_null());
    assert!(document["machine"]["cores"].as_u64().unwrap() > 0);
}

#[test]
fn without_a_workspace_the_tools_own_needs_are_checked() {
    let machine = Machine::with(&["cc", "c++", "make"]);
    let (code, stdout, stderr) = doctor(&machine, &[]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("ccache"), "{stdout}");
    let mut packages = stdout.lines().take_while(|line| !line.is_empty());
    assert!(packages.all(|line| line.chars().count() <= 80), "{stdout}");
    assert!(stderr.contains("no workspace here"), "{stderr}");
}

#[test]
fn a_broken_list_or_configuration_is_named() {
    let machine = Machine::with(&["cc", "c++", "make"]);
    machine.file("bench-config/perfquilt.toml", CONFIG);
    machine.file(
        "bench-config/packages.txt",
        "\nlibx-dev perhaps header:x.h x\n",
    );
    let (code, _, stderr) = doctor(&machine, &[]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("bench-config/packages.txt:2"), "{stderr}");
    machine.file("bench-config/perfquilt.toml", "nonsense = 1\n");
    let (code, _, stderr) = doctor(&machine, &[]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("perfquilt.toml"), "{stderr}");
}

#[test]
fn one_command_brings_packages_and_release() {
    let machine = machine_with_everything();
    let config = CONFIG.replace(
        "current = \"1\"",
        "current = \"1\"\nrelease = [{ version = \"1\", directory = \"up\" }]",
    );
    machine.file("bench-config/perfquilt.toml", &config);
    machine.file("up/file", "x");
    machine.file("series", "");
    let (code, stdout, stderr) = doctor(&machine, &[]);
    assert_eq!(code, Some(0), "{stderr}");
    let last = stdout.lines().last().unwrap().trim();
    assert_eq!(last, "perfquilt upstream fetch", "{stdout}");

    // It does what it says.
    let program = Path::new(env!("CARGO_BIN_EXE_perfquilt"));
    let fetched = machine.run(program, &["upstream", "fetch"]);
    assert!(fetched.status.success(), "{fetched:?}");
    let (_, stdout, _) = doctor(&machine, &[]);
    assert!(stdout.ends_with("nothing is missing\n"), "{stdout}");

    machine.file(
        "bench-config/packages.txt",
        "libno-dev required header:no/such.h  nothing\n",
    );
    let (code, stdout, _) = doctor(&machine, &["--json"]);
    assert_eq!(code, Some(2));
    let document: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert!(document["repair"].as_str().unwrap().ends_with(" libno-dev"));
}
