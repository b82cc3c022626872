//! Writes the moved series as one commit on a new branch of the user's repository.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::RebasedSeries;
use super::plan::{WriteOptions, WritePlan};
use perfquilt_config::CONFIG_FILE;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::rebase::Written;
use perfquilt_series::series::path;
use perfquilt_system::git::{Git, nul_separated};
use perfquilt_system::locks;
use perfquilt_system::process::{check_interrupted, quoted};

/// Writes the commit. The branch is created last, in one step.
pub(super) fn write_branch(
    ws: &Workspace,
    rebased: &RebasedSeries,
    options: &WriteOptions,
    plan: WritePlan,
) -> Result<Written> {
    let inside = Git::new(ws.root()).run(&["rev-parse", "--show-toplevel"])?;
    if !inside.success() {
        return Err(Error::git("the workspace is not in a git repository").hint(
            "`git init`, a .gitignore with `.perfquilt/` and a commit make it one; --output DIR writes to a folder instead",
        ));
    }
    let top = inside.stdout_text();
    let top = Path::new(top.trim_end_matches('\n'));
    let top = top.canonicalize().map_err(|e| Error::io("find", top, &e))?;
    let git = Git::new(&top);
    let head = git.run(&["rev-parse", "--quiet", "--verify", "HEAD^{commit}"])?;
    if !head.success() {
        return Err(Error::git("the workspace's repository has no commit yet")
            .hint("commit the series first, so that the old patches can be restored"));
    }
    let head = head.stdout_text().trim().to_owned();
    // Git may still write the branch for a run that was killed.
    let lock = ws.object_store().join("branch.lock");
    let held = Arc::new(locks::wait_file(&lock, || {})?);
    let place = |file: &Path, through: bool| place(&top, &ws.root().join(file), through);
    let mut files = BTreeMap::new();
    for (file, bytes) in &plan.files {
        // If a changed file is a symbolic link, its target changes.
        let through = plan.series.as_ref() == Some(file) || file == Path::new(CONFIG_FILE);
        files.insert(place(file, through)?, bytes);
    }
    let in_place = |file: &PathBuf| place(file, false);
    let gone = plan.gone.iter().map(in_place).collect::<Result<Vec<_>>>()?;
    let through = |file: &PathBuf| place(file, true);
    let sources = plan
        .sources
        .iter()
        .map(through)
        .collect::<Result<BTreeSet<_>>>()?;
    refuse_uncommitted(&git, &head, &sources, files.keys())?;
    let default = format!("rebase/{}", rebased.to.name);
    let branch = options.branch.clone().unwrap_or_else(|| default.clone());
    refuse_branch(&git, &branch, &default)?;
    let folder = tempfile::tempdir().map_err(|e| Error::io("create", &std::env::temp_dir(), &e))?;
    let own = git.with_index(&folder.path().join("index"));
    own.ok(&["read-tree", &head])?;
    let nothing = "0".repeat(head.len());
    let mut entries = String::new();
    for (path, bytes) in &files {
        check_interrupted()?;
        let blob = git.run_with_input(&["hash-object", "-w", "--no-filters", "--stdin"], bytes)?;
        entries.push_str(&format!("100644 {blob}\t{path}\0"));
    }
    for path in &gone {
        entries.push_str(&format!("0 {nothing}\t{path}\0"));
    }
    own.run_with_input(&["update-index", "-z", "--index-info"], entries.as_bytes())?;
    let tree = own.ok(&["write-tree"])?;
    // Git's index silently drops entries that conflict with a new path.
    let changed = git.ok(&[
        "diff-tree",
        "-r",
        "-z",
        "--no-renames",
        "--name-only",
        &head,
        &tree,
    ])?;
    let planned = |path: &str| files.contains_key(path) || gone.iter().any(|gone| gone == path);
    if let Some(path) = nul_separated(&changed).find(|path| !planned(path)) {
        return Err(Error::branch(format!(
            "{path} is in the way of the series; nothing was written"
        ))
        .hint("--into FOLDER writes elsewhere, --output DIR to a folder without git"));
    }
    let commit = git.run_with_input(
        &["commit-tree", &tree, "-p", &head],
        message(rebased, &plan).as_bytes(),
    )?;
    check_interrupted()?;
    create_branch(&git, &branch, &commit, &held)?;
    Ok(Written {
        branch: Some(branch),
        commit: Some(commit),
        folder: None,
        files: plan.changed_files(),
        set_aside: plan.set_aside,
    })
}

/// Creates the branch. Git runs to its end whatever happens to perfquilt, so that it leaves no lock, and holds the file `held`
/// until then.
fn create_branch(git: &Git, branch: &str, commit: &str, held: &Arc<File>) -> Result<()> {
    let reference = format!("refs/heads/{branch}");
    let nothing = "0".repeat(commit.len());
    let update = [
        "update-ref",
        "-m",
        "perfquilt rebase",
        &reference,
        commit,
        &nothing,
    ];
    let output = git.command(&update).holding(held).uninterruptible().run()?;
    if output.success() {
        return Ok(());
    }
    let lock = format!("{reference}.lock");
    let lock = git.ok(&["rev-parse", "--path-format=absolute", "--git-path", &lock])?;
    if Path::new(&lock).exists() {
        let remove = format!("`rm {}`", quoted(&lock));
        let error = Error::branch(format!(
            "{lock} keeps git from creating the branch {branch}"
        ));
        return Err(error.hint(format!(
            "a killed git left it, unless one runs here: {remove}"
        )));
    }
    let error = Error::branch(format!("git cannot create the branch {branch}"));
    Err(error
        .details(output.tail(4))
        .hint("--branch NAME takes another name"))
}

/// Returns a file's path relative to the repository's top folder. Symbolic links to folders are followed because
/// git's index has no entries behind a link; a link at the file itself is followed if `through` is set.
fn place(top: &Path, file: &Path, through: bool) -> Result<String> {
    let whole = if through && file.exists() {
        file.canonicalize()
    } else {
        // A missing path is resolved from its nearest existing ancestor.
        let mut folders = file.ancestors().skip(1);
        let folder = folders.find(|folder| folder.symlink_metadata().is_ok());
        let folder = folder.unwrap_or(Path::new("/"));
        let rest = file.strip_prefix(folder).unwrap_or(file);
        folder.canonicalize().map(|folder| folder.join(rest))
    };
    let whole = whole.map_err(|e| Error::io("find", file, &e))?;
    let inner = whole.strip_prefix(top).ok().and_then(Path::to_str);
    let inner = inner.ok_or_else(|| {
        Error::branch(format!(
            "{} is not in the git repository {}",
            file.display(),
            top.display()
        ))
        .hint("--output DIR writes to a folder instead")
    })?;
    path::check(inner.as_bytes())?;
    Ok(inner.to_owned())
}

/// Refuses uncommitted sources, because changes that were never committed could not be restored.
fn refuse_uncommitted<'a>(
    git: &Git,
    head: &str,
    sources: &'a BTreeSet<String>,
    files: impl Iterator<Item = &'a String>,
) -> Result<()> {
    let mut args = vec![
        "--literal-pathspecs",
        "status",
        "--porcelain",
        "--untracked-files=all",
        "--ignored",
        "--",
    ];
    args.extend(sources.iter().chain(files).map(String::as_str));
    let status = git.ok(&args)?;
    let mut found: Vec<String> = status.lines().map(str::to_owned).collect();
    if found.is_empty() {
        let mut args = vec!["ls-tree", "-r", "-z", "--name-only", head, "--"];
        args.extend(sources.iter().map(String::as_str));
        let listed = git.ok(&args)?;
        let committed: BTreeSet<&str> = nul_separated(&listed).collect();
        let missing = sources
            .iter()
            .filter(|path| !committed.contains(path.as_str()));
        found.extend(missing.map(|path| format!("{path} is in no commit")));
    }
    if found.is_empty() {
        return Ok(());
    }
    Err(Error::branch(
        "the series, its patches or the configuration have changes that are not committed",
    )
    .details(found.into_iter().take(10))
    .hint("commit them first, so that the old patches can be restored"))
}

/// Refuses a name that no branch can have, or that a branch has. `default` is perfquilt's own name for the branch.
fn refuse_branch(git: &Git, branch: &str, default: &str) -> Result<()> {
    let another = "--branch NAME takes another name";
    let checked = git.run(&["check-ref-format", "--branch", branch])?;
    // It also takes `@{-1}` for the branch before.
    if !checked.success() || checked.stdout_text().trim_end_matches('\n') != branch {
        let message = format!("`{branch}` cannot be the name of a branch");
        return Err(Error::branch(message).hint(another));
    }
    let exists = |name: &str| -> Result<bool> {
        let reference = format!("refs/heads/{name}");
        let found = git.run(&["show-ref", "--verify", "--quiet", &reference])?;
        Ok(found.success())
    };
    if exists(branch)? {
        // Under any other name, the branch may be the user's own work.
        let hint = if branch == default {
            format!("`git branch -D {}` removes it; {another}", quoted(branch))
        } else {
            another.to_owned()
        };
        return Err(Error::branch(format!("branch {branch} already exists")).hint(hint));
    }
    let beside = |other: &str| {
        let message = format!("branch {other} exists, so git cannot create {branch}");
        Err(Error::branch(message).hint(another))
    };
    for (slash, _) in branch.match_indices('/') {
        if exists(&branch[..slash])? {
            return beside(&branch[..slash]);
        }
    }
    let below = format!("refs/heads/{branch}/");
    let other = git.ok(&["for-each-ref", "--count=1", "--format=%(refname)", &below])?;
    match other.strip_prefix("refs/heads/") {
        Some(other) => beside(other),
        None => Ok(()),
    }
}

fn message(rebased: &RebasedSeries, plan: &WritePlan) -> String {
    let report = &rebased.report;
    let mut text = format!(
        "Rebase the series on {}\n\nFrom {}.\n\n",
        report.to, report.from
    );
    for patch in &report.patches {
        text.push_str(&format!("{} {}: {}", patch.index, patch.name, patch.status));
        if !patch.evidence.is_empty() && patch.evidence != patch.status.to_string() {
            text.push_str(&format!(" ({})", patch.evidence));
        }
        text.push('\n');
    }
    let to_review = report
        .patches
        .iter()
        .filter_map(|patch| Some((patch, patch.review.as_ref()?)));
    let mut heading = "\nTo be reviewed:\n";
    for (patch, why) in to_review {
        text.push_str(heading);
        text.push_str(&format!("{}: {why}\n", patch.name));
        heading = "";
    }
    if !plan.set_aside.is_empty() {
        text.push_str("\nSet aside as comments in the series:\n");
        for aside in &plan.set_aside {
            text.push_str(&format!("{}: {}\n", aside.name, aside.reason));
        }
    }
    text
}
