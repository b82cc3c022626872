//! What the bot knows of the mails: those that it read, the series that they make, and the answers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use super::letter::{Letter, digest};
use super::thread::MailGroup;
use crate::fetch::repository;
use crate::paths::BotPaths;
use perfquilt_config::Mail;
use perfquilt_config::workspace::Workspace;
use perfquilt_import::InboxPosition;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::failure::Failure;
use perfquilt_system::digest::{check, sealed};
use perfquilt_system::files::{if_there, write_file};
use perfquilt_system::threads::lock;

/// A series that was taken from the mails.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct MailedSeries {
    /// Its mails.
    pub group: MailGroup,
    /// The commit that it applies to; empty for a series without commits.
    pub base: String,
    /// Its last commit, else a digest.
    pub head: String,
    /// Why there is nothing to measure.
    pub failure: Option<Failure>,
    /// The later version that took its place.
    pub superseded_by: Option<u32>,
    /// The text of the answer, with its mark, from before it is sent.
    pub answer: Option<String>,
    /// Whether it was sent.
    pub sent: bool,
}

impl MailedSeries {
    /// Returns whether it is measured, or will be.
    pub(super) fn is_current(&self) -> bool {
        !self.sent && self.failure.is_none() && self.superseded_by.is_none()
    }
}

/// What is kept in the file.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct MailState {
    /// What was read of the inbox.
    pub position: InboxPosition,
    /// The mails that arrived lately, by Message-ID.
    pub letters: BTreeMap<String, Letter>,
    /// The keys of groups that wait for an approval, of which the log tells once.
    pub waiting: BTreeSet<String>,
    /// The series, by number. None is removed: the copy of an old mail makes no new one.
    pub series: BTreeMap<u64, MailedSeries>,
}

/// The mails, with the settings for them.
#[derive(Debug)]
pub struct Mailbox {
    pub(super) settings: Mail,
    pub(super) inbox: PathBuf,
    pub(super) maildir: Option<PathBuf>,
    /// The git remote with the commits that series apply to.
    pub(super) remote: String,
    folder: PathBuf,
    state: Mutex<MailState>,
}

impl Mailbox {
    /// Opens the mailbox of a workspace, whose bot then fetches pull requests from the mailbox's own repository.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when the configuration has no `[bot.mail]` or no `remote`.
    pub fn open(ws: &mut Workspace) -> Result<Self> {
        let missing = |what: &str| {
            Error::section_missing(format!("{what} is missing for `perfquilt bot mail`"))
                .at(perfquilt_config::CONFIG_FILE, None)
                .hint("docs/mail.md has an example")
        };
        let bot = &ws.config.bot;
        let settings = bot.mail.clone().ok_or_else(|| missing("[bot.mail]"))?;
        if bot.forge.as_deref() != Some("mail") {
            return Err(missing("`forge = \"mail\"` in [bot]"));
        }
        let remote = bot
            .remote
            .clone()
            .ok_or_else(|| missing("`remote` in [bot]"))?;
        let folder = BotPaths::new(ws).root().join("mail");
        let mailbox = Mailbox {
            inbox: ws.root().join(&settings.inbox),
            maildir: settings.maildir.as_ref().map(|path| ws.root().join(path)),
            settings,
            remote,
            folder,
            state: Mutex::default(),
        };
        ws.config.bot.remote = Some(mailbox.commits().display().to_string());
        Ok(mailbox)
    }

    /// Reads what is kept. Only the bot that has locked the workspace may do this.
    pub fn load(&self) -> Result<()> {
        let file = self.folder.join("state.json");
        let text = if_there("read", &file, std::fs::read(&file))?;
        let damaged = |error: &dyn std::fmt::Display| {
            Error::state_damaged(format!("the file of the mails is damaged: {error}"))
                .at(&file, None)
                .hint("restore it; without it, the bot answers the mails of the last days again")
        };
        let read = |text: Vec<u8>| {
            check(&text).map_err(|error| damaged(&error))?;
            serde_json::from_slice(&text).map_err(|error| damaged(&error))
        };
        let state = text.map(read).transpose()?;
        *lock(&self.state) = state.unwrap_or_default();
        repository(&self.commits())?;
        // Those of a killed git.
        remove_locks(&self.commits().join("refs"))
    }

    /// The repository with the commits of all series and those that they apply to.
    pub(super) fn commits(&self) -> PathBuf {
        self.folder.join("commits.git")
    }

    /// The file of a mail of a series.
    pub(super) fn letter_file(&self, id: &str) -> PathBuf {
        self.folder.join("letters").join(digest(id))
    }

    /// The file of an answer.
    pub(super) fn answer_file(&self, number: u64) -> PathBuf {
        self.folder.join("answers").join(number.to_string())
    }

    /// Reads the state.
    pub(super) fn with<T>(&self, read: impl FnOnce(&MailState) -> T) -> T {
        read(&lock(&self.state))
    }

    /// Changes the state, and writes it before anything else happens.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut MailState) -> T) -> Result<T> {
        let mut state = lock(&self.state);
        let result = change(&mut state);
        let text = serde_json::to_vec(&*state).map_err(Error::json)?;
        write_file(&self.folder.join("state.json"), &sealed(&text))?;
        Ok(result)
    }

    /// Changes a series, as [`Mailbox::change`] does.
    pub(super) fn change_series(
        &self,
        number: u64,
        change: impl FnOnce(&mut MailedSeries),
    ) -> Result<()> {
        self.change(|state| state.series.get_mut(&number).map(change))
            .map(drop)
    }

    pub(super) fn series(&self, number: u64) -> Result<MailedSeries> {
        let found = self.with(|state| state.series.get(&number).cloned());
        found.ok_or_else(|| Error::pull_request(format!("there is no series {number}")))
    }
}

/// Removes the lock files of references below `folder`.
fn remove_locks(folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder).map_err(|e| Error::io("read", folder, &e))? {
        let path = entry.map_err(|e| Error::io("read", folder, &e))?.path();
        if path.is_dir() {
            remove_locks(&path)?;
        } else if path.extension().is_some_and(|end| end == "lock") {
            perfquilt_system::caches::remove_file(&path)?;
        }
    }
    Ok(())
}
