//! What a report shows, in words, before it takes a form: headline, rows and notes of one attribution.

use crate::attribution::{
    Agreement, Attribution, Effect, Kind, PatchEffects, SUITE, Stopping, Verdict,
};
use crate::observation::Meter;
use crate::point::Point;

use super::number;

/// A report without form. Names in it are raw: the form must make them harmless.
pub(super) struct View<'a> {
    pub(super) attribution: &'a Attribution,
    /// The meters with a column of their own, and the decimals of each.
    pub(super) columns: Vec<(Meter, usize)>,
    /// The patches, the total, the control.
    pub(super) rows: Vec<Row<'a>>,
    /// Single workloads and further meters, in the order of the patches.
    pub(super) details: Vec<Row<'a>>,
    /// The patches apart from each other, by meter; empty unless such points were asked for.
    pub(super) apart: Vec<Apart<'a>>,
}

/// What the tables of [`Apart`] show.
pub(super) const APART: &str = "Each patch in order, alone on the bare release, and as the whole series against the series without it";

/// A meter's table of the patches' effects in order, alone and without: one column each.
pub(super) struct Apart<'a> {
    pub(super) meter: Meter,
    pub(super) places: usize,
    pub(super) rows: Vec<Row<'a>>,
}

impl Apart<'_> {
    /// The heads of its columns.
    pub(super) const HEADS: [&'static str; 3] = ["in order", "alone", "without"];
    /// The place of the last of them.
    pub(super) const WITHOUT: usize = 2;
}

/// One line of a table.
pub(super) struct Row<'a> {
    pub(super) label: Label<'a>,
    /// One a column.
    pub(super) effects: Vec<Option<&'a Effect>>,
    pub(super) verdict: &'static str,
    pub(super) tone: Tone,
    /// What else must be said of it, each a fragment.
    pub(super) notes: Vec<String>,
}

/// What a row is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label<'a> {
    Patch {
        index: usize,
        name: &'a str,
        title: &'a str,
    },
    Total,
    Control,
    /// A patch on one workload.
    Workload {
        index: usize,
        name: &'a str,
        workload: &'a str,
    },
}

/// How a row should strike the eye.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Good,
    Bad,
    Open,
    Quiet,
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
            .map(|&meter| (meter, number::decimals(meter, shown(attribution, meter))))
            .collect();
        let mut view = View {
            attribution,
            columns,
            rows: Vec::new(),
            details: Vec::new(),
            apart: Vec::new(),
        };
        for patch in &attribution.patches {
            view.rows.push(view.patch(patch));
        }
        view.rows.push(view.total());
        view.rows.extend(view.control_of(None));
        for (position, patch) in attribution.patches.iter().enumerate() {
            for workload in &attribution.workloads {
                let label = Label::Workload {
                    index: patch.index,
                    name: &patch.name,
                    workload,
                };
                let mut row = view.row(label, &patch.effects, Kind::InOrder, Some(workload));
                // What the patch's own row says need not be said again.
                row.notes
                    .retain(|note| !view.rows[position].notes.contains(note));
                view.details.push(row);
            }
        }
        view.apart = view.apart();
        view
    }

    fn apart(&self) -> Vec<Apart<'a>> {
        let asked = |patch: &PatchEffects| {
            let separate = [Point::Alone(patch.index), Point::Without(patch.index)];
            let failed = &self.attribution.failed;
            separate.iter().any(|point| failed.contains_key(point))
                || patch
                    .effects
                    .iter()
                    .any(|effect| matches!(effect.kind, Kind::Alone | Kind::Without))
        };
        let patches: Vec<&PatchEffects> = self
            .attribution
            .patches
            .iter()
            .filter(|patch| asked(patch))
            .collect();
        if patches.is_empty() {
            return Vec::new();
        }
        let table = |&(meter, places): &(Meter, usize)| Apart {
            meter,
            places,
            rows: patches
                .iter()
                .map(|patch| self.patch_apart(patch, meter, places))
                .collect(),
        };
        self.columns.iter().map(table).collect()
    }

    fn patch_apart(&self, patch: &'a PatchEffects, meter: Meter, places: usize) -> Row<'a> {
        let of = |kind| self.attribution.main_effect(&patch.effects, kind, meter);
        let mut notes = Vec::new();
        for (point, word) in [
            (Point::Alone(patch.index), "alone"),
            (Point::Without(patch.index), "without"),
        ] {
            if let Some(reason) = self.attribution.failed.get(&point) {
                notes.push(format!("{word}: {reason}"));
            }
        }
        if let Some(interaction) = of(Kind::Interaction).filter(|effect| effect.is_shown()) {
            let (by, why) = match interaction.verdict {
                Verdict::Faster => ("more", "patches behind it do part of the same"),
                _ => ("less", "patches behind it build on it"),
            };
            notes.push(format!(
                "worth {} % {by} in order than without: {why}",
                number::plain(interaction.estimate.abs(), places)
            ));
        }
        Row {
            label: Label::Patch {
                index: patch.index,
                name: &patch.name,
                title: "",
            },
            effects: [Kind::InOrder, Kind::Alone, Kind::Without].map(of).to_vec(),
            verdict: "",
            tone: Tone::Quiet,
            notes,
        }
    }

    fn patch(&self, patch: &'a PatchEffects) -> Row<'a> {
        let label = Label::Patch {
            index: patch.index,
            name: &patch.name,
            title: &patch.title,
        };
        let mut row = self.row(label, &patch.effects, Kind::InOrder, None);
        if let Some(reason) = &patch.reason {
            let point = Point::Step(patch.index);
            (row.verdict, row.tone) = match self.attribution.failed.contains_key(&point) {
                true => ("failed", Tone::Bad),
                false => ("no figures", Tone::Open),
            };
            row.notes.push(reason.clone());
        } else if let Some(point) = patch.identical_to {
            if row.effects.iter().flatten().all(|effect| effect.identical) {
                (row.verdict, row.tone) = ("no effect", Tone::Quiet);
            }
            let again = format!("the binary of {} again, not measured", words_of(point));
            row.notes.insert(0, again);
        }
        let before = Point::Step(patch.index - 1);
        if let Some(effect) = row.effects.iter().flatten().find(|e| e.against != before) {
            row.notes.push(format!(
                "against {}, the last before it with figures",
                words_of(effect.against)
            ));
        }
        row
    }

    /// The patches, the total and the control on one workload.
    pub(super) fn rows_of(&self, workload: &'a str) -> Vec<Row<'a>> {
        let patches = self.attribution.patches.iter().map(|patch| {
            let label = Label::Workload {
                index: patch.index,
                name: &patch.name,
                workload,
            };
            self.row(label, &patch.effects, Kind::InOrder, Some(workload))
        });
        let total = &self.attribution.total;
        let total = self.row(Label::Total, total, Kind::Total, Some(workload));
        let mut rows: Vec<Row<'a>> = patches.chain([total]).collect();
        rows.extend(self.control_of(Some(workload)));
        rows
    }

    /// Whether there is more than one workload, so that the main rows are of the suite.
    pub(super) fn has_suite(&self) -> bool {
        self.columns
            .iter()
            .any(|(meter, _)| self.attribution.main_workload(*meter) == Some(SUITE))
    }

    /// Whether any patch has an interval, so that something can be said about effects.
    pub(super) fn has_intervals(&self) -> bool {
        let effects = self
            .rows
            .iter()
            .flat_map(|row| row.effects.iter().flatten());
        effects.into_iter().any(|effect| effect.low.is_some())
    }

    /// The rows of single workloads whose effect is faster or slower on some column.
    pub(super) fn striking(&self) -> Vec<&Row<'a>> {
        self.details
            .iter()
            .filter(|row| row.effects.iter().flatten().any(|e| e.is_shown()))
            .collect()
    }

    /// The in-order effects on meters without a column that are faster or slower, as text with the
    /// patch's number.
    pub(super) fn further(&self) -> Vec<(usize, Meter, &'a Effect)> {
        let columns: Vec<Meter> = self.columns.iter().map(|(meter, _)| *meter).collect();
        self.attribution
            .patches
            .iter()
            .flat_map(|patch| {
                patch
                    .effects
                    .iter()
                    .map(move |effect| (patch.index, effect))
            })
            .filter(|(_, e)| e.kind == Kind::InOrder && !columns.contains(&e.meter))
            .filter(|(_, e)| e.is_shown())
            .map(|(index, effect)| (index, effect.meter, effect))
            .collect()
    }

    fn row(
        &self,
        label: Label<'a>,
        effects: &'a [Effect],
        kind: Kind,
        workload: Option<&str>,
    ) -> Row<'a> {
        let cells: Vec<Option<&Effect>> = self
            .columns
            .iter()
            .map(|&(meter, _)| match workload {
                None => self.attribution.main_effect(effects, kind, meter),
                Some(workload) => effects
                    .iter()
                    .find(|e| e.kind == kind && e.meter == meter && e.workload == workload),
            })
            .collect();
        let mut notes = Vec::new();
        let main = cells.first().copied().flatten();
        if let [Some(time), Some(instructions)] = cells[..]
            && let Some(agreement) = Agreement::of(time, instructions)
        {
            notes.push(agreement.words().to_owned());
        }
        if let Some(effect) = main.filter(|effect| effect.verdict == Verdict::Unclear) {
            notes.push(self.could_have_seen(effect));
        }
        if let Some(word) = main.and_then(|effect| self.origin_of(effect)) {
            match main.is_some_and(Effect::is_stale) {
                // What it would say was said elsewhere.
                true => notes = vec![word],
                false => notes.push(word),
            }
        }
        let (verdict, tone) = match main.map(|effect| effect.verdict) {
            _ if main.is_some_and(Effect::is_stale) => ("stale", Tone::Quiet),
            Some(Verdict::Faster) => ("faster", Tone::Good),
            Some(Verdict::Slower) => ("slower", Tone::Bad),
            Some(Verdict::NoEffect) => ("no effect", Tone::Quiet),
            Some(Verdict::Unclear) => ("unclear", Tone::Open),
            None => ("no figures", Tone::Open),
        };
        Row {
            label,
            effects: cells,
            verdict,
            tone,
            notes,
        }
    }

    fn could_have_seen(&self, effect: &Effect) -> String {
        let chance = match effect.leaves_out_zero() {
            true => "one such row among so many is to be expected by chance; ",
            false => "",
        };
        match effect.minimum_detectable {
            Some(smallest) => {
                let places = self.columns.first().map_or(2, |column| column.1);
                format!(
                    "{chance}{} % or more would have been seen",
                    number::plain(smallest, places)
                )
            }
            None => no_interval(effect).to_owned(),
        }
    }

    fn total(&self) -> Row<'a> {
        let attribution = self.attribution;
        let mut row = self.row(Label::Total, &attribution.total, Kind::Total, None);
        let full = Point::Step(attribution.patches.len());
        if let Some(effect) = row.effects.iter().flatten().find(|e| e.point != full) {
            row.notes.push(format!(
                "up to {}, the last with figures",
                words_of(effect.point)
            ));
        }
        row
    }

    /// The control on a workload, or on what verdicts are about.
    fn control_of(&self, workload: Option<&str>) -> Option<Row<'a>> {
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
        let (verdict, tone) = if known.iter().any(|effect| effect.leaves_out_zero()) {
            ("misses 0", Tone::Bad)
        } else if known.iter().all(|effect| effect.low.is_none()) {
            ("unclear", Tone::Open)
        } else {
            ("holds 0", Tone::Quiet)
        };
        Some(Row {
            label: Label::Control,
            effects,
            verdict,
            tone,
            notes: Vec::new(),
        })
    }

    /// The verdict on the series in one sentence without full stop.
    pub(super) fn headline(&self) -> String {
        let attribution = self.attribution;
        let text = match self.unfinished() {
            Some(progress) => format!("{progress}: "),
            None => String::new(),
        };
        let Some((meter, places)) = self.columns.first().copied() else {
            return sentence_after(text, "nothing was measured");
        };
        let Some(total) = attribution.main_effect(&attribution.total, Kind::Total, meter) else {
            let sentence = match attribution.failed.get(&Point::BASE) {
                Some(_) => "no figure for the series: the bare release failed",
                None if attribution.progress.iter().all(|p| p.done == 0) => {
                    "nothing is measured yet"
                }
                None if self.has_intervals() => {
                    "no figure for the series: the bare release was not measured with it"
                }
                None => "no figure for the series: no patch has figures",
            };
            return sentence_after(text, sentence);
        };
        let all = attribution.patches.len();
        let subject = match total.point {
            Point::Step(k) if k == all => "the series".to_owned(),
            Point::Step(1) => "patch 1 alone".to_owned(),
            Point::Step(k) => format!("the series up to patch {k}"),
            _ => "the series".to_owned(),
        };
        let counted = match meter {
            Meter::Time => String::new(),
            meter => format!(" counted in {meter}"),
        };
        let interval = match (total.low, total.high) {
            (Some(low), Some(high)) => {
                let (low, high) = match total.verdict {
                    Verdict::Slower => (-high, -low),
                    _ => (low, high),
                };
                let show = |value| match total.verdict {
                    Verdict::Faster | Verdict::Slower => number::plain(value, places),
                    _ => number::signed(value, places),
                };
                let level = 100.0 * total.level;
                format!(" ({level:.0} % interval {} to {} %)", show(low), show(high))
            }
            _ => String::new(),
        };
        let size = number::plain(total.estimate.abs(), places);
        let sentence = match total.verdict {
            _ if total.identical => format!("{subject} leaves the binary as it is"),
            _ if total.is_stale() => format!(
                "what {subject} does is not measured here yet; before it was {} %{interval}",
                number::signed(total.estimate, places)
            ),
            Verdict::Faster => format!("{subject} is {size} % faster{counted}{interval}"),
            Verdict::Slower => format!("{subject} is {size} % slower{counted}{interval}"),
            Verdict::NoEffect => format!(
                "{subject} has no effect{counted} beyond ±{}{interval}",
                number::margin(attribution.margins[&meter])
            ),
            Verdict::Unclear if total.low.is_none() => {
                format!(
                    "unclear what {subject} does{counted}: {}",
                    no_interval(total)
                )
            }
            Verdict::Unclear => format!("unclear what {subject} does{counted}{interval}"),
        };
        sentence_after(text, &sentence)
    }

    /// How many patches got which verdict; `name` makes a patch's name fit for the form.
    pub(super) fn tally(&self, name: &dyn Fn(&str) -> String) -> String {
        let patches: Vec<(&Row<'_>, &str)> = self
            .rows
            .iter()
            .filter_map(|row| match row.label {
                Label::Patch { name, .. } => Some((row, name)),
                _ => None,
            })
            .collect();
        let of = |verdict: &str| -> Vec<&str> {
            patches
                .iter()
                .filter(|(row, _)| row.verdict == verdict)
                .map(|(_, name)| *name)
                .collect()
        };
        let mut parts = Vec::new();
        for verdict in [
            "faster",
            "slower",
            "no effect",
            "unclear",
            "stale",
            "failed",
            "no figures",
        ] {
            let names = of(verdict);
            if names.is_empty() {
                continue;
            }
            let mut part = match verdict {
                "no figures" => format!("{} without figures", names.len()),
                verdict => format!("{} {verdict}", names.len()),
            };
            if ["slower", "failed"].contains(&verdict) {
                let names: Vec<String> = names.iter().take(3).map(|n| name(n)).collect();
                part.push_str(&format!(" ({})", names.join(", ")));
            }
            parts.push(part);
        }
        match patches.len() {
            0 => "The series has no patches".to_owned(),
            1 => format!("1 patch: {}", parts.join(", ")),
            n => format!("{n} patches: {}", parts.join(", ")),
        }
    }

    /// What the figures are of: `18 blocks of oltp_read_only`.
    pub(super) fn scope(&self, name: &dyn Fn(&str) -> String) -> String {
        let names: Vec<String> = self.attribution.workloads.iter().map(|w| name(w)).collect();
        let workloads = match names.len() {
            0 => return "no workload".to_owned(),
            1..=3 => names.join(", "),
            n => format!("{} and {} more workloads", names[..2].join(", "), n - 2),
        };
        let planned = |p: &crate::attribution::Progress| p.planned == Some(0);
        if self.attribution.progress.iter().all(planned) {
            return format!("{workloads}; nothing was measured anew");
        }
        let blocks: Vec<String> = self
            .columns
            .iter()
            .map(|&(meter, _)| {
                let (done, _) = self.blocks_of(meter);
                format!("{done} of {meter}")
            })
            .collect();
        format!("{workloads}; blocks: {}", blocks.join(", "))
    }

    /// The fewest blocks any workload has of `meter`, and the most that are planned.
    fn blocks_of(&self, meter: Meter) -> (u32, Option<u32>) {
        let of_meter = || {
            self.attribution
                .progress
                .iter()
                .filter(|p| p.meter == meter)
        };
        (
            of_meter().map(|p| p.done).min().unwrap_or(0),
            of_meter().filter_map(|p| p.planned).max(),
        )
    }

    /// `After 3 of 12 blocks`, while blocks are missing.
    fn unfinished(&self) -> Option<String> {
        if self.attribution.is_complete() {
            return None;
        }
        let open: Vec<String> = self
            .attribution
            .margins
            .keys()
            .filter_map(|&meter| {
                let (done, planned) = self.blocks_of(meter);
                let mut of_meter = self
                    .attribution
                    .progress
                    .iter()
                    .filter(|p| p.meter == meter);
                let planned = planned.filter(|_| of_meter.any(|p| !p.ended))?;
                let stops = |stopping: &Stopping| stopping.meter == meter;
                let most = match self.attribution.stopping.as_ref().is_some_and(stops) {
                    true => "at most ",
                    false => "",
                };
                Some(match self.attribution.main_meter() == Some(meter) {
                    true => format!("{done} of {most}{planned} blocks"),
                    false => format!("{done} of {most}{planned} of {meter}"),
                })
            })
            .collect();
        Some(format!("After {}", open.join(" and ")))
    }
}

fn shown(attribution: &Attribution, meter: Meter) -> impl Iterator<Item = &Effect> {
    attribution
        .patches
        .iter()
        .flat_map(|patch| &patch.effects)
        .chain(&attribution.total)
        .filter(move |effect| effect.meter == meter)
}

/// Why an effect has no interval.
fn no_interval(effect: &Effect) -> &'static str {
    match effect.blocks {
        0 | 1 => "a single block tells no interval",
        _ => "too few blocks to tell before the end",
    }
}

/// A point as a reader of a report knows it.
pub(super) fn words_of(point: Point) -> String {
    match point {
        Point::BASE => "the bare release".to_owned(),
        Point::Step(k) => format!("patch {k}"),
        Point::Alone(k) => format!("patch {k} alone"),
        Point::Without(k) => format!("the series without patch {k}"),
        Point::Control => "the control".to_owned(),
    }
}

/// A sentence behind its introduction, or with a capital letter when there is none.
fn sentence_after(introduction: String, sentence: &str) -> String {
    let mut chars = sentence.chars();
    match chars.next() {
        Some(first) if introduction.is_empty() => first.to_uppercase().chain(chars).collect(),
        _ => introduction + sentence,
    }
}
