//! Worktrees of the object store: their state, repair and removal.
//!
//! A worktree and its store refer to each other by absolute paths, in two files (gitrepository-layout(5)): the
//! worktree's `.git` names the store's `worktrees/NAME`, where `gitdir` names that `.git`.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::Git;
use crate::files::{if_there, write_file};
use perfquilt_model::error::{Error, Result};

/// The time after which `git worktree prune` forgets a missing worktree.
pub const EXPIRE: &str = "--expire=3.months.ago";

/// The state of a worktree's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorktreeState {
    /// No worktree.
    Absent,
    /// A worktree that a killed git left while creating or removing it; it contains no work.
    Incomplete,
    /// A complete worktree.
    Complete,
}

/// Inspects the worktree at `directory` of the repository `store`. When both were moved or copied together, as
/// parts of `home`, repairs the paths by which they refer to each other.
pub fn inspect(directory: &Path, store: &Path, home: &Path) -> Result<WorktreeState> {
    let file = directory.join(".git");
    let link = match std::fs::read(&file) {
        Ok(link) => link,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(WorktreeState::Absent);
        }
        Err(error) if error.kind() == ErrorKind::IsADirectory => {
            return Err(foreign(directory, "is a repository by itself"));
        }
        Err(error) => return Err(Error::io("read", &file, &error)),
    };
    let named = target(&link);
    let Some((named, own)) = named.and_then(|named| Some((named, admin_folder(named, store)?)))
    else {
        return Err(foreign(
            directory,
            "is a worktree that the object store does not know",
        ));
    };
    match directory.join(named).canonicalize() {
        Ok(found) if found == own => {}
        Ok(_) if !directory.starts_with(home) => {
            return Err(foreign(directory, "is a worktree of another repository"));
        }
        _ => {
            let line = |before: &str, path: &Path| {
                [before.as_bytes(), path.as_os_str().as_bytes(), b"\n"].concat()
            };
            write_file(&own.join("gitdir"), &line("", &file))?;
            write_file(&file, &line("gitdir: ", &own))?;
        }
    }
    let making = std::fs::read_to_string(own.join("locked"))
        .is_ok_and(|reason| reason.trim_end() == "initializing");
    // Git removes these files among the first.
    let complete = own.join("HEAD").is_file() && own.join("commondir").is_file();
    Ok(if making || !complete {
        WorktreeState::Incomplete
    } else {
        WorktreeState::Complete
    })
}

/// Returns the folder that a worktree's `.git` names.
fn target(link: &[u8]) -> Option<&Path> {
    let path = link.trim_ascii_end().strip_prefix(b"gitdir: ")?;
    Some(Path::new(OsStr::from_bytes(path)))
}

/// Returns the administrative folder in the repository `store` of a worktree whose `.git` names `named`,
/// wherever that was written.
fn admin_folder(named: &Path, store: &Path) -> Option<PathBuf> {
    let own = store.join("worktrees").join(named.file_name()?);
    own.canonicalize().ok()
}

fn foreign(directory: &Path, what: &str) -> Error {
    Error::git(format!("{} {what}", directory.display()))
        .hint("move the folder away; nothing in it is touched")
}

impl Git {
    /// Removes the worktree at `directory` with its content, even when a killed git left it incomplete and
    /// locked. Does nothing without a worktree.
    pub fn remove_worktree(&self, directory: &Path) -> Result<()> {
        let link = std::fs::read(directory.join(".git")).unwrap_or_default();
        let own = target(&link).and_then(|named| admin_folder(named, &self.folder));
        if_there("remove", directory, std::fs::remove_dir_all(directory))?;
        // Fails when the repository knows no such worktree.
        self.command(&["worktree", "remove", "--force", "--force"])
            .arg(directory)
            .run()?;
        self.ok(&["worktree", "prune", EXPIRE])?;
        // Git does not remove a worktree that is locked and incomplete.
        if let Some(own) = own.filter(|own| own.exists()) {
            std::fs::remove_dir_all(&own).map_err(|e| Error::io("remove", &own, &e))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a home with a store and a worktree of it.
    fn home(root: &Path) -> (PathBuf, PathBuf) {
        let (store, tree) = (root.join("home/store"), root.join("home/tree"));
        std::fs::create_dir_all(&store).unwrap();
        let git = Git::bare(&store);
        Git::new(&store).ok(&["init", "--quiet", "--bare"]).unwrap();
        let empty = git.run_with_input(&["mktree"], b"").unwrap();
        let identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
        let commit = git
            .ok(&[&identity[..], &["commit-tree", "-m", "x", &empty]].concat())
            .unwrap();
        git.command(&["worktree", "add", "--quiet", "--detach"])
            .arg(&tree)
            .arg(&commit)
            .run_ok(perfquilt_model::error::Kind::Internal)
            .unwrap();
        (store, tree)
    }

    #[test]
    fn moved_and_copied_worktrees_stay_with_their_store() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let (store, tree) = home(&root);
        let at = |home: &str| {
            let home = root.join(home);
            let found = inspect(&home.join("tree"), &home.join("store"), &home).unwrap();
            assert_eq!(found, WorktreeState::Complete);
            let git = Git::new(&home.join("tree"));
            git.ok(&["rev-parse", "--git-common-dir"]).unwrap()
        };
        assert_eq!(at("home"), store.display().to_string());
        let copied = crate::process::Command::new("cp")
            .args(["-a", "home", "copy"])
            .directory(&root);
        copied
            .run_ok(perfquilt_model::error::Kind::Internal)
            .unwrap();
        assert!(at("copy").ends_with("/copy/store"));
        assert!(at("home").ends_with("/home/store"));
        std::fs::rename(root.join("home"), root.join("moved")).unwrap();
        assert!(at("moved").ends_with("/moved/store"));
        // A worktree from elsewhere belongs to the repository it names.
        let error = inspect(
            &root.join("copy/tree"),
            &root.join("moved/store"),
            &root.join("moved"),
        );
        assert!(
            error
                .unwrap_err()
                .to_string()
                .contains("another repository")
        );
        assert_eq!(
            inspect(&tree, &store, &root.join("home")).unwrap(),
            WorktreeState::Absent
        );
    }

    #[test]
    fn the_remains_of_a_killed_git_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let (store, tree) = home(root.path());
        let own = store.join("worktrees/tree");
        let home = root.path().join("home");
        for (file, content) in [("locked", Some("initializing")), ("HEAD", None)] {
            match content {
                Some(content) => std::fs::write(own.join(file), content).unwrap(),
                None => std::fs::remove_file(own.join(file)).unwrap(),
            }
            assert_eq!(
                inspect(&tree, &store, &home).unwrap(),
                WorktreeState::Incomplete
            );
        }
        std::fs::remove_file(own.join("gitdir")).unwrap();
        Git::bare(&store).remove_worktree(&tree).unwrap();
        assert!(!own.exists() && !tree.exists());
        assert_eq!(
            inspect(&tree, &store, &home).unwrap(),
            WorktreeState::Absent
        );
    }
}
