//! Mails as a forge: a series is a pull request, and the one answer to it its comment.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mail_builder::MessageBuilder;
use mail_builder::headers::content_type::ContentType;
use mail_builder::headers::raw::Raw;
use mail_builder::mime::{BodyPart, MimePart};

use super::mailbox::{Mailbox, MailedSeries};
use perfquilt_forge::{CreatedComment, Forge, ForgeComment, PullRequest, Repository, Target};
use perfquilt_model::error::{Error, Result};
use perfquilt_system::files::write_file;
use perfquilt_system::process::Command;

/// The width of answers, in columns.
const COLUMNS: usize = 72;
/// The maximum size of an answer, in bytes: lists hold back longer mails.
const MAX_BYTES: usize = 32 << 10;
/// The time for handing an answer to the program that sends it.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The program that sends answers, unless the configuration names another.
const SENDMAIL: [&str; 3] = ["/usr/sbin/sendmail", "-t", "-i"];

/// The series of a mailbox as the pull requests of a forge.
pub(crate) struct MailForge {
    pub(super) repository: Repository,
    pub(super) mailbox: Arc<Mailbox>,
}

impl Forge for MailForge {
    fn repository(&self) -> &Repository {
        &self.repository
    }

    fn git_url(&self) -> String {
        self.mailbox.commits().display().to_string()
    }

    fn max_comment_bytes(&self) -> usize {
        MAX_BYTES
    }

    fn columns(&self) -> Option<usize> {
        Some(COLUMNS)
    }

    fn login(&self) -> Result<String> {
        Ok(self.mailbox.settings.address().to_owned())
    }

    fn find(&self, target: &Target) -> Result<PullRequest> {
        let number = target.number.unwrap_or(0);
        let series = self.mailbox.series(number)?;
        Ok(PullRequest {
            number,
            branch: number.to_string(),
            reference: format!("refs/pull/{number}/head"),
            open: !series.sent && series.superseded_by.is_none(),
            base: series.base,
            head: series.head,
        })
    }

    fn comments(&self, number: u64) -> Result<Vec<ForgeComment>> {
        let series = self.mailbox.series(number)?;
        let answer = series.answer.clone().filter(|_| series.sent);
        let answer = answer.map(|body| ForgeComment {
            id: 1,
            author: Some(self.mailbox.settings.address().to_owned()),
            body,
            url: message_id(&self.mailbox, &series),
        });
        Ok(answer.into_iter().collect())
    }

    fn comment(&self, number: u64, _id: u64) -> Result<Option<ForgeComment>> {
        Ok(self.comments(number)?.pop())
    }

    fn may_set_status(&self) -> bool {
        false
    }

    fn create_comment(&self, number: u64, body: &str, _attempt: u32) -> Result<CreatedComment> {
        let mailbox = &self.mailbox;
        let series = mailbox.series(number)?;
        let file = mailbox.answer_file(number);
        // One that a killed bot wrote may be on its way: the same mail goes again, not another one.
        if series.answer.is_none() {
            write_file(&file, &compose(mailbox, &series, body)?)?;
            mailbox.change_series(number, |series| series.answer = Some(body.to_owned()))?;
        }
        let mail = std::fs::read(&file).map_err(|e| Error::io("read", &file, &e))?;
        match &mailbox.maildir {
            Some(maildir) => deliver(maildir, &series.group.key, &mail)?,
            None if mailbox.settings.sendmail.is_empty() => {
                send(&SENDMAIL.map(str::to_owned), &mail)?;
            }
            None => send(&mailbox.settings.sendmail, &mail)?,
        }
        mailbox.change_series(number, |series| series.sent = true)?;
        let sent = self.comment(number, 1)?;
        sent.map(CreatedComment::Done)
            .ok_or_else(|| Error::internal("the answer is not noted"))
    }

    // A mail that was sent stays as it is.
    fn update_comment(&self, _number: u64, _id: u64, _body: &str) -> Result<bool> {
        Ok(true)
    }

    fn delete_comment(&self, _number: u64, _id: u64) -> Result<bool> {
        Ok(false)
    }

    fn react(&self, _number: u64, _comment: u64, _reaction: &str) -> Result<()> {
        Ok(())
    }
}

/// Returns the Message-ID of the answer to a series, which is the same whenever it is written.
fn message_id(mailbox: &Mailbox, series: &MailedSeries) -> String {
    let address = mailbox.settings.address();
    let host = address.rsplit_once('@').map_or("", |(_, host)| host);
    format!("perfquilt.{}@{host}", series.group.key)
}

/// Writes the answer to a series, of which `body` is the text below the mark.
fn compose(mailbox: &Mailbox, series: &MailedSeries, body: &str) -> Result<Vec<u8>> {
    let settings = &mailbox.settings;
    let (_mark, text) = body.split_once('\n').unwrap_or_default();
    let mut references = series.group.first().references.clone();
    references.reverse();
    references.push(series.group.first().id.clone());
    let kind = ContentType::new("text/plain")
        .attribute("charset", "utf-8")
        .attribute("format", "fixed");
    let mut mail = MessageBuilder::new()
        .header("From", Raw::new(settings.from.as_str()))
        .to(series.group.first().from.as_str())
        .subject(format!("Re: {}", series.group.first().subject))
        .message_id(message_id(mailbox, series))
        .in_reply_to(series.group.first().id.as_str())
        .references(references)
        .header("Auto-Submitted", Raw::new("auto-replied"))
        .body(MimePart::new(kind, BodyPart::Text(text.into())).transfer_encoding("8bit"));
    if !settings.cc.is_empty() {
        mail = mail.cc(settings.cc.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let mail = mail.write_to_string();
    let mail = mail.map_err(|error| Error::internal(format!("cannot write a mail: {error}")))?;
    Ok(mail.replace("\r\n", "\n").into_bytes())
}

/// Puts a mail into a Maildir under a name of its `key`; does nothing if it is there.
fn deliver(maildir: &Path, key: &str, mail: &[u8]) -> Result<()> {
    let name = format!("perfquilt.{key}");
    for folder in ["cur", "new"].map(|folder| maildir.join(folder)) {
        std::fs::create_dir_all(&folder).map_err(|e| Error::io("create", &folder, &e))?;
        let entries = std::fs::read_dir(&folder).map_err(|e| Error::io("read", &folder, &e))?;
        let mut names = entries.flatten().map(|entry| entry.file_name());
        // Whoever has read it adds flags behind a colon.
        if names.any(|there| there.to_string_lossy().split(':').next() == Some(&name)) {
            return Ok(());
        }
    }
    let (from, to) = (
        maildir.join("tmp").join(&name),
        maildir.join("new").join(&name),
    );
    write_file(&from, mail)?;
    std::fs::rename(&from, &to).map_err(|e| Error::io("deliver", &to, &e))
}

/// Hands a mail to the program `words`.
fn send(words: &[String], mail: &[u8]) -> Result<()> {
    let command = Command::from_words(words)?.network().stdin(mail);
    let output = command.run_within(TIMEOUT)?;
    if output.success() {
        return Ok(());
    }
    let fault = format!(
        "`{}` did not take the answer: it ended with {}",
        words.join(" "),
        output.describe_exit()
    );
    let error = Error::mail_not_sent(fault).details(output.tail(3));
    Err(error
        .hint("the bot hands it over again; `sendmail` in [bot.mail] names the program")
        .transient())
}
