//! Answers of GitLab.

use serde_json::{Value, json};

use super::contract::Call;
use super::{CheckRun, Comment, State, TOKEN};

fn problem(status: u16, message: &str) -> (u16, Value) {
    (status, json!({ "message": format!("{status} {message}") }))
}

pub fn answer(state: &mut State, call: &Call<'_>) -> (u16, Value) {
    if call.token != TOKEN {
        return problem(401, "Unauthorized");
    }
    let project = call.parameters.get("id");
    if project.is_some_and(|id| *id != super::REPOSITORY.replace('/', "%2F")) {
        return problem(404, "Project Not Found");
    }
    let number = call.parameters.get("merge_request_iid");
    let number: u64 = number.map_or(0, |number| number.parse().unwrap());
    let is_known = state
        .pull_requests
        .iter()
        .any(|request| request.number == number);
    if number > 0 && !is_known {
        return problem(404, "Not found");
    }
    if !call.operation.starts_with("GET") && !state.rights.write {
        let said = "The request requires higher privileges than provided by the access token.";
        let body =
            json!({ "error": "insufficient_scope", "error_description": said, "scope": "api" });
        return (403, body);
    }
    let body = call.body["body"].as_str().unwrap_or_default();
    if let Some(action) = body.lines().find(|line| line.trim_start().starts_with('/')) {
        state
            .wrong
            .push(format!("the quick action {action} is carried out"));
    }
    let login = state.rights.login.clone();
    const PROJECT: &str = "/projects/{id}/";
    const REQUEST: &str = "merge_requests/{merge_request_iid}";
    let operation = call.operation.replace(PROJECT, "").replace(REQUEST, "MR");
    match operation.as_str() {
        "GET /user" => match state.rights.user.clone() {
            None => problem(403, "Forbidden"),
            Some(login) => (200, user(state, &login)),
        },
        "GET /users/{user_id}" => {
            let login = state
                .roles
                .get(&format!("login {}", call.parameters["user_id"]))
                .cloned();
            match login {
                Some(login) => (200, user(state, &login)),
                None => problem(404, "User Not Found"),
            }
        }
        "GET members/all/{user_id}" => match state.roles.get(&call.parameters["user_id"]) {
            Some(level) => {
                let fields = json!({ "access_level": level.parse::<u64>().unwrap() });
                (200, state.contract.example("Member", fields))
            }
            None => problem(404, "Not found"),
        },
        "GET MR" => (200, merge_request(state, number)),
        "PUT MR" => {
            let labels = &mut state.of(number).labels;
            if let Some(removed) = call.body["remove_labels"].as_str() {
                labels.retain(|label| label != removed);
            }
            if let Some(added) = call.body["add_labels"].as_str()
                && !labels.iter().any(|label| label == added)
            {
                labels.push(added.to_owned());
            }
            (200, merge_request(state, number))
        }
        "GET MR/notes" => {
            let notes = state.of(number).comments.clone();
            let notes: Vec<Value> = notes.iter().map(|found| note(state, found)).collect();
            (200, json!(call.page(notes, "per_page", 100)))
        }
        "POST MR/notes" => {
            if state.of(number).locked {
                return problem(403, "Forbidden");
            }
            let written = state.write(number, &login, call.body["body"].as_str().unwrap());
            (201, note(state, &written))
        }
        "GET MR/notes/{note_id}" => match state.comment(call.number("note_id")).cloned() {
            Some(found) => (200, note(state, &found)),
            None => problem(404, "Not found"),
        },
        "PUT MR/notes/{note_id}" => {
            let Some(found) = state.comment(call.number("note_id")) else {
                return problem(404, "Not found");
            };
            if found.author != login {
                return problem(403, "Forbidden");
            }
            let new = call.body["body"].as_str().unwrap().to_owned();
            let old = std::mem::replace(&mut found.body, new);
            found.edited.push(old);
            let found = found.clone();
            (200, note(state, &found))
        }
        "DELETE MR/notes/{note_id}" => {
            if state.remove(call.number("note_id")) {
                (204, Value::Null)
            } else {
                problem(404, "Not found")
            }
        }
        "POST MR/notes/{note_id}/award_emoji" => {
            let name = call.body["name"].as_str().unwrap();
            let shown = match name {
                "thumbsup" => "+1",
                "thumbsdown" => "-1",
                name => name,
            };
            match state.comment(call.number("note_id")) {
                Some(found) if !found.reactions.iter().any(|known| known == shown) => {
                    found.reactions.push(shown.to_owned());
                }
                _ => return problem(404, "Award Emoji Name has already been taken Not Found"),
            }
            (
                201,
                state
                    .contract
                    .example("AwardEmoji", json!({ "name": name })),
            )
        }
        "GET repository/commits/{sha}/statuses" => {
            let (head, name) = (&call.parameters["sha"], &call.query["name"]);
            let mut found = state.check_runs.clone();
            found.retain(|run| run.head == *head && run.body["name"] == name.as_str());
            let found: Vec<Value> = found.iter().map(|run| status(state, run)).collect();
            (200, json!(call.page(found, "per_page", 100)))
        }
        "POST statuses/{sha}" => {
            if !state.rights.checks {
                return problem(403, "Forbidden");
            }
            let field = |name: &str| call.body[name].as_str().unwrap_or_default();
            // No branch of this project has the commit of a fork.
            if field("ref").is_empty() && call.body["pipeline_id"] != 99 {
                return problem(404, "References for commit Not Found");
            }
            let (head, state_name) = (&call.parameters["sha"], field("state"));
            let run = state.set_status(head, field("name"), state_name, field("description"));
            (201, status(state, &run))
        }
        other => panic!("the fake has no {other}"),
    }
}

fn user(state: &State, login: &str) -> Value {
    let fields = json!({ "username": login, "bot": login.ends_with("_bot") });
    state.contract.example("User", fields)
}

fn note(state: &State, comment: &Comment) -> Value {
    let author = user(state, &comment.author);
    let fields = json!({ "id": comment.id, "body": comment.body, "author": author });
    state.contract.example("Note", fields)
}

fn merge_request(state: &mut State, number: u64) -> Value {
    let request = state.of(number).clone();
    let fields = json!({
        "iid": number,
        "state": if request.open { "opened" } else { "closed" },
        "sha": request.head,
        "target_branch": "main",
        "source_branch": "faster",
        // Of the first commit in the tests.
        "head_pipeline": request.head.starts_with('1').then(|| json!({ "id": 99, "sha": request.head })),
        "labels": request.labels,
        "diff_refs": { "start_sha": "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d", "head_sha": request.head },
    });
    state.contract.example("MergeRequest", fields)
}

fn status(state: &State, run: &CheckRun) -> Value {
    let fields = json!({
        "id": run.id, "sha": run.head, "name": run.body["name"], "status": run.body["conclusion"],
        "description": run.body["output"]["title"],
    });
    state.contract.example("CommitStatus", fields)
}
