//! The protocol of MySQL and MariaDB: statements as text, or prepared once a connection.
//!
//! Rows are skipped in the buffer they arrived in, except for the first value of a reply that must have one.

mod value;

use super::{Progress, Protocol, ProtocolKind, ReplyOutcome, ReplyReader};
use crate::server::innodb::packets::{
    self, COMMAND_QUERY, EOF, ERR, NULL, OK, Packets, close_packet, error_text, log_in,
    packet_length, read_packet, refused, write_packet,
};
use crate::server::stream::{Malformed, Stream};
use crate::workload::requests::request::Request;
use crate::workload::requests::settings::RequestSettings;
use crate::workload::requests::template::{Piece, Template, Values};
use perfquilt_model::error::{Error, Result};
use value::{Column, binary_value, text_value};

/// The protocol `mysql`.
pub(super) const KIND: ProtocolKind = ProtocolKind {
    name: "mysql",
    prepares: true,
    pipelines: false,
    protocol: |prepared| Box::new(MySql { prepared }),
};

/// The status flag of a result that another one follows.
const MORE_RESULTS: u16 = 0x8;
const COMMAND_PREPARE: u8 = 0x16;
const COMMAND_EXECUTE: u8 = 0x17;
const TYPE_LONGLONG: u8 = 0x08;
const TYPE_VAR_STRING: u8 = 0xfd;

/// MySQL's protocol.
#[derive(Debug)]
struct MySql {
    prepared: bool,
}

impl Protocol for MySql {
    fn parts(&self, request: &RequestSettings) -> Result<Vec<String>, String> {
        if request.body.is_some() || !request.headers.is_empty() {
            return Err("a statement has neither `body` nor `headers`".to_owned());
        }
        Ok(vec![request.send.clone()])
    }

    fn encode(&self, request: &Request, values: &Values, out: &mut Vec<u8>) {
        let Some(statement) = request.parts.first() else {
            return;
        };
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        if self.prepared {
            execute(request.number, statement, values, out);
        } else {
            out.push(COMMAND_QUERY);
            statement.write(values, out);
        }
        close_packet(start, 0, out);
    }

    fn reader(&self) -> Box<dyn ReplyReader> {
        Box::new(Reader {
            is_binary: self.prepared,
            ..Reader::default()
        })
    }

    fn has_values(&self) -> bool {
        true
    }

    fn open(&self, stream: &mut Stream, database: Option<&str>) -> Result<()> {
        log_in(stream, database)
    }

    fn prepare(&self, stream: &mut Stream, requests: &[Request]) -> Result<u32> {
        let mut offset = None;
        for request in requests.iter().filter(|_| self.prepared) {
            let id = prepare(stream, request)?;
            let own = id.checked_sub(statement_id(request.number));
            let first = *offset.get_or_insert(own);
            if own.is_none() || own != first {
                return Err(Error::server_answer(format!(
                    "the server gave a connection's statement {} the number {id}",
                    request.number + 1
                )));
            }
        }
        Ok(offset.flatten().unwrap_or_default())
    }

    fn renumber(&self, offset: u32, requests: &mut [u8]) {
        let mut rest = requests;
        while let [a, b, c, _, COMMAND_EXECUTE, id @ ..] = rest
            && let Some((id, _)) = id.split_first_chunk_mut()
        {
            let length = packet_length([*a, *b, *c]);
            *id = u32::from_le_bytes(*id).wrapping_add(offset).to_le_bytes();
            rest = rest.get_mut(4 + length..).unwrap_or_default();
        }
    }

    fn create_database(&self, name: &str) -> Option<Vec<String>> {
        Some(vec![format!("CREATE DATABASE `{name}`")])
    }

    fn fill_pipeline(&self) -> usize {
        1
    }
}

/// Appends the execution of a prepared statement.
fn execute(number: usize, statement: &Template, values: &Values, out: &mut Vec<u8>) {
    out.push(COMMAND_EXECUTE);
    out.extend_from_slice(&statement_id(number).to_le_bytes());
    // No cursor, one execution.
    out.extend_from_slice(&[0, 1, 0, 0, 0]);
    let indices = statement.pieces().iter().filter_map(|piece| match piece {
        Piece::Value(index) => Some(*index),
        Piece::Text(_) => None,
    });
    let count = indices.clone().count();
    if count == 0 {
        return;
    }
    out.resize(out.len() + count.div_ceil(8), 0);
    out.push(1);
    for index in indices.clone() {
        let kind = values
            .integer(index)
            .map_or(TYPE_VAR_STRING, |_| TYPE_LONGLONG);
        out.extend_from_slice(&[kind, 0]);
    }
    for index in indices {
        if let Some(integer) = values.integer(index) {
            out.extend_from_slice(&integer.to_le_bytes());
        } else {
            let text = values.text(index);
            length_encoded(text.len(), out);
            out.extend_from_slice(text);
        }
    }
}

/// Returns the number of a statement on a new connection: they are counted from 1. MariaDB has been seen to begin with
/// a higher number, so the numbers in its replies count.
fn statement_id(number: usize) -> u32 {
    u32::try_from(number + 1).unwrap_or(u32::MAX)
}

fn length_encoded(length: usize, out: &mut Vec<u8>) {
    let bytes = (length as u64).to_le_bytes();
    match length {
        0..=250 => out.push(bytes[0]),
        251..=0xffff => {
            out.push(0xfc);
            out.extend_from_slice(&bytes[..2]);
        }
        0x1_0000..=0xff_ffff => {
            out.push(0xfd);
            out.extend_from_slice(&bytes[..3]);
        }
        _ => {
            out.push(0xfe);
            out.extend_from_slice(&bytes);
        }
    }
}

/// Returns a length-encoded integer and the bytes behind it.
fn read_length_encoded(input: &[u8]) -> Result<(u64, &[u8]), Malformed> {
    let malformed = || Malformed::instead_of("a number", input);
    packets::length_encoded(input).ok_or_else(malformed)
}

/// Reads replies packet by packet.
#[derive(Debug, Default)]
struct Reader {
    next: Next,
    /// Whether the last set of rows has none.
    is_empty: bool,
    /// Whether rows are in binary form.
    is_binary: bool,
    /// The columns of the last set of rows: their number, and the first one if its value is expected.
    columns: (u64, Column),
    /// The first value of the last set of rows, if it is expected.
    value: Option<Vec<u8>>,
}

/// The kind of the next packet.
#[derive(Debug, Default, Clone, Copy)]
enum Next {
    /// The begin of a result.
    #[default]
    Result,
    /// The definition of a column: so many are to come, and then their end.
    Column(u64),
    /// A row, or the end of the rows.
    Row,
}

impl ReplyReader for Reader {
    fn read(&mut self, request: &Request, input: &[u8]) -> Result<Progress, Malformed> {
        let mut packets = Packets { input, at: 0 };
        while let Some(packet) = packets.next()? {
            let status = match (self.next, packet) {
                (_, [ERR, ..]) => {
                    self.restart();
                    let outcome = ReplyOutcome::Error(error_text(packet).into());
                    return Ok(Progress::complete(packets.at, outcome));
                }
                (Next::Result, [OK, rest @ ..]) => status_of_ok(rest)?,
                (Next::Result, [NULL, ..] | []) => {
                    return Err(Malformed::instead_of("a result", packet));
                }
                (Next::Result, columns) => {
                    let count = number_of_columns(columns)?;
                    self.columns.0 = count;
                    self.next = Next::Column(count);
                    continue;
                }
                (Next::Column(0), [EOF, ..]) => {
                    self.next = Next::Row;
                    self.is_empty = true;
                    self.value = None;
                    continue;
                }
                (Next::Column(0), _) => {
                    return Err(Malformed::instead_of("the end of the columns", packet));
                }
                (Next::Column(left), definition) => {
                    if left == self.columns.0 && self.is_binary && request.value.is_some() {
                        self.columns.1 = Column::read(definition)?;
                    }
                    self.next = Next::Column(left - 1);
                    continue;
                }
                // Rows may begin with this byte too, but are longer.
                (Next::Row, [EOF, _, _, a, b]) => {
                    self.next = Next::Result;
                    u16::from_le_bytes([*a, *b])
                }
                (Next::Row, row) => {
                    if self.is_empty && request.value.is_some() {
                        self.value = self.first_value(row)?;
                    }
                    self.is_empty = false;
                    continue;
                }
            };
            if status & MORE_RESULTS == 0 {
                let finished = self.restart();
                let outcome = match finished.value {
                    Some(value) => ReplyOutcome::Value(value),
                    None if finished.is_empty => ReplyOutcome::Nothing("an empty set of rows"),
                    None => ReplyOutcome::Result,
                };
                return Ok(Progress::complete(packets.at, outcome));
            }
        }
        Ok(Progress::incomplete(packets.at))
    }
}

impl Reader {
    /// Begins the next reply, and returns the state at the end of the last one.
    fn restart(&mut self) -> Reader {
        let next = Reader {
            is_binary: self.is_binary,
            ..Reader::default()
        };
        std::mem::replace(self, next)
    }

    fn first_value(&self, row: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
        if self.is_binary {
            binary_value(row, self.columns)
        } else {
            text_value(row)
        }
    }
}

fn number_of_columns(packet: &[u8]) -> Result<u64, Malformed> {
    match read_length_encoded(packet)? {
        (columns, []) => Ok(columns),
        (_, rest) => Err(Malformed::instead_of("a number of columns", rest)),
    }
}

/// Returns the status in an OK packet without its first byte.
fn status_of_ok(packet: &[u8]) -> Result<u16, Malformed> {
    let (_affected, rest) = read_length_encoded(packet)?;
    let (_last_id, rest) = read_length_encoded(rest)?;
    match rest {
        [a, b, ..] => Ok(u16::from_le_bytes([*a, *b])),
        _ => Err(Malformed("a packet that ends too early".to_owned())),
    }
}

/// Prepares a request's statement, with question marks in place of its values, and returns its number.
fn prepare(stream: &mut Stream, request: &Request) -> Result<u32> {
    let pieces = request.parts.iter().flat_map(Template::pieces);
    let mut statement = vec![COMMAND_PREPARE];
    let mut values = 0;
    for piece in pieces {
        match piece {
            Piece::Text(text) => statement.extend_from_slice(text.as_bytes()),
            Piece::Value(_) => {
                statement.push(b'?');
                values += 1;
            }
        }
    }
    write_packet(stream, 0, &statement)?;
    let (_, answer) = read_packet(stream)?;
    let label = &request.label;
    // Its number, and how many columns and parameters it has.
    let [0x00, a, b, c, d, e, f, g, h, ..] = answer[..] else {
        let what = format!("to prepare `{label}`");
        return Err(refused(&what, &answer));
    };
    let id = u32::from_le_bytes([a, b, c, d]);
    let columns = u16::from_le_bytes([e, f]);
    let parameters = u16::from_le_bytes([g, h]);
    if parameters != values {
        return Err(Error::server_answer(format!(
            "`{label}` has {values} values, but {parameters} parameters when it is prepared"
        ))
        .hint("in a prepared statement, values have no quotation marks around them"));
    }
    // Definitions of parameters and of columns, each with an end.
    for count in [parameters, columns] {
        let packets = if count == 0 { 0 } else { u32::from(count) + 1 };
        for _ in 0..packets {
            read_packet(stream)?;
        }
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::super::testing::{self, plan};
    use super::*;
    use crate::server::stream::testing::{LONG, SHORT, pair};

    const TEXT: MySql = MySql { prepared: false };

    fn packet(sequence: u8, content: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 4];
        packet.extend_from_slice(content);
        close_packet(0, sequence, &mut packet);
        packet
    }

    fn packets(contents: &[&[u8]]) -> Vec<u8> {
        let packets = (1..).zip(contents).map(|(at, content)| packet(at, content));
        packets.flatten().collect()
    }

    fn reply(input: &[u8]) -> Result<Option<(usize, ReplyOutcome)>, Malformed> {
        testing::reply(&TEXT, &plan("mysql", "'SELECT 1'").requests[0], input)
    }

    #[test]
    fn statements_are_sent_as_text_or_as_values() {
        let plan = plan("mysql", "'SELECT {n}'");
        let mut values = Values::default();
        values.add(|text| {
            text.push(b'7');
            Some(7)
        });
        let mut out = Vec::new();
        TEXT.encode(&plan.requests[0], &values, &mut out);
        assert_eq!(out, b"\x09\0\0\0\x03SELECT 7");
        out.clear();
        MySql { prepared: true }.encode(&plan.requests[0], &values, &mut out);
        assert_eq!(
            out,
            b"\x16\0\0\0\x17\x01\0\0\0\0\x01\0\0\0\0\x01\x08\0\x07\0\0\0\0\0\0\0"
        );
        let two = [&out[..], &out[..]].concat();
        let mut renumbered = two.clone();
        MySql { prepared: true }.renumber(0x1_0002, &mut renumbered);
        let changed = (0..two.len()).filter(|&at| two[at] != renumbered[at]);
        assert_eq!(changed.collect::<Vec<_>>(), [5, 7, 31, 33]);
        assert_eq!(renumbered[31..35], [3, 0, 1, 0]);
        let mut lengths = Vec::new();
        for length in [250, 251, 0xffff, 0x1_0000, 0xff_ffff, 0x100_0000] {
            lengths.clear();
            length_encoded(length, &mut lengths);
            assert_eq!(read_length_encoded(&lengths), Ok((length as u64, &[][..])));
        }
    }

    #[test]
    fn replies_end_where_they_end() {
        let ok: &[u8] = &[0, 0, 0, 2, 0, 0, 0];
        let ok_more: &[u8] = &[0, 0, 0, 8, 0, 0, 0];
        let end: &[u8] = &[0xfe, 0, 0, 2, 0];
        let error: &[u8] = b"\xff\x28\x04#42000no such";
        let none = ReplyOutcome::Nothing("an empty set of rows");
        let failed = ReplyOutcome::Error(b"no such"[..].into());
        for (contents, outcome) in [
            (&[ok][..], ReplyOutcome::Result),
            (&[ok_more, ok], ReplyOutcome::Result),
            (
                &[&[1], b"def", end, b"\x011", b"\x012", end],
                ReplyOutcome::Result,
            ),
            (&[&[1], b"def", end, end], none),
            (&[error], failed.clone()),
            (&[&[1], b"def", end, b"\x011", error], failed),
            // A row whose first value is longer than 16 MiB would begin with 0xfe; this one has a short one.
            (&[&[1], b"def", end, &[0xfb], end], ReplyOutcome::Result),
        ] {
            let input = packets(contents);
            let followed = [&input[..], &packet(1, ok)].concat();
            let length = input.len();
            let expected = Ok(Some((length, outcome)));
            assert_eq!(reply(&followed), expected, "{contents:?}");
            for end in 0..length {
                assert_eq!(reply(&input[..end]), Ok(None), "{contents:?} {end}");
            }
        }
    }

    #[test]
    fn the_first_value_of_the_last_rows_is_read_if_it_is_expected() {
        let plan = plan("mysql", "{ send = 'SELECT {n}', value = '{n}' }");
        let value = |is_binary, contents: &[&[u8]]| {
            let protocol = MySql {
                prepared: is_binary,
            };
            let input = packets(contents);
            let read = testing::reply(&protocol, &plan.requests[0], &input).unwrap();
            read.map(|(_, outcome)| outcome)
        };
        let found = |text: &[u8]| Some(ReplyOutcome::Value(text.to_vec()));
        let end: &[u8] = &[0xfe, 0, 0, 2, 0];
        let more: &[u8] = &[0xfe, 0, 0, 8, 0];
        let integer: &[u8] =
            b"\x03def\x01d\x01t\x01t\x02id\x02id\x0c\x3f\0\x0b\0\0\0\x03\x23\x50\0\0\0";
        let text = [&[1], integer, end, b"\x0242", b"\x017", end];
        assert_eq!(value(false, &text), found(b"42"));
        let two = [&text[..5], &[more, &[1], integer, end, b"\x018", end]].concat();
        assert_eq!(value(false, &two), found(b"8"));
        let null = [&[1], integer, end, &[0xfb], end];
        assert_eq!(value(false, &null), Some(ReplyOutcome::Result));
        let none = [&[1], integer, end, end];
        let empty = ReplyOutcome::Nothing("an empty set of rows");
        assert_eq!(value(false, &none), Some(empty));
        let binary = [&[1], integer, end, &[0, 0, 42, 0, 0, 0], end];
        assert_eq!(value(true, &binary), found(b"42"));
    }

    #[test]
    fn other_bytes_are_refused() {
        for contents in [
            &[&[][..]][..],
            &[&[0xfb, 1]],
            &[&[0, 0]],
            &[&[1, 1]],
            &[&[1], b"def", b"def"],
        ] {
            assert!(reply(&packets(contents)).is_err(), "{contents:?}");
        }
        assert!(reply(&[0xff, 0xff, 0xff, 0]).is_err());
    }

    #[test]
    fn refusals_at_the_begin_are_errors() {
        let open = |answer: &[&[u8]], prepared: bool| {
            // A greeting alone is followed by silence.
            let (mut stream, mut server) = pair(if answer.len() == 1 { SHORT } else { LONG });
            server.write_all(&packets(answer)).unwrap();
            let plan = plan("mysql", "'SELECT {n}'");
            let protocol = MySql { prepared };
            protocol.open(&mut stream, Some("d"))?;
            protocol.prepare(&mut stream, &plan.requests)
        };
        let greeting: &[u8] = b"\x0a10.11\0";
        let ok: &[u8] = &[0, 0, 0, 2, 0, 0, 0];
        let end: &[u8] = &[0xfe, 0, 0, 2, 0];
        let prepared: &[u8] = &[0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0];
        open(&[greeting, ok], false).unwrap();
        open(&[greeting, &[0xfe], ok], false).unwrap();
        let definitions = [b"def", end, b"def", end];
        let answers = |prepared| [&[greeting, ok, prepared], &definitions[..]].concat();
        assert_eq!(open(&answers(prepared), true).unwrap(), 0);
        // A thread that served another connection before.
        let later: &[u8] = &[0, 3, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0];
        assert_eq!(open(&answers(later), true).unwrap(), 2);
        let no_parameter: &[u8] = &[0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        let no_number: &[u8] = &[0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0];
        for (answer, message) in [
            (
                &[&b"\xff\x10\x04Too many"[..]][..],
                "refused the connection: Too many",
            ),
            (
                &[greeting, b"\xff\x15\x04#28000Access"],
                "refused the login: Access",
            ),
            (&[greeting, b"x"], "unexpected reply"),
            (
                &[greeting, ok, b"\xff\x28\x04#42000bad"],
                "to prepare `SELECT {n}`: bad",
            ),
            (&[greeting, ok, no_parameter], "0 parameters"),
            (&answers(no_number), "number 0"),
            (&[greeting, ok, &[0, 1]], "to prepare"),
            (&[greeting], "does not answer"),
        ] {
            let error = open(answer, true).unwrap_err();
            assert!(error.message().contains(message), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(contents in proptest::collection::vec(
            proptest::collection::vec(prop_oneof![Just(0), Just(1), Just(0xfe), any::<u8>()], 0..9), 0..6,
        )) {
            let contents: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
            let input = packets(&contents);
            let _ = reply(&input);
        }
    }
}
