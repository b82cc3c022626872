//! Reads folders of patches: with a `series`, without one, and one folder for each release.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::subject::parse_subject;
use super::{MAX_BYTES, PatchSource, SourcePatch};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_series::series::compression::FILE_LIMIT;
use perfquilt_series::series::write::{first_free, split_extension};
use perfquilt_series::series::{SeriesFile, compression, diff, looks_like_patch, path};
use perfquilt_series::stack::format::changed_paths;
use perfquilt_series::stack::is_on_disk;
use perfquilt_series::stack::trial::TrialTree;
use perfquilt_series::upstream::Objects;

/// Places of a series below a source tree's root.
const PLACES: [&str; 3] = ["", "debian/patches", "patches"];

/// Returns version and folder of every configured release that has a folder of its name in `source`.
pub(super) fn folders_of_releases(ws: &Workspace, source: &Path) -> Result<Vec<(String, PathBuf)>> {
    let releases = ws.config.upstream.release.iter();
    let found = releases.filter_map(|release| {
        let names = [
            release.version.clone(),
            ws.config.release_name(&release.version),
        ];
        let folder = names
            .iter()
            .map(|name| source.join(name))
            .find(|it| it.is_dir())?;
        Some((release.version.clone(), folder))
    });
    Ok(found.collect())
}

/// Returns notes about files and folders with patches beside the `folders` of releases.
pub(super) fn beside(source: &Path, folders: &[(String, PathBuf)]) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    if folders.is_empty() {
        return Ok(notes);
    }
    let failed = |error: std::io::Error| Error::io("read", source, &error);
    for entry in std::fs::read_dir(source).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if folders.iter().any(|(_, folder)| *folder == path) {
            continue;
        }
        let name = shown(path.file_name().unwrap_or_default().as_bytes());
        let has_patches = if path.is_dir() {
            let mut found = FoundFiles::default();
            // A folder with a series has patches, too.
            found.walk(&path, "", 0).is_err() || !found.patches.is_empty()
        } else {
            looks_like_patch(&name)
        };
        if has_patches {
            let what = if path.is_dir() { "/" } else { "" };
            notes.push(format!(
                "left out: {name}{what} (beside the folders of configured releases)"
            ));
        }
    }
    notes.sort();
    Ok(notes)
}

/// The series of dpatch.
const DPATCH_LIST: &str = "00list";

/// Returns the folder of a tree that has this list of patches.
fn with_list(source: &Path, list: &str) -> Option<PathBuf> {
    let mut places = PLACES.iter().map(|place| source.join(place));
    places.find(|folder| folder.join(list).is_file())
}

/// Reads a folder of patches, or a tree with one.
pub(super) fn read(source: &Path) -> Result<PatchSource> {
    match (with_list(source, "series"), with_list(source, DPATCH_LIST)) {
        (Some(folder), _) => {
            let bytes = contents(&folder.join("series"))?;
            with_series(source, &folder, "series", bytes)
        }
        (None, Some(folder)) => {
            let bytes = series_of_dpatch(&folder)?;
            with_series(source, &folder, DPATCH_LIST, bytes)
        }
        (None, None) => without_series(source),
    }
}

/// Returns `source` if it is the spec of an RPM package, or the only one in it if it is a folder without a series.
pub(super) fn spec_in(source: &Path) -> Result<Option<PathBuf>> {
    if with_list(source, "series")
        .or(with_list(source, DPATCH_LIST))
        .is_some()
    {
        return Ok(None);
    }
    let is_spec =
        |path: &PathBuf| path.extension().is_some_and(|end| end == "spec") && path.is_file();
    let path = source.to_owned();
    if is_spec(&path) {
        return Ok(Some(path));
    }
    let entries = std::fs::read_dir(source).into_iter().flatten();
    let mut specs: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(is_spec)
        .collect();
    match specs.len() {
        0 | 1 => Ok(specs.pop()),
        _ => {
            specs.sort();
            let fault = Error::import_source(format!("{} has several specs", source.display()));
            Err(fault
                .details(specs.iter().map(|path| path.display().to_string()))
                .hint("name one of them"))
        }
    }
}

/// Returns the list of dpatch in a folder as a `series`: its names may lack `.dpatch`.
fn series_of_dpatch(folder: &Path) -> Result<Vec<u8>> {
    let list = folder.join(DPATCH_LIST);
    let text = String::from_utf8_lossy(&contents(&list)?).into_owned();
    let mut series = String::new();
    for (index, line) in text.lines().enumerate() {
        let word = line.split_whitespace().next().unwrap_or_default();
        if ["#if", "#else", "#endif", "#include", "#define"]
            .iter()
            .any(|directive| word.starts_with(directive))
        {
            return Err(Error::import_source(
                "the C preprocessor decides which patches this list has",
            )
            .at(&list, Some(index + 1))
            .hint(format!(
                "write a `series`: `cpp -P {} > series`, with `.dpatch` behind each name",
                list.display()
            )));
        }
        if word.is_empty() || word.starts_with('#') {
            series.push_str(line);
        } else {
            series.push_str(word);
            if !folder.join(word).is_file() {
                series.push_str(".dpatch");
            }
        }
        series.push('\n');
    }
    Ok(series.into_bytes())
}

fn with_series(source: &Path, folder: &Path, list: &str, bytes: Vec<u8>) -> Result<PatchSource> {
    let shown = folder.join(list).display().to_string();
    let file = SeriesFile::read(&bytes, &shown)?;
    if file.entries().is_empty() {
        return Err(Error::import_source("the series has no patches").at(shown, None));
    }
    let names: Vec<String> = file
        .entries()
        .iter()
        .map(|entry| entry.name.clone())
        .collect();
    let root = if folder == source { None } else { Some(source) };
    let applied = root.filter(|root| is_applied(root, &names));
    // A workspace of perfquilt has its patches in a folder beside the series.
    let beside = folder.join("patches");
    let is_inside = |name: &String| {
        let mut parts = Path::new(name).components();
        parts.all(|part| matches!(part, Component::Normal(_)))
    };
    // Other names are refused below, without a look at what they lead to.
    let is_in = |folder: &Path, name: &String| !is_inside(name) || folder.join(name).is_file();
    let are_in = |folder: &Path| names.iter().all(|name| is_in(folder, name));
    let place = if are_in(&beside) && !are_in(folder) {
        beside.as_path()
    } else {
        folder
    };
    if let Some(missing) = names.iter().find(|name| !is_in(place, name)) {
        return Err(Error::import_source(format!(
            "there is no file {}",
            place.join(missing).display()
        ))
        .at(shown, None)
        .hint("the patches of a series are in its folder, or in a folder `patches` there"));
    }
    let mut notes = unlisted(place, &names)?;
    notes.extend(guards(&file));
    if applied.is_none() && root.is_some_and(|root| root.join(".pc/applied-patches").is_file()) {
        notes.push(
            "quilt has not applied all patches to the tree there: its files are not compared"
                .to_owned(),
        );
    }
    let files = names.iter().map(|name| (place.join(name), name.clone()));
    Ok(PatchSource {
        kind: format!("the series in {}", folder.display()),
        patches: patches(files)?,
        series: Some(bytes),
        applied: applied.map(Path::to_owned),
        notes,
        ..PatchSource::default()
    })
}

/// Returns notes about guards of Mercurial's queues, which are comments for quilt.
fn guards(file: &SeriesFile) -> Vec<String> {
    let guards = file.lines().iter().filter_map(|line| {
        let (name, guard) = line.split_once(" #")?;
        let guard = guard.split_whitespace().next()?;
        let is_guard = guard.len() > 1 && guard.starts_with(['+', '-']);
        is_guard.then(|| {
            format!(
                "the guard `#{guard}` of {} is a comment here: the patch is imported, selected or not",
                name.trim()
            )
        })
    });
    guards.collect()
}

/// Returns notes about patches beside the listed ones.
fn unlisted(folder: &Path, names: &[String]) -> Result<Vec<String>> {
    let failed = |error: std::io::Error| Error::io("read", folder, &error);
    let mut notes = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let name = shown(entry.map_err(failed)?.file_name().as_bytes());
        if looks_like_patch(&name) && !names.contains(&name) {
            notes.push(format!("left out: {name} (the series does not list it)"));
        }
    }
    notes.sort();
    Ok(notes)
}

/// Reads a folder without a series, and the folders below it.
fn without_series(source: &Path) -> Result<PatchSource> {
    let mut found = FoundFiles::default();
    found.walk(source, "", 0)?;
    let FoundFiles {
        mut patches,
        mut left_out,
        ..
    } = found;
    if patches.is_empty() {
        return Err(Error::import_source(format!(
            "{} has neither a `series` nor patches",
            source.display()
        ))
        .details(left_out)
        .hint("patches end in .patch or .diff; for a git repository, name a range: BASE..TIP"));
    }
    patches.sort_by_key(|name| natural(name));
    refuse_versions(source, &patches)?;
    let mut notes = Vec::new();
    // Files that can keep their names have them first.
    let fits = |file: &&String| series_name(file, &mut BTreeSet::new()) == **file;
    let own: BTreeSet<String> = patches.iter().filter(fits).cloned().collect();
    let mut taken = own.clone();
    let mut names = Vec::new();
    for file in &patches {
        let name = if own.contains(file) {
            file.clone()
        } else {
            series_name(file, &mut taken)
        };
        if name != *file {
            notes.push(format!(
                "{file:?} is imported as {name}, because a line of `series` cannot have its name"
            ));
        }
        names.push(name);
    }
    left_out.sort_by_key(|name| natural(name));
    notes.extend(left_out.into_iter().map(|left| format!("left out: {left}")));
    let mut order: Vec<usize> = (0..patches.len()).collect();
    order.sort_by(|one, other| patches[*one].cmp(&patches[*other]));
    let files = patches
        .iter()
        .map(|file| source.join(OsStr::from_bytes(&from_shown(file))));
    Ok(PatchSource {
        other_order: (!order.is_sorted())
            .then(|| ("the order of bytes (`LC_ALL=C ls`)".to_owned(), order)),
        kind: format!(
            "the patches in {}, in the order of their names",
            source.display()
        ),
        patches: self::patches(files.zip(names))?,
        notes,
        ..PatchSource::default()
    })
}

/// Refuses folders that seem to be those of several releases, none of which is configured by that name.
fn refuse_versions(source: &Path, patches: &[String]) -> Result<()> {
    let is_version = |folder: &str| {
        let number = folder.trim_start_matches(['v', 'V']);
        number.starts_with(|c: char| c.is_ascii_digit())
            && number.contains('.')
            && number
                .chars()
                .all(|c| c.is_ascii_digit() || ".x".contains(c))
    };
    let folders = patches.iter().filter_map(|name| name.split_once('/'));
    let versions: BTreeSet<&str> = folders
        .map(|(folder, _)| folder)
        .filter(|folder| is_version(folder))
        .collect();
    if versions.len() < 2 {
        return Ok(());
    }
    let versions: Vec<&str> = versions.into_iter().collect();
    Err(Error::import_source(format!(
        "{} has folders of several versions: {}",
        source.display(),
        versions.join(", ")
    ))
    .hint("import one of them; folders named as the configured releases are imported for these"))
}

/// Returns a single patch file that is no mail as a series of its own.
pub(super) fn one_file(path: &Path, bytes: Vec<u8>) -> Result<PatchSource> {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let name = file.strip_suffix(compression(&file)).unwrap_or(&file);
    let patch = SourcePatch {
        name: series_name(name, &mut BTreeSet::new()),
        bytes,
        ..SourcePatch::default()
    };
    Ok(PatchSource {
        kind: path.display().to_string(),
        patches: vec![patch],
        ..PatchSource::default()
    })
}

/// Maximum depth of folders below the source.
const MAX_FOLDERS: usize = 16;

/// Maximum number of files below the source.
const MAX_FILES: usize = 100_000;

/// The files of a folder without a series.
#[derive(Default)]
struct FoundFiles {
    /// Patches, as paths below the source; bytes that are not UTF-8 as in [`from_shown`].
    patches: Vec<String>,
    /// Other files, with the reason.
    left_out: Vec<String>,
    count: usize,
}

impl FoundFiles {
    fn walk(&mut self, folder: &Path, below: &str, depth: usize) -> Result<()> {
        let failed = |error: std::io::Error| Error::io("read", folder, &error);
        for entry in std::fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            self.count += 1;
            if self.count > MAX_FILES {
                return Err(Error::import_too_large(format!(
                    "more than {MAX_FILES} files below the folder of patches"
                ))
                .hint("pass the folder with the patches"));
            }
            let name = format!("{below}{}", shown(entry.file_name().as_bytes()));
            let path = entry.path();
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() {
                self.folder(&path, &name, depth)?;
            } else if kind.is_symlink() && path.is_dir() {
                self.left_out.push(format!("{name} (a link to a folder)"));
            } else if !path.is_file() {
                self.left_out.push(format!("{name} (no regular file)"));
            } else {
                self.file(&path, name)?;
            }
        }
        Ok(())
    }

    fn folder(&mut self, path: &Path, name: &str, depth: usize) -> Result<()> {
        let own = name.rsplit('/').next().unwrap_or_default();
        if [".git", ".pc", ".svn", ".hg", ".bzr"].contains(&own) {
            self.left_out
                .push(format!("{name}/ (a program's own folder)"));
            return Ok(());
        }
        if path.join("series").is_file() {
            return Err(Error::import_source(format!("the folder {name} has a series of its own"))
                .at(path.join("series"), None)
                .hint("import that folder; its `series` says which patches apply, and in which order"));
        }
        if depth == MAX_FOLDERS {
            self.left_out.push(format!("{name}/ (too many folders)"));
            return Ok(());
        }
        self.walk(path, &format!("{name}/"), depth + 1)
    }

    fn file(&mut self, path: &Path, name: String) -> Result<()> {
        let own = name.rsplit('/').next().unwrap_or_default();
        if looks_like_patch(own) {
            if is_cover_letter(&contents(path)?) {
                self.left_out.push(format!("{name} (a cover letter)"));
            } else {
                self.patches.push(name);
            }
            return Ok(());
        }
        let size = path.metadata().map_or(u64::MAX, |metadata| metadata.len());
        let has_diff = size <= FILE_LIMIT
            && !own.starts_with('.')
            && diff::parse(&contents(path)?, 1, "").is_ok_and(|parsed| !parsed.files.is_empty());
        match (has_diff, own.contains('.')) {
            // A name of words alone, as old packages have it.
            (true, false) => self.patches.push(name),
            (true, true) => self.left_out.push(format!(
                "{name} (it has a diff; to import it, rename it to end in .patch, or list it in a `series` file)"
            )),
            (false, _) => self.left_out.push(format!("{name} (no patch)")),
        }
        Ok(())
    }
}

/// Returns whether a file is mail 0 of a series of mails, without a patch.
fn is_cover_letter(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(&bytes[..diff::header_length(bytes)]);
    let mut fields = text.lines().take_while(|line| !line.is_empty());
    let subject = fields.find_map(|line| line.strip_prefix("Subject:"));
    subject.is_some_and(|subject| {
        parse_subject(subject)
            .number
            .is_some_and(|it| it.number == 0)
            && diff::parse(bytes, 1, "").is_ok_and(|parsed| parsed.files.is_empty())
    })
}

/// Returns a file's name as a name in `series`, which has no blanks and is not in `taken`.
fn series_name(file: &str, taken: &mut BTreeSet<String>) -> String {
    let mut name: String = file
        .trim()
        .chars()
        .map(|c| {
            if c.is_whitespace() || c.is_control() || c == '\u{fffd}' {
                '-'
            } else {
                c
            }
        })
        .collect();
    if let Some(rest) = name.strip_prefix('#') {
        name = format!("-{rest}");
    }
    let (stem, ending) = split_extension(&name);
    first_free(stem, ending, |name| taken.insert(name.to_owned()))
}

/// Returns a file's name as text. Bytes that are not UTF-8 are read as Latin-1 behind a mark that names have not.
fn shown(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(name) => name.to_owned(),
        Err(_) => std::iter::once('\u{fffd}')
            .chain(name.iter().map(|&byte| char::from(byte)))
            .collect(),
    }
}

/// Returns the bytes of a path whose parts are [`shown`].
fn from_shown(path: &str) -> Vec<u8> {
    let parts = path
        .split('/')
        .map(|part| match part.strip_prefix('\u{fffd}') {
            None => part.as_bytes().to_vec(),
            Some(latin) => latin.chars().map(|c| c as u8).collect(),
        });
    parts.collect::<Vec<_>>().join(&b'/')
}

/// Returns a key that sorts numbers in names by their values, and before letters.
fn natural(name: &str) -> Vec<(bool, u64, String)> {
    let mut key = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let value = rest[..digits].parse().unwrap_or(u64::MAX);
        let text = digits == 0;
        let other = rest[digits..]
            .find(|c: char| c.is_ascii_digit())
            .map_or(rest.len(), |at| digits + at);
        key.push((text, value, rest[digits..other].to_owned()));
        rest = &rest[other..];
    }
    key
}

/// Reads patches, each with its name in the series.
pub(super) fn patches(files: impl Iterator<Item = (PathBuf, String)>) -> Result<Vec<SourcePatch>> {
    let mut size = 0;
    let mut found = Vec::new();
    for (path, name) in files {
        let bytes = contents(&path)?;
        size += bytes.len() as u64;
        if size > MAX_BYTES {
            return Err(Error::import_too_large(format!(
                "the patches are more than {} MB",
                MAX_BYTES >> 20
            )));
        }
        found.push(SourcePatch {
            name,
            bytes,
            ..SourcePatch::default()
        });
    }
    Ok(found)
}

pub(super) fn contents(path: &Path) -> Result<Vec<u8>> {
    let failed = |error: std::io::Error| Error::io("read", path, &error);
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() || metadata.len() > MAX_BYTES {
        return Err(Error::import_too_large(format!(
            "{} is not a file of at most {} MB",
            path.display(),
            MAX_BYTES >> 20
        )));
    }
    std::fs::read(path).map_err(failed)
}

/// Returns whether quilt has applied all patches to the tree.
fn is_applied(root: &Path, names: &[String]) -> bool {
    let listed = std::fs::read_to_string(root.join(".pc/applied-patches")).unwrap_or_default();
    let applied: BTreeSet<&str> = listed.lines().collect();
    names.iter().all(|name| applied.contains(name.as_str()))
}

/// Compares the files that the series changes with those of a tree on disk.
pub(super) fn compare(objects: &Objects, base: &str, tree: &str, folder: &Path) -> Result<()> {
    let mut trial = TrialTree::new(objects, tree)?;
    for path in changed_paths(objects, base, tree)? {
        let place = folder.join(OsStr::from_bytes(&path));
        let same = match trial.file(&path)? {
            None => place.symlink_metadata().is_err(),
            Some(file) => is_on_disk(&place, file.mode, &file.content),
        };
        if !same {
            return Err(Error::import_differs(format!(
                "the patches produce another {} than the source's tree has; nothing was written",
                path::shown(&path)
            ))
            .hint("the tree has changes of its own, or is of another release; `quilt refresh` there adds changes to the top patch"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_sort_by_value() {
        let mut names = vec![
            "10-b.patch",
            "9-c.patch",
            "010a.patch",
            "a2.diff",
            "a10.diff",
        ];
        names.sort_by_key(|name| natural(name));
        assert_eq!(
            names,
            [
                "9-c.patch",
                "10-b.patch",
                "010a.patch",
                "a2.diff",
                "a10.diff"
            ]
        );
    }
}
