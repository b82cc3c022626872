//! memcached's text protocol, classic and meta commands.

use super::{Malformed, Progress, Protocol, ProtocolKind, ReplyOutcome, ReplyReader, line};
use crate::workload::requests::request::Request;
use crate::workload::requests::settings::RequestSettings;
use crate::workload::requests::template::{Piece, Values};

/// The protocol `memcached`.
pub(super) const KIND: ProtocolKind = ProtocolKind {
    name: "memcached",
    prepares: false,
    pipelines: true,
    protocol: |_| Box::new(Memcached),
};

/// The longest line of a reply: several keys of 250 bytes with flags.
const MAX_LINE: usize = 2048;

/// Commands with a data block behind them.
const STORAGE: [&str; 7] = ["set", "add", "replace", "append", "prepend", "cas", "ms"];
/// Commands without.
const OTHERS: [&str; 14] = [
    "get",
    "gets",
    "gat",
    "gats",
    "delete",
    "incr",
    "decr",
    "touch",
    "mg",
    "md",
    "ma",
    "mn",
    "flush_all",
    "version",
];

/// memcached's protocol.
#[derive(Debug)]
struct Memcached;

impl Protocol for Memcached {
    /// The command without a data block; or, with one, the command before and behind the block's length, and the block.
    fn parts(&self, request: &RequestSettings) -> Result<Vec<String>, String> {
        if !request.headers.is_empty() {
            return Err("`memcached` has no headers".to_owned());
        }
        let words: Vec<&str> = request.send.split(' ').collect();
        let command = words[0];
        let is_storage = STORAGE.contains(&command);
        if !is_storage && !OTHERS.contains(&command) {
            let known: Vec<&str> = STORAGE.into_iter().chain(OTHERS).collect();
            return Err(format!("`{command}` is none of {}", known.join(", ")));
        }
        // A command without a reply would be taken for one that is not answered.
        if words
            .iter()
            .any(|&word| word == "noreply" || (word == "q" && command.starts_with('m')))
        {
            return Err("every request needs a reply".to_owned());
        }
        let Some(body) = &request.body else {
            return if is_storage {
                Err(format!("`{command}` needs a `body`"))
            } else {
                Ok(vec![request.send.clone()])
            };
        };
        // The length comes behind the key of `ms`, and behind key, flags and time of the others.
        let before = match (is_storage, command) {
            (true, "ms") => 2,
            (true, _) => 4,
            (false, _) => return Err(format!("`{command}` has no `body`")),
        };
        if words.len() < before {
            return Err(format!(
                "`{command}` needs {} words before the length",
                before - 1
            ));
        }
        let (before, behind) = words.split_at(before);
        let behind: String = behind.iter().map(|word| format!(" {word}")).collect();
        Ok(vec![before.join(" "), behind, body.clone()])
    }

    fn encode(&self, request: &Request, values: &Values, out: &mut Vec<u8>) {
        match &request.parts[..] {
            [before, behind, body] => {
                before.write(values, out);
                out.extend_from_slice(format!(" {}", body.length(values)).as_bytes());
                behind.write(values, out);
                out.extend_from_slice(b"\r\n");
                body.write(values, out);
            }
            parts => parts.iter().for_each(|part| part.write(values, out)),
        }
        out.extend_from_slice(b"\r\n");
    }

    fn reader(&self) -> Box<dyn ReplyReader> {
        Box::<Reader>::default()
    }
}

/// Reads replies; those to `get` value by value.
#[derive(Debug, Default)]
struct Reader {
    /// Whether a value of the reply was read.
    has_value: bool,
}

impl ReplyReader for Reader {
    fn read(&mut self, request: &Request, input: &[u8]) -> Result<Progress, Malformed> {
        let mut at = 0;
        loop {
            let Some((first, length)) = line(&input[at..], MAX_LINE)? else {
                return Ok(Progress::incomplete(at));
            };
            let behind = at + length;
            let word = first.split(|&byte| byte == b' ').next().unwrap_or_default();
            let outcome = match word {
                b"VALUE" => match behind_data(input, behind, first, 3)? {
                    Some(end) => {
                        self.has_value = true;
                        at = end;
                        continue;
                    }
                    None => return Ok(Progress::incomplete(at)),
                },
                b"END" if std::mem::take(&mut self.has_value) => ReplyOutcome::Result,
                _ if self.has_value => return Err(Malformed::instead_of("VALUE or END", first)),
                b"VA" => {
                    return Ok(match behind_data(input, behind, first, 1)? {
                        Some(end) => Progress::complete(end, ReplyOutcome::Result),
                        None => Progress::incomplete(at),
                    });
                }
                b"STORED" | b"DELETED" | b"TOUCHED" | b"OK" | b"VERSION" | b"HD" | b"MN" => {
                    ReplyOutcome::Result
                }
                b"END" | b"EN" => ReplyOutcome::Nothing("a miss"),
                b"NOT_FOUND" | b"NF" => ReplyOutcome::Nothing("not found"),
                b"NOT_STORED" | b"NS" => ReplyOutcome::Nothing("not stored"),
                b"EXISTS" | b"EX" => ReplyOutcome::Nothing("changed by another client"),
                b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR" => ReplyOutcome::Error(first.into()),
                // The new value.
                number if counts(request) && number.iter().all(u8::is_ascii_digit) => {
                    ReplyOutcome::Result
                }
                _ => return Err(Malformed::instead_of("a reply", input)),
            };
            return Ok(Progress::complete(behind, outcome));
        }
    }
}

/// Returns whether a request is answered by a number.
fn counts(request: &Request) -> bool {
    let first = request.parts.first().and_then(|part| part.pieces().first());
    matches!(first, Some(Piece::Text(text)) if text.starts_with("incr ") || text.starts_with("decr "))
}

/// Returns the end of the data block at `start`, whose length is the word `index` of `line`; `None` if it is not complete
/// yet.
fn behind_data(
    input: &[u8],
    start: usize,
    line: &[u8],
    index: usize,
) -> Result<Option<usize>, Malformed> {
    let word = line.split(|&byte| byte == b' ').nth(index);
    let length: Option<usize> = word
        .and_then(|word| std::str::from_utf8(word).ok())
        .and_then(|word| word.parse().ok());
    let end = length.and_then(|length| start.checked_add(length)?.checked_add(2));
    let end = end.ok_or_else(|| Malformed::instead_of("the length of a value", line))?;
    match input.get(start..end) {
        None => Ok(None),
        Some(data) if data.ends_with(b"\r\n") => Ok(Some(end)),
        Some(data) => Err(Malformed::instead_of("CR LF after a value", data)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{self, assert_whole, parts, plan};
    use super::*;

    fn reply(request: &str, input: &[u8]) -> Result<Option<(usize, ReplyOutcome)>, Malformed> {
        testing::reply(&Memcached, &plan("memcached", request).requests[0], input)
    }

    #[test]
    fn storage_commands_get_the_length_of_their_data() {
        let encoded = |request| {
            let mut out = Vec::new();
            let plan = plan("memcached", request);
            Memcached.encode(&plan.requests[0], &Values::default(), &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(encoded("'get a b'"), "get a b\r\n");
        assert_eq!(
            encoded("{ send = 'set k 0 0', body = 'é' }"),
            "set k 0 0 2\r\né\r\n"
        );
        assert_eq!(
            encoded("{ send = 'cas k 0 0 7', body = '' }"),
            "cas k 0 0 0 7\r\n\r\n"
        );
        assert_eq!(
            encoded("{ send = 'ms k T0 F1', body = 'ab' }"),
            "ms k 2 T0 F1\r\nab\r\n"
        );
        for request in [
            "''",
            "'stats'",
            "'set k 0 0 1'",
            "{ send = 'set k', body = 'a' }",
            "{ send = 'get k', body = 'a' }",
            "'delete k noreply'",
            "'mg k v q'",
        ] {
            parts("memcached", request).unwrap_err();
        }
    }

    #[test]
    fn replies_end_where_they_end() {
        for (request, input, outcome) in [
            (
                "'get a b'",
                "VALUE a 0 3\r\nx\r\n\r\nVALUE b 0 0\r\n\r\nEND\r\n",
                ReplyOutcome::Result,
            ),
            ("'get a'", "END\r\n", ReplyOutcome::Nothing("a miss")),
            ("'mg a v'", "VA 5 f0\r\nEND\r\n\r\n", ReplyOutcome::Result),
            ("'mg a'", "HD\r\n", ReplyOutcome::Result),
            ("'mg a v'", "EN\r\n", ReplyOutcome::Nothing("a miss")),
            ("'incr a 1'", "15\r\n", ReplyOutcome::Result),
            (
                "'delete a'",
                "NOT_FOUND\r\n",
                ReplyOutcome::Nothing("not found"),
            ),
            (
                "'get a'",
                "SERVER_ERROR no\r\n",
                ReplyOutcome::Error(b"SERVER_ERROR no"[..].into()),
            ),
        ] {
            assert_whole(
                |bytes| reply(request, bytes),
                (input, "STORED\r\n"),
                outcome,
            );
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        for input in [
            "\r\n",
            "15\r\n",
            "VALUE a 0\r\n",
            "VALUE a 0 x\r\n",
            "VALUE a 0 18446744073709551615\r\n",
            "VALUE a 0 1\r\nabc",
            "VALUE a 0 0\r\n\r\nSTORED\r\n",
            "VA x\r\n",
        ] {
            assert!(reply("'get a'", input.as_bytes()).is_err(), "{input}");
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(input in "(VALUE a 0 [0-9]{1,21}\r\n|VA [0-9]{1,3}\r\n|END\r\n|[a\r\n ]){0,6}") {
            let _ = reply("'get a'", input.as_bytes());
        }
    }
}
