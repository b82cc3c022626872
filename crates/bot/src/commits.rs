//! A pull request to a server as a series: every commit is a patch, on the commit where they branched off.
//!
//! A patch has of its commit's message the first line alone: whatever else a message quotes could be taken for a
//! diff. And what the patches make is compared with the commits before anything is built.

use std::path::Path;

use super::places::Places;
use super::source::{LARGEST, base_of};
use perfquilt_config::CONFIG_FILE;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::cut::at_most;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_patches::series::Series;
use perfquilt_patches::series::path::shown;
use perfquilt_patches::stack::format::changed_paths;
use perfquilt_patches::stack::trial::Trial;
use perfquilt_patches::upstream::Objects;
use perfquilt_system::git::Git;
use perfquilt_system::process::Command;

/// Commits of a pull request.
const MOST: usize = 500;
/// Digits of a commit's id where people read it, and in the name of the release it is the base of.
const SHORT: usize = 12;
/// Bytes of a patch's name before its ending.
const LONGEST_NAME: usize = 57;
/// What git says of a commit, a line each: id, tree, title as a file's name, author, date and title.
const FORMAT: &str = "--format=%H%n%T%n%f%n%an <%ae>%n%aD%n%s";

/// A commit of a pull request.
#[derive(Debug)]
struct Commit {
    id: String,
    tree: String,
    /// The name of its patch.
    patch: String,
    /// What its patch begins with.
    header: String,
}

/// The commits of a pull request, in order, and the one that they stand on.
#[derive(Debug)]
pub(super) struct Commits {
    base: String,
    /// The tree of the base.
    tree: String,
    commits: Vec<Commit>,
}

/// Makes patches of the commits up to `commit` of pull request `number` in the workspace `job`, and a
/// configuration whose current release is their base.
///
/// # Errors
/// [`Kind::Series`] when the commits are no patches, or too much of them.
pub(super) fn workspace(
    places: &Places,
    ws: &Workspace,
    git: &Git,
    (number, commit): (u64, &str),
    job: &Path,
) -> Result<Commits> {
    let commits = Commits::find(git, &base_of(number), commit)?;
    let files = ws.config.series_of(None)?;
    commits.write(git, &job.join(&files.patches))?;
    let names: Vec<&str> = commits.names().collect();
    let series = job.join(&files.file);
    std::fs::write(&series, names.join("\n") + "\n")
        .map_err(|e| Error::io("write", &series, &e))?;
    based(places, ws, git, &commits.base, job)?;
    Ok(commits)
}

impl Commits {
    /// The commits from where `commit` branched off `branch`.
    fn find(git: &Git, branch: &str, commit: &str) -> Result<Self> {
        let bases = plain(git, &["merge-base", "--all", branch, commit]).run()?;
        let bases = bases.stdout_text();
        let base = match bases.split_whitespace().collect::<Vec<_>>().as_slice() {
            [only] => (*only).to_owned(),
            [] => {
                return Err(Error::series(
                    "the pull request has no commit in common with its branch",
                )
                .hint("rebase it on that branch"));
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
                at_most(merge, SHORT)
            ))
            .hint("rebase the pull request instead of merging into it"));
        }
        let count: usize = said(git, &["rev-list", "--count", &range])?
            .trim()
            .parse()
            .unwrap_or(0);
        if count == 0 || count > MOST {
            return Err(Error::series(format!(
                "the pull request has {count} commits; 1 to {MOST} can be measured"
            )));
        }
        let log = ["log", "--reverse", "--topo-order", FORMAT, &range, "--"];
        let text = said(git, &log)?;
        let lines: Vec<&str> = text.lines().collect();
        let mut commits = Vec::with_capacity(count);
        for about in lines.chunks(6) {
            let [id, tree, name, author, date, title] = about else {
                break;
            };
            let name = format!("{:04}-{name}", commits.len() + 1);
            commits.push(Commit {
                id: (*id).to_owned(),
                tree: (*tree).to_owned(),
                patch: format!("{}.patch", at_most(&name, LONGEST_NAME)),
                header: format!("From: {author}\nDate: {date}\nSubject: {title}\n\n"),
            });
        }
        if commits.len() != count {
            return Err(Error::internal("git does not tell all commits"));
        }
        let tree = said(git, &["rev-parse", "--verify", &format!("{base}^{{tree}}")])?;
        Ok(Commits {
            tree: tree.trim().to_owned(),
            base,
            commits,
        })
    }

    /// The names of the patches, in order.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.commits.iter().map(|commit| commit.patch.as_str())
    }

    /// Writes the patches to `folder`.
    fn write(&self, git: &Git, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).map_err(|e| Error::io("make", folder, &e))?;
        let mut before = self.tree.as_str();
        let mut bytes = 0;
        for commit in &self.commits {
            let path = folder.join(&commit.patch);
            let output = format!("--output={}", path.display());
            let diff = [
                "diff-tree",
                "-p",
                "--full-index",
                "--binary",
                "--find-renames",
                "--no-ext-diff",
                "--no-textconv",
                "--no-color",
                &output,
                before,
                &commit.tree,
            ];
            said(git, &diff)?;
            before = &commit.tree;
            let failed = |error: std::io::Error| Error::io("read", &path, &error);
            bytes += std::fs::metadata(&path).map_err(failed)?.len();
            if bytes > LARGEST {
                return Err(Error::series(format!(
                    "the patches of the pull request are more than {} MB",
                    LARGEST >> 20
                )));
            }
            let diff = std::fs::read(&path).map_err(failed)?;
            // A commit that changes nothing is an empty patch, and that is an empty file.
            if !diff.is_empty() {
                let text = [commit.header.as_bytes(), &diff].concat();
                std::fs::write(&path, text).map_err(|e| Error::io("write", &path, &e))?;
            }
        }
        Ok(())
    }

    /// Makes sure that `series`, with up to `fuzz` lines of context ignored, makes of the base what the commits in
    /// the repository at `store` have, one after the other.
    ///
    /// # Errors
    /// [`Kind::Series`] when it does not apply, or makes anything else.
    pub(super) fn check(&self, store: &Path, series: &Series, fuzz: usize) -> Result<()> {
        let patches = series.patches();
        if patches.len() != self.commits.len() {
            return Err(Error::series(format!(
                "the pull request has {} commits, and its series {} patches",
                self.commits.len(),
                patches.len()
            )));
        }
        let objects = Objects::open(store)?;
        let mut tree = Trial::new(&objects, &self.tree)?;
        for (patch, commit) in patches.iter().zip(&self.commits) {
            tree.apply(patch, fuzz)?;
            let made = tree.write()?;
            if made == commit.tree {
                continue;
            }
            // Where no file differs the commit's folders are only written as long ago, with other modes.
            if let Some(path) = changed_paths(&objects, &made, &commit.tree)?.first() {
                return Err(Error::series(format!(
                    "the patch made of commit {} makes another {} than the commit has",
                    at_most(&commit.id, SHORT),
                    shown(path)
                ))
                .at(&patch.shown, None)
                .hint("a commit can be measured whose diff, as a patch, makes exactly its files"));
            }
        }
        Ok(())
    }
}

/// Writes the bot's configuration with the commit `base` as the current release.
fn based(places: &Places, ws: &Workspace, git: &Git, base: &str, job: &Path) -> Result<()> {
    let to = job.join("bench-config");
    perfquilt_machine::server::copy_tree(&ws.bench_config(), &to)?;
    let version = at_most(base, SHORT);
    let tag = format!("perfquilt-base-{version}");
    let repository = places.repository();
    // What a git left that was killed while it wrote the tag.
    perfquilt_system::caches::remove_file(&repository.join(format!("refs/tags/{tag}.lock")))?;
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
    match std::fs::copy(places.lock_file(), &lock) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            perfquilt_system::caches::remove_file(&lock)
        }
        Err(error) => Err(Error::io("copy", &lock, &error)),
        Ok(_) => Ok(()),
    }
}

/// Git on commits of strangers, with nobody's settings.
fn plain(git: &Git, args: &[&str]) -> Command {
    git.command(args)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
}

fn said(git: &Git, args: &[&str]) -> Result<String> {
    Ok(plain(git, args).run_ok(Kind::Internal)?.stdout_text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_patches::series::{Patch, SeriesFile};

    /// A message that quotes a diff of a file which its commit leaves alone.
    const QUOTES: &str = "README: say it\n\ndiff --git a/work.h b/work.h\n--- a/work.h\n+++ b/work.h\n\
                          @@ -1 +1 @@\n-#define ROUNDS 4\n+#define ROUNDS 1\n";

    fn git(folder: &Path, args: &[&str]) {
        let who = ["-c", "user.name=A B", "-c", "user.email=a@example.org"];
        said(&Git::new(folder), &[&who[..], args].concat()).unwrap();
    }

    #[test]
    fn what_a_message_quotes_is_no_patch() {
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
        let commits = Commits::find(&Git::new(&store), "base", "HEAD").unwrap();
        let names: Vec<&str> = commits.names().collect();
        assert_eq!(names, ["0001-README-say-it.patch", "0002-nothing.patch"]);
        let patches = root.join("patches");
        commits.write(&Git::new(&store), &patches).unwrap();
        // The series, with more before its first patch.
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
        commits.check(&store, &honest, 0).unwrap();
        let error = commits.check(&store, &series(QUOTES), 0).unwrap_err();
        assert_eq!(error.kind(), Kind::Series);
        assert!(
            error.to_string().contains("makes another work.h"),
            "{error}"
        );
    }
}
