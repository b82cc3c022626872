use std::collections::BTreeMap;

use super::*;
use crate::tests::Experiment;
use perfquilt_judge::bisect::{BisectSession, Direction, Event, Question, Revision};
use perfquilt_model::error::Error;
use perfquilt_model::observation::{Meter, PlannedBlocks};
use perfquilt_model::point::Point;
use perfquilt_model::server_tests::{PointTests, TestFailure};

/// Maximum length of a comment on GitHub.
const LIMIT: usize = 65_536;

fn subject() -> PullRequestRef {
    PullRequestRef {
        number: Some(7),
        head: "9f8e7d6c5b4a39281706f5e4d3c2b1a098765432".into(),
        base: "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d".into(),
        moved_on: None,
        run: Some("https://github.com/acme/series/actions/runs/42".into()),
        began: None,
        report: None,
    }
}

fn of(attribution: &Attribution) -> Comment {
    comment(
        &Notice {
            attribution: Some(attribution),
            subject: subject(),
            ..Notice::default()
        },
        LIMIT,
    )
}

fn shown(comment: &Comment) -> String {
    let text = format!(
        "standing: {}\ntitle: {}\n\n{}",
        comment.status, comment.title, comment.body
    );
    assert_eq!(
        crate::document::inert::active(&comment.body),
        [""; 0],
        "{text}"
    );
    text
}

#[test]
fn all_faster() {
    let mut experiment = Experiment::new(&[(0.012, 0.01), (0.02, 0.018), (0.008, 0.007)]);
    experiment.separate_points = vec![(Point::Without(1), 0.034), (Point::Without(2), 0.02)];
    let reason = "patch 3 (0003-hash-loop-registers.patch) is not separable: it needs patch 2 (0002-virtual-field-guards.patch)";
    experiment.header.failed = BTreeMap::from([(Point::Without(3), reason.into())]);
    let comment = of(&experiment.attribution());
    assert_eq!(comment.status, MeasurementStatus::Faster);
    insta::assert_snapshot!(shown(&comment));
}

#[test]
fn one_slower() {
    let experiment = Experiment::new(&[(0.012, 0.01), (-0.009, 0.0), (0.0, 0.004)]);
    let comment = of(&experiment.attribution());
    assert_eq!(comment.status, MeasurementStatus::Regression);
    insta::assert_snapshot!(shown(&comment));
}

#[test]
fn unclear() {
    let mut experiment = Experiment::new(&[(0.004, 0.0), (-0.002, 0.0)]);
    experiment.noise = 0.02;
    let comment = of(&experiment.attribution());
    assert_eq!(comment.status, MeasurementStatus::Unclear);
    insta::assert_snapshot!(shown(&comment));
}

#[test]
fn nothing_changed() {
    let experiment = Experiment::new(&[(0.0, 0.0), (0.0, 0.0)]);
    let comment = of(&experiment.attribution());
    assert_eq!(comment.status, MeasurementStatus::NoEffect);
    insta::assert_snapshot!(shown(&comment));
}

#[test]
fn build_failure_at_patch_3() {
    let mut experiment = Experiment::new(&[(0.01, 0.01), (0.01, 0.01), (0.0, 0.0), (0.01, 0.01)]);
    let error = Error::build_failed(
        "patch 3 (0003-hash-loop-registers.patch) does not compile: `nr1` was not declared in this scope",
    )
    .at("strings/ctype-simple.c", 312)
    .details([
        "strings/ctype-simple.c:312:9: error: `nr1` was not declared in this scope",
        "  312 |         nr1 ^= (nr1 << 8);",
        "      |         ^~~",
    ]);
    experiment.header.failed = BTreeMap::from([(Point::Step(3), error.to_string())]);
    experiment.workloads = vec!["oltp_read_only"];
    let attribution = experiment.attribution();
    let failures = [Failure::new(&error, Some(Point::Step(3)))];
    let comment = comment(
        &Notice {
            attribution: Some(&attribution),
            failures: &failures,
            subject: subject(),
            ..Notice::default()
        },
        LIMIT,
    );
    assert_eq!(comment.status, MeasurementStatus::Failed);
    insta::assert_snapshot!(shown(&comment));
}

/// A patch that makes a test fail is a regression, however fast it is. The names of tests are an untrusted author's.
#[test]
fn a_test_newly_fails() {
    let mut experiment = Experiment::new(&[(0.012, 0.01), (0.02, 0.018)]);
    let tests = |point, passed, names: &[&str]| PointTests {
        passed,
        skipped: 272,
        new: names
            .iter()
            .map(|name| TestFailure {
                name: (*name).to_owned(),
                failed: 4,
                runs: 4,
                base_failed: 0,
                base_runs: 4,
            })
            .collect(),
        ..PointTests::new(Point::Step(point))
    };
    let hostile = format!("<img src=x> @somebody [a](b) {}", "x".repeat(100_000));
    experiment.supplement.tests = vec![
        tests(0, 1053, &[]),
        tests(1, 1053, &[]),
        tests(2, 1051, &["main.func_math", &hostile]),
    ];
    let comment = of(&experiment.attribution());
    assert_eq!(comment.status, MeasurementStatus::Regression);
    assert!(
        comment.title.ends_with("; patch 2 makes tests fail"),
        "{}",
        comment.title
    );
    let text = shown(&comment);
    assert!(
        text.contains("On the release 1,053 tests pass and 272 are skipped."),
        "{text}"
    );
    assert!(text.contains("1,053 tests pass, no new failures"), "{text}");
    assert!(
        text.contains("1,051 tests pass, 2 new failures: main.func"),
        "{text}"
    );
    assert!(comment.body.len() < 20_000, "{}", comment.body.len());
}

#[test]
fn conflict() {
    let error = Error::patch_syntax("patch 2 (0002-virtual-field-guards.patch) does not apply: hunk 1 of 3 of sql/table.cc fits nowhere")
        .at("patches/0002-virtual-field-guards.patch", 18)
        .details(["expected at line 8123:", "-  if (vfield)", "+  if (vfield && *vfield)"])
        .hint("`perfquilt rebase 11.8.6` shows how each patch fits");
    let comment = comment(
        &Notice {
            failures: &[Failure::new(&error, None)],
            subject: subject(),
            ..Notice::default()
        },
        LIMIT,
    );
    assert_eq!(comment.status, MeasurementStatus::Failed);
    insta::assert_snapshot!(shown(&comment));
}

/// A failed bisection does not change the status of the measurement.
#[test]
fn a_bisection_that_failed() {
    let attribution = Experiment::new(&[(0.012, 0.01), (0.02, 0.018)]).attribution();
    let measured = of(&attribution);
    let error = Error::client_failed("the job was ended: more than 24 hours");
    let failures = [Failure::new(&error, None)];
    let failed = |attribution| {
        let notice = Notice {
            attribution,
            bisection_failures: &failures,
            subject: subject(),
            ..Notice::default()
        };
        comment(&notice, LIMIT)
    };
    let with_bisection = failed(Some(&attribution));
    assert_eq!(
        (with_bisection.status, &with_bisection.title),
        (measured.status, &measured.title)
    );
    let words = "### Bisection\n\nthe job was ended";
    assert!(
        with_bisection.body.contains(words),
        "{}",
        with_bisection.body
    );
    assert_eq!(failed(None).status, MeasurementStatus::Failed);
}

#[test]
fn regression_after_rebase() {
    let before = Experiment::new(&[(0.012, 0.01), (0.02, 0.018), (0.008, 0.007)]).attribution();
    let mut experiment = Experiment::new(&[(0.012, 0.01), (0.0, 0.0), (0.008, 0.007)]);
    experiment.header.release = "mariadb-11.8.6".into();
    let attribution = experiment.attribution();
    let notice = Notice {
        attribution: Some(&attribution),
        earlier: Some(&before),
        subject: subject(),
        ..Notice::default()
    };
    let after = comment(&notice, LIMIT);
    assert_eq!(after.status, MeasurementStatus::Regression);
    insta::assert_snapshot!(shown(&after));
    // An unchanged effect is no regression.
    let notice = Notice {
        attribution: Some(&before),
        ..notice
    };
    assert_eq!(comment(&notice, LIMIT).status, MeasurementStatus::Faster);
}

#[test]
fn only_a_comparison_makes_a_regression() {
    let mut attribution = Experiment::new(&[(0.012, 0.01), (0.02, 0.018)]).attribution();
    attribution.patches[0].effects.clear();
    attribution.patches[0].reason = Some("no longer helps: somebody named a file so".into());
    let comment = of(&attribution);
    assert_eq!(
        comment.status,
        MeasurementStatus::Faster,
        "{}",
        comment.body
    );
}

#[test]
fn interrupted() {
    let mut experiment = Experiment::new(&[(0.012, 0.01), (0.0, 0.0)]);
    experiment.blocks = 8;
    experiment.supplement.planned = ["oltp_point_select", "oltp_read_only"]
        .iter()
        .flat_map(|workload| {
            [
                (workload, Meter::Time, 12),
                (workload, Meter::Instructions, 3),
            ]
        })
        .map(|(workload, meter, blocks)| PlannedBlocks::fixed(workload, meter, blocks))
        .collect();
    let attribution = experiment.attribution();
    let failures = [Failure::new(&Error::interrupted(), None)];
    let notice = Notice {
        attribution: Some(&attribution),
        failures: &failures,
        subject: PullRequestRef {
            moved_on: Some("0123456789abcdef0123456789abcdef01234567".into()),
            ..subject()
        },
        ..Notice::default()
    };
    let partly = comment(&notice, LIMIT);
    assert_eq!(partly.status, MeasurementStatus::Unfinished);
    insta::assert_snapshot!(shown(&partly));
    let before_any = comment(
        &Notice {
            attribution: None,
            ..notice
        },
        LIMIT,
    );
    assert_eq!(before_any.status, MeasurementStatus::Unfinished);
    insta::assert_snapshot!(shown(&before_any));
}

#[test]
fn before_anything_is_known() {
    let notice = Notice {
        activity: Some("Queued: 2 jobs before it, about 1 h 20 min".into()),
        subject: subject(),
        ..Notice::default()
    };
    let queued = comment(&notice, LIMIT);
    assert_eq!(queued.status, MeasurementStatus::Unfinished);
    insta::assert_snapshot!(shown(&queued));
}

/// Returns an experiment with `patches` patches and `workloads` workloads.
fn large(patches: usize, workloads: usize) -> Attribution {
    let gains: Vec<(f64, f64)> = (0..patches)
        .map(|k| (0.004 * (k % 3) as f64, 0.003 * (k % 3) as f64))
        .collect();
    let mut experiment = Experiment::new(&[]);
    experiment.gains = gains;
    experiment.header.series = (1..=patches)
        .map(|k| format!("{k:04}-some-patch-of-a-long-series.patch"))
        .collect();
    experiment.header.titles = (1..=patches)
        .map(|k| format!("Change number {k} of what is done for every row"))
        .collect();
    let names: Vec<&'static str> = (0..workloads)
        .map(|k| &*format!("workload_{k}").leak())
        .collect();
    experiment.workloads = names;
    experiment.blocks = 3;
    experiment.attribution()
}

#[test]
fn never_longer_than_allowed() {
    let attribution = large(60, 6);
    let whole = of(&attribution);
    let mut notice = Notice {
        attribution: Some(&attribution),
        subject: subject(),
        ..Notice::default()
    };
    for limit in [LIMIT, 20_000, 8_000, 3_000, 1_000, 300, 100, 0] {
        let comment = comment(&notice, limit);
        assert!(
            comment.body.len() <= limit,
            "{} of {limit}",
            comment.body.len()
        );
        assert_eq!(comment.title, whole.title);
        if limit >= 1_000 {
            assert!(comment.body.starts_with("## "), "{}", comment.body);
            assert!(comment.body.contains(&comment.title));
            let whole = comment.body == whole.body;
            assert!(
                whole || comment.body.contains("leaves something out"),
                "{limit}"
            );
            assert_eq!(
                crate::document::inert::active(&comment.body),
                [""; 0],
                "{limit}"
            );
        }
    }
    notice.subject.report = Some("https://github.com/acme/series/actions/runs/42#report".into());
    let linked = comment(&notice, 3_000);
    assert!(
        linked
            .body
            .contains("[the whole report](https://github.com/acme/")
    );
    insta::assert_snapshot!(linked.body);
}

#[test]
fn plain_text_is_as_wide_as_a_mail() {
    let attribution = large(20, 3);
    let error = Error::build_failed("it\u{1b}[2J\nSubject: x ".repeat(20))
        .at("a".repeat(200), 3)
        .details([
            format!("sql/x.cc: {}\u{1b}[31m", "é".repeat(500)),
            "\tx".to_owned(),
        ])
        .hint(format!("see https://example.org/{}", "x".repeat(100)));
    let failures = [Failure::new(&error, Some(Point::Step(2)))];
    let notice = Notice {
        attribution: Some(&attribution),
        failures: &failures,
        subject: subject(),
        columns: Some(72),
        ..Notice::default()
    };
    let text = comment(&notice, LIMIT).body;
    for line in text.lines() {
        assert!(crate::text::width(line) <= 72, "{line}");
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
    for words in ["0001-", "verdict", "total", "Next: see", "on 1a2b3c4d5e6f"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    for markup in ["**", "<details>", "](", "9f8e7d6c5b4a"] {
        assert!(!text.contains(markup), "{markup}: {text}");
    }
}

#[test]
fn a_comment_of_any_series_fits() {
    let attribution = large(500, 1);
    let comment = of(&attribution);
    assert!(comment.body.len() <= LIMIT);
    assert!(comment.body.contains("| | total |"));
    assert!(comment.body.contains("further rows are left out"));
}

#[test]
fn a_failure_is_shown_however_long_the_series_is() {
    let mut attribution = large(500, 1);
    let error = Error::build_failed("patch 3 does not compile")
        .at("strings/ctype-simple.c", 312)
        .details(["error: `nr1` was not declared in this scope"]);
    let reason = error.to_string();
    attribution.patches[2].reason = Some(reason.clone());
    attribution.failed.insert(Point::Step(3), reason);
    let failures = [Failure::new(&error, Some(Point::Step(3)))];
    let notice = Notice {
        attribution: Some(&attribution),
        failures: &failures,
        subject: subject(),
        ..Notice::default()
    };
    let body = comment(&notice, LIMIT).body;
    assert!(body.len() <= LIMIT);
    for words in [
        "further rows are left out",
        "see below",
        "`nr1` was not declared",
        "500 patches: ",
        "+ is faster",
        "<sub>",
    ] {
        assert!(body.contains(words), "{words}: {body}");
    }
}

/// Untrusted texts that try to become active.
const HOSTILE: [&str; 34] = [
    "@octocat",
    "cc @acme/maintainers please",
    "fixes #1, acme/series#2 and GH-3",
    "closes gh-4",
    "0123456789abcdef0123456789abcdef01234567",
    "acme/series@0123456",
    "[click](https://evil.example)",
    "![pixel](https://evil.example/x.png)",
    "<https://evil.example>",
    "https://evil.example/ http://evil.example ftp://evil.example",
    "www.evil.example WWW.evil.example",
    "mailto:root@evil.example root@evil.example",
    "<img src=x onerror=alert(1)>",
    "</details></td></table><script>alert(1)</script>",
    "<!-- perfquilt -->",
    "--> visible <!--",
    "a | b | c",
    "a \\| b",
    "`code` ``more`` ```",
    "```\nout of the fence",
    "~~~ ~~gone~~",
    "**bold** __bold__ *i* _i_",
    "# heading",
    "- [x] done",
    "> quote",
    "1. one",
    "[^1]: note [^1]",
    "[ref]: https://evil.example",
    "$\\unicode{x41}$ $`x`$",
    ":white_check_mark: faster :shipit:",
    "&lt;b&gt; &#64;octocat &commat;octocat",
    "\u{202e}redro esrever\u{202c} \u{200b} \u{feff}",
    "\u{1b}[31mred\u{1b}[0m \u{7} \0",
    "\\",
];

/// Returns a bisection with untrusted text in every field.
fn bisection(word: &dyn Fn(usize) -> String) -> bisect::BisectOutcome {
    let state = |k: usize| Revision {
        label: word(k),
        name: word(k + 1),
        title: word(k + 2),
        tree: word(k + 3),
    };
    let mut session = BisectSession::new(Question {
        states: (0..4).map(state).collect(),
        change: word(31),
        release: word(32),
        recipe: word(33),
        workload: word(4),
        meter: Meter::Time.into(),
        direction: Direction::Slower,
        size: 0.005,
        error: 0.01,
        most_blocks: 9,
        known_sd: None,
    });
    session.events.push(Event::Unusable {
        state: 3,
        reason: word(5),
        crashed: true,
    });
    let mut outcome = session.replay().outcome();
    outcome.culprits.push(bisect::Culprit {
        from: 0,
        to: 2,
        names: (6..8).map(word).collect(),
        titles: (8..10).map(word).collect(),
        effect: None,
        confirmed: true,
        range: Some(word(10)),
        files: vec![bisect::FileStat {
            path: word(11),
            lines: Some((1, 2)),
        }],
        functions: Some(vec![perfquilt_model::observation::FunctionChange {
            patch: 2,
            workload: word(4),
            function: word(13),
            before: 10.0,
            after: 20.0,
            half_width: 1.0,
            share: 0.1,
        }]),
    });
    outcome.notes.push(word(12));
    outcome
}

/// Returns a notice with untrusted text in every field.
fn hostile(words: &[&str]) -> Comment {
    let word = |k: usize| words[k % words.len()].to_owned();
    let mut experiment = Experiment::new(&[(-0.01, -0.01), (0.0, 0.0), (0.01, 0.0)]);
    experiment.blocks = 3;
    experiment.header.series = (0..3).map(|k| format!("{k}{}", word(k))).collect();
    experiment.header.titles = (3..6).map(word).collect();
    experiment.header.release = word(6);
    experiment.header.recipe = word(7);
    experiment.header.experiment = word(8);
    experiment.header.harness = word(9);
    experiment.header.machine = BTreeMap::from([(word(10), word(11)), ("cpu".into(), word(12))]);
    experiment.header.failed = BTreeMap::from([(Point::Step(2), word(13))]);
    // An operation behind the slash has a name.
    let end = |k: usize| if word(k).ends_with('/') { "_" } else { "" };
    let leak = |k: usize| &*format!("{k}{}{}", word(k), end(k)).leak();
    experiment.workloads = vec![leak(14), leak(15)];
    let observations: Vec<_> = experiment.observations();
    let observations: Vec<_> = observations
        .into_iter()
        .map(|o| perfquilt_model::observation::Observation {
            experiment: word(8),
            ..o
        })
        .collect();
    let attribution = perfquilt_judge::attribution::attribute_with(
        &experiment.header,
        &observations,
        &experiment.supplement,
        &Meter::default_margin,
    )
    .unwrap();
    let error = Error::build_failed(word(16))
        .at(word(17), 3)
        .details((0..words.len()).map(word))
        .hint(word(18));
    let failures = [
        Failure::new(&error, Some(Point::Step(2))),
        Failure::new(&error, None),
    ];
    let bisected = bisection(&word);
    let notice = Notice {
        attribution: Some(&attribution),
        failures: &failures,
        earlier: Some(&attribution),
        activity: Some(word(19)),
        unapproved: true,
        pending_approval: Some(PendingApproval {
            name: "perfquilt".into(),
            head: "0123456789abcdef0123456789abcdef01234567".into(),
            files: (25..30).map(word).collect(),
        }),
        bisection: Some(&bisected),
        bisection_failures: &failures,
        answer: String::new(),
        subject: PullRequestRef {
            number: Some(7),
            head: word(20),
            base: word(21),
            moved_on: Some(word(22)),
            // Addresses come from the forge or from the command line.
            run: Some(format!("https://github.com/acme/series/{}", word(23))),
            began: None,
            report: Some(format!("https://github.com/acme/series/{}", word(24))),
        },
        columns: None,
    };
    comment(&notice, LIMIT)
}

#[test]
fn nothing_comes_together_around_empty_code() {
    for text in [
        "@``octocat",
        "a @`` ``octocat",
        "#``12",
        "http:``//evil.example",
    ] {
        let comment = hostile(&[text]);
        let active = crate::document::inert::active(&comment.body);
        assert_eq!(active, [""; 0], "{}", comment.body);
    }
}

#[test]
fn nothing_untrusted_authors_write_is_active() {
    for first in 0..HOSTILE.len() {
        let words: Vec<&str> = HOSTILE
            .iter()
            .cycle()
            .skip(first)
            .take(HOSTILE.len())
            .copied()
            .collect();
        let comment = hostile(&words);
        assert_eq!(
            crate::document::inert::active(&comment.body),
            [""; 0],
            "{}",
            comment.body
        );
        assert!(!comment.title.contains('@'), "{}", comment.title);
    }
    insta::assert_snapshot!(hostile(&HOSTILE).body);
}

#[test]
fn spaces_at_the_beginning_are_no_code_block() {
    for text in [
        "      indented",
        "\t\t\t\t\tindented",
        "\n\n\n\n\n\nindented",
    ] {
        let comment = hostile(&[text]);
        let active = crate::document::inert::active(&comment.body);
        assert_eq!(active, [""; 0], "{}", comment.body);
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig {
        cases: 1000,
        failure_persistence: None,
        ..Default::default()
    })]
    #[test]
    fn no_combination_is_active(
        words in proptest::collection::vec(
            proptest::collection::vec(
                proptest::sample::select(vec![
                    "@", "#", "1", "a", "gh-", "GH-", "http", "://", "www", ".", "x.com", "[", "]", "(", ")", "!",
                    "<", ">", "/", "b", "script", "|", "`", "``", "~", "*", "_", "$", "\\", "&", "#x40;", ":", "tada",
                    "\n", "\r", " ", "-", "+", "=", "0123abc", "deadbeef", "\t", "'", "\"", "^", "--", "<!--", "-->",
                ]),
                0..12,
            ),
            1..8,
        )
    ) {
        let words: Vec<String> = words.into_iter().map(|parts| parts.concat()).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let comment = hostile(&words);
        proptest::prop_assert_eq!(crate::document::inert::active(&comment.body), [""; 0], "{}", comment.body);
    }
}
