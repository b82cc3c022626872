//! Reads patches from mails, as `git am` does: git splits the box and decodes the mails.

use std::path::{Path, PathBuf};

use super::files::one_file;
use super::range::patch_name;
use super::subject::{Numbered, parse_subject};
use super::{MAX_BYTES, PatchSource, SourcePatch};
use perfquilt_model::error::{Error, Result};
use perfquilt_series::series::compression::decompress;
use perfquilt_series::series::layout::{
    FieldLines, HeaderForm, HeaderLayout, is_dep3, is_mailbox_line,
};
use perfquilt_series::series::message::{Message, PATCH_KEY, add_fields, new_header, squeeze};
use perfquilt_series::series::quoting::{quote_diffs, quote_lines};
use perfquilt_series::series::text::{decode, lines, odd_blank};
use perfquilt_series::series::{
    ForeignContent, Header, Patch, SeriesEntry, SeriesFile, Timestamp, diff,
};
use perfquilt_series::stack::{chain, oid};
use perfquilt_series::upstream::{Objects, Release, store_error};
use perfquilt_system::git::Git;

/// A mail with a patch.
struct Mail {
    /// Its number in the box.
    place: usize,
    /// Its number and the number of mails, from `[PATCH 3/20]`.
    number: Option<Numbered>,
    /// Its version, from `[PATCH v2]`.
    version: Option<u32>,
    message: Message,
    id: Option<String>,
    /// The mail's id, and fields of DEP-3 in its header, which git does not read.
    fields: Vec<u8>,
    diff: Vec<u8>,
    /// What is odd about it, as fragments.
    oddities: Vec<String>,
}

/// Reads a box of mails, a single mail, a folder of mails (maildir), or a single patch file in another form.
pub(super) fn read(path: &Path) -> Result<PatchSource> {
    let folder = tempfile::tempdir().map_err(|e| Error::io("make", &std::env::temp_dir(), &e))?;
    let absolute = std::fs::canonicalize(path).map_err(|e| Error::io("read", path, &e))?;
    let (split, is_dos) = if absolute.is_dir() {
        (
            absolute.clone(),
            first_mail(&absolute).is_some_and(|mail| is_dos(&mail)),
        )
    } else {
        let mut bytes = plain_bytes(path)?;
        // Git reads a byte order mark as the end of the header.
        if bytes.starts_with("\u{feff}".as_bytes()) && is_mail(&bytes[3..]) {
            bytes.drain(..3);
        }
        if !is_mail(&bytes) {
            if diff::parse(&bytes, 1, "").is_ok_and(|parsed| parsed.files.is_empty()) {
                let what = format!("{} has no patch", path.display());
                let kind = ForeignContent::without_diff(&bytes);
                return Err(kind.map_or(Error::import_mail(what), |kind| kind.error("")));
            }
            return one_file(path, bytes);
        }
        let plain = folder.path().join("box");
        std::fs::write(&plain, &bytes).map_err(|e| Error::io("write", &plain, &e))?;
        (plain, is_dos(&bytes))
    };
    let git = Git::new(folder.path());
    let mails = folder.path().join("mails");
    std::fs::create_dir(&mails).map_err(|e| Error::io("create", &mails, &e))?;
    let count = split_box(&git, &split, &mails, is_dos).map_err(|details| {
        Error::import_mail(format!("{} is not an mbox", path.display()))
            .details(details)
            .hint("to import one patch, pass its folder")
    })?;
    let mut found = Vec::new();
    let mut notes = Vec::new();
    for place in 1..=count {
        let mail = decoded(
            &git,
            folder.path(),
            &mails.join(format!("{place:04}")),
            place,
        )?;
        let title = &mail.message.title;
        notes.extend(
            mail.oddities
                .iter()
                .map(|odd| format!("mail {place} ({title}): {odd}")),
        );
        if mail.diff.is_empty() {
            notes.push(format!("mail {place} has no patch: {}", mail.message.title));
        } else if mail.message.author.is_none() {
            let title = &mail.message.title;
            return Err(Error::import_mail(format!(
                "{}: mail {place} ({title}) has no author",
                path.display()
            ))
            .hint("write `From: NAME <ADDRESS>` into its header; a line `From SENDER DATE` in a text begins another mail unless a `>` is before it"));
        } else {
            found.push(mail);
        }
    }
    if found.is_empty() {
        return Err(Error::import_mail(format!(
            "{} has no patch",
            path.display()
        )));
    }
    if let Some(mail) = found.iter().find(|mail| has_another_mail(&mail.diff)) {
        return Err(Error::import_mail(format!(
            "{}: another mail follows the patch of `{}` without a line `From …` before it",
            path.display(),
            mail.message.title
        ))
        .hint("import the folder of the patches, or put a line such as `From x Mon Sep 17 00:00:00 2001` before each"));
    }
    let mut found = without_copies(found, &mut notes);
    refuse_versions(path, &found)?;
    sort(&mut found, &mut notes);
    source(path, found, notes)
}

/// Applies the patches in the mails of the Maildir `folder` to the commit `base` in the repository `store`, as `git am` does:
/// each becomes a commit on top of the one before, in the order of their numbers. Returns the last commit.
///
/// # Errors
/// [`Kind::Series`](perfquilt_model::error::Kind::Series) with place and reason when a patch does not apply;
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when not each of the `count` mails has a patch.
pub fn commit_mails(store: &Path, base: &str, folder: &Path, count: usize) -> Result<String> {
    let source = read(folder)?;
    if source.patches.len() != count {
        return Err(Error::import_mail(format!(
            "{} of {count} mails have a patch",
            source.patches.len()
        ))
        .details(source.notes)
        .hint("send each patch as the text of its mail (`git send-email`), not as an attachment"));
    }
    let (file, _) = SeriesFile::parse(&source.series_with(None), "series");
    let patches = file.entries().iter().zip(&source.patches);
    let patches = patches.map(|(entry, from)| Patch::parse(entry, &from.name, &from.bytes));
    let patches: Vec<Patch> = patches.collect::<Result<_>>()?;
    let objects = Objects::open(store)?;
    let commit = objects.repository().find_commit(oid(base)?);
    let release = Release {
        name: base.to_owned(),
        version: base.to_owned(),
        commit: base.to_owned(),
        tree: commit.map_err(store_error)?.tree_id().to_string(),
        sha256: String::new(),
    };
    let steps = chain(&objects, &release, &patches.iter().collect::<Vec<_>>(), 0)?;
    let last = steps.last().map(|step| step.commit.clone());
    last.ok_or_else(|| Error::import_mail("the mails have no patch"))
}

fn source(path: &Path, mails: Vec<Mail>, notes: Vec<String>) -> Result<PatchSource> {
    let mut entries: Vec<SeriesEntry> = Vec::new();
    let mut patches = Vec::new();
    for mail in mails {
        let header = add_fields(&new_header(&mail.message), &[&mail.fields]);
        let shown = format!("mail {} ({})", mail.place, mail.message.title);
        patches.push(SourcePatch {
            name: patch_name(&mail.message.title, &mut entries),
            bytes: [header, as_git_reads(&mail.diff, &shown)?].concat(),
            origin: mail.id,
            ..SourcePatch::default()
        });
    }
    Ok(PatchSource {
        kind: format!("the mails of {}", path.display()),
        patches,
        notes,
        ..PatchSource::default()
    })
}

/// Lets git split a box into numbered files. Returns their number, or git's words.
fn split_box(git: &Git, path: &Path, into: &Path, is_dos: bool) -> Result<usize, Vec<String>> {
    let into = format!("-o{}", into.display());
    let mut words = vec!["mailsplit", "-b"];
    // In a mail with plain line ends, a CR belongs to the file that the patch changes.
    words.extend((!is_dos).then_some("--keep-cr"));
    let path = path.to_string_lossy();
    words.extend([into.as_str(), &path]);
    let output = git.run(&words).map_err(|error| vec![error.to_string()])?;
    if !output.success() {
        return Err(output.tail(4));
    }
    Ok(output.stdout_text().trim().parse().unwrap_or(0))
}

/// Reads a file, decompressed if its name or its content says so.
fn plain_bytes(path: &Path) -> Result<Vec<u8>> {
    let failed = |e: std::io::Error| Error::io("read", path, &e);
    let size = std::fs::metadata(path).map_err(failed)?.len();
    if size > MAX_BYTES {
        return Err(Error::import_too_large(format!(
            "{} is larger than {} MB",
            path.display(),
            MAX_BYTES >> 20
        )));
    }
    let shown = path.display().to_string();
    let bytes = std::fs::read(path).map_err(failed)?;
    let bytes = decompress(&shown, bytes, &shown)?;
    match ForeignContent::of(&bytes) {
        Some(kind) => Err(kind.error(&shown).at(path, None)),
        None => Ok(bytes),
    }
}

/// Returns whether a file begins as a mailbox or as a mail. Other patches have a header that git does not read.
fn is_mail(bytes: &[u8]) -> bool {
    let first = bytes
        .split(|&b| b == b'\n')
        .find(|line| !line.trim_ascii().is_empty());
    let first = String::from_utf8_lossy(first.unwrap_or_default());
    if is_mailbox_line(first.trim_end()) {
        return true;
    }
    let start = &bytes[..diff::header_length(bytes)];
    let layout = HeaderLayout::of(start);
    let named = |name: &str| layout.first(name).is_some();
    layout.form == HeaderForm::Fields
        && named("from")
        && named("subject")
        && layout.fields.iter().all(|field| is_mail_field(&field.name))
}

/// Returns whether mail programs write a field of this name.
fn is_mail_field(name: &str) -> bool {
    const NAMES: [&str; 22] = [
        "from",
        "to",
        "cc",
        "bcc",
        "date",
        "subject",
        "message-id",
        "in-reply-to",
        "references",
        "mime-version",
        "received",
        "return-path",
        "delivered-to",
        "reply-to",
        "sender",
        "user-agent",
        "dkim-signature",
        "authentication-results",
        "received-spf",
        "precedence",
        "lines",
        "status",
    ];
    const STARTS: [&str; 6] = ["content-", "x-", "list-", "arc-", "thread-", "resent-"];
    let name = name.to_ascii_lowercase();
    NAMES.contains(&name.as_str()) || STARTS.iter().any(|start| name.starts_with(start))
}

/// Returns the first mail of a maildir.
fn first_mail(maildir: &Path) -> Option<Vec<u8>> {
    let folders = ["cur", "new"].map(|name| maildir.join(name));
    let mut files = folders.iter().filter_map(|folder| {
        let entries = std::fs::read_dir(folder).ok()?.flatten();
        entries
            .map(|entry| entry.path())
            .find(|path| path.is_file())
    });
    std::fs::read::<PathBuf>(files.next()?).ok()
}

/// Returns whether the lines of a mail's header end in CR LF: then the whole mail was sent or saved so.
fn is_dos(mail: &[u8]) -> bool {
    mail.split_inclusive(|&b| b == b'\n')
        .next()
        .is_some_and(|line| line.ends_with(b"\r\n"))
}

/// Returns a mail's text from `---` on so that GNU patch finds the diffs in it that git finds. Git takes an indented
/// diff, such as that of `git format-patch --interdiff`, for text; here it is quoted.
fn as_git_reads(patch: &[u8], shown: &str) -> Result<Vec<u8>> {
    let parsed = |strip: usize| {
        let options = diff::ParseOptions {
            strip,
            indented_is_text: true,
            ..diff::ParseOptions::default()
        };
        diff::parse_with(patch, &options, shown)
    };
    let by_git = parsed(0).or_else(|_| parsed(1))?;
    let lines = lines(patch);
    let header = by_git.header.split_inclusive(|&b| b == b'\n').count();
    let is_text =
        |number: usize| number <= header || by_git.rest.text.iter().any(|text| text.line == number);
    let quoted = |quote: &dyn Fn(&str) -> String| -> Vec<u8> {
        let lines = lines.iter().enumerate().map(|(at, line)| {
            let text = std::str::from_utf8(line).ok().filter(|_| is_text(at + 1));
            text.map_or_else(|| line.to_vec(), |text| quote(text).into_bytes())
        });
        lines.collect::<Vec<_>>().concat()
    };
    let is_right = |bytes: &[u8]| {
        let read = diff::parse_whole(bytes, shown);
        read.is_ok_and(|read| diff::same_changes(read.files, by_git.files.clone()))
    };
    if by_git.files.is_empty() {
        return Ok(patch.to_vec());
    }
    let ways: [&dyn Fn(&str) -> String; 3] = [&str::to_owned, &quote_diffs, &quote_lines];
    let mut ways = ways.into_iter().map(quoted);
    let found = ways.find(|bytes| is_right(bytes)).ok_or_else(|| {
        Error::import_differs("git and GNU patch find different diffs in this mail").at(shown, None)
    })?;
    // Git ends the message here, whatever follows the dashes.
    let first = lines.first().map_or(&b""[..], |line| line.trim_ascii_end());
    let separator: &[u8] = if header == 0 || first == b"---" {
        b""
    } else {
        b"---\n"
    };
    Ok([separator, &found].concat())
}

fn begins_diff(line: &[u8]) -> bool {
    line.starts_with(b"+++ ") || line.starts_with(b"diff ")
}

/// Whether the headers of a mail follow a diff, as in concatenated files of patches.
fn has_another_mail(diff: &[u8]) -> bool {
    let lines: Vec<&[u8]> = diff.split(|&byte| byte == b'\n').collect();
    // Before the first diff, it is the rest of the message.
    let first = lines.iter().position(|line| begins_diff(line));
    let first = first.unwrap_or(lines.len());
    let mut heads = lines[first..].windows(3);
    heads.any(|lines| {
        lines[0].starts_with(b"From: ") && lines.iter().any(|line| line.starts_with(b"Subject: "))
    })
}

/// Drops mails that are in the box twice, as archives of several lists and personal boxes have them.
fn without_copies(mails: Vec<Mail>, notes: &mut Vec<String>) -> Vec<Mail> {
    let mut kept: Vec<Mail> = Vec::new();
    for mail in mails {
        let same =
            |other: &&Mail| mail.id.is_some() && other.id == mail.id && other.diff == mail.diff;
        match kept.iter().find(same) {
            Some(first) => notes.push(format!(
                "left out: mail {} ({}), which is mail {} again",
                mail.place, mail.message.title, first.place
            )),
            None => kept.push(mail),
        }
    }
    kept
}

/// Refuses several versions of one patch: only one of them belongs to the series.
fn refuse_versions(path: &Path, mails: &[Mail]) -> Result<()> {
    let pairs = mails.iter().enumerate().flat_map(|(place, mail)| {
        let others = mails[..place].iter();
        others.map(move |other| (other, mail))
    });
    let mut versions = pairs.filter(|(other, mail)| {
        other.message.title == mail.message.title && other.version != mail.version
    });
    let Some((first, second)) = versions.next() else {
        return Ok(());
    };
    let version = |mail: &Mail| mail.version.unwrap_or(1);
    Err(Error::import_mail(format!(
        "{}: mails {} and {} are versions {} and {} of one patch, `{}`",
        path.display(),
        first.place,
        second.place,
        version(first),
        version(second),
        second.message.title
    ))
    .hint("import a mailbox with one version of the series"))
}

/// Sorts mails by their numbers, if each number of one series is there at most once.
fn sort(mails: &mut [Mail], notes: &mut Vec<String>) {
    let numbered: Vec<Numbered> = mails.iter().filter_map(|mail| mail.number).collect();
    let Some(total) = numbered.first().map(|first| first.total) else {
        return;
    };
    let mut numbers: Vec<usize> = numbered.iter().map(|it| it.number).collect();
    numbers.sort_unstable();
    let unsorted = |why: String| format!("{why}; the mails stay in the order of the box");
    if let Some(plain) = mails.iter().find(|mail| mail.number.is_none()) {
        if !numbered.is_sorted_by_key(|it| it.number) {
            let title = &plain.message.title;
            notes.push(unsorted(format!(
                "mail {} ({title}) has no number",
                plain.place
            )));
        }
        return;
    }
    if numbered.iter().any(|it| it.total != total) {
        notes.push(unsorted("the mails are of several series".to_owned()));
        return;
    }
    if let Some(twice) = numbers.windows(2).find(|pair| pair[0] == pair[1]) {
        let all: Vec<String> = mails
            .iter()
            .filter(|mail| mail.number.is_some_and(|it| it.number == twice[0]))
            .map(|mail| format!("mail {} ({})", mail.place, mail.message.title))
            .collect();
        notes.push(unsorted(format!(
            "number {} of {total} is there {} times: {}",
            twice[0],
            all.len(),
            all.join(", ")
        )));
        return;
    }
    mails.sort_by_key(|mail| mail.number.map(|it| it.number));
    let missing: Vec<String> = (1..=total)
        .filter(|number| !numbers.contains(number))
        .map(|number| number.to_string())
        .collect();
    if !missing.is_empty() {
        notes.push(format!(
            "the box lacks patch {} of {total}",
            missing.join(", ")
        ));
    }
}

/// Decodes one mail.
fn decoded(git: &Git, folder: &Path, file: &Path, place: usize) -> Result<Mail> {
    let read = |path: &Path| std::fs::read(path).map_err(|e| Error::io("read", path, &e));
    let (text, patch) = (folder.join("message"), folder.join("patch"));
    let mail = read(file)?;
    // Returns what git says of the mail, and its diff.
    let read_mail = |mail: &[u8]| {
        let output = git
            .command(&["-c", "i18n.commitEncoding=UTF-8", "mailinfo"])
            // Not `--encoding`: some versions of git then leave words of the header undecoded.
            .args(["-k", "-m", "-u", "--no-scissors"])
            .args([&text, &patch])
            .stdin(mail)
            .run()?;
        if !output.success() {
            let what = format!("git cannot decode mail {place}");
            return Err(Error::import_mail(what).details(output.tail(4)).hint(
                "its character set is unknown or does not fit its bytes; correct `Content-Type:` in the mail",
            ));
        }
        let diff = read(&patch)?;
        let has_diff = diff.split(|&b| b == b'\n').any(begins_diff);
        Ok((output, if has_diff { diff } else { Vec::new() }))
    };
    let mut oddities = Vec::new();
    let (mut output, mut diff) = read_mail(&mail)?;
    if diff.is_empty()
        && let Some((declared, right)) = as_it_is(&mail)
    {
        let found = read_mail(&right)?;
        if diff::parse(&found.1, 1, "").is_ok_and(|parsed| !parsed.files.is_empty()) {
            (output, diff) = found;
            oddities.push(format!(
                "its text is not what `{declared}` says; it is read as it is"
            ));
        } else {
            (output, diff) = read_mail(&mail)?;
        }
    }
    // Git leaves text of no declared character set as it is, and guesses only when it commits.
    let info = decode(&output.stdout, None).text;
    let field = |name: &str| {
        let prefix = format!("{name}: ");
        let line = info.lines().find_map(|line| line.strip_prefix(&prefix));
        line.unwrap_or_default().trim().to_owned()
    };
    let subject = parse_subject(&field("Subject"));
    let header = Header::parse(format!(
        "From: {} <{}>\nDate: {}\n",
        field("Author"),
        field("Email"),
        field("Date")
    ));
    let body = decode(&read(&text)?, None).text;
    let mut id = None;
    let lines: Vec<&str> = body
        .lines()
        .filter(|line| match line.split_once(": ") {
            Some((PATCH_KEY, _)) => false,
            Some((name, value)) if name.eq_ignore_ascii_case("message-id") => {
                id = Some(value.trim().to_owned());
                false
            }
            _ => true,
        })
        .collect();
    let mut message = Message {
        title: subject.title,
        body: squeeze(lines.into_iter()),
        author: header.author.clone(),
        date: header.date.unwrap_or_default(),
    };
    let mut fields = dep3_fields(&mail);
    if message.body.starts_with("# HG changeset patch") {
        fields.extend(read_mercurial(&mut message));
    }
    if message.title.is_empty() {
        // As for git, the text begins with the title.
        (message, _) = Message::parse(&message.body, message.author, message.date);
    }
    if message.title.is_empty() {
        "Patch without a subject".clone_into(&mut message.title);
    }
    if let Some(id) = &id {
        fields.extend(format!("Message-ID: {id}\n").into_bytes());
    }
    let date = field("Date");
    if header.date.is_none() && !date.is_empty() {
        oddities.push(format!("invalid date, so the patch has none: {date}"));
    }
    oddities.extend(odd_indentation(&diff));
    Ok(Mail {
        place,
        number: subject.number,
        version: subject.version,
        message,
        id,
        fields,
        diff,
        oddities,
    })
}

/// Returns a mail whose declared form hides its text from git, with the form that the text has: the first line with the
/// boundary that is there, or none of the fields `Content-…`; and the field that is wrong.
fn as_it_is(mail: &[u8]) -> Option<(String, Vec<u8>)> {
    let all = lines(mail);
    let head = all.iter().position(|line| line.trim_ascii().is_empty())?;
    let layout = HeaderLayout::of(&mail[..all[..head].iter().map(|line| line.len()).sum()]);
    let is_form = |field: &&FieldLines| field.name.to_ascii_lowercase().starts_with("content-");
    let forms: Vec<&FieldLines> = layout.fields.iter().filter(is_form).collect();
    let hides = |form: &&&FieldLines| {
        layout.value(form).contains("boundary") || form.is("content-transfer-encoding")
    };
    let declared = forms.iter().find(hides)?;
    let declared = format!("{}: {}", declared.name, layout.value(declared));
    let body = &all[head..];
    let is_part = |lines: &&[&[u8]]| {
        lines[0].starts_with(b"--") && lines[1].to_ascii_lowercase().starts_with(b"content-")
    };
    let boundary = body
        .windows(2)
        .find(is_part)
        .map(|lines| lines[0][2..].trim_ascii());
    let mut right: Vec<Vec<u8>> = (0..head)
        .filter(|at| !forms.iter().any(|form| form.lines.contains(at)))
        .map(|at| all[at].to_vec())
        .collect();
    let boundary = boundary.map(|it| String::from_utf8_lossy(it).into_owned());
    let said = |it: &String| {
        let said = declared.split("boundary=").nth(1).unwrap_or_default();
        said.trim_matches(|c| c == '"' || c == ';') == it
    };
    if let Some(boundary) = boundary.filter(|it| !it.is_empty() && !said(it)) {
        right
            .push(format!("Content-Type: multipart/mixed; boundary=\"{boundary}\"\n").into_bytes());
    }
    right.extend(body.iter().map(|line| line.to_vec()));
    let declared: Vec<&str> = declared.split_whitespace().collect();
    Some((declared.join(" "), right.concat()))
}

/// Returns what is odd about a diff whose new lines are indented with blanks of other kinds.
fn odd_indentation(diff: &[u8]) -> Option<String> {
    let odd = |line: &&[u8]| {
        let text = line
            .strip_prefix(b"+")
            .filter(|text| !text.starts_with(b"++ "))?;
        let text = std::str::from_utf8(text).ok()?;
        odd_blank(&text.as_bytes()[..text.len() - text.trim_start().len()])
    };
    let all = lines(diff);
    let (line, blank) = all.iter().find_map(|line| Some((line, odd(line)?)))?;
    let line = String::from_utf8_lossy(line.trim_ascii());
    Some(format!(
        "a line that it adds is indented with {blank}, which mail programs write for blanks: `{line}`"
    ))
}

/// Reads the header of Mercurial at the begin of a mail's text: author, date and text. Returns the field that names the
/// changeset.
fn read_mercurial(message: &mut Message) -> Vec<u8> {
    let node = message
        .body
        .lines()
        .find_map(|line| line.strip_prefix("# Node ID "));
    let origin = node.map(|node| format!("Origin: other, commit:{}\n", node.trim()));
    let inner = Message::of_header(message.body.as_bytes(), &message.title);
    let date = inner.date != Timestamp::default();
    *message = Message {
        title: std::mem::take(&mut message.title),
        body: inner.body,
        author: inner.author.or_else(|| message.author.take()),
        date: if date { inner.date } else { message.date },
    };
    origin.unwrap_or_default().into_bytes()
}

/// Returns the fields of DEP-3 in a mail's header as they are written.
fn dep3_fields(mail: &[u8]) -> Vec<u8> {
    let end = mail
        .windows(2)
        .position(|it| it == b"\n\n")
        .map_or(mail.len(), |at| at + 1);
    let layout = HeaderLayout::of(&mail[..end]);
    let fields = layout.fields.iter().filter(|field| is_dep3(&field.name));
    fields
        .flat_map(|field| layout.lines[field.lines.clone()].concat())
        .collect()
}
