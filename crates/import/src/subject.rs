//! The subject of a mail with a patch: its number in a series, and the title without what mail programs add.

use perfquilt_series::series::is_patch_tag;

/// The number of a mail in a series of mails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbered {
    /// The number; 0 is the cover letter.
    pub number: usize,
    /// The number of patches.
    pub total: usize,
}

/// A subject, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The number in a series.
    pub number: Option<Numbered>,
    /// The version, from `[PATCH v2]`.
    pub version: Option<u32>,
    /// Whether a tag such as `[PATCH]` says that the mail has a patch or is a series' cover letter, and no `Re:` that it is
    /// a reply.
    pub is_patch: bool,
    /// The author's title. Tags such as `[core]` or `[JIRA-12]` are the author's words.
    pub title: String,
}

/// Parses subjects such as `[PATCH v2 3/20] title`, `[v2,3/20] title` (Patchwork), `Re: [PATCH 3 of 20] title`
/// (Mercurial), `(3/20) title` and `title (3/20)`.
pub fn parse_subject(subject: &str) -> Subject {
    let (mut is_reply, mut is_tagged) = (false, false);
    let mut number = None;
    let mut version = None;
    let mut rest = subject.trim();
    loop {
        let after_reply = without_reply(rest);
        if after_reply.len() < rest.len() {
            is_reply = true;
            rest = after_reply;
        } else if let Some((tag, after)) =
            bracketed(rest, '[', ']').filter(|(tag, _)| is_mail_tag(tag))
        {
            is_tagged = true;
            number = number.or_else(|| number_in(tag));
            version = version.or_else(|| words(tag).find_map(version_in));
            rest = after;
        } else if let Some((tag, after)) =
            bracketed(rest, '(', ')').filter(|(tag, _)| whole_number(tag).is_some())
        {
            number = number.or_else(|| whole_number(tag));
            rest = after;
        } else if let Some((found, after)) = bare_number(rest) {
            number = number.or(Some(found));
            rest = after;
        } else if let Some(after) = without_list(rest) {
            rest = after;
        } else {
            break;
        }
        rest = rest.trim_start_matches([':', ' ', '\t']);
    }
    let ending = rest
        .strip_suffix([')', ']'])
        .and_then(|text| text.rsplit_once(['(', '[']));
    if let Some((title, tag)) = ending
        && let Some(found) = whole_number(tag)
        && number.is_none()
        && !title.trim().is_empty()
    {
        number = Some(found);
        rest = title;
    }
    Subject {
        number,
        version,
        is_patch: is_tagged && !is_reply,
        title: rest.trim().to_owned(),
    }
}

/// Strips `Re:`, as git does.
fn without_reply(text: &str) -> &str {
    let reply = text
        .get(..3)
        .is_some_and(|start| start.eq_ignore_ascii_case("re:"));
    if reply { text[3..].trim_start() } else { text }
}

/// Strips the name of a mailing list: a tag before `[PATCH]`.
fn without_list(text: &str) -> Option<&str> {
    let (_, after) = bracketed(text, '[', ']')?;
    let (tag, _) = bracketed(without_reply(after), '[', ']')?;
    is_patch_tag(tag).then_some(after)
}

fn bracketed(text: &str, open: char, close: char) -> Option<(&str, &str)> {
    let (tag, after) = text.strip_prefix(open)?.split_once(close)?;
    (!after.trim().is_empty()).then(|| (tag, after.trim_start()))
}

/// Returns whether mail programs wrote a tag: it has the word PATCH, a number or a version, or nothing but such words.
fn is_mail_tag(tag: &str) -> bool {
    let is_version = |word: &str| {
        let digits = word.strip_prefix(['v', 'V']);
        digits.is_some_and(|it| !it.is_empty() && it.bytes().all(|b| b.is_ascii_digit()))
    };
    let is_kind = |word: &str| {
        ["RFC", "RESEND"].contains(&word) || word.strip_prefix("RFC").is_some_and(is_version)
    };
    is_patch_tag(tag)
        || number_in(tag).is_some()
        || words(tag).any(is_version)
        || words(tag).all(is_kind)
}

/// Returns the version in a word of a tag: `v2`, `PATCHv2`.
fn version_in(word: &str) -> Option<u32> {
    let digits = word.trim_start_matches(|c: char| !c.is_ascii_digit());
    let before = &word[..word.len() - digits.len()];
    before
        .ends_with(['v', 'V'])
        .then(|| digits.parse().ok())
        .flatten()
}

fn words(tag: &str) -> impl Iterator<Item = &str> {
    tag.split([' ', ',', '\t']).filter(|word| !word.is_empty())
}

/// Returns the number in a tag: `3/20`, or `3 of 20`.
fn number_in(tag: &str) -> Option<Numbered> {
    let words: Vec<&str> = words(tag).collect();
    let slashed = || words.iter().rev().find_map(|word| fraction(word));
    let mut spans = words
        .windows(3)
        .filter(|span| span[1].eq_ignore_ascii_case("of"));
    let spelled = spans.find_map(|span| numbered(span[0], span[2]));
    spelled.or_else(slashed)
}

fn whole_number(text: &str) -> Option<Numbered> {
    let is_whole = text
        .bytes()
        .all(|b| b.is_ascii_digit() || matches!(b, b'/' | b' '));
    is_whole.then(|| fraction(text)).flatten()
}

/// Parses `PATCH 3/20: title`, which has no brackets.
fn bare_number(text: &str) -> Option<(Numbered, &str)> {
    let rest = text.strip_prefix("PATCH ")?;
    let (tag, title) = rest.split_once([':', ' '])?;
    let title = title.trim_start_matches([':', ' ', '-']);
    Some((fraction(tag).filter(|_| !title.is_empty())?, title))
}

fn fraction(word: &str) -> Option<Numbered> {
    // Some forget the blank.
    let word = word.strip_prefix("PATCH").unwrap_or(word);
    let (number, total) = word.split_once('/')?;
    numbered(number.trim(), total.trim())
}

fn numbered(number: &str, total: &str) -> Option<Numbered> {
    let digits = |text: &str| -> Option<usize> {
        let is_number = (1..=5).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| text.parse().ok()).flatten()
    };
    let (number, total) = (digits(number)?, digits(total)?);
    (number <= total && total > 0).then_some(Numbered { number, total })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_usual_style_of_numbers() {
        for subject in [
            "[PATCH 2/13] a: b",
            "[PATCH2/13] a: b",
            "[PATCH v2 02/13] a: b",
            "[PATCHv2 2/13] a: b",
            "[RFC PATCH v3 2/13] a: b",
            "[RFC 2/13] a: b",
            "[PATCH net-next,v3 2/13] a: b",
            "[net-next,v3,2/13] a: b",
            "[v2,02/13] a: b",
            "[2/13] a: b",
            "[PATCH,v2,2/13] a: b",
            "[PATCH 2 of 13] a: b",
            "[PATCH 02 of 13 V2] a: b",
            "[PATCH] (2/13) a: b",
            "(2/13) a: b",
            "a: b (2/13)",
            "[PATCH] a: b [2/13]",
            "PATCH 2/13: a: b",
            "Re: [PATCH 2/13] a: b",
            "RE: Re: [2/13] a: b",
            "[list] [PATCH 2/13] a: b",
            "[list] Re: [PATCH 2/13] a: b",
        ] {
            let found = parse_subject(subject);
            let number = found.number.map(|it| (it.number, it.total));
            assert_eq!(
                (number, found.title.as_str()),
                (Some((2, 13)), "a: b"),
                "{subject}"
            );
        }
    }

    #[test]
    fn versions_are_in_tags() {
        for (subject, version) in [
            ("[PATCH v2 2/13] a", Some(2)),
            ("[PATCHv3 2/13] a", Some(3)),
            ("[net-next,v3,2/13] a", Some(3)),
            ("[PATCH 02 of 13 V2] a", Some(2)),
            ("[RFC v4] a", Some(4)),
            ("[PATCH 2/13] a v5", None),
            ("[PATCH] a", None),
        ] {
            assert_eq!(parse_subject(subject).version, version, "{subject}");
        }
    }

    #[test]
    fn the_authors_words_stay() {
        for (subject, title) in [
            ("[PATCH] net: fix: x 1/2", "net: fix: x 1/2"),
            ("[PATCH] [RFC] x", "x"),
            ("[PATCH]: x", "x"),
            ("[]x", "x"),
            ("PATCH: x", "PATCH: x"),
            ("[Patch] x", "[Patch] x"),
            ("[JIRA-12] x", "[JIRA-12] x"),
            ("[dispatch] reuse the queue", "[dispatch] reuse the queue"),
            ("[v2] x", "x"),
            ("[RFCv2] x", "x"),
            ("[RFC] [core] x", "[core] x"),
            ("Re: x", "x"),
            ("fwd: [PATCH] x", "fwd: [PATCH] x"),
            ("Reuse it", "Reuse it"),
            ("[13/2] x", "[13/2] x"),
            ("handle 1/2 (half)", "handle 1/2 (half)"),
            ("[PATCH]", "[PATCH]"),
            ("", ""),
        ] {
            let found = parse_subject(subject);
            assert_eq!(
                (found.number, found.title.as_str()),
                (None, title),
                "{subject}"
            );
        }
    }
}
