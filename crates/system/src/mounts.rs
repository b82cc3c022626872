//! The kinds of file systems, and what their mounts allow.

use std::path::Path;

use rustix::fs::StatVfsMountFlags;

/// Network file systems by the numbers that the kernel gives them (`statfs(2)`).
const NETWORK: [(u32, &str); 9] = [
    (0x6969, "NFS"),
    (0xfe53_4d42, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0x0bd0_0bd0, "Lustre"),
    (0x00c3_6400, "Ceph"),
    (0x4750_4653, "GPFS"),
    (0x5346_414f, "AFS"),
    (0x0102_1997, "9P"),
    (0x1980_0202, "BeeGFS"),
];

/// Returns the name of the network file system that `path`, or the nearest folder above it that exists, is on; `None` for
/// other file systems. Follows links.
pub fn network_file_system(path: &Path) -> Option<&'static str> {
    let found = path
        .ancestors()
        .find_map(|path| rustix::fs::statfs(path).ok())?;
    // The kernel's numbers have 32 bits, whatever the field's type is.
    let kind = (found.f_type as u64 & u64::from(u32::MAX)) as u32;
    let mut known = NETWORK.iter();
    known
        .find(|(number, _)| *number == kind)
        .map(|(_, name)| *name)
}

/// Returns whether programs in the file system of `path` may be executed.
pub fn may_execute(path: &Path) -> bool {
    let stat = rustix::fs::statvfs(path);
    stat.map_or(true, |stat| {
        !stat.f_flag.contains(StatVfsMountFlags::NOEXEC)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_folders_are_on_no_network() {
        assert_eq!(network_file_system(Path::new("/proc/self")), None);
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(
            network_file_system(&folder.path().join("missing/deeper")),
            None
        );
    }
}
