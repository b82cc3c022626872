//! `perfquilt bisect step` measures the commit that git tests, with the files that git checks out for it.

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::common::{Finished, TestEnvironment, copy};

const FAST: u32 = 20_000;
const SLOW: u32 = 100_000;

/// What one request costs, with a mark that makes another commit.
fn work(rounds: u32, mark: &str) -> String {
    format!(
        "/* {mark} */\n#define ROUNDS {rounds}u\nstatic unsigned work(unsigned state)\n{{\n  \
         for (unsigned i = 0; i < ROUNDS; i++)\n    state = state * 1664525u + 1013904223u;\n  return state;\n}}\n"
    )
}

/// A workspace of the toy server, and git repositories beside it.
struct Fork {
    environment: TestEnvironment,
}

/// One of the repositories.
struct Repository<'a> {
    environment: &'a TestEnvironment,
    folder: PathBuf,
}

impl Fork {
    fn new() -> Self {
        let environment = TestEnvironment::with_fixture("toy");
        environment.replace(
            "bench-config/perfquilt.toml",
            "block_seconds = 0.3",
            "block_seconds = 0.1",
        );
        Fork { environment }
    }

    fn repository(&self, name: &str) -> Repository<'_> {
        Repository {
            environment: &self.environment,
            folder: self.environment.workspace().parent().unwrap().join(name),
        }
    }

    /// A new repository, with ids of the format.
    fn create(&self, name: &str, format: &str) -> Repository<'_> {
        let repository = self.repository(name);
        std::fs::create_dir_all(&repository.folder).unwrap();
        let format = format!("--object-format={format}");
        repository.git(&["init", "--quiet", "--initial-branch=main", &format]);
        repository
    }

    /// A new repository of the server with the commits `v1`, `middle`, which are fast, and `v2`, which is slow.
    fn create_server(&self, name: &str, format: &str) -> Repository<'_> {
        let server = self.create(name, format);
        copy(
            &self.environment.workspace().join("upstream"),
            &server.folder,
        );
        server.commit("work.h", &work(FAST, "one"), "v1");
        server.commit("work.h", &work(FAST, "two"), "middle");
        server.commit("work.h", &work(SLOW, "three"), "v2");
        server
    }
}

impl Repository<'_> {
    fn git(&self, args: &[&str]) -> String {
        let output = self.run_git(args);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {args:?}: {text}{errors}");
        text.trim().to_owned()
    }

    fn run_git(&self, args: &[&str]) -> Output {
        let settings = [
            "-c",
            "user.name=A Tester",
            "-c",
            "user.email=tester@example.org",
            "-c",
            "protocol.file.allow=always",
            "-c",
            "advice.detachedHead=false",
        ];
        let mut command = self.environment.hermetic("git", &self.folder);
        command.args(settings).args(args).output().unwrap()
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.folder.join(file), text).unwrap();
    }

    /// Commits everything with this file, and gives the commit a name.
    fn commit(&self, file: &str, text: &str, tag: &str) {
        self.write(file, text);
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "-m", tag]);
        self.git(&["tag", "--force", tag]);
    }

    /// One step, called in a folder of the repository with further variables.
    fn step_in(&self, folder: &str, variables: &[(&str, &Path)]) -> Finished {
        let workspace = self.environment.workspace();
        let mut command = self.environment.command(&[
            "-C",
            workspace.to_str().unwrap(),
            "bisect",
            "step",
            "--good=v1",
            "--bad=v2",
            "--size=20%",
            "--error=5%",
        ]);
        command.current_dir(self.folder.join(folder));
        command.envs(variables.iter().copied());
        Finished::from(command.output().unwrap())
    }

    /// Asserts what a step says of the commit, and in which words.
    fn expect(&self, code: i32, words: &str) {
        let finished = self.step_in(".", &[]);
        let right = finished.code == Some(code) && finished.stderr.contains(words);
        assert!(right, "not {code}, {words}: {finished:?}");
    }

    /// The same of a commit that is checked out for it.
    fn expect_at(&self, commit: &str, code: i32, words: &str) {
        self.git(&["checkout", "--quiet", commit]);
        self.expect(code, words);
    }
}

const GOOD: i32 = 0;
const BAD: i32 = 1;
const ABORT: i32 = 128;

#[test]
fn a_bisection_without_checkouts_is_of_the_commit_that_git_names() {
    let fork = Fork::new();
    let server = fork.create_server("server", "sha1");
    server.git(&["bisect", "start", "--no-checkout", "v2", "v1"]);
    // The work tree is at v2, and its changes are no commit's.
    server.write("work.h", "#error not of the commit\n");
    server.expect(GOOD, "git's BISECT_HEAD");
    server.git(&["checkout", "--quiet", "work.h"]);
    server.git(&["bisect", "reset"]);
    server.expect(BAD, "");
    // A branch of the name is a branch.
    server.git(&["branch", "BISECT_HEAD", "v1"]);
    server.expect(BAD, "");
    // A bare repository has no work tree at all.
    server.git(&["clone", "--quiet", "--bare", ".", "../bare"]);
    let bare = fork.repository("bare");
    bare.expect(BAD, "");
    bare.git(&["bisect", "start", "v2", "v1"]);
    bare.expect(GOOD, "git's BISECT_HEAD");
}

#[test]
fn files_of_submodules_are_those_that_the_commit_names() {
    let fork = Fork::new();
    let inner = fork.create("inner", "sha1");
    inner.commit("work.h", &work(FAST, "one"), "fast");
    inner.commit("work.h", &work(SLOW, "two"), "slow");
    let library = fork.create("library", "sha1");
    library.git(&["submodule", "--quiet", "add", "../inner", "nested"]);
    let name_inner = |commit: &str| {
        library.git(&["-C", "nested", "checkout", "--quiet", commit]);
        library.commit("note", commit, commit);
    };
    name_inner("fast");
    name_inner("slow");
    let server = fork.create("server", "sha1");
    copy(
        &fork.environment.workspace().join("upstream"),
        &server.folder,
    );
    std::fs::remove_file(server.folder.join("work.h")).unwrap();
    let makefile = server.folder.join("Makefile");
    let rules = std::fs::read_to_string(&makefile).unwrap();
    std::fs::write(&makefile, rules.replace("work.h", "library/nested/work.h")).unwrap();
    let program = server.folder.join("toyd.c");
    let text = std::fs::read_to_string(&program).unwrap();
    let text = text.replace("\"work.h\"", "\"library/nested/work.h\"");
    std::fs::write(&program, text).unwrap();
    server.git(&["submodule", "--quiet", "add", "../library", "library"]);
    let name_library = |commit: &str, tag: &str| {
        server.git(&["-C", "library", "fetch", "--quiet", "--tags"]);
        server.git(&["-C", "library", "checkout", "--quiet", commit]);
        server.commit("note", tag, tag);
    };
    name_library("fast", "v1");
    name_library("fast", "middle");
    name_library("slow", "v2");
    server.git(&["submodule", "--quiet", "update", "--init", "--recursive"]);
    // A checkout leaves the submodules at the commits of v2.
    server.expect_at("middle", GOOD, "submodules are measured at the commits");
    server.write("note", "with a change of another file");
    server.expect(GOOD, "uncommitted changes in note");
    server.git(&["checkout", "--quiet", "note"]);
    server.expect_at("v2", BAD, "");
    // Their repositories stay when their work trees go.
    server.git(&["submodule", "--quiet", "deinit", "--all", "--force"]);
    server.expect_at("middle", GOOD, "");
    server.git(&["worktree", "add", "--quiet", "../linked", "middle"]);
    fork.repository("linked").expect(GOOD, "");
    server.git(&["clone", "--quiet", ".", "../without"]);
    let without = fork.repository("without");
    without.expect_at("middle", ABORT, "git submodule update --init --recursive");
    // The ends have theirs, the commit between them needs another one.
    server.git(&["checkout", "--quiet", "middle"]);
    let slow = inner.git(&["rev-parse", "slow"]);
    let entry = format!("160000,{slow},extra");
    server.git(&["update-index", "--add", "--cacheinfo", &entry]);
    let text = std::fs::read_to_string(&program).unwrap();
    let text = text.replace("library/nested/work.h", "extra/work.h");
    server.write("toyd.c", &text);
    server.git(&["add", "toyd.c"]);
    server.git(&["commit", "--quiet", "--message", "extra"]);
    server.expect(ABORT, "submodules that are not here: extra");
}

#[test]
fn the_work_tree_counts_as_it_is() {
    let fork = Fork::new();
    let server = fork.create_server("server", "sha1");
    for flag in ["assume-unchanged", "skip-worktree"] {
        server.git(&["checkout", "--quiet", "middle"]);
        server.git(&["update-index", &format!("--{flag}"), "work.h"]);
        server.expect(GOOD, "");
        server.write("work.h", &work(SLOW, "changed"));
        server.expect(BAD, "uncommitted changes in work.h");
        server.git(&["update-index", &format!("--no-{flag}"), "work.h"]);
        server.git(&["checkout", "--quiet", "work.h"]);
    }
    // Files outside a sparse checkout are in no work tree, but in the commit.
    std::fs::create_dir(server.folder.join("sub")).unwrap();
    server.commit("sub/kept", "kept", "sparse");
    server.git(&["sparse-checkout", "set", "sub"]);
    std::fs::remove_file(server.folder.join("work.h")).unwrap();
    server.git(&["update-index", "--skip-worktree", "work.h"]);
    server.expect(GOOD, "");
    server.git(&["sparse-checkout", "disable"]);
    server.git(&["checkout", "--quiet", "v2"]);
    server.write("work.h", "<<<<<<<\n");
    server.git(&["checkout", "--quiet", "--force", "-b", "side", "v1"]);
    server.commit("work.h", "another\n", "side");
    assert!(
        !server
            .run_git(&["merge", "--no-commit", "v2"])
            .status
            .success()
    );
    server.expect(ABORT, "unresolved conflicts");
}

#[test]
fn git_answers_for_replaced_and_borrowed_objects_and_for_filters() {
    let fork = Fork::new();
    let server = fork.create_server("server", "sha1");
    server.git(&["clone", "--quiet", "--shared", ".", "../borrowing"]);
    let borrowing = fork.repository("borrowing");
    borrowing.expect_at("middle", GOOD, "");
    borrowing.expect_at("v2", BAD, "");
    // A file of the commit that is tested stands for another, then the commit itself does.
    server.git(&["checkout", "--quiet", "middle"]);
    server.git(&["replace", "middle:work.h", "v2:work.h"]);
    server.git(&["checkout", "--quiet", "--force", "middle", "--", "."]);
    server.git(&["reset", "--quiet", "--hard"]);
    server.expect(BAD, "");
    server.git(&[
        "replace",
        "--delete",
        &server.git(&["rev-parse", "middle:work.h"]),
    ]);
    server.git(&["reset", "--quiet", "--hard"]);
    server.expect(GOOD, "");
    server.git(&["replace", "middle", "v2"]);
    server.git(&["reset", "--quiet", "--hard"]);
    server.expect(BAD, "");
    server.git(&["replace", "--delete", "middle"]);
    // What a filter makes of a file is what is built.
    server.git(&["config", "filter.slow.clean", "sed s/SLOW/FAST/"]);
    server.git(&["config", "filter.slow.smudge", "sed s/20000u/100000u/"]);
    server.git(&["reset", "--quiet", "--hard"]);
    server.commit(".gitattributes", "work.h filter=slow\n", "filtered");
    server.expect(BAD, "");
    server.git(&["config", "filter.slow.smudge", "false"]);
    server.git(&["config", "filter.slow.required", "true"]);
    server.expect(ABORT, "git cannot check out the files");
}

#[test]
fn the_environment_names_the_repository_as_it_does_for_git() {
    let fork = Fork::new();
    let server = fork.create_server("server", "sha1");
    server.git(&["checkout", "--quiet", "middle"]);
    server.git(&["worktree", "add", "--quiet", "--detach", "../linked", "v2"]);
    let linked = fork.repository("linked");
    linked.expect(BAD, "");
    std::fs::create_dir(server.folder.join("sub")).unwrap();
    assert_eq!(server.step_in("sub", &[]).code, Some(GOOD));
    // Elsewhere, the variables decide.
    let (git, tree) = (server.folder.join(".git"), server.folder.as_path());
    let elsewhere = linked.step_in(".", &[("GIT_DIR", &git), ("GIT_WORK_TREE", tree)]);
    assert_eq!(elsewhere.code, Some(GOOD), "{elsewhere:?}");
    // As below a hook: the folder is the work tree's, and the index another one.
    let index = server.folder.join(".git/next-index");
    std::fs::copy(server.folder.join(".git/index"), &index).unwrap();
    let hook = server.step_in(
        ".",
        &[("GIT_DIR", Path::new(".git")), ("GIT_INDEX_FILE", &index)],
    );
    assert_eq!(hook.code, Some(GOOD), "{hook:?}");
    // The objects are in another folder.
    let objects = server.folder.join("../objects");
    std::fs::rename(server.folder.join(".git/objects"), &objects).unwrap();
    let moved = server.step_in(".", &[("GIT_OBJECT_DIRECTORY", &objects)]);
    assert_eq!(moved.code, Some(GOOD), "{moved:?}");
    std::fs::rename(&objects, server.folder.join(".git/objects")).unwrap();
    // A work tree beside its repository.
    std::fs::rename(
        server.folder.join(".git"),
        server.folder.join("../apart.git"),
    )
    .unwrap();
    let apart = fork.repository("apart.git");
    apart.git(&["config", "core.worktree", server.folder.to_str().unwrap()]);
    apart.expect(GOOD, "");
    let of_another = apart.step_in(".", &[("GIT_TEST_ASSUME_DIFFERENT_OWNER", Path::new("1"))]);
    assert_eq!(of_another.code, Some(ABORT), "{of_another:?}");
    assert!(
        of_another.stderr.contains("belongs to another user"),
        "{of_another:?}"
    );
}

#[test]
fn clones_with_parts_and_other_ids_are_measured_or_refused_by_name() {
    let fork = Fork::new();
    let server = fork.create_server("server", "sha1");
    server.git(&["config", "uploadpack.allowFilter", "true"]);
    let origin = format!("file://{}", server.folder.display());
    server.git(&["clone", "--quiet", "--depth=3", &origin, "../whole"]);
    let whole = fork.repository("whole");
    whole.git(&["fetch", "--quiet", "--tags"]);
    whole.expect_at("middle", GOOD, "");
    server.git(&["clone", "--quiet", "--depth=1", &origin, "../cut"]);
    let cut = fork.repository("cut");
    cut.expect(ABORT, "`v1` is not a commit here, and the clone is shallow");
    cut.git(&["fetch", "--quiet", "--depth=1", "origin", "tag", "v1"]);
    cut.expect(ABORT, "it has nothing before");
    let partial = [
        "clone",
        "--quiet",
        "--filter=blob:none",
        &origin,
        "../partial",
    ];
    server.git(&partial);
    let partial = fork.repository("partial");
    partial.git(&["checkout", "--quiet", "v2"]);
    std::fs::rename(&server.folder, server.folder.with_extension("away")).unwrap();
    partial.expect(ABORT, "the clone is partial");
    std::fs::rename(server.folder.with_extension("away"), &server.folder).unwrap();
    partial.expect_at("middle", GOOD, "");
    let other = fork.create_server("other", "sha256");
    other.expect_at("middle", GOOD, "");
    other.git(&["checkout", "--quiet", "--orphan", "new"]);
    other.expect(ABORT, "`HEAD` is not a commit here");
}
