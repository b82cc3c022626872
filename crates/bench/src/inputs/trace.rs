//! The files that the processes of a command open, as strace(1) writes them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use perfquilt_config::KERNEL_FOLDERS;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::process::find_program;

/// The calls that open a file or run a program; those with a question mark do not exist on every processor.
const CALLS: &str = "trace=?open,openat,?openat2,execve,?execveat,?rename,?renameat,?renameat2";
/// Flags of a file that is opened to be written.
const WRITE_FLAGS: [&str; 5] = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"];
/// What the system's libraries read by themselves: the machine's administration changes it, and no work depends on more of it
/// than what it leads to.
const SYSTEM: [&str; 12] = [
    "/etc/ld.so.cache",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/resolv.conf",
    "/etc/localtime",
    "/etc/mtab",
    "/run",
    "/var/run",
    "/var/log",
];
/// The folder with the compiled forms of Python's modules.
const PYTHON_CACHE: &str = "__pycache__";

/// The files that the processes of a command opened.
#[derive(Debug, Default)]
pub struct Trace {
    /// Those that they read, or looked for in vain.
    pub(super) read: BTreeSet<PathBuf>,
    /// Those that they wrote, or could have.
    pub(super) written: BTreeSet<PathBuf>,
}

impl Trace {
    /// Returns the words in front of a command that trace its processes into files that begin with `out`, after those of
    /// other commands; `None` without the program that traces.
    pub fn words(out: &Path) -> Option<Vec<OsString>> {
        let tracer = find_program("strace")?;
        let options = [
            // The command is the child, so that signals reach it.
            "-D",
            "-ff",
            "--seccomp-bpf",
            "-qq",
            "-y",
            // All texts in hexadecimal: a path may have any character.
            "-xx",
            "-A",
            "-e",
            CALLS,
            "-e",
            "signal=none",
            "-o",
        ];
        let options = options.into_iter().map(OsString::from);
        let rest = [out.into(), "--".into()];
        Some(
            std::iter::once(tracer.into())
                .chain(options)
                .chain(rest)
                .collect(),
        )
    }

    /// Reads the files that begin with `out`. What is below `others` does not count.
    pub fn read(out: &Path, others: &[&Path]) -> Result<Self> {
        let mut trace = Trace::default();
        let folder = out.parent().unwrap_or(Path::new("."));
        let prefix = out.file_name().unwrap_or_default().as_encoded_bytes();
        let unread = |path: &Path, e: &std::io::Error| Error::io("read", path, e);
        for entry in std::fs::read_dir(folder).map_err(|e| unread(folder, &e))? {
            let path = entry.map_err(|e| unread(folder, &e))?.path();
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            if name.starts_with(prefix) {
                let text = std::fs::read(&path).map_err(|e| unread(&path, &e))?;
                trace.add(&String::from_utf8_lossy(&text));
            }
        }
        let skipped: Vec<&Path> = KERNEL_FOLDERS
            .iter()
            .chain(&SYSTEM)
            .map(Path::new)
            .collect();
        let is_skipped = |path: &Path| {
            skipped
                .iter()
                .chain(others)
                .any(|folder| path.starts_with(folder))
                || path.is_dir()
        };
        trace.written.retain(|path| !is_skipped(path));
        let written = &trace.written;
        trace
            .read
            .retain(|path| !is_skipped(path) && !written.contains(path));
        Ok(trace)
    }

    /// Returns the files that they wrote, or could have.
    pub fn written(&self) -> impl Iterator<Item = PathBuf> {
        self.written.iter().cloned()
    }

    /// Returns whether it saw any program.
    pub fn is_empty(&self) -> bool {
        self.read.is_empty()
    }

    /// Adds the calls of one process.
    fn add(&mut self, text: &str) {
        // Programs given by relative paths, until a call tells the folder.
        let mut relative = Vec::new();
        for line in text.lines() {
            let Some((call, result)) = line.rsplit_once(" = ") else {
                continue;
            };
            let name = call.split('(').next().unwrap_or_default();
            let paths = quoted(call);
            if let Some(folder) = current_folder(call) {
                self.read.extend(
                    relative
                        .drain(..)
                        .map(|program: PathBuf| folder.join(program)),
                );
            }
            let is_done = !result.starts_with('-');
            match (name, paths.first()) {
                ("execve" | "execveat", Some(path)) if is_done && path.is_absolute() => {
                    self.read.insert(path.clone());
                }
                ("execve" | "execveat", Some(path)) if is_done => relative.push(path.clone()),
                ("rename" | "renameat" | "renameat2", Some(_)) if is_done => {
                    let folder = current_folder(call).unwrap_or_default();
                    self.written
                        .extend(paths.iter().map(|path| folder.join(path)));
                }
                ("open" | "openat" | "openat2", Some(path)) => {
                    self.opened(call, path, result);
                }
                _ => {}
            }
        }
    }

    /// Adds a call that opened `path`, or failed to.
    fn opened(&mut self, call: &str, path: &Path, result: &str) {
        let flags = call.rsplit_once('"').map_or("", |(_, flags)| flags);
        if flags.contains("O_DIRECTORY") || flags.contains("O_PATH") {
            return;
        }
        let opened = match opened_file(result) {
            Some(opened) => opened,
            // A file that appears later would be read.
            None if result.contains("ENOENT") => match current_folder(call) {
                Some(folder) => folder.join(path),
                None if path.is_absolute() => path.to_path_buf(),
                None => return,
            },
            None => return,
        };
        if WRITE_FLAGS.iter().any(|flag| flags.contains(flag)) {
            self.written.insert(opened);
        } else {
            self.read.insert(python_source(&opened).unwrap_or(opened));
        }
    }
}

/// Returns the source of a compiled module of Python, which replaces it when the source changes.
fn python_source(path: &Path) -> Option<PathBuf> {
    let folder = path.parent()?;
    if folder.file_name()? != PYTHON_CACHE {
        return None;
    }
    let module = path.file_name()?.to_str()?.split('.').next()?;
    Some(folder.parent()?.join(format!("{module}.py")))
}

/// Returns the file of a result `3<PATH>`.
fn opened_file(result: &str) -> Option<PathBuf> {
    let (number, rest) = result.split_once('<')?;
    number.parse::<u32>().ok()?;
    decoded(rest.trim_end().strip_suffix('>')?)
}

/// Returns the folder of `AT_FDCWD<FOLDER>` in a call.
fn current_folder(call: &str) -> Option<PathBuf> {
    let (_, rest) = call.split_once("AT_FDCWD<")?;
    decoded(rest.split_once('>')?.0)
}

/// Returns the texts in quotation marks.
fn quoted(call: &str) -> Vec<PathBuf> {
    let texts = call.split('"').skip(1).step_by(2);
    texts.filter_map(decoded).collect()
}

/// Returns the path that is written as `\xHH\xHH…`.
fn decoded(text: &str) -> Option<PathBuf> {
    let bytes = hex::decode(text.replace("\\x", "")).ok()?;
    (!bytes.is_empty()).then(|| OsString::from_vec(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_system::process::Command;

    #[test]
    fn opened_files_are_read_or_written() {
        let hex = |text: &str| -> String { text.bytes().map(|b| format!("\\x{b:02x}")).collect() };
        let at = format!("AT_FDCWD<{}>", hex("/srv/a b"));
        let open = |name: &str, flags: &str, result: &str| {
            format!("openat({at}, \"{}\", {flags}) = {result}\n", hex(name))
        };
        let file = |name: &str| format!("3<{}>", hex(&format!("/srv/a b/{name}")));
        let mut trace = Trace::default();
        trace.add(
            &[
                format!(
                    "execve(\"{}\", [\"{}\", \"{}\"], 0x7ffc /* 35 vars */) = 0\n",
                    hex("./run"),
                    hex("./run"),
                    hex("x")
                ),
                open("lä.sh", "O_RDONLY", &file("lä.sh")),
                open("no", "O_RDONLY", "-1 ENOENT (No such file or directory)"),
                open("locked", "O_RDONLY", "-1 EACCES (Permission denied)"),
                open("log", "O_WRONLY|O_CREAT|O_TRUNC, 0666", &file("log")),
                format!(
                    "renameat2({at}, \"{}\", {at}, \"{}\", 0) = 0\n",
                    hex("log"),
                    hex("out")
                ),
                open(".", "O_RDONLY|O_DIRECTORY", "4<>"),
                open("a\" = [>", "O_RDONLY", &file("a\" = [>")),
                "+++ exited with 0 +++\n".to_owned(),
            ]
            .concat(),
        );
        let paths = |names: &[&str]| -> BTreeSet<PathBuf> {
            names
                .iter()
                .map(|name| Path::new("/srv/a b").join(name))
                .collect()
        };
        assert_eq!(trace.read, paths(&["run", "lä.sh", "no", "a\" = [>"]));
        assert_eq!(trace.written, paths(&["log", "out"]));
    }

    #[test]
    fn what_scripts_read_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let write = |name: &str, text: &str| std::fs::write(base.join(name), text).unwrap();
        write("lib.sh", "cat data\n");
        write("data", "1\n");
        write("module.py", "print(1)\n");
        write("client.py", "import module\n");
        // With the compiled module and without.
        for run in ["first", "second"] {
            let out = base.join(format!("{run}-trace"));
            let script = ". ./lib.sh; python3 client.py; echo > out; cat later 2> /dev/null; true";
            let words = ["sh", "-c", script].map(str::to_owned);
            let before = Trace::words(&out).expect("strace is installed");
            let command = Command::from_words(&words).unwrap().behind(before);
            let output = command.directory(&base).run().unwrap();
            assert!(output.success(), "{output:?}");
            let trace = Trace::read(&out, &[]).unwrap();
            for name in ["lib.sh", "data", "module.py", "client.py", "later"] {
                assert!(trace.read.contains(&base.join(name)), "{name}: {trace:?}");
            }
            assert!(trace.written.contains(&base.join("out")));
            let cache = base.join(PYTHON_CACHE);
            assert!(!trace.read.iter().any(|path| path.starts_with(&cache)));
        }
    }
}
