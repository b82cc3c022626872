//! RESP, the protocol of Redis and Valkey, versions 2 and 3.

use super::{Malformed, Progress, Protocol, ProtocolKind, ReplyOutcome, ReplyReader, line};
use crate::workload::requests::request::Request;
use crate::workload::requests::settings::RequestSettings;
use crate::workload::requests::template::Values;

/// The protocol `resp`.
pub(super) const KIND: ProtocolKind = ProtocolKind {
    name: "resp",
    prepares: false,
    pipelines: true,
    protocol: |_| Box::new(Resp),
};

/// The longest line, that of a simple text.
const MAX_LINE: usize = 1 << 20;

/// Redis's protocol.
#[derive(Debug)]
struct Resp;

impl Protocol for Resp {
    /// The words of the command; `body` is the last one.
    fn parts(&self, request: &RequestSettings) -> Result<Vec<String>, String> {
        let mut words = shlex::split(&request.send).ok_or("a quotation mark has no end")?;
        words.extend(request.body.clone());
        if words.first().is_none_or(String::is_empty) {
            return Err("the command is empty".to_owned());
        }
        if !request.headers.is_empty() {
            return Err("`resp` has no headers".to_owned());
        }
        Ok(words)
    }

    fn encode(&self, request: &Request, values: &Values, out: &mut Vec<u8>) {
        number(b'*', request.parts.len(), out);
        for word in &request.parts {
            number(b'$', word.length(values), out);
            word.write(values, out);
            out.extend_from_slice(b"\r\n");
        }
    }

    fn reader(&self) -> Box<dyn ReplyReader> {
        Box::<Reader>::default()
    }
}

/// Reads replies item by item.
#[derive(Debug, Default)]
struct Reader {
    /// A reply some items of which were read.
    incomplete: Option<Item>,
}

impl ReplyReader for Reader {
    fn read(&mut self, _request: &Request, input: &[u8]) -> Result<Progress, Malformed> {
        let first = match self.incomplete.take() {
            None => item(input)?,
            first => first,
        };
        let Some(mut reply) = first else {
            return Ok(Progress::incomplete(0));
        };
        while reply.items > 0 {
            let Some(next) = item(&input[reply.length..])? else {
                let length = std::mem::take(&mut reply.length);
                self.incomplete = Some(reply);
                return Ok(Progress::incomplete(length));
            };
            reply.length += next.length;
            // A transaction's reply is a list with a failed command's error in it.
            if let (ReplyOutcome::Error(_), false) = (
                &next.outcome,
                matches!(reply.outcome, ReplyOutcome::Error(_)),
            ) {
                reply.outcome = next.outcome;
            }
            reply.items = (reply.items - 1).saturating_add(next.items);
        }
        Ok(Progress::complete(reply.length, reply.outcome))
    }
}

fn number(mark: u8, value: usize, out: &mut Vec<u8>) {
    out.push(mark);
    // Most numbers have one digit, and formatting costs more than that.
    if let Ok(digit @ 0..=9) = u8::try_from(value) {
        out.push(b'0' + digit);
    } else {
        out.extend_from_slice(value.to_string().as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

/// An item of a reply, without the items it contains. Nested lists need no recursion: only the number of items to come counts.
#[derive(Debug)]
struct Item {
    length: usize,
    outcome: ReplyOutcome,
    /// Items that belong to it and follow it.
    items: u64,
}

/// Reads an item; `None` if it is not complete yet.
fn item(input: &[u8]) -> Result<Option<Item>, Malformed> {
    let Some((line, length)) = line(input, MAX_LINE)? else {
        return Ok(None);
    };
    let (&mark, text) = line
        .split_first()
        .ok_or_else(|| Malformed::instead_of("a reply", input))?;
    let plain = |outcome| {
        Ok(Some(Item {
            length,
            outcome,
            items: 0,
        }))
    };
    match mark {
        b'+' | b':' | b',' | b'#' | b'(' => plain(ReplyOutcome::Result),
        b'-' => plain(ReplyOutcome::Error(text.into())),
        b'_' => plain(ReplyOutcome::Nothing("null")),
        b'$' | b'=' | b'!' => {
            if text == b"-1" {
                return plain(ReplyOutcome::Nothing("null"));
            }
            let Ok(size) = usize::try_from(count(text)?) else {
                return Err(Malformed::instead_of("a length", line));
            };
            let Some(end) = length.checked_add(size).and_then(|end| end.checked_add(2)) else {
                return Err(Malformed::instead_of("a length", line));
            };
            let Some(data) = input.get(length..end) else {
                return Ok(None);
            };
            let (data, mark_of_end) = data.split_at(size);
            if mark_of_end != b"\r\n" {
                return Err(Malformed::instead_of("CR LF after a string", mark_of_end));
            }
            Ok(Some(Item {
                length: end,
                outcome: if mark == b'!' {
                    ReplyOutcome::Error(data.into())
                } else {
                    ReplyOutcome::Result
                },
                items: 0,
            }))
        }
        b'*' | b'~' | b'>' | b'%' => {
            if text == b"-1" {
                return plain(ReplyOutcome::Nothing("null"));
            }
            let count = count(text)?;
            Ok(Some(Item {
                length,
                outcome: if count == 0 {
                    ReplyOutcome::Nothing("an empty list")
                } else {
                    ReplyOutcome::Result
                },
                items: count.saturating_mul(if mark == b'%' { 2 } else { 1 }),
            }))
        }
        _ => Err(Malformed::instead_of("a reply", input)),
    }
}

/// Reads a length or a number of items.
fn count(text: &[u8]) -> Result<u64, Malformed> {
    let mut value = 0u64;
    if text.is_empty() || text.len() > 18 {
        return Err(Malformed::instead_of("a number", text));
    }
    for &digit in text {
        if !digit.is_ascii_digit() {
            return Err(Malformed::instead_of("a number", text));
        }
        value = value * 10 + u64::from(digit - b'0');
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{self, assert_whole, plan};
    use super::*;

    fn reply(input: &[u8]) -> Result<Option<(usize, ReplyOutcome)>, Malformed> {
        testing::reply(&Resp, &plan("resp", "'GET k'").requests[0], input)
    }

    #[test]
    fn commands_are_arrays_of_words() {
        let plan = plan("resp", r#"{ send = "SET 'a b'", body = "" }"#);
        let mut out = Vec::new();
        Resp.encode(&plan.requests[0], &Values::default(), &mut out);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$3\r\na b\r\n$0\r\n\r\n");
    }

    #[test]
    fn replies_end_where_they_end() {
        let nothing = |what| ReplyOutcome::Nothing(what);
        for (input, outcome) in [
            ("+OK\r\n", ReplyOutcome::Result),
            (":-5\r\n", ReplyOutcome::Result),
            ("$0\r\n\r\n", ReplyOutcome::Result),
            ("$5\r\nab\r\nc\r\n", ReplyOutcome::Result),
            ("$-1\r\n", nothing("null")),
            ("*-1\r\n", nothing("null")),
            ("_\r\n", nothing("null")),
            ("*0\r\n", nothing("an empty list")),
            ("*2\r\n*1\r\n:1\r\n$-1\r\n", ReplyOutcome::Result),
            ("%1\r\n+a\r\n*1\r\n,1.5\r\n", ReplyOutcome::Result),
            ("-ERR no\r\n", ReplyOutcome::Error(b"ERR no"[..].into())),
            ("!3\r\nERR\r\n", ReplyOutcome::Error(b"ERR"[..].into())),
            // What EXEC answers if a command of the transaction fails.
            (
                "*3\r\n+OK\r\n-ERR one\r\n-ERR two\r\n",
                ReplyOutcome::Error(b"ERR one"[..].into()),
            ),
        ] {
            assert_whole(reply, (input, "+NEXT\r\n"), outcome);
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        for input in [
            "x\r\n",
            "\r\n",
            "+OK\n",
            "$x\r\n",
            "$-2\r\n",
            "$\r\n",
            "$1\r\nab\r\n",
            "$9999999999999999999\r\n",
            "*1\r\n?\r\n",
        ] {
            assert!(reply(input.as_bytes()).is_err(), "{input}");
        }
        assert!(reply(&vec![b'+'; MAX_LINE + 1]).is_err());
    }

    proptest! {
        #[test]
        fn no_input_panics(input in proptest::collection::vec(
            prop_oneof![Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), Just(b'9'), any::<u8>()], 0..60,
        )) {
            let _ = reply(&input);
        }
    }
}
