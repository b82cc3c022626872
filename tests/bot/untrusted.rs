//! Code of authors who may not command: where it runs, and what must be approved. The tests that run it need
//! bubblewrap.

use std::fs;
use std::path::PathBuf;

use super::world::{SECRET, World, commented, eventually, git, pushed};
use crate::common::Mounted;
use crate::forge::TOKEN;

const UNTRUSTED: (&str, &str) = ("mallory", "NONE");

/// A world whose servers run on a disk that the tests see, in folders below the cache of a job's area.
fn on_disk(config: &str) -> World {
    let world = World::new(config);
    let file = "bench-config/perfquilt.toml";
    world
        .environment
        .replace(file, "[server]\n", "[server]\ndisk = \"durable\"\n");
    world
}

/// What the servers of a job wrote to files `findings` in their folders.
fn findings(world: &World, job: u32) -> String {
    fn search(folder: &std::path::Path, found: &mut String) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.ends_with("findings") {
                let text = fs::read(&path).unwrap_or_default();
                found.push_str(&String::from_utf8_lossy(&text));
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                search(&path, found);
            }
        }
    }
    let mut found = String::new();
    search(&world.area(job).join("cache"), &mut found);
    found
}

/// A patch that has the server run `script` whenever it starts.
fn server_runs(script: &str) -> String {
    assert!(!script.contains(['"', '\\', '\n']));
    format!(
        "Subject: server: begin well\n\ndiff --git a/toyd.c b/toyd.c\n--- a/toyd.c\n+++ b/toyd.c\n\
         @@ -44,6 +44,7 @@\n     return 2;\n   }}\n   signal(SIGPIPE, SIG_IGN);\n\
         +  if (system(\"{script}\")) {{ }}\n   sigaction(SIGTERM, &action, NULL);\n   listener = listen_at(argv[1]);\n\
         \x20  fprintf(stderr, \"toyd is ready\\n\");\n"
    )
}

const BUILD: &str = "Subject: build: faster

diff --git a/Makefile b/Makefile
--- a/Makefile
+++ b/Makefile
@@ -1,4 +1,4 @@
-CFLAGS = -O2 -g0 -Wall
+CFLAGS = -O3 -g0 -Wall
 
 all: toyd toyc
 
";

#[test]
fn an_untrusted_author_reads_no_secret_and_changes_nothing_of_others() {
    let world = on_disk("");
    let environment = &world.environment;
    let (workspace, cache) = (environment.workspace(), environment.cache());
    // What the bot itself measured, which others rely on.
    let own = environment.run(&["run", "--point", "0", "--point", "1"]);
    assert_eq!(own.code, Some(0), "{}", own.stderr);
    let results = fs::read(workspace.join(".perfquilt/results.db")).unwrap();
    let home = workspace.parent().unwrap().join("home");
    fs::write(home.join("secret"), "a-secret-of-the-home").unwrap();
    let state = workspace.join(".perfquilt");
    let script = format!(
        "test -e {area}/read && exit; exec >> findings 2>&1; echo began; cat {home}/secret; env; \
         cat /proc/[0-9]*/environ; cat {state}/bot/queue.db; echo x >> {state}/results.db; \
         echo x >> {state}/objects.git/HEAD; touch {cache}/builds/x {cache}/x {home}/x; \
         for i in {cache}/builds/*; do echo x >> $i/build.json; done; echo ended; \
         until test -e {area}/read; do sleep 0.1; done",
        area = world.area(1).join("cache/perfquilt").display(),
        state = state.display(),
        home = home.display(),
        cache = cache.display(),
    );
    opens_with(&world, 7, &server_runs(&script));
    let mut bot = world.serve();
    assert_eq!(bot.asked(&world, 7, UNTRUSTED, "@perfquilt run"), 202);
    let found = || findings(&world, 1);
    eventually("it does not end", || found().ends_with("ended\n"));
    let found = found();
    assert!(found.starts_with("began"), "{found}");
    fs::write(world.area(1).join("cache/perfquilt/read"), "").unwrap();
    let status = bot.until_done(1);
    assert_eq!(status["past"][0]["state"], "done", "{status:#}");
    for secret in ["a-secret-of-the-home", TOKEN, SECRET] {
        assert!(!found.contains(secret), "{secret}: {found}");
        assert!(!world.forge.ours(7)[0].contains(secret));
    }
    assert!(!found.contains("acme/series"), "it read the queue: {found}");
    assert_eq!(fs::read(state.join("results.db")).unwrap(), results);
    let exists = |path: std::path::PathBuf| path.exists();
    assert!(!exists(cache.join("builds/x")) && !exists(cache.join("x")) && !exists(home.join("x")));
    let words = "Measured from code that nobody has approved";
    assert!(world.forge.ours(7)[0].contains(words));
    // What the bot built before was used, and is as it was: the whole of it counts for the next run.
    assert!(
        world.forge.ours(7)[0].contains("## "),
        "{:?}",
        world.forge.ours(7)
    );
    let again = environment.run(&["run", "--point", "0", "--point", "1"]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert!(
        again.stderr.matches("is in the cache").count() >= 2,
        "{}",
        again.stderr
    );
    assert_eq!(bot.stops(), Some(0));
    environment.wait_until_no_process_is_left();
}

#[test]
fn what_uses_too_much_is_ended_and_told() {
    let world = World::new("");
    let file = "bench-config/perfquilt.toml";
    world
        .environment
        .replace(file, "[bot]", "[sandbox]\nprocesses = 150\n\n[bot]");
    let script = "for i in $(seq 2000); do sleep 600 & done; wait";
    opens_with(&world, 7, &server_runs(script));
    let mut bot = world.serve();
    bot.asked(&world, 7, UNTRUSTED, "@perfquilt run");
    let status = bot.until_done(1);
    assert_eq!(status["past"][0]["state"], "done", "{status:#}");
    let told = &world.forge.ours(7)[0];
    let root = rustix::process::geteuid().is_root();
    assert!(!root || told.contains("more than 150 processes"), "{told}");
    assert!(told.contains("❌"), "{told}");
    assert_eq!(bot.stops(), Some(0));
    eventually("something survives", || {
        world.environment.processes().is_empty()
    });
}

/// Opens a pull request with `patch` alone.
fn opens_with(world: &World, number: u64, patch: &str) {
    let name = "0001-hostile.patch";
    let head = world.commit_to(number, &format!("{name}\n"), &[(name, patch)]);
    world.forge.opens(number, &head);
}

/// A patch whose build does `script`, a line of a shell.
fn build_runs(script: &str) -> String {
    assert!(!script.contains(['\n', '$']));
    format!(
        "Subject: build: prepare\n\ndiff --git a/Makefile b/Makefile\n--- a/Makefile\n+++ b/Makefile\n\
         @@ -1,5 +1,8 @@\n CFLAGS = -O2 -g0 -Wall\n \n-all: toyd toyc\n+all: toyd toyc probe\n+\n+probe:\n\
         +\t{script}\n \n toyd: toyd.c work.h\n"
    )
}

/// Waits until a build of the first job has made `name` beside its sources, where alone it may write, and returns the path.
fn left_in_a_tree(world: &World, name: &str) -> PathBuf {
    let trees = world.area(1).join("cache/perfquilt/work");
    let find = || {
        let trees = fs::read_dir(&trees).into_iter().flatten();
        let mut paths = trees.map(|tree| tree.unwrap().path().join(name));
        paths.find(|path| path.exists())
    };
    eventually("it does not begin", || find().is_some());
    find().unwrap()
}

/// A bot whose job builds a server, in which a program ignores every signal that it can.
fn stubborn() -> (World, super::world::Serving) {
    let world = World::new("");
    let script = "trap '' TERM INT HUP QUIT; while :; do sleep 1; done";
    opens_with(&world, 7, &build_runs(script));
    let mut bot = world.serve();
    bot.asked(&world, 7, ("alice", "OWNER"), "@perfquilt run");
    eventually("it does not begin", || {
        let processes = world.environment.processes();
        processes.iter().any(|line| line.contains("while :"))
    });
    (world, bot)
}

#[test]
fn a_job_without_a_readable_result_fails_with_a_comment() {
    let world = World::new("");
    let state = world.environment.workspace().join(".perfquilt/bot");
    // The job waits until there is a folder where the outcome is to be written.
    let area = world.area(1);
    let outcome = "touch ../begun; until test -e ../begun.read; do sleep 0.1; done";
    // And a failure that names files of the bot's machine.
    let failing = format!(
        "echo {}/x.c:3: error: bad >&2; pwd >&2; false",
        state.display()
    );
    for (number, script) in [(7, outcome), (8, &failing)] {
        opens_with(&world, number, &build_runs(script));
    }
    let mut bot = world.serve();
    bot.asked(&world, 7, ("alice", "OWNER"), "@perfquilt run");
    let begun = left_in_a_tree(&world, "begun");
    fs::create_dir_all(area.join("outcome/outcome.json/x")).unwrap();
    fs::write(begun.with_extension("read"), "").unwrap();
    let status = bot.until_done(1);
    assert_eq!(status["past"][0]["state"], "failed", "{status:#}");
    let words = "the job ended without a readable result";
    eventually("nobody is told", || world.forge.said(7, words));
    bot.asked(&world, 8, ("alice", "OWNER"), "@perfquilt run");
    bot.until_done(2);
    assert!(world.forge.said(8, "x.c:3: error: bad"));
    let root = world
        .environment
        .workspace()
        .parent()
        .unwrap()
        .display()
        .to_string();
    for number in [7, 8] {
        let told = world.forge.ours(number).concat();
        assert!(told.contains("❌") && !told.contains(&root), "{told}");
    }
    assert_eq!(bot.stops(), Some(0));
}

#[test]
fn cancel_ends_what_ignores_signals() {
    let (world, mut bot) = stubborn();
    let asked = std::time::Instant::now();
    bot.comment(&world, "alice", "OWNER", "@perfquilt cancel");
    let status = bot.until_done(1);
    assert_eq!(status["past"][0]["state"], "cancelled", "{status:#}");
    eventually("something survives", || {
        let processes = world.environment.processes();
        !processes.iter().any(|line| line.contains("while :"))
    });
    // The promise is two seconds; the machine of a test may do other things.
    assert!(asked.elapsed() < std::time::Duration::from_secs(10));
    assert_eq!(bot.stops(), Some(0));
}

#[test]
fn a_signal_ends_the_bot_while_it_builds() {
    let (world, bot) = stubborn();
    bot.stops_at_once();
    world.environment.wait_until_no_process_is_left();
}

/// As root: the disk of the queue is full when a job ends.
#[test]
fn a_full_disk_of_the_queue_fails_a_job_and_delays_no_delivery() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let world = World::new("sandbox = \"off\"");
    let head = world.commit(super::SERIES);
    world.forge.opens(7, &head);
    let folder = world.environment.workspace().join(".perfquilt/bot");
    let Some(mounted) = Mounted::in_memory(&folder, 16) else {
        return;
    };
    let mut bot = world.serve();
    assert_eq!(
        bot.asked(&world, 7, ("alice", "OWNER"), "@perfquilt run"),
        202
    );
    bot.until("it measures nothing", |status| {
        status["progress"].as_str().unwrap().contains("block")
    });
    let rest = mounted.flood();
    eventually("it is not reported", || {
        let said = bot.said.lock().unwrap();
        said.iter()
            .any(|line| line.contains("job 1: failed") && line.contains("No space left"))
    });
    eventually("nobody is told", || world.forge.said(7, "The job failed"));
    // Deliveries are stored all the same, in the room that the queue has reserved.
    for _ in 0..200 {
        assert_eq!(
            bot.comment(&world, "alice", "OWNER", "@perfquilt status"),
            202
        );
    }
    assert!(bot.child.try_wait().unwrap().is_none());
    std::fs::remove_file(&rest).unwrap();
    bot.until_done(1);
    assert_eq!(
        bot.asked(&world, 7, ("alice", "OWNER"), "@perfquilt run"),
        202
    );
    let status = bot.until_done(2);
    assert_eq!(status["past"][0]["state"], "done", "{status:#}");
    assert_eq!(bot.stops(), Some(0));
    drop(mounted);
}

/// As root: a flood of bytes, then of inodes, in a file system of the pull requests' own.
#[test]
fn a_flood_of_the_disk_reaches_neither_queue_nor_results() {
    if !rustix::process::geteuid().is_root() || !std::path::Path::new("/dev/loop-control").exists()
    {
        return;
    }
    let world = World::new("area_mib = 64");
    let file = "bench-config/perfquilt.toml";
    world
        .environment
        .replace(file, "[bot]", "[sandbox]\nfree_mib = 4\n\n[bot]");
    let areas = world.environment.workspace().join(".perfquilt/bot/areas");
    let mounted = Mounted(areas.clone());
    let flood = |number: u64, script: &str| opens_with(&world, number, &build_runs(script));
    flood(8, "head -c 200000000 /dev/zero > ../flood");
    flood(9, "seq -f ../%.0f 100000 | xargs touch");
    flood(10, "head -c 200000000 /dev/zero > flood");
    let head = world.commit(super::SERIES);
    world.forge.opens(7, &head);
    let mut bot = world.serve();
    for (done, number) in [8, 9, 10].into_iter().enumerate() {
        bot.asked(&world, number, ("alice", "OWNER"), "@perfquilt run");
        bot.until_done(done + 1);
        let told = world.forge.ours(number).concat();
        assert!(told.contains("❌"), "{told}");
        // Whoever writes next meets the full disk: the server's build, or perfquilt's own files of the job.
        let words = ["on the disk", "No space left", "the disk is full"];
        assert!(words.iter().any(|words| told.contains(words)), "{told}");
        // Before the next job begins.
        eventually("its folder stays", || world.areas().is_empty());
        assert_eq!(bot.get("/health"), "ok\n");
    }
    // What the flooded job left takes no room of the next.
    bot.asked(&world, 7, ("alice", "OWNER"), "@perfquilt run");
    let status = bot.until_done(4);
    assert_eq!(status["past"][0]["state"], "done", "{status:#}");
    let told = world.forge.ours(7).concat();
    assert!(!told.contains("❌"), "{told}");
    assert_eq!(bot.stops(), Some(0));
    drop(mounted);
}

#[test]
fn what_steers_a_build_is_approved_first() {
    let world = World::new("");
    let series = "0001-build.patch\n0001-fewer-rounds.patch\n";
    let head = world.commit_to(7, series, &[("0001-build.patch", BUILD)]);
    world.forge.opens(7, &head);
    let mut bot = world.serve();
    bot.asked(&world, 7, UNTRUSTED, "@perfquilt run");
    let held = |status: &serde_json::Value| status["open"][0]["state"] == "held";
    bot.until("it is not held", held);
    let command = format!("`@perfquilt approve {head}`");
    eventually("nobody is told", || {
        let told = world.forge.ours(7).concat();
        told.contains(&command) && told.contains("- `Makefile`") && !told.contains("work.h")
    });
    // Not by the author, not another commit, not a part of the id.
    let approve = format!("@perfquilt approve {head}");
    bot.comment(&world, "mallory", "NONE", &approve);
    let other = format!("@perfquilt approve {}", "0".repeat(40));
    bot.comment(&world, "alice", "OWNER", &other);
    bot.comment(&world, "alice", "OWNER", &approve[..approve.len() - 1]);
    eventually("no answers", || {
        let said = world.forge.conversation(7);
        said.matches(":confused:").count() == 2 && said.contains(":-1:")
    });
    assert!(held(&bot.status()));
    // A newer commit makes it void.
    let newer = world.commit_to(
        7,
        &format!("# again\n{series}"),
        &[("0001-build.patch", BUILD)],
    );
    world.forge.pushes(7, &newer);
    let mut push = pushed("synchronize", &newer);
    push["before"] = head.as_str().into();
    push["pull_request"]["user"] = super::user("mallory");
    push["pull_request"]["author_association"] = "NONE".into();
    push["sender"] = super::user("mallory");
    bot.hears("pull_request", &push);
    bot.comment(&world, "alice", "OWNER", &approve);
    eventually("no answer", || {
        world.forge.conversation(7).matches(":confused:").count() == 3
    });
    bot.asked(&world, 7, UNTRUSTED, "@perfquilt run");
    bot.until("it is not held", held);
    bot.comment(
        &world,
        "alice",
        "OWNER",
        &format!("@perfquilt approve {newer}"),
    );
    let status = bot.until("no end", |status| {
        let ended = status["past"].as_array().unwrap();
        ended.iter().any(|job| job["state"] == "done")
    });
    assert_eq!(status["open"], serde_json::json!([]), "{status:#}");
    eventually("no result", || {
        world.forge.ours(7)[0].contains("`0001-build.patch`")
    });
    assert!(!world.forge.ours(7)[0].contains("nobody has approved"));
    // What is approved needs no second approval, and whoever may command needs none.
    bot.asked(&world, 7, UNTRUSTED, "@perfquilt run 0002");
    bot.asked(&world, 7, ("alice", "OWNER"), "@perfquilt run 0001");
    let status = bot.until_done(4);
    assert_eq!(status["past"][0]["state"], "done", "{status:#}");
}

#[test]
fn an_approval_is_of_one_commit_however_deliveries_race() {
    let world = World::new("");
    let file = "bench-config/perfquilt.toml";
    world
        .environment
        .replace(file, "blocks = 5", "blocks = 400");
    let series = "0001-build.patch\n";
    let commit = |series: &str| world.commit_to(7, series, &[("0001-build.patch", BUILD)]);
    let read = commit(series);
    world.forge.opens(7, &read);
    let other = world.commit_to(8, super::SERIES, &[]);
    world.forge.opens(8, &other);
    let mut bot = world.serve();
    let state = |status: &serde_json::Value, number: u64| {
        let open = status["open"].as_array().unwrap().iter();
        let mut own = open.filter(|job| job["number"] == number);
        own.next()
            .map(|job| job["state"].as_str().unwrap().to_owned())
    };
    let is = |number: u64, wanted: &'static str| {
        move |status: &serde_json::Value| state(status, number).as_deref() == Some(wanted)
    };
    bot.asked(&world, 7, UNTRUSTED, "@perfquilt run");
    bot.until("it is not held", is(7, "held"));
    bot.asked(&world, 8, ("alice", "OWNER"), "@perfquilt run");
    bot.until("nothing else runs", is(8, "running"));
    // Two approve at once: the job waits once.
    let approve = format!("@perfquilt approve {read}");
    bot.comment(&world, "alice", "OWNER", &approve);
    bot.comment(&world, "bob", "MEMBER", &approve);
    eventually("no answers", || {
        let said = world.forge.conversation(7);
        said.contains(":confused:") && said.matches(":rocket:").count() == 2
    });
    let status = bot.status();
    assert_eq!(status["open"].as_array().unwrap().len(), 2, "{status:#}");
    assert!(is(7, "waiting")(&status), "{status:#}");
    // Another commit is pushed before the approved job starts, and the delivery is late.
    let newer = commit(&format!("# more\n{series}"));
    world.forge.pushes(7, &newer);
    bot.asked(&world, 8, ("alice", "OWNER"), "@perfquilt cancel");
    let status = bot.until_done(2);
    let ended = status["past"].as_array().unwrap();
    assert!(
        ended.iter().all(|job| job["state"] == "cancelled"),
        "{status:#}"
    );
    bot.asked(&world, 7, UNTRUSTED, "@perfquilt run");
    bot.until("the newer commit is not held", is(7, "held"));
    let mut push = pushed("synchronize", &newer);
    push["before"] = read.as_str().into();
    push["sender"] = super::user("mallory");
    bot.hears("pull_request", &push);
    assert!(is(7, "held")(&bot.status()));
    bot.comment(&world, "alice", "OWNER", &approve);
    eventually("no answer", || {
        world.forge.conversation(7).matches(":confused:").count() == 2
    });
    assert!(is(7, "held")(&bot.status()));
    // The approved commit comes back: somebody approves it again.
    let back = ["--git-dir=.", "update-ref", "refs/pull/7/head", &read];
    git(&world.repository, &back);
    world.forge.pushes(7, &read);
    let mut push = pushed("synchronize", &read);
    push["before"] = newer.as_str().into();
    push["sender"] = super::user("mallory");
    bot.hears("pull_request", &push);
    bot.until("it is not cancelled", |status| state(status, 7).is_none());
    bot.asked(&world, 7, UNTRUSTED, "@perfquilt run");
    bot.until("it is not held", is(7, "held"));
    assert_eq!(bot.stops(), Some(0));
}

#[test]
fn nobody_approves_the_own_changes() {
    let world = World::new("approval = \"everybody\"");
    let series = "0001-build.patch\n";
    let head = world.commit_to(7, series, &[("0001-build.patch", BUILD)]);
    world.forge.opens(7, &head);
    let mut bot = world.serve();
    let held = |status: &serde_json::Value| status["open"][0]["state"] == "held";
    bot.asked(&world, 7, ("alice", "OWNER"), "@perfquilt run");
    bot.until("it is not held", held);
    let approve = format!("@perfquilt approve {head}");
    // GitHub's logins have no case.
    bot.asked(&world, 7, ("Alice", "OWNER"), &approve);
    eventually("no answer", || {
        world.forge.conversation(7).contains(":-1:")
            && world
                .forge
                .said(7, "somebody else than the author approves the changes")
    });
    assert!(held(&bot.status()));
    bot.comment(&world, "bob", "MEMBER", &approve);
    let status = bot.until_done(1);
    assert_eq!(status["past"][0]["state"], "done", "{status:#}");
    // A push ends the approval, also if the commit comes back.
    for head in [&"1".repeat(40), &head] {
        assert_eq!(bot.hears("pull_request", &pushed("synchronize", head)), 202);
    }
    bot.asked(&world, 7, ("alice", "OWNER"), "@perfquilt run");
    bot.until("it is not held", held);
    assert_eq!(bot.stops(), Some(0));
}

#[test]
fn the_bot_judges_the_series_that_the_job_reads() {
    let world = World::new("");
    let series = "0001-build.patch\n";
    let head = world.commit_to(7, series, &[("0001-build.patch", BUILD)]);
    world.forge.opens(7, &head);
    // What quilt in the bot's own tree reads, which no job does.
    fs::create_dir(world.environment.workspace().join(".pc")).unwrap();
    let noted = ".pc/.quilt_series";
    world.environment.write(noted, "elsewhere\n");
    let mut bot = world.serve_with(&[("QUILT_SERIES", "nowhere")]);
    bot.asked(&world, 7, UNTRUSTED, "@perfquilt run");
    bot.until("it is not held", |status| {
        status["open"][0]["state"] == "held"
    });
    let build = "- `Makefile`";
    eventually("nobody is told", || world.forge.said(7, build));
    assert_eq!(bot.stops(), Some(0));
}

#[test]
fn a_series_that_the_bot_cannot_read_is_not_run() {
    let world = World::new("");
    let series = "0001-build.patch\n0002-broken.patch\n";
    let patches = [
        ("0001-build.patch", BUILD),
        ("0002-broken.patch", "no diff\n"),
    ];
    let head = world.commit_to(7, series, &patches);
    world.forge.opens(7, &head);
    let mut bot = world.serve();
    bot.asked(&world, 7, UNTRUSTED, "@perfquilt run");
    let status = bot.until_done(1);
    assert_eq!(status["past"][0]["state"], "done", "{status:#}");
    let told = &world.forge.ours(7)[0];
    assert!(told.contains("no diff in this file"), "{told}");
    // Nothing of it is left, and nothing was built.
    eventually("its area stays", || world.areas().is_empty());
    assert!(!world.environment.cache().join("builds").exists());
    assert_eq!(bot.stops(), Some(0));
}

#[test]
fn code_that_was_pushed_after_the_command_is_not_run() {
    let world = World::new("");
    let file = "bench-config/perfquilt.toml";
    let environment = &world.environment;
    environment.replace(file, "blocks = 5", "blocks = 400");
    let first = world.commit_to(8, super::SERIES, &[]);
    let seen = world.commit_to(7, super::SERIES, &[]);
    world.forge.opens(8, &first);
    world.forge.opens(7, &seen);
    let mut bot = world.serve();
    bot.asked(&world, 8, ("alice", "OWNER"), "@perfquilt run");
    bot.until("it measures nothing", |status| {
        status["progress"].as_str().unwrap().contains("block")
    });
    bot.asked(&world, 7, UNTRUSTED, "@perfquilt run");
    eventually("no answer", || {
        world.forge.conversation(7).contains(":rocket:")
    });
    // The delivery about this push is lost.
    let newer = world.commit_to(7, &format!("# more\n{}", super::SERIES), &[]);
    world.forge.pushes(7, &newer);
    bot.asked(&world, 8, ("alice", "OWNER"), "@perfquilt cancel");
    let status = bot.until_done(2);
    let ended = status["past"].as_array().unwrap();
    let theirs = ended.iter().find(|job| job["number"] == 7).unwrap();
    assert_eq!(theirs["state"], "cancelled", "{status:#}");
    let words = "Cancelled: the pull request has a newer commit.";
    eventually("nobody is told", || world.forge.said(7, words));
    assert_eq!(bot.stops(), Some(0));
}

#[test]
fn without_a_sandbox_untrusted_authors_are_not_run() {
    let world = World::new("sandbox = \"off\"");
    let head = world.commit(super::SERIES);
    world.forge.opens(7, &head);
    let mut bot = world.serve();
    bot.asked(&world, 7, UNTRUSTED, "@perfquilt run");
    let status = bot.until_done(1);
    assert_eq!(status["past"][0]["state"], "cancelled", "{status:#}");
    let words = "Cancelled: the author is not among those whose code is run here without a sandbox";
    eventually("nobody is told", || {
        world.forge.ours(7).concat().contains(words)
    });
    assert!(!world.environment.cache().join("builds").exists());
    // The configuration may say otherwise.
    assert_eq!(bot.stops(), Some(0));
    let file = "bench-config/perfquilt.toml";
    world
        .environment
        .replace(file, "\"off\"", "\"off\"\nrun_untrusted = \"unsandboxed\"");
    let mut bot = world.serve();
    let id = world.forge.says(7, "alice", "@perfquilt run");
    let mut payload = commented(id, "alice", "OWNER", "@perfquilt run");
    payload["issue"]["user"] = super::user("mallory");
    payload["issue"]["author_association"] = "NONE".into();
    bot.hears("issue_comment", &payload);
    let status = bot.until_done(2);
    assert_eq!(status["past"][0]["state"], "done", "{status:#}");
}

#[test]
fn a_bisection_is_answered_in_the_comment() {
    let world = World::new("");
    let slower = "Subject: work: thorough\n\ndiff --git a/work.h b/work.h\n--- a/work.h\n+++ b/work.h\n\
                  @@ -1,5 +1,5 @@\n /* What one request costs. */\n-#define ROUNDS 100000u\n+#define ROUNDS 220000u\n \n \
                  static unsigned work(unsigned state)\n {\n";
    let series = "0003-thorough.patch\n";
    let head = world.commit_to(7, series, &[("0003-thorough.patch", slower)]);
    world.forge.opens(7, &head);
    let mut bot = world.serve();
    bot.asked(&world, 7, UNTRUSTED, "@perfquilt bisect reqeusts");
    eventually("no answer", || {
        world
            .forge
            .ours(7)
            .concat()
            .contains("no such workload; there are `requests`")
    });
    bot.asked(&world, 7, UNTRUSTED, "@perfquilt bisect requests");
    let status = bot.until_done(1);
    assert_eq!(status["past"][0]["state"], "done", "{status:#}");
    let told = world.forge.ours(7)[0].clone();
    assert!(
        told.contains("The bisection found what changes the workload"),
        "{told}"
    );
    assert!(
        told.contains("`0003-thorough.patch`") && told.contains("The path taken"),
        "{told}"
    );
    // It stays beside what is measured of the same commit.
    bot.asked(&world, 7, UNTRUSTED, "@perfquilt run");
    bot.until_done(2);
    let told = world.forge.ours(7)[0].clone();
    assert!(
        told.contains("requests") && told.contains("The path taken"),
        "{told}"
    );
}

/// A set-user-ID shell would have the rights of the bot's user for everybody who reaches it.
#[test]
fn what_a_job_leaves_has_no_rights_for_other_users() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new("");
    let workspace = world.environment.workspace();
    fs::set_permissions(&workspace, fs::Permissions::from_mode(0o755)).unwrap();
    let script = "cd .. && cp /bin/sh shell && for mode in 4755 2755 6755; do chmod $$mode shell; done; \
                  chmod 755 shell; setcap cap_setuid+ep shell; mkdir open && chmod 777 open; \
                  until test -e read; do sleep 0.1; done";
    let text = build_runs(&script.replace("$$", "#")).replace('#', "$$");
    opens_with(&world, 7, &text);
    let mut bot = world.serve();
    bot.asked(&world, 7, UNTRUSTED, "@perfquilt run");
    bot.until("it is not held", |status| {
        status["open"][0]["state"] == "held"
    });
    let head = bot.status()["open"][0]["head"].as_str().unwrap().to_owned();
    bot.comment(
        &world,
        "alice",
        "OWNER",
        &format!("@perfquilt approve {head}"),
    );
    let open = left_in_a_tree(&world, "open");
    let state = open.parent().unwrap();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&state.join("shell")), 0o755);
    let capabilities = std::process::Command::new("getfattr")
        .args(["-n", "security.capability"])
        .arg(state.join("shell"))
        .output();
    assert!(!capabilities.is_ok_and(|output| output.status.success()));
    // And nobody else gets there.
    assert_eq!(mode(&workspace), 0o700);
    assert_eq!(mode(&workspace.join(".perfquilt/bot")), 0o700);
    fs::write(state.join("read"), "").unwrap();
    let status = bot.until_done(1);
    assert_eq!(status["past"][0]["state"], "done", "{status:#}");
    assert_eq!(bot.stops(), Some(0));
    // What may have passwords is refused, and so is a workspace of somebody else.
    let file = "bench-config/perfquilt.toml";
    world.environment.write("git-settings", "");
    fs::set_permissions(
        workspace.join("git-settings"),
        fs::Permissions::from_mode(0o644),
    )
    .unwrap();
    world
        .environment
        .replace(file, "[bot]", "[bot]\ngit_config = \"git-settings\"");
    let refused = |words: &str| {
        let mut command = world
            .environment
            .command(&["bot", "serve", "--listen", "127.0.0.1:0"]);
        command
            .env("GITHUB_TOKEN", TOKEN)
            .env("PERFQUILT_WEBHOOK_SECRET", SECRET);
        let finished: crate::common::Finished = command.output().unwrap().into();
        assert_eq!(finished.code, Some(2), "{}", finished.stderr);
        assert!(finished.stderr.contains(words), "{}", finished.stderr);
    };
    refused("chmod 600 ");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&workspace, Some(61236), None).unwrap();
        refused("belongs to another user");
    }
}

/// A job's code writes a server, results and a compiler's cache that would answer for the next commit.
#[test]
fn what_a_job_leaves_is_used_by_no_other() {
    let world = World::new("");
    let area = world.area(1);
    let script = format!(
        "touch {0}/state/left {0}/cache/perfquilt/left {0}/outcome/left; chmod 000 {0}/cache/perfquilt/builds; \
         rm -rf {0}/state/objects.git; mkdir -p {0}/state/results.db/x; ln -s / {0}/state/root",
        area.display()
    );
    opens_with(&world, 7, &build_runs(&script));
    let mut bot = world.serve();
    bot.asked(&world, 7, ("alice", "OWNER"), "@perfquilt run");
    bot.until_done(1);
    eventually("its area stays", || world.areas().is_empty());
    // Another commit of the same pull request, then the same commit again.
    let head = world.commit(super::SERIES);
    world.forge.pushes(7, &head);
    for jobs in [2, 3] {
        bot.asked(&world, 7, ("alice", "OWNER"), "@perfquilt run");
        let status = bot.until_done(jobs);
        assert_eq!(status["past"][0]["state"], "done", "{status:#}");
        let told = world.forge.ours(7).concat();
        assert!(!told.contains("❌") && !told.contains("eused"), "{told}");
    }
    assert_eq!(bot.stops(), Some(0));
}

/// The server of a job replaces what perfquilt writes by figures of its own making, and stops or ends what measures it.
#[test]
fn what_a_job_writes_in_place_of_its_results_counts_for_nothing() {
    let world = on_disk("");
    let file = "bench-config/perfquilt.toml";
    world.environment.replace(file, "blocks = 5", "blocks = 2");
    let measured = world
        .environment
        .run(&["run", "--blocks", "12", "--outcome", "forged"]);
    assert_eq!(measured.code, Some(0), "{}", measured.stderr);
    let forged = world.environment.workspace().join("forged");
    let outcome = world.area(1).join("outcome");
    let writes = |file: &str| {
        let output = std::process::Command::new("base64")
            .arg("-w0")
            .arg(forged.join(file))
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let folder = outcome.display();
        format!("echo {text} | base64 -d > {folder}/{file} && echo {file} forged")
    };
    let read = world.area(1).join("cache/perfquilt/read");
    // Process 2 is the perfquilt inside. The first start waits until the test has read what it found.
    let script = format!(
        "test -e {read} && exit; exec > findings 2>&1; {}; {}; \
         echo x >> {}/results.db && echo results forged; \
         for signal in 0 STOP KILL; do kill -$signal 2 && echo $signal sent; done; echo ended; \
         until test -e {read}; do sleep 0.1; done",
        writes("observations.jsonl.gz"),
        writes("outcome.json"),
        world.area(1).join("state").display(),
        read = read.display(),
    );
    opens_with(&world, 7, &server_runs(&script));
    let mut bot = world.serve();
    bot.asked(&world, 7, ("alice", "OWNER"), "@perfquilt run");
    eventually("it does not end", || {
        findings(&world, 1).ends_with("ended\n")
    });
    let found = findings(&world, 1);
    fs::write(read, "").unwrap();
    let status = bot.until_done(1);
    assert_eq!(status["past"][0]["state"], "done", "{status:#}");
    assert!(
        !found.contains("forged") && !found.contains("sent"),
        "{found}"
    );
    assert_eq!(found.matches("ermi").count(), 6, "{found}");
    assert_eq!(bot.stops(), Some(0));
}

/// The server of a patch stops, ends, reads or changes the release's, which runs at the same time, and what it is made from.
#[test]
fn a_server_reaches_no_other_of_its_job() {
    let world = on_disk("");
    let kept = world.area(1).join("cache/perfquilt/kept");
    // It runs when another server does, or first.
    let script = format!(
        "exec >> findings 2>&1; for try in $(seq 20); do for p in /proc/[0-9]*; do name=; read -r name < $p/comm; \
         id=${{p#/proc/}}; test x$name = xtoyd && test $id != $PPID || continue; echo tried; \
         for signal in STOP KILL; do kill -$signal $id && echo sent $signal; done; \
         echo x > $p/mem && echo wrote memory; cat $p/environ && echo read the environment; readlink $p/cwd && echo looked; \
         for f in ../*/server.log ../*/bin/* ../*/data/* {cache}/builds/*/bin/* {cache}/builds/*/build.json {cache}/data/* \
         {state}/results.db /dev/shm/x /tmp/x; do test $f -ef server.log || {{ echo x >> $f && echo changed $f; }}; done; \
         echo ended; until test -e {kept}; do sleep 0.1; done; exit; done; sleep 0.1; done",
        cache = world.area(1).join("cache/perfquilt").display(),
        state = world.area(1).join("state").display(),
        kept = kept.display(),
    );
    opens_with(&world, 7, &server_runs(&script));
    let mut bot = world.serve();
    bot.asked(&world, 7, UNTRUSTED, "@perfquilt run");
    eventually("it met no other server", || {
        findings(&world, 1).contains("ended\n")
    });
    let found = findings(&world, 1);
    fs::write(kept, "").unwrap();
    for done in ["sent", "wrote", "read the", "looked", "changed"] {
        assert!(!found.contains(done), "{found}");
    }
    assert!(found.contains("tried\n"), "{found}");
    let status = bot.until_done(1);
    assert_eq!(status["past"][0]["state"], "done", "{status:#}");
    assert!(!world.forge.ours(7)[0].contains("❌"));
    assert_eq!(bot.stops(), Some(0));
}

/// Judging the results of one pull request takes long, and the comments on others do not wait for it.
#[test]
fn a_large_outcome_delays_no_other_comment() {
    use std::io::Write as _;
    let world = World::new("");
    for number in [7, 8] {
        let head = world.commit_to(number, super::SERIES, &[]);
        world.forge.opens(number, &head);
    }
    let outcome = world
        .environment
        .workspace()
        .join(".perfquilt/bot/outcomes/acme/series/7");
    fs::create_dir_all(&outcome).unwrap();
    fs::write(
        outcome.join("outcome.json"),
        r#"{"schema":1,"failures":[]}"#,
    )
    .unwrap();
    let file = fs::File::create(outcome.join("observations.jsonl.gz")).unwrap();
    let mut lines = std::io::BufWriter::new(file);
    let header = serde_json::json!({
        "schema": 1, "experiment": "x", "series": ["1.patch"], "release": "r", "machine": {}, "harness": "h",
    });
    writeln!(lines, "{header}").unwrap();
    let mut written = 0;
    for block in 0.. {
        for (workload, point) in (0..1000).flat_map(|workload| [(workload, 0), (workload, 1)]) {
            let line = serde_json::json!({
                "schema": 1, "experiment": "x", "block": block, "order": point, "point": point.to_string(), "layout": 0,
                "workload": format!("w{workload}"), "meter": "time", "unit": "ns/txn",
                "value": 100 + (block * 7 + workload) % 11 + point, "n": 1,
            });
            let line = format!("{line}\n");
            written += line.len();
            lines.write_all(line.as_bytes()).unwrap();
        }
        if written > 64 << 20 {
            break;
        }
    }
    lines.flush().unwrap();
    let mut bot = world.serve();
    let asked = std::time::Instant::now();
    bot.asked(&world, 7, ("alice", "OWNER"), "@perfquilt status");
    std::thread::sleep(std::time::Duration::from_millis(100));
    for number in [7, 8] {
        bot.asked(&world, number, ("alice", "OWNER"), "@perfquilt status");
    }
    eventually("nothing is said", || world.forge.said(8, "No job runs"));
    let other = asked.elapsed();
    assert!(world.forge.ours(7).is_empty(), "it is not large: {other:?}");
    // The promise is two seconds; the machine of a test may do other things.
    assert!(other < std::time::Duration::from_secs(8), "{other:?}");
    let until = std::time::Instant::now() + std::time::Duration::from_secs(300);
    while world.forge.ours(7).is_empty() {
        assert!(std::time::Instant::now() < until);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    println!(
        "the other comment after {other:?}, its own after {:?}",
        asked.elapsed()
    );
    assert!(world.forge.said(7, "No job runs"));
    assert_eq!(bot.stops(), Some(0));
}

/// Whatever a killed job left in its area, or somebody else put there, keeps no pull request from being measured.
#[test]
fn damage_of_an_area_leads_to_a_new_one() {
    let world = World::new("");
    let outside = world.environment.workspace().parent().unwrap().join("kept");
    fs::create_dir_all(outside.join("state")).unwrap();
    fs::write(outside.join("state/mine"), "mine").unwrap();
    let link = format!("rm -rf @; ln -s {} @", outside.display());
    let mut jobs = 0;
    let mut resumed = 0;
    for (number, damage) in (10..).zip([
        "rm -rf @",
        "rm -rf @; touch @",
        &link,
        "rm -rf @/state/results.db; mkdir -p @/state/results.db/x",
        "head -c 9000 /dev/urandom > @/state/results.db",
        "rm -rf @/cache; ln -s /etc @/cache",
        "find @/cache/perfquilt/builds -type f -exec truncate -s 1 {} +",
        "chmod -R a-rwx @",
        "touch @/state/objects.git/config.lock @/state/objects.git/HEAD.lock @/cache/perfquilt/work/lock",
        "chattr -R +i @/state || true",
        "chown -R 61239 @ || true",
    ]) {
        // Another commit each time, so that there is something to build and to measure.
        let patch = format!("# {number}\n{}", server_runs(&format!("true {number}")));
        opens_with(&world, number, &patch);
        let mut bot = world.serve();
        jobs += 1;
        bot.asked(&world, number, ("alice", "OWNER"), "@perfquilt run");
        bot.until("it measures nothing", |status| {
            status["progress"].as_str().unwrap().contains("block")
        });
        bot.dies();
        let area = world.area(u32::try_from(jobs).unwrap());
        let run = |script: &str| {
            let mut shell = std::process::Command::new("sh");
            let output = shell.args(["-c", script]).output().unwrap();
            output.status.success()
        };
        run(&damage.replace('@', area.to_str().unwrap()));
        let mut bot = world.serve();
        let status = bot.until_done(jobs);
        let sound = |number: u64| !world.forge.ours(number).concat().contains("❌");
        println!("{damage}: {}", status["past"][0]["result"]);
        if status["past"][0]["state"] == "done" && sound(number) {
            resumed += 1;
        } else {
            // The same command again.
            jobs += 1;
            bot.asked(&world, number, ("alice", "OWNER"), "@perfquilt run");
            let status = bot.until_done(jobs);
            assert_eq!(status["past"][0]["state"], "done", "{damage}: {status:#}");
            assert!(sound(number), "{damage}: {:?}", world.forge.ours(number));
        }
        assert_eq!(bot.stops(), Some(0));
        run(&format!("chattr -R -i {}", area.display()));
    }
    println!("{resumed} of 11 jobs went on");
    assert_eq!(
        fs::read_to_string(outside.join("state/mine")).unwrap(),
        "mine"
    );
}

/// Few bytes on the wire that are many on a disk.
#[test]
fn objects_of_a_pull_request_are_limited_and_go_with_its_job() {
    let world = World::new("fetch_mib = 20");
    let folder = world.checkout(super::SERIES);
    // Files of three megabytes that differ in one byte each.
    let base: Vec<u8> = (0..3_000_000u32)
        .map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0])
        .collect();
    for file in 0..30 {
        let mut content = base.clone();
        content[file * 1000] ^= 1;
        fs::write(folder.join(format!("data-{file}")), content).unwrap();
    }
    let head = world.push(&folder, 7);
    world.forge.opens(7, &head);
    let mut bot = world.serve();
    bot.asked(&world, 7, ("alice", "OWNER"), "@perfquilt run");
    let status = bot.until_done(1);
    assert_eq!(status["past"][0]["state"], "done", "{status:#}");
    let told = world.forge.ours(7).concat();
    assert!(
        told.contains("MiB of objects, unpacked; the limit is 20 MiB"),
        "{told}"
    );
    assert!(told.contains(&head), "{told}");
    eventually("its area stays", || world.areas().is_empty());
    let head = world.commit(super::SERIES);
    world.forge.pushes(7, &head);
    bot.asked(&world, 7, ("alice", "OWNER"), "@perfquilt run");
    let status = bot.until_done(2);
    assert_eq!(status["past"][0]["state"], "done", "{status:#}");
    assert!(!world.forge.ours(7).concat().contains("❌"));
    assert!(
        !world
            .environment
            .workspace()
            .join(".perfquilt/bot/commits.git")
            .join("refs/pull/7")
            .exists()
    );
    assert_eq!(bot.stops(), Some(0));
}
