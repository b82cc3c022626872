//! What a bisection found, for people: on a terminal and as Markdown.

use std::fmt::Write;

use super::number::{interval, margin, seconds};
use super::text::{clean, code, markdown as escape, wrap};
use crate::bisect::{
    Conclusion, Cost, Culprit, Decision, Direction, Effect, Ending, FileStat, How, Measured,
    Outcome, Part, Question, Rest,
};

/// Columns narrower than this are not worth fitting into.
const NARROWEST: usize = 60;
/// Files of one change that are shown; `--json` has all.
const MOST_FILES: usize = 12;

const BOLD: &str = "\x1b[1m";
const RESET: &str = "\x1b[0m";

/// A bisection as text of at most `columns` columns; `color` allows ANSI colours.
pub fn terminal(outcome: &Outcome, columns: usize, color: bool) -> String {
    let mut page = Page {
        width: columns.max(NARROWEST),
        text: String::new(),
    };
    let headline = headline(outcome);
    match color {
        true => {
            for line in wrap(&headline, page.width) {
                let _ = writeln!(page.text, "{BOLD}{line}{RESET}");
            }
        }
        false => page.paragraph(&headline, 0),
    }
    page.paragraph(&scope(&outcome.question), 0);
    for culprit in &outcome.culprits {
        page.text.push('\n');
        page.paragraph(&culprit_words(&outcome.question, culprit), 0);
        for (name, title) in names(culprit) {
            page.paragraph(&format!("{name}  {title}"), 2);
        }
        for line in files(&culprit.files) {
            page.paragraph(&line, 4);
        }
    }
    if !outcome.rest.is_empty() && !outcome.culprits.is_empty() {
        page.text.push('\n');
        for rest in &outcome.rest {
            page.paragraph(&rest_words(&outcome.question, rest), 0);
        }
    }
    for note in notes(outcome) {
        page.text.push('\n');
        page.paragraph(&note, 0);
    }
    if !outcome.path.is_empty() {
        page.text.push_str("\nPath\n");
    }
    for decision in &outcome.path {
        let line = step(&outcome.question, decision);
        page.paragraph(&format!("{:>4}  {line}", decision.after), 0);
    }
    page.text.push('\n');
    page.paragraph(&cost(&outcome.cost), 0);
    for (index, next) in outcome.next.iter().enumerate() {
        let word = if index == 0 { "\nnext: " } else { "      " };
        let _ = writeln!(page.text, "{word}{}", clean(&next.command));
        page.paragraph(&format!("({})", clean(&next.what)), 8);
    }
    page.text
}

struct Page {
    width: usize,
    text: String,
}

impl Page {
    fn paragraph(&mut self, text: &str, indent: usize) {
        for line in wrap(text, self.width - indent) {
            let _ = writeln!(self.text, "{:indent$}{}", "", line.trim_end());
        }
    }
}

/// A bisection as Markdown, for a comment or a file.
pub fn markdown(outcome: &Outcome) -> String {
    let question = &outcome.question;
    let mut page = format!(
        "## {}\n\n{}\n",
        escape(&headline(outcome)),
        escape(&scope(question))
    );
    for culprit in &outcome.culprits {
        let _ = writeln!(page, "\n{}:\n", escape(&culprit_words(question, culprit)));
        for (name, title) in names(culprit) {
            let _ = writeln!(page, "- {} {}", code(&name), escape(&title));
        }
        if !culprit.files.is_empty() {
            page.push_str("\n```\n");
            for line in files(&culprit.files) {
                let _ = writeln!(page, "{}", line.replace('`', "'"));
            }
            page.push_str("```\n");
        }
    }
    if !outcome.rest.is_empty() && !outcome.culprits.is_empty() {
        page.push('\n');
        for rest in &outcome.rest {
            let _ = writeln!(page, "- {}", escape(&rest_words(question, rest)));
        }
    }
    for note in notes(outcome) {
        let _ = writeln!(page, "\n{}", escape(&note));
    }
    if !outcome.path.is_empty() {
        page.push_str(
            "\n<details><summary>The path taken</summary>\n\n| blocks before | decision |\n|--:|:--|\n",
        );
        for decision in &outcome.path {
            let line = escape(&step(question, decision));
            let _ = writeln!(page, "| {} | {line} |", decision.after);
        }
        page.push_str("\n</details>\n");
    }
    let _ = writeln!(page, "\n{}", escape(&cost(&outcome.cost)));
    if !outcome.next.is_empty() {
        page.push_str("\n```sh\n");
        for next in &outcome.next {
            let _ = writeln!(page, "# {}\n{}", clean(&next.what), clean(&next.command));
        }
        page.push_str("```\n");
    }
    page
}

/// One decision in words, with its figures.
pub fn step(question: &Question, decision: &Decision) -> String {
    let span = |measured: &Measured| span(question, measured.from, measured.to);
    match &decision.how {
        How::Changed(measured) => {
            let word = changed(measured);
            format!("{}: {}, {word}: searched", span(measured), figure(measured))
        }
        How::Unchanged(measured) => format!(
            "{}: {}, {}",
            span(measured),
            figure(measured),
            nothing(question)
        ),
        How::Undecided(measured) => format!(
            "{}: {}, undecided with {} blocks",
            span(measured),
            figure(measured),
            blocks(measured)
        ),
        How::Narrowed { parts, chosen, why } => {
            let parts_text: Vec<String> = parts
                .iter()
                .map(|part| format!("{} {}", span(part), figure(part)))
                .collect();
            let chosen = parts.get(*chosen).map_or(String::new(), span);
            let why = match why {
                Part::Shown => "shown",
                Part::Likelier => "far likelier than the others",
                Part::OnlyOne => "elsewhere it is the same server",
            };
            format!("{}: on in {chosen} ({why})", parts_text.join("; "))
        }
        How::Skipped { state, reason } => {
            format!("{} is left out: {}", label(question, *state), clean(reason))
        }
        How::Named { from, to } => format!(
            "{} named, to be confirmed from fresh blocks",
            changes(question, *from, *to)
        ),
        How::Confirmed(measured) => format!(
            "{}: {} in {} fresh blocks, confirmed",
            changes(question, measured.from, measured.to),
            figure(measured),
            blocks(measured)
        ),
        How::Refuted(measured) => format!(
            "{}: {} in {} fresh blocks, not confirmed",
            changes(question, measured.from, measured.to),
            figure(measured),
            blocks(measured)
        ),
    }
}

fn headline(outcome: &Outcome) -> String {
    let question = &outcome.question;
    let (first, last) = (label(question, 0), label(question, question.last()));
    let on = format!("{} ({})", clean(&question.workload), question.meter);
    let least = margin(question.size);
    let verb = match question.direction {
        Direction::Slower => "slower",
        Direction::Faster => "faster",
        Direction::Both => "slower or faster",
    };
    match outcome.conclusion {
        Conclusion::Found => {
            let confirmed: Vec<&Culprit> =
                outcome.culprits.iter().filter(|c| c.confirmed).collect();
            match confirmed.as_slice() {
                [one] => {
                    let which = changes(question, one.from, one.to);
                    let word = one.effect.map_or("changes", |effect| word(&effect));
                    let figure = one.effect.as_ref().map_or(String::new(), effect);
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
            format!("Nothing from {first} to {last} made {on} {verb} by {least} or more")
        }
        Conclusion::Opposite => {
            let figure = outcome.total.effect.as_ref().map_or(String::new(), effect);
            format!("Nothing from {first} to {last} made {on} {verb}: the whole range is {figure}")
        }
        Conclusion::Undecided => format!(
            "Undecided: {} blocks of a comparison do not tell a change of {least} on {on} from none",
            question.most_blocks
        ),
        Conclusion::Unfinished => format!(
            "Unfinished: {} blocks measured between {first} and {last} on {on}",
            outcome.cost.blocks
        ),
    }
}

/// What was asked.
fn scope(question: &Question) -> String {
    let count = question.last();
    format!(
        "{}, recipe {}: {count} {}{} from {} to {}; changes of {} or more, error rate {}.",
        clean(&question.release),
        clean(&question.recipe),
        question.change,
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

fn culprit_words(question: &Question, culprit: &Culprit) -> String {
    let which = capital(&changes(question, culprit.from, culprit.to));
    let figure = culprit
        .effect
        .as_ref()
        .map_or("no figure".to_owned(), effect);
    let known = match (culprit.confirmed, culprit.effect) {
        (true, Some(effect)) => format!("confirmed by {} fresh blocks", effect.blocks),
        (true, None) => "confirmed".to_owned(),
        (false, Some(effect)) => format!("not confirmed within {} fresh blocks", effect.blocks),
        (false, None) => "not confirmed".to_owned(),
    };
    match &culprit.range {
        None => format!("{which}: {figure}, {known}"),
        Some(reason) => format!("{which} together: {figure}, {known}; {}", clean(reason)),
    }
}

fn rest_words(question: &Question, rest: &Rest) -> String {
    let measured = &rest.measured;
    let which = capital(&changes(question, measured.from, measured.to));
    match rest.ending {
        Ending::Identical => format!("{which}: the same server before and after"),
        Ending::Unchanged => {
            let together = match measured.to - measured.from {
                1 => "",
                _ => " together",
            };
            format!(
                "{which}{together}: {}, {}",
                figure(measured),
                nothing(question)
            )
        }
        Ending::Undecided => format!("{which}: {}, undecided", figure(measured)),
    }
}

/// What a reader should know beside the figures.
fn notes(outcome: &Outcome) -> Vec<String> {
    let mut notes: Vec<String> = outcome.notes.iter().map(|note| clean(note)).collect();
    let several = outcome
        .rest
        .iter()
        .any(|rest| rest.measured.to - rest.measured.from > 1 && rest.ending == Ending::Unchanged);
    let done = !matches!(
        outcome.conclusion,
        Conclusion::Unfinished | Conclusion::Undecided
    );
    if done && several {
        notes.push(format!(
            "A {} that another one of the same part makes up for does not show.",
            outcome.question.change
        ));
    }
    if outcome.conclusion == Conclusion::Opposite {
        let other = match outcome.question.direction {
            Direction::Faster => "slower",
            _ => "faster",
        };
        notes.push(format!(
            "`--direction {other}` finds what makes it {other}, `--direction both` looks at everything."
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

pub(super) fn cost(cost: &Cost) -> String {
    let stored = match cost.stored {
        0 => String::new(),
        count => format!(", {count} stored blocks used"),
    };
    let plural = |count: u32, noun: &str| match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    };
    format!(
        "Cost: {} of measuring in {} ({} started){stored}; {} built in {}.",
        seconds(cost.seconds),
        plural(cost.blocks, "block"),
        plural(cost.values, "server"),
        plural(cost.builds, "server"),
        seconds(cost.build_seconds),
    )
}

/// Names and titles of a culprit's changes.
fn names(culprit: &Culprit) -> impl Iterator<Item = (String, String)> + '_ {
    let titles = culprit.titles.iter().map(String::as_str);
    let titles = titles.chain(std::iter::repeat(""));
    let pairs = culprit.names.iter().zip(titles);
    pairs.map(|(name, title)| (clean(name), clean(title)))
}

/// The files of a change, one line each.
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

fn label(question: &Question, state: usize) -> String {
    let state = question.states.get(state);
    state.map_or(String::new(), |state| clean(&state.label))
}

/// `4 → 8`.
fn span(question: &Question, from: usize, to: usize) -> String {
    format!("{} → {}", label(question, from), label(question, to))
}

/// `patch 8`, `patches 5 to 8`.
fn changes(question: &Question, from: usize, to: usize) -> String {
    let plural = match question.change.as_str() {
        "patch" => "patches".to_owned(),
        other => format!("{other}s"),
    };
    match to - from {
        1 => format!("{} {}", question.change, label(question, to)),
        _ => format!(
            "{plural} {} to {}",
            label(question, from + 1),
            label(question, to)
        ),
    }
}

pub(super) fn effect(effect: &Effect) -> String {
    let places = match effect.low.zip(effect.high) {
        Some((low, high)) if high - low < 0.002 => 3,
        _ => 2,
    };
    interval(effect.estimate, effect.low.zip(effect.high), places)
}

fn figure(measured: &Measured) -> String {
    measured
        .effect
        .as_ref()
        .map_or("no figure".to_owned(), effect)
}

fn blocks(measured: &Measured) -> usize {
    measured.effect.map_or(0, |effect| effect.blocks)
}

fn word(effect: &Effect) -> &'static str {
    if effect.estimate < 0.0 {
        "slower"
    } else {
        "faster"
    }
}

fn changed(measured: &Measured) -> &'static str {
    measured.effect.as_ref().map_or("changed", word)
}

/// `no loss of 0.5 % or more`.
fn nothing(question: &Question) -> String {
    let what = match question.direction {
        Direction::Slower => "loss",
        Direction::Faster => "gain",
        Direction::Both => "change",
    };
    format!("no {what} of {} or more", margin(question.size))
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}
