//! Pull requests to a server: every commit is a patch.

use std::path::{Path, PathBuf};

use super::world::{SECRET, World, commit_all, git};
use crate::forge::TOKEN;

/// A repository of the server with a branch `main`, checked out.
fn server(world: &World) -> PathBuf {
    let workspace = world.environment.workspace();
    let folder = workspace.parent().unwrap().join("server");
    crate::common::copy(&workspace.join("upstream"), &folder);
    git(&folder, &["init", "--quiet", "--initial-branch=main", "."]);
    commit_all(&folder, "the server");
    push(world, &folder, "HEAD:refs/heads/main");
    git(&folder, &["checkout", "--quiet", "-b", "topic"]);
    folder
}

fn push(world: &World, folder: &Path, what: &str) -> String {
    git(
        folder,
        &[
            "push",
            "--quiet",
            "--force",
            world.repository.to_str().unwrap(),
            what,
        ],
    );
    git(folder, &["rev-parse", "HEAD"])
}

fn edit(folder: &Path, file: &str, from: &str, to: &str, message: &str) {
    let path = folder.join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from));
    std::fs::write(path, text.replace(from, to)).unwrap();
    commit_all(folder, message);
}

#[test]
fn every_commit_is_a_patch_on_where_it_branched_off() {
    let world = World::new("kind = \"fork\"");
    let folder = server(&world);
    edit(
        &folder,
        "work.h",
        "100000u",
        "25000u",
        // What a message quotes is not applied.
        "work: a quarter of the rounds\n\ndiff --git a/work.h b/work.h\n--- a/work.h\n+++ b/work.h\n\
         @@ -2 +2 @@\n-#define ROUNDS 100000u\n+#define ROUNDS 50000u\n",
    );
    edit(&folder, "work.h", "25000u", "12000u", "work: an eighth");
    // The branch goes on without the pull request.
    git(&folder, &["checkout", "--quiet", "main"]);
    edit(&folder, "toyc.c", "int main", "int  main", "later");
    push(&world, &folder, "HEAD:refs/heads/main");
    git(&folder, &["checkout", "--quiet", "topic"]);
    let head = push(&world, &folder, "HEAD:refs/pull/7/head");
    world.forge.opens(7, &head);
    let mut bot = world.serve();
    bot.comment(&world, "alice", "OWNER", "@perfquilt run");
    let status = bot.until_done(1);
    assert_eq!(status["past"][0]["state"], "done", "{status:#}");
    let told = world.forge.ours(7)[0].clone();
    assert!(
        told.contains("0001-work-a-quarter-of-the-rounds.patch"),
        "{told}"
    );
    assert!(
        told.contains("0002-work-an-eighth.patch") && !told.contains("later"),
        "{told}"
    );
    // One more commit: everything is measured again, since the code of the first job could have written what it left.
    edit(&folder, "work.h", "12000u", "6000u", "work: less");
    let head = push(&world, &folder, "HEAD:refs/pull/7/head");
    world.forge.pushes(7, &head);
    bot.comment(&world, "alice", "OWNER", "@perfquilt run");
    bot.until_done(2);
    let told = world.forge.ours(7)[0].clone();
    assert!(told.contains("0003-work-less.patch"), "{told}");
    assert!(!told.contains("eused from"), "{told}");
    // The branch is merged in: the commits are measured on the commit it merged, and the merge is no patch.
    git(
        &folder,
        &[
            "fetch",
            "--quiet",
            world.repository.to_str().unwrap(),
            "main",
        ],
    );
    let who = ["-c", "user.name=x", "-c", "user.email=x@example.org"];
    let merge = ["merge", "--quiet", "--no-ff", "-m", "merge", "FETCH_HEAD"];
    git(&folder, &[&who[..], &merge[..]].concat());
    let head = push(&world, &folder, "HEAD:refs/pull/7/head");
    world.forge.pushes(7, &head);
    bot.comment(&world, "alice", "OWNER", "@perfquilt run");
    bot.until_done(3);
    let told = world.forge.ours(7)[0].clone();
    assert!(told.contains("0003-work-less.patch"), "{told}");
    assert!(!told.contains("0004-") && !told.contains("later"), "{told}");
}

#[test]
fn nothing_in_common_is_told() {
    let world = World::new("kind = \"fork\"");
    let folder = server(&world);
    git(&folder, &["checkout", "--quiet", "--orphan", "alone"]);
    commit_all(&folder, "from nowhere");
    let head = push(&world, &folder, "HEAD:refs/pull/7/head");
    world.forge.opens(7, &head);
    let mut bot = world.serve();
    bot.comment(&world, "alice", "OWNER", "@perfquilt run");
    let status = bot.until_done(1);
    assert_eq!(status["past"][0]["state"], "done", "{status:#}");
    let told = &world.forge.ours(7)[0];
    assert!(told.contains("no commit in common"), "{told}");
}

#[test]
fn git_reads_no_settings_but_those_that_were_named() {
    let world = World::new("kind = \"fork\"\nsandbox = \"off\"");
    let folder = server(&world);
    edit(&folder, "work.h", "100000u", "25000u", "work: less");
    let head = push(&world, &folder, "HEAD:refs/pull/7/head");
    world.forge.opens(7, &head);
    // Any git that reads them fails.
    let around = folder.parent().unwrap();
    let broken = around.join("home/.gitconfig");
    std::fs::create_dir_all(around.join("home/.config/git")).unwrap();
    for file in [&broken, &around.join("home/.config/git/config")] {
        std::fs::write(file, "[broken\n").unwrap();
    }
    let mut bot = world.serve_with(&[("GIT_CONFIG_GLOBAL", broken.to_str().unwrap())]);
    bot.comment(&world, "alice", "OWNER", "@perfquilt run");
    let status = bot.until_done(1);
    assert_eq!(status["past"][0]["state"], "done", "{status:#}");
    let told = world.forge.ours(7).concat();
    assert!(told.contains("work-less") && !told.contains("❌"), "{told}");
    assert_eq!(bot.stops(), Some(0));
    // A file that is missing would be an empty one to git.
    let file = "bench-config/perfquilt.toml";
    let named = "kind = \"fork\"\ngit_config = \"missing\"";
    world.environment.replace(file, "kind = \"fork\"", named);
    let mut command = world.environment.command(&["bot", "serve"]);
    command
        .env("GITHUB_TOKEN", TOKEN)
        .env("PERFQUILT_WEBHOOK_SECRET", SECRET);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("git_config") && said.contains("missing"),
        "{said}"
    );
}

#[test]
fn a_submodule_or_a_link_among_the_commits_is_a_file_of_the_tree() {
    let world = World::new("kind = \"fork\"");
    let folder = server(&world);
    std::os::unix::fs::symlink("/etc/passwd", folder.join("users")).unwrap();
    edit(&folder, "work.h", "100000u", "25000u", "work: less");
    let head = push(&world, &folder, "HEAD:refs/pull/7/head");
    world.forge.opens(7, &head);
    std::fs::create_dir(folder.join("sub")).unwrap();
    let entry = format!("160000,{},sub", "1".repeat(40));
    git(&folder, &["update-index", "--add", "--cacheinfo", &entry]);
    commit_all(&folder, "a submodule");
    let head = push(&world, &folder, "HEAD:refs/pull/8/head");
    world.forge.opens(8, &head);
    let mut bot = world.serve();
    for number in [7, 8] {
        bot.asked(&world, number, ("alice", "OWNER"), "@perfquilt run");
    }
    let status = bot.until_done(2);
    let told = world.forge.ours(7).concat();
    assert!(
        told.contains("work-less") && !told.contains("❌"),
        "{told} {status:#}"
    );
    let told = world.forge.ours(8).concat();
    assert!(!told.contains("root:"), "{told}");
    println!("{told}");
}
