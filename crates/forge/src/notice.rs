//! The notice that a verdict got worse: forges send no mail about a comment that changes.

use super::forge::Forge;
use super::post_options::PullRequest;
use super::sticky::{self, Mark};
use perfquilt_model::comment::MeasurementStatus;
use perfquilt_model::error::Result;

/// Returns how bad the result of a mark is; `None` without a result.
fn badness(mark: &Mark) -> Option<(MeasurementStatus, u8)> {
    let name = mark.status.as_deref()?;
    let named = |status: &MeasurementStatus| status.to_string() == name;
    let status = MeasurementStatus::ALL.iter().copied().find(named)?;
    let badness = match status {
        MeasurementStatus::Unfinished => return None,
        MeasurementStatus::Faster => 0,
        MeasurementStatus::NoEffect | MeasurementStatus::Accepted | MeasurementStatus::Unclear => 1,
        MeasurementStatus::Regression => 2,
        MeasurementStatus::Failed => 3,
    };
    Some((status, badness))
}

/// Returns whether the result of `mark` is worse than the one `shown`. An unclear one is not worse: it is no verdict.
fn is_worse(mark: &Mark, shown: &Mark) -> bool {
    let new = badness(mark).filter(|(status, _)| *status != MeasurementStatus::Unclear);
    new.zip(badness(shown))
        .is_some_and(|((_, new), (_, old))| new > old)
}

/// Writes a comment with a link to the one at `url` if the result of `mark` is worse than the one `shown` there, and about
/// the pull request's last commit; one for each commit.
pub(super) fn write(
    forge: &dyn Forge,
    found: &PullRequest,
    mark: &Mark,
    shown: &Mark,
    url: &str,
) -> Result<()> {
    if mark.head != found.head || !is_worse(mark, shown) {
        return Ok(());
    }
    let name = |mark: &Mark| mark.status.clone().unwrap_or_default();
    let text = format!(
        "The verdict on {} is worse than the one before: **{}**, it was {}. [The comment]({url}) has the figures.\n",
        mark.head,
        name(mark),
        name(shown)
    );
    // No id of a comment has a blank.
    let mark = Mark {
        id: format!("{} worse {}", mark.id, mark.head),
        head: mark.head.clone(),
        ..Mark::default()
    };
    sticky::update(forge, found.number, &mark, &found.head, &text, &|_, _| {
        Ok(())
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_verdicts_are_worse() {
        let mark = |status: &str| Mark {
            id: "default".into(),
            head: "c".into(),
            began: None,
            status: Some(status.to_owned()).filter(|status| !status.is_empty()),
        };
        let worse = |old: &str, new: &str| is_worse(&mark(new), &mark(old));
        for (old, new) in [
            ("faster", "no effect"),
            ("faster", "regression"),
            ("unclear", "regression"),
            ("regression", "failed"),
        ] {
            assert!(worse(old, new), "{old}, {new}");
            assert!(!worse(new, old), "{new}, {old}");
        }
        for (old, new) in [
            ("faster", "unclear"),
            ("faster", "unfinished"),
            ("unfinished", "failed"),
            ("unclear", "no effect"),
            ("regression", "regression"),
            ("", "regression"),
            ("a new one", "failed"),
        ] {
            assert!(!worse(old, new), "{old}, {new}");
        }
    }
}
