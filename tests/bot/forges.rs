//! The bot on the forges whose deliveries do not tell what their authors may do.

use serde_json::{Value, json};

use super::world::{SECRET, SERIES, Serving, World, eventually};
use crate::forge::{Dialect, Fault};

/// The id of alice, who may push, and of mallory, whom nobody knows.
const ALICE: u64 = 5;
const MALLORY: u64 = 6;

fn id(login: &str) -> u64 {
    if login == "alice" { ALICE } else { MALLORY }
}

/// A world in which alice may push.
fn world(dialect: Dialect, config: &str) -> World {
    let world = World::on(dialect, config);
    let roles = match dialect {
        Dialect::GitLab => vec![
            (ALICE.to_string(), "30"),
            (format!("login {ALICE}"), "alice"),
            (format!("login {MALLORY}"), "mallory"),
        ],
        _ => vec![("alice".to_owned(), "write")],
    };
    let roles = roles
        .into_iter()
        .map(|(name, role)| (name, role.to_owned()));
    world.forge.state().roles = roles.collect();
    world
}

/// The delivery of a comment on pull request 7 of `of`: its event and its body.
fn commented(
    dialect: Dialect,
    comment: u64,
    (author, of): (&str, &str),
    body: &str,
) -> (&'static str, Value) {
    if dialect == Dialect::GitLab {
        let hook = json!({
            "object_kind": "note", "event_type": "note",
            "user": { "id": id(author), "username": author },
            "project": { "path_with_namespace": "acme/series" },
            "object_attributes": { "id": comment, "note": body, "noteable_type": "MergeRequest", "action": "create" },
            "merge_request": { "iid": 7, "author_id": id(of), "state": "opened" },
        });
        return ("Note Hook", hook);
    }
    let hook = json!({
        "action": "created", "is_pull": true,
        "issue": { "number": 7, "state": "open", "user": { "id": id(of), "login": of }, "pull_request": { "merged": false } },
        "comment": { "id": comment, "body": body, "user": { "id": id(author), "login": author } },
        "repository": { "id": 1, "full_name": "acme/series" },
        "sender": { "id": id(author), "login": author },
    });
    ("issue_comment", hook)
}

/// The delivery of a push by alice to her pull request 7.
fn pushed(dialect: Dialect, before: &str, head: &str) -> (&'static str, Value) {
    if dialect == Dialect::GitLab {
        let hook = json!({
            "object_kind": "merge_request", "event_type": "merge_request",
            "user": { "id": ALICE, "username": "alice" },
            "project": { "path_with_namespace": "acme/series" },
            "object_attributes": {
                "iid": 7, "action": "update", "oldrev": before, "last_commit": { "id": head }, "author_id": ALICE,
                "draft": false, "state": "opened",
            },
        });
        return ("Merge Request Hook", hook);
    }
    let hook = json!({
        "action": "synchronized", "number": 7,
        "pull_request": {
            "number": 7, "state": "open", "user": { "id": ALICE, "login": "alice" },
            "head": { "label": "faster", "ref": "faster", "sha": head, "repo_id": 2 },
        },
        "repository": { "id": 1, "full_name": "acme/series" },
        "sender": { "id": ALICE, "login": "alice" },
    });
    ("pull_request", hook)
}

/// A delivery arrives with this secret; returns the status of the answer.
fn delivered(
    bot: &mut Serving,
    dialect: Dialect,
    (event, body): &(&str, Value),
    secret: &str,
) -> u16 {
    bot.deliveries += 1;
    let (id, body) = (bot.deliveries, body.to_string());
    let head = if dialect == Dialect::GitLab {
        format!(
            "X-Gitlab-Event: {event}\r\nX-Gitlab-Event-UUID: e{id}\r\nX-Gitlab-Token: {secret}\r\n"
        )
    } else {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes());
        let tag = hex::encode(ring::hmac::sign(&key, body.as_bytes()));
        format!("X-Gitea-Event: {event}\r\nX-Gitea-Delivery: e{id}\r\nX-Gitea-Signature: {tag}\r\n")
    };
    let head = format!("{head}Content-Type: application/json\r\n");
    bot.request("POST", "/webhook", &head, &body).0
}

/// The start of the request for the role of `login`.
fn role(dialect: Dialect, login: &str) -> String {
    match dialect {
        Dialect::GitLab => format!(
            "GET /api/v4/projects/acme%2Fseries/members/all/{}",
            id(login)
        ),
        _ => format!("GET /api/v1/repos/acme/series/collaborators/{login}/permission"),
    }
}

fn a_comment_is_carried_out(dialect: Dialect) {
    let world = world(dialect, "label = \"perf\"");
    let head = world.commit(SERIES);
    world.forge.opens(7, &head);
    let mut bot = world.serve();
    let run = world.forge.says(7, "alice", "@perfquilt run");
    let delivery = commented(dialect, run, ("alice", "alice"), "@perfquilt run");
    assert_eq!(delivered(&mut bot, dialect, &delivery, SECRET), 202);
    // A copy under another id.
    assert_eq!(delivered(&mut bot, dialect, &delivery, SECRET), 200);
    let status = bot.until_done(1);
    assert_eq!(status["past"][0]["state"], "done", "{status:#}");
    let conversation = world.forge.conversation(7);
    for words in [
        "alice: @perfquilt run :rocket:",
        "labels: perf: ",
        &format!("status on {}: success", &head[..7]),
    ] {
        assert!(conversation.contains(words), "{words}: {conversation}");
    }
    assert_eq!(world.forge.ours(7).len(), 1, "{conversation}");
    assert!(world.forge.ours(7)[0].contains(&head));
    bot.stops_at_once();
}

fn only_some_may_command(dialect: Dialect) {
    let world = world(dialect, "run_untrusted = \"never\"\non_push = true");
    let head = world.commit(SERIES);
    world.forge.opens(7, &head);
    let mut bot = world.serve();
    let by = |author: &str, of: &str, body: &str| {
        let comment = world.forge.says(7, author, body);
        commented(dialect, comment, (author, of), body)
    };
    // A forged one, and one of another repository.
    let run = by("alice", "alice", "@perfquilt run");
    assert_eq!(
        delivered(&mut bot, dialect, &run, "another secret, as long"),
        401
    );
    let elsewhere = run.1.to_string().replace("acme/series", "acme/other");
    let elsewhere = (run.0, serde_json::from_str(&elsewhere).unwrap());
    assert_eq!(delivered(&mut bot, dialect, &elsewhere, SECRET), 403);
    // Who nobody knows, and whose code nobody runs.
    let mallory = by("mallory", "alice", "@perfquilt run");
    assert_eq!(delivered(&mut bot, dialect, &mallory, SECRET), 202);
    let of_mallory = by("alice", "mallory", "@perfquilt run");
    assert_eq!(delivered(&mut bot, dialect, &of_mallory, SECRET), 202);
    eventually("no answer", || {
        world.forge.conversation(7).matches(":-1:").count() == 2
    });
    // For what is no command, nobody is asked.
    let asked = world.forge.count(&role(dialect, "alice"));
    let nothing = by("alice", "alice", "Nice.");
    assert_eq!(delivered(&mut bot, dialect, &nothing, SECRET), 200);
    assert_eq!(world.forge.count(&role(dialect, "alice")), asked);
    // Without an answer about alice, nothing is done, and the delivery can be sent again.
    world
        .forge
        .fault(&role(dialect, "alice"), Fault::Status(403));
    let later = by("alice", "alice", "@perfquilt status");
    assert_eq!(delivered(&mut bot, dialect, &later, SECRET), 503);
    assert_eq!(delivered(&mut bot, dialect, &later, SECRET), 202);
    assert_eq!(bot.status()["past"], json!([]));
    // A push of hers is measured.
    let next = world.commit(&format!("# again\n{SERIES}"));
    world.forge.pushes(7, &next);
    assert_eq!(
        delivered(&mut bot, dialect, &pushed(dialect, &head, &next), SECRET),
        202
    );
    let status = bot.until_done(1);
    assert_eq!(status["past"][0]["head"], next.as_str(), "{status:#}");
    bot.stops_at_once();
}

#[test]
fn a_comment_is_carried_out_on_gitlab() {
    a_comment_is_carried_out(Dialect::GitLab);
}

#[test]
fn a_comment_is_carried_out_on_forgejo() {
    a_comment_is_carried_out(Dialect::Forgejo);
}

#[test]
fn only_some_may_command_on_gitlab() {
    only_some_may_command(Dialect::GitLab);
}

#[test]
fn only_some_may_command_on_forgejo() {
    only_some_may_command(Dialect::Forgejo);
}
