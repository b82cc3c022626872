//! What git's worktrees of the object store need of it.

use super::objects::Objects;
use crate::upstream::object_store;
use perfquilt_model::error::Result;
use perfquilt_system::files::write_file;

/// What the worktrees must not do with files.
const ATTRIBUTES: &[u8] =
    b"# Files are edited byte by byte, whatever the release's .gitattributes say.
* -text -ident -filter -working-tree-encoding
";

/// Settings of a store that has worktrees.
const SETTINGS: [(&str, &str); 5] = [
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("core.autocrlf", "false"),
    ("core.fileMode", "true"),
    ("core.symlinks", "true"),
];

impl Objects {
    /// Sets the store up for worktrees: git must hand out and take back the very bytes, and must never tidy up
    /// there. `more` are settings besides those.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the store's settings cannot be read or written.
    pub(crate) fn prepare_worktrees(&self, more: &[(&str, &str)]) -> Result<()> {
        let attributes = self.path().join("info/attributes");
        if std::fs::read(&attributes).ok().as_deref() != Some(ATTRIBUTES) {
            write_file(&attributes, ATTRIBUTES)?;
        }
        let mut settings = self
            .repository()
            .config()
            .map_err(object_store)?
            .open_level(git2::ConfigLevel::Local)
            .map_err(object_store)?;
        for (name, value) in SETTINGS.iter().chain(more) {
            if settings.get_string(name).ok().as_deref() != Some(value) {
                self.past_lock("config", || settings.set_str(name, value))
                    .map_err(object_store)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_was_left_behind_is_no_hindrance() {
        let folder = tempfile::tempdir().unwrap();
        let store = Objects::open_or_create(folder.path()).unwrap();
        let lock = folder.path().join("config.lock");
        for value in ["one", "two"] {
            std::fs::write(&lock, "").unwrap();
            store
                .prepare_worktrees(&[("branch.edit/10.11.remote", value)])
                .unwrap();
            let again = Objects::open(folder.path()).unwrap();
            let config = again.repository().config().unwrap();
            let kept = config.get_string("branch.edit/10.11.remote").unwrap();
            assert_eq!(kept, value);
            assert_eq!(config.get_i64("gc.auto").unwrap(), 0);
            assert!(!lock.exists());
        }
    }
}
