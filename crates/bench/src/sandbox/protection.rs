//! Limits on code of pull requests that this machine enforces, and how to get the others.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::Serialize;

use super::cgroup::Cgroup;
use super::{check_support, limits};
use perfquilt_config::SandboxLimits;
use perfquilt_system::files::is_private;

/// A protection of a machine that runs code of pull requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Protection {
    /// The protected resource.
    pub what: &'static str,
    /// Whether the kernel enforces it here.
    pub holds: bool,
    /// The protection in force.
    pub found: String,
    /// How to get the whole of it, if it does not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otherwise: Option<String>,
}

impl Protection {
    /// Describes what was `found`; it holds unless there is something `otherwise`.
    fn of(what: &'static str, found: impl Into<String>, otherwise: Option<String>) -> Self {
        Protection {
            what,
            holds: otherwise.is_none(),
            found: found.into(),
            otherwise,
        }
    }
}

/// Returns the protections with these limits on this machine. Code of pull requests writes below `areas`; queue and results
/// of the bot are in `state`, a folder of its `workspace`.
pub fn protections(
    limits: &SandboxLimits,
    areas: &Path,
    state: &Path,
    workspace: &Path,
) -> Vec<Protection> {
    let root = rustix::process::geteuid().is_root();
    let resolved = limits::resolve(limits);
    let (filter, bubblewrap) = (
        "bubblewrap, with a filter of system calls",
        "install bubblewrap; `perfquilt doctor` has the command",
    );
    let sandbox = match check_support(limits) {
        Ok(()) => Protection::of("sandbox", filter, None),
        Err(why) => Protection::of("sandbox", why, Some(bubblewrap.to_owned())),
    };
    let user = if root {
        format!("root starts its code as `{}`", limits.user)
    } else {
        "the bot's own, which is not root".to_owned()
    };
    let user = Protection::of("user", user, None);
    let open = |path: &&Path| std::fs::metadata(path).is_ok_and(|found| !is_private(&found));
    let private = match [workspace, state].iter().find(|path| open(path)) {
        None => Protection::of("files", "only this user has rights to the workspace", None),
        Some(path) => {
            let shown = path.display();
            let closing = format!("`chmod go-rwx {shown}`; a bot that starts does it itself");
            let found = format!("other users can enter {shown}");
            Protection::of("files", found, Some(closing))
        }
    };
    let group = Cgroup::create(&resolved);
    let (memory, processes) = (resolved.memory_mib, resolved.processes);
    let time = match resolved.cpus {
        0 => String::new(),
        cpus => format!(" and the time of {cpus} processors"),
    };
    let most = format!("{memory} MiB and {processes} processes{time}");
    let (found, otherwise) = match group {
        Some(group) => (format!("{most} of a job, by {}", group.described()), None),
        None => (
            format!(
                "{memory} MiB and {processes} processes of a job, looked at once a second; {processes} processes of the user"
            ),
            Some(
                "a control group: as root, or with \
                 `systemd-run --property=Delegate=yes --property=TasksMax=infinity perfquilt bot serve`"
                    .to_owned(),
            ),
        ),
    };
    let counted = Protection::of("memory, processes", found, otherwise);
    let (shown, free) = (areas.display(), limits.free_mib);
    let disk = if device(areas).is_some_and(|own| Some(own) != device(state)) {
        let found = format!("{shown} is a file system of its own");
        Protection::of("disk", found, None)
    } else {
        let otherwise = if root {
            "`area_mib` of [bot] makes a file system of that size when the bot starts".to_owned()
        } else {
            format!(
                "a file system of its own, by root: `fallocate -l 20G areas.ext4 && mkfs.ext4 -q -m 0 areas.ext4 && \
                 mkdir -p {shown} && mount -o loop,nosuid,nodev areas.ext4 {shown} && chown USER {shown}`"
            )
        };
        let found =
            format!("{free} MiB and their inodes are left free, looked at ten times a second");
        Protection::of("disk, inodes", found, Some(otherwise))
    };
    vec![sandbox, user, private, counted, disk]
}

/// Returns the device of `path`, or of the nearest folder above it.
fn device(path: &Path) -> Option<u64> {
    let mut above = path.ancestors();
    above.find_map(|folder| std::fs::metadata(folder).ok().map(|found| found.dev()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_does_not_hold_is_said_with_the_way_to_get_it() {
        let folder = tempfile::tempdir().unwrap();
        let rights = |mode| {
            let rights = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(folder.path(), rights).unwrap();
        };
        rights(0o700);
        let areas = folder.path().join("areas");
        let found = protections(
            &SandboxLimits::default(),
            &areas,
            folder.path(),
            folder.path(),
        );
        let names: Vec<&str> = found.iter().map(|one| one.what).collect();
        assert_eq!(
            names,
            [
                "sandbox",
                "user",
                "files",
                "memory, processes",
                "disk, inodes"
            ]
        );
        for one in &found {
            assert_eq!(one.holds, one.otherwise.is_none(), "{one:?}");
        }
        assert!(found[2].holds, "{found:?}");
        rights(0o711);
        let found = protections(
            &SandboxLimits::default(),
            &areas,
            folder.path(),
            folder.path(),
        );
        assert!(
            found[2]
                .otherwise
                .as_ref()
                .unwrap()
                .starts_with("`chmod go-rwx "),
            "{found:?}"
        );
        // A RAM disk is another file system.
        let Ok(other) = tempfile::tempdir_in("/dev/shm") else {
            return;
        };
        if device(other.path()) != device(folder.path()) {
            let found = protections(
                &SandboxLimits::default(),
                other.path(),
                folder.path(),
                folder.path(),
            );
            assert!(found[4].holds, "{found:?}");
        }
    }
}
