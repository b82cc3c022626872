//! The control groups (cgroups(7)) of processes, of versions 1 and 2.

use std::path::{Path, PathBuf};

/// The groups that a process is in, as far as they are mounted here.
#[derive(Debug, Clone, Default)]
pub struct Groups {
    groups: Vec<Group>,
}

/// A group of one hierarchy.
#[derive(Debug, Clone)]
struct Group {
    /// The controllers of version 1; empty for version 2.
    controllers: String,
    folder: PathBuf,
    /// Where the hierarchy is mounted.
    mount: PathBuf,
}

impl Groups {
    /// Finds the groups of the process `pid`; none when there is no such process.
    pub fn of(pid: u32) -> Self {
        let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
        Self::read(
            &read(format!("/proc/{pid}/cgroup")),
            &read("/proc/self/mountinfo".to_owned()),
        )
    }

    /// Finds the groups in the texts of `/proc/PID/cgroup` (cgroups(7)) and `/proc/self/mountinfo` (proc(5)).
    pub fn read(groups: &str, mounts: &str) -> Self {
        let mounts: Vec<Mount<'_>> = mounts.lines().filter_map(mount_of).collect();
        let group = |line: &str| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let mount = mounts.iter().find(|mount| mount.has(controllers))?;
            // A container often sees its group as the root, and its path from outside.
            let inside = Path::new(path)
                .strip_prefix(&mount.root)
                .unwrap_or(Path::new(""));
            Some(Group {
                controllers: controllers.to_owned(),
                folder: mount.point.join(inside),
                mount: mount.point.clone(),
            })
        };
        Groups {
            groups: groups.lines().filter_map(group).collect(),
        }
    }

    /// Returns the folder of the group of `controller`, of version 1; that of version 2 if `controller` is empty.
    pub fn own(&self, controller: &str) -> Option<&Path> {
        let mut groups = self.groups.iter();
        let own = groups.find(|group| {
            group.controllers.is_empty() == controller.is_empty() && group.has(controller)
        });
        own.map(|group| group.folder.as_path())
    }

    /// Returns the folders of the groups of `controller`, of version 1, and of those of version 2, with all groups above:
    /// in each hierarchy the innermost first.
    pub fn folders(&self, controller: &str) -> Vec<PathBuf> {
        let of_group = |group: &Group| -> Vec<PathBuf> {
            let above = group.folder.ancestors();
            let above = above.take_while(|folder| folder.starts_with(&group.mount));
            above.map(Path::to_path_buf).collect()
        };
        let groups = self.groups.iter().filter(|group| group.has(controller));
        groups.flat_map(of_group).collect()
    }
}

/// Returns the number after `key` on a line of its own, as files of groups have it.
pub fn value(text: &str, key: &str) -> Option<u64> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
    let (_, number) = pairs.find(|(name, _)| *name == key)?;
    number.trim().parse().ok()
}

impl Group {
    fn has(&self, controller: &str) -> bool {
        let mut names = self.controllers.split(',');
        self.controllers.is_empty() || names.any(|name| name == controller)
    }
}

/// Returns the files that tell whether the groups of the process `pid` are frozen, see [`is_frozen`].
pub fn freezers(pid: u32) -> Vec<PathBuf> {
    let groups = Groups::of(pid).groups.into_iter();
    let files = groups.filter(|group| group.has("freezer")).map(|group| {
        let name = if group.controllers.is_empty() {
            "cgroup.events"
        } else {
            "freezer.state"
        };
        group.folder.join(name)
    });
    files.filter(|file| file.exists()).collect()
}

/// Returns whether a file of [`freezers`] says that its group, or one above it, is frozen.
pub fn is_frozen(file: &Path) -> bool {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines()
        .any(|line| ["frozen 1", "FROZEN", "FREEZING"].contains(&line))
}

/// A mounted hierarchy of control groups.
struct Mount<'a> {
    /// The group that is mounted.
    root: PathBuf,
    /// Where it is mounted.
    point: PathBuf,
    /// Whether it is of version 2.
    is_second: bool,
    /// The options of the file system, with the controllers of version 1.
    options: &'a str,
}

impl Mount<'_> {
    /// Returns whether it is the hierarchy of `controllers`, which are empty for version 2.
    fn has(&self, controllers: &str) -> bool {
        if controllers.is_empty() {
            return self.is_second;
        }
        let options: Vec<&str> = self.options.split(',').collect();
        !self.is_second && controllers.split(',').all(|name| options.contains(&name))
    }
}

fn mount_of(line: &str) -> Option<Mount<'_>> {
    let (own, rest) = line.split_once(" - ")?;
    let mut own = own.split(' ').skip(3);
    let mut rest = rest.split(' ');
    let (root, point) = (unescaped(own.next()?), unescaped(own.next()?));
    let is_second = match rest.next()? {
        "cgroup2" => true,
        "cgroup" => false,
        _ => return None,
    };
    Some(Mount {
        root: root.into(),
        point: point.into(),
        is_second,
        options: rest.nth(1).unwrap_or_default(),
    })
}

/// Replaces the octal escapes of blanks, tabs, line ends and backslashes in a path of `mountinfo`.
fn unescaped(path: &str) -> String {
    [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ]
    .iter()
    .fold(path.to_owned(), |path, (escape, byte)| {
        path.replace(escape, byte)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_of_a_controller_are_those_of_its_hierarchy_and_of_version_2() {
        let groups = "9:name=systemd:/s\n6:freezer:/a\n1:cpu,cpuacct:/b/c\n0::/d\n";
        let mounts = "1 0 0:1 / /g/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                      2 0 0:2 / /g/freezer rw - cgroup cgroup rw,freezer\n\
                      3 0 0:3 / /g/unified rw - cgroup2 cgroup2 rw\n";
        let groups = Groups::read(groups, mounts);
        let of = |controller| -> Vec<String> {
            let folders = groups.folders(controller).into_iter();
            folders.map(|folder| folder.display().to_string()).collect()
        };
        let second = ["/g/unified/d", "/g/unified"];
        let first = ["/g/cpu/b/c", "/g/cpu/b", "/g/cpu"];
        assert_eq!(of("cpu"), [&first[..], &second].concat());
        assert_eq!(
            of("freezer"),
            ["/g/freezer/a", "/g/freezer", second[0], second[1]]
        );
        assert_eq!(of("memory"), second);
    }

    #[test]
    fn the_states_of_both_versions_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state");
        for (text, frozen) in [
            ("populated 1\nfrozen 1\n", true),
            ("populated 1\nfrozen 0\n", false),
            ("FROZEN\n", true),
            ("FREEZING\n", true),
            ("THAWED\n", false),
        ] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(is_frozen(&file), frozen, "{text}");
        }
        assert!(!is_frozen(&folder.path().join("none")));
    }
}
