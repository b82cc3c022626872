//! PostgreSQL's protocol, version 3: statements as text (`Query`), or prepared once a connection (`Parse`) and then
//! executed with values (`Bind`, `Execute`, `Sync`).
//!
//! Formats of messages: PostgreSQL's documentation, "Frontend/Backend Protocol", "Message Formats".

use std::fmt::Write;

use super::{Malformed, Progress, Protocol, ProtocolKind, ReplyOutcome, ReplyReader};
use crate::server::postgresql::client::{
    Message, PASSWORD, error_field, exchange, log_in, message, query,
};
use crate::server::stream::Stream;
use crate::workload::requests::request::Request;
use crate::workload::requests::settings::RequestSettings;
use crate::workload::requests::template::{Values, placeholder};
use perfquilt_model::error::Result as CheckedResult;

/// The protocol `postgresql`.
pub(super) const KIND: ProtocolKind = ProtocolKind {
    name: "postgresql",
    prepares: true,
    pipelines: true,
    protocol: |prepared| Box::new(Postgresql { prepared }),
};

/// The most values of a statement; the protocol counts them in 16 bits.
const MAX_VALUES: usize = i16::MAX as usize;

/// PostgreSQL's protocol.
#[derive(Debug)]
struct Postgresql {
    prepared: bool,
}

impl Protocol for Postgresql {
    /// The statement; with `prepared`, values follow, for which it has `$1`, `$2` and so on.
    fn parts(&self, request: &RequestSettings) -> Result<Vec<String>, String> {
        if request.send.trim().is_empty() {
            return Err("the statement is empty".to_owned());
        }
        if request.send.contains('\0') {
            return Err("a statement has no zero byte".to_owned());
        }
        if request.body.is_some() || !request.headers.is_empty() {
            return Err("`postgresql` has neither `body` nor `headers`".to_owned());
        }
        if self.prepared {
            with_numbers(&request.send)
        } else {
            Ok(vec![request.send.clone()])
        }
    }

    fn encode(&self, request: &Request, values: &Values, out: &mut Vec<u8>) {
        if !self.prepared {
            message(b'Q', out, |out| {
                request.parts[0].write(values, out);
                out.push(0);
            });
            return;
        }
        message(b'B', out, |out| {
            // The unnamed portal; all values and results are text.
            out.push(0);
            statement_name(request.number, out);
            out.extend(0i16.to_be_bytes());
            let parameters = &request.parts[1..];
            out.extend((parameters.len() as i16).to_be_bytes());
            for parameter in parameters {
                out.extend((parameter.length(values) as i32).to_be_bytes());
                parameter.write(values, out);
            }
            out.extend(0i16.to_be_bytes());
        });
        message(b'E', out, |out| {
            out.push(0);
            out.extend(0i32.to_be_bytes());
        });
        message(b'S', out, |_| ());
    }

    fn reader(&self) -> Box<dyn ReplyReader> {
        Box::<Reader>::default()
    }

    fn open(&self, stream: &mut Stream, database: Option<&str>) -> CheckedResult<()> {
        log_in(stream, database.unwrap_or("postgres"), &[])
    }

    fn prepare(&self, stream: &mut Stream, requests: &[Request]) -> CheckedResult<u32> {
        let mut out = Vec::new();
        for request in requests.iter().filter(|_| self.prepared) {
            out.clear();
            message(b'P', &mut out, |out| {
                statement_name(request.number, out);
                request.parts[0].write(&Values::default(), out);
                out.push(0);
                // The server infers the types of all parameters.
                out.extend(0i16.to_be_bytes());
            });
            message(b'S', &mut out, |_| ());
            let prepared = exchange(stream, &out, &mut |_| Ok(()));
            prepared.map_err(|error| error.details([format!("preparing `{}`", request.label)]))?;
        }
        Ok(0)
    }

    fn publish_counters(&self, stream: &mut Stream) -> CheckedResult<()> {
        // A session publishes its counts at most once a second otherwise.
        // Before release 15 a collector process has the counts, and there is no such function.
        let publish = "DO $$ BEGIN PERFORM pg_stat_force_next_flush(); EXCEPTION WHEN undefined_function THEN NULL; END $$";
        exchange(stream, &query(publish), &mut |_| Ok(()))
    }

    fn create_database(&self, name: &str) -> Option<Vec<String>> {
        Some(vec![format!("CREATE DATABASE {name}")])
    }
}

/// Reads replies message by message.
#[derive(Debug, Default)]
struct Reader {
    /// The state after the messages of an incomplete reply.
    incomplete: Option<ReplyOutcome>,
}

impl ReplyReader for Reader {
    fn read(&mut self, _request: &Request, input: &[u8]) -> Result<Progress, Malformed> {
        let mut length = 0;
        let mut outcome = self.incomplete.take().unwrap_or(ReplyOutcome::Result);
        while let Some(next) = Message::read(&input[length..])? {
            length += next.length;
            match next.kind {
                b'Z' => return Ok(Progress::complete(length, outcome)),
                b'E' => {
                    outcome = ReplyOutcome::Error(error_text(next.body).into());
                    // The server closes the connection instead of getting ready for the next query.
                    if is_fatal(next.body) {
                        return Ok(Progress::complete(length, outcome));
                    }
                }
                _ if next.asks_for_password() => return Err(Malformed(PASSWORD.to_owned())),
                b'G' | b'W' => {
                    return Err(Malformed(
                        "COPY from the client is not supported".to_owned(),
                    ));
                }
                b'C' if outcome == ReplyOutcome::Result && is_without_rows(next.body) => {
                    outcome = ReplyOutcome::Nothing("no row");
                }
                _ => {}
            }
        }
        self.incomplete = Some(outcome);
        Ok(Progress::incomplete(length))
    }
}

/// Appends the name of a prepared statement.
fn statement_name(number: usize, out: &mut Vec<u8>) {
    let name = format!("s{number}\0");
    out.extend(name.as_bytes());
}

/// Returns the text of an error message.
fn error_text(body: &[u8]) -> &[u8] {
    error_field(body, b'M').unwrap_or(b"an error without a message")
}

/// Whether the server closes the connection after an error.
fn is_fatal(body: &[u8]) -> bool {
    matches!(error_field(body, b'V'), Some(b"FATAL" | b"PANIC"))
}

/// Whether the tag of a completed command says that it found or changed no row, such as `SELECT 0`.
fn is_without_rows(body: &[u8]) -> bool {
    let tag = body.strip_suffix(b"\0").unwrap_or(body);
    let counts = [
        &b"SELECT"[..],
        b"INSERT",
        b"UPDATE",
        b"DELETE",
        b"MERGE",
        b"FETCH",
    ];
    counts.iter().any(|command| tag.starts_with(command)) && tag.ends_with(b" 0")
}

/// Returns the statement with `$1` and so on for its placeholders, followed by these.
/// The error is a placeholder inside a longer quoted text, which the server would not take for a value.
fn with_numbers(text: &str) -> Result<Vec<String>, String> {
    let mut parts = vec![String::new()];
    let mut rest = text;
    let mut is_quoted = false;
    while let Some(next) = rest.find(['{', '\'']) {
        let (before, after) = rest.split_at(next);
        parts[0].push_str(before);
        let Some((_, _, length)) = placeholder(after) else {
            is_quoted ^= after.starts_with('\'');
            parts[0].push_str(&after[..1]);
            rest = &after[1..];
            continue;
        };
        let (value, after) = after.split_at(length);
        rest = after;
        if is_quoted {
            // A value alone needs no quotation marks.
            let alone =
                parts[0].ends_with('\'') && after.starts_with('\'') && !after.starts_with("''");
            if !alone {
                return Err(format!(
                    "`{value}` is inside a quoted text, where a prepared statement has no values"
                ));
            }
            parts[0].pop();
            rest = &after[1..];
            is_quoted = false;
        }
        let known = parts[1..].iter().position(|part| part == value);
        let number = known.map_or(parts.len(), |index| index + 1);
        if known.is_none() {
            parts.push(value.to_owned());
        }
        let _ = write!(parts[0], "${number}");
    }
    parts[0].push_str(rest);
    if parts.len() > MAX_VALUES {
        return Err(format!("a statement has at most {MAX_VALUES} values"));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{self, parts, plan};
    use super::*;

    const TEXT: Postgresql = Postgresql { prepared: false };
    const PREPARED: Postgresql = Postgresql { prepared: true };

    fn reply(input: &[u8]) -> Result<Option<(usize, ReplyOutcome)>, Malformed> {
        let plan = plan("postgresql", "'SELECT 1'");
        testing::reply(&TEXT, &plan.requests[0], input)
    }

    fn bytes(messages: &[(u8, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        for &(kind, body) in messages {
            message(kind, &mut out, |out| out.extend(body));
        }
        out
    }

    #[test]
    fn a_statement_is_one_message() {
        let plan = plan("postgresql", "\"SELECT 'x'\"");
        let mut out = Vec::new();
        TEXT.encode(&plan.requests[0], &Values::default(), &mut out);
        assert_eq!(out, b"Q\0\0\0\x0fSELECT 'x'\0");
    }

    #[test]
    fn invalid_statements_are_refused() {
        for request in ["' '", "\"a\\u0000\"", "{ send = 'x', body = 'y' }"] {
            assert!(parts("postgresql", request).is_err(), "{request}");
        }
    }

    #[test]
    fn placeholders_become_numbers() {
        let of = |text: &str| with_numbers(text).unwrap();
        assert_eq!(
            of("SELECT {a}, '{b}', '{', {a}, {a:2}, 'it''s' WHERE c = '{c}'"),
            [
                "SELECT $1, $2, '{', $1, $3, 'it''s' WHERE c = $4",
                "{a}",
                "{b}",
                "{a:2}",
                "{c}"
            ]
        );
        for text in ["'%{a}%'", "'{a}''x'", "'x{a}'"] {
            assert!(with_numbers(text).unwrap_err().contains("{a}"), "{text}");
        }
    }

    #[test]
    fn values_are_bound_to_a_prepared_statement() {
        let mut plan = plan("postgresql", "'{n}'");
        let request = &mut plan.requests[0];
        let value = request.parts[0].clone();
        request.parts = vec![value.clone(), value];
        request.number = 12;
        let mut values = Values::default();
        values.add(|out| {
            out.extend(b"34");
            Some(34)
        });
        let mut out = Vec::new();
        PREPARED.encode(request, &values, &mut out);
        let bind = b"\0s12\0\0\0\0\x01\0\0\0\x0234\0\0";
        assert_eq!(
            out,
            bytes(&[(b'B', bind), (b'E', b"\0\0\0\0\0"), (b'S', b"")])
        );
    }

    #[test]
    fn replies_end_with_the_server_ready() {
        let ready: (u8, &[u8]) = (b'Z', b"I");
        let error = b"SERROR\0C42P01\0Mrelation \"x\" does not exist\0\0";
        for (messages, outcome) in [
            (
                vec![(b'T', &b"\0\0"[..]), (b'D', b"\0\0"), (b'C', b"SELECT 1\0")],
                ReplyOutcome::Result,
            ),
            (
                vec![(b'2', b""), (b'C', b"SELECT 10\0")],
                ReplyOutcome::Result,
            ),
            (vec![(b'C', b"BEGIN\0")], ReplyOutcome::Result),
            (vec![(b'C', b"INSERT 0 1\0")], ReplyOutcome::Result),
            (
                vec![(b'T', b"\0\0"), (b'C', b"SELECT 0\0")],
                ReplyOutcome::Nothing("no row"),
            ),
            (vec![(b'C', b"UPDATE 0\0")], ReplyOutcome::Nothing("no row")),
            (
                vec![(b'N', b"x"), (b'E', error)],
                ReplyOutcome::Error(b"relation \"x\" does not exist"[..].into()),
            ),
        ] {
            let mut messages = messages;
            messages.push(ready);
            let input = bytes(&messages);
            let length = input.len();
            let followed = [&input[..], b"Z"].concat();
            assert_eq!(reply(&followed), Ok(Some((length, outcome))));
            for end in 0..length {
                assert_eq!(reply(&input[..end]), Ok(None), "{end}");
            }
        }
    }

    #[test]
    fn a_fatal_error_ends_the_reply() {
        let fatal = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection\0\0";
        let input = bytes(&[(b'E', fatal)]);
        let outcome = ReplyOutcome::Error(b"terminating connection"[..].into());
        let length = input.len();
        assert_eq!(reply(&input), Ok(Some((length, outcome))));
    }

    #[test]
    fn other_bytes_are_refused() {
        for input in [
            &b"\0"[..],
            b"Z\0\0\0\x03",
            b"D\xff\xff\xff\xff",
            b"D\x7f\xff\xff\xff",
        ] {
            assert!(reply(input).is_err(), "{input:?}");
        }
        assert!(reply(&bytes(&[(b'G', b"")])).is_err());
    }

    proptest! {
        #[test]
        fn no_input_panics(input in proptest::collection::vec(
            prop_oneof![Just(b'Z'), Just(b'E'), Just(0), Just(4), Just(5), any::<u8>()], 0..60,
        )) {
            let _ = reply(&input);
        }
    }
}
