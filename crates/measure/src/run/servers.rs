//! Servers named one by one, measured as points.

use std::collections::{BTreeMap, BTreeSet};

use super::{FoundServer, MeasuredRun, NamedServer, RunJob};
use crate::experiment::{Server, Servers};
use perfquilt_bench::server;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::ExperimentHeader;
use perfquilt_model::point::Point;

impl RunJob<'_> {
    /// Measures `servers`, each a point and a name that [`FoundServer::find`] takes, instead of the points of the series.
    pub fn run_servers(&self, servers: &[(Point, String)]) -> Result<MeasuredRun> {
        let (servers, mut header) = self.named_servers(servers)?;
        header.command.clone_from(&self.wanted.command);
        self.measure_points(header, &servers, &[])
    }

    /// Finds the servers of `--server`, and the data of those of another release than the first one's.
    fn named_servers(&self, servers: &[(Point, String)]) -> Result<(Servers, ExperimentHeader)> {
        let ws = self.ws;
        let given: Vec<Point> = servers.iter().map(|(point, _)| *point).collect();
        check_points(&given)?;
        // All before anything is built.
        let found = servers
            .iter()
            .map(|(point, name)| Ok((*point, FoundServer::find(ws, name)?)));
        let found: Vec<(Point, FoundServer)> = found.collect::<Result<_>>()?;
        let mut named: BTreeMap<Point, NamedServer> = BTreeMap::new();
        for (point, server) in found {
            named.insert(point, server.build(ws, &self.preset.recipe)?);
        }
        let base = &named[&Point::BASE];
        let mut header =
            ExperimentHeader::new(&base.release, base.recipe.as_deref().unwrap_or_default());
        header.base = Some(base.label.clone());
        let at = |k: usize| [Point::Step(k), Point::Alone(k), Point::Without(k)];
        let last = named.keys().filter_map(Point::patch).max();
        header.series = (1..=last.unwrap_or(0))
            .filter_map(|k| {
                let mut found = at(k).into_iter().filter_map(|point| named.get(&point));
                found.next().map(|named| named.label.clone())
            })
            .collect();
        let adapter = server::adapter(ws)?;
        // A folder may hold any version; where it can, it gets the first server's data, as if it were a point.
        // That server's own data must not be taken for the data of the workspace's release.
        let server = |(&point, named): (&Point, &NamedServer)| {
            let is_release = named.tree.is_some() && named.release != base.release;
            let is_folder = point == Point::BASE && named.tree.is_none();
            let is_other =
                is_release || is_folder || !adapter.shares_data(&named.data.1, &base.data.1);
            let mut server = Server::new(point, &named.built, &header);
            server.data = is_other.then(|| named.data.clone());
            (point, server)
        };
        Ok((named.iter().map(server).collect(), header))
    }
}

/// Checks that the points `given` to servers are distinct, include the base and have no gaps.
fn check_points(given: &[Point]) -> Result<()> {
    let points: BTreeSet<Point> = given.iter().copied().collect();
    if points.len() < given.len() {
        let twice = |point: &&Point| given.iter().filter(|other| other == point).count() > 1;
        let twice = given.iter().find(twice).unwrap_or(&Point::BASE);
        return Err(Error::point(format!("point {twice} is given twice")));
    }
    if !points.contains(&Point::BASE) {
        return Err(Error::measuring("there is nothing to compare with")
            .hint("`--server 0=…` names the server all others are compared with"));
    }
    if points.len() < 2 {
        return Err(Error::measuring("there is nothing to compare")
            .hint("`--server 1=…` names another server"));
    }
    let numbers: BTreeSet<usize> = points.iter().filter_map(Point::patch).collect();
    let last = numbers.last().copied().unwrap_or(0);
    match (1..=last).find(|k| !numbers.contains(k)) {
        Some(gap) => Err(
            Error::point(format!("there is a point {last}, but no point {gap}"))
                .hint("`--server` numbers servers without gaps: 0, 1, 2"),
        ),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_numbered_without_gaps() {
        let check = |points: &[Point]| check_points(points).map_err(|e| e.message().to_owned());
        let steps = |numbers: &[usize]| -> Vec<Point> {
            numbers.iter().copied().map(Point::Step).collect()
        };
        assert_eq!(check(&steps(&[0, 2, 1])), Ok(()));
        assert_eq!(
            check(&[Point::BASE, Point::Alone(1), Point::Step(2)]),
            Ok(())
        );
        let gap = "there is a point 9, but no point 2".to_owned();
        assert_eq!(check(&steps(&[0, 1, 9])), Err(gap));
        let twice = "point 1 is given twice".to_owned();
        assert_eq!(check(&steps(&[0, 1, 1])), Err(twice));
        assert!(check(&steps(&[1])).is_err());
    }
}
