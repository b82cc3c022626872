//! A user namespace, in which root is an ordinary user.

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Moves the calling process, which must have a single thread, to a new user namespace and a new namespace of System V
/// IPC. `user` and `group` are the lines of `uid_map` and `gid_map` (user_namespaces(7)).
///
/// Makes only async-signal-safe system calls, so that it can be called between fork and exec.
#[allow(unsafe_code)]
pub(super) fn enter_user_namespace(user: &[u8], group: &[u8]) -> std::io::Result<()> {
    // SAFETY: neither namespace affects memory or file descriptors.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWIPC) }?;
    // The kernel accepts a map of groups only from a process that has given up changing its groups.
    write(c"/proc/self/setgroups", b"deny")?;
    write(c"/proc/self/uid_map", user)?;
    write(c"/proc/self/gid_map", group)
}

/// Writes `text` to the file `path` in one piece; async-signal-safe.
pub(super) fn write(path: &std::ffi::CStr, text: &[u8]) -> std::io::Result<()> {
    let file = openat(CWD, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    let written = rustix::io::write(&file, text)?;
    // The kernel takes a map in one piece or not at all.
    if written == text.len() {
        Ok(())
    } else {
        Err(Errno::IO.into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Command;

    #[test]
    fn root_is_an_ordinary_user_who_owns_roots_files() {
        let id = |command: Command| command.run().unwrap().stdout_text().trim().to_owned();
        let folder = tempfile::tempdir().unwrap();
        let own = id(Command::new("id").arg("-u"));
        let inside = id(Command::new("id").arg("-u").ordinary_user());
        assert_eq!(inside == own, own != "0");
        let script = "touch made && stat -c %u .";
        let inside_owner = Command::new("sh")
            .args(["-c", script])
            .directory(folder.path())
            .ordinary_user();
        assert_eq!(id(inside_owner), inside);
        let outside_owner = Command::new("stat")
            .args(["-c", "%u", "made"])
            .directory(folder.path());
        assert_eq!(id(outside_owner), own);
    }
}
