//! The result of a bisection.

use super::document::{
    Document, Folding, Node, Text, heading, list, literal, name, note, paragraph, table, title,
};
use super::number::{change, margin, seconds};
use super::text::{capital, clean};
use perfquilt_judge::attribution::ShownChange;
use perfquilt_judge::bisect::{
    BisectOutcome, Conclusion, Culprit, Decision, DecisionKind, Direction, FileStat,
    NarrowingReason, Question, RemainingSpan, SessionCost, SpanEffect, SpanStatus,
};
use perfquilt_judge::stats::SpeedChange;
use perfquilt_model::counted::counted;
use perfquilt_model::observation::FunctionChange;

/// Maximum number of files shown of one change; `--json` has all.
const MOST_FILES: usize = 12;

/// Returns the document: the answer, each change that was found, the other parts, and the path to the answer.
pub fn document(outcome: &BisectOutcome) -> Document {
    let question = &outcome.question;
    let mut nodes = vec![title(headline(outcome)), paragraph(scope(question))];
    for culprit in &outcome.culprits {
        nodes.push(heading(describe_culprit(question, culprit)));
        nodes.extend(list(names(culprit)));
        if !culprit.files.is_empty() {
            nodes.push(Node::Code("", files(&culprit.files)));
        }
        nodes.extend(functions(culprit).map(paragraph));
    }
    if !outcome.culprits.is_empty() {
        let others = outcome.rest.iter();
        let others = list(others.map(|rest| describe_remaining_span(question, rest)));
        nodes.extend(
            others
                .into_iter()
                .flat_map(|others| [heading("The other parts"), others]),
        );
    }
    nodes.extend(notes(outcome).into_iter().map(note));
    if !outcome.path.is_empty() {
        let table = table("The path taken", &outcome.path)
            .figures("blocks before", |decision| decision.after.to_string())
            .prose("decision", |decision| describe_decision(question, decision));
        nodes.push(Node::Details(
            Folding::Folded,
            "The path taken".into(),
            vec![table.node()],
        ));
    }
    nodes.push(paragraph(cost(&outcome.cost)));
    if !outcome.next.is_empty() {
        let next = outcome.next.iter();
        nodes.push(Node::Next(
            next.map(|next| (next.command.clone(), next.what.clone()))
                .collect(),
        ));
    }
    Document(nodes)
}

/// Describes a decision with its figures, for a terminal.
pub fn step(question: &Question, decision: &Decision) -> String {
    Text::from(describe_decision(question, decision)).plain()
}

/// Describes a decision with its figures.
fn describe_decision(question: &Question, decision: &Decision) -> String {
    let span = |measured: &SpanEffect| span(question, measured.from, measured.to);
    let measured =
        |of: &SpanEffect, rest: String| format!("{}: {}, {rest}", span(of), figure(question, of));
    let again = |of: &SpanEffect, rest: &str| {
        format!(
            "{}: {} in {}, {rest}",
            changes(question, of.from, of.to),
            figure(question, of),
            fresh(blocks(of))
        )
    };
    match &decision.how {
        DecisionKind::Changed(of) => measured(of, changed(question, of).to_owned() + ": searched"),
        DecisionKind::Unchanged(of) => measured(of, nothing(question)),
        DecisionKind::Undecided(of) => {
            measured(of, format!("undecided with {} blocks", blocks(of)))
        }
        DecisionKind::Narrowed { parts, chosen, why } => {
            let parts_text: Vec<String> = parts
                .iter()
                .map(|part| format!("{} {}", span(part), figure(question, part)))
                .collect();
            let chosen = parts.get(*chosen).map_or(String::new(), span);
            let why = match why {
                NarrowingReason::Shown => "shown",
                NarrowingReason::Likelier => "far likelier than the others",
                NarrowingReason::OnlyOne => "elsewhere it is the same server",
            };
            format!("{}: continue in {chosen} ({why})", parts_text.join("; "))
        }
        DecisionKind::Skipped { state, reason } => {
            format!(
                "{} is skipped: {}",
                label(question, *state),
                literal(reason)
            )
        }
        DecisionKind::Named { from, to } => format!(
            "{} named, to be confirmed from fresh blocks",
            changes(question, *from, *to)
        ),
        DecisionKind::Confirmed(of) => again(of, "confirmed"),
        DecisionKind::Refuted(of) => again(of, "not confirmed"),
    }
}

fn headline(outcome: &BisectOutcome) -> String {
    let question = &outcome.question;
    let (first, last) = (label(question, 0), label(question, question.last()));
    let on = format!("{} ({})", name(&question.workload), question.meter);
    let least = margin(question.size);
    let shown = |of: &SpeedChange| effect(question, of);
    let [loss, gain] = loss_and_gain(question);
    let verb = match question.direction {
        Direction::Slower => loss.to_owned(),
        Direction::Faster => gain.to_owned(),
        Direction::Both => format!("{loss} or {gain}"),
    };
    match outcome.conclusion {
        Conclusion::Found => {
            let confirmed: Vec<&Culprit> =
                outcome.culprits.iter().filter(|c| c.confirmed).collect();
            match confirmed.as_slice() {
                [one] => {
                    let which = changes(question, one.from, one.to);
                    let word = one
                        .effect
                        .map_or("changes", |effect| word(question, &effect));
                    let figure = one.effect.as_ref().map_or(String::new(), shown);
                    let which = match one.to - one.from {
                        1 => capital(&which),
                        _ => format!("One or more of {which}"),
                    };
                    format!("{which} made {on} {word}: {figure}")
                }
                several => format!(
                    "{} changes from {first} to {last} made {on} {verb}",
                    several.len()
                ),
            }
        }
        Conclusion::Nothing => {
            format!("From {first} to {last}, {on} did not become {verb} by {least} or more")
        }
        Conclusion::Opposite => {
            let figure = outcome.total.effect.as_ref().map_or(String::new(), shown);
            format!("From {first} to {last}, {on} did not become {verb}: {figure}")
        }
        Conclusion::Undecided => format!(
            "Undecided: {} blocks do not distinguish a change of {least} on {on} from none",
            question.most_blocks
        ),
        Conclusion::Unfinished => format!(
            "Unfinished: {} blocks measured between {first} and {last} on {on}",
            outcome.cost.blocks
        ),
    }
}

/// Describes the question of the bisection.
fn scope(question: &Question) -> String {
    let count = question.last();
    format!(
        "{}, recipe {}: {count} {}{} from {} to {}; changes of {} or more, error rate {}.",
        name(&question.release),
        name(&question.recipe),
        clean(&question.change),
        match (count, question.change.as_str()) {
            (1, _) => "",
            (_, "patch") => "es",
            _ => "s",
        },
        label(question, 0),
        label(question, question.last()),
        margin(question.size),
        margin(question.error),
    )
}

fn describe_culprit(question: &Question, culprit: &Culprit) -> String {
    let which = capital(&changes(question, culprit.from, culprit.to));
    let figure = known_effect(question, culprit.effect.as_ref());
    let known = match (culprit.confirmed, culprit.effect) {
        (true, Some(effect)) => format!("confirmed by {}", fresh(effect.blocks)),
        (true, None) => "confirmed".to_owned(),
        (false, Some(effect)) => format!("not confirmed within {}", fresh(effect.blocks)),
        (false, None) => "not confirmed".to_owned(),
    };
    match &culprit.range {
        None => format!("{which}: {figure}, {known}"),
        Some(reason) => format!("{which} together: {figure}, {known}; {}", literal(reason)),
    }
}

fn describe_remaining_span(question: &Question, rest: &RemainingSpan) -> String {
    let measured = &rest.measured;
    let which = capital(&changes(question, measured.from, measured.to));
    match rest.ending {
        SpanStatus::Identical => format!("{which}: the same server before and after"),
        SpanStatus::Unchanged => {
            let together = match measured.to - measured.from {
                1 => "",
                _ => " together",
            };
            format!(
                "{which}{together}: {}, {}",
                figure(question, measured),
                nothing(question)
            )
        }
        SpanStatus::Undecided => format!("{which}: {}, undecided", figure(question, measured)),
    }
}

/// Returns the remarks beside the figures.
fn notes(outcome: &BisectOutcome) -> Vec<String> {
    let mut notes: Vec<String> = outcome.notes.iter().map(|note| literal(note)).collect();
    let several = outcome.rest.iter().any(|rest| {
        rest.measured.to - rest.measured.from > 1 && rest.ending == SpanStatus::Unchanged
    });
    let done = !matches!(
        outcome.conclusion,
        Conclusion::Unfinished | Conclusion::Undecided
    );
    if done && several {
        notes.push(format!(
            "A {} that another one in the same part cancels stays hidden.",
            clean(&outcome.question.change)
        ));
    }
    if outcome.conclusion == Conclusion::Opposite {
        let [worse, better] = loss_and_gain(&outcome.question);
        let (other, became, hidden, larger) = match outcome.question.direction {
            Direction::Faster => ("slower", worse, "gain", "loss"),
            _ => ("faster", better, "loss", "gain"),
        };
        notes.push(format!(
            "`--direction both` also searches parts that became {became}, and so finds a {hidden} beside a larger \
             {larger}; `--direction {other}` searches only for changes that made it {became}."
        ));
    }
    if outcome.conclusion == Conclusion::Undecided {
        notes.push(
            "`--blocks` allows more, a larger `--size` needs fewer, `--meter instructions` hardly any."
                .to_owned(),
        );
    }
    notes
}

pub(super) fn cost(cost: &SessionCost) -> String {
    let stored = match cost.stored {
        0 => String::new(),
        count => format!(", {count} stored blocks used"),
    };
    format!(
        "Cost: {} of measuring in {} ({} started){stored}; {} built in {}.",
        seconds(cost.seconds),
        counted(cost.blocks, "block", "blocks"),
        counted(cost.values, "server", "servers"),
        counted(cost.builds, "server", "servers"),
        seconds(cost.build_seconds),
    )
}

/// Returns names and titles of a culprit's changes.
fn names(culprit: &Culprit) -> impl Iterator<Item = String> + '_ {
    let titles = culprit.titles.iter().map(String::as_str);
    let pairs = culprit
        .names
        .iter()
        .zip(titles.chain(std::iter::repeat("")));
    pairs.map(|(of, title)| format!("{}  {}", name(of), literal(title)))
}

/// Returns the files of a change, one line each.
fn files(files: &[FileStat]) -> Vec<String> {
    let mut lines: Vec<String> = files
        .iter()
        .take(MOST_FILES)
        .map(|file| match file.lines {
            Some((added, removed)) => format!("{}  +{added} −{removed}", clean(&file.path)),
            None => format!("{}  (binary)", clean(&file.path)),
        })
        .collect();
    if files.len() > MOST_FILES {
        lines.push(format!("and {} more files", files.len() - MOST_FILES));
    }
    lines
}

/// Describes the change of instructions by function.
fn functions(culprit: &Culprit) -> Option<String> {
    let changes: Vec<&FunctionChange> = culprit.functions.as_ref()?.iter().collect();
    Some(if changes.is_empty() {
        "No function's own instructions changed: code that moved, or time that is not \
         spent on instructions."
            .to_owned()
    } else {
        format!(
            "Own instructions, as shares of all: {}.",
            super::functions::row(&changes)
        )
    })
}

fn label(question: &Question, state: usize) -> String {
    let state = question.states.get(state);
    let label = state.map_or("", |state| &state.label);
    // The number of a patch is no name.
    match label.parse::<usize>() {
        Ok(_) => label.to_owned(),
        Err(_) => name(label),
    }
}

/// Formats a range of states: `4 → 8`.
fn span(question: &Question, from: usize, to: usize) -> String {
    format!("{} → {}", label(question, from), label(question, to))
}

/// Names the changes between two states: `patch 8`, `patches 5 to 8`.
fn changes(question: &Question, from: usize, to: usize) -> String {
    let change = clean(&question.change);
    let plural = match change.as_str() {
        "patch" => "patches".to_owned(),
        other => format!("{other}s"),
    };
    match to - from {
        1 => format!("{change} {}", label(question, to)),
        _ => format!(
            "{plural} {} to {}",
            label(question, from + 1),
            label(question, to)
        ),
    }
}

fn effect(question: &Question, effect: &SpeedChange) -> String {
    let ends = effect.ends();
    let places = match ends {
        Some((low, high)) if high - low < 0.002 => 3,
        _ => 2,
    };
    let meter = question.meter.meter;
    let figure = change(&ShownChange::of(meter, effect.estimate, ends), places);
    if meter.is_shown_as_speed() {
        figure
    } else {
        format!("{figure} {}", meter.shown_quantity())
    }
}

fn figure(question: &Question, measured: &SpanEffect) -> String {
    known_effect(question, measured.effect.as_ref())
}

/// Returns an effect in words, also where there is none.
pub(super) fn known_effect(question: &Question, known: Option<&SpeedChange>) -> String {
    known.map_or("no figure".to_owned(), |of| effect(question, of))
}

fn blocks(measured: &SpanEffect) -> usize {
    measured.effect.map_or(0, |effect| effect.blocks)
}

fn fresh(blocks: usize) -> String {
    counted(blocks, "fresh block", "fresh blocks")
}

/// Returns the words for a loss and a gain on the question's meter.
fn loss_and_gain(question: &Question) -> [&'static str; 2] {
    if question.meter.meter.is_shown_as_speed() {
        ["slower", "faster"]
    } else {
        ["more expensive", "cheaper"]
    }
}

fn word(question: &Question, effect: &SpeedChange) -> &'static str {
    let [loss, gain] = loss_and_gain(question);
    if effect.estimate < 0.0 { loss } else { gain }
}

fn changed(question: &Question, measured: &SpanEffect) -> &'static str {
    let effect = measured.effect.as_ref();
    effect.map_or("changed", |effect| word(question, effect))
}

/// Describes an unchanged part: `no loss of 0.5 % or more`.
fn nothing(question: &Question) -> String {
    let what = match question.direction {
        Direction::Slower => "loss",
        Direction::Faster => "gain",
        Direction::Both => "change",
    };
    format!("no {what} of {} or more", margin(question.size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_judge::bisect::{Action, Bisector, Event, MeasuredBlock, Revision};
    use perfquilt_model::observation::Meter;

    /// Returns a finished bisection of instructions, in which each state in `slow` costs 1 % more than the one before.
    fn outcome(names: &[&str], slow: &[usize], direction: Direction) -> BisectOutcome {
        let mut bisector = Bisector::new(Question {
            states: (0..=names.len())
                .map(|k| Revision {
                    label: k.to_string(),
                    name: k.checked_sub(1).map_or("toy-1", |k| names[k]).to_owned(),
                    title: format!("title {k}"),
                    tree: String::new(),
                })
                .collect(),
            change: "patch".into(),
            release: "toy-1".into(),
            recipe: "make".into(),
            workload: "load".into(),
            meter: Meter::Instructions.into(),
            direction,
            size: 0.005,
            error: 0.01,
            most_blocks: 50,
            known_sd: Some(0.0005),
        });
        let mut number = 0;
        loop {
            let event = match bisector.action() {
                Action::Build { state } => Event::Built {
                    state: *state,
                    identity: state.to_string(),
                    seconds: 61.0,
                    cached: false,
                },
                Action::Measure { states, .. } => {
                    number += 1;
                    let cost = |state: usize| {
                        let slower = slow.iter().filter(|place| **place <= state).count();
                        1e6 * 1.01f64.powi(i32::try_from(slower).unwrap())
                    };
                    Event::Block(MeasuredBlock {
                        number,
                        values: states.iter().map(|&state| (state, cost(state))).collect(),
                        seconds: 3.0,
                        ..MeasuredBlock::default()
                    })
                }
                Action::Done | Action::Broken { .. } => return bisector.outcome(),
            };
            bisector.apply(&event);
        }
    }

    #[test]
    fn a_culprit_is_shown_with_its_evidence_and_the_next_command() {
        let names = ["a.patch", "b.patch", "c.patch", "d.patch"];
        let mut found = outcome(&names, &[3], Direction::Slower);
        found.culprits[0].files = vec![FileStat {
            path: "sql/item.cc".into(),
            lines: Some((3, 1)),
        }];
        found.next = vec![perfquilt_judge::bisect::NextCommand {
            what: "without it".into(),
            command: "perfquilt run --point 3".into(),
        }];
        let text = document(&found).terminal(100, false);
        for words in [
            "Patch 3 made load (instructions) more expensive: +1.00",
            "4 patches from 0 to 4; changes of 0.5 % or more, error rate 1 %.",
            "c.patch  title 3",
            "sql/item.cc  +3 −1",
            "Patches 1 to 2 together: 0 % ±",
            "0 → 4: +1.00",
            "continue in 2 → 4",
            "patch 3 named, to be confirmed from fresh blocks",
            "next: perfquilt run --point 3",
            "confirmed by 1 fresh block",
            "4 servers built in 4 min 4 s",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(
            document(&found)
                .terminal(100, true)
                .starts_with("\x1b[1mPatch 3")
        );
        let page = document(&found).markdown();
        assert!(page.starts_with("## Patch 3 made `load`"), "{page}");
        assert!(
            page.contains("```sh\n# without it\nperfquilt run --point 3\n```"),
            "{page}"
        );
    }

    #[test]
    fn every_form() {
        let names = ["a.patch", "b_*.patch", "c`<b>.patch", "d.patch"];
        let mut found = outcome(&names, &[3], Direction::Slower);
        found.culprits[0].files = vec![FileStat {
            path: "sql/item.cc".into(),
            lines: Some((3, 1)),
        }];
        found.culprits[0].functions = Some(vec![FunctionChange {
            patch: 3,
            workload: "load".into(),
            function: "scan(int)".into(),
            before: 10.0,
            after: 20.0,
            half_width: 1.0,
            share: 0.1,
        }]);
        found.notes = vec!["state 2 was left out: `x` <b>".into()];
        found.next = vec![perfquilt_judge::bisect::NextCommand {
            what: "without it".into(),
            command: "perfquilt run --point 3".into(),
        }];
        insta::assert_snapshot!(crate::tests::forms(&[
            ("80 columns", document(&found).terminal(80, false)),
            ("100 columns", document(&found).terminal(100, true)),
            ("Markdown", document(&found).markdown()),
        ]));
    }

    #[test]
    fn other_answers_are_in_words_too() {
        let names = ["a.patch", "b.patch"];
        let text = |slow: &[usize], direction| {
            document(&outcome(&names, slow, direction)).terminal(100, false)
        };
        let nothing = text(&[], Direction::Slower);
        assert!(nothing.starts_with(
            "From 0 to 2, load (instructions) did not become more expensive by 0.5 % or more"
        ));
        assert!(nothing.contains("cancels stays hidden"), "{nothing}");
        let opposite = text(&[1], Direction::Faster);
        assert!(
            opposite.starts_with("From 0 to 2, load (instructions) did not become cheaper: +1.00"),
            "{opposite}"
        );
        let place = |words: &str| opposite.find(words).expect(words);
        assert!(
            place("`--direction both`") < place("`--direction slower`"),
            "{opposite}"
        );
        let two = text(&[1, 2], Direction::Both);
        assert!(two.starts_with("2 changes from 0 to 2 made"), "{two}");
    }

    #[test]
    fn remarks_of_the_program_are_markdown_and_others_are_inert() {
        let names = ["a.patch", "b.patch"];
        let mut found = outcome(&names, &[1], Direction::Faster);
        found.question.change = "<b>`patch`".into();
        found.notes = vec!["@octocat `a`\n## b".into()];
        let page = document(&found).markdown();
        assert!(page.contains("`--direction both` also"), "{page}");
        for active in ["@octocat", "<b>", "\n## b", " `a`"] {
            assert!(!page.contains(active), "{active} in {page}");
        }
        let page = document(&outcome(&names, &[], Direction::Slower)).markdown();
        assert!(page.contains("cancels stays hidden.\n"), "{page}");
    }

    #[test]
    fn hostile_names_steer_nothing() {
        let names = ["\x1b[31mred`|<b>\u{202e}.patch"];
        let found = outcome(&names, &[1], Direction::Slower);
        let text = document(&found).terminal(80, false);
        assert!(
            !text.contains('\x1b') && !text.contains('\u{202e}'),
            "{text}"
        );
        let page = document(&found).markdown();
        assert!(!page.contains('\x1b') && !page.contains("\n|<b>"), "{page}");
    }
}
