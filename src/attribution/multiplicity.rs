//! Verdicts that hold for all rows of a table together.

use std::collections::{BTreeMap, BTreeSet};

use super::document::{Effect, Kind, Operation, PatchEffects, SUITE, Verdict};
use crate::observation::Meter;
use crate::point::Point;
use crate::stats::{benjamini_hochberg, holm};

/// Adjusts the probabilities of the patches' effects and takes back verdicts that do not hold any more.
///
/// Over patches, for each meter and kind, by Holm: of all patches of the table, none is called faster
/// or slower without being it in 95 % of experiments. Over the workloads of a patch, beside
/// the suite, by Benjamini and Hochberg: of the workloads it is said to change, at most one in twenty is not
/// changed, on average.
///
/// Over all operations, for each meter, kind and patch, likewise by Benjamini and Hochberg.
pub(super) fn adjust(patches: &mut [PatchEffects], operations: &mut [Operation]) {
    let mut over_patches: BTreeMap<(Kind, Meter), Vec<&mut Effect>> = BTreeMap::new();
    for patch in patches {
        // A meter that was read on one workload has no suite, whatever others have.
        let suites: BTreeSet<(Kind, Meter)> = patch
            .effects
            .iter()
            .filter(|effect| effect.workload == SUITE)
            .map(|effect| (effect.kind, effect.meter))
            .collect();
        let mut over_workloads: BTreeMap<(Kind, Meter), Vec<&mut Effect>> = BTreeMap::new();
        for effect in patch.effects.iter_mut().filter(|e| e.p_value.is_some()) {
            let family = (effect.kind, effect.meter);
            let families = match suites.contains(&family) && effect.workload != SUITE {
                true => &mut over_workloads,
                false => &mut over_patches,
            };
            families.entry(family).or_default().push(effect);
        }
        over_workloads
            .into_values()
            .for_each(|family| judge(family, benjamini_hochberg));
    }
    over_patches
        .into_values()
        .for_each(|family| judge(family, holm));
    let mut over_operations: BTreeMap<(Kind, Meter, Point), Vec<&mut Effect>> = BTreeMap::new();
    let effects = operations.iter_mut().flat_map(|of| &mut of.effects);
    for effect in effects.filter(|effect| effect.p_value.is_some()) {
        let family = (effect.kind, effect.meter, effect.point);
        over_operations.entry(family).or_default().push(effect);
    }
    over_operations
        .into_values()
        .for_each(|family| judge(family, benjamini_hochberg));
}

fn judge(family: Vec<&mut Effect>, adjust: fn(&[f64]) -> Vec<f64>) {
    let raw: Vec<f64> = family.iter().filter_map(|effect| effect.p_value).collect();
    for (effect, adjusted) in family.into_iter().zip(adjust(&raw)) {
        effect.p_adjusted = Some(adjusted);
        if effect.is_shown() && adjusted > 1.0 - effect.level {
            effect.verdict = match effect.equivalent {
                true => Verdict::NoEffect,
                false => Verdict::Unclear,
            };
        }
    }
}
