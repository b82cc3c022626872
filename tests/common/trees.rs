//! Random small trees, changes to them, and what other programs make of them.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use perfquilt_model::error::Result;
use perfquilt_series::series::Patch;
use perfquilt_series::stack::tree::FileState;
use perfquilt_series::stack::trial::{TrialTree, files_only_in};
use perfquilt_series::upstream::Objects;
use perfquilt_series::upstream::objects::empty_tree;
use proptest::prelude::*;

use super::listing;

/// How many cases a property is tried with: `default`, times `PERFQUILT_CASES` where that is set.
pub fn cases(default: u32) -> u32 {
    let times = std::env::var("PERFQUILT_CASES").ok();
    default * times.and_then(|times| times.parse().ok()).unwrap_or(1)
}

/// Files by path: git's mode and the content.
pub type Tree = BTreeMap<String, (u32, String)>;

/// The result of a program on a tree: the files as [`listing`] gives them; `None` when it refuses.
pub type Meaning = Option<Vec<(String, String, String)>>;

pub const FILE: u32 = 0o100_644;
pub const EXEC: u32 = 0o100_755;
pub const LINK: u32 = 0o120_000;

/// Lines from a small alphabet, so that hunks have several places to go.
pub fn lines(alphabet: u8) -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec((0..alphabet).prop_map(|n| format!("line {n}\n")), 0..25)
}

/// A change of lines.
#[derive(Debug, Clone)]
pub enum Edit {
    Replace(usize, u8),
    Insert(usize, u8),
    Delete(usize),
    CutLineEnd,
}

pub fn edit(alphabet: u8) -> impl Strategy<Value = Edit> {
    prop_oneof![
        4 => (any::<usize>(), 0..alphabet).prop_map(|(at, n)| Edit::Replace(at, n)),
        4 => (any::<usize>(), 0..alphabet).prop_map(|(at, n)| Edit::Insert(at, n)),
        3 => any::<usize>().prop_map(Edit::Delete),
        1 => Just(Edit::CutLineEnd),
    ]
}

pub fn apply_edits(lines: &mut Vec<String>, edits: &[Edit]) {
    for edit in edits {
        // Only the last line may lack its end.
        let tidy = |lines: &mut Vec<String>| {
            if let Some(last) = lines.last_mut()
                && !last.ends_with('\n')
            {
                last.push('\n');
            }
        };
        match edit {
            Edit::Replace(at, n) if !lines.is_empty() => {
                tidy(lines);
                let at = at % lines.len();
                lines[at] = format!("line {n}\n");
            }
            Edit::Insert(at, n) => {
                tidy(lines);
                let at = at % (lines.len() + 1);
                lines.insert(at, format!("line {n}\n"));
            }
            Edit::Delete(at) if !lines.is_empty() => {
                let at = at % lines.len();
                lines.remove(at);
            }
            Edit::CutLineEnd => {
                if let Some(last) = lines.last_mut() {
                    *last = last.trim_end().to_owned();
                }
            }
            _ => {}
        }
    }
}

/// The lines of a content, for editing.
pub fn split(content: &str) -> Vec<String> {
    content.split_inclusive('\n').map(str::to_owned).collect()
}

/// The names in random trees.
pub const NAMES: [&str; 6] = ["f", "g.c", "d/f", "d/e/h", "d/long name", "z"];

/// A tree of plain files with some of [`NAMES`].
pub fn tree(alphabet: u8) -> impl Strategy<Value = Tree> {
    prop::collection::btree_map(0..NAMES.len(), (lines(alphabet), 0..8_u8), 1..4).prop_map(
        |files| {
            files
                .into_iter()
                .map(|(name, (mut lines, how))| {
                    if how == 0 {
                        apply_edits(&mut lines, &[Edit::CutLineEnd]);
                    }
                    let mut text = lines.concat();
                    if how == 1 {
                        text = text.replace('\n', "\r\n");
                    }
                    let mode = if how == 2 { EXEC } else { FILE };
                    (NAMES[name].to_owned(), (mode, text))
                })
                .collect()
        },
    )
}

/// A change of a tree.
#[derive(Debug, Clone)]
pub enum Op {
    Lines(usize, Vec<Edit>),
    Create(usize, Vec<String>),
    Delete(usize),
    Rename(usize, usize),
    Copy(usize, usize),
    Executable(usize),
    Link(usize, u8),
}

/// Changes of contents, and of which files there are.
pub fn op(alphabet: u8) -> impl Strategy<Value = Op> {
    let name = || any::<usize>();
    let edits = prop::collection::vec(edit(alphabet), 1..5);
    prop_oneof![
        8 => (name(), edits).prop_map(|(at, edits)| Op::Lines(at, edits)),
        2 => (0..NAMES.len(), lines(alphabet)).prop_map(|(at, lines)| Op::Create(at, lines)),
        2 => name().prop_map(Op::Delete),
    ]
}

/// Changes that only git's patches can say, and those of [`op`].
pub fn git_op(alphabet: u8) -> impl Strategy<Value = Op> {
    let name = || any::<usize>();
    prop_oneof![
        6 => op(alphabet),
        2 => (name(), 0..NAMES.len()).prop_map(|(from, to)| Op::Rename(from, to)),
        1 => (name(), 0..NAMES.len()).prop_map(|(from, to)| Op::Copy(from, to)),
        1 => name().prop_map(Op::Executable),
        1 => (0..NAMES.len(), any::<u8>()).prop_map(|(at, to)| Op::Link(at, to)),
    ]
}

fn nth(tree: &Tree, index: usize) -> Option<String> {
    tree.keys().nth(index % tree.len().max(1)).cloned()
}

pub fn change(tree: &mut Tree, ops: &[Op]) {
    for op in ops {
        match op {
            Op::Lines(at, edits) => {
                if let Some(name) = nth(tree, *at)
                    && let Some((mode, content)) = tree.get_mut(&name)
                    && *mode != LINK
                {
                    let mut lines = split(content);
                    apply_edits(&mut lines, edits);
                    *content = lines.concat();
                }
            }
            Op::Create(at, lines) => {
                let file = (FILE, lines.concat());
                tree.entry(NAMES[*at].to_owned()).or_insert(file);
            }
            Op::Delete(at) => {
                if let Some(name) = nth(tree, *at) {
                    tree.remove(&name);
                }
            }
            Op::Rename(from, to) => {
                if let Some(name) = nth(tree, *from)
                    && !tree.contains_key(NAMES[*to])
                    && let Some(file) = tree.remove(&name)
                {
                    tree.insert(NAMES[*to].to_owned(), file);
                }
            }
            Op::Copy(from, to) => {
                if let Some(file) = nth(tree, *from).and_then(|name| tree.get(&name).cloned()) {
                    tree.entry(NAMES[*to].to_owned()).or_insert(file);
                }
            }
            Op::Executable(at) => {
                if let Some((mode, _)) = nth(tree, *at).and_then(|name| tree.get_mut(&name))
                    && *mode != LINK
                {
                    *mode = if *mode == FILE { EXEC } else { FILE };
                }
            }
            Op::Link(at, to) => {
                tree.insert(NAMES[*at].to_owned(), (LINK, format!("to{to}")));
            }
        }
    }
}

/// Writes a tree below `dir`, which is made.
pub fn write(dir: &Path, tree: &Tree) {
    std::fs::create_dir_all(dir).unwrap();
    for (path, (mode, content)) in tree {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        if *mode == LINK {
            symlink(content, &path).unwrap();
            continue;
        }
        std::fs::write(&path, content).unwrap();
        if *mode == EXEC {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        }
    }
}

/// The files that a patch makes of the tree.
pub fn patched(tree: &Tree, patch: &Patch) -> Result<Vec<(String, String, String)>> {
    let folder = tempfile::tempdir().unwrap();
    let store = Objects::open_or_create(&folder.path().join("objects.git")).unwrap();
    let empty = empty_tree().to_string();
    let mut trial = TrialTree::new(&store, &empty).unwrap();
    let files = tree.iter().map(|(path, (mode, content))| {
        let (mode, content) = (*mode, Arc::new(content.clone().into_bytes()));
        (path.clone().into_bytes(), Some(FileState { mode, content }))
    });
    trial.change(files.collect()).unwrap();
    trial.apply(patch, 0)?;
    let after = trial.write().unwrap();
    let paths = files_only_in(&store, &after, &empty).unwrap().into_iter();
    let file = |(path, _): (Vec<u8>, _)| {
        let file = trial.file(&path).unwrap().unwrap();
        listed(&text(&path), file.mode, text(&file.content))
    };
    Ok(paths.map(file).collect())
}

/// The tree as [`listing`] would give it.
pub fn tree_listing(tree: &Tree) -> Vec<(String, String, String)> {
    let files = tree.iter();
    let file =
        |(path, (mode, content)): (&String, &(u32, String))| listed(path, *mode, content.clone());
    files.map(file).collect()
}

fn listed(path: &str, mode: u32, content: String) -> (String, String, String) {
    let kind = match mode {
        LINK => "link",
        EXEC => "exec",
        _ => "file",
    };
    (path.to_owned(), kind.to_owned(), content)
}

/// The files below `dir` after a program ran there; `None` when it did not succeed.
pub fn meaning(success: bool, dir: &Path) -> Meaning {
    let shown = |(path, kind, content): (String, String, Vec<u8>)| (path, kind, text(&content));
    success.then(|| listing(dir).into_iter().map(shown).collect())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
