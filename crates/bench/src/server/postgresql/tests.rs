//! Tests with the PostgreSQL of the machine's Debian.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::tests::setup;
use super::client::Client;
use super::*;
use crate::server::Scratch;
use perfquilt_system::process::process_tree;
use perfquilt_testkit::eventually;

/// Returns the folder of the newest installed server.
fn installed() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").expect("the package `postgresql`");
    let mut versions: Vec<PathBuf> = versions.flatten().map(|entry| entry.path()).collect();
    versions.sort();
    versions.pop().expect("a server below /usr/lib/postgresql")
}

struct World {
    base: tempfile::TempDir,
    scratch: Scratch,
    adapter: Postgresql,
}

impl World {
    fn new() -> Self {
        let base = tempfile::tempdir().unwrap();
        let scratch = Scratch::within(&base.path().join("run")).unwrap();
        let adapter = Postgresql {
            settings: Settings::default(),
            setup: setup(base.path(), 60.0),
            config: None,
        };
        World {
            base,
            scratch,
            adapter,
        }
    }

    fn start(&self, template: Option<&Path>) -> Running {
        let (server, dir) = (installed(), self.scratch.fresh().unwrap());
        let mut launch = Launch::new("1 (0001-x.patch)", &server, &dir);
        launch.template = template;
        self.adapter.start(&launch).unwrap()
    }
}

fn connect(running: &Running) -> Client {
    Client::connect(&running.endpoint.socket, "postgres").unwrap()
}

fn alive(pid: &u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

fn shared_memory() -> usize {
    let segments = std::fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    segments.lines().count()
}

#[test]
fn data_outlives_a_clean_stop_and_a_killed_server_leaves_nothing() {
    let world = World::new();
    let segments = shared_memory();
    let mut running = world.start(None);
    connect(&running)
        .query("CREATE TABLE t AS SELECT 1 AS one; INSERT INTO t VALUES (NULL)")
        .unwrap();
    world.adapter.settle(&mut running).unwrap();
    let data = running.stop_cleanly().unwrap();
    let running = world.start(Some(&data));
    let mut client = connect(&running);
    let rows = client.query("SELECT one, 'x' FROM t ORDER BY one").unwrap();
    let x = Some("x".to_owned());
    assert_eq!(rows, [[Some("1".to_owned()), x.clone()], [None, x]]);
    let settled = "SELECT relallvisible, reltuples FROM pg_class WHERE relname = 't'";
    let (pages, rows) = (Some("1".to_owned()), Some("2".to_owned()));
    assert_eq!(client.query(settled).unwrap(), [[pages, rows]]);
    // The open session runs in a process of its own session.
    let members = process_tree(running.pid());
    assert!(members.len() > 2, "{members:?}");
    running.stop().unwrap();
    assert!(eventually(|| !members.iter().any(alive)), "{members:?}");
    assert!(shared_memory() <= segments);
}

#[test]
fn a_crashed_session_ends_the_server_and_the_error_shows_its_log() {
    let world = World::new();
    let mut running = world.start(None);
    let mut client = connect(&running);
    let rows = client.query("SELECT pg_backend_pid()").unwrap();
    let session: i32 = rows[0][0].as_ref().unwrap().parse().unwrap();
    let session = rustix::process::Pid::from_raw(session).unwrap();
    rustix::process::kill_process(session, rustix::process::Signal::SEGV).unwrap();
    let lost = client.query("SELECT 1").unwrap_err();
    let error = running.explain(lost);
    let text = error.to_string() + &error.detail_lines().concat();
    assert!(text.contains("server of 1 (0001-x.patch)"), "{text}");
    assert!(text.contains("terminated by signal 11"), "{text}");
    assert!(error.hint_text().unwrap().contains("server-1"), "{error}");
}

#[test]
fn the_time_of_a_session_is_the_servers() {
    let world = World::new();
    let running = world.start(None);
    let mut client = connect(&running);
    let before = running.processor_time().unwrap();
    let work = "SELECT count(*) FROM generate_series(1, 1000000)";
    client.query(work).unwrap();
    let worked = running.processor_time().unwrap();
    assert!(worked > before + Duration::from_millis(20), "{worked:?}");
    drop(client);
    // The session's process ends; its time stays.
    assert!(eventually(|| running.pids().len() < 8));
    let later = running.processor_time().unwrap();
    assert!(
        later + Duration::from_millis(30) > worked,
        "{later:?} {worked:?}"
    );
}

#[test]
fn errors_of_statements_name_them() {
    let world = World::new();
    let running = world.start(None);
    let mut client = connect(&running);
    let error = client.query("SELECT * FROM nothing").unwrap_err();
    assert!(
        error
            .message()
            .contains("\"nothing\" does not exist (42P01)"),
        "{error}"
    );
    assert_eq!(error.detail_lines(), ["SELECT * FROM nothing"]);
    // The connection goes on.
    assert_eq!(client.query("SELECT 1").unwrap().len(), 1);
    let error = Client::connect(&running.endpoint.socket, "nowhere").unwrap_err();
    assert!(error.message().contains("3D000"), "{error}");
}

#[test]
fn options_that_would_lose_the_server_are_refused() {
    let settings = |options: &str| {
        let table = format!("initdb = [{options}]").parse().unwrap();
        Settings::read(&Server {
            inputs: Vec::new(),
            adapter: "postgresql".to_owned(),
            config: None,
            disk: Disk::Memory,
            start_seconds: 1.0,
            settings: Section::default().with(&table),
        })
    };
    settings("'--locale=C', '-k'").unwrap();
    for option in ["'-D'", "'--pgdata=/tmp/x'", "'--auth=md5'", "'x'"] {
        let error = settings(option).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage, "{option}");
    }
}

#[test]
fn a_server_without_initdb_is_incomplete() {
    let world = World::new();
    let error = world
        .adapter
        .prepare(world.base.path(), &world.base.path().join("data"))
        .unwrap_err();
    assert!(error.message().contains("bin/initdb"), "{error}");
}
