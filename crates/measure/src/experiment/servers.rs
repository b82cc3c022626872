//! Servers to measure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use perfquilt_build::{Built, Relink};
use perfquilt_config::{Layouts, Preset};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::ExperimentHeader;
use perfquilt_model::point::Point;
use perfquilt_model::progress::Progress;
use serde::{Deserialize, Serialize};

/// Points whose data is not that of the experiment's release, with the key of the data and the folder of the
/// server that prepares it.
pub type Data = BTreeMap<Point, (String, PathBuf)>;

/// A server of an experiment.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExperimentServer {
    /// Its name in messages: the point and its patch.
    pub label: String,
    /// Its folder.
    pub dir: PathBuf,
    /// The release whose data it needs, or another name of them, and the folder of the built server that prepares them;
    /// `None` if they are those of the others.
    pub data: Option<(String, PathBuf)>,
    /// Links it again in another layout; `None` where layouts are not varied.
    #[serde(skip)]
    pub relink: Option<Relink>,
}

/// The servers to measure: one for each distinct binary, and the control.
pub(super) type Servers = BTreeMap<Point, ExperimentServer>;

/// Returns the servers to measure, and maps every other point to the measured point with the same binary.
pub(super) fn distinct(
    points: &[(Point, Built)],
    header: &ExperimentHeader,
) -> Result<(Servers, BTreeMap<Point, Point>)> {
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
    let servers = servers.map(|(point, built)| (point, server(point, built, header)));
    Ok((servers.collect(), identical))
}

/// Returns a server for each of `points`, and the control, without regard to which are the same binary.
pub(super) fn each(points: &[(Point, Built)], header: &ExperimentHeader) -> Servers {
    let control = points.iter().find(|(point, _)| *point == Point::BASE);
    let control = control.map(|(_, base)| (Point::Control, base));
    let servers = points.iter().map(|(point, built)| (*point, built));
    let servers = servers.chain(control);
    servers
        .map(|(point, built)| (point, server(point, built, header)))
        .collect()
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
pub(super) fn server(point: Point, built: &Built, header: &ExperimentHeader) -> ExperimentServer {
    let patch = match point {
        Point::Step(k) | Point::Alone(k) | Point::Without(k) => {
            k.checked_sub(1).and_then(|index| header.series.get(index))
        }
        Point::Control => None,
    };
    ExperimentServer {
        label: match patch {
            Some(patch) => format!("{point} ({patch})"),
            None => format!("{point} (the release)"),
        },
        dir: built.dir.clone(),
        data: None,
        relink: None,
    }
}

/// Returns how to vary the servers' code layouts: as the preset says if every server can be linked again, and how to link
/// them then.
pub(super) fn vary_layouts(
    preset: &Preset,
    servers: &mut Servers,
    progress: &dyn Progress,
) -> Result<Layouts> {
    let layouts = preset.layouts.unwrap_or(Layouts::Padded);
    if layouts == Layouts::Off || preset.timed_meters().is_empty() {
        return Ok(Layouts::Off);
    }
    match add_relinks(servers, layouts) {
        Ok(()) => Ok(layouts),
        Err(reason) if preset.layouts.is_some() => {
            let fault = format!("code layouts cannot be varied: {reason}");
            let hint = "`layouts = \"off\"` in the preset measures the servers as they were linked";
            Err(Error::usage(fault).hint(hint))
        }
        Err(reason) => {
            progress.warn(&format!(
                "code layouts are not varied, so times come from a single layout: {reason}"
            ));
            Ok(Layouts::Off)
        }
    }
}

/// Adds to each server how to link it again; to none if one cannot be.
pub(super) fn add_relinks(servers: &mut Servers, layouts: Layouts) -> Result<(), String> {
    let relink = |server: &ExperimentServer| {
        let relink = Relink::of(&server.dir, layouts);
        relink.map_err(|reason| format!("{}: {reason}", server.label))
    };
    let relinks: Vec<Relink> = servers.values().map(relink).collect::<Result<_, _>>()?;
    for (server, relink) in servers.values_mut().zip(relinks) {
        server.relink = Some(relink);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_model::observation::Meter;
    use perfquilt_model::progress::Silent;

    fn built(point: usize, identity: &str) -> (Point, Built) {
        let built = Built::existing(&format!("key-{point}"), format!("/{point}"), identity);
        (Point::Step(point), built)
    }

    #[test]
    fn the_same_binary_is_measured_once_and_the_base_twice() {
        let points = [built(0, "a"), built(1, "b"), built(2, "b"), built(3, "a")];
        let header = ExperimentHeader::new("toy-1", "quick");
        let (servers, identical) = distinct(&points, &header).unwrap();
        let measured: Vec<Point> = servers.keys().copied().collect();
        assert_eq!(measured, [Point::Step(0), Point::Step(1), Point::Control]);
        assert_eq!(servers[&Point::Control].dir, servers[&Point::BASE].dir);
        assert_eq!(each(&points, &header).len(), 5);
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
            ExperimentServer {
                label: name.into(),
                dir,
                data: None,
                relink: None,
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
        let vary = |layouts, servers: &Servers| {
            let mut servers = servers.clone();
            let varied = vary_layouts(&preset(layouts), &mut servers, &Silent)?;
            let relinks = servers.values().filter(|server| server.relink.is_some());
            Ok::<_, Error>((varied, relinks.count()))
        };
        let good = r#"{"words":["cc"],"env":{}}"#;
        let mut servers = BTreeMap::from([(Point::BASE, server("a", good))]);
        let off = vary(Some(Layouts::Off), &servers).unwrap();
        assert_eq!(off, (Layouts::Off, 0));
        assert_eq!(vary(None, &servers).unwrap(), (Layouts::Padded, 1));
        let bad = r#"{"words":[],"env":{},"reason":"no linker"}"#;
        servers.insert(Point::Step(1), server("b", bad));
        assert_eq!(vary(None, &servers).unwrap(), (Layouts::Off, 0));
        let error = vary(Some(Layouts::Padded), &servers).unwrap_err();
        assert!(error.message().contains("b: no linker"), "{error}");
    }

    #[test]
    fn without_a_base_there_is_nothing_to_compare_with() {
        assert!(distinct(&[built(1, "b")], &ExperimentHeader::new("toy-1", "quick")).is_err());
    }
}
