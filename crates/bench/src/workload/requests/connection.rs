//! Sends generated requests and checks their replies.

use std::ops::Range;

use super::plan::{Plan, Script, SentRequest};
use super::protocols::{Outcome, ReplyReader, Session};
use super::request::Request;
use super::settings::Expect;
use super::stream::Stream;
use crate::server::Running;
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
}

impl<'a> Connection<'a> {
    /// Connects to a server.
    pub(super) fn open(plan: &'a Plan, running: &Running, database: Option<&str>) -> Result<Self> {
        let mut stream = Stream::open(running)?;
        let session = Session {
            database,
            requests: &plan.requests,
        };
        plan.protocol.open(&mut stream, &session)?;
        Ok(Self::new(plan, stream))
    }

    fn new(plan: &'a Plan, stream: Stream) -> Self {
        Connection {
            plan,
            stream,
            reader: plan.protocol.reader(),
        }
    }

    /// Makes the server publish what it counted for this connection.
    pub(super) fn publish_counters(&mut self) -> Result<()> {
        self.plan.protocol.publish_counters(&mut self.stream)
    }

    /// Reads the replies to `sent`, and nothing else.
    fn replies(&mut self, sent: &[SentRequest]) -> Result<()> {
        for request in sent {
            let request = &self.plan.requests[request.number];
            let mut size = 0;
            loop {
                let progress = self
                    .reader
                    .read(request, self.stream.received())
                    .map_err(|malformed| unreadable(request, &malformed.0))?;
                let (length, is_complete) = (progress.length, progress.outcome.is_some());
                if let Some(outcome) = &progress.outcome {
                    check(request, outcome)?;
                }
                self.stream.consume(length);
                if is_complete {
                    break;
                }
                size += length as u64;
                if size > MAX_REPLY {
                    return Err(Error::bench(format!(
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
                let request = &self.plan.requests[last.number];
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
            connection.stream.send(script.bytes(chunk))?;
        }
        if is_over {
            return Ok(());
        }
        for (connection, script) in connections.iter_mut().zip(scripts) {
            connection.replies(script.requests(chunk(script)))?;
        }
        sent += pipeline;
    }
}

fn check(request: &Request, outcome: &Outcome<'_>) -> Result<()> {
    match outcome {
        Outcome::Result => Ok(()),
        Outcome::Nothing(_) if request.expect == Expect::Any => Ok(()),
        Outcome::Nothing(what) => Err(Error::bench(format!(
            "the reply to `{}` is {what}",
            request.label
        ))
        .hint("`prepare` must create what requests read; with `expect = \"any\"` every reply but an error is accepted")),
        Outcome::Error(message) => Err(Error::bench(format!(
            "the server answered `{}` with an error: {}",
            request.label,
            shown(message)
        ))),
    }
}

fn unreadable(request: &Request, fault: &str) -> Error {
    Error::bench(format!(
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
    use super::super::stream::testing::{LONG, SHORT, capacity, pair};
    use super::*;

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
