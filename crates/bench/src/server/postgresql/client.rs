//! A blocking client of PostgreSQL's protocol, version 3, for the adapter and for the connections of workloads.
//!
//! Formats of messages: PostgreSQL's documentation, "Frontend/Backend Protocol", "Message Formats".

use std::path::Path;
use std::time::Duration;

use super::super::stream::{Malformed, Stream};
use perfquilt_model::error::{Error, Result};

/// The superuser that `initdb` creates.
pub const USER: &str = "postgres";
/// Version 3.0 of the protocol.
const VERSION: i32 = 3 << 16;
/// Timeout of one read. ANALYZE reads whole tables, and a server may run under valgrind.
const READ_TIMEOUT: Duration = Duration::from_secs(300);
/// The longest message that is believed.
const MAX_MESSAGE: usize = 1 << 28;

/// An open connection. Its server process serves no other one.
#[derive(Debug)]
pub struct Client(Stream);

/// The rows of a statement, each a list of values; `None` is NULL.
pub type Rows = Vec<Vec<Option<String>>>;

impl Client {
    /// Connects to `database` as [`USER`], without a password.
    pub fn connect(socket: &Path, database: &str) -> Result<Self> {
        Self::connect_within(socket, database, READ_TIMEOUT)
    }

    /// The same, of a server that answers within `timeout`.
    pub fn connect_within(socket: &Path, database: &str, timeout: Duration) -> Result<Self> {
        let mut stream = Stream::connect(socket, None, timeout)?;
        log_in(&mut stream, database, &[("client_encoding", "UTF8")])?;
        Ok(Client(stream))
    }

    /// Runs statements as text and returns the rows of all of them.
    pub fn query(&mut self, statements: &str) -> Result<Rows> {
        let mut rows = Rows::new();
        let mut add = |message: &Message<'_>| {
            if message.kind == b'D' {
                let malformed = || Error::server_answer("the server sent a malformed row");
                rows.push(row(message.body).ok_or_else(malformed)?);
            }
            Ok(())
        };
        exchange(&mut self.0, &query(statements), &mut add)
            .map_err(|error| error.details([statements.chars().take(200).collect::<String>()]))?;
        Ok(rows)
    }
}

/// Logs in to `database` as [`USER`], with these settings of the session.
pub(crate) fn log_in(stream: &mut Stream, database: &str, settings: &[(&str, &str)]) -> Result<()> {
    let parameters = [
        ("user", USER),
        ("database", database),
        ("application_name", "perfquilt"),
    ];
    let mut start = Vec::new();
    with_length(&mut start, |out| {
        out.extend(VERSION.to_be_bytes());
        for (name, value) in parameters.iter().chain(settings) {
            out.extend(format!("{name}\0{value}\0").bytes());
        }
        out.push(0);
    });
    exchange(stream, &start, &mut |_| Ok(()))
}

/// Returns the message that has statements run as text.
pub(crate) fn query(statements: &str) -> Vec<u8> {
    let mut out = Vec::new();
    message(b'Q', &mut out, |out| {
        out.extend(statements.bytes());
        out.push(0);
    });
    out
}

/// Appends a message: its kind, its length, and what `body` appends.
pub(crate) fn message(kind: u8, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    with_length(out, body);
}

/// Appends a length, which counts itself, and what `body` appends.
fn with_length(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([0; 4]);
    body(out);
    let length = (out.len() - start) as i32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Sends `messages`, which must make the server ready for a query exactly once (a query, a sync or a login), and passes its
/// answers to `each` until it is.
pub(crate) fn exchange(
    stream: &mut Stream,
    messages: &[u8],
    each: &mut dyn FnMut(&Message<'_>) -> Result<()>,
) -> Result<()> {
    stream.send(messages)?;
    let mut failure: Option<Error> = None;
    loop {
        let received = Message::read(stream.received());
        let Some(message) = received.map_err(|malformed| Error::server_answer(malformed.0))? else {
            // After a fatal error the server closes the connection.
            let lost = |lost| failure.clone().unwrap_or(lost);
            stream.receive().map_err(lost)?;
            continue;
        };
        match message.kind {
            b'Z' => {
                let length = message.length;
                stream.consume(length);
                return failure.map_or(Ok(()), Err);
            }
            b'E' => drop(failure.get_or_insert_with(|| refused(message.body))),
            _ if message.asks_for_password() => return Err(Error::server_failed(PASSWORD)),
            _ if failure.is_none() => failure = each(&message).err(),
            _ => {}
        }
        let length = message.length;
        stream.consume(length);
    }
}

/// What is wrong with a server that asks for a password.
pub(crate) const PASSWORD: &str =
    "the server asks for a password, where its pg_hba.conf should trust local users";

/// A message of the server.
pub(crate) struct Message<'a> {
    pub(crate) kind: u8,
    pub(crate) body: &'a [u8],
    /// With kind and length, in bytes.
    pub(crate) length: usize,
}

impl<'a> Message<'a> {
    /// Reads the message at the start of `input`; `None` if it is not complete yet.
    pub(crate) fn read(input: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let Some((&kind, rest)) = input.split_first() else {
            return Ok(None);
        };
        if !kind.is_ascii_alphanumeric() {
            return Err(Malformed::instead_of("a message", input));
        }
        let Some((size, rest)) = rest.split_first_chunk() else {
            return Ok(None);
        };
        // The length counts itself.
        let size = usize::try_from(i32::from_be_bytes(*size))
            .ok()
            .and_then(|size| size.checked_sub(4))
            .filter(|&size| size <= MAX_MESSAGE)
            .ok_or_else(|| Malformed::instead_of("a message's length", input))?;
        Ok(rest.get(..size).map(|body| Message {
            kind,
            body,
            length: 1 + 4 + size,
        }))
    }

    /// Returns whether it asks for a password.
    pub(crate) fn asks_for_password(&self) -> bool {
        self.kind == b'R' && !self.body.starts_with(&[0; 4])
    }
}

/// Returns the field of an error message that has a mark. Fields are texts that end in zero; `V` is the severity that no
/// language changes.
pub(crate) fn error_field(body: &[u8], mark: u8) -> Option<&[u8]> {
    let mut fields = body.split(|&byte| byte == 0);
    fields.find_map(|field| field.strip_prefix(&[mark]))
}

/// Returns the error in the body of an error message.
fn refused(body: &[u8]) -> Error {
    let field = |mark| String::from_utf8_lossy(error_field(body, mark).unwrap_or_default());
    let (severity, message, code) = (field(b'S'), field(b'M'), field(b'C'));
    Error::server_answer(format!(
        "the server reported an error: {severity}: {message} ({code})"
    ))
}

/// Returns the values of a row: their number, and each with its length, which is negative for NULL.
fn row(body: &[u8]) -> Option<Vec<Option<String>>> {
    let (_, mut rest) = body.split_first_chunk::<2>()?;
    let mut values = Vec::new();
    while !rest.is_empty() {
        let (length, behind) = rest.split_first_chunk()?;
        let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
            values.push(None);
            rest = behind;
            continue;
        };
        let (text, behind) = behind.split_at_checked(length)?;
        values.push(Some(String::from_utf8_lossy(text).into_owned()));
        rest = behind;
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_values_and_nulls() {
        let body = b"\0\x03\0\0\0\x02ab\xff\xff\xff\xff\0\0\0\0";
        let expected = [Some("ab".to_owned()), None, Some(String::new())];
        assert_eq!(row(body).unwrap(), expected);
        assert_eq!(row(b"\0\0").unwrap(), []);
        for cut in [&b"\0"[..], b"\0\x01\0\0", b"\0\x01\0\0\0\x02a"] {
            assert_eq!(row(cut), None, "{cut:?}");
        }
    }
}
