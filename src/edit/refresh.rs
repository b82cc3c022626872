//! Writing the branch back to `series` and `patches/`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;

use super::Session;
use super::assign::{self, Assigned, Candidate, Original, short};
use super::branch::{is_worktree, pick, tip};
use super::git::Git;
use super::publish::{self, Change, Move};
use crate::error::{Error, Kind, Result};
use crate::progress::Progress;
use crate::series::message::{self, Message};
use crate::series::write::{self, Listed};
use crate::series::{Entry, Location, Patch, Series, SeriesFile, path};
use crate::stack::history::{self, Commit};
use crate::stack::trial::Trial;
use crate::stack::{self, Applied, Stack, format};
use crate::upstream::{self, Objects, Release};
use crate::workspace::Workspace;

/// What `refresh` is asked for.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// The release whose branch is meant; the only branch, or the current release's, if not given.
    pub version: Option<String>,
    /// Take patches that are empty now out of the series.
    pub drop_empty: bool,
    /// Write nothing.
    pub dry_run: bool,
}

/// What becomes of a patch's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It stays as it is, byte for byte.
    Kept,
    /// The same change at other lines, because of patches before it.
    Moved,
    /// Its diff is another.
    Changed,
    /// Only its header is another.
    Reworded,
    /// It is new.
    New,
}

impl Fate {
    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            Fate::Kept => "kept",
            Fate::Moved => "moved",
            Fate::Changed => "changed",
            Fate::Reworded => "reworded",
            Fate::New => "new",
        }
    }
}

/// A patch of the series as it is after the refresh.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Its name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// What became of its file.
    pub fate: Fate,
    /// Its name before, where that was another.
    pub renamed_from: Option<String>,
    /// Patches that were joined with it.
    pub joined: Vec<String>,
    /// Its place before, from 1; `None` for a new one.
    pub was: Option<usize>,
}

/// What a refresh did, or would do.
#[derive(Debug, Clone)]
pub struct Refreshed {
    /// The release.
    pub release: String,
    /// The worktree.
    pub directory: PathBuf,
    /// The patches in their order.
    pub patches: Vec<Outcome>,
    /// Patches that are in the series no more.
    pub removed: Vec<String>,
    /// Whether `series` changes.
    pub series_changed: bool,
    /// Where overwritten and removed files are kept, if there were any.
    pub kept: Option<PathBuf>,
    /// Files in the worktree that are in no commit.
    pub untracked: Vec<String>,
    /// The stack's last commit after it.
    pub commit: String,
    /// Whether anything changes.
    pub changed: bool,
}

/// Writes the edit branch back.
///
/// # Errors
/// [`Kind::Usage`] when there is no branch, work is not committed, or series and branch both changed;
/// [`Kind::Series`] when a patch is empty, or the history is no line of commits on the release.
pub fn refresh(ws: &Workspace, wanted: &Wanted, progress: &dyn Progress) -> Result<Refreshed> {
    let lock = publish::lock(ws)?;
    publish::recover_locked(ws, &lock)?;
    let mut session = pick(ws, wanted.version.as_deref())?;
    let untracked = ready(&session, wanted.dry_run, progress)?;
    let store = Objects::open(&ws.object_store())?;
    let release = upstream::ensure(ws, Some(&session.version), progress)?;
    let location = Location::of(ws, Some(&session.version))?;
    let series = Series::load_for(ws, Some(&session.version))?;
    let stack = stack::apply_with(ws, &release, &series, session.fuzz)?;
    let branch_tip = history::reference(&store, &session.reference())?.ok_or_else(|| {
        Error::usage(format!("the branch {} is gone", session.branch))
            .hint("`perfquilt edit --reset` begins anew")
    })?;
    if tip(&stack) != session.start && tip(&stack) != branch_tip {
        return Err(Error::usage("series or patches changed since `perfquilt edit`")
            .hint("put them back as they were (`git diff` shows the difference where the workspace is a repository), or give the branch up with `perfquilt edit --reset`, which keeps its commits aside"));
    }
    let plan = Plan {
        ws,
        location: &location,
        store: &store,
        release: &release,
        series: &series,
        stack: &stack,
        commits: history::commits(&store, &session.base, &branch_tip)?,
        drop_empty: wanted.drop_empty,
    }
    .make()?;
    let mut changes = plan.changes(&location)?;
    let series_changed = plan.text != series.file().to_text();
    if series_changed {
        let at = changes.iter().take_while(|c| c.content.is_some()).count();
        changes.insert(
            at,
            Change {
                path: location.file.clone(),
                content: Some(plan.text.clone().into_bytes()),
            },
        );
    }
    let new_tip = tip(&plan.stack);
    let mut done = Refreshed {
        release: release.name.clone(),
        directory: session.directory.clone(),
        patches: plan.made.iter().map(|made| made.outcome.clone()).collect(),
        removed: plan.removed,
        series_changed,
        kept: None,
        untracked,
        commit: new_tip.clone(),
        changed: !changes.is_empty(),
    };
    if wanted.dry_run {
        return Ok(done);
    }
    let moves = [Move {
        reference: session.reference(),
        from: branch_tip.clone(),
        to: new_tip.clone(),
    }];
    let label = jiff::Timestamp::now()
        .strftime("%Y%m%dT%H%M%SZ")
        .to_string();
    if branch_tip != new_tip {
        // The maintainer's own commits stay reachable.
        let part = upstream::git::reference_part(&release.name);
        history::set_reference(&store, &format!("refs/kept/{part}/refreshed"), &branch_tip)?;
    }
    done.kept = publish::publish(ws, &lock, &changes, &moves, &label)?;
    session.start = new_tip;
    session.fuzz = 0;
    session.save(ws)?;
    Ok(done)
}

/// Makes sure that everything is in commits of the branch; returns the files git does not know.
fn ready(session: &Session, dry_run: bool, progress: &dyn Progress) -> Result<Vec<String>> {
    if !is_worktree(&session.directory) {
        progress.warn(&format!(
            "{} is gone; the commits of {} are used as they are",
            session.directory.display(),
            session.branch
        ));
        return Ok(Vec::new());
    }
    let git = Git::new(&session.directory);
    let status = git.status()?;
    let under_way = git.in_progress()?;
    status.refuse(
        &session.directory,
        match under_way {
            Some(_) => "`git commit --amend -a` makes them part of the patch it stopped at; after a conflict, `git add` them and `git rebase --continue`",
            None => "`git commit --amend -a` makes them part of the last patch, `git commit` a patch of their own, `git stash` puts them aside",
        },
    )?;
    if let Some((what, next)) = under_way {
        if what != "rebase" || dry_run {
            return Err(
                Error::usage(format!("a {what} is under way in the worktree"))
                    .hint(format!("finish it first: `{next}`")),
            );
        }
        let step = progress.begin("continuing the rebase", None);
        let output = git
            .command(&["rebase", "--continue"])
            .env("GIT_EDITOR", "true")
            .run()?;
        if !output.success() || git.in_progress()?.is_some() {
            return Err(Error::series(
                "git stopped while it put the following patches back on top",
            )
            .at(session.directory.clone(), None)
            .details(output.tail(12))
            .hint("resolve it in the worktree, `git add` the files, `git rebase --continue`, then `perfquilt refresh` again"));
        }
        step.finish("");
    }
    let head = git.branch()?;
    if head != Some(session.reference()) {
        let shown = head.map_or_else(
            || "no branch".to_owned(),
            |name| name.trim_start_matches("refs/heads/").to_owned(),
        );
        return Err(Error::usage(format!(
            "{shown} is checked out in {}, not {}",
            session.directory.display(),
            session.branch
        ))
        .hint(format!(
            "`git checkout {0}` goes back to it; `git checkout -B {0}` makes what is checked out the branch",
            session.branch
        )));
    }
    for file in &status.untracked {
        progress.warn(&format!("{file} is in no commit, so it is in no patch"));
    }
    Ok(status.untracked)
}

/// A patch as it is to be.
struct Made {
    outcome: Outcome,
    /// Its place in the old series.
    from: Option<usize>,
    /// Its bytes, decompressed.
    bytes: Vec<u8>,
    /// Header and canonical diff, where its own bytes do not give the right tree.
    canonical: (Vec<u8>, Vec<u8>),
    /// The options in `series` do not fit any more.
    plain: bool,
    tree: String,
}

struct Plan<'a> {
    ws: &'a Workspace,
    location: &'a Location,
    store: &'a Objects,
    release: &'a Release,
    series: &'a Series,
    stack: &'a Stack,
    commits: Vec<Commit>,
    drop_empty: bool,
}

struct Planned {
    made: Vec<Made>,
    removed: Vec<String>,
    text: String,
    stack: Stack,
    /// Names in the old series.
    old_names: Vec<String>,
}

impl Plan<'_> {
    fn make(self) -> Result<Planned> {
        let candidates: Vec<Candidate> = self
            .commits
            .iter()
            .map(|commit| {
                let (message, names) =
                    Message::parse(&commit.message, commit.author.clone(), commit.date);
                Candidate {
                    id: commit.id.clone(),
                    message,
                    names,
                }
            })
            .collect();
        let originals = self.originals()?;
        let assigned = assign::assign(&originals, &candidates)?;
        let mut taken = self.location.files();
        taken.extend(originals.iter().map(|original| original.name.clone()));
        // So that new names count on from each other.
        let mut entries: Vec<Entry> = self.series.file().entries().to_vec();
        let mut made = Vec::new();
        let mut empty = Vec::new();
        let mut parent = self.release.tree.clone();
        for ((commit, candidate), assigned) in self.commits.iter().zip(&candidates).zip(&assigned) {
            let original = assigned.from.map(|index| &originals[index]);
            let was_empty = assigned
                .from
                .is_some_and(|index| self.series.patches()[index].files.is_empty());
            if commit.tree == parent && !was_empty {
                let name = original.map_or(&candidate.message.title, |original| &original.name);
                empty.push((name.clone(), short(&commit.id).to_owned()));
                continue;
            }
            let name = self.name(candidate, assigned, original, &mut entries, &mut taken)?;
            made.push(self.patch(commit, candidate, assigned, &originals, name, &parent)?);
            parent.clone_from(&commit.tree);
        }
        if !self.drop_empty && !empty.is_empty() {
            let plural = if empty.len() == 1 {
                "a patch is"
            } else {
                "patches are"
            };
            return Err(Error::series(format!(
                "{plural} empty now: {}",
                empty
                    .iter()
                    .map(|(name, commit)| format!("{name} (commit {commit})"))
                    .collect::<Vec<_>>()
                    .join(", ")
            ))
            .hint("`perfquilt refresh --drop-empty` takes it out of the series; its file is kept aside"));
        }
        self.verified(made)
    }

    fn originals(&self) -> Result<Vec<Original>> {
        let last = tip(self.stack);
        let commits = history::commits(self.store, &self.release.commit, &last)?;
        Ok(self
            .stack
            .steps
            .iter()
            .zip(commits)
            .map(|(step, commit)| Original {
                name: step.name.clone(),
                commit: step.commit.clone(),
                message: Message::parse(&commit.message, commit.author, commit.date).0,
            })
            .collect())
    }

    fn name(
        &self,
        candidate: &Candidate,
        assigned: &Assigned,
        original: Option<&Original>,
        entries: &mut Vec<Entry>,
        taken: &mut BTreeSet<String>,
    ) -> Result<String> {
        let place = || format!("commit {}", short(&candidate.id));
        if let Some(named) = &assigned.named {
            path::check(named.as_bytes()).map_err(|error| {
                Error::series(format!("{}: Patch: {named}: {}", place(), error.message()))
                    .hint("the line names a file below the folder of patches")
            })?;
            if named.starts_with('#') || named == "series" {
                return Err(Error::series(format!(
                    "{}: Patch: {named} cannot be a patch's name",
                    place()
                )));
            }
            if !taken.insert(named.clone()) {
                return Err(
                    Error::series(format!("{}: there is a file {named} already", place()))
                        .hint("give it another name on its `Patch:` line, or remove that line"),
                );
            }
            return Ok(named.clone());
        }
        if let Some(original) = original {
            return Ok(original.name.clone());
        }
        let name = write::name_for(&candidate.message.title, entries, taken);
        taken.insert(name.clone());
        let (file, _) = SeriesFile::parse(name.as_bytes(), "series");
        entries.extend(file.entries().iter().cloned());
        Ok(name)
    }

    fn patch(
        &self,
        commit: &Commit,
        candidate: &Candidate,
        assigned: &Assigned,
        originals: &[Original],
        name: String,
        parent: &str,
    ) -> Result<Made> {
        if let Some(path) = format::changed_submodule(self.store, parent, &commit.tree)? {
            return Err(Error::series(format!(
                "commit {} changes the submodule {path}, which no patch can",
                short(&commit.id)
            )));
        }
        let diff = format::diff(self.store, parent, &commit.tree)?;
        let joined = assigned
            .absorbed
            .iter()
            .map(|&index| originals[index].name.clone());
        let mut outcome = Outcome {
            title: candidate.message.title.clone(),
            fate: Fate::New,
            renamed_from: None,
            joined: joined.collect(),
            was: assigned.from.map(|index| index + 1),
            name,
        };
        let Some(index) = assigned.from else {
            let header = message::fresh(&candidate.message);
            return Ok(Made {
                bytes: write::compose(&header, &diff),
                canonical: (header, diff),
                outcome,
                from: None,
                plain: true,
                tree: commit.tree.clone(),
            });
        };
        let original = &originals[index];
        let entry = &self.series.file().entries()[index];
        if outcome.name != original.name {
            outcome.renamed_from = Some(original.name.clone());
        }
        let bytes = self.location.bytes(entry)?;
        let old_header = write::header_bytes(&bytes).to_vec();
        let header = message::rewrite(&old_header, &original.message, &candidate.message);
        let before = match index {
            0 => &self.release.tree,
            _ => &self.stack.steps[index - 1].tree,
        };
        let step = &self.stack.steps[index];
        let old_diff = format::diff(self.store, before, &step.tree)?;
        let was_canonical = bytes == write::compose(&old_header, &old_diff);
        let same_diff = diff == old_diff && step.how.fuzz == 0;
        // The patch does the same although git shows it elsewhere.
        let fits = same_diff || self.fits(index, parent, commit)?;
        let keep_diff = same_diff || (fits && !was_canonical);
        outcome.fate = match (header == old_header, fits) {
            (true, true) if keep_diff => Fate::Kept,
            (true, true) => Fate::Moved,
            (false, true) => Fate::Reworded,
            (_, false) => Fate::Changed,
        };
        let body = if keep_diff {
            bytes[old_header.len()..].to_vec()
        } else {
            diff.clone()
        };
        Ok(Made {
            bytes: if outcome.fate == Fate::Kept {
                bytes
            } else {
                write::compose(&header, &body)
            },
            canonical: (header, diff),
            outcome,
            from: Some(index),
            plain: !keep_diff,
            tree: commit.tree.clone(),
        })
    }

    /// Whether the old patch, as it is, makes the commit's tree of its parent's.
    fn fits(&self, index: usize, parent: &str, commit: &Commit) -> Result<bool> {
        let mut trial = Trial::new(self.store, parent)?;
        match trial.apply(&self.series.patches()[index], self.ws.config.series.fuzz) {
            Ok(_) => Ok(trial.write()? == commit.tree),
            Err(error) if error.kind() == Kind::Series => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Applies the series as it is to be and compares every tree with the branch's.
    fn verified(&self, mut made: Vec<Made>) -> Result<Planned> {
        let old_names: Vec<String> = self
            .series
            .patches()
            .iter()
            .map(|patch| patch.name.clone())
            .collect();
        loop {
            let (text, series) = self.compose(&made)?;
            let applied = stack::apply(self.ws, self.release, &series);
            let wrong = match &applied {
                Ok(stack) => made
                    .iter()
                    .zip(&stack.steps)
                    .position(|(made, step): (&Made, &Applied)| made.tree != step.tree),
                Err(error) if error.kind() == Kind::Series => series
                    .patches()
                    .iter()
                    .position(|patch| error.place().is_some_and(|at| at.file == *patch.shown)),
                Err(error) => return Err(error.clone()),
            };
            match (wrong, applied) {
                (None, Ok(stack)) => {
                    let names: BTreeSet<&str> =
                        made.iter().map(|made| made.outcome.name.as_str()).collect();
                    let renamed: BTreeSet<&str> = made
                        .iter()
                        .filter_map(|made| made.outcome.renamed_from.as_deref())
                        .collect();
                    let removed = old_names
                        .iter()
                        .filter(|name| {
                            !names.contains(name.as_str()) && !renamed.contains(name.as_str())
                        })
                        .cloned()
                        .collect();
                    return Ok(Planned {
                        made,
                        removed,
                        text,
                        stack,
                        old_names,
                    });
                }
                (Some(at), _) if !made[at].plain => {
                    // Its own bytes do not do here what they did; git's form does.
                    let patch = &mut made[at];
                    let (header, diff) = &patch.canonical;
                    patch.bytes = write::compose(header, diff);
                    patch.plain = true;
                    patch.outcome.fate = Fate::Changed;
                }
                (_, applied) => {
                    let cause = applied.err().map(|error| error.to_string());
                    let name = wrong.map_or("?", |at| made[at].outcome.name.as_str());
                    return Err(Error::internal(format!(
                        "{name} as it would be written does not give the branch's tree; nothing was written"
                    ))
                    .details(cause));
                }
            }
        }
    }

    fn compose(&self, made: &[Made]) -> Result<(String, Series)> {
        let wanted: Vec<Listed> = made
            .iter()
            .map(|made| Listed {
                name: made.outcome.name.clone(),
                from: made.from,
                plain: made.plain,
            })
            .collect();
        let text = write::series(self.series.file(), &wanted);
        let (file, faults) = SeriesFile::parse(text.as_bytes(), &self.location.shown);
        if let Some(fault) = faults.into_iter().next() {
            return Err(fault);
        }
        let mut patches = Vec::new();
        for (made, entry) in made.iter().zip(file.entries()) {
            let shown = self.location.shown_patch(&entry.name);
            patches.push(Patch::parse(entry, &shown, &made.bytes)?);
        }
        Ok((text, Series::assemble(file, patches)))
    }
}

impl Planned {
    /// What is to be written, then what is to be removed.
    fn changes(&self, location: &Location) -> Result<Vec<Change>> {
        let patches = &location.folder;
        let mut changes = Vec::new();
        let mut files: BTreeMap<&str, ()> = BTreeMap::new();
        for made in &self.made {
            let name = made.outcome.name.as_str();
            files.insert(name, ());
            let renamed = made.outcome.renamed_from.as_deref();
            let content = match (made.outcome.fate, renamed) {
                (Fate::Kept, None) => continue,
                (Fate::Kept, Some(old)) if ending(old) == ending(name) => location.raw(old)?,
                _ => compressed(name, &made.bytes)?,
            };
            changes.push(Change {
                path: patches.join(name),
                content: Some(content),
            });
        }
        for name in &self.old_names {
            if !files.contains_key(name.as_str()) {
                changes.push(Change {
                    path: patches.join(name),
                    content: None,
                });
            }
        }
        Ok(changes)
    }
}

fn ending(name: &str) -> &str {
    [".gz", ".xz", ".bz2", ".lzma", ".lz"]
        .into_iter()
        .find(|end| name.ends_with(end))
        .unwrap_or("")
}

/// A patch's bytes as its name wants them.
pub(crate) fn compressed(name: &str, bytes: &[u8]) -> Result<Vec<u8>> {
    let io = |e: std::io::Error| Error::internal(format!("cannot compress {name}: {e}"));
    match ending(name) {
        ".gz" => {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            out.write_all(bytes).map_err(io)?;
            out.finish().map_err(io)
        }
        ".xz" => {
            let mut out = liblzma::write::XzEncoder::new(Vec::new(), 6);
            out.write_all(bytes).map_err(io)?;
            out.finish().map_err(io)
        }
        "" => Ok(bytes.to_vec()),
        other => Err(Error::series(format!(
            "{name} changes, but patches compressed as {other} can only be read"
        ))
        .hint("decompress the file and name it so in `series`, then run this again")),
    }
}
