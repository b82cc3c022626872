//! Reads patches from mails, as `git am` does: git splits the box and decodes the mails.

use std::path::Path;

use super::range::patch_name;
use super::{MAX_BYTES, Source, SourcePatch};
use crate::series::message::{Message, new_header};
use crate::series::{Header, SeriesEntry};
use perfquilt_model::error::{Error, Result};
use perfquilt_system::git::Git;

/// A mail with a patch.
struct Mail {
    /// Its number and the number of mails, from `[PATCH 3/20]`.
    number: Option<(usize, usize)>,
    message: Message,
    id: Option<String>,
    diff: Vec<u8>,
}

/// Reads a box of mails, a single mail, or a folder of mails (maildir).
pub(super) fn read(path: &Path) -> Result<Source> {
    let size = std::fs::metadata(path)
        .map_err(|e| Error::io("read", path, &e))?
        .len();
    if size > MAX_BYTES {
        return Err(Error::usage(format!(
            "{} is larger than {} MB",
            path.display(),
            MAX_BYTES >> 20
        )));
    }
    let folder = tempfile::tempdir().map_err(|e| Error::io("make", &std::env::temp_dir(), &e))?;
    let git = Git::new(folder.path());
    let absolute = std::fs::canonicalize(path).map_err(|e| Error::io("read", path, &e))?;
    let split = git.run(&[
        "mailsplit",
        "-b",
        &format!("-o{}", folder.path().display()),
        &absolute.to_string_lossy(),
    ])?;
    if !split.success() {
        return Err(
            Error::usage(format!("{} is not a box of mails", path.display()))
                .details(split.tail(4))
                .hint("for one patch, name the folder that it is in"),
        );
    }
    let count: usize = split.stdout_text().trim().parse().unwrap_or(0);
    let mut mails = Vec::new();
    let mut notes = Vec::new();
    for number in 1..=count {
        let file = folder.path().join(format!("{number:04}"));
        let mail = decoded(&git, folder.path(), &file)?;
        if mail.diff.is_empty() {
            notes.push(format!(
                "mail {number} has no patch: {}",
                mail.message.title
            ));
        } else {
            mails.push(mail);
        }
    }
    if mails.is_empty() {
        return Err(Error::usage(format!("{} has no patch", path.display())));
    }
    if let Some(mail) = mails.iter().find(|mail| has_another_mail(&mail.diff)) {
        return Err(Error::usage(format!(
            "{}: another mail follows the patch of `{}` without a line `From …` before it",
            path.display(),
            mail.message.title
        ))
        .hint("import the folder of the patches, or put a line such as `From x Mon Sep 17 00:00:00 2001` before each"));
    }
    sort(&mut mails, &mut notes);
    let mut entries: Vec<SeriesEntry> = Vec::new();
    let patches: Vec<SourcePatch> = mails
        .into_iter()
        .map(|mail| SourcePatch {
            name: patch_name(&mail.message.title, &mut entries),
            bytes: [new_header(&mail.message), mail.diff].concat(),
            origin: mail.id,
            resolutions: Vec::new(),
            tree: None,
        })
        .collect();
    let series = patches.iter().map(|patch| format!("{}\n", patch.name));
    Ok(Source {
        kind: format!("the mails of {}", path.display()),
        series: series.collect::<String>().into_bytes(),
        patches,
        base: None,
        applied: None,
        notes,
    })
}

/// Whether the headers of a mail follow a diff, as in concatenated files of patches.
fn has_another_mail(diff: &[u8]) -> bool {
    let lines: Vec<&[u8]> = diff.split(|&byte| byte == b'\n').collect();
    let mut heads = lines.windows(3);
    heads.any(|lines| {
        lines[0].starts_with(b"From: ") && lines.iter().any(|line| line.starts_with(b"Subject: "))
    })
}

/// Sorts mails by their numbers, if all have one of the same series.
fn sort(mails: &mut [Mail], notes: &mut Vec<String>) {
    let Some(numbers) = mails
        .iter()
        .map(|mail| mail.number)
        .collect::<Option<Vec<_>>>()
    else {
        return;
    };
    let mut sorted: Vec<usize> = numbers.iter().map(|(number, _)| *number).collect();
    sorted.sort_unstable();
    sorted.dedup();
    let of = numbers[0].1;
    if sorted.len() < numbers.len() || numbers.iter().any(|(_, other)| *other != of) {
        return;
    }
    mails.sort_by_key(|mail| mail.number);
    let missing: Vec<String> = (1..=of)
        .filter(|number| !sorted.contains(number))
        .map(|number| number.to_string())
        .collect();
    if !missing.is_empty() {
        notes.push(format!(
            "the box lacks patch {} of {of}",
            missing.join(", ")
        ));
    }
}

/// Decodes one mail.
fn decoded(git: &Git, folder: &Path, file: &Path) -> Result<Mail> {
    let read = |path: &Path| std::fs::read(path).map_err(|e| Error::io("read", path, &e));
    let (text, patch) = (folder.join("message"), folder.join("patch"));
    let mail = read(file)?;
    let output = git
        .command(&["mailinfo", "-k", "-m", "--encoding=UTF-8"])
        .args([&text, &patch])
        .stdin(mail)
        .run()?;
    if !output.success() {
        return Err(Error::usage("git cannot decode a mail").details(output.tail(4)));
    }
    let info = output.stdout_text();
    let field = |name: &str| {
        let prefix = format!("{name}: ");
        let line = info.lines().find_map(|line| line.strip_prefix(&prefix));
        line.unwrap_or_default().trim().to_owned()
    };
    let subject = field("Subject");
    let header = Header::parse(&format!(
        "From: {} <{}>\nDate: {}\nSubject: {subject}\n",
        field("Author"),
        field("Email"),
        field("Date")
    ));
    let body = String::from_utf8_lossy(&read(&text)?).into_owned();
    let mut id = None;
    let lines: Vec<&str> = body
        .lines()
        .filter(|line| match line.split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("message-id") => {
                id = Some(value.trim().to_owned());
                false
            }
            _ => true,
        })
        .collect();
    let mut message = Message {
        title: header.subject.clone().unwrap_or_else(|| subject.clone()),
        body: lines.join("\n").trim_matches('\n').to_owned(),
        author: header.author.clone(),
        date: header.date.unwrap_or_default(),
    };
    if message.title.is_empty() {
        "Patch without a subject".clone_into(&mut message.title);
    }
    if let Some(id) = &id {
        message.body = format!("{}\n\nMessage-ID: {id}", message.body)
            .trim_matches('\n')
            .to_owned();
    }
    let diff = read(&patch)?;
    let has_diff = diff
        .split(|&b| b == b'\n')
        .any(|line| line.starts_with(b"+++ ") || line.starts_with(b"diff "));
    Ok(Mail {
        number: number(&subject),
        message,
        id,
        diff: if has_diff { diff } else { Vec::new() },
    })
}

/// Returns number and count of `[PATCH v2 3/20] …`.
fn number(subject: &str) -> Option<(usize, usize)> {
    let (_, rest) = subject.split_once('[')?;
    let (tags, _) = rest.split_once(']')?;
    tags.split_whitespace().find_map(|word| {
        let (number, of) = word.split_once('/')?;
        Some((number.parse().ok()?, of.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_subjects() {
        assert_eq!(number("[PATCH v2 03/20] net: x 1/2"), Some((3, 20)));
        assert_eq!(number("[PATCH] x 1/2"), None);
        assert_eq!(number("Re: x"), None);
    }
}
