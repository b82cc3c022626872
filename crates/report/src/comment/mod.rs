//! The comment on a pull request. Its title, status and table come from the same rows.

mod length;
mod sections;
mod status;
#[cfg(test)]
mod tests;

use perfquilt_judge::attribution::{Attribution, changes};
use perfquilt_judge::bisect;
use perfquilt_model::failure::Failure;
use perfquilt_model::point::Point;

use super::escape::markdown;
use super::number;
use super::text::fold;
use super::view::View;

use serde::{Deserialize, Serialize};

use perfquilt_model::comment::{Comment, MeasurementStatus, PullRequestRef};

/// The content of a comment. Unknown parts are empty.
#[derive(Debug, Clone, Default)]
pub struct Notice<'a> {
    /// The measured effects.
    pub attribution: Option<&'a Attribution>,
    /// The failures of the measurement.
    pub failures: &'a [Failure],
    /// The effects before a rebase, compared by the names of patches.
    pub earlier: Option<&'a Attribution>,
    /// The current activity, as a sentence without untrusted names.
    pub activity: Option<String>,
    /// Whether nobody has approved the code that was measured.
    pub unapproved: bool,
    /// The commit that needs an approval before it is run, if any.
    pub pending_approval: Option<PendingApproval>,
    /// The result of a bisection of the commit, if there was one.
    pub bisection: Option<&'a bisect::BisectOutcome>,
    /// The failures of a bisection of the commit.
    pub bisection_failures: &'a [Failure],
    /// The answer to a question: Markdown of this program without untrusted text.
    pub answer: String,
    /// The pull request and commit that the comment is about, with links.
    pub subject: PullRequestRef,
    /// The width of plain text; `None` for Markdown.
    pub columns: Option<usize>,
}

impl<'a> Notice<'a> {
    /// Returns the same notice about another subject.
    #[must_use]
    pub fn about(&self, subject: &PullRequestRef) -> Notice<'a> {
        Notice {
            subject: subject.clone(),
            ..self.clone()
        }
    }
}

/// A commit that needs an approval before it is run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingApproval {
    /// The bot's name.
    pub name: String,
    /// The full commit id.
    pub head: String,
    /// The files whose changes need the approval.
    pub files: Vec<String>,
}

/// Renders the comment, as Markdown or plain text, in at most `limit` bytes, if necessary in a shorter form with a link to the whole report. Names,
/// titles, messages and other untrusted text cannot introduce markup, links, mentions or HTML.
pub fn comment(notice: &Notice<'_>, limit: usize) -> Comment {
    let view = notice.attribution.map(|attribution| {
        let mut view = View::new(attribution);
        refer_to_failures(&mut view, notice.failures);
        mark_lost_effects(&mut view, notice);
        view
    });
    let status = status::status(notice, view.as_ref());
    let title = status::title(notice, view.as_ref());
    let sections = sections::sections(notice, view.as_ref(), status, &title);
    let body = length::fit(sections, limit, &sections::shortened(notice));
    Comment {
        body: match notice.columns {
            Some(columns) => fold(&body, columns),
            None => body,
        },
        title,
        status,
    }
}

/// Replaces the folders `hidden` in a comment, those inside others first, as they are and as [`comment`] escapes them.
pub fn hide(written: &mut Comment, hidden: &[String]) {
    for folder in hidden {
        for form in [folder, &markdown(folder)] {
            for text in [&mut written.title, &mut written.body] {
                *text = text.replace(form.as_str(), "…");
            }
        }
    }
}

/// Replaces the notes of failed rows whose failures are shown in full below the table.
fn refer_to_failures(view: &mut View<'_>, failures: &[Failure]) {
    for row in &mut view.rows {
        let Some(patch) = row.label.patch() else {
            continue;
        };
        let own = |failure: &Failure| failure.point == Some(Point::Step(patch.index));
        if row.verdict == "failed" && failures.iter().take(sections::MAX_FAILURES).any(own) {
            row.notes = vec!["see below".to_owned()];
        }
    }
}

/// Adds a note on the earlier effect to each patch that no longer helps.
fn mark_lost_effects(view: &mut View<'_>, notice: &Notice<'_>) {
    let (Some(earlier), Some(now)) = (notice.earlier, notice.attribution) else {
        return;
    };
    let names = now.patches.iter().map(|patch| patch.name.as_str());
    let changes = changes(earlier, Some(now), names);
    for row in &mut view.rows {
        let Some(patch) = row.label.patch() else {
            continue;
        };
        let mut lost = changes.iter().filter(|change| change.no_longer_helps);
        let Some(change) = lost.find(|change| change.name == patch.name) else {
            continue;
        };
        let places = number::decimals(change.old.meter, [change.old].into_iter());
        row.no_longer_helps = true;
        row.notes.insert(
            0,
            format!(
                "no longer helps: {} of {} was {} on {}",
                change.old.meter,
                super::workload_name(&change.old.workload),
                number::named(change.old, places),
                earlier.release
            ),
        );
    }
}
