//! Tests of processes that exit, are stopped, or leave others behind.

use super::*;
use perfquilt_model::error::Kind;
use perfquilt_testkit::eventually;

#[test]
fn captures_and_reports() {
    let output = Command::new("sh")
        .args(["-c", "cat; echo no >&2; exit 3"])
        .stdin("yes")
        .run()
        .unwrap();
    assert_eq!(output.stdout, b"yes");
    assert_eq!(output.tail(1), ["no"]);
    assert_eq!(output.describe_exit(), "exited with 3");
}

#[test]
fn a_program_that_another_child_still_holds_open_is_started_when_it_lets_go() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("true");
    std::fs::copy("/bin/true", &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let held = File::options().write(true).open(&program).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            drop(held);
        });
        let output = Command::new(&program).run().unwrap();
        assert!(output.success() && output.elapsed > Duration::from_millis(100));
    });
}

#[test]
fn merged_streams_keep_their_order() {
    use std::io::Read;
    let script = "for i in 1 2 3 4 5 6 7 8 9; do echo $i; echo $i >&2; done";
    let mut child = Command::new("sh")
        .args(["-c", script])
        .stderr(Sink::Merged)
        .spawn()
        .unwrap();
    let mut text = String::new();
    let mut stream = child.take_stdout().unwrap();
    stream.read_to_string(&mut text).unwrap();
    let expected: String = (1..=9).map(|i| format!("{i}\n{i}\n")).collect();
    assert_eq!(text, expected);
    assert!(child.take_stderr().is_none());
}

#[test]
fn environment_is_explicit() {
    let output = Command::new("env").env("GIVEN", "1").run().unwrap();
    let names: Vec<String> = output
        .stdout_text()
        .lines()
        .filter_map(|line| line.split_once('=').map(|(name, _)| name.to_owned()))
        .collect();
    assert!(names.contains(&"GIVEN".to_owned()));
    assert!(
        !names.iter().any(|name| name.starts_with("CARGO")),
        "{names:?}"
    );
    let network = |name: &String| NETWORK_VARIABLES.contains(&name.as_str());
    assert!(!names.iter().any(network), "{names:?}");
}

/// Returns a script that runs `sleep` in the background, prefixed by `how`, writes its id to the file `id` and
/// ends.
fn leaving(how: &str, folder: &Path) -> Command {
    let script = format!(
        "{how} sh -c 'echo $$ > id.part; mv id.part id; exec sleep 20' &
         until test -e id; do sleep 0.01; done; echo last"
    );
    Command::new("sh").args(["-c", &script]).directory(folder)
}

fn is_gone(folder: &Path) -> bool {
    let id = std::fs::read_to_string(folder.join("id")).unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", id.trim()));
    // A zombie counts as gone.
    stat.map_or(true, |stat| stat.contains(") Z "))
}

#[test]
fn no_process_of_the_group_outlives_its_leader() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = leaving("", folder.path()).spawn().unwrap();
    let status = child.wait_within(Duration::from_secs(60)).unwrap();
    assert!(status.unwrap().success());
    assert!(eventually(|| is_gone(folder.path())));
    // The exit status stays available.
    assert_eq!(child.try_wait().unwrap(), status);
    assert_eq!(child.stop(Duration::ZERO).unwrap(), status.unwrap());
}

#[test]
fn a_dropped_process_that_has_ended_takes_its_group_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let child = leaving("", folder.path()).spawn().unwrap();
    let stat = format!("/proc/{}/stat", child.id());
    let ended = || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z "));
    assert!(eventually(ended));
    drop(child);
    assert!(eventually(|| is_gone(folder.path())));
}

#[test]
fn processes_outside_the_group_are_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let output = leaving("setsid", folder.path()).run().unwrap();
    assert_eq!(output.stdout_text(), "last\n");
    assert!(!is_gone(folder.path()));
}

#[test]
fn time_limit_ends_the_whole_group() {
    let error = Command::new("sh")
        .args(["-c", "sleep 60 & sleep 60"])
        .run_within(Duration::from_millis(100))
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Bench);
}

#[test]
fn a_process_that_writes_too_much_is_ended() {
    let endless = "while :; do echo 0123456789; done";
    for script in [endless.to_owned(), format!("({endless}) >&2")] {
        let command = Command::new("sh").args(["-c", &script]);
        let error = command.output_limit(100_000).run().unwrap_err();
        assert_eq!(error.kind(), Kind::Bench);
        assert!(
            error.to_string().ends_with("wrote more than 100000 bytes"),
            "{error}"
        );
    }
    let command = Command::new("printf").arg("four").output_limit(4);
    assert_eq!(command.run().unwrap().stdout, b"four");
}

#[test]
fn a_process_over_its_limit_can_remove_its_locks() {
    let folder = tempfile::tempdir().unwrap();
    let script = "trap 'rm lock; exit' TERM; touch lock; sleep 60 & wait";
    let command = Command::new("sh").args(["-c", script]);
    // A shorter limit might pass before the lock is taken on a slow machine.
    let error = command
        .directory(folder.path())
        .run_within(Duration::from_secs(1))
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Bench);
    assert!(!folder.path().join("lock").exists());
}

#[test]
fn a_cancelled_process_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let asked = std::cell::Cell::new(0);
    let cancelled = || {
        asked.set(asked.get() + 1);
        folder.path().join("id").exists()
    };
    let started = Instant::now();
    let error = Command::new("sh")
        .args(["-c", "sleep 60 & echo $! > id.part; mv id.part id; wait"])
        .directory(folder.path())
        .run_cancellable(Duration::MAX, &cancelled)
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Interrupted);
    assert!(asked.get() > 0 && started.elapsed() < Duration::from_secs(30));
    assert!(eventually(|| is_gone(folder.path())));
}

#[test]
fn missing_program_points_at_doctor() {
    let error = Command::new("no-such-program").run().unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
    assert!(error.hint_text().unwrap().contains("doctor"));
}

#[test]
fn a_file_that_cannot_be_executed_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("words");
    let error = || {
        let error = Command::new(&path).run().unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        let hint = error.hint_text().unwrap_or_default().to_owned();
        assert!(!hint.contains("doctor"), "{hint}");
        error.code().to_string()
    };
    assert_eq!(error(), "PQ0112", "missing");
    std::fs::write(&path, "words").unwrap();
    assert_eq!(error(), "PQ0112", "no right");
    let error = Command::new("true")
        .directory(&folder.path().join("no"))
        .run()
        .unwrap_err();
    assert!(error.message().contains("no such folder"), "{error}");
}

#[test]
fn shown_is_quoted() {
    let command = Command::new("sh").args(["-c", "echo 'a'"]);
    assert_eq!(command.shown(), r#"sh -c "echo 'a'""#);
    let plain = "cmake -DCMAKE_BUILD_TYPE=Release --sort=a,b {output}";
    assert_eq!(
        Command::new("cmake").args(plain.split(' ').skip(1)).shown(),
        plain
    );
    assert_eq!(quoted(""), "''");
    assert_eq!(quoted("a b; c"), "'a b; c'");
}

#[test]
fn credentials_of_urls_are_not_shown() {
    let git = Command::new("git").args([
        "fetch",
        "https://x:t0k3n@example.org/a.git",
        "+refs/heads/a@b:c",
    ]);
    let plain = "git fetch https://example.org/a.git +refs/heads/a@b:c";
    assert_eq!(git.shown(), plain);
    let late = Command::new("sh").args(["-c", "sleep 60; : http://t0k3n@h/x"]);
    let error = late.run_within(Duration::from_millis(100)).unwrap_err();
    assert!(!error.to_string().contains("t0k3n"), "{error}");
    for (text, shown) in [
        (
            "Password for 'https://t0k3n@h': no",
            "Password for 'https://h': no",
        ),
        ("a://b@c@d/e@f g://h@i", "a://d/e@f g://i"),
        ("git@example.org:a/b", "git@example.org:a/b"),
        ("https://h/a@b", "https://h/a@b"),
        ("://", "://"),
    ] {
        assert_eq!(without_credentials(text), shown);
    }
}
