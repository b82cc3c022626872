//! Tests of the stages of an experiment up to its first block, in a workspace of the toy server.

use std::collections::BTreeMap;

use super::attempt::{Attempt, ReusePolicy};
use super::design::Design;
use super::failed::Failed;
use super::identity::Facts;
use super::open::OpenExperiment;
use super::plan::Reading;
use super::planned::check_some_left;
use super::site::Site;
use super::spec::Spec;
use perfquilt_build::Built;
use perfquilt_config::Layouts;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::comparable::Comparable;
use perfquilt_model::error::{Error, Kind};
use perfquilt_model::observation::{ExperimentHeader, Meter};
use perfquilt_model::point::Point;
use perfquilt_store::Store;

/// A workspace with a store, and three built servers.
struct Fixture {
    folder: tempfile::TempDir,
    ws: Workspace,
    store: Store,
    points: Vec<(Point, Built)>,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let toy = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/toy");
        for file in [
            "bench-config/perfquilt.toml",
            "bench-config/workloads/requests.toml",
        ] {
            let copy = folder.path().join(file);
            std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
            std::fs::copy(std::path::Path::new(toy).join(file), copy).unwrap();
        }
        let cache = folder.path().join("cache");
        let built = |k: usize| {
            Built::existing(&format!("key-{k}"), format!("/{k}"), &format!("server {k}"))
        };
        Fixture {
            ws: Workspace::open_with_cache(folder.path(), cache).unwrap(),
            store: Store::open(&folder.path().join("results.db")).unwrap(),
            points: (0..3).map(|k| (Point::Step(k), built(k))).collect(),
            folder,
        }
    }

    fn spec(&self, site: Site, meters: &[Meter]) -> Result<Spec<'_>, Error> {
        let mut preset = self.ws.config.preset("quick").unwrap().clone();
        preset.meters = meters.to_vec();
        let mut header = ExperimentHeader::new("toy-1.0", "make");
        header.series = vec!["a.patch".into(), "b.patch".into()];
        Spec::resolve(&self.ws, &preset, site, Layouts::Off, header)
    }

    fn observed(&self, spec: &Spec<'_>) -> Comparable {
        let points = self.points.iter();
        spec.observed(points.map(|(point, built)| (*point, &*built.identity)))
            .unwrap()
    }

    fn attempt(&self, spec: &Spec<'_>, policy: ReusePolicy, time_unexecuted: bool) -> Attempt {
        let observed = self.observed(spec);
        Attempt::choose(spec, &observed, policy, time_unexecuted, &self.store).unwrap()
    }

    fn begin(&self, spec: &Spec<'_>, policy: ReusePolicy) -> Result<OpenExperiment<'_>, Error> {
        let attempt = self.attempt(spec, policy, false);
        let measured: Vec<Point> = self.points.iter().map(|(point, _)| *point).collect();
        let observed = self.observed(spec);
        OpenExperiment::begin(spec, attempt, &measured, &observed, &[], &self.store)
    }
}

fn site(cluster: Option<&str>) -> Site {
    let mut machine = BTreeMap::from([("processor".to_owned(), "p".to_owned())]);
    machine.extend(cluster.map(|words| ("cluster".to_owned(), words.to_owned())));
    Site {
        scheduler: None,
        facts: Facts {
            machine,
            meters: vec![Meter::Instructions],
            counter: "callgrind".to_owned(),
        },
    }
}

#[test]
fn a_spec_has_what_the_preset_names_and_the_site_can_read() {
    let fixture = Fixture::new();
    let meters = [Meter::Time, Meter::Instructions, Meter::Cycles];
    let mut spec = fixture.spec(site(Some("slurm")), &meters).unwrap();
    assert_eq!(spec.header.machine["cluster"], "slurm");
    spec.keep_readable().unwrap();
    let read: Vec<(String, Meter)> = spec
        .requested()
        .into_iter()
        .map(|plan| (plan.workload, plan.meter))
        .collect();
    let requests = "requests".to_owned();
    assert_eq!(
        read,
        [
            (requests.clone(), Meter::Time),
            (requests, Meter::Instructions)
        ]
    );
    let mut nothing = fixture.spec(site(None), &[Meter::Cycles]).unwrap();
    let error = nothing.keep_readable().unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
    // Any server has no counters of its own.
    assert!(fixture.spec(site(None), &[Meter::ServerReads]).is_err());
}

#[test]
fn values_of_a_cluster_are_stored_apart_and_measured_by_the_plan_of_a_machine() {
    let fixture = Fixture::new();
    let [here, there] = [None, Some("slurm")].map(|cluster| {
        let spec = fixture.spec(site(cluster), &[Meter::Time]).unwrap();
        fixture.attempt(&spec, ReusePolicy::Reuse, false)
    });
    assert_ne!(here.key, there.key);
    assert_eq!(here.seed, there.seed);
}

#[test]
fn a_finished_experiment_is_measured_again_under_the_next_key_only_where_that_is_asked_for() {
    let fixture = Fixture::new();
    let spec = fixture.spec(site(None), &[Meter::Time]).unwrap();
    let keys = |time_unexecuted| {
        use ReusePolicy::{Repeat, Reuse, Separate};
        [Reuse, Repeat, Separate].map(|policy| fixture.attempt(&spec, policy, time_unexecuted).key)
    };
    let [plain, fresh, separate] = keys(false);
    assert_eq!(fresh, format!("{plain} fresh"));
    assert_eq!(separate, fresh);
    let [timed_anyway, _, separate] = keys(true);
    assert_eq!(timed_anyway, format!("{plain} unexecuted"));
    assert_eq!(separate, fresh);
    let open = fixture.begin(&spec, ReusePolicy::Repeat).unwrap();
    fixture.store.finish(open.id).unwrap();
    drop(open);
    let [_, again, separate] = keys(false);
    assert_eq!(again, format!("{plain} fresh 2"));
    assert_eq!(separate, fresh);
}

#[test]
fn an_open_experiment_is_one_process_s_and_keeps_failures_until_they_are_forgotten() {
    let fixture = Fixture::new();
    let spec = fixture.spec(site(None), &[Meter::Time]).unwrap();
    let mut open = fixture.begin(&spec, ReusePolicy::Reuse).unwrap();
    let second = fixture.begin(&spec, ReusePolicy::Reuse);
    assert_eq!(second.err().map(|error| error.kind()), Some(Kind::Usage));
    let crash = BTreeMap::from([(Point::Step(1), Error::client_failed("crashed"))]);
    let mut failed = Failed::points(crash);
    let client = Error::client_failed("workload requests: the client exited with 1");
    failed
        .workloads
        .insert(("requests".to_owned(), Reading::Timed), client);
    let readings = &spec.readings;
    open.record_failures(&failed, readings).unwrap();
    let only = check_some_left(&failed, readings).unwrap_err();
    assert!(only.message().contains("the client exited"), "{only}");
    drop(open);
    let mut open = fixture.begin(&spec, ReusePolicy::Reuse).unwrap();
    let before = &open.failed_before[&Point::Step(1)];
    assert!(before.message().contains("crashed"), "{before}");
    assert!(open.header.failed.contains_key(&Point::Step(1)));
    assert!(open.header.has_failed("requests", Meter::Time));
    open.forget_failures().unwrap();
    drop(open);
    let open = fixture.begin(&spec, ReusePolicy::Reuse).unwrap();
    assert!(!open.has_failures() && open.header.failed.is_empty());
    assert!(fixture.folder.path().is_dir());
}

#[test]
fn a_fresh_question_is_told_no_failure_and_no_finished_calibration() {
    let mut fixture = Fixture::new();
    let fail = |fixture: &Fixture, policy| {
        let spec = fixture.spec(site(None), &[Meter::Time]).unwrap();
        let mut open = fixture.begin(&spec, policy).unwrap();
        let before = open.has_failures();
        let crash = BTreeMap::from([(Point::Step(1), Error::client_failed("crashed"))]);
        open.record_failures(&Failed::points(crash), &spec.readings)
            .unwrap();
        (before, open.id)
    };
    let calibration = |fixture: &Fixture| {
        let spec = fixture.spec(site(None), &[Meter::Time]).unwrap();
        fixture.attempt(&spec, ReusePolicy::Separate, false).key
    };
    // Not finished, so both go on with the same blocks.
    let (_, first) = fail(&fixture, ReusePolicy::Repeat);
    assert_eq!(fail(&fixture, ReusePolicy::Repeat), (true, first));
    fixture.ws = fixture.ws.clone().asking(true);
    assert_eq!(fail(&fixture, ReusePolicy::Repeat), (false, first));
    let key = calibration(&fixture);
    fixture.store.finish(first).unwrap();
    assert_eq!(calibration(&fixture), format!("{key} 2"));
    fail(&fixture, ReusePolicy::Separate);
    // Without the option, the last one holds.
    fixture.ws = fixture.ws.clone().asking(false);
    assert_eq!(calibration(&fixture), format!("{key} 2"));
}

#[test]
fn a_design_plans_so_many_blocks_of_all_points_and_an_end_to_end_check() {
    let fixture = Fixture::new();
    let spec = fixture.spec(site(None), &[Meter::Time]).unwrap();
    let observed = fixture.observed(&spec);
    let all: Vec<Point> = fixture.points.iter().map(|(point, _)| *point).collect();
    let design = Design::new(&spec, &observed, all.clone(), true);
    let blocks = design.blocks(7, 1, 6);
    let of_all = blocks.iter().filter(|block| !block.is_end_to_end());
    assert_eq!(of_all.count(), 6);
    let end_to_end = blocks.iter().find(|block| block.is_end_to_end()).unwrap();
    let mut points = end_to_end.points.clone();
    points.sort_unstable();
    assert_eq!(points, [Point::BASE, Point::Step(2)]);
    let without = Design::new(&spec, &observed, all, false);
    assert!(
        without
            .blocks(7, 1, 6)
            .iter()
            .all(|block| !block.is_end_to_end())
    );
    assert_eq!(design.planned(6, None)[0].blocks, 6);
}
