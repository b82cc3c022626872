use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};

use rusqlite::Connection;

use super::*;
use perfquilt_model::comparable::{Comparable, Part};
use perfquilt_model::error::Kind;
use perfquilt_model::observation::{
    HostSample, Meter, ObservationFile, Supplement, WithinBlockError,
};

mod files;

fn header(patches: usize) -> ExperimentHeader {
    ExperimentHeader {
        schema: 1,
        experiment: "quick-1".into(),
        series: (1..=patches).map(|k| format!("{k:04}-x.patch")).collect(),
        titles: Vec::new(),
        release: "mariadb-10.11.18".into(),
        recipe: "quick".into(),
        base: None,
        machine: BTreeMap::from([("cores".into(), "2".into())]),
        harness: "perfquilt test".into(),
        identical: BTreeMap::from([(Point::Step(2), Point::Step(1))]),
        line_numbers: [Point::Step(3)].into(),
        unread: Default::default(),
        failed: BTreeMap::from([(Point::Step(3), "does not compile".into())]),
        start_timeouts: BTreeMap::from([(Point::Step(3), 60.0)]),
        failed_workloads: Vec::new(),
        command: None,
        commit: None,
        bundle: None,
        started: "2026-01-02T03:04:05Z".into(),
        reused: Vec::new(),
    }
}

fn observation(block: u32, point: usize) -> Observation {
    Observation {
        experiment: "quick-1".into(),
        order: u32::try_from(point).unwrap(),
        layout: u64::MAX - 5,
        n: 400,
        ..Observation::new(
            block,
            Point::Step(point),
            "oltp",
            Meter::Time,
            91_823.4 + f64::from(block) / 3.0,
        )
    }
}

fn blob(block: u32, point: usize) -> SliceBlob {
    SliceBlob {
        block,
        workload: "oltp".into(),
        point: Point::Step(point),
        direct: false,
        transactions_per_slice: 2,
        values: (0..64u8)
            .map(|round| {
                1000.0 + f32::from(round) + f32::from(u8::try_from(point).unwrap() ^ round)
            })
            .collect(),
    }
}

/// Returns a store in a new folder, and the folder, which exists as long as the second value.
fn fresh() -> (Store, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("deep/results.db")).unwrap();
    (store, folder)
}

fn file(folder: &tempfile::TempDir) -> std::path::PathBuf {
    folder.path().join("deep/results.db")
}

#[test]
fn what_is_stored_comes_back() {
    let (store, folder) = fresh();
    let id = store.begin(&header(3), "key").unwrap();
    // Ordered as they were measured.
    let mut block = [observation(0, 1), observation(0, 0)];
    (block[0].order, block[1].order) = (0, 1);
    store.append(id, &block, &[blob(0, 0), blob(0, 1)]).unwrap();
    drop(store);
    let store = Store::open_existing(&file(&folder)).unwrap();
    let (found, observations) = store.load(id).unwrap();
    assert_eq!(found, header(3));
    assert_eq!(observations, block);
    let slices = store.slices(id, "oltp", 0).unwrap();
    assert_eq!(slices.len(), 2);
    assert_eq!(slices[1].values, blob(0, 1).values);
    assert_eq!(slices[1].transactions_per_slice, 2);
    assert_eq!(
        store.blocks_done(id, "oltp", Meter::Time, false).unwrap(),
        [0]
    );
    assert!(
        store
            .blocks_done(id, "oltp", Meter::Cpu, false)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_block_without_its_checksum_is_damaged() {
    let (store, folder) = fresh();
    let id = store.begin(&header(3), "key").unwrap();
    store
        .append(id, &[observation(0, 0)], &[blob(0, 0)])
        .unwrap();
    assert_eq!(store.load(id).unwrap().1.len(), 1);
    let connection = Connection::open(file(&folder)).unwrap();
    connection
        .execute_batch("DELETE FROM checksums; DELETE FROM slice_checksums")
        .unwrap();
    let error = store.load(id).unwrap_err();
    assert!(error.message().contains("is damaged"), "{error}");
}

/// Reads the header and all that is known of an experiment beside its values.
fn read_facts(store: &Store, id: ExperimentId) -> Result<(), Error> {
    let header = store.header(id)?;
    store.supplement(id)?;
    store.durations(id)?;
    store.observed(id, &header)?;
    store.tests(id)?;
    store.execution("abc").map(drop)
}

#[test]
fn a_flipped_bit_of_a_header_or_fact_is_an_error() {
    let (store, folder) = fresh();
    let id = store.begin(&header(3), "key").unwrap();
    let planned = [PlannedBlocks::fixed("oltp", Meter::Time, 3)];
    store.plan(id, &planned).unwrap();
    let build = PointBuild {
        key: "abc".into(),
        ..PointBuild::default()
    };
    store.record_builds(id, &[build]).unwrap();
    store
        .record_tests([("abc", &TestRecord::default())])
        .unwrap();
    store.record_execution("abc", true).unwrap();
    store.record_unexecuted(id, &[]).unwrap();
    let observed = Comparable::default().with(Part::Program(Point::BASE), "a");
    store.record_observed(id, &observed).unwrap();
    let duration = BlockDuration {
        counted: false,
        direct: false,
        block: 0,
        servers: 2,
        workloads: 1,
        lanes: 1,
        slices: 1.0,
        seconds: 2.0,
    };
    store.record_duration(id, &duration).unwrap();
    let conditions = BlockConditions {
        workload: "oltp".into(),
        direct: false,
        block: 0,
        sample: None,
        discarded_rounds: 4,
    };
    let result = BlockResult {
        conditions: Some(&conditions),
        ..BlockResult::default()
    };
    store.append_block(id, &result).unwrap();
    read_facts(&store, id).unwrap();

    let connection = Connection::open(file(&folder)).unwrap();
    let mut tried = 0;
    for (table, column) in [("experiments", "header"), ("facts", "value")] {
        let sql = format!("SELECT {column} FROM {table}");
        let mut statement = connection.prepare(&sql).unwrap();
        let all = statement.query_map([], |row| row.get(0)).unwrap();
        let all: Vec<String> = all.map(Result::unwrap).collect();
        let sql = format!("UPDATE {table} SET {column} = ?1 WHERE {column} = ?2");
        for whole in &all {
            for place in 0..whole.len() {
                let mut flipped = whole.clone().into_bytes();
                flipped[place] ^= 1 << (place % 7);
                let text = String::from_utf8(flipped).unwrap();
                connection.execute(&sql, [&text, whole]).unwrap();
                assert!(read_facts(&store, id).is_err(), "byte {place} of {whole}");
                connection.execute(&sql, [whole, &text]).unwrap();
                tried += 1;
            }
        }
        read_facts(&store, id).unwrap();
    }
    assert!(tried > 1000, "{tried}");
    // A flipped bit in a key hides a fact, or makes it appear under another key.
    let mut statement = connection
        .prepare("SELECT kind, name FROM facts WHERE kind <> 'execution' AND kind <> 'results of tests' AND experiment = 1")
        .unwrap();
    let all = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    let all: Vec<(String, String)> = all.unwrap().map(Result::unwrap).collect();
    for (kind, name) in &all {
        for (moved, whole) in [
            ("experiment = 9", "experiment = 1"),
            ("name = 'x'", "name = ?2"),
            ("kind = 'x'", "kind = ?1"),
        ] {
            let is = "experiment IN (1, 9) AND kind IN (?1, 'x') AND name IN (?2, 'x')";
            let update = |set: &str| {
                let sql = format!("UPDATE facts SET {set} WHERE {is}");
                connection.execute(&sql, [kind, name]).unwrap()
            };
            assert_eq!(update(moved), 1);
            let error = read_facts(&store, id);
            let error = error.expect_err(&format!("{moved} of {kind} `{name}`"));
            assert_eq!(error.kind(), Kind::Internal);
            update(whole);
        }
    }
    read_facts(&store, id).unwrap();
}

/// One flipped bit in any part of a block is an error that names the block and the command that measures it again.
#[test]
fn a_flipped_bit_is_an_error_with_the_blocks_name() {
    let (store, folder) = fresh();
    let id = store.begin(&header(3), "key").unwrap();
    for block in 0..3 {
        let values = [observation(block, 0), observation(block, 1)];
        let slices = [blob(block, 0), blob(block, 1)];
        store.append(id, &values, &slices).unwrap();
    }
    drop(store);
    let whole = file(&folder);
    let flips = [
        "UPDATE observations SET value = value + 0.000000001 * value",
        "UPDATE observations SET n = n | 1024",
        "UPDATE observations SET layout = layout + 65536",
        "UPDATE observations SET position = position + 4",
        "UPDATE observations SET mean = 1.0",
        "UPDATE observations SET stalled = 0.5",
        "UPDATE observations SET lane = 2",
        "UPDATE observations SET machine = 'x'",
        "UPDATE observations SET block = 18",
        "DELETE FROM observations",
        "UPDATE slices SET slice_values = x'0000803f00000041'",
        "UPDATE slices SET transactions = transactions + 1",
        "UPDATE slices SET block = 18",
        "DELETE FROM slices",
        "UPDATE checksums SET digest = x'00'",
        "UPDATE slice_checksums SET digest = x'00'",
    ];
    for (number, flip) in flips.iter().enumerate() {
        let path = folder.path().join(format!("{number}.db"));
        std::fs::copy(&whole, &path).unwrap();
        let read = || {
            let store = Store::open_existing(&path)?;
            let id = store.find("quick-1")?;
            store.load(id)?;
            for (workload, block) in store.slice_blocks(id)? {
                store.slices(id, &workload, block)?;
            }
            Ok::<(), Error>(())
        };
        read().unwrap();
        let one = if flip.contains("checksums") {
            ""
        } else {
            " AND point = '1'"
        };
        let connection = Connection::open(&path).unwrap();
        let sql = format!("{flip} WHERE block = 1{one}");
        // A deleted block is gone with all its points.
        let sql = if flip.starts_with("DELETE") {
            format!("{flip} WHERE block = 1")
        } else {
            sql
        };
        assert!(connection.execute(&sql, []).unwrap() > 0, "{flip}");
        drop(connection);
        let error = read().unwrap_err();
        assert_eq!(error.kind(), Kind::Internal, "{flip}: {error}");
        assert!(
            error.message().contains("block 1 of oltp"),
            "{flip}: {error}"
        );
        assert!(
            error.hint_text().unwrap().contains("perfquilt run --fresh"),
            "{flip}"
        );
    }
}

#[test]
fn direct_blocks_are_numbered_apart() {
    let (store, _folder) = fresh();
    let id = store.begin(&header(3), "key").unwrap();
    store
        .append(id, &[observation(0, 0)], &[blob(0, 0)])
        .unwrap();
    let mut direct = observation(0, 0);
    direct.direct = true;
    let mut slices = blob(0, 0);
    slices.direct = true;
    store.append(id, &[direct.clone()], &[slices]).unwrap();
    assert!(store.append(id, &[direct.clone()], &[]).is_err());
    assert_eq!(
        store.blocks_done(id, "oltp", Meter::Time, true).unwrap(),
        [0]
    );
    assert_eq!(store.load(id).unwrap().1, [observation(0, 0), direct]);
    assert_eq!(store.slices(id, "oltp", 0).unwrap().len(), 1);
}

#[test]
fn observations_of_earlier_experiments_come_with_their_own_points() {
    let (store, _folder) = fresh();
    let old = store.begin(&header(3), "old").unwrap();
    let mut unwanted = observation(0, 1);
    unwanted.workload = "other".into();
    let mut operation = observation(0, 1);
    operation.workload = "oltp/commit".into();
    let block = [observation(0, 0), observation(0, 1), operation, unwanted];
    store.append(old, &block, &[]).unwrap();
    let observed = Comparable::of(&store.header(old).unwrap())
        .with(Part::Program(Point::BASE), "a")
        .with(Part::Program(Point::Step(1)), "b")
        .with(Part::Workload("oltp".into()), "w")
        .with(Part::Seconds("oltp".into()), "2");
    store.record_observed(old, &observed).unwrap();
    assert_eq!(store.earlier("mariadb-10.11.18").unwrap(), []);
    store.finish(old).unwrap();
    let earlier = store.earlier("mariadb-10.11.18").unwrap();
    assert_eq!(earlier[0].observed, observed);
    let points: Vec<Point> = earlier[0].measured.keys().copied().collect();
    assert_eq!(points, [Point::BASE, Point::Step(1)]);
    let blocks = &earlier[0].measured[&Point::BASE];
    assert_eq!(blocks[&("oltp".to_owned(), Meter::Time)], 1);
    assert_eq!(store.earlier("other").unwrap(), []);

    // It requests the name of the earlier one and gets another.
    let mut new = header(3);
    new.reused = vec![perfquilt_model::observation::ReusedFrom {
        experiment: "quick-1".into(),
        started: String::new(),
        points: BTreeMap::from([(Point::BASE, Point::BASE), (Point::Step(3), Point::Step(1))]),
        stale: None,
    }];
    let id = store.begin(&new, "new").unwrap();
    assert_eq!(store.header(id).unwrap().experiment, "quick-1-2");
    assert_eq!(
        store.header_of_key("new").unwrap().unwrap().reused,
        new.reused
    );
    assert_eq!(store.header_of_key("none").unwrap(), None);
    let plan = [PlannedBlocks::fixed("oltp", Meter::Time, 0)];
    store.plan(id, &plan).unwrap();
    let (_, observations) = store.load(id).unwrap();
    let told: Vec<(&str, &str, Point)> = observations
        .iter()
        .map(|o| (o.experiment.as_str(), o.workload.as_str(), o.point))
        .collect();
    assert_eq!(
        told,
        [
            ("quick-1", "oltp", Point::BASE),
            ("quick-1", "oltp", Point::Step(3)),
            ("quick-1", "oltp/commit", Point::Step(3)),
        ]
    );
    // An observation file of it is complete, too.
    let written = ObservationFile {
        header: store.header(id).unwrap(),
        supplement: Supplement::default(),
        observations,
    };
    let mut bytes = Vec::new();
    written.write(&mut bytes).unwrap();
    let file = jsonl::read(&bytes[..], "f".as_ref()).unwrap();
    assert_eq!(file.observations, written.observations);
    assert_eq!(file.header.reused, new.reused);
}

#[test]
fn the_same_key_goes_on_and_another_begins() {
    let (store, _folder) = fresh();
    let first = store.begin(&header(3), "a").unwrap();
    let second = store.begin(&header(3), "b").unwrap();
    assert_ne!(first, second);
    assert_eq!(store.header(second).unwrap().experiment, "quick-1-2");
    assert_eq!(store.latest().unwrap(), Some(second));

    let mut later = header(3);
    later.started = "2027-01-01T00:00:00Z".into();
    later.failed.clear();
    assert_eq!(store.begin(&later, "a").unwrap(), first);
    let kept = store.header(first).unwrap();
    assert_eq!(kept.started, "2026-01-02T03:04:05Z");
    assert!(kept.failed.is_empty());
    assert_eq!(store.latest().unwrap(), Some(first));
    assert_eq!(store.list().unwrap().len(), 2);
    assert_eq!(store.find("quick-1-2").unwrap(), second);
    let error = store.find("quick-1-3").unwrap_err();
    assert!(error.hint_text().unwrap().contains("quick-1-2"));
}

#[test]
fn observations_carry_the_experiments_own_name() {
    let (store, _folder) = fresh();
    store.begin(&header(3), "a").unwrap();
    let second = store.begin(&header(3), "b").unwrap();
    store.append(second, &[observation(0, 0)], &[]).unwrap();
    let (header, observations) = store.load(second).unwrap();
    assert_eq!(observations[0].experiment, header.experiment);
}

#[test]
fn a_block_is_stored_whole_or_not_at_all() {
    let (store, _folder) = fresh();
    let id = store.begin(&header(3), "key").unwrap();
    store
        .append(id, &[observation(0, 0)], &[blob(0, 0)])
        .unwrap();
    // The second observation exists already, the third is not a cost.
    let again = [observation(1, 0), observation(0, 0)];
    let error = store.append(id, &again, &[blob(1, 0)]).unwrap_err();
    assert!(error.message().contains("already has point 0"), "{error}");
    let mut wrong = observation(2, 1);
    wrong.value = f64::NAN;
    assert!(store.append(id, &[observation(2, 0), wrong], &[]).is_err());
    assert_eq!(store.load(id).unwrap().1.len(), 1);
    assert!(store.slices(id, "oltp", 1).unwrap().is_empty());
    let functions = [PointFunctions {
        workload: "oltp".into(),
        block: 1,
        point: Point::BASE,
        functions: BTreeMap::from([("f".into(), 3.0)]),
    }];
    let with = |observations| BlockResult {
        observations,
        functions: &functions,
        ..BlockResult::default()
    };
    assert!(store.append_block(id, &with(&again)).is_err());
    assert!(store.functions(id).unwrap().is_empty());
    store.append_block(id, &with(&again[..1])).unwrap();
    assert_eq!(store.functions(id).unwrap(), functions);
}

#[test]
fn what_is_not_executed_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("results.db")).unwrap();
    let id = store
        .begin(&ExperimentHeader::new("toy-1", "quick"), "k")
        .unwrap();
    assert!(store.unexecuted(id).unwrap().is_empty());
    let patches = [UnexecutedPatch {
        point: Point::Step(2),
        against: Point::BASE,
        workload: "w".into(),
        functions: 3,
    }];
    store.record_unexecuted(id, &patches).unwrap();
    assert_eq!(store.supplement(id).unwrap().unexecuted, patches);
    store.record_unexecuted(id, &[]).unwrap();
    assert!(store.unexecuted(id).unwrap().is_empty());
    assert_eq!(store.execution("a").unwrap(), None);
    for executed in [true, false] {
        store.record_execution("a", executed).unwrap();
        assert_eq!(store.execution("a").unwrap(), Some(executed));
    }
}

#[test]
fn supplements_come_back() {
    let (store, _folder) = fresh();
    let id = store.begin(&header(3), "key").unwrap();
    let planned = vec![
        PlannedBlocks::fixed("oltp", Meter::Instructions, 3),
        PlannedBlocks {
            min_blocks: Some(10),
            resolution: Some(0.005),
            extended: true,
            ended: true,
            windows: None,
            wave: None,
            ..PlannedBlocks::fixed("oltp", Meter::Time, 12)
        },
    ];
    store.plan(id, &planned).unwrap();
    store.plan(id, &planned).unwrap();
    let build = |cached: bool, compile: f64| PointBuild {
        point: Point::Step(1),
        key: "abc".into(),
        configure: 39.0,
        compile,
        link: 4.0,
        overhead: 0.5,
        units: 860,
        cached,
        code_bytes: Some(11_263_440),
        profile: None,
    };
    store.record_builds(id, &[build(false, 1338.0)]).unwrap();
    store.record_builds(id, &[build(true, 0.0)]).unwrap();
    for block in 0..2 {
        let observations = [observation(block, 0), observation(block, 1)];
        let slices = [blob(block, 0), blob(block, 1)];
        store.append(id, &observations, &slices).unwrap();
    }
    let host_sample = HostSample {
        seconds: 2.5,
        began: 1.0,
        steal: 0.01,
        idle: 0.5,
        preempted: 5,
        major_faults: 1,
        minor_faults: 8,
        mhz: Some((2000.0, 2500.0)),
        throttled: 0.5,
        standstills: 3,
    };
    for (direct, steal) in [(false, 0.01), (true, 0.03), (true, 0.05)] {
        let conditions = BlockConditions {
            workload: "oltp".into(),
            direct,
            block: 0,
            sample: Some(HostSample {
                steal,
                ..host_sample
            }),
            discarded_rounds: 4,
        };
        let result = BlockResult {
            conditions: Some(&conditions),
            ..BlockResult::default()
        };
        store.append_block(id, &result).unwrap();
    }
    let supplement = store.supplement(id).unwrap();
    let conditions = &supplement.conditions[0];
    assert_eq!((conditions.blocks, conditions.mhz), (2, host_sample.mhz));
    assert!((conditions.steal.mean - 0.03).abs() < 1e-12);
    assert_eq!(conditions.steal.worst, 0.05);
    assert_eq!((conditions.preempted, conditions.major_faults), (2.0, 2));
    assert_eq!(
        (conditions.throttled.mean, conditions.standstills),
        (0.2, 6)
    );
    let spoiled = &supplement.left_out[0];
    assert_eq!((spoiled.count, spoiled.meter), (8, Meter::Time));
    assert_eq!(supplement.planned, planned);
    assert_eq!(supplement.builds, [build(true, 1338.0)]);
}

#[test]
fn no_results_yet() {
    let folder = tempfile::tempdir().unwrap();
    let error = Store::open_existing(&folder.path().join("results.db")).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
    assert!(!folder.path().join("results.db").exists());
}

#[test]
fn files_that_are_not_ours_are_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text.db");
    std::fs::write(
        &text,
        "not a database, but long enough to look like one\n".repeat(99),
    )
    .unwrap();
    let error = Store::open(&text).unwrap_err();
    assert!(error.code().to_string() == "PQ0705", "{error}");

    let foreign = folder.path().join("foreign.db");
    Connection::open(&foreign)
        .unwrap()
        .execute_batch("CREATE TABLE t (x)")
        .unwrap();
    let before = std::fs::read(&foreign).unwrap();
    let error = Store::open(&foreign).unwrap_err();
    assert!(error.message().contains("another program"), "{error}");
    assert_eq!(std::fs::read(&foreign).unwrap(), before);
}

#[test]
fn a_file_of_another_version_is_refused_with_its_export_and_not_touched() {
    let (store, folder) = fresh();
    drop(store);
    for (version, age) in [(99, "a newer"), (1, "an older")] {
        Connection::open(file(&folder))
            .unwrap()
            .pragma_update(None, "user_version", version)
            .unwrap();
        let before = std::fs::read(file(&folder)).unwrap();
        let error = Store::open(&file(&folder)).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        assert!(error.message().contains(age), "{error}");
        let hint = error.hint_text().unwrap();
        assert!(hint.contains("report NAME --format jsonl"), "{hint}");
        assert_eq!(std::fs::read(file(&folder)).unwrap(), before);
    }
}

#[test]
fn damage_is_told() {
    let (store, folder) = fresh();
    let id = store.begin(&header(3), "key").unwrap();
    for block in 0..40 {
        store
            .append(id, &[observation(block, 0)], &[blob(block, 0)])
            .unwrap();
    }
    drop(store);
    let mut bytes = std::fs::read(file(&folder)).unwrap();
    for byte in &mut bytes[4096..] {
        *byte = 0xa5;
    }
    std::fs::write(file(&folder), bytes).unwrap();
    let error = Store::open(&file(&folder))
        .and_then(|store| store.list())
        .unwrap_err();
    assert!(error.message().contains("is damaged"), "{error}");
    assert!(error.hint_text().is_some());
}

#[test]
fn a_header_that_was_tampered_with_is_told() {
    let (store, _folder) = fresh();
    let id = store.begin(&header(3), "key").unwrap();
    store
        .database
        .connection
        .execute("UPDATE experiments SET header = '{}'", [])
        .unwrap();
    let error = store.load(id).unwrap_err();
    assert!(error.message().contains("is damaged"), "{error}");
}

#[test]
fn a_full_disk_is_told_and_loses_nothing() {
    let (store, _folder) = fresh();
    let id = store.begin(&header(3), "key").unwrap();
    store
        .append(id, &[observation(0, 0)], &[blob(0, 0)])
        .unwrap();
    store
        .database
        .connection
        .pragma_update(None, "max_page_count", 1)
        .unwrap();
    let mut large = blob(1, 0);
    large.values = vec![1.0; 100_000];
    let error = store
        .append(id, &[observation(1, 0)], &[large])
        .unwrap_err();
    assert!(error.message().contains("disk is full"), "{error}");
    assert_eq!(store.load(id).unwrap().1, [observation(0, 0)]);
}

#[test]
fn a_folder_that_cannot_be_made_or_written_is_told() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    assert!(Store::open(&folder.path().join("file/results.db")).is_err());
    // A folder of the kernel where no process may create files.
    let error = Store::open("/proc/self/results.db".as_ref()).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage, "{error}");
    assert!(error.hint_text().unwrap().contains("writable"));
}

#[test]
fn a_frozen_database_can_still_be_read() {
    let (store, folder) = fresh();
    let id = store.begin(&header(3), "key").unwrap();
    store.append(id, &[observation(0, 0)], &[]).unwrap();
    drop(store);
    let connection = schema::open_frozen(&schema::RESULTS, &file(&folder), false).unwrap();
    let store = Store {
        database: Database {
            kind: &schema::RESULTS,
            connection,
            path: file(&folder),
        },
        current: Default::default(),
    };
    assert_eq!(store.load(id).unwrap().1.len(), 1);
    let error = store.append(id, &[observation(1, 0)], &[]).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage, "{error}");
}

#[test]
fn a_frozen_database_is_read_whatever_its_folder_is_called() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jürgen 100%?#/results.db");
    drop(Store::open(&path).unwrap());
    assert!(schema::open_frozen(&schema::RESULTS, &path, false).is_some());
}

/// Two processes share a database: the second waits for the first.
#[test]
fn writers_wait_for_each_other() {
    let (store, folder) = fresh();
    let id = store.begin(&header(3), "key").unwrap();
    let path = file(&folder);
    let other = std::thread::spawn(move || {
        let store = Store::open(&path).unwrap();
        for block in 0..50 {
            store.append(id, &[observation(block, 0)], &[]).unwrap();
        }
    });
    for block in 50..100 {
        store.append(id, &[observation(block, 0)], &[]).unwrap();
    }
    other.join().unwrap();
    assert_eq!(
        store
            .blocks_done(id, "oltp", Meter::Time, false)
            .unwrap()
            .len(),
        100
    );
}

/// Starts the test's own program again as the process to kill; it reports each stored block.
#[test]
fn killed_while_appending() {
    const CHILD: &str = "PERFQUILT_TEST_APPEND_TO";
    const POINTS: usize = 3;
    let name = "tests::killed_while_appending";
    if let Some(path) = std::env::var_os(CHILD) {
        let store = Store::open(Path::new(&path)).unwrap();
        let id = store.begin(&header(3), "key").unwrap();
        let done = store.blocks_done(id, "oltp", Meter::Time, false).unwrap();
        for block in (0..).filter(|block| !done.contains(block)) {
            let observations = [0, 1, 2].map(|point| observation(block, point));
            let slices = [0, 1, 2].map(|point| blob(block, point));
            store.append(id, &observations, &slices).unwrap();
            writeln!(std::io::stdout(), "\nstored {block}").unwrap();
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.db");
    for round in 0..5u32 {
        let program = std::env::current_exe().unwrap();
        let mut child = perfquilt_system::process::Command::new(program)
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, &path)
            .stdout(perfquilt_system::process::Sink::Pipe)
            .spawn()
            .unwrap();
        // The last block that the child reports before it is killed; it is busy with a later one by then.
        let told = BufReader::new(child.take_stdout().unwrap())
            .lines()
            .map_while(Result::ok)
            .filter_map(|line| line.strip_prefix("stored ")?.parse::<u32>().ok())
            .nth(7)
            .unwrap();
        child.kill().unwrap();
        let store = Store::open(&path).unwrap();
        let id = store.latest().unwrap().unwrap();
        let blocks = store.blocks_done(id, "oltp", Meter::Time, false).unwrap();
        assert!(
            blocks.contains(&told),
            "round {round}: {told} of {blocks:?}"
        );
        let (_, observations) = store.load(id).unwrap();
        assert_eq!(observations.len(), blocks.len() * POINTS);
        for block in blocks {
            assert_eq!(store.slices(id, "oltp", block).unwrap().len(), POINTS);
        }
    }
}
