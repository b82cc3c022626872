//! Removes folders that other programs filled.

use std::path::Path;

use crate::process::Command;
use perfquilt_model::error::{Error, Result};

/// Removes the folder `path`, regardless of its depth and of missing permissions on folders in it. Does not follow
/// links.
pub fn remove_tree(path: &Path) -> Result<()> {
    // Folders nested without limit would exhaust the stack and file descriptors of this process, and their
    // paths exceed what the kernel accepts; `rm` and `chmod` handle both.
    let program = |name: &str| Command::new(name).unrestricted();
    let gone = || -> Result<bool> {
        program("rm").args(["-rf", "--"]).arg(path).run()?;
        Ok(std::fs::symlink_metadata(path).is_err())
    };
    if std::fs::symlink_metadata(path).is_err() || gone()? {
        return Ok(());
    }
    let unlock = ["-R", "u+rwx", "--"];
    program("chmod").args(unlock).arg(path).run()?;
    if gone()? {
        Ok(())
    } else {
        Err(Error::file(format!("cannot remove {}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn folders_deeper_than_any_path_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let dirs = folder.path().join("dirs");
        std::fs::create_dir(&dirs).unwrap();
        for _ in 0..5 {
            // Moves the existing tree below a thousand new folders.
            let top = folder.path().join("top");
            let bottom = top.join("d/".repeat(1000));
            std::fs::create_dir_all(&bottom).unwrap();
            std::fs::rename(&dirs, bottom.join("dirs")).unwrap();
            std::fs::rename(&top, &dirs).unwrap();
        }
        remove_tree(&dirs).unwrap();
        assert!(!dirs.exists());
    }

    #[test]
    fn folders_without_permissions_are_removed_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (dirs, outside) = (folder.path().join("dirs"), folder.path().join("outside"));
        std::fs::create_dir_all(dirs.join("a/b")).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        std::fs::write(outside.join("x"), "").unwrap();
        std::os::unix::fs::symlink(&outside, dirs.join("a/link")).unwrap();
        for closed in ["a/b", "a"] {
            let none = std::fs::Permissions::from_mode(0o000);
            std::fs::set_permissions(dirs.join(closed), none).unwrap();
        }
        remove_tree(&dirs).unwrap();
        remove_tree(&dirs).unwrap();
        assert!(!dirs.exists() && outside.join("x").is_file());
    }
}
