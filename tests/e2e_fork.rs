//! Pull requests to a fork of the real Redis (`ci/e2e`): two commits on the release, asked for by who may, and one more by
//! an untrusted author, in the sandbox. Uses the machine's caches.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::bot::world::{World, git};
use crate::forge::TOKEN;

/// The machine's caches.
fn caches() -> PathBuf {
    let of = |name: &str| std::env::var_os(name).map(PathBuf::from);
    of("XDG_CACHE_HOME")
        .or_else(|| of("HOME").map(|home| home.join(".cache")))
        .unwrap()
        .join("perfquilt")
}

/// What the bot measures: the workload of the first patch, in a third of the time of the preset `demo`, which
/// `e2e_own_patch` measures as it is.
const PRESET: &str = r#"
[preset.fork]
recipe = "make"
workloads = ["lrange"]
meters = ["time", "cpu", "instructions"]
blocks = 6
block_seconds = 1.5
"#;

/// A bot in a workspace that is examples/redis, whose fork's branch is the release; and the last commit of the three
/// patches on it.
fn world() -> (World, String) {
    let world = World::new("kind = \"fork\"\npreset = \"fork\"");
    let workspace = world.environment.workspace();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/redis");
    let config = workspace.join("bench-config/perfquilt.toml");
    let text = fs::read_to_string(&config).unwrap();
    let bot = text.split_once("\n[bot]").unwrap().1.to_owned();
    for name in ["bench-config", "patches"] {
        fs::remove_dir_all(workspace.join(name)).unwrap();
        crate::common::copy(&root.join(name), &workspace.join(name));
    }
    fs::copy(root.join("series"), workspace.join("series")).unwrap();
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{text}{PRESET}\n[bot]{bot}")).unwrap();
    fs::create_dir_all(caches()).unwrap();
    std::os::unix::fs::symlink(caches(), world.environment.cache()).unwrap();

    // The release and the patches are commits of the workspace's store, which has no other stack before the bot
    // makes some.
    let status = world.environment.run(&["stack"]);
    assert_eq!(status.code, Some(0), "{}", status.stderr);
    let store = workspace.join(".perfquilt/objects.git");
    let stacks = ["for-each-ref", "--format=%(objectname)", "refs/stacks"];
    let stack = git(&store, &stacks);
    assert_eq!(stack.lines().count(), 1, "{stack}");
    let repository = world.repository.to_str().unwrap();
    let main = format!("{stack}~3:refs/heads/main");
    git(&store, &["push", "--quiet", repository, &main]);
    (world, stack)
}

/// Pull request 7 ends with the `patches`-th of the three commits that end with `stack`; its last commit.
fn push(world: &World, stack: &str, patches: usize) -> String {
    let store = world.environment.workspace().join(".perfquilt/objects.git");
    let what = format!("{stack}~{}:refs/pull/7/head", 3 - patches);
    let repository = world.repository.to_str().unwrap();
    git(&store, &["push", "--quiet", "--force", repository, &what]);
    git(&world.repository, &["rev-parse", "refs/pull/7/head"])
}

#[test]
fn commits_on_the_real_server_are_measured_for_who_may_and_for_an_untrusted_author() {
    let (world, stack) = world();
    world.forge.opens(7, &push(&world, &stack, 2));
    let mut bot = world.serve();
    for (jobs, author) in [(1, ("alice", "OWNER")), (2, ("mallory", "NONE"))] {
        let started = Instant::now();
        if jobs == 2 {
            // One more commit, which nobody has built or measured yet.
            world.forge.pushes(7, &push(&world, &stack, 3));
        }
        assert_eq!(bot.asked(&world, 7, author, "@perfquilt run"), 202);
        let status = bot.until_done_in(jobs, 3600);
        assert_eq!(status["past"][0]["state"], "done", "{status:#}");
        println!("{}: {:.0} s", author.0, started.elapsed().as_secs_f64());
        let ours = world.forge.ours(7);
        assert_eq!(ours.len(), 1);
        println!("{}", ours[0]);
        // No noise hides what the first commit does to long replies. The symbol of the title is left
        // open: in one experiment of twenty, another commit is called something by chance.
        let row = |text: &str| {
            let found = ours[0].lines().find(|line| line.contains(text));
            found.unwrap_or_else(|| panic!("no {text}")).to_owned()
        };
        assert!(ours[0].contains(" The series is "), "{}", ours[0]);
        assert!(row("| total |").contains("| faster ("));
        assert!(row("0001-networking-queue").contains("faster"));
        assert!(ours[0].contains("0002-networking-say"));
        assert_eq!(ours[0].contains("0003-"), jobs == 2);
        assert!(!ours[0].contains(TOKEN));
    }
    assert_eq!(bot.stops(), Some(0));
    world.environment.wait_until_no_process_is_left();
}
