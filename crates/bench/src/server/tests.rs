//! Tests of starting and stopping servers, with small scripts as servers.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use super::command::CommandAdapter;
use super::command::CommandServer;
use super::*;
use crate::inputs::Inputs;
use perfquilt_config::Section;
use perfquilt_model::error::Kind;
use perfquilt_model::progress::{Progress, Silent, Step, reporting_to};
use perfquilt_system::locks;
use perfquilt_system::process::Command;
use perfquilt_testkit::eventually;

/// A scratch folder, logs beside it, and an adapter for the script `server`.
struct World {
    base: tempfile::TempDir,
    scratch: Scratch,
}

impl World {
    fn new() -> Self {
        let base = tempfile::tempdir().unwrap();
        let scratch = Scratch::within(&base.path().join("run")).unwrap();
        // The server's program.
        std::fs::create_dir(base.path().join("bin")).unwrap();
        let sleep = perfquilt_system::process::find_program("sleep").unwrap();
        std::fs::copy(sleep, base.path().join("bin/sleep")).unwrap();
        World { base, scratch }
    }

    fn logs(&self) -> PathBuf {
        self.base.path().join("logs")
    }

    fn adapter_with(
        &self,
        start: &[&str],
        ready: &[&str],
        stop: Option<&[&str]>,
    ) -> CommandAdapter {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        let commands = CommandServer {
            start: words(start),
            ready: words(ready),
            stop: stop.map(words),
            env: [
                ("GREETING".to_owned(), "from {socket}".to_owned()),
                ("PATH".to_owned(), "{server}/bin:/usr/bin:/bin".to_owned()),
            ]
            .into(),
            files: std::collections::BTreeMap::new(),
        };
        let setup = setup(self.base.path(), 5.0);
        CommandAdapter { commands, setup }
    }

    /// `$0` is the socket, `$1` the data folder.
    fn adapter(&self, script: &str) -> CommandAdapter {
        self.adapter_with(
            &["sh", "-c", script, "{socket}", "{dir}"],
            &["test", "-e", "{socket}"],
            None,
        )
    }

    fn start(&self, adapter: &dyn ServerAdapter) -> Result<Running> {
        let dir = self.scratch.fresh()?;
        adapter.start(&Launch::new("2 (0002-x.patch)", self.base.path(), &dir))
    }
}

fn alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

const SERVE: &str = r#"echo "$GREETING"; touch "$0"; exec sleep 600"#;

#[test]
fn a_started_server_is_ready_and_a_stopped_one_leaves_nothing() {
    let world = World::new();
    let mut running = world.start(&world.adapter(SERVE)).unwrap();
    let (pid, dir) = (running.pid(), running.dir().to_path_buf());
    assert!(alive(pid) && running.endpoint.socket.exists());
    running.check().unwrap();
    let socket = running.endpoint.socket.display().to_string();
    assert_eq!(running.log_tail(), [format!("from {socket}")]);
    let words = ["{socket}".to_owned(), "{dir}/x".to_owned()];
    let expanded = running.expand(&words).unwrap();
    assert_eq!(expanded, [socket, format!("{}/data/x", dir.display())]);
    running.stop().unwrap();
    assert!(!alive(pid) && !dir.exists());
}

#[test]
fn a_server_that_cannot_be_executed_is_a_failure_of_its_point() {
    let world = World::new();
    let adapter = world.adapter_with(&["{server}/no-such", "{socket}"], &["true"], None);
    let error = world.start(&adapter).unwrap_err();
    assert_eq!(error.kind(), Kind::Bench);
    let message = error.message();
    assert!(message.contains("server of 2 (0002-x.patch)"), "{message}");
    let adapter = world.adapter_with(&["no-such-program", "{socket}"], &["true"], None);
    assert_eq!(world.start(&adapter).unwrap_err().kind(), Kind::Usage);
}

#[test]
fn a_library_of_another_machine_is_named() {
    let world = World::new();
    let build = "echo 'int two(void) { return 2; }' > two.c && cc -shared -fPIC -o libtwo.so two.c && \
         echo 'int two(void); int main(void) { return two(); }' > app.c && \
         cc -o app app.c -L. -ltwo '-Wl,-rpath,$ORIGIN'";
    let compiler = Command::new("sh").args(["-c", build]);
    compiler
        .directory(world.base.path())
        .run_ok(Kind::Build)
        .unwrap();
    let adapter = world.adapter_with(&["{server}/app"], &["false"], None);
    let end = |world: &World| world.start(&adapter).unwrap_err();
    assert!(end(&world).message().contains("exited with 2"));
    let library = world.base.path().join("libtwo.so");
    let mut bytes = std::fs::read(&library).unwrap();
    bytes[18..20].copy_from_slice(&22_u16.to_le_bytes());
    std::fs::write(&library, bytes).unwrap();
    let error = end(&world);
    let named = format!("{} is for s390x", library.display());
    assert!(error.detail_lines().contains(&named), "{error:?}");
}

#[test]
fn dropping_kills_the_servers_children_too() {
    let world = World::new();
    let script = r#"sleep 600 & echo $! > "$1/child"; touch "$0"; wait"#;
    let running = world.start(&world.adapter(script)).unwrap();
    let text = std::fs::read_to_string(running.dir().join("data/child")).unwrap();
    let child: u32 = text.trim().parse().unwrap();
    assert!(alive(child));
    drop(running);
    let is_gone = || {
        // An orphan is a zombie until its new parent has waited for it.
        std::fs::read_to_string(format!("/proc/{child}/stat"))
            .map_or(true, |stat| stat.contains(") Z "))
    };
    assert!(eventually(is_gone));
}

#[test]
fn the_processor_time_of_a_server_grows_with_its_work() {
    let world = World::new();
    let script =
        r#"touch "$0"; while test ! -e "$1/stop"; do :; done; touch "$1/idle"; exec sleep 600"#;
    let running = world.start(&world.adapter(script)).unwrap();
    let first = running.processor_time().unwrap();
    assert!(eventually(
        || running.processor_time().unwrap() > first + Duration::from_millis(20)
    ));
    std::fs::write(running.dir().join("data/stop"), "").unwrap();
    assert!(eventually(|| running.dir().join("data/idle").exists()));
    // After the exec of `sleep` the process uses no more processor time.
    assert!(eventually(|| {
        let before = running.processor_time();
        std::thread::sleep(Duration::from_millis(20));
        running.processor_time() == before
    }));
}

#[test]
fn a_crash_at_start_is_reported_with_log_and_signal() {
    let world = World::new();
    let script = r#"echo "[ERROR] no tables" >&2; kill -SEGV $$"#;
    let error = world.start(&world.adapter(script)).unwrap_err();
    assert_eq!(error.kind(), Kind::Bench);
    assert_eq!(
        error.message(),
        "server of 2 (0002-x.patch) was ended by signal 11 (SIGSEGV) at start"
    );
    assert_eq!(error.detail_lines(), ["[ERROR] no tables"]);
    let kept = world.logs().join("server-2__0002-x.patch_.log");
    assert_eq!(
        std::fs::read_to_string(&kept).unwrap(),
        "[ERROR] no tables\n"
    );
    assert!(error.hint_text().unwrap().contains("server-2__0002"));
    let left: Vec<_> = std::fs::read_dir(world.scratch.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, [".lock"]);
}

#[test]
fn a_server_that_crashes_under_load_explains_its_clients_errors() {
    let world = World::new();
    let script = r#"touch "$0"; while test ! -e "$1/go"; do sleep 0.01; done; echo "got signal 6"; sleep 0.5; kill -ABRT $$"#;
    let mut running = world.start(&world.adapter(script)).unwrap();
    running.check().unwrap();
    std::fs::write(running.dir().join("data/go"), "").unwrap();
    assert!(eventually(|| !running.log_tail().is_empty()));
    let error = running.explain(Error::server_answer("lost connection"));
    assert!(
        error
            .message()
            .ends_with("was ended by signal 6 (SIGABRT) under load"),
        "{error}"
    );
    assert_eq!(error.detail_lines(), ["got signal 6"]);
    assert_eq!(running.stop().unwrap_err().kind(), Kind::Bench);
}

#[test]
fn errors_that_are_not_the_servers_stay() {
    let world = World::new();
    let mut running = world.start(&world.adapter(SERVE)).unwrap();
    assert_eq!(
        running
            .explain(Error::server_failed("no such table"))
            .message(),
        "no such table"
    );
    assert_eq!(
        running.explain(Error::interrupted()).kind(),
        Kind::Interrupted
    );
}

#[test]
fn a_server_that_is_never_ready_times_out() {
    let world = World::new();
    let commands = CommandServer {
        start: ["sh", "-c", "sleep 600", "{socket}"]
            .map(str::to_owned)
            .into(),
        ready: ["sh", "-c", "echo nobody answers >&2; exit 7"]
            .map(str::to_owned)
            .into(),
        stop: None,
        env: Default::default(),
        files: std::collections::BTreeMap::new(),
    };
    let setup = setup(world.base.path(), 0.2);
    let adapter = CommandAdapter { commands, setup };
    let error = world.start(&adapter).unwrap_err();
    let timeout = error.exceeded_start_timeout();
    assert_eq!(timeout, Some(Duration::from_millis(200)));
    assert!(error.hint_text().unwrap().contains("start_seconds"));
    let last = error.detail_lines().join("\n");
    assert!(
        last.ends_with("`sh -c echo nobody answers >&2; exit 7` exited with 7\nnobody answers"),
        "{last}"
    );
}

#[test]
fn a_ready_command_that_hangs_gets_no_more_time_than_the_start() {
    let world = World::new();
    let commands = CommandServer {
        start: ["sh", "-c", "sleep 600", "{socket}"]
            .map(str::to_owned)
            .into(),
        ready: ["sleep", "60"].map(str::to_owned).into(),
        stop: None,
        env: Default::default(),
        files: std::collections::BTreeMap::new(),
    };
    let setup = setup(world.base.path(), 0.5);
    let adapter = CommandAdapter { commands, setup };
    let started = Instant::now();
    let error = world.start(&adapter).unwrap_err();
    let timeout = error.exceeded_start_timeout();
    assert_eq!(timeout, Some(Duration::from_millis(500)), "{error}");
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_server_that_is_not_installed_points_at_doctor() {
    let world = World::new();
    let adapter = world.adapter_with(&["no-such-server", "{socket}"], &["true"], None);
    let error = world.start(&adapter).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
    assert!(error.hint_text().unwrap().contains("doctor"));
}

#[test]
fn a_port_taken_by_another_process_is_replaced() {
    let world = World::new();
    let count = world.base.path().join("count");
    let script = format!(
        r#"echo x >> {0}; test $(wc -l < {0}) -ge 3 && exec sleep 600; echo "bind: Address already in use"; exit 1"#,
        count.display()
    );
    let ready = format!("test $(wc -l < {}) -ge 3", count.display());
    let adapter = world.adapter_with(
        &["sh", "-c", &script, "{port}"],
        &["sh", "-c", &ready],
        None,
    );
    let running = world.start(&adapter).unwrap();
    assert!(running.endpoint.port.is_some());
    assert_eq!(std::fs::read_to_string(&count).unwrap(), "x\nx\nx\n");
}

#[test]
fn another_attempt_finds_the_program_in_the_folder_of_the_start() {
    let world = World::new();
    let count = world.base.path().join("count");
    let dir = world.scratch.fresh().unwrap();
    std::fs::create_dir(dir.join("server")).unwrap();
    let program = dir.join("server/run.sh");
    let script = format!(
        r#"echo x >> {0}; test -e data/old && exit 3; touch data/old; test $(wc -l < {0}) -ge 3 && exec ${{0%/*}}/sleep 600
           echo "Error: listen EADDRINUSE: {{port}}"; exit 1"#,
        count.display()
    );
    std::fs::write(&program, script).unwrap();
    let sleep = world.base.path().join("bin/sleep");
    std::fs::copy(sleep, dir.join("server/sleep")).unwrap();
    let start = ["sh", "{server}/run.sh", "{port}"];
    let ready = format!("test $(wc -l < {}) -ge 3", count.display());
    let adapter = world.adapter_with(&start, &["sh", "-c", &ready], None);
    let server = dir.join("server");
    let running = adapter.start(&Launch::new("1", &server, &dir)).unwrap();
    drop(running);
    assert!(!dir.exists());
    // A port that others have for the whole run is an error after three attempts.
    let script = "echo 'bind() failed (98: Address already in use)'; exit 1";
    let adapter = world.adapter_with(&["sh", "-c", script, "{port}"], &["false"], None);
    let error = world.start(&adapter).unwrap_err();
    let hint = error.hint_text().unwrap();
    assert!(hint.contains("other programs had the ports"), "{hint}");
    assert_eq!(hint.matches(", ").count(), 2, "{hint}");
}

#[test]
fn a_start_that_runs_another_program_is_an_error_with_its_path() {
    let world = World::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let other = elsewhere.path().join("other");
    std::fs::copy(world.base.path().join("bin/sleep"), &other).unwrap();
    let other = other.display().to_string();
    let own = "{server}/bin/sleep";
    let start = |script: &str| {
        let words = ["sh", "-c", script, "{socket}", own, &other];
        world.start(&world.adapter_with(&words, &["test", "-e", "{socket}"], None))
    };
    // When the program runs, not before.
    let ready = r#"(sleep 0.3; touch "$0")"#;
    for script in [
        r#"$ready & exec "$1" 600"#,
        r#"$ready & "$1" 600 & wait"#,
        // A proxy in front of the server.
        r#"$ready & "$1" 600 & exec "$2" 600"#,
    ] {
        start(&script.replace("$ready", ready))
            .unwrap()
            .stop()
            .unwrap();
    }
    for script in [
        r#"cp "$2" "$2.x"; touch "$0"; exec "$2.x" 600"#,
        // It is replaced while it starts.
        r#"cp "$1" "$1.x"; "$1" 600 & until grep -q sleep /proc/$!/comm; do :; done
           cp "$1" "$1.y"; mv "$1.y" "$1"; touch "$0"; wait"#,
    ] {
        let error = start(script).unwrap_err();
        assert_eq!(error.kind(), Kind::Bench);
        let message = error.message();
        let path = [format!("{other}.x"), "bin/sleep".to_owned()];
        assert!(path.iter().any(|path| message.contains(path)), "{message}");
    }
}

#[test]
fn another_program_that_answers_on_the_port_does_not_make_a_server_ready() {
    let world = World::new();
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let dir = world.scratch.fresh().unwrap();
    let launch = Launch::new("1", world.base.path(), &dir);
    let port = listener.local_addr().unwrap().port();
    let address = ListenAddress::new(&dir, Some(port)).unwrap();
    let words = ["sleep", "600"].map(Into::into).into();
    let plan = StartPlan::new(&setup(world.base.path(), 0.3), &launch, address, words);
    let error = Running::begin(plan, &mut |_| Ok(true)).unwrap_err();
    let end = format!("was not ready within 0 s: another program listens on its port {port}");
    assert!(error.message().ends_with(&end), "{error}");
}

#[test]
fn a_built_server_without_its_own_ready_program_fails_alone() {
    let world = World::new();
    let start = ["sh", "-c", "exec sleep 600", "{socket}"];
    let kind = |ready: &str| {
        let adapter = world.adapter_with(&start, &[ready], None);
        world.start(&adapter).unwrap_err().kind()
    };
    assert_eq!(kind("{server}/bin/no-client"), Kind::Bench);
    assert_eq!(kind("/nonexistent/client"), Kind::Usage);
    let running = world.start(&world.adapter(SERVE)).unwrap();
    let of = |program: &str| {
        let words = running.expand(&[program.to_owned()]).unwrap();
        let missing = Error::server_settings("it cannot be started");
        running.own_failure(&words, missing).kind()
    };
    assert_eq!(of("{server}/bin/client"), Kind::Bench);
    assert_eq!(of("/usr/bin/client"), Kind::Usage);
}

/// Returns a script that starts a server as `how` says and ends as soon as there is a file `go`.
fn in_background(how: &str) -> String {
    format!(
        r#"{how} sh -c 'touch "$0"; exec sleep 600' "$0" > /dev/null 2>&1 &
           while test ! -e "$1/go"; do sleep 0.01; done"#
    )
}

#[test]
fn a_server_that_goes_on_without_its_first_process_is_named_and_ended() {
    let world = World::new();
    for (how, end) in [
        ("", "exited with 0"),
        ("setsid", "exited with 0"),
        ("", "SIGKILL"),
    ] {
        let mut running = world.start(&world.adapter(&in_background(how))).unwrap();
        running.check().unwrap();
        if end == "SIGKILL" {
            let pid = rustix::process::Pid::from_raw(running.pid().cast_signed()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        } else {
            std::fs::write(running.dir().join("data/go"), "").unwrap();
        }
        let mut found = None;
        assert!(eventually(|| {
            found = running.check().err();
            found.is_some()
        }));
        let error = found.unwrap();
        assert_eq!(error.kind(), Kind::Bench);
        let message = error.message();
        // The shell, as long as it has not become `sleep`.
        for words in [end, "under load, but `s", "went on without it"] {
            assert!(message.contains(words), "{message}");
        }
        let (_, id) = message.split_once("` (process ").unwrap();
        let id: u32 = id.split(')').next().unwrap().parse().unwrap();
        assert!(eventually(|| !alive(id)), "{message}");
        let foreground = error.hint_text().unwrap().contains("foreground");
        assert_eq!(foreground, end != "SIGKILL", "{error:?}");
    }
}

#[test]
fn a_start_command_that_ends_before_its_server_is_ready_names_the_server() {
    let world = World::new();
    let script = r#"setsid sh -c 'exec sleep 600' & sleep 0.05"#;
    let adapter = world.adapter_with(&["sh", "-c", script, "{socket}"], &["false"], None);
    let error = world.start(&adapter).unwrap_err();
    let message = error.message();
    assert!(
        message.contains("exited with 0 at start, but `s"),
        "{message}"
    );
    assert!(
        error.hint_text().unwrap().contains("foreground"),
        "{error:?}"
    );
}

#[test]
fn a_daemon_beside_a_living_wrapper_is_refused_and_ended() {
    let world = World::new();
    let script = r#"setsid setsid -f sh -c 'echo $$ > "$1/id"; touch "$0"; exec sleep 600' "$0" "$1" > /dev/null 2>&1
                    exec sleep 600"#;
    let error = world.start(&world.adapter(script)).unwrap_err();
    let message = error.message();
    assert!(message.contains("left its first process: `"), "{message}");
    let (_, id) = message.split_once("(process ").unwrap();
    let id: u32 = id.split(')').next().unwrap().parse().unwrap();
    assert!(!alive(id), "{message}");
}

#[test]
fn a_server_at_a_fixed_address_is_refused() {
    let commands = |start: &[&str]| CommandServer {
        start: start.iter().map(|&word| word.to_owned()).collect(),
        ready: vec!["true".into()],
        stop: None,
        env: Default::default(),
        files: std::collections::BTreeMap::new(),
    };
    let address = |start: &[&str]| commands(start).check_address(&Section::default());
    assert!(address(&["server", "--port=6379"]).is_err());
    assert!(address(&[]).is_err());
    assert!(address(&["server", "{socket}"]).is_ok());
    let words = |start: &[&str]| commands(start).check_placeholders(&Section::default());
    assert!(words(&["server", "{socket}", "{sokcet}"]).is_err());
    assert!(words(&["server", "{socket}", "{ json }"]).is_ok());
}

#[test]
fn another_configuration_changes_the_identity() {
    let world = World::new();
    let file = world.base.path().join("server.conf");
    std::fs::write(&file, "one").unwrap();
    let start = ["server", "{config}/server.conf", "{socket}"];
    let adapter = world.adapter_with(&start, &["true"], None);
    let words = adapter.words();
    let inputs = || Inputs::named(world.base.path(), (&words, Some("{config}")), &[]);
    let before = inputs().unwrap();
    before.check().unwrap();
    std::fs::write(&file, "two").unwrap();
    assert_ne!(inputs().unwrap(), before);
    let changed = before.check().unwrap_err();
    assert!(changed.message().contains("server.conf"), "{changed}");
    std::fs::remove_file(&file).unwrap();
    assert_eq!(inputs().unwrap_err().kind(), Kind::Usage);
}

#[test]
fn a_template_is_filled_once_and_every_start_gets_a_copy() {
    let world = World::new();
    let parent = world.base.path().join("cache");
    let script = r#"echo ready > "$1/stopped-badly"; trap 'rm "$1/stopped-badly"; exit 0' TERM; touch "$0"; while true; do sleep 0.01; done"#;
    let adapter = world.adapter(script);
    let fills = std::cell::Cell::new(0);
    let fill = |running: &mut Running| {
        fills.set(fills.get() + 1);
        std::fs::write(running.dir().join("data/rows"), "1 2 3").unwrap();
        Ok(())
    };
    let make = || template::prepare_template(&parent, &adapter, world.base.path(), "key", &fill);
    let template = make().unwrap();
    assert_eq!(make().unwrap(), template);
    assert_eq!(fills.get(), 1);
    assert!(!template.join("stopped-badly").exists(), "a clean stop");
    let dir = world.scratch.fresh().unwrap();
    let mut launch = Launch::new("0", world.base.path(), &dir);
    launch.template = Some(&template);
    let running = adapter.start(&launch).unwrap();
    std::fs::write(running.dir().join("data/rows"), "changed").unwrap();
    running.stop().unwrap();
    assert_eq!(
        std::fs::read_to_string(template.join("rows")).unwrap(),
        "1 2 3"
    );
    let mut left: Vec<_> = std::fs::read_dir(&parent)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["key", "key.lock"]);
}

/// Sends a message for every note.
struct Noted(mpsc::Sender<()>);

impl Progress for Noted {
    fn begin(&self, name: &str, total: Option<u64>) -> Box<dyn Step> {
        Silent.begin(name, total)
    }

    fn note(&self, _line: &str) {
        let _ = self.0.send(());
    }

    fn warn(&self, _warning: perfquilt_model::warning::Warning) {}
}

#[test]
fn waiting_for_a_template_does_not_wait_for_its_users() {
    let world = World::new();
    let parent = world.base.path().join("cache");
    let lock = parent.join("key.lock");
    let filling = locks::try_now(&lock).unwrap().unwrap();
    let adapter = world.adapter(SERVE);
    let patience = Duration::from_secs(30);
    let (told, waits) = mpsc::channel();
    let (sender, made) = mpsc::channel();
    let prepare = || {
        let told = Noted(told);
        let fill = |_: &mut Running| -> Result<()> { Err(Error::server_failed("filled twice")) };
        let base = world.base.path();
        let make = || template::prepare_template(&parent, &adapter, base, "key", &fill);
        let made = reporting_to(Arc::new(told), make);
        sender.send(made).unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(prepare);
        let waited = waits.recv_timeout(patience);
        std::fs::create_dir(parent.join("key")).unwrap();
        drop(filling);
        let used = loop {
            if let Some(used) = locks::share_now(&lock).unwrap() {
                break used;
            }
        };
        let made = made.recv_timeout(patience);
        drop(used);
        assert!(waited.is_ok());
        assert_eq!(made.unwrap().unwrap(), parent.join("key"));
    });
}

#[test]
fn a_failed_or_killed_filling_leaves_no_template() {
    let world = World::new();
    let parent = world.base.path().join("cache");
    let adapter = world.adapter(SERVE);
    // Remains of a killed process.
    std::fs::create_dir_all(parent.join("key.tmp/data")).unwrap();
    std::fs::write(parent.join("key.tmp/data/half"), "").unwrap();
    let make = |fill: &dyn Fn(&mut Running) -> Result<()>| {
        template::prepare_template(&parent, &adapter, world.base.path(), "key", fill)
    };
    let error = make(&|_| Err(Error::server_space("no room"))).unwrap_err();
    assert_eq!(error.message(), "no room");
    assert!(!parent.join("key").exists() && !parent.join("key.tmp").exists());
    let template = make(&|_| Ok(())).unwrap();
    assert!(!template.join("half").exists());
}

#[test]
fn a_stop_command_ends_the_server() {
    let world = World::new();
    let script = r#"touch "$0"; while test ! -e "$1/stop"; do sleep 0.01; done; echo flushed > "$1/state"; exit 0"#;
    let adapter = world.adapter_with(
        &["sh", "-c", script, "{socket}", "{dir}"],
        &["test", "-e", "{socket}"],
        Some(&["touch", "{dir}/stop"]),
    );
    let running = world.start(&adapter).unwrap();
    let data = running.stop_cleanly().unwrap();
    assert_eq!(
        std::fs::read_to_string(data.join("state")).unwrap(),
        "flushed\n"
    );
    let adapter = world.adapter_with(
        &["sh", "-c", r#"touch "$0"; sleep 600"#, "{socket}"],
        &["test", "-e", "{socket}"],
        Some(&["false"]),
    );
    let error = world.start(&adapter).unwrap().stop_cleanly().unwrap_err();
    assert_eq!(error.kind(), Kind::Bench);
    assert!(
        error
            .message()
            .contains("still runs 5 s after `stop`, which exited with 1"),
        "{error:?}"
    );
    assert!(error.hint_text().unwrap().contains("SIGTERM"));
}

#[test]
fn callgrind_writes_and_has_its_pipes_in_the_starts_folder() {
    let dir = Path::new("/scratch/0000");
    let callgrind = Instrumentation::Callgrind {
        out: dir.join("out"),
        addresses: false,
        caches: false,
    };
    let words: Vec<String> = running::instrumentation_words(&callgrind, dir, &["vio_read"])
        .into_iter()
        .map(|word| word.into_string().unwrap())
        .collect();
    let has = |word: &str| words.iter().any(|candidate| candidate == word);
    assert_eq!(words[0], "valgrind");
    assert!(has("--vgdb-prefix=/scratch/0000/vgdb"));
    assert!(has("--callgrind-out-file=/scratch/0000/out.%p"));
    assert!(!has("--cache-sim=yes"));
    let position = |word: &str| words.iter().position(|candidate| candidate == word);
    // The later option partly reverts the earlier one.
    assert!(position("--collect-atstart=yes") > position("--toggle-collect=vio_read"));
    assert!(running::instrumentation_words(&Instrumentation::Plain, dir, &["vio_read"]).is_empty());
}

/// A built server whose `bin/mariadbd` is a script.
fn fake_mariadb(base: &Path, script: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let server = base.join("built");
    for folder in ["bin", "share/english", "share/charsets"] {
        std::fs::create_dir_all(server.join(folder)).unwrap();
    }
    for file in ["share/english/errmsg.sys", "share/charsets/Index.xml"] {
        std::fs::write(server.join(file), "").unwrap();
    }
    std::fs::write(
        server.join("share/mysql_system_tables.sql"),
        "CREATE TABLE a;\n",
    )
    .unwrap();
    std::fs::write(
        server.join("share/mysql_system_tables_data.sql"),
        "INSERT INTO a;\n",
    )
    .unwrap();
    let program = server.join("bin/mariadbd");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    server
}

#[test]
fn mariadb_is_bootstrapped_by_the_built_results_own_tables() {
    let world = World::new();
    let server = fake_mariadb(world.base.path(), r#"echo "$@" > args; cat > input"#);
    let adapter = mariadb(&world);
    let data = world.base.path().join("data");
    adapter.prepare(&server, &data).unwrap();
    let input = std::fs::read_to_string(data.join("input")).unwrap();
    let lines: Vec<&str> = input.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(
        lines[2..],
        ["use mysql;", "CREATE TABLE a;", "INSERT INTO a;"]
    );
    let args = std::fs::read_to_string(data.join("args")).unwrap();
    assert!(args.starts_with("--no-defaults --datadir="), "{args}");
    assert!(args.contains("--bootstrap"));
}

#[test]
fn a_bootstrap_with_errors_fails_whatever_its_exit_code() {
    let world = World::new();
    let script = r#"cat > /dev/null; echo "ERROR: 1146  Table 'a' doesn't exist" >&2"#;
    let server = fake_mariadb(world.base.path(), script);
    let adapter = mariadb(&world);
    let error = adapter
        .prepare(&server, &world.base.path().join("data"))
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Bench);
    assert_eq!(
        error.detail_lines(),
        ["ERROR: 1146  Table 'a' doesn't exist"]
    );
}

#[test]
fn an_incomplete_result_is_named() {
    let world = World::new();
    let server = fake_mariadb(world.base.path(), "");
    std::fs::remove_file(server.join("share/mysql_system_tables.sql")).unwrap();
    let adapter = mariadb(&world);
    let dir = world.scratch.fresh().unwrap();
    let error = adapter.start(&Launch::new("0", &server, &dir)).unwrap_err();
    assert_eq!(
        error.message(),
        "the built server has no share/mysql_system_tables.sql"
    );
}

#[test]
fn a_configuration_the_server_would_ignore_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let base = tempfile::tempdir().unwrap();
    let file = base.path().join("server.cnf");
    let new = || innodb_adapter(&mariadb::KIND, base.path(), Some(file.clone()));
    let refused = || new().err().unwrap();
    assert_eq!(refused().kind(), Kind::Usage);
    std::fs::write(&file, "[mysqld]\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(refused().hint_text().unwrap().starts_with("chmod o-w"));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let adapter = new().unwrap();
    let before = adapter.identity().unwrap();
    std::fs::write(&file, "[mysqld]\nport = 1\n").unwrap();
    assert_ne!(adapter.identity().unwrap(), before);
}

/// Creates an adapter for the workspace with this `bench-config/`, which gets the logs, too.
pub(super) fn innodb_adapter(
    kind: &AdapterKind,
    bench_config: &Path,
    config: Option<PathBuf>,
) -> Result<Box<dyn ServerAdapter>> {
    let mut setup = setup(bench_config, 5.0);
    setup.server.config = config;
    (kind.adapter)(setup)
}

/// Returns the setup of the workspace with this `bench-config/`, which has the folder of the logs, too.
pub(super) fn setup(bench_config: &Path, start_seconds: f64) -> AdapterSetup {
    AdapterSetup {
        server: perfquilt_config::Server {
            inputs: Vec::new(),
            adapter: String::new(),
            config: None,
            disk: perfquilt_config::Disk::default(),
            start_seconds,
            settings: Section::default(),
        },
        bench_config: bench_config.to_path_buf(),
        logs: bench_config.join("logs"),
    }
}

fn mariadb(world: &World) -> Box<dyn ServerAdapter> {
    innodb_adapter(&mariadb::KIND, world.base.path(), None).unwrap()
}

#[test]
fn identities_of_adapters_stay() {
    let base = tempfile::tempdir().unwrap();
    for (kind, expected) in [
        (
            mariadb::KIND,
            "dbd9815f157f283fbd17115bb7c698eb84b55f5e3b18d11f918892240ed41cb1",
        ),
        (
            mysql::KIND,
            "a3e55c95b210b63b21ebdab97f3f559cc1f97f8ef45dc6e83f6c70f4b109b2dc",
        ),
    ] {
        let adapter = innodb_adapter(&kind, base.path(), None).unwrap();
        assert_eq!(adapter.identity().unwrap(), expected, "{}", kind.name);
    }
}

/// Returns the error of a configuration whose section `[server]` is `server`.
fn configuration_error(server: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("bench-config")).unwrap();
    let text = format!(
        "[upstream]\nname = \"x\"\ncurrent = \"1\"\n[recipe]\n[preset]\n[server]\n{server}"
    );
    std::fs::write(folder.path().join("bench-config/perfquilt.toml"), text).unwrap();
    let config = perfquilt_config::Config::load(folder.path()).unwrap();
    check(&config).unwrap_err().to_string()
}

#[test]
fn faults_of_the_configuration_name_their_line() {
    let command = "[server.command]\nstart = [\"x\"]\nready = []\n";
    for (server, expected) in [
        (
            "adapter = \"mariadbd\"\n".to_owned(),
            "7: there is no adapter `mariadbd`",
        ),
        (
            format!("adapter = \"mariadb\"\n{command}"),
            "8: [server.command] is not a section of the adapter `mariadb`",
        ),
        (
            "adapter = \"command\"\n".to_owned(),
            "6: adapter `command` needs a [server.command] section",
        ),
        (
            format!("adapter = \"command\"\n{command}"),
            "10: `ready` of the server is an empty command",
        ),
        (
            format!("adapter = \"command\"\n{command}x = 1\n"),
            "11: there is no key `x`",
        ),
    ] {
        let error = configuration_error(&server);
        let expected = format!("bench-config/perfquilt.toml:{expected}");
        assert!(error.starts_with(&expected), "{error}\n{expected}");
    }
}
