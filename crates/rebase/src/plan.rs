//! Plans a moved series: the files to write, checked against the trees of the rebase.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::configuration::{with_current, with_folder};
use super::{PatchReport, PatchStep, RebasedSeries};
use crate::edit::publish::without_links;
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{CONFIG_FILE, ReleaseSource};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::rebase::{PatchRemoval, Status};
use perfquilt_series::series::rewritten as rewritten_patch;
use perfquilt_series::series::write::{
    SeriesLine, first_free, header_bytes, series as series_text, split_extension,
};
use perfquilt_series::series::{
    Patch, SeriesEntry, SeriesFile, SeriesLocation, compression, path, paths, quilt_folder, survey,
};
use perfquilt_series::stack::format::diff;
use perfquilt_series::stack::trial::TrialTree;
use perfquilt_series::upstream::Objects;

/// Options of writing a moved series.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// Whether to set aside patches that need a decision, instead of refusing to write.
    pub hold: bool,
    /// Folder in the workspace for a separate series of the new release; the configuration then names it. By
    /// default the series itself moves, unless the release has such a folder already.
    pub into: Option<PathBuf>,
    /// The new branch's name.
    pub branch: Option<String>,
    /// New folder to write to instead of a branch.
    pub output: Option<PathBuf>,
}

/// File contents by path in the workspace.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// The files that a write adds, changes and removes.
pub(super) struct WritePlan {
    /// New and changed files.
    pub(super) files: Files,
    /// Files that are removed because another one replaces them.
    pub(super) gone: Vec<PathBuf>,
    /// Every file that the plan is based on; all must be committed.
    pub(super) sources: Vec<PathBuf>,
    /// Patches that become comments in the series.
    pub(super) set_aside: Vec<PatchRemoval>,
    /// The series file, if the existing one changes.
    pub(super) series: Option<PathBuf>,
}

impl WritePlan {
    /// Returns the paths of all files that are added, changed or removed, sorted.
    pub(super) fn changed_files(&self) -> Vec<String> {
        let written = self.files.keys();
        let mut names: Vec<String> = written
            .chain(&self.gone)
            .map(|path| path.to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

/// Plans the files of the moved series, and checks that the new patches give the planned trees.
pub(super) fn plan(
    ws: &Workspace,
    rebased: &RebasedSeries,
    options: &WriteOptions,
) -> Result<WritePlan> {
    let objects = Objects::open(&ws.object_store())?;
    let found = survey(ws, Some(&rebased.from.version))?;
    if found.series.digest() != rebased.series.digest() {
        return Err(
            Error::rebase_target("the series changed while it was moved")
                .hint("run the same command again"),
        );
    }
    let file = found.series.file().clone();
    let old = found.paths;
    let target = ws.config.release(Some(&rebased.to.version))?;
    let own = match (
        options.into.as_deref().map(plain),
        target.patches.as_deref().map(plain),
    ) {
        (Some(into), Some(there)) if into != there => {
            return Err(Error::series_exists(format!(
                "{} already has a series of its own in {}",
                rebased.to.name,
                there.display()
            ))
            .hint("leave --into out to write there"));
        }
        (into, there) => into
            .or(there)
            .map(|folder| folder.components().collect::<PathBuf>()),
    };
    let source = ws.config.release(Some(&rebased.from.version))?;
    if let Some(folder) = &own {
        refuse_folder(ws, folder)?;
        refuse_other_series(ws, folder, source, target)?;
    }
    if let (None, Some(folder)) = (&own, &source.patches) {
        return Err(Error::series_exists(format!(
            "{} has its own series, and no folder is given for the one for {}",
            rebased.from.name, rebased.to.name
        ))
        .hint(format!(
            "--into {} moves it, another folder keeps both",
            folder.display()
        )));
    }
    let moved = own.as_deref().is_none_or(|own| own == plain(&old.patches));
    let (series_path, folder) = match &own {
        Some(folder) if !moved => (folder.join("series"), folder.clone()),
        _ => (old.series.clone(), old.patches.clone()),
    };
    let mut plan = WritePlan {
        files: Files::new(),
        gone: Vec::new(),
        sources: vec![old.series.clone()],
        set_aside: Vec::new(),
        series: moved.then(|| old.series.clone()),
    };
    // A new folder needs all files; a branch inherits unchanged files from its parent commit.
    let complete = !moved || options.output.is_some();
    let unchanged = |entry: &SeriesEntry| {
        let source = ws.root().join(&old.patches).join(&entry.name);
        std::fs::read(&source).map_err(|e| Error::io("read", &source, &e))
    };
    let mut listed = Vec::new();
    let mut new_patches = Vec::new();
    let mut used: BTreeSet<String> = file.entries().iter().map(|it| it.name.clone()).collect();
    let steps = rebased.series.patches().iter().zip(&rebased.steps);
    for (at, ((patch, step), report)) in steps.zip(&rebased.report.patches).enumerate() {
        let entry = &file.entries()[at];
        plan.sources.push(old.patches.join(&entry.name));
        let mut one = SeriesLine {
            name: entry.name.clone(),
            from: Some(at),
            plain: false,
        };
        if report.status.applies() {
            let bytes = if report.status == Status::Exact {
                if complete {
                    plan.files
                        .insert(folder.join(&entry.name), unchanged(entry)?);
                }
                None
            } else {
                one.plain = true;
                one.name = new_name(&entry.name, |name| {
                    let place = folder.join(name);
                    let there = !complete && ws.root().join(&place).symlink_metadata().is_ok();
                    there || place == series_path || used.contains(name)
                });
                used.insert(one.name.clone());
                if moved && one.name != entry.name {
                    plan.gone.push(folder.join(&entry.name));
                }
                let bytes = rewritten(ws, &objects, rebased, entry, step)?;
                plan.files.insert(folder.join(&one.name), bytes.clone());
                Some(bytes)
            };
            new_patches.push((patch, step, one.name.clone(), bytes));
        } else {
            if moved && complete {
                plan.files
                    .insert(folder.join(&entry.name), unchanged(entry)?);
            }
            plan.set_aside.push(set_aside(rebased, report));
        }
        listed.push(one);
    }
    verify(&objects, rebased, &new_patches)?;
    let text = with_comments(&series_text(&file, &listed), &plan.set_aside, &listed);
    let (_, faults) = SeriesFile::parse(text.as_bytes(), &series_path.to_string_lossy());
    if let Some(fault) = faults.first() {
        return Err(Error::other_effect(format!(
            "the new series would be invalid: {fault}; nothing was written"
        )));
    }
    if complete || text != file.to_text() {
        plan.files.insert(series_path, text.into_bytes());
    }
    let current = rebased.from.version == ws.config.upstream.current;
    plan.sources.push(CONFIG_FILE.into());
    let config_path = ws.root().join(CONFIG_FILE);
    let config =
        std::fs::read_to_string(&config_path).map_err(|e| Error::io("read", &config_path, &e))?;
    let new_config = match &own {
        Some(_) if target.patches.is_some() => None,
        Some(folder) => Some(with_folder(&config, &rebased.to.version, folder)?),
        None if current => Some(with_current(&config, &rebased.to.version)?),
        None => None,
    };
    if let Some(text) = new_config.filter(|text| *text != config) {
        plan.files.insert(CONFIG_FILE.into(), text.into_bytes());
    }
    Ok(plan)
}

/// Removes a leading `./` from a path.
pub(super) fn plain(path: &Path) -> &Path {
    path.strip_prefix(".").unwrap_or(path)
}

/// Whether a relative path stays below the folder it starts from.
pub(super) fn is_inside(path: &Path) -> bool {
    let inside = |part: Component<'_>| matches!(part, Component::Normal(_));
    path.components().all(inside) && path.components().next().is_some()
}

/// Refuses a folder that is not below the workspace or is used otherwise.
fn refuse_folder(ws: &Workspace, folder: &Path) -> Result<()> {
    let refused = |why: &str| {
        Err(Error::rebase_target(format!(
            "a series cannot go to {}, which {why}",
            folder.display()
        ))
        .hint("choose one: `--into patches/NAME`"))
    };
    if !is_inside(folder) {
        return refused("is not a folder below the workspace");
    }
    if let Err(error) = path::check(folder.as_os_str().as_bytes()) {
        return refused(&format!("git cannot have: {error}"));
    }
    let target = ws.root().join(folder);
    if target.starts_with(ws.state()) {
        return refused("perfquilt keeps its state in");
    }
    if target.starts_with(ws.bench_config()) {
        return refused("perfquilt has its configuration in");
    }
    if target.starts_with(ws.root().join(quilt_folder())) {
        return refused("quilt keeps its state in");
    }
    let releases = ws.config.upstream.release.iter();
    for directory in releases.filter_map(|release| release.directory.as_deref()) {
        let tree = ws.root().join(plain(directory));
        if tree != ws.root() && tree.starts_with(ws.root()) && target.starts_with(&tree) {
            return refused("is in a release's tree");
        }
    }
    let in_the_way = |path: &Path| {
        let found = std::fs::metadata(ws.root().join(path));
        found.is_ok_and(|meta| !meta.is_dir())
    };
    match folder.ancestors().find(|path| in_the_way(path)) {
        Some(file) => refused(&format!("is not a folder: {} is a file", file.display())),
        None => Ok(()),
    }
}

/// A series that a write must not overwrite.
struct OtherSeries {
    /// What it is called in messages.
    name: String,
    file: PathBuf,
    folder: PathBuf,
    /// Whether the folder is that of one release alone.
    own: bool,
}

/// Returns the series of `[series]`, and every series of a release other than `target`.
fn other_series(ws: &Workspace, target: &ReleaseSource) -> Result<Vec<OtherSeries>> {
    let upstream = &ws.config.upstream;
    let releases = upstream.release.iter();
    let (own, common): (Vec<_>, Vec<_>) = releases.partition(|it| it.patches.is_some());
    let mut current = common.iter().filter(|it| it.version == upstream.current);
    let user = current.next().or(common.first());
    let (name, used) = match user {
        Some(user) => (
            format!("the series of {}", ws.config.release_name(&user.version)),
            Some(paths(ws, Some(&user.version))?),
        ),
        None => ("the files of [series]".to_owned(), None),
    };
    let configured = &ws.config.series;
    let mut found = vec![OtherSeries {
        name: name.clone(),
        file: configured.file.clone(),
        folder: configured.patches.clone(),
        own: false,
    }];
    // Quilt's settings may name others.
    found.extend(used.map(|used| OtherSeries {
        name,
        file: used.series,
        folder: used.patches,
        own: false,
    }));
    for release in own.into_iter().filter(|it| it.version != target.version) {
        let Some(folder) = &release.patches else {
            continue;
        };
        found.push(OtherSeries {
            name: format!("the series of {}", ws.config.release_name(&release.version)),
            file: folder.join("series"),
            folder: folder.clone(),
            own: true,
        });
    }
    Ok(found)
}

/// Refuses a folder in which the new series would overwrite another release's. The series of `source` in its own
/// folder may move there.
fn refuse_other_series(
    ws: &Workspace,
    folder: &Path,
    source: &ReleaseSource,
    target: &ReleaseSource,
) -> Result<()> {
    let wanted = real(ws, folder);
    let from = source.patches.as_deref();
    if from.is_some_and(|from| real(ws, from) == wanted) {
        return Ok(());
    }
    let given = target.patches.is_none();
    let free = free_folder(ws, &target.version);
    let refused = |fault: String| {
        Err(Error::rebase_target(fault).hint(if given {
            format!("`--into {}` names a free folder", free.display())
        } else {
            format!(
                "correct `patches` of release {} in {CONFIG_FILE}: {} is free",
                target.version,
                free.display()
            )
        }))
    };
    for other in other_series(ws, target)? {
        let (file, there) = (real(ws, &other.file), real(ws, &other.folder));
        if there == wanted {
            return refused(format!("{} has {}", folder.display(), other.name));
        }
        if there.starts_with(&wanted) {
            let place = other.folder.display();
            return refused(format!(
                "{} has {} in it, in {place}",
                folder.display(),
                other.name
            ));
        }
        let is_listed = || {
            let bytes = std::fs::read(&file).unwrap_or_default();
            let (listed, _) = SeriesFile::parse(&bytes, "series");
            let mut names = listed.entries().iter().map(|entry| there.join(&entry.name));
            names.any(|patch| patch.starts_with(&wanted))
        };
        let inside = wanted.starts_with(&there) && (other.own && given || is_listed());
        if inside || file.starts_with(&wanted) {
            let place = if inside { &other.folder } else { &other.file };
            return refused(format!(
                "{} would mix with {}, in {}",
                folder.display(),
                other.name,
                place.display()
            ));
        }
    }
    if given && wanted.join("series").symlink_metadata().is_ok() {
        return refused(format!("{} has a series already", folder.display()));
    }
    Ok(())
}

/// Returns the path of a file or folder of the workspace, with the links of its existing part followed.
fn real(ws: &Workspace, path: &Path) -> PathBuf {
    without_links(&ws.root().join(path))
}

/// Returns a folder beside the patches of `[series]` that does not exist yet, for the series of a release.
fn free_folder(ws: &Workspace, version: &str) -> PathBuf {
    let patches = plain(&ws.config.series.patches);
    let name = first_free(&version.replace('/', "-"), "", |name| {
        let folder = ws.root().join(patches).join(name);
        folder.symlink_metadata().is_err()
    });
    patches.join(name)
}

/// Returns a patch's new bytes: its unchanged header and the canonical diff.
fn rewritten(
    ws: &Workspace,
    objects: &Objects,
    rebased: &RebasedSeries,
    entry: &SeriesEntry,
    step: &PatchStep,
) -> Result<Vec<u8>> {
    let bytes = SeriesLocation::of(ws, Some(&rebased.from.version))?.bytes(entry)?;
    let diff = diff(objects, &step.new.before, &step.new.after)?;
    Ok(rewritten_patch(&[&bytes], header_bytes(&bytes), &diff))
}

/// Returns an unused name for a changed patch, which is written without compression.
fn new_name(name: &str, taken: impl Fn(&str) -> bool) -> String {
    let plain = name.strip_suffix(compression(name)).unwrap_or(name);
    if plain == name {
        return name.to_owned();
    }
    let (stem, ending) = split_extension(plain);
    first_free(stem, ending, |new| {
        !taken(new) && path::check(new.as_bytes()).is_ok()
    })
}

fn set_aside(rebased: &RebasedSeries, report: &PatchReport) -> PatchRemoval {
    let to = &rebased.to.name;
    PatchRemoval {
        index: report.index,
        name: report.name.clone(),
        reason: match report.status {
            Status::Upstream => format!("in {to} already: {}", report.evidence),
            status => format!("held back from {to}: {status}"),
        },
    }
}

/// Applies the new patches and compares the trees with those of the rebase.
fn verify(
    objects: &Objects,
    rebased: &RebasedSeries,
    patches: &[(&Patch, &PatchStep, String, Option<Vec<u8>>)],
) -> Result<()> {
    let mut trial = TrialTree::new(objects, &rebased.to.tree)?;
    for (patch, step, name, bytes) in patches {
        let new = match bytes {
            None => (*patch).clone(),
            Some(bytes) => Patch::parse(&SeriesEntry::plain(name), name, bytes)?,
        };
        let how = trial.apply(&new, 0)?;
        let tree = trial.write()?;
        if tree != step.new.after || how.offset != 0 {
            return Err(Error::other_effect(format!(
                "{name} would give a different tree; nothing was written"
            )));
        }
    }
    trial.finish()
}

/// Returns the text of `series` in which the lines of set-aside patches are comments with the reason.
fn with_comments(text: &str, set_aside: &[PatchRemoval], listed: &[SeriesLine]) -> String {
    let (file, _) = SeriesFile::parse(text.as_bytes(), "series");
    let mut lines: Vec<String> = file.lines().to_vec();
    for aside in set_aside {
        // `listed` is in the order of the patches.
        let Some(one) = listed.get(aside.index - 1) else {
            continue;
        };
        if let Some(entry) = file.entries().iter().find(|entry| entry.name == one.name) {
            let line = &mut lines[entry.line - 1];
            let reason: String = aside
                .reason
                .chars()
                .map(|c| if c.is_control() { ' ' } else { c })
                .collect();
            *line = format!("# {}  # {reason}", line.trim());
        }
    }
    file.text_of(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_without_compression_takes_no_other_patchs_name() {
        let taken = |name: &str| matches!(name, "3.patch" | "sub/3-2.patch");
        assert_eq!(new_name("3.patch", taken), "3.patch");
        assert_eq!(new_name("3.patch.gz", taken), "3-2.patch");
        assert_eq!(new_name("sub/3-2.patch.xz", taken), "sub/3-2-2.patch");
        assert_eq!(new_name("4.patch.gz", taken), "4.patch");
        assert_eq!(new_name(".gz", taken), "-2");
    }

    #[test]
    fn a_patch_set_aside_can_be_taken_up_again() {
        let listed: Vec<SeriesLine> = ["a", "b"]
            .iter()
            .enumerate()
            .map(|(at, name)| SeriesLine {
                name: (*name).to_owned(),
                from: Some(at),
                plain: false,
            })
            .collect();
        let aside = [PatchRemoval {
            index: 2,
            name: "b".into(),
            reason: "held back".into(),
        }];
        assert_eq!(
            with_comments("# top\na\nb -p0\n", &aside, &listed),
            "# top\na\n# b -p0  # held back\n"
        );
    }
}
