//! Moves the patches one after the other and determines the status of each on the new release.

use std::collections::BTreeMap;

use super::moved::UpstreamRenames;
use super::three_way::{FileMerge, FileMergeResult, Trees, merge_files};
use super::{EvidenceLevel, PatchReport, PatchStep, Status};
use super::{decision, evidence, history, range_diff, resolve};
use crate::series::path::shown;
use crate::series::{Patch, Series};
use crate::stack::PatchFit;
use crate::stack::format::changed_paths;
use crate::stack::trial::TrialTree;
use crate::upstream::{Objects, Release};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Kind, Result};
use perfquilt_model::progress::Progress;
use perfquilt_system::process::check_interrupted;

/// Converts the error of a patch that does not apply to `None`; other errors stay errors.
fn fits(applied: Result<PatchFit>) -> Result<Option<PatchFit>> {
    match applied {
        Ok(how) => Ok(Some(how)),
        Err(error) if error.kind() == Kind::Series => Ok(None),
        Err(error) => Err(error),
    }
}

/// A patch that could not be moved, with the paths it touches.
struct HeldPatch {
    index: usize,
    paths: Vec<Vec<u8>>,
    /// Whether the patch itself is in conflict, rather than depending on one that is.
    open: bool,
}

/// The old and the new stack, with the results so far.
pub(super) struct Mover<'a> {
    objects: &'a Objects,
    ws: &'a Workspace,
    from: &'a Release,
    to: &'a Release,
    series: &'a Series,
    /// The old stack without held patches.
    old: TrialTree<'a>,
    old_tree: String,
    /// The new stack.
    new: TrialTree<'a>,
    new_tree: String,
    parent: String,
    /// Trials for reading the old stack's and the old release's trees.
    before: TrialTree<'a>,
    after: TrialTree<'a>,
    release: TrialTree<'a>,
    renames: UpstreamRenames<'a>,
    /// For each patch, whether it can be reverted on the new release after all later ones. Computed when the
    /// first patch is in conflict.
    reverse: Option<Vec<bool>>,
    history: Option<history::History>,
    held: Vec<HeldPatch>,
    reports: Vec<PatchReport>,
    steps: Vec<PatchStep>,
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
            old: TrialTree::new(objects, &from.tree)?,
            old_tree: from.tree.clone(),
            new: TrialTree::new(objects, &to.tree)?,
            new_tree: to.tree.clone(),
            parent: to.commit.clone(),
            before: TrialTree::new(objects, &from.tree)?,
            after: TrialTree::new(objects, &from.tree)?,
            release: TrialTree::new(objects, &from.tree)?,
            renames: UpstreamRenames::new(objects, &from.tree, &to.tree),
            reverse: None,
            history: None,
            held: Vec::new(),
            reports: Vec::new(),
            steps: Vec::new(),
        })
    }

    /// Disables evidence from upstream's commits, because `to` contains only some of them.
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
        let mut step = PatchStep {
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
            evidence_level: None,
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
                    "the series does not apply to {}, which it is for; fix that first",
                    self.from.name
                )));
            }
            Err(_) => self.report_dependent(patch, &mut report),
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

    /// Reports a patch that does not apply to the old release without the held patches.
    fn report_dependent(&mut self, patch: &Patch, report: &mut PatchReport) {
        let names = evidence::named_paths(patch);
        let mut causes: Vec<&HeldPatch> = self
            .held
            .iter()
            .filter(|held| held.paths.iter().any(|path| names.contains(path)))
            .collect();
        if causes.is_empty() {
            causes = self.held.iter().collect();
        }
        let open: Vec<&HeldPatch> = causes.iter().copied().filter(|held| held.open).collect();
        if !open.is_empty() {
            causes = open;
        }
        let list: Vec<String> = causes.iter().map(|held| held.index.to_string()).collect();
        let noun = if list.len() == 1 { "patch" } else { "patches" };
        report.status = Status::Untested;
        report.evidence = format!("follows a conflict in {noun} {}", list.join(", "));
        self.held.push(HeldPatch {
            index: report.index,
            paths: names.into_iter().collect(),
            open: false,
        });
    }

    /// Applies a patch to the new tree and determines its status.
    fn place(
        &mut self,
        patch: &Patch,
        paths: &[Vec<u8>],
        step: &mut PatchStep,
        report: &mut PatchReport,
        progress: &dyn Progress,
    ) -> Result<()> {
        let there = evidence::is_there(&mut self.new, patch)?;
        if let Some(how) = fits(self.new.apply(patch, 0))? {
            let tree = self.new.write()?;
            if tree == self.new_tree {
                return self.report_upstream(
                    report,
                    EvidenceLevel::Merge,
                    "nothing is left of it".to_owned(),
                );
            }
            if there {
                // The release has the additions, and yet the patch applies a second time.
                let merges = self.three_way(patch, paths, step)?;
                if merges
                    .iter()
                    .all(|merge| matches!(merge.result, FileMergeResult::Upstream))
                {
                    self.new.reset(&self.new_tree)?;
                    let evidence = "a 3-way merge leaves nothing; it would apply a second time";
                    return self.report_upstream(report, EvidenceLevel::Merge, evidence.to_owned());
                }
                report.notes.push(
                    "the release already has its additions, but it still applies: check it"
                        .to_owned(),
                );
                // The merge attempt used the tree without the patch.
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
                return self.report_upstream(
                    report,
                    EvidenceLevel::Merge,
                    "a manual resolution leaves nothing of it".to_owned(),
                );
            }
            self.new_tree = tree;
            report.status = Status::Resolved;
            report.evidence = format!("as decided in {}", &resolution.commit[..12]);
            return self.compare(step, report);
        }
        let merges = self.three_way(patch, paths, step)?;
        if merges
            .iter()
            .all(|merge| matches!(merge.result, FileMergeResult::Upstream))
        {
            let (level, evidence) = self
                .external_evidence(patch, paths, step, progress)?
                .unwrap_or((
                    EvidenceLevel::Merge,
                    "a 3-way merge leaves nothing".to_owned(),
                ));
            return self.report_upstream(report, level, evidence);
        }
        let failed = merges
            .iter()
            .any(|merge| matches!(merge.result, FileMergeResult::Failed(_)));
        if failed {
            if let Some((level, evidence)) = self.external_evidence(patch, paths, step, progress)? {
                return self.report_upstream(report, level, evidence);
            }
            if self.is_revertible(report.index - 1)? {
                return self.report_upstream(
                    report,
                    EvidenceLevel::Reverse,
                    "it can be reverted on the release".to_owned(),
                );
            }
            return self.conflict(patch, paths, &merges, step, report);
        }
        self.merged(patch, merges, step, report)
    }

    fn report_upstream(
        &mut self,
        report: &mut PatchReport,
        level: EvidenceLevel,
        evidence: String,
    ) -> Result<()> {
        report.status = Status::Upstream;
        report.evidence_level = Some(level);
        report.evidence = evidence;
        Ok(())
    }

    /// Returns evidence from the patch's header and upstream's history, which does not require the patch to apply.
    fn external_evidence(
        &mut self,
        patch: &Patch,
        paths: &[Vec<u8>],
        step: &PatchStep,
        progress: &dyn Progress,
    ) -> Result<Option<(EvidenceLevel, String)>> {
        if self.history.is_none() {
            let history = history::History::between(self.ws, self.from, self.to, progress)?;
            self.history = Some(history);
        }
        let Some(history) = &self.history else {
            return Ok(None);
        };
        if let Some(claim) = evidence::claim(patch, self.to) {
            return Ok(Some((
                EvidenceLevel::Header,
                format!("Applied-Upstream: {claim}"),
            )));
        }
        if let Some(commit) = history.contains(patch)? {
            return Ok(Some((
                EvidenceLevel::Header,
                format!("Applied-Upstream: {commit}"),
            )));
        }
        let Some(after) = &step.old_after else {
            return Ok(None);
        };
        let diff = crate::stack::format::diff(self.objects, &step.old_before, after)?;
        Ok(history
            .same_patch(&diff, paths)?
            .map(|found| (EvidenceLevel::PatchId, found)))
    }

    fn three_way(
        &mut self,
        patch: &Patch,
        paths: &[Vec<u8>],
        step: &PatchStep,
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
        step: &mut PatchStep,
        report: &mut PatchReport,
    ) -> Result<()> {
        let (partly, notes) = evidence::parts_upstream(&mut self.new, patch, &merges)?;
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
            if let FileMergeResult::Clean(changes) = merge.result {
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

    /// Stores the range-diff of a patch whose diff changed.
    fn compare(&mut self, step: &PatchStep, report: &mut PatchReport) -> Result<()> {
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
        step: &PatchStep,
        report: &mut PatchReport,
    ) -> Result<()> {
        let earlier: Vec<(&Patch, &PatchStep)> =
            self.series.patches().iter().zip(&self.steps).collect();
        report.decisions = decision::decisions(self.objects, patch, merges, &earlier)?;
        let (changed, evidence) = decision::summary(merges, &report.decisions);
        report.status = if changed {
            Status::Changed
        } else {
            Status::Conflict
        };
        report.evidence = evidence;
        // Both stacks continue without the patch.
        self.old_tree.clone_from(&step.old_before);
        self.old.reset(&step.old_before)?;
        self.new.reset(&self.new_tree)?;
        self.held.push(HeldPatch {
            index: report.index,
            paths: paths.to_vec(),
            open: true,
        });
        Ok(())
    }

    fn is_revertible(&mut self, index: usize) -> Result<bool> {
        if self.reverse.is_none() {
            let mut trial = TrialTree::new(self.objects, &self.to.tree)?;
            let mut list = Vec::new();
            for patch in self.series.patches().iter().rev() {
                check_interrupted()?;
                list.push(fits(trial.revert(patch))?.is_some());
            }
            list.reverse();
            self.reverse = Some(list);
        }
        Ok(self
            .reverse
            .as_ref()
            .is_some_and(|list| list.get(index) == Some(&true)))
    }

    /// Keeps the new commits and returns the patches' reports and steps.
    pub(super) fn finish(
        self,
        objects: &Objects,
        series: &Series,
    ) -> Result<(Vec<PatchReport>, Vec<PatchStep>)> {
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
            // The reference protects the commits from git's garbage collection and gives users a name for them.
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
