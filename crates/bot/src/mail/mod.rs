//! Series of patches that arrive as mails: each version of a series is a pull request of the bot, whose commits the bot makes of
//! the mails, and the answer in its thread is the pull request's comment.

mod answer;
mod letter;
mod mailbox;
mod thread;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::bot::{Bot, BotThread, catch_panics, in_one_line};
use super::command::Command;
use super::fetch;
use super::serve::now;
use answer::MailForge;
use letter::Letter;
use mailbox::MailedSeries;
use perfquilt_config::RepositoryKind;
use perfquilt_forge::{Forge, Repository};
use perfquilt_import::{commit_mails, read_inbox};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::failure::Failure;
use perfquilt_model::progress;
use perfquilt_model::warning::Warning;
use perfquilt_results::outcome::{self, OutcomePart, RunStart};
use perfquilt_store::queue::{NewJob, QueueChange, ReceivedDelivery};
use perfquilt_system::files::write_file;
use perfquilt_system::{git::Git, process};
use thread::{MailGroup, groups};

pub use mailbox::Mailbox;

/// The maximum size of a mail, in bytes.
const MAX_MAIL_BYTES: u64 = 4 << 20;
/// Seconds of a day.
const DAY: i64 = 24 * 60 * 60;

impl Mailbox {
    /// Returns the series as pull requests of a repository.
    pub fn forge(self: &Arc<Self>, repository: &Repository) -> Box<dyn Forge> {
        Box::new(MailForge {
            repository: repository.clone(),
            mailbox: Arc::clone(self),
        })
    }

    /// Reads the mails that are new in the inbox.
    fn read(&self) -> Result<()> {
        let days = i64::from(self.settings.days) * DAY;
        let mut position = self.with(|state| state.position.clone());
        let before = position.clone();
        let mut letters = Vec::new();
        let known = |it: (&String, &Letter)| (it.0.clone(), it.1.allowed);
        let mut known: BTreeMap<_, _> =
            self.with(|state| state.letters.iter().map(known).collect());
        let since = now() - days;
        let mut take = |place: &str, bytes: Option<Vec<u8>>| {
            let skipped = |why: &str| {
                let words = format!("the mail {place} is skipped: {why}");
                progress::warn(Warning::skipped_mail(words));
            };
            let Some(bytes) = bytes else {
                skipped("it is larger than 4 MiB; its series waits for a smaller one");
                return Ok(());
            };
            let read = catch_panics(|| Ok(Letter::read(&bytes, &self.settings, now())));
            match read.unwrap_or(Err("it cannot be parsed")) {
                Ok(Some(letter)) => {
                    // Of copies, the first one counts, unless a list broke its signature.
                    let is_allowed = known.get(&letter.id);
                    if is_allowed.is_none_or(|known| letter.allowed && !known) {
                        known.insert(letter.id.clone(), letter.allowed);
                        if letter.is_patch {
                            write_file(&self.letter_file(&letter.id), &bytes)?;
                        }
                        letters.push(letter);
                    }
                }
                Ok(None) => {}
                Err(why) => skipped(&format!("{why}; send it again with `git send-email`")),
            }
            Ok(())
        };
        read_inbox(&self.inbox, &mut position, since, MAX_MAIL_BYTES, &mut take)?;
        if position == before && letters.is_empty() {
            return Ok(());
        }
        self.change(|state| {
            state.position = position;
            let new = letters
                .into_iter()
                .map(|letter| (letter.id.clone(), letter));
            state.letters.extend(new);
            let is_old = |_: &String, letter: &mut Letter| letter.arrived < now() - days;
            for (id, _) in state.letters.extract_if(.., is_old) {
                // A file that stays is harmless.
                let _ = std::fs::remove_file(self.letter_file(&id));
            }
        })
    }

    /// Returns the groups of mails that are no series yet, later versions first.
    fn new_groups(&self) -> Vec<MailGroup> {
        self.with(|state| {
            let mut groups = groups(&state.letters);
            let keys = state.series.values().map(|it| &it.group.key);
            let known: BTreeSet<&String> = keys.collect();
            groups.retain(|group| !known.contains(&group.key));
            groups.sort_by_key(|group| (Reverse(group.version), group.arrived()));
            groups
        })
    }

    /// Makes commits of the mails of a group; returns the one that they apply to, and the last one.
    fn commit(&self, bot: &Bot, group: &MailGroup) -> Result<(String, String)> {
        let ws = &bot.workspace;
        let remote = fetch::Remote {
            url: self.remote.clone(),
            settings: fetch::settings_file(ws),
        };
        let store = self.commits();
        let git = fetch::fetch_branches(&store, &remote)?;
        let branch = &self.settings.branch;
        let base = match group.base()? {
            Some(base) => {
                let contains = format!("--contains={base}");
                let list = ["for-each-ref", "--count=1", &contains, "refs/upstream"];
                // It fails for a commit that is not there.
                if git.ok(&list).unwrap_or_default().is_empty() {
                    return Err(Error::mail_base(format!("no branch has the base commit {base}"))
                        .hint("rebase the series on a branch of the repository, and send it again with `git format-patch --base=auto`"));
                }
                base
            }
            None => {
                let name = format!("refs/upstream/{branch}^{{commit}}");
                git.ok(&["rev-parse", "--verify", &name]).map_err(|_| {
                    Error::bot_settings(format!("the repository has no branch `{branch}`"))
                        .at(perfquilt_config::CONFIG_FILE, None)
                        .hint("`branch` in [bot.mail] names the branch for series without a base commit")
                        .transient()
                })?
            }
        };
        let folder =
            tempfile::tempdir().map_err(|e| Error::io("make", &std::env::temp_dir(), &e))?;
        for (number, letter) in group.patches().enumerate() {
            let from = self.letter_file(&letter.id);
            let mail = std::fs::read(&from).map_err(|e| Error::io("read", &from, &e))?;
            write_file(&folder.path().join(format!("new/{number:04}")), &mail)?;
        }
        let read = folder.path().join("cur");
        std::fs::create_dir_all(&read).map_err(|e| Error::io("make", &read, &e))?;
        let head = commit_mails(&store, &base, folder.path(), group.patches().count());
        let unusable = "send each patch as the text of its mail, unchanged (`git send-email`), not as an attachment";
        let head = head.map_err(|error| match (error.kind(), error.code().number) {
            // The hunks, and what is there already.
            (Kind::Series, 314..=317) => error.hint(format!(
                "rebase the series on {base}, or name the commit that it is for (`git format-patch --base=auto`), and send it as a new version"
            )),
            (Kind::Series, _) => error.hint(unusable),
            (Kind::Usage, _) => Error::mail_series(error.to_string())
                .details(error.detail_lines().to_vec())
                .hint(unusable),
            _ => error,
        })?;
        if ws.config.bot.kind == RepositoryKind::Series {
            let files = ws.config.series_of(None)?;
            let paths = [&files.file, &files.patches].map(|path| path.display().to_string());
            let diff = ["diff-tree", "-r", "--name-only", &base, &head, "--"];
            if git
                .ok(&[&diff[..], &[&paths[0], &paths[1]]].concat())?
                .is_empty()
            {
                return Err(Error::mail_series(format!(
                    "the mails change neither `{}` nor `{}/`",
                    paths[0], paths[1]
                ))
                .hint("this bot takes changes of a series; patches to the server itself need `kind = \"fork\"` in its configuration"));
            }
        }
        Ok((base, head))
    }
}

impl Bot {
    /// Reads the mails, queues the series that are complete, and answers those that ended. Returns whether it queued a job.
    ///
    /// # Errors
    /// [`Kind::Usage`] when the inbox cannot be read; [`Kind::Interrupted`].
    pub fn read_mail(&self, mailbox: &Mailbox) -> Result<bool> {
        mailbox.read()?;
        let thread = self.thread()?;
        let mut waiting = BTreeSet::new();
        for group in mailbox.new_groups() {
            let taken = thread.take_group(mailbox, &group);
            if thread.warn(taken)? == Some(true) {
                let Letter {
                    subject, from, id, ..
                } = group.first();
                if !mailbox.with(|state| state.waiting.contains(&group.key)) {
                    progress::note(&format!(
                        "{subject} ({from}, <{id}>) waits until one of `senders` replies `perfquilt: measure`"
                    ));
                }
                waiting.insert(group.key);
            }
        }
        if mailbox.with(|state| state.waiting != waiting) {
            mailbox.change(|state| state.waiting = waiting)?;
        }
        // Nobody sees reactions.
        while let Some(reply) = thread.queue.next_reply(i64::MAX, &BTreeSet::new(), false)? {
            thread.queue.remove_reply(reply.id)?;
        }
        let mut queued = false;
        for (number, series) in mailbox.with(|state| state.series.clone()) {
            if !series.sent {
                queued |= thread
                    .warn(thread.advance(mailbox, number, &series))?
                    .unwrap_or(false);
            }
        }
        Ok(queued)
    }

    /// Does what [`Bot::read_mail`] does until a signal asks to stop, every `poll_seconds`.
    pub fn follow_mail(&self, mailbox: &Mailbox) -> Result<()> {
        let pause = Duration::from_secs(self.workspace.config.bot.poll_seconds.into());
        while !process::interrupted() {
            match self.read_mail(mailbox) {
                Err(error) if error.kind() == Kind::Interrupted => break,
                Err(error) => progress::warn(in_one_line(&error)),
                Ok(_) => {}
            }
            if process::sleep(pause).is_err() {
                break;
            }
        }
        Ok(())
    }
}

impl BotThread<'_> {
    /// Reports an error, after which the next look tries again; returns an interruption.
    fn warn<T>(&self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == Kind::Interrupted => Err(error),
            Err(error) => {
                progress::warn(in_one_line(&error));
                Ok(None)
            }
        }
    }

    /// Makes a series of a group of mails, if nothing is missing any more. Returns whether it waits for an approval.
    fn take_group(&self, mailbox: &Mailbox, group: &MailGroup) -> Result<bool> {
        let first = group.first();
        let waits = i64::from(mailbox.settings.wait_minutes) * 60;
        let (is_complete, is_approved, later) = mailbox.with(|state| {
            let later = state.series.values().find(|it| {
                it.is_current()
                    && it.group.version > group.version
                    && group.is_version_of(&it.group)
            });
            (
                group.is_complete(&state.letters),
                first.allowed || group.approved_by(&state.letters).is_some(),
                later.map(|it| it.group.version),
            )
        });
        if !is_complete && now() - group.arrived() < waits {
            return Ok(false);
        }
        if !is_approved {
            return Ok(true);
        }
        let mut series = MailedSeries {
            group: group.clone(),
            base: String::new(),
            head: group.key.clone(),
            failure: None,
            superseded_by: later,
            answer: None,
            // Nobody was promised an answer.
            sent: later.is_some(),
        };
        if later.is_none() {
            match self.assemble(mailbox, group)? {
                Ok((base, head)) => (series.base, series.head) = (base, head),
                Err(refused) => series.failure = Some(Failure::new(&refused, None)),
            }
        }
        mailbox.change(|state| {
            let number = state.series.keys().next_back().map_or(1, |last| last + 1);
            let mut words = format!("series {number}: {}", first.subject);
            if let Some(later) = later {
                words += &format!(": not measured, since version {later} is there");
            }
            for (old, it) in &mut state.series {
                let is_older = it.is_current() && it.group.version < group.version;
                if is_older && series.is_current() && group.is_version_of(&it.group) {
                    it.superseded_by = Some(group.version);
                    words += &format!(", in place of series {old}");
                }
            }
            progress::note(&words);
            state.series.insert(number, series);
        })?;
        Ok(false)
    }

    /// Makes commits of the mails of a group: returns the one that they apply to and the last one, or why there are none.
    /// Errors that may pass are the function's.
    fn assemble(&self, mailbox: &Mailbox, group: &MailGroup) -> Result<Result<(String, String)>> {
        let made = catch_panics(|| {
            group.check()?;
            mailbox.commit(self.bot, group)
        });
        match made {
            Err(error) if error.is_transient() || error.kind() != Kind::Series => Err(error),
            made => Ok(made),
        }
    }

    /// Does what is next for a series: queues or cancels its job, or answers. Returns whether it queued a job.
    fn advance(&self, mailbox: &Mailbox, number: u64, series: &MailedSeries) -> Result<bool> {
        let bot = self.bot;
        let by = mailbox.with(|state| series.group.approved_by(&state.letters));
        if let Some(version) = series.superseded_by {
            let cancel = QueueChange::Cancel {
                newer: None,
                why: format!("version {version} of the series took its place"),
            };
            self.queue.change(number, &cancel, now())?;
            if self.queue.last_ended(number)?.is_none() {
                // Nobody was promised an answer.
                mailbox.change_series(number, |series| series.sent = true)?;
                return Ok(false);
            }
        } else if series.failure.is_none() {
            let git = Git::isolated(Path::new(&self.forge.git_url()));
            for (name, commit) in [
                (format!("refs/heads/{number}"), &series.base),
                (format!("refs/pull/{number}/head"), &series.head),
            ] {
                git.ok(&["update-ref", &name, commit])?;
            }
            if let Some(by) = &by {
                self.queue.approve_ahead(number, &series.head, by, now())?;
            }
            let job = NewJob {
                head: series.head.clone(),
                command: Command::Run { preset: None }.to_string(),
                asked_by: by
                    .clone()
                    .unwrap_or_else(|| series.group.first().from.clone()),
                trusted: series.group.first().allowed,
            };
            // Whatever ends this program here, the queue takes it once.
            let delivery = ReceivedDelivery {
                id: format!("mail-{}", series.group.key),
                body_digest: format!("mail-{}", series.group.key),
                number,
                changes: vec![QueueChange::Add(job)],
            };
            if self.queue.apply_deliveries(&[delivery], now())? == [true] {
                return Ok(true);
            }
        }
        let found = self.find_pull_request(number)?;
        if let Some(failure) = &series.failure {
            let start = RunStart {
                head: found.head.clone(),
                began: jiff::Timestamp::now().to_string(),
                ..RunStart::default()
            };
            let stored = bot.outcome(number);
            let failures = vec![failure.clone()];
            outcome::update(&stored, &start, failures, OutcomePart::Run(None))?;
        }
        if bot.pending_approval(number)?.is_some() {
            let Some(by) = by else {
                progress::note(&format!(
                    "series {number} changes files that control the build: another one of `senders` has to reply `perfquilt: measure`"
                ));
                return Ok(false);
            };
            let approval = QueueChange::Approve {
                commit: series.head.clone(),
                by,
                comment: 0,
            };
            self.queue.change(number, &approval, now())?;
            return Ok(true);
        }
        self.update_comment(&found, None, false)?;
        Ok(false)
    }
}
