//! Replies on pull requests: reactions, the state of jobs, and reasons for failures.

use super::bot::{Bot, BotThread, POLL_INTERVAL, catch_panics, current_text, persistently};
use super::paths::BotPaths;
use super::serve::{RECENT_JOBS, now};
use perfquilt_forge::{Credentials, Draft, Posted, Posting, PullRequest};
use perfquilt_judge::attribution::Attribution;
use perfquilt_judge::bisect;
use perfquilt_model::comment::PullRequestRef;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::progress::Progress;
use perfquilt_report::comment;
use perfquilt_report::{Notice, PendingApproval};
use perfquilt_results::outcome::{self, RunOutcome};
use perfquilt_store::queue::{Job, JobState, Queue, Reply};
use perfquilt_system::process;

/// The maximum number of attempts to send a reply.
const MAX_ATTEMPTS: u32 = 8;
/// How long an answer stays in the comment, in seconds, unless a newer answer replaces it.
const ANSWER_LIFETIME: i64 = 10 * 60;
/// How long after its request a job is pinned to the head commit at the latest, in seconds: the requester has seen the
/// head commit of that time, and the bot may have missed a push since.
const PIN_LIMIT: i64 = 10 * 60;
/// Time between two attempts to pin a job, in seconds.
const PIN_PAUSE: i64 = 10;

impl Bot {
    /// Sends replies and pins jobs to commits until a signal asks to stop.
    ///
    /// # Errors
    /// [`Kind::Internal`] when the queue cannot be read or written.
    pub fn answer(&self, progress: &dyn Progress) -> Result<()> {
        let thread = self.thread(progress)?;
        let queue = &thread.queue;
        let done = |write: &dyn Fn() -> Result<()>| match persistently(progress, write) {
            Err(error) if error.kind() == Kind::Interrupted => Ok(()),
            done => done,
        };
        while !process::interrupted() {
            let next = persistently(progress, || {
                if let Some(job) = queue.next_without_commit(now())? {
                    return thread.pin(&job).map(|()| None);
                }
                let reply = queue.next_reply(now())?;
                if reply.is_none() {
                    std::thread::sleep(POLL_INTERVAL);
                }
                Ok(reply)
            });
            let reply = match next {
                Ok(Some(reply)) => reply,
                Ok(None) => continue,
                Err(error) if error.kind() == Kind::Interrupted => break,
                Err(error) => return Err(error),
            };
            match thread.send_reply(&reply) {
                Ok(()) => done(&|| queue.answered(reply.id))?,
                Err(error) if error.kind() == Kind::Interrupted => break,
                Err(error) if reply.attempts + 1 >= MAX_ATTEMPTS => {
                    progress.warn(&format!("giving up on an answer: {error}"));
                    done(&|| queue.answered(reply.id))?;
                }
                Err(error) => {
                    progress.warn(&error.to_string());
                    done(&|| queue.later(reply.id, now() + (10 << reply.attempts.min(8))))?;
                }
            }
        }
        Ok(())
    }

    /// Describes the state of a pull request's jobs in a sentence.
    fn activity(&self, queue: &Queue, number: u64) -> Result<String> {
        let (open, past) = queue.list(RECENT_JOBS, now())?;
        let last = queue.last_ended(&self.repository.to_string(), number)?;
        let last = last.as_ref().map(|job| (job.state, job.result.as_str()));
        let cancelled = match last {
            Some((JobState::Cancelled, why)) => format!("Cancelled: {why}."),
            _ => String::new(),
        };
        let Some(place) = open.iter().position(|job| job.job.number == number) else {
            return Ok(match last {
                Some((JobState::Cancelled, _)) => cancelled,
                Some((JobState::Failed, _)) => {
                    "The job failed; the bot's log and status page have the reason.".to_owned()
                }
                _ => "No job runs or waits for this pull request.".to_owned(),
            });
        };
        if open[place].state == JobState::Held {
            return Ok("Waiting for an approval.".to_owned());
        }
        if open[place].state == JobState::Running {
            let progress = current_text(&self.state.progress);
            return Ok(if progress.is_empty() {
                "Running.".to_owned()
            } else {
                format!("Running: {progress}")
            });
        }
        if !open[place].result.is_empty() {
            return Ok("Waiting: a request to GitHub failed; the bot will retry.".to_owned());
        }
        let took: Vec<i64> = past
            .iter()
            .filter(|job| job.state == JobState::Done)
            .filter_map(|job| Some(job.ended? - job.started?))
            .collect();
        let about = match took.len() {
            0 => String::new(),
            count => {
                let mean = took.iter().sum::<i64>() / i64::try_from(count).unwrap_or(1);
                let jobs = i64::try_from(place).unwrap_or(0).max(1);
                format!(", starts in about {} min", (mean * jobs).div_euclid(60) + 1)
            }
        };
        let waiting = match place {
            0 => "Waiting: next in the queue.".to_owned(),
            1 => format!("Waiting: 1 job before it{about}."),
            more => format!("Waiting: {more} jobs before it{about}."),
        };
        Ok(format!("{cancelled} {waiting}").trim().to_owned())
    }

    /// Returns `answer`, or while it is new the last answer on this pull request.
    fn current_answer(&self, number: u64, answer: Option<&str>) -> Option<String> {
        let Ok(mut answers) = self.state.answers.lock() else {
            return answer.map(str::to_owned);
        };
        let now = now();
        answers.retain(|_, (given, _)| now - *given < ANSWER_LIFETIME);
        if let Some(answer) = answer {
            answers.insert(number, (now, answer.to_owned()));
        }
        answers.get(&number).map(|(_, answer)| answer.clone())
    }

    pub(super) fn posting(&self) -> Posting {
        Posting {
            id: "default".into(),
            // Only GitHub Apps may write check runs, and the bot does not run in a workflow.
            check: matches!(self.credentials, Credentials::App { .. }),
            label: self.workspace.config.bot.label.clone(),
            fail_on_regression: false,
            fail_on_inconclusive: false,
        }
    }

    /// Returns the files of a pull request that wait for an approval, if any.
    fn pending_approval(&self, number: u64) -> Result<Option<PendingApproval>> {
        let (open, _) = Queue::open(&self.queue_path())?.list(0, now())?;
        let held = |job: &Job| job.job.number == number && job.state == JobState::Held;
        Ok(open.into_iter().find(held).map(|job| PendingApproval {
            name: self.workspace.config.commands.name.clone(),
            head: job.job.head,
            files: job.result.lines().map(str::to_owned).collect(),
        }))
    }

    /// Reads the stored results of the last jobs of a pull request.
    pub(super) fn stored_results(&self, number: u64) -> Result<StoredResults> {
        let folder = BotPaths::new(&self.workspace).outcome(&self.repository, number);
        let margin = |meter| self.workspace.config.margin(meter);
        let nothing = || (RunOutcome::new("", Vec::new()), None);
        let unreadable = |error: Error| match error.kind() {
            Kind::Interrupted => Err(error),
            // No later job could post either.
            _ => {
                tracing::warn!("{error}");
                Ok(())
            }
        };
        let read = if folder.is_dir() {
            outcome::read(&folder, &margin)
                .map(Some)
                .or_else(|error| unreadable(error).map(|()| None))?
        } else {
            None
        };
        let (outcome, attribution) = read.unwrap_or_else(nothing);
        let session = outcome::bisection(&folder);
        let session = session.or_else(|error| unreadable(error).map(|()| None))?;
        Ok(StoredResults {
            outcome,
            attribution,
            bisection: session.map(|session| session.replay().outcome()),
        })
    }
}

impl BotThread<'_> {
    /// Pins a job to the commit that is the head of its pull request.
    ///
    /// # Errors
    /// [`Kind::Internal`] when the queue cannot be written; [`Kind::Interrupted`].
    fn pin(&self, job: &Job) -> Result<()> {
        let found = self.find_pull_request(job.job.number);
        if now() - job.received > PIN_LIMIT {
            let why = "the bot could not read in time which commit was meant; repeat the command";
            return self.queue.cancel_without_commit(job, why, now());
        }
        match found {
            Ok(found) => self.queue.pin(job, &found.head),
            Err(error) if error.kind() == Kind::Interrupted => Err(error),
            Err(error) => {
                self.progress.warn(&error.to_string());
                self.queue.pin_later(job.id, now() + PIN_PAUSE)
            }
        }
    }

    /// Adds the reaction and updates the bot's comment with the state of the pull request's jobs.
    fn send_reply(&self, reply: &Reply) -> Result<()> {
        let reply = &reply.reply;
        let answer = Some(reply.answer.as_str()).filter(|answer| !answer.is_empty());
        let reacted = match reply.reaction.as_str() {
            "" => Ok(()),
            reaction => self.forge.react(reply.comment, reaction),
        };
        // Authors without permission get a reaction but no comment.
        if reply.reaction == "-1" && answer.is_none() {
            return reacted;
        }
        // The comment is updated even when GitHub refuses the reaction.
        let said = self
            .find_pull_request(reply.number)
            .and_then(|found| self.update_comment(&found, answer));
        reacted.and(said)
    }

    /// Updates the bot's comment with the last results, the state of jobs and `answer`; without one, with the last
    /// answer while it is new.
    pub(super) fn update_comment(&self, found: &PullRequest, answer: Option<&str>) -> Result<()> {
        let bot = self.bot;
        catch_panics(|| {
            let _comment_guard = Bot::wait_for_lock(&bot.state.comment_lock, &|| false)?;
            let stored = bot.stored_results(found.number)?;
            let notice = Notice {
                pending_approval: bot.pending_approval(found.number)?,
                activity: Some(bot.activity(&self.queue, found.number)?),
                answer: bot.current_answer(found.number, answer).unwrap_or_default(),
                ..stored.notice()
            };
            let quiet = Posting {
                check: false,
                label: None,
                ..bot.posting()
            };
            let draft = Draft {
                subject: &notice.subject,
                write: &|subject, limit| comment(&notice.about(subject), limit),
            };
            self.post(&quiet, found, &draft).map(drop)
        })
    }

    /// Posts a draft, and notes when the pull request shows a newer result, which stays.
    pub(super) fn post(
        &self,
        posting: &Posting,
        found: &PullRequest,
        draft: &Draft<'_>,
    ) -> Result<Posted> {
        let posted =
            perfquilt_forge::post(self.forge.as_ref(), posting, found, draft, self.progress)?;
        if posted.comment.action == "newer" {
            self.progress.note(&format!(
                "pull request {}: the comment stays, since it shows the result of a later commit or of a \
                 measurement that began later",
                found.number
            ));
        }
        Ok(posted)
    }

    /// Posts that the last job of a pull request failed. The network may be the cause of the failure, so errors
    /// of posting only produce a warning.
    pub(super) fn post_failure(&self, number: u64) {
        let posted = self
            .find_pull_request(number)
            .and_then(|found| self.update_comment(&found, None));
        if let Err(error) = posted {
            self.progress.warn(&error.to_string());
        }
    }
}

/// The stored results of the last jobs of a pull request.
pub(super) struct StoredResults {
    outcome: RunOutcome,
    attribution: Option<Attribution>,
    bisection: Option<bisect::BisectOutcome>,
}

impl StoredResults {
    /// Returns the notice that reports these results.
    pub(super) fn notice(&self) -> Notice<'_> {
        Notice {
            attribution: self.attribution.as_ref(),
            failures: &self.outcome.failures,
            bisection_failures: &self.outcome.bisection,
            bisection: self.bisection.as_ref(),
            subject: PullRequestRef {
                head: self.outcome.head.clone(),
                began: self.outcome.began(self.attribution.as_ref()),
                ..PullRequestRef::default()
            },
            ..Notice::default()
        }
    }
}
