//! `perfquilt run --sandbox`: what a patch tries to do outside of its work folder. Each attempt is made without
//! a sandbox too, where it must succeed: an attempt that never works would prove nothing.
//!
//! These tests need bubblewrap, and fail where it cannot make a sandbox.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::{Finished, TestEnvironment};

const SECRET: &str = "a-secret-of-the-home";
const TOKEN: &str = "ghp_a_token_of_the_environment";

/// A workspace whose only patch has `make` run `script`.
fn workspace(script: &str) -> TestEnvironment {
    let environment = TestEnvironment::with_fixture("toy");
    environment.write("series", "0001-hostile.patch\n");
    environment.write("patches/0001-hostile.patch", patch(script));
    fs::write(home(&environment).join("secret"), SECRET).unwrap();
    environment
}

fn patch(script: &str) -> String {
    let lines: Vec<String> = script.lines().map(|line| format!("+{line}\n")).collect();
    format!(
        "Subject: build: what is needed\n\n\
         diff --git a/Makefile b/Makefile\n--- a/Makefile\n+++ b/Makefile\n@@ -1,6 +1,9 @@\n \
         CFLAGS = -O2 -g0 -Wall\n \n-all: toyd toyc\n+all: toyd toyc probe\n+\n+probe:\n+\tsh ./probe.sh\n \n \
         toyd: toyd.c work.h\n \t$(CC) $(CFLAGS) -o $@ toyd.c\n\
         diff --git a/probe.sh b/probe.sh\nnew file mode 100644\n--- /dev/null\n+++ b/probe.sh\n@@ -0,0 +1,{} @@\n{}",
        lines.len(),
        lines.concat()
    )
}

fn home(environment: &TestEnvironment) -> PathBuf {
    environment.workspace().parent().unwrap().join("home")
}

fn run(environment: &TestEnvironment, more: &[&str]) -> Finished {
    let args = [&["run", "--point", "1", "--blocks", "2"], more].concat();
    let mut command = environment.command(&args);
    command.env("GITHUB_TOKEN", TOKEN).output().unwrap().into()
}

/// The file `findings` that the script wrote in its folder.
fn findings(environment: &TestEnvironment) -> String {
    fn search(folder: &Path) -> Option<PathBuf> {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.ends_with("findings") {
                return Some(path);
            }
            let below = entry.file_type().unwrap().is_dir().then(|| search(&path));
            if let Some(Some(found)) = below {
                return Some(found);
            }
        }
        None
    }
    let path = search(&environment.cache()).expect("the script did not run");
    // Without a sandbox it reads other programs' environments, whatever is in them.
    String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()
}

#[test]
fn a_series_is_measured_inside() {
    let environment = TestEnvironment::with_fixture("toy");
    let finished = environment.run(&["run", "--sandbox", "--json"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(
        finished.stdout.contains("0001-fewer-rounds.patch"),
        "{}",
        finished.stdout
    );
    // Further runs in the sandbox continue from it, and no other command reads it.
    let again = environment.run(&["run", "--sandbox", "--format", "markdown"]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert!(again.stdout.contains("0001-fewer-rounds"), "{again:?}");
    assert!(
        !crate::common::measures(&again.stderr) && again.stderr.contains("is in the cache"),
        "{}",
        again.stderr
    );
    let report = environment.run(&["report"]);
    assert_eq!(report.code, Some(2), "{report:?}");
    let trusted = environment.run(&["run", "--json"]);
    assert_eq!(trusted.code, Some(0), "{}", trusted.stderr);
    assert!(
        !trusted.stderr.contains("is in the cache"),
        "{}",
        trusted.stderr
    );
    environment.wait_until_no_process_is_left();
}

#[test]
fn the_series_that_quilt_uses_is_measured_inside() {
    let environment = TestEnvironment::with_fixture("toy");
    let at = |file: &str| environment.workspace().join(file);
    fs::create_dir_all(at("debian")).unwrap();
    fs::create_dir(at(".pc")).unwrap();
    fs::rename(at("patches"), at("debian/patches")).unwrap();
    fs::rename(at("series"), at("debian/patches/series")).unwrap();
    // Whoever does not look where quilt does finds another one.
    fs::create_dir(at("patches")).unwrap();
    environment.write("patches/series", "");
    environment.write(".pc/.quilt_patches", "debian/patches\n");
    let measured = environment.run(&["run", "--sandbox", "--outcome", "outcome", "--point", "1"]);
    assert_eq!(measured.code, Some(0), "{}", measured.stderr);
    assert!(
        measured.stdout.contains("0001-fewer-rounds"),
        "{}",
        measured.stdout
    );
    let told = environment.run(&["post", "outcome", "--dry-run"]);
    assert!(told.stdout.contains("0001-fewer-rounds"), "{told:?}");
}

#[test]
fn nothing_outside_is_read_written_or_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = |environment: &TestEnvironment| {
        let (home, workspace) = (home(environment), environment.workspace());
        let (home, workspace) = (home.display(), workspace.display());
        format!(
            r#"exec > findings 2>&1
echo began
cat {home}/secret
cat "$HOME/secret"
touch {home}/written
touch {workspace}/series.written {workspace}/bench-config/written
echo hostile >> {workspace}/patches/0001-hostile.patch
perl -MIO::Socket::INET -e 'print "connected\n" if IO::Socket::INET->new(PeerAddr => "127.0.0.1:{port}")'
for each in /proc/[0-9]*; do tr '\0' '\n' < $each/environ; done
env
test -w /usr && touch /usr/perfquilt.written && echo wrote to the system
test -r /etc/shadow && echo shadow can be read
for each in / /dev; do touch $each/perfquilt.written && rm $each/perfquilt.written && echo has memory without end; done
touch $TMPDIR/perfquilt.written && rm $TMPDIR/perfquilt.written && echo has memory with an end
echo ended"#
        )
    };
    let attempt = |sandbox: &[&str]| {
        let environment = workspace("");
        let text = patch(&script(&environment));
        environment.write("patches/0001-hostile.patch", &text);
        let finished = run(&environment, sandbox);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        let found = findings(&environment);
        assert!(
            found.starts_with("began") && found.ends_with("ended\n"),
            "{found}"
        );
        let written = [
            home(&environment).join("written"),
            environment.workspace().join("series.written"),
            environment.workspace().join("bench-config/written"),
        ];
        let written = written.iter().filter(|path| path.exists()).count();
        let kept = fs::read_to_string(environment.workspace().join("patches/0001-hostile.patch"));
        (
            found,
            written,
            listener.accept().is_ok(),
            kept.unwrap() == text,
        )
    };
    let (found, written, connected, kept) = attempt(&["--sandbox"]);
    assert!(!found.contains(SECRET) && !found.contains(TOKEN), "{found}");
    assert!(
        !found.contains("connected") && !found.contains("wrote to"),
        "{found}"
    );
    assert!(!found.contains("shadow can be read"), "{found}");
    assert!(!found.contains("without end"), "{found}");
    assert!(found.contains("with an end"), "{found}");
    assert_eq!((written, connected, kept), (0, false, true), "{found}");
    assert!(!Path::new("/usr/perfquilt.written").exists());
    // The same without.
    let script_of_the_system = |line: &str| {
        line.replace("touch /usr/perfquilt.written", "true")
            .replace("in / /dev;", "in $TMPDIR;")
    };
    let environment = workspace("");
    let text = patch(&script_of_the_system(&script(&environment)));
    environment.write("patches/0001-hostile.patch", &text);
    let finished = run(&environment, &[]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let found = findings(&environment);
    assert!(
        found.contains(SECRET) && found.contains("connected"),
        "{found}"
    );
    assert!(home(&environment).join("written").exists());
    assert!(listener.accept().is_ok());
}

#[test]
fn what_is_left_inside_is_not_used_outside() {
    let script = |environment: &TestEnvironment| {
        let (workspace, cache) = (environment.workspace(), environment.cache());
        let (workspace, cache) = (workspace.display(), cache.display());
        format!(
            r#"exec > findings 2>&1
echo began
mkdir -p {workspace}/.perfquilt/edit/pending {workspace}/.perfquilt/objects.git/hooks
echo '{{}}' > {workspace}/.perfquilt/edit/pending/journal.json
echo '#!/bin/sh' > {workspace}/.perfquilt/objects.git/hooks/post-checkout
mkdir -p {cache}/builds/poisoned {cache}/downloads/poisoned
echo ended"#
        )
    };
    let environment = workspace("");
    let text = patch(&script(&environment));
    environment.write("patches/0001-hostile.patch", &text);
    let finished = run(&environment, &["--sandbox"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let found = findings(&environment);
    assert!(
        found.starts_with("began") && found.ends_with("ended\n"),
        "{found}"
    );
    let state = environment.workspace().join(".perfquilt");
    for left in ["edit", "objects.git/hooks/post-checkout"] {
        assert!(!state.join(left).exists(), "{left}");
    }
    assert!(!environment.cache().join("downloads/poisoned").exists());
    assert!(!environment.cache().join("builds").exists());
    // Nor for a fresh question about the same series.
    let finished = run(&environment, &["--sandbox", "--fresh"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    // It is removed like everything in the caches.
    let cleaned = environment.run(&["clean", "--unused-days", "0"]);
    assert_eq!(cleaned.code, Some(0), "{}", cleaned.stderr);
    assert!(cleaned.stdout.contains("sandbox"), "{}", cleaned.stdout);
    let areas = fs::read_dir(environment.cache().join("sandboxes")).unwrap();
    let folders = areas.filter(|entry| entry.as_ref().unwrap().path().is_dir());
    assert_eq!(folders.count(), 0);
}

/// A build changes neither what servers start from, nor their starts, nor another tree.
#[test]
fn a_build_writes_only_to_its_tree_and_temporary_files() {
    let environment = workspace(
        "exec > findings 2>&1
cache=${PWD%%/perfquilt/work/*}/perfquilt
for each in .. \"$TMPDIR\" $cache/work $cache/data $cache/run $cache/builds $cache/profiles /dev/shm; do
test ! -d $each || { touch $each/written && echo wrote to ${each#$cache/}; }
done
echo ended",
    );
    let finished = run(&environment, &["--sandbox"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let found = findings(&environment);
    let wrote = found.lines().filter(|line| !line.contains("denied"));
    let wrote: Vec<&str> = wrote.collect();
    assert_eq!(
        wrote,
        ["wrote to ..", "wrote to /tmp/home", "ended"],
        "{found}"
    );
    assert!(found.contains("/work/written") && found.contains("/run/written"));
}

/// The counts of a training lie outside of the server's start.
#[test]
fn a_profile_is_trained_inside() {
    let environment = TestEnvironment::with_fixture("toy");
    let recipe = "[recipe.pgo]\ninherits = \"make\"\nenv = { MAKEFLAGS = \"-e\", CFLAGS = \"-O2\" }\n\n\
                  [recipe.pgo.profile]\nworkloads = [\"requests\"]\ntransactions = 300\n\n[server]\n";
    environment.replace("bench-config/perfquilt.toml", "[server]\n", recipe);
    let finished = run(&environment, &["--recipe", "pgo", "--sandbox"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(
        finished.stderr.contains("trained toy-1.0, instrumented"),
        "{}",
        finished.stderr
    );
}

#[test]
fn another_series_begins_with_an_empty_area() {
    let environment = workspace("");
    let script = "exec > findings 2>&1
mkdir ../left
echo ended";
    environment.write("patches/0001-hostile.patch", patch(script));
    let finished = run(&environment, &["--sandbox"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_eq!(findings(&environment), "ended\n");
    let areas = || -> Vec<PathBuf> {
        let areas = fs::read_dir(environment.cache().join("sandboxes")).unwrap();
        let areas = areas.map(|entry| entry.unwrap().path());
        areas.filter(|path| path.is_dir()).collect()
    };
    let first = areas();
    assert_eq!(first.len(), 1);
    let left = |area: &Path| {
        let trees = fs::read_dir(area.join("cache/perfquilt/work")).unwrap();
        trees
            .filter(|tree| tree.as_ref().unwrap().path().join("left").exists())
            .count()
    };
    assert_eq!(left(&first[0]), 1);
    environment.write("patches/0001-hostile.patch", patch("echo began > findings"));
    let finished = run(&environment, &["--sandbox"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(
        !finished.stderr.contains("is in the cache"),
        "{}",
        finished.stderr
    );
    let second = areas();
    assert!(second.len() == 1 && second != first, "{second:?}");
    assert_eq!(left(&second[0]), 0);
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(environment.cache().join("sandboxes"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_link_in_place_of_the_series_shows_nothing() {
    let environment = workspace("echo began > findings");
    let folder = environment.workspace().join("patches");
    let outside = home(&environment).join("patches");
    fs::rename(&folder, &outside).unwrap();
    std::os::unix::fs::symlink(&outside, &folder).unwrap();
    let finished = run(&environment, &["--sandbox", "--outcome", "outcome"]);
    assert_eq!(finished.code, Some(2), "{}", finished.stderr);
    assert!(
        finished.stderr.contains("a sandboxed run does not read"),
        "{}",
        finished.stderr
    );
}

#[test]
fn nothing_survives() {
    let script =
        "setsid nohup sleep 600 > /dev/null 2>&1 < /dev/null &\necho began > findings\nsleep 0.3";
    let environment = workspace(script);
    let finished = run(&environment, &["--sandbox"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_eq!(findings(&environment), "began\n");
    environment.wait_until_no_process_is_left();
}

#[test]
fn nothing_survives_a_kill_at_any_moment() {
    let environment = workspace("true");
    let finished = run(&environment, &["--sandbox"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let begun = || {
        let processes = environment.processes();
        processes.iter().any(|line| line.starts_with("bwrap"))
    };
    for kill in 0..24_u64 {
        let mut child = environment
            .command(&["run", "--point", "1", "--blocks", "2", "--sandbox"])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let started = Instant::now();
        while !begun() && child.try_wait().unwrap().is_none() {
            assert!(started.elapsed() < Duration::from_secs(30), "no sandbox");
        }
        // Half of the kills within the first milliseconds of the sandbox.
        std::thread::sleep(Duration::from_micros(700 * kill * kill));
        child.kill().unwrap();
        child.wait().unwrap();
        // One that bubblewrap was just making may be left, without a program inside, until the next start.
        let started = Instant::now();
        let mut processes = environment.processes();
        while !processes.iter().all(|line| line.starts_with("bwrap")) {
            let waited = started.elapsed();
            assert!(waited < Duration::from_secs(10), "{processes:?}");
            std::thread::sleep(Duration::from_millis(20));
            processes = environment.processes();
        }
    }
    let finished = run(&environment, &["--sandbox"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    environment.wait_until_no_process_is_left();
}

fn limited(limits: &str, script: &str) -> (TestEnvironment, Finished) {
    let environment = workspace(script);
    let file = environment.workspace().join("bench-config/perfquilt.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(file, format!("{text}\n[sandbox]\n{limits}\n")).unwrap();
    let finished = run(&environment, &["--sandbox", "--outcome", "outcome"]);
    (environment, finished)
}

#[test]
fn processes_do_not_multiply() {
    // Each of them tries again at once, and nobody waits for one.
    let script = "echo began > findings\nperl -e 'fork while 1'";
    let (environment, finished) = limited("processes = 150", script);
    assert_eq!(finished.code, Some(5), "{}", finished.stderr);
    let words = "the sandbox was ended: more than 150 processes";
    assert!(finished.stderr.contains(words), "{}", finished.stderr);
    environment.wait_until_no_process_is_left();
    // What it left does not take the room of the next one.
    let areas = fs::read_dir(environment.cache().join("sandboxes")).unwrap();
    assert_eq!(
        areas
            .filter(|entry| entry.as_ref().unwrap().path().is_dir())
            .count(),
        0
    );
}

/// System calls and their errors, for processors whose numbers these are.
#[cfg(target_arch = "x86_64")]
const CALLS: [(&str, &str, i32); 33] = [
    ("openat2", "437, -100, 0, 0, 0", 38),
    ("memfd_create", "319, (my $x = \"x\"), 0", 38),
    ("a large shared segment", "29, 0, 65537, 0x380", 1),
    ("a small shared segment", "29, 0, 65536, 0x380", 0),
    ("chmod u+s", "90, (my $x = \"probe.sh\"), 04755", 1),
    ("chmod g+s", "90, (my $x = \"probe.sh\"), 02755", 1),
    ("chmod", "90, (my $x = \"probe.sh\"), 0755", 0),
    (
        "fchmodat u+s",
        "268, -100, (my $x = \"probe.sh\"), 04755",
        1,
    ),
    ("creating u+s", "2, (my $x = \"new\"), 0101, 04755", 1),
    (
        "creating without a name",
        "257, -100, (my $x = \".\"), 020200002, 02755",
        1,
    ),
    ("mknod u+s", "133, (my $x = \"node\"), 0104755, 0", 1),
    ("clone3", "435, 0, 0", 38),
    ("io_uring", "425, 1, 0", 38),
    ("unshare", "272, 0x10000000", 1),
    ("mount", "165, 0, 0, 0, 0, 0", 1),
    ("mount in the x32 ABI", "0x40000000 + 165, 0, 0, 0, 0, 0", 1),
    ("ptrace of others", "101, 1, getppid(), 0, 0", 1),
    ("ptrace of itself", "101, 0, 0", 0),
    ("memory of others", "310, getppid(), 0, 0, 0, 0, 0", 1),
    ("keyctl", "250, 0, 0", 1),
    ("bpf", "321, 0, 0, 0", 1),
    ("perf_event_open", "298, 0, 0, 0, 0, 0", 1),
    ("finit_module", "313, -1, 0, 0", 1),
    ("kexec_load", "246, 0, 0, 0x7ff, 0", 1),
    ("clock_settime", "227, 0, 0", 1),
    ("vsock", "41, 40, 1, 0", 1),
    ("packet", "41, 17, 3, 0", 1),
    ("unix", "41, 1, 1, 0", 0),
    ("inet", "41, 2, 1, 0", 0),
    ("typing with more bits", "16, 1, 0x100005412, 0", 1),
    ("pasting", "16, 1, 0x541c, 0", 1),
    ("typing", "16, 1, 0x5412, 0", 1),
    ("namespace by clone", "56, 0x10000011, 0, 0, 0, 0", 1),
];

/// The output of a program that makes these calls, each in a process of its own.
#[cfg(target_arch = "x86_64")]
fn made(calls: &[(&str, &str, i32)]) -> String {
    let line = |(name, words, _): &(&str, &str, i32)| {
        format!(
            "perl -e 'my $done = syscall({words}); print \"{name}: \", $done < 0 ? $!+0 : 0, \"\\n\"'\n"
        )
    };
    let calls: String = calls.iter().map(line).collect();
    format!("exec > findings 2>&1\n{calls}")
}

#[test]
#[cfg(target_arch = "x86_64")]
fn system_calls_that_no_server_needs_are_refused() {
    let environment = workspace(&made(&CALLS));
    let finished = run(&environment, &["--sandbox"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let expected = |calls: &[(&str, &str, i32)]| -> String {
        let line = |(name, _, error): &(&str, &str, i32)| format!("{name}: {error}\n");
        calls.iter().map(line).collect()
    };
    assert_eq!(findings(&environment), expected(&CALLS));
    // Outside, other errors or none come back: the arguments are wrong, but the calls are there.
    let (calls, _) = CALLS.split_at(CALLS.len() - 1);
    let environment = workspace(&made(calls));
    let finished = run(&environment, &[]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let found = findings(&environment);
    let root = rustix::process::geteuid().is_root();
    let refused = |name: &str| found.contains(&format!("{name}: 1\n"));
    for name in [
        "unshare",
        "perf_event_open",
        "memory of others",
        "vsock",
        "typing",
    ] {
        assert!(!refused(name), "{name}: {found}");
    }
    assert!(!root || !refused("mount"), "{found}");
}

#[test]
fn the_kernel_cannot_be_configured_from_inside() {
    // The attempts repeat what the files hold already, so that they change nothing where they succeed.
    let script = r#"exec > findings 2>&1
echo began
for each in /proc/sys/kernel/core_pattern /proc/sys/vm/swappiness /proc/irq/default_smp_affinity /proc/self/oom_score_adj /proc/self/comm; do
  test -e $each && now=$(cat $each) && sh -c "echo '$now' > $each" && echo "can write $each"
done
test -e /proc/sysrq-trigger && sh -c 'echo > /proc/sysrq-trigger' && echo "can write sysrq"
for each in /proc/kcore /proc/keys /proc/timer_list /proc/kallsyms; do head -c 1 $each | grep -q . && echo "can read $each"; done
ls -d /dev/mem /dev/kmem /dev/port /dev/[sv]d* /dev/loop* /dev/kvm /sys/kernel /sys/fs
(echo x > /dev/tty) && echo has a terminal
unshare -U true && echo has another user namespace
test -t 1 -o -t 2 && echo is a terminal
echo user $(id -u) $(id -G)
grep -e NoNewPrivs -e CapEff -e CapPrm /proc/self/status
cat /proc/self/oom_score_adj
echo ended"#;
    let environment = workspace(script);
    let finished = run(&environment, &["--sandbox"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let found = findings(&environment);
    assert!(
        found.starts_with("began") && found.ends_with("1000\nended\n"),
        "{found}"
    );
    for possible in ["can write", "can read", "has ", "is a terminal"] {
        assert!(!found.contains(possible), "{found}");
    }
    assert!(
        !found
            .lines()
            .any(|line| line.starts_with("/dev/") || line.starts_with("/sys/")),
        "{found}"
    );
    assert!(!found.contains("user 0"), "{found}");
    assert!(found.contains("NoNewPrivs:\t1"), "{found}");
    assert_eq!(found.matches(":\t0000000000000000").count(), 2, "{found}");
    // Outside, the same attempts succeed.
    let environment = workspace(&script.replace("echo x > /dev/tty", "false"));
    let finished = run(&environment, &[]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let found = findings(&environment);
    assert!(found.contains("can write /proc/self/comm"), "{found}");
    let root = rustix::process::geteuid().is_root();
    assert!(
        !root || found.contains("can write /proc/sys/vm/swappiness"),
        "{found}"
    );
}

#[test]
fn root_needs_a_user_that_is_not_root() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for user in ["root", "0", "nobody-of-this-name"] {
        let (_, finished) = limited(&format!("user = \"{user}\""), "false");
        assert_eq!(finished.code, Some(2), "{user}: {}", finished.stderr);
        assert!(
            finished.stderr.contains("useradd --system"),
            "{user}: {}",
            finished.stderr
        );
    }
    let (environment, finished) = limited("user = \"61234\"", "echo user $(id -u) > findings");
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_eq!(findings(&environment), "user 61234\n");
}

/// Rights of an ordinary user with its sandboxes, also where these tests run as root.
#[test]
fn an_ordinary_user_has_a_sandbox_too() {
    let script = "exec > findings 2>&1
for each in /proc/sys/kernel/core_pattern /proc/self/oom_score_adj; do sh -c \"echo 1 > $each\" && echo wrote; done
echo user $(id -u)
perl -e 'fork while 1'";
    let environment = workspace(script);
    let file = environment.workspace().join("bench-config/perfquilt.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(file, format!("{text}\n[sandbox]\nprocesses = 150\n")).unwrap();
    let mut words = vec!["run", "--point", "1", "--blocks", "2", "--sandbox"];
    let mut command = environment.command(&words);
    if rustix::process::geteuid().is_root() {
        let folder = environment.workspace().parent().unwrap().to_owned();
        let owned = std::process::Command::new("chown")
            .args(["-R", "61235:61235"])
            .arg(&folder)
            .status();
        assert!(owned.unwrap().success());
        let tool = command.get_program().to_owned();
        let given: Vec<_> = command
            .get_envs()
            .map(|(k, v)| (k.to_owned(), v.map(ToOwned::to_owned)))
            .collect();
        let mut dropped = std::process::Command::new("setpriv");
        dropped
            .args(["--reuid=61235", "--regid=61235", "--clear-groups", "--"])
            .arg(tool)
            .args(command.get_args());
        dropped.current_dir(environment.workspace()).env_clear();
        for (name, value) in given {
            value.map(|value| dropped.env(name, value));
        }
        command = dropped;
    }
    words.clear();
    let finished: Finished = command.output().unwrap().into();
    assert_eq!(finished.code, Some(5), "{}", finished.stderr);
    assert!(
        finished.stderr.contains("more than 150 processes"),
        "{}",
        finished.stderr
    );
}

#[test]
fn memory_and_files_have_an_end() {
    let limits = "memory_mib = 400\nfile_mib = 10\nopen_files = 500";
    let script = "exec > findings 2>&1
cat /proc/self/oom_score_adj
head -c 20000000 /dev/zero > big; echo file $?
head -c 400000000 /dev/zero > /dev/shm/big; echo shared $?
rm -f big /dev/shm/big
ulimit -n; ulimit -c";
    let (environment, finished) = limited(limits, script);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let found = findings(&environment);
    assert!(found.starts_with("1000\n"), "{found}");
    assert!(
        found.contains("file ") && !found.contains("file 0"),
        "{found}"
    );
    assert!(
        found.contains("shared ") && !found.contains("shared 0"),
        "{found}"
    );
    assert!(found.contains("500\n0\n"), "{found}");
    let script = "for i in 1 2 3 4; do perl -e '$x = \"a\" x (150 << 20); sleep 600' & done\nwait";
    let (environment, finished) = limited(limits, script);
    assert_eq!(finished.code, Some(5), "{}", finished.stderr);
    let words = "the sandbox was ended: more than 400 MiB of memory";
    assert!(finished.stderr.contains(words), "{}", finished.stderr);
    // What ran inside could not say so any more.
    let told = environment.workspace().join("outcome/outcome.json");
    let told = fs::read_to_string(told).unwrap();
    assert!(told.contains(words), "{told}");
    environment.wait_until_no_process_is_left();
}

#[test]
fn it_ends_when_asked() {
    let environment = workspace("echo began > findings\nsleep 600");
    let mut command = environment.command(&["run", "--sandbox"]);
    let mut child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    let started = Instant::now();
    while !environment
        .processes()
        .iter()
        .any(|line| line.contains("probe.sh"))
    {
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "it does not begin"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    environment.wait_until_no_process_is_left();
}
