//! The summary sentences of a report: headline, tally and scope.

use super::escape::is_inert;
use super::number;
use super::text::capital;
use super::view::{EffectRow, NOT_IN_SERVER, View, no_interval};
use perfquilt_judge::attribution::{Effect, EffectKind, Progress, Verdict, effect_on};
use perfquilt_model::observation::Meter;
use perfquilt_model::point::Point;

impl View<'_> {
    /// Returns the verdict on the series in one sentence without full stop, or that on servers; `name` escapes a server's
    /// name for the format, and returns nothing where no name may stand.
    pub(super) fn headline(&self, name: &dyn Fn(&str) -> String) -> String {
        let attribution = self.attribution;
        let text = match self.unfinished() {
            Some(progress) => format!("{progress}: "),
            None => String::new(),
        };
        let Some((meter, places)) = self.columns.first().copied() else {
            return sentence_after(text, "nothing was measured");
        };
        let base = self.base(name);
        let servers = attribution.is_of_servers();
        let Some(total) = attribution.main_effect(&attribution.total, EffectKind::Total, meter)
        else {
            if servers {
                return sentence_after(text, &self.of_servers(&base));
            }
            let sentence = match attribution.failed.get(&Point::BASE) {
                Some(_) => "no figure for the series: the bare release failed",
                None if attribution.progress.iter().all(|p| p.done == 0) => {
                    "nothing is measured yet"
                }
                None if attribution.patches.is_empty() => {
                    "no figure for the series: it has no patches"
                }
                None if self.has_suite() && attribution.total.iter().any(|e| e.meter == meter) => {
                    "no figure for the series over all workloads"
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
            Point::Step(k) if servers => self.server(k, name),
            Point::Step(k) if k == all => "the series".to_owned(),
            Point::Step(1) => "patch 1 alone".to_owned(),
            Point::Step(k) => format!("the series up to patch {k}"),
            _ => "the series".to_owned(),
        };
        let shown = total.shown();
        let places = number::enough_decimals(shown.ends(), places);
        // What the mean or the tail alone shows has another size than the typical time.
        let is_typical = total.typical() == total.own_verdict();
        let interval = match shown.ends() {
            Some((low, high)) => {
                // A sentence with a word for the direction has no sign.
                let turned = match total.own_verdict() {
                    _ if !is_typical => false,
                    Verdict::Faster => !meter.is_shown_as_speed(),
                    Verdict::Slower => meter.is_shown_as_speed(),
                    _ => false,
                };
                let (low, high) = if turned { (-high, -low) } else { (low, high) };
                let show = |value| match total.own_verdict() {
                    Verdict::Faster | Verdict::Slower if is_typical => number::plain(value, places),
                    _ => number::signed(value, places),
                };
                let level = 100.0 * total.level;
                format!(" ({level:.0} % interval {} to {} %)", show(low), show(high))
            }
            _ => String::new(),
        };
        let size = number::plain(shown.estimate.abs(), places);
        let typically = number::signed(shown.estimate, places);
        let words = DirectionWords::of(meter);
        let DirectionWords {
            verb,
            better,
            worse,
            on,
            ..
        } = &words;
        let than = if servers {
            format!(" than {base}")
        } else {
            String::new()
        };
        let sentence = match total.own_verdict() {
            _ if total.identical && servers => format!("{subject} has the same binary as {base}"),
            _ if total.identical => format!("{subject} does not change the binary"),
            _ if !total.executed => format!("no workload executes the code that {subject} changes"),
            _ if total.is_stale() => format!(
                "what {subject} does is not measured here yet; before it was {typically} %{interval}"
            ),
            Verdict::Faster | Verdict::Slower if !is_typical => {
                let direction = match total.own_verdict() {
                    Verdict::Faster => better,
                    _ => worse,
                };
                format!(
                    "{subject} {verb} {direction}{than} in its mean or tail: typically {typically} %{interval}"
                )
            }
            Verdict::Faster => format!("{subject} {verb} {size} % {better}{than}{interval}"),
            Verdict::Slower => format!("{subject} {verb} {size} % {worse}{than}{interval}"),
            Verdict::Mixed => format!(
                "{subject} {verb} {better}{than} in part and {worse} in part: typically {typically} %{interval}"
            ),
            Verdict::NoEffect if servers => format!(
                "{subject} {verb} {} as {base} to within ±{}{interval}",
                words.equal,
                number::margin(attribution.margins[&meter])
            ),
            Verdict::NoEffect => format!(
                "{subject} has no effect{on} beyond ±{}{interval}",
                number::margin(attribution.margins[&meter])
            ),
            Verdict::NoTypicalEffect => format!(
                "{subject} has no typical effect{on} beyond ±{}{interval}; its mean or slow slices may differ by more",
                number::margin(attribution.margins[&meter])
            ),
            Verdict::Unclear => {
                let what = if servers {
                    format!("unclear whether {subject} {verb} {better} or {worse}{than}")
                } else {
                    format!(
                        "unclear what {subject} does{}",
                        on.replacen(" on", " to", 1)
                    )
                };
                let why = match total.low {
                    None => format!(": {}", no_interval(total)),
                    Some(_) => interval,
                };
                format!("{what}{why}")
            }
        };
        let but = self.on_single_workloads(total, name).unwrap_or_default();
        let sentence = format!("{sentence}{but}");
        // A name keeps its letters.
        if servers && text.is_empty() && subject != "server 1" && sentence.starts_with(&subject) {
            return sentence;
        }
        sentence_after(text, &sentence)
    }

    /// Returns what single workloads add to a figure over all of them: `, but slower on 2 of 6 workloads (worst: load,
    /// −3.10 %)`. `None` if they say the same.
    fn on_single_workloads(
        &self,
        effect: &Effect,
        name: &dyn Fn(&str) -> String,
    ) -> Option<String> {
        let cells = effect
            .cells
            .as_ref()
            .filter(|cells| cells.own != effect.verdict)?;
        let DirectionWords { better, worse, .. } = DirectionWords::of(effect.meter);
        let part = |count: usize, word: &str| (count > 0).then(|| format!("{word} on {count}"));
        let (faster, slower) = (
            part(cells.faster.len(), &better),
            part(cells.slower.len(), &worse),
        );
        let shown = match cells.own {
            Verdict::Faster => vec![slower],
            Verdict::Slower => vec![faster],
            _ => vec![faster, slower],
        };
        let shown: Vec<String> = shown.into_iter().flatten().collect();
        let progress = self.attribution.progress.iter();
        let all = progress.filter(|of| of.meter == effect.meter).count();
        let worst = match cells.own {
            Verdict::Slower => None,
            _ => self.worst(&cells.slower, effect, name),
        };
        Some(format!(
            ", but {} of {all} workloads{}",
            shown.join(" and "),
            worst.unwrap_or_default()
        ))
    }

    /// Names the workload that loses most, with its figure if that is a loss: ` (worst: load, −3.10 %)`.
    fn worst(
        &self,
        workloads: &[String],
        suite: &Effect,
        name: &dyn Fn(&str) -> String,
    ) -> Option<String> {
        let effects = &self.attribution.total;
        let on = |workload: &String| effect_on(effects, suite.kind, suite.meter, workload);
        let worst = workloads.iter().filter_map(on);
        let worst = worst.min_by(|a, b| a.estimate.total_cmp(&b.estimate))?;
        let shown = match name(&worst.workload) {
            // Where no name may stand, one that cannot be markup, a mention or a link may.
            none if none.is_empty() && is_inert(&worst.workload) => worst.workload.clone(),
            shown => shown,
        };
        let figure = number::signed(worst.shown().estimate, self.places());
        let figure = (worst.estimate < 0.0).then(|| format!("{figure} %"));
        let parts: Vec<String> = [Some(shown).filter(|shown| !shown.is_empty()), figure]
            .into_iter()
            .flatten()
            .collect();
        (!parts.is_empty()).then(|| format!(" (worst: {})", parts.join(", ")))
    }

    /// Returns the name of the server that the others are compared with.
    fn base(&self, name: &dyn Fn(&str) -> String) -> String {
        let shown = name(self.attribution.base());
        if shown.is_empty() {
            "the base".to_owned()
        } else {
            shown
        }
    }

    /// Returns the name of a server, or its number where no name may stand.
    fn server(&self, number: usize, name: &dyn Fn(&str) -> String) -> String {
        let patch = self.attribution.patches.get(number - 1);
        match patch.map_or(String::new(), |patch| name(&patch.name)) {
            shown if shown.is_empty() => format!("server {number}"),
            shown => shown,
        }
    }

    /// Returns the verdict on servers without a figure for all of them.
    fn of_servers(&self, base: &str) -> String {
        let attribution = self.attribution;
        if attribution.failed.contains_key(&Point::BASE) {
            return format!("no figures: {base} failed");
        }
        if attribution.progress.iter().all(|p| p.done == 0) {
            return "nothing is measured yet".to_owned();
        }
        if attribution.has_total() && attribution.failed.contains_key(&Point::Step(1)) {
            return format!("no figures: the server compared with {base} failed");
        }
        if attribution.has_total() {
            return format!("no figure against {base} over all workloads");
        }
        let count = |verdict| attribution.patches_with(verdict).len();
        let counts = [
            (count(Verdict::Faster), "faster"),
            (count(Verdict::Slower), "slower"),
            (count(Verdict::Mixed), "faster in part and slower in part"),
        ];
        let all = attribution.patches.len();
        let mut without = all;
        for verdict in [
            Verdict::NoEffect,
            Verdict::NoTypicalEffect,
            Verdict::Unclear,
        ] {
            without = without.saturating_sub(count(verdict));
        }
        let mut parts = Vec::new();
        for (count, words) in counts.into_iter().filter(|(count, _)| *count > 0) {
            without = without.saturating_sub(count);
            parts.push(format!("{count} {words}"));
        }
        if without > 0 {
            parts.push(format!("{without} without a figure over all workloads"));
        }
        let verdict = if parts.is_empty() {
            "none shown to be faster or slower".to_owned()
        } else {
            parts.join(", ")
        };
        format!("{all} servers compared with {base}: {verdict}")
    }

    /// Returns the number of patches per verdict; `name` escapes a patch's name for the format.
    pub(super) fn tally(&self, name: &dyn Fn(&str) -> String) -> String {
        let patches: Vec<(&EffectRow<'_>, &str)> = self
            .rows
            .iter()
            .filter_map(|row| Some((row, row.label.patch()?.name.as_str())))
            .collect();
        let mut parts = Vec::new();
        for verdict in [
            "faster",
            "slower",
            "mixed",
            "no effect",
            "no typical effect",
            number::NOT_EXECUTED,
            NOT_IN_SERVER,
            "unclear",
            "stale",
            "failed",
            "no figures",
        ] {
            let of_verdict = patches.iter().filter(|(row, _)| row.verdict == verdict);
            let names: Vec<String> = of_verdict.map(|(_, of)| name(of)).collect();
            let words = match verdict {
                "no figures" => "without figures",
                verdict => verdict,
            };
            let named = match verdict {
                "slower" | "mixed" | "failed" => {
                    format!(" ({})", names[..names.len().min(3)].join(", "))
                }
                _ => String::new(),
            };
            if !names.is_empty() {
                parts.push(format!("{} {words}{named}", names.len()));
            }
        }
        let nouns = self.nouns();
        let servers = self.attribution.is_of_servers();
        let noun = match patches.len() {
            0 if servers => return "There is no server to compare".to_owned(),
            0 => return "The series has no patches".to_owned(),
            1 => nouns.one,
            _ => nouns.many,
        };
        let with = if servers {
            format!(" compared with {}", self.base(name))
        } else {
            String::new()
        };
        format!("{} {noun}{with}: {}", patches.len(), parts.join(", "))
    }

    /// Returns the workloads and the number of blocks: `oltp_read_only; blocks: 18 of time`.
    pub(super) fn scope(&self, name: &dyn Fn(&str) -> String) -> String {
        let shown = |workload: &String| {
            let mut failed = self.attribution.failed_workloads.iter();
            if failed.any(|of| of.workload == *workload) {
                format!("{} (failed)", name(workload))
            } else {
                name(workload)
            }
        };
        let names: Vec<String> = self.attribution.workloads.iter().map(shown).collect();
        let workloads = match names.len() {
            0 => return "no workload".to_owned(),
            1..=3 => names.join(", "),
            n => format!("{} and {} more workloads", names[..2].join(", "), n - 2),
        };
        let planned = |p: &Progress| p.planned == Some(0);
        if self.attribution.progress.iter().all(planned) {
            return format!("{workloads}; nothing new was measured");
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

    /// Returns the smallest number of finished blocks of any workload that is measured on `meter`, and the largest planned
    /// number.
    fn blocks_of(&self, meter: Meter) -> (u32, Option<u32>) {
        let has_failed = |p: &Progress| {
            let mut failed = self.attribution.failed_workloads.iter();
            failed.any(|of| of.workload == p.workload && of.meters.contains(&p.meter))
        };
        let of_meter = || {
            self.attribution
                .progress
                .iter()
                // None is planned for a workload that executes no patch, and none is left for one that failed.
                .filter(|p| p.meter == meter && p.planned != Some(0) && !has_failed(p))
        };
        (
            of_meter().map(|p| p.done).min().unwrap_or(0),
            of_meter().filter_map(|p| p.planned).max(),
        )
    }

    /// Returns the progress, `After 3 of 12 blocks`, while blocks are missing.
    fn unfinished(&self) -> Option<String> {
        let attribution = self.attribution;
        let open = attribution.margins.keys().filter_map(|&meter| {
            let (done, planned) = self.blocks_of(meter);
            let mut of_meter = attribution.progress.iter().filter(|p| p.meter == meter);
            let planned = planned.filter(|_| of_meter.any(|p| !p.ended))?;
            let stopping = attribution.stopping.as_ref();
            let most = stopping.filter(|rule| rule.meter == meter);
            let most = most.map_or("", |_| "at most ");
            let main = attribution.main_meter().filter(|main| *main == meter);
            let noun = main.map_or(format!("of {meter}"), |_| "blocks".to_owned());
            Some(format!("{done} of {most}{planned} {noun}"))
        });
        let open: Vec<String> = open.collect();
        (!attribution.is_complete()).then(|| format!("After {}", open.join(" and ")))
    }
}

/// The words of a sentence about an effect on a meter.
struct DirectionWords {
    /// `is`, or `takes`.
    verb: &'static str,
    /// `faster`, `fewer instructions`.
    better: String,
    /// `slower`, `more instructions`.
    worse: String,
    /// Nothing for time, ` on instructions`.
    on: String,
    /// `as fast`, `as many instructions`.
    equal: String,
}

impl DirectionWords {
    fn of(meter: Meter) -> Self {
        let (better, worse, noun) = (meter.better(), meter.worse(), meter.noun());
        if meter.is_shown_as_speed() {
            // Time is what speed is about.
            let (in_noun, on) = match meter {
                Meter::Time => (String::new(), String::new()),
                _ => (format!(" in {noun}"), format!(" on {noun}")),
            };
            return DirectionWords {
                verb: "is",
                better: format!("{better}{in_noun}"),
                worse: format!("{worse}{in_noun}"),
                equal: format!("as fast{in_noun}"),
                on,
            };
        }
        let much = if better == "less" { "much" } else { "many" };
        DirectionWords {
            verb: "takes",
            better: format!("{better} {noun}"),
            worse: format!("{worse} {noun}"),
            on: format!(" on {noun}"),
            equal: format!("as {much} {noun}"),
        }
    }
}

/// Appends a sentence to its introduction; without one, the sentence begins with a capital letter.
fn sentence_after(introduction: String, sentence: &str) -> String {
    if introduction.is_empty() {
        capital(sentence)
    } else {
        introduction + sentence
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Experiment;
    use super::*;

    #[test]
    fn a_workload_that_says_otherwise_is_in_the_headline_and_in_the_row() {
        use perfquilt_judge::attribution::{Cells, SUITE};
        let told = |own: Verdict, faster: &[&str], slower: &[&str], verdict: Verdict| {
            let mut attribution = Experiment::new(&[(0.02, 0.02)]).attribution();
            let names = |of: &[&str]| of.iter().map(|name| (*name).to_owned()).collect();
            let effects = attribution.patches[0].effects.iter_mut();
            for effect in effects.chain(&mut attribution.total) {
                if effect.workload == SUITE && effect.meter == Meter::Time {
                    effect.verdict = verdict;
                    effect.cells = Some(Cells {
                        own,
                        faster: names(faster),
                        slower: names(slower),
                    });
                }
            }
            let view = View::new(&attribution);
            let row = &view.rows[0];
            (
                view.headline(&str::to_owned),
                row.verdict,
                row.notes.join("; "),
            )
        };
        let (select, read) = ("oltp_point_select", "oltp_read_only");
        let (headline, verdict, notes) = told(Verdict::Faster, &[select], &[read], Verdict::Mixed);
        assert!(
            headline.contains(" % faster (95 % interval ")
                && headline.ends_with(", but slower on 1 of 2 workloads (worst: oltp_read_only)"),
            "{headline}"
        );
        assert_eq!(verdict, "mixed");
        assert!(notes.ends_with("slower on oltp_read_only"), "{notes}");
        let (headline, _, notes) = told(Verdict::NoEffect, &[select], &[read], Verdict::Mixed);
        assert!(
            headline.contains("has no effect beyond")
                && headline.ends_with(
                    ", but faster on 1 and slower on 1 of 2 workloads (worst: oltp_read_only)"
                ),
            "{headline}"
        );
        assert!(
            notes.contains("faster on oltp_point_select, slower on oltp_read_only"),
            "{notes}"
        );
        // The figure of the worst workload is there if it is a loss.
        let mut attribution = Experiment::new(&[(0.02, 0.02)]).attribution();
        for effect in &mut attribution.total {
            if effect.workload == read {
                effect.estimate = -0.031;
            } else if effect.workload == SUITE {
                effect.cells = Some(Cells {
                    own: Verdict::Faster,
                    faster: vec![],
                    slower: vec![read.to_owned()],
                });
                effect.verdict = Verdict::Mixed;
            }
        }
        let view = View::new(&attribution);
        let worst = "slower on 1 of 2 workloads (worst: oltp_read_only, −3.10 %)";
        for headline in [
            view.headline(&str::to_owned),
            view.headline(&|_| String::new()),
        ] {
            assert!(headline.ends_with(worst), "{headline}");
        }
        // What says the same adds no words.
        let (headline, _, notes) = told(Verdict::Faster, &[select, read], &[], Verdict::Faster);
        assert!(
            !headline.contains("but") && !notes.contains("oltp"),
            "{headline} {notes}"
        );
    }

    #[test]
    fn a_series_without_patches_is_reported_as_such() {
        let attribution = Experiment::new(&[]).attribution();
        assert_eq!(
            View::new(&attribution).headline(&|name| name.to_owned()),
            "No figure for the series: it has no patches"
        );
    }
}
