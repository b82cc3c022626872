//! Tests of the bisector on simulated states with known changes.

use std::collections::{BTreeMap, BTreeSet};

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;
use perfquilt_model::observation::Meter;

/// Returns a question over `states` states: slower by 0.5 % or more.
pub(crate) fn question(states: usize) -> Question {
    Question {
        states: (0..states)
            .map(|k| Revision {
                label: k.to_string(),
                name: format!("{k:04}.patch"),
                title: String::new(),
                tree: format!("{k:040}"),
            })
            .collect(),
        change: "patch".into(),
        release: "toy-1".into(),
        recipe: "make".into(),
        workload: "load".into(),
        meter: Meter::Time.into(),
        direction: Direction::Slower,
        size: 0.005,
        error: 0.01,
        most_blocks: 400,
        known_sd: None,
    }
}

/// Simulated states with known speeds.
struct World {
    /// Logs of costs.
    levels: Vec<f64>,
    unbuildable: BTreeSet<usize>,
    crashing: BTreeSet<usize>,
    /// States of the same server.
    identities: BTreeMap<usize, String>,
    noise: f64,
    random: StdRng,
}

impl World {
    /// `changes` make a state slower than the one before: place and fraction of speed.
    fn new(states: usize, changes: &[(usize, f64)]) -> Self {
        let level = |state: usize| -> f64 {
            let before = changes.iter().filter(|(place, _)| *place <= state);
            before.map(|(_, size)| -(-size).ln_1p()).sum()
        };
        World {
            levels: (0..states).map(level).collect(),
            unbuildable: BTreeSet::new(),
            crashing: BTreeSet::new(),
            identities: BTreeMap::new(),
            noise: 0.004,
            random: StdRng::seed_from_u64(1),
        }
    }

    fn normal(&mut self) -> f64 {
        crate::test_kit::normal(&mut self.random)
    }

    /// Returns the events that `action` leads to.
    fn answer(&mut self, action: &Action) -> Vec<Event> {
        match action {
            Action::Build { state } if self.unbuildable.contains(state) => vec![Event::Unusable {
                state: *state,
                reason: "does not compile".into(),
                crashed: false,
            }],
            Action::Build { state } => vec![Event::Built {
                state: *state,
                identity: self
                    .identities
                    .get(state)
                    .cloned()
                    .unwrap_or_else(|| format!("binary {state}")),
                seconds: 10.0,
                cached: false,
            }],
            Action::Measure { states, .. } => {
                let drift = 0.05 * self.normal();
                let values = states
                    .iter()
                    .filter(|state| !self.crashing.contains(state))
                    .copied()
                    .collect::<Vec<_>>();
                let mut events = vec![Event::Block(MeasuredBlock {
                    number: 0,
                    values: values
                        .into_iter()
                        .map(|state| {
                            let error = self.noise * self.normal();
                            (state, (10.0 + drift + self.levels[state] + error).exp())
                        })
                        .collect(),
                    seconds: 6.0,
                    ..MeasuredBlock::default()
                })];
                let crashed = states.iter().filter(|state| self.crashing.contains(state));
                events.extend(crashed.map(|&state| Event::Unusable {
                    state,
                    reason: "signal 11".into(),
                    crashed: true,
                }));
                events
            }
            Action::Broken { .. } | Action::Done => Vec::new(),
        }
    }

    /// Runs a session to its end.
    fn run(&mut self, question: Question) -> (BisectSession, Bisector) {
        let mut session = BisectSession::new(question);
        let mut bisector = session.replay();
        for _ in 0..100_000 {
            let events = self.answer(bisector.action());
            if events.is_empty() {
                return (session, bisector);
            }
            for event in events {
                bisector.apply(&event);
                session.events.push(event);
            }
        }
        panic!("it does not end: {:?}", bisector.path());
    }

    fn outcome(&mut self, question: Question) -> BisectOutcome {
        self.run(question).1.outcome()
    }
}

fn found(outcome: &BisectOutcome) -> Vec<(usize, usize)> {
    let culprits = outcome.culprits.iter();
    culprits.map(|culprit| (culprit.from, culprit.to)).collect()
}

#[test]
fn a_single_culprit_is_found_wherever_it_is_with_few_builds() {
    for place in 1..=16 {
        let mut world = World::new(17, &[(place, 0.01)]);
        let outcome = world.outcome(question(17));
        assert_eq!(outcome.conclusion, Conclusion::Found, "{place}");
        assert_eq!(found(&outcome), [(place - 1, place)]);
        let culprit = &outcome.culprits[0];
        assert!(culprit.confirmed && culprit.range.is_none());
        assert!(culprit.effect.unwrap().high.unwrap() < 0.0);
        assert_eq!(culprit.names, [format!("{place:04}.patch")]);
        assert!(
            outcome
                .rest
                .iter()
                .all(|rest| rest.ending == SpanStatus::Unchanged)
        );
        // log2(16) + 2.
        assert!(outcome.cost.builds <= 6, "{place}: {}", outcome.cost.builds);
    }
}

#[test]
fn what_was_confirmed_is_shown_with_the_interval_that_confirmed_it() {
    for seed in 0..60 {
        let mut world = World::new(17, &[(9, 0.6)]);
        world.random = StdRng::seed_from_u64(seed);
        let outcome = world.outcome(question(17));
        assert_eq!(found(&outcome), [(8, 9)], "{seed}");
        let effect = outcome.culprits[0].effect.unwrap();
        let slowest = effect.high;
        assert!(slowest.is_some_and(|high| high < 0.0), "{seed}: {effect:?}");
    }
}

#[test]
fn several_culprits_are_found() {
    let mut world = World::new(65, &[(3, 0.01), (31, 0.02), (60, 0.01)]);
    let outcome = world.outcome(question(65));
    assert_eq!(found(&outcome), [(2, 3), (30, 31), (59, 60)]);
    assert!(outcome.culprits.iter().all(|culprit| culprit.confirmed));
    // Adjacent changes, too.
    let mut world = World::new(9, &[(4, 0.01), (5, 0.01)]);
    assert_eq!(found(&world.outcome(question(9))), [(3, 4), (4, 5)]);
}

#[test]
fn nothing_is_found_where_nothing_is() {
    let mut world = World::new(1025, &[]);
    let outcome = world.outcome(question(1025));
    assert_eq!(outcome.conclusion, Conclusion::Nothing);
    assert_eq!((outcome.culprits.len(), outcome.cost.builds), (0, 2));
    // A change below the requested size may be reported or not; one of twice the size must be found.
    let mut world = World::new(2, &[(1, 0.01)]);
    assert_eq!(world.outcome(question(2)).conclusion, Conclusion::Found);
}

#[test]
fn the_other_direction_is_said_and_searched_when_asked_for() {
    let faster = [(5, -0.02), (11, 0.01)];
    let outcome = World::new(17, &faster).outcome(question(17));
    assert_eq!(outcome.conclusion, Conclusion::Opposite);
    let ask = |direction| Question {
        direction,
        ..question(17)
    };
    let outcome = World::new(17, &faster).outcome(ask(Direction::Faster));
    assert_eq!(found(&outcome), [(4, 5)]);
    let outcome = World::new(17, &faster).outcome(ask(Direction::Both));
    assert_eq!(found(&outcome), [(4, 5), (10, 11)]);
}

#[test]
fn states_that_cannot_be_built_give_a_range() {
    let mut world = World::new(17, &[(8, 0.02)]);
    world.unbuildable = (6..=9).collect();
    let outcome = world.outcome(question(17));
    assert_eq!(found(&outcome), [(5, 10)]);
    let culprit = &outcome.culprits[0];
    let range = culprit.range.as_deref().unwrap();
    assert!(range.contains("none of the 4 states between"), "{range}");
    assert_eq!(culprit.names.len(), 5);
    // All intermediate states.
    let mut world = World::new(9, &[(4, 0.02)]);
    world.unbuildable = (1..8).collect();
    assert_eq!(found(&world.outcome(question(9))), [(0, 8)]);
    // Too many to try all.
    let mut world = World::new(513, &[(4, 0.02)]);
    world.unbuildable = (1..512).collect();
    let (_, bisector) = world.run(question(513));
    let outcome = bisector.outcome();
    assert_eq!(found(&outcome), [(0, 512)]);
    let tried = bisector
        .path()
        .iter()
        .filter(|d| matches!(d.how, DecisionKind::Skipped { .. }));
    assert_eq!(tried.count(), 16);
    // Nor if one of them is built.
    let mut world = World::new(513, &[(4, 0.02)]);
    world.unbuildable = (2..512).collect();
    let mut bisector = Bisector::new(question(513));
    bisector.apply(&Event::Built {
        state: 1,
        identity: "binary 1".to_owned(),
        seconds: 0.0,
        cached: true,
    });
    while *bisector.action() != Action::Done {
        let events = world.answer(bisector.action());
        events.iter().for_each(|event| bisector.apply(event));
    }
    assert_eq!(found(&bisector.outcome()), [(1, 512)]);
    let skipped = |d: &&Decision| matches!(d.how, DecisionKind::Skipped { .. });
    assert_eq!(bisector.path().iter().filter(skipped).count(), 16);
}

#[test]
fn an_end_that_cannot_be_built_is_told() {
    for end in [0, 16] {
        let mut world = World::new(17, &[(8, 0.02)]);
        world.unbuildable.insert(end);
        let (_, bisector) = world.run(question(17));
        assert_eq!(*bisector.action(), Action::Broken { state: end });
        assert_eq!(bisector.outcome().conclusion, Conclusion::Unfinished);
    }
}

#[test]
fn states_that_crash_are_left_out_like_those_that_do_not_build() {
    for crashing in [vec![8], vec![7, 8, 9], vec![4, 6, 8]] {
        let mut world = World::new(17, &[(8, 0.02)]);
        world.crashing = crashing.iter().copied().collect();
        let outcome = world.outcome(question(17));
        let [(from, to)] = found(&outcome)[..] else {
            panic!("{:?}", outcome.culprits);
        };
        assert!(
            from < 8 && 8 <= to && to - from <= crashing.len() + 1,
            "{from} {to}"
        );
        assert!(outcome.culprits[0].range.is_some());
    }
}

#[test]
fn a_server_that_crashed_is_not_measured_again_as_another_state() {
    let of = |state: usize| match state {
        1..=7 => "one".to_owned(),
        other => format!("binary {other}"),
    };
    // Built one after the other, and all built from the beginning.
    for cached in [false, true] {
        let mut world = World::new(9, &[(4, 0.02)]);
        world.crashing = (1..8).collect();
        world.identities = (1..8).map(|state| (state, of(state))).collect();
        let mut bisector = Bisector::new(question(9));
        for state in (0..9).filter(|_| cached) {
            bisector.apply(&Event::Built {
                state,
                identity: of(state),
                seconds: 0.0,
                cached: true,
            });
        }
        let (mut crashes, mut steps) = (0, 0);
        while *bisector.action() != Action::Done {
            steps += 1;
            assert!(steps < 10_000, "it does not end: {:?}", bisector.path());
            for event in world.answer(bisector.action()) {
                crashes += usize::from(matches!(event, Event::Unusable { .. }));
                bisector.apply(&event);
            }
        }
        assert_eq!((found(&bisector.outcome()), crashes), (vec![(0, 8)], 1));
        let like = |d: &&Decision| matches!(&d.how, DecisionKind::Skipped { reason, .. } if reason.contains("the same server"));
        assert_eq!(bisector.path().iter().filter(like).count(), 6, "{cached}");
    }
    // An end with the crashing server.
    let mut world = World::new(9, &[(4, 0.02)]);
    world.crashing.insert(4);
    world.identities = [4, 8].map(|state| (state, "one".to_owned())).into();
    let mut bisector = Bisector::new(question(9));
    let mut events = world.answer(&Action::Build { state: 4 });
    for _ in 0..100 {
        events.iter().for_each(|event| bisector.apply(event));
        events = world.answer(bisector.action());
    }
    assert_eq!(*bisector.action(), Action::Broken { state: 8 });
    assert!(bisector.are_same(4, 8));
}

#[test]
fn the_same_server_is_never_measured_twice() {
    // Changes 5 to 16 do not change the server.
    let mut world = World::new(17, &[(3, 0.01)]);
    world.identities = (4..=16).map(|state| (state, "one".to_owned())).collect();
    let (session, bisector) = world.run(question(17));
    let outcome = bisector.outcome();
    assert_eq!(found(&outcome), [(2, 3)]);
    let only = |d: &&Decision| {
        matches!(
            d.how,
            DecisionKind::Narrowed {
                why: NarrowingReason::OnlyOne,
                ..
            }
        )
    };
    assert!(
        bisector.path().iter().filter(only).count() >= 2,
        "{:?}",
        bisector.path()
    );
    for event in &session.events {
        if let Event::Block(block) = event {
            let same = block.values.keys().filter(|state| **state >= 4);
            assert!(same.count() <= 1, "{block:?}");
        }
    }
    // Both ends the same: nothing to measure.
    let mut world = World::new(5, &[]);
    world.identities = (0..5).map(|state| (state, "one".to_owned())).collect();
    let outcome = world.outcome(question(5));
    assert_eq!(
        (outcome.conclusion, outcome.cost.blocks),
        (Conclusion::Nothing, 0)
    );
    assert_eq!(outcome.rest[0].ending, SpanStatus::Identical);
}

#[test]
fn too_much_noise_is_said_to_be_undecidable() {
    let mut world = World::new(17, &[(8, 0.006)]);
    world.noise = 0.05;
    let ask = Question {
        most_blocks: 40,
        ..question(17)
    };
    let outcome = world.outcome(ask);
    assert_eq!(outcome.conclusion, Conclusion::Undecided);
    assert!(outcome.culprits.is_empty());
    assert!(
        outcome
            .path
            .iter()
            .any(|d| matches!(d.how, DecisionKind::Undecided(_)))
    );
}

#[test]
fn counts_need_one_block_a_comparison_where_they_repeat() {
    let ask = || Question {
        meter: Meter::Instructions.into(),
        known_sd: Some(0.0005),
        ..question(17)
    };
    let mut world = World::new(17, &[(8, 0.01)]);
    world.noise = 0.0002;
    let outcome = world.outcome(ask());
    assert_eq!(found(&outcome), [(7, 8)]);
    // The ends three times, four times a state between, and the confirmation.
    assert_eq!((outcome.cost.blocks, outcome.cost.builds), (8, 6));
    // Counts that depend on random values at a server's start do not lead to a named change.
    for seed in 0..20 {
        let mut world = World::new(17, &[]);
        world.noise = 0.01;
        world.random = StdRng::seed_from_u64(seed);
        assert_eq!(
            world.outcome(ask()).conclusion,
            Conclusion::Nothing,
            "{seed}"
        );
    }
}

#[test]
fn many_small_changes_are_a_range() {
    let each: Vec<(usize, f64)> = (1..=8).map(|place| (place, 0.0015)).collect();
    let ask = Question {
        meter: Meter::Instructions.into(),
        known_sd: Some(0.0005),
        ..question(9)
    };
    let mut world = World::new(9, &each);
    world.noise = 0.0001;
    let outcome = world.outcome(ask);
    assert_eq!(outcome.conclusion, Conclusion::Found, "{outcome:#?}");
    let small = |culprit: &&Culprit| {
        let range = culprit.range.as_deref();
        range.is_some_and(|range| range.contains("smaller changes"))
    };
    assert_eq!(
        outcome.culprits.iter().filter(small).count(),
        outcome.culprits.len()
    );
}

#[test]
fn states_that_are_there_already_are_compared_several_at_a_time() {
    let build_all = |world: &mut World| {
        let mut session = BisectSession::new(question(65));
        for state in 0..65 {
            session.events.push(Event::Built {
                state,
                identity: format!("binary {state}"),
                seconds: 0.0,
                cached: true,
            });
        }
        let mut bisector = session.replay();
        loop {
            let events = world.answer(bisector.action());
            if events.is_empty() {
                return bisector.outcome();
            }
            events.iter().for_each(|event| bisector.apply(event));
        }
    };
    let mut world = World::new(65, &[(40, 0.01)]);
    let warm = build_all(&mut world);
    assert_eq!(found(&warm), [(39, 40)]);
    assert_eq!(warm.cost.builds, 0);
    let rounds = |outcome: &BisectOutcome| {
        let narrowed = |d: &&Decision| matches!(d.how, DecisionKind::Narrowed { .. });
        outcome.path.iter().filter(narrowed).count()
    };
    let cold = World::new(65, &[(40, 0.01)]).outcome(question(65));
    assert_eq!((rounds(&warm), rounds(&cold)), (3, 6));
}

/// Blocks of an earlier experiment on all of `states`.
fn stored(world: &mut World, states: &[usize], count: u32) -> Vec<Event> {
    let action = Action::Measure {
        states: states.to_vec(),
        blocks: 1,
    };
    let mut events: Vec<Event> = (0..count)
        .flat_map(|number| {
            let mut events = world.answer(&action);
            if let Event::Block(block) = &mut events[0] {
                block.source = Some("quick-1".into());
                block.number = number;
                block.seconds = 0.0;
            }
            events
        })
        .collect();
    events.push(Event::Imported);
    events
}

#[test]
fn stored_blocks_lead_to_the_culprit_and_fresh_ones_confirm_it() {
    let mut world = World::new(17, &[(11, 0.01)]);
    let all: Vec<usize> = (0..17).collect();
    let mut session = BisectSession::new(question(17));
    session.events = stored(&mut world, &all, 40);
    let mut bisector = session.replay();
    // The stored blocks suffice to name the change: only the states beside it are built.
    assert!(matches!(
        bisector.path().last().unwrap().how,
        DecisionKind::Named { from: 10, to: 11 }
    ));
    assert_eq!(bisector.outcome().cost.blocks, 0);
    while *bisector.action() != Action::Done {
        let events = world.answer(bisector.action());
        events.iter().for_each(|event| bisector.apply(event));
    }
    let outcome = bisector.outcome();
    assert_eq!(found(&outcome), [(10, 11)]);
    assert_eq!((outcome.cost.builds, outcome.cost.stored), (4, 40));
    assert!(outcome.cost.blocks > 0);
}

#[test]
fn what_stored_blocks_suggest_falsely_is_refuted_by_fresh_ones() {
    // The stored blocks are from a machine on which change 11 was slower; here it is not.
    let mut old = World::new(17, &[(11, 0.01)]);
    let all: Vec<usize> = (0..17).collect();
    let mut session = BisectSession::new(question(17));
    session.events = stored(&mut old, &all, 40);
    let mut bisector = session.replay();
    let mut world = World::new(17, &[]);
    while *bisector.action() != Action::Done {
        let events = world.answer(bisector.action());
        events.iter().for_each(|event| bisector.apply(event));
    }
    let outcome = bisector.outcome();
    assert_eq!(
        outcome.conclusion,
        Conclusion::Nothing,
        "{:#?}",
        outcome.path
    );
    assert!(
        outcome
            .path
            .iter()
            .any(|d| matches!(d.how, DecisionKind::Refuted(_)))
    );
}

#[test]
fn a_session_is_its_log() {
    let mut world = World::new(33, &[(9, 0.008), (20, 0.01)]);
    world.crashing.insert(8);
    world.unbuildable.insert(16);
    let (session, bisector) = world.run(question(33));
    let text = serde_json::to_string(&session).unwrap();
    let again = BisectSession::parse(&text).unwrap();
    assert_eq!(again, session);
    assert_eq!(again.replay().outcome(), bisector.outcome());
    // After a stop at any event, the resumed session takes the same path.
    for stop in [1, 7, session.events.len() / 2] {
        let mut bisector = BisectSession {
            events: session.events[..stop].to_vec(),
            ..session.clone()
        }
        .replay();
        session.events[stop..]
            .iter()
            .for_each(|event| bisector.apply(event));
        assert_eq!(bisector.outcome().path, again.replay().outcome().path);
    }
}

#[test]
fn logs_that_cannot_be_right_are_refused() {
    let good = serde_json::to_string(&BisectSession::new(question(3))).unwrap();
    for (from, to) in [
        ("\"schema\":1", "\"schema\":2"),
        ("\"size\":0.005", "\"size\":-1.0"),
        (
            "\"events\":[]",
            "\"events\":[{\"block\":{\"number\":0,\"values\":{\"7\":1.0}}}]",
        ),
        ("{", "["),
    ] {
        assert!(good.contains(from), "{good}");
        assert!(
            BisectSession::parse(&good.replacen(from, to, 1)).is_err(),
            "{to}"
        );
    }
    let mut one = question(3);
    one.states.truncate(1);
    assert!(one.check().is_err());
}
