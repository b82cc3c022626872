//! The pull request that a workflow's event describes.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::model::{Branch, RepositoryName, User};
use super::{Repository, is_commit};
use perfquilt_model::error::{Error, Result};

/// What is known about a pull request without asking GitHub.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    /// The target repository.
    pub repository: Option<Repository>,
    /// Its number.
    pub number: Option<u64>,
    /// The commit that was measured.
    pub head: Option<String>,
    /// The source branch as `owner:branch`, for pull requests from forks, whose number the event lacks.
    pub from: Option<String>,
    /// The URL of the workflow run that measured.
    pub run: Option<String>,
}

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
    head_repository: Option<HeadRepository>,
    html_url: String,
    event: String,
    #[serde(default)]
    pull_requests: Vec<Number>,
}

#[derive(Deserialize)]
struct HeadRepository {
    owner: User,
}

#[derive(Deserialize)]
struct Number {
    number: u64,
}

#[derive(Deserialize)]
struct Issue {
    number: u64,
    pull_request: Option<IgnoredAny>,
}

impl Target {
    /// Reads the environment of a workflow through `variable`; `event` is the text of the file that
    /// `GITHUB_EVENT_PATH` names. Outside a workflow the target is empty.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) for an event that cannot be parsed or does not
    /// belong to a pull request.
    pub fn from_environment(
        variable: &dyn Fn(&str) -> Option<String>,
        event: Option<&str>,
    ) -> Result<Self> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
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
            Some(text) => target.with(text),
            None => Ok(target),
        }
    }

    fn with(mut self, text: &str) -> Result<Self> {
        let event: Event = serde_json::from_str(text).map_err(|error| {
            Error::usage(format!("the workflow's event cannot be read: {error}"))
                .hint("check the file that GITHUB_EVENT_PATH names, or give `--pr` and `--head`")
        })?;
        if let Some(repository) = event.repository {
            self.repository = Some(repository.full_name.parse()?);
        }
        if let Some(pull_request) = event.pull_request {
            self.number = Some(pull_request.number);
            self.head = Some(pull_request.head.sha);
        } else if let Some(run) = event.workflow_run {
            if !run.event.starts_with("pull_request") {
                return Err(Error::usage(format!(
                    "the measuring run was for `{}`, not for a pull request",
                    run.event
                ))
                .hint("let the posting job run `if: github.event.workflow_run.event == 'pull_request'`"));
            }
            // GitHub leaves the list empty for pull requests from forks.
            self.number = match &run.pull_requests[..] {
                [one] => Some(one.number),
                _ => None,
            };
            self.from = run
                .head_repository
                .zip(run.head_branch)
                .map(|(repository, branch)| format!("{}:{branch}", repository.owner.login));
            self.head = Some(run.head_sha);
            self.run = Some(run.html_url);
        } else if let Some(issue) = event.issue {
            if issue.pull_request.is_none() {
                return Err(Error::usage(format!(
                    "issue {} is not a pull request",
                    issue.number
                )));
            }
            self.number = Some(issue.number);
        }
        if let Some(head) = &self.head
            && !is_commit(head)
        {
            return Err(Error::usage("the workflow's event names no commit"));
        }
        Ok(self)
    }
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
        Target::from_environment(&variable, Some(&event.to_string()))
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
        assert_eq!(target.from.as_deref(), Some("alice:faster"));
        assert!(target.run.unwrap().ends_with("/41"));
        event["workflow_run"]["event"] = "push".into();
        assert!(of(&event).unwrap_err().hint_text().is_some());
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
        assert!(Target::from_environment(&|_| None, Some("{")).is_err());
        assert_eq!(
            Target::from_environment(&|_| None, None).unwrap(),
            Target::default()
        );
    }
}
