//! The shell of every step of the workflows in `ci/`, as a runner executes it, on workspaces fresh from
//! `init` and on this repository; what a step uses from elsewhere (checkouts, artifacts) is imitated.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::Machine;

const MEASURE: &str = include_str!("../../ci/github/measure.yml");
const POST: &str = include_str!("../../ci/github/post.yml");
const ACTION: &str = include_str!("../../ci/github/action.yml");
const FORGEJO: &str = include_str!("../../ci/forgejo/perfquilt.yml");
const GITLAB: &str = include_str!("../../ci/gitlab/perfquilt.yml");

/// The program of the runner: checks the arguments and the series with the real one, and leaves an outcome.
const PROGRAM: &str = r#"
"$REAL" "$@" --help >/dev/null || exit 2
case " $* " in
*" post "*) test -f outcome/outcome.json ;;
*)
    "$REAL" "$1" "$2" lint --quiet || exit 3
    mkdir -p outcome && echo '{}' >outcome/outcome.json
    ;;
esac
echo "$*" >>calls"#;

/// Returns the scripts of the steps of `workflow`, with the names that tests know them by.
fn scripts(workflow: &str) -> Vec<(String, String)> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let lines: Vec<&str> = workflow.lines().collect();
    let mut name = "";
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let key = line.trim_start().trim_start_matches("- ");
        if let Some(text) = key.strip_prefix("name: ") {
            name = text;
        }
        let Some(text) = key.strip_prefix("run: ") else {
            continue;
        };
        let own = lines[at + 1..].iter();
        let own = own.take_while(|next| next.trim().is_empty() || indent(next) > indent(line));
        let script = match text {
            "|" => own.map(|line| format!("{}\n", line.trim_start())).collect(),
            text => text.trim_matches('\'').to_owned(),
        };
        found.push((name.to_owned(), script));
    }
    found
}

/// A runner with a checkout of the target branch in `pull-7`, and of a pull request's series and patches in `theirs`.
struct Runner {
    machine: Machine,
}

impl Runner {
    fn new(workspace: &Path) -> Runner {
        let programs = ["bash", "sh", "find", "tr", "mv", "rm", "ln", "mkdir", "git"];
        let machine = Machine::with(&programs);
        machine.script("perfquilt", PROGRAM);
        let runner = Runner { machine };
        let base = runner.path("pull-7");
        let theirs = runner.path("theirs");
        fs::create_dir_all(&theirs).unwrap();
        copy(workspace, &base, &["series", "patches", "bench-config"]);
        copy(workspace, &theirs, &["series", "patches"]);
        runner
    }

    fn path(&self, inner: &str) -> PathBuf {
        self.machine.path().join(inner)
    }

    /// Runs a step as GitHub does one with `shell: bash`, which is stricter than without.
    fn step(&self, script: &str) -> Output {
        let file = self.machine.file("step.sh", script);
        Command::new("/usr/bin/bash")
            .args(["--noprofile", "--norc", "-eo", "pipefail"])
            .arg(file)
            .env_clear()
            .env("PATH", self.path("bin"))
            .env("HOME", self.path("home"))
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("REAL", env!("CARGO_BIN_EXE_perfquilt"))
            .env("FOLDER", "pull-7")
            .env("HEAD", "1".repeat(40))
            .env("ACTION", self.path("action"))
            .env("RUNNER_TEMP", self.path("temp"))
            .env("ARGUMENTS", argument())
            .current_dir(self.machine.path())
            .output()
            .unwrap()
    }

    /// Runs all steps of a workflow.
    fn run(&self, workflow: &str) {
        for (name, script) in scripts(workflow) {
            let output = self.step(&script);
            assert!(output.status.success(), "{name}: {output:?}");
        }
    }

    /// Runs the step that takes series and patches, which must refuse them; returns its reason.
    fn refused(&self) -> String {
        let scripts = scripts(MEASURE);
        let named = |(name, _): &&(String, String)| name == "Take series and patches";
        let output = self.step(&scripts.iter().find(named).unwrap().1);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        let said = said.strip_prefix("::error::").unwrap().to_owned();
        assert_eq!(said.lines().count(), 1, "{said}");
        said
    }
}

/// Copies these files and folders of a workspace, links as links.
fn copy(workspace: &Path, to: &Path, names: &[&str]) {
    fs::create_dir_all(to).unwrap();
    let mut command = Command::new("cp");
    command.arg("-a").arg("-t").arg(to);
    command.args(names.iter().map(|name| workspace.join(name)));
    assert!(command.status().unwrap().success());
}

/// Returns the arguments that `post.yml` gives the action.
fn argument() -> &'static str {
    let line = POST
        .lines()
        .find_map(|line| line.trim().strip_prefix("arguments: "));
    line.unwrap()
}

/// Creates a workspace for `server`.
fn fresh(server: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new(env!("CARGO_BIN_EXE_perfquilt"))
        .args(["init", "--quiet", "--server", server])
        .current_dir(folder.path())
        .status();
    assert!(made.unwrap().success());
    folder
}

#[test]
fn every_step_runs_on_a_fresh_workspace_and_on_this_repository() {
    let names: Vec<String> = scripts(MEASURE).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["Take series and patches", "Measure"]);
    // What it runs is in the action, which it names.
    assert_eq!(scripts(POST), []);
    assert!(POST.contains("- uses: ./ci/github "));
    assert_eq!(scripts(ACTION).len(), 2);
    let templates = ["mariadb", "redis"].map(fresh);
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspaces = templates.iter().map(tempfile::TempDir::path);
    for workspace in workspaces.chain([repository]) {
        let runner = Runner::new(workspace);
        runner.run(MEASURE);
        // The artifact lies where the other workflow expects it.
        assert!(MEASURE.contains("path: outcome") && POST.contains("path: outcome"));
        let install =
            "mkdir -p \"$1/bin\" && ln -s \"$(command -v perfquilt)\" \"$1/bin/perfquilt\"\n";
        let install = runner
            .machine
            .file("action/install", &format!("#!/bin/sh\n{install}"));
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(install, mode).unwrap();
        runner.run(ACTION);
        let calls = fs::read_to_string(runner.path("calls")).unwrap();
        let calls: Vec<&str> = calls.lines().collect();
        assert!(
            calls[0].starts_with("-C pull-7 run --sandbox "),
            "{calls:?}"
        );
        assert_eq!(calls[1..], [argument()]);
        // The series that was measured is the pull request's, with the link that quilt's relatives need.
        let link = fs::read_link(runner.path("pull-7/patches/series")).unwrap();
        assert_eq!(link, Path::new("../series"));
    }
}

#[test]
fn the_steps_of_forgejo_measure_and_post() {
    let runner = Runner::new(fresh("redis").path());
    runner.run(FORGEJO);
    let calls = fs::read_to_string(runner.path("calls")).unwrap();
    let calls: Vec<&str> = calls.lines().collect();
    assert!(
        calls[0].starts_with("-C pull-7 run --sandbox "),
        "{calls:?}"
    );
    assert_eq!(calls[1..], ["post outcome --label perf"]);
}

/// The script of GitLab's measuring job, in a clone of the default branch, with merge request 7 from `change` and a hook
/// about its commit, or about `other`.
fn gitlab(change: fn(&Path), other: Option<&str>) -> (Output, Runner) {
    let machine = Machine::with(&["bash", "sh", "git", "jq", "rm", "grep", "mkdir"]);
    machine.script(
        "perfquilt",
        "test -e patches/series && mkdir outcome && echo \"$*\" >>../calls",
    );
    let runner = Runner { machine };
    let workspace = fresh("redis");
    let git = |folder: &Path, args: &[&str]| perfquilt_testkit::git(folder, args);
    let origin = runner.path("origin");
    copy(
        workspace.path(),
        &origin,
        &["series", "patches", "bench-config"],
    );
    git(&origin, &["init", "--quiet", "."]);
    perfquilt_testkit::commit_all(&origin, "default branch");
    git(
        runner.machine.path(),
        &["clone", "--quiet", "origin", "clone"],
    );
    fs::write(origin.join("series"), "# the merge request's\n").unwrap();
    fs::write(origin.join("bench-config/perfquilt.toml"), "hostile").unwrap();
    change(&origin);
    perfquilt_testkit::commit_all(&origin, "merge request");
    git(
        &origin,
        &["update-ref", "refs/merge-requests/7/head", "HEAD"],
    );
    let head = git(&origin, &["rev-parse", "HEAD"]);
    let head = other.unwrap_or(head.trim());
    let hook = format!(
        "{{\"object_attributes\": {{\"iid\": 7, \"last_commit\": {{\"id\": \"{head}\"}}}}}}"
    );
    let hook = runner.machine.file("hook.json", &hook);
    let (_, script) = GITLAB.split_once("    - |\n").unwrap();
    let script = script.lines().take_while(|line| line.starts_with("      "));
    let script: String = script.map(|line| format!("{}\n", &line[6..])).collect();
    let script = runner.machine.file("script.sh", &script);
    // As a runner does: `set -eo pipefail`.
    let output = Command::new("/usr/bin/bash")
        .args(["--noprofile", "--norc", "-eo", "pipefail"])
        .arg(script)
        .env_clear()
        .env("PATH", runner.path("bin"))
        .env("HOME", runner.path("home"))
        .env("TRIGGER_PAYLOAD", hook)
        .current_dir(runner.path("clone"))
        .output()
        .unwrap();
    (output, runner)
}

#[test]
fn the_script_of_gitlab_measures_series_and_patches_of_the_commit_of_the_hook() {
    let (output, runner) = gitlab(|_| {}, None);
    assert!(output.status.success(), "{output:?}");
    let calls = fs::read_to_string(runner.path("calls")).unwrap();
    assert!(
        calls.starts_with("run --sandbox --outcome outcome --head "),
        "{calls}"
    );
    let series = fs::read_to_string(runner.path("clone/series")).unwrap();
    assert_eq!(series, "# the merge request's\n");
    let config = fs::read_to_string(runner.path("clone/bench-config/perfquilt.toml")).unwrap();
    assert_ne!(config, "hostile");
    type Change = fn(&Path);
    let link: Change = |origin| symlink("/etc/passwd", origin.join("patches/a.patch")).unwrap();
    let other: Change = |origin| {
        fs::remove_file(origin.join("patches/series")).unwrap();
        symlink("../../series", origin.join("patches/series")).unwrap();
    };
    let newer = "1".repeat(40);
    for (change, hook, said) in [
        (link, None, "patches/a.patch"),
        (other, None, "patches/series"),
        (|_: &Path| {}, Some(newer.as_str()), "newer commit"),
        (|_: &Path| {}, Some("$(touch x)"), ""),
    ] {
        let (output, runner) = gitlab(change, hook);
        assert!(!output.status.success(), "{said}: {output:?}");
        assert!(
            String::from_utf8_lossy(&output.stdout).contains(said),
            "{output:?}"
        );
        assert!(!runner.path("calls").exists() && !runner.path("clone/x").exists());
    }
}

#[test]
fn another_link_is_refused_by_name() {
    type Change = fn(&Path);
    let cases: [(Change, &str); 6] = [
        (
            |theirs| symlink("/etc/passwd", theirs.join("patches/a.patch")).unwrap(),
            "theirs/patches/a.patch",
        ),
        (
            |theirs| {
                fs::remove_file(theirs.join("patches/series")).unwrap();
                symlink("../../series", theirs.join("patches/series")).unwrap();
            },
            "theirs/patches/series",
        ),
        (
            |theirs| {
                fs::create_dir(theirs.join("patches/1.0")).unwrap();
                symlink("../series", theirs.join("patches/1.0/series")).unwrap();
            },
            "theirs/patches/1.0/series",
        ),
        (
            |theirs| {
                fs::remove_dir_all(theirs.join("patches")).unwrap();
                symlink("/etc", theirs.join("patches")).unwrap();
            },
            "theirs/patches ",
        ),
        (
            |theirs| {
                fs::remove_file(theirs.join("series")).unwrap();
                symlink("/etc/passwd", theirs.join("series")).unwrap();
            },
            "theirs/series",
        ),
        // A name must not become a command of the log.
        (
            |theirs| symlink("x", theirs.join("patches/a\n::set-env name=A::b")).unwrap(),
            "theirs/patches/a ::set-env name=A::b",
        ),
    ];
    let workspace = fresh("redis");
    for (change, named) in cases {
        let runner = Runner::new(workspace.path());
        change(&runner.path("theirs"));
        let reason = runner.refused();
        assert!(reason.contains(named), "{reason}");
    }
    let runner = Runner::new(workspace.path());
    fs::remove_file(runner.path("theirs/series")).unwrap();
    assert!(runner.refused().contains("no file series"));
}
