//! The next command after a report.

use super::escape::{SENTENCE, shell};
use super::text::{clean, cleaned};
use perfquilt_judge::attribution::{Attribution, Effect, EffectKind, StoppingRule, Verdict};

/// Returns the next useful command after the report of a stored experiment, with its purpose.
pub fn next_command(attribution: &Attribution) -> String {
    // Servers named by hand are no points of a series.
    let series = attribution.base.is_none();
    let command = attribution.command.as_deref().map(|c| cleaned(c, SENTENCE));
    if !attribution.is_complete() {
        return match command {
            Some(command) => format!("next: `{command}` continues where it stopped"),
            None => "next: the same command continues where it stopped".to_owned(),
        };
    }
    let of = |wanted: &dyn Fn(&Effect) -> bool| {
        let meter = attribution.main_meter()?;
        attribution.patches.iter().find_map(|patch| {
            let effect = attribution.main_effect(&patch.effects, EffectKind::InOrder, meter)?;
            (wanted(effect) && !effect.is_stale()).then_some((patch.index, effect))
        })
    };
    // A profile would run unreviewed code outside of the sandbox.
    let sandboxed = is_sandboxed(attribution);
    if series
        && !sandboxed
        && let Some((index, effect)) = of(&Effect::is_regression)
    {
        return format!(
            "next: `perfquilt profile {} {}` shows which functions patch {index} made more expensive",
            effect.against, effect.point
        );
    }
    if let Some((_, effect)) = of(&|effect| effect.verdict == Verdict::Unclear) {
        let (options, purpose) = narrower(attribution, effect);
        return match command {
            Some(command) => {
                let command = without_replaced(&command, &options);
                format!("next: `{command} {options}` {purpose}")
            }
            None => format!("next: the same command with `{options}` {purpose}"),
        };
    }
    if attribution.patches.is_empty() {
        return "next: `perfquilt edit` makes a git branch for your own patches; `perfquilt import SOURCE` imports others'"
            .to_owned();
    }
    match command {
        Some(command) if sandboxed => {
            format!("next: `{command} --format html > report.html` writes a page")
        }
        _ => format!(
            "next: `perfquilt report {} --format html --output report.html` writes a page",
            shell(&clean(&attribution.experiment))
        ),
    }
}

/// Returns a command without those of its options, and their values, that `options` give other values.
fn without_replaced(command: &str, options: &str) -> String {
    let is_replaced = |word: &&str| {
        let mut given = options.split(' ');
        *word != "--fresh" && word.starts_with("--") && given.any(|option| option == *word)
    };
    let mut words = command.split(' ');
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        if is_replaced(&word) {
            words.next();
        } else {
            kept.push(word);
        }
    }
    kept.join(" ")
}

/// Returns whether an experiment was measured in a sandbox, whose results no other command reads.
pub(super) fn is_sandboxed(attribution: &Attribution) -> bool {
    let command = attribution.command.as_deref().unwrap_or_default();
    command.split(' ').any(|word| word == "--sandbox")
}

/// Returns the options that make intervals narrower, and what they do. More blocks join those of a finished experiment. Its
/// result was seen, so their intervals hold at every look: the user may stop as soon as the answer is clear.
fn narrower(attribution: &Attribution, unclear: &Effect) -> (String, &'static str) {
    let done = attribution.progress.iter().map(|p| p.done as usize).max();
    // A rule that looks at widths would end where the experiment ended.
    let all = if attribution.stopping.is_some() || unclear.interval == StoppingRule::FixedWidth {
        " --resolution 0"
    } else {
        ""
    };
    let command = attribution.command.as_deref().unwrap_or_default();
    // With `--fresh`, the command would begin another experiment.
    let is_fresh = command.split(' ').any(|word| word == "--fresh");
    match unclear.joined_blocks() {
        Some(joined) if done.unwrap_or(0) > 0 && !is_fresh => (
            format!("{} --blocks {joined}", all).trim_start().to_owned(),
            "adds blocks to these, for narrower intervals that hold at every look: stop when the answer is clear",
        ),
        // Blocks of another experiment, or too few for an interval.
        _ => (
            format!(
                "{}{all} --blocks {}",
                if is_fresh { "" } else { "--fresh" },
                2 * done.unwrap_or(1).max(unclear.blocks)
            )
            .trim_start()
            .to_owned(),
            "measures again, for narrower intervals",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::method::commands;
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
                "next: `perfquilt report {} --format html --output report.html` writes a page",
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
        // No other command reads the results of a sandbox, or may run its servers.
        slower.header.base = None;
        slower.header.command = Some("perfquilt run --sandbox".to_owned());
        assert_eq!(
            next(&slower),
            "next: `perfquilt run --sandbox --format html > report.html` writes a page"
        );
        let commands = commands(&slower.attribution(), "html", true);
        assert!(
            !commands
                .iter()
                .any(|line| line.starts_with("perfquilt report"))
        );
        let mut unclear = Experiment::new(&[(0.002, 0.0)]);
        unclear.noise = 0.05;
        let effects = unclear.attribution().patches[0].effects.clone();
        let joined = effects[0].joined_blocks().unwrap();
        assert!(joined > 2 * unclear.blocks as usize, "{joined}");
        let purpose = "adds blocks to these, for narrower intervals that hold at every look: stop when the answer is clear";
        assert_eq!(
            next(&unclear),
            format!("next: the same command with `--blocks {joined}` {purpose}")
        );
        unclear.header.command = Some("perfquilt run --preset series".to_owned());
        assert_eq!(
            next(&unclear),
            format!("next: `perfquilt run --preset series --blocks {joined}` {purpose}")
        );
        unclear.header.command = Some("perfquilt run --blocks 3 --preset 'a b'".to_owned());
        assert_eq!(
            next(&unclear),
            format!("next: `perfquilt run --preset 'a b' --blocks {joined}` {purpose}")
        );
        // No command adds blocks to a finished experiment that uses none of others.
        unclear.header.command = Some("perfquilt run --fresh".to_owned());
        assert_eq!(
            next(&unclear),
            format!(
                "next: `perfquilt run --fresh --blocks {}` measures again, for narrower intervals",
                2 * unclear.blocks
            )
        );
        let mut attribution = unclear.attribution();
        for effect in &mut attribution.patches[0].effects {
            effect.provenance = Some(Provenance::Stale("quick-0".into()));
        }
        assert!(next_command(&attribution).contains("--format html"));
    }

    #[test]
    fn an_unfinished_experiment_is_continued_by_its_command() {
        let mut experiment = Experiment::new(&[(0.02, 0.02)]);
        let plan =
            |workload: &&str| PlannedBlocks::fixed(workload, Meter::Time, 2 * experiment.blocks);
        experiment.supplement.planned = experiment.workloads.iter().map(plan).collect();
        let next = |experiment: &Experiment| next_command(&experiment.attribution());
        assert_eq!(
            next(&experiment),
            "next: the same command continues where it stopped"
        );
        experiment.header.command = Some("perfquilt run --preset 'a b'\x1b[1m".to_owned());
        assert_eq!(
            next(&experiment),
            "next: `perfquilt run --preset 'a b'\u{fffd}[1m` continues where it stopped"
        );
    }

    #[test]
    fn an_empty_series_has_nothing_to_draw() {
        let next = next_command(&Experiment::new(&[]).attribution());
        assert!(next.contains("`perfquilt import SOURCE`"), "{next}");
    }

    #[test]
    fn blocks_join_an_experiment_that_its_width_ended() {
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
            next.contains("`--resolution 0 --blocks ") && !next.contains("--fresh"),
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
            effect.interval = StoppingRule::FixedWidth;
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
