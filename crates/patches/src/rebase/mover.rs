//! One patch after the other: what becomes of it on the new release, and what shows that.

use std::collections::BTreeMap;

use super::moved::Renames;
use super::three_way::{FileMerge, Part, Trees, merge_files};
use super::{PatchReport, Rung, Status, Step};
use super::{decision, evidence, history, range_diff, resolve};
use crate::series::path::shown;
use crate::series::{Patch, Series};
use crate::stack::How;
use crate::stack::format::changed_paths;
use crate::stack::trial::Trial;
use crate::upstream::{Objects, Release};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Kind, Result};
use perfquilt_model::progress::Progress;
use perfquilt_system::process::check_interrupted;

/// How a patch went in; `None` where it does not fit. What is wrong otherwise is an error.
fn fits(applied: Result<How>) -> Result<Option<How>> {
    match applied {
        Ok(how) => Ok(Some(how)),
        Err(error) if error.kind() == Kind::Series => Ok(None),
        Err(error) => Err(error),
    }
}

/// A patch that could not be moved.
struct Held {
    index: usize,
    paths: Vec<Vec<u8>>,
    open: bool,
}

/// Both stacks, and what was found out so far.
pub(super) struct Mover<'a> {
    objects: &'a Objects,
    ws: &'a Workspace,
    from: &'a Release,
    to: &'a Release,
    series: &'a Series,
    /// The old stack, without patches that are held.
    old: Trial<'a>,
    old_tree: String,
    /// The new stack.
    new: Trial<'a>,
    new_tree: String,
    parent: String,
    /// For looking at the old stack's and the release's trees.
    before: Trial<'a>,
    after: Trial<'a>,
    release: Trial<'a>,
    renames: Renames<'a>,
    /// Whether a patch can be taken back from the new release after all later ones; found out when
    /// the first patch does not apply.
    reverse: Option<Vec<bool>>,
    history: Option<history::History>,
    held: Vec<Held>,
    reports: Vec<PatchReport>,
    steps: Vec<Step>,
}

impl<'a> Mover<'a> {
    pub(super) fn new(
        ws: &'a Workspace,
        objects: &'a Objects,
        from: &'a Release,
        to: &'a Release,
        series: &'a Series,
    ) -> Result<Self> {
        Ok(Mover {
            objects,
            ws,
            from,
            to,
            series,
            old: Trial::new(objects, &from.tree)?,
            old_tree: from.tree.clone(),
            new: Trial::new(objects, &to.tree)?,
            new_tree: to.tree.clone(),
            parent: to.commit.clone(),
            before: Trial::new(objects, &from.tree)?,
            after: Trial::new(objects, &from.tree)?,
            release: Trial::new(objects, &from.tree)?,
            renames: Renames::new(objects, &from.tree, &to.tree),
            reverse: None,
            history: None,
            held: Vec::new(),
            reports: Vec::new(),
            steps: Vec::new(),
        })
    }

    /// The same without evidence from upstream's commits, of which `to` has only some.
    pub(super) fn without_history(mut self) -> Self {
        self.history = Some(history::History::default());
        self
    }

    /// Moves the next patch.
    pub(super) fn patch(
        &mut self,
        index: usize,
        patch: &Patch,
        progress: &dyn Progress,
    ) -> Result<()> {
        let mut step = Step {
            old_before: self.old_tree.clone(),
            old_after: None,
            new_before: self.new_tree.clone(),
            new_after: self.new_tree.clone(),
            parent: self.parent.clone(),
            held: false,
        };
        let mut report = PatchReport {
            index: index + 1,
            name: patch.name.clone(),
            title: patch.title.clone(),
            status: Status::Untested,
            evidence: String::new(),
            rung: None,
            offset: 0,
            without: Vec::new(),
            notes: Vec::new(),
            decisions: Vec::new(),
            range_diff: Vec::new(),
            effect: None,
            commit: None,
        };
        match self.old.apply(patch, self.ws.config.series.fuzz) {
            Ok(_) => {
                self.old_tree = self.old.write()?;
                step.old_after = Some(self.old_tree.clone());
                let paths = changed_paths(self.objects, &step.old_before, &self.old_tree)?;
                report.without = self.held.iter().map(|held| held.index).collect();
                self.place(patch, &paths, &mut step, &mut report, progress)?;
            }
            Err(error) if error.kind() != Kind::Series => return Err(error),
            Err(error) if self.held.is_empty() => {
                return Err(error.hint(format!(
                    "the series does not apply to {}, which it is for; mend that first",
                    self.from.name
                )));
            }
            Err(_) => self.dependant(patch, &mut report),
        }
        step.held = report.status.needs_decision();
        if report.status.applies() {
            step.new_after.clone_from(&self.new_tree);
            self.parent = self.new.commit(&self.new_tree, &self.parent, patch)?;
            report.commit = Some(self.parent.clone());
        }
        self.reports.push(report);
        self.steps.push(step);
        Ok(())
    }

    /// A patch that does not even apply to the old release without the ones that are held.
    fn dependant(&mut self, patch: &Patch, report: &mut PatchReport) {
        let names = evidence::named_paths(patch);
        let mut causes: Vec<&Held> = self
            .held
            .iter()
            .filter(|held| held.paths.iter().any(|path| names.contains(path)))
            .collect();
        if causes.is_empty() {
            causes = self.held.iter().collect();
        }
        let open: Vec<&Held> = causes.iter().copied().filter(|held| held.open).collect();
        if !open.is_empty() {
            causes = open;
        }
        let list: Vec<String> = causes.iter().map(|held| held.index.to_string()).collect();
        let noun = if list.len() == 1 { "patch" } else { "patches" };
        report.status = Status::Untested;
        report.evidence = format!("follows a conflict in {noun} {}", list.join(", "));
        self.held.push(Held {
            index: report.index,
            paths: names.into_iter().collect(),
            open: false,
        });
    }

    /// Finds out what becomes of a patch on the new tree.
    fn place(
        &mut self,
        patch: &Patch,
        paths: &[Vec<u8>],
        step: &mut Step,
        report: &mut PatchReport,
        progress: &dyn Progress,
    ) -> Result<()> {
        let there = evidence::is_there(&mut self.new, patch)?;
        if let Some(how) = fits(self.new.apply(patch, 0))? {
            let tree = self.new.write()?;
            if tree == self.new_tree {
                return self.upstream(report, Rung::Merge, "nothing is left of it".to_owned());
            }
            if there {
                // What it adds is there, and there is room for it once more.
                let merges = self.three_way(patch, paths, step)?;
                if merges.iter().all(|merge| matches!(merge.part, Part::There)) {
                    self.new.reset(&self.new_tree)?;
                    let evidence = "a 3-way merge leaves nothing; it would apply a second time";
                    return self.upstream(report, Rung::Merge, evidence.to_owned());
                }
                report.notes.push(
                    "what it adds is in the release already, and it applies once more: look at it"
                        .to_owned(),
                );
                // The merge was tried on the tree without it.
                self.new.reset(&tree)?;
            }
            self.new_tree = tree;
            report.offset = how.offset;
            report.status = if how.offset == 0 && how.fuzz == 0 {
                Status::Exact
            } else {
                Status::Offset
            };
            report.evidence = how.to_string();
            if let Some(claim) = evidence::claim(patch, self.to) {
                report.notes.push(format!(
                    "its header says `Applied-Upstream: {claim}`, but the release does not have the change"
                ));
            }
            return Ok(());
        }
        if let Some(resolution) = resolve::remembered(self.objects, patch, &mut self.new)? {
            self.new.change(resolution.files)?;
            let tree = self.new.write()?;
            if tree == self.new_tree {
                return self.upstream(
                    report,
                    Rung::Merge,
                    "a person decided that nothing is left of it".to_owned(),
                );
            }
            self.new_tree = tree;
            report.status = Status::Resolved;
            report.evidence = format!("as decided in {}", &resolution.commit[..12]);
            return self.compare(step, report);
        }
        let merges = self.three_way(patch, paths, step)?;
        if merges.iter().all(|merge| matches!(merge.part, Part::There)) {
            let (rung, evidence) = self
                .strongest(patch, paths, step, progress)?
                .unwrap_or((Rung::Merge, "a 3-way merge leaves nothing".to_owned()));
            return self.upstream(report, rung, evidence);
        }
        let trouble = merges
            .iter()
            .any(|merge| matches!(merge.part, Part::Trouble(_)));
        if trouble {
            if let Some((rung, evidence)) = self.strongest(patch, paths, step, progress)? {
                return self.upstream(report, rung, evidence);
            }
            if self.can_be_taken_back(report.index - 1)? {
                return self.upstream(
                    report,
                    Rung::Reverse,
                    "it can be taken back from the release".to_owned(),
                );
            }
            return self.conflict(patch, paths, &merges, step, report);
        }
        self.merged(patch, merges, step, report)
    }

    fn upstream(&mut self, report: &mut PatchReport, rung: Rung, evidence: String) -> Result<()> {
        report.status = Status::Upstream;
        report.rung = Some(rung);
        report.evidence = evidence;
        Ok(())
    }

    /// The evidence that does not need the patch to fit.
    fn strongest(
        &mut self,
        patch: &Patch,
        paths: &[Vec<u8>],
        step: &Step,
        progress: &dyn Progress,
    ) -> Result<Option<(Rung, String)>> {
        if self.history.is_none() {
            let history = history::History::between(self.ws, self.from, self.to, progress)?;
            self.history = Some(history);
        }
        let Some(history) = &self.history else {
            return Ok(None);
        };
        if let Some(claim) = evidence::claim(patch, self.to) {
            return Ok(Some((Rung::Header, format!("Applied-Upstream: {claim}"))));
        }
        if let Some(commit) = history.contains(patch)? {
            return Ok(Some((Rung::Header, format!("Applied-Upstream: {commit}"))));
        }
        let Some(after) = &step.old_after else {
            return Ok(None);
        };
        let diff = crate::stack::format::diff(self.objects, &step.old_before, after)?;
        Ok(history
            .same_patch(&diff, paths)?
            .map(|found| (Rung::PatchId, found)))
    }

    fn three_way(
        &mut self,
        patch: &Patch,
        paths: &[Vec<u8>],
        step: &Step,
    ) -> Result<Vec<FileMerge>> {
        self.before.reset(&step.old_before)?;
        self.after
            .reset(step.old_after.as_ref().unwrap_or(&step.old_before))?;
        self.new.reset(&self.new_tree)?;
        let (renames, release) = (&mut self.renames, &mut self.release);
        let mut moved = |path: &[u8]| match release.file(path)? {
            Some(file) => renames.find(path, &file.content),
            None => Ok(None),
        };
        merge_files(
            &mut Trees {
                before: &mut self.before,
                after: &mut self.after,
                ours: &mut self.new,
                moved: &mut moved,
            },
            patch,
            paths,
        )
    }

    fn merged(
        &mut self,
        patch: &Patch,
        merges: Vec<FileMerge>,
        step: &mut Step,
        report: &mut PatchReport,
    ) -> Result<()> {
        let (partly, notes) = evidence::what_is_there(&mut self.new, patch, &merges)?;
        report.notes.extend(notes);
        let mut files = BTreeMap::new();
        let mut merged_files = 0;
        for merge in merges {
            if merge.moved {
                report.notes.push(format!(
                    "upstream moved {} to {}",
                    shown(&merge.old_path),
                    shown(&merge.path)
                ));
            }
            if let Part::Clean(changes) = merge.part {
                merged_files += 1;
                files.extend(changes);
            }
        }
        self.new.change(files)?;
        self.new_tree = self.new.write()?;
        report.status = if partly {
            Status::Partly
        } else {
            Status::Merged
        };
        let noun = if merged_files == 1 { "file" } else { "files" };
        report.evidence = format!("3-way, {merged_files} {noun}");
        self.compare(step, report)
    }

    /// The range-diff of a patch that is another one now.
    fn compare(&mut self, step: &Step, report: &mut PatchReport) -> Result<()> {
        if let Some(after) = &step.old_after {
            report.range_diff = range_diff::compare(
                self.objects,
                (&step.old_before, after),
                (&step.new_before, &self.new_tree),
            )?;
        }
        Ok(())
    }

    fn conflict(
        &mut self,
        patch: &Patch,
        paths: &[Vec<u8>],
        merges: &[FileMerge],
        step: &Step,
        report: &mut PatchReport,
    ) -> Result<()> {
        let earlier: Vec<(&Patch, &Step)> = self.series.patches().iter().zip(&self.steps).collect();
        report.decisions = decision::decisions(self.objects, patch, merges, &earlier)?;
        let (changed, evidence) = decision::summary(merges, &report.decisions);
        report.status = if changed {
            Status::Changed
        } else {
            Status::Conflict
        };
        report.evidence = evidence;
        // The patch is left out on both sides.
        self.old_tree.clone_from(&step.old_before);
        self.old.reset(&step.old_before)?;
        self.new.reset(&self.new_tree)?;
        self.held.push(Held {
            index: report.index,
            paths: paths.to_vec(),
            open: true,
        });
        Ok(())
    }

    fn can_be_taken_back(&mut self, index: usize) -> Result<bool> {
        if self.reverse.is_none() {
            let mut trial = Trial::new(self.objects, &self.to.tree)?;
            let mut list = Vec::new();
            for patch in self.series.patches().iter().rev() {
                check_interrupted()?;
                list.push(fits(trial.take_back(patch))?.is_some());
            }
            list.reverse();
            self.reverse = Some(list);
        }
        Ok(self
            .reverse
            .as_ref()
            .is_some_and(|list| list.get(index) == Some(&true)))
    }

    /// Keeps the new commits. Returns the patches' reports and steps.
    pub(super) fn finish(
        self,
        objects: &Objects,
        series: &Series,
    ) -> Result<(Vec<PatchReport>, Vec<Step>)> {
        let Mover {
            new,
            old,
            reports,
            steps,
            parent,
            to,
            ..
        } = self;
        new.finish()?;
        old.finish()?;
        if parent != to.commit {
            // Kept from git's collection of unused objects, and named for people.
            let digest = &series.digest()[..16];
            crate::stack::history::set_reference(
                objects,
                &format!("refs/rebased/{}/{digest}", to.commit),
                &parent,
            )?;
        }
        Ok((reports, steps))
    }
}
