//! `perfquilt post` on the command line and in a workflow.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use crate::common::TestEnvironment;
use crate::forge::{Dialect, Fault, MockForge, TOKEN};
use perfquilt_model::observation::{ObservationFile, Supplement};
use rustix::process::{Pid, Signal, kill_process};

const FIRST: &str = "1111111111111111111111111111111111111111";

/// A folder, and the tool in it with nothing in its environment.
struct Place {
    environment: TestEnvironment,
}

impl Place {
    fn new() -> Self {
        let environment = TestEnvironment::empty();
        let (header, observations) = crate::experiment::of(&[0.01, -0.02]);
        let mut bytes = Vec::new();
        let written = ObservationFile {
            header,
            supplement: Supplement::default(),
            observations,
        };
        written.write(&mut bytes).unwrap();
        environment.write("observations.jsonl", bytes);
        Place { environment }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.environment.path(name)
    }

    fn perfquilt(&self, args: &[&str]) -> assert_cmd::Command {
        assert_cmd::Command::from_std(self.environment.command(args))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn on_the_command_line() {
    let github = MockForge::start();
    github.opens(7, FIRST);
    let place = Place::new();
    let args = [
        "post",
        "observations.jsonl",
        "--repo",
        "acme/series",
        "--pr",
        "7",
        "--head",
        FIRST,
        "--label",
        "perf",
    ];
    let output = place
        .perfquilt(&args)
        .env("GITHUB_TOKEN", TOKEN)
        .args(["--api-url", &github.uri(), "-v"])
        .output()
        .unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(
        out.contains("comment created: https://github.com/acme/series/pull/"),
        "{out}"
    );
    assert!(!out.contains(TOKEN) && !err.contains(TOKEN), "{err}");
    insta::assert_snapshot!(github.conversation(7));
    let output = place
        .perfquilt(&args)
        .env("GH_TOKEN", TOKEN)
        .env("GITHUB_API_URL", github.uri())
        .args(["--json", "--fail-on", "regression"])
        .output()
        .unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["posted"]["comment"]["action"], "unchanged");
    assert_eq!(document["posted"]["conclusion"], "failure");
}

#[test]
fn a_bundle_is_named_with_its_digest() {
    let digest = "4f".repeat(32);
    let post = |bundle: String| {
        let args = [
            "post",
            "observations.jsonl",
            "--dry-run",
            "--bundle",
            &bundle,
        ];
        Place::new().perfquilt(&args).output().unwrap()
    };
    let output = post(format!(
        "https://example.org/a b/run.bundle#sha256={digest}"
    ));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let comment = text(&output.stdout);
    for line in [
        "curl -fL -o run.bundle 'https://example.org/a b/run.bundle'".to_owned(),
        format!("perfquilt bundle run run.bundle --sha256 {digest}"),
    ] {
        assert!(comment.lines().any(|of| of == line), "{comment}");
    }
    for bundle in [
        "https://example.org/run.bundle".to_owned(),
        format!("https://example.org/run.bundle#sha256={}", &digest[1..]),
        format!("https://example.org/#sha256={digest}"),
    ] {
        let output = post(bundle);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("`#sha256=` and 64 digits"));
    }
}

#[test]
fn a_commit_in_capitals_is_the_same() {
    let github = MockForge::start();
    let head = "abcdefabcdefabcdefabcdefabcdefabcdefabcd";
    github.opens(7, head);
    let args = ["post", "observations.jsonl", "--repo", "acme/series"];
    let output = Place::new()
        .perfquilt(&args)
        .env("GITHUB_TOKEN", TOKEN)
        .args(["--pr", "7", "--head", &head.to_uppercase()])
        .args(["--api-url", &github.uri()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let conversation = github.conversation(7);
    assert!(
        conversation.contains("check run on abcdefa: "),
        "{conversation}"
    );
    assert!(!conversation.contains("> This is about"), "{conversation}");
}

#[test]
fn in_a_workflow() {
    let github = MockForge::start();
    github.state().rights.user = None;
    github.state().rights.login = "github-actions[bot]".into();
    github.opens(7, FIRST);
    let place = Place::new();
    std::fs::create_dir(place.path("outcome")).unwrap();
    let outcome = r#"{"schema":1,"head":"","failures":[{"kind":"build","point":"2","message":"patch 2 does not compile: @octocat","details":["```","<b>"]}]}"#;
    std::fs::write(place.path("outcome/outcome.json"), outcome).unwrap();
    let event = serde_json::json!({
        "pull_request": { "number": 7, "head": { "sha": FIRST } },
        "repository": { "full_name": "acme/series" },
    });
    std::fs::write(place.path("event.json"), event.to_string()).unwrap();
    let output = place
        .perfquilt(&["post", "outcome"])
        .env("GITHUB_TOKEN", TOKEN)
        .env("GITHUB_ACTIONS", "true")
        .env("GITHUB_API_URL", github.uri())
        .env("GITHUB_REPOSITORY", "acme/series")
        .env("GITHUB_SERVER_URL", "https://github.com")
        .env("GITHUB_RUN_ID", "42")
        .env("GITHUB_EVENT_PATH", place.path("event.json"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    insta::assert_snapshot!(github.ours(7)[0].replace(env!("CARGO_PKG_VERSION"), "VERSION"));
}

#[test]
fn in_a_pipeline_or_workflow_of_another_forge() {
    let place = Place::new();
    let hook = serde_json::json!({
        "object_kind": "merge_request",
        "user": { "id": 5, "username": "alice" },
        "project": { "path_with_namespace": "acme/series" },
        "object_attributes": { "iid": 7, "action": "open", "last_commit": { "id": FIRST } },
    });
    std::fs::write(place.path("hook.json"), hook.to_string()).unwrap();
    let event = serde_json::json!({
        "action": "label_updated",
        "pull_request": { "number": 7, "head": { "sha": FIRST } },
        "repository": { "full_name": "acme/series" },
    });
    std::fs::write(place.path("event.json"), event.to_string()).unwrap();
    let (hook, event) = (place.path("hook.json"), place.path("event.json"));
    let (hook, event) = (hook.display().to_string(), event.display().to_string());
    let gitlab = [
        ("GITLAB_CI", "true"),
        ("CI_PROJECT_PATH", "acme/series"),
        ("GITLAB_TOKEN", TOKEN),
    ];
    let actions = [
        ("GITHUB_ACTIONS", "true"),
        ("GITHUB_EVENT_PATH", &*event),
        ("GITHUB_TOKEN", TOKEN),
    ];
    let base = "0".repeat(40);
    let merge_request = [("CI_MERGE_REQUEST_IID", "7"), ("CI_COMMIT_SHA", FIRST)];
    let triggered = [("TRIGGER_PAYLOAD", &*hook), ("CI_COMMIT_SHA", &*base)];
    for (dialect, api, variables) in [
        (
            Dialect::GitLab,
            "CI_API_V4_URL",
            [&gitlab[..], &merge_request].concat(),
        ),
        (
            Dialect::GitLab,
            "CI_API_V4_URL",
            [&gitlab[..], &triggered].concat(),
        ),
        (
            Dialect::Forgejo,
            "GITHUB_API_URL",
            [&actions[..], &[("FORGEJO_ACTIONS", "true")]].concat(),
        ),
        (
            Dialect::Forgejo,
            "GITHUB_API_URL",
            [&actions[..], &[("GITEA_ACTIONS", "true")]].concat(),
        ),
    ] {
        let forge = MockForge::of(dialect);
        forge.opens(7, FIRST);
        let mut command = place.perfquilt(&["post", "observations.jsonl"]);
        let output = command
            .envs(variables)
            .env(api, forge.uri())
            .output()
            .unwrap();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{err}");
        assert!(out.contains("\nstatus neutral: http"), "{out}");
        assert_eq!(forge.ours(7).len(), 1);
        assert!(forge.conversation(7).contains("status on 1111111: success"));
    }
}

#[test]
fn a_dry_run_needs_nothing() {
    let place = Place::new();
    let output = place
        .perfquilt(&["post", "observations.jsonl", "--dry-run"])
        .output()
        .unwrap();
    let out = text(&output.stdout);
    assert!(out.starts_with("## ❌ The series is 1.0"), "{out}");
    let output = place
        .perfquilt(&["post", "observations.jsonl", "--dry-run", "--json"])
        .output()
        .unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["standing"], "regression");
    assert_eq!(document["conclusion"], "neutral");
}

#[test]
fn what_is_wrong_is_said_with_a_hint() {
    let place = Place::new();
    let file = "observations.jsonl";
    let cases: [(&[&str], i32, &str); 11] = [
        (
            &["post", file, "--forge", "sourcehut", "--dry-run"],
            2,
            "`gitlab`",
        ),
        (
            &[
                "post", file, "--forge", "gitlab", "--repo", "a/b/c", "--pr", "7",
            ],
            2,
            "CI_JOB_TOKEN",
        ),
        (
            &[
                "post", file, "--forge", "forgejo", "--repo", "a/b", "--pr", "7",
            ],
            2,
            "FORGEJO_API_URL",
        ),
        (&["post", file, "--pr", "7"], 2, "--repo OWNER/NAME"),
        (
            &["post", file, "--repo", "acme", "--pr", "7"],
            2,
            "is not a repository",
        ),
        (
            &["post", file, "--repo", "a/b", "--pr", "7"],
            2,
            "GITHUB_TOKEN",
        ),
        (
            &["post", file, "--dry-run", "--head", "abc"],
            2,
            "git rev-parse HEAD",
        ),
        (
            &["post", file, "--dry-run", "--id", "a-->b"],
            2,
            "valid comment id",
        ),
        (&["post", "--dry-run"], 2, "run --outcome"),
        (&["post", "missing", "--dry-run"], 2, "missing"),
        (&["post", ".", "--dry-run"], 2, "outcome.json"),
    ];
    for (args, code, said) in cases {
        let output = place.perfquilt(args).output().unwrap();
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {err}");
        assert!(err.contains(said), "{args:?}: {err}");
    }
    let unsafe_api = [
        "post",
        file,
        "--repo",
        "a/b",
        "--pr",
        "7",
        "--api-url",
        "http://api.github.com",
    ];
    let output = place
        .perfquilt(&unsafe_api)
        .env("GITHUB_TOKEN", TOKEN)
        .output()
        .unwrap();
    let err = text(&output.stderr);
    assert!(err.contains("https://") && !err.contains(TOKEN), "{err}");
}

#[test]
fn an_api_address_with_credentials_is_refused_and_not_shown() {
    let place = Place::new();
    let post = ["post", "observations.jsonl", "--repo", "a/b", "--pr", "7"];
    for address in [
        "https://bot:s3cret@forge.example/api/v3",
        "https://s3cret@forge.example",
        "https://forge.example/api/v3?access_token=s3cret",
        "s3cret@forge.example",
    ] {
        let mut given = place.perfquilt(&post);
        given.args(["--api-url", address]);
        let mut set = place.perfquilt(&post);
        set.env("GITHUB_API_URL", address);
        for mut command in [given, set] {
            command.arg("-v").env("GITHUB_TOKEN", TOKEN);
            let output = command.output().unwrap();
            let err = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{err}");
            assert!(err.contains("a password or a query"), "{err}");
            assert!(err.contains("GITHUB_TOKEN"), "{err}");
            let all = text(&output.stdout) + &err;
            assert!(!all.contains("s3cret"), "{all}");
        }
    }
}

/// Starts to post to the API `uri`.
fn posting(place: &Place, uri: &str) -> Child {
    let args = [
        "post",
        "observations.jsonl",
        "--repo",
        "acme/series",
        "--pr",
        "7",
    ];
    let mut command = place.environment.command(&args);
    command.args(["--api-url", uri]).env("GITHUB_TOKEN", TOKEN);
    command.stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_signal_ends_what_waits_for_an_answer_or_for_the_next_attempt() {
    let place = Place::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut child = posting(&place, &format!("http://{}", silent.local_addr().unwrap()));
    let (connection, _) = silent.accept().unwrap();
    let mut sent = BufReader::new(connection);
    assert!(sent.read_line(&mut String::new()).unwrap() > 0);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));

    let github = MockForge::start();
    let later = vec![("retry-after", "600".to_owned())];
    github.fault("GET /", Fault::Refused(503, later, "later"));
    let mut child = posting(&place, &github.uri());
    let told = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut told = told.map_while(std::io::Result::ok);
    assert!(told.any(|line| line.contains("trying again in 600 s")));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(github.count("GET /"), 1);
}
