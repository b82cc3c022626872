//! A session as a value: the question and what happened.

use serde::{Deserialize, Serialize};

use super::engine::Engine;
use super::evidence::Event;
use super::question::Question;
use perfquilt_model::error::{Error, Result};

/// The version of a session's form.
pub const SCHEMA: u32 = 1;

/// Everything a session is: the same session always leads to the same decisions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Version of this form: [`SCHEMA`].
    pub schema: u32,
    /// What is asked.
    pub question: Question,
    /// Whether it uses no measurement that was stored before it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fresh: bool,
    /// What happened, in order.
    #[serde(default)]
    pub events: Vec<Event>,
}

impl Session {
    /// A session that begins.
    pub fn new(question: Question) -> Self {
        Session {
            schema: SCHEMA,
            question,
            fresh: false,
            events: Vec::new(),
        }
    }

    /// The session in `text`, as [`Session`] is written in JSON.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when it is none, of a newer version, or names states
    /// that are not there.
    pub fn parse(text: &str) -> Result<Self> {
        let session: Session = serde_json::from_str(text)
            .map_err(|error| Error::usage(format!("this is no bisection's log: {error}")))?;
        if session.schema != SCHEMA {
            return Err(Error::usage(format!(
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
            Err(Error::usage(
                "the log has observations of states that are not in its question",
            ))
        }
    }

    /// The engine after all that happened.
    pub fn replay(&self) -> Engine {
        let mut engine = Engine::new(self.question.clone());
        for event in &self.events {
            engine.apply(event);
        }
        engine
    }
}
