//! `perfquilt bisect releases`, `commits` and `step` on the toy server in a git repository.

use std::path::PathBuf;

use crate::common::{Finished, TestEnvironment};
use serde_json::Value;

/// A state of upstream's sources.
#[derive(Clone, Copy)]
struct Sources {
    rounds: u32,
    /// Another binary, the same work.
    pad: u32,
    /// Whether the series' switch does anything.
    heeds: bool,
    /// Whether the line is there that the series changes.
    switch: bool,
}

const PLAIN: Sources = Sources {
    rounds: 20_000,
    pad: 0,
    heeds: true,
    switch: true,
};

impl Sources {
    fn work(&self) -> String {
        let switch = if self.switch { "SHIFT 0" } else { "SHIFT 0x0" };
        let rounds = if self.heeds {
            "(ROUNDS >> SHIFT)"
        } else {
            "ROUNDS"
        };
        format!(
            "/* What one request costs. */\n#define ROUNDS {}u\n\n\n\n#define {switch}\n\n\n\n\
             __attribute__((used)) static const unsigned pad = {}u;\n\n\
             static unsigned work(unsigned state)\n{{\n  for (unsigned i = 0; i < {rounds}; i++)\n    \
             state = state * 1664525u + 1013904223u;\n  return state;\n}}\n",
            self.rounds, self.pad
        )
    }
}

/// A quarter of the rounds.
const PATCH: &str = "\
From: A Tester <tester@example.org>
Date: Mon, 2 Nov 2026 12:00:00 +0000
Subject: work: a quarter of the rounds

--- a/work.h
+++ b/work.h
@@ -3,7 +3,7 @@
 
 
 
-#define SHIFT 0
+#define SHIFT 2
 
 
 
";

/// A workspace with one patch, whose upstream is a git repository with these commits; the first one is
/// release 1.0, the last one 2.0.
fn environment(commits: &[Sources]) -> TestEnvironment {
    let environment = TestEnvironment::with_fixture("toy");
    let remote = remote(&environment);
    crate::common::copy(&environment.workspace().join("upstream"), &remote);
    git(&environment, &["init", "--quiet", "--initial-branch=main"]);
    for (number, sources) in commits.iter().enumerate() {
        std::fs::write(remote.join("work.h"), sources.work()).unwrap();
        git(&environment, &["add", "--all"]);
        git(
            &environment,
            &[
                "commit",
                "--quiet",
                "--allow-empty",
                "-m",
                &format!("change {number}"),
            ],
        );
        if number == 0 {
            git(&environment, &["tag", "v1"]);
        }
    }
    git(&environment, &["tag", "v2"]);
    environment.write("patches/0001-fewer-rounds.patch", PATCH);
    environment.write("series", "0001-fewer-rounds.patch\n");
    let config = "bench-config/perfquilt.toml";
    let source = |tag: &str| {
        format!(
            "git = {{ remote = \"{}\", tag = \"{tag}\" }}",
            remote.display()
        )
    };
    environment.replace(
        config,
        "directory = \"upstream\"",
        &format!(
            "{}\n\n[[upstream.release]]\nversion = \"2.0\"\n{}",
            source("v1"),
            source("v2")
        ),
    );
    environment.replace(config, "block_seconds = 0.3", "block_seconds = 0.1");
    environment
}

fn remote(environment: &TestEnvironment) -> PathBuf {
    environment.workspace().parent().unwrap().join("remote")
}

/// Git in the repository, as hermetic as the tool.
fn git(environment: &TestEnvironment, args: &[&str]) -> String {
    let output = environment
        .hermetic("git", &remote(environment))
        .args([
            "-c",
            "user.name=A Tester",
            "-c",
            "user.email=tester@example.org",
        ])
        .args(args)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {args:?}: {text}{errors}");
    text
}

fn bisect(environment: &TestEnvironment, args: &[&str]) -> Finished {
    let mut all = vec!["bisect"];
    all.extend(args);
    all.extend(["--size", "20%", "--error", "5%", "--json"]);
    environment.run(&all)
}

fn document(finished: &Finished) -> Value {
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    serde_json::from_str(&finished.stdout).unwrap()
}

fn slow(pad: u32) -> Sources {
    Sources {
        rounds: 100_000,
        pad,
        ..PLAIN
    }
}

fn padded(pad: u32) -> Sources {
    Sources { pad, ..PLAIN }
}

#[test]
fn upstreams_commits_are_searched_with_the_series_on_top() {
    let gap = Sources {
        switch: false,
        ..padded(3)
    };
    let environment = environment(&[
        PLAIN,
        padded(1),
        padded(2),
        gap,
        padded(4),
        slow(5),
        slow(6),
    ]);
    let finished = bisect(&environment, &["commits", "1.0", "2.0"]);
    let found = document(&finished);
    assert_eq!(found["conclusion"], "found", "{found:#}");
    let culprit = &found["culprits"][0];
    assert_eq!((&culprit["from"], &culprit["to"]), (&4.into(), &5.into()));
    assert_eq!(culprit["titles"][0], "change 5");
    let id = git(&environment, &["rev-parse", "v2~1"]);
    assert_eq!(culprit["names"][0], id.trim());
    assert_eq!(culprit["files"][0]["path"], "work.h");
    // The series does not apply to the commit in the middle, which is left out.
    let path = found["path"].as_array().unwrap();
    let skipped = path
        .iter()
        .find(|step| step["decision"] == "skipped")
        .unwrap();
    assert_eq!(skipped["state"], 3);
    let reason = skipped["reason"].as_str().unwrap();
    assert!(
        reason.contains("0001-fewer-rounds.patch does not apply"),
        "{reason}"
    );
    // Upstream alone has that commit too.
    let args = ["commits", "1.0", "2.0", "--bare", "--no-profile"];
    let bare = document(&bisect(&environment, &args));
    assert_eq!(bare["culprits"][0]["names"][0], id.trim());
    let skipped = |step: &Value| step["decision"] == "skipped";
    assert!(!bare["path"].as_array().unwrap().iter().any(skipped));
    environment.wait_until_no_process_is_left();
}

#[test]
fn without_history_there_is_nothing_to_search() {
    let environment = environment(&[PLAIN, slow(1)]);
    for args in [
        &["commits", "2.0", "1.0"][..],
        &["commits", "1.0", "1.0"],
        &["commits", "1.0", "3.0"],
        &["releases", "1.0", "1.0"],
        &["releases", "1.0", "2.0", "--patch", "7"],
    ] {
        let refused = bisect(&environment, args);
        assert_eq!(refused.code, Some(2), "{args:?}: {}", refused.stderr);
    }
    // Branches that parted: the first commit of one would stand for all of the other.
    let parted = environment_of_branches();
    let refused = bisect(&parted, &["commits", "1.0", "2.0"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("no history"), "{}", refused.stderr);
}

/// Release 1.0 is a commit on a branch that 2.0 does not have.
fn environment_of_branches() -> TestEnvironment {
    let environment = environment(&[PLAIN, padded(1), slow(2)]);
    git(&environment, &["checkout", "--quiet", "-b", "side", "v1"]);
    std::fs::write(remote(&environment).join("work.h"), padded(3).work()).unwrap();
    git(&environment, &["commit", "--quiet", "--all", "-m", "side"]);
    git(&environment, &["tag", "--force", "v1"]);
    environment
}

#[test]
fn a_loss_between_releases_is_told_to_be_the_patchs_or_upstreams() {
    let upstreams = environment(&[PLAIN, slow(1)]);
    let table = document(&bisect(&upstreams, &["releases", "1.0", "2.0"]));
    assert_eq!(table["whose"], "upstream", "{table:#}");
    assert!(table["release"][0]["high"].as_f64().unwrap() < -0.2);
    let again = bisect(&upstreams, &["releases", "1.0", "2.0"]);
    assert!(!again.stderr.contains("building"), "{}", again.stderr);
    assert_eq!(document(&again)["release"], table["release"]);

    let deaf = Sources {
        heeds: false,
        ..PLAIN
    };
    let patchs = environment(&[PLAIN, deaf]);
    let args = [
        "releases",
        "1.0",
        "2.0",
        "--patch",
        "0001-fewer-rounds.patch",
    ];
    let table = document(&bisect(&patchs, &args));
    assert_eq!(table["whose"], "patch", "{table:#}");
    let shown = patchs.run(&[
        "bisect", "releases", "1.0", "2.0", "--size", "20%", "--error", "5%",
    ]);
    assert!(
        shown.stdout.starts_with("The loss is that of the series")
            || shown.stdout.contains("no longer helps"),
        "{}",
        shown.stdout
    );
}

#[test]
fn git_bisect_run_is_driven() {
    let environment = environment(&[
        PLAIN,
        padded(1),
        padded(2),
        padded(3),
        padded(4),
        slow(5),
        slow(6),
    ]);
    let workspace = environment.workspace();
    git(&environment, &["bisect", "start", "v2", "v1"]);
    let tool = env!("CARGO_BIN_EXE_perfquilt");
    let ran = git(
        &environment,
        &[
            "bisect",
            "run",
            tool,
            "-C",
            workspace.to_str().unwrap(),
            "bisect",
            "step",
            "--good",
            "v1",
            "--bad",
            "v2",
            "--size",
            "20%",
            "--error",
            "5%",
        ],
    );
    let id = git(&environment, &["rev-parse", "v2~1"]);
    assert!(
        ran.contains(&format!("{} is the first bad commit", id.trim())),
        "{ran}"
    );
}

#[test]
fn steps_tell_git_what_is_wrong() {
    let environment = environment(&[PLAIN, padded(1), padded(2)]);
    // What the user's pushes ask of a server is nothing to a step.
    git(&environment, &["config", "push.gpgSign", "true"]);
    git(&environment, &["config", "push.pushOption", "ci.skip"]);
    let step = |args: &[&str]| {
        let mut all = vec!["-C", "../workspace", "bisect", "step"];
        all.extend(args);
        let mut command = environment.command(&all);
        command.current_dir(remote(&environment));
        Finished::from(command.output().unwrap())
    };
    let fast = ["--size", "20%", "--error", "5%"];
    // There is no difference, there is no such commit, there is no such flag: git is to stop.
    for args in [
        &["--good", "v1", "--bad", "v2"][..],
        &["--good", "x", "--bad", "v2"],
        &["--nonsense"],
    ] {
        let finished = step(&[args, &fast].concat());
        assert_eq!(finished.code, Some(128), "{args:?}: {}", finished.stderr);
    }
    // Failures before the first commit is built.
    let mut early = environment.command(&["bisect", "step", "--good", "v1", "--bad", "v2"]);
    let early = Finished::from(early.env("PERFQUILT_SANDBOX", "").output().unwrap());
    assert_eq!(early.code, Some(128), "{}", early.stderr);
    // A commit that does not build is left out.
    std::fs::write(remote(&environment).join("work.h"), "#error no\n").unwrap();
    git(
        &environment,
        &["commit", "--quiet", "--all", "-m", "broken"],
    );
    std::fs::write(remote(&environment).join("work.h"), slow(9).work()).unwrap();
    git(&environment, &["commit", "--quiet", "--all", "-m", "slow"]);
    git(&environment, &["tag", "v3"]);
    git(&environment, &["checkout", "--quiet", "v3~1"]);
    let finished = step(&[&["--good", "v1", "--bad", "v3"][..], &fast].concat());
    assert_eq!(finished.code, Some(125), "{}", finished.stderr);
    let said = &finished.stderr;
    assert!(
        said.contains("does not compile") && !said.contains("without patches"),
        "{said}"
    );
    // A fix for the time of the step counts; a file of it that git does not know is named, once.
    std::fs::write(remote(&environment).join("fix.h"), slow(9).work()).unwrap();
    let untracked = "untracked files are not part of it: fix.h; `git add FILE` adds one";
    for (included, code) in [("", 125), ("#include \"fix.h\"\n", 125), ("tracked", 1)] {
        if included == "tracked" {
            git(&environment, &["add", "fix.h"]);
        } else if !included.is_empty() {
            std::fs::write(remote(&environment).join("work.h"), included).unwrap();
        }
        let finished = step(&[&["--good", "v1", "--bad", "v3"][..], &fast].concat());
        assert_eq!(finished.code, Some(code), "{}", finished.stderr);
        let named = finished.stderr.matches(untracked).count();
        assert_eq!(named, usize::from(code == 125), "{}", finished.stderr);
    }
    git(&environment, &["rm", "--quiet", "--cached", "fix.h"]);
    std::fs::remove_file(remote(&environment).join("fix.h")).unwrap();
    std::fs::write(remote(&environment).join("work.h"), slow(9).work()).unwrap();
    let finished = step(&[&["--good", "v1", "--bad", "v3"][..], &fast].concat());
    assert_eq!(finished.code, Some(1), "{}", finished.stderr);
    assert!(
        finished
            .stderr
            .contains("with the uncommitted changes in work.h"),
        "{}",
        finished.stderr
    );
    git(&environment, &["checkout", "--quiet", "work.h"]);
    let swapped = step(&[&["--good", "v3", "--bad", "v1"][..], &fast].concat());
    assert_eq!(swapped.code, Some(128), "{}", swapped.stderr);
    assert!(
        swapped.stderr.contains("[PQ1003]") && swapped.stderr.contains("swap"),
        "{}",
        swapped.stderr
    );
    for (commit, code) in [("v3", 1), ("v1", 0), ("v2", 0)] {
        git(&environment, &["checkout", "--quiet", commit]);
        let finished = step(&[&["--good", "v1", "--bad", "v3"][..], &fast].concat());
        assert_eq!(finished.code, Some(code), "{commit}: {}", finished.stderr);
    }
}

#[test]
fn a_series_of_another_release_says_how_it_is_moved() {
    let other = Sources {
        switch: false,
        ..PLAIN
    };
    let environment = environment(&[PLAIN, other]);
    let finished = environment.run(&["run", "--release", "2.0"]);
    assert_eq!(finished.code, Some(3), "{}", finished.stderr);
    let hint = "the series is that of 1.0; `perfquilt rebase 2.0` moves it to this release";
    assert!(finished.stderr.contains(hint), "{}", finished.stderr);
    // Nor can upstream's commits be searched up to a release without the series on it.
    let finished = bisect(&environment, &["commits", "1.0", "2.0"]);
    assert_eq!(finished.code, Some(3), "{}", finished.stderr);
    assert!(
        finished.stderr.contains("the bad end") && !finished.stderr.contains("`--bad`"),
        "{}",
        finished.stderr
    );
}
