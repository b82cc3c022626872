//! What is said on pull requests besides results: reactions, what waits and runs, why something did not.

use super::places::Places;
use super::serve::{PAST, now};
use super::worker::{Bot, GLANCE, guarded, told};
use perfquilt_forge::Draft;
use perfquilt_forge::{Client, Credentials, Found, Posting};
use perfquilt_judge::attribution::Attribution;
use perfquilt_judge::bisect;
use perfquilt_model::comment::Subject;
use perfquilt_model::error::{Kind, Result};
use perfquilt_model::progress::Progress;
use perfquilt_report::comment;
use perfquilt_report::{Held, Notice};
use perfquilt_results::outcome::{self, Outcome};
use perfquilt_store::queue::{Job, JobState, Queue, Reply};
use perfquilt_system::process;

/// How often an answer is tried.
const MOST_ATTEMPTS: u32 = 8;
/// Seconds for which an answer stays in the comment, whatever else changes there, unless another one comes.
const ANSWERED: i64 = 10 * 60;

impl Bot {
    /// Gives answers until a signal asks to stop.
    ///
    /// # Errors
    /// [`Kind::Internal`] when the queue cannot be read or written.
    pub fn answer(&self, progress: &dyn Progress) -> Result<()> {
        let queue = Queue::open(&self.queue())?;
        let client = self.client()?;
        while !process::interrupted() {
            let Some(reply) = queue.next_reply(now())? else {
                std::thread::sleep(GLANCE);
                continue;
            };
            match self.give(&queue, &client, &reply, progress) {
                Ok(()) => queue.answered(reply.id)?,
                Err(error) if error.kind() == Kind::Interrupted => break,
                Err(error) if reply.attempts + 1 >= MOST_ATTEMPTS => {
                    progress.warn(&format!("an answer is given up: {error}"));
                    queue.answered(reply.id)?;
                }
                Err(error) => {
                    progress.warn(&error.to_string());
                    queue.later(reply.id, now() + (10 << reply.attempts.min(8)))?;
                }
            }
        }
        Ok(())
    }

    /// A reaction, and our comment with what waits and runs for the pull request.
    fn give(
        &self,
        queue: &Queue,
        client: &Client,
        reply: &Reply,
        progress: &dyn Progress,
    ) -> Result<()> {
        let reply = &reply.reply;
        let reacted = match reply.reaction.as_str() {
            "" => Ok(()),
            reaction => perfquilt_forge::react(client, reply.comment, reaction),
        };
        // Whoever may not command is not talked to.
        if reply.reaction == "-1" && reply.answer.is_empty() {
            return reacted;
        }
        // What is said counts, also where reactions are refused.
        let said = self
            .find(client, reply.number)
            .and_then(|found| self.say(queue, client, &found, &reply.answer, progress));
        reacted.and(said)
    }

    /// What waits or runs for a pull request, in a sentence.
    fn activity(&self, queue: &Queue, number: u64) -> Result<String> {
        let (open, past) = queue.list(PAST, now())?;
        let last = past.iter().find(|job| job.job.number == number);
        let last = last.map(|job| (job.state, job.result.as_str()));
        let cancelled = match last {
            Some((JobState::Cancelled, why)) => format!("Cancelled: {why}."),
            _ => String::new(),
        };
        let Some(place) = open.iter().position(|job| job.job.number == number) else {
            return Ok(match last {
                Some((JobState::Cancelled, _)) => cancelled,
                Some((JobState::Failed, _)) => {
                    "The job could not be carried out; the bot's log and page say why.".to_owned()
                }
                _ => "Nothing runs or waits for this pull request.".to_owned(),
            });
        };
        if open[place].state == JobState::Held {
            return Ok("Waiting for an approval.".to_owned());
        }
        if open[place].state == JobState::Running {
            let doing = told(&self.state.doing);
            return Ok(if doing.is_empty() {
                "Running.".to_owned()
            } else {
                format!("Running: {doing}")
            });
        }
        if !open[place].result.is_empty() {
            return Ok(
                "Waiting: something on the way to GitHub failed; it is tried again.".to_owned(),
            );
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
                format!(", begins in about {} min", (mean * jobs).div_euclid(60) + 1)
            }
        };
        let waiting = match place {
            0 => "Waiting: it is next.".to_owned(),
            1 => format!("Waiting: 1 job before it{about}."),
            more => format!("Waiting: {more} jobs before it{about}."),
        };
        Ok(format!("{cancelled} {waiting}").trim().to_owned())
    }

    /// What is said in answer now: `answer`, else the last one on this pull request, for a while.
    fn answered(&self, number: u64, answer: &str) -> String {
        let Ok(mut answers) = self.state.answers.lock() else {
            return answer.to_owned();
        };
        let now = now();
        answers.retain(|_, (given, _)| now - *given < ANSWERED);
        if !answer.is_empty() {
            answers.insert(number, (now, answer.to_owned()));
        }
        let last = answers.get(&number);
        last.map(|(_, answer)| answer.clone()).unwrap_or_default()
    }

    /// Our comment with the last results, if there are any, what goes on, and `answer`; without one, the last
    /// answer while it is new.
    pub(super) fn say(
        &self,
        queue: &Queue,
        client: &Client,
        found: &Found,
        answer: &str,
        progress: &dyn Progress,
    ) -> Result<()> {
        guarded(|| {
            let _speaking = Self::wait(&self.state.speaking, &|| false)?;
            let activity = Some(self.activity(queue, found.number)?);
            let kept = self.kept(found.number)?;
            let notice = Notice {
                held: self.held(found.number)?,
                activity,
                answer: self.answered(found.number, answer),
                ..kept.notice()
            };
            let quiet = Posting {
                check: false,
                label: None,
                ..self.posting()
            };
            perfquilt_forge::post(
                client,
                &quiet,
                found,
                &Draft {
                    subject: &notice.subject,
                    write: &|subject, limit| comment(&notice.about(subject), limit),
                },
                progress,
            )
            .map(|_| ())
        })
    }

    pub(super) fn posting(&self) -> Posting {
        Posting {
            id: "default".into(),
            // GitHub takes check runs from Apps alone; a workflow has no bot in it.
            check: matches!(self.credentials, Credentials::App { .. }),
            label: self.workspace.config.bot.label.clone(),
            fail_on_regression: false,
            fail_on_inconclusive: false,
        }
    }

    /// Tells a pull request that its last job was not carried out. What went wrong may have to do with the
    /// network, too; then nobody is told.
    pub(super) fn excuse(
        &self,
        queue: &Queue,
        client: &Client,
        number: u64,
        progress: &dyn Progress,
    ) {
        let told = self
            .find(client, number)
            .and_then(|found| self.say(queue, client, &found, "", progress));
        if let Err(error) = told {
            progress.warn(&error.to_string());
        }
    }

    /// Which files of a pull request must be approved, if something waits for that.
    fn held(&self, number: u64) -> Result<Option<Held>> {
        let (open, _) = Queue::open(&self.queue())?.list(0, now())?;
        let held = |job: &Job| job.job.number == number && job.state == JobState::Held;
        Ok(open.into_iter().find(held).map(|job| Held {
            name: self.workspace.config.commands.name.clone(),
            head: job.job.head,
            files: job.result.lines().map(str::to_owned).collect(),
        }))
    }

    /// What is kept of the last jobs of a pull request.
    pub(super) fn kept(&self, number: u64) -> Result<Kept> {
        let folder = Places::new(&self.workspace).outcome(&self.repository, number);
        let margin = |meter| self.workspace.config.margin(meter);
        let (outcome, attribution) = if folder.is_dir() {
            outcome::read(&folder, &margin)?
        } else {
            (Outcome::new("", Vec::new()), None)
        };
        let session = outcome::bisection(&folder)?;
        Ok(Kept {
            outcome,
            attribution,
            bisection: session.map(|session| session.replay().outcome()),
        })
    }
}

/// What is kept of the last jobs of a pull request.
pub(super) struct Kept {
    outcome: Outcome,
    attribution: Option<Attribution>,
    bisection: Option<bisect::Outcome>,
}

impl Kept {
    /// What there is to say of it.
    pub(super) fn notice(&self) -> Notice<'_> {
        Notice {
            attribution: self.attribution.as_ref(),
            failures: &self.outcome.failures,
            bisection_failures: &self.outcome.bisection,
            bisection: self.bisection.as_ref(),
            subject: Subject {
                head: self.outcome.head.clone(),
                ..Subject::default()
            },
            ..Notice::default()
        }
    }
}
