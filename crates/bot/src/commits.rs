//! Converts a pull request to a server into a series: every commit becomes a patch on top of the merge base, and the
//! resolutions of merges become part of these patches.
//!
//! A patch contains only the first line of its commit's message, because a diff quoted in the message could be
//! mistaken for part of the patch. Before anything is built, the trees that the patches produce are compared
//! with those of the commits.

use std::path::Path;

use super::fetch::{MAX_SERIES_BYTES, PullCommits, base_ref};
use super::limited_git::LimitedGit;
use super::paths::BotPaths;
use perfquilt_config::CONFIG_FILE;
use perfquilt_config::workspace::Workspace;
use perfquilt_import::{HistoryLimits, linear_history};
use perfquilt_model::cut::at_most;
use perfquilt_model::error::{Error, Result};
use perfquilt_series::series::Series;
use perfquilt_series::series::path::shown;
use perfquilt_series::stack::format::{ChangeLimit, changed_paths};
use perfquilt_series::stack::trial::TrialTree;
use perfquilt_series::upstream::Objects;
use perfquilt_system::files::if_there;
use perfquilt_system::git::Git;

/// The maximum number of commits of a pull request, and of merges among them besides.
const MAX_COMMITS: usize = 500;
/// The maximum of all changes of a pull request together.
const MAX_CHANGES: ChangeLimit = ChangeLimit {
    files: 20_000,
    bytes: 512 << 20,
};
/// The maximum size of git's output about the commits of a pull request, in bytes.
const MAX_LOG_BYTES: usize = 4 << 20;
/// The number of digits of a commit id in messages and in the name of the base release.
pub(super) const SHORT_ID: usize = 12;
/// The maximum length of a patch's file name without its extension, in bytes.
const MAX_NAME_BYTES: usize = 57;
/// Format of `git log`, one field a line: title as a file name, author, date and title.
const FORMAT: &str = "--format=%f%n%an <%ae>%n%aD%n%s";

/// A commit of a pull request.
#[derive(Debug)]
struct Commit {
    id: String,
    tree: String,
    /// The file name of its patch.
    patch: String,
    /// The header of its patch.
    header: String,
}

/// The commits of a pull request, in order, and their base.
#[derive(Debug)]
pub(super) struct Commits {
    base: String,
    /// The tree of the base.
    tree: String,
    commits: Vec<Commit>,
}

/// Writes the commits `fetched` of a pull request as patches to the workspace `job`, with a configuration whose current
/// release is their base. `git` reads what untrusted authors committed.
pub(super) fn write_series(
    paths: &BotPaths,
    ws: &Workspace,
    git: &LimitedGit<'_>,
    fetched: &PullCommits,
    job: &Path,
) -> Result<Commits> {
    let base = base_ref(fetched.number);
    let commits = Commits::find(git, &objects(fetched)?, &base, &fetched.head)?;
    let files = ws.config.series_of(None)?;
    commits.write(git, &job.join(&files.patches))?;
    let names: Vec<&str> = commits.names().collect();
    let series = job.join(&files.file);
    std::fs::write(&series, names.join("\n") + "\n")
        .map_err(|e| Error::io("write", &series, &e))?;
    write_config(paths, ws, &commits.base, job)?;
    Ok(commits)
}

/// Opens the objects of a pull request and those that they build on.
pub(super) fn objects(fetched: &PullCommits) -> Result<Objects> {
    match &fetched.below {
        Some(below) => Objects::open_above(&fetched.folder, below),
        None => Objects::open(&fetched.folder),
    }
}

impl Commits {
    /// Lists the commits between the merge base with `branch` and `commit`, which are in `store`.
    fn find(git: &LimitedGit<'_>, store: &Objects, branch: &str, commit: &str) -> Result<Self> {
        let bases = git.run(&["merge-base", "--all", branch, commit], MAX_LOG_BYTES)?;
        let bases = bases.stdout_text();
        let base = match bases.split_whitespace().collect::<Vec<_>>().as_slice() {
            [only] => (*only).to_owned(),
            [] => {
                return Err(Error::pull_request_commits(
                    "the pull request has no commit in common with its branch",
                )
                .hint("rebase it on that branch"));
            }
            _ => {
                return Err(Error::pull_request_commits(
                    "the pull request has several merge bases with its branch, so its commits do not form a series",
                )
                .hint("rebase it on one commit"));
            }
        };
        let count = count_commits(git, &base, commit)?;
        let limits = HistoryLimits {
            commits: 2 * MAX_COMMITS,
            changes: Some(MAX_CHANGES),
            cancelled: git.cancelled(),
        };
        let history = linear_history(store, &base, commit, &limits)?;
        let mut log = vec!["log", "--no-walk=unsorted", FORMAT];
        log.extend(history.commits.iter().map(|commit| commit.id.as_str()));
        log.push("--");
        let text = git.output(&log, MAX_LOG_BYTES)?;
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let mut commits = Vec::with_capacity(count);
        for (about, linear) in lines.chunks(4).zip(&history.commits) {
            let [name, author, date, title] = about else {
                break;
            };
            let name = format!("{:04}-{name}", commits.len() + 1);
            let fix_ups = linear.fix_up_fields();
            commits.push(Commit {
                id: linear.id.clone(),
                tree: linear.tree.clone(),
                patch: format!("{}.patch", at_most(&name, MAX_NAME_BYTES)),
                header: format!("From: {author}\nDate: {date}\nSubject: {title}\n{fix_ups}\n"),
            });
        }
        if commits.len() != count {
            return Err(Error::git_output("git did not list all commits"));
        }
        Ok(Commits {
            tree: history.base,
            base,
            commits,
        })
    }

    /// Returns the file names of the patches, in order.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.commits.iter().map(|commit| commit.patch.as_str())
    }

    /// Writes the patches to `folder`.
    fn write(&self, git: &LimitedGit<'_>, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).map_err(|e| Error::io("make", folder, &e))?;
        let mut before = self.tree.as_str();
        let mut left = usize::try_from(MAX_SERIES_BYTES).unwrap_or(usize::MAX);
        for commit in &self.commits {
            let diff = [
                "diff-tree",
                "-p",
                "--full-index",
                "--binary",
                "--find-renames",
                "--no-ext-diff",
                "--no-textconv",
                "--no-color",
                before,
                &commit.tree,
            ];
            let diff = git.output(&diff, left)?;
            left -= diff.len();
            before = &commit.tree;
            // An empty commit becomes an empty file, which is an empty patch.
            let header = if diff.is_empty() { "" } else { &commit.header };
            let path = folder.join(&commit.patch);
            std::fs::write(&path, [header.as_bytes(), &diff].concat())
                .map_err(|e| Error::io("write", &path, &e))?;
        }
        Ok(())
    }

    /// Checks that applying `series` to the base, with up to `fuzz` lines of context ignored, produces the
    /// trees that the commits in `objects` have, one after the other.
    pub(super) fn check(&self, objects: &Objects, series: &Series, fuzz: usize) -> Result<()> {
        let patches = series.patches();
        if patches.len() != self.commits.len() {
            return Err(Error::import_differs(format!(
                "the pull request has {} commits, and its series {} patches",
                self.commits.len(),
                patches.len()
            )));
        }
        let mut tree = TrialTree::new(objects, &self.tree)?;
        for (patch, commit) in patches.iter().zip(&self.commits) {
            tree.apply(patch, fuzz)?;
            let made = tree.write()?;
            if made == commit.tree {
                continue;
            }
            // Without a differing file, the trees differ only in file modes that old versions of git wrote.
            if let Some(path) = changed_paths(objects, &made, &commit.tree)?.first() {
                return Err(Error::import_differs(format!(
                    "the patch of commit {} produces another {} than the commit",
                    at_most(&commit.id, SHORT_ID),
                    shown(path)
                ))
                .at(&patch.shown, None)
                .hint("perfquilt measures only commits whose diff, applied as a patch, reproduces their files exactly"));
            }
        }
        Ok(())
    }
}

/// Writes the bot's configuration with the commit `base` as the current release.
fn write_config(paths: &BotPaths, ws: &Workspace, base: &str, job: &Path) -> Result<()> {
    let to = job.join("bench-config");
    perfquilt_bench::server::copy_tree(&ws.bench_config(), &to)?;
    let version = at_most(base, SHORT_ID);
    let tag = format!("perfquilt-base-{version}");
    let repository = paths.repository();
    // A killed git may have left its lock file.
    perfquilt_system::caches::remove_file(&repository.join(format!("refs/tags/{tag}.lock")))?;
    Git::isolated(&repository).ok(&["tag", "--force", &tag, base])?;
    let path = job.join(CONFIG_FILE);
    let text = std::fs::read_to_string(&path).map_err(|e| Error::io("read", &path, &e))?;
    let wrong = |error: String| Error::bot_settings(error).at(CONFIG_FILE, None);
    let mut document: toml::Table = text
        .parse()
        .map_err(|e: toml::de::Error| wrong(e.to_string()))?;
    let upstream = document
        .get_mut("upstream")
        .and_then(toml::Value::as_table_mut)
        .ok_or_else(|| wrong("there is no [upstream]".to_owned()))?;
    let mut source = toml::Table::new();
    let mut from = toml::Table::new();
    let remote = repository.display().to_string();
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
    match if_there("copy", &lock, std::fs::copy(paths.lock_file(), &lock))? {
        Some(_) => Ok(()),
        None => perfquilt_system::caches::remove_file(&lock),
    }
}

/// Returns the number of commits after `base` up to `commit` that become patches.
fn count_commits(git: &LimitedGit<'_>, base: &str, commit: &str) -> Result<usize> {
    let range = format!("{base}..{commit}");
    let count = |which: &str| -> Result<usize> {
        let text = git.output(&["rev-list", "--count", which, &range, "--"], MAX_LOG_BYTES)?;
        let text = String::from_utf8_lossy(&text);
        let number = text.trim().parse();
        number.map_err(|_| Error::git_output("git did not count the commits"))
    };
    let (commits, merges) = (count("--no-merges")?, count("--merges")?);
    if commits == 0 || commits > MAX_COMMITS {
        return Err(Error::pull_request_too_large(format!(
            "the pull request has {commits} commits; 1 to {MAX_COMMITS} can be measured"
        )));
    }
    if merges > MAX_COMMITS {
        return Err(Error::pull_request_too_large(format!(
            "the pull request has {merges} merges; up to {MAX_COMMITS} can be measured"
        )));
    }
    Ok(commits)
}

#[cfg(test)]
mod tests {
    use super::super::limited_git::testing::tree_bomb;
    use super::*;
    use perfquilt_model::error::Kind;
    use perfquilt_series::series::{Patch, SeriesFile};

    /// A message that quotes a diff of a file that its commit does not change.
    const QUOTES: &str = "README: say it\n\ndiff --git a/work.h b/work.h\n--- a/work.h\n+++ b/work.h\n\
                          @@ -1 +1 @@\n-#define ROUNDS 4\n+#define ROUNDS 1\n";

    fn git(folder: &Path, args: &[&str]) -> String {
        let identity = ["-c", "user.name=A B", "-c", "user.email=a@example.org"];
        let git = LimitedGit::new(Git::new(folder), &|| false);
        let output = git
            .output(&[&identity[..], args].concat(), 1 << 20)
            .unwrap();
        String::from_utf8(output).unwrap().trim().to_owned()
    }

    fn bare(folder: &Path) -> LimitedGit<'static> {
        LimitedGit::new(Git::bare(folder), &|| false)
    }

    #[test]
    fn a_diff_quoted_in_a_message_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        git(root, &["init", "--quiet"]);
        std::fs::write(root.join("work.h"), "#define ROUNDS 4\n").unwrap();
        std::fs::write(root.join("README"), "x\n").unwrap();
        git(root, &["add", "."]);
        git(root, &["commit", "--quiet", "-m", "the server"]);
        git(root, &["branch", "base"]);
        std::fs::write(root.join("README"), "y\n").unwrap();
        git(root, &["commit", "--quiet", "-a", "-m", QUOTES]);
        git(
            root,
            &["commit", "--quiet", "--allow-empty", "-m", "nothing"],
        );
        git(root, &["clone", "--quiet", "--bare", ".", "bare.git"]);
        let store = root.join("bare.git");
        let head = git(&store, &["rev-parse", "HEAD"]);
        let commits = Commits::find(
            &bare(&store),
            &Objects::open(&store).unwrap(),
            "base",
            &head,
        )
        .unwrap();
        let names: Vec<&str> = commits.names().collect();
        assert_eq!(names, ["0001-README-say-it.patch", "0002-nothing.patch"]);
        let patches = root.join("patches");
        commits.write(&bare(&store), &patches).unwrap();
        // Loads the series with `more` in front of its first patch.
        let series = |more: &str| {
            let (file, _) = SeriesFile::parse(names.join("\n").as_bytes(), "series");
            let parsed = file.entries().iter().enumerate().map(|(index, entry)| {
                let mut text = std::fs::read_to_string(patches.join(&entry.name)).unwrap();
                if index == 0 {
                    text.insert_str(0, more);
                }
                Patch::parse(entry, &entry.name, text.as_bytes()).unwrap()
            });
            let parsed = parsed.collect();
            Series::assemble(file, parsed)
        };
        let honest = series("");
        let first = honest.patch(1).unwrap();
        assert_eq!(
            (first.title.as_str(), first.files.len()),
            ("README: say it", 1)
        );
        assert_eq!(first.header.author.as_ref().unwrap().name, "A B");
        let objects = Objects::open(&store).unwrap();
        commits.check(&objects, &honest, 0).unwrap();
        let error = commits.check(&objects, &series(QUOTES), 0).unwrap_err();
        assert_eq!(error.kind(), Kind::Series);
        assert!(
            error.to_string().contains("produces another work.h"),
            "{error}"
        );
    }

    #[test]
    fn the_number_of_commits_and_their_changes_have_limits() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        git(root, &["init", "--quiet", "--bare", "."]);
        let store = Git::bare(root);
        let commits = |count: usize| {
            let commit = "commit refs/heads/many\ncommitter x <x@example.org> 0 +0000\ndata 1\nx\n";
            let stream = format!("reset refs/heads/many\n{}", commit.repeat(count));
            let import = ["fast-import", "--quiet", "--force"];
            store.run_with_input(&import, stream.as_bytes()).unwrap();
            let base = format!("many~{}", count - 1);
            let head = git(root, &["rev-parse", "many"]);
            Commits::find(&bare(root), &Objects::open(root).unwrap(), &base, &head)
                .map(|found| found.commits.len())
        };
        assert_eq!(commits(MAX_COMMITS + 1).unwrap(), MAX_COMMITS);
        let error = commits(MAX_COMMITS + 2).unwrap_err();
        assert_eq!(error.kind(), Kind::Series);
        assert!(error.to_string().contains("has 501 commits"), "{error}");
        // A commit of more files than anybody can look at.
        let below = tree_bomb(&store);
        let parent = git(root, &["rev-parse", "many"]);
        let head = git(root, &["commit-tree", "-p", &parent, "-m", "x", &below]);
        let error =
            Commits::find(&bare(root), &Objects::open(root).unwrap(), &parent, &head).unwrap_err();
        assert_eq!(error.kind(), Kind::Series);
        assert!(
            error.to_string().contains("more than 20000 files"),
            "{error}"
        );
    }
}
