//! Whether the processes of a start run the server's own program, as the kernel shows it.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use perfquilt_system::process::find_program;

/// Maximum depth of the search for links inside a server's folder.
const DEPTH: usize = 3;
/// What the kernel adds to the path of a file that was removed or replaced.
const GONE: &str = " (deleted)";

/// A server's folder and what a command names, to recognise the processes of a start.
#[derive(Debug)]
pub(super) struct Program {
    /// The folder, and what links in it lead to.
    own: Vec<PathBuf>,
    /// Device and inode of the programs that the command names, such as a proxy in front of the server.
    named: BTreeSet<(u64, u64)>,
}

/// What a process runs.
#[derive(Debug, PartialEq, Eq)]
enum Runs {
    /// A file of the server's folder, as program, as script or as library of a tool that executes it.
    Own,
    /// A program or script that the command names.
    Named,
    /// A file of the server's folder that has been replaced since.
    Replaced(PathBuf),
    /// This program.
    Other(PathBuf),
    /// The kernel shows nothing of it.
    Unknown,
}

impl Program {
    /// Describes the program in the folder `server` that `words` start.
    pub(super) fn new(server: &Path, words: &[String]) -> Self {
        let mut own = vec![resolved(server)];
        linked(server, DEPTH, &mut own);
        let files = words.iter().filter_map(|word| {
            let path = PathBuf::from(word);
            let program = || find_program(word).filter(|_| !word.contains('/'));
            Some(path).filter(|path| path.is_file()).or_else(program)
        });
        let named = files.filter_map(|path| inode(&path)).collect();
        Program { own, named }
    }

    /// Checks that one of the processes `pids` runs the program, and that a `listening` one, if any is known, runs it or is
    /// named in the command. Returns what is wrong otherwise.
    pub(super) fn check(&self, pids: &[u32], listening: &[u32]) -> Result<(), String> {
        let all: Vec<(u32, Runs)> = pids.iter().map(|&pid| (pid, self.runs(pid))).collect();
        if let Some((pid, Runs::Replaced(path))) = all
            .iter()
            .find(|(_, runs)| matches!(runs, Runs::Replaced(_)))
        {
            return Err(format!(
                "runs {} in process {pid}, which was replaced meanwhile",
                path.display()
            ));
        }
        let is = |wanted: &[Runs], among: &dyn Fn(u32) -> bool| {
            all.iter()
                .any(|(pid, runs)| among(*pid) && wanted.contains(runs))
        };
        let answers = |pid: u32| listening.is_empty() || listening.contains(&pid);
        let is_right = is(&[Runs::Own, Runs::Unknown], &|_| true)
            && is(&[Runs::Own, Runs::Unknown, Runs::Named], &answers);
        let other = all.iter().rev().find_map(|(pid, runs)| match runs {
            Runs::Other(path) if answers(*pid) => Some((pid, path)),
            _ => None,
        });
        match other {
            _ if is_right => Ok(()),
            Some((pid, path)) => Err(format!(
                "is process {pid}, which runs {}, no file of {}",
                path.display(),
                self.own[0].display()
            )),
            None => Err(format!("runs no file of {}", self.own[0].display())),
        }
    }

    /// Returns what the process `pid` runs.
    fn runs(&self, pid: u32) -> Runs {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let Ok(executable) = std::fs::read_link(process.join("exe")) else {
            return Runs::Unknown;
        };
        let maps = std::fs::read_to_string(process.join("maps")).unwrap_or_default();
        let mut mapped: Vec<&str> = maps.lines().filter_map(executable_mapping).collect();
        mapped.dedup();
        let own = |path: &Path| self.own.iter().any(|own| path.starts_with(own));
        let shown = executable.to_string_lossy();
        for path in mapped.iter().copied().chain([&*shown]) {
            if let Some(before) = path.strip_suffix(GONE)
                && own(Path::new(before))
            {
                return Runs::Replaced(before.into());
            }
        }
        let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
        let folder = std::fs::read_link(process.join("cwd")).unwrap_or_default();
        let words = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let files: Vec<PathBuf> = words
            .flat_map(|word| {
                word.split(['=', ':'])
                    .map(|part| resolved(&folder.join(part)))
                    .collect::<Vec<_>>()
            })
            .filter(|path| path.is_file())
            .collect();
        let is_own = own(&executable) || mapped.iter().any(|path| own(Path::new(path)));
        if is_own || files.iter().any(|path| own(path)) {
            Runs::Own
        } else if self.is_named(&process.join("exe"))
            || files.iter().any(|path| self.is_named(path))
        {
            Runs::Named
        } else {
            Runs::Other(executable)
        }
    }

    fn is_named(&self, path: &Path) -> bool {
        inode(path).is_some_and(|inode| self.named.contains(&inode))
    }
}

/// Returns the path of a line of `/proc/PID/maps` (proc(5)) with code of a file.
fn executable_mapping(line: &str) -> Option<&str> {
    let (start, path) = line
        .split_once('/')
        .map(|(start, _)| (start, &line[start.len()..]))?;
    start
        .split_ascii_whitespace()
        .nth(1)?
        .contains('x')
        .then_some(path)
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

fn resolved(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Adds what the links in `folder` lead to.
fn linked(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_symlink() => found.push(resolved(&entry.path())),
            Ok(kind) if kind.is_dir() && depth > 1 => linked(&entry.path(), depth - 1, found),
            _ => {}
        }
    }
}
