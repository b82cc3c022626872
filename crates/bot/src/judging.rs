//! Judges outcomes in a process of its own. Output of untrusted code may need more time and memory than the bot
//! has: the process has limits of both, ends at once when the bot is asked to, and its death is an error like others.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::acceptances::AcceptedPatch;
use super::bot::Bot;
use perfquilt_bench::sandbox;
use perfquilt_config::Config;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::comment::{Comment, PullRequestRef};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::failure::Failure;
use perfquilt_model::observation::Meter;
use perfquilt_report::{Notice, PendingApproval, comment, hide};
use perfquilt_results::outcome::{self, RunOutcome, RunStart};
use perfquilt_system::process::Command;

/// The longest time that judging one outcome may take.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The time for a comment that others wait for.
pub(super) const HASTE: Duration = Duration::from_secs(1);
/// The largest answer, in bytes.
const LARGEST_ANSWER: usize = 4 << 20;
/// OOM score of the process: it goes before the bot and what the bot measures.
const OOM_SCORE: &[u8] = b"1000";

/// A request of the bot to the process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum JudgeQuestion {
    /// Copy an outcome as [`outcome::copy_untrusted`] does.
    Take {
        /// The folder that untrusted code could write to.
        from: PathBuf,
        /// The folder of checked outcomes.
        to: PathBuf,
        /// The job.
        start: RunStart,
        /// Whether the outcome is a bisection's.
        bisected: bool,
    },
    /// Write the comment about a stored outcome.
    Comment(Box<CommentQuestion>),
}

/// The contents of a comment, beside the results.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct CommentQuestion {
    /// The folder with the stored outcome; `None` for none.
    pub results: Option<PathBuf>,
    /// Failures beside those of the outcome.
    pub failures: Vec<Failure>,
    /// Acceptances of patches that are slower.
    pub accepted: Vec<AcceptedPatch>,
    /// See [`Notice::activity`].
    pub activity: Option<String>,
    /// See [`Notice::pending_approval`].
    pub pending_approval: Option<PendingApproval>,
    /// See [`Notice::answer`].
    pub answer: String,
    /// See [`Notice::subject`].
    pub subject: PullRequestRef,
    /// The largest comment, in bytes.
    pub limit: usize,
    /// See [`Notice::columns`].
    pub columns: Option<usize>,
}

/// A question with what the process has to know of the configuration.
#[derive(Debug, Serialize, Deserialize)]
struct JudgeInput {
    question: JudgeQuestion,
    margins: BTreeMap<Meter, f64>,
    memory_mib: u64,
    /// Folders that no comment shows, those inside others first.
    hidden: Vec<String>,
}

/// The process's answer.
#[derive(Debug, Serialize, Deserialize)]
enum JudgeAnswer {
    Taken,
    Comment(Comment),
    /// The outcome is refused for this reason.
    Refused(String),
}

impl Bot {
    /// Asks a process to answer `question`.
    ///
    /// # Errors
    /// [`Kind::Usage`] when the outcome is refused; [`Kind::Bench`] when the process died or took too long;
    /// [`Kind::Interrupted`] when the bot stops or `cancelled` returns true.
    fn ask(&self, question: JudgeQuestion, cancelled: &dyn Fn() -> bool) -> Result<JudgeAnswer> {
        let config = &self.workspace.config;
        let request = JudgeInput {
            question,
            margins: margins(config),
            memory_mib: sandbox::memory_limit(&config.sandbox),
            hidden: hidden(&self.workspace),
        };
        let command = Command::new(&self.tool)
            .args(["bot", "judge"])
            .stdin(serde_json::to_vec(&request).map_err(Error::json)?)
            .output_limit(LARGEST_ANSWER)
            .writing(Path::new("/proc/self/oom_score_adj"), OOM_SCORE)?;
        let output = command.run_cancellable(TIMEOUT, cancelled)?;
        if !output.success() {
            return Err(Error::job_ended(format!(
                "judging the results ended with {}",
                output.describe_exit()
            ))
            .details(output.tail(3)));
        }
        match serde_json::from_slice(&output.stdout) {
            Ok(JudgeAnswer::Refused(why)) => Err(Error::outcome(why)),
            Ok(answer) => Ok(answer),
            Err(error) => Err(Error::job_ended(format!(
                "judging the results failed: {error}"
            ))),
        }
    }

    /// Copies the outcome in the folder `from` to the folder `to`, as [`outcome::copy_untrusted`] does.
    pub(super) fn take_outcome(
        &self,
        from: &Path,
        to: &Path,
        start: &RunStart,
        bisected: bool,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<()> {
        let question = JudgeQuestion::Take {
            from: from.to_owned(),
            to: to.to_owned(),
            start: start.clone(),
            bisected,
        };
        let Some(_alone) = Bot::wait_for_lock(&self.state.judge_lock, cancelled)? else {
            return Err(Error::interrupted());
        };
        self.ask(question, cancelled).map(drop)
    }

    /// Writes a comment. If its results cannot be judged, the comment says so.
    ///
    /// # Errors
    /// [`Kind::Interrupted`] also when judging takes longer than [`HASTE`] and `haste` is set.
    pub(super) fn write_comment(&self, about: CommentQuestion, haste: bool) -> Result<Comment> {
        let _alone = if haste {
            None
        } else {
            Bot::wait_for_lock(&self.state.judge_lock, &|| false)?
        };
        let begun = Instant::now();
        let gives_up = || haste && begun.elapsed() > HASTE;
        let ask = |about: CommentQuestion| -> Result<Comment> {
            match self.ask(JudgeQuestion::Comment(Box::new(about)), &gives_up)? {
                JudgeAnswer::Comment(comment) => Ok(comment),
                _ => Err(Error::internal("judging returned an unexpected answer")),
            }
        };
        match ask(about.clone()) {
            Err(error) if error.kind() != Kind::Interrupted && about.results.is_some() => {
                tracing::warn!("{error}: {}", error.detail_lines().join("; "));
                let told = Error::internal("the stored results cannot be judged")
                    .hint("the bot's log has the reason; the next job replaces them");
                ask(CommentQuestion {
                    results: None,
                    failures: vec![Failure::new(&told, None)],
                    ..about
                })
            }
            written => written,
        }
    }
}

/// Returns the smallest effects that count, by meter.
fn margins(config: &Config) -> BTreeMap<Meter, f64> {
    let each = Meter::ALL.into_iter();
    each.map(|meter| (meter, config.margin(meter))).collect()
}

/// Returns the folders of this machine that no comment shows.
fn hidden(ws: &Workspace) -> Vec<String> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let given = [
        Some(ws.state()),
        Some(ws.root().to_owned()),
        Some(ws.cache().to_owned()),
        Some(std::env::temp_dir()),
        home,
    ];
    let given = given.into_iter().flatten();
    let both = given.flat_map(|path| [path.canonicalize().ok(), Some(path)]);
    let mut folders: Vec<String> = both
        .flatten()
        // The root of the file system is no secret, and its name is everywhere.
        .filter(|path| path.is_absolute() && path.components().count() > 2)
        .map(|path| path.display().to_string())
        .collect();
    folders.sort_by_key(|folder| std::cmp::Reverse(folder.len()));
    folders.dedup();
    folders
}

/// Reads a question of the bot from `input`, limits this process, and returns the answer.
pub fn judge(mut input: impl Read) -> Result<String> {
    let mut text = Vec::new();
    let failed =
        |error: std::io::Error| Error::internal(format!("cannot read the question: {error}"));
    input.read_to_end(&mut text).map_err(failed)?;
    let request: JudgeInput = serde_json::from_slice(&text).map_err(|error| {
        Error::outcome(format!("not a question of `perfquilt bot serve`: {error}"))
    })?;
    sandbox::limit_this_process(request.memory_mib, TIMEOUT.as_secs());
    let margin = |meter: Meter| {
        let known = request.margins.get(&meter).copied();
        known.unwrap_or_else(|| meter.default_margin())
    };
    let answer = match &request.question {
        JudgeQuestion::Take {
            from,
            to,
            start,
            bisected,
        } => outcome::copy_untrusted(from, to, start, *bisected, &margin)
            .map(|()| JudgeAnswer::Taken),
        JudgeQuestion::Comment(about) => {
            comment_about(about, &request.hidden, &margin).map(JudgeAnswer::Comment)
        }
    };
    let answer = answer.unwrap_or_else(|error| JudgeAnswer::Refused(error.to_string()));
    serde_json::to_string(&answer).map_err(Error::json)
}

/// Writes the comment that `about` asks for.
fn comment_about(
    about: &CommentQuestion,
    hidden: &[String],
    margin: &dyn Fn(Meter) -> f64,
) -> Result<Comment> {
    let results = about.results.as_deref().filter(|folder| folder.is_dir());
    let read = results
        .map(|folder| outcome::read(folder, margin))
        .transpose()?;
    let (outcome, mut attribution) =
        read.unwrap_or_else(|| (RunOutcome::new("", Vec::new()), None));
    if let Some(attribution) = &mut attribution {
        for of in &about.accepted {
            attribution.accept(of.patch, &of.reason, of.lapsed.clone());
        }
    }
    let session = results.map(outcome::bisection).transpose()?.flatten();
    let bisection = session.map(|session| session.replay().outcome());
    let hiding = |failures: Vec<Failure>| -> Vec<Failure> {
        failures.into_iter().map(|it| it.hiding(hidden)).collect()
    };
    let failures = hiding([outcome.failures, about.failures.clone()].concat());
    let of_bisection = hiding(outcome.bisection);
    let notice = Notice {
        attribution: attribution.as_ref(),
        failures: &failures,
        bisection_failures: &of_bisection,
        bisection: bisection.as_ref(),
        activity: about.activity.clone(),
        unapproved: outcome.unapproved,
        pending_approval: about.pending_approval.clone(),
        answer: about.answer.clone(),
        subject: about.subject.clone(),
        columns: about.columns,
        ..Notice::default()
    };
    let mut written = comment(&notice, about.limit);
    // Notes in tables have texts of compilers, too.
    hide(&mut written, hidden);
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SharedState;
    use perfquilt_forge::RetryPolicy;

    /// A bot whose program is the shell `script`.
    fn bot(folder: &Path, script: &str) -> Bot {
        use std::os::unix::fs::PermissionsExt;
        let workspace = folder.join("w");
        let place = workspace.join("bench-config/workloads");
        std::fs::create_dir_all(place).unwrap();
        let text = "[upstream]\nname=\"x\"\ncurrent=\"1\"\n[recipe]\n[preset]\n[server]\nadapter=\"mariadb\"\n";
        std::fs::write(workspace.join(perfquilt_config::CONFIG_FILE), text).unwrap();
        let tool = folder.join("tool");
        std::fs::write(&tool, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
        Bot {
            workspace: Workspace::open_with_cache(&workspace, folder.join("cache")).unwrap(),
            service: "a forge",
            connector: std::sync::Arc::new(|_, _| Err(Error::internal("no forge"))),
            repository: "acme/series".parse().unwrap(),
            policy: RetryPolicy::default(),
            tool,
            sandbox: Ok(()),
            state: SharedState::default(),
        }
    }

    #[test]
    fn judging_that_dies_or_takes_too_long_is_an_error_of_the_job() {
        let folder = tempfile::tempdir().unwrap();
        let take = |script: &str, cancelled: bool| {
            let bot = bot(folder.path(), script);
            let (from, to) = (folder.path().join("from"), folder.path().join("to"));
            bot.take_outcome(&from, &to, &start(), false, &|| cancelled)
        };
        for script in ["kill -9 $$", "kill -XCPU $$", "exit 101", "echo '{'"] {
            let error = take(script, false).unwrap_err();
            assert_eq!(error.kind(), Kind::Bench, "{script}: {error}");
        }
        // Also if it ignores signals.
        let error = take("trap '' TERM INT HUP; sleep 600", true).unwrap_err();
        assert_eq!(error.kind(), Kind::Interrupted, "{error}");
    }

    #[test]
    fn a_comment_is_written_when_its_results_cannot_be_judged() {
        let folder = tempfile::tempdir().unwrap();
        // It dies as long as it is asked to read results.
        let script = r#"grep -q '"results":"' && kill -9 $$
echo '{"Comment":{"title":"x","body":"y","status":"Failed"}}'"#;
        let about = CommentQuestion {
            results: Some(folder.path().to_owned()),
            ..CommentQuestion::default()
        };
        let comment = bot(folder.path(), script)
            .write_comment(about, false)
            .unwrap();
        assert_eq!(comment.body, "y");
    }

    fn start() -> RunStart {
        RunStart {
            head: "0123abc".to_owned(),
            began: "2026-01-02T03:04:05Z".to_owned(),
            ..RunStart::default()
        }
    }

    fn answered(question: JudgeQuestion) -> JudgeAnswer {
        let request = JudgeInput {
            question,
            margins: BTreeMap::new(),
            // The tests' process stays as it is.
            memory_mib: u64::MAX >> 20,
            hidden: vec!["/srv/series".to_owned()],
        };
        let text = judge(&*serde_json::to_vec(&request).unwrap()).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_missing_empty_or_unreadable_outcome_is_refused_with_its_reason() {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("from");
        std::fs::create_dir(&from).unwrap();
        let take = || JudgeQuestion::Take {
            from: from.clone(),
            to: folder.path().join("to"),
            start: start(),
            bisected: false,
        };
        let outcome = r#"{"schema":1,"failures":[]}"#;
        for (file, text, reason) in [
            ("outcome.json", None, "there is no"),
            ("outcome.json", Some(""), "not an outcome"),
            ("outcome.json", Some("{\"schema\": 1"), "not an outcome"),
            ("outcome.json", Some("\0\u{1}"), "not an outcome"),
            ("observations.jsonl.gz", Some(""), "empty"),
            ("observations.jsonl.gz", Some("\u{1f}x"), ""),
        ] {
            std::fs::write(from.join("outcome.json"), outcome).unwrap();
            match text {
                Some(text) => std::fs::write(from.join(file), text).unwrap(),
                None => std::fs::remove_file(from.join(file)).unwrap(),
            }
            match answered(take()) {
                JudgeAnswer::Refused(why) => assert!(why.contains(reason), "{text:?}: {why}"),
                other => panic!("{text:?}: {other:?}"),
            }
        }
        std::fs::remove_file(from.join("observations.jsonl.gz")).unwrap();
        assert!(matches!(answered(take()), JudgeAnswer::Taken));
    }

    #[test]
    fn a_comment_has_what_the_bot_says_and_the_stored_failures() {
        let folder = tempfile::tempdir().unwrap();
        let error = Error::build_failed("patch 3 does not compile")
            .details(["/srv/series/.perfquilt/areas/7/x.c:1: error: bad".to_owned()]);
        let failures = vec![Failure::new(&error, None)];
        outcome::update(
            folder.path(),
            &start(),
            failures,
            outcome::OutcomePart::Run(None),
        )
        .unwrap();
        let about = CommentQuestion {
            results: Some(folder.path().to_owned()),
            activity: Some("Running.".to_owned()),
            answer: "an answer".to_owned(),
            limit: 65_536,
            ..CommentQuestion::default()
        };
        let JudgeAnswer::Comment(comment) = answered(JudgeQuestion::Comment(Box::new(about)))
        else {
            panic!("no comment");
        };
        for words in ["patch 3 does not compile", "Running.", "an answer"] {
            assert!(comment.body.contains(words), "{words}: {}", comment.body);
        }
        let body = &comment.body;
        assert!(
            body.contains("x.c:1: error") && !body.contains("/srv/series"),
            "{body}"
        );
    }
}
