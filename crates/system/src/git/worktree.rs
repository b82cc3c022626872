//! Worktrees of the object store: what is at their place, and their way back to it.
//!
//! A worktree and its store know each other by absolute paths, in two files (gitrepository-layout(5)): the
//! worktree's `.git` names the store's `worktrees/NAME`, where `gitdir` names that `.git`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::Git;
use crate::files::write_file;
use perfquilt_model::error::{Error, Result};

/// How long git remembers a worktree that it does not find at its place, for `git worktree prune`.
pub const EXPIRE: &str = "--expire=3.months.ago";

/// What is at a worktree's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// No worktree.
    None,
    /// What a git left that was killed while it made the worktree, or while it took it away: nobody has worked in it.
    HalfMade,
    /// The worktree.
    Whole,
}

/// Looks at the worktree at `directory` of the repository `store`. Where both were moved or copied together, as
/// parts of `home`, they get to know each other again.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when the worktree belongs to another repository, or its own no longer
/// knows it.
pub fn look(directory: &Path, store: &Path, home: &Path) -> Result<Place> {
    let file = directory.join(".git");
    let link = match std::fs::read_to_string(&file) {
        Ok(link) => link,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Place::None);
        }
        Err(error) if error.kind() == ErrorKind::IsADirectory => {
            return Err(foreign(directory, "is a repository by itself"));
        }
        Err(error) => return Err(Error::io("read", &file, &error)),
    };
    let named = target(&link);
    let Some((named, own)) = named.and_then(|named| Some((named, own_of(named, store)?))) else {
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
            let back = format!("{}\n", file.display());
            write_file(&own.join("gitdir"), back.as_bytes())?;
            write_file(&file, format!("gitdir: {}\n", own.display()).as_bytes())?;
        }
    }
    let making = std::fs::read_to_string(own.join("locked"))
        .is_ok_and(|reason| reason.trim_end() == "initializing");
    // It is among the first that git takes away.
    let complete = own.join("HEAD").is_file() && own.join("commondir").is_file();
    Ok(if making || !complete {
        Place::HalfMade
    } else {
        Place::Whole
    })
}

/// The folder that a worktree's `.git` names.
fn target(link: &str) -> Option<&Path> {
    link.trim_end().strip_prefix("gitdir: ").map(Path::new)
}

/// What the repository `store` keeps of a worktree whose `.git` names `named`, wherever that was written.
fn own_of(named: &Path, store: &Path) -> Option<PathBuf> {
    let own = store.join("worktrees").join(named.file_name()?);
    own.canonicalize().ok()
}

fn foreign(directory: &Path, what: &str) -> Error {
    Error::usage(format!("{} {what}", directory.display()))
        .hint("move the folder away; nothing in it is touched")
}

impl Git {
    /// Takes the worktree at `directory` away with all that is in it, also where a killed git left it half
    /// made and locked. Nothing happens where there is none.
    pub fn remove_worktree(&self, directory: &Path) -> Result<()> {
        let link = std::fs::read_to_string(directory.join(".git")).unwrap_or_default();
        let own = target(&link).and_then(|named| own_of(named, &self.folder));
        match std::fs::remove_dir_all(directory) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::io("remove", directory, &error));
            }
            _ => {}
        }
        // Fails where the repository knows of none.
        self.command(&["worktree", "remove", "--force", "--force"])
            .arg(directory)
            .run()?;
        self.ok(&["worktree", "prune", EXPIRE])?;
        // Git takes none that is locked and incomplete.
        if let Some(own) = own.filter(|own| own.exists()) {
            std::fs::remove_dir_all(&own).map_err(|e| Error::io("remove", &own, &e))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A home with a store and a worktree of it.
    fn home(root: &Path) -> (PathBuf, PathBuf) {
        let (store, tree) = (root.join("home/store"), root.join("home/tree"));
        std::fs::create_dir_all(&store).unwrap();
        let git = Git::bare(&store);
        Git::new(&store).ok(&["init", "--quiet", "--bare"]).unwrap();
        let empty = git.feed(&["mktree"], b"").unwrap();
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
            let found = look(&home.join("tree"), &home.join("store"), &home).unwrap();
            assert_eq!(found, Place::Whole);
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
        // One from elsewhere belongs to whom it says.
        let error = look(
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
            look(&tree, &store, &root.join("home")).unwrap(),
            Place::None
        );
    }

    #[test]
    fn what_a_killed_git_left_is_taken_away() {
        let root = tempfile::tempdir().unwrap();
        let (store, tree) = home(root.path());
        let own = store.join("worktrees/tree");
        let home = root.path().join("home");
        for (file, content) in [("locked", Some("initializing")), ("HEAD", None)] {
            match content {
                Some(content) => std::fs::write(own.join(file), content).unwrap(),
                None => std::fs::remove_file(own.join(file)).unwrap(),
            }
            assert_eq!(look(&tree, &store, &home).unwrap(), Place::HalfMade);
        }
        std::fs::remove_file(own.join("gitdir")).unwrap();
        Git::bare(&store).remove_worktree(&tree).unwrap();
        assert!(!own.exists() && !tree.exists());
        assert_eq!(look(&tree, &store, &home).unwrap(), Place::None);
    }
}
