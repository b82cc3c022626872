//! Git settings of an object store with linked worktrees.

use super::objects::Objects;
use crate::upstream::store_error;
use perfquilt_model::error::Result;
use perfquilt_system::files::write_file;

/// Git attributes that disable all conversions of files in the worktrees.
const ATTRIBUTES: &[u8] =
    b"# Files are edited byte by byte, whatever the release's .gitattributes say.
* -text -ident -filter -working-tree-encoding
";

/// Git settings of a store with worktrees.
const SETTINGS: [(&str, &str); 5] = [
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("core.autocrlf", "false"),
    ("core.fileMode", "true"),
    ("core.symlinks", "true"),
];

impl Objects {
    /// Configures the store for worktrees: git must check files out and in byte by byte, and must never run garbage
    /// collection there. `more` are additional settings.
    pub fn prepare_worktrees(&self, more: &[(&str, &str)]) -> Result<()> {
        let attributes = self.path().join("info/attributes");
        if std::fs::read(&attributes).ok().as_deref() != Some(ATTRIBUTES) {
            write_file(&attributes, ATTRIBUTES)?;
        }
        let mut settings = self
            .repository()
            .config()
            .map_err(store_error)?
            .open_level(git2::ConfigLevel::Local)
            .map_err(store_error)?;
        for (name, value) in SETTINGS.iter().chain(more) {
            if settings.get_string(name).ok().as_deref() != Some(value) {
                self.retry_while_locked("config", || settings.set_str(name, value))
                    .map_err(store_error)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_lock_is_removed() {
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
