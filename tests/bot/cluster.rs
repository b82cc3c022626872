//! Pull requests that the machines of a cluster measure.

use std::collections::BTreeSet;
use std::fs;

use super::world::{SERIES, Serving, World, eventually, pushed};

/// A bot whose preset measures on the queue of the tests, with so many blocks.
fn on_a_queue(blocks: u32) -> (World, String, Serving) {
    let world = World::new("sandbox = \"off\"");
    world.environment.add_queue();
    let config = "bench-config/perfquilt.toml";
    let wanted = format!("on = \"command\"\nblocks = {blocks}");
    world.environment.replace(config, "blocks = 5", &wanted);
    let head = world.commit(SERIES);
    world.forge.opens(7, &head);
    let bot = world.serve();
    (world, head, bot)
}

fn read(world: &World, name: &str) -> String {
    let path = world.environment.workspace().join(name);
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the names of the jobs in the file `name` that build or measure.
fn jobs(world: &World, name: &str) -> BTreeSet<String> {
    let text = read(world, name);
    let is_work = |line: &&str| !line.contains("-facts-") && !line.contains("-execution-");
    text.lines().filter(is_work).map(str::to_owned).collect()
}

#[test]
fn a_pull_request_is_built_and_measured_on_a_cluster() {
    let (world, head, mut bot) = on_a_queue(5);
    bot.comment(&world, "alice", "MEMBER", "@perfquilt run");
    let status = bot.until_done(1);
    assert_eq!(status["past"][0]["state"], "done", "{status:#}");
    let comment = &world.forge.ours(7)[0];
    assert!(comment.contains(&head), "{comment}");
    let submitted = read(&world, "submitted");
    for job in ["-build-", "-facts-", "-1.0"] {
        assert!(submitted.contains(job), "{job}: {submitted}");
    }
    assert!(!read(&world, "environments").contains("TOKEN="));
    assert_eq!(bot.stops(), Some(0));
    world.environment.wait_until_no_process_is_left();
}

#[test]
fn closing_a_pull_request_cancels_its_jobs() {
    let (world, head, mut bot) = on_a_queue(40);
    // No job begins.
    world.environment.write("closed", "");
    bot.comment(&world, "alice", "MEMBER", "@perfquilt run");
    eventually("no job is submitted", || {
        !jobs(&world, "submitted").is_empty()
    });
    world.forge.state().of(7).open = false;
    bot.hears("pull_request", &pushed("closed", &head));
    let status = bot.until_done(1);
    assert_eq!(status["past"][0]["state"], "cancelled", "{status:#}");
    eventually("jobs are left in the queue", || {
        jobs(&world, "cancelled") == jobs(&world, "submitted")
    });
    assert_eq!(bot.stops(), Some(0));
    world.environment.wait_until_no_process_is_left();
}
