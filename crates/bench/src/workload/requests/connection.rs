//! Sends generated requests and checks their replies.

use std::ops::Range;

use super::plan::{Generator, Plan, Script};
use super::protocols::{ReplyOutcome, ReplyReader};
use super::request::Request;
use super::settings::Expect;
use crate::server::Running;
use crate::server::stream::Stream;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::process::check_interrupted;

/// The longest part of a server's message in an error.
const MAX_MESSAGE: usize = 300;
/// The longest reply in bytes: a server that answers without end must not hold the client for ever.
const MAX_REPLY: u64 = 1 << 34;

/// A connection that runs the transactions of a plan.
#[derive(Debug)]
pub(super) struct Connection<'a> {
    plan: &'a Plan,
    stream: Stream,
    reader: Box<dyn ReplyReader>,
    /// By how much the server's numbers of prepared statements exceed those in scripts.
    statements: u32,
    /// Requests with the server's numbers.
    renumbered: Vec<u8>,
}

impl<'a> Connection<'a> {
    /// Connects to a server, and prepares statements behind the plan's first requests.
    pub(super) fn open(plan: &'a Plan, running: &Running, database: Option<&str>) -> Result<Self> {
        let mut stream = Stream::open(running)?;
        plan.protocol.open(&mut stream, database)?;
        if let Some(connect) = &plan.connect {
            stream = Connection::new(connect, stream).run_once()?;
        }
        let statements = plan.protocol.prepare(&mut stream, &plan.requests)?;
        Ok(Connection {
            statements,
            ..Self::new(plan, stream)
        })
    }

    /// Runs the plan's only transaction and returns the stream.
    fn run_once(self) -> Result<Stream> {
        let mut script = Script::default();
        Generator::new(self.plan, 0).generate(1, &mut script);
        let mut alone = [self];
        run(&mut alone, &[script], 0..1, 1)?;
        let [connection] = alone;
        Ok(connection.stream)
    }

    fn new(plan: &'a Plan, stream: Stream) -> Self {
        Connection {
            plan,
            stream,
            reader: plan.protocol.reader(),
            statements: 0,
            renumbered: Vec::new(),
        }
    }

    fn send(&mut self, requests: &[u8]) -> Result<()> {
        if self.statements == 0 {
            return self.stream.send(requests);
        }
        self.renumbered.clear();
        self.renumbered.extend_from_slice(requests);
        let protocol = &self.plan.protocol;
        protocol.renumber(self.statements, &mut self.renumbered);
        self.stream.send(&self.renumbered)
    }

    /// Makes the server publish what it counted for this connection.
    pub(super) fn publish_counters(&mut self) -> Result<()> {
        self.plan.protocol.publish_counters(&mut self.stream)
    }

    /// Reads the replies to requests of `script`, and nothing else.
    fn replies(&mut self, script: &Script, sent: Range<usize>) -> Result<()> {
        for index in sent.clone() {
            let (number, expected) = script.request(index);
            let request = &self.plan.requests[number];
            let mut size = 0;
            loop {
                let progress = self
                    .reader
                    .read(request, self.stream.received())
                    .map_err(|malformed| unreadable(request, &malformed.0))?;
                let (length, is_complete) = (progress.length, progress.outcome.is_some());
                if let Some(outcome) = &progress.outcome {
                    check(request, expected, outcome)?;
                }
                self.stream.consume(length);
                if is_complete {
                    break;
                }
                size += length as u64;
                if size > MAX_REPLY {
                    return Err(Error::server_answer(format!(
                        "the reply to `{}` is longer than {} GiB",
                        request.label,
                        MAX_REPLY >> 30
                    )));
                }
                self.stream.receive()?;
            }
        }
        match (sent.last(), self.stream.received()) {
            (Some(last), [_, ..]) => {
                let request = &self.plan.requests[script.request(last).0];
                Err(unreadable(request, "more replies than requests"))
            }
            _ => Ok(()),
        }
    }
}

/// Runs `transactions` of each script on its connection: all connections send up to `pipeline` requests, then their
/// replies are read.
pub(super) fn run(
    connections: &mut [Connection<'_>],
    scripts: &[Script],
    transactions: Range<usize>,
    pipeline: usize,
) -> Result<()> {
    let mut sent = 0;
    loop {
        let chunk = |script: &Script| {
            let all = script.range(transactions.clone());
            let start = (all.start + sent).min(all.end);
            start..(start + pipeline).min(all.end)
        };
        check_interrupted()?;
        let mut is_over = true;
        for (connection, script) in connections.iter_mut().zip(scripts) {
            let chunk = chunk(script);
            is_over &= chunk.is_empty();
            connection.send(script.bytes(chunk))?;
        }
        if is_over {
            return Ok(());
        }
        for (connection, script) in connections.iter_mut().zip(scripts) {
            connection.replies(script, chunk(script))?;
        }
        sent += pipeline;
    }
}

fn check(request: &Request, expected: &[u8], outcome: &ReplyOutcome) -> Result<()> {
    match outcome {
        ReplyOutcome::Value(found) if found != expected => Err(Error::server_answer(format!(
            "the reply to `{}` has the value `{}` in place of `{}`",
            request.label,
            shown(found),
            shown(expected)
        ))),
        ReplyOutcome::Result if request.value.is_some() => Err(Error::server_answer(format!(
            "the reply to `{}` has no value in place of `{}`",
            request.label,
            shown(expected)
        ))),
        ReplyOutcome::Result | ReplyOutcome::Value(_) => Ok(()),
        ReplyOutcome::Nothing(_) if request.expect == Expect::Any => Ok(()),
        ReplyOutcome::Nothing(what) => Err(Error::server_answer(format!(
            "the reply to `{}` is {what}",
            request.label
        ))
        .hint("`prepare` must create what requests read; with `expect = \"any\"` every reply but an error is accepted")),
        ReplyOutcome::Error(message) => Err(Error::server_answer(format!(
            "the server answered `{}` with an error: {}",
            request.label,
            shown(message)
        ))),
    }
}

fn unreadable(request: &Request, fault: &str) -> Error {
    Error::server_answer(format!(
        "the reply to `{}` does not follow the protocol: {fault}",
        request.label
    ))
}

/// Returns a server's message as one short line.
fn shown(message: &[u8]) -> String {
    let text = String::from_utf8_lossy(message);
    let characters = text.chars().take(MAX_MESSAGE);
    characters
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::super::plan::Generator;
    use super::super::protocols::testing::plan;
    use super::*;
    use crate::server::stream::testing::{LONG, SHORT, capacity, pair};

    /// Runs two transactions of `GET {n}` against a server that sends `answer` after each request.
    fn answered(answer: &'static str, pipeline: usize, request: &str) -> Result<()> {
        let plan = plan("resp", request);
        let mut script = Script::default();
        Generator::new(&plan, 1).generate(2, &mut script);
        let is_complete = answer.ends_with('\n');
        let (stream, mut server) = pair(if is_complete { LONG } else { SHORT });
        let length = script.bytes(script.range(0..2)).len() / 2;
        std::thread::spawn(move || {
            let mut request = vec![0; length];
            while server.read_exact(&mut request).is_ok() {
                server.write_all(answer.as_bytes()).unwrap();
            }
        });
        run(
            &mut [Connection::new(&plan, stream)],
            &[script],
            0..2,
            pipeline,
        )
    }

    #[test]
    fn replies_are_read_and_checked() {
        for pipeline in [1, 2, 50] {
            answered("$1\r\nx\r\n", pipeline, "'GET {n}'").unwrap();
            answered("$-1\r\n", pipeline, "{ send = 'GET {n}', expect = 'any' }").unwrap();
            for (answer, message) in [
                (
                    "-ERR \x1b[1m\r\n",
                    "answered `GET {n}` with an error: ERR  [1m",
                ),
                ("$-1\r\n", "the reply to `GET {n}` is null"),
                ("garbage\r\n", "does not follow the protocol"),
                ("$5\r\nx", "does not answer"),
            ] {
                let error = answered(answer, pipeline, "'GET {n}'").unwrap_err();
                assert!(error.message().contains(message), "{error}");
            }
        }
        // With a request at a time, a second reply is one too many.
        let error = answered("+OK\r\n+OK\r\n", 1, "'GET {n}'").unwrap_err();
        assert!(error.message().contains("more replies"), "{error}");
    }

    #[test]
    fn another_value_than_the_expected_one_is_an_error() {
        let plan = plan("mysql", "{ send = 'SELECT {s}', value = '{s}' }");
        let mut script = Script::default();
        Generator::new(&plan, 1).generate(2, &mut script);
        let replies = |second: &str| {
            let columns = b"\x01\0\0\x01\x01\x03\0\0\x02def\x05\0\0\x03\xfe\0\0\x02\0";
            let reply = |value: &str| {
                let row = [&[2, 0, 0, 4, 1][..], value.as_bytes()].concat();
                [columns, &row[..], b"\x05\0\0\x05\xfe\0\0\x02\0"].concat()
            };
            let (stream, mut server) = pair(LONG);
            server.write_all(&reply("1")).unwrap();
            let mut connection = Connection::new(&plan, stream);
            connection.stream.receive().unwrap();
            connection.replies(&script, 0..1)?;
            server.write_all(&reply(second)).unwrap();
            connection.replies(&script, 1..2)
        };
        replies("2").unwrap();
        let error = replies("3").unwrap_err();
        let message = "the reply to `SELECT {s}` has the value `3` in place of `2`";
        assert_eq!(error.message(), message);
    }

    #[test]
    fn first_requests_run_once_and_their_errors_are_named() {
        let connect = plan("resp", "'SELECT 1'");
        let answered = |answer: &'static [u8]| {
            let (stream, mut server) = pair(LONG);
            let server = std::thread::spawn(move || {
                let mut request = [0; 23];
                server.read_exact(&mut request).unwrap();
                server.write_all(answer).unwrap();
                request
            });
            let sent = Connection::new(&connect, stream).run_once().map(drop);
            assert_eq!(
                &server.join().unwrap(),
                b"*2\r\n$6\r\nSELECT\r\n$1\r\n1\r\n"
            );
            sent
        };
        answered(b"+OK\r\n").unwrap();
        let error = answered(b"-ERR no such\r\n").unwrap_err();
        assert!(
            error
                .message()
                .contains("`SELECT 1` with an error: ERR no such"),
            "{error}"
        );
    }

    #[test]
    fn a_long_reply_is_not_kept() {
        let plan = plan("resp", "'LRANGE l 0 -1'");
        let mut script = Script::default();
        Generator::new(&plan, 1).generate(1, &mut script);
        let (stream, mut server) = pair(LONG);
        let items = 100_000;
        let mut reply = format!("*{items}\r\n").into_bytes();
        reply.extend(b"$10\r\n0123456789\r\n".repeat(items));
        let writer = std::thread::spawn(move || server.write_all(&reply).map(|()| server));
        let mut connections = [Connection::new(&plan, stream)];
        run(&mut connections, &[script], 0..1, 1).unwrap();
        drop(writer.join().unwrap());
        let capacity = capacity(&connections[0].stream);
        assert!(capacity <= 1 << 17, "{capacity} bytes");
    }
}
