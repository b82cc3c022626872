//! A bot, the repository of its pull requests, and a forge.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::TestEnvironment;
use crate::forge::{Dialect, MockForge, TOKEN};
pub use perfquilt_testkit::commit_all;

pub const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// Runs git in `folder`, and returns its output without the last line end.
pub fn git(folder: &Path, args: &[&str]) -> String {
    perfquilt_testkit::git(folder, args).trim().to_owned()
}

/// A workspace with a bot, the repository of its pull requests, and a forge.
pub struct World {
    pub environment: TestEnvironment,
    pub forge: MockForge,
    pub repository: PathBuf,
}

impl World {
    pub fn new(config: &str) -> Self {
        World::on(Dialect::GitHub, config)
    }

    /// As [`World::new`], on a forge with this interface.
    pub fn on(dialect: Dialect, config: &str) -> Self {
        let environment = TestEnvironment::with_fixture("toy");
        let repository = environment.workspace().parent().unwrap().join("forge.git");
        let file = environment.workspace().join("bench-config/perfquilt.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        let remote = repository.display();
        let bot =
            format!("\n[bot]\nrepository = \"acme/series\"\nremote = \"{remote}\"\n{config}\n");
        let bot = match dialect {
            Dialect::GitHub => bot,
            other => format!("{bot}forge = \"{}\"\n", other.kind().name),
        };
        std::fs::write(file, text + &bot).unwrap();
        git(
            Path::new("/"),
            &["init", "--quiet", "--bare", repository.to_str().unwrap()],
        );
        let forge = MockForge::of(dialect);
        // The bots here post with a user's token, of which GitHub takes no check runs.
        forge.state().rights.checks = dialect != Dialect::GitHub;
        World {
            environment,
            forge,
            repository,
        }
    }

    /// The area of a job.
    pub fn area(&self, job: u32) -> PathBuf {
        let areas = self.environment.workspace().join(".perfquilt/bot/areas");
        areas.join(job.to_string())
    }

    /// The names of all areas that there are.
    pub fn areas(&self) -> Vec<String> {
        let areas = self.area(0);
        let areas = std::fs::read_dir(areas.parent().unwrap()).unwrap();
        let names = areas.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != "lost+found").collect()
    }

    /// Commits the workspace's series and patches as the last commit of pull request 7.
    pub fn commit(&self, series: &str) -> String {
        self.commit_to(7, series, &[])
    }

    /// As [`World::commit`], of pull request `number` and with these patches besides.
    pub fn commit_to(&self, number: u64, series: &str, patches: &[(&str, &str)]) -> String {
        let folder = self.checkout(series);
        for (name, text) in patches {
            std::fs::write(folder.join("patches").join(name), text).unwrap();
        }
        // What it asks of git counts for nothing.
        let attributes = "series eol=crlf export-subst\n*.patch export-ignore\n";
        std::fs::write(folder.join(".gitattributes"), attributes).unwrap();
        // A link must not be followed, wherever it leads.
        std::os::unix::fs::symlink("/etc/passwd", folder.join("patches/link.patch")).unwrap();
        self.push(&folder, number)
    }

    /// Makes a repository with the workspace's patches and this series, without a commit.
    pub fn checkout(&self, series: &str) -> PathBuf {
        let workspace = self.environment.workspace();
        let folder = workspace.parent().unwrap().join("checkout");
        let _ = std::fs::remove_dir_all(&folder);
        crate::common::copy(&workspace.join("patches"), &folder.join("patches"));
        std::fs::write(folder.join("series"), series).unwrap();
        git(&folder, &["init", "--quiet", "."]);
        folder
    }

    /// Commits what is in the folder and pushes it as the last commit of pull request `number`.
    pub fn push(&self, folder: &Path, number: u64) -> String {
        commit_all(folder, "x");
        let refs = match self.forge.dialect {
            Dialect::GitLab => "merge-requests",
            _ => "pull",
        };
        let head = format!("HEAD:refs/{refs}/{number}/head");
        let repository = self.repository.to_str().unwrap();
        git(folder, &["push", "--quiet", "--force", repository, &head]);
        git(folder, &["rev-parse", "HEAD"])
    }

    pub fn serve(&self) -> Serving {
        self.serve_with(&[])
    }

    /// As [`World::serve`], with these environment variables besides.
    pub fn serve_with(&self, variables: &[(&str, &str)]) -> Serving {
        let variable = self.forge.dialect.kind().name.to_uppercase();
        let mut command = self
            .environment
            .command(&["bot", "serve", "--listen", "127.0.0.1:0"]);
        command
            .env(format!("{variable}_TOKEN"), TOKEN)
            .env(format!("{variable}_API_URL"), self.forge.uri())
            .env("PERFQUILT_WEBHOOK_SECRET", SECRET)
            .envs(variables.iter().copied())
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
pub struct Serving {
    pub child: Child,
    pub address: String,
    pub deliveries: u32,
    /// Its standard error.
    pub said: Arc<Mutex<Vec<String>>>,
}

impl Serving {
    /// Sends a delivery as GitHub does; returns the status.
    pub fn hears(&mut self, event: &str, payload: &Value) -> u16 {
        self.deliveries += 1;
        let id = format!("delivery-{}-{}", self.child.id(), self.deliveries);
        self.delivered(event, &id, &payload.to_string(), SECRET)
    }

    pub fn delivered(&self, event: &str, id: &str, body: &str, secret: &str) -> u16 {
        self.delivered_as("application/json", event, id, body, secret)
            .0
    }

    /// A delivery with this content type arrives: the answer's status and text.
    pub fn delivered_as(
        &self,
        content_type: &str,
        event: &str,
        id: &str,
        body: &str,
        secret: &str,
    ) -> (u16, String) {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes());
        let tag = ring::hmac::sign(&key, body.as_bytes());
        let tag = hex::encode(tag);
        let head = format!(
            "X-GitHub-Event: {event}\r\nX-GitHub-Delivery: {id}\r\nX-Hub-Signature-256: sha256={tag}\r\n\
             Content-Type: {content_type}\r\n"
        );
        self.request("POST", "/webhook", &head, body)
    }

    /// Somebody comments on pull request 7, and GitHub says so.
    pub fn comment(&mut self, world: &World, author: &str, association: &str, body: &str) -> u16 {
        let id = world.forge.says(7, author, body);
        self.hears("issue_comment", &commented(id, author, association, body))
    }

    /// An owner of the repository comments on pull request `number` of `author`.
    pub fn asked(&mut self, world: &World, number: u64, author: (&str, &str), body: &str) -> u16 {
        let id = world.forge.says(number, "alice", body);
        let mut payload = commented(id, "alice", "OWNER", body);
        payload["issue"]["number"] = json!(number);
        payload["issue"]["user"] = user(author.0);
        payload["issue"]["author_association"] = json!(author.1);
        self.hears("issue_comment", &payload)
    }

    pub fn request(&self, method: &str, path: &str, head: &str, body: &str) -> (u16, String) {
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

    pub fn get(&self, path: &str) -> String {
        let (status, body) = self.request("GET", path, "", "");
        assert_eq!(status, 200, "{body}");
        body
    }

    pub fn status(&self) -> Value {
        serde_json::from_str(&self.get("/status.json")).unwrap()
    }

    /// Waits three minutes until `done` holds.
    pub fn until(&self, what: &str, done: impl Fn(&Value) -> bool) -> Value {
        self.until_in(180, what, done)
    }

    fn until_in(&self, seconds: u64, what: &str, done: impl Fn(&Value) -> bool) -> Value {
        let started = Instant::now();
        loop {
            let status = self.status();
            if done(&status) {
                return status;
            }
            assert!(
                started.elapsed() < Duration::from_secs(seconds),
                "{what}: {status:#}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn until_done(&self, jobs: usize) -> Value {
        self.until_done_in(jobs, 180)
    }

    pub fn until_done_in(&self, jobs: usize, seconds: u64) -> Value {
        self.until_in(seconds, "no end", |status| {
            status["open"].as_array().unwrap().is_empty()
                && status["past"].as_array().unwrap().len() == jobs
        })
    }

    /// Asks it to stop; it does within ten seconds, which is the promise of two on a machine that does other things.
    pub fn stops_at_once(self) {
        let asked = Instant::now();
        assert_eq!(self.stops(), Some(0));
        let took = asked.elapsed();
        assert!(took < Duration::from_secs(10), "it took {took:?}");
    }

    /// Asks it to stop; returns its exit code.
    pub fn stops(mut self) -> Option<i32> {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap().code()
    }

    pub fn dies(mut self) {
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

pub fn user(login: &str) -> Value {
    json!({ "login": login, "type": "User" })
}

pub fn commented(id: u64, author: &str, association: &str, body: &str) -> Value {
    json!({
        "action": "created",
        "repository": { "full_name": "acme/series" },
        "issue": {
            "number": 7, "state": "open", "pull_request": {},
            "user": user("alice"), "author_association": "MEMBER",
        },
        "comment": { "id": id, "body": body, "user": user(author), "author_association": association },
    })
}

pub fn pushed(action: &str, head: &str) -> Value {
    json!({
        "action": action,
        "repository": { "full_name": "acme/series" },
        "pull_request": {
            "number": 7, "head": { "sha": head }, "draft": false,
            "user": user("alice"), "author_association": "MEMBER",
        },
        "sender": user("alice"),
    })
}

pub fn eventually(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub const SERIES: &str = "0001-fewer-rounds.patch\n";
