//! `perfquilt watch` on an upstream of 200 commits: one report for each change, whatever was killed.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::releases::lines;
use crate::common::{TestEnvironment, copy};
use rustix::process::Signal;
use serde_json::Value;

/// The number of commits after the release.
const COMMITS: usize = 200;
/// The commits with an event: upstream takes `b`, changes what `a` changes, loses `b` in a merge, and gets 1 % slower.
const TAKEN: usize = 40;
const CONFLICT: usize = 75;
const MERGE: usize = 120;
const SLOWER: usize = 165;
/// Where the branch is at each tick of a week.
const TICKS: [usize; 7] = [10, 30, 60, 90, 130, 170, COMMITS];

fn work(rounds: u32) -> String {
    format!(
        "/* What one request costs. */\n#define ROUNDS {rounds}u\n\n\n\n#define SHIFT 0\n\n\n\n\
         static unsigned work(unsigned state)\n{{\n  for (unsigned i = 0; i < (ROUNDS >> SHIFT); i++)\n    \
         state = state * 1664525u + 1013904223u;\n  return state;\n}}\n"
    )
}

/// A workspace with three patches on release 1.0, a tag of a repository whose branches `quiet` and `events` have
/// [`COMMITS`] more commits; `main` is watched.
struct Upstream {
    space: TestEnvironment,
}

impl Upstream {
    fn new(watch: &str) -> Self {
        let space = TestEnvironment::with_fixture("toy");
        let upstream = Upstream { space };
        let remote = upstream.remote();
        copy(&upstream.space.workspace().join("upstream"), &remote);
        for (file, text) in [
            ("work.h", work(100_000)),
            ("a.txt", lines(40, &[])),
            ("b.txt", lines(40, &[])),
        ] {
            std::fs::write(remote.join(file), text).unwrap();
        }
        upstream.git(&["init", "--quiet", "--initial-branch=main"]);
        upstream.git(&["add", "--all"]);
        upstream.git(&["commit", "--quiet", "-m", "release"]);
        upstream.git(&["tag", "v1"]);
        upstream.import();
        let space = &upstream.space;
        space.write("series", "");
        for (name, file, text) in [
            ("a.patch", "a.txt", "mine 20"),
            ("b.patch", "b.txt", "mine 20"),
        ] {
            let diff = format!(
                "Subject: {name}\n\n--- a/{file}\n+++ b/{file}\n@@ -19,3 +19,3 @@\n line 19\n-line 20\n+{text}\n line 21\n"
            );
            space.patch(name, diff);
        }
        space.patch(
            "work.patch",
            "Subject: work\n\n--- a/work.h\n+++ b/work.h\n@@ -5,3 +5,3 @@\n \n-#define SHIFT 0\n+#define SHIFT 2\n \n",
        );
        let config = "bench-config/perfquilt.toml";
        let at = remote.display();
        let release = format!("git = {{ remote = \"{at}\", tag = \"v1\" }}");
        space.replace(config, "directory = \"upstream\"", &release);
        space.replace(config, "meters = [\"time\"]", "meters = [\"instructions\"]");
        let text = space.read(config);
        let line = format!(
            "[[watch.line]]\nname = \"main\"\ngit = {{ remote = \"{at}\", branch = \"main\" }}\n"
        );
        space.write(
            config,
            format!("{text}\n[watch]\nmeter = \"instructions\"\n{watch}\n{line}"),
        );
        upstream
    }

    fn remote(&self) -> PathBuf {
        self.space.workspace().parent().unwrap().join("remote")
    }

    fn git(&self, args: &[&str]) -> String {
        let user = ["-c", "user.name=T", "-c", "user.email=t@example.org"];
        let output = self
            .space
            .hermetic("git", &self.remote())
            .args(user)
            .args(args)
            .output();
        let output = output.unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {args:?}: {errors}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Writes both branches. The merge is of a branch that left before upstream took `b`.
    fn import(&self) {
        let mut stream = String::new();
        let base = self.git(&["rev-parse", "v1"]);
        let commit = |branch: &str, number: usize, parents: &str, files: &[(&str, String)]| {
            let title = format!("change {number}");
            let mut text = format!(
                "commit refs/heads/{branch}\nmark :{}{number}\ncommitter T <t@example.org> {} +0000\ndata {}\n{title}\n{parents}",
                if branch == "quiet" { 1 } else { 2 },
                1_790_000_000 + number,
                title.len()
            );
            for (file, content) in files {
                text += &format!(
                    "M 100644 inline {file}\ndata {}\n{content}\n",
                    content.len()
                );
            }
            text + "\n"
        };
        for branch in ["quiet", "events"] {
            for number in 1..=COMMITS {
                let mut files = vec![("log.txt", format!("{number}\n"))];
                let mut parents = if number == 1 {
                    format!("from {base}\n")
                } else {
                    String::new()
                };
                // Changes of the patches' files that are no events.
                if number % 50 == 7 {
                    files.push(("c.txt", format!("{number}\n")));
                }
                if branch == "events" {
                    match number {
                        TAKEN => files.push(("b.txt", lines(40, &[(20, "mine 20\n")]))),
                        CONFLICT => files.push(("a.txt", lines(40, &[(20, "theirs 20\n")]))),
                        MERGE => {
                            parents = format!("from :2{}\nmerge :2{}\n", MERGE - 1, TAKEN - 5);
                            files.push(("b.txt", lines(40, &[])));
                        }
                        SLOWER => files.push(("work.h", work(101_000))),
                        _ => {}
                    }
                }
                stream += &commit(branch, number, &parents, &files);
            }
        }
        let mut import = self.space.hermetic("git", &self.remote());
        import
            .args(["fast-import", "--quiet"])
            .stdin(Stdio::piped());
        let mut child = import.spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(stream.as_bytes())
            .unwrap();
        assert!(child.wait().unwrap().success());
    }

    /// The id of a commit of the branch with events.
    fn commit(&self, number: usize) -> String {
        self.git(&["rev-parse", &format!("events~{}", COMMITS - number)])
    }

    /// Lets the watched branch be at this commit of `branch`.
    fn tick(&self, branch: &str, number: usize) {
        let tip = format!("{branch}~{}", COMMITS - number);
        self.git(&["update-ref", "refs/heads/main", &tip]);
    }

    /// The changes that one look reports.
    fn look(&self) -> Vec<Value> {
        let looked = self.space.run(&["watch", "--once", "--json"]);
        assert_eq!(looked.code, Some(0), "{}", looked.stderr);
        let document: Value = serde_json::from_str(&looked.stdout).unwrap();
        document["changes"].as_array().unwrap().clone()
    }

    /// The reports: change, patch and commit of each.
    fn reports(&self) -> BTreeSet<(String, String, String)> {
        let Ok(entries) = std::fs::read_dir(self.space.path("watch-reports")) else {
            return BTreeSet::new();
        };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let names: Vec<String> = names.filter(|name| name.ends_with(".json")).collect();
        let read = |name: &String| {
            let report: Value =
                serde_json::from_str(&self.space.read(&format!("watch-reports/{name}"))).unwrap();
            let faults = crate::schema::faults_of("change", &report);
            assert!(faults.is_empty(), "{faults:?}");
            let text = self
                .space
                .read(&format!("watch-reports/{}", name.replace(".json", ".md")));
            let part = |key: &str| report[key].as_str().unwrap_or_default().to_owned();
            assert!(text.contains(&part("commit")), "{text}");
            (part("change"), part("patch"), part("commit"))
        };
        let all: BTreeSet<_> = names.iter().map(read).collect();
        assert_eq!(all.len(), names.len(), "a report is there twice");
        all
    }

    /// What the reports of these events are.
    fn expected(&self, slower: bool) -> BTreeSet<(String, String, String)> {
        let events = [
            ("taken_upstream", "b.patch", TAKEN),
            ("conflict", "a.patch", CONFLICT),
            ("removed", "b.patch", MERGE),
            ("slower", "", SLOWER),
        ];
        let events = events
            .into_iter()
            .filter(|(change, ..)| slower || *change != "slower");
        let named = events.map(|(change, patch, number)| {
            (change.to_owned(), patch.to_owned(), self.commit(number))
        });
        named.collect()
    }
}

#[test]
fn a_week_of_ticks_gives_one_report_for_each_change() {
    let upstream = Upstream::new("");
    let mut found = Vec::new();
    for number in TICKS {
        upstream.tick("events", number);
        let new = upstream.look();
        assert!(
            upstream.look().is_empty(),
            "a second look finds something at {number}"
        );
        found.extend(new);
    }
    assert_eq!(found.len(), 4, "{found:#?}");
    assert_eq!(upstream.reports(), upstream.expected(true));
    upstream.space.wait_until_no_process_is_left();
}

#[test]
fn a_history_without_events_gives_no_report() {
    let upstream = Upstream::new("");
    for number in [TICKS[3], COMMITS] {
        upstream.tick("quiet", number);
        assert!(upstream.look().is_empty());
    }
    assert!(upstream.reports().is_empty());
}

#[test]
fn a_kill_neither_loses_nor_doubles_a_report() {
    let upstream = Upstream::new("build = false");
    for number in TICKS {
        upstream.tick("events", number);
        let spare = tempfile::tempdir().unwrap();
        copy(&upstream.space.workspace(), spare.path());
        let begun = Instant::now();
        let expected = upstream.look().len();
        let whole = begun.elapsed();
        let after = upstream.reports();
        // Each kill is of a look that begins where the last one ended.
        for part in 0..6_u32 {
            std::fs::remove_dir_all(upstream.space.workspace()).unwrap();
            copy(spare.path(), &upstream.space.workspace());
            let before = upstream.reports().len();
            upstream
                .space
                .run_and_signal(&["watch", "--once"], whole * part / 5, Signal::KILL);
            let written = upstream.reports().len();
            let told = upstream.look().len();
            assert_eq!(
                upstream.reports(),
                after,
                "killed at {part}/5 of tick {number}"
            );
            assert_eq!(
                written - before + told,
                expected,
                "killed at {part}/5 of tick {number}"
            );
            assert!(upstream.look().is_empty());
        }
    }
    assert_eq!(upstream.reports(), upstream.expected(false));
}

#[test]
fn a_kill_of_a_measurement_neither_loses_nor_doubles_a_report() {
    let upstream = Upstream::new("");
    upstream.tick("events", TICKS[4]);
    upstream.look();
    upstream.tick("events", TICKS[5]);
    for seconds in [1, 2, 4, 8] {
        let after = Duration::from_secs(seconds);
        upstream
            .space
            .run_and_signal(&["watch", "--once"], after, Signal::KILL);
    }
    upstream.look();
    assert!(upstream.look().is_empty());
    assert_eq!(upstream.reports(), upstream.expected(true));
    upstream.space.wait_until_no_process_is_left();
}

#[test]
fn a_line_is_named_and_its_remote_is_there() {
    let upstream = Upstream::new("build = false");
    let space = &upstream.space;
    let error = space.fails(2, &["watch", "--once", "mian"]);
    assert!(error.contains("main"), "{error}");
    space.replace(
        "bench-config/perfquilt.toml",
        "branch = \"main\"",
        "branch = \"mane\"",
    );
    let error = space.fails(2, &["watch", "--once"]);
    assert!(error.contains("cannot fetch branch mane"), "{error}");
    space.replace(
        "bench-config/perfquilt.toml",
        "name = \"main\"",
        "name = \"ma/in\"",
    );
    let error = space.fails(2, &["watch", "--once"]);
    assert!(error.contains("may only have letters"), "{error}");
    space.configure("[[upstream.release]]\nversion = \"1.0\"\ndirectory = \"up\"\n");
    assert!(
        space
            .fails(2, &["watch", "--once"])
            .contains("[[watch.line]]")
    );
}
