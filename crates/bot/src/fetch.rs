//! Fetches pull requests into a bare repository of the bot.

use std::path::PathBuf;
use std::time::Duration;

use super::paths::BotPaths;
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{Config, RepositoryKind};
use perfquilt_forge::{PullRequest, is_commit};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_patches::upstream::{Objects, read_no_user_settings};
use perfquilt_system::git::{self, Git};
use perfquilt_system::process::{Command, last_lines, without_credentials};

/// The maximum total size of a pull request's series and patches, in bytes.
pub(super) const MAX_SERIES_BYTES: u64 = 64 << 20;
/// The timeout of a fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30 * 60);
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
        return Err(Error::usage(fault)
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

/// Fetches the head commit of a pull request and returns its id; `None` when `cancelled` returns true
/// meanwhile.
pub(super) fn fetch(
    paths: &BotPaths,
    config: &Config,
    remote: &Remote,
    found: &PullRequest,
    cancelled: &dyn Fn() -> bool,
) -> Result<Option<String>> {
    let git = repository(paths)?;
    let number = found.number;
    let name = format!("refs/pull/{number}/head");
    let head = format!("+{name}:{name}");
    let base = format!("+refs/heads/{}:{}", found.branch, base_ref(number));
    let mut words = vec!["fetch", "--quiet", "--no-tags", "--no-recurse-submodules"];
    match config.bot.kind {
        RepositoryKind::Series => words.extend(["--depth=1", "--", &remote.url, &head]),
        // The merge base is found in the full history.
        RepositoryKind::Fork => words.extend(["--", &remote.url, &head, &base]),
    }
    // Only one fetch runs at a time, so these locks belong to killed processes. Git would not wait for them but
    // fail.
    for file in ["shallow", &name, &base_ref(number)] {
        let lock = paths.repository().join(format!("{file}.lock"));
        perfquilt_system::caches::remove_file(&lock)?;
    }
    let failed = |said: &str| {
        Error::forge(format!("cannot fetch pull request {number}"))
            .details(last_lines(&without_credentials(said), 5))
            .hint("check `remote` in [bot]; git needs read access to it, with the settings of `git_config` in [bot] only")
            .transient()
    };
    let output = match remote
        .command(&git, &words)
        .run_cancellable(FETCH_TIMEOUT, cancelled)
    {
        Err(_) if cancelled() => return Ok(None),
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
        Err(Error::internal("git did not return a commit id"))
    }
}

/// Returns the name of the reference for the target branch of pull request `number`. It does not contain the
/// branch's name: where `rel` existed, git cannot create `rel/1`.
pub(super) fn base_ref(number: u64) -> String {
    format!("refs/pull/{number}/base")
}

/// Checks that `remote` answers.
pub(super) fn check_remote(paths: &BotPaths, remote: &Remote) -> Result<()> {
    let words = ["ls-remote", "--quiet", "--", &remote.url, "HEAD"];
    let failed = |said: &str| {
        Error::forge("cannot read the repository that pull requests are fetched from")
            .details(last_lines(&without_credentials(said), 5))
            .hint(
                "check `remote` and `git_config` in [bot]; no job can start until git can read it",
            )
    };
    match remote
        .command(&repository(paths)?, &words)
        .run_within(CHECK_TIMEOUT)
    {
        Ok(output) if output.success() => Ok(()),
        Ok(output) => Err(failed(&String::from_utf8_lossy(&output.stderr))),
        Err(error) if error.kind() == Kind::Bench => Err(failed(&error.to_string())),
        Err(error) => Err(error),
    }
}

/// Opens or creates the repository that receives the commits of pull requests.
fn repository(paths: &BotPaths) -> Result<Git> {
    let folder = paths.repository();
    drop(Objects::open_or_create(&folder)?);
    let git = Git::isolated(&folder);
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
    use std::path::{Path, PathBuf};

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
        let listed = repository(&paths)
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

    #[test]
    fn branch_names_and_stale_locks_do_not_block_a_fetch() {
        let root = tempfile::tempdir().unwrap();
        let remote = repository_with_series(root.path(), "remote");
        let paths = BotPaths::at(&root.path().join("bot"));
        let text = "[upstream]\nname=\"x\"\ncurrent=\"1\"\n[recipe]\n[preset]\n[server]\nadapter=\"mariadb\"\n\
                    [bot]\nkind=\"fork\"\n";
        let config: Config = toml::from_str(text).unwrap();
        let fetched = |number: u64, branch: &str| {
            let name = format!("refs/pull/{number}/head");
            git(&remote, &["commit", "--quiet", "--allow-empty", "-m", "y"]);
            git(&remote, &["update-ref", &name, "HEAD"]);
            let found = PullRequest {
                number,
                head: String::new(),
                base: String::new(),
                branch: branch.to_owned(),
                open: true,
            };
            let remote = Remote {
                url: remote.display().to_string(),
                settings: None,
            };
            fetch(&paths, &config, &remote, &found, &|| false).unwrap()
        };
        // Simulates a process killed while it created the repository, then one killed while it fetched.
        let store = paths.repository();
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
}
