use std::collections::BTreeMap;

use super::report::{PageContent, RawData};
use super::*;
use perfquilt_judge::attribution::{Attribution, EffectKind, Provenance, attribute_with};
use perfquilt_model::observation::{
    Conditions, ExperimentHeader, FunctionChange, HostSample, Meter, Observation, PlannedBlocks,
    PointBuild, ReusedFrom, Supplement, WithinBlockError,
};
use perfquilt_model::point::Point;
use perfquilt_model::warning::Warning;

/// An experiment with known costs.
pub(super) struct Experiment {
    pub(super) header: ExperimentHeader,
    pub(super) supplement: Supplement,
    pub(super) workloads: Vec<&'static str>,
    pub(super) blocks: u32,
    /// By patch: log gain in time and in instructions.
    pub(super) gains: Vec<(f64, f64)>,
    /// Points beside the series and what they gain on both meters.
    pub(super) separate_points: Vec<(Point, f64)>,
    /// Bias of the control.
    pub(super) control: f64,
    /// Standard deviation of a value of time.
    pub(super) noise: f64,
    /// The first patch with which some slices stall, if the tail was measured.
    pub(super) stalled: Option<usize>,
    /// The seed of its noise, not 0.
    pub(super) seed: u64,
}

const NAMES: [(&str, &str); 4] = [
    (
        "0001-string-append.patch",
        "Let the extra allocation grow with the string",
    ),
    (
        "0002-virtual-field-guards.patch",
        "Skip virtual field updates that do nothing",
    ),
    (
        "0003-hash-loop-registers.patch",
        "Keep the state of hash loops in registers",
    ),
    (
        "0004-join-constructors.patch",
        "Clear arrays of a JOIN only when they are used",
    ),
];

impl Experiment {
    pub(super) fn new(gains: &[(f64, f64)]) -> Self {
        let names = &NAMES[..gains.len()];
        Experiment {
            header: ExperimentHeader {
                schema: 1,
                experiment: "quick-1".into(),
                series: names.iter().map(|(name, _)| (*name).into()).collect(),
                titles: names.iter().map(|(_, title)| (*title).into()).collect(),
                release: "mariadb-10.11.18".into(),
                recipe: "quick".into(),
                base: None,
                machine: BTreeMap::from([
                    ("cores".into(), "2".into()),
                    ("memory".into(), "24 GiB".into()),
                ]),
                harness: "perfquilt 0.1.0 4f2a".into(),
                identical: BTreeMap::new(),
                line_numbers: Default::default(),
                unread: Default::default(),
                failed: BTreeMap::new(),
                start_timeouts: BTreeMap::new(),
                failed_workloads: Vec::new(),
                command: None,
                commit: None,
                bundle: None,
                started: "2026-01-02T03:04:05Z".into(),
                reused: Vec::new(),
            },
            supplement: Supplement::default(),
            workloads: vec!["oltp_point_select", "oltp_read_only"],
            blocks: 12,
            gains: gains.to_vec(),
            separate_points: Vec::new(),
            control: 0.0,
            noise: 0.002,
            stalled: None,
            seed: 1,
        }
    }

    pub(super) fn observations(&self) -> Vec<Observation> {
        let (mut random, mut later) = (Noise(self.seed), Noise(self.seed ^ 0x5EED));
        let patches = self.gains.len();
        let points = (0..=patches)
            .map(Point::Step)
            .filter(|point| !self.header.failed.contains_key(point))
            .filter(|point| !self.header.identical.contains_key(point))
            .chain(self.separate_points.iter().map(|(point, _)| *point))
            .chain([Point::Control]);
        let points: Vec<Point> = points.collect();
        let mut observations = Vec::new();
        for workload in &self.workloads {
            for (meter, level, noise, blocks) in [
                (Meter::Time, 90_000f64, self.noise, self.blocks),
                (Meter::Instructions, 2.6e6, 0.000_02, self.blocks.min(6)),
            ] {
                for block in 0..blocks {
                    for (order, &point) in (0..).zip(&points) {
                        let gain: f64 = match point {
                            Point::Step(k) => self.gains[..k]
                                .iter()
                                .map(|(time, instructions)| match meter {
                                    Meter::Time => time,
                                    _ => instructions,
                                })
                                .sum(),
                            Point::Alone(_) | Point::Without(_) => {
                                let of = |(p, gain): &(Point, f64)| (*p == point).then_some(*gain);
                                self.separate_points.iter().find_map(of).unwrap()
                            }
                            _ if meter == Meter::Time => self.control,
                            _ => 0.0,
                        };
                        // Times stay the same, however many starts are counted.
                        let noise = noise
                            * if meter == Meter::Time || block < 3 {
                                random.next()
                            } else {
                                later.next()
                            };
                        let value = level * (noise - gain).exp();
                        observations.push(Observation {
                            experiment: self.header.experiment.clone(),
                            order,
                            n: 400,
                            ..Observation::new(block, point, workload, meter, value)
                        });
                        if let (Some(from), Meter::Time) = (self.stalled, meter)
                            && let Some(last) = observations.last_mut()
                        {
                            let stalls = matches!(point, Point::Step(k) if k >= from);
                            let noise = |random: &mut Noise| 1.0 + 0.003 * random.next();
                            last.mean = Some(
                                last.value * noise(&mut random) * if stalls { 1.06 } else { 1.02 },
                            );
                            last.slow = Some(
                                (if stalls { 0.008 } else { 0.002 })
                                    + 0.000_5 * random.next().abs(),
                            );
                            last.p99 = Some(
                                last.value * noise(&mut random) * if stalls { 4.0 } else { 1.5 },
                            );
                        }
                    }
                }
            }
        }
        observations
    }

    pub(super) fn attribution(&self) -> Attribution {
        let observations = self.observations();
        attribute_with(
            &self.header,
            &observations,
            &self.supplement,
            &Meter::default_margin,
        )
        .unwrap()
    }
}

/// Returns noise of standard deviation 1 that does not depend on the versions of libraries.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        let mut sum = -6.0;
        for _ in 0..12 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            sum += f64::from(u32::try_from(self.0 >> 32).unwrap()) / f64::from(u32::MAX);
        }
        sum
    }
}

/// Joins the forms of a document for a snapshot; drawings, the style and embedded data of pages are left out.
pub(super) fn forms(forms: &[(&str, String)]) -> String {
    let cut = |text: &str| {
        let text = regex::Regex::new("<style>[^<]*</style>|<svg.*?</svg>")
            .unwrap()
            .replace_all(text, "…");
        let text = regex::Regex::new("base64,[A-Za-z0-9+/=]+|sha256-[^']*")
            .unwrap()
            .replace_all(&text, "…")
            .into_owned();
        let text = text.replace(env!("CARGO_PKG_VERSION"), "VERSION");
        if text.starts_with("<!DOCTYPE") {
            text.replace("><", ">\n<")
        } else {
            text
        }
    };
    let one = |(name, text): &(&str, String)| format!("=== {name} ===\n{}", cut(text));
    forms.iter().map(one).collect::<Vec<_>>().join("\n")
}

/// Returns the report of a stored experiment as Markdown.
fn json(attribution: &Attribution) -> String {
    let data = ReportData::new(attribution);
    JSON.export(&data).unwrap().text
}

/// The report with all its sections.
fn terminal(attribution: &Attribution, columns: usize, color: bool) -> String {
    report::terminal(attribution, true).terminal(columns, color)
}

fn markdown(attribution: &Attribution) -> String {
    report::whole(attribution, true, None).markdown()
}

fn at_80(experiment: &Experiment) -> String {
    let text = terminal(&experiment.attribution(), 80, false);
    for line in text.lines() {
        assert!(text::width(line) <= 80, "{line}");
    }
    text
}

fn changed(patch: usize, workload: &str, function: &str, share: f64) -> FunctionChange {
    FunctionChange {
        patch,
        workload: workload.into(),
        function: function.into(),
        before: 1000.0,
        after: 1000.0 + 1e5 * share,
        half_width: 0.5,
        share,
    }
}

#[test]
fn all_faster() {
    let mut experiment = Experiment::new(&[(0.012, 0.01), (0.02, 0.018), (0.008, 0.007)]);
    experiment.supplement.within = vec![WithinBlockError {
        workload: "oltp_read_only".into(),
        meter: Meter::Time,
        sd: 0.0007,
    }];
    let moment = HostSample {
        seconds: 2.5,
        began: 0.0,
        steal: 0.004,
        idle: 0.012,
        preempted: 3,
        major_faults: 0,
        minor_faults: 900,
        mhz: Some((2600.0, 2600.0)),
        ..HostSample::default()
    };
    let moments = [
        moment,
        HostSample {
            steal: 0.011,
            ..moment
        },
    ];
    experiment.supplement.conditions = Conditions::over("oltp_read_only", &moments)
        .into_iter()
        .collect();
    experiment.supplement.builds = [(0, 39.2, 1377.4, 4.1, false), (1, 0.0, 22.4, 3.9, true)]
        .map(|(point, configure, compile, link, cached)| PointBuild {
            point: Point::Step(point),
            key: "k".into(),
            configure,
            compile,
            link,
            overhead: 1.25,
            units: 860,
            cached,
            code_bytes: Some(11_263_440 - 1024 * point as u64),
            profile: None,
        })
        .into();
    experiment.supplement.functions = [
        (
            1,
            "oltp_read_only",
            "String::append(char const*, unsigned int)",
            -0.0074,
        ),
        (
            1,
            "oltp_read_only",
            "Binary_string::realloc_raw(unsigned long)",
            -0.0021,
        ),
        (
            1,
            "oltp_point_select",
            "String::append(char const*, unsigned int)",
            -0.0112,
        ),
        (3, "oltp_read_only", "my_hash_sort_simple", -0.0068),
    ]
    .map(|(patch, workload, function, share)| changed(patch, workload, function, share))
    .into();
    insta::assert_snapshot!(at_80(&experiment));
    insta::assert_snapshot!(markdown(&experiment.attribution()));
}

#[test]
fn apart_from_each_other() {
    let mut experiment = Experiment::new(&[(0.012, 0.01), (0.02, 0.018), (0.008, 0.007)]);
    experiment.separate_points = vec![
        (Point::Alone(2), 0.019),
        (Point::Without(1), 0.034),
        (Point::Without(2), 0.02),
    ];
    experiment.header.failed = [
        (Point::Alone(3), "patch 3 (0003-hash-loop-registers.patch) is not separable: it needs patch 2 (0002-virtual-field-guards.patch)"),
    ]
    .map(|(point, reason)| (point, reason.to_owned()))
    .into();
    experiment.header.identical.extend([
        (Point::Alone(1), Point::Step(1)),
        (Point::Without(3), Point::Step(2)),
    ]);
    insta::assert_snapshot!(at_80(&experiment));
    insta::assert_snapshot!(markdown(&experiment.attribution()));
}

#[test]
fn reused_and_stale() {
    let mut experiment = Experiment::new(&[(0.012, 0.01), (-0.009, 0.0), (0.008, 0.007)]);
    experiment.workloads.truncate(1);
    let origin = |experiment: &str, stale: Option<&str>| ReusedFrom {
        experiment: experiment.into(),
        started: "2026-01-01T03:04:05Z".into(),
        points: BTreeMap::new(),
        stale: stale.map(str::to_owned),
    };
    experiment.header.reused = vec![
        origin("quick-0", None),
        origin("old|<b>", Some("kernel Linux 5.10 instead of Linux 6.1")),
    ];
    let all = experiment.observations();
    let of = |name: &str, points: &[Point], direct: bool| -> Vec<Observation> {
        let wanted = all.iter().filter(|o| points.contains(&o.point));
        let renamed = wanted.map(|o| Observation {
            experiment: name.into(),
            direct,
            ..o.clone()
        });
        renamed.filter(|o| !direct || o.block < 4).collect()
    };
    let (base, last) = (Point::BASE, Point::Step(3));
    let observations: Vec<Observation> = [
        of("quick-1", &[base, last, Point::Control], false),
        of("quick-1", &[base, last], true),
        of("quick-0", &[base, Point::Step(1), Point::Control], false),
        of("old|<b>", &[Point::Step(1), Point::Step(2)], false),
    ]
    .concat();
    let attribution = attribute_with(
        &experiment.header,
        &observations,
        &experiment.supplement,
        &Meter::default_margin,
    )
    .unwrap();
    insta::assert_snapshot!(terminal(&attribution, 80, false));
    insta::assert_snapshot!(markdown(&attribution));
    // Stale figures and verdicts are dimmed.
    let colours = terminal(&attribution, 80, true);
    let row = colours.lines().find(|line| line.contains("0002-")).unwrap();
    assert_eq!(row.matches("\x1b[2m").count(), 3, "{row:?}");
}

#[test]
fn the_answer_comes_last_and_fits_a_screen() {
    let mut experiment = Experiment::new(&[(0.012, 0.01), (-0.009, 0.0), (0.0, 0.004)]);
    let attribution = experiment.attribution();
    let short = report::terminal(&attribution, false).terminal(80, false);
    let last: Vec<&str> = short.lines().rev().take(23).collect();
    assert!(last[0].starts_with("3 patches: "), "{short}");
    assert!(last.iter().any(|line| line.starts_with("1  ")), "{short}");
    let noise = "in a block";
    assert!(!short.contains(noise), "{short}");
    assert!(terminal(&attribution, 80, false).contains(noise));
    // Three wide columns do not make a table wider than the terminal.
    experiment.separate_points = vec![(Point::Alone(1), 1.01), (Point::Without(1), 1.02)];
    experiment.noise = 0.4;
    at_80(&experiment);
}

#[test]
fn one_slower() {
    let experiment = Experiment::new(&[(0.012, 0.01), (-0.009, 0.0), (0.0, 0.004)]);
    insta::assert_snapshot!(at_80(&experiment));
    insta::assert_snapshot!(markdown(&experiment.attribution()));
}

#[test]
fn unclear() {
    let mut experiment = Experiment::new(&[(0.004, 0.0), (-0.002, 0.0)]);
    experiment.noise = 0.015;
    insta::assert_snapshot!(at_80(&experiment));
    insta::assert_snapshot!(markdown(&experiment.attribution()));
}

#[test]
fn nothing_changed() {
    let mut experiment = Experiment::new(&[(0.0, 0.0), (0.0, 0.0)]);
    experiment.control = 0.0018;
    insta::assert_snapshot!(at_80(&experiment));
    insta::assert_snapshot!(markdown(&experiment.attribution()));
}

#[test]
fn slower_in_the_tail() {
    let mut experiment = Experiment::new(&[(0.012, 0.01), (0.0, 0.0)]);
    experiment.workloads = vec!["oltp_read_only"];
    experiment.stalled = Some(2);
    let attribution = experiment.attribution();
    assert!(attribution.is_regression());
    let verdicts: Vec<_> = attribution
        .patches
        .iter()
        .map(|p| {
            let effect = &p.effects[0];
            (effect.typical(), effect.verdict)
        })
        .collect();
    use perfquilt_judge::attribution::Verdict::{Faster, NoEffect, Slower};
    assert_eq!(verdicts, [(Faster, Faster), (NoEffect, Slower)]);
    insta::assert_snapshot!(at_80(&experiment));
    insta::assert_snapshot!(markdown(&attribution));
    // Faster and stalling at once.
    experiment.stalled = Some(1);
    let attribution = experiment.attribution();
    let first = &attribution.patches[0].effects[0];
    assert_eq!(first.verdict, perfquilt_judge::attribution::Verdict::Mixed);
    let text = terminal(&attribution, 80, false).replace("\n    ", " ");
    assert!(text.contains("faster typically, slower in the"), "{text}");
}

#[test]
fn failure_at_patch_3() {
    let mut experiment = Experiment::new(&[(0.01, 0.01), (0.01, 0.01), (0.0, 0.0), (0.01, 0.01)]);
    experiment.header.failed = BTreeMap::from([(
        Point::Step(3),
        "sql/sql_select.cc:4711: error: `foo` was not declared in this scope".into(),
    )]);
    experiment.workloads = vec!["oltp_read_only"];
    insta::assert_snapshot!(at_80(&experiment));
    insta::assert_snapshot!(markdown(&experiment.attribution()));
}

#[test]
fn identical_binary() {
    let mut experiment = Experiment::new(&[(0.01, 0.01), (0.0, 0.0), (0.02, 0.02)]);
    experiment.header.identical = BTreeMap::from([(Point::Step(2), Point::Step(1))]);
    experiment.workloads = vec!["oltp_read_only"];
    insta::assert_snapshot!(at_80(&experiment));
    insta::assert_snapshot!(markdown(&experiment.attribution()));
}

#[test]
fn hostile_names() {
    let mut experiment = Experiment::new(&[(-0.01, -0.01), (0.0, 0.0)]);
    experiment.header.series = vec![
        "0001-<img src=x onerror=alert(1)>|`@octocat`.patch".into(),
        "0002-\u{1b}[31mred\u{202e}.patch\n## owned".into(),
    ];
    experiment.header.titles = vec![
        "[x](http://evil.example) #12 GH-3 @octocat **bold** | cell".into(),
        "</details><script>alert(1)</script>".into(),
    ];
    experiment.header.machine =
        BTreeMap::from([("cpu".into(), "</details> @octocat\n# heading".into())]);
    experiment.workloads = vec!["a|b`c\u{7}", "*bold* <b>"];
    experiment.supplement.functions =
        vec![changed(1, "a|b`c\u{7}", "f<b>|`@octocat\u{1b}(int)", 0.5)];
    insta::assert_snapshot!(at_80(&experiment));
    let page = markdown(&experiment.attribution());
    for active in [
        "<img src=x onerror=alert(1)>|",
        "<script",
        "\u{1b}",
        "\u{202e}",
        "\n## owned",
    ] {
        assert!(!page.contains(active), "{active:?} in {page}");
    }
    insta::assert_snapshot!(page);
}

#[test]
fn unfinished() {
    let mut experiment = Experiment::new(&[(0.012, 0.01), (0.0, 0.0)]);
    experiment.blocks = 8;
    experiment.supplement.planned = experiment
        .workloads
        .iter()
        .flat_map(|workload| {
            [
                (workload, Meter::Time, 12),
                (workload, Meter::Instructions, 3),
            ]
        })
        .map(|(workload, meter, blocks)| PlannedBlocks::fixed(workload, meter, blocks))
        .collect();
    insta::assert_snapshot!(at_80(&experiment));
    experiment.blocks = 1;
    insta::assert_snapshot!(at_80(&experiment));
    experiment.blocks = 0;
    insta::assert_snapshot!(at_80(&experiment));
}

#[test]
fn no_patches_and_no_observations() {
    let experiment = Experiment::new(&[]);
    let empty =
        perfquilt_judge::attribution::attribute(&experiment.header, &[], &Meter::default_margin)
            .unwrap();
    let text = terminal(&empty, 80, false);
    assert!(text.contains("Nothing was measured"), "{text}");
    assert!(markdown(&empty).starts_with("## Nothing was measured"));
    assert!(json(&empty).ends_with("}\n"));
}

#[test]
fn colour_only_when_asked() {
    let attribution = Experiment::new(&[(0.01, 0.01)]).attribution();
    assert!(!terminal(&attribution, 80, false).contains('\u{1b}'));
    let coloured = terminal(&attribution, 80, true);
    assert!(coloured.contains("\u{1b}[32mfaster\u{1b}[0m"));
}

#[test]
fn any_width_shows_every_figure() {
    let attribution = Experiment::new(&[(0.012, 0.01), (0.02, 0.018)]).attribution();
    for columns in [0, 20, 60, 100, 500] {
        let text = terminal(&attribution, columns, false);
        assert_eq!(
            text.matches("faster").count(),
            terminal(&attribution, 80, false).matches("faster").count()
        );
    }
}

#[test]
fn the_method_is_that_of_the_measurement() {
    let mut attribution = Experiment::new(&[(0.01, 0.01)]).attribution();
    assert!(markdown(&attribution).contains("take turns every few milliseconds"));
    attribution.total[0].unpaired = true;
    let page = report::whole(&attribution, false, None).markdown();
    assert!(!page.contains("take turns"), "{page}");
    assert!(
        page.contains("A block starts every server afresh"),
        "{page}"
    );
    // Without a stored experiment, the report cannot suggest `run` or `report`.
    assert!(
        page.contains("\nperfquilt analyse FILE --format markdown --details\n"),
        "{page}"
    );
    assert!(
        !page.contains("perfquilt run") && !page.contains("perfquilt report"),
        "{page}"
    );
}

#[test]
fn short_markdown_keeps_what_a_verdict_rests_on() {
    let mut experiment = Experiment::new(&[(0.012, 0.01), (0.02, 0.018)]);
    experiment.separate_points = vec![(Point::Alone(1), 0.01), (Point::Alone(2), 0.02)];
    let mut attribution = experiment.attribution();
    let busy = Warning::preempted("the machine was busy");
    attribution.warnings.push(busy);
    attribution
        .failed
        .insert(Point::Step(2), "no room".to_owned());
    let short = report::short(&attribution, true).markdown();
    let whole = markdown(&attribution);
    for text in [
        "faster",
        "control (A/A)",
        "> the machine was busy",
        "no room",
        "by itself",
    ] {
        assert!(
            short.contains(text) && whole.contains(text),
            "{text}: {short}"
        );
    }
    let details = ["take turns every few milliseconds", "Noise"];
    assert!(details.iter().all(|text| whole.contains(text)), "{whole}");
    assert!(!details.iter().any(|text| short.contains(text)), "{short}");
    assert!(short.contains("`--details` adds"), "{short}");
}

#[test]
fn stale_figures_beside_the_series_are_reported() {
    let mut experiment = Experiment::new(&[(0.012, 0.01), (0.02, 0.018)]);
    experiment.separate_points = vec![(Point::Alone(1), 0.01), (Point::Alone(2), 0.02)];
    let mut attribution = experiment.attribution();
    let of_first = attribution.patches[0].effects.iter_mut();
    for effect in of_first.filter(|effect| effect.kind == EffectKind::Alone) {
        effect.provenance = Some(Provenance::Stale("quick-0".into()));
    }
    let text = terminal(&attribution, 80, false);
    assert!(text.contains("alone: measured in quick-0"), "{text}");
    let beside = PageContent {
        header: &experiment.header,
        observations: &[],
        distributions: &[],
        data: RawData::Command,
        document: &[],
        flame_graph: None,
    };
    let page = report::whole(&attribution, true, Some(&beside));
    let page = page.html().unwrap();
    assert_eq!(page.matches("<i><data ").count(), 2, "{page}");
}

#[test]
fn json_is_the_designed_document() {
    let attribution = Experiment::new(&[(0.012, 0.01)]).attribution();
    let value: serde_json::Value = serde_json::from_str(&json(&attribution)).unwrap();
    assert_eq!(value["schema"], 1);
    let effect = &value["patches"][0]["effects"][0];
    assert_eq!(value["patches"][0]["index"], 1);
    assert_eq!(effect["kind"], "in_order");
    assert_eq!(effect["workload"], "*");
    assert_eq!(effect["meter"], "time");
    assert_eq!(effect["verdict"], "faster");
    assert_eq!(effect["level"], 0.95);
    assert_eq!(effect["blocks"], 12);
    for field in ["estimate", "low", "high", "minimum_detectable"] {
        assert!(effect[field].is_f64(), "{field}");
    }
    assert_eq!(value["total"][0]["kind"], "total");
    assert_eq!(value["noise"]["control"][0]["contains_zero"], true);
}

proptest::proptest! {
    /// Reports succeed whatever is missing, failed or identical.
    #[test]
    fn any_part_of_an_experiment_can_be_reported(
        keep in proptest::collection::vec(proptest::bool::weighted(0.7), 400),
        failed in proptest::collection::btree_set(0usize..4, 0..3),
        identical in proptest::collection::btree_map(0usize..4, 0usize..4, 0..3),
    ) {
        let mut experiment = Experiment::new(&[(0.01, 0.01), (0.0, 0.0), (-0.01, 0.0)]);
        experiment.blocks = 4;
        let mut observations = experiment.observations();
        let mut keep = keep.into_iter().cycle();
        observations.retain(|_| keep.next() == Some(true));
        let header = &mut experiment.header;
        header.failed = failed.into_iter().map(|k| (Point::Step(k), "x".into())).collect();
        header.identical = identical
            .into_iter()
            .map(|(a, b)| (Point::Step(a), Point::Step(b)))
            .collect();
        let attribution =
            attribute_with(header, &observations, &experiment.supplement, &Meter::default_margin).unwrap();
        for patch in &attribution.patches {
            let in_order = patch.effects.iter().any(|effect| effect.workload != SUITE);
            proptest::prop_assert!(in_order || patch.reason.is_some() || patch.identical_to.is_some());
        }
        terminal(&attribution, 80, true);
        markdown(&attribution);
        json(&attribution);
    }
}

#[test]
fn a_workload_without_planned_blocks_does_not_count_for_the_blocks() {
    let experiment = Experiment::new(&[(0.012, 0.01)]);
    let mut attribution = experiment.attribution();
    let shown = terminal(&attribution, 80, true);
    assert!(shown.contains("blocks: 12 of"), "{shown}");
    let first = attribution
        .progress
        .iter_mut()
        .find(|p| p.meter == Meter::Time);
    let first = first.unwrap();
    (first.done, first.planned) = (0, Some(0));
    assert_eq!(terminal(&attribution, 80, true), shown);
}

#[test]
fn what_an_interval_promises_is_said() {
    let mut experiment = Experiment::new(&[(0.012, 0.01), (0.0, 0.0)]);
    let text = at_80(&experiment).replace('\n', " ");
    assert!(
        text.contains("± is the 95 % interval over blocks."),
        "{text}"
    );
    experiment.supplement.planned = experiment
        .workloads
        .iter()
        .map(|workload| PlannedBlocks {
            min_blocks: Some(10),
            resolution: Some(0.004),
            ..PlannedBlocks::fixed(workload, Meter::Time, 40)
        })
        .collect();
    let text = at_80(&experiment).replace('\n', " ");
    assert!(
        text.contains("ended when every interval was ±0.4 % or narrower, or after 40 blocks"),
        "{text}"
    );
    // The interval is still too wide, so it must hold at every look.
    for plan in &mut experiment.supplement.planned {
        plan.resolution = Some(0.000_1);
    }
    let text = at_80(&experiment).replace('\n', " ");
    assert!(
        text.starts_with("mariadb") && text.contains("After 12 of at most 40 blocks: "),
        "{text}"
    );
    assert!(
        text.contains("99 % interval that holds however often one looks"),
        "{text}"
    );
    for plan in &mut experiment.supplement.planned {
        *plan = PlannedBlocks {
            extended: true,
            windows: None,
            ..PlannedBlocks::fixed(&plan.workload, Meter::Time, 12)
        };
    }
    let text = at_80(&experiment).replace('\n', " ");
    assert!(
        text.contains("because the experiment was continued after its end"),
        "{text}"
    );
}

/// Every format shows a gain of instructions as fewer of them, and a gain of time as more speed.
#[test]
fn every_format_has_the_same_sign() {
    let attribution = Experiment::new(&[(0.05, 0.6), (-0.05, -0.02)]).attribution();
    let effect = |patch: usize, meter| {
        let patch = &attribution.patches[patch];
        attribution.main_effect(&patch.effects, EffectKind::InOrder, meter)
    };
    let fewer = effect(0, Meter::Instructions).unwrap();
    assert!(fewer.estimate > 0.8, "{}", fewer.estimate);
    let shown = number::effect(fewer, 3);
    assert!(shown.starts_with("−45.1"), "{shown}");
    let more = number::effect(effect(1, Meter::Instructions).unwrap(), 3);
    assert!(more.starts_with("+2.0"), "{more}");
    let faster = number::effect(effect(0, Meter::Time).unwrap(), 2);
    assert!(faster.starts_with("+5."), "{faster}");
    let data = ReportData::new(&attribution);
    for exporter in EXPORTERS {
        if !["terminal", "markdown"].contains(&exporter.name) {
            continue;
        }
        let text = exporter.export(&data).unwrap().text;
        let text = text.replace("**", "").replace('\u{a0}', " ");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for figure in [&shown, &more, &faster] {
            assert!(text.contains(figure.as_str()), "{figure}: {text}");
        }
        assert!(
            text.contains("instructions (− is fewer, which is better)"),
            "{text}"
        );
        assert!(!text.contains("+82."), "{text}");
    }
    // Programs get both, under different names.
    let json = serde_json::to_value(fewer).unwrap();
    assert_eq!(json["estimate"].as_f64(), Some(fewer.estimate));
    assert_eq!(json["change"]["of"], "instructions");
    let (low, high) = (
        json["change"]["low"].as_f64(),
        json["change"]["high"].as_f64(),
    );
    let change = json["change"]["estimate"].as_f64();
    assert!(low < change && change < high && high < Some(0.0), "{json}");
    let time = serde_json::to_value(effect(0, Meter::Time).unwrap()).unwrap();
    assert_eq!(time["change"]["of"], "speed");
    assert_eq!(time["change"]["estimate"], time["estimate"]);
    let csv = EXPORTERS.iter().find(|of| of.name == "csv").unwrap();
    let csv = csv.export(&data).unwrap().text;
    let mut rows = csv.lines().map(|line| line.rsplit(',').collect::<Vec<_>>());
    assert_eq!(
        rows.next().unwrap()[..4],
        ["change_high", "change_low", "change", "change_of"]
    );
    let counted = rows.filter(|row| row[3] == "instructions");
    let shown: Vec<f64> = counted.map(|row| row[2].parse().unwrap()).collect();
    assert!(shown.contains(&fewer.shown().estimate), "{shown:?}");
}

#[test]
fn a_headline_about_counts_is_about_their_number() {
    let mut experiment = Experiment::new(&[(0.0, 0.01)]);
    let counted = |experiment: &Experiment| {
        let mut observations = experiment.observations();
        observations.retain(|of| of.meter == Meter::Instructions);
        let (header, supplement) = (&experiment.header, &experiment.supplement);
        let attribution =
            attribute_with(header, &observations, supplement, &Meter::default_margin).unwrap();
        view::View::new(&attribution).headline(&str::to_owned)
    };
    let fewer = counted(&experiment);
    assert!(fewer.starts_with("The series takes 0.99"), "{fewer}");
    assert!(
        fewer.contains(" % fewer instructions (95 % interval 0.9"),
        "{fewer}"
    );
    experiment.gains = vec![(0.0, -0.01)];
    let more = counted(&experiment);
    assert!(
        more.contains(" % more instructions (95 % interval 0.9"),
        "{more}"
    );
    experiment.gains = vec![(0.0, 0.0)];
    let none = counted(&experiment);
    assert!(
        none.starts_with("The series has no effect on instructions beyond ±0.1 %"),
        "{none}"
    );
}
