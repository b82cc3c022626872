//! Which points of the series can be compared with which earlier ones. A series of two thousand patches has two million
//! pairs of points, and an experiment may have values of few of them in the same block; asking every pair would take
//! longer than all the rest.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::contrast::Pairing;
use super::document::SUITE;
use super::points::Points;
use super::tables::{NamesByMeter, ObservationSource, ValueRow};
use super::unexecuted::Unexecuted;
use crate::stats::BlockTable;
use perfquilt_model::observation::{ExperimentHeader, Meter};
use perfquilt_model::point::Point;

/// The comparable pairs of points by meter and workload, operation or suite.
#[derive(Default)]
pub(super) struct Pairs {
    rows: BTreeMap<Meter, BTreeMap<String, RowPairs>>,
}

/// The comparable pairs of points on one row. Points are those of the series that did not fail, by their number.
struct RowPairs {
    /// By point, the nearest earlier one that is the same program.
    same: Vec<Option<u32>>,
    /// By staleness of the experiment and by server, the points that share a block with it.
    sharing: [BTreeMap<Point, Bits>; 2],
    /// By staleness, the points with values in each experiment.
    valued: [Vec<Bits>; 2],
}

/// The facts that pairs follow from.
pub(super) struct PairedSources<'a> {
    pub(super) header: &'a ExperimentHeader,
    /// The experiments, with values for points that are the same program.
    pub(super) sources: &'a [ObservationSource],
    pub(super) points: &'a Points,
    pub(super) unexecuted: &'a Unexecuted,
}

impl Pairs {
    /// Finds the pairs, in a time that is linear in the number of values.
    pub(super) fn of(
        facts: &PairedSources<'_>,
        workloads: &NamesByMeter,
        operations: &NamesByMeter,
    ) -> Self {
        let steps = StepsByServer::of(facts);
        let mut pairs = Pairs::default();
        for (&meter, names) in workloads {
            let parts = operations.get(&meter).into_iter().flatten();
            let single = names
                .iter()
                .chain(parts)
                .map(|name| (name.as_str(), vec![name]));
            let suite = (names.len() > 1).then(|| (SUITE, names.iter().collect()));
            let rows = pairs.rows.entry(meter).or_default();
            for (row, names) in single.chain(suite) {
                rows.insert(row.to_owned(), RowPairs::of(facts, &steps, meter, &names));
            }
        }
        pairs
    }

    fn row(&self, row: ValueRow<'_>) -> Option<&RowPairs> {
        self.rows.get(&row.meter)?.get(row.workload)
    }

    /// Iterates over the points before `point`, whose values are those of `server`, that may share a block with it in an
    /// experiment that is stale or not, or only have values in the same experiment, or are the same program; the nearest
    /// first.
    pub(super) fn earlier(
        &self,
        pairing: Pairing,
        row: ValueRow<'_>,
        point: Point,
        server: Point,
        stale: bool,
    ) -> impl Iterator<Item = Point> + use<> {
        let row = self.row(row);
        let stale = usize::from(stale);
        let own = point.step().filter(|_| point == server);
        let bits = row.map(|row| match pairing {
            Pairing::WithinBlocks => row.sharing[stale].get(&server).cloned().unwrap_or_default(),
            Pairing::AcrossBlocks => {
                // Points with another's values have its bit where that is known.
                let all = row.valued[stale].iter();
                all.filter(|of| own.is_none_or(|own| of.has(own))).collect()
            }
        });
        let mut bits = bits.unwrap_or_default();
        let mut end = point.step().unwrap_or(0);
        let same = row.and_then(|row| row.same.get(end).copied().flatten());
        if let Some(same) = same {
            bits.add(same as usize);
        }
        std::iter::from_fn(move || {
            end = bits.last_before(end)?;
            Some(Point::Step(end))
        })
    }

    /// Returns the nearest point before `point` with values in any experiment.
    pub(super) fn last_valued(&self, row: ValueRow<'_>, point: Point) -> Option<Point> {
        let row = self.row(row)?;
        let before = point.step()?;
        let all = row.valued.iter().flatten();
        let last = all.filter_map(|bits| bits.last_before(before)).max();
        last.map(Point::Step)
    }
}

/// The points of the series by the point whose values are theirs.
struct StepsByServer {
    bits: HashMap<Point, Bits>,
    /// By point; `None` for those without figures.
    server_of: Vec<Option<Point>>,
}

impl StepsByServer {
    fn of(facts: &PairedSources<'_>) -> Self {
        let mut bits: HashMap<Point, Bits> = HashMap::new();
        let steps = 0..=facts.header.series.len();
        let server_of = steps
            .map(|step| {
                let point = Point::Step(step);
                let figures =
                    facts.points.is_comparable(point) && !facts.header.failed.contains_key(&point);
                let server = figures.then(|| facts.points.server_of(point))?;
                bits.entry(server).or_default().add(step);
                Some(server)
            })
            .collect();
        StepsByServer { bits, server_of }
    }

    /// Returns the points whose values are those of any of `servers`.
    fn all<'p>(&self, servers: impl IntoIterator<Item = &'p Point>) -> Bits {
        let servers = servers.into_iter();
        servers.filter_map(|of| self.bits.get(of)).collect()
    }
}

impl RowPairs {
    fn of(
        facts: &PairedSources<'_>,
        steps: &StepsByServer,
        meter: Meter,
        names: &[&String],
    ) -> Self {
        let mut row = RowPairs {
            same: nearest_same(facts.unexecuted, steps, meter, names),
            sharing: Default::default(),
            valued: Default::default(),
        };
        for (place, source) in facts.sources.iter().enumerate() {
            let Some(of_meter) = source.blocks.get(&meter) else {
                continue;
            };
            let tables: Option<Vec<&BlockTable>> =
                names.iter().map(|name| of_meter.get(*name)).collect();
            let Some(tables) = tables else { continue };
            let stale = place > 0 && facts.header.reused[place - 1].stale.is_some();
            row.add(steps, &tables, usize::from(stale));
        }
        row
    }

    fn add(&mut self, steps: &StepsByServer, tables: &[&BlockTable], stale: usize) {
        let mut valued = tables.iter().map(|table| steps.all(table.points()));
        let first = valued.next().unwrap_or_default();
        let valued = valued.fold(first, |all, of| all.and(&of));
        if valued.is_empty() {
            return;
        }
        self.valued[stale].push(valued);
        for points in shared_sets(tables) {
            let bits = steps.all(&points);
            for point in points.iter().filter(|point| steps.bits.contains_key(point)) {
                let sharing = self.sharing[stale].entry(*point).or_default();
                sharing.add_all(&bits);
            }
        }
    }
}

/// Returns the distinct sets of points that blocks have on all of `tables`.
fn shared_sets(tables: &[&BlockTable]) -> HashSet<Vec<Point>> {
    let Some((first, others)) = tables.split_first() else {
        return HashSet::new();
    };
    if others.is_empty() {
        return first.point_sets().into_keys().collect();
    }
    let mut shared = first.points_by_block();
    for table in others {
        let mut other = table.points_by_block().into_iter().peekable();
        shared.retain_mut(|(block, points)| {
            while other.next_if(|(there, _)| there < block).is_some() {}
            let Some((_, there)) = other.next_if(|(there, _)| there == block) else {
                return false;
            };
            points.retain(|point| there.binary_search(point).is_ok());
            !points.is_empty()
        });
    }
    shared.into_iter().map(|(_, points)| points).collect()
}

/// Returns, by point, the nearest earlier one whose program is the same on all the workloads `names`.
fn nearest_same(
    unexecuted: &Unexecuted,
    steps: &StepsByServer,
    meter: Meter,
    names: &[&String],
) -> Vec<Option<u32>> {
    let mut classes: Vec<Option<(u32, Point)>> =
        steps.server_of.iter().map(|of| Some((0, (*of)?))).collect();
    let refined = if meter.is_timed() && !unexecuted.is_empty() {
        names
    } else {
        &[]
    };
    let mut numbers = number(&classes);
    for name in refined {
        let program = unexecuted.programs(name);
        for (class, (of, server)) in numbers.iter().zip(classes.iter_mut().zip(&steps.server_of)) {
            *of = class.zip(*server).map(|(class, server)| {
                // Points with one server are one program on every workload.
                (
                    if std::ptr::eq(*name, names[0]) {
                        0
                    } else {
                        class
                    },
                    program(server),
                )
            });
        }
        numbers = number(&classes);
    }
    let mut last: HashMap<u32, u32> = HashMap::new();
    let nearest = |(step, class): (u32, Option<u32>)| last.insert(class?, step);
    (0..).zip(numbers).map(nearest).collect()
}

/// Numbers the distinct values.
fn number(classes: &[Option<(u32, Point)>]) -> Vec<Option<u32>> {
    let mut numbers: HashMap<(u32, Point), u32> = HashMap::new();
    let mut of = |class: (u32, Point)| {
        let next = numbers.len() as u32;
        *numbers.entry(class).or_insert(next)
    };
    classes.iter().map(|class| class.map(&mut of)).collect()
}

/// A set of numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Bits(Vec<u64>);

impl<'b> FromIterator<&'b Bits> for Bits {
    fn from_iter<I: IntoIterator<Item = &'b Bits>>(all: I) -> Self {
        let mut joined = Bits::default();
        all.into_iter().for_each(|bits| joined.add_all(bits));
        joined
    }
}

impl Bits {
    fn add(&mut self, number: usize) {
        let word = number / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (number % 64);
    }

    fn add_all(&mut self, other: &Bits) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            *word |= more;
        }
    }

    fn and(mut self, other: &Bits) -> Bits {
        self.0.truncate(other.0.len());
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word &= other;
        }
        self
    }

    fn has(&self, number: usize) -> bool {
        let word = self.0.get(number / 64).copied().unwrap_or(0);
        word >> (number % 64) & 1 == 1
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Returns the largest number below `end`.
    fn last_before(&self, end: usize) -> Option<usize> {
        let (word, bit) = (end / 64, end % 64);
        let partial = self.0.get(word).copied().unwrap_or(0) & ((1 << bit) - 1);
        let whole = self.0[..word.min(self.0.len())].iter().enumerate().rev();
        let of = |(word, bits): (usize, u64)| {
            (bits != 0).then(|| word * 64 + 63 - bits.leading_zeros() as usize)
        };
        of((word, partial)).or_else(|| whole.map(|(word, bits)| (word, *bits)).find_map(of))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::tests::{header, observation};
    use super::*;

    #[test]
    fn a_set_is_walked_downwards() {
        let mut bits = Bits::default();
        for number in [0, 5, 63, 64, 130] {
            bits.add(number);
        }
        let mut found = Vec::new();
        let mut end = 1000;
        while let Some(last) = bits.last_before(end) {
            found.push(last);
            end = last;
        }
        assert_eq!(found, [130, 64, 63, 5, 0]);
        assert!(bits.has(64) && !bits.has(65) && !bits.has(1000));
    }

    /// The points of a block of a series of so many patches.
    type PointsOfBlock = fn(usize, u32) -> Vec<usize>;

    /// How many steps judging takes of a series of so many patches and blocks, of which each has the points that `has` gives.
    fn steps(patches: usize, blocks: u32, has: PointsOfBlock) -> u64 {
        use crate::attribution::Collector;
        use perfquilt_model::observation::Supplement;
        let header = header(patches);
        let supplement = Supplement::default();
        let mut collector = Collector::new(&header, &supplement).unwrap();
        for block in 0..blocks {
            for point in has(patches, block) {
                for workload in ["a", "b", "c"] {
                    let value = 1.0 + f64::from(block % 7) / 50.0;
                    let point = Point::Step(point);
                    let mut observation = observation(workload, Meter::Time, block, point, value);
                    observation.mean = Some(observation.value);
                    observation.slow = Some(0.1);
                    collector.add(&observation).unwrap();
                }
            }
        }
        crate::stats::counted::steps_of(|| drop(collector.finish(&|_| 0.005)))
    }

    #[test]
    fn twice_the_values_take_twice_the_steps_however_sparse_they_are() {
        let shapes: [(&str, PointsOfBlock); 5] = [
            ("one point a block", |patches, block| {
                vec![block as usize % (patches + 1)]
            }),
            ("two points far apart", |patches, block| {
                let at = block as usize % patches;
                let both = BTreeSet::from([at, (at * 7 + 13) % (patches + 1)]);
                both.into_iter().collect()
            }),
            ("neighbours never meet", |patches, block| {
                (0..=patches)
                    .filter(|point| point % 2 == block as usize % 2)
                    .take(20)
                    .collect()
            }),
            ("the release and one more", |patches, block| {
                vec![0, 1 + block as usize % patches]
            }),
            ("no release", |patches, block| {
                vec![1 + block as usize % patches]
            }),
        ];
        for (shape, has) in shapes {
            let (one, two) = (steps(100, 200, has), steps(200, 400, has));
            assert!(two < 3 * one, "{shape}: {one} steps, then {two}");
        }
    }

    #[test]
    fn only_points_with_a_common_block_or_program_are_tried() {
        let mut header = header(200);
        header.identical = BTreeMap::from([(Point::Step(90), Point::Step(70))]);
        header.failed = BTreeMap::from([(Point::Step(75), "x".to_owned())]);
        let mut source = ObservationSource::default();
        let by_workload = source.blocks.entry(Meter::Time).or_default();
        for (block, points) in [(0, [0, 70]), (1, [75, 80]), (2, [100, 150]), (3, [70, 100])] {
            for name in ["a", "b"] {
                // Block 2 is on one workload only.
                let table = by_workload.entry(name.to_owned()).or_default();
                for point in points.into_iter().filter(|_| block != 2 || name == "a") {
                    assert!(table.insert(block, Point::Step(point), 1.0, 1));
                }
            }
        }
        let sources = [source];
        let unexecuted = Unexecuted::default();
        let points = Points::of(&header, &sources, &unexecuted);
        let names = ["a", "b"].map(str::to_owned).into_iter().collect();
        let workloads = NamesByMeter::from([(Meter::Time, names)]);
        let facts = PairedSources {
            header: &header,
            sources: &sources,
            points: &points,
            unexecuted: &unexecuted,
        };
        let pairs = Pairs::of(&facts, &workloads, &NamesByMeter::new());
        fn row(workload: &str) -> ValueRow<'_> {
            let meter = Meter::Time;
            ValueRow { meter, workload }
        }
        let sharing = |workload: &str, point: usize| -> Vec<Point> {
            let point = Point::Step(point);
            let (row, server) = (row(workload), points.server_of(point));
            let found = pairs.earlier(Pairing::WithinBlocks, row, point, server, false);
            found.collect()
        };
        assert_eq!(sharing("a", 150), [100].map(Point::Step));
        assert!(sharing(SUITE, 150).is_empty());
        assert_eq!(sharing(SUITE, 100), [90, 70].map(Point::Step));
        // 90 is the same program as 70, whose values are its own.
        assert_eq!(sharing("b", 90), [70, 0].map(Point::Step));
        assert!(sharing("a", 80).is_empty());
        let last = |point: usize| pairs.last_valued(row(SUITE), Point::Step(point));
        assert_eq!(last(100), Some(Point::Step(90)));
        assert_eq!(last(80), Some(Point::Step(70)));
    }
}
