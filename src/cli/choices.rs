//! Parsers of options whose values are words for variants of the library's types.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use perfquilt_config::Layouts;
use perfquilt_judge::bisect::Direction;
use perfquilt_measure::run::Effects;

/// A word, its help and its value.
type Choice<T> = (&'static str, &'static str, T);

const DIRECTIONS: &[Choice<Direction>] = &[
    ("slower", "Losses of speed", Direction::Slower),
    ("faster", "Gains of speed", Direction::Faster),
    ("both", "Losses and gains", Direction::Both),
];

const LAYOUTS: &[Choice<Layouts>] = &[
    (
        "off",
        "No variation: servers run as they were linked",
        Layouts::Off,
    ),
    (
        "padded",
        "Some bytes of padding between functions and data, in their original order",
        Layouts::Padded,
    ),
    (
        "shuffled",
        "Functions and data in random order",
        Layouts::Shuffled,
    ),
];

const EFFECTS: &[Choice<Effects>] = &[
    ("order", "Against the previous point", Effects::Order),
    (
        "alone",
        "On the bare release, without the other patches",
        Effects::Alone,
    ),
    (
        "without",
        "The whole series against the series without it",
        Effects::Without,
    ),
];

/// Parses the direction of the changes to search for.
pub fn direction() -> impl TypedValueParser<Value = Direction> {
    parser(DIRECTIONS)
}

/// Parses the variation of code layouts.
pub fn layouts() -> impl TypedValueParser<Value = Layouts> {
    parser(LAYOUTS)
}

/// Parses a kind of effect.
pub fn effects() -> impl TypedValueParser<Value = Effects> {
    parser(EFFECTS)
}

fn parser<T: Clone + Send + Sync>(
    choices: &'static [Choice<T>],
) -> impl TypedValueParser<Value = T> {
    let words = choices
        .iter()
        .map(|(word, help, _)| PossibleValue::new(*word).help(*help));
    PossibleValuesParser::new(words).try_map(|word| {
        let chosen = choices.iter().find(|choice| choice.0 == word);
        chosen
            .map(|choice| choice.2.clone())
            .ok_or_else(|| format!("`{word}` is not among the choices"))
    })
}
