//! Job workspaces: the series and patches of a pull request, with everything else from the bot's workspace.
//!
//! A pull request to a series provides `series` and `patches/`; one to a server provides commits, which are
//! converted to patches. Configuration, recipes and workloads are commands, so they always come from the bot's
//! own workspace. Patches still change the server's source and thus are code; the bot decides before whether
//! and where to run it.

use std::io::Read;
use std::path::{Component, Path};

use super::area::recreate;
use super::commits;
use super::fetch::{MAX_SERIES_BYTES, PullCommits};
use super::limited_git::LimitedGit;
use super::paths::BotPaths;
use perfquilt_config::RepositoryKind;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_rebase::named_paths;
use perfquilt_series::series::{Patch, Series};

/// The maximum number of files in a pull request's series and patches.
const MAX_FILES: usize = 10_000;
/// The maximum size of the list of these files, in bytes.
const MAX_LIST_BYTES: usize = 16 << 20;
/// The maximum size of an archive of these files, in bytes. It has the folders too.
const MAX_ARCHIVE_BYTES: usize = 128 << 20;

/// Creates the workspace `job` of a pull request with the commits `fetched`, with the state of `ws`.
pub(super) fn create(
    paths: &BotPaths,
    ws: &Workspace,
    fetched: &PullCommits,
    job: &Path,
    cancelled: &dyn Fn() -> bool,
) -> Result<Workspace> {
    let config = &ws.config;
    let files = config.series_of(None)?;
    recreate(job)?;
    let first = |path: &Path| {
        path.components()
            .next()
            .map(|part| part.as_os_str().to_owned())
    };
    let mut theirs = vec![first(&files.file), first(&files.patches)];
    let limited = LimitedGit::new(fetched.git(), cancelled);
    if config.bot.kind == RepositoryKind::Fork {
        theirs.push(Some("bench-config".into()));
    }
    let entries = std::fs::read_dir(ws.root()).map_err(|e| Error::io("read", ws.root(), &e))?;
    for entry in entries {
        let entry = entry.map_err(|e| Error::io("read", ws.root(), &e))?;
        let name = entry.file_name();
        // `.pc` notes where quilt found the series of the bot's workspace.
        let own = [".git", ".perfquilt", ".pc"];
        if own.iter().any(|own| name == *own) || theirs.contains(&Some(name.clone())) {
            continue;
        }
        link(&entry.path(), &job.join(&name))?;
    }
    link_state(job, &ws.state())?;
    let commits = match config.bot.kind {
        RepositoryKind::Series => {
            unpack(&limited, &fetched.head, &[&files.file, &files.patches], job)?;
            if !job.join(&files.file).is_file() {
                return Err(Error::patch_missing(format!(
                    "the pull request has no file {}",
                    files.file.display()
                )));
            }
            None
        }
        RepositoryKind::Fork => Some(commits::write_series(paths, ws, &limited, fetched, job)?),
    };
    let made = Workspace::open_with_cache(job, ws.cache().to_owned())?;
    if let Some(commits) = commits {
        let series = Series::load_for_job(&made)?;
        commits.check(
            &commits::objects(fetched)?,
            &series,
            made.config.series.fuzz,
        )?;
    }
    Ok(made)
}

/// Links the state of the workspace `job` to the folder `state`.
pub(super) fn link_state(job: &Path, state: &Path) -> Result<()> {
    std::fs::create_dir_all(state).map_err(|e| Error::io("make", state, &e))?;
    let path = job.join(".perfquilt");
    perfquilt_system::caches::remove_file(&path)?;
    link(state, &path)
}

fn link(from: &Path, to: &Path) -> Result<()> {
    std::os::unix::fs::symlink(from, to).map_err(|e| Error::io("link", to, &e))
}

/// Saves the lock file of a job's workspace, with what was resolved about its release.
pub(super) fn save_lock_file(paths: &BotPaths, job: &Workspace) -> Result<()> {
    if job.config.bot.kind == RepositoryKind::Series {
        return Ok(());
    }
    let (from, to) = (job.lock_file(), paths.lock_file());
    std::fs::copy(&from, &to).map_err(|e| Error::io("copy", &to, &e))?;
    Ok(())
}

/// Returns the files that control builds and that patches of `series` change, except for patches that `ws`
/// contains too.
pub(super) fn build_control_files(ws: &Workspace, series: &Series) -> Vec<String> {
    let known = match ws.config.bot.kind {
        RepositoryKind::Series => Series::load_for(ws, None).ok(),
        RepositoryKind::Fork => None,
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
        .flat_map(|patch| control_files_of(patch, &ws.config.bot))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Returns the files that control builds among those that `patch` names on any kind of line: an `Index:` line
/// alone can name the file of a diff.
fn control_files_of(patch: &Patch, bot: &perfquilt_config::Bot) -> impl Iterator<Item = String> {
    named_paths(patch)
        .into_iter()
        .map(|path| String::from_utf8_lossy(&path).into_owned())
        .filter(|path| bot.steers(path))
}

/// Writes the regular files of `commit` below `paths` to `folder`. Skips symbolic links, which could point
/// anywhere.
fn unpack(git: &LimitedGit<'_>, commit: &str, paths: &[&Path], folder: &Path) -> Result<()> {
    let mut words = Vec::new();
    let mut sizes: Vec<u64> = Vec::new();
    for path in paths {
        let word = path.display().to_string();
        let list = ["ls-tree", "-r", "-l", "-z", commit, "--", &word];
        let listed = git.output(&list, MAX_LIST_BYTES)?;
        let before = sizes.len();
        sizes.extend(
            String::from_utf8_lossy(&listed)
                .split('\0')
                .filter_map(|line| line.split_whitespace().nth(3)?.parse::<u64>().ok()),
        );
        // `git archive` fails when one of the paths does not exist.
        if sizes.len() > before {
            words.push(word);
        }
    }
    if sizes.len() > MAX_FILES || sizes.iter().sum::<u64>() > MAX_SERIES_BYTES {
        return Err(Error::pull_request_too_large(format!(
            "the series and patches of the pull request are more than {MAX_FILES} files or {} MB",
            MAX_SERIES_BYTES >> 20
        )));
    }
    if words.is_empty() {
        return Ok(());
    }
    let mut archive = vec!["archive", "--format=tar", commit, "--"];
    archive.extend(words.iter().map(String::as_str));
    let packed = git.output(&archive, MAX_ARCHIVE_BYTES)?;
    let mut tar = tar::Archive::new(&packed[..]);
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
    use super::super::fetch::tests::repository_with_series;
    use super::super::limited_git::testing::tree_bomb;
    use super::*;
    use perfquilt_model::error::Kind;
    use perfquilt_series::series::SeriesEntry;
    use perfquilt_system::git::Git;

    #[test]
    fn a_series_without_patches_is_valid() {
        let root = tempfile::tempdir().unwrap();
        let from = repository_with_series(root.path(), "from");
        let to = root.path().join("to");
        let paths = [Path::new("series"), Path::new("patches")];
        let git = LimitedGit::new(Git::new(&from), &|| false);
        unpack(&git, "HEAD", &paths, &to).unwrap();
        let series = std::fs::read_to_string(to.join("series")).unwrap();
        assert_eq!(series, "# nothing\n");
        // The caller reports a missing series.
        unpack(&git, "HEAD", &paths[1..], &to).unwrap();
    }

    #[test]
    fn a_tree_that_lists_itself_many_times_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let from = repository_with_series(root.path(), "from");
        let git = Git::new(&from);
        let below = tree_bomb(&git);
        let tree = git
            .run_with_input(
                &["mktree"],
                format!("040000 tree {below}\tpatches\n").as_bytes(),
            )
            .unwrap();
        let paths = [Path::new("patches")];
        let limited = LimitedGit::new(git.clone(), &|| false);
        let to = root.path().join("to");
        let error = unpack(&limited, &tree, &paths, &to).unwrap_err();
        assert_eq!(error.kind(), Kind::Series);
        assert!(
            error.to_string().contains("too large to be read"),
            "{error}"
        );
        // Without files there is nothing to print, and only time passes.
        let empty = git.run_with_input(&["mktree"], b"").unwrap();
        let mut below = empty;
        for _ in 0..12 {
            let entries: String = (0..12)
                .map(|at| format!("040000 tree {below}\t{at}\n"))
                .collect();
            below = git.run_with_input(&["mktree"], entries.as_bytes()).unwrap();
        }
        let tree = format!("040000 tree {below}\tpatches\n");
        let tree = git.run_with_input(&["mktree"], tree.as_bytes()).unwrap();
        let limited = LimitedGit::new(git, &|| true);
        let error = unpack(&limited, &tree, &paths, &to).unwrap_err();
        assert_eq!(error.kind(), Kind::Interrupted);
    }

    #[test]
    fn build_files_are_found_in_every_kind_of_diff() {
        let hunk = "@@ -1 +1,2 @@\n x\n+execute_process(COMMAND id)\n";
        let of = |head: &str, strip: usize| {
            let entry = SeriesEntry {
                name: "x".into(),
                strip,
                reverse: false,
                flags: Default::default(),
                line: 1,
            };
            let text = format!("Subject: x\n\n{head}{hunk}");
            let patch = Patch::parse(&entry, "x", text.as_bytes()).unwrap();
            control_files_of(&patch, &perfquilt_config::Bot::default()).collect::<Vec<_>>()
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
