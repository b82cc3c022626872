//! `perfquilt run --sandbox`: what a patch tries to do outside of its work folder. Each attempt is made without
//! a sandbox too, where it must succeed: an attempt that never works would prove nothing.
//!
//! These tests need bubblewrap, and fail where it cannot make a sandbox.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::{Finished, TestEnvironment};

const SECRET: &str = "a-secret-of-the-home";
const TOKEN: &str = "ghp_a_token_of_the_environment";

/// A workspace whose only patch has `make` run `script`.
fn workspace(script: &str) -> TestEnvironment {
    let environment = TestEnvironment::with_fixture("toy");
    environment.write("series", "0001-hostile.patch\n");
    environment.write("patches/0001-hostile.patch", &patch(script));
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

/// What the script wrote to the file `findings` of its folder.
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
        !again.stderr.contains("block 1 of") && again.stderr.contains("is in the cache"),
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
touch /dev/shm/perfquilt.written && rm /dev/shm/perfquilt.written && echo has memory with an end
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
    // It is removed like everything in the caches.
    let cleaned = environment.run(&["clean", "--unused-days", "0"]);
    assert_eq!(cleaned.code, Some(0), "{}", cleaned.stderr);
    assert!(cleaned.stdout.contains("sandbox"), "{}", cleaned.stdout);
    let areas = fs::read_dir(environment.cache().join("sandboxes")).unwrap();
    let folders = areas.filter(|entry| entry.as_ref().unwrap().path().is_dir());
    assert_eq!(folders.count(), 0);
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
    let script = "i=0\nwhile [ $i -lt 2000 ]; do sleep 600 & i=$((i+1)); done\nwait";
    let started = Instant::now();
    let (environment, finished) = limited("processes = 150", script);
    assert!(started.elapsed() < Duration::from_secs(120));
    // The kernel does not count root's processes; for others it refuses new ones.
    let root = rustix::process::geteuid().is_root();
    let (code, words) = if root {
        (5, "the sandbox was ended: more than 150 processes")
    } else {
        (4, "fork")
    };
    assert_eq!(finished.code, Some(code), "{}", finished.stderr);
    assert!(finished.stderr.contains(words), "{}", finished.stderr);
    environment.wait_until_no_process_is_left();
}

#[test]
fn memory_and_files_have_an_end() {
    let script = "exec > findings 2>&1
cat /proc/self/oom_score_adj
head -c 20000000 /dev/zero > big; echo file $?
head -c 400000000 /dev/zero > /dev/shm/big; echo shared $?
rm -f big /dev/shm/big
ulimit -n; ulimit -c
for i in 1 2 3 4; do perl -e '$x = \"a\" x (150 << 20); sleep 600' & done
wait";
    let (environment, finished) =
        limited("memory_mib = 400\nfile_mib = 10\nopen_files = 500", script);
    assert_eq!(finished.code, Some(5), "{}", finished.stderr);
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
