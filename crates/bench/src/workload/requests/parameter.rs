//! Random values in requests.

use std::io::Write;

use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use rand_distr::{Distribution, StandardNormal, Zipf};

use super::settings::{DistributionName, InvalidSetting, ParameterSettings};

/// The characters of random texts.
const CHARACTERS: &str = "abcdefghijklmnopqrstuvwxyz0123456789";
/// The longest random text.
const MAX_LENGTH: u32 = 1 << 20;
/// The widest integer.
const MAX_WIDTH: u8 = 40;
/// The default exponent of a Zipf distribution.
const ZIPF: f64 = 1.0;
/// The default shape of gaussian and exponential distributions, in pgbench's terms.
const SHAPE: f64 = 2.5;

/// A random value.
#[derive(Debug, Clone)]
pub(super) enum Parameter {
    /// An integer.
    Integer {
        range: IntegerRange,
        /// The least number of digits.
        width: usize,
    },
    /// Consecutive integers from `first` on.
    Sequence { first: i64, width: usize },
    /// A text of random characters.
    Text {
        length: usize,
        characters: Vec<char>,
    },
    /// One of these texts.
    Choice(Vec<String>),
}

/// A distribution of integers.
#[derive(Debug, Clone)]
pub(super) struct IntegerRange {
    from: i64,
    /// The number of integers, at least 1.
    size: u64,
    shape: Shape,
}

#[derive(Debug, Clone)]
enum Shape {
    Uniform,
    Zipf(Zipf<f64>),
    Gaussian(f64),
    Exponential(f64),
}

fn invalid<T>(key: &str, fault: impl Into<String>) -> Result<T, InvalidSetting> {
    Err(InvalidSetting::new(&[key], fault))
}

impl Parameter {
    /// Checks and reads a parameter's settings.
    pub(super) fn new(settings: &ParameterSettings) -> Result<Self, InvalidSetting> {
        let ParameterSettings {
            from,
            to,
            distribution,
            shape,
            sequence,
            length,
            characters,
            choices,
            width,
        } = settings;
        let kinds = [
            from.or(*to).is_some(),
            sequence.is_some(),
            length.is_some(),
            choices.is_some(),
        ];
        if kinds.into_iter().filter(|&is_set| is_set).count() != 1 {
            return invalid(
                "",
                "a parameter has exactly one of `from` with `to`, `sequence`, `length`, `choices`",
            );
        }
        let is_range = from.or(*to).is_some();
        for (key, is_set, fits) in [
            ("distribution", distribution.is_some(), is_range),
            ("shape", shape.is_some(), is_range),
            ("characters", characters.is_some(), length.is_some()),
            ("width", width.is_some(), is_range || sequence.is_some()),
        ] {
            if is_set && !fits {
                return invalid(key, format!("`{key}` has no meaning for this parameter"));
            }
        }
        if width.is_some_and(|width| width > MAX_WIDTH) {
            return invalid("width", format!("`width` must be at most {MAX_WIDTH}"));
        }
        let width = width.unwrap_or(0).into();
        if let Some(first) = *sequence {
            return Ok(Parameter::Sequence { first, width });
        }
        if let Some(length) = *length {
            let characters = characters.as_deref().unwrap_or(CHARACTERS);
            if characters.is_empty() {
                return invalid("characters", "`characters` is empty");
            }
            if length > MAX_LENGTH {
                return invalid("length", format!("`length` must be at most {MAX_LENGTH}"));
            }
            return Ok(Parameter::Text {
                length: length as usize,
                characters: characters.chars().collect(),
            });
        }
        if let Some(choices) = choices {
            if choices.is_empty() {
                return invalid("choices", "`choices` is empty");
            }
            return Ok(Parameter::Choice(choices.clone()));
        }
        let (Some(from), Some(to)) = (*from, *to) else {
            return invalid("", "`from` and `to` belong together");
        };
        let range = IntegerRange::new(from, to, *distribution, *shape)?;
        Ok(Parameter::Integer { range, width })
    }

    /// Draws a value and appends its text to `text`; `drawn` is how often the parameter was drawn before. Returns
    /// the value of an integer.
    pub(super) fn draw(&self, random: &mut StdRng, drawn: u64, text: &mut Vec<u8>) -> Option<i64> {
        match self {
            Parameter::Integer { range, width } => Some(write(range.draw(random), *width, text)),
            Parameter::Sequence { first, width } => {
                Some(write(first.wrapping_add_unsigned(drawn), *width, text))
            }
            Parameter::Text { length, characters } => {
                let mut buffer = [0; 4];
                for _ in 0..*length {
                    let character = characters[random.random_range(0..characters.len())];
                    text.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
                }
                None
            }
            Parameter::Choice(choices) => {
                let choice = &choices[random.random_range(0..choices.len())];
                text.extend_from_slice(choice.as_bytes());
                None
            }
        }
    }
}

fn write(value: i64, width: usize, text: &mut Vec<u8>) -> i64 {
    // Writing to a vector cannot fail.
    let _ = write!(text, "{value:0width$}");
    value
}

impl IntegerRange {
    fn new(
        from: i64,
        to: i64,
        distribution: Option<DistributionName>,
        shape: Option<f64>,
    ) -> Result<Self, InvalidSetting> {
        if from > to {
            return invalid("from", "`from` is greater than `to`");
        }
        let size = from.abs_diff(to).saturating_add(1);
        let shape = match distribution.unwrap_or(DistributionName::Uniform) {
            DistributionName::Uniform => match shape {
                Some(_) => return invalid("shape", "`shape` has no meaning for `uniform`"),
                None => Shape::Uniform,
            },
            DistributionName::Zipf => {
                match Zipf::new(size as f64, checked(shape, ZIPF, 0.0, 1000.0)?) {
                    Ok(zipf) => Shape::Zipf(zipf),
                    Err(error) => return invalid("shape", error.to_string()),
                }
            }
            // Below 2, nearly every draw of a normal distribution would have to be repeated.
            DistributionName::Gaussian => Shape::Gaussian(checked(shape, SHAPE, 2.0, 1000.0)?),
            DistributionName::Exponential => {
                Shape::Exponential(checked(shape, SHAPE, 0.001, 1000.0)?)
            }
        };
        Ok(IntegerRange { from, size, shape })
    }

    fn draw(&self, random: &mut StdRng) -> i64 {
        let size = self.size as f64;
        let offset = match &self.shape {
            Shape::Uniform => random.random_range(0..self.size),
            // Ranks start at 1.
            Shape::Zipf(zipf) => zipf.sample(random) as u64 - 1,
            Shape::Gaussian(shape) => {
                let deviations = normal_within(random, *shape);
                ((deviations / shape + 1.0) / 2.0 * size) as u64
            }
            Shape::Exponential(shape) => {
                // The inverse of the distribution's function, cut off at the end of the range.
                let uniform: f64 = random.random();
                let cut = 1.0 - (-shape).exp();
                (-(1.0 - cut * uniform).ln() / shape * size) as u64
            }
        };
        // Rounding may lead one beyond the end.
        self.from.wrapping_add_unsigned(offset.min(self.size - 1))
    }
}

/// Draws from a standard normal distribution within ± `limit`.
fn normal_within(random: &mut impl Rng, limit: f64) -> f64 {
    loop {
        let value: f64 = StandardNormal.sample(random);
        if value.abs() < limit {
            return value;
        }
    }
}

/// Returns a shape, or its default, if it is from `least` to `most`.
fn checked(shape: Option<f64>, default: f64, least: f64, most: f64) -> Result<f64, InvalidSetting> {
    let shape = shape.unwrap_or(default);
    if (least..=most).contains(&shape) {
        Ok(shape)
    } else {
        invalid("shape", format!("`shape` must be from {least} to {most}"))
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn parameter(text: &str) -> Result<Parameter, InvalidSetting> {
        Parameter::new(&toml::from_str(text).unwrap())
    }

    /// Returns `count` integers of a parameter.
    fn integers(text: &str, count: u64) -> Vec<i64> {
        let parameter = parameter(text).unwrap();
        let mut random = StdRng::seed_from_u64(1);
        let mut ignored = Vec::new();
        let draw = |drawn| parameter.draw(&mut random, drawn, &mut ignored).unwrap();
        (0..count).map(draw).collect()
    }

    /// Returns the share of `values` for which `holds`.
    fn share(values: &[i64], holds: impl Fn(i64) -> bool) -> f64 {
        values.iter().filter(|&&value| holds(value)).count() as f64 / values.len() as f64
    }

    #[test]
    fn distributions_have_their_shapes() {
        let uniform = integers("from = -5\nto = 4", 20_000);
        for value in -5..=4 {
            let found = share(&uniform, |drawn| drawn == value);
            assert!((found - 0.1).abs() < 0.01, "{value}: {found}");
        }
        // With exponent 1 over 1000 integers, the first has 1/H(1000) = 13.4 %, the second half of it.
        let zipf = integers("from = 1\nto = 1000\ndistribution = \"zipf\"", 20_000);
        assert!((share(&zipf, |drawn| drawn == 1) - 0.134).abs() < 0.01);
        assert!((share(&zipf, |drawn| drawn == 2) - 0.067).abs() < 0.01);
        assert!(zipf.iter().all(|drawn| (1..=1000).contains(drawn)));
        // 68.3 % of 98.8 % lie within one of the 2.5 standard deviations on each side.
        let gaussian = integers("from = 0\nto = 999\ndistribution = \"gaussian\"", 20_000);
        assert!((share(&gaussian, |drawn| (300..700).contains(&drawn)) - 0.691).abs() < 0.015);
        assert!(gaussian.iter().all(|drawn| (0..1000).contains(drawn)));
        // The first tenth has (1 - e^-0.5) / (1 - e^-5) = 39.6 %.
        let exponential = integers(
            "from = 0\nto = 999\ndistribution = \"exponential\"\nshape = 5",
            20_000,
        );
        assert!((share(&exponential, |drawn| drawn < 100) - 0.396).abs() < 0.015);
        assert!(exponential.iter().all(|drawn| (0..1000).contains(drawn)));
    }

    #[test]
    fn the_whole_range_of_integers_can_be_drawn() {
        let text = format!("from = {}\nto = {}", i64::MIN, i64::MAX);
        let drawn = integers(&text, 100);
        assert!(drawn.iter().any(|&value| value < 0) && drawn.iter().any(|&value| value > 0));
        assert_eq!(
            integers("from = 7\nto = 7\ndistribution = \"zipf\"", 2),
            [7, 7]
        );
    }

    #[test]
    fn texts_have_their_form() {
        let mut random = StdRng::seed_from_u64(1);
        let mut text = |settings: &str, drawn| {
            let mut text = Vec::new();
            parameter(settings)
                .unwrap()
                .draw(&mut random, drawn, &mut text);
            String::from_utf8(text).unwrap()
        };
        assert_eq!(text("sequence = 8\nwidth = 3", 2), "010");
        assert_eq!(text("from = 5\nto = 5\nwidth = 4", 0), "0005");
        assert_eq!(text("length = 3\ncharacters = \"é\"", 0), "ééé");
        assert_eq!(text("length = 100", 0).len(), 100);
        assert_eq!(text("choices = [\"a b\"]", 0), "a b");
    }

    #[test]
    fn faults_name_their_setting() {
        for (text, key) in [
            ("", ""),
            ("from = 1", ""),
            ("from = 1\nto = 2\nsequence = 1", ""),
            ("from = 2\nto = 1", "from"),
            ("from = 1\nto = 2\nshape = 1", "shape"),
            (
                "from = 1\nto = 2\ndistribution = \"zipf\"\nshape = -1",
                "shape",
            ),
            (
                "from = 1\nto = 2\ndistribution = \"gaussian\"\nshape = 1",
                "shape",
            ),
            (
                "from = 1\nto = 2\ndistribution = \"exponential\"\nshape = nan",
                "shape",
            ),
            ("sequence = 1\ndistribution = \"zipf\"", "distribution"),
            ("sequence = 1\nwidth = 41", "width"),
            ("length = 1\nwidth = 4", "width"),
            ("length = 1\ncharacters = \"\"", "characters"),
            ("length = 2000000", "length"),
            ("choices = []", "choices"),
        ] {
            assert_eq!(parameter(text).unwrap_err().path, [key], "{text}");
        }
    }
}
