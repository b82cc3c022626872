//! Reads a range of a git repository's commits.

use std::path::Path;

use super::linear::{HistoryLimits, LinearCommit, linear_history};
use super::{MAX_BYTES, PatchSource, SourcePatch};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::counted::counted;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress;
use perfquilt_series::series::SeriesEntry;
use perfquilt_series::series::message::{Message, new_header};
use perfquilt_series::series::write::name_for;
use perfquilt_series::stack::format::diff;
use perfquilt_series::upstream::Objects;
use perfquilt_series::upstream::git::fetch_into;
use perfquilt_system::git::{Git, unreadable};

/// The name of a range's last commit in the object store.
const TIP: &str = "refs/imported/tip";

/// Trailers of a commit's message that perfquilt reads as fields of a patch's header.
const FIELDS: [&str; 2] = ["Upstream", "Applied-Upstream"];

/// Reads the range `BASE..TIP` of the repository at `source`, a path or an address.
pub(super) fn read(
    ws: &Workspace,
    objects: &Objects,
    source: &str,
    range: &str,
) -> Result<PatchSource> {
    let (from, to) = range
        .split_once("..")
        .filter(|(from, to)| !from.is_empty() && !to.starts_with('.'))
        .ok_or_else(|| {
            Error::arguments(format!("`{range}` is not a range"))
                .hint("name the release's commit and the fork's: v1.0..my-branch")
        })?;
    let to = if to.is_empty() { "HEAD" } else { to };
    let step = progress::begin(&format!("fetching {range} from {source}"), None);
    let _lock = objects.lock_import()?;
    let base = fetch(ws, objects, source, from, "refs/imported/base", &[])?;
    let tip = fetch(ws, objects, source, to, TIP, &[])?;
    let is_cut = || -> Result<bool> {
        let store = Git::bare(objects.path());
        Ok(store.cut_between(&base, &tip)?.is_some())
    };
    // The object store may have a release between the two without its history.
    if is_cut()? {
        fetch(ws, objects, source, to, TIP, &["--unshallow"])?;
        if is_cut()? {
            return Err(shallow(source));
        }
    }
    step.finish("");
    // Opened again, it knows where the fetched history is cut.
    let objects = &Objects::open(objects.path())?;
    let history = linear_history(objects, &base, &tip, &HistoryLimits::default())?;
    if history.commits.is_empty() {
        return Err(
            Error::import_source(format!("{source} has no commits in {range}")).hint(format!(
                "`git log {range}` there lists them; the older revision comes first"
            )),
        );
    }
    let mut found = PatchSource {
        kind: match history.merges {
            0 => format!("{range} of {source}"),
            merges => format!(
                "{range} of {source}, with {}",
                counted(merges, "merge", "merges")
            ),
        },
        base: Some(history.base.clone()),
        ..PatchSource::default()
    };
    let mut entries: Vec<SeriesEntry> = Vec::new();
    let mut size = 0;
    for commit in &history.commits {
        let mut message = message(commit);
        let own_name = gbp_name(&mut message);
        if commit.before == commit.tree {
            let (id, title) = (&commit.id[..12], &message.title);
            let note = format!("commit {id} ({title}) became empty");
            found.notes.push(note);
            continue;
        }
        if !commit.is_decoded {
            let note = format!(
                "the message of commit {} ({}) is not valid in the encoding that it declares; its lines that are not UTF-8 were read as Windows-1252",
                &commit.id[..12],
                message.title
            );
            found.notes.push(note);
        }
        let name = match own_name.filter(|name| entries.iter().all(|entry| entry.name != *name)) {
            Some(name) => {
                entries.push(SeriesEntry::plain(&name));
                name
            }
            None => patch_name(&message.title, &mut entries),
        };
        let bytes = patch_of(
            &message,
            commit,
            diff(objects, &commit.before, &commit.tree)?,
        );
        size += bytes.len() as u64;
        if size > MAX_BYTES {
            return Err(Error::history_too_large(format!(
                "the patches are more than {} MB",
                MAX_BYTES >> 20
            )));
        }
        found.patches.push(SourcePatch {
            name,
            bytes,
            origin: Some(commit.id.clone()),
            resolutions: commit.resolution_sentences(),
            tree: Some(commit.tree.clone()),
        });
    }
    Ok(found)
}

fn message(commit: &LinearCommit) -> Message {
    let (mut message, _) = Message::parse(&commit.message, commit.author.clone(), commit.date);
    if message.title.is_empty() {
        message.title = format!("Commit {}", &commit.id[..12]);
    }
    message
}

/// Takes the trailers `Gbp-Pq: Name …` and `Gbp-Pq: Topic …` out of a message of a `gbp pq` branch, and returns the patch's
/// name there.
fn gbp_name(message: &mut Message) -> Option<String> {
    let value = |key: &str| {
        let mut trailers = message.body.lines().filter_map(|line| {
            let rest = line
                .strip_prefix("Gbp-Pq:")
                .or(line.strip_prefix("Gbp[-Pq]:"))?;
            rest.trim().strip_prefix(key)?.strip_prefix(' ')
        });
        trailers.next_back().map(|value| value.trim().to_owned())
    };
    let (name, topic) = (value("Name")?, value("Topic"));
    let lines = message.body.lines().filter(|line| !line.starts_with("Gbp"));
    message.body = lines.collect::<Vec<_>>().join("\n").trim_end().to_owned();
    let name = topic.map_or(name.clone(), |topic| format!("{topic}/{name}"));
    let is_plain = perfquilt_series::series::path::check(name.as_bytes()).is_ok();
    (is_plain && !name.contains(char::is_whitespace)).then_some(name)
}

/// Returns a name for the next patch, and adds it to the entries.
pub(super) fn patch_name(title: &str, entries: &mut Vec<SeriesEntry>) -> String {
    let taken = entries.iter().map(|entry| entry.name.clone()).collect();
    let name = name_for(title, entries, &taken);
    entries.push(SeriesEntry::plain(&name));
    name
}

/// Returns a commit as a patch: its message, author and date, where it comes from, the resolutions of merges in it, and
/// the diff.
fn patch_of(message: &Message, commit: &LinearCommit, diff: Vec<u8>) -> Vec<u8> {
    let header = String::from_utf8_lossy(&new_header(message)).into_owned();
    let mut fields = format!("Origin: other, commit:{}\n", commit.id);
    for field in FIELDS {
        let mut values = message.body.lines().filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case(field).then(|| value.trim())
        });
        if let Some(value) = values.next_back() {
            fields.push_str(&format!("{field}: {value}\n"));
        }
    }
    fields.push_str(&commit.fix_up_fields());
    // The fields end at the first blank line.
    let (head, rest) = header.split_once("\n\n").unwrap_or((&header, ""));
    [format!("{head}\n{fields}\n{rest}").into_bytes(), diff].concat()
}

/// Fetches a revision with its history, as far as `source` has it, under a name of the object store; returns the commit.
fn fetch(
    ws: &Workspace,
    objects: &Objects,
    source: &str,
    revision: &str,
    reference: &str,
    options: &[&str],
) -> Result<String> {
    let unknown = |details: Vec<String>| {
        Error::import_source(format!("{source} has no commit `{revision}`")).details(details)
    };
    if source.starts_with('-') || revision.starts_with('-') {
        return Err(unknown(Vec::new()));
    }
    let local = ws.root().join(source);
    let local = [Path::new(source).to_owned(), local]
        .into_iter()
        .find(|path| path.is_dir());
    // A path can resolve every revision, an address only what it offers by name.
    let (remote, wanted) = match &local {
        Some(path) => {
            let git = Git::new(path);
            let commit = format!("{revision}^{{commit}}");
            let found = git.run(&[
                "rev-parse",
                "--quiet",
                "--verify",
                "--end-of-options",
                &commit,
            ])?;
            if !found.success() {
                let error = unknown(found.tail(4));
                return Err(cause(&git, source, &found.stderr_text()).unwrap_or(error));
            }
            let up = git.run(&["rev-parse", "--show-cdup"])?.stdout_text();
            let path = path.join(up.trim());
            let path = std::fs::canonicalize(&path).map_err(|e| Error::io("read", &path, &e))?;
            let id = found.stdout_text().trim().to_owned();
            (path.to_string_lossy().into_owned(), id)
        }
        None => (source.to_owned(), revision.to_owned()),
    };
    // A shallow clone may have all commits of the range.
    let options = [&["--update-shallow"], options].concat();
    let output = fetch_into(objects, ws.root(), &options, (&remote, &wanted), reference)?;
    let words = output.stderr_text();
    if !output.success() {
        let cause = local
            .as_ref()
            .and_then(|path| cause(&Git::new(path), source, &words));
        let failed = || match &local {
            Some(_) => Error::import_source(format!("cannot fetch `{revision}` from {source}")),
            None => unknown(Vec::new()),
        };
        return Err(cause.unwrap_or_else(failed).details(output.tail(6)));
    }
    objects.refresh()?;
    let found = objects.repository().find_reference(reference);
    let commit = found.and_then(|reference| reference.peel_to_commit());
    commit
        .map(|commit| commit.id().to_string())
        .map_err(|error| unknown(vec![error.message().to_owned()]))
}

/// Returns why git cannot read commits of the repository at a path, if `words`, its messages, or the repository's state
/// show it.
fn cause(git: &Git, source: &str, words: &str) -> Option<Error> {
    if let Some(error) = unreadable(source, words) {
        return Some(error.hint_or("a folder of patches or a mailbox needs no range"));
    }
    if git.is_shallow() {
        return Some(shallow(source));
    }
    let format = git.run(&["rev-parse", "--show-object-format"]);
    if format.is_ok_and(|output| output.stdout_text().trim() == "sha256") {
        return Some(
            Error::import_source(format!(
                "{source} has SHA-256 object ids, which git cannot fetch into a repository with SHA-1 ids"
            ))
            .hint("`git format-patch --stdout BASE..TIP > series.mbox` there, then `perfquilt import series.mbox`"),
        );
    }
    git.is_partial().then(|| {
        Error::import_source(format!(
            "{source} is a partial clone: it lacks contents of the commits"
        ))
        .hint("import a full clone; `git fetch --refetch --no-filter` there fetches the rest")
    })
}

fn shallow(source: &str) -> Error {
    Error::import_source(format!(
        "{source} is a shallow clone: it lacks the history before its first commits"
    ))
    .hint("`git fetch --unshallow` there fetches the rest")
}
