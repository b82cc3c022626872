//! `perfquilt post`, against a GitHub that remembers and checks every request: each test reads like the
//! conversation on a pull request.

use std::time::Duration;

use crate::github::{Fault, GitHub, LOGIN, TOKEN};
use perfquilt_forge::Draft;
use perfquilt_forge::event::Target;
use perfquilt_forge::{Client, Credentials, Forge, PostOptions, PostResult, RetryPolicy, Secret};
use perfquilt_judge::attribution::{Attribution, attribute};
use perfquilt_model::comment::PullRequestRef;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::failure::Failure;
use perfquilt_model::progress::Silent;
use perfquilt_report::Notice;
use perfquilt_report::comment;

const FIRST: &str = "1111111111111111111111111111111111111111";
const SECOND: &str = "2222222222222222222222222222222222222222";
const COMMENTS: &str = "/repos/acme/series/issues/7/comments";

fn attribution(gains: &[f64]) -> Attribution {
    let (header, observations) = crate::experiment::of(gains);
    attribute(&header, &observations, &|_| 0.005).unwrap()
}

fn policy() -> RetryPolicy {
    RetryPolicy {
        first_wait: Duration::from_millis(1),
        rate_limited_wait: Duration::from_millis(2),
        max_total_wait: Duration::from_secs(5),
        response_timeout: Duration::from_secs(2),
    }
}

fn token() -> Credentials {
    Credentials::Token {
        token: Secret::new(TOKEN),
        login: None,
    }
}

fn posting() -> PostOptions {
    PostOptions {
        id: "default".into(),
        check: true,
        label: Some("perf".into()),
        fail_on_regression: false,
        fail_on_inconclusive: false,
    }
}

/// Posts to pull request 7 what patches that gain so much are worth, measured at `head`.
fn post(github: &GitHub, head: &str, gains: &[f64]) -> Result<PostResult> {
    post_as(github, token(), policy(), head, gains)
}

fn post_as(
    github: &GitHub,
    credentials: Credentials,
    policy: RetryPolicy,
    head: &str,
    gains: &[f64],
) -> Result<PostResult> {
    let client = (credentials, policy);
    post_run(github, client, &posting(), (head, None), gains)
}

/// Posts as `id` what patches that gain so much are worth, in a measurement that began at `began`.
fn post_begun(github: &GitHub, id: &str, head: &str, began: &str, gains: &[f64]) -> PostResult {
    let posting = PostOptions {
        id: id.into(),
        ..posting()
    };
    let run = (head, Some(began));
    post_run(github, (token(), policy()), &posting, run, gains).unwrap()
}

fn post_run(
    github: &GitHub,
    (credentials, policy): (Credentials, RetryPolicy),
    posting: &PostOptions,
    (head, began): (&str, Option<&str>),
    gains: &[f64],
) -> Result<PostResult> {
    let repository = crate::github::REPOSITORY.parse().unwrap();
    let client = Client::new(repository, &github.uri(), credentials, policy)?;
    let target = Target {
        number: Some(7),
        ..Target::default()
    };
    let found = client.find(&target)?;
    let attribution = attribution(gains);
    let notice = Notice {
        attribution: Some(&attribution),
        subject: PullRequestRef {
            head: head.into(),
            run: Some("https://github.com/acme/series/actions/runs/42".into()),
            began: began.map(str::to_owned),
            ..PullRequestRef::default()
        },
        ..Notice::default()
    };
    perfquilt_forge::post(
        &client,
        posting,
        &found,
        &Draft {
            subject: &notice.subject,
            write: &|subject, limit| Ok(comment(&notice.about(subject), limit)),
        },
        &Silent,
    )
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
    let before = github.ours(7);
    let posted = post(&github, SECOND, &[0.01, -0.02]).unwrap();
    assert_eq!(github.ours(7), before);
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
    github.removes_comments(7, LOGIN);
    post(&github, FIRST, &[0.02]).unwrap();
    assert_eq!(github.ours(7).len(), 1);
    // It goes between the reading and the update.
    github.fault("PATCH /repos/acme/series/issues/comments", Fault::Gone);
    let posted = post(&github, FIRST, &[0.03]).unwrap();
    assert_eq!(posted.comment.action, "created");
    assert_eq!(github.ours(7).len(), 1);
    assert_eq!(github.count("PATCH /repos/acme/series/issues/comments"), 1);
    assert_eq!(github.count(&format!("POST {COMMENTS}")), 3);
}

#[test]
fn a_lost_answer_makes_no_second_comment() {
    let faults = [
        Fault::DoneBut(502),
        Fault::DoneBut(500),
        Fault::DoneAndCut,
        Fault::DoneAndSilent(Duration::from_secs(4)),
    ];
    for fault in faults {
        let github = GitHub::start();
        github.opens(7, FIRST);
        github.fault(&format!("POST {COMMENTS}"), fault.clone());
        github.fault("POST /repos/acme/series/check-runs", fault.clone());
        let policy = RetryPolicy {
            response_timeout: Duration::from_secs(1),
            ..policy()
        };
        post_as(&github, token(), policy, FIRST, &[0.01]).unwrap();
        assert_eq!(github.ours(7).len(), 1, "{fault:?}");
        assert_eq!(github.state().check_runs.len(), 1, "{fault:?}");
        assert_eq!(github.count(&format!("POST {COMMENTS}")), 1, "{fault:?}");
    }
}

#[test]
fn a_list_that_lags_makes_no_second_comment() {
    let github = GitHub::start();
    github.opens(7, FIRST);
    for _ in 0..3 {
        github.fault(&format!("GET {COMMENTS}"), Fault::Behind);
    }
    let posted = post(&github, FIRST, &[0.01]).unwrap();
    assert_eq!(posted.comment.action, "created");
    assert_eq!(github.count(&format!("POST {COMMENTS}")), 1);
    assert_eq!(github.ours(7).len(), 1);
    // The list did not have it, so that it was asked for by itself.
    assert_eq!(github.count("GET /repos/acme/series/issues/comments"), 1);
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
    // Nobody knows whether this one was done.
    let asked = vec![("retry-after", "1".to_owned())];
    github.fault(
        &format!("POST {COMMENTS}"),
        Fault::Refused(503, asked, "Service Unavailable"),
    );
    github.fault("POST /repos/acme/series/check-runs", Fault::Status(429));
    github.fault("GET /repos/acme/series/pulls/7", Fault::Status(502));
    github.fault("GET /repos/acme/series/pulls/7", Fault::Status(503));
    let started = std::time::Instant::now();
    post(&github, FIRST, &[0.01]).unwrap();
    assert!(started.elapsed() >= Duration::from_secs(2));
    assert_eq!(github.count("GET /repos/acme/series/pulls/7"), 3);
    assert_eq!(github.count(&format!("POST {COMMENTS}")), 3);
}

#[test]
fn limits_in_every_form_are_waited_for_and_other_refusals_are_not() {
    let page = |fragment: &str| {
        serde_json::json!({
            "message": "Try again later.",
            "documentation_url": format!("https://docs.github.com/rest/overview/resources-in-the-rest-api#{fragment}"),
        })
    };
    let abuse = serde_json::json!({
        "message": "You have triggered an abuse detection mechanism and have been temporarily blocked from content creation.",
    });
    let quick = serde_json::json!({
        "message": "Validation Failed", "errors": [{ "message": "was submitted too quickly" }],
    });
    for (status, body) in [
        (403, abuse),
        (403, page("secondary-rate-limits")),
        (403, page("abuse-rate-limits")),
        (429, page("abuse-rate-limits")),
        (422, quick),
    ] {
        let github = GitHub::start();
        github.opens(7, FIRST);
        github.fault(
            &format!("POST {COMMENTS}"),
            Fault::Answered(status, body.clone()),
        );
        post(&github, FIRST, &[0.01]).unwrap();
        assert_eq!(github.count(&format!("POST {COMMENTS}")), 2, "{body}");
        assert_eq!(github.ours(7).len(), 1);
    }
    for (status, body, said, hinted) in [
        (
            403,
            page("locking-conversations"),
            "Try again later",
            Some("unlock"),
        ),
        (
            403,
            serde_json::json!({
                "message": "Resource protected by organization SAML enforcement.",
                "documentation_url": "https://docs.github.com/articles/authenticating-with-saml-single-sign-on",
            }),
            "SAML",
            Some("single sign-on"),
        ),
        (
            403,
            serde_json::json!({ "message": "The account is blocked." }),
            "blocked",
            Some("support"),
        ),
        (
            403,
            serde_json::json!({ "message": "Sorry. Your account was suspended." }),
            "suspended",
            Some("another account's token"),
        ),
        (
            403,
            serde_json::json!({
                "message": "Although you appear to have the correct authorization credentials, the `acme` organization \
                            has an IP allow list enabled, and your IP address is not permitted to access this resource.",
            }),
            "`acme` organization",
            Some("an owner of acme must add this machine's address"),
        ),
        (
            403,
            serde_json::json!({
                "message": "`acme` forbids access via a fine-grained personal access tokens if the token's lifetime is \
                            greater than 30 days.",
            }),
            "30 days",
            Some("lifetime that acme allows"),
        ),
        (
            403,
            serde_json::json!({ "message": "Repository was archived so is read-only." }),
            "read-only",
            Some("unarchive"),
        ),
        (
            422,
            serde_json::json!({
                "message": "Validation Failed", "errors": [{ "message": "content was flagged as spam" }],
            }),
            "flagged as spam",
            None,
        ),
    ] {
        let github = GitHub::start();
        github.opens(7, FIRST);
        github.fault(&format!("POST {COMMENTS}"), Fault::Answered(status, body));
        let error = post(&github, FIRST, &[0.01]).unwrap_err();
        assert_eq!(github.count(&format!("POST {COMMENTS}")), 1);
        assert!(error.to_string().contains(said), "{error}");
        let hint = error.hint_text().unwrap_or_default();
        assert!(hint.contains(hinted.unwrap_or_default()), "{error:?}");
    }
}

#[test]
fn a_token_that_lacks_a_permission_is_told_which() {
    for (headers, needed) in [
        (
            vec![("x-accepted-github-permissions", "issues=write")],
            "`issues: write`",
        ),
        (
            vec![
                ("x-oauth-scopes", "gist, read:user"),
                ("x-accepted-oauth-scopes", "public_repo, repo"),
            ],
            "`public_repo or repo`",
        ),
        (
            vec![
                ("x-oauth-scopes", "gist, repo"),
                ("x-accepted-oauth-scopes", "public_repo, repo"),
            ],
            "`pull-requests: write`",
        ),
    ] {
        let github = GitHub::start();
        github.opens(7, FIRST);
        let headers = headers.into_iter();
        let headers = headers.map(|(name, value)| (name, value.to_owned()));
        let refused = Fault::Refused(403, headers.collect(), "Forbidden");
        github.fault(&format!("POST {COMMENTS}"), refused);
        let error = post(&github, FIRST, &[0.01]).unwrap_err();
        assert!(error.hint_text().unwrap().contains(needed), "{error:?}");
        assert_eq!(github.ours(7).len(), 0);
        assert_eq!(github.count(&format!("POST {COMMENTS}")), 1);
    }
}

#[test]
fn a_web_page_in_place_of_an_answer_is_told_and_posts_nothing_twice() {
    let page = |status| Fault::Page(status, "<!DOCTYPE html><html><title>Sign in</title></html>");
    for status in [200, 403, 404] {
        let github = GitHub::start();
        github.opens(7, FIRST);
        github.fault("GET /user", page(status));
        let error = post(&github, FIRST, &[0.01]).unwrap_err();
        assert!(error.hint_text().unwrap().contains("/api/v3"), "{error:?}");
        assert_eq!(github.count("POST"), 0);
    }
    // Nobody knows whether a proxy passed the comment on before it answered with a page of its own.
    let github = GitHub::start();
    github.opens(7, FIRST);
    github.fault(&format!("POST {COMMENTS}"), page(200));
    post(&github, FIRST, &[0.01]).unwrap();
    assert_eq!(github.ours(7).len(), 1);
    let to = vec![("location", format!("{}/login", github.uri()))];
    github.fault("GET /user", Fault::Refused(302, to, "Found"));
    let error = post(&github, FIRST, &[0.01]).unwrap_err();
    assert!(error.hint_text().unwrap().contains("/api/v3"), "{error:?}");
}

#[test]
fn a_server_that_nobody_reaches_is_told_after_several_attempts() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let hasty = RetryPolicy {
        max_total_wait: Duration::from_millis(20),
        ..policy()
    };
    let repository = crate::github::REPOSITORY.parse().unwrap();
    let client = Client::new(repository, &format!("http://{address}"), token(), hasty).unwrap();
    let target = Target {
        number: Some(7),
        ..Target::default()
    };
    let error = client.find(&target).unwrap_err().to_string();
    assert!(error.contains("Connection refused"), "{error}");
    assert!(error.contains(&address.to_string()), "{error}");
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
    let hasty = RetryPolicy {
        max_total_wait: Duration::from_millis(20),
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
fn check_runs_that_may_not_be_read_are_told() {
    let github = GitHub::start();
    github.opens(7, FIRST);
    let refused = Fault::Refused(403, vec![], "Resource not accessible by integration");
    github.fault("GET /repos/acme/series/commits", refused);
    let error = post(&github, FIRST, &[0.01]).unwrap_err();
    assert!(
        error.hint_text().unwrap().contains("--no-check"),
        "{error:?}"
    );
    assert_eq!(github.ours(7).len(), 1);
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
fn a_redirect_takes_the_token_to_no_other_server() {
    let elsewhere = GitHub::start();
    for (status, request) in [
        (302, "GET /user"),
        (307, "POST /repos"),
        (308, "GET /repos"),
    ] {
        let github = GitHub::start();
        github.opens(7, FIRST);
        let to = vec![("location", format!("{}/user", elsewhere.uri()))];
        github.fault(request, Fault::Refused(status, to, "Moved"));
        let error = post(&github, FIRST, &[0.01]).unwrap_err();
        let hint = error.hint_text().unwrap();
        assert!(
            hint.contains("moved") && hint.contains(&elsewhere.uri()),
            "{error:?}"
        );
    }
    assert_eq!(elsewhere.state().requests, Vec::<String>::new());
}

#[test]
fn a_label_in_another_spelling_is_replaced() {
    let github = GitHub::start();
    github.opens(7, FIRST);
    github.state().of(7).labels = vec!["Perf: Faster".to_owned(), "perf: other".to_owned()];
    post(&github, FIRST, &[-0.02]).unwrap();
    assert_eq!(
        github.state().of(7).labels,
        ["perf: other", "perf: regression"]
    );
    github.state().of(7).labels = vec!["PERF: Regression".to_owned()];
    post(&github, FIRST, &[-0.02]).unwrap();
    assert_eq!(github.state().of(7).labels, ["PERF: Regression"]);
}

#[test]
fn a_commit_of_another_length_is_refused() {
    let github = GitHub::start();
    github.opens(7, FIRST);
    let error = post(&github, &"1".repeat(64), &[0.01]).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
    assert!(error.to_string().contains("40 digits"), "{error}");
    assert_eq!(github.count("POST"), 0);
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
fn a_result_that_began_before_the_shown_one_never_replaces_it() {
    let (early, late) = ("2026-01-02T03:04:05Z", "2026-01-02T04:00:00Z");
    let github = GitHub::start();
    github.opens(7, FIRST);
    post_begun(&github, "default", FIRST, late, &[0.02]);
    let before = github.conversation(7);
    // It was started first and arrives last.
    let posted = post_begun(&github, "default", FIRST, early, &[-0.02]);
    assert_eq!(posted.comment.action, "newer");
    assert_eq!(github.conversation(7), before);
    // The same measurement goes on, and a later one replaces it.
    let posted = post_begun(&github, "default", FIRST, late, &[0.03]);
    assert_eq!(posted.comment.action, "updated");
    let posted = post_begun(&github, "default", FIRST, "2026-01-03T00:00:00Z", &[-0.02]);
    assert_eq!(posted.comment.action, "updated");
    assert!(github.conversation(7).contains("labels: perf: regression"));
    // Neither commit is the last one any more.
    github.pushes(7, SECOND);
    let third = "3".repeat(40);
    let posted = post_begun(&github, "default", &third, early, &[0.05]);
    assert_eq!(posted.comment.action, "newer");
}

#[test]
fn two_workspaces_have_two_check_runs_and_each_updates_its_own() {
    let github = GitHub::start();
    github.opens(7, FIRST);
    let began = "2026-01-02T03:04:05Z";
    for _ in 0..2 {
        post_begun(&github, "mariadb", FIRST, began, &[-0.02]);
        post_begun(&github, "redis", FIRST, began, &[0.02]);
    }
    let names: Vec<String> = github
        .state()
        .check_runs
        .iter()
        .map(|run| run.body["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["perfquilt (mariadb)", "perfquilt (redis)"]);
    assert_eq!(github.count("POST /repos/acme/series/check-runs"), 2);
    assert_eq!(github.count("PATCH /repos/acme/series/check-runs"), 2);
}

#[test]
fn a_check_run_of_another_app_is_left_alone() {
    let github = GitHub::start();
    github.opens(7, FIRST);
    github.state().rights.login = "other-app[bot]".into();
    let as_bot = |login: &str, gains: &[f64]| {
        let credentials = Credentials::Token {
            token: Secret::new(TOKEN),
            login: Some(login.to_owned()),
        };
        post_as(&github, credentials, policy(), FIRST, gains).unwrap();
    };
    as_bot("other-app[bot]", &[-0.02]);
    github.state().rights.login = "github-actions[bot]".into();
    as_bot("github-actions[bot]", &[0.02]);
    as_bot("github-actions[bot]", &[0.03]);
    let runs = github.state().check_runs.clone();
    let apps: Vec<&str> = runs.iter().map(|run| run.app.as_str()).collect();
    assert_eq!(apps, ["other-app", "github-actions"]);
    assert_eq!(runs[0].body["conclusion"], "neutral");
}

#[test]
fn the_pull_request_of_a_deleted_fork_is_found_by_its_commit() {
    let github = GitHub::start();
    // More than a page is newer than it.
    for number in 100..230 {
        github.opens(number, SECOND);
    }
    github.opens(7, FIRST);
    github.state().of(7).from = "unknown repository".into();
    let repository = crate::github::REPOSITORY.parse().unwrap();
    let client = Client::new(repository, &github.uri(), token(), policy()).unwrap();
    // The event still names the branch, or the fork was deleted before it.
    for owner in [Some("alice".to_owned()), None] {
        let target = |head: &str| Target {
            head: Some(head.to_owned()),
            owner: owner.clone(),
            branch: Some("gone".to_owned()),
            ..Target::default()
        };
        assert_eq!(client.find(&target(FIRST)).unwrap().number, 7);
        let error = client.find(&target(&"3".repeat(40))).unwrap_err();
        let hint = error.hint_text().unwrap();
        assert!(hint.contains("fork") && hint.contains("--pr"), "{error:?}");
    }
}

#[test]
fn one_of_several_pull_requests_with_the_commit_is_never_guessed() {
    let github = GitHub::start();
    github.opens(7, FIRST);
    github.opens(9, FIRST);
    github.state().of(9).from = "carol:other".into();
    let repository = crate::github::REPOSITORY.parse().unwrap();
    let client = Client::new(repository, &github.uri(), token(), policy()).unwrap();
    let find = |owner: Option<&str>, branch: Option<&str>| {
        let found = client.find(&Target {
            head: Some(FIRST.to_owned()),
            owner: owner.map(str::to_owned),
            branch: branch.map(str::to_owned),
            ..Target::default()
        });
        found
            .map(|found| found.number)
            .map_err(|error| error.to_string())
    };
    assert_eq!(find(Some("alice"), None), Ok(7));
    assert_eq!(find(Some("carol"), Some("renamed")), Ok(9));
    assert_eq!(find(None, Some("other")), Ok(9));
    let error = find(None, Some("gone")).unwrap_err();
    assert!(error.contains("pull requests 7, 9"), "{error}");
    assert!(find(Some("bob"), None).is_err());
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
        let repository = crate::github::REPOSITORY.parse().unwrap();
        Client::new(repository, &github.uri(), credentials(login), policy()).unwrap()
    };
    let found = client(Some("github-actions[bot]")).find(&target).unwrap();
    assert_eq!((found.number, found.head.as_str()), (7, FIRST));
    // A workflow's token does not say whose it is.
    let error = client(None).find(&target).unwrap_err();
    assert!(
        error.hint_text().unwrap().contains("PERFQUILT_LOGIN"),
        "{error:?}"
    );
    github.state().pull_requests.clear();
    let error = client(Some("github-actions[bot]"))
        .find(&target)
        .unwrap_err();
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
        post_as(&github, app(crate::github::APP), policy(), FIRST, &[0.01]).unwrap();
        assert_eq!(github.ours(7).len(), 1);
        assert!(github.conversation(7).contains("perfquilt-app[bot]"));
    }
    // A token that is no longer taken is renewed, once.
    let github = GitHub::start();
    github.opens(7, FIRST);
    github.fault(&format!("POST {COMMENTS}"), Fault::Status(401));
    post_as(&github, app(crate::github::APP), policy(), FIRST, &[0.01]).unwrap();
    assert_eq!(github.ours(7).len(), 1);
    assert_eq!(github.count("POST /app/installations"), 2);
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
    let repository = crate::github::REPOSITORY.parse().unwrap();
    let client = Client::new(repository, &github.uri(), token(), policy()).unwrap();
    let target = Target {
        number: Some(7),
        ..Target::default()
    };
    let found = client.find(&target).unwrap();
    let error = Error::patch_syntax("patch 2 (0002-@octocat.patch) does not apply: hunk 1 of a.c");
    let notice = Notice {
        failures: &[Failure::new(&error, None)],
        ..Notice::default()
    };
    let posted = perfquilt_forge::post(
        &client,
        &posting(),
        &found,
        &Draft {
            subject: &notice.subject,
            write: &|subject, limit| Ok(comment(&notice.about(subject), limit)),
        },
        &Silent,
    )
    .unwrap();
    assert_eq!(
        (posted.status.as_str(), posted.conclusion),
        ("failed", "failure")
    );
    insta::assert_snapshot!(github.conversation(7));
}
