//! Writing a moved series back: as one commit on a new branch of the workspace's git repository, or into
//! a new folder. The user's files, index and branch stay as they are, and nothing is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::branch::write_branch;
use super::configuration::{with_current, with_folder};
use super::{PatchReport, Rebased, Step};
use crate::series::write::{Listed, compose, header_bytes, series as series_text};
use crate::series::{Entry, Patch, SeriesFile, compression, patch_bytes, path, survey};
use crate::stack::format::diff;
use crate::stack::trial::Trial;
use crate::upstream::Objects;
use perfquilt_config::CONFIG_FILE;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::rebase::{Drop, Status, Written};
use perfquilt_system::process::check_interrupted;

/// What to write, and where.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Leave out patches that need a decision, instead of refusing.
    pub hold: bool,
    /// A folder of the workspace for a series of the new release's own (its configuration then names
    /// it); without, the series itself moves, unless the release has such a folder.
    pub into: Option<PathBuf>,
    /// The new branch's name.
    pub branch: Option<String>,
    /// A new folder to write to instead of a branch.
    pub output: Option<PathBuf>,
}

/// Files by their path in the workspace.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Everything that is to be written.
pub(super) struct Plan {
    /// Files that are new or changed.
    pub(super) files: Files,
    /// Files that another one takes the place of.
    pub(super) gone: Vec<PathBuf>,
    /// Every file the plan was made from, which must be committed.
    pub(super) sources: Vec<PathBuf>,
    pub(super) set_aside: Vec<Drop>,
    /// The series file, where it is the old one that changes.
    pub(super) series: Option<PathBuf>,
}

/// Writes what [`rebase`](super::rebase()) found.
///
/// # Errors
/// [`Kind::Series`](perfquilt_model::error::Kind::Series) while there is something to decide;
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when the workspace is no git repository, its series is
/// not committed, the branch exists, or the folder is not empty. Nothing is written then.
pub fn write(ws: &Workspace, rebased: &Rebased, options: &Options) -> Result<Written> {
    let undecided: Vec<&PatchReport> = rebased
        .report
        .patches
        .iter()
        .filter(|patch| patch.status.needs_decision() || patch.status == Status::Untested)
        .collect();
    if !undecided.is_empty() && !options.hold {
        return Err(Error::series("there is something to decide first")
            .details(
                undecided
                    .iter()
                    .map(|patch| format!("{} {}: {}", patch.index, patch.name, patch.status)),
            )
            .hint(format!(
                "`{}` opens the first; --hold writes the series without them, as comments",
                rebased.report.next.first().map_or("", String::as_str)
            )));
    }
    let plan = plan(ws, rebased, options)?;
    check_interrupted()?;
    match &options.output {
        Some(folder) => write_folder(folder, plan),
        None => write_branch(ws, rebased, options, plan),
    }
}

fn plan(ws: &Workspace, rebased: &Rebased, options: &Options) -> Result<Plan> {
    let objects = Objects::open(&ws.object_store())?;
    let found = survey(ws, Some(&rebased.from.version))?;
    if found.series.digest() != rebased.series.digest() {
        return Err(Error::usage("the series changed while it was moved")
            .hint("run the same command again"));
    }
    let file = found.series.file().clone();
    let old = found.paths;
    let target = ws.config.release(Some(&rebased.to.version))?;
    let own = match (
        options.into.as_deref().map(plain),
        target.patches.as_deref().map(plain),
    ) {
        (Some(into), Some(there)) if into != there => {
            return Err(Error::usage(format!(
                "{} has a series of its own in {} already",
                rebased.to.name,
                there.display()
            ))
            .hint("leave --into out to write there"));
        }
        (into, there) => into
            .or(there)
            .map(|folder| folder.components().collect::<PathBuf>()),
    };
    if let Some(folder) = &own {
        refuse_folder(ws, folder)?;
    }
    let source = ws.config.release(Some(&rebased.from.version))?;
    if let (None, Some(folder)) = (&own, &source.patches) {
        return Err(Error::usage(format!(
            "{} has a series of its own; where is the one for {} to go?",
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
    let mut plan = Plan {
        files: Files::new(),
        gone: Vec::new(),
        sources: vec![old.series.clone()],
        set_aside: Vec::new(),
        series: moved.then(|| old.series.clone()),
    };
    // A folder stands for itself; a branch has what it does not change from the commit before.
    let complete = !moved || options.output.is_some();
    let mut listed = Vec::new();
    let mut new_patches = Vec::new();
    let mut used: BTreeSet<String> = file.entries().iter().map(|it| it.name.clone()).collect();
    let steps = rebased.series.patches().iter().zip(&rebased.steps);
    for (at, ((patch, step), report)) in steps.zip(&rebased.report.patches).enumerate() {
        let entry = &file.entries()[at];
        plan.sources.push(old.patches.join(&entry.name));
        let mut one = Listed {
            name: entry.name.clone(),
            from: Some(at),
            plain: false,
        };
        if report.status.applies() {
            let bytes = if report.status == Status::Exact {
                if complete {
                    let source = ws.root().join(&old.patches).join(&entry.name);
                    let bytes =
                        std::fs::read(&source).map_err(|e| Error::io("read", &source, &e))?;
                    plan.files.insert(folder.join(&entry.name), bytes);
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
                let source = ws.root().join(&old.patches).join(&entry.name);
                let bytes = std::fs::read(&source).map_err(|e| Error::io("read", &source, &e))?;
                plan.files.insert(folder.join(&entry.name), bytes);
            }
            plan.set_aside.push(set_aside(rebased, report));
        }
        listed.push(one);
    }
    verify(&objects, rebased, &new_patches)?;
    let text = with_comments(&series_text(&file, &listed), &plan.set_aside, &listed);
    let (_, faults) = SeriesFile::parse(text.as_bytes(), &series_path.to_string_lossy());
    if let Some(fault) = faults.first() {
        return Err(Error::internal(format!(
            "the series would not be right: {fault}; nothing was written"
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

/// A path without `./` before it.
fn plain(path: &Path) -> &Path {
    path.strip_prefix(".").unwrap_or(path)
}

/// Whether a path names something below the folder it starts from.
fn is_inside(path: &Path) -> bool {
    let inside = |part: Component<'_>| matches!(part, Component::Normal(_));
    path.components().all(inside) && path.components().next().is_some()
}

/// Refuses a folder that is not below the workspace, or that has another use.
fn refuse_folder(ws: &Workspace, folder: &Path) -> Result<()> {
    let refused = |why: &str| {
        Err(Error::usage(format!(
            "a series cannot go to {}, which {why}",
            folder.display()
        ))
        .hint("name one as `--into patches/NAME` does"))
    };
    if !is_inside(folder) {
        return refused("is no folder below the workspace");
    }
    if let Err(error) = path::check(folder.as_os_str().as_bytes()) {
        return refused(&format!("git cannot have: {error}"));
    }
    let target = ws.root().join(folder);
    if target.starts_with(ws.state()) {
        return refused("perfquilt keeps its state in");
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
        Some(file) => refused(&format!("is no folder: {} is a file", file.display())),
        None => Ok(()),
    }
}

/// A patch's new bytes: its header as it is, and the canonical diff.
fn rewritten(
    ws: &Workspace,
    objects: &Objects,
    rebased: &Rebased,
    entry: &Entry,
    step: &Step,
) -> Result<Vec<u8>> {
    let bytes = patch_bytes(ws, Some(&rebased.from.version), entry)?;
    let diff = diff(objects, &step.new_before, &step.new_after)?;
    Ok(compose(header_bytes(&bytes), &diff))
}

/// The name of a patch that changes, which is written without compression: one that is not `taken`.
fn new_name(name: &str, taken: impl Fn(&str) -> bool) -> String {
    let plain = name.strip_suffix(compression(name)).unwrap_or(name);
    if plain == name {
        return name.to_owned();
    }
    let file = plain.rfind('/').map_or(0, |slash| slash + 1);
    let (stem, ending) = match plain[file..].rfind('.') {
        Some(dot) if dot > 0 => plain.split_at(file + dot),
        _ => (plain, ""),
    };
    let mut new = plain.to_owned();
    let mut number = 1;
    while taken(&new) || path::check(new.as_bytes()).is_err() {
        number += 1;
        new = format!("{stem}-{number}{ending}");
    }
    new
}

fn set_aside(rebased: &Rebased, report: &PatchReport) -> Drop {
    let to = &rebased.to.name;
    Drop {
        index: report.index,
        name: report.name.clone(),
        reason: match report.status {
            Status::Upstream => format!("in {to} already: {}", report.evidence),
            status => format!("held back from {to}: {status}"),
        },
    }
}

/// Applies what was written, as everybody else will, and compares the trees.
fn verify(
    objects: &Objects,
    rebased: &Rebased,
    patches: &[(&Patch, &Step, String, Option<Vec<u8>>)],
) -> Result<()> {
    let mut trial = Trial::new(objects, &rebased.to.tree)?;
    for (patch, step, name, bytes) in patches {
        let new = match bytes {
            None => (*patch).clone(),
            Some(bytes) => {
                let entry = Entry {
                    name: name.clone(),
                    strip: 1,
                    reverse: false,
                    flags: Default::default(),
                    line: 1,
                };
                Patch::parse(&entry, name, bytes)?
            }
        };
        let how = trial.apply(&new, 0)?;
        let tree = trial.write()?;
        if tree != step.new_after || how.offset != 0 {
            return Err(Error::internal(format!(
                "{name} does not come out as it went in; nothing was written"
            )));
        }
    }
    trial.finish()
}

/// The text of `series` in which the lines of patches set aside are comments that say why.
fn with_comments(text: &str, set_aside: &[Drop], listed: &[Listed]) -> String {
    let (file, _) = SeriesFile::parse(text.as_bytes(), "series");
    let mut lines: Vec<String> = file.lines().to_vec();
    for aside in set_aside {
        // The lines stand in the order of the patches.
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
    let mut out = lines.join("\n");
    if text.ends_with('\n') {
        out.push('\n');
    }
    out
}

/// All of it in a new folder, which appears at once.
fn write_folder(folder: &Path, plan: Plan) -> Result<Written> {
    if let Some(path) = plan.files.keys().find(|path| !is_inside(plain(path))) {
        return Err(Error::usage(format!(
            "{} is not below the workspace, and has no place in a folder of its own",
            path.display()
        )));
    }
    let target = std::path::absolute(folder).map_err(|e| Error::io("find", folder, &e))?;
    let empty = match std::fs::read_dir(&target) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
        Err(error) => return Err(Error::io("read", &target, &error)),
    };
    if !empty {
        return Err(
            Error::usage(format!("{} is not empty", folder.display())).hint("name a new folder")
        );
    }
    let parent = target.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(parent).map_err(|e| Error::io("create", parent, &e))?;
    let io = |error| Error::io("write", &target, &error);
    let temporary = tempfile::Builder::new()
        .prefix(".perfquilt-")
        .tempdir_in(parent)
        .map_err(io)?;
    for (path, bytes) in &plan.files {
        let file = temporary.path().join(path);
        if let Some(parent) = file.parent() {
            std::fs::create_dir_all(parent).map_err(io)?;
        }
        std::fs::write(&file, bytes).map_err(io)?;
    }
    check_interrupted()?;
    if target.is_dir() {
        std::fs::remove_dir(&target).map_err(io)?;
    }
    std::fs::rename(temporary.keep(), &target).map_err(io)?;
    Ok(Written {
        branch: None,
        commit: None,
        folder: Some(folder.to_string_lossy().into_owned()),
        files: names(&plan),
        set_aside: plan.set_aside,
    })
}

pub(super) fn names(plan: &Plan) -> Vec<String> {
    let written = plan.files.keys();
    let mut names: Vec<String> = written
        .chain(&plan.gone)
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
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
        let listed: Vec<Listed> = ["a", "b"]
            .iter()
            .enumerate()
            .map(|(at, name)| Listed {
                name: (*name).to_owned(),
                from: Some(at),
                plain: false,
            })
            .collect();
        let aside = [Drop {
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
