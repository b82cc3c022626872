//! The protocols: how requests are written and replies are read. Nothing here waits or keeps time, except while a
//! connection is opened.
//!
//! The codecs are perfquilt's own and as small as can be: the client shares a processor with the server, so that every
//! nanosecond of the client is part of the measured time. A client library would build a value for every reply, often
//! as costly as the server's own work on it, only for it to be dropped; here a reply is measured and checked in the
//! buffer it arrived in.

mod http;
mod memcached;
mod mysql;
mod postgresql;
mod resp;

use std::fmt;

use super::request::Request;
use super::settings::RequestSettings;
use super::template::Values;
use crate::server::stream::{Malformed, Stream};
use perfquilt_model::error::Result;

/// The protocols. A new one is a file with its [`Protocol`] and a line here.
pub(super) const PROTOCOLS: &[ProtocolKind] = &[
    resp::KIND,
    http::KIND,
    memcached::KIND,
    mysql::KIND,
    postgresql::KIND,
];

/// A protocol.
#[derive(Debug, Clone, Copy)]
pub struct ProtocolKind {
    /// The value of `protocol` in a workload's file.
    pub name: &'static str,
    /// Whether statements can be prepared once a connection.
    pub prepares: bool,
    /// Whether a connection may send further requests before it reads a reply.
    pub pipelines: bool,
    /// Returns the protocol, with prepared statements or without.
    pub protocol: fn(prepared: bool) -> Box<dyn Protocol>,
}

/// Writes requests and reads replies.
pub trait Protocol: fmt::Debug + Send + Sync {
    /// Divides a request's text into the parts that [`Protocol::encode`] needs.
    fn parts(&self, request: &RequestSettings) -> std::result::Result<Vec<String>, String>;

    /// Appends the request with these values.
    fn encode(&self, request: &Request, values: &Values, out: &mut Vec<u8>);

    /// Returns the reader of a connection's replies.
    fn reader(&self) -> Box<dyn ReplyReader>;

    /// Logs a new connection in, to the `database` of the workload's data.
    fn open(&self, _stream: &mut Stream, _database: Option<&str>) -> Result<()> {
        Ok(())
    }

    /// Prepares the statements of `requests`, which the connection will send. Returns by how much the server's numbers
    /// of these statements exceed those that [`Protocol::encode`] writes.
    fn prepare(&self, _stream: &mut Stream, _requests: &[Request]) -> Result<u32> {
        Ok(0)
    }

    /// Adds `offset` to the numbers of statements in encoded requests.
    fn renumber(&self, _offset: u32, _requests: &mut [u8]) {}

    /// Returns whether its readers return an [`ReplyOutcome::Value`] for requests with an expected one.
    fn has_values(&self) -> bool {
        false
    }

    /// Makes the server publish what it counted for this connection, before its counters are read. Servers that
    /// publish at once have nothing to do.
    fn publish_counters(&self, _stream: &mut Stream) -> Result<()> {
        Ok(())
    }

    /// Returns the statements that create the database `name`; `None` if the protocol knows no databases. With
    /// databases, data is created once and copied to every start.
    fn create_database(&self, _name: &str) -> Option<Vec<String>> {
        None
    }

    /// Returns how many requests a connection may send ahead when it creates data.
    fn fill_pipeline(&self) -> usize {
        100
    }
}

/// Reads the replies of a connection, one after the other. It remembers what it has read of an incomplete reply, so that
/// every byte is read once, and a long reply never fills the memory or the caches that the server uses too.
pub trait ReplyReader: fmt::Debug + Send {
    /// Reads on in the reply to `request`. `input` is all that was received behind the bytes already read; it may end
    /// within the reply, or have more behind it. Any input is possible: the server may be broken. Nothing is read after
    /// an error.
    fn read(&mut self, request: &Request, input: &[u8])
    -> std::result::Result<Progress, Malformed>;
}

/// How far a reply was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read, which need not be kept.
    pub length: usize,
    /// The reply's content, once it is complete.
    pub outcome: Option<ReplyOutcome>,
}

impl Progress {
    /// A reply that ends behind `length` bytes.
    fn complete(length: usize, outcome: ReplyOutcome) -> Self {
        Progress {
            length,
            outcome: Some(outcome),
        }
    }

    /// A reply that goes on behind `length` bytes.
    fn incomplete(length: usize) -> Self {
        Progress {
            length,
            outcome: None,
        }
    }
}

/// The content of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyOutcome {
    /// The request was executed.
    Result,
    /// The request was executed and found this: the text of the first value. Only for requests that expect one.
    Value(Vec<u8>),
    /// The request was executed and found nothing; this describes the reply.
    Nothing(&'static str),
    /// The server's error message.
    Error(Vec<u8>),
}

/// Returns the line at the begin of `input` without its end, and its length with it; `None` if it is not complete yet.
fn line(input: &[u8], longest: usize) -> std::result::Result<Option<(&[u8], usize)>, Malformed> {
    let searched = &input[..input.len().min(longest)];
    match memchr::memchr(b'\n', searched) {
        Some(end) if end > 0 && searched[end - 1] == b'\r' => {
            Ok(Some((&searched[..end - 1], end + 1)))
        }
        Some(_) => Err(Malformed::instead_of("a line that ends in CR LF", input)),
        None if searched.len() < input.len() => Err(Malformed::instead_of("a shorter line", input)),
        None => Ok(None),
    }
}

#[cfg(test)]
pub(super) mod testing {
    use std::collections::BTreeMap;
    use std::result::Result;

    use super::super::plan::Plan;
    use super::*;

    /// Returns the protocol with this name.
    pub(in crate::workload::requests) fn protocol(name: &str) -> Box<dyn Protocol> {
        let kind = PROTOCOLS.iter().find(|kind| kind.name == name).unwrap();
        (kind.protocol)(false)
    }

    fn settings(request: &str) -> RequestSettings {
        let text = format!("request = {request}");
        let mut table: BTreeMap<String, RequestSettings> = toml::from_str(&text).unwrap();
        table.remove("request").unwrap()
    }

    /// Returns the parts of a request in TOML's form.
    pub(super) fn parts(name: &str, request: &str) -> Result<Vec<String>, String> {
        protocol(name).parts(&settings(request))
    }

    /// Returns the length and the outcome of the reply at the begin of `input`, `None` if it is incomplete.
    ///
    /// # Panics
    /// If it is read differently when `input` arrives in two pieces.
    pub(super) fn reply(
        protocol: &dyn Protocol,
        request: &Request,
        input: &[u8],
    ) -> Result<Option<(usize, ReplyOutcome)>, Malformed> {
        let in_pieces = |cut: usize| {
            let mut reader = protocol.reader();
            let mut at = 0;
            for end in [cut, input.len()] {
                let progress = reader.read(request, &input[at..end])?;
                at += progress.length;
                assert!(at <= end, "{at} of {end} bytes");
                if let Some(outcome) = progress.outcome {
                    return Ok(Some((at, outcome)));
                }
            }
            Ok(None)
        };
        let at_once = in_pieces(input.len());
        for cut in 0..input.len() {
            match (&at_once, in_pieces(cut)) {
                // The messages show what had arrived. A first piece may end before the fault is seen.
                (Err(_), Err(_)) => {}
                (at_once, pieces) => assert_eq!(&pieces, at_once, "cut at {cut}"),
            }
        }
        at_once
    }

    /// Asserts that `input` is read as one reply with this outcome whatever follows, and that no part of it is one.
    pub(super) fn assert_whole(
        reply: impl Fn(&[u8]) -> Result<Option<(usize, ReplyOutcome)>, Malformed>,
        (input, next): (&str, &str),
        outcome: ReplyOutcome,
    ) {
        let followed = format!("{input}{next}");
        let expected = Ok(Some((input.len(), outcome)));
        assert_eq!(reply(followed.as_bytes()), expected, "{input}");
        for end in 0..input.len() {
            assert_eq!(reply(&input.as_bytes()[..end]), Ok(None), "{input} {end}");
        }
    }

    /// Returns a plan with one request, in TOML's form, which may use `n`, a digit, and `s`, a sequence from 1.
    pub(in crate::workload::requests) fn plan(name: &str, request: &str) -> Plan {
        let requests = [settings(request)];
        let parameters = toml::from_str("n = { from = 0, to = 9 }\ns = { sequence = 1 }").unwrap();
        Plan::new(
            protocol(name),
            &parameters,
            "transaction",
            &[(1, &requests)],
        )
        .unwrap()
    }
}
