//! Plans blocks and their orders: a pure function of the experiment's seed.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use perfquilt_config::Layouts;
use perfquilt_model::point::Point;

/// The inputs of a plan.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// Determines every order.
    pub seed: u64,
    /// The points to measure.
    pub points: &'a [Point],
    /// The workloads' names, as configured.
    pub workloads: &'a [String],
    /// The windows of points that timed blocks measure in turn; none where each block measures all points.
    pub windows: &'a [Vec<Point>],
    /// Blocks of the timed meters in each window; 0 without such a meter.
    pub blocks: u32,
    /// Blocks of the counting meters; 0 without such a meter.
    pub count_blocks: u32,
    /// The number of lanes, which is also the distance between two blocks with the same layouts: the servers that the
    /// first has linked are there when the second begins.
    pub lanes: u32,
    /// How timed blocks vary the servers' code layouts.
    pub layouts: Layouts,
    /// The points of the end-to-end check's blocks: the release and the whole series; none without one.
    pub direct: &'a [Point],
}

impl Scope<'_> {
    /// Returns the number of windows, at least 1.
    fn window_count(&self) -> u32 {
        u32::try_from(self.windows.len()).unwrap_or(u32::MAX).max(1)
    }

    /// Returns the largest number of servers in a timed block over all points of a window.
    fn most_servers(&self) -> usize {
        let sizes = self.windows.iter().map(Vec::len);
        sizes.max().unwrap_or(self.points.len())
    }
}

/// The number of blocks that run the same layouts: linking takes about as long as measuring, and what differs
/// between the two is restart.
const REPEATS: u32 = 2;
/// The least number of planned blocks for repeated layouts. Intervals over half as many units would be wider, in fewer
/// blocks, than repeating saves.
pub(super) const FEWEST_FOR_REPEATS: u32 = 16;

/// One randomised round over all points: every server is started once, then each workload runs on all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// The block's number among those of its kind, from 0.
    pub number: u32,
    /// Its purpose.
    pub kind: BlockKind,
    /// The points in the order of their start and position.
    pub points: Vec<Point>,
    /// The workloads in the order they run.
    pub workloads: Vec<String>,
    /// Determines the transactions, and the order in which the servers take turns.
    pub seed: u64,
    /// Seeds of the points' code layouts, where they vary; the others run as linked.
    pub layouts: BTreeMap<Point, u64>,
    /// Whether a later block runs the same layouts again.
    pub again: bool,
    /// The block's number among those of its window.
    pub round: u32,
    /// The number of servers per point, each started separately. Each set of copies has its own layouts and is stored
    /// as a separate block.
    pub copies: u32,
}

/// The purpose of a block. Blocks of a kind are numbered from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BlockKind {
    /// Times all points.
    Timed,
    /// Times the release and the whole series only, for the end-to-end check, which alone uses it.
    EndToEnd,
    /// Counts all points.
    Counted,
}

impl BlockKind {
    /// Returns the meters that such a block reads.
    pub fn reading(self) -> Reading {
        match self {
            BlockKind::Timed | BlockKind::EndToEnd => Reading::Timed,
            BlockKind::Counted => Reading::Counted,
        }
    }
}

impl Block {
    /// Returns a block of these points and workloads in their order, whose servers run as they were linked.
    pub fn new(number: u32, kind: BlockKind, points: Vec<Point>, workloads: Vec<String>) -> Self {
        Block {
            number,
            kind,
            points,
            workloads,
            seed: 0,
            layouts: BTreeMap::new(),
            again: false,
            round: number,
            copies: 1,
        }
    }

    /// Returns whether it is part of the end-to-end check.
    pub fn is_end_to_end(&self) -> bool {
        self.kind == BlockKind::EndToEnd
    }

    /// Returns the seed of the layout in which a copy (from 0) of `point` runs; 0 is the linker's own layout.
    pub fn layout(&self, point: Point, copy: u32) -> u64 {
        match self.layouts.get(&point) {
            None => 0,
            Some(&seed) if copy == 0 => seed,
            Some(seed) => {
                let text = format!("{seed} copy {copy}");
                StdRng::from_seed(Sha256::digest(text).into()).random_range(1..1 << 31)
            }
        }
    }

    /// Returns the servers of the block in the order of their start and position, as point and copy. Every
    /// second round of copies runs in reverse, so that no point is always first.
    pub fn servers(&self) -> Vec<(Point, u32)> {
        let round = |copy: u32| -> Vec<(Point, u32)> {
            let mut round: Vec<(Point, u32)> = self.points.iter().map(|&p| (p, copy)).collect();
            if copy % 2 == 1 {
                round.reverse();
            }
            round
        };
        (0..self.copies.max(1)).flat_map(round).collect()
    }

    /// Returns the block number under which the values of a copy are stored.
    pub fn stored_as(&self, copy: u32) -> u32 {
        self.number * self.copies.max(1) + copy
    }
}

/// The kind of reading in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading {
    /// Time and processor time of slices.
    Timed,
    /// Instructions and other counts over a fixed number of transactions.
    Counted,
}

/// Returns all blocks in the order of measurement. The counted blocks are spread between the timed ones, so that both
/// kinds see the same drift and a report has both early.
pub fn plan(scope: &Scope<'_>) -> Vec<Block> {
    let all = scope.blocks.saturating_mul(scope.window_count());
    let timed = (0..all).map(|number| windowed(scope, number));
    let counted = (0..scope.count_blocks).map(|number| block(scope, BlockKind::Counted, number));
    let directs = if scope.direct.is_empty() {
        0
    } else {
        direct_blocks(scope.blocks)
    };
    let direct = (0..directs).map(|number| direct_block(scope, number));
    interleaved([timed.collect(), direct.collect(), counted.collect()])
}

/// Returns the blocks of all `kinds`, each kind spread evenly.
fn interleaved(kinds: [Vec<Block>; 3]) -> Vec<Block> {
    let position =
        |(place, count): (usize, usize)| (place * 2 + 1) * 1_000_000 / (count * 2).max(1);
    let mut blocks: Vec<(usize, Block)> = Vec::new();
    for kind in kinds {
        let count = kind.len();
        blocks.extend(
            (0..)
                .zip(kind)
                .map(|(place, block)| (position((place, count)), block)),
        );
    }
    blocks.sort_by_key(|(position, block)| (*position, block.kind, block.number));
    blocks.into_iter().map(|(_, block)| block).collect()
}

/// Returns the number of end-to-end blocks: one for six others, and at least three, as an interval over two is
/// useless; none for an experiment too short to spare any.
pub(super) fn direct_blocks(blocks: u32) -> u32 {
    match blocks {
        0..6 => 0,
        blocks => (blocks / 6).max(3),
    }
}

/// The largest number of servers per point in an end-to-end block.
const MOST_COPIES: u32 = 3;

/// Returns a timed block of the end-to-end check.
fn direct_block(scope: &Scope<'_>, number: u32) -> Block {
    // A scope with another seed draws other orders and transactions.
    let own = Scope {
        seed: scope.seed.wrapping_add(1),
        points: scope.direct,
        ..*scope
    };
    Block {
        // No more servers than the other blocks have; a block of only two servers would yield less in about the
        // same time.
        copies: u32::try_from(scope.most_servers() / 2)
            .unwrap_or(MOST_COPIES)
            .clamp(1, MOST_COPIES),
        // There are too few end-to-end blocks to spare one that repeats layouts.
        ..single(&own, BlockKind::EndToEnd, number)
    }
}

/// Returns block `number` of measurements that are chosen one at a time: in new layouts, never those of another
/// block.
pub fn single(scope: &Scope<'_>, kind: BlockKind, number: u32) -> Block {
    let mut block = block(scope, kind, number);
    if kind.reading() == Reading::Timed {
        block.layouts = layouts(scope, number);
    }
    block
}

/// Returns the timed block `number`, of the windows in turn.
///
/// Blocks come in groups: one for each lane, then these again with the same layouts on restarted servers.
fn windowed(scope: &Scope<'_>, number: u32) -> Block {
    let lanes = scope.lanes.max(1);
    let repeats = if scope.blocks < FEWEST_FOR_REPEATS {
        1
    } else {
        REPEATS
    };
    let (group, place) = (number / (repeats * lanes), number % (repeats * lanes));
    let (pass, slot) = (place / lanes, group * lanes + place % lanes);
    let windows = scope.window_count();
    let (window, pair) = (slot % windows, slot / windows);
    let own = Scope {
        // Windows draw orders, layouts and transactions of their own.
        seed: scope.seed.wrapping_add(u64::from(window) << 32),
        points: match scope.windows.get(window as usize) {
            Some(window) => window,
            None => scope.points,
        },
        ..*scope
    };
    let round = pair * repeats + pass;
    Block {
        number,
        again: pass + 1 < repeats && scope.layouts != Layouts::Off,
        layouts: layouts(&own, pair),
        ..block(&own, BlockKind::Timed, round)
    }
}

/// Returns a block that depends on nothing but the seed, the kind and the number, so that a longer plan begins
/// with the same blocks.
fn block(scope: &Scope<'_>, kind: BlockKind, number: u32) -> Block {
    let reading = kind.reading();
    let mut random =
        StdRng::from_seed(Sha256::digest(format!("{} {reading:?} {number}", scope.seed)).into());
    let points = balanced(scope, reading, number);
    let mut workloads = scope.workloads.to_vec();
    if reading == Reading::Timed {
        workloads.shuffle(&mut random);
    }
    // All points do the same transactions. Each block draws new ones, counted blocks too: a saving in one fixed
    // sample of transactions says nothing about other transactions.
    let seed = random.next_u64();
    // Counted blocks run as linked: the number of instructions does not depend on their addresses.
    Block {
        seed,
        ..Block::new(number, kind, points, workloads)
    }
}

/// Returns the order of the points in block `number`: rows of Williams squares, relabelled and shuffled at
/// random for each square.
///
/// A server's position in its block shifts its cost by up to half a per cent. In a Williams square every point
/// has every position equally often and follows every other point equally often, so that neither shifts a
/// comparison once a square is complete: one square of `p` rows for an even number `p` of points, two of them
/// for an odd one. E. J. Williams, *Experimental designs balanced for the estimation of residual effects of
/// treatments*, Australian Journal of Scientific Research A 2 (1949).
fn balanced(scope: &Scope<'_>, reading: Reading, number: u32) -> Vec<Point> {
    let count = scope.points.len();
    let rows = match count % 2 {
        0 => count,
        _ => 2 * count,
    };
    let Some((square, row)) = u32::try_from(rows)
        .ok()
        .filter(|&rows| rows > 0)
        .map(|rows| (number / rows, number % rows))
    else {
        return Vec::new();
    };
    let text = format!("{} {reading:?} order {square}", scope.seed);
    let mut random = StdRng::from_seed(Sha256::digest(text).into());
    let mut labels = scope.points.to_vec();
    labels.shuffle(&mut random);
    let mut order: Vec<usize> = (0..rows).collect();
    order.shuffle(&mut random);
    let row = order[row as usize];
    // 0, 1, p − 1, 2, p − 2, …: neighbours differ by each distance once.
    let zigzag = (0..count).map(|place| match place % 2 {
        0 => (count - place / 2) % count,
        _ => place.div_ceil(2),
    });
    let mut places: Vec<usize> = zigzag.map(|place| (place + row) % count).collect();
    // With an odd number of points, the mirror image completes the balance.
    if row >= count {
        places.reverse();
    }
    places.into_iter().map(|place| labels[place]).collect()
}

/// Returns the seeds of the layouts with this number, one and the same for all points; none where servers run as linked.
fn layouts(scope: &Scope<'_>, number: u32) -> BTreeMap<Point, u64> {
    if scope.layouts == Layouts::Off {
        return BTreeMap::new();
    }
    let text = format!("{} layout {number}", scope.seed);
    let seed = StdRng::from_seed(Sha256::digest(text).into()).random_range(1..1 << 31);
    scope.points.iter().map(|&point| (point, seed)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const POINTS: [Point; 4] = [
        Point::Step(0),
        Point::Step(1),
        Point::Step(2),
        Point::Control,
    ];

    fn scope(workloads: &[String], blocks: u32, count_blocks: u32) -> Scope<'_> {
        Scope {
            seed: 7,
            points: &POINTS,
            windows: &[],
            lanes: 1,
            workloads,
            blocks,
            count_blocks,
            layouts: Layouts::Padded,
            direct: &[],
        }
    }

    #[test]
    fn every_block_has_every_point_and_workload_once() {
        let workloads = ["a".to_owned(), "b".to_owned()];
        let blocks = plan(&scope(&workloads, 40, 3));
        assert_eq!(blocks.len(), 43);
        for block in &blocks {
            let points: BTreeSet<_> = block.points.iter().collect();
            assert_eq!(points.len(), POINTS.len());
            let names: BTreeSet<_> = block.workloads.iter().collect();
            assert_eq!(names.len(), 2);
        }
    }

    #[test]
    fn a_longer_plan_begins_with_the_same_blocks() {
        let workloads = ["a".to_owned()];
        let timed =
            |blocks| -> Vec<Block> { plan(&scope(&workloads, blocks, 0)).into_iter().collect() };
        assert_eq!(timed(30)[..18], timed(18)[..]);
        assert_eq!(timed(12)[..6], timed(6)[..]);
    }

    #[test]
    fn every_point_has_every_place_and_follows_every_other_equally_often() {
        let workloads = ["a".to_owned()];
        for count in 1..8usize {
            let points: Vec<Point> = (0..count).map(Point::Step).collect();
            let square = if count % 2 == 0 { count } else { 2 * count };
            let scope = Scope {
                points: &points,
                ..scope(&workloads, u32::try_from(3 * square).unwrap(), 0)
            };
            let blocks = plan(&scope);
            let mut orders = BTreeSet::new();
            for blocks in blocks.chunks(square) {
                let mut places: BTreeMap<(Point, usize), usize> = BTreeMap::new();
                let mut follows: BTreeMap<(Point, Point), usize> = BTreeMap::new();
                for block in blocks {
                    for (place, &point) in block.points.iter().enumerate() {
                        *places.entry((point, place)).or_default() += 1;
                    }
                    for pair in block.points.windows(2) {
                        *follows.entry((pair[0], pair[1])).or_default() += 1;
                    }
                }
                assert_eq!(places.len(), count * count, "{count} points");
                assert!(places.values().all(|&n| n == square / count));
                assert_eq!(follows.len(), count * (count - 1), "{count} points");
                assert!(
                    follows.values().all(|&n| n == square / count),
                    "{follows:?}"
                );
                orders.insert(blocks.iter().map(|b| b.points.clone()).collect::<Vec<_>>());
            }
            assert!(count < 4 || orders.len() == 3, "squares are drawn anew");
        }
    }

    #[test]
    fn every_block_has_transactions_of_its_own() {
        let workloads = ["a".to_owned()];
        let blocks = plan(&scope(&workloads, 400, 40));
        let seeds: BTreeSet<_> = blocks.iter().map(|block| block.seed).collect();
        assert_eq!(seeds.len(), blocks.len());
    }

    #[test]
    fn counted_blocks_lie_between_timed_ones() {
        let workloads = ["a".to_owned(), "b".to_owned()];
        let blocks = plan(&scope(&workloads, 12, 2));
        let counted: Vec<usize> = (0..blocks.len())
            .filter(|&i| blocks[i].kind == BlockKind::Counted)
            .collect();
        assert_eq!(counted, [3, 10]);
        assert_eq!(blocks[3].workloads, workloads);
    }

    #[test]
    fn every_layout_is_run_by_two_blocks() {
        let workloads = ["a".to_owned()];
        let blocks = plan(&scope(&workloads, 400, 4));
        let (timed, counted): (Vec<&Block>, Vec<&Block>) = blocks
            .iter()
            .partition(|block| block.kind.reading() == Reading::Timed);
        assert!(counted.iter().all(|block| block.layout(POINTS[0], 0) == 0));
        let repeats: Vec<u32> = (1..timed.len())
            .filter(|&i| timed[i].layouts == timed[i - 1].layouts)
            .map(|i| timed[i].number)
            .collect();
        assert_eq!(
            repeats,
            (0..200).map(|pair| 2 * pair + 1).collect::<Vec<_>>()
        );
        assert!(
            timed
                .iter()
                .all(|block| block.again == (block.number % 2 == 0))
        );
        let seeds: BTreeSet<u64> = timed
            .iter()
            .flat_map(|block| block.layouts.values().copied())
            .collect();
        assert_eq!(seeds.len(), 200);
        assert!(!seeds.contains(&0));
        for block in timed.iter() {
            assert_eq!(block.layouts.len(), POINTS.len());
            assert!(
                block
                    .layouts
                    .values()
                    .all(|&seed| seed == block.layout(POINTS[0], 0))
            );
        }
        // A repeated block restarts its servers in another order and does other transactions.
        let repeat = timed[repeats[0] as usize];
        assert_ne!(repeat.seed, timed[repeats[0] as usize - 1].seed);
    }

    #[test]
    fn blocks_with_the_same_layouts_are_as_far_apart_as_there_are_lanes() {
        let workloads = ["a".to_owned()];
        let of = |lanes: u32| {
            let scope = Scope {
                lanes,
                ..scope(&workloads, 48, 0)
            };
            plan(&scope)
        };
        for lanes in [1, 2, 3, 4] {
            let blocks = of(lanes);
            for (place, block) in blocks.iter().enumerate() {
                let other = blocks.get(place + lanes as usize);
                let same = other.is_some_and(|other| other.layouts == block.layouts);
                assert_eq!(same, block.again, "{lanes} lanes, block {place}");
            }
            let mut rounds: Vec<u32> = blocks.iter().map(|block| block.round).collect();
            rounds.sort_unstable();
            assert_eq!(rounds, (0..48).collect::<Vec<_>>());
            let seeds: BTreeSet<u64> = blocks.iter().map(|block| block.seed).collect();
            assert_eq!(seeds.len(), 48);
        }
    }

    #[test]
    fn windows_take_turns_with_blocks_of_their_own() {
        let workloads = ["a".to_owned()];
        let windows = [POINTS[..2].to_vec(), POINTS[1..].to_vec()];
        let scope = Scope {
            windows: &windows,
            ..scope(&workloads, 24, 2)
        };
        let blocks = plan(&scope);
        let (timed, counted): (Vec<&Block>, Vec<&Block>) = blocks
            .iter()
            .partition(|block| block.kind.reading() == Reading::Timed);
        assert_eq!(timed.len(), 48);
        let numbers: Vec<u32> = timed.iter().map(|block| block.number).collect();
        assert_eq!(numbers, (0..48).collect::<Vec<_>>());
        for block in &timed {
            let points: BTreeSet<Point> = block.points.iter().copied().collect();
            let window = &windows[block.number as usize / 2 % 2];
            assert_eq!(points, window.iter().copied().collect());
        }
        // Layouts are repeated within a window, never in another one.
        let layouts = |block: &&&Block| block.layouts[&POINTS[1]];
        for window in 0..2 {
            let own: Vec<u64> = timed
                .iter()
                .filter(|block| block.number / 2 % 2 == window)
                .map(|b| layouts(&b))
                .collect();
            let distinct: BTreeSet<&u64> = own.iter().collect();
            assert_eq!((own.len(), distinct.len()), (24, 12));
        }
        let all: BTreeSet<u64> = timed.iter().map(|b| layouts(&b)).collect();
        assert_eq!(all.len(), 24);
        assert!(
            counted
                .iter()
                .all(|block| block.points.len() == POINTS.len())
        );
        let seeds: BTreeSet<u64> = timed.iter().map(|block| block.seed).collect();
        assert_eq!(seeds.len(), 48);
    }

    #[test]
    fn without_layouts_everything_runs_as_linked() {
        let workloads = ["a".to_owned()];
        let with = plan(&scope(&workloads, 8, 0));
        let without = plan(&Scope {
            layouts: Layouts::Off,
            ..scope(&workloads, 8, 0)
        });
        assert_eq!((with.len(), without.len()), (8, 8));
        for (with, without) in with.iter().zip(&without) {
            assert!(without.layouts.is_empty());
            let mut same = with.clone();
            same.layouts.clear();
            same.again = false;
            assert_eq!(same, *without);
        }
    }

    #[test]
    fn single_blocks_never_share_layouts() {
        let workloads = ["a".to_owned()];
        let scope = scope(&workloads, 0, 0);
        let blocks: Vec<Block> = (0..50)
            .map(|number| single(&scope, BlockKind::Timed, number))
            .collect();
        let seeds: BTreeSet<u64> = blocks
            .iter()
            .flat_map(|block| block.layouts.values().copied())
            .collect();
        assert_eq!(seeds.len(), 50);
        assert!(single(&scope, BlockKind::Counted, 3).layouts.is_empty());
    }

    #[test]
    fn direct_blocks_lie_between_the_others_with_two_points() {
        let workloads = ["a".to_owned()];
        let mut with = scope(&workloads, 24, 0);
        let without = plan(&with);
        with.direct = &POINTS[1..3];
        let blocks = plan(&with);
        let direct: Vec<&Block> = blocks
            .iter()
            .filter(|block| block.is_end_to_end())
            .collect();
        assert_eq!(direct.len(), 4);
        assert!(
            direct
                .iter()
                .all(|block| block.points.len() == 2 && block.copies == 2)
        );
        let servers = direct[1].servers();
        let layouts: BTreeSet<u64> = servers
            .iter()
            .map(|(p, c)| direct[1].layout(*p, *c))
            .collect();
        // The points of a copy share a layout, the copies do not.
        assert_eq!((servers.len(), layouts.len()), (4, 2));
        assert!((0..2).all(|copy| {
            let layout = |point| direct[1].layout(point, copy);
            layout(POINTS[1]) == layout(POINTS[2])
        }));
        assert_eq!(servers[0].0, servers[3].0);
        assert_eq!([0, 1].map(|copy| direct[1].stored_as(copy)), [2, 3]);
        let seeds: BTreeSet<u64> = blocks
            .iter()
            .flat_map(|block| block.layouts.values().copied())
            .collect();
        assert_eq!(seeds.len(), 12 + 4);
        assert!(blocks[0..8].iter().any(Block::is_end_to_end) && !blocks[27].is_end_to_end());
        let others: Vec<&Block> = blocks
            .iter()
            .filter(|block| !block.is_end_to_end())
            .collect();
        assert_eq!(others, without.iter().collect::<Vec<_>>());
        assert_eq!([0, 5, 6, 18, 24].map(direct_blocks), [0, 0, 3, 3, 4]);
    }
}
