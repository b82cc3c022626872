//! A range of commits with merges as a linear list of changes.
//!
//! The commits are picked in an order in which each merge's first parent comes before its other ones. Where a commit
//! does not fit the earlier ones, its merge has the resolution: the files in which the merged tree differs from the
//! picked one become part of the last change that touches them. After each merge that contains the base, the tree is the
//! merge's own, so the last one is that of the range's tip.

use std::collections::{BTreeSet, HashSet};

use git2::{Oid, Repository};

use perfquilt_model::error::{Error, Result};
use perfquilt_rebase::three_way::{FileMergeResult, MergeTrees, merge_files};
use perfquilt_series::series::path::shown;
use perfquilt_series::series::{Person, Timestamp};
use perfquilt_series::stack::format::{ChangeBudget, ChangeLimit, tree_changes};
use perfquilt_series::stack::history;
use perfquilt_series::stack::oid;
use perfquilt_series::stack::tree::{FileState, FileStates};
use perfquilt_series::stack::trial::TrialTree;
use perfquilt_series::upstream::{Objects, store_error};
use perfquilt_system::process::check_interrupted;

/// Number of digits of a commit's id in messages.
const SHORT: usize = 12;

/// A change of a linear list.
#[derive(Debug, Clone)]
pub struct LinearCommit {
    /// The id of the commit that it comes from.
    pub id: String,
    /// The commit's message in UTF-8.
    pub message: String,
    /// Whether the message and the author are valid in the encoding that the commit declares.
    pub is_decoded: bool,
    /// The author; `None` for the placeholder of patches without one.
    pub author: Option<Person>,
    /// The author date.
    pub date: Timestamp,
    /// The tree before the change.
    pub before: String,
    /// The tree after it.
    pub tree: String,
    /// Resolutions of merges that are part of the change.
    pub resolutions: Vec<MergeResolution>,
}

impl LinearCommit {
    /// Returns the sentences about resolutions of merges in the change.
    pub fn resolution_sentences(&self) -> Vec<String> {
        let sentences = self.resolutions.iter().map(|resolution| {
            let includes = match resolution.includes.as_slice() {
                [] => String::new(),
                others => format!(", with what commit {} changes there", others.join(", ")),
            };
            let sentence = format!(
                "{}: as merge {} ({}) resolved it{includes}",
                resolution.file, resolution.merge, resolution.title
            );
            // A field of a header is one line.
            sentence.replace(char::is_control, " ")
        });
        sentences.collect()
    }

    /// Returns the fields of a patch's header that name the resolutions, one line each.
    pub fn fix_up_fields(&self) -> String {
        let sentences = self.resolution_sentences().into_iter();
        sentences
            .map(|sentence| format!("Fix-up: {sentence}\n"))
            .collect()
    }
}

/// A file whose content in a change comes from a merge's resolution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeResolution {
    /// The merge, abbreviated.
    pub merge: String,
    /// The first line of its message.
    pub title: String,
    /// The file.
    pub file: String,
    /// Earlier commits, abbreviated, whose changes of the file are in this change too, because they did not fit.
    pub includes: Vec<String>,
}

/// A linear list of changes.
#[derive(Debug, Clone)]
pub struct LinearHistory {
    /// The tree of the base.
    pub base: String,
    /// The changes, in order; of some, nothing may be left.
    pub commits: Vec<LinearCommit>,
    /// Number of merges.
    pub merges: usize,
}

/// Limits of a linear list.
pub struct HistoryLimits<'a> {
    /// Maximum number of commits, merges included.
    pub commits: usize,
    /// Maximum of all changes together; `None` for no limit.
    pub changes: Option<ChangeLimit>,
    /// Returns true to stop.
    pub cancelled: &'a dyn Fn() -> bool,
}

impl Default for HistoryLimits<'_> {
    fn default() -> Self {
        HistoryLimits {
            commits: 20_000,
            changes: None,
            cancelled: &|| false,
        }
    }
}

/// Lists the commits after `base` up to `tip` as a linear list of changes, whose last tree is that of `tip`.
pub fn linear_history(
    store: &Objects,
    base: &str,
    tip: &str,
    limits: &HistoryLimits<'_>,
) -> Result<LinearHistory> {
    let repository = store.repository();
    let (base, tip) = (oid(base)?, oid(tip)?);
    // libgit2 would look for the parents at which a shallow history ends.
    let most = format!("--max-count={}", limits.commits.saturating_add(1));
    let listed = store.git().ok(&[
        "rev-list",
        &most,
        &tip.to_string(),
        &format!("^{base}"),
        "--",
    ])?;
    let range: HashSet<Oid> = listed.lines().map(oid).collect::<Result<_>>()?;
    if range.len() > limits.commits {
        return Err(
            Error::history_too_large(format!("more than {} commits", limits.commits))
                .hint("begin the range at a later commit"),
        );
    }
    let steps = ordered(repository, &range, tip, base)?;
    if tip != base && !steps.last().is_some_and(|last| last.has_base) {
        return Err(Error::history(format!(
            "{} is not an ancestor of {}",
            short(base),
            short(tip)
        ))
        .hint("begin the range at the release's commit that the fork was merged with last"));
    }
    let base_tree = store.tree_of(base)?.to_string();
    let mut picker = Picker {
        store,
        picked: TrialTree::new(store, &base_tree)?,
        tree: base_tree.clone(),
        before: TrialTree::new(store, &base_tree)?,
        after: TrialTree::new(store, &base_tree)?,
        changes: Vec::new(),
        merges: 0,
        budget: limits.changes.map(ChangeBudget::new),
    };
    for step in steps {
        check_interrupted()?;
        if (limits.cancelled)() {
            return Err(Error::interrupted());
        }
        picker.take(&step)?;
    }
    picker.finish(&base_tree, &store.tree_of(tip)?.to_string())
}

/// A commit in the order of picking.
struct PickedCommit {
    id: Oid,
    /// For a merge: the number of commits before those of its parents other than the first.
    side: usize,
    /// Whether the base is among its ancestors.
    has_base: bool,
}

/// Returns the commits of a range, parents first, and a merge's first parent before its others.
fn ordered(
    repository: &Repository,
    range: &HashSet<Oid>,
    tip: Oid,
    base: Oid,
) -> Result<Vec<PickedCommit>> {
    struct Visit {
        id: Oid,
        parents: Vec<Oid>,
        next: usize,
        side: usize,
    }
    let visit = |id: Oid| -> Result<Visit> {
        let commit = repository.find_commit(id).map_err(store_error)?;
        Ok(Visit {
            id,
            parents: commit.parent_ids().collect(),
            next: 0,
            side: 0,
        })
    };
    let mut order = Vec::new();
    let mut with_base = HashSet::from([base]);
    let mut seen = HashSet::new();
    let mut stack = Vec::new();
    if range.contains(&tip) {
        seen.insert(tip);
        stack.push(visit(tip)?);
    }
    while let Some(top) = stack.last_mut() {
        if top.next == 1 {
            top.side = order.len();
        }
        let Some(&parent) = top.parents.get(top.next) else {
            let Visit { id, side, .. } = *top;
            let has_base = top.parents.iter().any(|parent| with_base.contains(parent));
            if has_base {
                with_base.insert(id);
            }
            order.push(PickedCommit { id, side, has_base });
            stack.pop();
            continue;
        };
        top.next += 1;
        if range.contains(&parent) && seen.insert(parent) {
            stack.push(visit(parent)?);
        }
    }
    Ok(order)
}

/// A picked commit.
struct LinearChange {
    id: Oid,
    /// Its place in the order of picking.
    place: usize,
    /// The paths that the commit changes.
    touched: BTreeSet<Vec<u8>>,
    /// The paths whose change did not fit.
    misfits: BTreeSet<Vec<u8>>,
    /// The files that it changes.
    files: FileStates,
    resolutions: Vec<MergeResolution>,
}

struct Picker<'a> {
    store: &'a Objects,
    /// The tree with all changes so far.
    picked: TrialTree<'a>,
    tree: String,
    /// Trials for reading the trees before and after a commit.
    before: TrialTree<'a>,
    after: TrialTree<'a>,
    changes: Vec<LinearChange>,
    merges: usize,
    /// Budget of further changes.
    budget: Option<ChangeBudget>,
}

impl Picker<'_> {
    fn take(&mut self, step: &PickedCommit) -> Result<()> {
        if let Some(budget) = &mut self.budget {
            budget.take(0, self.store.size(step.id)?)?;
        }
        let repository = self.store.repository();
        let commit = repository.find_commit(step.id).map_err(store_error)?;
        let tree = commit.tree_id().to_string();
        let place = self.changes.len() + self.merges;
        if commit.parent_count() > 1 {
            self.merges += 1;
            if step.has_base {
                self.settle(step, &title(&commit), &tree)?;
            }
            return Ok(());
        }
        let Some(parent) = commit.parent_ids().next() else {
            return Err(Error::history(format!(
                "commit {} ({}) has no parent to be compared with",
                short(step.id),
                title(&commit)
            ))
            .hint(
                "it is of another history: import the commits before and behind its merge, and write what the merge changed \
                 as one patch (`git diff MERGE^1 MERGE`)",
            ));
        };
        let before = self.store.tree_of(parent)?.to_string();
        // With the limit: a tree that lists itself many times takes all memory otherwise.
        let changes = tree_changes(self.store, &before, &tree, self.budget.as_mut())?;
        if let Some(path) = changes.submodule {
            let commit = format!("commit {} ({})", short(step.id), title(&commit));
            return Err(submodule_error(&commit, &path));
        }
        let paths = changes.paths;
        let mut change = LinearChange {
            id: step.id,
            place,
            touched: paths.iter().cloned().collect(),
            misfits: BTreeSet::new(),
            files: FileStates::new(),
            resolutions: Vec::new(),
        };
        self.after.reset(&tree)?;
        if before == self.tree {
            for path in &paths {
                change
                    .files
                    .insert(path.clone(), self.after.file(path)?.map(FileState::from));
            }
        } else {
            self.before.reset(&before)?;
            let merges = merge_files(
                &mut MergeTrees {
                    before: &mut self.before,
                    after: &mut self.after,
                    ours: &mut self.picked,
                    moved: &mut |_| Ok(None),
                },
                &[],
                &paths,
            )?;
            for merge in merges {
                match merge.result {
                    FileMergeResult::Clean(files) if merge.rules.is_empty() => {
                        change.files.extend(files);
                    }
                    FileMergeResult::Upstream if merge.rules.is_empty() => {}
                    _ => {
                        change.misfits.insert(merge.old_path);
                    }
                }
            }
        }
        self.picked.change(change.files.clone())?;
        self.tree = self.picked.write()?;
        self.changes.push(change);
        Ok(())
    }

    /// Makes the picked tree that of a merge: files that differ become part of the last change that touches them.
    fn settle(&mut self, step: &PickedCommit, title: &str, tree: &str) -> Result<()> {
        let paths = tree_changes(self.store, &self.tree, tree, self.budget.as_mut())?.paths;
        if paths.is_empty() {
            return Ok(());
        }
        self.after.reset(tree)?;
        let mut files = FileStates::new();
        for path in paths {
            let file = self.after.file(&path)?.map(FileState::from);
            let touching: Vec<usize> = (0..self.changes.len())
                .filter(|at| self.changes[*at].touched.contains(&path))
                .collect();
            let beside = |at: &&usize| self.changes[**at].place >= step.side;
            // A change on the merge's other side first; else one that came in with it; else any other one.
            let last = self.changes.len().checked_sub(1);
            let other = last.filter(|at| self.changes[*at].place >= step.side);
            let at = touching.iter().rfind(beside).copied().or(other);
            let Some(at) = at.or(touching.last().copied()).or(last) else {
                return Err(Error::history(format!(
                    "merge {} changes {}, and no commit came before it",
                    short(step.id),
                    shown(&path)
                )));
            };
            let includes = touching
                .iter()
                .filter(|other| **other != at && self.changes[**other].misfits.contains(&path))
                .map(|other| short(self.changes[*other].id))
                .collect();
            let change = &mut self.changes[at];
            change.files.insert(path.clone(), file.clone());
            change.touched.insert(path.clone());
            change.resolutions.push(MergeResolution {
                merge: short(step.id),
                title: title.to_owned(),
                file: shown(&path),
                includes,
            });
            files.insert(path, file);
        }
        self.picked.change(files)?;
        self.tree = self.picked.write()?;
        Ok(())
    }

    fn finish(self, base: &str, tip: &str) -> Result<LinearHistory> {
        let repository = self.store.repository();
        let mut trial = TrialTree::new(self.store, base)?;
        let mut before = base.to_owned();
        let mut history = LinearHistory {
            base: base.to_owned(),
            commits: Vec::new(),
            merges: self.merges,
        };
        for change in self.changes {
            let commit = repository.find_commit(change.id).map_err(store_error)?;
            trial.change(change.files)?;
            let tree = trial.write()?;
            let message = history::message(&commit);
            history.commits.push(LinearCommit {
                id: change.id.to_string(),
                message: message.text,
                is_decoded: message.is_certain,
                author: history::author(&commit),
                date: history::timestamp(&commit.author()),
                before,
                tree: tree.clone(),
                resolutions: change.resolutions,
            });
            before = tree;
        }
        trial.finish()?;
        self.picked.finish()?;
        // Trees that differ without a differing file differ in modes that old versions of git wrote, or in submodules.
        if before != tip {
            let differing = tree_changes(self.store, &before, tip, None)?;
            if let Some(path) = differing.submodule {
                return Err(submodule_error("a merge of the range", &path));
            }
            return Err(Error::import_differs(match differing.paths.first() {
                Some(path) => format!(
                    "the picked commits do not reproduce {} of the tip",
                    shown(path)
                ),
                None => "the tip has submodules or file modes that patches cannot make".to_owned(),
            }));
        }
        Ok(history)
    }
}

/// Returns the error for a change of a submodule, which patches cannot make; `commit` makes it.
fn submodule_error(commit: &str, path: &str) -> Error {
    Error::history(format!(
        "{commit} changes the submodule {path}, which patches cannot do"
    ))
    .hint("leave that commit out of the range: `git rebase -i` in a copy of the fork drops it; the release's own configuration decides which submodules it has")
}

fn short(id: Oid) -> String {
    id.to_string()[..SHORT].to_owned()
}

fn title(commit: &git2::Commit<'_>) -> String {
    let message = history::message(commit).text;
    message.lines().next().unwrap_or_default().to_owned()
}
