//! `perfquilt bot serve`: webhooks come in, jobs run on the toy server, answers go to a GitHub that remembers.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout)]

mod common;
mod github;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::TestEnvironment;
use github::{GitHub, LOGIN, TOKEN};
use serde_json::{Value, json};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A workspace with a bot, the repository of its pull requests, and a GitHub.
struct World {
    environment: TestEnvironment,
    github: GitHub,
    repository: PathBuf,
}

impl World {
    fn new(config: &str) -> Self {
        let environment = TestEnvironment::with_fixture("toy");
        let repository = environment.workspace().parent().unwrap().join("forge.git");
        let file = environment.workspace().join("bench-config/perfquilt.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        let remote = repository.display();
        let bot =
            format!("\n[bot]\nrepository = \"acme/series\"\nremote = \"{remote}\"\n{config}\n");
        std::fs::write(file, text + &bot).unwrap();
        git(
            Path::new("/"),
            &["init", "--quiet", "--bare", repository.to_str().unwrap()],
        );
        World {
            environment,
            github: GitHub::start(),
            repository,
        }
    }

    /// Commits the workspace's series and patches as the last commit of pull request 7.
    fn commit(&self, patch: &str) -> String {
        let folder = self
            .environment
            .workspace()
            .parent()
            .unwrap()
            .join("checkout");
        let _ = std::fs::remove_dir_all(&folder);
        common::copy(
            &self.environment.workspace().join("patches"),
            &folder.join("patches"),
        );
        std::fs::write(folder.join("series"), patch).unwrap();
        git(&folder, &["init", "--quiet", "."]);
        // A link must not be followed, wherever it leads.
        std::os::unix::fs::symlink("/etc/passwd", folder.join("patches/link.patch")).unwrap();
        git(&folder, &["add", "--all"]);
        git(
            &folder,
            &[
                "-c",
                "user.name=x",
                "-c",
                "user.email=x@example.org",
                "commit",
                "--quiet",
                "-m",
                "x",
            ],
        );
        git(
            &folder,
            &[
                "push",
                "--quiet",
                "--force",
                self.repository.to_str().unwrap(),
                "HEAD:refs/pull/7/head",
            ],
        );
        git(&folder, &["rev-parse", "HEAD"])
    }

    fn serve(&self) -> Serving {
        let mut command = self
            .environment
            .command(&["bot", "serve", "--listen", "127.0.0.1:0"]);
        command
            .env("GITHUB_TOKEN", TOKEN)
            .env("GITHUB_API_URL", self.github.uri())
            .env("PERFQUILT_WEBHOOK_SECRET", SECRET)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut seen = Vec::new();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let address = line.split("listening at http://").nth(1).map(str::to_owned);
            seen.push(line);
            address
        });
        let address = address.unwrap_or_else(|| panic!("it does not listen: {seen:?}"));
        let said = Arc::new(Mutex::new(seen));
        let heard = Arc::clone(&said);
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .for_each(|line| heard.lock().unwrap().push(line));
        });
        Serving {
            child,
            address,
            deliveries: 0,
            said,
        }
    }
}

/// A bot that runs.
struct Serving {
    child: Child,
    address: String,
    deliveries: u32,
    /// What it wrote to standard error.
    said: Arc<Mutex<Vec<String>>>,
}

impl Serving {
    /// Sends a delivery as GitHub does; returns the status.
    fn hears(&mut self, event: &str, payload: &Value) -> u16 {
        self.deliveries += 1;
        let id = format!("delivery-{}-{}", self.child.id(), self.deliveries);
        self.delivered(event, &id, &payload.to_string(), SECRET)
    }

    fn delivered(&self, event: &str, id: &str, body: &str, secret: &str) -> u16 {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes());
        let tag = ring::hmac::sign(&key, body.as_bytes());
        let tag: String = tag
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let head = format!(
            "X-GitHub-Event: {event}\r\nX-GitHub-Delivery: {id}\r\nX-Hub-Signature-256: sha256={tag}\r\n"
        );
        self.request("POST", "/webhook", &head, body).0
    }

    /// Somebody comments on pull request 7, and GitHub says so.
    fn comment(&mut self, world: &World, author: &str, association: &str, body: &str) -> u16 {
        let id = world.github.says(7, author, body);
        self.hears("issue_comment", &commented(id, author, association, body))
    }

    fn request(&self, method: &str, path: &str, head: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n{head}\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        // A bot that does not want the rest may close.
        let _ = stream.write_all(body.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (
            head.split(' ').nth(1).unwrap().parse().unwrap(),
            body.to_owned(),
        )
    }

    fn get(&self, path: &str) -> String {
        let (status, body) = self.request("GET", path, "", "");
        assert_eq!(status, 200, "{body}");
        body
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.get("/status.json")).unwrap()
    }

    /// Waits until `done` holds.
    fn until(&self, what: &str, done: impl Fn(&Value) -> bool) -> Value {
        let started = Instant::now();
        loop {
            let status = self.status();
            if done(&status) {
                return status;
            }
            assert!(
                started.elapsed() < Duration::from_secs(180),
                "{what}: {status:#}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn until_done(&self, jobs: usize) -> Value {
        self.until("no end", |status| {
            status["open"].as_array().unwrap().is_empty()
                && status["past"].as_array().unwrap().len() == jobs
        })
    }

    /// Asks it to stop; returns its exit code.
    fn stops(mut self) -> Option<i32> {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap().code()
    }

    fn dies(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let ended = self.child.try_wait();
            println!("the bot ({ended:?}) said: {:#?}", self.said.lock().unwrap());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn git(folder: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command
        .current_dir(folder)
        .args(args)
        .env("GIT_CONFIG_GLOBAL", "/dev/null");
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn user(login: &str) -> Value {
    json!({ "login": login, "type": "User" })
}

fn commented(id: u64, author: &str, association: &str, body: &str) -> Value {
    json!({
        "action": "created",
        "repository": { "full_name": "acme/series" },
        "issue": {
            "number": 7, "state": "open", "pull_request": {},
            "user": user("alice"), "author_association": "COLLABORATOR",
        },
        "comment": { "id": id, "body": body, "user": user(author), "author_association": association },
    })
}

fn pushed(action: &str, head: &str) -> Value {
    json!({
        "action": action,
        "repository": { "full_name": "acme/series" },
        "pull_request": {
            "number": 7, "head": { "sha": head }, "draft": false,
            "user": user("alice"), "author_association": "COLLABORATOR",
        },
    })
}

const SERIES: &str = "0001-fewer-rounds.patch\n";

fn eventually(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_comment_is_carried_out() {
    let world = World::new("label = \"perf\"");
    let head = world.commit(SERIES);
    world.github.opens(7, &head);
    let mut bot = world.serve();
    assert_eq!(
        bot.comment(&world, "alice", "COLLABORATOR", "Nice.\n\n@perfquilt run"),
        202
    );
    let status = bot.until_done(1);
    assert_eq!(status["past"][0]["state"], "done", "{status:#}");
    let conversation = world.github.conversation(7);
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
    assert_eq!(world.github.ours(7).len(), 1);
    assert!(world.github.ours(7)[0].contains(&head));
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
    bot.comment(&world, "alice", "COLLABORATOR", "@perfquilt help");
    eventually("no help", || {
        world.github.ours(7)[0].contains("`@perfquilt run [PRESET|PATCH NUMBER]`")
    });
    assert!(world.github.ours(7)[0].contains("## ✅ The series is "));
    assert_eq!(bot.stops(), Some(0));
    assert_eq!(world.environment.processes(), Vec::<String>::new());
}

#[test]
fn only_some_may_command_and_only_github_is_believed() {
    let world = World::new("");
    let head = world.commit(SERIES);
    world.github.opens(7, &head);
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
    // The author of the code is a stranger, whoever asks.
    let mut stranger = commented(
        world.github.says(7, "alice", "@perfquilt run"),
        "alice",
        "OWNER",
        "@perfquilt run",
    );
    stranger["issue"]["user"] = user("mallory");
    stranger["issue"]["author_association"] = json!("NONE");
    assert_eq!(bot.hears("issue_comment", &stranger), 202);
    eventually("no answer", || {
        world.github.conversation(7).matches(":-1:").count() == 2
    });
    eventually("no answer", || {
        world.github.conversation(7).contains(":confused:")
    });
    let status = bot.status();
    assert_eq!((&status["open"], &status["past"]), (&json!([]), &json!([])));
    let metrics = bot.get("/metrics");
    assert!(metrics.contains("{result=\"forged\"} 2"), "{metrics}");
}

#[test]
fn a_delivery_that_comes_twice_counts_once() {
    let world = World::new("");
    let head = world.commit(SERIES);
    world.github.opens(7, &head);
    let bot = world.serve();
    let id = world.github.says(7, "alice", "@perfquilt run");
    let run = commented(id, "alice", "MEMBER", "@perfquilt run").to_string();
    assert_eq!(bot.delivered("issue_comment", "same-1", &run, SECRET), 202);
    assert_eq!(bot.delivered("issue_comment", "same-1", &run, SECRET), 200);
    let status = bot.until_done(1);
    assert_eq!(status["past"].as_array().unwrap().len(), 1);
    assert_eq!(bot.delivered("issue_comment", "same-1", &run, SECRET), 200);
    assert_eq!(bot.status()["open"], json!([]));
}

#[test]
fn a_job_survives_a_kill() {
    let world = World::new("preset = \"quick\"");
    world
        .environment
        .replace("bench-config/perfquilt.toml", "blocks = 5", "blocks = 12");
    let head = world.commit(SERIES);
    world.github.opens(7, &head);
    let mut bot = world.serve();
    bot.comment(&world, "alice", "OWNER", "@perfquilt run");
    bot.until("it measures nothing", |status| {
        status["progress"].as_str().unwrap().contains("block 3")
    });
    bot.dies();
    let bot = world.serve();
    let status = bot.until_done(1);
    assert_eq!(status["past"][0]["state"], "done", "{status:#}");
    assert_eq!(world.github.ours(7).len(), 1);
    assert_eq!(bot.stops(), Some(0));
}

#[test]
fn a_push_cancels_what_runs() {
    let world = World::new("on_push = true");
    world
        .environment
        .replace("bench-config/perfquilt.toml", "blocks = 5", "blocks = 200");
    let head = world.commit(SERIES);
    world.github.opens(7, &head);
    let mut bot = world.serve();
    assert_eq!(bot.hears("pull_request", &pushed("opened", &head)), 202);
    bot.until("it measures nothing", |status| {
        status["progress"].as_str().unwrap().contains("block")
    });
    let newer = world.commit("# no patch\n");
    world.github.pushes(7, &newer);
    assert_eq!(
        bot.hears("pull_request", &pushed("synchronize", &newer)),
        202
    );
    // What comes next may be said in the same comment right away.
    let words = "Cancelled: the pull request has a newer commit";
    eventually("nothing is said of it", || world.github.said(7, words));
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
    assert_eq!(world.environment.processes(), Vec::<String>::new());
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
    world
        .environment
        .replace("bench-config/perfquilt.toml", "acme/series", "acme");
    let (code, said) = serve(&[]);
    assert_eq!(code, Some(2));
    assert!(said.contains("perfquilt.toml:"), "{said}");
}
