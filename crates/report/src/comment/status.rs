//! The title of a comment, and its status, from which labels and check runs are derived.

use super::Notice;
use crate::nouns::Nouns;
use crate::view::{EffectRow, NOT_IN_SERVER, View};
use perfquilt_judge::attribution::{Effect, EffectKind, PatchEffects, Verdict};
use perfquilt_judge::bisect::Conclusion;
use perfquilt_model::comment::MeasurementStatus;
use perfquilt_model::error;
use perfquilt_model::failure::Failure;
use perfquilt_model::point::Point;

/// Returns the status of `notice`.
pub(super) fn status(notice: &Notice<'_>, view: Option<&View<'_>>) -> MeasurementStatus {
    let are_faults = |failures: &[Failure]| !failures.iter().all(Failure::is_interruption);
    if are_faults(notice.failures) {
        return MeasurementStatus::Failed;
    }
    let (Some(view), Some(attribution)) = (view, notice.attribution) else {
        return if are_faults(notice.bisection_failures) {
            MeasurementStatus::Failed
        } else {
            MeasurementStatus::Unfinished
        };
    };
    if patches(view).any(|row| row.verdict == "failed")
        || !attribution.failed_workloads.is_empty()
        || attribution.failed.contains_key(&Point::BASE)
    {
        return MeasurementStatus::Failed;
    }
    if attribution.is_regression()
        || !attribution.patches_with_new_failures().is_empty()
        || patches(view).any(|row| row.no_longer_helps)
    {
        return MeasurementStatus::Regression;
    }
    if notice.failures.iter().any(Failure::is_interruption)
        || !attribution.is_complete()
        || attribution
            .progress
            .iter()
            .all(|p| p.done == 0 && p.planned != Some(0))
    {
        return MeasurementStatus::Unfinished;
    }
    let total = attribution
        .main_meter()
        .and_then(|meter| attribution.main_effect(&attribution.total, EffectKind::Total, meter))
        .filter(|effect| !effect.is_stale());
    let verdict = total.map(|effect| effect.verdict);
    if total.is_some_and(Effect::is_regression) {
        return MeasurementStatus::Accepted;
    }
    match verdict.or_else(|| of_servers(view)) {
        // A patch that no server has is not known to have no effect.
        Some(Verdict::NoEffect) if patches(view).any(|row| row.verdict == NOT_IN_SERVER) => {
            MeasurementStatus::Unclear
        }
        Some(Verdict::Faster) => MeasurementStatus::Faster,
        Some(Verdict::NoEffect) => MeasurementStatus::NoEffect,
        // A check is not green while the mean may be worse.
        _ => MeasurementStatus::Unclear,
    }
}

/// Returns the verdict on several servers that are no series, which have no total: that of all of them, if none differs.
fn of_servers(view: &View<'_>) -> Option<Verdict> {
    if view.attribution.has_total() {
        return None;
    }
    let verdicts: Vec<&str> = patches(view).map(|row| row.verdict).collect();
    let all = |known: &[&str]| verdicts.iter().all(|verdict| known.contains(verdict));
    match verdicts[..] {
        [] => None,
        _ if all(&["no effect"]) => Some(Verdict::NoEffect),
        _ if all(&["faster", "no effect"]) => Some(Verdict::Faster),
        _ => None,
    }
}

/// Returns the symbol before the title.
pub(super) fn mark(status: MeasurementStatus) -> &'static str {
    match status {
        MeasurementStatus::Failed | MeasurementStatus::Regression => "❌",
        MeasurementStatus::Unfinished => "⏳",
        MeasurementStatus::Faster | MeasurementStatus::Accepted => "✅",
        MeasurementStatus::NoEffect => "➖",
        MeasurementStatus::Unclear => "❔",
    }
}

fn patches<'v, 'a>(view: &'v View<'a>) -> impl Iterator<Item = &'v EffectRow<'a>> {
    view.rows.iter().filter(|row| row.label.patch().is_some())
}

/// Returns the verdict in one line of plain text, without untrusted text.
pub(super) fn title(notice: &Notice<'_>, view: Option<&View<'_>>) -> String {
    let interrupted = notice.failures.iter().any(Failure::is_interruption);
    let Some(view) = view else {
        return title_without_figures(notice).to_owned();
    };
    let mut title = view.headline(&|_| String::new());
    if interrupted {
        title = match title.strip_prefix("After") {
            Some(rest) => format!("Interrupted after{rest}"),
            None => format!("Interrupted. {title}"),
        };
    }
    let slower: Vec<usize> = slower_patches(view, false);
    let partly: Vec<usize> = slower_patches(view, true);
    let accepted = view.attribution.patches.iter();
    let accepted = accepted.filter(|patch| view.attribution.is_accepted(patch));
    let accepted = accepted.map(|patch| patch.index).collect();
    let failed = matching(view, |row| row.verdict == "failed");
    let slower_rows = ["slower", "mixed"];
    let worse = matching(view, |row| {
        !slower_rows.contains(&row.verdict) && row.no_longer_helps
    });
    let broken = view.attribution.patches_with_new_failures();
    let but = [
        (slower, "is slower", "are slower"),
        (
            partly,
            "is slower on some workloads",
            "are slower on some workloads",
        ),
        (
            accepted,
            "is slower, as accepted",
            "are slower, as accepted",
        ),
        (worse, "no longer helps", "no longer help"),
        (broken, "makes tests fail", "make tests fail"),
        (failed, "failed", "failed"),
    ];
    let but = but.map(|(numbers, one, more)| said_of(view.nouns(), &numbers, one, more));
    let but: Vec<String> = but.into_iter().flatten().collect();
    if but.is_empty() {
        title
    } else {
        format!("{title}; {}", but.join(", "))
    }
}

/// Returns the numbers of the patches that are slower: only on single workloads if `partly`, else over all of them.
fn slower_patches(view: &View<'_>, partly: bool) -> Vec<usize> {
    let attribution = view.attribution;
    let is_partly = |patch: &&PatchEffects| {
        let main = attribution
            .main_meter()
            .and_then(|meter| attribution.main_effect(&patch.effects, EffectKind::InOrder, meter));
        let cells = main.and_then(|main| main.cells.as_ref());
        cells.is_some_and(|cells| !matches!(cells.own, Verdict::Slower | Verdict::Mixed))
    };
    let slower = attribution.unaccepted_patches().into_iter();
    let slower = slower.filter(|patch| is_partly(patch) == partly);
    slower.map(|patch| patch.index).collect()
}

/// Returns the numbers of the patches whose rows match `which`.
fn matching(view: &View<'_>, which: impl Fn(&EffectRow<'_>) -> bool) -> Vec<usize> {
    patches(view)
        .filter(|row| which(row))
        .filter_map(|row| Some(row.label.patch()?.index))
        .collect()
}

/// Says something of patches, which it names by number: `patch 3 failed`, `patches 3 and 5 failed`, `7 patches failed`.
/// `None` for none.
fn said_of(nouns: &Nouns, numbers: &[usize], one: &str, more: &str) -> Option<String> {
    Some(match numbers {
        [] => return None,
        [number] => format!("{} {number} {one}", nouns.one),
        [first @ .., last] if numbers.len() <= 4 => {
            let first: Vec<String> = first.iter().map(ToString::to_string).collect();
            format!("{} {} and {last} {more}", nouns.many, first.join(", "))
        }
        all => format!("{} {} {more}", all.len(), nouns.many),
    })
}

/// Returns the title of a comment without figures.
fn title_without_figures(notice: &Notice<'_>) -> &'static str {
    let failure = notice.failures.first();
    let Some(failure) = failure.or(notice.bisection_failures.first()) else {
        if let Some(found) = notice.bisection {
            return bisection_title(found.conclusion);
        }
        return match notice.activity {
            Some(_) => "Nothing is measured yet",
            None => "Nothing was measured",
        };
    };
    match failure.kind {
        error::Kind::Series if [810, 811].contains(&failure.code.number) => {
            "Nothing was measured: the mails are no series"
        }
        error::Kind::Series => "Nothing was measured: the series does not apply",
        error::Kind::Build => "Nothing was measured: the build failed",
        error::Kind::Bench => "Nothing was measured: the server or its client failed",
        error::Kind::Usage => "Nothing was measured: the configuration is wrong",
        error::Kind::Interrupted => "Nothing was measured: the run was interrupted",
        _ => "Nothing was measured: the run failed",
    }
}

/// Returns the title of a comment with a bisection only.
fn bisection_title(conclusion: Conclusion) -> &'static str {
    match conclusion {
        Conclusion::Found => "The bisection found what changes the workload",
        Conclusion::Nothing => "The bisection found no change",
        Conclusion::Opposite => "The bisection found a change in the other direction",
        Conclusion::Undecided => "The bisection could not be decided",
        Conclusion::Unfinished => "The bisection is not finished",
    }
}
