//! The user as whom sandboxed code runs when this program runs as root.
//!
//! Root inside a user namespace is still root for the files of `/proc` and `/sys` and has no limit of processes. So as
//! root, bubblewrap makes the sandbox without a user namespace, and `setpriv` gives up root for good before anything
//! else starts inside.

use std::ffi::OsString;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::Path;

use perfquilt_model::error::{Error, Result};

/// An unprivileged user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OtherUser {
    pub(super) user: u32,
    pub(super) group: u32,
}

impl OtherUser {
    /// Returns the user `name` of this system, which may be a number, if this program runs as root; `None` otherwise.
    pub(super) fn needed(name: &str) -> Result<Option<Self>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let path = Path::new("/etc/passwd");
        let users = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, &e))?;
        find(&users, name).map(Some)
    }

    /// Returns the words before a command that run it as this user, in no group but its own.
    pub(super) fn command(self) -> Vec<OsString> {
        vec![
            "setpriv".into(),
            format!("--reuid={}", self.user).into(),
            format!("--regid={}", self.group).into(),
            "--clear-groups".into(),
            "--inh-caps=-all".into(),
            "--no-new-privs".into(),
            "--".into(),
        ]
    }

    /// Gives `path` and everything below to this user. No process of a sandbox may run meanwhile.
    pub(super) fn give(self, path: &Path) -> Result<()> {
        let failed = |error: std::io::Error| Error::io("change the owner of", path, &error);
        let found = std::fs::symlink_metadata(path).map_err(failed)?;
        if (found.uid(), found.gid()) != (self.user, self.group) {
            lchown(path, Some(self.user), Some(self.group)).map_err(failed)?;
        }
        if found.is_dir() {
            for entry in std::fs::read_dir(path).map_err(failed)? {
                self.give(&entry.map_err(failed)?.path())?;
            }
        }
        Ok(())
    }
}

fn find(users: &str, name: &str) -> Result<OtherUser> {
    let unusable = |why: String| {
        Error::sandbox_unavailable(why).hint(
            "`useradd --system --no-create-home perfquilt` makes a user, and `user = \"perfquilt\"` of [sandbox] uses it; or start \
             perfquilt as an ordinary user",
        )
    };
    let named = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (found, user, group) = (fields.next()?, fields.nth(1)?, fields.next()?);
        let wanted = found == name || user == name;
        wanted.then(|| Some((user.parse().ok()?, group.parse().ok()?)))?
    });
    let number = || name.parse().ok().map(|number: u32| (number, number));
    match named.or_else(number) {
        Some((0, _) | (_, 0)) => Err(unusable(format!(
            "code of a sandbox does not run as `{name}`, who is root or of root's group"
        ))),
        Some((user, group)) => Ok(OtherUser { user, group }),
        None => Err(unusable(format!("there is no user `{name}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_name_and_number_are_refused() {
        let users = "root:x:0:0:root:/root:/bin/sh\ntoor:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n\
                     perf:x:990:991::/:/bin/false\nwheel:x:12:0::/:/bin/false\n";
        let of = |name: &str| find(users, name);
        let user = |user, group| OtherUser { user, group };
        assert_eq!(of("nobody").unwrap(), user(65534, 65534));
        assert_eq!(of("perf").unwrap(), user(990, 991));
        assert_eq!(of("990").unwrap(), user(990, 991));
        assert_eq!(of("61184").unwrap(), user(61184, 61184));
        for name in ["root", "toor", "0", "wheel", "nobody-else", "", "-1", "00"] {
            let error = of(name).unwrap_err();
            assert!(error.hint_text().unwrap().contains("useradd"), "{name}");
        }
    }

    #[test]
    fn links_are_given_away_but_not_what_they_name() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("own/below")).unwrap();
        std::fs::write(at("other"), "x").unwrap();
        std::os::unix::fs::symlink(at("other"), at("own/below/link")).unwrap();
        let nobody = find("", "61184").unwrap();
        nobody.give(&at("own")).unwrap();
        let owner = |name: &str| std::fs::symlink_metadata(at(name)).unwrap().uid();
        assert_eq!(owner("own/below/link"), 61184);
        assert_eq!((owner("own"), owner("other")), (61184, 0));
    }
}
