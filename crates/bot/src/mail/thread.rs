//! Finds the mails that make a series: the same author, version and number of patches, and one thread.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::letter::{Letter, digest};
use perfquilt_model::counted::counted;
use perfquilt_model::error::{Error, Result};

/// The maximum number of patches of a series.
const MAX_PATCHES: usize = 500;

/// The known mails, by Message-ID.
type Letters = BTreeMap<String, Letter>;

/// The mails of one version of a series.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct MailGroup {
    /// The digest of what they have in common.
    pub(super) key: String,
    /// The Message-ID of the cover letter, of the only patch, or of what the patches reply to.
    root: String,
    /// The version, from 1.
    pub(super) version: u32,
    /// The mails, by number.
    letters: Vec<Letter>,
}

/// Returns the series that the mails make, finished or not.
pub(super) fn groups(letters: &Letters) -> Vec<MailGroup> {
    let mut groups: BTreeMap<String, MailGroup> = BTreeMap::new();
    for letter in letters.values().filter(|letter| letter.is_patch) {
        let root = root(letters, letter);
        // Some leave the version to the cover letter.
        let cover = letters.get(&root).and_then(|root| root.version);
        let version = letter.version.or(cover).unwrap_or(1);
        // What only claims to be of an allowed author is a series of its own.
        let key = format!(
            "{root} {version} {} {} {}",
            letter.total, letter.from, letter.allowed
        );
        let group = groups
            .entry(digest(&key))
            .or_insert_with_key(|key| MailGroup {
                key: key.clone(),
                root,
                version,
                letters: Vec::new(),
            });
        group.letters.push(letter.clone());
    }
    let mut groups: Vec<MailGroup> = groups.into_values().collect();
    for group in &mut groups {
        group
            .letters
            .sort_by_key(|letter| (letter.number.unwrap_or(1), letter.arrived));
    }
    groups
}

/// Returns the root of the series of a mail: over patches before it up to the cover letter, or else to what the first patch
/// replies to.
fn root(letters: &Letters, letter: &Letter) -> String {
    let mut current = letter;
    // References can go in circles.
    for _ in 0..=letter.total {
        if current.number.is_none_or(|number| number == 0) {
            break;
        }
        let mut before = current.references.iter().filter_map(|id| letters.get(id));
        let is_of_series = |it: &&Letter| {
            it.is_patch
                && it.number.is_some()
                && (it.total, &it.from) == (letter.total, &letter.from)
                && (it.version == letter.version
                    || (letter.version.is_none() && it.number == Some(0)))
                && it.allowed == letter.allowed
                && it.id != current.id
        };
        match before.find(is_of_series) {
            Some(before) => current = before,
            None => return current.references.first().unwrap_or(&current.id).clone(),
        }
    }
    current.id.clone()
}

impl MailGroup {
    /// Returns the mail with the lowest number.
    pub(super) fn first(&self) -> &Letter {
        &self.letters[0]
    }

    /// Returns the patches in order.
    pub(super) fn patches(&self) -> impl Iterator<Item = &Letter> {
        let is_patch = |letter: &&Letter| letter.number != Some(0);
        self.letters.iter().filter(is_patch)
    }

    /// Returns when the last of the mails arrived.
    pub(super) fn arrived(&self) -> i64 {
        self.letters
            .iter()
            .map(|letter| letter.arrived)
            .max()
            .unwrap_or(0)
    }

    fn missing(&self) -> impl Iterator<Item = usize> {
        let is_there = |number: &usize| self.patches().any(|it| it.number.unwrap_or(1) == *number);
        let all = 1..=self.first().total.min(MAX_PATCHES);
        all.filter(move |number| !is_there(number))
    }

    /// Returns whether all patches are there, and the cover letter that they may reply to.
    pub(super) fn is_complete(&self, letters: &Letters) -> bool {
        self.missing().next().is_none() && letters.contains_key(&self.root)
    }

    /// Checks that the mails are one series.
    pub(super) fn check(&self) -> Result<()> {
        let total = self.first().total;
        if total > MAX_PATCHES {
            return Err(Error::pull_request_too_large(format!(
                "the series has {total} patches; up to {MAX_PATCHES} can be measured"
            )));
        }
        let missing: Vec<String> = self.missing().map(|number| number.to_string()).collect();
        if !missing.is_empty() {
            let what = counted(missing.len(), "patch", "patches");
            let which = missing.join(", ");
            return Err(Error::mail_series(format!(
                "{what} of {total} did not arrive: {which}"
            ))
            .hint("send the whole series again as a new version: `git format-patch -v2 --cover-letter`"));
        }
        let twice = self
            .letters
            .windows(2)
            .find(|pair| pair[0].number == pair[1].number);
        if let Some(pair) = twice {
            return Err(Error::mail_series(format!(
                "mail {} of {total} is there twice, as <{}> and <{}>",
                pair[0].number.unwrap_or(1),
                pair[0].id,
                pair[1].id
            ))
            .hint("send the series again as a new version, in a thread of its own"));
        }
        Ok(())
    }

    /// Returns the commit that the series names as its base.
    pub(super) fn base(&self) -> Result<Option<String>> {
        let mut bases: Vec<&String> = self.letters.iter().flat_map(|it| &it.bases).collect();
        bases.sort_unstable();
        bases.dedup();
        match bases[..] {
            [] => Ok(None),
            [base] => Ok(Some(base.clone())),
            [first, second, ..] => Err(Error::mail_base(format!(
                "the series names two base commits, {first} and {second}"
            ))
            .hint("send it again with one: `git format-patch --base=COMMIT`")),
        }
    }

    /// Returns the allowed author who approved the series, if there is one; an allowed one cannot approve the own series.
    pub(super) fn approved_by(&self, letters: &Letters) -> Option<String> {
        let first = self.first();
        let mut replies = letters
            .values()
            .filter(|it| it.approves && it.allowed && !it.is_patch);
        let approval = replies.find(|reply| {
            // The nearest patch: a reply to version 2 refers to version 1, too.
            let mut before = reply.references.iter().filter_map(|id| letters.get(id));
            let nearest = before.find(|it| it.is_patch);
            nearest.is_some_and(|it| self.letters.contains(it))
                && (!first.allowed || reply.from != first.from)
        });
        approval.map(|reply| reply.from.clone())
    }

    /// Returns whether this is another version of `other`: by the same author, in its thread or with its title.
    pub(super) fn is_version_of(&self, other: &MailGroup) -> bool {
        let (first, theirs) = (self.first(), other.first());
        let replies_to = |one: &MailGroup, other: &MailGroup| {
            let mut references = one.letters.iter().flat_map(|it| &it.references);
            references.any(|id| other.letters.iter().any(|it| it.id == *id))
        };
        (&first.from, first.allowed) == (&theirs.from, theirs.allowed)
            && (first.title == theirs.title || replies_to(self, other) || replies_to(other, self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail::letter::Letter;
    use perfquilt_config::Mail;

    /// The series of mails, each `ID REFERENCES… | SUBJECT`, as numbers of their mails after version.
    fn found(mails: &[&str]) -> Vec<String> {
        let settings = Mail::default();
        let letters = mails.iter().map(|mail| {
            let (ids, subject) = mail.split_once(" | ").unwrap();
            let mut ids = ids.split(' ').map(|id| format!("<{id}@x>"));
            let id = ids.next().unwrap();
            let references = ids.collect::<String>();
            let text = format!(
                "Message-ID: {id}\nReferences: {references}\nFrom: a@x\nSubject: {subject}\n\n"
            );
            let letter = Letter::read(text.as_bytes(), &settings, 0)
                .unwrap()
                .unwrap();
            (letter.id.clone(), letter)
        });
        let letters = letters.collect();
        let groups = groups(&letters);
        let mut found: Vec<String> = groups
            .iter()
            .map(|group| {
                let numbers = group
                    .letters
                    .iter()
                    .map(|it| it.number.unwrap_or(1).to_string());
                let numbers: Vec<String> = numbers.collect();
                let state = if group.is_complete(&letters) {
                    ""
                } else {
                    " incomplete"
                };
                format!("v{} {}{state}", group.version, numbers.join(" "))
            })
            .collect();
        found.sort();
        found
    }

    #[test]
    fn threads_become_series() {
        // Below the cover letter, and each below the one before.
        let cover = "c | [PATCH 0/2] t";
        assert_eq!(
            found(&[cover, "1 c | [PATCH 1/2] a", "2 c | [PATCH 2/2] b"]),
            ["v1 0 1 2"]
        );
        assert_eq!(
            found(&["2 c 1 | [PATCH 2/2] b", "1 c | [PATCH 1/2] a", cover]),
            ["v1 0 1 2"]
        );
        assert_eq!(
            found(&["1 | [PATCH 1/2] a", "2 1 | [PATCH 2/2] b"]),
            ["v1 1 2"]
        );
        // The cover letter is on its way.
        assert_eq!(
            found(&["2 c 1 | [PATCH 2/2] b", "1 c | [PATCH 1/2] a"]),
            ["v1 1 2 incomplete"]
        );
        // In answer to a discussion, of which the bot has the mail.
        let talk = "d | a question";
        assert_eq!(
            found(&[talk, "1 d | [PATCH 1/2] a", "2 d 1 | [PATCH 2/2] b"]),
            ["v1 1 2"]
        );
        assert_eq!(
            found(&["d | [PATCH] a", "r d | Re: [PATCH] a", "f r d | fwd: x"]),
            ["v1 1"]
        );
    }

    #[test]
    fn versions_and_series_in_one_thread_are_kept_apart() {
        let first = ["c | [PATCH 0/1] t", "1 c | [PATCH 1/1] a"];
        let second = ["e c | [PATCH v2 0/1] t", "2 c e | [PATCH v2 1/1] a"];
        assert_eq!(found(&[first, second].concat()), ["v1 0 1", "v2 0 1"]);
        // Without a cover letter of its own.
        assert_eq!(
            found(&[&first[..], &["2 1 c | [PATCH v2 1/1] a"]].concat()),
            ["v1 0 1", "v2 1"]
        );
        // A series in answer to another one, with as many patches or with more.
        let more = [
            "e c | [PATCH 0/2] u",
            "2 c e | [PATCH 1/2] a",
            "3 c e | [PATCH 2/2] b",
        ];
        assert_eq!(found(&[&first[..], &more].concat()), ["v1 0 1", "v1 0 1 2"]);
        let same = ["e c | [PATCH 0/1] u", "2 c e | [PATCH 1/1] a"];
        assert_eq!(found(&[first, same].concat()), ["v1 0 1", "v1 0 1"]);
        // Only the cover letter has the version.
        assert_eq!(found(&["c | [net,v3,0/1] t", "1 c | [1/1] a"]), ["v3 0 1"]);
        // References in a circle end.
        assert_eq!(
            found(&["1 2 | [PATCH 1/2] a", "2 1 | [PATCH 2/2] b"]).len(),
            2
        );
    }
}
