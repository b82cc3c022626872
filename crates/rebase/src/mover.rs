//! Moves the patches one after the other and determines the status of each on the new release.

use std::collections::BTreeSet;

use super::function::has_indented_blocks;
use super::landing::{defined_twice, doubled_lines, landing, moved_lines, other_white_space};
use super::lines_there::LinesThere;
use super::loose_merge::Rule;
use super::moved::UpstreamRenames;
use super::three_way::{
    FileMerge, FileMergeResult, MergeTrees, changed_files, is_upstream, lost_folder, merge_files,
};
use super::transfer::{has_files, settle, transfer};
use super::{EvidenceLevel, PatchReport, PatchStep, Status, TreePair};
use super::{decision, evidence, history, range_diff, resolve};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::counted::counted;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::progress;
use perfquilt_series::series::path::shown;
use perfquilt_series::series::{Patch, Presence, Series};
use perfquilt_series::stack::format::{changed_paths, diff};
use perfquilt_series::stack::trial::{TreeFile, TrialTree};
use perfquilt_series::stack::{PatchFit, if_applies};
use perfquilt_series::upstream::{Objects, Release};
use perfquilt_system::process::check_interrupted;

/// Names patches by their numbers: `patch 2`, `patches 2, 3`.
fn numbered(patches: &[usize]) -> String {
    let noun = if patches.len() == 1 {
        "patch"
    } else {
        "patches"
    };
    let numbers: Vec<String> = patches.iter().map(ToString::to_string).collect();
    format!("{noun} {}", numbers.join(", "))
}

fn is_failed(merges: &[FileMerge]) -> bool {
    merges.iter().any(FileMerge::is_failed)
}

/// Returns whether a person has to review the merge.
fn is_guess(merges: &[FileMerge]) -> bool {
    let mut rules = merges.iter().flat_map(|merge| &merge.rules);
    rules.any(|rule| rule.review().is_some())
}

/// Reports where the changes of a placed patch are, and marks those for review that only their context places, where
/// it seems to be another one's.
fn note_places(merges: &[FileMerge], report: &mut PatchReport) -> Result<()> {
    let mut review = report.review.take();
    for merge in merges {
        let found = landing(merge)?;
        report.places.extend(found.places);
        report.notes.extend(found.notes);
        if review.is_none() {
            review = doubt(merge)?;
        }
    }
    report.review = review;
    Ok(())
}

/// Returns why a person has to review where a patch's changes to a file are, if so.
fn doubt(merge: &FileMerge) -> Result<Option<String>> {
    let left = moved_lines(merge)?.join(", ");
    if !left.is_empty() && merge.content().is_some() {
        return Ok(Some(format!(
            "upstream moved lines that it removes: {left}"
        )));
    }
    if merge.is_doubtful {
        let why = "upstream changed the lines around it, and its context may be another one's";
        return Ok(Some(why.to_owned()));
    }
    if merge.rules.contains(&Rule::Blanks) && has_indented_blocks(&merge.path) {
        let file = shown(&merge.path);
        return Ok(Some(format!(
            "upstream changed white space in its lines of {file}"
        )));
    }
    match doubled_lines(merge)? {
        None => defined_twice(merge),
        doubled => Ok(doubled),
    }
}

/// Marks a patch that the release has for review if the release still has lines that it removes, because upstream moved
/// them, or has its lines with other white space where that may have a meaning.
fn note_differences(merges: &[FileMerge], report: &mut PatchReport) -> Result<()> {
    let (mut moved, mut blanks) = (Vec::new(), Vec::new());
    for merge in merges {
        moved.extend(moved_lines(merge)?);
        blanks.extend(other_white_space(merge)?);
    }
    let whys = [
        ("the release still has lines that it removes", moved),
        ("the release has its lines with other white space", blanks),
    ];
    let whys = whys.into_iter().filter(|(_, places)| !places.is_empty());
    let whys: Vec<String> = whys
        .map(|(why, places)| format!("{why}: {}", places.join(", ")))
        .collect();
    if !whys.is_empty() {
        report.review = Some(whys.join("; "));
    }
    Ok(())
}

/// The new tree with a patch applied by its context alone.
struct PlainResult {
    fit: PatchFit,
    tree: String,
}

/// The patch that is being moved.
struct MovedPatch<'p> {
    patch: &'p Patch,
    /// The paths that it changes on the old stack.
    paths: Vec<Vec<u8>>,
    step: PatchStep,
    report: PatchReport,
}

impl MovedPatch<'_> {
    fn set_upstream(&mut self, level: EvidenceLevel, evidence: impl Into<String>) {
        self.report.status = Status::Upstream;
        self.report.evidence_level = Some(level);
        self.report.evidence = evidence.into();
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
    /// The tree of the old stack before the patch that is being moved.
    old_before: String,
    /// The whole old stack, held patches included.
    whole: TrialTree<'a>,
    whole_tree: String,
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
    /// Patches that are upstream because they can be taken back after later ones, with these.
    taken_back: Vec<(usize, Vec<usize>)>,
    /// Patches that no taking back shows to be upstream.
    distrusted: BTreeSet<usize>,
    held: Vec<HeldPatch>,
    reports: Vec<PatchReport>,
    steps: Vec<PatchStep>,
}

/// Moves a series to another release; without upstream's commits as evidence if `has_history` is false, because `to`
/// contains only some of them. Returns the patches' reports and steps.
pub(super) fn moved(
    ws: &Workspace,
    objects: &Objects,
    from: &Release,
    to: &Release,
    series: &Series,
    has_history: bool,
) -> Result<(Vec<PatchReport>, Vec<PatchStep>)> {
    let patches = series.patches();
    let mut distrusted = BTreeSet::new();
    loop {
        let mut mover = Mover::new(ws, objects, from, to, series)?;
        mover.history = (!has_history).then(history::History::default);
        mover.distrusted.clone_from(&distrusted);
        let step = progress::begin(
            &format!("moving {} to {}", from.name, to.name),
            Some(patches.len() as u64),
        );
        for (index, patch) in patches.iter().enumerate() {
            check_interrupted()?;
            step.update(index as u64, None, &patch.name);
            mover.patch(index, patch)?;
        }
        step.finish("");
        match mover.refuted() {
            Some(index) => distrusted.insert(index),
            None => return mover.finish(),
        };
    }
}

impl<'a> Mover<'a> {
    fn new(
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
            old_before: from.tree.clone(),
            whole: TrialTree::new(objects, &from.tree)?,
            whole_tree: from.tree.clone(),
            new: TrialTree::new(objects, &to.tree)?,
            new_tree: to.tree.clone(),
            parent: to.commit.clone(),
            before: TrialTree::new(objects, &from.tree)?,
            after: TrialTree::new(objects, &from.tree)?,
            release: TrialTree::new(objects, &from.tree)?,
            renames: UpstreamRenames::new(objects, &from.tree, &to.tree),
            reverse: None,
            history: None,
            taken_back: Vec::new(),
            distrusted: BTreeSet::new(),
            held: Vec::new(),
            reports: Vec::new(),
            steps: Vec::new(),
        })
    }

    /// Moves the next patch.
    fn patch(&mut self, index: usize, patch: &Patch) -> Result<()> {
        self.old_before.clone_from(&self.old_tree);
        let before = |tree: &String| TreePair {
            before: tree.clone(),
            after: tree.clone(),
        };
        let mut step = PatchStep {
            old: before(&self.old_tree),
            whole: before(&self.whole_tree),
            new: before(&self.new_tree),
            parent: self.parent.clone(),
        };
        let report = PatchReport {
            index: index + 1,
            name: patch.name.clone(),
            title: patch.title.clone(),
            without: self.held.iter().map(|held| held.index).collect(),
            ..PatchReport::default()
        };
        let fuzz = self.ws.config.series.fuzz;
        let mut is_separable = true;
        if self.held.is_empty() {
            self.old
                .apply(patch, fuzz)
                .map_err(|error| self.not_for_its_release(error))?;
            self.old_tree = self.old.write()?;
            self.whole_tree.clone_from(&self.old_tree);
            step.whole.after.clone_from(&self.whole_tree);
        } else {
            self.whole.reset(&self.whole_tree)?;
            self.whole
                .apply(patch, fuzz)
                .map_err(|error| self.not_for_its_release(error))?;
            self.whole_tree = self.whole.write()?;
            step.whole.after.clone_from(&self.whole_tree);
            let (whole, target, tree) = (&step.whole, &mut self.old, &self.old_tree);
            match if_applies(transfer(self.objects, patch, whole, target, tree, fuzz))? {
                Some(moved) => self.old_tree = moved.tree,
                None => is_separable = false,
            }
        }
        if is_separable {
            step.old.after.clone_from(&self.old_tree);
        } else {
            // A patch that needs lines of held patches is tried as a change of the whole old stack.
            step.old = step.whole.clone();
        }
        let mut moved = MovedPatch {
            patch,
            paths: changed_paths(self.objects, &step.old.before, &step.old.after)?,
            step,
            report,
        };
        self.place(&mut moved)?;
        if moved.report.status.applies() {
            moved.step.new.after.clone_from(&self.new_tree);
            self.parent = self.new.commit(&self.new_tree, &self.parent, patch)?;
            moved.report.commit = Some(self.parent.clone());
        }
        self.reports.push(moved.report);
        self.steps.push(moved.step);
        Ok(())
    }

    fn not_for_its_release(&self, error: Error) -> Error {
        if error.kind() != Kind::Series {
            return error;
        }
        error.hint(format!(
            "the series does not apply to {}, which it is for; fix that first",
            self.from.name
        ))
    }

    /// Reports a patch that changes lines of held patches.
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
        let causes: Vec<usize> = causes.iter().map(|held| held.index).collect();
        report.status = Status::Untested;
        report.evidence = format!("follows a conflict in {}", numbered(&causes));
        self.held.push(HeldPatch {
            index: report.index,
            paths: names.into_iter().collect(),
            open: false,
        });
    }

    /// Applies a patch to the new tree and determines its status.
    fn place(&mut self, moved: &mut MovedPatch<'_>) -> Result<()> {
        let patch = moved.patch;
        if moved.paths.is_empty() {
            moved.report.status = Status::Exact;
            moved.report.evidence = "it changes nothing".to_owned();
            return Ok(());
        }
        if let Some(resolution) = resolve::remembered(self.objects, patch, &mut self.new)? {
            self.new.change(resolution.files)?;
            let tree = self.new.write()?;
            if tree == self.new_tree {
                let evidence = "a manual resolution leaves nothing of it";
                moved.set_upstream(EvidenceLevel::Merge, evidence);
                return Ok(());
            }
            self.new_tree = tree;
            moved.report.status = Status::Resolved;
            moved.report.evidence = format!("as decided in {}", &resolution.commit[..12]);
            return self.compare(moved);
        }
        if self.applies_to_unchanged(moved)? {
            return Ok(());
        }
        let mut merges = self.three_way(patch, &moved.paths, &moved.step)?;
        if is_failed(&merges) && moved.step.old.after != moved.step.whole.after {
            // Lines of held patches are in the way on one of the two old stacks only.
            let whole = PatchStep {
                old: moved.step.whole.clone(),
                ..moved.step.clone()
            };
            let paths = changed_paths(self.objects, &whole.old.before, &whole.old.after)?;
            let others = self.three_way(patch, &paths, &whole)?;
            if !is_failed(&others) && !is_guess(&others) {
                (moved.step, merges) = (whole, others);
            }
        }
        if let Some(plain) = self.plain(patch)? {
            let fuzz = self.ws.config.series.fuzz;
            settle(patch, &mut merges, &mut self.new, fuzz)?;
            let is_same = has_files(&mut self.new, &merges)?;
            if merges.iter().all(FileMerge::is_gits)
                && (is_same || is_upstream(&merges) || !self.was_taken(moved)?)
            {
                return self.settled(merges, plain, moved);
            }
            self.new.reset(&self.new_tree)?;
        }
        if is_upstream(&merges) {
            note_differences(&merges, &mut moved.report)?;
            let found = self.hint(moved)?;
            let (level, evidence) = found.unwrap_or((
                EvidenceLevel::Merge,
                if merges.iter().all(|merge| merge.rules.is_empty()) {
                    "a 3-way merge leaves nothing".to_owned()
                } else {
                    "the release has its lines in another form".to_owned()
                },
            ));
            moved.set_upstream(level, evidence);
            return Ok(());
        }
        if !is_failed(&merges) && !is_guess(&merges) && !self.was_taken(moved)? {
            return self.merged(merges, moved);
        }
        let there = self.lines_there(moved)?;
        let hint = self.hint(moved)?;
        // Where the release has or had much of the change, a guess could make it twice; beside lines of held patches, it
        // has nothing to go by.
        let certain_base = moved.step.old.before == self.old_before;
        let may_guess = certain_base && hint.is_none() && there.changed(patch).is_none();
        if !is_failed(&merges) && may_guess {
            return self.merged(merges, moved);
        }
        if let Some((level, evidence)) = &hint
            && there.confirms()
        {
            moved.set_upstream(*level, evidence);
            return Ok(());
        }
        if let Some(later) = self.taken_back(moved.report.index - 1)? {
            let mut evidence = "it can be reverted on the release".to_owned();
            if !later.is_empty() {
                evidence.push_str(&format!(" after {}", numbered(&later)));
                self.taken_back.push((moved.report.index, later));
            }
            moved.set_upstream(EvidenceLevel::Reverse, evidence);
            return Ok(());
        }
        if let Some(evidence) = there.upstream(patch) {
            note_differences(&merges, &mut moved.report)?;
            moved.set_upstream(EvidenceLevel::Lines, evidence);
            return Ok(());
        }
        self.conflict(&merges, &there, moved)?;
        if let Some((_, hint)) = hint
            && moved.report.status.needs_decision()
        {
            // It may have been reverted or rewritten since.
            moved.report.status = Status::Changed;
            moved.report.evidence =
                format!("{hint}, but the release does not have its lines there");
        }
        Ok(())
    }

    /// Applies a patch of files that are the same on both releases, where nothing needs a merge. Returns false, with
    /// nothing changed, if it is another patch.
    fn applies_to_unchanged(&mut self, moved: &mut MovedPatch<'_>) -> Result<bool> {
        self.before.reset(&moved.step.old.before)?;
        for path in &moved.paths {
            if self.before.blob(path)? != self.new.blob(path)?
                || lost_folder(&mut self.before, &mut self.new, path)?.is_some()
            {
                return Ok(false);
            }
        }
        let Some(plain) = self.plain(moved.patch)? else {
            return Ok(false);
        };
        self.after.reset(&moved.step.old.after)?;
        for path in &moved.paths {
            if self.after.blob(path)? != self.new.blob(path)? {
                self.new.reset(&self.new_tree)?;
                return Ok(false);
            }
        }
        self.report_plain(plain, moved);
        Ok(true)
    }

    /// Applies the patch by its context alone, if it fits.
    fn plain(&mut self, patch: &Patch) -> Result<Option<PlainResult>> {
        let Some(fit) = if_applies(self.new.apply(patch, 0))? else {
            return Ok(None);
        };
        let tree = self.new.write()?;
        Ok(Some(PlainResult { fit, tree }))
    }

    /// Reports a patch that applies plainly and for which git's merge, or a context that occurs once, says where.
    fn settled(
        &mut self,
        merges: Vec<FileMerge>,
        plain: PlainResult,
        moved: &mut MovedPatch<'_>,
    ) -> Result<()> {
        let mut is_same = has_files(&mut self.new, &merges)?;
        if !is_same {
            self.new.reset(&self.new_tree)?;
            if is_upstream(&merges) {
                note_differences(&merges, &mut moved.report)?;
                let evidence = if plain.tree == self.new_tree {
                    "nothing is left of it"
                } else {
                    "a 3-way merge leaves nothing; it would apply a second time"
                };
                moved.set_upstream(EvidenceLevel::Merge, evidence);
                return Ok(());
            }
            self.new.change(changed_files(&merges))?;
            is_same = self.new.write()? == plain.tree;
        }
        if is_same && plain.tree == self.new_tree {
            moved.set_upstream(EvidenceLevel::Merge, "nothing is left of it");
            return Ok(());
        }
        if is_same {
            note_places(&merges, &mut moved.report)?;
            self.report_plain(plain, moved);
            return Ok(());
        }
        self.new.reset(&self.new_tree)?;
        let note = "its context alone would put it at another place";
        moved.report.notes.push(note.to_owned());
        self.merged(merges, moved)
    }

    fn report_plain(&mut self, plain: PlainResult, moved: &mut MovedPatch<'_>) {
        let report = &mut moved.report;
        self.new_tree = plain.tree;
        report.offset = plain.fit.offset;
        report.status = if plain.fit.offset == 0 && plain.fit.fuzz == 0 {
            Status::Exact
        } else {
            Status::Offset
        };
        report.evidence = plain.fit.to_string();
        if let Some(claim) = evidence::claim(moved.patch, self.to) {
            report.notes.push(format!(
                "its header says `Applied-Upstream: {claim}`, but the release does not have the change"
            ));
        }
    }

    /// Determines how many of the patch's changes the new release has.
    fn lines_there(&mut self, moved: &MovedPatch<'_>) -> Result<LinesThere> {
        self.before.reset(&moved.step.old.before)?;
        self.after.reset(&moved.step.old.after)?;
        let mut target = TrialTree::new(self.objects, &self.to.tree)?;
        let mut found = LinesThere::default();
        for path in &moved.paths {
            let content = |file: Option<TreeFile>| file.map(|file| file.content);
            let base = content(self.before.file(path)?);
            let mut released = content(target.file(path)?);
            if let (Some(base), None) = (&base, &released)
                && let Some(new) = self.renames.find(path, base)?
            {
                released = content(target.file(&new)?);
            }
            let after = content(self.after.file(path)?);
            let old_release = content(self.release.file(path)?);
            found.add(
                path,
                base.as_deref(),
                after.as_deref(),
                old_release.as_deref(),
                released.as_deref(),
            )?;
        }
        Ok(found)
    }

    /// Returns what the patch's header and upstream's history say: that upstream had the patch at some time. Only the
    /// release's lines say whether it still has it.
    fn hint(&mut self, moved: &MovedPatch<'_>) -> Result<Option<(EvidenceLevel, String)>> {
        if self.history.is_none() {
            let history = history::History::between(self.ws, self.from, self.to)?;
            self.history = Some(history);
        }
        let Some(history) = &self.history else {
            return Ok(None);
        };
        let noted = evidence::claim(moved.patch, self.to);
        let noted = noted.map_or_else(|| history.contains(moved.patch), |claim| Ok(Some(claim)))?;
        if let Some(noted) = noted {
            let evidence = format!("Applied-Upstream: {noted}");
            return Ok(Some((EvidenceLevel::Header, evidence)));
        }
        let old = &moved.step.old;
        let diff = diff(self.objects, &old.before, &old.after)?;
        let found = history.same_patch(&diff, &moved.paths)?;
        Ok(found.map(|found| (EvidenceLevel::PatchId, found)))
    }

    /// Returns whether upstream made the patch's change, by its patch id. Where the patch still merges, upstream changed or
    /// moved it since.
    fn was_taken(&mut self, moved: &MovedPatch<'_>) -> Result<bool> {
        let found = self.hint(moved)?;
        Ok(matches!(found, Some((EvidenceLevel::PatchId, _))))
    }

    fn three_way(
        &mut self,
        patch: &Patch,
        paths: &[Vec<u8>],
        step: &PatchStep,
    ) -> Result<Vec<FileMerge>> {
        self.before.reset(&step.old.before)?;
        self.after.reset(&step.old.after)?;
        let (renames, release) = (&mut self.renames, &mut self.release);
        let mut moved = |path: &[u8]| match release.file(path)? {
            Some(file) => renames.find(path, &file.content),
            None => Ok(None),
        };
        merge_files(
            &mut MergeTrees {
                before: &mut self.before,
                after: &mut self.after,
                ours: &mut self.new,
                moved: &mut moved,
            },
            &patch.files,
            paths,
        )
    }

    fn merged(&mut self, merges: Vec<FileMerge>, moved: &mut MovedPatch<'_>) -> Result<()> {
        let (patch, report) = (moved.patch, &mut moved.report);
        let (partly, notes) = evidence::parts_upstream(&mut self.new, patch, &merges)?;
        report.notes.extend(notes);
        let rules: BTreeSet<Rule> = merges
            .iter()
            .flat_map(|merge| merge.rules.clone())
            .collect();
        let remarks = rules.iter().filter_map(|rule| rule.note());
        report.notes.extend(remarks.map(str::to_owned));
        let reviews: Vec<&str> = rules.iter().filter_map(|rule| rule.review()).collect();
        report.review = (!reviews.is_empty()).then(|| reviews.join("; "));
        note_places(&merges, report)?;
        for merge in merges.iter().filter(|merge| merge.moved) {
            report.notes.push(format!(
                "upstream moved {} to {}",
                shown(&merge.old_path),
                shown(&merge.path)
            ));
        }
        let clean = |merge: &&FileMerge| matches!(merge.result, FileMergeResult::Clean(_));
        let merged_files = merges.iter().filter(clean).count();
        self.new.change(changed_files(&merges))?;
        self.new_tree = self.new.write()?;
        report.status = if partly || rules.contains(&Rule::Already) {
            Status::Partly
        } else {
            Status::Merged
        };
        report.evidence = format!("3-way, {}", counted(merged_files, "file", "files"));
        self.compare(moved)
    }

    /// Stores the range-diff of a patch whose diff changed.
    fn compare(&mut self, moved: &mut MovedPatch<'_>) -> Result<()> {
        let PatchStep { old, new, .. } = &mut moved.step;
        new.after.clone_from(&self.new_tree);
        moved.report.range_diff = range_diff::compare(self.objects, old, new)?;
        Ok(())
    }

    fn conflict(
        &mut self,
        merges: &[FileMerge],
        there: &LinesThere,
        moved: &mut MovedPatch<'_>,
    ) -> Result<()> {
        let (patch, report) = (moved.patch, &mut moved.report);
        // Both stacks continue without the patch.
        self.old_tree.clone_from(&self.old_before);
        self.old.reset(&self.old_tree)?;
        self.new.reset(&self.new_tree)?;
        let earlier: Vec<(&Patch, &PatchStep)> =
            self.series.patches().iter().zip(&self.steps).collect();
        let decisions = decision::decisions(self.objects, patch, merges, &earlier)?;
        let (changed, evidence) = decision::summary(merges, &decisions);
        (report.status, report.evidence) = match there.changed(patch) {
            Some(evidence) => (Status::Changed, evidence),
            None if changed => (Status::Changed, evidence),
            None if moved.step.old.before != self.old_tree => {
                self.report_dependent(patch, report);
                return Ok(());
            }
            None => (Status::Conflict, evidence),
        };
        report.decisions = decisions;
        self.held.push(HeldPatch {
            index: report.index,
            paths: evidence::named_paths(patch).into_iter().collect(),
            open: true,
        });
        Ok(())
    }

    /// Returns the later patches after which taking a patch back shows that the release has it, if it does: on the release
    /// alone, and where earlier patches that stay change the same files also beside those.
    fn taken_back(&mut self, index: usize) -> Result<Option<Vec<usize>>> {
        let patches = self.series.patches();
        if self.reverse.is_none() {
            self.reverse = Some(self.reverted(&self.to.tree, &patches.iter().collect::<Vec<_>>())?);
        }
        let reverse = self.reverse.as_deref().unwrap_or_default();
        let is_there = |index: usize| reverse.get(index) == Some(&true);
        if !is_there(index) || self.distrusted.contains(&(index + 1)) {
            return Ok(None);
        }
        let patch = &patches[index];
        let names = evidence::named_paths(patch);
        let mut later = Vec::new();
        if self.reverted(&self.to.tree, &[patch])? != [true] {
            let mut names = names.clone();
            for (at, other) in patches.iter().enumerate().skip(index + 1) {
                let others = evidence::named_paths(other);
                if is_there(at) && !names.is_disjoint(&others) {
                    names.extend(others);
                    later.push(at + 1);
                }
            }
        }
        for diff in &patch.files {
            // What an earlier patch made cannot be missing from the release.
            let leaves = diff.rename || diff.after == Presence::Absent;
            if let Some(old) = diff.old.as_ref().filter(|_| leaves)
                && self.release.blob(old)?.is_none()
            {
                return Ok(None);
            }
        }
        let shares = |other: &&Patch| !names.is_disjoint(&evidence::named_paths(other));
        let staying = patches.iter().zip(&self.reports);
        let mut staying = staying.filter(|(_, report)| report.status.applies());
        if staying.any(|(other, _)| shares(&other)) {
            let rest = patches[index..].iter().filter(shares);
            let beside = self.reverted(&self.new_tree, &rest.collect::<Vec<_>>())?;
            if beside.first() != Some(&true) {
                return Ok(None);
            }
        }
        Ok(Some(later))
    }

    /// Returns a patch that counts as upstream although not all later ones do that were taken back before it.
    fn refuted(&self) -> Option<usize> {
        let is_upstream = |index: &usize| self.reports[index - 1].status == Status::Upstream;
        let mut found = self.taken_back.iter();
        let found = found.find(|(_, later)| !later.iter().all(is_upstream))?;
        Some(found.0)
    }

    /// Takes patches back on a tree, the last one first, where each can mean one place only. Returns which were there.
    fn reverted(&self, tree: &str, patches: &[&Patch]) -> Result<Vec<bool>> {
        let mut trial = TrialTree::new(self.objects, tree)?;
        let mut found = Vec::new();
        for patch in patches.iter().rev() {
            check_interrupted()?;
            // Lines that are there twice may be those of another function.
            let is_unique = trial.has_result_once(patch)?;
            found.push(is_unique && if_applies(trial.revert(patch))?.is_some());
        }
        found.reverse();
        Ok(found)
    }

    /// Keeps the new commits and returns the patches' reports and steps.
    fn finish(self) -> Result<(Vec<PatchReport>, Vec<PatchStep>)> {
        let Mover {
            objects,
            series,
            new,
            old,
            whole,
            held,
            reports,
            steps,
            parent,
            to,
            ..
        } = self;
        new.finish()?;
        // The conflicts that a person opens need the old trees.
        if !held.is_empty() || reports.iter().any(|report| report.review.is_some()) {
            old.finish()?;
            whole.finish()?;
        }
        if parent != to.commit {
            // The reference protects the commits from git's garbage collection and gives users a name for them.
            let digest = &series.digest()[..16];
            perfquilt_series::stack::history::set_reference(
                objects,
                &format!("refs/rebased/{}/{digest}", to.commit),
                &parent,
            )?;
        }
        Ok((reports, steps))
    }
}
