//! What a refresh makes of each patch: which file, which bytes, tried on the branch's own trees before
//! anything is written.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use super::assign::{self, Assigned, Candidate, Original, short};
use super::branch::stack_tip;
use super::publish::Change;
use super::refresh::{Fate, Outcome};
use crate::series::message::{self, Message};
use crate::series::write::{self, Listed};
use crate::series::{Entry, Location, Patch, Series, SeriesFile, compression, path};
use crate::stack::history::{self, Commit};
use crate::stack::trial::Trial;
use crate::stack::{self, Applied, Stack, format};
use crate::upstream::{Objects, Release};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Kind, Result};

/// A patch as it is to be.
pub(super) struct Made {
    pub(super) outcome: Outcome,
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

/// What a refresh starts from.
pub(super) struct Plan<'a> {
    pub(super) ws: &'a Workspace,
    pub(super) location: &'a Location,
    pub(super) store: &'a Objects,
    pub(super) release: &'a Release,
    pub(super) series: &'a Series,
    pub(super) stack: &'a Stack,
    /// The branch's, in order.
    pub(super) commits: Vec<Commit>,
    /// Whether patches that are empty now are taken out.
    pub(super) drop_empty: bool,
}

/// What is to be written.
pub(super) struct Planned {
    pub(super) made: Vec<Made>,
    /// Patches that are in the series no more.
    pub(super) removed: Vec<String>,
    /// The new `series`.
    pub(super) text: String,
    /// The new series, applied.
    pub(super) stack: Stack,
    /// Names in the old series.
    old_names: Vec<String>,
}

impl Plan<'_> {
    /// Decides about every patch and tries the result.
    ///
    /// # Errors
    /// As [`super::refresh`](super::refresh::refresh).
    pub(super) fn make(self) -> Result<Planned> {
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
        let last = stack_tip(self.stack);
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
    pub(super) fn changes(&self, location: &Location) -> Result<Vec<Change>> {
        let patches = &location.folder;
        let mut changes = Vec::new();
        let mut files: BTreeMap<&str, ()> = BTreeMap::new();
        for made in &self.made {
            let name = made.outcome.name.as_str();
            files.insert(name, ());
            let renamed = made.outcome.renamed_from.as_deref();
            let content = match (made.outcome.fate, renamed) {
                (Fate::Kept, None) => continue,
                (Fate::Kept, Some(old)) if compression(old) == compression(name) => {
                    location.raw(old)?
                }
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

/// A patch's bytes as its name wants them.
pub(crate) fn compressed(name: &str, bytes: &[u8]) -> Result<Vec<u8>> {
    let io = |e: std::io::Error| Error::internal(format!("cannot compress {name}: {e}"));
    match compression(name) {
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
