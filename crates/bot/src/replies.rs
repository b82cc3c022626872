//! Replies on pull requests: reactions, the state of jobs, and reasons for failures.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::acceptances::{AcceptedPatch, configuration_digest};
use super::bot::{Bot, BotThread, POLL_INTERVAL, current_text, persistently, unless_interrupted};
use super::commits::SHORT_ID;
use super::judging::{CommentQuestion, HASTE};
use super::serve::{RECENT_JOBS, now};
use perfquilt_forge::{Draft, PostOptions, PostResult, PullRequest};
use perfquilt_model::comment::PullRequestRef;
use perfquilt_model::counted::counted;
use perfquilt_model::cut::at_most;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::progress;
use perfquilt_report::PendingApproval;
use perfquilt_results::outcome::{OUTCOME_FILE, RunOutcome};
use perfquilt_store::queue::{Job, JobState, Push, Queue, QueueChange, Reply};
use perfquilt_system::process;
use perfquilt_system::threads::lock;

/// The maximum number of attempts to send a reply.
const MAX_ATTEMPTS: u32 = 8;
/// How long an answer stays in the comment, in seconds, unless a newer answer replaces it.
const ANSWER_LIFETIME: i64 = 10 * 60;
/// How long after its request a job is pinned to the head commit at the latest, in seconds: the requester has seen the
/// head commit of that time, and the bot may have missed a push since.
const PIN_LIMIT: i64 = 10 * 60;
/// Time between two looks at a pull request about whose commit deliveries disagree.
const DOUBT_PAUSE: Duration = Duration::from_secs(5);
/// Time between two attempts to pin a job, in seconds.
const PIN_PAUSE: i64 = 10;

impl Bot {
    /// Sends the replies that take long until a signal asks to stop: those about pull requests with much to judge, for which
    /// [`Bot::answer`] does not wait.
    pub fn answer_slowly(&self) -> Result<()> {
        let thread = self.thread()?;
        let next = || {
            let slow = lock(&self.state.slow).clone();
            thread.queue.next_reply(now(), &slow, true)
        };
        while !process::interrupted() {
            match unless_interrupted(persistently(next))?.flatten() {
                Some(reply) => thread.handle(&reply, false)?,
                None => std::thread::sleep(POLL_INTERVAL),
            }
        }
        Ok(())
    }

    /// Sends the other replies, and pins jobs to commits, until a signal asks to stop.
    pub fn answer(&self) -> Result<()> {
        let thread = self.thread()?;
        let queue = &thread.queue;
        let pause = Duration::from_secs(self.workspace.config.bot.poll_seconds.into());
        // Deliveries may have been lost while the bot was away.
        let mut next_poll = Instant::now();
        let mut next_doubts = next_poll;
        while !process::interrupted() {
            let now_is = Instant::now();
            if now_is >= next_poll || now_is >= next_doubts {
                let everything = now_is >= next_poll;
                let found = persistently(|| thread.find_lost_deliveries(everything));
                let settled = match found {
                    Err(error) if error.kind() == Kind::Interrupted => break,
                    done => done?,
                };
                let look = if settled { POLL_INTERVAL } else { DOUBT_PAUSE };
                next_doubts = Instant::now() + look;
                if everything {
                    next_poll = Instant::now() + pause;
                }
            }
            let next = persistently(|| {
                if let Some(job) = queue.next_without_commit(now())? {
                    return thread.pin(&job).map(|()| None);
                }
                let slow = lock(&self.state.slow).clone();
                let reply = queue.next_reply(now(), &slow, false)?;
                if reply.is_none() {
                    std::thread::sleep(POLL_INTERVAL);
                }
                Ok(reply)
            });
            if let Some(reply) = unless_interrupted(next)?.flatten() {
                thread.handle(&reply, true)?;
            }
        }
        Ok(())
    }

    /// Describes the state of a pull request's jobs in a sentence.
    fn activity(&self, queue: &Queue, number: u64) -> Result<String> {
        let (open, past) = queue.list(RECENT_JOBS, now())?;
        let last = queue.last_ended(number)?;
        let cancelled = match &last {
            Some(job) if job.state == JobState::Cancelled => {
                let about = match at_most(&job.job.head, SHORT_ID) {
                    "" => String::new(),
                    commit => format!(" The job was about {commit}."),
                };
                format!("Cancelled: {}.{about}", job.result)
            }
            _ => String::new(),
        };
        let mut places = open.iter().enumerate();
        let Some((place, job)) = places.find(|(_, job)| job.number == number) else {
            return Ok(match last.map(|job| job.state) {
                Some(JobState::Cancelled) => cancelled,
                Some(JobState::Failed) => {
                    "The job failed; the bot's log and status page have the reason.".to_owned()
                }
                _ => "No job runs or waits for this pull request.".to_owned(),
            });
        };
        Ok(match job.state {
            JobState::Held => "Waiting for an approval.".to_owned(),
            JobState::Running => match current_text(&self.state.progress).as_str() {
                "" => "Running.".to_owned(),
                progress => format!("Running: {progress}"),
            },
            _ if !job.result.is_empty() => format!(
                "Waiting: a request to {} failed; the bot will retry.",
                self.service
            ),
            _ => {
                let waiting = waiting(place, &past);
                format!("{cancelled} {waiting}").trim().to_owned()
            }
        })
    }

    /// Returns `answer`, or while it is new the last answer on this pull request.
    fn current_answer(&self, number: u64, answer: Option<&str>) -> Option<String> {
        let mut answers = lock(&self.state.answers);
        let now = now();
        answers.retain(|_, (given, _)| now - *given < ANSWER_LIFETIME);
        if let Some(answer) = answer {
            answers.insert(number, (now, answer.to_owned()));
        }
        answers.get(&number).map(|(_, answer)| answer.clone())
    }

    /// Returns the files of a pull request that wait for an approval, if any.
    pub(super) fn pending_approval(&self, number: u64) -> Result<Option<PendingApproval>> {
        let (open, _) = self.open_queue()?.list(0, now())?;
        let held = |job: &Job| job.number == number && job.state == JobState::Held;
        Ok(open.into_iter().find(held).map(|job| PendingApproval {
            name: self.workspace.config.commands.name.clone(),
            head: job.job.head,
            files: job.result.lines().map(str::to_owned).collect(),
        }))
    }
}

impl BotThread<'_> {
    pub(super) fn posting(&self) -> PostOptions {
        PostOptions {
            id: "default".into(),
            check: self.forge.may_set_status(),
            label: self.bot.workspace.config.bot.label.clone(),
            fail_on_regression: false,
            fail_on_inconclusive: false,
        }
    }

    /// Cancels jobs of pull requests that were closed or have another commit by now, as the deliveries would have done that
    /// say so; of all pull requests with jobs if `everything`, else of those about which deliveries disagree. It adds no
    /// job: the forge does not tell here who pushed. Returns whether nothing is left in doubt.
    fn find_lost_deliveries(&self, everything: bool) -> Result<bool> {
        let mut doubts = self.queue.doubts()?;
        let jobs_of = |number: u64| -> Result<Vec<(i64, String)>> {
            let (open, _) = self.queue.list(0, now())?;
            let own = open.into_iter().filter(|job| job.number == number);
            Ok(own.map(|job| (job.id, job.job.head)).collect())
        };
        let mut numbers: BTreeSet<u64> = doubts.keys().copied().collect();
        if everything {
            let (open, _) = self.queue.list(0, now())?;
            numbers.extend(open.iter().map(|job| job.number));
        }
        for number in numbers {
            let before = jobs_of(number)?;
            let found = match self.find_pull_request(number) {
                Err(error) if error.kind() == Kind::Interrupted => return Err(error),
                // The next look will tell.
                Err(error) => {
                    tracing::debug!("{error}");
                    continue;
                }
                Ok(found) => found,
            };
            // A delivery that arrived meanwhile may name a later commit than the answer.
            if jobs_of(number)? != before {
                continue;
            }
            // Whether a job that does not know its commit yet is of another one, the next look will tell.
            let unpinned = before.iter().any(|(_, head)| head.is_empty());
            if found.open && unpinned {
                continue;
            }
            let (newer, why) = if found.open {
                let head = found.head.to_ascii_lowercase();
                let push = Push {
                    head,
                    before: None,
                    trusted: true,
                };
                (Some(push), "the pull request has a newer commit")
            } else {
                (None, "the pull request was closed")
            };
            let change = QueueChange::Cancel {
                newer,
                why: why.to_owned(),
            };
            self.queue.change(number, &change, now())?;
            if let Some(last) = doubts.remove(&number) {
                self.queue.settle(number, last)?;
            }
        }
        Ok(doubts.is_empty())
    }

    /// Pins a job to the commit that is the head of its pull request.
    fn pin(&self, job: &Job) -> Result<()> {
        let found = self.find_pull_request(job.number);
        if now() - job.received > PIN_LIMIT {
            let why = "the bot could not read in time which commit was meant; repeat the command";
            return self.queue.cancel_without_commit(job, why, now());
        }
        match found {
            Ok(found) => self.queue.pin(job, &found.head),
            Err(error) if error.kind() == Kind::Interrupted => Err(error),
            Err(error) => {
                progress::warn(error.into());
                self.queue.pin_later(job.id, now() + PIN_PAUSE)
            }
        }
    }

    /// Sends a reply and removes it, or postpones it. In `haste`, it leaves one that takes long to [`Bot::answer_slowly`].
    fn handle(&self, reply: &Reply, haste: bool) -> Result<()> {
        let BotThread { bot, queue, .. } = self;
        let number = reply.number;
        let begun = Instant::now();
        let sent = self.send_reply(reply, haste);
        let settle: &dyn Fn() -> Result<()> = match &sent {
            Err(error) if error.kind() == Kind::Interrupted => {
                lock(&bot.state.slow).insert(number);
                return Ok(());
            }
            Err(error) if reply.attempts + 1 < MAX_ATTEMPTS => {
                progress::warn(error.clone().into());
                let later = now() + (10 << reply.attempts.min(8));
                &move || queue.postpone_reply(reply.id, later)
            }
            sent => {
                if let Err(error) = sent {
                    progress::warn(error.warning("giving up on a reply"));
                }
                &|| queue.remove_reply(reply.id)
            }
        };
        if begun.elapsed() < HASTE {
            lock(&bot.state.slow).remove(&number);
        }
        unless_interrupted(persistently(settle)).map(drop)
    }

    /// Adds the reaction and updates the bot's comment with the state of the pull request's jobs.
    fn send_reply(&self, reply: &Reply, haste: bool) -> Result<()> {
        let answer = Some(reply.answer.as_str()).filter(|answer| !answer.is_empty());
        let reacted = match reply.reaction.as_str() {
            "" => Ok(()),
            reaction => self.forge.react(reply.number, reply.comment, reaction),
        };
        // Authors without permission get a reaction but no comment.
        if reply.reaction == "-1" && answer.is_none() {
            return reacted;
        }
        // The comment is updated even when the forge refuses the reaction.
        let said = self
            .find_pull_request(reply.number)
            .and_then(|found| self.update_comment(&found, answer, haste));
        reacted.and(said)
    }

    /// Updates the bot's comment with the last results, the state of jobs and `answer`; without one, with the last
    /// answer while it is new. In `haste`, it is [`Kind::Interrupted`] where another thread writes this comment, and as
    /// [`Bot::write_comment`] is.
    pub(super) fn update_comment(
        &self,
        found: &PullRequest,
        answer: Option<&str>,
        haste: bool,
    ) -> Result<()> {
        let bot = self.bot;
        let lock = bot.comment_lock(found.number);
        let guard = Bot::wait_for_lock(&lock, &|| haste)?;
        let _comment_guard = guard.ok_or_else(Error::interrupted)?;
        let mut activity = Some(bot.activity(&self.queue, found.number)?);
        if self.forge.columns().is_some() {
            let (open, _) = self.queue.list(0, now())?;
            let is_open = open.iter().any(|job| job.number == found.number);
            // It cannot be changed: only the last word is written.
            if is_open || !self.forge.comments(found.number)?.is_empty() {
                return Ok(());
            }
            activity = activity.filter(|_| {
                let ended = self.queue.last_ended(found.number);
                ended.is_ok_and(|job| job.is_some())
            });
        }
        let about = CommentQuestion {
            pending_approval: bot.pending_approval(found.number)?,
            activity,
            answer: bot.current_answer(found.number, answer).unwrap_or_default(),
            ..CommentQuestion::default()
        };
        let quiet = PostOptions {
            check: false,
            label: None,
            ..self.posting()
        };
        self.post_results(found, &quiet, about, haste).map(drop)
    }

    /// Posts the stored results of a pull request, with what `about` says besides.
    pub(super) fn post_results(
        &self,
        found: &PullRequest,
        posting: &PostOptions,
        about: CommentQuestion,
        haste: bool,
    ) -> Result<PostResult> {
        let bot = self.bot;
        let stored = bot.outcome(found.number);
        // The comment reports one that cannot be read.
        let outcome = RunOutcome::read(&stored.join(OUTCOME_FILE));
        let accepted = self.queue.acceptances(found.number)?;
        let accepted: Vec<AcceptedPatch> = match &outcome {
            Ok(outcome) if !accepted.is_empty() => {
                let configuration = configuration_digest(&bot.workspace)?;
                let accepted = accepted.into_iter();
                accepted
                    .map(|of| AcceptedPatch::of(of, &outcome.head, &configuration))
                    .collect()
            }
            _ => Vec::new(),
        };
        let subject = outcome.map_or_else(
            |_| PullRequestRef::default(),
            |outcome| PullRequestRef {
                began: outcome.began(None),
                head: outcome.head,
                ..PullRequestRef::default()
            },
        );
        let draft = Draft {
            subject: &subject,
            write: &|subject, limit| {
                let about = CommentQuestion {
                    results: Some(stored.clone()),
                    accepted: accepted.clone(),
                    subject: subject.clone(),
                    limit,
                    columns: self.forge.columns(),
                    ..about.clone()
                };
                bot.write_comment(about, haste)
            },
        };
        self.post(posting, found, &draft)
    }

    /// Posts a draft, and notes when the pull request shows a newer result, which stays.
    pub(super) fn post(
        &self,
        posting: &PostOptions,
        found: &PullRequest,
        draft: &Draft<'_>,
    ) -> Result<PostResult> {
        let posted = perfquilt_forge::post(self.forge.as_ref(), posting, found, draft)?;
        if posted.comment.action == "newer" {
            progress::note(&format!(
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
            .and_then(|found| self.update_comment(&found, None, false));
        if let Err(error) = posted {
            progress::warn(error.into());
        }
    }
}

/// Describes the wait of a job behind `jobs` others, after jobs that took as long as those of `past` that succeeded.
fn waiting(jobs: usize, past: &[Job]) -> String {
    if jobs == 0 {
        return "Waiting: next in the queue.".to_owned();
    }
    let done = past.iter().filter(|job| job.state == JobState::Done);
    let took = done.filter_map(|job| Some(job.ended? - job.started?));
    let took: Vec<i64> = took.collect();
    let about = match took.len() {
        0 => String::new(),
        count => {
            let mean = took.iter().sum::<i64>() / count as i64;
            let minutes = (mean * jobs as i64).div_euclid(60) + 1;
            format!(", starts in about {minutes} min")
        }
    };
    let jobs = counted(jobs, "job", "jobs");
    format!("Waiting: {jobs} before it{about}.")
}
