//! Writes the series back into a package: an RPM `.spec`, or a Debian source tree. Patches keep their bytes, and nothing of the
//! package changes but what the series changes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::files;
use super::spec::{self, Spec};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_series::series::{Series, SeriesEntry, SeriesFile, paths};
use perfquilt_system::files::write_file;

/// The result of an export.
#[derive(Debug, Clone, Serialize)]
pub struct ExportedSeries {
    /// The package, in words.
    pub package: String,
    /// The number of patches.
    pub patches: usize,
    /// The files that changed, or would change.
    pub written: Vec<PathBuf>,
    /// Further remarks, one sentence each.
    pub notes: Vec<String>,
}

/// Writes the series of a release into the package at `target`: a spec, a folder with one, a tree with `debian/`, or a folder
/// with a `series`.
pub fn export(
    ws: &Workspace,
    release: Option<&str>,
    target: &Path,
    dry_run: bool,
) -> Result<ExportedSeries> {
    let series = Series::load_for(ws, release)?;
    let places = paths(ws, release)?;
    let root = ws.root();
    let mut found = BTreeMap::new();
    for entry in series.file().entries() {
        let path = root.join(&places.patches).join(&entry.name);
        found.insert(entry.name.clone(), files::contents(&path)?);
    }
    let (package, folder, list, notes, old) = match files::spec_in(target)? {
        Some(path) => {
            let shown = path.display().to_string();
            let old = files::contents(&path)?;
            let spec = Spec::parse(&old, &shown)?;
            let new = spec.with(series.file().entries(), &shown)?;
            let names: BTreeSet<String> = spec.entries().map(|entry| entry.name.clone()).collect();
            (shown, spec::folder(&path), (path, new), Vec::new(), names)
        }
        None => debian(target, files::contents(&root.join(&places.series))?)?,
    };
    let mut changes: Vec<(PathBuf, Vec<u8>)> = found
        .iter()
        .map(|(name, bytes)| (folder.join(name), bytes.clone()))
        .collect();
    // The list comes last: it names nothing that is not there.
    changes.push(list);
    changes.retain(|(path, bytes)| std::fs::read(path).ok().as_ref() != Some(bytes));
    let gone = old.iter().filter(|name| !found.contains_key(*name));
    let gone = gone.map(|name| format!("{name} is no longer listed; its file stays"));
    let notes = notes.into_iter().chain(gone).collect();
    if !dry_run {
        for (path, bytes) in &changes {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)
                    .map_err(|error| Error::io("create", folder, &error))?;
            }
            write_file(path, bytes)?;
        }
    }
    Ok(ExportedSeries {
        package,
        patches: found.len(),
        written: changes.into_iter().map(|(path, _)| path).collect(),
        notes,
    })
}

/// A package: its name, the folder of its patches, its list of them with the new content, remarks, and the patches that it
/// lists.
type Package = (
    String,
    PathBuf,
    (PathBuf, Vec<u8>),
    Vec<String>,
    BTreeSet<String>,
);

/// Returns a Debian source tree, or a folder of patches, whose series becomes `text`.
fn debian(target: &Path, text: Vec<u8>) -> Result<Package> {
    let folder = if target.join("debian").is_dir() {
        target.join("debian/patches")
    } else if target.join("series").is_file() {
        target.to_owned()
    } else {
        let fault = format!(
            "{} is no package: neither a spec nor debian/ nor a series is there",
            target.display()
        );
        return Err(Error::import_source(fault)
            .hint("name the .spec, or the folder that has debian/ in it"));
    };
    let format = std::fs::read_to_string(target.join("debian/source/format")).unwrap_or_default();
    let notes = match format.trim() {
        "" | "3.0 (quilt)" => Vec::new(),
        other => vec![format!(
            "the source format is {other}: dpkg-source applies debian/patches in 3.0 (quilt) only"
        )],
    };
    let list = folder.join("series");
    let old = std::fs::read(&list).unwrap_or_default();
    let old = SeriesFile::parse(&old, "series").0;
    let names = old
        .entries()
        .iter()
        .map(|entry| entry.name.clone())
        .collect();
    Ok((
        target.display().to_string(),
        folder,
        (list, text),
        notes,
        names,
    ))
}

fn is_same(one: &SeriesEntry, other: &SeriesEntry) -> bool {
    (&one.name, one.strip, one.reverse) == (&other.name, other.strip, other.reverse)
}

impl Spec {
    /// Returns the spec that applies the patches `wanted`, with as few changed lines as possible.
    fn with(&self, wanted: &[SeriesEntry], shown: &str) -> Result<Vec<u8>> {
        let current: Vec<&SeriesEntry> = self.entries().collect();
        let is_unchanged = current.len() == wanted.len()
            && current
                .iter()
                .zip(wanted)
                .all(|(one, other)| is_same(one, other));
        if is_unchanged {
            return Ok(self.lines.concat());
        }
        let is_wanted = |name: &str| wanted.iter().any(|entry| entry.name == name);
        let is_single = self.applied.iter().any(|of| of.is_single);
        let mut lines: BTreeMap<usize, Vec<u8>> = self.lines.iter().cloned().enumerate().collect();
        let mut after: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        // The patch of each number.
        let mut names: BTreeMap<u32, &str> = BTreeMap::new();
        for of in &self.applied {
            if is_wanted(&of.entry.name) {
                names.insert(of.number, &of.entry.name);
                continue;
            }
            lines.remove(&self.declared[&of.number].line);
            if of.is_single {
                lines.remove(&(of.entry.line - 1));
            }
        }
        let mut number = self
            .declared
            .last_key_value()
            .map_or(0, |(last, _)| last + 1);
        for (place, entry) in wanted.iter().enumerate() {
            if current.iter().any(|known| known.name == entry.name) {
                continue;
            }
            names.insert(number, &entry.name);
            if is_single {
                // It is applied behind the patch before it.
                let before = wanted[..place].last().map(|before| &before.name);
                let before = self
                    .applied
                    .iter()
                    .rfind(|of| Some(&of.entry.name) == before);
                let at = before
                    .or(self.applied.last())
                    .map_or(0, |of| self.ends[of.entry.line - 1]);
                let reverse = if entry.reverse { " -R" } else { "" };
                let line = format!("%patch -P {number} -p{}{reverse}\n", entry.strip);
                after.entry(at).or_default().extend(line.into_bytes());
            }
            number += 1;
        }
        if !is_single {
            // The numbers are the order.
            names = names
                .into_keys()
                .zip(wanted.iter().map(|entry| &*entry.name))
                .collect();
        }
        for (number, name) in names {
            match self.declared.get(&number) {
                Some(declared) if declared.name == name => {}
                Some(declared) => {
                    let line = with_value(&self.lines[declared.line], name);
                    lines.insert(declared.line, line);
                }
                None => {
                    let (at, line) = self.declaration(number, name);
                    after.entry(at).or_default().extend(line.into_bytes());
                }
            }
        }
        let mut new = Vec::new();
        for at in 0..self.lines.len() {
            new.extend(lines.remove(&at).unwrap_or_default());
            new.extend(after.remove(&at).unwrap_or_default());
        }
        let made = Spec::parse(&new, shown)?;
        let entries: Vec<&SeriesEntry> = made.entries().collect();
        let differs = wanted
            .iter()
            .enumerate()
            .find(|(place, entry)| entries.get(*place).is_none_or(|made| !is_same(made, entry)));
        match differs {
            None if entries.len() == wanted.len() => Ok(new),
            differs => {
                let name = differs.map_or("the series", |(_, entry)| &entry.name);
                let fault = format!(
                    "cannot tell this spec how to apply {name}: its order or options are its own"
                );
                Err(Error::import_source(fault)
                    .at(shown, None)
                    .hint("change its %patch lines by hand, and export again"))
            }
        }
    }

    /// Returns the line that declares a further patch, and the place behind which it belongs: the last declaration and the
    /// conditions around it.
    fn declaration(&self, number: u32, name: &str) -> (usize, String) {
        let last = self.declared.values().max_by_key(|patch| patch.line);
        let Some(last) = last else {
            let is_source = |line: &&Vec<u8>| line.to_ascii_lowercase().starts_with(b"source");
            let at = self
                .lines
                .iter()
                .rposition(|line| is_source(&line))
                .unwrap_or(0);
            return (at, format!("Patch{number}: {name}\n"));
        };
        let end = self.ends[last.line];
        let text = String::from_utf8_lossy(&self.lines[last.line]).into_owned();
        let Some((tag, value)) = text
            .split_once(':')
            .filter(|(tag, _)| tag.to_ascii_lowercase().starts_with("patch"))
        else {
            return (end, format!("{name}\n"));
        };
        let blanks = &value[..value.len() - value.trim_start().len()];
        let digits = tag.trim_end().len() - "patch".len();
        let number = match digits {
            0 => String::new(),
            digits if tag["patch".len()..].starts_with('0') => format!("{number:0digits$}"),
            _ => number.to_string(),
        };
        (
            end,
            format!("{}{number}:{blanks}{name}\n", &tag[.."patch".len()]),
        )
    }
}

/// Returns a declaration with another file.
fn with_value(line: &[u8], name: &str) -> Vec<u8> {
    let text = String::from_utf8_lossy(line);
    let head = match text.split_once(':') {
        Some((tag, value)) if tag.to_ascii_lowercase().starts_with("patch") => {
            let blanks = value.len() - value.trim_start().len();
            text[..tag.len() + 1 + blanks].to_owned()
        }
        _ => String::new(),
    };
    format!("{head}{name}\n").into_bytes()
}
