//! The format-independent content of a report: rows and notes of one attribution.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use perfquilt_judge::attribution::{
    Agreement, AppliedDecision, Attribution, Effect, EffectKind, PatchEffects, SUITE, StoppingRule,
    Verdict, effect_on,
};
use perfquilt_judge::stats::FEWEST_COUNTED;
use perfquilt_model::counted::{counted, listed};
use perfquilt_model::decision::DecisionKind;
use perfquilt_model::observation::Meter;
use perfquilt_model::point::Point;

use super::document::Style;
use super::nouns::Nouns;
use super::{number, server_tests, tail};

/// The content of a report in any format. Names in it are raw: each format must escape them.
pub(super) struct View<'a> {
    pub(super) attribution: &'a Attribution,
    /// The meters with a column of their own, and the decimals of each.
    pub(super) columns: Vec<(Meter, usize)>,
    /// The patches, the total, the control.
    pub(super) rows: Vec<EffectRow<'a>>,
    /// Single workloads and further meters, in the order of the patches.
    pub(super) details: Vec<EffectRow<'a>>,
    /// The effects of each patch by itself, one table per meter; empty unless such points were requested.
    pub(super) separate_effects: Vec<SeparateEffects<'a>>,
    /// The points with costs, by workload and meter.
    measured: HashSet<(Point, Meter, &'a str)>,
}

/// A table of a meter with the patches' effects in order, alone and without: one column each.
pub(super) struct SeparateEffects<'a> {
    pub(super) meter: Meter,
    pub(super) places: usize,
    pub(super) rows: Vec<EffectRow<'a>>,
}

impl SeparateEffects<'_> {
    /// The heads of its columns.
    pub(super) const HEADS: [&'static str; 3] = ["in order", "alone", "without"];
    /// Index of the column "without".
    pub(super) const WITHOUT: usize = 2;
}

/// A row of a table.
#[derive(Clone)]
pub(super) struct EffectRow<'a> {
    pub(super) label: Label<'a>,
    /// The effects, one per column.
    pub(super) effects: Vec<Option<&'a Effect>>,
    pub(super) verdict: &'static str,
    /// How the verdict stands out.
    pub(super) style: Style,
    /// Remarks, each a sentence fragment.
    pub(super) notes: Vec<String>,
    /// Whether the patch helped in an earlier experiment and no longer does.
    pub(super) no_longer_helps: bool,
}

/// The subject of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Label<'a> {
    Patch(&'a PatchEffects),
    /// A patch with its title below its name.
    Titled(&'a PatchEffects),
    /// A patch on a single workload.
    Workload(&'a PatchEffects, &'a str),
    Total,
    Control,
}

impl<'a> Label<'a> {
    /// Returns the patch of the row.
    pub(super) fn patch(&self) -> Option<&'a PatchEffects> {
        match self {
            Label::Patch(of) | Label::Titled(of) | Label::Workload(of, _) => Some(of),
            Label::Total | Label::Control => None,
        }
    }

    /// Returns the name of the row where there is no column for its number.
    pub(super) fn text(&self) -> String {
        match self {
            Label::Patch(of) | Label::Titled(of) | Label::Workload(of, _) => {
                format!("{}  {}", of.index, of.name)
            }
            Label::Total => "total".to_owned(),
            Label::Control => "control (A/A)".to_owned(),
        }
    }
}

impl<'a> View<'a> {
    pub(super) fn new(attribution: &'a Attribution) -> Self {
        let mut meters: Vec<Meter> = attribution.main_meter().into_iter().collect();
        if attribution.margins.contains_key(&Meter::Instructions) && meters != [Meter::Instructions]
        {
            meters.push(Meter::Instructions);
        }
        let columns = meters
            .iter()
            .map(|&meter| {
                let effects = attribution.series_effects();
                let effects = effects.filter(|effect| effect.meter == meter);
                (meter, number::decimals(meter, effects))
            })
            .collect();
        let costs = attribution.costs.iter();
        let mut view = View {
            attribution,
            columns,
            rows: Vec::new(),
            details: Vec::new(),
            separate_effects: Vec::new(),
            measured: costs
                .map(|cost| (cost.point, cost.meter, &*cost.workload))
                .collect(),
        };
        for patch in &attribution.patches {
            view.rows.push(view.patch(patch));
        }
        if !attribution.is_of_servers() {
            view.rows.push(view.total());
        }
        view.rows.extend(view.control_of(None));
        for (position, patch) in attribution.patches.iter().enumerate() {
            for workload in &attribution.workloads {
                let label = Label::Workload(patch, workload);
                let mut row = view.row(label, &patch.effects, EffectKind::InOrder, Some(workload));
                // The patch's own row has these notes already.
                row.notes
                    .retain(|note| !view.rows[position].notes.contains(note));
                view.details.push(row);
            }
        }
        view.separate_effects = view.separate_effects();
        view
    }

    /// Returns what the report calls the points.
    pub(super) fn nouns(&self) -> &'static Nouns {
        Nouns::of(self.attribution)
    }

    fn separate_effects(&self) -> Vec<SeparateEffects<'a>> {
        let requested = |patch: &PatchEffects| {
            let separate = [Point::Alone(patch.index), Point::Without(patch.index)];
            let failed = &self.attribution.failed;
            separate.iter().any(|point| failed.contains_key(point))
                || patch
                    .effects
                    .iter()
                    .any(|effect| matches!(effect.kind, EffectKind::Alone | EffectKind::Without))
        };
        let patches: Vec<&PatchEffects> = self
            .attribution
            .patches
            .iter()
            .filter(|patch| requested(patch))
            .collect();
        if patches.is_empty() {
            return Vec::new();
        }
        let table = |&(meter, places): &(Meter, usize)| SeparateEffects {
            meter,
            places,
            rows: patches
                .iter()
                .map(|patch| self.separate_row(patch, meter, places))
                .collect(),
        };
        self.columns.iter().map(table).collect()
    }

    fn separate_row(&self, patch: &'a PatchEffects, meter: Meter, places: usize) -> EffectRow<'a> {
        let of = |kind| self.attribution.main_effect(&patch.effects, kind, meter);
        let effects = [EffectKind::InOrder, EffectKind::Alone, EffectKind::Without].map(of);
        let mut notes: Vec<String> = effects
            .iter()
            .zip(SeparateEffects::HEADS)
            .filter_map(|(effect, head)| {
                let origin = self.origin_of((*effect)?)?;
                Some(format!("{head}: {origin}"))
            })
            .collect();
        for (point, word) in [
            (Point::Alone(patch.index), "alone"),
            (Point::Without(patch.index), "without"),
        ] {
            if let Some(reason) = self.attribution.failed.get(&point) {
                notes.push(format!("{word}: {reason}"));
            }
        }
        if let Some(interaction) = of(EffectKind::Interaction).filter(|effect| effect.is_shown()) {
            let (by, why) = match interaction.verdict {
                Verdict::Faster => ("more", "do part of the same"),
                _ => ("less", "build on it"),
            };
            notes.push(format!(
                "worth {} % {by} in order than without: {} behind it {why}",
                number::plain(interaction.shown().estimate.abs(), places),
                self.nouns().many
            ));
        }
        EffectRow {
            label: Label::Patch(patch),
            effects: effects.to_vec(),
            verdict: "",
            style: Style::Quiet,
            notes,
            no_longer_helps: false,
        }
    }

    fn patch(&self, patch: &'a PatchEffects) -> EffectRow<'a> {
        let label = Label::Titled(patch);
        let mut row = self.row(label, &patch.effects, EffectKind::InOrder, None);
        if let Some(reason) = &patch.reason {
            let point = Point::Step(patch.index);
            (row.verdict, row.style) = if self.attribution.failed.contains_key(&point) {
                ("failed", Style::Bad)
            } else {
                ("no figures", Style::Open)
            };
            row.notes.push(reason.clone());
        } else if let Some(point) = patch.identical_to {
            if row.effects.iter().flatten().all(|effect| effect.identical) {
                (row.verdict, row.style) = if patch.not_in_server {
                    (NOT_IN_SERVER, Style::Open)
                } else {
                    ("no effect", Style::Quiet)
                };
            }
            let again = format!(
                "the binary of {} again, not measured",
                self.nouns().point(point)
            );
            row.notes.insert(0, again);
            if patch.not_in_server && patch.unread.is_empty() {
                row.notes.insert(0, SAME_PROGRAM.to_owned());
            }
        } else if patch.line_numbers {
            row.notes.insert(0, LINE_NUMBERS.to_owned());
        } else if patch.code_unchanged {
            row.notes.insert(0, CODE_UNCHANGED.to_owned());
        }
        if let [first, more @ ..] = &patch.unread[..] {
            let more = match more.len() {
                0 => String::new(),
                more => format!(
                    " and {} that it changes",
                    counted(more as u64, "more file", "more files")
                ),
            };
            row.notes.insert(
                0,
                format!("the build does not read {first}{more}: enable it in the recipe, or drop the change"),
            );
        }
        let mut effects = row.effects.iter().flatten();
        let before = if self.attribution.is_of_servers() {
            Point::BASE
        } else {
            Point::Step(patch.index - 1)
        };
        if let Some(effect) = effects.clone().find(|e| e.against != before) {
            let why = if self.has_figures(before, effect) {
                "that shares blocks with it"
            } else {
                "with figures"
            };
            let against = self.nouns().point(effect.against);
            row.notes
                .push(format!("against {against}, the last before it {why}"));
        }
        if let Some(tests) = self.attribution.tests_at(Point::Step(patch.index)) {
            row.notes.push(server_tests::of_patch(tests));
        }
        if let Some(words) = self.decision_on(patch) {
            row.notes.insert(0, words);
            if self.attribution.is_accepted(patch) {
                row.style = Style::Open;
            }
        }
        // If all effects are unpaired, one warning says so.
        let paired = |effect: &Effect| !effect.unpaired && effect.is_measured();
        if effects.any(|effect| effect.unpaired) && self.attribution.total.iter().any(paired) {
            row.notes.push("no block has both points".to_owned());
        }
        row
    }

    /// Describes the decision on a patch, where it matters: if the patch is slower or to be dropped, and if it lapsed.
    fn decision_on(&self, patch: &PatchEffects) -> Option<String> {
        let AppliedDecision {
            decision,
            reason,
            lapsed,
            ..
        } = patch.decision.as_ref()?;
        let of = self.attribution;
        let (slower, open) = (of.slower_on(patch), of.unaccepted_on(patch));
        let open: Vec<&str> = open.into_iter().collect();
        Some(match (lapsed, decision) {
            (Some(why), _) => format!("the decision on it lapsed, {why}: {reason}"),
            (None, DecisionKind::Drop) => format!("to be dropped at the next rebase: {reason}"),
            (None, DecisionKind::Keep) if slower.is_empty() => return None,
            (None, DecisionKind::Keep) if open.is_empty() => format!("accepted: {reason}"),
            (None, DecisionKind::Keep) => {
                format!(
                    "accepted, but not on {}: {reason}",
                    listed(&open, MOST_ON_A_ROW)
                )
            }
        })
    }

    /// Returns whether a point has figures on all workloads of an effect.
    fn has_figures(&self, point: Point, effect: &'a Effect) -> bool {
        let known = |workload: &'a str| self.measured.contains(&(point, effect.meter, workload));
        match effect.workload.as_str() {
            SUITE => {
                let progress = self.attribution.progress.iter();
                let mut of_meter = progress.filter(|of| of.meter == effect.meter);
                of_meter.all(|of| known(&of.workload))
            }
            workload => known(workload),
        }
    }

    /// Returns the heads of the meters' columns, with the decimals of each.
    pub(super) fn heads(&self) -> Vec<(&'static str, usize)> {
        let columns = self.columns.iter();
        let has_tail = |meter: Meter| {
            let mut effects = self.attribution.series_effects();
            effects.any(|effect| effect.meter == meter && effect.tail.is_some())
        };
        let name = |meter: Meter| match meter {
            Meter::Time if has_tail(meter) => "typical speed",
            Meter::Cpu if has_tail(meter) => "typical processor speed",
            meter => meter.shown_quantity(),
        };
        columns
            .map(|(meter, places)| (name(*meter), *places))
            .collect()
    }

    /// Returns the meters that have columns.
    pub(super) fn meters(&self) -> Vec<Meter> {
        self.columns.iter().map(|(meter, _)| *meter).collect()
    }

    /// Returns the rows of the patches, the total and the control on one workload.
    pub(super) fn rows_of(&self, workload: &'a str) -> Vec<EffectRow<'a>> {
        let patches = self.attribution.patches.iter().map(|patch| {
            let label = Label::Patch(patch);
            self.row(label, &patch.effects, EffectKind::InOrder, Some(workload))
        });
        let mut rows: Vec<EffectRow<'a>> = patches.collect();
        if !self.attribution.is_of_servers() {
            let total = &self.attribution.total;
            rows.push(self.row(Label::Total, total, EffectKind::Total, Some(workload)));
        }
        rows.extend(self.control_of(Some(workload)));
        rows
    }

    /// Returns whether there are several workloads, so that the main rows are those of the suite.
    pub(super) fn has_suite(&self) -> bool {
        self.columns
            .iter()
            .any(|(meter, _)| self.attribution.main_workload(*meter) == Some(SUITE))
    }

    /// Returns the effects of all rows.
    pub(super) fn effects(&self) -> impl Iterator<Item = &'a Effect> {
        let rows = self.rows.iter().chain(&self.details);
        rows.flat_map(|row| row.effects.iter().copied().flatten())
    }

    /// Returns whether any effect has an interval: single workloads may have one where the suite has none.
    pub(super) fn has_intervals(&self) -> bool {
        self.effects().any(|effect| effect.low.is_some())
    }

    /// Returns the decimals of the first column.
    pub(super) fn places(&self) -> usize {
        self.columns.first().map_or(2, |column| column.1)
    }

    /// Returns the rows of single workloads that are faster or slower in some column.
    pub(super) fn rows_with_effect(&self) -> Vec<&EffectRow<'a>> {
        self.details
            .iter()
            .filter(|row| row.effects.iter().flatten().any(|e| e.is_shown()))
            .collect()
    }

    /// Returns whether the total is faster or slower on a single workload.
    pub(super) fn total_has_cells(&self) -> bool {
        let mut total = self.attribution.total.iter();
        total.any(|effect| effect.workload != SUITE && effect.is_shown() || effect.cells.is_some())
    }

    /// Returns the numbers of rows of single workloads that have no figures, and that have figures without an effect.
    pub(super) fn rows_without_effect(&self) -> (usize, usize) {
        let rows = self.details.iter();
        let effects = rows.map(|row| row.effects.iter().flatten());
        let unknown = effects.clone().filter(|of| of.clone().next().is_none());
        let quiet = effects.filter(|of| {
            let is_quiet = of
                .clone()
                .all(|effect| !effect.is_shown() && effect.executed);
            is_quiet && of.clone().next().is_some()
        });
        (unknown.count(), quiet.count())
    }

    /// Returns the rows of single workloads that do not execute the patch.
    fn unexecuted_rows(&self) -> impl Iterator<Item = &EffectRow<'a>> {
        let unexecuted = |row: &&EffectRow<'_>| row.effects.iter().flatten().any(|e| !e.executed);
        self.details.iter().filter(unexecuted)
    }

    /// Returns whether a row of the report says *not executed*.
    pub(super) fn has_unexecuted(&self) -> bool {
        self.effects().any(|effect| !effect.executed)
    }

    /// Returns the sentence about the workloads that do not execute a patch; `None` if there are none.
    pub(super) fn unexecuted(&self, name: &dyn Fn(&str) -> String) -> Option<String> {
        let mut by_patch: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for row in self.unexecuted_rows() {
            if let Label::Workload(patch, workload) = row.label {
                by_patch
                    .entry(patch.index)
                    .or_default()
                    .push(name(workload));
            }
        }
        let all = self.attribution.workloads.len();
        if all == 1 {
            // The verdict says it.
            return None;
        }
        let noun = self.nouns().one;
        let parts: Vec<String> = by_patch
            .into_iter()
            .map(|(index, workloads)| match workloads.len() {
                count if count == all => format!("{noun} {index} on all workloads"),
                count if count > MOST_NAMED => format!("{noun} {index} on {count} workloads"),
                _ => format!("{noun} {index} on {}", workloads.join(", ")),
            })
            .collect();
        (!parts.is_empty()).then(|| {
            format!(
                "Not executed, so exactly without effect and not timed: {}.",
                parts.join("; ")
            )
        })
    }

    /// Returns the in-order effects that are faster or slower on meters without a column, each with the number of its patch.
    pub(super) fn further(&self) -> Vec<(usize, &'a Effect)> {
        let columns = self.meters();
        let patches = self.attribution.patches.iter();
        let all = patches.flat_map(|patch| patch.effects.iter().map(|of| (patch.index, of)));
        let further = all.filter(|(_, of)| {
            of.kind == EffectKind::InOrder && !columns.contains(&of.meter) && of.is_shown()
        });
        further.collect()
    }

    /// Returns the heading of [`View::further`], without a colon.
    pub(super) fn further_heading(&self) -> String {
        let meters: BTreeSet<Meter> = self.further().iter().map(|(_, of)| of.meter).collect();
        let units = number::units(&meters.into_iter().collect::<Vec<_>>());
        format!("Further meters, where there is an effect. {units}")
    }

    fn row(
        &self,
        label: Label<'a>,
        effects: &'a [Effect],
        kind: EffectKind,
        workload: Option<&str>,
    ) -> EffectRow<'a> {
        let cells: Vec<Option<&Effect>> = self
            .columns
            .iter()
            .map(|&(meter, _)| match workload {
                None => self.attribution.main_effect(effects, kind, meter),
                Some(workload) => effect_on(effects, kind, meter, workload),
            })
            .collect();
        let mut notes = Vec::new();
        let main = cells.first().copied().flatten();
        if let [Some(time), Some(instructions)] = cells[..]
            && time.executed
            && let Some(agreement) = Agreement::of(time, instructions)
        {
            notes.push(agreement.to_string());
        }
        if let Some(words) = main.and_then(|effect| tail::describe(effect, self.places())) {
            // It comes first, as the agreement with instructions is about the typical time.
            notes.insert(0, words);
        }
        notes.extend(main.and_then(on_single_workloads));
        if let Some(effect) = main.filter(|effect| !effect.verdict.is_shown()) {
            notes.extend(open_workloads(effects, effect));
        }
        if let Some(effect) = main {
            notes.extend(self.beside_verdict(effect));
        }
        if let Some(word) = main.and_then(|effect| self.origin_of(effect)) {
            if main.is_some_and(Effect::is_stale) {
                notes = vec![word]
            } else {
                notes.push(word)
            }
        }
        let (verdict, style) = match main.map(|effect| effect.verdict) {
            _ if main.is_some_and(Effect::is_stale) => ("stale", Style::Quiet),
            _ if main.is_some_and(|effect| !effect.executed) => {
                (number::NOT_EXECUTED, Style::Quiet)
            }
            Some(Verdict::Faster) => ("faster", Style::Good),
            Some(Verdict::Slower) => ("slower", Style::Bad),
            Some(Verdict::Mixed) => ("mixed", Style::Bad),
            Some(Verdict::NoEffect) => ("no effect", Style::Quiet),
            Some(Verdict::NoTypicalEffect) => ("no typical effect", Style::Quiet),
            Some(Verdict::Unclear) => ("unclear", Style::Open),
            None => ("no figures", Style::Open),
        };
        EffectRow {
            label,
            effects: cells,
            verdict,
            style,
            notes,
            no_longer_helps: false,
        }
    }

    /// Returns the notes of a row that is not called faster or slower: why not, if its interval excludes 0, and what
    /// could have been detected if it is unclear.
    fn beside_verdict(&self, effect: &Effect) -> Vec<String> {
        let unclear = effect.verdict == Verdict::Unclear;
        let mut notes = Vec::new();
        let is_called = effect.verdict.is_shown();
        if effect.leaves_out_zero() && !is_called && !effect.is_stale() {
            notes.push(not_called(effect).to_owned());
        }
        if effect.verdict == Verdict::NoTypicalEffect {
            notes.extend(tail::not_determined(effect, self.places()));
        }
        if unclear {
            notes.push(match effect.minimum_detectable {
                Some(smallest) => {
                    let smallest = effect.meter.shown(smallest).abs();
                    let smallest = number::plain(smallest, self.places());
                    format!("minimum detectable effect {smallest} %")
                }
                None => no_interval(effect).to_owned(),
            });
        }
        notes
    }

    fn total(&self) -> EffectRow<'a> {
        let attribution = self.attribution;
        let mut row = self.row(Label::Total, &attribution.total, EffectKind::Total, None);
        let full = Point::Step(attribution.patches.len());
        if let Some(effect) = row.effects.iter().flatten().find(|e| e.point != full) {
            row.notes.push(format!(
                "up to {}, the last with figures",
                self.nouns().point(effect.point)
            ));
        }
        row
    }

    /// Returns the row of the control on a workload, or else on the suite or single workload that verdicts are about.
    fn control_of(&self, workload: Option<&str>) -> Option<EffectRow<'a>> {
        let find = |meter: Meter| {
            let workload = match workload {
                Some(workload) => workload,
                None => self.attribution.main_workload(meter)?,
            };
            self.attribution
                .noise
                .control
                .iter()
                .map(|control| &control.effect)
                .find(|e| e.meter == meter && e.workload == workload)
        };
        let effects: Vec<Option<&Effect>> =
            self.columns.iter().map(|(meter, _)| find(*meter)).collect();
        let known: Vec<&&Effect> = effects.iter().flatten().collect();
        if known.is_empty() {
            return None;
        }
        let (verdict, style) = if known.iter().any(|effect| effect.leaves_out_zero()) {
            ("misses 0", Style::Bad)
        } else if known[0].low.is_none() {
            ("unclear", Style::Open)
        } else {
            ("includes 0", Style::Quiet)
        };
        Some(EffectRow {
            label: Label::Control,
            effects,
            verdict,
            style,
            notes: Vec::new(),
            no_longer_helps: false,
        })
    }
}

/// The verdict on a patch that changes more than comments, and of which the server has nothing.
pub(crate) const NOT_IN_SERVER: &str = "not in the server";

/// The note of such a patch whose files the build reads, or may read.
const SAME_PROGRAM: &str = "the same program: the recipe leaves this code out (`#if`, an option, another platform), or it compiles \
    to the same code";

/// The note of a patch that changes comments only, in files whose code contains line numbers.
const LINE_NUMBERS: &str = "changes no code: the binary differs only in line numbers (`__LINE__`)";

/// The note of a patch whose binary differs, but not its code, as that of a patch that changes comments.
const CODE_UNCHANGED: &str = "the binary differs, but none of its functions: only debug information, line numbers, or code that \
    nothing uses";

/// Returns the note of a row whose interval excludes 0 although it is not called faster or slower.
fn not_called(effect: &Effect) -> &'static str {
    if effect.estimate.abs() >= effect.least_claim() {
        "excludes 0 by itself, but not after adjustment for all figures judged together"
    } else if effect.is_of_many_blocks() {
        "excludes 0, but is too small to matter"
    } else {
        "excludes 0, but so few blocks may all miss a state of the server that makes such a difference: measure twelve or more"
    }
}

/// Names the single workloads that keep an effect over all of them from being called no effect: those whose own interval
/// excludes 0, or else those that are not within the margin.
fn open_workloads(effects: &[Effect], suite: &Effect) -> Option<String> {
    let is_beside = |of: &&Effect| {
        (of.kind, of.meter) == (suite.kind, suite.meter) && of.workload != SUITE && !of.is_stale()
    };
    let named = |is_open: fn(&Effect) -> bool| {
        let open = effects.iter().filter(is_beside).filter(|of| is_open(of));
        let names: Vec<&str> = open.map(|of| of.workload.as_str()).collect();
        let is_named = suite.workload == SUITE && !names.is_empty();
        is_named.then(|| listed(&names, MOST_ON_A_ROW))
    };
    if let Some(names) = named(Effect::leaves_out_zero) {
        return Some(format!("by itself, {names} excludes 0"));
    }
    let is_open = suite.verdict == Verdict::Unclear && suite.equivalent;
    let names = named(|of| !of.equivalent).filter(|_| is_open)?;
    Some(format!(
        "no effect over all workloads, but {names} may change by more than the margin"
    ))
}

/// The most workloads that the sentence about unexecuted patches names for each patch.
const MOST_NAMED: usize = 6;

/// Returns the workloads that make the verdict of an effect another than its own figures do: `slower on a, b`.
fn on_single_workloads(effect: &Effect) -> Option<String> {
    let cells = effect.cells.as_ref()?;
    let part = |word: &str, names: &[String], of: Verdict| {
        let adds = !names.is_empty() && cells.own != of;
        adds.then(|| format!("{word} on {}", listed(names, MOST_ON_A_ROW)))
    };
    let parts = [
        part("faster", &cells.faster, Verdict::Faster),
        part("slower", &cells.slower, Verdict::Slower),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (cells.own != effect.verdict).then(|| parts.join(", "))
}

/// The most workloads that a row names.
const MOST_ON_A_ROW: usize = 3;

/// Returns the reason why an effect has no interval.
pub(super) fn no_interval(effect: &Effect) -> &str {
    let is_counted = |meter: Meter| !meter.is_timed() || meter.is_usage();
    if let Some(reason) = &effect.withheld {
        return reason;
    }
    match effect.interval {
        _ if effect.blocks < 2 => "a single block gives no interval",
        _ if is_counted(effect.meter) && effect.blocks < FEWEST_COUNTED => {
            "equal counts of fewer than six starts give no interval"
        }
        StoppingRule::Anytime => "too few blocks to tell before the end",
        _ if effect.unpaired && effect.blocks < 3 => "a single run of each gives no interval",
        _ if effect.unpaired => "a single run, or fewer than six equal readings, give no interval",
        _ => "a single code layout, or blocks that all ran at one time, give no interval",
    }
}
