//! `perfquilt post`, against a GitHub that remembers and checks every request: each test reads like the
//! conversation on a pull request.

#![allow(clippy::unwrap_used)]

mod github;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use github::{Fault, GitHub, LOGIN, TOKEN};
use perfquilt::attribution::{Attribution, attribute};
use perfquilt::error::{Error, Kind, Result};
use perfquilt::forge::event::Target;
use perfquilt::forge::{Client, Credentials, Policy, Posted, Posting, Secret, find_pull_request};
use perfquilt::observation::{ExperimentHeader, Meter, Observation};
use perfquilt::outcome::Failure;
use perfquilt::point::Point;
use perfquilt::progress::Silent;
use perfquilt::report::{Notice, Subject};
use perfquilt::store::jsonl;

const FIRST: &str = "1111111111111111111111111111111111111111";
const SECOND: &str = "2222222222222222222222222222222222222222";
const COMMENTS: &str = "/repos/acme/series/issues/7/comments";

/// An experiment whose patches gain so much.
fn experiment(gains: &[f64]) -> (ExperimentHeader, Vec<Observation>) {
    let header = ExperimentHeader {
        experiment: "quick-1".into(),
        series: (1..=gains.len())
            .map(|k| format!("{k:04}-x.patch"))
            .collect(),
        machine: BTreeMap::from([("cores".into(), "2".into())]),
        harness: "perfquilt 0.1.0".into(),
        ..ExperimentHeader::new("mariadb-10.11.18", "quick")
    };
    let mut points: Vec<Point> = (0..=gains.len()).map(Point::Step).collect();
    points.push(Point::Control);
    let mut observations = Vec::new();
    for block in 0..12u32 {
        for (order, &point) in (0u32..).zip(&points) {
            let gain: f64 = match point {
                Point::Step(k) => gains[..k].iter().sum(),
                _ => 0.0,
            };
            // Some noise that every run of the tests has alike.
            let noise = f64::from((block * 7 + order * 5) % 11) / 11.0 - 0.5;
            observations.push(Observation {
                schema: 1,
                experiment: "quick-1".into(),
                block,
                order,
                point,
                layout: 0,
                workload: "oltp_read_only".into(),
                meter: Meter::Time,
                unit: Meter::Time.unit().into(),
                value: 90_000.0 * (0.002 * noise - gain).exp(),
                n: 400,
                direct: false,
            });
        }
    }
    (header, observations)
}

fn attribution(gains: &[f64]) -> Attribution {
    let (header, observations) = experiment(gains);
    attribute(&header, &observations, &|_| 0.005).unwrap()
}

fn policy() -> Policy {
    Policy {
        first: Duration::from_millis(1),
        limited: Duration::from_millis(2),
        patience: Duration::from_secs(5),
        answer: Duration::from_secs(2),
    }
}

fn token() -> Credentials {
    Credentials::Token {
        token: Secret::new(TOKEN),
        login: None,
    }
}

fn posting() -> Posting {
    Posting {
        id: "default".into(),
        check: true,
        label: Some("perf".into()),
        fail_on_regression: false,
        fail_on_inconclusive: false,
    }
}

/// Posts to pull request 7 what patches that gain so much are worth, measured at `head`.
fn post(github: &GitHub, head: &str, gains: &[f64]) -> Result<Posted> {
    post_as(github, token(), policy(), head, gains)
}

fn post_as(
    github: &GitHub,
    credentials: Credentials,
    policy: Policy,
    head: &str,
    gains: &[f64],
) -> Result<Posted> {
    let repository = github::REPOSITORY.parse().unwrap();
    let client = Client::new(repository, &github.uri(), credentials, policy)?;
    let target = Target {
        number: Some(7),
        ..Target::default()
    };
    let found = find_pull_request(&client, &target)?;
    let attribution = attribution(gains);
    let notice = Notice {
        attribution: Some(&attribution),
        subject: Subject {
            head: head.into(),
            run: Some("https://github.com/acme/series/actions/runs/42".into()),
            ..Subject::default()
        },
        ..Notice::default()
    };
    perfquilt::forge::post(&client, &posting(), &found, &notice, &Silent)
}

#[test]
fn one_comment_follows_the_pull_request() {
    let github = GitHub::start();
    github.opens(7, FIRST);
    github.says(7, "alice", "What is it worth?");
    let posted = post(&github, FIRST, &[0.01, 0.02]).unwrap();
    assert_eq!(posted.comment.action, "created");
    github.says(7, "alice", "I made it better.");
    github.pushes(7, SECOND);
    let posted = post(&github, SECOND, &[0.01, -0.02]).unwrap();
    assert_eq!(posted.comment.action, "updated");
    insta::assert_snapshot!(github.conversation(7));
    // Nothing is written where nothing changed.
    let posted = post(&github, SECOND, &[0.01, -0.02]).unwrap();
    assert_eq!(posted.comment.action, "unchanged");
    assert_eq!(github.count("PATCH /repos/acme/series/issues/comments"), 1);
    assert_eq!(github.count("POST /repos/acme/series/check-runs"), 2);
    assert_eq!(github.state().check_runs.len(), 2);
}

#[test]
fn a_copied_mark_is_no_comment_of_ours() {
    let github = GitHub::start();
    github.opens(7, FIRST);
    post(&github, FIRST, &[0.01]).unwrap();
    let copied = github.ours(7)[0].clone();
    github.removes_comments(7, LOGIN);
    github.says(7, "mallory", &copied);
    let posted = post(&github, FIRST, &[0.02]).unwrap();
    assert_eq!(posted.comment.action, "created");
    insta::assert_snapshot!(github.conversation(7));
}

#[test]
fn a_removed_comment_comes_back() {
    let github = GitHub::start();
    github.opens(7, FIRST);
    post(&github, FIRST, &[0.01]).unwrap();
    // It goes between the reading and the update.
    github.fault(
        "PATCH /repos/acme/series/issues/comments",
        Fault::Status(404),
    );
    github.removes_comments(7, LOGIN);
    post(&github, FIRST, &[0.02]).unwrap();
    assert_eq!(github.ours(7).len(), 1);
}

#[test]
fn a_lost_answer_makes_no_second_comment() {
    let faults = [
        Fault::DoneBut(502),
        Fault::DoneBut(500),
        Fault::DoneAndCut,
        Fault::DoneAndSilent(Duration::from_millis(900)),
    ];
    for fault in faults {
        let github = GitHub::start();
        github.opens(7, FIRST);
        github.fault(&format!("POST {COMMENTS}"), fault.clone());
        github.fault("POST /repos/acme/series/check-runs", fault.clone());
        let policy = Policy {
            answer: Duration::from_millis(300),
            ..policy()
        };
        post_as(&github, token(), policy, FIRST, &[0.01]).unwrap();
        assert_eq!(github.ours(7).len(), 1, "{fault:?}");
        assert_eq!(github.state().check_runs.len(), 1, "{fault:?}");
        assert_eq!(github.count(&format!("POST {COMMENTS}")), 1, "{fault:?}");
    }
}

#[test]
fn of_two_at_the_same_time_one_is_left() {
    let github = GitHub::start();
    github.opens(7, FIRST);
    github.fault(&format!("POST {COMMENTS}"), Fault::Twin);
    let posted = post(&github, FIRST, &[0.01]).unwrap();
    assert_eq!(posted.comment.removed, 1);
    let ours = github.ours(7);
    assert_eq!(ours.len(), 1);
    assert!(ours[0].contains("1.0"), "{}", ours[0]);
}

#[test]
fn many_at_the_same_time_leave_one() {
    let github = GitHub::start();
    github.opens(7, FIRST);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| post(&github, FIRST, &[0.01]).unwrap());
        }
    });
    assert_eq!(github.ours(7).len(), 1);
}

#[test]
fn whatever_goes_wrong_one_comment_is_left() {
    // Linear congruence: the same sequences on every machine.
    let mut random = 1u64;
    let mut next = |below: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(random >> 33).unwrap() % below
    };
    for round in 0..30 {
        let github = GitHub::start();
        github.opens(7, FIRST);
        for _ in 0..next(7) {
            let requests = [
                "GET /repos",
                "POST /repos",
                "PATCH /repos",
                "DELETE /repos",
                &format!("POST {COMMENTS}"),
            ];
            let request = requests[next(requests.len())].to_owned();
            let fault = match next(5) {
                0 => Fault::Status(502),
                1 => Fault::Refused(
                    403,
                    vec![("retry-after", "0".into())],
                    "You have exceeded a secondary rate limit",
                ),
                2 => Fault::DoneBut(503),
                3 => Fault::DoneAndCut,
                _ if request.ends_with("comments") => Fault::Twin,
                _ => Fault::Status(429),
            };
            github.fault(&request, fault);
        }
        for gain in [0.01, 0.02] {
            // It may fail; it may not leave two.
            let result = post(&github, FIRST, &[gain]);
            let ours = github.ours(7).len();
            assert!(
                ours <= 1 || result.is_err(),
                "round {round}: {ours} comments"
            );
        }
        github.state().forget_faults();
        post(&github, FIRST, &[0.03]).unwrap();
        assert_eq!(github.ours(7).len(), 1, "round {round}");
        assert_eq!(github.state().check_runs.len(), 1, "round {round}");
    }
}

#[test]
fn limits_are_waited_for() {
    let github = GitHub::start();
    github.opens(7, FIRST);
    let asked = vec![("retry-after", "1".to_owned())];
    let message = "You have exceeded a secondary rate limit";
    github.fault(
        &format!("POST {COMMENTS}"),
        Fault::Refused(403, asked, message),
    );
    github.fault("POST /repos/acme/series/check-runs", Fault::Status(429));
    github.fault("GET /repos/acme/series/pulls/7", Fault::Status(502));
    github.fault("GET /repos/acme/series/pulls/7", Fault::Status(503));
    let started = std::time::Instant::now();
    post(&github, FIRST, &[0.01]).unwrap();
    assert!(started.elapsed() >= Duration::from_secs(1));
    assert_eq!(github.count("GET /repos/acme/series/pulls/7"), 3);
    assert_eq!(github.count(&format!("POST {COMMENTS}")), 2);
}

#[test]
fn a_limit_that_lasts_is_told() {
    let github = GitHub::start();
    github.opens(7, FIRST);
    // Both on GitHub's clock, which is an hour wrong.
    let headers = vec![
        ("date", "Sun, 06 Nov 1994 08:49:37 GMT".to_owned()),
        ("x-ratelimit-remaining", "0".to_owned()),
        ("x-ratelimit-reset", (784_111_777 + 1800).to_string()),
    ];
    github.fault(
        "GET /user",
        Fault::Refused(403, headers, "API rate limit exceeded"),
    );
    let error = post(&github, FIRST, &[0.01]).unwrap_err();
    assert_eq!(error.kind(), Kind::Forge);
    assert!(error.hint_text().unwrap().contains("31 min"), "{error:?}");
}

#[test]
fn a_server_that_stays_down_is_told() {
    let github = GitHub::start();
    github.opens(7, FIRST);
    (0..50).for_each(|_| github.fault("GET /user", Fault::Status(502)));
    let hasty = Policy {
        patience: Duration::from_millis(20),
        ..policy()
    };
    let error = post_as(&github, token(), hasty, FIRST, &[0.01]).unwrap_err();
    assert_eq!(error.kind(), Kind::Forge);
    assert!(error.to_string().contains("502"), "{error}");
}

#[test]
fn what_may_not_be_written_is_told() {
    let github = GitHub::start();
    github.opens(7, FIRST);
    github.state().rights.checks = false;
    let error = post(&github, FIRST, &[0.01]).unwrap_err();
    assert!(
        error.hint_text().unwrap().contains("--no-check"),
        "{error:?}"
    );
    assert_eq!(github.ours(7).len(), 1);
    github.state().rights.write = false;
    let error = post(&github, FIRST, &[0.02]).unwrap_err();
    assert!(
        error.hint_text().unwrap().contains("pull-requests: write"),
        "{error:?}"
    );
    github.state().rights.write = true;
    github.state().rights.checks = true;
    github.removes_comments(7, LOGIN);
    github.state().of(7).locked = true;
    let error = post(&github, FIRST, &[0.02]).unwrap_err();
    assert!(error.hint_text().unwrap().contains("locked"), "{error:?}");
    // The check run is there all the same.
    insta::assert_snapshot!(github.conversation(7));
}

#[test]
fn a_wrong_token_and_a_missing_pull_request() {
    let github = GitHub::start();
    let error = post(&github, FIRST, &[0.01]).unwrap_err();
    assert!(error.to_string().contains("no pull request 7"), "{error}");
    let wrong = Credentials::Token {
        token: Secret::new("ghp_WRONG"),
        login: None,
    };
    let error = post_as(&github, wrong, policy(), FIRST, &[0.01]).unwrap_err();
    assert!(error.hint_text().unwrap().contains("token"), "{error:?}");
    assert!(!format!("{error:?}").contains("ghp_WRONG"));
    let moved = vec![(
        "location",
        "https://api.github.com/repositories/1".to_owned(),
    )];
    github.fault(
        "GET /repos/acme/series/pulls/7",
        Fault::Refused(301, moved, "Moved Permanently"),
    );
    let error = post(&github, FIRST, &[0.01]).unwrap_err();
    assert!(error.hint_text().unwrap().contains("moved"), "{error:?}");
}

#[test]
fn an_older_result_does_not_replace_a_newer_one() {
    let github = GitHub::start();
    github.opens(7, FIRST);
    github.pushes(7, SECOND);
    // The first run ends when the branch has moved on, and nothing newer is there.
    post(&github, FIRST, &[0.01]).unwrap();
    let early = github.conversation(7);
    post(&github, SECOND, &[0.02]).unwrap();
    let late = post(&github, FIRST, &[0.01]).unwrap();
    assert_eq!(late.comment.action, "newer");
    insta::assert_snapshot!(format!("{early}\n{}", github.conversation(7)));
}

#[test]
fn a_workflow_for_a_fork_finds_its_pull_request() {
    let github = GitHub::start();
    github.state().rights.user = None;
    github.state().rights.login = "github-actions[bot]".into();
    github.opens(7, FIRST);
    let event = serde_json::json!({ "workflow_run": {
        "head_sha": FIRST, "head_branch": "faster", "event": "pull_request", "pull_requests": [],
        "html_url": "https://github.com/acme/series/actions/runs/41",
        "head_repository": { "owner": { "login": "alice" } },
    }});
    let target = Target::from_environment(&|_| None, Some(&event.to_string())).unwrap();
    let credentials = |login: Option<&str>| Credentials::Token {
        token: Secret::new(TOKEN),
        login: login.map(str::to_owned),
    };
    let client = |login| {
        let repository = github::REPOSITORY.parse().unwrap();
        Client::new(repository, &github.uri(), credentials(login), policy()).unwrap()
    };
    let found = find_pull_request(&client(Some("github-actions[bot]")), &target).unwrap();
    assert_eq!((found.number, found.newest.as_str()), (7, FIRST));
    // A workflow's token does not say whose it is.
    let error = find_pull_request(&client(None), &target).unwrap_err();
    assert!(
        error.hint_text().unwrap().contains("PERFQUILT_LOGIN"),
        "{error:?}"
    );
    github.state().pull_requests.clear();
    let error = find_pull_request(&client(Some("github-actions[bot]")), &target).unwrap_err();
    assert_eq!(error.kind(), Kind::Forge);
}

#[test]
fn an_app_posts_under_its_own_name() {
    let key = include_str!("fixtures/github/app-key.pem");
    let app = |id: &str| Credentials::App {
        id: id.to_owned(),
        key: Secret::new(key),
    };
    for clock in [None, Some(784_111_777)] {
        let github = GitHub::start();
        github.opens(7, FIRST);
        // The second time, this machine's clock and GitHub's are decades apart.
        github.state().clock = clock;
        post_as(&github, app(github::APP), policy(), FIRST, &[0.01]).unwrap();
        assert_eq!(github.ours(7).len(), 1);
        assert!(github.conversation(7).contains("perfquilt-app[bot]"));
    }
    let github = GitHub::start();
    let error = post_as(&github, app("1"), policy(), FIRST, &[0.01]).unwrap_err();
    assert_eq!(error.kind(), Kind::Forge, "{error}");
}

#[test]
fn a_long_conversation_is_read_to_its_end() {
    let github = GitHub::start();
    github.opens(7, FIRST);
    for k in 0..230 {
        github.says(7, "alice", &format!("comment {k}"));
    }
    post(&github, FIRST, &[0.01]).unwrap();
    post(&github, FIRST, &[0.02]).unwrap();
    assert_eq!(github.ours(7).len(), 1);
}

#[test]
fn a_failure_is_a_comment_too() {
    let github = GitHub::start();
    github.opens(7, FIRST);
    let repository = github::REPOSITORY.parse().unwrap();
    let client = Client::new(repository, &github.uri(), token(), policy()).unwrap();
    let target = Target {
        number: Some(7),
        ..Target::default()
    };
    let found = find_pull_request(&client, &target).unwrap();
    let error = Error::series("patch 2 (0002-@octocat.patch) does not apply: hunk 1 of a.c");
    let notice = Notice {
        failures: &[Failure::new(&error, None)],
        ..Notice::default()
    };
    let posted = perfquilt::forge::post(&client, &posting(), &found, &notice, &Silent).unwrap();
    assert_eq!(
        (posted.standing.as_str(), posted.conclusion),
        ("failed", "failure")
    );
    insta::assert_snapshot!(github.conversation(7));
}

/// A folder, and the tool in it with nothing in its environment.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (header, observations) = experiment(&[0.01, -0.02]);
        let mut bytes = Vec::new();
        jsonl::write(&mut bytes, &header, &Default::default(), &observations).unwrap();
        std::fs::write(folder.path().join("observations.jsonl"), bytes).unwrap();
        Place { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn perfquilt(&self, args: &[&str]) -> assert_cmd::Command {
        let mut command = assert_cmd::Command::cargo_bin("perfquilt").unwrap();
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.folder.path())
            .current_dir(self.folder.path())
            .args(args);
        command
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn on_the_command_line() {
    let github = GitHub::start();
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
fn in_a_workflow() {
    let github = GitHub::start();
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
    let cases: [(&[&str], i32, &str); 8] = [
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
            "id of a comment",
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
