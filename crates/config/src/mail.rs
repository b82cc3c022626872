//! `[bot.mail]`: settings of `perfquilt bot mail`.

use std::path::PathBuf;

use serde::Deserialize;

use super::document::Document;
use perfquilt_model::error::Result;

/// `[bot.mail]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mail {
    /// The Maildir or public-inbox (version 1 or 2) to read, relative to the workspace. The bot never writes there. Required.
    pub inbox: PathBuf,
    /// The bot's address, as `NAME <ADDRESS>` or the address alone. Required.
    pub from: String,
    /// Addresses, or `@DOMAIN` for all of a domain: the bot measures their series, and they approve those of others.
    pub senders: Vec<String>,
    /// The name that your mail server gives itself in `Authentication-Results`. A sender counts if the topmost of its fields
    /// says that a DKIM signature of the sender's domain is valid.
    pub authserv_id: Option<String>,
    /// Believe `From` without `authserv_id`, although everybody can write anything there.
    pub trust_from: bool,
    /// Addresses that get a copy of every answer, such as the list's. Other recipients of a series get none.
    pub cc: Vec<String>,
    /// The program that sends an answer, with its arguments, which reads the mail and the recipients in it; by default
    /// `["/usr/sbin/sendmail", "-t", "-i"]`.
    pub sendmail: Vec<String>,
    /// A Maildir for the answers, relative to the workspace, instead of `sendmail`.
    pub maildir: Option<PathBuf>,
    /// The branch of `remote` for series that name no `base-commit`.
    pub branch: String,
    /// Minutes to wait for missing mails of a series.
    pub wait_minutes: u32,
    /// Days after which the bot forgets a mail. On its first look at a public-inbox, it reads those of so many days.
    pub days: u32,
}

impl Default for Mail {
    fn default() -> Self {
        Mail {
            inbox: PathBuf::new(),
            from: String::new(),
            senders: Vec::new(),
            authserv_id: None,
            trust_from: false,
            cc: Vec::new(),
            sendmail: Vec::new(),
            maildir: None,
            branch: "main".to_owned(),
            wait_minutes: 60,
            days: 14,
        }
    }
}

impl Mail {
    pub(super) fn check(&self, document: &Document) -> Result<()> {
        let wrong = |key: &str, fault: String| Err(document.error(&["bot", "mail", key], fault));
        if self.inbox.as_os_str().is_empty() {
            return wrong("inbox", "`inbox` is missing in [bot.mail]".to_owned());
        }
        for (key, address) in std::iter::once(("from", self.address()))
            .chain(self.cc.iter().map(|address| ("cc", address.as_str())))
        {
            let plain = |b: u8| b.is_ascii_graphic() && !b"<>(),;:\\\"[]".contains(&b);
            let parts = address.split_once('@');
            if !parts.is_some_and(|(user, host)| !user.is_empty() && !host.is_empty())
                || !address.bytes().all(plain)
            {
                return wrong(key, format!("`{address}` in `{key}` is no mail address"));
            }
        }
        if !self.from.bytes().all(|b| (b' '..=b'~').contains(&b)) {
            let fault = "`from` has more than printable ASCII characters";
            return wrong("from", format!("{fault}: encode the name as RFC 2047 says"));
        }
        if self.authserv_id.is_none() && !self.trust_from {
            let fault = "`authserv_id` is missing in [bot.mail]".to_owned();
            let hint = "name your mail server as its fields `Authentication-Results` do, or believe every `From` with `trust_from = true`";
            return wrong("senders", fault).map_err(|error| error.hint(hint));
        }
        Ok(())
    }

    /// Returns the address in `from`.
    pub fn address(&self) -> &str {
        let inner = self
            .from
            .split_once('<')
            .and_then(|(_, rest)| rest.strip_suffix('>'));
        inner.unwrap_or(&self.from)
    }
}
