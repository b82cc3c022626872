//! Compares the same patches on two releases, with all four servers in every block.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use super::bisect::{no_values, results};
use super::jobs::PointBuilder;
use super::request::{BisectRequest, RevisionRange};
use super::{Prepared, build_item, prepare};
use crate::experiment::adaptive::{self, AdaptiveRunner};
use crate::experiment::spec::Spec;
use perfquilt_build::Built;
use perfquilt_config::workspace::Workspace;
use perfquilt_judge::bisect::two_way::{CELLS, DifferenceInDifferences, LossTable};
use perfquilt_judge::bisect::{MeasuredBlock, Question, Revision};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::ExperimentHeader;
use perfquilt_model::point::Point;
use perfquilt_rebase::PointTrees;
use perfquilt_store::Store;

/// Measures the releases called `old` and `new`, without and with the patch `which` of each series or the whole
/// series, until the source of a loss is known.
pub fn compare(
    ws: &Workspace,
    [old, new]: [&str; 2],
    which: Option<&str>,
    request: &BisectRequest,
) -> Result<LossTable> {
    if ws.config.release(Some(old))?.version == ws.config.release(Some(new))?.version {
        return Err(Error::measuring(
            "the old release and the new one are the same",
        ));
    }
    let side = |version| ReleaseSide::new(ws, version, which);
    let sides = [side(old)?, side(new)?];
    let name = |side: &ReleaseSide| side.prepared.release.name.clone();
    let releases = sides.each_ref().map(name);
    let question = request.question_of(&RevisionRange {
        release: releases[0].clone(),
        noun: "patch",
        states: sides.iter().flat_map(ReleaseSide::states).collect(),
    })?;
    let mut comparison = DifferenceInDifferences::new(question.clone(), releases.clone());

    let preset = &request.preset;
    let mut servers = Vec::with_capacity(CELLS);
    for side in &sides {
        let item = |point| build_item(&side.prepared, point);
        let on = preset.on.as_deref();
        let builder = PointBuilder::new(ws, &preset.recipe, on, item(Point::BASE)?)?;
        for point in side.points {
            let (built, seconds) = builder.build_one(&item(point)?)?;
            if !built.cached {
                comparison.built(seconds);
            }
            servers.push(built);
        }
    }
    let mut header = ExperimentHeader::new(&releases[0], &preset.recipe);
    let labels: Vec<&str> = question
        .states
        .iter()
        .map(|state| state.label.as_str())
        .collect();
    header.series = labels[1..].iter().copied().map(str::to_owned).collect();
    let spec = Spec::of_question(ws, preset, &question, header)?;
    let programs = (0..).map(Point::Step).zip(&servers);
    let observed = spec.observed(programs.map(|(point, built)| (point, &*built.identity)))?;
    let digest = Sha256::digest(format!("{observed}{} {}", releases[1], question.meter));
    let name = &hex::encode(digest)[..12];
    let store = Store::open(&results(ws))?;
    let cells = cells(&servers);
    let measured: BTreeSet<usize> = cells.into_iter().collect();
    let measured: Vec<usize> = measured.into_iter().collect();
    let add = |comparison: &mut DifferenceInDifferences, block: &MeasuredBlock| {
        let cost = |state: usize| block.values.get(&state).copied().unwrap_or(f64::NAN);
        comparison.add(cells.map(cost), measured.len(), block.seconds);
    };
    let is_decided = |key: &str| -> Result<bool> {
        let mut so_far = DifferenceInDifferences::new(question.clone(), releases.clone());
        let blocks = adaptive::stored(&store, key, &question)?;
        blocks.iter().for_each(|block| add(&mut so_far, block));
        Ok(so_far.wanted() == 0)
    };
    let fresh = ws.answers().is_fresh().then_some(&question);
    let key = comparison_key(&store, name, fresh, &is_decided)?;
    let mut runner =
        AdaptiveRunner::open(spec, &question, format!("releases-{name}"), &key, &store)?;
    for (state, built) in servers.iter().enumerate() {
        runner.add(state, built)?;
    }
    // The new release's servers get data that its own bare server prepared.
    for state in [2, 3] {
        runner.data_of(state, &releases[1], 2);
    }
    let mut next = 0;
    let mut blocks = runner.blocks(next)?;
    loop {
        for block in &blocks {
            next = next.max(block.number + 1);
            add(&mut comparison, block);
        }
        let wanted = u32::try_from(comparison.wanted()).unwrap_or(u32::MAX);
        if wanted == 0 {
            return Ok(comparison.table());
        }
        let numbers = next..next.saturating_add(wanted);
        let what = format!("{wanted} blocks of both releases, after {next}");
        let failed;
        (blocks, failed) = runner.measure(&measured, numbers, &what)?;
        if let Some((state, error)) = failed.into_iter().next() {
            let message = format!("{} cannot be measured: {error}", labels[state]);
            return Err(error.reworded(message));
        }
        if blocks.is_empty() {
            return Err(no_values(&question, &labels));
        }
    }
}

/// Returns the key under which the comparison of `identity` is stored: the latest one, or the first. A `fresh` question uses no
/// earlier measurements: its key is that of an undecided comparison with the same question, or a new one.
fn comparison_key(
    store: &Store,
    identity: &str,
    fresh: Option<&Question>,
    is_decided: &dyn Fn(&str) -> Result<bool>,
) -> Result<String> {
    let first = format!("releases {identity}");
    let keys = store.keys(&first)?;
    let Some(question) = fresh else {
        return Ok(keys.into_iter().next().unwrap_or(first));
    };
    let (size, error, most_blocks) = (question.size, question.error, question.most_blocks);
    let asked = format!(" fresh {size} {error} {most_blocks}");
    if let Some(last) = keys.iter().find(|key| key.ends_with(&asked))
        && !is_decided(last)?
    {
        return Ok(last.clone());
    }
    Ok(format!("{first} {}{asked}", keys.len() + 1))
}

/// Returns the state whose server is measured for each state: if both states of a release are the same server,
/// it is started once per block.
fn cells(servers: &[Built]) -> [usize; CELLS] {
    [0, 1, 2, 3].map(|state| {
        let before = state / 2 * 2;
        if servers[state].identity == servers[before].identity {
            before
        } else {
            state
        }
    })
}

/// A release with its series, and the two points that are compared.
struct ReleaseSide {
    prepared: Prepared,
    points: [Point; 2],
}

impl ReleaseSide {
    fn new(ws: &Workspace, version: &str, which: Option<&str>) -> Result<Self> {
        let prepared = prepare(ws, Some(version))?;
        let patches = prepared.series.patches();
        let (before, after) = match which {
            None => (0, patches.len()),
            Some(wanted) => {
                let by_name = patches.iter().position(|patch| patch.name == wanted);
                let by_number = wanted
                    .parse::<usize>()
                    .ok()
                    .filter(|k| (1..=patches.len()).contains(k))
                    .map(|k| k - 1);
                let names = patches.iter().map(|patch| &patch.name);
                let unknown = || Error::unknown("patch", wanted, names);
                let place = by_name.or(by_number).ok_or_else(unknown)?;
                (place, place + 1)
            }
        };
        if before == after {
            return Err(Error::series_empty(format!(
                "the series on {} has no patches",
                prepared.release.name
            )));
        }
        Ok(ReleaseSide {
            prepared,
            points: [before, after].map(Point::Step),
        })
    }

    fn states(&self) -> Vec<Revision> {
        let patches = self.prepared.series.patches();
        self.points
            .iter()
            .map(|&point| {
                let patch = match point {
                    Point::Step(k) => k.checked_sub(1).and_then(|index| patches.get(index)),
                    _ => None,
                };
                Revision {
                    label: format!("{} at point {point}", self.prepared.release.name),
                    name: patch.map_or(String::new(), |patch| patch.name.clone()),
                    title: patch.map_or(String::new(), |patch| patch.title.clone()),
                    tree: self.prepared.stack.tree(point).unwrap_or_default(),
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_comparison_is_a_new_one_and_goes_on_until_it_is_decided() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("bisect.db")).unwrap();
        let begin = |fresh: Option<&Question>, decided: bool| {
            let header = ExperimentHeader::new("toy-1", "make");
            let key = comparison_key(&store, "x", fresh, &|_| Ok(decided)).unwrap();
            store.begin(&header, &key).unwrap();
            key
        };
        let latest = || begin(None, false);
        let fresh = |size: f64, decided: bool| {
            let question = Question {
                size,
                ..super::super::testing::question(4)
            };
            begin(Some(&question), decided)
        };
        assert_eq!(latest(), "releases x");
        assert_eq!(latest(), "releases x");
        // A comparison that may use earlier measurements is not continued.
        let second = fresh(0.01, false);
        assert!(second.starts_with("releases x 2 fresh 0.01 "), "{second}");
        assert_eq!(fresh(0.01, false), second);
        assert_eq!(latest(), second);
        // Another size is another question.
        let third = fresh(0.05, false);
        assert!(third.starts_with("releases x 3 fresh 0.05 "), "{third}");
        let fourth = fresh(0.01, true);
        assert!(fourth.starts_with("releases x 4 fresh 0.01 "), "{fourth}");
        assert_eq!(fresh(0.01, false), fourth);
    }

    #[test]
    fn a_server_is_started_once_for_both_states_of_a_release() {
        let built = |identity: &str| Built::existing("", "", identity);
        let of = |identities: [&str; CELLS]| cells(&identities.map(built));
        assert_eq!(of(["a", "b", "c", "d"]), [0, 1, 2, 3]);
        assert_eq!(of(["a", "a", "c", "d"]), [0, 0, 2, 3]);
        // Each release has its own data.
        assert_eq!(of(["a", "b", "a", "a"]), [0, 1, 2, 2]);
    }
}
