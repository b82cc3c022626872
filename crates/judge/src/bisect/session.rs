//! The log of a bisection: its question and its events.

use serde::{Deserialize, Serialize};

use super::SCHEMA;
use super::bisector::Bisector;
use super::evidence::Event;
use super::question::Question;
use perfquilt_model::error::{Error, Result};

/// The complete state of a bisection; replaying it always leads to the same decisions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BisectSession {
    /// Version of this document: [`SCHEMA`].
    pub schema: u32,
    /// The question.
    pub question: Question,
    /// Whether it ignores measurements stored before it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fresh: bool,
    /// The events, in order.
    #[serde(default)]
    pub events: Vec<Event>,
}

impl BisectSession {
    /// Creates a session without events.
    pub fn new(question: Question) -> Self {
        BisectSession {
            schema: SCHEMA,
            question,
            fresh: false,
            events: Vec::new(),
        }
    }

    /// Parses a session from JSON.
    pub fn parse(text: &str) -> Result<Self> {
        let session: BisectSession = serde_json::from_str(text).map_err(|error| {
            Error::bisection_log(format!("not the log of a bisection: {error}"))
        })?;
        if session.schema != SCHEMA {
            return Err(Error::bisection_log(format!(
                "the log has version {}, this program reads {SCHEMA}",
                session.schema
            )));
        }
        session.question.check()?;
        let last = session.question.last();
        let fits = session.events.iter().all(|event| match event {
            Event::Built { state, .. } | Event::Unusable { state, .. } => *state <= last,
            Event::Imported => true,
            Event::Explained(explained) => explained.from < explained.to && explained.to <= last,
            Event::Block(block) => block.values.keys().all(|state| *state <= last),
        });
        if fits {
            Ok(session)
        } else {
            Err(Error::bisection_log(
                "the log has observations of states that are not in its question",
            ))
        }
    }

    /// Returns the bisector after all events.
    pub fn replay(&self) -> Bisector {
        let mut bisector = Bisector::new(self.question.clone());
        for event in &self.events {
            bisector.apply(event);
        }
        bisector
    }
}
