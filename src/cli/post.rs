//! `perfquilt post`: posts results to a pull request.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::Context;
use super::choices;
use super::report::find_experiment;
use super::report_options::{FailOn, decisions, margin};
use super::series_as_written::SeriesChoice;
use perfquilt_config::workspace::Workspace;
use perfquilt_forge::{Draft, ForgeKind, MAX_COMMENT_BYTES, PostOptions, Repository, Target};
use perfquilt_judge::attribution::Attribution;
use perfquilt_judge::bisect;
use perfquilt_measure::run::measured_as_it_is;
use perfquilt_model::comment::PullRequestRef;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress;
use perfquilt_model::warning::Warning;
use perfquilt_report::Notice;
use perfquilt_report::comment;
use perfquilt_results::analyse;
use perfquilt_results::outcome::{self, RunOutcome};
use perfquilt_store::{ExperimentId, Store};

/// Arguments of `perfquilt post`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt post --dry-run                        print the comment only
  perfquilt post --repo acme/series --pr 7
  perfquilt post outcome/                         what `run --outcome` wrote

Credentials are the token in GITHUB_TOKEN, or PERFQUILT_APP_ID and PERFQUILT_APP_KEY_FILE of a GitHub App; \
for the other forges, the token in GITLAB_TOKEN or FORGEJO_TOKEN. \
In a workflow, forge, repository, pull request and commit come from its variables and event. Running the command \
again updates the comment.")]
pub struct Arguments {
    /// Name of an experiment, observation file, or folder of `run --outcome` (default: the latest
    /// experiment)
    #[arg(value_name = "RESULTS")]
    what: Option<String>,
    /// Forge: `github`, `gitlab` or `forgejo` (default: that of the workflow, else `github`)
    #[arg(long, value_name = "NAME")]
    forge: Option<String>,
    /// Number of the pull request
    #[arg(long, value_name = "NUMBER", value_parser = choices::positive::<u64>)]
    pr: Option<u64>,
    /// Repository
    #[arg(long, value_name = "OWNER/NAME")]
    repo: Option<Repository>,
    /// Commit that was measured (default: the event's, else the outcome's, else the pull request's last, at which the
    /// workspace must be)
    #[arg(long, value_name = "COMMIT")]
    head: Option<String>,
    /// Experiment or observation file from before a rebase, to name patches that no longer help
    #[arg(long, value_name = "EXPERIMENT|FILE")]
    earlier: Option<String>,
    /// Identifier of this comment among several on one pull request, for example per workspace
    #[arg(long, value_name = "ID", default_value = "default")]
    id: String,
    /// Prefix of a label to set: `PREFIX: faster`, `PREFIX: regression`, …
    #[arg(long, value_name = "PREFIX")]
    label: Option<String>,
    /// Post no check run or status
    #[arg(long)]
    no_check: bool,
    /// Address of a page with the whole report, to link to
    #[arg(long, value_name = "URL")]
    link: Option<String>,
    /// Address of the run's bundle with its digest, to name in the comment
    #[arg(long, value_name = "URL#sha256=DIGEST", value_parser = super::bundle::commands_for)]
    bundle: Option<String>,
    /// Address of the forge's API (default: that in the environment, else the public one)
    #[arg(long, value_name = "URL")]
    api_url: Option<String>,
    /// Print the comment and send nothing
    #[arg(long)]
    dry_run: bool,
    /// Result that fails the check run or status: a regression, an inconclusive result
    #[arg(long, value_enum, value_name = "RESULT", value_delimiter = ',')]
    fail_on: Vec<FailOn>,
    #[command(flatten)]
    series: SeriesChoice,
}

/// Runs `perfquilt post`.
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let material = Material::find(context, arguments)?;
    let variable = |name: &str| std::env::var(name).ok();
    let kind = match &arguments.forge {
        Some(name) => ForgeKind::named(name)?,
        None => ForgeKind::of_environment(&variable),
    };
    let target = kind.target(&variable, arguments.pr.is_some())?;
    let target = Target {
        repository: arguments.repo.clone().or(target.repository),
        number: arguments.pr.or(target.number),
        ..target
    };
    let head = arguments.head.clone().or(target.head.clone());
    let mut head = head.unwrap_or_else(|| material.outcome.head.clone());
    let is_commit_known = !head.is_empty();
    if is_commit_known {
        head = perfquilt_forge::parse_commit(&head)?;
    }
    let began = material.outcome.began(material.attribution.as_ref());
    let notice = Notice {
        attribution: material.attribution.as_ref(),
        failures: &material.outcome.failures,
        bisection_failures: &material.outcome.bisection,
        earlier: material.earlier.as_ref(),
        bisection: material.bisection.as_ref(),
        subject: PullRequestRef {
            number: target.number,
            head,
            run: target.run.clone(),
            began: target.began.clone().or(began),
            report: arguments.link.clone(),
            ..PullRequestRef::default()
        },
        ..Notice::default()
    };
    let posting = PostOptions {
        id: arguments.id.clone(),
        check: !arguments.no_check,
        label: arguments.label.clone(),
        fail_on_regression: arguments.fail_on.contains(&FailOn::Regression),
        fail_on_inconclusive: arguments.fail_on.contains(&FailOn::Inconclusive),
    };
    if arguments.dry_run {
        return print_comment(context, &posting, &notice);
    }
    let repository = target.repository.clone().ok_or_else(|| {
        Error::arguments("no repository is given")
            .hint("name it with `--repo OWNER/NAME`; in a workflow, a variable has it")
    })?;
    let forge = kind.open(repository, arguments.api_url.as_deref(), &variable)?;
    let found = forge.find(&target)?;
    if !found.open {
        progress::note(&format!("pull request {} is closed", found.number));
    }
    if !is_commit_known {
        material.check_is_of(&found.head)?;
    }
    let posted = perfquilt_forge::post(
        forge.as_ref(),
        &posting,
        &found,
        &Draft {
            subject: &notice.subject,
            write: &|subject, limit| Ok(comment(&notice.about(subject), limit)),
        },
    )?;
    if posted.comment.action == "newer" {
        progress::note(
            "nothing was replaced: the pull request shows the result of a later commit, or of a measurement that began \
             later; `--id` posts beside it",
        );
    }
    let repository = forge.repository().to_string();
    let json = json!({ "schema": 1, "repository": repository, "posted": posted });
    let mut text = format!(
        "{}\ncomment {}: {}\n",
        posted.title, posted.comment.action, posted.comment.url
    );
    if let Some(page) = &posted.check_run {
        let name = forge.status_name();
        text.push_str(&format!("{name} {}: {page}\n", posted.conclusion));
    }
    if let Some(label) = &posted.label {
        text.push_str(&format!("label: {label}\n"));
    }
    context.output.result(&json, || text)
}

fn print_comment(context: &Context, posting: &PostOptions, notice: &Notice<'_>) -> Result<()> {
    let comment = perfquilt_report::comment(notice, posting.limit(MAX_COMMENT_BYTES)?);
    let json = json!({
        "schema": 1,
        "title": comment.title,
        "standing": comment.status.to_string(),
        "conclusion": posting.conclusion(comment.status).name(),
        "body": comment.body,
    });
    context.output.result(&json, || comment.body)
}

/// The results that a comment is made of.
struct Material {
    attribution: Option<Attribution>,
    /// The experiment of the workspace that they are of; `None` for those of a file or an outcome.
    experiment: Option<(Workspace, Store, ExperimentId)>,
    outcome: RunOutcome,
    earlier: Option<Attribution>,
    bisection: Option<bisect::BisectOutcome>,
}

impl Material {
    fn find(context: &Context, arguments: &Arguments) -> Result<Self> {
        let ws = context.workspace_if_any()?;
        let mut outcome = RunOutcome::new("", Vec::new());
        let what = arguments.what.as_deref();
        let folder = what.map(Path::new).filter(|path| path.is_dir());
        let mut bisection = None;
        let mut experiment = None;
        let mut attribution = match folder {
            Some(folder) => {
                let session = outcome::bisection(folder)?;
                bisection = session.map(|session| session.replay().outcome());
                let read = outcome::read(folder, &margin(ws.as_ref()))?;
                outcome = read.0;
                read.1
            }
            None => {
                let found = find_attribution(what, ws.as_ref())?;
                // A file may come from anywhere; an experiment is of this workspace's series.
                if let Some(ws) = &ws
                    && !what.is_some_and(|what| Path::new(what).is_file())
                {
                    let release = found.release.as_str();
                    arguments.series.check(ws, &[Some(release)])?;
                    let store = Store::open_existing(&ws.results())?;
                    let id = find_experiment(&store, what)?;
                    experiment = Some((ws.clone(), store, id));
                }
                Some(found)
            }
        };
        if let Some(attribution) = &mut attribution {
            attribution.decide(&decisions(ws.as_ref())?);
            if let Some(commands) = &arguments.bundle {
                attribution.bundle = Some(commands.clone());
            }
        }
        let earlier = match arguments.earlier.as_deref() {
            Some(earlier) => Some(find_attribution(Some(earlier), ws.as_ref())?),
            None => None,
        };
        Ok(Material {
            attribution,
            experiment,
            outcome,
            earlier,
            bisection,
        })
    }

    /// Checks that they are of the commit `last`, the pull request's last one, as far as the workspace tells: they do not
    /// name their commit.
    fn check_is_of(&self, last: &str) -> Result<()> {
        let assumed = || {
            progress::warn(Warning::assumed_commit(format!(
                "the measured commit is unknown; perfquilt takes the pull request's last one, {last}: `--head` \
                 names another"
            )));
            Ok(())
        };
        let Some((ws, store, id)) = &self.experiment else {
            return assumed();
        };
        let refused = |why: String| {
            Err(Error::arguments(why).hint("`--head COMMIT` names the commit that was measured"))
        };
        let header = store.header(*id)?;
        if header.base.is_some() {
            // Its servers were given.
            return assumed();
        }
        let name = header.experiment;
        if !measured_as_it_is(ws, store, *id)? {
            return refused(format!(
                "the series is not the one that {name} measured, or its servers are no longer built"
            ));
        }
        let commit = outcome::workspace_commit(ws);
        if commit.is_empty() {
            return assumed();
        }
        if commit != last {
            return refused(format!(
                "the workspace is at commit {commit}, the pull request at {last}: which of them {name} measured is unknown"
            ));
        }
        if !outcome::is_committed(ws)? {
            return refused(format!(
                "the workspace has changes that are not in commit {commit}"
            ));
        }
        Ok(())
    }
}

/// Returns the attribution of a file, or of an experiment of the workspace.
fn find_attribution(what: Option<&str>, ws: Option<&Workspace>) -> Result<Attribution> {
    if let Some(file) = what.map(PathBuf::from).filter(|path| path.is_file()) {
        return read_attribution(&file, ws);
    }
    let Some(ws) = ws else {
        return Err(match what {
            Some(what) => Error::arguments(format!("there is no file or folder `{what}`"))
                .hint("an experiment's name needs a workspace: `perfquilt -C DIR post …`"),
            None => Error::no_workspace("there is no workspace here, and no file is given")
                .hint("`perfquilt post FOLDER` posts what `perfquilt run --outcome FOLDER` wrote"),
        });
    };
    let store = Store::open_existing(&ws.results())?;
    let file = analyse::stored(&store, find_experiment(&store, what)?)?;
    analyse::attribution(&file, &margin(Some(ws)))
}

fn read_attribution(path: &Path, ws: Option<&Workspace>) -> Result<Attribution> {
    analyse::file(path, outcome::MAX_UNPACKED, &margin(ws))
}
