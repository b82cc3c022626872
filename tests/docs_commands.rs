//! The commands of the documents, run one after the other as a reader would, in a workspace like the one they
//! are about: a series of four patches with the names of MariaDB's, releases of its versions, on the toy server.

use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::TestEnvironment;
use crate::common::documents::{commands, root, without_remark};
use crate::forge::{MockForge, TOKEN};
use crate::schema::{documents_of_commands, faults_of};

const COMMIT: &str = "1111111111111111111111111111111111111111";

/// Names a reader puts something of his own in place of, and numbers that would take hours.
const STANDS_FOR: [(&str, &str); 13] = [
    (
        "git clone https://github.com/OWNER/perfquilt && cd perfquilt",
        "git clone -q . ../perfquilt",
    ),
    ("… edit …", "sed -i '1i // edited' work.h"),
    ("quilt add FILE", "quilt add work.h"),
    ("--quilt DIR", "--quilt with-quilt"),
    ("OWNER/NAME", "acme/series"),
    ("GITHUB_TOKEN=… ", ""),
    ("/tmp/tree", "../tree-of-2"),
    ("FILE.jsonl", "observations.jsonl"),
    ("report.jsonl.gz", "observations.jsonl"),
    ("--experiments 1000", "--experiments 5"),
    ("--real --repeats 20", "--real --repeats 2"),
    ("-C WORKSPACE", "-C ../workspace"),
    (
        "history OLD NEW",
        "history observations.jsonl observations.jsonl",
    ),
];

/// Upstream's `work.h`: a part for each patch, far enough apart, and one that upstream changes.
fn work(parts: [u32; 5]) -> String {
    let mut text = String::new();
    for (number, rounds) in parts.iter().enumerate() {
        writeln!(
            text,
            "/* Part {number}. */\n//\n//\n//\n#define PART_{number} {rounds}u\n//\n//\n//"
        )
        .unwrap();
    }
    text + "static unsigned work(unsigned state)\n{\n  \
            for (unsigned i = 0; i < PART_0 + PART_1 + PART_2 + PART_3 + PART_4; i++)\n    \
            state = state * 1664525u + 1013904223u;\n  return state;\n}\n"
}

/// The patch of part `number`.
fn patch(number: usize, before: u32, after: u32) -> String {
    let from = 8 * number + 2;
    format!(
        "From: A Tester <tester@example.org>\nDate: Mon, 2 Nov 2026 12:00:00 +0000\n\
         Subject: part {number}: other rounds\n\n--- a/work.h\n+++ b/work.h\n@@ -{from},7 +{from},7 @@\n \
         //\n //\n //\n-#define PART_{number} {before}u\n+#define PART_{number} {after}u\n //\n //\n //\n"
    )
}

/// A workspace with results, and the places around it.
struct World {
    environment: TestEnvironment,
    forge: MockForge,
    /// The workspace of the document that is read now.
    workspace: PathBuf,
}

impl World {
    fn new() -> Self {
        let environment = TestEnvironment::with_fixture("toy");
        let around = environment.workspace().parent().unwrap().to_owned();
        let world = World {
            workspace: environment.workspace(),
            environment,
            forge: MockForge::start(),
        };
        world.upstream(&around.join("remote"));
        world.series();
        world.configuration(&around.join("remote"));
        world.forge.opens(7, COMMIT);
        let event = format!(
            "{{\"action\": \"opened\", \"number\": 7, \"pull_request\": {{\"number\": 7, \"head\": {{\"sha\": \"{COMMIT}\"}}}}, \
             \"repository\": {{\"full_name\": \"acme/series\"}}}}"
        );
        std::fs::write(around.join("event.json"), event).unwrap();
        world.environment.write(".gitignore", "*\n!/.gitignore\n!/bench-config/**\n!/bench-config\n!/patches\n!/patches/**\n!/series\n");
        world.works("perfquilt run --outcome outcome", &world.workspace);
        world.works(
            "perfquilt lint --fix && git init --quiet && git add --all && git commit --quiet -m series",
            &world.workspace,
        );
        world.works(
            "perfquilt report --format jsonl --output observations.jsonl",
            &world.workspace,
        );
        world
    }

    /// A git remote with three releases; something is slower from a commit before the second one on, and the
    /// third one changes what patch 2 changes.
    fn upstream(&self, remote: &Path) {
        crate::common::copy(&self.workspace.join("upstream"), remote);
        self.works("git init --quiet", remote);
        let states: [([u32; 5], &[&str]); 4] = [
            ([1000; 5], &["mariadb-10.11.18", "v1"]),
            ([4000, 1000, 1000, 1000, 1000], &[]),
            ([4001, 1000, 1000, 1000, 1000], &["mariadb-10.11.19", "v2"]),
            ([4001, 1000, 900, 1000, 1000], &["mariadb-11.8.6"]),
        ];
        for (parts, tags) in states {
            std::fs::write(remote.join("work.h"), work(parts)).unwrap();
            self.works("git add --all && git commit --quiet -m change", remote);
            for tag in tags {
                self.works(&format!("git tag {tag}"), remote);
            }
        }
    }

    /// The patches that the documents name; what they do is the toy's.
    fn series(&self) {
        let series = std::fs::read_to_string(root().join("series")).unwrap();
        let names: Vec<&str> = series.lines().collect();
        assert_eq!(names.len(), 4, "{series}");
        std::fs::remove_dir_all(self.workspace.join("patches")).unwrap();
        std::fs::create_dir(self.workspace.join("patches")).unwrap();
        for (name, (number, after)) in names.iter().zip([(1, 500), (2, 990), (3, 300), (4, 2500)]) {
            self.environment
                .write(&format!("patches/{name}"), patch(number, 1000, after));
        }
        self.environment.write("series", &series);
    }

    fn configuration(&self, remote: &Path) {
        let config = "bench-config/perfquilt.toml";
        let release = |version: &str| {
            format!(
                "[[upstream.release]]\nversion = \"{version}\"\ngit = {{ remote = \"{}\", tag = \"mariadb-{version}\" }}\n",
                remote.display()
            )
        };
        let releases = ["10.11.18", "10.11.19", "11.8.6"].map(release).concat();
        let old = "[[upstream.release]]\nversion = \"1.0\"\ndirectory = \"upstream\"\n";
        for (from, to) in [
            ("name = \"toy\"", "name = \"mariadb\""),
            ("current = \"1.0\"", "current = \"10.11.18\""),
            (old, &releases),
            // Functions are told apart by what is not inlined.
            (
                "[\"make\", \"-j{jobs}\"]",
                "[\"make\", \"-j{jobs}\", \"CFLAGS=-O2 -g1\"]",
            ),
            ("[\"requests\"]", "[\"oltp_read_only\"]"),
            ("blocks = 5", "blocks = 3"),
            ("block_seconds = 0.3", "block_seconds = 0.1"),
        ] {
            self.environment.replace(config, from, to);
        }
        let file = self.workspace.join(config);
        let text = std::fs::read_to_string(&file).unwrap();
        let more = "\n[preset.series]\nrecipe = \"make\"\nworkloads = [\"oltp_read_only\", \"hash_distinct\"]\n\
                    meters = [\"time\"]\nblocks = 3\nblock_seconds = 0.1\n\n\
                    [preset.calibrate]\nrecipe = \"make\"\nworkloads = [\"oltp_read_only\"]\n\
                    meters = [\"time\"]\nblocks = 3\nblock_seconds = 0.1\n\n\
                    [recipe.make.test]\ncommand = [\"test\", \"-x\", \"toyd\"]\nformat = \"exit_status\"\n\n\
                    [watch]\nbuild = false\n[[watch.line]]\nname = \"main\"\n\
                    git = { remote = \"../remote\", branch = \"master\" }\n\n\
                    [bot]\nrepository = \"acme/series\"\nremote = \"../forge.git\"\n";
        std::fs::write(file, text + more).unwrap();
        let folder = self.workspace.join("bench-config/workloads");
        let requests = std::fs::read_to_string(folder.join("requests.toml")).unwrap();
        for name in ["oltp_read_only", "hash_distinct", "join_setup"] {
            std::fs::write(folder.join(format!("{name}.toml")), &requests).unwrap();
        }
        let log = crate::common::sysbench::log([1.0, 1.01, 0.99]);
        self.environment.write("base.log", &log);
        let log = crate::common::sysbench::log([0.9, 0.91, 0.89]);
        self.environment.write("patched.log", &log);
        let log = crate::common::sysbench::log([1.1, 1.11, 1.09]);
        self.environment.write("other.log", &log);
    }

    /// A script in `folder`, with the tool on `PATH`.
    fn script(&self, script: &str, folder: &Path) -> Command {
        let around = self.environment.workspace().parent().unwrap().to_owned();
        let program = Path::new(env!("CARGO_BIN_EXE_perfquilt"));
        let path = std::env::var("PATH").unwrap();
        let mut command = self.environment.hermetic("/bin/bash", folder);
        command
            .args(["-e", "-u", "-o", "pipefail", "-c", script])
            .env(
                "PATH",
                format!("{}:{path}", program.parent().unwrap().display()),
            )
            .env("GIT_EDITOR", "true")
            .env("GIT_SEQUENCE_EDITOR", "true")
            .env("GIT_AUTHOR_NAME", "A Tester")
            .env("GIT_AUTHOR_EMAIL", "tester@example.org")
            .env("GIT_COMMITTER_NAME", "A Tester")
            .env("GIT_COMMITTER_EMAIL", "tester@example.org")
            .env("GITHUB_TOKEN", TOKEN)
            .env("GITHUB_API_URL", self.forge.uri())
            .env("GITHUB_REPOSITORY", "acme/series")
            .env("GITHUB_EVENT_PATH", around.join("event.json"))
            .env(
                "PERFQUILT_WEBHOOK_SECRET",
                "0123456789abcdef0123456789abcdef",
            );
        command
    }

    /// The script's exit code and output.
    fn ends(&self, script: &str, folder: &Path) -> (i32, String) {
        let output = self.script(script, folder).output().unwrap();
        let said =
            [output.stdout, output.stderr].map(|out| String::from_utf8_lossy(&out).into_owned());
        (output.status.code().unwrap_or(-1), said.join("\n"))
    }

    fn works(&self, script: &str, folder: &Path) {
        let (code, said) = self.ends(script, folder);
        assert_eq!(code, 0, "{script}\n{said}");
    }

    /// Follows a document from its beginning in a workspace of its own; `behind` is the one that its reader has
    /// followed before.
    fn follow(&mut self, document: &str, behind: Option<&str>) {
        let around = self.environment.workspace().parent().unwrap().to_owned();
        let first = behind.map_or("workspace".to_owned(), |name| name.replace(['/', '.'], "-"));
        self.workspace = around.join(document.replace(['/', '.'], "-"));
        // Links and all, as they are.
        self.works(
            &format!("cp -a {first} {}", self.workspace.display()),
            &around,
        );
        let docs = self.workspace.join("docs");
        if !docs.exists() {
            std::os::unix::fs::symlink(root().join("docs"), docs).unwrap();
        }
        let text = std::fs::read_to_string(root().join(document)).unwrap();
        let mut followed = 0;
        let mut last = 0;
        let mut folder = self.workspace.clone();
        for (number, line) in commands(&text) {
            // Fences and text are between blocks, each of which begins in the workspace.
            if number > last + 2 {
                folder.clone_from(&self.workspace);
            }
            last = number;
            let mut line = without_remark(&line).to_owned();
            if line.is_empty() || line.starts_with('#') || line.starts_with("ci/") {
                continue;
            }
            for (from, to) in STANDS_FOR {
                line = line.replace(from, to);
            }
            let place = format!("{document}:{number}: {line}");
            println!("{place}");
            match line.strip_prefix("cd ") {
                Some("DIR") => folder.push("with-quilt"),
                Some(to) => folder.push(to),
                None => self.command(&place, &line, &folder),
            }
            followed += 1;
        }
        assert!(followed > 0, "{document}");
    }

    fn command(&self, place: &str, line: &str, folder: &Path) {
        let remote = self
            .environment
            .workspace()
            .parent()
            .unwrap()
            .join("remote");
        let worktree = self.workspace.join(".perfquilt/rebase/11.8.6-2");
        if line == "perfquilt bot serve" {
            return self.serves(place);
        }
        let mut line = line.to_owned();
        let mut folder = folder;
        let mut fine = vec![0];
        if line.starts_with("git bisect") {
            folder = &remote;
        }
        if line.contains("perfquilt bisect") && line.contains("--workload") {
            // Undecided is an answer, and to be had sooner.
            line.push_str(" --blocks 4");
            fine.push(7);
        }
        if line.contains("bundle run") {
            // So many blocks tell little.
            fine.extend([6, 7]);
        }
        if line.contains("bisect step") {
            // Git's own code of a bisection that skips.
            fine.push(2);
        }
        if line == "git commit -a" {
            line =
                "echo '// a new patch' >> work.h; git commit -q -a -m 'work: a new patch'".into();
        }
        if line.contains("calibrate") {
            fine.push(7);
        }
        if line.contains("perfquilt accept") {
            // The patches here make nothing slower.
            fine.push(2);
        }
        if line.contains("--pr 7") {
            // The workspace's repository is not the pull request's.
            line.push_str(&format!(" --head {COMMIT}"));
        }
        if line == "perfquilt rebase 11.8.6" {
            // Patch 2 is to be decided.
            fine = vec![3];
        }
        // The conflict is solved before git or `--continue` goes on.
        let solves = line.contains("cherry-pick --continue");
        if solves || line.ends_with("--continue") && worktree.join(".git").exists() {
            let (_, open) = self.ends("git diff --name-only --diff-filter=U", &worktree);
            if !open.trim().is_empty() {
                self.works("git checkout --theirs work.h", &worktree);
            }
            if !solves && !open.trim().is_empty() {
                self.works("git add -A && git cherry-pick --continue", &worktree);
            }
        }
        if solves {
            folder = &worktree;
        }
        let (code, said) = self.ends(&line, folder);
        assert!(fine.contains(&code), "{place}\nexit code {code}\n{said}");
    }

    /// The service listens, and ends when it is asked to.
    fn serves(&self, place: &str) {
        let mut command = self.script(
            "exec perfquilt bot serve --listen 127.0.0.1:0",
            &self.workspace,
        );
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let listens = said
            .by_ref()
            .map_while(Result::ok)
            .find(|line| line.contains("listening at"));
        assert!(listens.is_some(), "{place}");
        let id = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        let rest: Vec<String> = said.map_while(Result::ok).collect();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{place}\n{rest:#?}");
    }
}

/// Documents whose commands are run here.
const FOLLOWED: [&str; 8] = [
    "README.md",
    "docs/editing.md",
    "docs/maintaining.md",
    "docs/rebasing.md",
    "docs/pull-requests.md",
    "docs/formats.md",
    "docs/reviewing.md",
    "docs/bisecting.md",
];

/// Documents whose commands other tests run: `docs.rs` the tutorial's, `e2e_own_patch.rs` those on the real Redis,
/// `profile.rs` and `sql_bench.rs` the like of the others', which need functions and programs that this workspace does
/// not have.
const ELSEWHERE: [&str; 4] = [
    "docs/own-patch.md",
    "docs/profiling.md",
    "docs/sql-bench.md",
    "docs/tutorial.md",
];

#[test]
fn every_command_of_the_documents_works() {
    let mut world = World::new();
    for document in FOLLOWED {
        // Two releases are compared when both have a series.
        let behind = (document == "docs/bisecting.md").then_some("docs/maintaining.md");
        world.follow(document, behind);
    }
    world.environment.wait_until_no_process_is_left();
}

/// Documents of docs/documents.schema.json and the commands that print them, one after the other; those without a
/// name prepare the next.
const PRINTED: [(&str, &str); 31] = [
    ("forecast", "perfquilt --json run --dry-run --fresh"),
    ("experiments", "perfquilt --json report --list"),
    ("history", "perfquilt --json history"),
    ("", "perfquilt run --fresh --blocks 4"),
    ("", "perfquilt report --format jsonl --output second.jsonl"),
    (
        "comparison",
        "perfquilt --json history observations.jsonl second.jsonl",
    ),
    ("matrix", "perfquilt --json matrix"),
    ("ledger", "perfquilt --json ledger"),
    ("attribution", "perfquilt --json report"),
    ("", "perfquilt bundle run.bundle"),
    (
        "comparison",
        "perfquilt --json bundle run run.bundle --no-sandbox",
    ),
    (
        "bisection",
        "perfquilt --json bisect --workload oltp_read_only --blocks 4 --direction both",
    ),
    ("bisection", "perfquilt --json bisect log"),
    ("bisections", "perfquilt --json bisect log --list"),
    (
        "bisect_releases",
        "perfquilt --json bisect releases 10.11.18 10.11.19 --workload oltp_read_only --blocks 4",
    ),
    (
        "profile",
        "perfquilt --json profile 0 4 --callers main --annotate main",
    ),
    ("lint", "perfquilt --json lint --fix"),
    ("edit", "perfquilt --json edit"),
    (
        "",
        "cd .perfquilt/edit/mariadb-10.11.18 && echo '// new' >>work.h && git commit -q -a -m 'work: new'",
    ),
    ("refresh", "perfquilt --json refresh --dry-run"),
    ("edit", "perfquilt --json edit --reset"),
    (
        "rebase",
        "perfquilt --json rebase 11.8.6 --conflicts --build",
    ),
    ("rebase", "perfquilt --json rebase 10.11.19 --test"),
    (
        "rebase_resolve",
        "perfquilt --json rebase 11.8.6 --resolve 2",
    ),
    ("rebase_abort", "perfquilt --json rebase 11.8.6 --abort"),
    (
        "import",
        "perfquilt --json import patches --release 10.11.19 --dry-run",
    ),
    ("comment", "perfquilt --json post --dry-run"),
    ("posting", "perfquilt --json post --repo acme/series --pr 7"),
    ("outcome", "cat outcome/outcome.json"),
    ("first_line", "head -n 1 observations.jsonl"),
    ("last_line", "tail -n 1 observations.jsonl"),
];

#[test]
fn documents_of_commands_are_as_the_schema_says() {
    let world = World::new();
    let mut checked = std::collections::BTreeSet::new();
    for (name, command) in PRINTED {
        let command = command.replace("--pr 7", &format!("--pr 7 --head {COMMIT}"));
        let output = world.script(&command, &world.workspace).output().unwrap();
        // Decisions that are left, and undecided comparisons, are answers.
        let code = output.status.code();
        assert!(matches!(code, Some(0 | 3 | 7)), "{command}\n{output:?}");
        if name.is_empty() {
            continue;
        }
        let document = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            faults_of(name, &document),
            Vec::<String>::new(),
            "{command}"
        );
        checked.insert(name.to_owned());
    }
    let missing = documents_of_commands();
    let missing: Vec<&String> = missing.difference(&checked).collect();
    assert_eq!(missing, Vec::<&String>::new());

    let text = std::fs::read_to_string(world.workspace.join("observations.jsonl")).unwrap();
    let mut values = 0;
    let count = text.lines().count() - 2;
    for line in text.lines().skip(1).take(count) {
        let value = serde_json::from_str(line).unwrap();
        assert_eq!(faults_of("observation", &value), Vec::<String>::new());
        values += 1;
    }
    assert!(values > 10, "{text}");
    world.environment.wait_until_no_process_is_left();
}

#[test]
fn no_document_with_commands_is_forgotten() {
    let entries = std::fs::read_dir(root().join("docs")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names = names.filter(|name| name.ends_with(".md"));
    let mut found: Vec<String> = names.map(|name| format!("docs/{name}")).collect();
    found.push("README.md".to_owned());
    found.retain(|name| !commands(&std::fs::read_to_string(root().join(name)).unwrap()).is_empty());
    found.sort();
    let mut known = [&FOLLOWED[..], &ELSEWHERE].concat();
    known.sort_unstable();
    assert_eq!(found, known);
}
