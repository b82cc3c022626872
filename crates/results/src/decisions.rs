//! Maintainers' decisions on patches, in the workspace's file `bench-config/decisions.toml`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::analyse;
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{read_recorded, write_recorded};
use perfquilt_judge::attribution::{Attribution, PatchEffects};
use perfquilt_model::comparable::Part;
use perfquilt_model::decision::{DecisionKind, PatchDecision};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::Meter;
use perfquilt_model::point::Point;
use perfquilt_store::Store;

/// The file's path inside a workspace.
pub const DECISIONS_FILE: &str = "bench-config/decisions.toml";
/// The longest reason, in bytes.
const LONGEST_REASON: usize = 500;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DecisionsDocument {
    #[serde(default)]
    decision: Vec<PatchDecision>,
}

fn path(ws: &Workspace) -> PathBuf {
    ws.root().join(DECISIONS_FILE)
}

/// Returns the recorded decisions.
pub fn read(ws: &Workspace) -> Result<Vec<PatchDecision>> {
    let document: DecisionsDocument = read_recorded(&path(ws), DECISIONS_FILE)?;
    Ok(document.decision)
}

/// Records a decision on the patch `name`, bound to what its latest experiment on `release` measured, in place of an earlier
/// one. Returns it.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) without such an experiment, and to keep a patch that is not slower
/// there.
pub fn record(
    ws: &Workspace,
    name: &str,
    release: &str,
    decision: DecisionKind,
    reason: &str,
) -> Result<PatchDecision> {
    let reason = reason.trim();
    if reason.is_empty() || reason.len() > LONGEST_REASON || reason.chars().any(char::is_control) {
        let fault = format!("the reason must be one line of at most {LONGEST_REASON} bytes");
        return Err(Error::arguments(fault));
    }
    let unmeasured = || {
        Error::arguments(format!("{name} was not measured on {release}"))
            .hint("a decision is bound to what was measured: `perfquilt run`")
    };
    let store = Store::open_existing(&ws.results())?;
    let attribution = latest(ws, &store, release, &[name.to_owned()])?;
    let attribution = attribution.ok_or_else(unmeasured)?;
    let patch = attribution.patches.iter().find(|patch| patch.name == name);
    let patch = patch.ok_or_else(unmeasured)?;
    let decided = bound(&attribution, patch, decision, reason)?;
    let mut all = read(ws)?;
    all.retain(|of| !of.is_of(name, release, &attribution.recipe));
    all.push(decided.clone());
    let document = DecisionsDocument { decision: all };
    write_recorded(&path(ws), "perfquilt accept", &document)?;
    Ok(decided)
}

/// Returns the attribution of the latest experiment on a release that measured patches with some of these names, with the
/// decisions on them.
pub(crate) fn latest(
    ws: &Workspace,
    store: &Store,
    release: &str,
    names: &[String],
) -> Result<Option<Attribution>> {
    for listed in store.list()? {
        let ours = |name: &String| names.contains(name);
        let header = &listed.header;
        let of_release = header.release == release && !header.is_of_servers();
        if !of_release || listed.observations == 0 || !header.series.iter().any(ours) {
            continue;
        }
        let margin = |meter: Meter| ws.config.margin(meter);
        let mut found = analyse::effects(store, listed.id, &margin)?;
        found.decide(&read(ws)?);
        return Ok(Some(found));
    }
    Ok(None)
}

/// Binds a decision to the programs and workloads of an experiment.
fn bound(
    attribution: &Attribution,
    patch: &PatchEffects,
    decision: DecisionKind,
    reason: &str,
) -> Result<PatchDecision> {
    let experiment = &attribution.experiment;
    let mut slower = attribution.slower_on(patch);
    if slower.is_empty() && decision == DecisionKind::Keep {
        let fault = format!("{} is not slower in {experiment}", patch.name);
        let hint = format!("`perfquilt report {experiment}` shows its effects");
        return Err(Error::arguments(fault).hint(hint));
    }
    if slower.is_empty() {
        slower = attribution.workloads.iter().map(String::as_str).collect();
    }
    let known = |part: Part| {
        let value = attribution.bound.get(&part).map(str::to_owned);
        value.ok_or_else(|| {
            Error::arguments(format!("{experiment} does not tell its {part}"))
                .hint("`perfquilt run --fresh` measures again")
        })
    };
    let program = |step: usize| known(Part::Program(Point::Step(step)));
    let digests = slower.into_iter().map(|name| {
        let digest = known(Part::Workload(name.to_owned()))?;
        Ok((name.to_owned(), digest))
    });
    Ok(PatchDecision {
        patch: patch.name.clone(),
        decision,
        reason: reason.to_owned(),
        decided: jiff::Timestamp::now().to_string(),
        release: attribution.release.clone(),
        recipe: attribution.recipe.clone(),
        before: program(patch.index - 1)?,
        program: program(patch.index)?,
        workloads: digests.collect::<Result<_>>()?,
    })
}
