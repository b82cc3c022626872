//! Fetches pull requests, each into a repository of its job's own, with limits of size, time and memory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Resource;

use super::area::{Area, recreate};
use super::limited_git::LimitedGit;
use super::paths::BotPaths;
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{Config, RepositoryKind};
use perfquilt_forge::{PullRequest, is_commit};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_series::upstream::{Objects, read_no_user_settings};
use perfquilt_system::git::{self, Git};
use perfquilt_system::process::{Command, last_lines, without_credentials};

/// The maximum total size of a pull request's series and patches, in bytes.
pub(super) const MAX_SERIES_BYTES: u64 = 64 << 20;
/// The timeout of a fetch of a branch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// The timeout of a fetch of a pull request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// Limits of a fetch of a pull request, whose objects may take any time and memory to resolve: seconds of a processor, and
/// bytes of memory.
const LIMITS: [(Resource, u64); 2] = [(Resource::Cpu, 120), (Resource::As, 4 << 30)];
/// The maximum size of the list of a pull request's objects, in bytes.
const MAX_SIZES_BYTES: usize = 16 << 20;
/// The words of every fetch.
const FETCH: [&str; 5] = [
    "fetch",
    "--quiet",
    "--no-tags",
    "--no-recurse-submodules",
    "--no-auto-maintenance",
];
/// The timeout of the check whether a remote answers.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);
/// Attributes that keep git from altering untrusted files in an archive: from inserting commit messages,
/// leaving files out, or running filters.
const ATTRIBUTES: &[u8] =
    b"* -text -ident -filter -working-tree-encoding -export-subst -export-ignore\n";

/// Has git of this process and of its jobs read the settings in `git_config` of `[bot]` only.
pub fn use_git_settings(ws: &Workspace) -> Result<()> {
    let file = settings_file(ws);
    if let Some(file) = &file
        && let Err(error) = std::fs::metadata(file)
    {
        let fault = format!("cannot read {}: {error}", file.display());
        return Err(Error::bot_settings(fault)
            .at(perfquilt_config::CONFIG_FILE, None)
            .hint("`git_config` in [bot] names the file with git's settings for fetching"));
    }
    git::use_settings(file.as_deref());
    read_no_user_settings();
    Ok(())
}

/// Returns the file that `git_config` names.
pub(super) fn settings_file(ws: &Workspace) -> Option<PathBuf> {
    let file = ws.config.bot.git_config.as_ref();
    file.map(|path| ws.root().join(path))
}

/// The commits of a pull request, in a repository of its job's own.
#[derive(Debug)]
pub(super) struct PullCommits {
    /// The pull request.
    pub number: u64,
    /// The head commit.
    pub head: String,
    /// The repository.
    pub folder: PathBuf,
    /// For a pull request to a server, the repository with the commits of its branch, which the others build on.
    pub below: Option<PathBuf>,
}

impl PullCommits {
    /// Returns git in the repository.
    pub(super) fn git(&self) -> Git {
        let git = Git::isolated(&self.folder);
        match &self.below {
            Some(below) => git.with("GIT_ALTERNATE_OBJECT_DIRECTORIES", &below.join("objects")),
            None => git,
        }
    }
}

/// Fetches the commits of a pull request into the area of a job; `None` when `cancelled` returns true meanwhile.
///
/// # Errors
/// [`Kind::Series`] when they have more objects than `fetch_mib` allows; transient errors of the network.
pub(super) fn fetch(
    paths: &BotPaths,
    config: &Config,
    remote: &Remote,
    found: &PullRequest,
    area: &Area,
    cancelled: &dyn Fn() -> bool,
) -> Result<Option<PullCommits>> {
    let number = found.number;
    let name = format!("refs/pull/{number}/head");
    let folder = area.commits();
    recreate(&folder)?;
    repository(&folder)?;
    let mut commits = PullCommits {
        number,
        head: String::new(),
        folder,
        below: None,
    };
    let refspec = format!("+{}:{name}", found.reference);
    let bytes = config.bot.fetch_mib.saturating_mul(1 << 20);
    // The objects stay in a pack: a few that are unpacked can take many times its room.
    let mut words = vec!["-c", "fetch.unpackLimit=1", "-c", "pack.threads=1"];
    words.extend(FETCH);
    if config.bot.kind == RepositoryKind::Series {
        words.push("--depth=1");
    } else {
        let Some(base) = fetch_base(paths, remote, found, cancelled)? else {
            return Ok(None);
        };
        commits.below = Some(paths.repository());
        // What the branch has, the remote does not send again; their merge base is found in the full history.
        commits
            .git()
            .ok(&["update-ref", &base_ref(number), &base])?;
    }
    words.extend(["--", &remote.url, &refspec]);
    let command = remote.command(&commits.git(), &words);
    let command = LIMITS.iter().fold(
        command.limit(Resource::Fsize, bytes),
        |command, (resource, most)| command.limit(*resource, *most),
    );
    let too_large = |what: String| {
        let limit = config.bot.fetch_mib;
        Error::pull_request_too_large(format!(
            "the commits of the pull request are {what}; the limit is {limit} MiB"
        ))
        .hint("`fetch_mib` in [bot] of the bot's configuration sets the limit")
    };
    let what = format!("fetch pull request {number}");
    match run_remote(command, &what, HEAD_TIMEOUT, cancelled) {
        Ok(false) => return Ok(None),
        Ok(true) => {}
        Err(_) if largest_pack(&commits.folder) >= bytes => {
            return Err(too_large("too large, packed".to_owned()));
        }
        Err(error) => return Err(error),
    }
    // Without the objects below, and from their headers alone.
    let limited = LimitedGit::new(Git::isolated(&commits.folder), cancelled);
    let sizes = limited.output(
        &[
            "cat-file",
            "--batch-all-objects",
            "--unordered",
            "--batch-check=%(objectsize)",
        ],
        MAX_SIZES_BYTES,
    )?;
    let sizes = String::from_utf8_lossy(&sizes);
    let unpacked: u64 = sizes
        .lines()
        .filter_map(|size| size.parse::<u64>().ok())
        .sum();
    if unpacked > bytes {
        return Err(too_large(format!(
            "{} MiB of objects, unpacked",
            unpacked >> 20
        )));
    }
    commits.head = Git::isolated(&commits.folder).ok(&["rev-parse", "--verify", &name])?;
    if is_commit(&commits.head) {
        Ok(Some(commits))
    } else {
        Err(Error::git_output("git did not return a commit id"))
    }
}

/// Fetches the target branch of a pull request to a server, whose commits are trusted, and returns its head commit.
fn fetch_base(
    paths: &BotPaths,
    remote: &Remote,
    found: &PullRequest,
    cancelled: &dyn Fn() -> bool,
) -> Result<Option<String>> {
    let git = repository(&paths.repository())?;
    let name = base_ref(found.number);
    // Only one fetch runs at a time, so this lock belongs to a killed process. Git would not wait for it but fail.
    perfquilt_system::caches::remove_file(&paths.repository().join(format!("{name}.lock")))?;
    let refspec = format!("+refs/heads/{}:{name}", found.branch);
    let words = [&FETCH[..], &["--", &remote.url, &refspec]].concat();
    let what = format!("fetch pull request {}", found.number);
    if !run_remote(
        remote.command(&git, &words),
        &what,
        FETCH_TIMEOUT,
        cancelled,
    )? {
        return Ok(None);
    }
    git.ok(&["rev-parse", "--verify", &name]).map(Some)
}

/// Fetches all branches of a remote into `refs/upstream` of the repository `folder`.
pub(super) fn fetch_branches(folder: &Path, remote: &Remote) -> Result<Git> {
    let git = repository(folder)?;
    let branches = "+refs/heads/*:refs/upstream/*";
    let words = [&FETCH[..], &["--", &remote.url, branches]].concat();
    let command = remote.command(&git, &words);
    run_remote(
        command,
        "fetch what series apply to",
        FETCH_TIMEOUT,
        &|| false,
    )?;
    Ok(git)
}

/// Runs a command of git that reads a remote, to do `what`; returns `false` when `cancelled` returns true meanwhile.
fn run_remote(
    command: Command,
    what: &str,
    limit: Duration,
    cancelled: &dyn Fn() -> bool,
) -> Result<bool> {
    let failed = |said: &str| {
        Error::forge_refused(format!("cannot {what}"))
            .details(last_lines(&without_credentials(said), 5))
            .hint("check `remote` in [bot]; git needs read access to it, with the settings of `git_config` in [bot] only")
            .transient()
    };
    match command.run_cancellable(limit, cancelled) {
        Err(_) if cancelled() => Ok(false),
        Err(error) if error.kind() == Kind::Bench => Err(failed(&error.to_string())),
        Ok(output) if !output.success() => Err(failed(&output.stderr_text())),
        output => output.map(|_| true),
    }
}

/// Returns the size of the largest pack in a repository, finished or not.
fn largest_pack(folder: &Path) -> u64 {
    let packs = std::fs::read_dir(folder.join("objects/pack"));
    let sizes = packs
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|file| file.metadata().ok());
    sizes.map(|found| found.len()).max().unwrap_or(0)
}

/// Returns the name of the reference for the target branch of pull request `number`. It does not contain the
/// branch's name: where `rel` existed, git cannot create `rel/1`.
pub(super) fn base_ref(number: u64) -> String {
    format!("refs/pull/{number}/base")
}

/// Checks that `remote` answers.
pub(super) fn check_remote(paths: &BotPaths, remote: &Remote) -> Result<()> {
    let words = ["ls-remote", "--quiet", "--", &remote.url, "HEAD"];
    let command = remote.command(&repository(&paths.repository())?, &words);
    let what = "read the repository that pull requests are fetched from";
    run_remote(command, what, CHECK_TIMEOUT, &|| false).map(drop)
}

/// Opens or creates a repository for commits of pull requests.
pub(super) fn repository(folder: &Path) -> Result<Git> {
    drop(Objects::open_or_create(folder)?);
    let git = Git::isolated(folder);
    let attributes = folder.join("info/attributes");
    if std::fs::read(&attributes).ok().as_deref() != Some(ATTRIBUTES) {
        perfquilt_system::files::write_file(&attributes, ATTRIBUTES)?;
    }
    Ok(git)
}

/// The repository from which pull requests are fetched.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) url: String,
    /// The file with git's settings for it, the only ones that git reads.
    pub(super) settings: Option<PathBuf>,
}

impl Remote {
    /// Returns a git command that accesses the remote. It never prompts for a password.
    fn command(&self, git: &Git, words: &[&str]) -> Command {
        let command = git.command(words);
        match &self.settings {
            Some(settings) => command.env("GIT_CONFIG_GLOBAL", settings),
            None => command,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn git(folder: &Path, args: &[&str]) {
        let identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"];
        let words = [&identity[..], args].concat();
        let command = Git::new(folder).command(&words);
        let command = command.env("GIT_CONFIG_GLOBAL", "/dev/null");
        command.run_ok(Kind::Internal).unwrap();
    }

    /// Creates the repository `name` below `root`, with a commit of the file `series`.
    pub(crate) fn repository_with_series(root: &Path, name: &str) -> PathBuf {
        let folder = root.join(name);
        std::fs::create_dir(&folder).unwrap();
        git(&folder, &["init", "--quiet"]);
        std::fs::write(folder.join("series"), "# nothing\n").unwrap();
        git(&folder, &["add", "."]);
        git(&folder, &["commit", "--quiet", "-m", "x"]);
        folder
    }

    #[test]
    fn only_the_settings_that_were_named_are_used() {
        let root = tempfile::tempdir().unwrap();
        let remote = repository_with_series(root.path(), "remote");
        git(&remote, &["update-ref", "refs/pull/7/head", "HEAD"]);
        let paths = BotPaths::at(&root.path().join("bot"));
        let settings = root.path().join("settings");
        let rewritten = format!(
            "[url \"{}\"]\n\tinsteadOf = https://git.example.invalid/x.git\n",
            remote.display()
        );
        std::fs::write(&settings, rewritten).unwrap();
        let mut remote = Remote {
            url: "https://git.example.invalid/x.git".to_owned(),
            settings: Some(settings),
        };
        check_remote(&paths, &remote).unwrap();
        remote.settings = None;
        let error = check_remote(&paths, &remote).unwrap_err();
        assert!(error.hint_text().unwrap().contains("git_config"), "{error}");
        // Neither the user's settings nor the system's: no file of settings but the repository's is read.
        let listed = repository(&paths.repository())
            .unwrap()
            .ok(&["config", "--list", "--show-scope"])
            .unwrap();
        let scopes: Vec<&str> = listed
            .lines()
            .filter_map(|line| line.split('\t').next())
            .collect();
        assert!(
            scopes
                .iter()
                .all(|scope| ["local", "command"].contains(scope)),
            "{listed}"
        );
    }

    fn config(bot: &str) -> Config {
        let text = "[upstream]\nname=\"x\"\ncurrent=\"1\"\n[recipe]\n[preset]\n[server]\nadapter=\"mariadb\"\n[bot]\n";
        toml::from_str(&format!("{text}{bot}")).unwrap()
    }

    fn fetched(
        paths: &BotPaths,
        bot: &str,
        remote: &Path,
        number: u64,
        branch: &str,
    ) -> Result<PullCommits> {
        let found = PullRequest {
            number,
            head: String::new(),
            base: String::new(),
            branch: branch.to_owned(),
            reference: format!("refs/pull/{number}/head"),
            open: true,
        };
        let remote = Remote {
            url: remote.display().to_string(),
            settings: None,
        };
        let area = Area::of(paths, 1);
        fetch(paths, &config(bot), &remote, &found, &area, &|| false).map(Option::unwrap)
    }

    #[test]
    fn branch_names_and_stale_locks_do_not_block_a_fetch() {
        // A name of a branch has no `/.`.
        let root = tempfile::Builder::new().prefix("bot").tempdir().unwrap();
        let remote = repository_with_series(root.path(), "remote");
        let paths = BotPaths::at(&root.path().join("bot"));
        let fetched = |number: u64, branch: &str| {
            let name = format!("refs/pull/{number}/head");
            git(&remote, &["commit", "--quiet", "--allow-empty", "-m", "y"]);
            git(&remote, &["update-ref", &name, "HEAD"]);
            fetched(&paths, "kind=\"fork\"", &remote, number, branch)
                .unwrap()
                .head
        };
        // Simulates a process killed while it created the repository, then one killed while it fetched.
        let store = paths.repository();
        std::fs::create_dir_all(store.join("objects")).unwrap();
        std::fs::write(store.join("config.lock"), "").unwrap();
        git(&remote, &["branch", "rel"]);
        let first = fetched(7, "rel");
        git(&remote, &["branch", "-D", "rel"]);
        git(&remote, &["branch", "rel/1"]);
        for (folder, lock) in [
            (&store, "config"),
            (&store, "refs/pull/7/base"),
            (&Area::of(&paths, 1).commits(), "config"),
        ] {
            std::fs::write(folder.join(format!("{lock}.lock")), "").unwrap();
        }
        assert_ne!(fetched(7, "rel/1"), first);
        fetched(16, "rel/1");
        // Names that a shell or git's command line would take for something else; git refuses blanks in them.
        let planted = root.path().join("planted");
        let touch = format!("touch${{IFS}}{}", planted.display());
        for (number, name) in (20..).zip([
            format!("$({touch})"),
            format!(";{touch};"),
            format!("`{touch}`"),
            format!("--upload-pack={touch}"),
            "-f".to_owned(),
            "'\"|&>x".to_owned(),
        ]) {
            git(
                &remote,
                &["update-ref", &format!("refs/heads/{name}"), "HEAD"],
            );
            fetched(number, &name);
            assert!(!planted.exists(), "{name}");
        }
    }

    /// Few objects that are large unpacked, and many bytes that nothing makes smaller.
    #[test]
    fn a_pull_request_brings_no_more_objects_than_allowed() {
        let root = tempfile::tempdir().unwrap();
        let remote = repository_with_series(root.path(), "remote");
        git(&remote, &["branch", "rel"]);
        let paths = BotPaths::at(&root.path().join("bot"));
        let mut state = 1u64;
        let noise = std::iter::repeat_with(move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state.to_be_bytes()[0]
        });
        let noise: Vec<u8> = noise.take(3 << 20).collect();
        for (file, content, words) in [
            (
                "zeros",
                vec![0; 9 << 20],
                "9 MiB of objects, unpacked; the limit is 2 MiB",
            ),
            ("noise", noise, "too large, packed; the limit is 2 MiB"),
        ] {
            std::fs::write(remote.join(file), content).unwrap();
            git(&remote, &["add", "."]);
            git(&remote, &["commit", "--quiet", "-m", file]);
            git(&remote, &["update-ref", "refs/pull/7/head", "HEAD"]);
            for kind in ["series", "fork"] {
                let bot = |mib: u64| format!("kind=\"{kind}\"\nfetch_mib={mib}");
                let error = fetched(&paths, &bot(2), &remote, 7, "rel").unwrap_err();
                assert_eq!(error.kind(), Kind::Series, "{error}");
                assert!(error.to_string().ends_with(words), "{error}");
                fetched(&paths, &bot(30), &remote, 7, "rel").unwrap();
            }
            git(&remote, &["rm", "--quiet", file]);
        }
        // The fetch skips what the branch has.
        git(&remote, &["branch", "-f", "rel", "HEAD"]);
        git(&remote, &["commit", "--quiet", "-m", "next"]);
        git(&remote, &["update-ref", "refs/pull/7/head", "HEAD"]);
        fetched(&paths, "kind=\"fork\"\nfetch_mib=2", &remote, 7, "rel").unwrap();
    }
}
