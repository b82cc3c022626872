//! Answers of GitHub.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::contract::Call;
use super::{APP, CheckRun, Comment, PullRequest, State, TOKEN};

/// The token an App gets for its installation.
const INSTALLED: &str = "ghs_INSTALLATION";

impl Call<'_> {
    fn hundred<T>(&self, all: Vec<T>) -> Vec<T> {
        let page = self.page(all, "per_page", 100);
        // perfquilt counts them.
        self.has_next.set(false);
        page
    }
}

fn problem(status: u16, message: &str) -> (u16, Value) {
    documented(status, message, "https://docs.github.com/rest")
}

/// A problem that a page of GitHub's documentation explains.
fn documented(status: u16, message: &str, page: &str) -> (u16, Value) {
    let body =
        json!({ "message": message, "documentation_url": page, "status": status.to_string() });
    (status, body)
}

pub fn answer(state: &mut State, call: &Call<'_>) -> (u16, Value) {
    match call.operation {
        "GET /app"
        | "GET /repos/{owner}/{repo}/installation"
        | "POST /app/installations/{installation_id}/access_tokens" => {
            return app(state, call);
        }
        _ if call.token != TOKEN && call.token != INSTALLED => {
            return problem(401, "Bad credentials");
        }
        _ => {}
    }
    let repository = call
        .parameters
        .get("owner")
        .zip(call.parameters.get("repo"));
    if repository.is_some_and(|(owner, repo)| format!("{owner}/{repo}") != super::REPOSITORY) {
        return problem(404, "Not Found");
    }
    let writes = !call.operation.starts_with("GET");
    let allowed = if call.operation.contains("check-runs") {
        state.rights.checks
    } else {
        state.rights.write
    };
    if writes && !allowed {
        return problem(403, "Resource not accessible by integration");
    }
    let numbered = call
        .parameters
        .get("issue_number")
        .or(call.parameters.get("pull_number"));
    if let Some(number) = numbered.and_then(|number| number.parse::<u64>().ok())
        && !state
            .pull_requests
            .iter()
            .any(|request| request.number == number)
    {
        return problem(404, "Not Found");
    }
    match call.operation {
        "GET /user" => match &state.rights.user {
            None => problem(403, "Resource not accessible by integration"),
            Some(login) => {
                let user = state
                    .contract
                    .example("public-user", json!({ "login": login }));
                (200, user)
            }
        },
        "GET /repos/{owner}/{repo}/pulls/{pull_number}" => {
            let request = state.of(call.number("pull_number")).clone();
            (200, pull_request(state, &request, "pull-request"))
        }
        "GET /repos/{owner}/{repo}/pulls" => {
            let wanted = call.query.get("head");
            let any = call.query.get("state").is_some_and(|state| state == "all");
            let all = state.pull_requests.clone();
            let found = all.iter().filter(|request| {
                wanted.is_none_or(|wanted| request.from == *wanted) && (any || request.open)
            });
            let found: Vec<Value> = found
                .map(|request| pull_request(state, request, "pull-request-simple"))
                .collect();
            (200, json!(call.hundred(found)))
        }
        "GET /repos/{owner}/{repo}/issues/{issue_number}/comments" => {
            let comments = state.of(call.number("issue_number")).comments.clone();
            let comments: Vec<Value> = comments
                .iter()
                .map(|comment| self::comment(state, comment))
                .collect();
            (200, json!(call.hundred(comments)))
        }
        "POST /repos/{owner}/{repo}/issues/{issue_number}/comments" => {
            let number = call.number("issue_number");
            if state.of(number).locked {
                return documented(
                    403,
                    "Unable to create comment because issue is locked.",
                    "https://docs.github.com/articles/locking-conversations/",
                );
            }
            let body = call.body["body"].as_str().unwrap();
            if body.chars().count() > 65_536 {
                return problem(422, "Body is too long (maximum is 65536 characters)");
            }
            let login = state.rights.login.clone();
            let written = state.write(number, &login, body);
            (201, comment(state, &written))
        }
        "GET /repos/{owner}/{repo}/issues/comments/{comment_id}" => {
            let id = call.number("comment_id");
            match state.comment(id).cloned() {
                Some(found) => (200, comment(state, &found)),
                None => problem(404, "Not Found"),
            }
        }
        "PATCH /repos/{owner}/{repo}/issues/comments/{comment_id}" => {
            let (id, login) = (call.number("comment_id"), state.rights.login.clone());
            let Some(found) = state.comment(id) else {
                return problem(404, "Not Found");
            };
            if found.author != login {
                return problem(403, "Must have admin rights to Repository.");
            }
            let new = call.body["body"].as_str().unwrap().to_owned();
            let old = std::mem::replace(&mut found.body, new);
            found.edited.push(old);
            let found = found.clone();
            (200, comment(state, &found))
        }
        "DELETE /repos/{owner}/{repo}/issues/comments/{comment_id}" => {
            let id = call.number("comment_id");
            if state.remove(id) {
                (204, Value::Null)
            } else {
                problem(404, "Not Found")
            }
        }
        "POST /repos/{owner}/{repo}/issues/comments/{comment_id}/reactions" => {
            let (id, content) = (
                call.number("comment_id"),
                call.body["content"].as_str().unwrap(),
            );
            let Some(found) = state.comment(id) else {
                return problem(404, "Not Found");
            };
            let new = !found.reactions.iter().any(|known| known == content);
            if new {
                found.reactions.push(content.to_owned());
            }
            let fields = json!({ "content": content });
            (
                if new { 201 } else { 200 },
                state.contract.example("reaction", fields),
            )
        }
        "GET /repos/{owner}/{repo}/commits/{ref}/check-runs" => {
            let name = call.query.get("check_name");
            let mut runs = state.check_runs.clone();
            runs.retain(|run| {
                run.head == call.parameters["ref"]
                    && name.is_none_or(|name| run.body["name"] == name.as_str())
            });
            if call
                .query
                .get("filter")
                .is_none_or(|filter| filter == "latest")
            {
                // The latest of each name and App.
                let latest: BTreeMap<(String, String), CheckRun> = runs
                    .into_iter()
                    .map(|run| ((run.body["name"].to_string(), run.app.clone()), run))
                    .collect();
                runs = latest.into_values().collect();
            }
            let total = runs.len();
            let runs = call.hundred(runs);
            let runs: Vec<Value> = runs.iter().map(|run| check_run(state, run)).collect();
            (200, json!({ "total_count": total, "check_runs": runs }))
        }
        "POST /repos/{owner}/{repo}/check-runs" => {
            state.next_id += 1;
            let run = CheckRun {
                id: state.next_id,
                head: call.body["head_sha"].as_str().unwrap().to_owned(),
                app: state.app(),
                body: call.body.clone(),
            };
            state.check_runs.push(run.clone());
            (201, check_run(state, &run))
        }
        "PATCH /repos/{owner}/{repo}/check-runs/{check_run_id}" => {
            let (id, app) = (call.number("check_run_id"), state.app());
            let run = state
                .check_runs
                .iter_mut()
                .find(|run| run.id == id)
                .unwrap();
            if run.app != app {
                return problem(403, "Invalid app_id");
            }
            for (name, value) in call.body.as_object().unwrap() {
                run.body[name] = value.clone();
            }
            let run = run.clone();
            (200, check_run(state, &run))
        }
        "GET /repos/{owner}/{repo}/issues/{issue_number}/labels" => {
            let names = state.of(call.number("issue_number")).labels.clone();
            (200, json!(call.hundred(labels(state, &names))))
        }
        "POST /repos/{owner}/{repo}/issues/{issue_number}/labels" => {
            let number = call.number("issue_number");
            for name in call.body["labels"].as_array().unwrap() {
                let name = name.as_str().unwrap().to_owned();
                let labels = &mut state.of(number).labels;
                if !labels.contains(&name) {
                    labels.push(name);
                }
            }
            let names = state.of(number).labels.clone();
            (200, json!(labels(state, &names)))
        }
        "DELETE /repos/{owner}/{repo}/issues/{issue_number}/labels/{name}" => {
            let name = percent_decoded(&call.parameters["name"]);
            let found = &mut state.of(call.number("issue_number")).labels;
            let before = found.len();
            found.retain(|label| *label != name);
            if found.len() < before {
                let names = found.clone();
                (200, json!(labels(state, &names)))
            } else {
                problem(404, "Label does not exist")
            }
        }
        other => panic!("the fake has no {other}"),
    }
}

/// Requests of an App, with a token it signed itself.
fn app(state: &mut State, call: &Call<'_>) -> (u16, Value) {
    let claims = call
        .token
        .split('.')
        .nth(1)
        .and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
    let claims: Value = claims
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default();
    let now = state.now();
    let time = |name: &str| claims[name].as_i64().unwrap_or(0);
    if claims["iss"] != APP {
        return problem(401, "A JSON web token could not be decoded");
    }
    if time("iat") > now || time("exp") < now || time("exp") > now + 600 {
        return problem(
            401,
            "'Expiration time' claim ('exp') is too far in the future",
        );
    }
    match call.operation {
        "GET /app" => {
            let fields = json!({ "slug": "perfquilt-app", "id": 4711 });
            (200, state.contract.example("integration", fields))
        }
        "GET /repos/{owner}/{repo}/installation" => (
            200,
            state.contract.example("installation", json!({ "id": 99 })),
        ),
        _ => {
            state.rights.login = "perfquilt-app[bot]".into();
            let fields = json!({ "token": INSTALLED, "expires_at": "2026-01-02T04:04:05Z" });
            (201, state.contract.example("installation-token", fields))
        }
    }
}

fn comment(state: &State, comment: &Comment) -> Value {
    let user = state
        .contract
        .example("simple-user", json!({ "login": comment.author }));
    let url = format!(
        "https://github.com/{}/pull/1#issuecomment-{}",
        super::REPOSITORY,
        comment.id
    );
    let fields = json!({ "id": comment.id, "body": comment.body, "user": user, "html_url": url });
    state.contract.example("issue-comment", fields)
}

fn check_run(state: &State, run: &CheckRun) -> Value {
    let url = format!("https://github.com/{}/runs/{}", super::REPOSITORY, run.id);
    let app = state
        .contract
        .example("integration", json!({ "slug": run.app }));
    let fields = json!({
        "id": run.id, "head_sha": run.head, "html_url": url, "name": run.body["name"],
        "external_id": run.body["external_id"], "status": run.body["status"], "conclusion": run.body["conclusion"],
        "started_at": run.body["started_at"], "app": app,
    });
    state.contract.example("check-run", fields)
}

fn pull_request(state: &State, request: &PullRequest, schema: &str) -> Value {
    let fields = json!({
        "number": request.number,
        "state": if request.open { "open" } else { "closed" },
        "locked": request.locked,
        "head": {
            "sha": request.head,
            "label": request.from,
            "ref": request.from.split_once(':').map_or("", |(_, branch)| branch),
        },
        "base": { "sha": "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d", "ref": "main" },
    });
    state.contract.example(schema, fields)
}

fn labels(state: &State, names: &[String]) -> Vec<Value> {
    let label = |name: &String| state.contract.example("label", json!({ "name": name }));
    names.iter().map(label).collect()
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first == b'%' {
            bytes.push(u8::from_str_radix(std::str::from_utf8(&tail[..2]).unwrap(), 16).unwrap());
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).unwrap()
}
