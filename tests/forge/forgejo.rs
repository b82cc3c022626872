//! Answers of Forgejo.

use serde_json::{Value, json};

use super::contract::Call;
use super::{CheckRun, Comment, State, TOKEN};

fn problem(status: u16, message: &str) -> (u16, Value) {
    (
        status,
        json!({ "message": message, "url": "https://forge.example/api/swagger" }),
    )
}

fn missing() -> (u16, Value) {
    problem(404, "The target couldn't be found.")
}

pub fn answer(state: &mut State, call: &Call<'_>) -> (u16, Value) {
    if call.token != TOKEN {
        return problem(401, "invalid username, password or token");
    }
    let part = |name: &str| call.parameters.get(name).map_or("", String::as_str);
    let repository = format!("{}/{}", part("owner"), part("repo"));
    if repository != "/" && repository != super::REPOSITORY {
        return missing();
    }
    let number: u64 = part("index").parse().unwrap_or(0);
    let is_known = state
        .pull_requests
        .iter()
        .any(|request| request.number == number);
    if number > 0 && !is_known {
        return missing();
    }
    if !call.operation.starts_with("GET") && !state.rights.write {
        let said = "token does not have at least one of required scope(s): [write:issue]";
        return problem(403, said);
    }
    let login = state.rights.login.clone();
    let operation = call.operation.replace("/repos/{owner}/{repo}/", "");
    match operation.as_str() {
        "GET /user" => match state.rights.user.clone() {
            None => problem(
                403,
                "token does not have at least one of required scope(s): [read:user]",
            ),
            Some(login) => (200, user(state, &login)),
        },
        "GET collaborators/{collaborator}/permission" => {
            if !state.rights.checks {
                return problem(403, "Only admins can query all permissions");
            }
            let role = state.roles.get(part("collaborator"));
            let role = role.map_or("read", String::as_str);
            let fields = json!({ "permission": role, "role_name": role });
            (
                200,
                state.contract.example("RepoCollaboratorPermission", fields),
            )
        }
        "GET pulls/{index}" => {
            let request = state.of(number).clone();
            let fields = json!({
                "number": number,
                "state": if request.open { "open" } else { "closed" },
                "head": { "sha": request.head, "ref": "faster" },
                "base": { "sha": "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d", "ref": "main" },
            });
            (200, state.contract.example("PullRequest", fields))
        }
        "GET issues/{index}/comments" => {
            // All of them, whatever page is asked for.
            let found = state.of(number).comments.clone();
            let found: Vec<Value> = found.iter().map(|found| comment(state, found)).collect();
            (200, json!(found))
        }
        "POST issues/{index}/comments" => {
            if state.of(number).locked {
                return problem(403, "You cannot comment on a locked issue.");
            }
            let written = state.write(number, &login, call.body["body"].as_str().unwrap());
            (201, comment(state, &written))
        }
        "GET issues/comments/{id}" => match state.comment(call.number("id")).cloned() {
            Some(found) => (200, comment(state, &found)),
            None => missing(),
        },
        "PATCH issues/comments/{id}" => {
            let Some(found) = state.comment(call.number("id")) else {
                return missing();
            };
            if found.author != login {
                return problem(403, "user should have permission to edit the comment");
            }
            let new = call.body["body"].as_str().unwrap().to_owned();
            let old = std::mem::replace(&mut found.body, new);
            found.edited.push(old);
            let found = found.clone();
            (200, comment(state, &found))
        }
        "DELETE issues/comments/{id}" => {
            if state.remove(call.number("id")) {
                (204, Value::Null)
            } else {
                missing()
            }
        }
        "POST issues/comments/{id}/reactions" => {
            let content = call.body["content"].as_str().unwrap();
            let Some(found) = state.comment(call.number("id")) else {
                return missing();
            };
            let new = !found.reactions.iter().any(|known| known == content);
            if new {
                found.reactions.push(content.to_owned());
            }
            let answer = state
                .contract
                .example("Reaction", json!({ "content": content }));
            (if new { 201 } else { 200 }, answer)
        }
        "GET issues/{index}/labels" => {
            let names = state.of(number).labels.clone();
            (200, json!(labels(state, &names)))
        }
        "POST issues/{index}/labels" => {
            for id in call.body["labels"].as_array().unwrap() {
                let place = usize::try_from(id.as_u64().unwrap()).unwrap() - 1;
                let name = state.label_names[place].clone();
                state.of(number).labels.push(name);
            }
            let names = state.of(number).labels.clone();
            (200, json!(labels(state, &names)))
        }
        "DELETE issues/{index}/labels/{id}" => {
            let place = usize::try_from(call.number("id")).unwrap() - 1;
            let name = state.label_names[place].clone();
            state.of(number).labels.retain(|label| *label != name);
            (204, Value::Null)
        }
        "GET labels" => {
            let names = state.label_names.clone();
            let found = labels(state, &names);
            (200, json!(call.page(found, "limit", 3)))
        }
        "POST labels" => {
            let name = call.body["name"].as_str().unwrap().to_owned();
            state.label_names.push(name.clone());
            (201, labels(state, &[name]).remove(0))
        }
        "GET commits/{ref}/statuses" => {
            let mut found = state.check_runs.clone();
            found.retain(|run| run.head == call.parameters["ref"]);
            let found: Vec<Value> = found.iter().map(|run| status(state, run)).collect();
            (200, json!(call.page(found, "limit", 50)))
        }
        "POST statuses/{sha}" => {
            if !state.rights.checks {
                return problem(403, "user should have a permission to write to the repo");
            }
            let field = |name: &str| call.body[name].as_str().unwrap_or_default();
            let (head, state_name) = (&call.parameters["sha"], field("state"));
            let run = state.set_status(head, field("context"), state_name, field("description"));
            (201, status(state, &run))
        }
        other => panic!("the fake has no {other}"),
    }
}

fn user(state: &State, login: &str) -> Value {
    state.contract.example("User", json!({ "login": login }))
}

fn comment(state: &State, comment: &Comment) -> Value {
    let url = format!(
        "https://forge.example/{}/pulls/7#issuecomment-{}",
        super::REPOSITORY,
        comment.id
    );
    let user = user(state, &comment.author);
    let fields = json!({ "id": comment.id, "body": comment.body, "user": user, "html_url": url });
    state.contract.example("Comment", fields)
}

/// The labels with these names, whose ids are their places among all.
fn labels(state: &mut State, names: &[String]) -> Vec<Value> {
    let mut found = Vec::new();
    for name in names {
        if !state.label_names.contains(name) {
            state.label_names.push(name.clone());
        }
        let id = state
            .label_names
            .iter()
            .position(|known| known == name)
            .unwrap()
            + 1;
        found.push(
            state
                .contract
                .example("Label", json!({ "id": id, "name": name })),
        );
    }
    found
}

fn status(state: &State, run: &CheckRun) -> Value {
    let fields = json!({
        "id": run.id, "context": run.body["name"], "status": run.body["conclusion"],
        "description": run.body["output"]["title"],
    });
    state.contract.example("CommitStatus", fields)
}
