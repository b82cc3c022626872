//! A forge that remembers: pull requests, comments, statuses and labels, as far as perfquilt uses them. It speaks the
//! interface of each forge. Every request, and every answer of its own, is compared with that forge's published
//! description.

mod contract;
mod forgejo;
mod github;
mod gitlab;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use contract::{Call, Contract};
use percent_encoding::percent_decode_str;
use perfquilt_forge::ForgeKind;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// The repository all of it is about.
pub const REPOSITORY: &str = "acme/series";
/// A token that may do everything; its comments are those of this user.
pub const TOKEN: &str = "ghp_0123456789SECRET";
pub const LOGIN: &str = "perfquilt-bot";
/// The id of the App that is installed.
pub const APP: &str = "4711";
/// Seconds since 1970 on the forge's clock; `None` is this machine's.
type Clock = Option<i64>;

/// A failure of a request.
#[derive(Debug, Clone)]
pub enum Fault {
    /// This status and nothing else; nothing is done.
    Status(u16),
    /// As [`Fault::Status`], with headers and a message.
    Refused(u16, Vec<(&'static str, String)>, &'static str),
    /// As [`Fault::Status`], with this body.
    Answered(u16, Value),
    /// As [`Fault::Status`], with this web page.
    Page(u16, &'static str),
    /// The request is carried out, but the answer is this status.
    DoneBut(u16),
    /// It is done, but the answer ends in the middle.
    DoneAndCut,
    /// It is done, but there is no answer for this long.
    DoneAndSilent(Duration),
    /// Somebody with the same account writes the same kind of comment in this moment.
    Twin,
    /// Somebody removes the comments of this account in this moment.
    Gone,
    /// The list has nothing of what there is.
    Behind,
}

#[derive(Debug, Clone)]
pub struct Comment {
    pub id: u64,
    pub author: String,
    pub body: String,
    /// Its earlier texts.
    pub edited: Vec<String>,
    pub reactions: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct CheckRun {
    pub id: u64,
    pub head: String,
    /// The App that wrote it.
    pub app: String,
    pub body: Value,
}

#[derive(Debug, Clone)]
pub struct PullRequest {
    pub number: u64,
    pub head: String,
    pub from: String,
    pub open: bool,
    pub locked: bool,
    pub comments: Vec<Comment>,
    pub labels: Vec<String>,
}

/// Permissions of a token.
#[derive(Debug, Clone)]
pub struct Rights {
    /// `None`: it is a workflow's and may not ask.
    pub user: Option<String>,
    /// Under which name it writes.
    pub login: String,
    pub write: bool,
    pub checks: bool,
}

/// The interface that the forge speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    GitHub,
    GitLab,
    Forgejo,
}

/// What a request does; as part of a request's line, which ends in `$` where the line must end there.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    /// Reads the login of the token.
    User,
    /// Reads pull request 7.
    Find,
    /// Lists its comments.
    List,
    /// Writes a comment.
    Write,
    /// Reads one comment.
    Read,
    /// Changes a comment.
    Change,
    /// Reads the statuses of a commit.
    Statuses,
    /// Writes a status.
    SetStatus,
    /// Any request of this method to the repository.
    Any(&'static str),
}

impl Dialect {
    pub fn kind(self) -> &'static ForgeKind {
        ForgeKind::named(match self {
            Dialect::GitHub => "github",
            Dialect::GitLab => "gitlab",
            Dialect::Forgejo => "forgejo",
        })
        .unwrap()
    }

    /// The path of the API on the server.
    fn prefix(self) -> &'static str {
        match self {
            Dialect::GitHub => "",
            Dialect::GitLab => "/api/v4",
            Dialect::Forgejo => "/api/v1",
        }
    }

    /// The start of the line of a request.
    pub fn line(self, step: Step) -> String {
        let api = self.prefix();
        let (repository, comments, comment, change) = match self {
            Dialect::GitLab => {
                let notes = "merge_requests/7/notes";
                ("/projects/acme%2Fseries", notes, format!("{notes}/"), "PUT")
            }
            _ => {
                let comment = "issues/comments".to_owned();
                ("/repos/acme/series", "issues/7/comments", comment, "PATCH")
            }
        };
        let repository = format!("{api}{repository}");
        match step {
            Step::User => format!("GET {api}/user$"),
            Step::Find if self == Dialect::GitLab => format!("GET {repository}/merge_requests/7$"),
            Step::Find => format!("GET {repository}/pulls/7$"),
            Step::List => format!("GET {repository}/{comments}$"),
            Step::Write => format!("POST {repository}/{comments}$"),
            Step::Read => format!("GET {repository}/{comment}"),
            Step::Change => format!("{change} {repository}/{comment}"),
            Step::Statuses if self == Dialect::GitLab => {
                format!("GET {repository}/repository/commits")
            }
            Step::Statuses => format!("GET {repository}/commits"),
            Step::SetStatus if self == Dialect::GitHub => format!("POST {repository}/check-runs"),
            Step::SetStatus => format!("POST {repository}/statuses"),
            Step::Any(method) => format!("{method} {repository}"),
        }
    }

    /// The words of the hint to a token that may not write.
    pub fn permissions(self) -> &'static str {
        match self {
            Dialect::GitHub => "pull-requests: write",
            Dialect::GitLab => "`api`",
            Dialect::Forgejo => "write:issue",
        }
    }

    /// The headers of every request.
    fn headers(self) -> &'static [&'static str] {
        match self {
            Dialect::GitHub => &["user-agent", "accept", "x-github-api-version"],
            _ => &["user-agent", "accept"],
        }
    }

    /// The token in the headers.
    fn token(self, headers: &HeaderMap) -> String {
        let (name, prefix) = match self {
            Dialect::GitHub => ("authorization", "Bearer "),
            Dialect::GitLab => ("private-token", ""),
            Dialect::Forgejo => ("authorization", "token "),
        };
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        let token = value.and_then(|value| value.strip_prefix(prefix));
        token.unwrap_or_default().to_owned()
    }
}

/// Whether the line of a request begins with `start`, or is it where that ends in `$`.
fn begins(line: &str, start: &str) -> bool {
    match start.strip_suffix('$') {
        Some(whole) => line == whole,
        None => line.starts_with(start),
    }
}

pub struct State {
    dialect: Dialect,
    contract: Contract,
    /// Roles by login or id, of which the deliveries of some forges tell nothing.
    pub roles: std::collections::BTreeMap<String, String>,
    /// The names of the repository's labels, where these have ids.
    label_names: Vec<String>,
    pub rights: Rights,
    pub pull_requests: Vec<PullRequest>,
    pub check_runs: Vec<CheckRun>,
    /// Faults of the next requests that begin with this method and path.
    faults: Vec<(String, Fault)>,
    pub clock: Clock,
    pub requests: Vec<String>,
    wrong: Vec<String>,
    next_id: u64,
}

/// The server.
pub struct MockForge {
    uri: String,
    pub dialect: Dialect,
    state: Arc<Mutex<State>>,
    /// Serves until it is dropped.
    _runtime: Runtime,
}

struct Request {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: String,
    /// How long it takes.
    delay: Duration,
}

impl Answer {
    fn new(status: u16) -> Self {
        Answer {
            status,
            headers: HeaderMap::new(),
            body: String::new(),
            delay: Duration::ZERO,
        }
    }

    fn with_json(status: u16, body: &Value) -> Self {
        let mut answer = Answer::new(status).header("content-type", "application/json");
        answer.body = body.to_string();
        answer
    }

    fn header(mut self, name: &'static str, value: &str) -> Self {
        let value = HeaderValue::from_str(value).unwrap();
        self.headers.insert(name, value);
        self
    }
}

impl MockForge {
    pub fn start() -> Self {
        MockForge::of(Dialect::GitHub)
    }

    pub fn of(dialect: Dialect) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let state = Arc::new(Mutex::new(State {
            dialect,
            contract: Contract::load(dialect),
            roles: std::collections::BTreeMap::new(),
            label_names: Vec::new(),
            rights: Rights {
                user: Some(LOGIN.into()),
                login: LOGIN.into(),
                write: true,
                checks: true,
            },
            pull_requests: Vec::new(),
            check_runs: Vec::new(),
            faults: Vec::new(),
            clock: None,
            requests: Vec::new(),
            wrong: Vec::new(),
            next_id: 100,
        }));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap());
        let served = Arc::clone(&state);
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let router = Router::new().fallback(async move |method, uri, headers, body| {
                let answer = served.lock().unwrap().respond(&Request {
                    method,
                    uri,
                    headers,
                    body,
                });
                tokio::time::sleep(answer.delay).await;
                let status = StatusCode::from_u16(answer.status).unwrap();
                (status, answer.headers, answer.body)
            });
            axum::serve(listener, router).await.unwrap();
        });
        MockForge {
            uri,
            dialect,
            state,
            _runtime: runtime,
        }
    }

    /// The address of the API.
    pub fn uri(&self) -> String {
        format!("{}{}", self.uri, self.dialect.prefix())
    }

    pub fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// A pull request from alice's branch `faster` is opened at `head`.
    pub fn opens(&self, number: u64, head: &str) {
        self.state().pull_requests.push(PullRequest {
            number,
            head: head.into(),
            from: "alice:faster".into(),
            open: true,
            locked: false,
            comments: Vec::new(),
            labels: Vec::new(),
        });
    }

    /// Its branch moves to `head`.
    pub fn pushes(&self, number: u64, head: &str) {
        self.state().of(number).head = head.into();
    }

    /// Somebody writes a comment.
    pub fn says(&self, number: u64, author: &str, body: &str) -> u64 {
        self.state().write(number, author, body).id
    }

    /// Somebody removes all comments of `author`.
    pub fn removes_comments(&self, number: u64, author: &str) {
        self.state()
            .of(number)
            .comments
            .retain(|comment| comment.author != author);
    }

    /// The next request that begins with this (`POST /repos/acme/series/issues`) goes wrong; several faults
    /// come in this order.
    pub fn fault(&self, request: &str, fault: Fault) {
        self.state().faults.push((request.to_owned(), fault));
    }

    /// As [`MockForge::fault`], in this step.
    pub fn fails(&self, step: Step, fault: Fault) {
        self.fault(&self.dialect.line(step), fault);
    }

    /// How many requests did this step.
    pub fn steps(&self, step: Step) -> usize {
        self.count(&self.dialect.line(step))
    }

    /// The comments of this program's account.
    pub fn ours(&self, number: u64) -> Vec<String> {
        let mut state = self.state();
        let login = state.rights.login.clone();
        let comments = state.of(number).comments.iter();
        comments
            .filter(|comment| comment.author == login)
            .map(|comment| comment.body.clone())
            .collect()
    }

    /// Whether a comment of this program's account says or said this.
    pub fn said(&self, number: u64, words: &str) -> bool {
        let mut state = self.state();
        let login = state.rights.login.clone();
        let mut comments = state.of(number).comments.iter();
        comments.any(|comment| {
            let mut bodies = comment.edited.iter().chain([&comment.body]);
            comment.author == login && bodies.any(|body| body.contains(words))
        })
    }

    /// How many requests began with this.
    pub fn count(&self, request: &str) -> usize {
        let state = self.state();
        state
            .requests
            .iter()
            .filter(|one| begins(one, request))
            .count()
    }

    /// A summary of the pull request as its reader sees it.
    pub fn conversation(&self, number: u64) -> String {
        let mut state = self.state();
        let request = state.of(number).clone();
        let mut text = format!("#{number} at {}\n", &request.head[..7]);
        for comment in &request.comments {
            let mut lines = comment
                .body
                .lines()
                .filter(|line| !line.starts_with("<!--") && !line.is_empty());
            let reactions: String = comment
                .reactions
                .iter()
                .map(|one| format!(" :{one}:"))
                .collect();
            text.push_str(&format!(
                "{}: {}{reactions}\n",
                comment.author,
                lines.next().unwrap_or_default()
            ));
            for line in lines.filter(|line| line.starts_with("> This is about")) {
                text.push_str(&format!("    {line}\n"));
            }
        }
        for run in &state.shown_statuses() {
            let title = run.body["output"]["title"].as_str().unwrap();
            let conclusion = run.body["conclusion"].as_str().unwrap();
            let name = match self.dialect {
                Dialect::GitHub => "check run",
                _ => "status",
            };
            text.push_str(&format!(
                "{name} on {}: {conclusion}, {title}\n",
                &run.head[..7]
            ));
        }
        if !request.labels.is_empty() {
            text.push_str(&format!("labels: {}\n", request.labels.join(", ")));
        }
        text.replace(&self.uri, "https://forge.example")
    }
}

impl Drop for MockForge {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let wrong = &self.state().wrong;
            assert!(
                wrong.is_empty(),
                "not as the forge describes it: {wrong:#?}"
            );
        }
    }
}

impl State {
    pub fn of(&mut self, number: u64) -> &mut PullRequest {
        let mut all = self.pull_requests.iter_mut();
        all.find(|request| request.number == number).unwrap()
    }

    /// The statuses that count: check runs are changed, of other statuses the last one of a name counts.
    pub fn shown_statuses(&self) -> Vec<CheckRun> {
        let is_later = |one: &CheckRun, other: &CheckRun| {
            one.id > other.id && one.head == other.head && one.body["name"] == other.body["name"]
        };
        let all = self.check_runs.iter();
        let shown = all.filter(|run| {
            let mut others = self.check_runs.iter();
            self.dialect == Dialect::GitHub || !others.any(|other| is_later(other, run))
        });
        shown.cloned().collect()
    }

    /// Nothing goes wrong any more.
    pub fn forget_faults(&mut self) {
        self.faults.clear();
    }

    /// The App under whose name check runs are written: that of a workflow's token unless it is another one.
    fn app(&self) -> String {
        let app = self.rights.login.strip_suffix("[bot]");
        app.unwrap_or("github-actions").to_owned()
    }

    /// Finds a comment.
    fn comment(&mut self, id: u64) -> Option<&mut Comment> {
        let requests = self.pull_requests.iter_mut();
        let mut all = requests.flat_map(|request| &mut request.comments);
        all.find(|comment| comment.id == id)
    }

    /// Removes a comment; returns whether it was there.
    fn remove(&mut self, id: u64) -> bool {
        let found = self.comment(id).is_some();
        for request in &mut self.pull_requests {
            request.comments.retain(|comment| comment.id != id);
        }
        found
    }

    /// Writes a status on a commit.
    fn set_status(&mut self, head: &str, name: &str, state: &str, description: &str) -> CheckRun {
        self.next_id += 1;
        let run = CheckRun {
            id: self.next_id,
            head: head.to_owned(),
            app: String::new(),
            body: json!({ "name": name, "conclusion": state, "output": { "title": description } }),
        };
        self.check_runs.push(run.clone());
        run
    }

    fn write(&mut self, number: u64, author: &str, body: &str) -> Comment {
        self.next_id += 1;
        let comment = Comment {
            id: self.next_id,
            author: author.into(),
            body: body.into(),
            edited: Vec::new(),
            reactions: Vec::new(),
        };
        self.of(number).comments.push(comment.clone());
        comment
    }

    fn now(&self) -> i64 {
        self.clock
            .unwrap_or_else(|| jiff::Timestamp::now().as_second())
    }

    fn respond(&mut self, request: &Request) -> Answer {
        let method = request.method.to_string();
        let path = request.uri.path().to_owned();
        let api_path = path
            .strip_prefix(self.dialect.prefix())
            .unwrap_or_default()
            .to_owned();
        let query = query_pairs(request.uri.query().unwrap_or_default());
        let line = format!("{method} {path}");
        self.requests.push(line.clone());
        let place = self
            .faults
            .iter()
            .position(|(start, _)| begins(&line, start));
        let fault = place.map(|place| self.faults.remove(place).1);
        match &fault {
            Some(Fault::Status(status)) => return Answer::new(*status),
            Some(Fault::Answered(status, body)) => {
                return Answer::with_json(*status, body);
            }
            Some(Fault::Page(status, page)) => {
                let mut answer = Answer::new(*status).header("content-type", "text/html");
                answer.body = (*page).to_owned();
                return answer;
            }
            Some(Fault::Behind) => return Answer::with_json(200, &json!([])),
            Some(Fault::Refused(status, headers, message)) => {
                let answer = Answer::with_json(*status, &json!({ "message": message }));
                return headers
                    .iter()
                    .fold(answer, |answer, (name, value)| answer.header(name, value));
            }
            _ => {}
        }
        let body: Option<Value> = if request.body.is_empty() {
            None
        } else {
            Some(serde_json::from_slice(&request.body).unwrap())
        };
        for header in self.dialect.headers() {
            if !request.headers.contains_key(*header) {
                self.wrong.push(format!("{line}: no {header}"));
            }
        }
        let Some(operation) = self.contract.operation(&method, &api_path) else {
            self.wrong.push(format!("{line}: no such operation"));
            return Answer::with_json(404, &json!({ "message": "Not Found" }));
        };
        let wrong = self.contract.request(&operation, &query, body.as_ref());
        self.wrong
            .extend(wrong.into_iter().map(|why| format!("{line}: {why}")));
        let (template, parameters) = (operation.path.to_owned(), operation.parameters.clone());
        let parameters = parameters
            .into_iter()
            .map(|(k, v)| (k.to_owned(), v))
            .collect();
        let token = self.dialect.token(&request.headers);
        if matches!(fault, Some(Fault::Twin)) {
            self.twin(body.as_ref());
        }
        if matches!(fault, Some(Fault::Gone)) {
            let login = self.rights.login.clone();
            let comments = &mut self.pull_requests[0].comments;
            comments.retain(|comment| comment.author != login);
        }
        let call = Call {
            operation: &format!("{method} {template}"),
            parameters,
            query: query.into_iter().collect(),
            body: body.unwrap_or(Value::Null),
            token,
            has_next: std::cell::Cell::new(false),
        };
        let (status, answer) = match self.dialect {
            Dialect::GitHub => github::answer(self, &call),
            Dialect::GitLab => gitlab::answer(self, &call),
            Dialect::Forgejo => forgejo::answer(self, &call),
        };
        let operation = self.contract.operation(&method, &api_path).unwrap();
        let wrong = self.contract.response(&operation, status, &answer);
        self.wrong.extend(
            wrong
                .into_iter()
                .map(|why| format!("answer {status} to {line}: {why}")),
        );
        let date = jiff::Timestamp::from_second(self.now()).unwrap();
        let date = date.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let mut response = match status {
            204 => Answer::new(status),
            _ => Answer::with_json(status, &answer),
        }
        .header("x-ratelimit-remaining", "4999")
        .header("date", &date);
        if call.has_next.get() {
            let next = format!("<{path}?page=next>; rel=\"next\", <{path}>; rel=\"first\"");
            response = response.header("link", &next);
        }
        match fault {
            Some(Fault::DoneBut(status)) => return Answer::new(status),
            Some(Fault::DoneAndCut) => response.body.truncate(response.body.len() / 2),
            Some(Fault::DoneAndSilent(time)) => response.delay = time,
            _ => {}
        }
        response
    }

    /// Somebody else writes what is about to be written.
    fn twin(&mut self, body: Option<&Value>) {
        let text = body.and_then(|body| body["body"].as_str()).unwrap();
        let text = format!("{}\nof somebody else\n", text.lines().next().unwrap());
        let (number, login) = (self.pull_requests[0].number, self.rights.login.clone());
        self.write(number, &login, &text);
    }
}

fn query_pairs(query: &str) -> Vec<(String, String)> {
    let decoded = |text: &str| percent_decode_str(text).decode_utf8().unwrap().into_owned();
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect()
}
