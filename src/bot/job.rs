//! One job in a folder of its own: the series and patches of a pull request, everything else the bot's.
//!
//! A pull request brings data only: its `series` and `patches/`, as plain files. Configuration, recipes and
//! workloads are commands, so they are those of the bot's own workspace. What a patch makes of the server's
//! source is code all the same, which is why whose patches are run is decided before.

use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use super::command::Command as Wish;
use crate::error::{Error, Kind, Result};
use crate::forge::is_commit;
use crate::git::Git;
use crate::process::{Command, Sink};
use crate::workspace::Workspace;

/// Bytes of a pull request's series and patches that are taken.
const LARGEST: u64 = 64 << 20;
/// Files of them.
const MOST: usize = 10_000;

/// Where the bot keeps what it needs besides the queue.
#[derive(Debug, Clone)]
pub(super) struct Places {
    root: PathBuf,
}

impl Places {
    pub(super) fn new(ws: &Workspace) -> Self {
        Places {
            root: ws.state().join("bot"),
        }
    }

    pub(super) fn queue(&self) -> PathBuf {
        self.root.join("queue.db")
    }

    /// The outcome of the last job of a pull request.
    pub(super) fn outcome(&self, number: u64) -> PathBuf {
        self.root.join("outcomes").join(number.to_string())
    }

    fn repository(&self) -> PathBuf {
        self.root.join("commits.git")
    }

    fn job(&self) -> PathBuf {
        self.root.join("job")
    }
}

/// Fetches the last commit of pull request `number` and returns it.
///
/// # Errors
/// [`Kind::Forge`] when it cannot be fetched.
pub(super) fn fetch(places: &Places, remote: &str, number: u64) -> Result<String> {
    let folder = places.repository();
    std::fs::create_dir_all(&folder).map_err(|e| Error::io("make", &folder, &e))?;
    let git = Git::new(&folder);
    git.ok(&["init", "--quiet", "--bare", "."])?;
    let name = format!("refs/pull/{number}/head");
    let fetched = git.run(&[
        "-c",
        "protocol.ext.allow=never",
        "fetch",
        "--quiet",
        "--no-tags",
        "--depth=1",
        "--no-recurse-submodules",
        "--",
        remote,
        &format!("+{name}:{name}"),
    ])?;
    if !fetched.success() {
        return Err(Error::forge(format!("cannot fetch pull request {number}"))
            .details(fetched.tail(5))
            .hint("[bot] `remote` says where from; git needs to be allowed to read there"));
    }
    let commit = git.ok(&["rev-parse", "--verify", &name])?;
    match is_commit(&commit) {
        true => Ok(commit),
        false => Err(Error::internal("git names no commit")),
    }
}

/// Makes the workspace of a job: `commit`'s series and patches, the rest of `ws`.
///
/// # Errors
/// [`Kind::Series`] when the commit has no series, or too much of one.
pub(super) fn workspace(places: &Places, ws: &Workspace, commit: &str) -> Result<PathBuf> {
    let files = ws.config.series_of(None)?;
    let job = places.job();
    match std::fs::remove_dir_all(&job) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::io("remove", &job, &error));
        }
        _ => std::fs::create_dir_all(&job).map_err(|e| Error::io("make", &job, &e))?,
    }
    let first = |path: &Path| {
        path.components()
            .next()
            .map(|part| part.as_os_str().to_owned())
    };
    let theirs = [first(&files.file), first(&files.patches)];
    let entries = std::fs::read_dir(ws.root()).map_err(|e| Error::io("read", ws.root(), &e))?;
    for entry in entries {
        let entry = entry.map_err(|e| Error::io("read", ws.root(), &e))?;
        let name = entry.file_name();
        if name == ".git" || theirs.contains(&Some(name.clone())) {
            continue;
        }
        let link = job.join(&name);
        std::os::unix::fs::symlink(entry.path(), &link)
            .map_err(|e| Error::io("link", &link, &e))?;
    }
    unpack(
        &Git::new(&places.repository()),
        commit,
        &[&files.file, &files.patches],
        &job,
    )?;
    match job.join(&files.file).is_file() {
        true => Ok(job),
        false => Err(Error::series(format!(
            "the pull request has no file {}",
            files.file.display()
        ))),
    }
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

/// How a job's process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// By itself; the outcome says what it came to.
    Itself,
    /// Because the job is not wanted any more.
    Cancelled,
}

/// The arguments of `perfquilt` that carry out a wish; `None` for what is no measurement.
pub(super) fn arguments(wish: &Wish, preset: &str) -> Option<Vec<String>> {
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    let before = |patch: usize| patch.saturating_sub(1).to_string();
    Some(match wish {
        Wish::Run { preset: named } => {
            words(&["run", "--preset", named.as_deref().unwrap_or(preset)])
        }
        Wish::RunPatch { patch } => words(&[
            "run",
            "--preset",
            preset,
            "--point",
            &before(*patch),
            "--point",
            &patch.to_string(),
        ]),
        Wish::DropDryRun { patch } => words(&[
            "run",
            "--preset",
            preset,
            "--effects",
            "without",
            "--point",
            &patch.to_string(),
        ]),
        _ => return None,
    })
}

/// Runs `perfquilt` with `arguments` in the workspace `job` until it ends, `unwanted` says so, or a signal
/// asks the bot to stop. `tell` gets what it says it is doing.
///
/// # Errors
/// [`Kind::Interrupted`] when the bot is to stop: the next run of the same job goes on.
pub(super) fn run(
    tool: &Path,
    job: &Path,
    arguments: &[String],
    unwanted: &dyn Fn() -> bool,
    tell: impl Fn(&str) + Send + 'static,
) -> Result<Ended> {
    const GRACE: Duration = Duration::from_secs(60);
    const GLANCE: Duration = Duration::from_millis(500);
    let mut child = Command::new(tool)
        .args(["-C".as_ref(), job.as_os_str()])
        .args(arguments)
        .args(["--outcome".as_ref(), job.join("outcome").as_os_str()])
        .stdout(Sink::Null)
        .stderr(Sink::Pipe)
        .spawn()?;
    if let Some(stream) = child.take_stderr() {
        use std::io::{BufRead, BufReader};
        // The pipe must be emptied; the thread ends with it.
        std::thread::spawn(move || {
            for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                tell(String::from_utf8_lossy(&line).trim());
            }
        });
    }
    loop {
        match child.wait_within(GLANCE) {
            Ok(Some(_)) => return Ok(Ended::Itself),
            Ok(None) if unwanted() => {
                child.stop(GRACE)?;
                return Ok(Ended::Cancelled);
            }
            Ok(None) => {}
            Err(error) if error.kind() == Kind::Interrupted => {
                child.stop(GRACE)?;
                return Err(error);
            }
            Err(error) => return Err(error),
        }
    }
}
