//! Servers to measure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use perfquilt_bench::server::MeasuredServer;
use perfquilt_build::{Built, Relink};
use perfquilt_config::{Layouts, Preset};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::ExperimentHeader;
use perfquilt_model::point::Point;
use perfquilt_model::progress::Progress;

/// Points whose data is not that of the experiment's release, with the key of the data and the folder of the
/// server that prepares it.
pub type Data = BTreeMap<Point, (String, PathBuf)>;

/// The servers to measure: one for each distinct binary, and the control.
pub(super) type Servers = BTreeMap<Point, MeasuredServer>;

/// How to link the executables of all servers to measure again; empty if one cannot be, or layouts are not varied.
pub(super) type Relinks = BTreeMap<Point, Relink>;

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
pub(super) fn server(point: Point, built: &Built, header: &ExperimentHeader) -> MeasuredServer {
    let patch = match point {
        Point::Step(k) | Point::Alone(k) | Point::Without(k) => {
            k.checked_sub(1).and_then(|index| header.series.get(index))
        }
        Point::Control => None,
    };
    MeasuredServer {
        label: match patch {
            Some(patch) => format!("{point} ({patch})"),
            None => format!("{point} (the release)"),
        },
        dir: built.dir.clone(),
        data: None,
    }
}

/// Returns how to vary the servers' code layouts: as the preset says if every server can be linked again, and how to link
/// them then.
pub(super) fn vary_layouts(
    preset: &Preset,
    servers: &Servers,
    progress: &dyn Progress,
) -> Result<(Layouts, Relinks)> {
    let layouts = preset.layouts.unwrap_or(Layouts::Padded);
    if layouts == Layouts::Off || preset.timed_meters().is_empty() {
        return Ok((Layouts::Off, Relinks::new()));
    }
    match relinks(servers, layouts) {
        Ok(relinks) => Ok((layouts, relinks)),
        Err(reason) if preset.layouts.is_some() => {
            let fault = format!("code layouts cannot be varied: {reason}");
            let hint = "`layouts = \"off\"` in the preset measures the servers as they were linked";
            Err(Error::usage(fault).hint(hint))
        }
        Err(reason) => {
            progress.warn(&format!(
                "code layouts are not varied, so times come from a single layout: {reason}"
            ));
            Ok((Layouts::Off, Relinks::new()))
        }
    }
}

/// Returns how to link servers again, or why the first one that cannot be cannot.
pub(super) fn relinks(servers: &Servers, layouts: Layouts) -> Result<Relinks, String> {
    let relink = |(&point, server): (&Point, &MeasuredServer)| {
        let relink = Relink::of(&server.dir, layouts);
        let relink = relink.map_err(|reason| format!("{}: {reason}", server.label))?;
        Ok((point, relink))
    };
    servers.iter().map(relink).collect()
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
            MeasuredServer {
                label: name.into(),
                dir,
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
        let vary = |layouts, servers: &Servers| vary_layouts(&preset(layouts), servers, &Silent);
        let good = r#"{"words":["cc"],"env":{}}"#;
        let mut servers = BTreeMap::from([(Point::BASE, server("a", good))]);
        let (layouts, relinks) = vary(Some(Layouts::Off), &servers).unwrap();
        assert_eq!((layouts, relinks.len()), (Layouts::Off, 0));
        let (layouts, relinks) = vary(None, &servers).unwrap();
        assert_eq!((layouts, relinks.len()), (Layouts::Padded, 1));
        let bad = r#"{"words":[],"env":{},"reason":"no linker"}"#;
        servers.insert(Point::Step(1), server("b", bad));
        let (layouts, relinks) = vary(None, &servers).unwrap();
        assert_eq!((layouts, relinks.len()), (Layouts::Off, 0));
        let error = vary(Some(Layouts::Padded), &servers).unwrap_err();
        assert!(error.message().contains("b: no linker"), "{error}");
    }

    #[test]
    fn without_a_base_there_is_nothing_to_compare_with() {
        assert!(distinct(&[built(1, "b")], &ExperimentHeader::new("toy-1", "quick")).is_err());
    }
}
