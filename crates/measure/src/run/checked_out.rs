//! The commit that git tests, and the files that git checks out for a commit: with those of its submodules, through its
//! filters, and whatever replaces or lacks objects.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use perfquilt_model::error::{Error, Result};
use perfquilt_series::upstream::{Objects, import_checkout};
use perfquilt_system::git::{Git, nul_separated, unreadable};
use perfquilt_system::process::{Output, quoted};

/// Git's mode of a submodule in a tree.
const SUBMODULE: &str = "160000";

/// Settings with which git checks out all files, and runs nothing but their filters.
const ALL_FILES: [&str; 4] = [
    "-c",
    "core.sparseCheckout=false",
    "-c",
    "core.hooksPath=/dev/null",
];

/// The commit that git tests: the one that `git bisect good` would call good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TestedCommit {
    /// `HEAD`, or `BISECT_HEAD` in a bisection that checks nothing out.
    pub name: &'static str,
    /// Its id.
    pub commit: String,
}

impl TestedCommit {
    /// Asks git.
    pub fn now(git: &Git) -> Result<Self> {
        let found = git.run(&["rev-parse", "--symbolic-full-name", "BISECT_HEAD"])?;
        // A branch may have this name, too.
        let is_set = found.success() && found.stdout_text().trim() == "BISECT_HEAD"
            || path_of(git, &["--git-path", "BISECT_HEAD"]).is_ok_and(|file| file.exists());
        let name = if is_set { "BISECT_HEAD" } else { "HEAD" };
        let commit = commit(git, name)?;
        Ok(TestedCommit { name, commit })
    }
}

/// Returns the absolute path that git gives for the words `what`.
fn path_of(git: &Git, what: &[&str]) -> Result<PathBuf> {
    let words = [&["rev-parse", "--path-format=absolute"], what].concat();
    git.ok(&words).map(PathBuf::from)
}

/// Returns the id of the commit that a revision names.
pub(super) fn commit(git: &Git, revision: &str) -> Result<String> {
    let peeled = format!("{revision}^{{commit}}");
    let output = git.run(&[
        "rev-parse",
        "--verify",
        "--quiet",
        "--end-of-options",
        &peeled,
    ])?;
    if output.success() {
        return Ok(output.stdout_text().trim().to_owned());
    }
    let here = "run it in the repository that is bisected, and name the workspace with -C";
    let error = match unreadable("the repository", &output.stderr_text()) {
        Some(error) if error.hint_text().is_some() => return Err(error),
        Some(error) => error,
        None if git.is_shallow() => {
            let message = format!("`{revision}` is not a commit here, and the clone is shallow");
            return Err(Error::git(message).hint(UNSHALLOW));
        }
        None => Error::commit(format!("`{revision}` is not a commit here")),
    };
    Err(error.hint(here))
}

/// The hint for a shallow clone.
const UNSHALLOW: &str = "`git fetch --unshallow --tags` fetches all commits";

/// Refuses a range that a shallow clone has only in part: git would blame the first commit that is there for all that are
/// not.
pub(super) fn refuse_cut_range(git: &Git, good: &str, bad: &str) -> Result<()> {
    match git.cut_between(good, bad)? {
        Some(end) => Err(Error::commit(format!(
            "the clone is shallow: between `{good}` and `{bad}` it has nothing before {}",
            &end[..12]
        ))
        .hint(UNSHALLOW)),
        None => Ok(()),
    }
}

/// A submodule in a tree or an index.
#[derive(Debug)]
pub(super) struct SubmoduleLink {
    path: String,
    commit: String,
}

/// Returns the submodules in git's index.
pub(super) fn links(git: &Git) -> Result<Vec<SubmoduleLink>> {
    let listed = git.ok(&["ls-files", "--stage", "--full-name", "-z", ":/"])?;
    let links = nul_separated(&listed).filter_map(|entry| {
        let (head, path) = entry.split_once('\t')?;
        let mut words = head.split(' ');
        (words.next()? == SUBMODULE).then_some(SubmoduleLink {
            commit: words.next()?.to_owned(),
            path: path.to_owned(),
        })
    });
    Ok(links.collect())
}

/// A repository whose files are checked out: one of submodules has a folder of its own, or in its parent's.
struct Repository {
    git: Git,
    /// Folders that may have the submodules' repositories.
    folders: Vec<PathBuf>,
    work_tree: Option<PathBuf>,
}

/// Checks a commit or tree out into a folder beside the store and imports that; returns its tree. The submodules are those of
/// `links`, or else the tree's; the paths of those that are not here are added to `absent`.
pub(super) fn checked_out(
    git: &Git,
    store: &Objects,
    tree: &str,
    links: Option<Vec<SubmoduleLink>>,
    absent: &mut BTreeSet<String>,
) -> Result<String> {
    let beside = store.path().parent().unwrap_or(Path::new("."));
    let beside = std::path::absolute(beside).map_err(|e| Error::io("find", beside, &e))?;
    let folder =
        tempfile::tempdir_in(&beside).map_err(|e| Error::io("make a folder in", &beside, &e))?;
    let repository = Repository {
        git: git.clone(),
        folders: vec![
            path_of(git, &["--git-dir"])?,
            path_of(git, &["--git-common-dir"])?,
        ],
        work_tree: path_of(git, &["--show-toplevel"]).ok(),
    };
    repository.check_out(tree, links, folder.path(), Path::new(""), absent)?;
    import_checkout(store, folder.path())
}

impl Repository {
    /// Checks a tree out at `place` below the folder `into`.
    fn check_out(
        &self,
        tree: &str,
        links_wanted: Option<Vec<SubmoduleLink>>,
        into: &Path,
        place: &Path,
        absent: &mut BTreeSet<String>,
    ) -> Result<()> {
        let index =
            tempfile::tempdir().map_err(|e| Error::io("make", &std::env::temp_dir(), &e))?;
        let target = into.join(place);
        let git = self.git.with_index(&index.path().join("index"));
        let git = git.with("GIT_WORK_TREE", &target);
        for args in [
            &["read-tree", tree][..],
            &["checkout-index", "--all", "--force", "--quiet"],
        ] {
            let output = git.run(&[&ALL_FILES[..], args].concat())?;
            if !output.success() {
                return Err(self.not_checked_out(tree, place, &output));
            }
        }
        let found = match links_wanted {
            Some(links) => links,
            None => links(&git)?,
        };
        if found.is_empty() {
            return Ok(());
        }
        let names = submodule_names(&git, &target);
        for link in found {
            let path = place.join(&link.path);
            match self.submodule(&link, names.get(&link.path))? {
                Some(submodule) => {
                    let tree = submodule.tree(&link.commit, &path)?;
                    std::fs::create_dir_all(into.join(&path))
                        .map_err(|e| Error::io("make", &into.join(&path), &e))?;
                    submodule.check_out(&tree, None, into, &path, absent)?;
                }
                None => {
                    absent.insert(path.display().to_string());
                }
            }
        }
        Ok(())
    }

    /// Returns the repository of a submodule; `None` if nobody has fetched it.
    fn submodule(&self, link: &SubmoduleLink, name: Option<&String>) -> Result<Option<Repository>> {
        let work_tree = self.work_tree.as_ref().map(|top| top.join(&link.path));
        let work_tree = work_tree.filter(|folder| folder.join(".git").exists());
        let own = work_tree
            .as_ref()
            .map(|folder| Git::new(folder).ok(&["rev-parse", "--absolute-git-dir"]));
        let own = own.transpose()?.map(PathBuf::from);
        let kept = |folder: &PathBuf| Some(folder.join("modules").join(name?));
        let folders: Vec<PathBuf> = own
            .into_iter()
            .chain(self.folders.iter().filter_map(kept))
            .filter(|folder| folder.is_dir())
            .collect();
        Ok(folders.first().map(|folder| Repository {
            // The work tree that its settings name may be gone.
            git: Git::new(folder)
                .with("GIT_DIR", folder)
                .with("GIT_WORK_TREE", folder),
            folders: folders.clone(),
            work_tree,
        }))
    }

    /// Returns the tree of a submodule's commit.
    fn tree(&self, commit: &str, path: &Path) -> Result<String> {
        let peeled = format!("{commit}^{{tree}}");
        let tree = self
            .git
            .run(&["rev-parse", "--verify", "--quiet", &peeled])?;
        if tree.success() {
            return Ok(tree.stdout_text().trim().to_owned());
        }
        let (shown, short) = (path.display(), &commit[..commit.len().min(12)]);
        let fetch = format!(
            "`git -C {} fetch origin {commit}`",
            quoted(&shown.to_string())
        );
        Err(Error::commit(format!(
            "the submodule {shown} does not have the commit {short}"
        ))
        .hint(format!("{fetch} fetches it")))
    }

    fn not_checked_out(&self, tree: &str, place: &Path, output: &Output) -> Error {
        let whose = if place.as_os_str().is_empty() {
            String::new()
        } else {
            format!(" of the submodule {}", place.display())
        };
        let short = &tree[..tree.len().min(12)];
        let message = format!("git cannot check out the files of {short}{whose}");
        let error = Error::commit(message).details(output.tail(4));
        if self.git.is_partial() {
            error.hint("the clone is partial: `git fetch --refetch --no-filter` fetches the files that it lacks")
        } else {
            error.hint("`git fsck` there names what is missing")
        }
    }
}

/// Returns the names of submodules by their paths, as a work tree declares them.
fn submodule_names(git: &Git, work_tree: &Path) -> BTreeMap<String, String> {
    let file = work_tree.join(".gitmodules");
    let file = file.as_os_str();
    let listed = git
        .command(&["config", "-z", "--file"])
        .arg(file)
        .args(["--get-regexp", r"^submodule\..*\.path$"])
        .run();
    let listed = listed.map(|output| output.stdout_text());
    let listed = listed.unwrap_or_default();
    let names = nul_separated(&listed).filter_map(|pair| {
        let (key, path) = pair.split_once('\n')?;
        let name = key.strip_prefix("submodule.")?.strip_suffix(".path")?;
        let mut parts = Path::new(name).components();
        let is_inside = parts.all(|part| matches!(part, Component::Normal(_)));
        is_inside.then(|| (path.to_owned(), name.to_owned()))
    });
    names.collect()
}

/// What the work tree has that its commit has not.
pub(super) struct WorkTreeState {
    /// The tree of the tracked files as they are.
    pub tree: String,
    /// The submodules of the index.
    pub links: Vec<SubmoduleLink>,
    /// The tracked files that differ from the commit, without submodules.
    pub changed: Vec<String>,
    /// Submodules whose files differ from those that the index names.
    pub submodules: Vec<String>,
    /// Files that git does not know.
    pub untracked: Vec<String>,
}

/// Reads the work tree. It changes nothing of it but writes git's objects, as `git stash create` does.
pub(super) fn work_tree(git: &Git, folder: &Path, commit: &str) -> Result<WorkTreeState> {
    let unresolved = git.ok(&["diff", "--name-only", "--diff-filter=U"])?;
    if !unresolved.is_empty() {
        return Err(Error::git("the work tree has unresolved conflicts")
            .details(unresolved.lines().take(4).map(str::to_owned))
            .hint("resolve them, then `git add FILE`"));
    }
    let links = links(git)?;
    let scratch = tempfile::tempdir().map_err(|e| Error::io("make", &std::env::temp_dir(), &e))?;
    let index = scratch.path().join("index");
    let of_user = path_of(git, &["--git-path", "index"])?;
    if of_user.exists() {
        std::fs::copy(&of_user, &index).map_err(|e| Error::io("copy", &of_user, &e))?;
    }
    let own = git.with_index(&index);
    see_all(&own, folder)?;
    own.ok(&["add", "--update", ":/"])?;
    let tree = own.ok(&["write-tree"])?;
    let changed = own.ok(&[
        "diff-index",
        "--cached",
        "--ignore-submodules",
        "--name-only",
        "--no-renames",
        "-z",
        commit,
    ])?;
    // A checkout leaves submodules as they were, so what is in them says nothing about the commit.
    let submodules = git.ok(&[
        "diff-files",
        "--ignore-submodules=none",
        "--name-only",
        "-z",
    ])?;
    let is_link = |path: &&str| links.iter().any(|link| link.path == **path);
    Ok(WorkTreeState {
        changed: nul_separated(&changed).map(str::to_owned).collect(),
        submodules: nul_separated(&submodules)
            .filter(is_link)
            .map(str::to_owned)
            .collect(),
        untracked: git.status()?.untracked,
        tree,
        links,
    })
}

/// Has git look at the files that its user told it not to look at, as far as they are in the work tree: the build reads them.
fn see_all(own: &Git, folder: &Path) -> Result<()> {
    let listed = own.ok(&["ls-files", "-v", "-z", ":/"])?;
    let (mut assumed, mut skipped) = (String::new(), String::new());
    for (tag, path) in nul_separated(&listed).filter_map(|entry| entry.split_once(' ')) {
        let is_skipped = tag.eq_ignore_ascii_case("S");
        if is_skipped && folder.join(path).symlink_metadata().is_err() {
            continue;
        }
        if is_skipped {
            skipped.push_str(&format!("{path}\0"));
        }
        if tag == tag.to_lowercase() {
            assumed.push_str(&format!("{path}\0"));
        }
    }
    for (flag, paths) in [
        ("--no-skip-worktree", skipped),
        ("--no-assume-unchanged", assumed),
    ] {
        if !paths.is_empty() {
            own.run_with_input(&["update-index", flag, "-z", "--stdin"], paths.as_bytes())?;
        }
    }
    Ok(())
}
