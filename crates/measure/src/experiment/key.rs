//! Keys under which experiments are stored.

use std::fmt;

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
}
