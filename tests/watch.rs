//! `perfquilt watch` on an upstream of 200 commits: one report for each change, whatever was killed.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::releases::lines;
use crate::common::{TestEnvironment, copy};
use crate::forge::{Dialect, Fault, MockForge, Step, TOKEN};
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
        self.look_with(&[])
    }

    fn look_with(&self, environment: &[(&str, &str)]) -> Vec<Value> {
        let mut command = self.space.command(&["watch", "--once", "--json"]);
        let looked = command.envs(environment.iter().copied()).output().unwrap();
        let errors = String::from_utf8_lossy(&looked.stderr);
        assert_eq!(looked.status.code(), Some(0), "{errors}");
        let document: Value = serde_json::from_slice(&looked.stdout).unwrap();
        document["changes"].as_array().unwrap().clone()
    }

    /// Commits files to the branch that is checked out and watched; returns the commit.
    fn push(&self, files: &[(&str, String)]) -> String {
        for (file, text) in files {
            std::fs::write(self.remote().join(file), text).unwrap();
        }
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "-m", "change"]);
        self.git(&["rev-parse", "HEAD"])
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
fn what_a_look_wrote_before_it_died_is_not_written_again() {
    let upstream = Upstream::new("build = false");
    let space = &upstream.space;
    let store = space.path(".perfquilt/objects.git");
    let reference = |name: &str| {
        let name = format!("refs/watched/main/{name}");
        let args = [
            "--git-dir",
            store.to_str().unwrap(),
            "rev-parse",
            "--verify",
            "--quiet",
            &name,
        ];
        let found = space
            .hermetic("git", &space.workspace())
            .args(args)
            .output();
        String::from_utf8(found.unwrap().stdout)
            .unwrap()
            .trim()
            .to_owned()
    };
    upstream.tick("events", TAKEN - 5);
    upstream.look();
    let spare = tempfile::tempdir().unwrap();
    copy(&space.workspace(), spare.path());
    upstream.tick("events", CONFLICT + 5);
    upstream.look();
    let after = upstream.reports();
    assert_eq!(after.len(), 2);
    // Everything that the look left, in the order in which it is written.
    let folder = space.path("watch-reports");
    let ids = std::fs::read_dir(&folder).unwrap();
    let ids = ids.map(|entry| entry.unwrap().path().file_stem().unwrap().to_owned());
    let ids: BTreeSet<_> = ids.collect();
    let files = ids
        .iter()
        .flat_map(|id| ["md", "json"].map(|kind| std::path::Path::new(id).with_extension(kind)));
    let files: Vec<_> = files
        .map(|name| (std::fs::read(folder.join(&name)).unwrap(), name))
        .collect();
    let moved = ["tip", "checked", "measured"].map(|name| (name, reference(name)));
    assert_eq!(files.len(), 4);
    for steps in 0..=files.len() + moved.len() {
        std::fs::remove_dir_all(space.workspace()).unwrap();
        copy(spare.path(), &space.workspace());
        std::fs::create_dir_all(&folder).unwrap();
        let (tip, ends) = moved.split_first().unwrap();
        let objects = space
            .hermetic("git", &space.workspace())
            .args([
                "--git-dir",
                store.to_str().unwrap(),
                "fetch",
                "--quiet",
                upstream.remote().to_str().unwrap(),
                "main",
            ])
            .status();
        assert!(objects.unwrap().success());
        let set = |(name, id): &(&str, String)| {
            let name = format!("refs/watched/main/{name}");
            let args = [
                "--git-dir",
                store.to_str().unwrap(),
                "update-ref",
                &name,
                id,
            ];
            let set = space
                .hermetic("git", &space.workspace())
                .args(args)
                .status();
            assert!(set.unwrap().success());
        };
        if steps > 0 {
            set(tip);
        } else {
            // git's own, which died in between.
            std::fs::write(store.join("refs/watched/main/tip.lock"), "").unwrap();
        }
        for (bytes, name) in files.iter().take(steps.saturating_sub(1)) {
            std::fs::write(folder.join(name), bytes).unwrap();
        }
        ends.iter()
            .take(steps.saturating_sub(1 + files.len()))
            .for_each(set);
        let written = upstream.reports().len();
        let told = upstream.look();
        assert_eq!(
            written + told.len(),
            2,
            "died after {steps} steps: {told:?}"
        );
        assert_eq!(upstream.reports(), after, "died after {steps} steps");
        assert!(upstream.look().is_empty());
    }
}

#[test]
fn every_report_is_one_comment_on_every_forge() {
    for dialect in [Dialect::GitHub, Dialect::GitLab, Dialect::Forgejo] {
        let forge = MockForge::of(dialect);
        forge.opens(7, "1111111111111111111111111111111111111111");
        let name = dialect.kind().name;
        let upstream = Upstream::new("build = false\ncomment_on = 7\n");
        let space = &upstream.space;
        let config = "bench-config/perfquilt.toml";
        let error = space.fails(2, &["watch", "--once"]);
        assert!(
            error.contains("`comment_on` needs `repository` in [bot]"),
            "{error}"
        );
        let bot = format!("[bot]\nrepository = \"acme/series\"\nforge = \"{name}\"\n");
        space.write(config, format!("{}\n{bot}", space.read(config)));
        let upper = name.to_uppercase();
        let (api, token) = (format!("{upper}_API_URL"), format!("{upper}_TOKEN"));
        // Without a token, nothing is looked at.
        upstream.tick("events", CONFLICT + 5);
        let looked = space
            .command(&["watch", "--once"])
            .env(&api, forge.uri())
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&looked.stderr);
        assert_eq!(looked.status.code(), Some(2), "{error}");
        assert!(error.contains(&token), "{error}");
        let spare = tempfile::tempdir().unwrap();
        copy(&space.workspace(), spare.path());
        let uri = forge.uri();
        let environment = [(&*api, &*uri), (&*token, TOKEN)];
        // The answer to the first comment is lost.
        forge.fails(Step::Write, Fault::DoneAndCut);
        assert_eq!(upstream.look_with(&environment).len(), 2);
        assert!(upstream.look_with(&environment).is_empty());
        let comments = forge.ours(7);
        assert_eq!(comments.len(), 2, "{comments:#?}");
        for number in [TAKEN, CONFLICT] {
            let commit = upstream.commit(number);
            let about = comments.iter().filter(|body| body.contains(&commit));
            assert_eq!(about.count(), 1, "{comments:#?}");
        }
        // A look that died after its comments, before anything else of it was kept.
        std::fs::remove_dir_all(space.workspace()).unwrap();
        copy(spare.path(), &space.workspace());
        assert_eq!(upstream.look_with(&environment).len(), 2);
        assert_eq!(forge.ours(7), comments);
    }
}

#[test]
fn what_no_longer_builds_passes_or_helps_is_named_with_its_commit() {
    let upstream = Upstream::new("test = true");
    let space = &upstream.space;
    space.write(
        "bench-config/suite.sh",
        "if [ -e strict ] && grep -q 'SHIFT 2' work.h; then state=fail; else state=pass; fi\n\
         printf '%-30s [ %s ]\\n' main.shift $state\n[ $state = pass ]\n",
    );
    let suite = "[recipe.make.test]\ncommand = [\"sh\", \"{config}/suite.sh\"]\nformat = \"mtr\"\n\n[server]\nadapter";
    space.replace("bench-config/perfquilt.toml", "[server]\nadapter", suite);
    let remote = upstream.remote();
    let daemon = std::fs::read_to_string(remote.join("toyd.c")).unwrap();
    let refused = format!("{daemon}\n#if SHIFT == 2\n#error not here\n#endif\n");
    let work = work(100_000);
    let rounds = |by: &str| work.replace("(ROUNDS >> SHIFT)", by);
    upstream.push(&[]);
    assert!(upstream.look().is_empty());
    for (files, change) in [
        (vec![("toyd.c", refused)], Some("build_fails")),
        (vec![("toyd.c", daemon)], None),
        (vec![("strict", String::new())], Some("tests_fail")),
        (
            vec![("work.h", rounds("ROUNDS + SHIFT"))],
            Some("no_longer_helps"),
        ),
        (
            vec![("work.h", rounds("ROUNDS + 0 * SHIFT"))],
            Some("removed"),
        ),
    ] {
        upstream.push(&[("log.txt", format!("before {change:?}"))]);
        let commit = upstream.push(&files);
        upstream.push(&[("log.txt", format!("after {change:?}"))]);
        let found = upstream.look();
        let part = |change: &Value, key: &str| change[key].as_str().unwrap_or_default().to_owned();
        let found = found
            .iter()
            .map(|of| (part(of, "change"), part(of, "patch"), part(of, "commit")));
        let expected = change.map(|change| (change.to_owned(), "work.patch".to_owned(), commit));
        assert_eq!(found.collect::<Vec<_>>(), Vec::from_iter(expected));
        assert!(upstream.look().is_empty());
    }
    assert_eq!(upstream.reports().len(), 4);
    space.wait_until_no_process_is_left();
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
