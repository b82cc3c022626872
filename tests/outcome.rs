//! The outcome of `run --outcome` and its comment by `post`, on the toy server: with real builds and servers.

use crate::common::releases::{commit_all, git};
use crate::common::{Finished, TestEnvironment};
use crate::forge::{MockForge, TOKEN};
use rustix::process::Signal;
use serde_json::Value;

/// The comment about the folder `outcome`.
fn told(environment: &TestEnvironment) -> Value {
    let finished = environment.run(&["post", "outcome", "--dry-run", "--json"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    serde_json::from_str(&finished.stdout).unwrap()
}

fn text(document: &Value, field: &str) -> String {
    document[field].as_str().unwrap().to_owned()
}

#[test]
fn a_run_is_posted_elsewhere() {
    let environment = TestEnvironment::with_fixture("toy");
    let wrong = environment.run(&["run", "--outcome", "outcome", "--head", "HEAD"]);
    assert_eq!(wrong.code, Some(2), "{}", wrong.stderr);
    let head = "0123456789ABCDEF0123456789abcdef01234567";
    let finished = environment.run(&["run", "--outcome", "outcome", "--head", head]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let outcome = environment.workspace().join("outcome/outcome.json");
    let outcome: Value = serde_json::from_slice(&std::fs::read(outcome).unwrap()).unwrap();
    assert_eq!(outcome["head"], head.to_lowercase());
    let there = told(&environment);
    assert_eq!(there["standing"], "faster");
    // The reports here have the command; one that untrusted authors may have written is offered to nobody.
    let command = "perfquilt run --preset quick";
    let report = environment.run(&["report", "--format", "markdown"]);
    assert!(report.stdout.contains(command), "{}", report.stdout);
    assert!(!text(&there, "body").contains(command), "{there:#}");
    // The other machine has neither workspace nor results.
    std::fs::remove_dir_all(environment.workspace().join(".perfquilt")).unwrap();
    std::fs::remove_dir_all(environment.workspace().join("bench-config")).unwrap();
    assert_eq!(told(&environment), there);
}

#[test]
fn a_patch_that_does_not_compile_is_told_with_the_figures_of_the_others() {
    let environment = TestEnvironment::with_fixture("toy");
    environment.replace(
        "patches/0002-comment-only.patch",
        "+/* What one request costs: rounds of a linear congruential generator. */",
        "+#error @octocat, look: \u{1b}]0;rounds of a linear congruential generator",
    );
    let finished = environment.run(&["run", "--outcome", "outcome"]);
    assert_eq!(finished.code, Some(4), "{}", finished.stderr);
    // A compiler repeats what a patch says; the terminal is not its.
    assert!(!finished.stderr.contains('\u{1b}'), "{:?}", finished.stderr);
    let comment = told(&environment);
    assert_eq!(comment["standing"], "failed");
    assert_eq!(comment["conclusion"], "failure");
    let body = text(&comment, "body");
    assert!(
        text(&comment, "title").ends_with("patch 2 failed"),
        "{body}"
    );
    assert!(body.contains("`work.h:1`"), "{body}");
    assert!(body.contains("Output of the compiler"), "{body}");
    assert!(body.contains("| 1 | `0001-fewer-rounds.patch`"), "{body}");
}

#[test]
fn a_series_that_does_not_apply_is_told() {
    let environment = TestEnvironment::with_fixture("toy");
    environment.run(&["run", "--outcome", "outcome"]);
    let change = ("-#define ROUNDS 100000u", "-#define ROUNDS 99u");
    environment.replace("patches/0001-fewer-rounds.patch", change.0, change.1);
    let finished = environment.run(&["run", "--outcome", "outcome"]);
    assert_eq!(finished.code, Some(3), "{}", finished.stderr);
    // The figures of the run before are not this one's.
    let comment = told(&environment);
    assert_eq!(
        text(&comment, "title"),
        "Nothing was measured: the series does not apply"
    );
    let body = text(&comment, "body");
    assert!(body.contains("0001-fewer-rounds.patch"), "{body}");
}

#[test]
fn what_is_asked_wrongly_is_told_in_the_place_of_older_figures() {
    let environment = TestEnvironment::with_fixture("toy");
    let outcome = environment.workspace().join("outcome");
    std::fs::create_dir(&outcome).unwrap();
    let refused = |args: &[&str]| {
        environment.write("outcome/observations.jsonl.gz", "older");
        let finished = environment.run(&[&["run", "--outcome", "outcome"][..], args].concat());
        assert_eq!(finished.code, Some(2), "{}", finished.stderr);
        assert!(!outcome.join("observations.jsonl.gz").exists());
        let text = std::fs::read_to_string(outcome.join("outcome.json")).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["failures"][0]["kind"], "usage", "{document:#}");
    };
    refused(&["--preset", "typo"]);
    refused(&["--sandbox", "--workload", "nope"]);
    environment.write("bench-config/perfquilt.toml", "[upstream");
    refused(&[]);
}

#[test]
fn a_folder_that_cannot_be_written_is_told_before_the_work() {
    let environment = TestEnvironment::with_fixture("toy");
    for folder in ["series", "/proc/x"] {
        let finished = environment.run(&["run", "--outcome", folder]);
        assert_eq!(finished.code, Some(2), "{}", finished.stderr);
        assert!(finished.stderr.contains(folder), "{}", finished.stderr);
        assert!(!environment.workspace().join(".perfquilt").exists());
    }
}

#[test]
fn an_interrupted_run_tells_what_it_has() {
    let environment = TestEnvironment::with_fixture("toy");
    let long = ["run", "--blocks", "40", "--outcome", "outcome"];
    assert_eq!(
        environment.stopped_at(&long, "block 3", Signal::INT),
        Some(130)
    );
    let comment = told(&environment);
    assert_eq!(comment["standing"], "unfinished");
    assert!(
        text(&comment, "title").starts_with("Interrupted after "),
        "{comment:#}"
    );
}

/// Compilers, servers and clients are untrusted authors' code: none of our secrets is in their environment.
#[test]
fn no_token_reaches_a_child() {
    let environment = TestEnvironment::with_fixture("toy");
    let seen = environment.workspace().join("seen");
    let noting = |command: &str| {
        format!(
            "[\"sh\", \"-c\", \"env >> {}; exec {command}\"]",
            seen.display()
        )
    };
    environment.replace(
        "bench-config/perfquilt.toml",
        "[\"make\", \"-j{jobs}\"]",
        &noting("make -j{jobs}"),
    );
    environment.replace(
        "bench-config/perfquilt.toml",
        "start = [\"{server}/bin/toyd\", \"{socket}\"]",
        &format!("start = {}", noting("{server}/bin/toyd {socket}")),
    );
    environment.replace(
        "bench-config/workloads/requests.toml",
        "[\"{server}/bin/toyc\", \"{socket}\", \"100\"]",
        &noting("{server}/bin/toyc {socket} 100"),
    );
    let secrets = [
        "GITHUB_TOKEN",
        "GH_TOKEN",
        "PERFQUILT_APP_KEY",
        "PERFQUILT_APP_ID",
        "ACTIONS_RUNTIME_TOKEN",
        "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
        "SSH_AUTH_SOCK",
        "https_proxy",
    ];
    let mut command = environment.command(&["run", "-v", "--blocks", "2"]);
    for name in secrets {
        command.env(name, "ghp_0123456789SECRET");
    }
    let output = command.output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let seen = std::fs::read_to_string(seen).unwrap();
    // A build, servers and clients have been there.
    assert!(seen.matches("PATH=").count() > 5, "{seen}");
    assert!(
        !seen.contains("SECRET") && !secrets.iter().any(|name| seen.contains(name)),
        "{seen}"
    );
    for stream in [&output.stdout, &output.stderr] {
        assert!(!String::from_utf8_lossy(stream).contains("SECRET"));
    }
}

#[test]
fn an_experiment_is_posted_for_the_commit_that_has_its_series() {
    let environment = TestEnvironment::with_fixture("toy");
    commit_all(&environment);
    let head = git(&environment, &["rev-parse", "HEAD"]).trim().to_owned();
    let finished = environment.run(&["run", "--blocks", "4"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let github = MockForge::start();
    github.opens(7, &head);
    let uri = github.uri();
    let post = |more: &[&str]| -> Finished {
        let args = [
            "post",
            "--repo",
            "acme/series",
            "--pr",
            "7",
            "--api-url",
            &uri,
        ];
        let mut command = environment.command(&[&args[..], more].concat());
        command.env("GITHUB_TOKEN", TOKEN).output().unwrap().into()
    };
    let posted = post(&[]);
    assert_eq!(posted.code, Some(0), "{}", posted.stderr);
    assert!(!posted.stderr.contains("--head"), "{}", posted.stderr);
    let refused = |why: &str| {
        let posted = post(&[]);
        assert_eq!(posted.code, Some(2), "{}", posted.stderr);
        for words in [why, "--head COMMIT"] {
            assert!(posted.stderr.contains(words), "{words}: {}", posted.stderr);
        }
    };
    // Somebody else pushed meanwhile.
    github.pushes(7, &"2".repeat(40));
    refused(&format!("the workspace is at commit {head}"));
    github.pushes(7, &head);
    environment.replace("series", "0001", "# The first one.\n0001");
    refused("changes that are not in commit");
    let name = "patches/0001-fewer-rounds.patch";
    environment.replace(name, "25000u", "26000u");
    refused("the series is not the one that");
    git(&environment, &["checkout", "-q", name]);
    environment.write("series", "0001-fewer-rounds.patch\n");
    refused("the series is not the one that");
    assert_eq!(github.count("POST /repos/acme/series/check-runs"), 1);
    let posted = post(&["--head", &head]);
    assert_eq!(posted.code, Some(0), "{}", posted.stderr);
    // Without git, and from a file, the commit is assumed, and this is said.
    git(&environment, &["checkout", "-q", "series"]);
    std::fs::rename(
        environment.workspace().join(".git"),
        environment.workspace().join("git"),
    )
    .unwrap();
    let file = environment.run(&["report", "--format", "jsonl"]).stdout;
    environment.write("results.jsonl", file);
    for what in [&[][..], &["results.jsonl"]] {
        let posted = post(what);
        assert_eq!(posted.code, Some(0), "{}", posted.stderr);
        let said = format!("takes the pull request's last one, {head}");
        assert!(posted.stderr.contains(&said), "{}", posted.stderr);
    }
}
