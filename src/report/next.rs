//! What somebody who has read a report does next.

use super::text::{clean, shell};
use crate::attribution::{Attribution, Kind, Verdict};

/// The next useful command behind the report of a stored experiment, with what it is good for.
pub fn next_command(attribution: &Attribution) -> String {
    if !attribution.is_complete() {
        return "next: the same command again goes on where this stopped".to_owned();
    }
    let of = |verdict: Verdict| {
        let meter = attribution.main_meter()?;
        attribution.patches.iter().find(|patch| {
            let effect = attribution.main_effect(&patch.effects, Kind::InOrder, meter);
            effect.is_some_and(|effect| effect.verdict == verdict)
        })
    };
    if attribution.base.is_empty()
        && let Some(slower) = of(Verdict::Slower)
    {
        return format!(
            "next: `perfquilt profile {} {}` shows which functions patch {} made dearer",
            slower.index - 1,
            slower.index,
            slower.index
        );
    }
    if of(Verdict::Unclear).is_some() {
        let done = attribution.progress.iter().map(|p| p.done).max();
        return format!(
            "next: `--blocks {}` with the same command narrows the intervals of what is unclear",
            2 * done.unwrap_or(1).max(1)
        );
    }
    format!(
        "next: `perfquilt report {} --format html --output report.html` draws it",
        shell(&clean(&attribution.experiment))
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::Experiment;
    use super::*;

    #[test]
    fn what_is_worst_comes_first() {
        let next = |experiment: &Experiment| next_command(&experiment.attribution());
        let faster = Experiment::new(&[(0.02, 0.02), (0.03, 0.03)]);
        assert_eq!(
            next(&faster),
            format!(
                "next: `perfquilt report {} --format html --output report.html` draws it",
                faster.header.experiment
            )
        );
        let mut slower = Experiment::new(&[(0.02, 0.02), (-0.03, -0.03)]);
        assert_eq!(
            next(&slower),
            "next: `perfquilt profile 1 2` shows which functions patch 2 made dearer"
        );
        // Servers that somebody named have no such points.
        slower.header.base = "elsewhere".to_owned();
        assert!(next(&slower).contains("--format html"));
        let mut unclear = Experiment::new(&[(0.002, 0.0)]);
        unclear.noise = 0.05;
        let twice = format!("next: `--blocks {}` ", 2 * unclear.blocks);
        assert!(next(&unclear).starts_with(&twice), "{}", next(&unclear));
    }
}
