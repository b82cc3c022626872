//! What a pull request brings, as a workspace of its own: its series and patches, everything else the bot's.
//!
//! A pull request to a series brings `series` and `patches/`, one to a server brings commits, of which patches
//! are made. Configuration, recipes and workloads are commands, so they are those of the bot's own workspace.
//! What a patch makes of the server's source is code all the same, which is why whose patches are run, and
//! where, is decided before.

use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use super::commits;
use super::places::Places;
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{BotKind, Config};
use perfquilt_forge::{Found, is_commit};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_patches::rebase::named_paths;
use perfquilt_patches::series::{Patch, Series};
use perfquilt_patches::upstream::Objects;
use perfquilt_system::git::Git;
use perfquilt_system::process::{Command, last_lines};

/// Bytes of a pull request's series and patches that are taken.
pub(super) const LARGEST: u64 = 64 << 20;
/// Files of them.
const MOST: usize = 10_000;
/// How long fetching may take.
const PATIENCE: Duration = Duration::from_secs(30 * 60);
/// How long a remote may take to answer at all.
const SHORT_PATIENCE: Duration = Duration::from_secs(30);
/// What git must not do with files of strangers when it hands them out: put commits' messages into them, leave
/// some out, or run filters.
const ATTRIBUTES: &[u8] =
    b"* -text -ident -filter -working-tree-encoding -export-subst -export-ignore\n";

/// Fetches the last commit of a pull request and returns it; `None` when `unwanted` says so meanwhile.
///
/// # Errors
/// [`Kind::Forge`](perfquilt_model::error::Kind::Forge) when it cannot be fetched, or that takes too long;
/// [`Kind::Interrupted`](perfquilt_model::error::Kind::Interrupted).
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
    let base = format!("+refs/heads/{}:{}", found.branch, base_of(number));
    let mut words = vec!["fetch", "--quiet", "--no-tags", "--no-recurse-submodules"];
    match config.bot.kind {
        BotKind::Series => words.extend(["--depth=1", "--", remote, &head]),
        // Where the commits branched off is found in the history.
        BotKind::Fork => words.extend(["--", remote, &head, &base]),
    }
    // One fetch goes on at a time: these locks were left by one that was killed, and git waits for nobody.
    for file in ["shallow", &name, &base_of(number)] {
        let lock = places.repository().join(format!("{file}.lock"));
        perfquilt_system::caches::remove_file(&lock)?;
    }
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
    if is_commit(&commit) {
        Ok(Some(commit))
    } else {
        Err(Error::internal("git names no commit"))
    }
}

/// The reference for the branch that pull request `number` goes to. It has not the branch's name: where `rel` was,
/// git makes no `rel/1`.
pub(super) fn base_of(number: u64) -> String {
    format!("refs/pull/{number}/base")
}

/// Whether `remote` answers at all.
///
/// # Errors
/// [`Kind::Forge`](perfquilt_model::error::Kind::Forge) when it does not.
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
    drop(Objects::open_or_create(&folder)?);
    let git = Git::bare(&folder);
    let attributes = folder.join("info/attributes");
    if std::fs::read(&attributes).ok().as_deref() != Some(ATTRIBUTES) {
        perfquilt_system::files::write_file(&attributes, ATTRIBUTES)?;
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
/// [`Kind::Series`](perfquilt_model::error::Kind::Series) when the commit has no series, too much of one, or commits that
/// are no patches, or of which patches are made that make something else.
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
    let git = Git::bare(&places.repository());
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
    let commits = match config.bot.kind {
        BotKind::Series => {
            unpack(&git, commit, &[&files.file, &files.patches], job)?;
            if !job.join(&files.file).is_file() {
                return Err(Error::series(format!(
                    "the pull request has no file {}",
                    files.file.display()
                )));
            }
            None
        }
        BotKind::Fork => {
            let about = (found.number, commit);
            Some(commits::workspace(places, ws, &git, about, job)?)
        }
    };
    let made = Workspace::open_with_cache(job, ws.cache().to_owned())?;
    if let Some(commits) = commits {
        let series = Series::load(&made)?;
        commits.check(&places.repository(), &series, made.config.series.fuzz)?;
    }
    Ok(made)
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
    perfquilt_system::caches::remove_file(&path)?;
    link(state, &path)
}

fn link(from: &Path, to: &Path) -> Result<()> {
    std::os::unix::fs::symlink(from, to).map_err(|e| Error::io("link", to, &e))
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
fn steered(patch: &Patch, bot: &perfquilt_config::Bot) -> impl Iterator<Item = String> {
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
    let mut words = Vec::new();
    let mut sizes: Vec<u64> = Vec::new();
    for path in paths {
        let word = path.display().to_string();
        let listed = git.ok(&["ls-tree", "-r", "-l", "-z", commit, "--", &word])?;
        let before = sizes.len();
        sizes.extend(
            listed
                .split('\0')
                .filter_map(|line| line.split_whitespace().nth(3)?.parse::<u64>().ok()),
        );
        // Git packs nothing at all when one of the paths is not there.
        if sizes.len() > before {
            words.push(word);
        }
    }
    if sizes.len() > MOST || sizes.iter().sum::<u64>() > LARGEST {
        return Err(Error::series(format!(
            "the series and patches of the pull request are more than {MOST} files or {} MB",
            LARGEST >> 20
        )));
    }
    if words.is_empty() {
        return Ok(());
    }
    let mut archive = vec!["archive", "--format=tar", commit, "--"];
    archive.extend(words.iter().map(String::as_str));
    let packed = git.command(&archive).run_ok(Kind::Internal)?;
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
    use perfquilt_patches::series::Entry;

    fn git(folder: &Path, args: &[&str]) {
        let who = ["-c", "user.name=x", "-c", "user.email=x@example.org"];
        let words = [&who[..], args].concat();
        let command = Git::new(folder).command(&words);
        let command = command.env("GIT_CONFIG_GLOBAL", "/dev/null");
        command.run_ok(Kind::Internal).unwrap();
    }

    /// The folder `name` below `root`, a repository with a commit of the file `series`.
    fn made(root: &Path, name: &str) -> PathBuf {
        let folder = root.join(name);
        std::fs::create_dir(&folder).unwrap();
        git(&folder, &["init", "--quiet"]);
        std::fs::write(folder.join("series"), "# nothing\n").unwrap();
        git(&folder, &["add", "."]);
        git(&folder, &["commit", "--quiet", "-m", "x"]);
        folder
    }

    #[test]
    fn neither_names_of_branches_nor_locks_of_the_killed_hinder_a_fetch() {
        let root = tempfile::tempdir().unwrap();
        let remote = made(root.path(), "remote");
        let places = Places::at(&root.path().join("bot"));
        let text = "[upstream]\nname=\"x\"\ncurrent=\"1\"\n[recipe]\n[preset]\n[server]\nadapter=\"mariadb\"\n\
                    [bot]\nkind=\"fork\"\n";
        let config: Config = toml::from_str(text).unwrap();
        let fetched = |number: u64, branch: &str| {
            let name = format!("refs/pull/{number}/head");
            git(&remote, &["commit", "--quiet", "--allow-empty", "-m", "y"]);
            git(&remote, &["update-ref", &name, "HEAD"]);
            let found = Found {
                number,
                newest: String::new(),
                base: String::new(),
                branch: branch.to_owned(),
                open: true,
            };
            let remote = remote.display().to_string();
            fetch(&places, &config, &remote, &found, &|| false).unwrap()
        };
        // One that was killed as it made the repository, then one that was killed as it fetched.
        let store = places.repository();
        std::fs::create_dir_all(store.join("objects")).unwrap();
        std::fs::write(store.join("config.lock"), "").unwrap();
        git(&remote, &["branch", "rel"]);
        let first = fetched(7, "rel");
        assert!(first.is_some());
        git(&remote, &["branch", "-D", "rel"]);
        git(&remote, &["branch", "rel/1"]);
        for lock in ["config", "shallow", "refs/pull/7/head", "refs/pull/7/base"] {
            std::fs::write(store.join(format!("{lock}.lock")), "").unwrap();
        }
        let second = fetched(7, "rel/1");
        assert!(second.is_some() && second != first);
        assert!(fetched(16, "rel/1").is_some());
    }

    #[test]
    fn a_series_without_patches_is_one() {
        let root = tempfile::tempdir().unwrap();
        let from = made(root.path(), "from");
        let to = root.path().join("to");
        let paths = [Path::new("series"), Path::new("patches")];
        unpack(&Git::new(&from), "HEAD", &paths, &to).unwrap();
        let series = std::fs::read_to_string(to.join("series")).unwrap();
        assert_eq!(series, "# nothing\n");
        // Nothing at all is for others to tell.
        unpack(&Git::new(&from), "HEAD", &paths[1..], &to).unwrap();
    }

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
            steered(&patch, &perfquilt_config::Bot::default()).collect::<Vec<_>>()
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
