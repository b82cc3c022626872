//! Servers to measure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use perfquilt_build::{Built, Relink};
use perfquilt_config::{Layouts, Preset};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::ExperimentHeader;
use perfquilt_model::point::Point;
use perfquilt_model::progress::Progress;

/// A built server to measure.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The point and its patch, for messages.
    pub label: String,
    /// The built server's folder.
    pub dir: PathBuf,
    /// How to link its executable again; `None` if that is impossible or not wanted.
    pub relink: Option<Relink>,
    /// The release whose data it needs, and the folder of the server that prepares it, if that is not the
    /// experiment's release.
    pub data: Option<(String, PathBuf)>,
}

/// Points whose data is not that of the experiment's release, with the key of the data and the folder of the
/// server that prepares it.
pub type Data = BTreeMap<Point, (String, PathBuf)>;

/// The servers to measure: one for each distinct binary, and the control.
pub(super) type Candidates = BTreeMap<Point, Candidate>;

/// Returns the servers to measure, and maps every other point to the measured point with the same binary.
pub(super) fn distinct(
    points: &[(Point, Built)],
    header: &ExperimentHeader,
) -> Result<(Candidates, BTreeMap<Point, Point>)> {
    let mut servers: BTreeMap<Point, &Built> = points
        .iter()
        .map(|(point, built)| (*point, built))
        .collect();
    servers.remove(&Point::Control);
    let Some((&Point::BASE, &base)) = servers.first_key_value() else {
        return Err(Error::bench(
            "the release itself was not built, so there is nothing to compare with",
        ));
    };
    let identities = servers
        .iter()
        .map(|(&point, built)| (point, built.identity.as_str()));
    let identical = identical(identities);
    servers.retain(|point, _| !identical.contains_key(point));
    servers.insert(Point::Control, base);
    let servers = servers.into_iter();
    let candidates = servers.map(|(point, built)| (point, candidate(point, built, header)));
    Ok((candidates.collect(), identical))
}

/// Maps each of `points`, which are in order, to the first one with the same binary, if that is another one. The text is
/// the identity of the binary.
pub(super) fn identical<'p>(
    points: impl Iterator<Item = (Point, &'p str)>,
) -> BTreeMap<Point, Point> {
    let mut first: BTreeMap<&str, Point> = BTreeMap::new();
    points
        .filter_map(|(point, identity)| {
            let same = *first.entry(identity).or_insert(point);
            (same != point).then_some((point, same))
        })
        .collect()
}

/// Returns the server of a point; `header` names its patch.
pub(super) fn candidate(point: Point, built: &Built, header: &ExperimentHeader) -> Candidate {
    let patch = match point {
        Point::Step(k) | Point::Alone(k) | Point::Without(k) => {
            k.checked_sub(1).and_then(|index| header.series.get(index))
        }
        Point::Control => None,
    };
    Candidate {
        label: match patch {
            Some(patch) => format!("{point} ({patch})"),
            None => format!("{point} (the release)"),
        },
        dir: built.dir.clone(),
        relink: None,
        data: None,
    }
}

/// Returns how to vary the servers' code layouts: as the preset says if every server can be linked again.
/// Prepares the linking then.
pub(super) fn vary_layouts(
    preset: &Preset,
    candidates: &mut Candidates,
    progress: &dyn Progress,
) -> Result<Layouts> {
    let layouts = preset.layouts.unwrap_or(Layouts::Padded);
    if layouts == Layouts::Off || preset.timed_meters().is_empty() {
        return Ok(Layouts::Off);
    }
    let mut relinks = BTreeMap::new();
    for (&point, candidate) in candidates.iter() {
        match Relink::of(&candidate.dir, layouts) {
            Ok(relink) => relinks.insert(point, relink),
            Err(reason) => {
                let reason = format!("{}: {reason}", candidate.label);
                if preset.layouts.is_some() {
                    return Err(
                        Error::usage(format!("code layouts cannot be varied: {reason}"))
                            .hint("`layouts = \"off\"` in the preset measures the servers as they were linked"),
                    );
                }
                progress.warn(&format!(
                    "code layouts are not varied, so times come from a single layout: {reason}"
                ));
                return Ok(Layouts::Off);
            }
        };
    }
    for (point, relink) in relinks {
        if let Some(candidate) = candidates.get_mut(&point) {
            candidate.relink = Some(relink);
        }
    }
    Ok(layouts)
}
#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_model::observation::Meter;
    use perfquilt_model::progress::Silent;

    fn built(point: usize, identity: &str) -> (Point, Built) {
        let built = Built {
            key: format!("key-{point}"),
            dir: format!("/{point}").into(),
            identity: identity.into(),
            seconds: perfquilt_build::BuildSeconds::default(),
            compiled_units: 0,
            cached: true,
            profile: None,
        };
        (Point::Step(point), built)
    }

    #[test]
    fn the_same_binary_is_measured_once_and_the_base_twice() {
        let points = [built(0, "a"), built(1, "b"), built(2, "b"), built(3, "a")];
        let (candidates, identical) =
            distinct(&points, &ExperimentHeader::new("toy-1", "quick")).unwrap();
        let measured: Vec<Point> = candidates.keys().copied().collect();
        assert_eq!(measured, [Point::Step(0), Point::Step(1), Point::Control]);
        assert_eq!(
            candidates[&Point::Control].dir,
            candidates[&Point::BASE].dir
        );
        assert_eq!(
            identical,
            BTreeMap::from([
                (Point::Step(2), Point::Step(1)),
                (Point::Step(3), Point::Step(0))
            ])
        );
    }

    #[test]
    fn layouts_are_varied_where_every_server_can_be_linked_again() {
        let folder = tempfile::tempdir().unwrap();
        let server = |name: &str, link: &str| {
            let dir = folder.path().join(name);
            std::fs::create_dir_all(dir.join("relink")).unwrap();
            std::fs::write(dir.join("relink/link.json"), link).unwrap();
            Candidate {
                label: name.into(),
                dir,
                relink: None,
                data: None,
            }
        };
        let preset = |layouts: Option<Layouts>| Preset {
            name: String::new(),
            on: None,
            description: String::new(),
            recipe: "r".into(),
            workloads: Vec::new(),
            meters: vec![Meter::Time],
            blocks: 2,
            block_seconds: 1.0,
            count_blocks: 0,
            layouts,
            test: false,
            sql_bench: Default::default(),
            min_blocks: None,
            resolution: None,
            lanes: Default::default(),
            budget: None,
        };
        let vary = |layouts, candidates: &mut Candidates| {
            vary_layouts(&preset(layouts), candidates, &Silent)
        };
        let good = r#"{"words":["cc"],"env":{}}"#;
        let mut candidates = BTreeMap::from([(Point::BASE, server("a", good))]);
        assert_eq!(
            vary(Some(Layouts::Off), &mut candidates).unwrap(),
            Layouts::Off
        );
        assert!(candidates[&Point::BASE].relink.is_none());
        assert_eq!(vary(None, &mut candidates).unwrap(), Layouts::Padded);
        assert!(candidates[&Point::BASE].relink.is_some());
        let bad = r#"{"words":[],"env":{},"reason":"no linker"}"#;
        candidates.insert(Point::Step(1), server("b", bad));
        assert_eq!(vary(None, &mut candidates).unwrap(), Layouts::Off);
        let error = vary(Some(Layouts::Padded), &mut candidates).unwrap_err();
        assert!(error.message().contains("b: no linker"), "{error}");
    }

    #[test]
    fn without_a_base_there_is_nothing_to_compare_with() {
        assert!(distinct(&[built(1, "b")], &ExperimentHeader::new("toy-1", "quick")).is_err());
    }
}
