//! The pull request that a workflow's event describes.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::model::{Branch, RepositoryName};
use crate::credentials::{Variable, first_set};
use crate::{Target, is_commit};
use perfquilt_model::error::{Error, Result};

#[derive(Deserialize, Default)]
#[serde(default)]
struct Event {
    repository: Option<RepositoryName>,
    pull_request: Option<EventPullRequest>,
    workflow_run: Option<WorkflowRun>,
    issue: Option<Issue>,
}

#[derive(Deserialize)]
struct EventPullRequest {
    number: u64,
    head: Branch,
}

#[derive(Deserialize)]
struct WorkflowRun {
    head_sha: String,
    head_branch: Option<String>,
    #[serde(default)]
    head_repository: Value,
    html_url: String,
    event: String,
    /// The value of the workflow's `run-name`; for `pull_request_target` the only place with the measured commit.
    #[serde(default)]
    display_title: String,
    /// Of the last attempt.
    run_started_at: Option<String>,
    #[serde(default)]
    pull_requests: Vec<RunPullRequest>,
}

/// A pull request of a workflow run: of this repository, or of a fork that has the same commit.
#[derive(Deserialize)]
struct RunPullRequest {
    number: u64,
    #[serde(default)]
    base: Value,
}

impl RunPullRequest {
    /// Returns whether it may be one of the repository with this id.
    fn may_be_of(&self, repository: Option<u64>) -> bool {
        let id = self.base.pointer("/repo/id").and_then(Value::as_u64);
        repository.zip(id).is_none_or(|(one, other)| one == other)
    }
}

#[derive(Deserialize)]
struct Issue {
    number: u64,
    pull_request: Option<IgnoredAny>,
}

/// Reads the environment of a workflow through `variable`, and the event in the file that `GITHUB_EVENT_PATH` names,
/// unless the user names the pull request. Outside a workflow the target is empty.
pub(crate) fn target(variable: Variable<'_>, is_named: bool) -> Result<Target> {
    let path = first_set(variable, &["GITHUB_EVENT_PATH"]).filter(|_| !is_named);
    let read = |path: String| {
        std::fs::read_to_string(&path).map_err(|error| {
            Error::event(format!("cannot read the workflow's event {path}: {error}"))
        })
    };
    from_event(variable, path.map(read).transpose()?.as_deref())
}

/// As [`target`], for an event with this text.
fn from_event(variable: Variable<'_>, event: Option<&str>) -> Result<Target> {
    let set = |name: &str| first_set(variable, &[name]);
    let mut target = Target::default();
    if let Some(repository) = set("GITHUB_REPOSITORY") {
        target.repository = Some(repository.parse()?);
    }
    if let (Some(server), Some(repository), Some(run)) = (
        set("GITHUB_SERVER_URL"),
        set("GITHUB_REPOSITORY"),
        set("GITHUB_RUN_ID"),
    ) {
        target.run = Some(format!("{server}/{repository}/actions/runs/{run}"));
    }
    match event {
        Some(text) => add_event(target, text),
        None => Ok(target),
    }
}

/// Adds what the event with this text tells to `target`.
fn add_event(mut target: Target, text: &str) -> Result<Target> {
    let event: Event = serde_json::from_str(text).map_err(|error| {
        Error::event(format!("the workflow's event cannot be read: {error}"))
            .hint("check the file that GITHUB_EVENT_PATH names, or give `--pr` and `--head`")
    })?;
    let repository_id = event.repository.as_ref().and_then(|found| found.id);
    if let Some(repository) = event.repository {
        target.repository = Some(repository.full_name.parse()?);
    }
    if let Some(pull_request) = event.pull_request {
        target.number = Some(pull_request.number);
        target.head = Some(pull_request.head.sha);
    } else if let Some(run) = event.workflow_run {
        if !run.event.starts_with("pull_request") {
            return Err(Error::event(format!(
                "the measuring run was for `{}`, not for a pull request",
                run.event
            ))
            .hint("let the posting job run `if: github.event.workflow_run.event == 'pull_request_target'`"));
        }
        target.run = Some(run.html_url);
        target.began = run.run_started_at;
        if run.event == "pull_request_target" {
            // The other fields of the run may describe the target branch.
            let (number, head) = titled(&run.display_title)?;
            target.number = Some(number);
            target.head = Some(head);
            return Ok(target);
        }
        // GitHub leaves the list empty for pull requests from forks.
        let own = run.pull_requests.iter();
        let own: Vec<_> = own.filter(|one| one.may_be_of(repository_id)).collect();
        target.number = match own[..] {
            [one] => Some(one.number),
            _ => None,
        };
        let owner = run.head_repository.pointer("/owner/login");
        target.owner = owner.and_then(Value::as_str).map(str::to_owned);
        target.branch = run.head_branch;
        target.head = Some(run.head_sha);
    } else if let Some(issue) = event.issue {
        if issue.pull_request.is_none() {
            return Err(Error::credentials(format!(
                "issue {} is not a pull request",
                issue.number
            )));
        }
        target.number = Some(issue.number);
    }
    if let Some(head) = &target.head
        && !is_commit(head)
    {
        return Err(Error::event("the workflow's event names no commit"));
    }
    Ok(target)
}

/// Returns the pull request and the commit in the title of a measuring run, which is `perfquilt NUMBER COMMIT`.
fn titled(title: &str) -> Result<(u64, String)> {
    let words: Vec<&str> = title.split(' ').collect();
    let found = match words[..] {
        ["perfquilt", number, head] if is_commit(head) => number.parse().ok().zip(Some(head)),
        _ => None,
    };
    let found = found.map(|(number, head)| (number, head.to_owned()));
    found.ok_or_else(|| {
        Error::event("the title of the measuring run names no pull request and commit")
            .hint("let its workflow have the `run-name` of ci/github/measure.yml")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "9f8e7d6c5b4a39281706f5e4d3c2b1a098765432";

    fn of(event: &serde_json::Value) -> Result<Target> {
        let variable = |name: &str| match name {
            "GITHUB_REPOSITORY" => Some("acme/series".to_owned()),
            "GITHUB_SERVER_URL" => Some("https://github.com".to_owned()),
            "GITHUB_RUN_ID" => Some("42".to_owned()),
            _ => None,
        };
        from_event(&variable, Some(&event.to_string()))
    }

    #[test]
    fn the_title_of_a_run_on_the_target_branch_names_what_was_measured() {
        let base = "0".repeat(40);
        let of_title = |title: &str| {
            of(&serde_json::json!({
                "workflow_run": {
                    "head_sha": base, "head_branch": "main", "html_url": "https://x/9",
                    "event": "pull_request_target", "display_title": title, "run_started_at": "2026-11-26T10:00:00Z",
                },
                "repository": { "full_name": "acme/series" },
            }))
        };
        let target = of_title(&format!("perfquilt 7 {HEAD}")).unwrap();
        assert_eq!(
            (target.number, target.head.as_deref()),
            (Some(7), Some(HEAD))
        );
        assert_eq!(
            (target.owner, target.run.as_deref()),
            (None, Some("https://x/9"))
        );
        assert_eq!(target.began.as_deref(), Some("2026-11-26T10:00:00Z"));
        // Without `run-name`, GitHub takes the title of the pull request, which is its author's.
        for title in [
            String::new(),
            "Make it faster".to_owned(),
            format!("perfquilt x {HEAD}"),
            format!("perfquilt 7 {HEAD} 8"),
            format!("perfquilt 7 {}", &HEAD[1..]),
        ] {
            let error = of_title(&title).unwrap_err();
            assert!(error.hint_text().unwrap().contains("run-name"), "{title}");
        }
        let workflow = include_str!("../../../../ci/github/measure.yml");
        let number = "${{ github.event.pull_request.number }}";
        let head = "${{ github.event.pull_request.head.sha }}";
        assert!(workflow.contains(&format!("\nrun-name: perfquilt {number} {head}\n")));
    }

    #[test]
    fn pull_request() {
        let target = of(&serde_json::json!({
            "pull_request": { "number": 7, "head": { "sha": HEAD } },
            "repository": { "full_name": "acme/series" },
        }))
        .unwrap();
        assert_eq!(
            (target.number, target.head.as_deref()),
            (Some(7), Some(HEAD))
        );
        assert_eq!(
            target.run.unwrap(),
            "https://github.com/acme/series/actions/runs/42"
        );
    }

    #[test]
    fn a_run_for_a_fork_names_the_branch() {
        let mut event = serde_json::json!({ "workflow_run": {
            "head_sha": HEAD, "head_branch": "faster", "event": "pull_request",
            "html_url": "https://github.com/acme/series/actions/runs/41",
            "head_repository": { "owner": { "login": "alice" } }, "pull_requests": [],
        }});
        let target = of(&event).unwrap();
        assert_eq!(target.number, None);
        assert_eq!(target.owner.as_deref(), Some("alice"));
        assert_eq!(target.branch.as_deref(), Some("faster"));
        assert!(target.run.unwrap().ends_with("/41"));
        event["workflow_run"]["event"] = "push".into();
        assert!(of(&event).unwrap_err().hint_text().is_some());
    }

    #[test]
    fn a_run_for_a_deleted_fork_has_a_commit_and_a_start() {
        let mut event = serde_json::json!({ "workflow_run": {
            "head_sha": HEAD, "head_branch": "faster", "event": "pull_request",
            "html_url": "https://github.com/acme/series/actions/runs/41",
            "run_started_at": "2026-01-02T03:04:05Z",
            "head_repository": null, "pull_requests": [],
        }});
        let deleted = [
            serde_json::json!(null),
            serde_json::json!({ "owner": null }),
        ];
        for repository in deleted {
            event["workflow_run"]["head_repository"] = repository;
            let target = of(&event).unwrap();
            assert_eq!((target.number, target.owner), (None, None));
            assert_eq!(target.head.as_deref(), Some(HEAD));
            assert_eq!(target.began.as_deref(), Some("2026-01-02T03:04:05Z"));
        }
    }

    #[test]
    fn a_pull_request_inside_the_fork_is_not_meant() {
        let number = |listed: serde_json::Value| {
            let event = serde_json::json!({
                "repository": { "full_name": "acme/series", "id": 1 },
                "workflow_run": {
                    "head_sha": HEAD, "head_branch": "faster", "event": "pull_request", "pull_requests": listed,
                    "html_url": "https://github.com/acme/series/actions/runs/41", "head_repository": null,
                },
            });
            of(&event).unwrap().number
        };
        let own = serde_json::json!({ "number": 7, "base": { "repo": { "id": 1 } } });
        let others = serde_json::json!({ "number": 2, "base": { "repo": { "id": 2 } } });
        assert_eq!(number(serde_json::json!([others])), None);
        assert_eq!(number(serde_json::json!([others, own])), Some(7));
        assert_eq!(number(serde_json::json!([{ "number": 7 }])), Some(7));
    }

    #[test]
    fn comments_and_other_events() {
        let event = serde_json::json!({ "issue": { "number": 3, "pull_request": {} } });
        assert_eq!(of(&event).unwrap().number, Some(3));
        let event = serde_json::json!({ "issue": { "number": 3 } });
        assert!(of(&event).is_err());
        assert_eq!(
            of(&serde_json::json!({ "schedule": "x" })).unwrap().number,
            None
        );
        let event = serde_json::json!({ "pull_request": { "number": 7, "head": { "sha": "--upload-pack" } } });
        assert!(of(&event).is_err());
        assert!(from_event(&|_| None, Some("{")).is_err());
        assert_eq!(from_event(&|_| None, None).unwrap(), Target::default());
    }
}
