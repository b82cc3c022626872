//! Servers to measure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use perfquilt_build::{Built, Relink};
use perfquilt_config::{Layouts, Preset};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::ExperimentHeader;
use perfquilt_model::point::Point;
use perfquilt_model::progress;
use perfquilt_model::warning::Warning;
use serde::{Deserialize, Serialize};

/// The name of a server's data, such as its release's, and the folder of the built server that prepares them.
pub type ServerData = (String, PathBuf);

/// A built server to measure, from the request to its starts on this machine or on others.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Server {
    /// Its name in messages: the point and its patch.
    pub label: String,
    /// Its folder.
    pub dir: PathBuf,
    /// The identity of its program; empty on other machines, which need not know it.
    #[serde(skip)]
    pub identity: String,
    /// Its data; `None` if they are those of the experiment's release.
    pub data: Option<ServerData>,
    /// Links it again in another layout; `None` where layouts are not varied.
    #[serde(skip)]
    pub relink: Option<Relink>,
}

impl Server {
    /// Returns the built server of a point; `header` names its patch.
    pub fn new(point: Point, built: &Built, header: &ExperimentHeader) -> Self {
        let patch = point.patch().and_then(|k| header.series.get(k - 1));
        Server {
            label: match patch {
                Some(patch) => format!("{point} ({patch})"),
                None => format!("{point} (the release)"),
            },
            dir: built.dir.clone(),
            identity: built.identity.clone(),
            data: None,
            relink: None,
        }
    }
}

/// The servers of an experiment.
pub type Servers = BTreeMap<Point, Server>;

/// Returns the programs of the servers.
pub(super) fn programs(servers: &Servers) -> impl Iterator<Item = (Point, &str)> {
    let servers = servers.iter();
    servers.map(|(point, server)| (*point, server.identity.as_str()))
}

/// Returns the servers to measure, one for each distinct program and the control, and maps every other point to the
/// measured point with the same program.
pub(super) fn distinct(servers: &Servers) -> Result<(Servers, BTreeMap<Point, Point>)> {
    if !servers.contains_key(&Point::BASE) {
        return Err(Error::release_not_built(
            "the release itself was not built, so there is nothing to compare with",
        ));
    }
    let identical = identical(programs(servers));
    let mut measured = with_control(servers);
    measured.retain(|point, _| !identical.contains_key(point));
    Ok((measured, identical))
}

/// Returns the servers, and the base's again as the control.
pub(super) fn with_control(servers: &Servers) -> Servers {
    let mut servers = servers.clone();
    if let Some(base) = servers.get(&Point::BASE).cloned() {
        let label = format!("{} (the release)", Point::Control);
        servers.insert(Point::Control, Server { label, ..base });
    }
    servers
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

/// Returns how the preset varies code layouts, where servers can be linked again. Counts do not depend on them.
pub(super) fn wanted_layouts(preset: &Preset) -> Layouts {
    if preset.timed_meters().is_empty() {
        return Layouts::Off;
    }
    preset.layouts.unwrap_or(Layouts::Padded)
}

/// Returns how to vary the servers' code layouts: as the preset says if every server can be linked again, and how to link
/// them then.
pub(super) fn vary_layouts(preset: &Preset, servers: &mut Servers) -> Result<Layouts> {
    let layouts = wanted_layouts(preset);
    if layouts == Layouts::Off {
        return Ok(Layouts::Off);
    }
    match add_relinks(servers, layouts) {
        Ok(()) => Ok(layouts),
        Err(reason) if preset.layouts.is_some() => {
            let fault = format!("code layouts cannot be varied: {reason}");
            let hint = "`layouts = \"off\"` in the preset measures the servers as they were linked";
            Err(Error::measuring(fault).hint(hint))
        }
        Err(reason) => {
            progress::warn(Warning::one_layout(format!(
                "code layouts are not varied, so times come from a single layout: {reason}"
            )));
            Ok(Layouts::Off)
        }
    }
}

/// Adds to each server how to link it again; to none if one cannot be.
pub(super) fn add_relinks(servers: &mut Servers, layouts: Layouts) -> Result<(), String> {
    let relink = |server: &Server| {
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

    fn servers<const N: usize>(built: [(usize, &str); N]) -> Servers {
        let header = ExperimentHeader::new("toy-1", "quick");
        let server = |(step, identity): (usize, &str)| {
            let built = Built::existing(&format!("key-{step}"), format!("/{step}"), identity);
            let point = Point::Step(step);
            (point, Server::new(point, &built, &header))
        };
        built.map(server).into()
    }

    #[test]
    fn the_same_binary_is_measured_once_and_the_base_twice() {
        let given = servers([(0, "a"), (1, "b"), (2, "b"), (3, "a")]);
        let (servers, identical) = distinct(&given).unwrap();
        let measured: Vec<Point> = servers.keys().copied().collect();
        assert_eq!(measured, [Point::Step(0), Point::Step(1), Point::Control]);
        assert_eq!(servers[&Point::Control].dir, servers[&Point::BASE].dir);
        assert_eq!(with_control(&given).len(), 5);
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
            Server {
                label: name.into(),
                dir,
                identity: String::new(),
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
            let varied = vary_layouts(&preset(layouts), &mut servers)?;
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
        assert!(distinct(&servers([(1, "b")])).is_err());
    }
}
