//! Finds the code that a patch changes, by comparing the inputs of two links, and links servers in which that code
//! cannot run.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use object::Endianness;
use object::elf::{FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader};
use rayon::prelude::*;

use super::common_layout::stable_name;
use super::files::list;
use super::identity::identity_of_files;
use super::linked_code::{Content, LinkedFile, LinkedSection};
use super::relink::Relink;
use perfquilt_config::{BUILD_RECORD, Layouts, RELINK_FOLDER};
use perfquilt_model::error::{Error, Result};

/// The instruction `int3`, which ends the process.
const TRAP: u8 = 0xcc;
/// Place and size of type and symbol in an entry of a relocation table.
const RELOCATION_ENTRY: u64 = 24;
const RELOCATION_INFO: u64 = 8;

/// The code of a server that another build of it changes.
///
/// As long as a process enters none of it, both builds execute the same instructions on the same data: code that both
/// have is equal byte for byte, refers to the same names, and these have the same definitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangedCode {
    /// Names of the changed and removed sections of code, without `.text.`: usually the functions.
    pub functions: BTreeSet<String>,
    /// Ranges to overwrite, by the input's name.
    ranges: BTreeMap<PathBuf, Vec<Overwrite>>,
}

/// Part of an input to overwrite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Overwrite {
    /// Code, with traps.
    Code(Range<u64>),
    /// Relocations of this code, with ones that do nothing.
    Relocations(Range<u64>),
}

/// Compares builds of one program; reads each file that builds share once.
#[derive(Debug, Default)]
pub struct CodeComparison {
    /// By device, inode and name in every build.
    files: Mutex<HashMap<(u64, u64, String), Arc<LinkedFile>>>,
}

/// All sections of one build with the same key.
#[derive(Default)]
struct Node<'f> {
    digests: BTreeSet<[u8; 32]>,
    /// Each copy, with the name of its file.
    copies: Vec<(&'f Path, &'f LinkedSection)>,
}

type Nodes<'f> = BTreeMap<u64, Node<'f>>;

impl CodeComparison {
    /// Returns the code of the built server in the folder `before` that the one in `after` changes or lacks.
    /// `binary` is the executable inside these folders; other programs in them may differ if nothing `runs_programs`.
    pub fn changed(
        &self,
        before: &Path,
        after: &Path,
        binary: &str,
        runs_programs: bool,
    ) -> std::result::Result<ChangedCode, String> {
        let unreadable = |error: Error| error.to_string();
        let rest = |server| rest(server, binary, runs_programs).map_err(unreadable);
        if rest(before)? != rest(after)? {
            return Err("they differ in files other than the executable".to_owned());
        }
        let [one, other] = [before, after].map(|dir| Relink::of(dir, Layouts::Padded));
        let (one, other) = (one?, other?);
        if one.stable_command() != other.stable_command() {
            return Err("they are linked by different commands".to_owned());
        }
        let [one, other] = [one, other].map(|relink| self.read(&relink));
        let (one, other) = (one?, other?);
        let names = |files: &[(PathBuf, Arc<LinkedFile>)]| -> Vec<String> {
            files.iter().map(|(name, _)| stable_name(name)).collect()
        };
        if names(&one) != names(&other) {
            return Err("they are linked from different files".to_owned());
        }
        for ((name, file), (_, twin)) in one.iter().zip(&other) {
            match (&**file, &**twin) {
                (LinkedFile::Objects(_), LinkedFile::Objects(_)) => {}
                (LinkedFile::Opaque(a), LinkedFile::Opaque(b)) if a == b => {}
                _ => return Err(format!("{} cannot be compared", stable_name(name))),
            }
        }
        compare(&nodes(&one), &nodes(&other))
    }

    /// Reads the inputs of a link in their order.
    fn read(
        &self,
        relink: &Relink,
    ) -> std::result::Result<Vec<(PathBuf, Arc<LinkedFile>)>, String> {
        let inputs = relink.inputs().into_par_iter();
        inputs
            .map(|name| {
                let path = relink.dir.join(&name);
                let read = || -> std::io::Result<Arc<LinkedFile>> {
                    let meta = std::fs::metadata(&path)?;
                    let stable = stable_name(&name);
                    let key = (meta.dev(), meta.ino(), stable.clone());
                    let known = self.files.lock().ok().and_then(|f| f.get(&key).cloned());
                    if let Some(known) = known {
                        return Ok(known);
                    }
                    let file = Arc::new(LinkedFile::read(File::open(&path)?, &stable)?);
                    if let Ok(mut files) = self.files.lock() {
                        files.insert(key, Arc::clone(&file));
                    }
                    Ok(file)
                };
                let file = read().map_err(|e| Error::io("read", &path, &e).to_string())?;
                Ok((name, file))
            })
            .collect()
    }
}

/// Returns the identity of a built server's files other than the executable, the inputs of its link, and, unless
/// something `runs_programs`, other programs.
fn rest(server: &Path, binary: &str, runs_programs: bool) -> Result<String> {
    let mut files = list(server)?;
    files.retain(|name, _| {
        name != binary
            && name != BUILD_RECORD
            && !Path::new(name).starts_with(RELINK_FOLDER)
            && (runs_programs || !is_program(&server.join(name)))
    });
    identity_of_files(server, &files)
}

/// Returns whether `path` is a program, which no server loads into its own process: an ELF file that names the loader
/// that starts it. Libraries and plugins name none.
fn is_program(path: &Path) -> bool {
    let has_interpreter = || {
        let bytes = std::fs::read(path).ok()?;
        let header = FileHeader64::<Endianness>::parse(&*bytes).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, &*bytes).ok()?;
        Some(segments.iter().any(|one| one.p_type(endian) == PT_INTERP))
    };
    has_interpreter().unwrap_or(false)
}

fn nodes(files: &[(PathBuf, Arc<LinkedFile>)]) -> Nodes<'_> {
    let mut nodes = Nodes::new();
    for (name, file) in files {
        let LinkedFile::Objects(sections) = &**file else {
            continue;
        };
        for section in sections {
            let node = nodes.entry(section.key).or_default();
            node.digests.insert(section.digest);
            node.copies.push((name, section));
        }
    }
    nodes
}

/// Returns the sections that define each global symbol.
fn definitions(nodes: &Nodes<'_>) -> HashMap<u64, BTreeSet<u64>> {
    let mut found: HashMap<u64, BTreeSet<u64>> = HashMap::new();
    for (&key, node) in nodes {
        for &name in node.copies.iter().flat_map(|(_, section)| &section.defines) {
            found.entry(name).or_default().insert(key);
        }
    }
    found
}

/// Returns the code of `before` that is not the same in `after`, or that uses data that is not.
fn compare(before: &Nodes<'_>, after: &Nodes<'_>) -> std::result::Result<ChangedCode, String> {
    let is_equal = |key: &u64| {
        let digests = |nodes: &Nodes<'_>| nodes.get(key).map(|node| node.digests.clone());
        digests(before) == digests(after)
    };
    let mut changed: HashSet<u64> = before
        .keys()
        .chain(after.keys())
        .filter(|key| !is_equal(key))
        .copied()
        .collect();
    // A name that means another section makes other code of what refers to it.
    let (old, new) = (definitions(before), definitions(after));
    let names = old.keys().chain(new.keys());
    let mut hot: HashSet<u64> = names
        .filter(|name| old.get(name) != new.get(name))
        .copied()
        .collect();
    let all = || before.iter().chain(after);
    loop {
        for (key, node) in all().filter(|(key, _)| changed.contains(key)) {
            for (_, section) in &node.copies {
                match section.content {
                    // To call a changed function is no change.
                    Content::Code => {}
                    Content::Data => {
                        hot.insert(*key);
                        hot.extend(&section.defines);
                    }
                    Content::Other => {
                        return Err(format!("the section {} differs", section.name));
                    }
                }
            }
        }
        let refers = |node: &Node<'_>| {
            let mut references = node
                .copies
                .iter()
                .flat_map(|(_, section)| &section.references);
            references.any(|target| hot.contains(target))
        };
        let further: Vec<u64> = all()
            .filter(|(key, node)| !changed.contains(key) && refers(node))
            .map(|(key, _)| *key)
            .collect();
        if further.is_empty() {
            break;
        }
        changed.extend(further);
    }
    let mut found = ChangedCode {
        functions: BTreeSet::new(),
        ranges: BTreeMap::new(),
    };
    for (_, node) in before.iter().filter(|(key, _)| changed.contains(key)) {
        for (file, section) in &node.copies {
            if section.content != Content::Code || section.bytes.is_empty() {
                continue;
            }
            found
                .functions
                .insert(function_name(&section.name).to_owned());
            let ranges = found.ranges.entry((*file).to_owned()).or_default();
            ranges.push(Overwrite::Code(section.bytes.clone()));
            let tables = section.relocations.iter().cloned();
            ranges.extend(tables.map(Overwrite::Relocations));
        }
    }
    Ok(found)
}

/// Returns the name of a section of code without the parts that say where the linker puts it.
fn function_name(section: &str) -> &str {
    let groups = [
        ".text.unlikely.",
        ".text.hot.",
        ".text.startup.",
        ".text.exit.",
        ".text.",
    ];
    let mut names = groups
        .iter()
        .filter_map(|group| section.strip_prefix(group));
    names.next().unwrap_or(section)
}

impl ChangedCode {
    /// Returns whether there is none: whatever the other build has in addition is never called.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Links the executable of the built server in the folder `server`, the one that the code is of, to `output`, an
    /// absolute path. A process that enters any of the code ends at once (SIGTRAP).
    pub fn link_with_traps(&self, server: &Path, output: &Path) -> Result<()> {
        let relink = Relink::of(server, Layouts::Off).map_err(Error::test_suite)?;
        relink.link_edited(output, &|name, file| match self.ranges.get(name) {
            Some(ranges) => overwrite(file, ranges),
            None => Ok(()),
        })
    }
}

/// Overwrites parts of a file.
fn overwrite(path: &Path, ranges: &[Overwrite]) -> std::io::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644))?;
    let file = File::options().write(true).open(path)?;
    for range in ranges {
        match range {
            Overwrite::Code(range) => {
                let length = usize::try_from(range.end - range.start).unwrap_or(0);
                file.write_all_at(&vec![TRAP; length], range.start)?;
            }
            Overwrite::Relocations(range) => {
                let mut entry = range.start;
                while entry < range.end {
                    file.write_all_at(&[0; 8], entry + RELOCATION_INFO)?;
                    entry += RELOCATION_ENTRY;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_programs_matter_only_where_something_runs_them() {
        let folder = tempfile::tempdir().unwrap();
        let server = |name: &str, tool: &[u8], message: &str| {
            let dir = folder.path().join(name);
            std::fs::create_dir_all(dir.join("bin")).unwrap();
            std::fs::write(dir.join("bin/server"), name).unwrap();
            std::fs::write(dir.join("bin/tool"), tool).unwrap();
            std::fs::write(dir.join("message"), message).unwrap();
            dir
        };
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let other = std::fs::read("/bin/sh").unwrap();
        let one = server("one", &program, "x");
        let two = server("two", &other, "x");
        let three = server("three", &program, "y");
        let rest = |dir: &Path, runs| rest(dir, "bin/server", runs).unwrap();
        assert_eq!(rest(&one, false), rest(&two, false));
        assert_ne!(rest(&one, true), rest(&two, true));
        assert_ne!(rest(&one, false), rest(&three, false));
        // What names no loader may be loaded.
        let library = server("four", b"\x7fELF", "x");
        assert_ne!(rest(&one, false), rest(&library, false));
    }
}
