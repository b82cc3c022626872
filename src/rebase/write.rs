//! Writing a moved series back: as one commit on a new branch of the workspace's git repository, or into
//! a new folder. The user's files, index and branch stay as they are, and nothing is dropped.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::configuration::{with_current, with_folder};
use super::report::{Drop, Status, Written};
use super::{PatchReport, Rebased, Step};
use crate::error::{Error, Result};
use crate::git::Git;
use crate::process::check_interrupted;
use crate::series::write::{Listed, compose, header_bytes, series as series_text};
use crate::series::{Entry, Patch, SeriesFile, compression, patch_bytes, survey};
use crate::stack::format::diff;
use crate::stack::trial::Trial;
use crate::upstream::Objects;
use crate::workspace::{CONFIG_FILE, Workspace};

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
struct Plan {
    /// Files that are new or changed.
    files: Files,
    /// Files that another one takes the place of.
    gone: Vec<PathBuf>,
    /// Every file the plan was made from, which must be committed.
    sources: Vec<PathBuf>,
    set_aside: Vec<Drop>,
}

/// Writes what [`rebase`](super::rebase()) found.
///
/// # Errors
/// [`Kind::Series`](crate::error::Kind::Series) while there is something to decide;
/// [`Kind::Usage`](crate::error::Kind::Usage) when the workspace is no git repository, its series is
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
        (into, there) => into.or(there).map(Path::to_owned),
    };
    if let Some(folder) = &own {
        refuse_outside(folder)?;
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
    };
    // A folder stands for itself; a branch has what it does not change from the commit before.
    let complete = !moved || options.output.is_some();
    let mut listed = Vec::new();
    let mut new_patches = Vec::new();
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
                one.name = plain_name(&entry.name).to_owned();
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

/// A path without `./` before it, which git's index takes no file with.
fn plain(path: &Path) -> &Path {
    path.strip_prefix(".").unwrap_or(path)
}

/// Refuses a folder that is not below the workspace, or is the workspace itself.
fn refuse_outside(folder: &Path) -> Result<()> {
    let inside = |part: Component<'_>| matches!(part, Component::Normal(_));
    if folder.components().all(inside) && folder.components().next().is_some() {
        return Ok(());
    }
    Err(Error::usage(format!(
        "a series cannot go to {}, which is no folder below the workspace",
        folder.display()
    ))
    .hint("name one as `--into patches/NAME` does"))
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

/// A patch that changes is written without compression.
fn plain_name(name: &str) -> &str {
    name.strip_suffix(compression(name)).unwrap_or(name)
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

fn names(plan: &Plan) -> Vec<String> {
    let written = plan.files.keys();
    let mut names: Vec<String> = written
        .chain(&plan.gone)
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// One commit on a new branch. The branch appears in one step, when everything it needs is there.
fn write_branch(
    ws: &Workspace,
    rebased: &Rebased,
    options: &Options,
    plan: Plan,
) -> Result<Written> {
    let git = Git::new(ws.root());
    let inside = git.run(&["rev-parse", "--show-prefix"])?;
    if !inside.success() {
        return Err(Error::usage("the workspace is not in a git repository").hint(
            "`git init && git add -A && git commit` makes it one; --output DIR writes to a folder instead",
        ));
    }
    let prefix = inside.stdout_text().trim_end_matches('\n').to_owned();
    let head = git.run(&["rev-parse", "--quiet", "--verify", "HEAD^{commit}"])?;
    if !head.success() {
        return Err(Error::usage("the workspace's repository has no commit yet")
            .hint("commit the series first, so that the old patches can be had back"));
    }
    let head = head.stdout_text().trim().to_owned();
    refuse_uncommitted(&git, &plan)?;
    let branch = options
        .branch
        .clone()
        .unwrap_or_else(|| format!("rebase/{}", rebased.to.name));
    let reference = format!("refs/heads/{branch}");
    if !git.run(&["check-ref-format", &reference])?.success() {
        return Err(Error::usage(format!(
            "`{branch}` cannot be the name of a branch"
        )));
    }
    let there = git.run(&["rev-parse", "--quiet", "--verify", &reference])?;
    if there.success() {
        return Err(
            Error::usage(format!("there is a branch {branch} already")).hint(format!(
                "`git branch -D {branch}` removes it; --branch NAME takes another name"
            )),
        );
    }
    let folder = tempfile::tempdir().map_err(|e| Error::io("create", &std::env::temp_dir(), &e))?;
    let own = git.with_index(&folder.path().join("index"));
    own.ok(&["read-tree", &head])?;
    let mut entries = String::new();
    for (path, bytes) in &plan.files {
        check_interrupted()?;
        let blob = git.feed(&["hash-object", "-w", "--no-filters", "--stdin"], bytes)?;
        let path = plain(path).to_string_lossy();
        entries.push_str(&format!("100644 {blob}\t{prefix}{path}\0"));
    }
    for path in &plan.gone {
        let (zero, path) = ("0".repeat(head.len()), plain(path).to_string_lossy());
        entries.push_str(&format!("0 {zero}\t{prefix}{path}\0"));
    }
    own.feed(&["update-index", "-z", "--index-info"], entries.as_bytes())?;
    let tree = own.ok(&["write-tree"])?;
    let commit = git.feed(
        &["commit-tree", &tree, "-p", &head],
        message(rebased, &plan).as_bytes(),
    )?;
    check_interrupted()?;
    let nothing = "0".repeat(head.len());
    git.ok(&[
        "update-ref",
        "-m",
        "perfquilt rebase",
        &reference,
        &commit,
        &nothing,
    ])?;
    Ok(Written {
        branch: Some(branch),
        commit: Some(commit),
        folder: None,
        files: names(&plan),
        set_aside: plan.set_aside,
    })
}

/// What was never committed could not be had back.
fn refuse_uncommitted(git: &Git, plan: &Plan) -> Result<()> {
    let paths: Vec<String> = plan
        .sources
        .iter()
        .chain(plan.files.keys())
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    let mut args = vec![
        "--literal-pathspecs",
        "status",
        "--porcelain",
        "--ignored",
        "--",
    ];
    args.extend(paths.iter().map(String::as_str));
    let status = git.ok(&args)?;
    if status.is_empty() {
        return Ok(());
    }
    Err(Error::usage(
        "the series, its patches or the configuration have changes that are not committed",
    )
    .details(status.lines().take(10))
    .hint("commit them first, so that the old patches can be had back"))
}

fn message(rebased: &Rebased, plan: &Plan) -> String {
    let report = &rebased.report;
    let mut text = format!(
        "Rebase the series on {}\n\nFrom {}.\n\n",
        report.to, report.from
    );
    for patch in &report.patches {
        text.push_str(&format!("{} {}: {}", patch.index, patch.name, patch.status));
        if !patch.evidence.is_empty() && patch.evidence != patch.status.to_string() {
            text.push_str(&format!(" ({})", patch.evidence));
        }
        text.push('\n');
    }
    if !plan.set_aside.is_empty() {
        text.push_str("\nSet aside as comments in the series:\n");
        for aside in &plan.set_aside {
            text.push_str(&format!("{}: {}\n", aside.name, aside.reason));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

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
