//! Does what is in the queue: one job after the other, and answers beside them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::command::Command as Wish;
use super::job::{self, Ended, Places};
use super::serve::now;
use crate::error::{Error, Kind, Result};
use crate::forge::event::Target;
use crate::forge::{self, Client, Credentials, Found, Policy, Posting, Repository};
use crate::outcome::{self, Failure, Outcome};
use crate::process;
use crate::progress::Progress;
use crate::report::{Notice, Subject};
use crate::store::queue::{Job, JobState, Queue, Reply};
use crate::workspace::Workspace;

/// How often the queue is looked at.
const GLANCE: Duration = Duration::from_millis(200);
/// How often an answer is tried.
const MOST_ATTEMPTS: u32 = 8;

/// What the bot's threads share.
#[derive(Clone)]
pub struct Bot {
    /// The workspace whose configuration, releases and results are used.
    pub workspace: Workspace,
    /// The repository served.
    pub repository: Repository,
    /// GitHub's interface.
    pub api: String,
    /// Who posts.
    pub credentials: Credentials,
    /// How patiently.
    pub policy: Policy,
    /// This program.
    pub tool: PathBuf,
    /// What the running job does.
    pub doing: Arc<Mutex<String>>,
}

impl Bot {
    /// Where the queue is.
    pub fn queue(&self) -> PathBuf {
        Places::new(&self.workspace).queue()
    }

    /// What the running job does at the moment.
    pub fn doing(&self) -> String {
        self.doing
            .lock()
            .map(|text| text.clone())
            .unwrap_or_default()
    }

    /// Does jobs until a signal asks to stop. What was running when the bot ended last is done first.
    ///
    /// # Errors
    /// [`Kind::Internal`] when the queue cannot be read or written.
    pub fn work(&self, progress: &dyn Progress) -> Result<()> {
        let queue = Queue::open(&self.queue())?;
        let client = self.client()?;
        let back = queue.recover(now())?;
        if back > 0 {
            progress.note(&format!(
                "{back} jobs were running when the bot ended, and go on"
            ));
        }
        while !process::interrupted() {
            let Some(job) = queue.next(now())? else {
                std::thread::sleep(GLANCE);
                continue;
            };
            let name = format!("{} on pull request {}", job.job.command, job.job.number);
            progress.note(&format!("job {}: {name}", job.id));
            let (state, result) = match self.carry_out(&queue, &client, &job, progress) {
                Ok(done) => done,
                // The job stays in the queue as running, and goes on at the next start.
                Err(error) if error.kind() == Kind::Interrupted => break,
                Err(error) => (JobState::Failed, error.to_string()),
            };
            progress.note(&format!("job {}: {}: {result}", job.id, state.name()));
            queue.end(job.id, state, &result, now())?;
            self.tell("");
        }
        Ok(())
    }

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

    fn client(&self) -> Result<Client> {
        Client::new(
            self.repository.clone(),
            &self.api,
            self.credentials.clone(),
            self.policy,
        )
    }

    fn tell(&self, text: &str) {
        if let Ok(mut doing) = self.doing.lock() {
            doing.clear();
            doing.push_str(text);
        }
    }

    fn find(&self, client: &Client, number: u64) -> Result<Found> {
        let target = Target {
            number: Some(number),
            ..Target::default()
        };
        forge::find_pull_request(client, &target)
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
        forge::react(client, reply.comment, &reply.reaction)?;
        // Whoever may not command is not talked to.
        if reply.reaction == "-1" && reply.answer.is_empty() {
            return Ok(());
        }
        let found = self.find(client, reply.number)?;
        let activity = self.activity(queue, reply.number)?;
        self.update(client, &found, Some(activity), &reply.answer, progress)
    }

    /// What waits or runs for a pull request, in a sentence.
    fn activity(&self, queue: &Queue, number: u64) -> Result<String> {
        let (open, past) = queue.list(super::serve::PAST)?;
        let Some(place) = open.iter().position(|job| job.job.number == number) else {
            return Ok("Nothing runs or waits for this pull request.".to_owned());
        };
        if open[place].state == JobState::Running {
            let doing = self.doing();
            return Ok(match doing.is_empty() {
                true => "Running.".to_owned(),
                false => format!("Running: {doing}"),
            });
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
        Ok(match place {
            0 => "Waiting: it is next.".to_owned(),
            1 => format!("Waiting: 1 job before it{about}."),
            more => format!("Waiting: {more} jobs before it{about}."),
        })
    }

    /// Our comment with the last results, if there are any, and what goes on.
    fn update(
        &self,
        client: &Client,
        found: &Found,
        activity: Option<String>,
        answer: &str,
        progress: &dyn Progress,
    ) -> Result<()> {
        let folder = Places::new(&self.workspace).outcome(found.number);
        let margin = |meter| self.workspace.config.margin(meter);
        let (outcome, attribution) = match folder.is_dir() {
            true => outcome::read(&folder, &margin)?,
            false => (Outcome::new("", Vec::new()), None),
        };
        let notice = Notice {
            attribution: attribution.as_ref(),
            failures: &outcome.failures,
            activity,
            answer: answer.to_owned(),
            subject: Subject {
                head: outcome.head.clone(),
                ..Subject::default()
            },
            ..Notice::default()
        };
        let quiet = Posting {
            check: false,
            label: None,
            ..self.posting()
        };
        forge::post(client, &quiet, found, &notice, progress).map(|_| ())
    }

    fn posting(&self) -> Posting {
        Posting {
            id: "default".into(),
            check: true,
            label: self.workspace.config.bot.label.clone(),
            fail_on_regression: false,
            fail_on_inconclusive: false,
        }
    }

    /// Measures and posts; says how the job ended.
    fn carry_out(
        &self,
        queue: &Queue,
        client: &Client,
        job: &Job,
        progress: &dyn Progress,
    ) -> Result<(JobState, String)> {
        let config = &self.workspace.config.bot;
        let number = job.job.number;
        let not = |why: &str| Ok((JobState::Cancelled, why.to_owned()));
        let found = self.find(client, number)?;
        if !found.open {
            return not("the pull request is closed");
        }
        if !job.job.trusted && !config.run_untrusted {
            return not("the author is not among those whose code is run here");
        }
        if !job.job.head.is_empty() && job.job.head != found.newest {
            return not("the pull request has a newer commit");
        }
        let wish = Wish::written(&job.job.command);
        let Some(arguments) = wish.and_then(|wish| job::arguments(&wish, &config.preset)) else {
            return Err(Error::usage(format!("`{}` is no job", job.job.command)));
        };
        self.tell("fetching the pull request");
        self.update(client, &found, Some("Running.".to_owned()), "", progress)?;
        let places = Places::new(&self.workspace);
        let fallback = format!("https://github.com/{}.git", self.repository);
        let remote = config.remote.as_deref().unwrap_or(&fallback);
        let head = job::fetch(&places, remote, number)?;
        if !job.job.head.is_empty() && head != job.job.head {
            return not("the pull request has a newer commit");
        }
        let unwanted = || {
            queue
                .state(job.id)
                .is_ok_and(|state| state == Some(JobState::Cancelled))
        };
        let outcome = match job::workspace(&places, &self.workspace, &head) {
            // A pull request without a series is told so.
            Err(error) if error.kind() == Kind::Series => {
                Outcome::new(&head, vec![Failure::new(&error, None)])
            }
            Err(error) => return Err(error),
            Ok(folder) => {
                let doing = Arc::clone(&self.doing);
                let tell = move |line: &str| {
                    if let (false, Ok(mut doing)) = (line.is_empty(), doing.lock()) {
                        doing.clear();
                        doing.push_str(line);
                    }
                };
                if job::run(&self.tool, &folder, &arguments, &unwanted, tell)? == Ended::Cancelled {
                    let found = self.find(client, number)?;
                    let why = format!("Cancelled: {}.", self.why(queue, job.id)?);
                    self.update(client, &found, Some(why), "", progress)?;
                    return not("cancelled");
                }
                let (outcome, _) = outcome::read(&folder.join("outcome"), &|_| 0.005)?;
                outcome::keep(&folder.join("outcome"), &places.outcome(number))?;
                outcome
            }
        };
        let outcome = Outcome {
            head: head.clone(),
            ..outcome
        };
        outcome::tell(&places.outcome(number), &outcome)?;
        let margin = |meter| self.workspace.config.margin(meter);
        let (outcome, attribution) = outcome::read(&places.outcome(number), &margin)?;
        let notice = Notice {
            attribution: attribution.as_ref(),
            failures: &outcome.failures,
            subject: Subject {
                head,
                ..Subject::default()
            },
            ..Notice::default()
        };
        let found = self.find(client, number)?;
        let posted = forge::post(client, &self.posting(), &found, &notice, progress)?;
        Ok((JobState::Done, posted.title))
    }

    fn why(&self, queue: &Queue, id: i64) -> Result<String> {
        let (_, past) = queue.list(super::serve::PAST)?;
        let job = past.into_iter().find(|job| job.id == id);
        Ok(job.map_or_else(|| "it is not wanted any more".to_owned(), |job| job.result))
    }
}
