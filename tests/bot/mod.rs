//! `perfquilt bot serve`: webhooks come in, jobs run on the toy server, answers go to a GitHub that remembers.

mod ahead;
mod branches;
mod cluster;
mod forges;
mod fork;
mod mail;
mod untrusted;
pub mod world;

use crate::forge::{Fault, LOGIN, TOKEN};
use serde_json::json;
use world::{SECRET, SERIES, Serving, World, commented, eventually, pushed, user};

#[test]
fn a_comment_is_carried_out() {
    let world = World::new("label = \"perf\"");
    // An effect that shows on a busy machine too.
    let patches = world.environment.workspace().join("patches");
    let patch = std::fs::read_to_string(patches.join(SERIES.trim())).unwrap();
    let faster = patch.replace("25000u", "250u");
    assert_ne!(faster, patch);
    let head = world.commit_to(7, SERIES, &[(SERIES.trim(), &faster)]);
    world.forge.opens(7, &head);
    let mut bot = world.serve();
    assert_eq!(
        bot.comment(&world, "alice", "MEMBER", "Nice.\n\n@perfquilt run"),
        202
    );
    let status = bot.until_done(1);
    assert_eq!(status["past"][0]["state"], "done", "{status:#}");
    let conversation = world.forge.conversation(7);
    assert!(
        conversation.contains("alice: Nice. :rocket:"),
        "{conversation}"
    );
    assert!(
        conversation.contains(&format!("{LOGIN}: ## ✅ The series is ")),
        "{conversation}"
    );
    assert!(
        conversation.contains("labels: perf: faster"),
        "{conversation}"
    );
    assert_eq!(world.forge.ours(7).len(), 1);
    assert!(world.forge.ours(7)[0].contains(&head));
    let shown = world.forge.ours(7)[0].clone();
    let mark = shown.lines().next().unwrap();
    let (before, began) = mark.split_once("\"began\":\"").unwrap();
    let began = began.split('"').next().unwrap();
    assert!(began.parse::<jiff::Timestamp>().is_ok(), "{mark}");
    // What the bot shows of it.
    let page = bot.get("/");
    assert!(page.contains("done: The series is "), "{page}");
    let metrics = bot.get("/metrics");
    assert!(
        metrics.contains("perfquilt_jobs{state=\"done\"} 1"),
        "{metrics}"
    );
    assert!(
        metrics.contains("perfquilt_deliveries_total{result=\"accepted\"} 1"),
        "{metrics}"
    );
    assert_eq!(bot.get("/health"), "ok\n");
    // The last result stays when somebody asks something else.
    bot.comment(&world, "alice", "MEMBER", "@perfquilt help");
    eventually("no help", || {
        world.forge.ours(7)[0].contains("`@perfquilt run [PRESET|PATCH-NUMBER]`")
    });
    assert!(world.forge.ours(7)[0].contains("## ✅ The series is "));
    // And when it is mistyped.
    bot.comment(&world, "alice", "MEMBER", "@perfquilt run 4");
    let status = bot.until_done(2);
    assert_eq!(status["past"][0]["state"], "cancelled", "{status:#}");
    let words = "Cancelled: there is no patch 4: the series has 1 patch.";
    eventually("nothing is said of it", || world.forge.said(7, words));
    assert!(world.forge.ours(7)[0].contains("## ✅ The series is "));
    // The bot's result never replaces one that began later.
    let later = shown.replacen(
        mark,
        &format!("{before}\"began\":\"2999-01-01T00:00:00Z\"}} -->"),
        1,
    );
    world.forge.removes_comments(7, LOGIN);
    world.forge.says(7, LOGIN, &later);
    let reads = || {
        world
            .forge
            .count("GET /repos/acme/series/issues/7/comments")
    };
    let read = reads();
    bot.comment(&world, "alice", "MEMBER", "@perfquilt help");
    eventually("the comment is not looked for", || reads() > read);
    assert_eq!(bot.stops(), Some(0));
    assert_eq!(world.forge.ours(7), [later]);
    world.environment.wait_until_no_process_is_left();
}

#[test]
fn only_some_may_command_and_only_github_is_believed() {
    let world = World::new("run_untrusted = \"never\"");
    let head = world.commit(SERIES);
    world.forge.opens(7, &head);
    let mut bot = world.serve();
    assert_eq!(
        bot.comment(&world, "mallory", "NONE", "@perfquilt run"),
        202
    );
    assert_eq!(
        bot.comment(&world, "robot[bot]", "OWNER", "@perfquilt run"),
        200
    );
    assert_eq!(
        bot.comment(&world, "alice", "MEMBER", "@perfquilt rnu"),
        202
    );
    assert_eq!(
        bot.comment(&world, "alice", "MEMBER", "nothing for the bot"),
        200
    );
    // It was answered when it was written.
    for action in ["edited", "deleted"] {
        let mut later = commented(100, "alice", "MEMBER", "@perfquilt run");
        later["action"] = json!(action);
        assert_eq!(bot.hears("issue_comment", &later), 200);
    }
    let run = commented(101, "alice", "MEMBER", "@perfquilt run").to_string();
    assert_eq!(
        bot.delivered("issue_comment", "forged-1", &run, "another secret"),
        401
    );
    let unsigned = bot.request("POST", "/webhook", "X-GitHub-Event: ping\r\n", "{}");
    assert_eq!(unsigned.0, 401);
    let elsewhere = run.replace("acme/series", "acme/other");
    assert_eq!(
        bot.delivered("issue_comment", "foreign-1", &elsewhere, SECRET),
        403
    );
    assert_eq!(
        bot.delivered("issue_comment", "broken-1", &run[..run.len() - 9], SECRET),
        400
    );
    assert_eq!(
        bot.delivered("issue_comment", "large-1", &" ".repeat(6 << 20), SECRET),
        413
    );
    assert_eq!(bot.delivered("ping", "ping-1", "{}", SECRET), 200);
    assert_eq!(bot.request("GET", "/webhook", "", "").0, 405);
    assert_eq!(bot.request("GET", "/../etc/passwd", "", "").0, 404);
    // The author of the code is untrusted, whoever asks.
    let mut untrusted = commented(
        world.forge.says(7, "alice", "@perfquilt run"),
        "alice",
        "OWNER",
        "@perfquilt run",
    );
    untrusted["issue"]["user"] = user("mallory");
    untrusted["issue"]["author_association"] = json!("NONE");
    assert_eq!(bot.hears("issue_comment", &untrusted), 202);
    // So is one whose account was deleted; what such a one says is not heard.
    let id = world.forge.says(7, "alice", "@perfquilt run");
    let mut gone = commented(id, "alice", "OWNER", "@perfquilt run");
    gone["issue"]["user"] = json!(null);
    assert_eq!(bot.hears("issue_comment", &gone), 202);
    gone["comment"]["user"] = json!(null);
    assert_eq!(bot.hears("issue_comment", &gone), 200);
    eventually("no answer", || {
        world.forge.conversation(7).matches(":-1:").count() == 3
    });
    eventually("no answer", || {
        world.forge.conversation(7).contains(":confused:")
    });
    let status = bot.status();
    assert_eq!((&status["open"], &status["past"]), (&json!([]), &json!([])));
    let metrics = bot.get("/metrics");
    assert!(metrics.contains("{result=\"forged\"} 2"), "{metrics}");
}

#[test]
fn a_loss_is_accepted_by_those_who_may_command_for_one_commit() {
    let world = World::new("");
    let patches = world.environment.workspace().join("patches");
    let patch = std::fs::read_to_string(patches.join(SERIES.trim())).unwrap();
    let slower = patch.replace("25000u", "1000000u");
    assert_ne!(slower, patch);
    let head = world.commit_to(7, SERIES, &[(SERIES.trim(), &slower)]);
    world.forge.opens(7, &head);
    let mut bot = world.serve();
    bot.comment(&world, "alice", "MEMBER", "@perfquilt accept 1 too early");
    let early = "this pull request has no result to accept";
    eventually("no answer", || world.forge.said(7, early));
    bot.comment(&world, "alice", "MEMBER", "@perfquilt run");
    bot.until_done(1);
    assert!(
        world.forge.ours(7)[0].contains("## ❌"),
        "{:?}",
        world.forge.ours(7)
    );
    // Who may not command is refused.
    bot.comment(&world, "mallory", "NONE", "@perfquilt accept 1 it is fine");
    eventually("no answer", || {
        world
            .forge
            .conversation(7)
            .contains("accept 1 it is fine :-1:")
    });
    assert!(!world.forge.ours(7)[0].contains("it is fine"));
    let reason = "fixes a <b>crash</b>";
    bot.comment(
        &world,
        "alice",
        "MEMBER",
        &format!("@perfquilt accept 1 {reason}"),
    );
    let accepted = || world.forge.ours(7)[0].contains("as accepted");
    eventually("it is not accepted", accepted);
    let comment = world.forge.ours(7)[0].clone();
    assert!(comment.contains("accepted: fixes a "), "{comment}");
    assert!(
        !comment.contains("<b>") && !comment.contains("## ❌"),
        "{comment}"
    );
    // It outlives the bot, but not the commit.
    assert_eq!(bot.stops(), Some(0));
    let mut bot = world.serve();
    bot.comment(&world, "alice", "MEMBER", "@perfquilt status");
    eventually("it is forgotten", accepted);
    let other = slower.replace("1000000u", "1100000u");
    let newer = world.commit_to(7, SERIES, &[(SERIES.trim(), &other)]);
    world.forge.pushes(7, &newer);
    bot.comment(&world, "alice", "MEMBER", "@perfquilt run");
    bot.until_done(2);
    let lapsed = format!("lapsed, commit {} instead of {}", &newer[..12], &head[..12]);
    let comment = world.forge.ours(7)[0].clone();
    assert!(
        comment.contains("the decision on it lapsed"),
        "{lapsed}: {comment}"
    );
    assert!(comment.contains("## ❌"), "{comment}");
    assert_eq!(bot.stops(), Some(0));
}

#[test]
fn a_form_and_a_needless_cancel_are_answered_with_their_cause() {
    let world = World::new("");
    let head = world.commit(SERIES);
    world.forge.opens(7, &head);
    let mut bot = world.serve();
    let form = "application/x-www-form-urlencoded";
    for (event, id) in [("ping", "form-1"), ("issue_comment", "form-2")] {
        let sent = bot.delivered_as(form, event, id, "payload=%7B%7D", SECRET);
        assert_eq!(sent.0, 415);
        for word in [form, "Content type", "application/json"] {
            assert!(sent.1.contains(word), "{}", sent.1);
        }
    }
    let json = "application/json; charset=utf-8";
    assert_eq!(
        bot.delivered_as(json, "ping", "json-1", "{}", SECRET).0,
        200
    );
    assert_eq!(
        bot.comment(&world, "alice", "OWNER", "@perfquilt cancel"),
        202
    );
    eventually("no answer", || {
        world.forge.conversation(7).contains(":confused:")
            && world.forge.said(7, "no job of this pull request")
    });
}

#[test]
fn a_delivery_that_comes_twice_counts_once() {
    let world = World::new("");
    let head = world.commit(SERIES);
    world.forge.opens(7, &head);
    let bot = world.serve();
    let id = world.forge.says(7, "alice", "@perfquilt run");
    let run = commented(id, "alice", "MEMBER", "@perfquilt run").to_string();
    assert_eq!(bot.delivered("issue_comment", "same-1", &run, SECRET), 202);
    assert_eq!(bot.delivered("issue_comment", "same-1", &run, SECRET), 200);
    let status = bot.until_done(1);
    assert_eq!(status["past"].as_array().unwrap().len(), 1);
    assert_eq!(bot.delivered("issue_comment", "same-1", &run, SECRET), 200);
    // The id is not signed: whoever has seen the delivery can send it under another one.
    assert_eq!(bot.delivered("issue_comment", "other-1", &run, SECRET), 200);
    assert_eq!(bot.status()["open"], json!([]));
}

/// A bot with `configuration` whose experiments have so many blocks, and the last commit of pull request 7.
fn opened(configuration: &str, blocks: u32) -> (World, String, Serving) {
    let world = World::new(configuration);
    let config = "bench-config/perfquilt.toml";
    let wanted = format!("blocks = {blocks}");
    world.environment.replace(config, "blocks = 5", &wanted);
    let head = world.commit(SERIES);
    world.forge.opens(7, &head);
    let bot = world.serve();
    (world, head, bot)
}

#[test]
fn a_job_survives_a_kill() {
    let (world, _, mut bot) = opened("preset = \"quick\"", 12);
    bot.comment(&world, "alice", "OWNER", "@perfquilt run");
    bot.until("it measures nothing", |status| {
        status["progress"].as_str().unwrap().contains("block 3")
    });
    bot.dies();
    // What a git leaves that was killed while it fetched.
    for lock in ["config", "shallow", "refs/pull/7/head"] {
        let lock = format!(".perfquilt/bot/commits.git/{lock}.lock");
        world.environment.write(&lock, "");
    }
    let bot = world.serve();
    let status = bot.until_done(1);
    assert_eq!(status["past"][0]["state"], "done", "{status:#}");
    assert_eq!(world.forge.ours(7).len(), 1);
    assert_eq!(bot.stops(), Some(0));
}

/// A bot that measures pull request 8 for minutes, and the last commit of pull request 7.
fn busy(configuration: &str) -> (World, String, Serving) {
    let (world, head, mut bot) = opened(configuration, 400);
    let other = world.commit_to(8, SERIES, &[]);
    world.forge.opens(8, &other);
    bot.asked(&world, 8, ("alice", "OWNER"), "@perfquilt run");
    bot.until("it measures nothing", |status| {
        status["progress"].as_str().unwrap().contains("block")
    });
    (world, head, bot)
}

#[test]
fn a_job_measures_the_commit_that_was_asked_for_or_nothing() {
    let (world, _, mut bot) = busy("");
    bot.comment(&world, "alice", "OWNER", "@perfquilt run");
    eventually("no answer", || {
        world.forge.said(7, "Waiting: 1 job before it")
    });
    // The author may command the bot, but nobody has asked for this commit. The delivery about it is lost.
    let newer = world.commit("# no patch\n");
    world.forge.pushes(7, &newer);
    bot.asked(&world, 8, ("alice", "OWNER"), "@perfquilt cancel");
    let status = bot.until_done(2);
    let ended = status["past"].as_array().unwrap();
    let theirs = ended.iter().find(|job| job["number"] == 7).unwrap();
    assert_eq!(theirs["state"], "cancelled", "{status:#}");
    assert_eq!(bot.stops(), Some(0));
}

#[test]
fn lost_deliveries_are_found_by_a_look_at_the_pull_requests() {
    let (world, _, mut bot) = busy("poll_seconds = 1");
    let ninth = world.commit_to(9, SERIES, &[]);
    world.forge.opens(9, &ninth);
    bot.asked(&world, 9, ("alice", "OWNER"), "@perfquilt run");
    bot.comment(&world, "alice", "OWNER", "@perfquilt run");
    for number in [7, 9] {
        eventually("no answer", || world.forge.said(number, "before it"));
    }
    let newer = world.commit("# no patch\n");
    world.forge.pushes(7, &newer);
    world.forge.state().of(9).open = false;
    for (number, words) in [
        (7, "Cancelled: the pull request has a newer commit"),
        (9, "Cancelled: the pull request was closed"),
    ] {
        eventually("it is not found", || world.forge.said(number, words));
    }
    // What is as it was goes on.
    let status = bot.status();
    assert_eq!(status["open"][0]["number"], 8, "{status:#}");
    assert_eq!(status["open"][0]["state"], "running", "{status:#}");
    assert_eq!(bot.stops(), Some(0));
}

#[test]
fn a_push_cancels_what_runs() {
    let (world, head, mut bot) = opened("on_push = true", 200);
    assert_eq!(bot.hears("pull_request", &pushed("opened", &head)), 202);
    bot.until("it measures nothing", |status| {
        status["progress"].as_str().unwrap().contains("block")
    });
    // A delivery about the same commit that comes late.
    assert_eq!(
        bot.hears("pull_request", &pushed("synchronize", &head)),
        202
    );
    let status = bot.status();
    assert_eq!(status["open"][0]["state"], "running", "{status:#}");
    assert_eq!(status["past"], json!([]), "{status:#}");
    let newer = world.commit("# no patch\n");
    world.forge.pushes(7, &newer);
    assert_eq!(
        bot.hears("pull_request", &pushed("synchronize", &newer)),
        202
    );
    // What comes next may be said in the same comment right away.
    let words = "Cancelled: the pull request has a newer commit";
    eventually("nothing is said of it", || world.forge.said(7, words));
    world.forge.state().of(7).open = false;
    assert_eq!(bot.hears("pull_request", &pushed("closed", &newer)), 202);
    let status = bot.until("no end", |status| {
        status["open"].as_array().unwrap().is_empty()
    });
    let states: Vec<&str> = status["past"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["state"].as_str().unwrap())
        .collect();
    assert!(states.contains(&"cancelled"), "{status:#}");
    assert_eq!(bot.stops(), Some(0));
    world.environment.wait_until_no_process_is_left();
}

#[test]
fn a_late_delivery_of_an_older_push_cancels_nothing() {
    let (world, head, mut bot) = opened("on_push = true", 200);
    assert_eq!(bot.hears("pull_request", &pushed("opened", &head)), 202);
    bot.until("it measures nothing", |status| {
        status["progress"].as_str().unwrap().contains("block")
    });
    let mut late = pushed("synchronize", &"1".repeat(40));
    late["before"] = json!("2".repeat(40));
    assert_eq!(bot.hears("pull_request", &late), 202);
    // GitHub is asked for the head before the next comment is answered.
    bot.comment(&world, "alice", "OWNER", "@perfquilt status");
    eventually("no answer", || world.forge.said(7, "Running"));
    let status = bot.status();
    assert_eq!(status["open"][0]["state"], "running", "{status:#}");
    assert_eq!(status["past"], json!([]), "{status:#}");
    // One in order cancels.
    let newer = world.commit("# no patch\n");
    world.forge.pushes(7, &newer);
    let mut next = pushed("synchronize", &newer);
    next["before"] = json!(head);
    assert_eq!(bot.hears("pull_request", &next), 202);
    let status = bot.status();
    assert_eq!(status["past"][0]["state"], "cancelled", "{status:#}");
    assert_eq!(bot.stops(), Some(0));
}

#[test]
fn a_job_of_a_push_is_about_the_commit_of_its_delivery() {
    let (world, first, mut bot) = opened("on_push = true\nlabel = \"perf\"", 5);
    // The delivery comes when there is a newer commit already, whose own delivery comes later.
    let second = world.commit(&format!("{SERIES}# again\n"));
    assert_ne!(first, second);
    world.forge.pushes(7, &second);
    assert_eq!(bot.hears("pull_request", &pushed("opened", &first)), 202);
    let status = bot.until_done(1);
    assert_eq!(status["past"][0]["state"], "cancelled", "{status:#}");
    let words = format!(
        "Cancelled: the pull request has a newer commit. The job was about {}.",
        &first[..12]
    );
    // Names of commits are no links, so there is something invisible in them.
    let said = || world.forge.ours(7).concat().replace('\u{200b}', "");
    let started = std::time::Instant::now();
    while !said().contains(&words) {
        assert!(started.elapsed().as_secs() < 20, "{words}: {}", said());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(!world.forge.conversation(7).contains("labels: "));
    let mut next = pushed("synchronize", &second);
    next["before"] = json!(first);
    assert_eq!(bot.hears("pull_request", &next), 202);
    let status = bot.until_done(2);
    assert_eq!(status["past"][0]["state"], "done", "{status:#}");
    let conversation = world.forge.conversation(7);
    assert!(conversation.contains("labels: perf: "), "{conversation}");
    let shown = world.forge.ours(7)[0].clone();
    assert!(
        shown.contains(&second) && !shown.contains(&first),
        "{shown}"
    );
    assert_eq!(bot.stops(), Some(0));
}

#[test]
fn a_late_delivery_of_a_closure_cancels_nothing() {
    let (world, head, mut bot) = opened("on_push = true", 200);
    assert_eq!(bot.hears("pull_request", &pushed("reopened", &head)), 202);
    bot.until("it measures nothing", |status| {
        status["progress"].as_str().unwrap().contains("block")
    });
    assert_eq!(bot.hears("pull_request", &pushed("closed", &head)), 202);
    // GitHub is asked before the next comment is answered.
    bot.comment(&world, "alice", "OWNER", "@perfquilt status");
    eventually("no answer", || world.forge.said(7, "Running"));
    let status = bot.status();
    assert_eq!(status["open"][0]["state"], "running", "{status:#}");
    assert_eq!(status["past"], json!([]), "{status:#}");
    // One in time does.
    world.forge.state().of(7).open = false;
    let mut closed = pushed("closed", &head);
    closed["pull_request"]["updated_at"] = json!("2026-01-02T03:04:05Z");
    assert_eq!(bot.hears("pull_request", &closed), 202);
    let status = bot.until_done(1);
    assert_eq!(status["past"][0]["state"], "cancelled", "{status:#}");
    let words = "Cancelled: the pull request was closed";
    eventually("nothing is said of it", || world.forge.said(7, words));
    assert_eq!(bot.stops(), Some(0));
}

#[test]
fn only_what_an_authorised_user_pushed_is_measured_without_a_command() {
    let (world, head, mut bot) = opened("on_push = true", 5);
    let by = |action: &str, sender: &str| {
        let mut push = pushed(action, &head);
        push["sender"] = user(sender);
        push
    };
    // An untrusted author may push to the author's branch.
    assert_eq!(bot.hears("pull_request", &by("opened", "mallory")), 200);
    assert_eq!(
        bot.hears("pull_request", &by("synchronize", "mallory")),
        202
    );
    let mut unsent = pushed("reopened", &head);
    unsent["sender"] = json!(null);
    assert_eq!(bot.hears("pull_request", &unsent), 200);
    assert_eq!(bot.status()["open"], json!([]));
    assert_eq!(bot.hears("pull_request", &by("synchronize", "alice")), 202);
    let status = bot.until_done(1);
    assert_eq!(status["past"][0]["state"], "done", "{status:#}");
    assert_eq!(world.forge.ours(7).len(), 1);
    assert_eq!(bot.stops(), Some(0));
}

#[test]
fn that_closing_ends_what_runs_is_told() {
    let (world, head, mut bot) = opened("", 200);
    bot.comment(&world, "alice", "OWNER", "@perfquilt run");
    bot.until("it measures nothing", |status| {
        status["progress"].as_str().unwrap().contains("block")
    });
    world.forge.state().of(7).open = false;
    assert_eq!(bot.hears("pull_request", &pushed("closed", &head)), 202);
    eventually("nothing is said of it", || {
        world.forge.ours(7)[0].contains("Cancelled: the pull request was closed")
    });
    assert_eq!(bot.stops(), Some(0));
    world.environment.wait_until_no_process_is_left();
}

#[test]
fn an_answer_stays_until_the_next() {
    let world = World::new("");
    let head = world.commit(SERIES);
    world.forge.opens(7, &head);
    let mut bot = world.serve();
    for command in ["help", "status", "rnu"] {
        bot.comment(&world, "alice", "OWNER", &format!("@perfquilt {command}"));
    }
    eventually("no answer", || world.forge.said(7, "Not understood"));
    assert_eq!(bot.stops(), Some(0));
    let mut state = world.forge.state();
    let mut comments = state.of(7).comments.iter();
    let ours = comments.find(|comment| comment.author == LOGIN).unwrap();
    let help = |body: &String| body.contains("`@perfquilt status`");
    assert!(ours.edited.iter().all(help), "{:#?}", ours.edited);
}

#[test]
fn what_is_asked_is_answered_where_reactions_are_refused() {
    let world = World::new("");
    let head = world.commit(SERIES);
    world.forge.opens(7, &head);
    let mut bot = world.serve();
    for _ in 0..9 {
        let refused = Fault::Refused(403, vec![], "Resource not accessible");
        let request = "POST /repos/acme/series/issues/comments";
        world.forge.fault(request, refused);
    }
    bot.comment(&world, "alice", "OWNER", "@perfquilt help");
    eventually("no help", || world.forge.said(7, "`@perfquilt status`"));
    assert_eq!(bot.stops(), Some(0));
}

#[test]
fn what_github_has_no_time_for_is_put_off() {
    let (world, head, mut bot) = busy("");
    bot.comment(&world, "alice", "OWNER", "@perfquilt run");
    bot.until("its commit is not read", |status| {
        let jobs = status["open"].as_array().unwrap().iter();
        jobs.filter(|job| job["number"] == 7)
            .any(|job| job["head"] == head.as_str())
    });
    eventually("no answer", || {
        world.forge.conversation(7).contains(":rocket:")
            && world.forge.said(7, "Waiting: 1 job before it")
    });
    // Of whoever does the job, and of whoever tells of it.
    for _ in 0..2 {
        let headers = vec![
            ("date", "Sun, 06 Nov 1994 08:49:37 GMT".to_owned()),
            ("x-ratelimit-remaining", "0".to_owned()),
            ("x-ratelimit-reset", (784_111_777 + 3000).to_string()),
        ];
        let refused = Fault::Refused(403, headers, "API rate limit exceeded");
        world.forge.fault("GET /repos/acme/series/pulls/7", refused);
    }
    bot.asked(&world, 8, ("alice", "OWNER"), "@perfquilt cancel");
    let status = bot.until("it is not put off", |status| {
        let result = status["open"][0]["result"].as_str();
        result.is_some_and(|result| result.contains("403"))
    });
    assert_eq!(status["open"][0]["state"], "waiting", "{status:#}");
    assert_eq!(status["past"].as_array().unwrap().len(), 1);
    let words = "Waiting: a request to GitHub failed; the bot will retry.";
    eventually("nothing is said of it", || world.forge.said(7, words));
    assert_eq!(bot.stops(), Some(0));
}

#[test]
fn half_a_request_does_not_keep_it_from_stopping() {
    use std::io::Write;
    let world = World::new("");
    let bot = world.serve();
    let mut stream = std::net::TcpStream::connect(&bot.address).unwrap();
    stream
        .write_all(b"POST /webhook HTTP/1.1\r\nContent-")
        .unwrap();
    // Who comes later is answered later: the half was heard.
    bot.status();
    assert_eq!(bot.stops(), Some(0));
}

#[test]
fn a_signal_ends_the_bot_whatever_it_does() {
    // It waits.
    World::new("").serve().stops_at_once();
    // It measures.
    let (world, _, bot) = busy("");
    bot.stops_at_once();
    world.environment.wait_until_no_process_is_left();
    // It fetches from a server that never answers.
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let remote = format!("git://{}/series.git", server.local_addr().unwrap());
    let world = World::new("");
    let head = world.commit(SERIES);
    world.forge.opens(7, &head);
    let own = world.repository.display().to_string();
    world
        .environment
        .replace("bench-config/perfquilt.toml", &own, &remote);
    let bot = world.serve();
    let (asked, _) = server.accept().unwrap();
    bot.stops_at_once();
    drop(asked);
    world.environment.wait_until_no_process_is_left();
}

#[test]
fn silent_connections_make_room() {
    let world = World::new("");
    let bot = world.serve();
    let connect = || std::net::TcpStream::connect(&bot.address).unwrap();
    let silent: Vec<_> = (0..80).map(|_| connect()).collect();
    bot.status();
    drop(silent);
    assert_eq!(bot.stops(), Some(0));
}

#[test]
fn a_remote_that_does_not_answer_is_told_at_once() {
    let world = World::new("");
    let head = world.commit(SERIES);
    world.forge.opens(7, &head);
    std::fs::remove_dir_all(&world.repository).unwrap();
    let mut bot = world.serve();
    let said = |bot: &world::Serving, words: &str| {
        let said = bot.said.lock().unwrap();
        said.iter().any(|line| line.contains(words))
    };
    eventually("nothing is said of it", || {
        said(&bot, "`git_config` in [bot]")
    });
    // And so is why a job waits.
    bot.comment(&world, "alice", "OWNER", "@perfquilt run");
    eventually("nothing is said of it", || said(&bot, "job 1: fatal: "));
    assert_eq!(bot.stops(), Some(0));
}

/// The limits of the machine are errors like others: no signal ends the program, and it does not panic.
#[test]
fn what_the_machine_refuses_is_an_error() {
    let world = World::new("");
    // Secrets of the bot are in no core file, also where the system makes some.
    let bot = world.serve();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", bot.child.id())).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"));
    let words: Vec<&str> = core.unwrap().split_whitespace().collect();
    assert_eq!(words[4..6], ["0", "0"], "{limits}");
    assert_eq!(bot.stops(), Some(0));
    let environment = &world.environment;
    let limited = |limit: &str, as_user: bool, words: &[&str]| {
        let inner = environment.command(words);
        let mut command = std::process::Command::new("setpriv");
        if as_user {
            command.args(["--reuid=61237", "--regid=61237", "--clear-groups"]);
        }
        command.args(["--", "prlimit", limit, "--"]);
        command.arg(inner.get_program()).args(inner.get_args());
        command.current_dir(environment.workspace()).env_clear();
        for (name, value) in inner.get_envs() {
            value.map(|value| command.env(name, value));
        }
        command
            .env("GITHUB_TOKEN", TOKEN)
            .env("GITHUB_API_URL", world.forge.uri())
            .env("PERFQUILT_WEBHOOK_SECRET", SECRET);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code().is_some_and(|code| code > 0),
            "{limit}: {said}"
        );
        assert!(
            said.contains("error: ") && !said.contains("panicked"),
            "{limit}: {said}"
        );
        said
    };
    // A file that is too large; what it is for comes first.
    limited("--fsize=20000:20000", false, &["run"]);
    // No process and no thread beside the first; root has no such limit.
    if rustix::process::geteuid().is_root() {
        let folder = environment.workspace().parent().unwrap().to_owned();
        let owned = std::process::Command::new("chown")
            .args(["-R", "61237:61237"])
            .arg(&folder)
            .status();
        assert!(owned.unwrap().success());
        let serve = ["bot", "serve", "--listen", "127.0.0.1:0"];
        let said = limited("--nproc=1:1", true, &serve);
        assert!(
            said.contains("hint: ") && said.contains("ulimit -u"),
            "{said}"
        );
        limited("--nproc=1:1", true, &["run"]);
    }
}

#[test]
fn one_bot_serves_a_workspace() {
    let world = World::new("");
    let first = world.serve();
    let mut command = world
        .environment
        .command(&["bot", "serve", "--listen", "127.0.0.1:0"]);
    command
        .env("GITHUB_TOKEN", TOKEN)
        .env("PERFQUILT_WEBHOOK_SECRET", SECRET);
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("another bot already serves this workspace"),
        "{said}"
    );
    assert_eq!(first.stops(), Some(0));
}

#[test]
fn what_is_not_configured_is_told() {
    let world = World::new("");
    let serve = |variables: &[(&str, &str)]| {
        let mut command = world.environment.command(&["bot", "serve"]);
        command.envs(variables.iter().copied());
        let output = command.output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, said) = serve(&[]);
    assert_eq!(code, Some(2));
    assert!(said.contains("PERFQUILT_WEBHOOK_SECRET"), "{said}");
    let (code, said) = serve(&[
        ("PERFQUILT_WEBHOOK_SECRET", "short"),
        ("GITHUB_TOKEN", TOKEN),
    ]);
    assert_eq!(code, Some(2));
    assert!(
        said.contains("16 characters") && !said.contains(TOKEN),
        "{said}"
    );
    let (file, secret) = (
        "bench-config/perfquilt.toml",
        ("PERFQUILT_WEBHOOK_SECRET", SECRET),
    );
    world
        .environment
        .replace(file, "[bot]\n", "[bot]\nforge = \"sourcehut\"\n");
    let (code, said) = serve(&[secret]);
    assert_eq!(code, Some(2));
    assert!(
        said.contains("`sourcehut`") && said.contains("`gitlab`"),
        "{said}"
    );
    world.environment.replace(file, "sourcehut", "gitlab");
    let (code, said) = serve(&[secret]);
    assert_eq!(code, Some(2));
    assert!(said.contains("GITLAB_TOKEN"), "{said}");
    world.environment.replace(file, "acme/series", "acme");
    let (code, said) = serve(&[]);
    assert_eq!(code, Some(2));
    assert!(said.contains("perfquilt.toml:"), "{said}");
}
