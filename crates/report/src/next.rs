//! The next command after a report.

use super::escape::shell;
use super::text::clean;
use perfquilt_judge::attribution::{Attribution, Effect, EffectKind, Interval, Verdict};

/// Returns the next useful command after the report of a stored experiment, with its purpose.
pub fn next_command(attribution: &Attribution) -> String {
    // Servers named by hand are no points of a series.
    let series = attribution.base.is_none();
    let measure = if series {
        "perfquilt run"
    } else {
        "perfquilt bench"
    };
    if !attribution.is_complete() {
        return format!(
            "next: `{measure}` with the preset and options of this one goes on where it stopped"
        );
    }
    let of = |wanted: &dyn Fn(&Effect) -> bool| {
        let meter = attribution.main_meter()?;
        attribution.patches.iter().find_map(|patch| {
            let effect = attribution.main_effect(&patch.effects, EffectKind::InOrder, meter)?;
            (wanted(effect) && !effect.is_stale()).then_some((patch.index, effect))
        })
    };
    if series && let Some((index, effect)) = of(&Effect::is_regression) {
        return format!(
            "next: `perfquilt profile {} {}` shows which functions patch {index} made more expensive",
            effect.against, effect.point
        );
    }
    if let Some((_, effect)) = of(&|effect| effect.verdict == Verdict::Unclear) {
        return format!(
            "next: `{measure} {}` with the preset and options of this one measures anew, for narrower intervals",
            narrower(attribution, effect)
        );
    }
    format!(
        "next: `perfquilt report {} --format html --output report.html` draws it",
        shell(&clean(&attribution.experiment))
    )
}

/// Returns the options that make the next experiment's intervals narrower. A finished experiment is not extended: the
/// decision to extend depends on its result, so its intervals would have to hold at every look, and be wider.
fn narrower(attribution: &Attribution, unclear: &Effect) -> String {
    match &attribution.stopping {
        // Half the width takes four times as many blocks.
        Some(rule) => format!(
            "--fresh --resolution {} --blocks {}",
            rule.resolution / 2.0,
            rule.max_blocks.saturating_mul(4)
        ),
        None => {
            let done = attribution.progress.iter().map(|p| p.done as usize).max();
            // An experiment with only reused figures has no blocks of its own, and no stopping rule.
            let all = match unclear.interval {
                Interval::Sequential => " --resolution 0",
                Interval::Fixed | Interval::Anytime => "",
            };
            format!(
                "--fresh{all} --blocks {}",
                2 * done.unwrap_or(1).max(unclear.blocks)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Experiment;
    use super::*;
    use perfquilt_judge::attribution::Provenance;
    use perfquilt_model::observation::{Meter, PlannedBlocks};
    use perfquilt_model::point::Point;

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
            "next: `perfquilt profile 1 2` shows which functions patch 2 made more expensive"
        );
        // Servers named by hand have no such points.
        slower.header.base = Some("elsewhere".to_owned());
        assert!(next(&slower).contains("--format html"));
        let mut unclear = Experiment::new(&[(0.002, 0.0)]);
        unclear.noise = 0.05;
        let twice = format!(
            "next: `perfquilt run --fresh --blocks {}` ",
            2 * unclear.blocks
        );
        assert!(next(&unclear).starts_with(&twice), "{}", next(&unclear));
        let mut attribution = unclear.attribution();
        for effect in &mut attribution.patches[0].effects {
            effect.provenance = Some(Provenance::Stale("quick-0".into()));
        }
        assert!(next_command(&attribution).contains("--format html"));
    }

    #[test]
    fn an_end_by_width_is_put_farther() {
        let mut experiment = Experiment::new(&[(0.002, 0.0)]);
        experiment.noise = 0.05;
        let plan = |workload: &&str| PlannedBlocks {
            min_blocks: Some(4),
            resolution: Some(0.9),
            ..PlannedBlocks::fixed(workload, Meter::Time, 60)
        };
        experiment.supplement.planned = experiment.workloads.iter().map(plan).collect();
        let next = next_command(&experiment.attribution());
        assert!(
            next.starts_with("next: `perfquilt run --fresh --resolution 0.45 --blocks 240` "),
            "{next}"
        );
    }

    #[test]
    fn blocks_of_an_earlier_experiment_count() {
        let mut unclear = Experiment::new(&[(0.002, 0.0)]);
        unclear.noise = 0.05;
        let mut attribution = unclear.attribution();
        for progress in &mut attribution.progress {
            (progress.done, progress.planned) = (0, Some(0));
        }
        let expected = format!("--fresh --blocks {}`", 2 * unclear.blocks);
        let next = next_command(&attribution);
        assert!(next.contains(&expected), "{next}");
        for effect in &mut attribution.patches[0].effects {
            effect.interval = Interval::Sequential;
        }
        let next = next_command(&attribution);
        assert!(next.contains("--fresh --resolution 0 --blocks"), "{next}");
    }

    #[test]
    fn the_points_are_those_of_the_effect() {
        let mut experiment = Experiment::new(&[(0.02, 0.02), (0.0, 0.0), (-0.03, -0.03)]);
        let failed = [(Point::Step(2), "it does not compile".to_owned())];
        experiment.header.failed = failed.into();
        assert_eq!(
            next_command(&experiment.attribution()),
            "next: `perfquilt profile 1 3` shows which functions patch 3 made more expensive"
        );
    }
}
