//! Imports patches from elsewhere into the workspace's series: a range of git commits, mails, a folder of patches, or
//! another quilt series.
//!
//! Everything is read and applied in the object store first. Nothing is written unless the patches apply to the release
//! and, where the source has its result (a commit's tree, or a tree with all patches applied), make the same files.

mod files;
mod inbox;
mod linear;
pub mod lint;
mod mail;
mod package;
mod range;
mod spec;
mod subject;

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::lint::{same_change, twins_in};
use perfquilt_config::CONFIG_FILE;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::warning::Warning;
use perfquilt_rebase::edit::publish::{self, FileChange};
use perfquilt_rebase::transfer::transfer;
use perfquilt_rebase::{TreePair, with_folder};
use perfquilt_series::series::compression::decompress;
use perfquilt_series::series::{Patch, Presence, Series, SeriesFile, diff, path, paths, survey};
use perfquilt_series::stack::format::changed_paths;
use perfquilt_series::stack::trial::TrialTree;
use perfquilt_series::stack::{oid, with_other_patches};
use perfquilt_series::upstream::{self, Objects, Release};

pub use inbox::{InboxPosition, read_inbox};
pub use linear::{HistoryLimits, LinearCommit, LinearHistory, MergeResolution, linear_history};
pub use mail::commit_mails;
pub use package::{ExportedSeries, export};
pub use subject::{Numbered, Subject, parse_subject};

/// Maximum size of a source file and of all patches together, as they are and decompressed, in bytes.
const MAX_BYTES: u64 = 512 << 20;

/// A request to import.
#[derive(Debug, Clone, Default)]
pub struct ImportRequest {
    /// A repository, an mbox, a folder of patches, or a tree with a series.
    pub source: String,
    /// The range of a repository: `BASE..TIP`.
    pub range: Option<String>,
    /// The release that the patches are for (`None`: the current one).
    pub release: Option<String>,
    /// `-pN` for the patches of a folder without a series and for mails (`None`: `-p1`).
    pub strip: Option<usize>,
    /// Whether to write nothing.
    pub dry_run: bool,
}

/// The result of an import for one release.
#[derive(Debug, Clone, Serialize)]
pub struct Imported {
    /// The release.
    pub release: String,
    /// The kind of source, in words.
    pub source: String,
    /// The written or planned `series`.
    pub series: PathBuf,
    /// The patches in order.
    pub patches: Vec<ImportedPatch>,
    /// With what the result was compared, and how it came out.
    pub checked: String,
    /// The tree of the release with all patches.
    pub tree: String,
    /// Further remarks, one sentence each.
    pub notes: Vec<String>,
}

/// An imported patch.
#[derive(Debug, Clone, Serialize)]
pub struct ImportedPatch {
    /// Its name in the series.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Its commit, or its mail's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Resolutions of merges that are part of it, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resolutions: Vec<String>,
}

/// A patch read from a source.
#[derive(Clone, Default)]
struct SourcePatch {
    name: String,
    bytes: Vec<u8>,
    origin: Option<String>,
    resolutions: Vec<String>,
    /// The tree that it makes, in the object store.
    tree: Option<String>,
}

/// The content of a source.
#[derive(Default)]
struct PatchSource {
    kind: String,
    patches: Vec<SourcePatch>,
    /// The text of the source's own `series`, which says with which options the patches apply.
    series: Option<Vec<u8>>,
    /// The tree that the source's own patches begin with, if it is in the object store.
    base: Option<String>,
    /// A folder with the source's files after all patches.
    applied: Option<PathBuf>,
    notes: Vec<String>,
    /// Another order of the patches that the source may mean, with its name.
    other_order: Option<(String, Vec<usize>)>,
}

impl PatchSource {
    /// Returns the text of `series`, with `-pN` for every patch.
    fn series_with(&self, strip: Option<usize>) -> Vec<u8> {
        if let Some(own) = &self.series {
            return own.clone();
        }
        let option = match strip {
            None | Some(1) => String::new(),
            Some(strip) => format!(" -p{strip}"),
        };
        let names = self.patches.iter().map(|patch| &patch.name);
        let lines = names.map(|name| format!("{name}{option}\n"));
        lines.collect::<String>().into_bytes()
    }
}

/// Imports the patches of a source; of a folder with a folder for each release, those of every configured release.
pub fn import(ws: &Workspace, request: &ImportRequest) -> Result<Vec<Imported>> {
    let folders = match (&request.range, &request.release) {
        (None, None) => files::folders_of_releases(ws, Path::new(&request.source))?,
        _ => Vec::new(),
    };
    let beside = files::beside(Path::new(&request.source), &folders)?;
    let lock = publish::lock(ws)?;
    let mut changes = Vec::new();
    let mut results = Vec::new();
    let config_path = ws.root().join(CONFIG_FILE);
    let mut config =
        std::fs::read_to_string(&config_path).map_err(|e| Error::io("read", &config_path, &e))?;
    let mut wanted: Vec<(Option<String>, Option<PathBuf>)> = folders
        .into_iter()
        .map(|(version, place)| (Some(version), Some(place)))
        .collect();
    if wanted.is_empty() {
        wanted.push((request.release.clone(), None));
    }
    for (version, place) in wanted {
        let release = upstream::ensure(ws, version.as_deref())?;
        let mut source = match &place {
            Some(place) => files::read(place)?,
            None => read(ws, request)?,
        };
        if results.is_empty() {
            source.notes.extend(beside.iter().cloned());
        }
        refuse_strip(request, &source)?;
        let own = ws.config.series_of(version.as_deref())?;
        let is_own = own != ws.config.series;
        let is_current = release.version == ws.config.upstream.current;
        let new = own.patches.join(file_name(&release.version));
        let folder = match place {
            Some(_) if is_own => Some(own.patches),
            None if is_own || is_current => None,
            _ => Some(new),
        };
        let target = ImportTarget {
            ws,
            release: &release,
            folder: folder.as_deref(),
            strip: request.strip,
        };
        results.push(target.plan(&source, &mut changes)?);
        if let Some(folder) = folder {
            config = with_folder(&config, &release.version, &folder)?;
        }
    }
    changes.push(FileChange {
        path: config_path,
        content: Some(config.into_bytes()),
    });
    if !request.dry_run {
        publish::publish(ws, &lock, &changes, &[])?;
    }
    Ok(results)
}

fn read(ws: &Workspace, request: &ImportRequest) -> Result<PatchSource> {
    let path = Path::new(&request.source);
    if let Some(range) = &request.range {
        let objects = Objects::open(&ws.object_store())?;
        return range::read(ws, &objects, &request.source, range);
    }
    let metadata = std::fs::metadata(path).map_err(|error| {
        Error::input_unreadable(format!("cannot read {}: {error}", path.display())).hint(
            "pass an mbox, a patch directory, a tree with a series, a .spec, or a git repository and a range BASE..TIP",
        )
    })?;
    if let Some(spec) = files::spec_in(path)? {
        return spec::read(&spec);
    }
    if metadata.is_file() || path.join("cur").is_dir() {
        return mail::read(path);
    }
    files::read(path)
}

/// Refuses `-pN` for patches that have their own options.
fn refuse_strip(request: &ImportRequest, source: &PatchSource) -> Result<()> {
    match request.strip {
        Some(_) if source.series.is_some() || request.range.is_some() => {
            Err(Error::arguments(format!("-p does not apply to {}", source.kind))
                .hint("a series has the options of its patches, and perfquilt makes the patches of commits itself"))
        }
        _ => Ok(()),
    }
}

/// A release for which patches are imported.
struct ImportTarget<'a> {
    ws: &'a Workspace,
    release: &'a Release,
    /// The folder for the series; `None` for that of the configuration.
    folder: Option<&'a Path>,
    /// `-pN` for all patches.
    strip: Option<usize>,
}

/// The patches of a source on a release.
struct AppliedSource {
    series: Series,
    text: Vec<u8>,
    /// The tree with all patches.
    tree: String,
    /// Warnings about the patches.
    warnings: Vec<Warning>,
}

impl ImportTarget<'_> {
    /// Checks a source's patches on the release, and adds the files to write.
    fn plan(&self, source: &PatchSource, changes: &mut Vec<FileChange>) -> Result<Imported> {
        let paths = refuse_existing(self.ws, self.release, self.folder)?;
        let objects = Objects::open(&self.ws.object_store())?;
        let applied = match self.applied(&objects, source, self.strip) {
            Err(error) if error.kind() == Kind::Series => {
                let error = match self.other_order(&objects, source, None) {
                    Some(words) => error.hint(words),
                    None => self.with_suggestion(&objects, source, error),
                };
                // The content of the source may be the cause.
                return Err(error.details(source.notes.iter().map(|note| format!("note: {note}"))));
            }
            applied => applied?,
        };
        let checked = self.checked(&objects, source, &applied.tree)?;
        let mut notes = source.notes.clone();
        notes.extend(applied.warnings.iter().map(Warning::to_string));
        notes.extend(self.other_order(&objects, source, Some(&applied.tree)));
        let (series_path, folder) = paths;
        let root = self.ws.root();
        let entries = applied.series.file().entries().iter();
        changes.extend(
            entries
                .zip(&source.patches)
                .map(|(entry, patch)| FileChange {
                    path: root.join(&folder).join(&entry.name),
                    content: Some(patch.bytes.clone()),
                }),
        );
        changes.push(FileChange {
            path: root.join(&series_path),
            content: Some(applied.text),
        });
        let imported = applied.series.patches().iter().zip(&source.patches);
        Ok(Imported {
            release: self.release.name.clone(),
            source: source.kind.clone(),
            series: series_path,
            patches: imported
                .map(|(patch, from)| ImportedPatch {
                    name: patch.name.clone(),
                    title: patch.title.clone(),
                    origin: from.origin.clone(),
                    resolutions: from.resolutions.clone(),
                })
                .collect(),
            checked,
            tree: applied.tree,
            notes,
        })
    }

    /// Parses and applies the patches of a source.
    fn applied(
        &self,
        objects: &Objects,
        source: &PatchSource,
        strip: Option<usize>,
    ) -> Result<AppliedSource> {
        let text = source.series_with(strip);
        let file = SeriesFile::read(&text, "series")?;
        let mut patches = Vec::new();
        let mut warnings = Vec::new();
        let mut size = 0;
        for (entry, patch) in file.entries().iter().zip(&source.patches) {
            let bytes = decompress(&entry.name, patch.bytes.clone(), &entry.name)?;
            size += bytes.len() as u64;
            if size > MAX_BYTES {
                let most = MAX_BYTES >> 20;
                let what = format!("the patches have more than {most} MiB, decompressed");
                return Err(Error::patch_syntax(what).at(&*entry.name, None));
            }
            let patch = Patch::parse(entry, &entry.name, &bytes)?;
            // What the patches of commits do is compared with the commits' trees.
            if source.base.is_none() {
                patch
                    .check_complete()
                    .map_err(|error| error.details([format!("in {}", source.kind)]))?;
                warnings.extend(patch.lacks());
                warnings.extend(patch.indented_diff());
                warnings.extend(patch.text_between(&bytes));
            }
            if source.series.is_none() && source.base.is_none() && strip.is_none() {
                let mut release = TrialTree::new(objects, &self.release.tree)?;
                warnings.extend(created_without_prefix(&mut release, &patch, &bytes)?);
            }
            patches.push(patch);
        }
        let series = Series::assemble(file, patches);
        let fuzz = self.ws.config.series.fuzz;
        // On the base of the source itself, every tree must be the source's.
        let base = source.base.as_ref();
        let mut own = None;
        if let Some(base) = base.filter(|base| **base != self.release.tree) {
            own = Some(trees(objects, base, source, &series, fuzz, None)?);
        }
        let release = &self.release.tree;
        let steps = trees(objects, release, source, &series, fuzz, own.as_deref());
        let steps = steps.map_err(|error| match own {
            Some(_) => error.hint(format!(
                "the range begins at another tree than {}; add the release that it is based on, import for that, and move the series with `perfquilt rebase`",
                self.release.name
            )),
            None => error,
        })?;
        if base.is_none() {
            // Nothing but their contexts says where the hunks of mails and files belong.
            let before = std::iter::once(release).chain(&steps);
            for (patch, before) in series.patches().iter().zip(before) {
                let mut tree = TrialTree::new(objects, before)?;
                warnings.extend(twins_in(&mut tree, patch, fuzz)?);
            }
        }
        warnings.extend(same_change(series.patches()));
        let tree = steps.last().unwrap_or(release).clone();
        Ok(AppliedSource {
            series,
            text,
            tree,
            warnings,
        })
    }

    /// Adds to the error of patches that do not apply the `-pN` with which they do.
    fn with_suggestion(&self, objects: &Objects, source: &PatchSource, error: Error) -> Error {
        if source.series.is_some() || source.base.is_some() {
            return error;
        }
        let fits = |strip: &usize| self.applied(objects, source, Some(*strip)).is_ok();
        let other = |strip: &&usize| **strip != self.strip.unwrap_or(1);
        match [1, 0, 2, 3].iter().filter(other).find(|strip| fits(strip)) {
            Some(strip) => error.hint(format!(
                "all patches apply with -p{strip}: `perfquilt import SOURCE -p {strip}`"
            )),
            None => error,
        }
    }

    /// Returns a sentence about the other order of the patches that the source may mean, if they apply in it and make
    /// another tree than `tree`, that of the order in which they were tried.
    fn other_order(
        &self,
        objects: &Objects,
        source: &PatchSource,
        tree: Option<&str>,
    ) -> Option<String> {
        let (name, order) = source.other_order.as_ref()?;
        let patches = order.iter().map(|&index| source.patches[index].clone());
        let other = PatchSource {
            patches: patches.collect(),
            ..PatchSource::default()
        };
        let applied = self.applied(objects, &other, self.strip).ok()?;
        let first = order
            .iter()
            .enumerate()
            .find(|(place, index)| place != *index)?;
        let first = &source.patches[*first.1].name;
        match tree {
            Some(tree) if applied.tree == tree => None,
            Some(_) => Some(format!(
                "the patches are in the order of the numbers in their names; they apply as well in {name}, with {first} earlier, and make other files: \
                 if that is right, list them so in a file `series` there, and import again"
            )),
            None => Some(format!(
                "all patches apply in {name}, with {first} earlier: list them so in a file `series` there"
            )),
        }
    }

    /// Compares the result with the source's files, and returns the sentence about that.
    fn checked(&self, objects: &Objects, source: &PatchSource, tree: &str) -> Result<String> {
        let release = self.release;
        let mut checked = match (&source.base, &source.applied) {
            (Some(base), _) if *base == release.tree => {
                "every tree is that of the source's commits, the last one that of its tip"
                    .to_owned()
            }
            (Some(_), _) => format!(
                "on the range's own base, every tree is that of the source's commits; {} differs from that base, and every patch applies to it",
                release.name
            ),
            (None, Some(applied)) => {
                files::compare(objects, &release.tree, tree, applied)?;
                "the changed files are those of the source's tree, byte for byte".to_owned()
            }
            (None, None) => format!("every patch applies to {}", release.name),
        };
        if self.ws.config.series.fuzz == 0 {
            checked.push_str(", without fuzz");
        }
        Ok(checked)
    }
}

/// Returns a note about a new file whose path begins with a folder of the release, which `-p1` strips: nothing but that
/// folder shows that the patch was made without a prefix.
fn created_without_prefix(
    release: &mut TrialTree<'_>,
    patch: &Patch,
    bytes: &[u8],
) -> Result<Option<Warning>> {
    let whole = diff::parse_whole(bytes, &patch.shown)?.files;
    for (diff, whole) in patch.files.iter().zip(&whole) {
        let Some(name) = whole
            .new
            .as_ref()
            .filter(|_| diff.before == Presence::Absent)
        else {
            continue;
        };
        let first = name.split(|&byte| byte == b'/').next().unwrap_or_default();
        if !matches!(first, b"a" | b"b") && release.is_folder(first)? {
            let warning = Warning::no_prefix(format!(
                "this makes {}; if the patch was made without a prefix, {} is right: `perfquilt import SOURCE -p 0`",
                diff.shown_name(),
                path::shown(name)
            ));
            return Ok(Some(warning.at(&patch.shown, diff.line)));
        }
    }
    Ok(None)
}

/// Applies the series to the tree `base` and returns the tree after each patch. On the source's own base, every tree must
/// be the source's. On another one, each patch must be where it is in `own`, the base with its trees there.
fn trees(
    objects: &Objects,
    base: &str,
    source: &PatchSource,
    series: &Series,
    fuzz: usize,
    own: Option<&[String]>,
) -> Result<Vec<String>> {
    let is_own = source.base.as_deref() == Some(base);
    let mut trial = TrialTree::new(objects, base)?;
    let mut steps = Vec::new();
    for (index, (patch, from)) in series.patches().iter().zip(&source.patches).enumerate() {
        let before = steps.last().map_or(base, String::as_str);
        let tree = match (own, &source.base) {
            (Some(own), Some(source_base)) => {
                let trees = TreePair {
                    before: index
                        .checked_sub(1)
                        .map_or(source_base, |last| &own[last])
                        .clone(),
                    after: own[index].clone(),
                };
                let moved = transfer(objects, patch, &trees, &mut trial, before, fuzz)?;
                if !moved.is_plain {
                    let what = "its context alone would put it at another place than a merge";
                    return Err(Error::import_differs(what).at(&patch.shown, None));
                }
                moved.tree
            }
            _ => {
                let applied = trial.apply(patch, fuzz);
                applied.map_err(|error| {
                    let before = std::iter::once(base).chain(steps.iter().map(String::as_str));
                    let before: Vec<_> = before.filter_map(|tree| oid(tree).ok()).collect();
                    let patches: Vec<&Patch> = series.patches().iter().collect();
                    with_other_patches(objects, &before, &patches, fuzz, error)
                })?;
                trial.write()?
            }
        };
        if let Some(wanted) = from
            .tree
            .as_ref()
            .filter(|wanted| is_own && **wanted != tree)
        {
            let differing = changed_paths(objects, &tree, wanted)?;
            let what = differing.first().map_or("another tree".to_owned(), |path| {
                format!("another {}", path::shown(path))
            });
            return Err(Error::import_differs(format!(
                "{} would produce {what} than the commit; nothing was written",
                patch.name
            )));
        }
        steps.push(tree);
    }
    trial.finish()?;
    Ok(steps)
}

/// Returns the name of a release's folder of patches.
fn file_name(version: &str) -> String {
    version.replace('/', "-")
}

/// Refuses to write over a series. Returns the paths of the series and of its patches, where all other commands look
/// for them.
fn refuse_existing(
    ws: &Workspace,
    release: &Release,
    folder: Option<&Path>,
) -> Result<(PathBuf, PathBuf)> {
    let refused = |count: usize, place: &Path| {
        Error::series_exists(format!(
            "{} already has a series of {count} patches, in {}",
            release.name,
            place.display()
        ))
        .hint("import into a new workspace, or for another release with --release")
    };
    if let Some(folder) = folder {
        let series = ws.root().join(folder).join("series");
        if let Ok(bytes) = std::fs::read(&series) {
            let count = SeriesFile::parse(&bytes, "series").0.entries().len();
            if count > 0 {
                return Err(refused(count, folder));
            }
        }
        return Ok((folder.join("series"), folder.to_owned()));
    }
    // A workspace without any series has nothing to lose.
    if let Ok(found) = survey(ws, Some(&release.version)) {
        let count = found.series.file().entries().len();
        if count > 0 {
            return Err(refused(count, &found.paths.series));
        }
    }
    let found = paths(ws, Some(&release.version))?;
    Ok((found.series, found.patches))
}
