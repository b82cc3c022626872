//! Builds beside a measurement.

use std::path::Path;
use std::time::{Duration, Instant};

use super::world::{Serving, World, eventually};

/// A patch whose build leaves a file.
fn patch(mark: &Path) -> String {
    format!(
        "Subject: build: a mark\n\ndiff --git a/Makefile b/Makefile\n--- a/Makefile\n+++ b/Makefile\n@@ -1,6 +1,7 @@\n \
         CFLAGS = -O2 -g0 -Wall\n \n all: toyd toyc\n+\ttouch {}\n \n toyd: toyd.c work.h\n \t$(CC) $(CFLAGS) -o $@ toyd.c\n",
        mark.display()
    )
}

/// Pull request 7 is measured for long, pull request 8 waits; its build leaves the file `mark`.
fn two(config: &str) -> (World, Serving, std::path::PathBuf) {
    let world = World::new(&format!("sandbox = \"off\"\n{config}"));
    let file = "bench-config/perfquilt.toml";
    world
        .environment
        .replace(file, "blocks = 5", "blocks = 400");
    let mark = world.environment.workspace().parent().unwrap().join("mark");
    let first = world.commit_to(7, super::SERIES, &[]);
    let name = "0001-mark.patch";
    let second = world.commit_to(8, &format!("{name}\n"), &[(name, &patch(&mark))]);
    world.forge.opens(7, &first);
    world.forge.opens(8, &second);
    let mut bot = world.serve();
    bot.asked(&world, 7, ("alice", "OWNER"), "@perfquilt run");
    bot.until("it measures nothing", |status| {
        status["progress"].as_str().unwrap().contains("block")
    });
    bot.asked(&world, 8, ("alice", "OWNER"), "@perfquilt run");
    (world, bot, mark)
}

fn first_is_measured(bot: &Serving) -> bool {
    let status = bot.status();
    status["open"][0]["number"] == 7 && status["open"][0]["state"] == "running"
}

#[test]
fn on_processors_set_apart_the_next_job_is_built_meanwhile() {
    let cpus = perfquilt_bench::workload::allowed_cpus();
    let config = format!("ahead_cpus = [{}]", cpus[0]);
    if cpus.len() == 1 {
        // There is nothing to measure on: the bot says so instead of measuring beside builds.
        let world = World::new(&config);
        let output = world.environment.run(&["bot", "serve"]);
        assert_eq!(output.code, Some(2));
        assert!(
            output.stderr.contains("no processor is left"),
            "{}",
            output.stderr
        );
        return;
    }
    let (world, mut bot, mark) = two(&config);
    let started = Instant::now();
    while !mark.exists() {
        assert!(
            started.elapsed() < Duration::from_secs(120),
            "nothing is built ahead"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(first_is_measured(&bot), "{:#}", bot.status());
    bot.asked(&world, 7, ("alice", "OWNER"), "@perfquilt cancel");
    bot.asked(&world, 8, ("alice", "OWNER"), "@perfquilt cancel");
    bot.until_done(2);
    assert_eq!(bot.stops(), Some(0));
    world.environment.wait_until_no_process_is_left();
}

#[test]
fn without_nothing_is_built_beside_a_measurement() {
    let (world, mut bot, mark) = two("");
    // The builder has time to take the job, and waits for the machine.
    std::thread::sleep(Duration::from_secs(3));
    assert!(first_is_measured(&bot), "{:#}", bot.status());
    assert!(!mark.exists());
    bot.asked(&world, 7, ("alice", "OWNER"), "@perfquilt cancel");
    eventually("the next job does not begin", || mark.exists());
    assert!(!first_is_measured(&bot), "{:#}", bot.status());
    bot.asked(&world, 8, ("alice", "OWNER"), "@perfquilt cancel");
    bot.until_done(2);
    assert_eq!(bot.stops(), Some(0));
}
