//! What a pull request brings, as a workspace of its own: its series and patches, everything else the bot's.
//!
//! A pull request to a series brings `series` and `patches/`, one to a server brings commits, of which patches
//! are made. Configuration, recipes and workloads are commands, so they are those of the bot's own workspace.
//! What a patch makes of the server's source is code all the same, which is why whose patches are run, and
//! where, is decided before.

use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use super::places::Places;
use crate::config::{self, BotKind, Config};
use crate::error::{Error, Kind, Result};
use crate::forge::{Found, is_commit};
use crate::git::Git;
use crate::process::{Command, Output, last_lines};
use crate::rebase::named_paths;
use crate::series::{Patch, Series};
use crate::workspace::{CONFIG_FILE, Workspace};

/// Bytes of a pull request's series and patches that are taken.
const LARGEST: u64 = 64 << 20;
/// Files of them.
const MOST: usize = 10_000;
/// Commits of a pull request to a server.
const MOST_COMMITS: usize = 500;
/// How long fetching may take.
const PATIENCE: Duration = Duration::from_secs(30 * 60);
/// How long a remote may take to answer at all.
const SHORT_PATIENCE: Duration = Duration::from_secs(30);
/// What git must not do with files of strangers when it hands them out: put commits' messages into them, leave
/// some out, or run filters.
const ATTRIBUTES: &[u8] =
    b"* -text -ident -filter -working-tree-encoding -export-subst -export-ignore\n";
/// Digits of a commit's id in the name of the release it is the base of.
const VERSION: usize = 12;

/// Fetches the last commit of a pull request and returns it; `None` when `unwanted` says so meanwhile.
///
/// # Errors
/// [`Kind::Forge`](crate::error::Kind::Forge) when it cannot be fetched, or that takes too long;
/// [`Kind::Interrupted`](crate::error::Kind::Interrupted).
pub(super) fn fetch(
    places: &Places,
    config: &Config,
    remote: &str,
    found: &Found,
    unwanted: &dyn Fn() -> bool,
) -> Result<Option<String>> {
    let git = repository(places)?;
    let number = found.number;
    let name = format!("refs/pull/{number}/head");
    let head = format!("+{name}:{name}");
    let base = format!("+refs/heads/{0}:refs/base/{0}", found.branch);
    let mut words = vec!["fetch", "--quiet", "--no-tags", "--no-recurse-submodules"];
    match config.bot.kind {
        BotKind::Series => words.extend(["--depth=1", "--", remote, &head]),
        // Where the commits branched off is found in the history.
        BotKind::Fork => words.extend(["--", remote, &head, &base]),
    }
    // One fetch goes on at a time. With what a killed one left in its way git fetches nothing without history.
    crate::caches::remove_file(&places.repository().join("shallow.lock"))?;
    let failed = |said: &str| {
        Error::forge(format!("cannot fetch pull request {number}"))
            .details(last_lines(said, 5))
            .hint("[bot] `remote` says where from; git needs to be allowed to read there")
            .passing()
    };
    let output = match remote_command(&git, &words).run_unless(PATIENCE, unwanted) {
        Err(_) if unwanted() => return Ok(None),
        Err(error) if error.kind() == Kind::Bench => return Err(failed(&error.to_string())),
        output => output?,
    };
    if !output.success() {
        return Err(failed(&String::from_utf8_lossy(&output.stderr)));
    }
    let commit = git.ok(&["rev-parse", "--verify", &name])?;
    match is_commit(&commit) {
        true => Ok(Some(commit)),
        false => Err(Error::internal("git names no commit")),
    }
}

/// Whether `remote` answers at all.
///
/// # Errors
/// [`Kind::Forge`](crate::error::Kind::Forge) when it does not.
pub(super) fn answers(places: &Places, remote: &str) -> Result<()> {
    let words = ["ls-remote", "--quiet", "--", remote, "HEAD"];
    let failed = |said: &str| {
        Error::forge("cannot read the repository that pull requests are fetched from")
            .details(last_lines(said, 5))
            .hint("[bot] `remote` says where from; until it can be read, no job can begin")
    };
    match remote_command(&repository(places)?, &words).run_within(SHORT_PATIENCE) {
        Ok(output) if output.success() => Ok(()),
        Ok(output) => Err(failed(&String::from_utf8_lossy(&output.stderr))),
        Err(error) if error.kind() == Kind::Bench => Err(failed(&error.to_string())),
        Err(error) => Err(error),
    }
}

/// The repository that commits of pull requests are fetched to.
fn repository(places: &Places) -> Result<Git> {
    let folder = places.repository();
    std::fs::create_dir_all(&folder).map_err(|e| Error::io("make", &folder, &e))?;
    let git = Git::new(&folder);
    git.ok(&["init", "--quiet", "--bare", "."])?;
    let attributes = folder.join("info/attributes");
    if std::fs::read(&attributes).ok().as_deref() != Some(ATTRIBUTES) {
        crate::files::write_file(&attributes, ATTRIBUTES)?;
    }
    Ok(git)
}

/// Git with a remote. Nobody is there who could type a password.
fn remote_command(git: &Git, words: &[&str]) -> Command {
    git.command(&["-c", "protocol.ext.allow=never"])
        .args(words)
        .env("GIT_TERMINAL_PROMPT", "0")
}

/// Makes the workspace `job` of the pull request's `commit`, with the state of `ws`.
///
/// # Errors
/// [`Kind::Series`](crate::error::Kind::Series) when the commit has no series, too much of one, or commits that
/// are no patches.
pub(super) fn workspace(
    places: &Places,
    ws: &Workspace,
    found: &Found,
    commit: &str,
    job: &Path,
) -> Result<Workspace> {
    let config = &ws.config;
    let files = config.series_of(None)?;
    fresh(job)?;
    let first = |path: &Path| {
        path.components()
            .next()
            .map(|part| part.as_os_str().to_owned())
    };
    let mut theirs = vec![first(&files.file), first(&files.patches)];
    let git = Git::new(&places.repository());
    if config.bot.kind == BotKind::Fork {
        theirs.push(Some("bench-config".into()));
    }
    let entries = std::fs::read_dir(ws.root()).map_err(|e| Error::io("read", ws.root(), &e))?;
    for entry in entries {
        let entry = entry.map_err(|e| Error::io("read", ws.root(), &e))?;
        let name = entry.file_name();
        if name == ".git" || name == ".perfquilt" || theirs.contains(&Some(name.clone())) {
            continue;
        }
        link(&entry.path(), &job.join(&name))?;
    }
    with_state(job, &ws.state())?;
    match config.bot.kind {
        BotKind::Series => {
            unpack(&git, commit, &[&files.file, &files.patches], job)?;
            if !job.join(&files.file).is_file() {
                return Err(Error::series(format!(
                    "the pull request has no file {}",
                    files.file.display()
                )));
            }
        }
        BotKind::Fork => patches(places, ws, &git, (&found.branch, commit), job)?,
    }
    Workspace::open_with_cache(job, ws.cache().to_owned())
}

/// Makes the folder `path` new and empty.
pub(super) fn fresh(path: &Path) -> Result<()> {
    super::area::remove(path)?;
    std::fs::create_dir_all(path).map_err(|e| Error::io("make", path, &e))
}

/// Has the workspace `job` keep its state in the folder `state`.
pub(super) fn with_state(job: &Path, state: &Path) -> Result<()> {
    std::fs::create_dir_all(state).map_err(|e| Error::io("make", state, &e))?;
    let path = job.join(".perfquilt");
    crate::caches::remove_file(&path)?;
    link(state, &path)
}

fn link(from: &Path, to: &Path) -> Result<()> {
    std::os::unix::fs::symlink(from, to).map_err(|e| Error::io("link", to, &e))
}

/// Git on commits of strangers, with nobody's settings.
fn plain(git: &Git, args: &[&str]) -> Command {
    git.command(args)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
}

fn said(git: &Git, args: &[&str]) -> Result<String> {
    let output: Output = plain(git, args).run_ok(crate::error::Kind::Internal)?;
    Ok(output.stdout_text().trim_end().to_owned())
}

/// Makes patches of the commits from where `commit` branched off `branch`, and a configuration whose current
/// release is that place.
fn patches(
    places: &Places,
    ws: &Workspace,
    git: &Git,
    (branch, commit): (&str, &str),
    job: &Path,
) -> Result<()> {
    let bases = plain(
        git,
        &[
            "merge-base",
            "--all",
            &format!("refs/base/{branch}"),
            commit,
        ],
    )
    .run()?;
    let bases = bases.stdout_text();
    let base = match bases.split_whitespace().collect::<Vec<_>>().as_slice() {
        [only] => (*only).to_owned(),
        [] => {
            return Err(
                Error::series("the pull request has no commit in common with its branch")
                    .hint("rebase it on that branch"),
            );
        }
        _ => {
            return Err(Error::series(
                "the pull request branched off in several places, so that its commits are no series",
            )
            .hint("rebase it on one commit"));
        }
    };
    let range = format!("{base}..{commit}");
    let merges = said(git, &["rev-list", "--merges", &range])?;
    if let Some(merge) = merges.lines().next() {
        return Err(Error::series(format!(
            "commit {} is a merge, and no patch can be made of it",
            merge.get(..VERSION).unwrap_or(merge)
        ))
        .hint("rebase the pull request instead of merging into it"));
    }
    let count: usize = said(git, &["rev-list", "--count", &range])?
        .parse()
        .unwrap_or(0);
    if count == 0 || count > MOST_COMMITS {
        return Err(Error::series(format!(
            "the pull request has {count} commits; 1 to {MOST_COMMITS} can be measured"
        )));
    }
    let files = ws.config.series_of(None)?;
    let folder = job.join(&files.patches);
    std::fs::create_dir_all(&folder).map_err(|e| Error::io("make", &folder, &e))?;
    let target = folder.display().to_string();
    said(
        git,
        &[
            "format-patch",
            "--quiet",
            "--full-index",
            "--binary",
            "--find-renames",
            "--no-ext-diff",
            "--no-textconv",
            "--no-signature",
            "--no-stat",
            "--no-attach",
            "--zero-commit",
            "--filename-max-length=64",
            "--output-directory",
            &target,
            &range,
        ],
    )?;
    let mut names = Vec::new();
    let mut bytes = 0;
    for entry in std::fs::read_dir(&folder).map_err(|e| Error::io("read", &folder, &e))? {
        let entry = entry.map_err(|e| Error::io("read", &folder, &e))?;
        bytes += entry.metadata().map_or(0, |found| found.len());
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    if bytes > LARGEST {
        return Err(Error::series(format!(
            "the patches of the pull request are more than {} MB",
            LARGEST >> 20
        )));
    }
    // Numbers come first in the names.
    names.sort_unstable();
    let series = job.join(&files.file);
    std::fs::write(&series, names.join("\n") + "\n")
        .map_err(|e| Error::io("write", &series, &e))?;
    based(places, ws, git, &base, job)
}

/// Writes the bot's configuration with the commit `base` as the current release.
fn based(places: &Places, ws: &Workspace, git: &Git, base: &str, job: &Path) -> Result<()> {
    let to = job.join("bench-config");
    crate::server::copy_tree(&ws.bench_config(), &to)?;
    let version = base.get(..VERSION).unwrap_or(base);
    let tag = format!("perfquilt-base-{version}");
    git.ok(&["tag", "--force", &tag, base])?;
    let path = job.join(CONFIG_FILE);
    let text = std::fs::read_to_string(&path).map_err(|e| Error::io("read", &path, &e))?;
    let wrong = |error: String| Error::usage(error).at(CONFIG_FILE, None);
    let mut document: toml::Table = text
        .parse()
        .map_err(|e: toml::de::Error| wrong(e.to_string()))?;
    let upstream = document
        .get_mut("upstream")
        .and_then(toml::Value::as_table_mut)
        .ok_or_else(|| wrong("there is no [upstream]".to_owned()))?;
    let mut source = toml::Table::new();
    let mut from = toml::Table::new();
    let remote = places.repository().display().to_string();
    from.insert("remote".into(), remote.into());
    from.insert("tag".into(), tag.into());
    source.insert("version".into(), version.into());
    source.insert("git".into(), from.into());
    upstream.insert("current".into(), version.into());
    let releases: toml::Value = vec![toml::Value::Table(source)].into();
    upstream.insert("release".into(), releases);
    let text = toml::to_string(&document).map_err(|error| wrong(error.to_string()))?;
    std::fs::write(&path, text).map_err(|e| Error::io("write", &path, &e))?;
    let lock = to.join("upstream.lock");
    match std::fs::copy(places.lock_file(), &lock) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            crate::caches::remove_file(&lock)
        }
        Err(error) => Err(Error::io("copy", &lock, &error)),
        Ok(_) => Ok(()),
    }
}

/// Keeps what the workspace of a job learnt of its release.
pub(super) fn remember(places: &Places, job: &Workspace) -> Result<()> {
    if job.config.bot.kind == BotKind::Series {
        return Ok(());
    }
    let (from, to) = (job.lock_file(), places.lock_file());
    std::fs::copy(&from, &to).map_err(|e| Error::io("copy", &to, &e))?;
    Ok(())
}

/// The files that steer builds which patches of `job` change, but for patches that `ws` has too.
pub(super) fn steering(ws: &Workspace, job: &Workspace) -> Vec<String> {
    // A series that cannot be read is not run, either.
    let Ok(series) = Series::load_for(job, None) else {
        return Vec::new();
    };
    let known = match ws.config.bot.kind {
        BotKind::Series => Series::load_for(ws, None).ok(),
        BotKind::Fork => None,
    };
    let known: Vec<&str> = known
        .iter()
        .flat_map(|series| series.patches())
        .map(|patch| patch.digest.as_str())
        .collect();
    let mut found: Vec<String> = series
        .patches()
        .iter()
        .filter(|patch| !known.contains(&patch.digest.as_str()))
        .flat_map(|patch| steered(patch, &ws.config.bot))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// The files that steer builds among those `patch` names, on whichever lines: a diff may be told by an
/// `Index:` line alone.
fn steered(patch: &Patch, bot: &config::Bot) -> impl Iterator<Item = String> {
    named_paths(patch)
        .into_iter()
        .map(|path| String::from_utf8_lossy(&path).into_owned())
        .filter(|path| bot.steers(path))
}

/// Where a job's outcome is written.
pub(super) fn outcome(job: &Path) -> PathBuf {
    job.join("outcome")
}

/// Writes the plain files of `commit` below `paths` to `folder`. Links are left out: they could lead
/// anywhere.
fn unpack(git: &Git, commit: &str, paths: &[&Path], folder: &Path) -> Result<()> {
    let words: Vec<String> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let mut list = vec!["ls-tree", "-r", "-l", "-z", commit, "--"];
    list.extend(words.iter().map(String::as_str));
    let listed = git.ok(&list)?;
    let sizes = listed.split('\0').filter(|line| !line.is_empty());
    let sizes: Vec<u64> = sizes
        .filter_map(|line| line.split_whitespace().nth(3)?.parse().ok())
        .collect();
    if sizes.len() > MOST || sizes.iter().sum::<u64>() > LARGEST {
        return Err(Error::series(format!(
            "the series and patches of the pull request are more than {MOST} files or {} MB",
            LARGEST >> 20
        )));
    }
    let mut archive = vec!["archive", "--format=tar", commit, "--"];
    archive.extend(words.iter().map(String::as_str));
    let packed = git.run(&archive)?;
    // Paths that are not there are no fault: the series is looked for afterwards.
    let mut tar = tar::Archive::new(&packed.stdout[..]);
    let broken =
        |error: std::io::Error| Error::internal(format!("git's archive cannot be read: {error}"));
    for entry in tar.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        let path = entry.path().map_err(broken)?.into_owned();
        let plain = path
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        if !entry.header().entry_type().is_file() || !plain {
            continue;
        }
        let target = folder.join(&path);
        let failed = |error: std::io::Error| Error::io("write", &target, &error);
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent).map_err(failed)?;
        }
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).map_err(failed)?;
        std::fs::write(&target, bytes).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Entry;

    #[test]
    fn however_a_patch_names_a_file_it_needs_an_approval() {
        let hunk = "@@ -1 +1,2 @@\n x\n+execute_process(COMMAND id)\n";
        let of = |head: &str, strip: usize| {
            let entry = Entry {
                name: "x".into(),
                strip,
                reverse: false,
                flags: Default::default(),
                line: 1,
            };
            let text = format!("Subject: x\n\n{head}{hunk}");
            let patch = Patch::parse(&entry, "x", text.as_bytes()).unwrap();
            steered(&patch, &config::Bot::default()).collect::<Vec<_>>()
        };
        for (head, strip, path) in [
            ("Index: a/CMakeLists.txt\n", 1, "CMakeLists.txt"),
            ("Index: CMakeLists.txt\n", 0, "CMakeLists.txt"),
            ("Index: a/b/debian/rules\n", 2, "debian/rules"),
            ("--- a/Makefile\n+++ b/Makefile\n", 1, "Makefile"),
            ("--- a/x.cc\n+++ b/x.cmake\n", 1, "x.cmake"),
        ] {
            assert_eq!(of(head, strip), [path], "{head}");
        }
        assert_eq!(of("Index: a/sql/x.cc\n", 1), [""; 0]);
    }
}
