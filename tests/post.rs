//! `perfquilt post`, against a forge that remembers and checks every request: each test reads like the
//! conversation on a pull request, and those of `on_every_forge` take place on each.

use std::time::Duration;

use crate::forge::{Dialect, Fault, LOGIN, MockForge, Step, TOKEN};
use perfquilt_forge::{
    Credentials, Draft, Forge, PostOptions, PostResult, RetryPolicy, Secret, Target,
};
use perfquilt_judge::attribution::{Attribution, attribute};
use perfquilt_model::comment::PullRequestRef;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::failure::Failure;
use perfquilt_report::Notice;
use perfquilt_report::comment;

const FIRST: &str = "1111111111111111111111111111111111111111";
const SECOND: &str = "2222222222222222222222222222222222222222";

/// Makes each conversation a test on each forge.
macro_rules! on_every_forge {
    ($($name:ident)+) => {
        on_every_forge!(@ github GitHub $($name)+);
        on_every_forge!(@ gitlab GitLab $($name)+);
        on_every_forge!(@ forgejo Forgejo $($name)+);
    };
    (@ $forge:ident $dialect:ident $($name:ident)+) => {
        mod $forge {
            use super::Dialect;
            $(
                #[test]
                fn $name() {
                    super::$name(Dialect::$dialect);
                }
            )+
        }
    };
}

on_every_forge! {
    one_comment_follows_the_pull_request
    a_copied_mark_is_no_comment_of_ours
    a_removed_comment_comes_back
    a_lost_answer_makes_no_second_comment
    a_conflict_with_another_change_passes
    a_list_that_lags_makes_no_second_comment
    of_two_at_the_same_time_one_is_left
    many_at_the_same_time_leave_one
    whatever_goes_wrong_one_comment_is_left
    limits_are_waited_for
    a_web_page_in_place_of_an_answer_is_told_and_posts_nothing_twice
    a_server_that_nobody_reaches_is_told_after_several_attempts
    a_server_that_stays_down_is_told
    what_may_not_be_written_is_told
    a_wrong_token_and_a_missing_pull_request
    a_redirect_takes_the_token_to_no_other_server
    a_label_in_another_spelling_is_replaced
    a_commit_of_another_length_is_refused
    an_older_result_does_not_replace_a_newer_one
    a_result_that_began_before_the_shown_one_never_replaces_it
    two_workspaces_have_two_statuses_and_each_updates_its_own
    a_long_conversation_is_read_to_its_end
    a_failure_is_a_comment_too
    a_verdict_that_gets_worse_is_told_once_for_each_commit
    a_limit_that_lasts_is_told
    a_notice_survives_what_goes_wrong
    a_token_of_too_small_a_scope_is_told_which_it_needs
    another_login_than_the_given_one_is_told_and_writes_once
}

/// Compares a conversation with the one stored for this forge.
fn snapshot(dialect: Dialect, name: &str, conversation: &str) {
    let name = match dialect {
        Dialect::GitHub => name.to_owned(),
        other => format!("{name}_{}", other.kind().name),
    };
    insta::assert_snapshot!(name, conversation);
}

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

fn connect(
    forge: &MockForge,
    api: &str,
    credentials: Credentials,
    policy: RetryPolicy,
) -> Result<Box<dyn Forge>> {
    let repository = crate::forge::REPOSITORY.parse().unwrap();
    forge
        .dialect
        .kind()
        .connect(repository, api, credentials, policy)
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
fn post(forge: &MockForge, head: &str, gains: &[f64]) -> Result<PostResult> {
    post_as(forge, token(), policy(), head, gains)
}

fn post_as(
    forge: &MockForge,
    credentials: Credentials,
    policy: RetryPolicy,
    head: &str,
    gains: &[f64],
) -> Result<PostResult> {
    let client = (credentials, policy);
    post_run(forge, client, &posting(), (head, None), gains)
}

/// Posts as `id` what patches that gain so much are worth, in a measurement that began at `began`.
fn post_begun(forge: &MockForge, id: &str, head: &str, began: &str, gains: &[f64]) -> PostResult {
    let posting = PostOptions {
        id: id.into(),
        ..posting()
    };
    let run = (head, Some(began));
    post_run(forge, (token(), policy()), &posting, run, gains).unwrap()
}

fn post_run(
    forge: &MockForge,
    (credentials, policy): (Credentials, RetryPolicy),
    posting: &PostOptions,
    (head, began): (&str, Option<&str>),
    gains: &[f64],
) -> Result<PostResult> {
    let client = connect(forge, &forge.uri(), credentials, policy)?;
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
        &*client,
        posting,
        &found,
        &Draft {
            subject: &notice.subject,
            write: &|subject, limit| Ok(comment(&notice.about(subject), limit)),
        },
    )
}

fn one_comment_follows_the_pull_request(dialect: Dialect) {
    let forge = MockForge::of(dialect);
    forge.opens(7, FIRST);
    forge.says(7, "alice", "What is it worth?");
    let posted = post(&forge, FIRST, &[0.01, 0.02]).unwrap();
    assert_eq!(posted.comment.action, "created");
    forge.says(7, "alice", "I made it better.");
    forge.pushes(7, SECOND);
    let posted = post(&forge, SECOND, &[0.01, -0.02]).unwrap();
    assert_eq!(posted.comment.action, "updated");
    snapshot(
        dialect,
        "one_comment_follows_the_pull_request",
        &forge.conversation(7),
    );
    // Nothing is written where nothing changed.
    let before = forge.ours(7);
    let posted = post(&forge, SECOND, &[0.01, -0.02]).unwrap();
    assert_eq!(forge.ours(7), before);
    assert_eq!(posted.comment.action, "unchanged");
    assert_eq!(forge.steps(Step::Change), 1);
    assert_eq!(forge.steps(Step::SetStatus), 2);
    assert_eq!(forge.state().shown_statuses().len(), 2);
}

fn a_copied_mark_is_no_comment_of_ours(dialect: Dialect) {
    let forge = MockForge::of(dialect);
    forge.opens(7, FIRST);
    post(&forge, FIRST, &[0.01]).unwrap();
    let copied = forge.ours(7)[0].clone();
    forge.removes_comments(7, LOGIN);
    forge.says(7, "mallory", &copied);
    let posted = post(&forge, FIRST, &[0.02]).unwrap();
    assert_eq!(posted.comment.action, "created");
    snapshot(
        dialect,
        "a_copied_mark_is_no_comment_of_ours",
        &forge.conversation(7),
    );
}

fn a_removed_comment_comes_back(dialect: Dialect) {
    let forge = MockForge::of(dialect);
    forge.opens(7, FIRST);
    post(&forge, FIRST, &[0.01]).unwrap();
    forge.removes_comments(7, LOGIN);
    post(&forge, FIRST, &[0.02]).unwrap();
    assert_eq!(forge.ours(7).len(), 1);
    // It goes between the reading and the update.
    forge.fails(Step::Change, Fault::Gone);
    let posted = post(&forge, FIRST, &[0.03]).unwrap();
    assert_eq!(posted.comment.action, "created");
    assert_eq!(forge.ours(7).len(), 1);
    assert_eq!(forge.steps(Step::Change), 1);
    assert_eq!(forge.steps(Step::Write), 3);
}

fn a_lost_answer_makes_no_second_comment(dialect: Dialect) {
    let faults = [
        Fault::DoneBut(502),
        Fault::DoneBut(500),
        Fault::DoneAndCut,
        Fault::DoneAndSilent(Duration::from_secs(4)),
    ];
    for fault in faults {
        let forge = MockForge::of(dialect);
        forge.opens(7, FIRST);
        forge.fails(Step::Write, fault.clone());
        forge.fails(Step::SetStatus, fault.clone());
        let policy = RetryPolicy {
            response_timeout: Duration::from_secs(1),
            ..policy()
        };
        post_as(&forge, token(), policy, FIRST, &[0.01]).unwrap();
        assert_eq!(forge.ours(7).len(), 1, "{fault:?}");
        assert_eq!(forge.state().shown_statuses().len(), 1, "{fault:?}");
        assert_eq!(forge.steps(Step::Write), 1, "{fault:?}");
    }
}

/// GitLab answers so while another job changes the same status.
fn a_conflict_with_another_change_passes(dialect: Dialect) {
    let forge = MockForge::of(dialect);
    forge.opens(7, FIRST);
    for step in [Step::Write, Step::SetStatus] {
        forge.fails(step, Fault::Status(409));
    }
    post(&forge, FIRST, &[0.01]).unwrap();
    assert_eq!(forge.ours(7).len(), 1);
    assert_eq!(forge.state().shown_statuses().len(), 1);
}

fn a_list_that_lags_makes_no_second_comment(dialect: Dialect) {
    let forge = MockForge::of(dialect);
    forge.opens(7, FIRST);
    for _ in 0..3 {
        forge.fails(Step::List, Fault::Behind);
    }
    let posted = post(&forge, FIRST, &[0.01]).unwrap();
    assert_eq!(posted.comment.action, "created");
    assert_eq!(forge.steps(Step::Write), 1);
    assert_eq!(forge.ours(7).len(), 1);
    // The list did not have it, so that it was asked for by itself.
    assert_eq!(forge.steps(Step::Read), 1);
}

fn of_two_at_the_same_time_one_is_left(dialect: Dialect) {
    let forge = MockForge::of(dialect);
    forge.opens(7, FIRST);
    forge.fails(Step::Write, Fault::Twin);
    let posted = post(&forge, FIRST, &[0.01]).unwrap();
    assert_eq!(posted.comment.removed, 1);
    let ours = forge.ours(7);
    assert_eq!(ours.len(), 1);
    assert!(ours[0].contains("1.0"), "{}", ours[0]);
}

fn many_at_the_same_time_leave_one(dialect: Dialect) {
    let forge = MockForge::of(dialect);
    forge.opens(7, FIRST);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| post(&forge, FIRST, &[0.01]).unwrap());
        }
    });
    assert_eq!(forge.ours(7).len(), 1);
}

fn whatever_goes_wrong_one_comment_is_left(dialect: Dialect) {
    // Linear congruence: the same sequences on every machine.
    let mut random = 1u64;
    let mut next = |below: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(random >> 33).unwrap() % below
    };
    for round in 0..30 {
        let forge = MockForge::of(dialect);
        forge.opens(7, FIRST);
        for _ in 0..next(7) {
            let steps = [
                Step::Any("GET"),
                Step::Any("POST"),
                Step::Any(if dialect == Dialect::GitLab {
                    "PUT"
                } else {
                    "PATCH"
                }),
                Step::Any("DELETE"),
                Step::Write,
            ];
            let step = steps[next(steps.len())];
            let fault = match next(5) {
                0 => Fault::Status(502),
                1 => Fault::Refused(
                    403,
                    vec![("retry-after", "0".into())],
                    "You have exceeded a secondary rate limit",
                ),
                2 => Fault::DoneBut(503),
                3 => Fault::DoneAndCut,
                _ if matches!(step, Step::Write) => Fault::Twin,
                _ => Fault::Status(429),
            };
            forge.fails(step, fault);
        }
        for gain in [0.01, 0.02] {
            // It may fail; it may not leave two.
            let result = post(&forge, FIRST, &[gain]);
            let ours = forge.ours(7).len();
            assert!(
                ours <= 1 || result.is_err(),
                "round {round}: {ours} comments"
            );
        }
        forge.state().forget_faults();
        post(&forge, FIRST, &[0.03]).unwrap();
        assert_eq!(forge.ours(7).len(), 1, "round {round}");
        assert_eq!(forge.state().shown_statuses().len(), 1, "round {round}");
    }
}

fn limits_are_waited_for(dialect: Dialect) {
    let forge = MockForge::of(dialect);
    forge.opens(7, FIRST);
    let asked = vec![("retry-after", "1".to_owned())];
    let message = "You have exceeded a secondary rate limit";
    forge.fails(Step::Write, Fault::Refused(403, asked, message));
    // Nobody knows whether this one was done.
    let asked = vec![("retry-after", "1".to_owned())];
    forge.fails(
        Step::Write,
        Fault::Refused(503, asked, "Service Unavailable"),
    );
    forge.fails(Step::SetStatus, Fault::Status(429));
    forge.fails(Step::Find, Fault::Status(502));
    forge.fails(Step::Find, Fault::Status(503));
    let started = std::time::Instant::now();
    post(&forge, FIRST, &[0.01]).unwrap();
    assert!(started.elapsed() >= Duration::from_secs(2));
    // Some forges have the labels there, too.
    assert!(forge.steps(Step::Find) >= 3);
    assert_eq!(forge.steps(Step::Write), 3);
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
        let forge = MockForge::start();
        forge.opens(7, FIRST);
        forge.fails(Step::Write, Fault::Answered(status, body.clone()));
        post(&forge, FIRST, &[0.01]).unwrap();
        assert_eq!(forge.steps(Step::Write), 2, "{body}");
        assert_eq!(forge.ours(7).len(), 1);
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
        let forge = MockForge::start();
        forge.opens(7, FIRST);
        forge.fails(Step::Write, Fault::Answered(status, body));
        let error = post(&forge, FIRST, &[0.01]).unwrap_err();
        assert_eq!(forge.steps(Step::Write), 1);
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
        let forge = MockForge::start();
        forge.opens(7, FIRST);
        let headers = headers.into_iter();
        let headers = headers.map(|(name, value)| (name, value.to_owned()));
        let refused = Fault::Refused(403, headers.collect(), "Forbidden");
        forge.fails(Step::Write, refused);
        let error = post(&forge, FIRST, &[0.01]).unwrap_err();
        assert!(error.hint_text().unwrap().contains(needed), "{error:?}");
        assert_eq!(forge.ours(7).len(), 0);
        assert_eq!(forge.steps(Step::Write), 1);
    }
}

fn a_web_page_in_place_of_an_answer_is_told_and_posts_nothing_twice(dialect: Dialect) {
    let page = |status| Fault::Page(status, "<!DOCTYPE html><html><title>Sign in</title></html>");
    for status in [200, 403, 404] {
        let forge = MockForge::of(dialect);
        forge.opens(7, FIRST);
        forge.fails(Step::User, page(status));
        let error = post(&forge, FIRST, &[0.01]).unwrap_err();
        assert!(error.hint_text().unwrap().contains("/api/v"), "{error:?}");
        assert_eq!(forge.count("POST"), 0);
    }
    // Nobody knows whether a proxy passed the comment on before it answered with a page of its own.
    let forge = MockForge::of(dialect);
    forge.opens(7, FIRST);
    forge.fails(Step::Write, page(200));
    post(&forge, FIRST, &[0.01]).unwrap();
    assert_eq!(forge.ours(7).len(), 1);
    let to = vec![("location", format!("{}/login", forge.uri()))];
    forge.fails(Step::User, Fault::Refused(302, to, "Found"));
    let error = post(&forge, FIRST, &[0.01]).unwrap_err();
    assert!(error.hint_text().unwrap().contains("/api/v"), "{error:?}");
}

fn a_server_that_nobody_reaches_is_told_after_several_attempts(dialect: Dialect) {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let hasty = RetryPolicy {
        max_total_wait: Duration::from_millis(20),
        ..policy()
    };
    let client = connect(
        &MockForge::of(dialect),
        &format!("http://{address}"),
        token(),
        hasty,
    )
    .unwrap();
    let target = Target {
        number: Some(7),
        ..Target::default()
    };
    let error = client.find(&target).unwrap_err().to_string();
    assert!(error.contains("Connection refused"), "{error}");
    assert!(error.contains(&address.to_string()), "{error}");
}

fn a_limit_that_lasts_is_told(dialect: Dialect) {
    let forge = MockForge::of(dialect);
    forge.opens(7, FIRST);
    let (status, remaining, reset) = match dialect {
        Dialect::GitHub => (403, "x-ratelimit-remaining", "x-ratelimit-reset"),
        Dialect::GitLab => (429, "ratelimit-remaining", "ratelimit-reset"),
        Dialect::Forgejo => (429, "x-ratelimit-remaining", "x-ratelimit-reset"),
    };
    // Both on the forge's clock, which is an hour wrong.
    let headers = vec![
        ("date", "Sun, 06 Nov 1994 08:49:37 GMT".to_owned()),
        (remaining, "0".to_owned()),
        (reset, (784_111_777 + 1800).to_string()),
    ];
    forge.fails(
        Step::User,
        Fault::Refused(status, headers, "API rate limit exceeded"),
    );
    let error = post(&forge, FIRST, &[0.01]).unwrap_err();
    assert_eq!(error.kind(), Kind::Forge);
    assert!(error.hint_text().unwrap().contains("31 min"), "{error:?}");
}

fn a_server_that_stays_down_is_told(dialect: Dialect) {
    let forge = MockForge::of(dialect);
    forge.opens(7, FIRST);
    (0..50).for_each(|_| forge.fails(Step::User, Fault::Status(502)));
    let hasty = RetryPolicy {
        max_total_wait: Duration::from_millis(20),
        ..policy()
    };
    let error = post_as(&forge, token(), hasty, FIRST, &[0.01]).unwrap_err();
    assert_eq!(error.kind(), Kind::Forge);
    assert!(error.to_string().contains("502"), "{error}");
}

fn what_may_not_be_written_is_told(dialect: Dialect) {
    let forge = MockForge::of(dialect);
    forge.opens(7, FIRST);
    forge.state().rights.checks = false;
    let error = post(&forge, FIRST, &[0.01]).unwrap_err();
    assert!(
        error.hint_text().unwrap().contains("--no-check"),
        "{error:?}"
    );
    assert_eq!(forge.ours(7).len(), 1);
    forge.state().rights.write = false;
    let error = post(&forge, FIRST, &[0.02]).unwrap_err();
    assert!(
        error.hint_text().unwrap().contains(dialect.permissions()),
        "{error:?}"
    );
    forge.state().rights.write = true;
    forge.state().rights.checks = true;
    forge.removes_comments(7, LOGIN);
    forge.state().of(7).locked = true;
    let error = post(&forge, FIRST, &[0.02]).unwrap_err();
    let words = match dialect {
        // It does not tell why.
        Dialect::GitLab => dialect.permissions(),
        _ => "locked",
    };
    assert!(error.hint_text().unwrap().contains(words), "{error:?}");
    // The check run is there all the same.
    snapshot(
        dialect,
        "what_may_not_be_written_is_told",
        &forge.conversation(7),
    );
}

#[test]
fn check_runs_that_may_not_be_read_are_told() {
    let forge = MockForge::start();
    forge.opens(7, FIRST);
    let refused = Fault::Refused(403, vec![], "Resource not accessible by integration");
    forge.fails(Step::Statuses, refused);
    let error = post(&forge, FIRST, &[0.01]).unwrap_err();
    assert!(
        error.hint_text().unwrap().contains("--no-check"),
        "{error:?}"
    );
    assert_eq!(forge.ours(7).len(), 1);
}

fn a_wrong_token_and_a_missing_pull_request(dialect: Dialect) {
    let forge = MockForge::of(dialect);
    let error = post(&forge, FIRST, &[0.01]).unwrap_err();
    assert!(error.to_string().contains("no pull request 7"), "{error}");
    let wrong = Credentials::Token {
        token: Secret::new("ghp_WRONG"),
        login: None,
    };
    let error = post_as(&forge, wrong, policy(), FIRST, &[0.01]).unwrap_err();
    assert!(error.hint_text().unwrap().contains("token"), "{error:?}");
    assert!(!format!("{error:?}").contains("ghp_WRONG"));
    let moved = vec![(
        "location",
        "https://api.github.com/repositories/1".to_owned(),
    )];
    forge.fails(Step::Find, Fault::Refused(301, moved, "Moved Permanently"));
    let error = post(&forge, FIRST, &[0.01]).unwrap_err();
    assert!(error.hint_text().unwrap().contains("moved"), "{error:?}");
}

fn a_redirect_takes_the_token_to_no_other_server(dialect: Dialect) {
    let elsewhere = MockForge::of(dialect);
    for (status, step) in [
        (302, Step::User),
        (307, Step::Any("POST")),
        (308, Step::Any("GET")),
    ] {
        let forge = MockForge::of(dialect);
        forge.opens(7, FIRST);
        let to = vec![("location", format!("{}/user", elsewhere.uri()))];
        forge.fails(step, Fault::Refused(status, to, "Moved"));
        let error = post(&forge, FIRST, &[0.01]).unwrap_err();
        let hint = error.hint_text().unwrap();
        assert!(
            hint.contains("moved") && hint.contains(&elsewhere.uri()),
            "{error:?}"
        );
    }
    assert_eq!(elsewhere.state().requests, Vec::<String>::new());
}

fn a_label_in_another_spelling_is_replaced(dialect: Dialect) {
    let forge = MockForge::of(dialect);
    forge.opens(7, FIRST);
    forge.state().of(7).labels = vec!["Perf: Faster".to_owned(), "perf: other".to_owned()];
    post(&forge, FIRST, &[-0.02]).unwrap();
    assert_eq!(
        forge.state().of(7).labels,
        ["perf: other", "perf: regression"]
    );
    forge.state().of(7).labels = vec!["PERF: Regression".to_owned()];
    post(&forge, FIRST, &[-0.02]).unwrap();
    assert_eq!(forge.state().of(7).labels, ["PERF: Regression"]);
}

fn a_commit_of_another_length_is_refused(dialect: Dialect) {
    let forge = MockForge::of(dialect);
    forge.opens(7, FIRST);
    let error = post(&forge, &"1".repeat(64), &[0.01]).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
    assert!(error.to_string().contains("40 digits"), "{error}");
    assert_eq!(forge.count("POST"), 0);
}

fn an_older_result_does_not_replace_a_newer_one(dialect: Dialect) {
    let forge = MockForge::of(dialect);
    forge.opens(7, FIRST);
    forge.pushes(7, SECOND);
    // The first run ends when the branch has moved on, and nothing newer is there.
    post(&forge, FIRST, &[0.01]).unwrap();
    let early = forge.conversation(7);
    post(&forge, SECOND, &[0.02]).unwrap();
    let late = post(&forge, FIRST, &[0.01]).unwrap();
    assert_eq!(late.comment.action, "newer");
    snapshot(
        dialect,
        "an_older_result_does_not_replace_a_newer_one",
        &format!("{early}\n{}", forge.conversation(7)),
    );
}

fn a_result_that_began_before_the_shown_one_never_replaces_it(dialect: Dialect) {
    let (early, late) = ("2026-01-02T03:04:05Z", "2026-01-02T04:00:00Z");
    let forge = MockForge::of(dialect);
    forge.opens(7, FIRST);
    post_begun(&forge, "default", FIRST, late, &[0.02]);
    let before = forge.conversation(7);
    // It was started first and arrives last.
    let posted = post_begun(&forge, "default", FIRST, early, &[-0.02]);
    assert_eq!(posted.comment.action, "newer");
    assert_eq!(forge.conversation(7), before);
    // The same measurement goes on, and a later one replaces it.
    let posted = post_begun(&forge, "default", FIRST, late, &[0.03]);
    assert_eq!(posted.comment.action, "updated");
    let posted = post_begun(&forge, "default", FIRST, "2026-01-03T00:00:00Z", &[-0.02]);
    assert_eq!(posted.comment.action, "updated");
    assert!(forge.conversation(7).contains("labels: perf: regression"));
    // Neither commit is the last one any more.
    forge.pushes(7, SECOND);
    let third = "3".repeat(40);
    let posted = post_begun(&forge, "default", &third, early, &[0.05]);
    assert_eq!(posted.comment.action, "newer");
}

fn two_workspaces_have_two_statuses_and_each_updates_its_own(dialect: Dialect) {
    let forge = MockForge::of(dialect);
    forge.opens(7, FIRST);
    let began = "2026-01-02T03:04:05Z";
    for _ in 0..2 {
        post_begun(&forge, "mariadb", FIRST, began, &[-0.02]);
        post_begun(&forge, "redis", FIRST, began, &[0.02]);
    }
    let names: Vec<String> = forge
        .state()
        .shown_statuses()
        .iter()
        .map(|run| run.body["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["perfquilt (mariadb)", "perfquilt (redis)"]);
    assert_eq!(forge.steps(Step::SetStatus), 2);
    if dialect == Dialect::GitHub {
        assert_eq!(forge.count("PATCH /repos/acme/series/check-runs"), 2);
    }
}

#[test]
fn a_check_run_of_another_app_is_left_alone() {
    let forge = MockForge::start();
    forge.opens(7, FIRST);
    forge.state().rights.login = "other-app[bot]".into();
    let as_bot = |login: &str, gains: &[f64]| {
        let credentials = Credentials::Token {
            token: Secret::new(TOKEN),
            login: Some(login.to_owned()),
        };
        post_as(&forge, credentials, policy(), FIRST, gains).unwrap();
    };
    as_bot("other-app[bot]", &[-0.02]);
    forge.state().rights.login = "github-actions[bot]".into();
    as_bot("github-actions[bot]", &[0.02]);
    as_bot("github-actions[bot]", &[0.03]);
    let runs = forge.state().check_runs.clone();
    let apps: Vec<&str> = runs.iter().map(|run| run.app.as_str()).collect();
    assert_eq!(apps, ["other-app", "github-actions"]);
    assert_eq!(runs[0].body["conclusion"], "neutral");
}

#[test]
fn the_pull_request_of_a_deleted_fork_is_found_by_its_commit() {
    let forge = MockForge::start();
    // More than a page is newer than it.
    for number in 100..230 {
        forge.opens(number, SECOND);
    }
    forge.opens(7, FIRST);
    forge.state().of(7).from = "unknown repository".into();
    let client = connect(&forge, &forge.uri(), token(), policy()).unwrap();
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
    let forge = MockForge::start();
    forge.opens(7, FIRST);
    forge.opens(9, FIRST);
    forge.state().of(9).from = "carol:other".into();
    let client = connect(&forge, &forge.uri(), token(), policy()).unwrap();
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

fn another_login_than_the_given_one_is_told_and_writes_once(dialect: Dialect) {
    let forge = MockForge::of(dialect);
    forge.opens(7, FIRST);
    let credentials = Credentials::Token {
        token: Secret::new(TOKEN),
        login: Some("somebody".to_owned()),
    };
    let error = post_as(&forge, credentials, policy(), FIRST, &[0.01]).unwrap_err();
    assert!(error.to_string().contains(LOGIN), "{error}");
    assert!(
        error.hint_text().unwrap().contains("PERFQUILT_LOGIN"),
        "{error:?}"
    );
    assert_eq!(forge.steps(Step::Write), 1);
}

fn a_token_of_too_small_a_scope_is_told_which_it_needs(dialect: Dialect) {
    let forge = MockForge::of(dialect);
    forge.opens(7, FIRST);
    forge.state().rights.write = false;
    let error = post(&forge, FIRST, &[0.01]).unwrap_err();
    assert_eq!(error.kind(), Kind::Forge);
    let hint = error.hint_text().unwrap();
    assert!(hint.contains(dialect.permissions()), "{error:?}");
    assert_eq!((forge.ours(7).len(), forge.steps(Step::Write)), (0, 1));
}

/// A comment that changes sends no mail.
fn a_verdict_that_gets_worse_is_told_once_for_each_commit(dialect: Dialect) {
    let forge = MockForge::of(dialect);
    forge.opens(7, FIRST);
    let posted = post(&forge, FIRST, &[0.02]).unwrap();
    forge.pushes(7, SECOND);
    post(&forge, SECOND, &[-0.02]).unwrap();
    let ours = forge.ours(7);
    assert_eq!(ours.len(), 2, "{ours:#?}");
    assert!(
        ours[1].contains("**regression**, it was faster"),
        "{}",
        ours[1]
    );
    assert!(
        ours[1].contains(&format!("({})", posted.comment.url)),
        "{}",
        ours[1]
    );
    snapshot(
        dialect,
        "a_verdict_that_gets_worse_is_told_once_for_each_commit",
        &forge.conversation(7),
    );
    // Better, and worse again: it was told.
    post(&forge, SECOND, &[0.02]).unwrap();
    post(&forge, SECOND, &[-0.02]).unwrap();
    assert_eq!(forge.ours(7).len(), 2);
    let third = "3".repeat(40);
    forge.pushes(7, &third);
    post(&forge, &third, &[0.02]).unwrap();
    post(&forge, &third, &[-0.02]).unwrap();
    assert_eq!(forge.ours(7).len(), 3);
    // Of an older commit, nothing is told.
    forge.pushes(7, FIRST);
    post(&forge, SECOND, &[0.02]).unwrap();
    post(&forge, SECOND, &[-0.03]).unwrap();
    assert_eq!(forge.ours(7).len(), 3);
}

fn a_notice_survives_what_goes_wrong(dialect: Dialect) {
    for fault in [Fault::DoneBut(502), Fault::DoneAndCut] {
        let forge = MockForge::of(dialect);
        forge.opens(7, FIRST);
        post(&forge, FIRST, &[0.02]).unwrap();
        forge.fails(Step::Write, fault);
        // Somebody stops it between the notice and the change of the comment.
        forge.fails(Step::Change, Fault::Status(404));
        let later = vec![("retry-after", "600".to_owned())];
        forge.fails(Step::Change, Fault::Refused(503, later, "later"));
        post(&forge, FIRST, &[-0.02]).unwrap_err();
        assert_eq!(forge.ours(7).len(), 2);
        post(&forge, FIRST, &[-0.02]).unwrap();
        assert_eq!(forge.ours(7).len(), 2);
        assert_eq!(forge.steps(Step::Write), 2);
    }
}

#[test]
fn a_workflow_for_a_fork_finds_its_pull_request() {
    let forge = MockForge::start();
    forge.state().rights.user = None;
    forge.state().rights.login = "github-actions[bot]".into();
    forge.opens(7, FIRST);
    let event = serde_json::json!({ "workflow_run": {
        "head_sha": FIRST, "head_branch": "faster", "event": "pull_request", "pull_requests": [],
        "html_url": "https://github.com/acme/series/actions/runs/41",
        "head_repository": { "owner": { "login": "alice" } },
    }});
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("event.json");
    std::fs::write(&file, event.to_string()).unwrap();
    let variable = |name: &str| {
        let is_event = name == "GITHUB_EVENT_PATH";
        is_event.then(|| file.display().to_string())
    };
    let target = forge.dialect.kind().target(&variable, false).unwrap();
    let credentials = |login: Option<&str>| Credentials::Token {
        token: Secret::new(TOKEN),
        login: login.map(str::to_owned),
    };
    let client = |login| connect(&forge, &forge.uri(), credentials(login), policy()).unwrap();
    let found = client(Some("github-actions[bot]")).find(&target).unwrap();
    assert_eq!((found.number, found.head.as_str()), (7, FIRST));
    // A workflow's token does not say whose it is.
    let error = client(None).find(&target).unwrap_err();
    assert!(
        error.hint_text().unwrap().contains("PERFQUILT_LOGIN"),
        "{error:?}"
    );
    forge.state().pull_requests.clear();
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
        let forge = MockForge::start();
        forge.opens(7, FIRST);
        // The second time, this machine's clock and GitHub's are decades apart.
        forge.state().clock = clock;
        post_as(&forge, app(crate::forge::APP), policy(), FIRST, &[0.01]).unwrap();
        assert_eq!(forge.ours(7).len(), 1);
        assert!(forge.conversation(7).contains("perfquilt-app[bot]"));
    }
    // A token that is no longer taken is renewed, once.
    let forge = MockForge::start();
    forge.opens(7, FIRST);
    forge.fails(Step::Write, Fault::Status(401));
    post_as(&forge, app(crate::forge::APP), policy(), FIRST, &[0.01]).unwrap();
    assert_eq!(forge.ours(7).len(), 1);
    assert_eq!(forge.count("POST /app/installations"), 2);
    let forge = MockForge::start();
    let error = post_as(&forge, app("1"), policy(), FIRST, &[0.01]).unwrap_err();
    assert_eq!(error.kind(), Kind::Forge, "{error}");
}

fn a_long_conversation_is_read_to_its_end(dialect: Dialect) {
    let forge = MockForge::of(dialect);
    forge.opens(7, FIRST);
    for k in 0..230 {
        forge.says(7, "alice", &format!("comment {k}"));
    }
    post(&forge, FIRST, &[0.01]).unwrap();
    post(&forge, FIRST, &[0.02]).unwrap();
    assert_eq!(forge.ours(7).len(), 1);
}

fn a_failure_is_a_comment_too(dialect: Dialect) {
    let forge = MockForge::of(dialect);
    forge.opens(7, FIRST);
    let client = connect(&forge, &forge.uri(), token(), policy()).unwrap();
    let target = Target {
        number: Some(7),
        ..Target::default()
    };
    let found = client.find(&target).unwrap();
    let error = Error::hunk("patch 2 (0002-@octocat.patch) does not apply: hunk 1 of a.c");
    // GitLab would take it for a command of the token's account.
    let error = error.details(["/merge".to_owned()]);
    let notice = Notice {
        failures: &[Failure::new(&error, None)],
        ..Notice::default()
    };
    let posted = perfquilt_forge::post(
        &*client,
        &posting(),
        &found,
        &Draft {
            subject: &notice.subject,
            write: &|subject, limit| Ok(comment(&notice.about(subject), limit)),
        },
    )
    .unwrap();
    assert_eq!(
        (posted.status.as_str(), posted.conclusion),
        ("failed", "failure")
    );
    snapshot(
        dialect,
        "a_failure_is_a_comment_too",
        &forge.conversation(7),
    );
}
