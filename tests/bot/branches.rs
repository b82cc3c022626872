//! Contents of a pull request's branch beside plain files, which git would fetch, run or follow.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::world::{SERIES, World, eventually, git};

/// The folder around the workspace.
fn around(world: &World) -> PathBuf {
    world.environment.workspace().parent().unwrap().to_owned()
}

/// Replaces `path` by a link to the commit of a submodule.
fn submodule(folder: &Path, path: &str) {
    let place = folder.join(path);
    let _ = fs::remove_dir_all(&place);
    let _ = fs::remove_file(&place);
    fs::create_dir_all(&place).unwrap();
    let entry = format!("160000,{},{path}", "1".repeat(40));
    git(folder, &["update-index", "--add", "--cacheinfo", &entry]);
}

/// Settings of a user who has installed Git LFS, with programs that leave a mark.
fn settings(world: &World) -> (PathBuf, PathBuf) {
    let (file, mark) = (around(world).join("gitconfig"), around(world).join("mark"));
    let touch = format!("touch {}", mark.display());
    let text = format!(
        "[filter \"lfs\"]\n\tsmudge = {touch}\n\tclean = {touch}\n\tprocess = {touch}\n\trequired = true\n\
         [protocol \"ext\"]\n\tallow = always\n[fetch]\n\trecurseSubmodules = true\n\
         [core]\n\tfsmonitor = {touch}\n\talternateRefsCommand = {touch}\n\
         [diff \"lfs\"]\n\ttextconv = {touch}\n\tcommand = {touch}\n"
    );
    fs::write(&file, text).unwrap();
    (file, mark)
}

#[test]
fn submodules_and_large_files_are_neither_fetched_nor_filtered() {
    let world = World::new("sandbox = \"off\"");
    let (file, mark) = settings(&world);
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let address = elsewhere.local_addr().unwrap();
    let folder = world.checkout(SERIES);
    let write = |name: &str, text: String| fs::write(folder.join(name), text).unwrap();
    let touch = format!("touch {}", mark.display());
    write(
        ".gitmodules",
        format!(
            "[submodule \"patches/sub\"]\n\tpath = patches/sub\n\turl = ext::{}\n\tupdate = !{touch}\n\
             [submodule \"sub\"]\n\tpath = sub\n\turl = http://{address}/x.git\n",
            touch.replace(' ', "% ")
        ),
    );
    write(".gitattributes", "* filter=lfs diff=lfs merge=lfs\n".into());
    write(".lfsconfig", format!("[lfs]\n\turl = http://{address}/\n"));
    submodule(&folder, "patches/sub");
    submodule(&folder, "sub");
    let head = world.push(&folder, 7);
    world.forge.opens(7, &head);
    // And one whose only patch is with Git LFS.
    let pointer = format!(
        "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 12345\n",
        "4d".repeat(32)
    );
    let name = "0001-large.patch";
    let head = world.commit_to(8, &format!("{name}\n"), &[(name, &pointer)]);
    world.forge.opens(8, &head);
    let mut bot = world.serve_with(&[("GIT_CONFIG_GLOBAL", file.to_str().unwrap())]);
    for number in [7, 8] {
        bot.asked(&world, number, ("alice", "OWNER"), "@perfquilt run");
    }
    let status = bot.until_done(2);
    let ended = status["past"].as_array().unwrap();
    assert!(ended.iter().all(|job| job["state"] == "done"), "{status:#}");
    let told = world.forge.ours(7).concat();
    assert!(
        told.contains("`0001-fewer-rounds.patch`") && !told.contains("❌"),
        "{told}"
    );
    let told = world.forge.ours(8).concat();
    assert!(told.contains(name) && told.contains("Git LFS"), "{told}");
    assert!(
        !mark.exists(),
        "git ran a program of the settings or the branch"
    );
    assert!(elsewhere.accept().is_err(), "git asked another server");
    assert_eq!(bot.stops(), Some(0));
}

/// How a branch replaces its files.
type Replace<'a> = &'a dyn Fn(&Path);

#[test]
fn entries_that_are_no_plain_files_are_never_followed() {
    const NO_SERIES: &str = "the pull request has no file series";
    const NO_PATCH: &str = "0001-fewer-rounds.patch";
    let replace = |folder: &Path, path: &str, to: &str| {
        let place = folder.join(path);
        let _ = fs::remove_dir_all(&place);
        let _ = fs::remove_file(&place);
        symlink(to, place).unwrap();
    };
    let link =
        |path: &'static str, to: &'static str| move |folder: &Path| replace(folder, path, to);
    let patch = "patches/0001-fewer-rounds.patch";
    let kinds: [(Replace<'_>, &str); 8] = [
        (&link("series", "/etc/passwd"), NO_SERIES),
        (
            &link("series", "patches/0001-fewer-rounds.patch"),
            NO_SERIES,
        ),
        (&|folder| submodule(folder, "series"), NO_SERIES),
        (
            &|folder| {
                fs::remove_file(folder.join("series")).unwrap();
                fs::create_dir(folder.join("series")).unwrap();
                fs::write(folder.join("series/series"), SERIES).unwrap();
            },
            NO_SERIES,
        ),
        // The workspace of the bot has this patch.
        (&link("patches", "../../../../patches"), NO_PATCH),
        (&|folder| submodule(folder, "patches"), NO_PATCH),
        (&link(patch, "/etc/passwd"), NO_PATCH),
        (
            &|folder| submodule(folder, "patches/0001-fewer-rounds.patch"),
            NO_PATCH,
        ),
    ];
    let world = World::new("");
    for (number, (make, _)) in (7..).zip(&kinds) {
        let folder = world.checkout(SERIES);
        make(&folder);
        let head = world.push(&folder, number);
        world.forge.opens(number, &head);
    }
    let mut bot = world.serve();
    for (number, _) in (7..).zip(&kinds) {
        bot.asked(&world, number, ("alice", "OWNER"), "@perfquilt run");
    }
    bot.until_done(kinds.len());
    for (number, (_, words)) in (7..).zip(&kinds) {
        let told = world.forge.ours(number).concat();
        assert!(
            told.contains("❌") && told.contains(words),
            "{number}: {told}"
        );
        assert!(!told.contains("root:"), "{number}: {told}");
    }
    // Nothing of them is left, and nothing was built.
    eventually("an area stays", || world.areas().is_empty());
    assert!(!world.environment.cache().join("builds").exists());
    assert_eq!(bot.stops(), Some(0));
}

#[test]
fn a_flood_of_references_is_not_fetched() {
    let world = World::new("sandbox = \"off\"");
    let head = world.commit(SERIES);
    world.forge.opens(7, &head);
    let names = (0..20_000).map(|number| {
        let (folder, name) = (number % 100, number / 100);
        format!("{head} refs/heads/{folder}/{name}\n{head} refs/tags/{folder}-{name}\n")
    });
    let mut lines: Vec<String> = names
        .flat_map(|of| of.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    lines.push(format!("{head} refs/pull/7/head"));
    lines.sort_by(|one, other| one[41..].cmp(&other[41..]));
    let packed = format!(
        "# pack-refs with: peeled fully-peeled sorted \n{}\n",
        lines.join("\n")
    );
    fs::write(world.repository.join("packed-refs"), packed).unwrap();
    fs::remove_dir_all(world.repository.join("refs/pull")).unwrap();
    let file = "bench-config/perfquilt.toml";
    world
        .environment
        .replace(file, "blocks = 5", "blocks = 400");
    let mut bot = world.serve();
    bot.comment(&world, "alice", "OWNER", "@perfquilt run");
    bot.until("it measures nothing", |status| {
        status["progress"].as_str().unwrap().contains("block")
    });
    let store = world.area(1).join("commits.git");
    let fetched = git(
        &store,
        &["--git-dir=.", "for-each-ref", "--format=%(refname)"],
    );
    assert_eq!(fetched, "refs/pull/7/head");
    assert_eq!(bot.stops(), Some(0));
}
