//! Parsers of the values of options: words for variants of the library's types, and numbers.

use std::fmt;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use perfquilt_judge::bisect::Direction;
use perfquilt_measure::run::Effects;
use perfquilt_model::error::Error;
use perfquilt_model::point::Point;
use perfquilt_report::{EXPORTERS, Exporter};

/// A word, its help and its value.
type Choice<T> = (&'static str, &'static str, T);

/// Parses a whole number.
pub(super) fn number<T: FromStr>(text: &str) -> Result<T, String> {
    let number = text.parse::<T>();
    number.map_err(|_| "a whole number is needed".to_owned())
}

/// Parses a whole number above 0.
pub(super) fn positive<T: FromStr + Default + PartialOrd>(text: &str) -> Result<T, String> {
    let number = number::<T>(text).ok();
    let number = number.filter(|number| *number > T::default());
    number.ok_or_else(|| "a whole number from 1 is needed".to_owned())
}

/// Parses the name of a scheduler.
pub(super) fn scheduler(text: &str) -> perfquilt_model::error::Result<String> {
    perfquilt_cluster::scheduler::check_name(text)?;
    Ok(text.to_owned())
}

const DIRECTIONS: &[Choice<Direction>] = &[
    ("slower", "Losses of speed", Direction::Slower),
    ("faster", "Gains of speed", Direction::Faster),
    ("both", "Losses and gains", Direction::Both),
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
    parser(DIRECTIONS.iter().cloned())
}

/// Parses a point with the server to measure as it.
pub(super) fn server(text: &str) -> Result<(Point, String), String> {
    let (point, server) = text.split_once('=').ok_or("POINT=SERVER is needed")?;
    let point: Point = point.parse().map_err(|error: Error| error.to_string())?;
    if point == Point::Control {
        return Err("the control is added automatically: it is the base's server again".into());
    }
    Ok((point, server.to_owned()))
}

/// Parses a kind of effect.
pub fn effects() -> impl TypedValueParser<Value = Effects> {
    parser(EFFECTS.iter().cloned())
}

/// Returns the word for a kind of effect.
pub fn effects_word(effects: Effects) -> &'static str {
    let found = EFFECTS.iter().find(|choice| choice.2 == effects);
    found.map_or("", |choice| choice.0)
}

/// A format of a report on an experiment.
#[derive(Clone, Copy)]
pub struct ReportFormat(pub &'static Exporter);

impl PartialEq for ReportFormat {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl fmt::Debug for ReportFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReportFormat").field(&self.0.name).finish()
    }
}

/// Parses the format of a report: the name of one of [`EXPORTERS`].
pub fn report_format() -> impl TypedValueParser<Value = ReportFormat> {
    let formats = EXPORTERS.iter();
    parser(formats.map(|format| (format.name, format.help, ReportFormat(format))))
}

fn parser<T: Clone + Send + Sync + 'static>(
    choices: impl Iterator<Item = Choice<T>>,
) -> impl TypedValueParser<Value = T> {
    let choices: Vec<Choice<T>> = choices.collect();
    let words = choices
        .iter()
        .map(|(word, help, _)| PossibleValue::new(*word).help(*help));
    PossibleValuesParser::new(words).try_map(move |word| {
        let chosen = choices.iter().find(|choice| choice.0 == word);
        chosen
            .map(|choice| choice.2.clone())
            .ok_or_else(|| format!("`{word}` is not among the choices"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_word() {
        for (word, _, value) in EFFECTS {
            assert_eq!(effects_word(*value), *word);
        }
    }

    #[test]
    fn servers_are_named_by_point() {
        assert_eq!(
            server("alone:2=a/b"),
            Ok((Point::Alone(2), "a/b".to_owned()))
        );
        for wrong in ["2", "x=a", "control=a"] {
            assert!(server(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_are_refused_in_words() {
        assert_eq!(number::<u64>("12"), Ok(12));
        assert_eq!(positive::<u64>("1"), Ok(1));
        for text in ["", "x", "-1", "1.5", "99999999999999999999"] {
            let refused = number::<u64>(text).unwrap_err();
            assert_eq!(refused, "a whole number is needed", "{text}");
        }
        for text in ["0", "x"] {
            let refused = positive::<u64>(text).unwrap_err();
            assert_eq!(refused, "a whole number from 1 is needed", "{text}");
        }
    }
}
