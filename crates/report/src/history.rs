//! The effects of each patch over releases and time, from many experiments.

mod release;
mod variants;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::document::chart::{ChartContent, Series, axis};
use super::document::{
    Cell, Chart, Document, Drawing, Figure, Ink, Node, Text, heading, key, literal, name,
    paragraph, soft, table, title,
};
use super::number;
use super::text::{clean, short_commit};
use perfquilt_judge::attribution::{Attribution, Effect, EffectKind, SUITE, Verdict, effect_on};
use perfquilt_judge::stats::{Estimate, Interval, change_points, speed};
use perfquilt_model::comparable::{Comparable, Part};
use perfquilt_model::observation::Meter;
use release::ReleaseHistory;
use variants::{BestVariant, best_variants};

/// The history of a series.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct History {
    /// Version of this document: 1.
    pub schema: u32,
    /// The meter of all effects.
    pub meter: Meter,
    /// The patches in the order of the latest series that has them, and the whole series at the end.
    pub patches: Vec<PatchHistory>,
    /// The release itself, by workload.
    pub release: Vec<ReleaseHistory>,
}

/// The history of a patch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PatchHistory {
    /// The patch's name; `None` for the whole series.
    pub name: Option<String>,
    /// Its effects, the earliest first.
    pub moments: Vec<HistoryPoint>,
    /// The best of its variants, where several were measured on the same state of the server.
    pub best: Vec<BestVariant>,
}

/// The effect of a patch in one experiment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HistoryPoint {
    /// The experiment.
    pub experiment: String,
    /// Start time, RFC 3339 in UTC; empty when unknown.
    pub started: String,
    /// The release.
    pub release: String,
    /// The recipe of the points.
    pub recipe: String,
    /// The workload, or several of them in one figure.
    pub workloads: Vec<String>,
    /// Whether all blocks were measured.
    pub complete: bool,
    /// The verdict among all experiments of the history, of which one in twenty without effects has a row that is called
    /// faster or slower.
    pub verdict: Verdict,
    /// The change of the effect that begins with this experiment; `None` without one.
    pub change: Option<HistoryChange>,
    /// The effect: that in order for a patch, the total for the series.
    pub effect: Effect,
}

/// A change of a patch's effect from one experiment to the next, on the same machine and by the same method.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HistoryChange {
    /// Mean effect from the preceding change on, as a fraction of speed.
    pub before: f64,
    /// Mean effect until the next change.
    pub after: f64,
    /// The commits of the workspace between which it lies: the last one before it, and the first one after it.
    pub commits: Option<(String, String)>,
}

/// Experiments by their names, each with its number in chronological order.
type Numbered<'a> = BTreeMap<&'a str, (usize, &'a Attribution)>;

/// Returns the history of `attributions`, the earliest first, on `meter`, of one workload or of the suite or single
/// workload that each one's verdicts are about. Figures that an experiment reuses from an earlier one are left out.
pub fn history(attributions: &[Attribution], meter: Meter, workload: Option<&str>) -> History {
    let mut names: Vec<&str> = Vec::new();
    for patch in attributions.iter().rev().flat_map(|of| &of.patches) {
        if !names.contains(&&*patch.name) {
            names.push(&patch.name);
        }
    }
    let history = |name: Option<&str>| {
        let moments = attributions.iter().filter_map(|of| {
            let (effects, kind) = match name {
                Some(name) => {
                    let patch = of.patches.iter().find(|patch| patch.name == name)?;
                    (&patch.effects, EffectKind::InOrder)
                }
                None => (&of.total, EffectKind::Total),
            };
            history_point(of, effects, kind, meter, workload)
        });
        PatchHistory {
            name: name.map(str::to_owned),
            moments: moments.collect(),
            best: Vec::new(),
        }
    };
    let names = names.into_iter().map(Some).chain([None]);
    let mut patches: Vec<PatchHistory> = names.map(history).collect();
    patches.retain(|patch| !patch.moments.is_empty());
    adjust(&mut patches);
    let numbered = attributions.iter().enumerate();
    let by_name: Numbered<'_> = numbered
        .map(|(place, of)| (of.experiment.as_str(), (place, of)))
        .collect();
    find_changes(&mut patches, &by_name);
    for patch in &mut patches {
        patch.best = best_variants(patch, &by_name);
    }
    History {
        schema: 1,
        meter,
        patches,
        release: release::of_release(attributions, meter, workload),
    }
}

fn history_point(
    attribution: &Attribution,
    effects: &[Effect],
    kind: EffectKind,
    meter: Meter,
    workload: Option<&str>,
) -> Option<HistoryPoint> {
    let effect = match workload {
        None => attribution.main_effect(effects, kind, meter)?,
        Some(workload) => effect_on(effects, kind, meter, workload)?,
    };
    if effect.from().is_some() {
        return None;
    }
    let workloads = match effect.workload.as_str() {
        SUITE => attribution.workloads.clone(),
        one => vec![one.to_owned()],
    };
    Some(HistoryPoint {
        experiment: attribution.experiment.clone(),
        started: attribution.started.clone(),
        release: attribution.release.clone(),
        recipe: attribution.recipe.clone(),
        workloads,
        complete: attribution.is_complete(),
        verdict: effect.verdict,
        change: None,
        effect: effect.clone(),
    })
}

/// Adjusts the verdicts for the number of experiments (Bonferroni): each experiment's own are right in 95 % of experiments,
/// those of the patches together and that of the total.
fn adjust(patches: &mut [PatchHistory]) {
    let moments = patches.iter().flat_map(|patch| &patch.moments);
    let experiments: BTreeSet<String> = moments.map(|of| of.experiment.clone()).collect();
    let all = 2.0 * experiments.len() as f64;
    for moment in patches.iter_mut().flat_map(|patch| &mut patch.moments) {
        let effect = &moment.effect;
        let figures = effect.tail.iter().flat_map(|tail| &tail.figures);
        let p_values = figures.filter_map(|(_, figure)| figure.p_adjusted.or(figure.p_value));
        let p_values = p_values.chain(effect.p_adjusted.or(effect.p_value));
        let least = p_values.fold(1.0, f64::min);
        if effect.is_shown() && least * all > 1.0 - effect.level {
            moment.verdict = if effect.equivalent {
                Verdict::NoEffect
            } else {
                Verdict::Unclear
            };
        }
    }
}

/// Returns what effects on any release must share to be compared.
fn conditions(of: &Attribution) -> Comparable {
    let observed = of.observed().conditions();
    observed.only(|part| *part != Part::Release)
}

/// Finds changes among the finished experiments of each patch. Only experiments on one machine, by one method and of the
/// same workloads are compared.
fn find_changes(patches: &mut [PatchHistory], attributions: &Numbered<'_>) {
    // By patch and setting: the moments' places, and their estimates.
    let mut rows: BTreeMap<_, (Vec<usize>, Vec<Estimate>)> = BTreeMap::new();
    for (patch, history) in patches.iter().enumerate() {
        for (place, moment) in history.moments.iter().enumerate() {
            let Some(&(experiment, of)) = attributions.get(moment.experiment.as_str()) else {
                continue;
            };
            if let Some(interval) = moment.estimate() {
                let setting = (conditions(of), moment.workloads.clone());
                let (places, estimates) = rows.entry((patch, setting)).or_default();
                places.push(place);
                estimates.push(Estimate {
                    experiment,
                    interval,
                });
            }
        }
    }
    let estimates: Vec<Vec<Estimate>> = rows.values().map(|(_, of)| of.clone()).collect();
    let found = change_points(&estimates);
    for (((patch, _), (places, _)), changes) in rows.iter().zip(found) {
        let moments = &mut patches[*patch].moments;
        for change in changes {
            let commit = |place: usize| {
                let (_, of) = attributions.get(moments[place].experiment.as_str())?;
                of.commit.clone()
            };
            let (last, first) = (places[change.index - 1], places[change.index]);
            let commits = commit(last).zip(commit(first));
            moments[first].change = Some(HistoryChange {
                before: speed(change.before),
                after: speed(change.after),
                commits,
            });
        }
    }
}

impl HistoryPoint {
    /// Returns the estimate that others are compared with: of a finished experiment that shows its error.
    fn estimate(&self) -> Option<Interval> {
        let basis = self.effect.basis;
        basis.filter(|basis| self.complete && basis.half_width.is_finite())
    }

    /// Returns the start time for display: date and minutes.
    pub(super) fn day(&self) -> String {
        let minutes = self.started.get(..16).unwrap_or(&self.started);
        literal(&minutes.replace('T', " "))
    }

    /// Returns the workload, or the number of workloads, of the figure.
    pub(super) fn scope(&self) -> String {
        match &self.workloads[..] {
            [one] => literal(one),
            several => format!("{} workloads", several.len()),
        }
    }

    /// Returns the verdict, marked if the experiment is unfinished.
    pub(super) fn verdict(&self) -> String {
        let open = if self.complete { "" } else { " (unfinished)" };
        if self.effect.executed {
            format!("{}{open}", self.verdict)
        } else {
            format!("{}{open}", number::NOT_EXECUTED)
        }
    }

    /// Returns the change that begins here, in words.
    pub(super) fn change(&self, meter: Meter, places: usize) -> Option<String> {
        let change = self.change.as_ref()?;
        let percent = |fraction| number::signed(meter.shown(fraction), places);
        let commits = change
            .commits
            .as_ref()
            .map_or_else(String::new, |(last, first)| {
                format!(
                    ", between the commits {} and {}",
                    literal(short_commit(last)),
                    literal(short_commit(first))
                )
            });
        Some(format!(
            "changed: {} % before, {} % since{commits}",
            percent(change.before),
            percent(change.after)
        ))
    }
}

impl PatchHistory {
    pub(super) fn title(&self) -> String {
        self.name
            .as_deref()
            .map_or("the whole series".to_owned(), clean)
    }
}

impl History {
    /// Returns the decimals of all its figures.
    pub(super) fn places(&self) -> usize {
        let moments = self.patches.iter().flat_map(|patch| &patch.moments);
        number::decimals(self.meter, moments.map(|moment| &moment.effect))
    }

    /// Returns the document: each patch over releases and time.
    pub fn document(&self) -> Document {
        let mut nodes = vec![title("Effects of the patches over releases and time")];
        if self.patches.is_empty() {
            nodes.push(paragraph(format!(
                "No stored experiment has figures of {}.",
                self.meter
            )));
            return Document(nodes);
        }
        nodes.push(soft(format!(
            "{}, one figure per experiment, each against the state before the patch. Experiments differ in release, \
             workloads and machine.",
            number::units(&[self.meter])
        )));
        nodes.push(heading("Patches"));
        let (experiments, releases) = (self.experiments(), self.releases());
        let patches = self.patches.iter();
        let drawings = patches.map(|patch| self.drawing(patch, &experiments, &releases));
        nodes.push(Node::Drawings(drawings.collect()));
        nodes.extend(release::section(&self.release, self.meter));
        Document(nodes)
    }

    fn drawing(
        &self,
        patch: &PatchHistory,
        experiments: &[&str],
        releases: &[(&str, Ink)],
    ) -> Drawing {
        let places = self.places();
        let about = format!("{}, {} over time", patch.title(), self.meter);
        let here = |release: &str| patch.moments.iter().any(|m| m.release == release);
        let releases = releases.iter().filter(|(release, _)| here(release));
        let keys = releases
            .clone()
            .map(|(release, ink)| key(*ink, true, release));
        let words = Text::from(" Experiments from the earliest on; lines are intervals.");
        let of = |(release, ink): &(&str, Ink)| points(patch, experiments, release, *ink);
        let table = patch.table(&about, experiments, (self.meter, places));
        let best = patch.best.iter().map(|best| paragraph(best.text(places)));
        let content = ChartContent::Series("experiment", releases.map(of).collect());
        let chart = Chart::new(about, axis(&[self.meter]), content);
        let title = patch.name.as_deref();
        let mut drawing = Drawing::new(chart, table)
            .heading(title.map_or("the whole series".to_owned(), name))
            .caption(Text::joined(keys.chain([words]), ""));
        drawing.below.extend(best);
        drawing
    }
}

impl PatchHistory {
    fn table(&self, about: &str, experiments: &[&str], (meter, places): (Meter, usize)) -> Node {
        table(about, &self.moments)
            .figures("#", |of| place(experiments, &of.experiment).to_string())
            .words("began", |of| of.day())
            .names("release", |of| {
                let recipe = match of.recipe.as_str() {
                    "" => String::new(),
                    recipe => format!(", {}", literal(recipe)),
                };
                format!("{}{recipe}", literal(&of.release))
            })
            .words("workloads", |of| of.scope())
            .figures("effect", |of| Figure::of(&of.effect, places))
            .words("verdict", |of| {
                // The change is between the preceding row and this one.
                let change = of.change(meter, places).unwrap_or_default();
                Cell::from(of.verdict()).remark(change)
            })
            .words("experiment", |of| name(&of.experiment))
            .optional(true)
            .node()
    }
}

impl History {
    /// Returns the experiments in chronological order, which gives their numbers in all drawings.
    fn experiments(&self) -> Vec<&str> {
        let moments = self.patches.iter().flat_map(|patch| &patch.moments);
        let found = moments.map(|m| (m.started.as_str(), m.experiment.as_str()));
        let found: BTreeSet<(&str, &str)> = found.collect();
        found.into_iter().map(|(_, name)| name).collect()
    }

    /// Returns the releases, each with its colour; from the fourth on, they share one.
    fn releases(&self) -> Vec<(&str, Ink)> {
        let moments = self.patches.iter().flat_map(|patch| &patch.moments);
        let found: BTreeSet<&str> = moments.map(|m| m.release.as_str()).collect();
        let inks = [Ink::First, Ink::Second, Ink::Third];
        let inks = inks.into_iter().chain(std::iter::repeat(Ink::Fourth));
        found.into_iter().zip(inks).collect()
    }
}

/// Returns the number of an experiment.
fn place(experiments: &[&str], experiment: &str) -> usize {
    let place = experiments.iter().position(|name| *name == experiment);
    place.map_or(0, |place| place + 1)
}

fn points(patch: &PatchHistory, experiments: &[&str], release: &str, ink: Ink) -> Series {
    let percent = |fraction: f64| 100.0 * fraction;
    // Code that was not executed was not measured; the table says so.
    let shown = |m: &&HistoryPoint| m.release == release && m.effect.executed;
    let moments = patch.moments.iter().filter(shown);
    Series {
        ink,
        joined: false,
        points: moments
            .map(|moment| {
                let shown = moment.effect.shown();
                let ends = shown
                    .ends()
                    .map(|(low, high)| (percent(low), percent(high)));
                let at = place(experiments, &moment.experiment) as f64;
                (at, percent(shown.estimate), ends)
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Experiment;
    use crate::text::width;
    use perfquilt_judge::attribution::attribute;

    fn series(release: &str, started: &str, gains: &[(f64, f64)]) -> Attribution {
        let mut experiment = Experiment::new(gains);
        experiment.header.release = release.into();
        experiment.header.started = started.into();
        experiment.attribution()
    }

    #[test]
    fn a_patch_is_followed_over_releases() {
        let all = [
            series("srv-1", "2026-01-02T03:04:05Z", &[(0.02, 0.01)]),
            series(
                "srv-2",
                "2026-02-02T03:04:05Z",
                &[(0.03, 0.01), (-0.01, 0.0)],
            ),
        ];
        let history = history(&all, Meter::Time, None);
        let names: Vec<_> = history.patches.iter().map(|c| c.name.as_deref()).collect();
        let both = "0001-string-append.patch";
        assert_eq!(
            names,
            [Some(both), Some("0002-virtual-field-guards.patch"), None]
        );
        let releases = |patch: &PatchHistory| -> Vec<String> {
            patch.moments.iter().map(|m| m.release.clone()).collect()
        };
        assert_eq!(releases(&history.patches[0]), ["srv-1", "srv-2"]);
        assert_eq!(releases(&history.patches[1]), ["srv-2"]);
        let stored =
            all[1].main_effect(&all[1].patches[0].effects, EffectKind::InOrder, Meter::Time);
        assert_eq!(Some(&history.patches[0].moments[1].effect), stored);
        for columns in [20, 40, 80, 200] {
            let text = history.document().terminal(columns, false);
            assert_eq!(text.matches("2 workloads").count(), 5, "{text}");
            let widest = text.lines().map(width).max().unwrap();
            assert!(widest <= columns.max(40), "{text}");
        }
        let markdown = history.document().markdown();
        assert_eq!(markdown.matches("\n#### ").count(), 3, "{markdown}");
        assert_eq!(
            markdown.matches(" | 2 workloads | ").count(),
            5,
            "{markdown}"
        );
        let page = history.document().html().unwrap();
        assert_eq!(page.matches("<svg role=\"img\"").count(), 3);
        assert_eq!(page.matches("<data value=").count(), 5, "{page}");
        let one = super::history(&all, Meter::Time, Some("oltp_read_only"));
        assert!(
            one.document()
                .terminal(80, false)
                .contains("oltp_read_only")
        );
        assert_eq!(super::history(&all, Meter::Cpu, None).patches, []);
    }

    #[test]
    fn every_form() {
        let all = [
            series("srv-1", "2026-01-02T03:04:05Z", &[(0.02, 0.01)]),
            series(
                "srv-2",
                "2026-02-02T03:04:05Z",
                &[(0.03, 0.01), (-0.01, 0.0)],
            ),
        ];
        let history = history(&all, Meter::Time, None);
        insta::assert_snapshot!(crate::tests::forms(&[
            ("40 columns", history.document().terminal(40, false)),
            ("80 columns", history.document().terminal(80, true)),
            ("Markdown", history.document().markdown()),
            ("page", history.document().html().unwrap()),
        ]));
    }

    /// SplitMix64's finaliser: seeds that follow each other give sequences that have nothing in common.
    fn mixed(seed: u64) -> u64 {
        let mut z = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) | 1
    }

    /// Thirty experiments of one series, whose patch is worth `gain`, and whose release costs `cost` times as much, from the
    /// twelfth on.
    fn thirty(gain: f64, cost: f64, seed: u64) -> History {
        let all: Vec<Attribution> = (0..30u64)
            .map(|number| {
                let (gain, cost) = if number >= 12 {
                    (gain, cost)
                } else {
                    (0.0, 1.0)
                };
                let mut experiment = Experiment::new(&[(gain, 0.0)]);
                experiment.seed = mixed(1 + seed * 1000 + number);
                experiment.header.experiment = format!("series-{number}");
                experiment.header.started = format!("2026-03-{:02}T03:04:05Z", number + 1);
                experiment.header.commit = Some(format!("{number:02}").repeat(20));
                let mut observations = experiment.observations();
                for observation in &mut observations {
                    observation.value *= cost;
                }
                attribute(&experiment.header, &observations, &|_| 0.005).unwrap()
            })
            .collect();
        history(&all, Meter::Time, None)
    }

    fn is_false(history: &History) -> bool {
        let mut moments = history.patches.iter().flat_map(|patch| &patch.moments);
        moments.any(|moment| moment.verdict.is_shown() || moment.change.is_some())
    }

    #[test]
    fn a_history_of_unchanged_releases_has_hardly_ever_a_false_row() {
        let wrong = (0..40)
            .filter(|&seed| is_false(&thirty(0.0, 1.0, seed)))
            .count();
        // 5 % of 40 are 2; each experiment's own verdicts would be wrong in 28 of them.
        assert!(wrong <= 5, "{wrong}");
    }

    #[test]
    fn a_change_is_marked_where_it_begins() {
        let history = thirty(0.01, 1.0, 3);
        let moments = &history.patches[0].moments;
        let changed: Vec<usize> = (0..30).filter(|&at| moments[at].change.is_some()).collect();
        assert!(
            changed.len() == 1 && (11..=13).contains(&changed[0]),
            "{changed:?}"
        );
        let text = history.document().terminal(80, false);
        assert!(text.contains("changed: "), "{text}");
        let id = |at: usize| format!("{at:02}").repeat(20);
        let commits = moments[changed[0]].change.as_ref().unwrap().commits.clone();
        assert_eq!(commits, Some((id(changed[0] - 1), id(changed[0]))));
        let page = history.document().html().unwrap();
        assert!(page.contains("% since"), "{page}");
        assert!(text.contains("Its own speed has no change over 30 experiments."));
    }

    #[test]
    fn a_release_that_got_slower_is_found_between_two_experiments() {
        let history = thirty(0.0, 1.05, 4);
        assert!(!is_false(&history));
        assert_eq!(history.release.len(), 2);
        for row in &history.release {
            assert_eq!((row.experiments, row.changes.len()), (30, 1), "{row:?}");
            let change = &row.changes[0];
            assert!((change.estimate + 0.0476).abs() < 0.002, "{change:?}");
            assert_eq!(change.before.experiment, "series-11");
            assert_eq!(change.after.commit, Some("12".repeat(20)));
        }
        let text = history.document().terminal(200, false);
        let words = "% between series-11 (mariadb-10.11.18, commit 111111111111) and series-12";
        assert_eq!(text.matches(words).count(), 2, "{text}");
    }
}
