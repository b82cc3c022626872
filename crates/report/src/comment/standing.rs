//! What a comment comes to: the title and the one word that labels and checks are made of.

use super::Notice;
use crate::view::{Label, Row, View};
use perfquilt_judge::attribution::{Kind, Verdict};
use perfquilt_judge::bisect::Conclusion;
use perfquilt_model::comment::Standing;
use perfquilt_model::error;

/// Returns what `notice` comes to.
pub(super) fn standing(notice: &Notice<'_>, view: Option<&View<'_>>) -> Standing {
    let stopped = |kind| matches!(kind, error::Kind::Interrupted);
    if notice.failures.iter().any(|failure| !stopped(failure.kind)) {
        return Standing::Failed;
    }
    let (Some(view), Some(attribution)) = (view, notice.attribution) else {
        let mut failures = notice.bisection_failures.iter();
        return if failures.any(|failure| !stopped(failure.kind)) {
            Standing::Failed
        } else {
            Standing::Unfinished
        };
    };
    if patches(view).any(|row| row.verdict == "failed")
        || attribution
            .failed
            .contains_key(&perfquilt_model::point::Point::BASE)
    {
        return Standing::Failed;
    }
    let total = attribution
        .main_meter()
        .and_then(|meter| attribution.main_effect(&attribution.total, Kind::Total, meter))
        .filter(|effect| !effect.is_stale());
    let verdict = total.map(|effect| effect.verdict);
    if attribution.is_regression() || patches(view).any(|row| row.no_longer_helps) {
        return Standing::Regression;
    }
    let stopped = notice.failures.iter().any(|failure| stopped(failure.kind));
    if stopped
        || !attribution.is_complete()
        || attribution
            .progress
            .iter()
            .all(|p| p.done == 0 && p.planned != Some(0))
    {
        return Standing::Unfinished;
    }
    match verdict {
        Some(Verdict::Faster) => Standing::Faster,
        Some(Verdict::NoEffect) => Standing::NoEffect,
        Some(Verdict::Slower) => Standing::Regression,
        Some(Verdict::Mixed | Verdict::Unclear) | None => Standing::Unclear,
    }
}

/// The mark before the title.
pub(super) fn mark(standing: Standing) -> &'static str {
    match standing {
        Standing::Failed | Standing::Regression => "❌",
        Standing::Unfinished => "⏳",
        Standing::Faster => "✅",
        Standing::NoEffect => "➖",
        Standing::Unclear => "❔",
    }
}

fn patches<'v, 'a>(view: &'v View<'a>) -> impl Iterator<Item = &'v Row<'a>> {
    view.rows
        .iter()
        .filter(|row| matches!(row.label, Label::Patch { .. }))
}

/// The verdict in one line of plain text, made of this program's words and of numbers only.
pub(super) fn title(notice: &Notice<'_>, view: Option<&View<'_>>) -> String {
    let interrupted = notice
        .failures
        .iter()
        .any(|failure| failure.kind == error::Kind::Interrupted);
    let Some(view) = view else {
        return nothing(notice).to_owned();
    };
    let mut title = view.headline();
    if interrupted {
        title = match title.strip_prefix("After") {
            Some(rest) => format!("Interrupted after{rest}"),
            None => format!("Interrupted. {title}"),
        };
    }
    let slower = view.attribution.slower_patches();
    let slower: Vec<usize> = slower.iter().map(|patch| patch.index).collect();
    let failed = of(view, |row| row.verdict == "failed");
    let slower_rows = ["slower", "mixed"];
    let worse = of(view, |row| {
        !slower_rows.contains(&row.verdict) && row.no_longer_helps
    });
    let mut but = Vec::new();
    if let Some((patches, verb)) = some(&slower, "is", "are") {
        but.push(format!("{patches} {verb} slower"));
    }
    if let Some((patches, _)) = some(&worse, "", "") {
        let verb = if worse.len() == 1 {
            "no longer helps"
        } else {
            "no longer help"
        };
        but.push(format!("{patches} {verb}"));
    }
    if let Some((patches, _)) = some(&failed, "", "") {
        but.push(format!("{patches} failed"));
    }
    if but.is_empty() {
        title
    } else {
        format!("{title}; {}", but.join(", "))
    }
}

/// The numbers of the patches whose rows `which` takes.
fn of(view: &View<'_>, which: impl Fn(&Row<'_>) -> bool) -> Vec<usize> {
    patches(view)
        .filter(|row| which(row))
        .filter_map(|row| match row.label {
            Label::Patch { index, .. } => Some(index),
            _ => None,
        })
        .collect()
}

/// `patch 3`, `patches 3 and 5`, `7 patches`, with the verb for one or several; `None` for none.
fn some(
    numbers: &[usize],
    one: &'static str,
    more: &'static str,
) -> Option<(String, &'static str)> {
    Some(match numbers {
        [] => return None,
        [number] => (format!("patch {number}"), one),
        [first @ .., last] if numbers.len() <= 4 => {
            let first: Vec<String> = first.iter().map(ToString::to_string).collect();
            (format!("patches {} and {last}", first.join(", ")), more)
        }
        many => (format!("{} patches", many.len()), more),
    })
}

/// The title where there are no figures at all.
fn nothing(notice: &Notice<'_>) -> &'static str {
    let failure = notice.failures.first();
    let Some(failure) = failure.or(notice.bisection_failures.first()) else {
        if let Some(found) = notice.bisection {
            return bisected(found.conclusion);
        }
        return match notice.activity {
            Some(_) => "Nothing is measured yet",
            None => "Nothing was measured",
        };
    };
    match failure.kind {
        error::Kind::Series => "Nothing was measured: the series does not apply",
        error::Kind::Build => "Nothing was measured: the build failed",
        error::Kind::Bench => "Nothing was measured: the server or its client failed",
        error::Kind::Usage => "Nothing was measured: the configuration is wrong",
        error::Kind::Interrupted => "Nothing was measured: the run was interrupted",
        _ => "Nothing was measured: the run failed",
    }
}

/// The title of a bisection without any other figures.
fn bisected(conclusion: Conclusion) -> &'static str {
    match conclusion {
        Conclusion::Found => "The bisection found what changes the workload",
        Conclusion::Nothing => "The bisection found no change",
        Conclusion::Opposite => "The bisection found a change in the other direction",
        Conclusion::Undecided => "The bisection could not be decided",
        Conclusion::Unfinished => "The bisection is not finished",
    }
}
