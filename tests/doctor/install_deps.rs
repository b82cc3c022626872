use std::path::PathBuf;
use std::process::Output;

use super::Machine;

/// A copy of the script with a short list of packages.
fn script(machine: &Machine) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    machine.file(
        "ci/packages.txt",
        "# a remark\naa required program:aa x\nbb cmake program:bb x\ncc1 recommended program:cc1 x\nzz optional program:zz x\n",
    );
    machine.file(
        "bench-config/packages.txt",
        "libaa-dev required header:no/such/aa.h x\n",
    );
    machine.file(
        "examples/one/bench-config/packages.txt",
        "libone-dev required header:no/one.h x\n",
    );
    let text = include_str!("../../ci/install-deps");
    let path = machine.file("ci/install-deps", text);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// A Debian machine where `installed` are installed and apt knows `known`.
fn machine(installed: &str, known: &str) -> Machine {
    let machine = Machine::with(&["sh", "awk", "sed", "sort", "dirname", "env", "ls"]);
    machine.file("installed", installed);
    machine.file("known", known);
    let root = machine.path().display();
    machine.script(
        "dpkg-query",
        &format!(
            "while read -r p; do case \" $* \" in *\" $p \"*) echo \"installed $p\";; esac; done < {root}/installed\nexit 1"
        ),
    );
    machine.script(
        "apt-cache",
        &format!("while read -r p; do for last; do :; done; [ \"$p\" = \"$last\" ] && exit 0; done < {root}/known\nexit 100"),
    );
    machine.script("apt-get", &format!("echo \"apt-get $*\" >> {root}/calls"));
    machine.script("id", "echo 0");
    machine
}

fn calls(machine: &Machine) -> Vec<String> {
    std::fs::read_to_string(machine.path().join("calls"))
        .unwrap_or_default()
        .lines()
        .map(str::to_owned)
        .collect()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn nothing_to_do_calls_nothing() {
    let machine = machine("aa\nbb\ncc1\nlibaa-dev\nlibone-dev\n", "");
    let output = machine.run(&script(&machine), &[]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(text(&output), "");
    assert_eq!(calls(&machine), Vec::<String>::new());
}

#[test]
fn what_is_missing_is_installed_without_an_update_when_apt_knows_it() {
    let machine = machine("aa\n", "bb\ncc1\nlibaa-dev\nlibone-dev\n");
    let output = machine.run(&script(&machine), &[]);
    assert!(output.status.success(), "{}", text(&output));
    let calls = calls(&machine);
    assert_eq!(
        calls,
        ["apt-get install -y -q --no-install-recommends bb libaa-dev libone-dev cc1"]
    );
}

#[test]
fn a_program_without_its_package_counts() {
    let machine = machine("aa\nlibaa-dev\nlibone-dev\n", "");
    machine.script("bb", "exit 0");
    machine.script("cc1", "exit 0");
    let output = machine.run(&script(&machine), &[]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(calls(&machine), Vec::<String>::new());
}

#[test]
fn unknown_packages_need_an_update_and_recommended_ones_may_stay_unknown() {
    let machine = machine("aa\nlibaa-dev\n", "bb\n");
    let output = machine.run(&script(&machine), &["."]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(
        calls(&machine),
        [
            "apt-get update -q",
            "apt-get install -y -q --no-install-recommends bb"
        ]
    );
    assert!(text(&output).contains("has no cc1"), "{}", text(&output));
}

#[test]
fn without_root_and_sudo_the_command_is_named() {
    let machine = machine("aa\nbb\ncc1\n", "");
    machine.script("id", "echo 1000");
    let output = machine.run(&script(&machine), &["."]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output).contains("--no-install-recommends libaa-dev"),
        "{}",
        text(&output)
    );
    assert_eq!(calls(&machine), Vec::<String>::new());
}
