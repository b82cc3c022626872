//! Keys under which experiments are stored.

use std::fmt;
use std::str::FromStr;

use perfquilt_model::error::Result;

/// The key of an experiment: the identity of its measurements, and the attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExperimentKey {
    /// Digest of what is observed ([`super::spec::Spec::key`]).
    pub identity: String,
    /// Whether it uses no measurements of other experiments.
    pub fresh: bool,
    /// The attempt, counted from 1.
    pub attempt: u32,
}

impl ExperimentKey {
    /// Returns the attempt after this one.
    pub fn next(&self) -> Self {
        ExperimentKey {
            attempt: self.attempt + 1,
            ..self.clone()
        }
    }

    /// Returns the first attempt from this one on that `fits`.
    pub fn first(mut self, fits: impl Fn(&Self) -> Result<bool>) -> Result<Self> {
        while !fits(&self)? {
            self = self.next();
        }
        Ok(self)
    }
}

impl fmt::Display for ExperimentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.identity)?;
        if self.fresh {
            f.write_str(" fresh")?;
        }
        match self.attempt {
            1 => Ok(()),
            attempt => write!(f, " {attempt}"),
        }
    }
}

/// The key of a comparison of two releases.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparisonKey {
    /// Digest of the servers and of the measuring settings.
    pub identity: String,
    /// The attempt, counted from 1.
    pub attempt: u32,
    /// The question of a comparison that uses no earlier measurements; `None` where it may.
    pub fresh: Option<FreshQuestion>,
}

/// The settings that distinguish questions about the same servers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FreshQuestion {
    /// The smallest loss to find, as a fraction of speed.
    pub size: f64,
    /// The error rate.
    pub error: f64,
    /// The maximum number of blocks.
    pub most_blocks: usize,
}

impl ComparisonKey {
    /// Returns the key of the first comparison of these servers.
    pub fn new(identity: &str) -> Self {
        ComparisonKey {
            identity: identity.to_owned(),
            attempt: 1,
            fresh: None,
        }
    }
}

impl fmt::Display for ComparisonKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "releases {}", self.identity)?;
        match &self.fresh {
            None => Ok(()),
            Some(FreshQuestion {
                size,
                error,
                most_blocks,
            }) => write!(f, " {} fresh {size} {error} {most_blocks}", self.attempt),
        }
    }
}

/// The error of a text that is not a comparison's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoComparison;

impl FromStr for ComparisonKey {
    type Err = NoComparison;

    fn from_str(text: &str) -> Result<Self, NoComparison> {
        fn number<T: FromStr>(word: &str) -> Result<T, NoComparison> {
            word.parse().map_err(|_| NoComparison)
        }
        let words: Vec<&str> = text.split(' ').collect();
        match words[..] {
            ["releases", identity] => Ok(ComparisonKey::new(identity)),
            [
                "releases",
                identity,
                attempt,
                "fresh",
                size,
                error,
                most_blocks,
            ] => Ok(ComparisonKey {
                identity: identity.to_owned(),
                attempt: number(attempt)?,
                fresh: Some(FreshQuestion {
                    size: number(size)?,
                    error: number(error)?,
                    most_blocks: number(most_blocks)?,
                }),
            }),
            _ => Err(NoComparison),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_numbered_from_the_second_on() {
        let key = ExperimentKey {
            identity: "0abc".into(),
            fresh: true,
            attempt: 1,
        };
        assert_eq!(key.to_string(), "0abc fresh");
        let third = key.first(|key| Ok(key.attempt == 3)).unwrap();
        assert_eq!(third.to_string(), "0abc fresh 3");
    }

    #[test]
    fn keys_of_comparisons_are_read_as_written() {
        for text in ["releases x", "releases x 2 fresh 0.01 0.05 400"] {
            let key: ComparisonKey = text.parse().unwrap();
            assert_eq!(key.to_string(), text);
        }
        for text in ["x", "releases", "releases x 2", "releases x y fresh 1 1 1"] {
            assert_eq!(text.parse::<ComparisonKey>(), Err(NoComparison), "{text}");
        }
    }
}
