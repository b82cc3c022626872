//! A mail, as far as the bot acts on it.

use mail_parser::{HeaderName, HeaderValue, Message, MessageParser};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use perfquilt_config::Mail;
use perfquilt_forge::is_commit;
use perfquilt_import::{Numbered, parse_subject};

/// The line that approves a series, in a reply to it.
const APPROVAL: &str = "perfquilt: measure";
/// The maximum length of a header's text that is kept, in characters.
const MAX_TEXT: usize = 200;
/// The maximum number of references of a mail that count, the nearest first.
const MAX_REFERENCES: usize = 100;

/// A mail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Letter {
    /// Its Message-ID, without angle brackets.
    pub id: String,
    /// The mails it refers to, the nearest first.
    pub references: Vec<String>,
    /// The address of its author in lower case.
    pub from: String,
    /// Whether its author may have patches measured.
    pub allowed: bool,
    /// Its subject, in one line.
    pub subject: String,
    /// The subject without tags.
    pub title: String,
    /// Whether it is a mail of a series of patches.
    pub is_patch: bool,
    /// Its number in the series; `None` for a patch alone.
    pub number: Option<usize>,
    /// The number of patches of the series.
    pub total: usize,
    /// The version of the series, if its subject has one.
    pub version: Option<u32>,
    /// The commits that it names as `base-commit`.
    pub bases: Vec<String>,
    /// Whether it approves the series that it replies to.
    pub approves: bool,
    /// When the bot read it, in seconds since 1970. Its own date can be anything.
    pub arrived: i64,
}

impl Letter {
    /// Reads a mail that arrived at the time `arrived`; `None` for one of a program, or of this bot: answering could make a loop. The
    /// error is the reason why nobody can be answered.
    pub(super) fn read(
        bytes: &[u8],
        settings: &Mail,
        arrived: i64,
    ) -> Result<Option<Self>, &'static str> {
        let parsed = MessageParser::default().parse(bytes);
        let mail = parsed.ok_or("it has no header")?;
        let id = mail.message_id().filter(|id| is_id(id));
        let id = id.ok_or("it has no Message-ID")?;
        let from = mail.from().and_then(|from| from.first()?.address());
        let from = from.unwrap_or_default().to_ascii_lowercase();
        // Of several, the signature may be of another one than is shown.
        let is_from = |(name, _): &(&str, &str)| name.eq_ignore_ascii_case("from");
        let fields = mail.headers_raw().filter(is_from).count();
        let people = mail.from().map_or(0, |from| from.iter().count());
        // It stands in the answer, whose reader may know groups and comments.
        let is_plain = is_id(&from) && !from.contains(['(', ')', ':', ';', '"', '\\', '[', ']']);
        if !is_plain || (fields, people) != (1, 1) {
            return Err("it does not have one sender");
        }
        if is_automatic(&mail) || from == settings.address().to_ascii_lowercase() {
            return Ok(None);
        }
        let subject = one_line(mail.subject().unwrap_or_default());
        let parsed = parse_subject(&subject);
        let mut references = ids(mail.references());
        references.reverse();
        references.splice(0..0, ids(mail.in_reply_to()));
        let mut known = std::collections::BTreeSet::new();
        references.retain(|id| known.insert(id.clone()));
        references.truncate(MAX_REFERENCES);
        let text = mail.body_text(0).unwrap_or_default();
        let mut bases: Vec<String> = text
            .lines()
            .filter_map(|line| line.trim_end().strip_prefix("base-commit: "))
            .filter(|commit| is_commit(commit))
            .map(str::to_ascii_lowercase)
            .collect();
        bases.dedup();
        Ok(Some(Letter {
            id: id.to_owned(),
            references,
            allowed: is_allowed(&from, &mail, settings),
            from,
            is_patch: parsed.is_patch,
            number: parsed.number.map(|it| it.number),
            total: parsed.number.map_or(1, |Numbered { total, .. }| total),
            version: parsed.version,
            title: parsed.title,
            subject,
            bases,
            approves: text.lines().any(|line| line.trim_end() == APPROVAL),
            arrived,
        }))
    }
}

/// Returns the digest of a text, in hexadecimal digits.
pub(super) fn digest(text: &str) -> String {
    hex::encode(Sha256::digest(text))[..40].to_owned()
}

/// Returns whether `id` can stand in a header without ending it or beginning another.
fn is_id(id: &str) -> bool {
    let plain = |b: u8| b.is_ascii_graphic() && !b"<>,".contains(&b);
    (3..=MAX_TEXT).contains(&id.len()) && id.contains('@') && id.bytes().all(plain)
}

fn ids(value: &HeaderValue<'_>) -> Vec<String> {
    let all = match value {
        HeaderValue::Text(id) => std::slice::from_ref(id),
        HeaderValue::TextList(ids) => ids,
        _ => &[],
    };
    let usable = all.iter().filter(|id| is_id(id));
    usable.map(|id| id.clone().into_owned()).collect()
}

/// Returns a header's text in one line of limited length: encoded words may contain line ends.
fn one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join(" ").chars().take(MAX_TEXT).collect()
}

/// Returns whether a program wrote the mail ([RFC 3834](https://www.rfc-editor.org/rfc/rfc3834)). Lists mark what people
/// write with `Precedence: list` or `bulk`, too, so that counts only outside of lists.
fn is_automatic(mail: &Message<'_>) -> bool {
    let is = |name: &'static str, words: &[&str]| {
        let value = mail.header_raw(name).unwrap_or_default();
        let word = value.split([';', ' ']).find(|word| !word.trim().is_empty());
        let word = word.unwrap_or_default().trim();
        words.iter().any(|known| word.eq_ignore_ascii_case(known))
    };
    let submitted = mail.header_raw("Auto-Submitted");
    let of_list = mail.header_raw("List-Id").is_some() || mail.header_raw("List-Post").is_some();
    let report = mail.header_raw("Content-Type").unwrap_or_default();
    (submitted.is_some() && !is("Auto-Submitted", &["no"]))
        || is("Precedence", &["junk", "auto_reply"])
        || (is("Precedence", &["bulk", "list"]) && !of_list)
        || is("Return-Path", &["<>"])
        || report
            .trim()
            .to_ascii_lowercase()
            .starts_with("multipart/report")
}

/// Returns whether the configuration names the sender, and the mail server says that the mail is of that domain.
fn is_allowed(from: &str, mail: &Message<'_>, settings: &Mail) -> bool {
    let domain = from.rsplit_once('@').map_or("", |(_, domain)| domain);
    let named = settings.senders.iter().any(|sender| {
        let sender = sender.to_ascii_lowercase();
        sender == from || sender.strip_prefix('@') == Some(domain)
    });
    let Some(server) = settings.authserv_id.as_deref() else {
        return named && settings.trust_from;
    };
    let results = mail.headers_raw().filter_map(|(name, value)| {
        let is_results = name.eq_ignore_ascii_case(HeaderName::AuthenticationResults.as_str());
        is_results.then(|| without_comments(value))
    });
    // What stands below may be the sender's own words.
    let own = results.into_iter().find(|value| {
        let first = value.split(';').next().unwrap_or_default();
        let name = first.split_whitespace().next().unwrap_or_default();
        name.eq_ignore_ascii_case(server)
    });
    named && own.is_some_and(|own| is_signed(&own, domain))
}

/// Returns whether the field has a valid signature of `domain`, or of a domain above it.
fn is_signed(results: &str, domain: &str) -> bool {
    results.split(';').skip(1).any(|result| {
        let result = result.to_ascii_lowercase();
        let mut words = result.split_whitespace();
        let passed = words.next() == Some("dkim=pass");
        passed
            && words.any(|word| {
                let signer = word.strip_prefix("header.d=");
                signer.is_some_and(|signer| {
                    let above = domain.strip_suffix(signer);
                    signer.contains('.')
                        && above.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
                })
            })
    })
}

/// Returns a field without comments, and without what is quoted, where a semicolon or a comment would be text.
fn without_comments(value: &str) -> String {
    let mut text = String::new();
    let (mut depth, mut quoted, mut escaped) = (0u32, false, false);
    for c in value.chars() {
        match c {
            _ if std::mem::take(&mut escaped) => continue,
            '\\' => escaped = true,
            '"' if depth == 0 => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted && depth > 0 => depth -= 1,
            _ if depth > 0 || quoted => {}
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Mail {
        Mail {
            inbox: "inbox".into(),
            from: "perfquilt <perf@example.org>".into(),
            senders: vec!["Dev@Example.org".into(), "@team.example.net".into()],
            authserv_id: Some("mx.example.org".into()),
            ..Mail::default()
        }
    }

    fn read(head: &str, text: &str) -> Option<Letter> {
        let mail = format!("Message-ID: <1@x>\n{head}\n\n{text}");
        Letter::read(mail.as_bytes(), &settings(), 7).unwrap()
    }

    fn patch(head: &str) -> Letter {
        read(&format!("From: dev@example.org\n{head}"), "text\n").unwrap()
    }

    #[test]
    fn only_a_signature_of_the_senders_domain_by_the_own_server_counts() {
        let of = |from: &str, fields: &[&str]| {
            let fields: String = fields
                .iter()
                .map(|field| format!("\nAuthentication-Results: {field}"))
                .collect();
            read(&format!("From: {from}{fields}"), "").unwrap().allowed
        };
        let dev = "A Dev <dev@example.org>";
        let pass = "mx.example.org; spf=fail; dkim=pass header.d=example.org header.s=k";
        assert!(of(dev, &[pass]));
        assert!(of(
            dev,
            &["MX.example.org 1;\n dkim=pass (1024 bit; good) header.i=@x header.d=EXAMPLE.org"]
        ));
        assert!(of(
            "x@team.example.net",
            &["mx.example.org; dkim=pass header.d=example.net"]
        ));
        // A forwarder's own signature stands beside the sender's.
        assert!(of(
            dev,
            &["mx.example.org; dkim=pass header.d=list.net; dkim=pass header.d=example.org"]
        ));
        for (from, fields) in [
            (dev, &[][..]),
            ("mallory@example.org", &[pass]),
            ("dev@example.org.evil.net", &[pass]),
            (dev, &["mx.evil.net; dkim=pass header.d=example.org"]),
            (dev, &["mx.example.org; dkim=fail header.d=example.org"]),
            (dev, &["mx.example.org; none", pass]),
            (dev, &["mx.example.org; dkim=pass header.d=evil.net"]),
            (dev, &["mx.example.org; dkim=pass header.d=org"]),
            (dev, &["mx.example.org; dkim=pass header.d=le.org"]),
            (
                dev,
                &["mx.example.org; dkim=none reason=\"; dkim=pass header.d=example.org\""],
            ),
            (
                dev,
                &["mx.example.org; dkim=none (; dkim=pass header.d=example.org ;)"],
            ),
            (
                dev,
                &["mx.example.org; dkim=pass header.i=@evil.net x.header.d=example.org"],
            ),
            ("\"dev@example.org\" <mallory@evil.net>", &[pass]),
        ] {
            assert!(!of(from, fields), "{from} {fields:?}");
        }
        let believing = Mail {
            authserv_id: None,
            trust_from: true,
            ..settings()
        };
        let mail = b"Message-ID: <1@x>\nFrom: dev@example.org\n\n";
        assert!(Letter::read(mail, &believing, 0).unwrap().unwrap().allowed);
    }

    #[test]
    fn programs_and_lists_are_told_apart() {
        for head in [
            "Auto-Submitted: auto-replied",
            "Auto-Submitted: auto-generated; x=y",
            "Precedence: bulk",
            "Precedence: junk\nList-Id: <x.example.org>",
            "Return-Path: <>",
            "Content-Type: multipart/report; boundary=x",
        ] {
            let found = read(&format!("From: dev@example.org\n{head}"), "");
            assert_eq!(found, None, "{head}");
        }
        assert_eq!(read("From: Perf@example.org", ""), None);
        for head in [
            "Auto-Submitted: no",
            "Precedence: bulk\nList-Id: <x.example.org>",
            "Precedence: list\nList-Post: <mailto:x@example.org>",
        ] {
            patch(head);
        }
        for mail in [
            "",
            "From: dev@example.org\nSubject: no id\n\n",
            "Message-ID: <a b@x>\nFrom: dev@example.org\n\n",
            "Message-ID: <1@x>\n\n",
            "Message-ID: <1@x>\nFrom: dev@example.org, other@example.org\n\n",
            "Message-ID: <1@x>\nFrom: dev@example.org\nSubject: x\nfrom: mallory@evil.net\n\n",
            "Message-ID: <1@x>\nFrom: <a;b@x>\n\n",
            "Message-ID: <1@x>\nFrom: =?utf-8?q?a=0D=0ABcc:_b?=\n\n",
        ] {
            let found = Letter::read(mail.as_bytes(), &settings(), 0);
            assert!(found.is_err(), "{mail:?}: {found:?}");
        }
    }

    #[test]
    fn subjects_are_one_line_and_replies_are_no_patches() {
        let found = patch("Subject: =?utf-8?q?=5BPATCH_v3_2/5=5D_a=0D=0ABcc:_victim@x?=");
        assert_eq!(found.subject, "[PATCH v3 2/5] a Bcc: victim@x");
        assert_eq!(
            (found.number, found.total, found.version),
            (Some(2), 5, Some(3))
        );
        assert!(found.is_patch);
        let long = patch(&format!("Subject: [PATCH] {}", "x".repeat(90_000)));
        assert_eq!(long.subject.chars().count(), MAX_TEXT);
        assert!(patch("Subject: [list] [PATCH] x").is_patch);
        for reply in [
            "Re: [PATCH 2/5] x",
            "[list] Re: [PATCH 2/5] x",
            "question",
            "[list] x",
        ] {
            assert!(!patch(&format!("Subject: {reply}")).is_patch, "{reply}");
        }
        let many: String = (0..10_000).map(|at| format!(" <{at}@x>")).collect();
        let found = patch(&format!("In-Reply-To: <p@x>\nReferences:{many}"));
        assert_eq!(found.references[..2], ["p@x", "9999@x"]);
        assert_eq!(found.references.len(), MAX_REFERENCES);
    }

    #[test]
    fn an_approval_is_a_line_of_its_own() {
        let approves = |text: &str| read("From: dev@example.org", text).unwrap().approves;
        assert!(approves(
            "Looks good.\r\n\r\nperfquilt: measure \r\n-- \r\nDev\r\n"
        ));
        for text in [
            "> perfquilt: measure",
            " perfquilt: measure",
            "please perfquilt: measure",
            "perfquilt: measure it",
            "",
        ] {
            assert!(!approves(text), "{text}");
        }
    }
}
