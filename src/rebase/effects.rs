//! What patches were worth on the old release and are worth on the new one, where both were measured.

use super::report::{Drop, EffectChange, Report, Worth};
use crate::attribution::{Attribution, Effect, Kind, PatchEffects, Verdict, attribute_with};
use crate::error::Result;
use crate::observation::Meter;
use crate::store::Store;
use crate::workspace::Workspace;

/// Adds what the store knows of both releases to a report: effects of each patch, and as drop
/// candidates those that no longer help.
///
/// # Errors
/// [`Kind::Internal`](crate::error::Kind::Internal) when the store cannot be read.
pub fn add_effects(ws: &Workspace, report: &mut Report) -> Result<()> {
    if !ws.results().is_file() {
        return Ok(());
    }
    let store = Store::open_existing(&ws.results())?;
    let Some(old) = latest(ws, &store, &report.from, report)? else {
        return Ok(());
    };
    let new = latest(ws, &store, &report.to, report)?;
    for patch in &mut report.patches {
        let change = change(&old, new.as_ref(), &patch.name);
        if let Some(change) = &change
            && change.no_longer_helps
            && patch.status.applies()
        {
            report.drops.push(Drop {
                index: patch.index,
                name: patch.name.clone(),
                reason: format!(
                    "no longer helps: {} was {}, is {}",
                    change.workload,
                    percent(change.old.estimate),
                    change.new.as_ref().map_or_else(String::new, |new| format!(
                        "{} ({})",
                        percent(new.estimate),
                        new.verdict
                    ))
                ),
            });
        }
        patch.effect = change;
    }
    report.drops.sort_by_key(|drop| drop.index);
    Ok(())
}

/// A fraction as `+1.2 %`.
pub(crate) fn percent(fraction: f64) -> String {
    format!("{:+.1} %", fraction * 100.0)
}

/// The latest experiment on a release that measured patches of this series.
fn latest(
    ws: &Workspace,
    store: &Store,
    release: &str,
    report: &Report,
) -> Result<Option<Attribution>> {
    for listed in store.list()? {
        let ours = |name: &String| report.patches.iter().any(|patch| patch.name == *name);
        let header = &listed.header;
        if header.release != release || listed.observations == 0 || !header.series.iter().any(ours)
        {
            continue;
        }
        let (header, observations) = store.load(listed.id)?;
        let supplement = store.supplement(listed.id)?;
        let margin = |meter: Meter| ws.config.margin(meter);
        return Ok(Some(attribute_with(
            &header,
            &observations,
            &supplement,
            &margin,
        )?));
    }
    Ok(None)
}

fn change(old: &Attribution, new: Option<&Attribution>, name: &str) -> Option<EffectChange> {
    let patch = old.patches.iter().find(|patch| patch.name == name)?;
    let before = headline(old, patch)?;
    let after = new.and_then(|new| {
        let patch = new.patches.iter().find(|patch| patch.name == name)?;
        let effect = patch.effects.iter().find(|effect| {
            effect.kind == Kind::InOrder
                && effect.workload == before.workload
                && effect.meter == before.meter
        })?;
        Some((new, effect))
    });
    let no_longer_helps = before.verdict == Verdict::Faster
        && after.is_some_and(|(_, effect)| match effect.verdict {
            Verdict::NoEffect | Verdict::Slower => true,
            Verdict::Faster => false,
            // An effect as large as the old one would have been seen.
            Verdict::Unclear => effect
                .minimum_detectable
                .is_some_and(|least| least < before.estimate),
        });
    Some(EffectChange {
        workload: before.workload.clone(),
        meter: before.meter.name().to_owned(),
        old: worth(old, before),
        new: after.map(|(new, effect)| worth(new, effect)),
        no_longer_helps,
    })
}

/// The effect a patch is kept for: the surest gain, on time if there is one there; else the one that
/// verdicts are about.
fn headline<'a>(attribution: &'a Attribution, patch: &'a PatchEffects) -> Option<&'a Effect> {
    let in_order = || patch.effects.iter().filter(|e| e.kind == Kind::InOrder);
    let gain = |meter: Meter| {
        in_order()
            .filter(|effect| effect.meter == meter && effect.verdict == Verdict::Faster)
            .max_by(|a, b| a.low.unwrap_or(0.0).total_cmp(&b.low.unwrap_or(0.0)))
    };
    Meter::ALL.into_iter().find_map(gain).or_else(|| {
        let meter = attribution.main_meter()?;
        attribution.main_effect(&patch.effects, Kind::InOrder, meter)
    })
}

fn worth(attribution: &Attribution, effect: &Effect) -> Worth {
    Worth {
        experiment: attribution.experiment.clone(),
        estimate: effect.estimate,
        low: effect.low,
        high: effect.high,
        verdict: effect.verdict.to_string(),
    }
}
