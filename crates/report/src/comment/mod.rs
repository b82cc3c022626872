//! What a pull request is told: one comment, whose title, standing and table are made of the same rows.

#[cfg(test)]
mod inert;
mod length;
mod sections;
mod standing;
#[cfg(test)]
mod tests;

use perfquilt_judge::attribution::{Attribution, changes};
use perfquilt_judge::bisect;
use perfquilt_model::failure::Failure;
use perfquilt_model::point::Point;

use super::number;
use super::view::{Label, View};

use perfquilt_model::comment::{Comment, Standing, Subject};

/// Everything a comment is made of. What is unknown is empty.
#[derive(Debug, Clone, Default)]
pub struct Notice<'a> {
    /// What was measured.
    pub attribution: Option<&'a Attribution>,
    /// Why nothing was measured, or not all.
    pub failures: &'a [Failure],
    /// What was measured before a rebase: patches are compared by name.
    pub earlier: Option<&'a Attribution>,
    /// What goes on at this moment, as a sentence without names of strangers.
    pub activity: Option<String>,
    /// What must be approved before it is run, if something must.
    pub held: Option<Held>,
    /// What a bisection of the commit came to, if there was one.
    pub bisection: Option<&'a bisect::Outcome>,
    /// Why a bisection of the commit came to nothing, if one did.
    pub bisection_failures: &'a [Failure],
    /// What answers a question: Markdown of this program, with nothing of strangers in it.
    pub answer: String,
    /// What the comment is about, and where there is more.
    pub subject: Subject,
}

impl<'a> Notice<'a> {
    /// Returns the same notice about another subject.
    #[must_use]
    pub fn about(&self, subject: &Subject) -> Notice<'a> {
        Notice {
            subject: subject.clone(),
            ..self.clone()
        }
    }
}

/// A commit that is not run before somebody approves it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// What the bot is called.
    pub name: String,
    /// The whole commit id.
    pub head: String,
    /// The files that are the reason.
    pub files: Vec<String>,
}

/// Makes the comment, in at most `limit` bytes: a shorter form with a link where the whole one is longer.
/// Names, titles, messages and whatever else strangers wrote cannot introduce markup, links, mentions
/// or HTML.
pub fn comment(notice: &Notice<'_>, limit: usize) -> Comment {
    let view = notice.attribution.map(|attribution| {
        let mut view = View::new(attribution);
        refer(&mut view, notice.failures);
        compare(&mut view, notice);
        view
    });
    let standing = standing::standing(notice, view.as_ref());
    let title = standing::title(notice, view.as_ref());
    let sections = sections::of(notice, view.as_ref(), standing, &title);
    Comment {
        body: length::fit(sections, limit, &sections::shortened(notice)),
        title,
        standing,
    }
}

/// What is told in full below the table need not be told in it.
fn refer(view: &mut View<'_>, failures: &[Failure]) {
    for row in &mut view.rows {
        let Label::Patch { index, .. } = row.label else {
            continue;
        };
        let told = |failure: &Failure| failure.point == Some(Point::Step(index));
        if row.verdict == "failed" && failures.iter().take(sections::TOLD).any(told) {
            row.notes = vec!["see below".to_owned()];
        }
    }
}

/// Says beside each patch that no longer helps what it was worth before.
fn compare(view: &mut View<'_>, notice: &Notice<'_>) {
    let (Some(earlier), Some(now)) = (notice.earlier, notice.attribution) else {
        return;
    };
    let names = now.patches.iter().map(|patch| patch.name.as_str());
    let changes = changes(earlier, Some(now), names);
    for row in &mut view.rows {
        let Label::Patch { name, .. } = row.label else {
            continue;
        };
        let mut lost = changes.iter().filter(|change| change.no_longer_helps);
        let Some(change) = lost.find(|change| change.name == name) else {
            continue;
        };
        let places = number::decimals(change.old.meter, [change.old].into_iter());
        row.no_longer_helps = true;
        row.notes.insert(
            0,
            format!(
                "no longer helps: {} of {} was {} on {}",
                change.old.meter,
                super::workload_words(&change.old.workload),
                number::effect(change.old, places),
                earlier.release
            ),
        );
    }
}
