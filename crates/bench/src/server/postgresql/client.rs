//! A blocking client of PostgreSQL's protocol on a Unix socket, with little between its caller and the system calls:
//! slices of some hundred microseconds are timed around it.
//!
//! The messages are those of PostgreSQL's documentation, "Frontend/Backend Protocol", read and written by the crate
//! `postgres-protocol`.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{ErrorFields, Message};
use postgres_protocol::message::frontend;

use perfquilt_model::error::{Error, Result};

/// The superuser that `initdb` creates.
pub const USER: &str = "postgres";
/// Timeout of one read. ANALYZE reads whole tables, and a server may run under valgrind.
const READ_TIMEOUT: Duration = Duration::from_secs(300);
/// Bytes that one system call reads at most.
const READ_SIZE: usize = 32 * 1024;

/// An open connection. Its server process serves no other one.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    input: BytesMut,
    output: BytesMut,
}

/// The rows of a statement, each a list of values; `None` is NULL.
pub type Rows = Vec<Vec<Option<String>>>;

impl Client {
    /// Connects to `database` as [`USER`], without a password.
    pub fn connect(socket: &Path, database: &str) -> Result<Self> {
        Self::connect_within(socket, database, READ_TIMEOUT)
    }

    /// The same, of a server that answers within `timeout`.
    pub fn connect_within(socket: &Path, database: &str, timeout: Duration) -> Result<Self> {
        let stream = UnixStream::connect(socket).map_err(lost)?;
        stream.set_read_timeout(Some(timeout)).map_err(lost)?;
        let mut client = Client {
            stream,
            input: BytesMut::new(),
            output: BytesMut::new(),
        };
        let parameters = [
            ("user", USER),
            ("database", database),
            ("client_encoding", "UTF8"),
            ("application_name", "perfquilt"),
        ];
        frontend::startup_message(parameters, &mut client.output).map_err(lost)?;
        client.exchange(&mut |message| match message {
            Message::AuthenticationCleartextPassword
            | Message::AuthenticationMd5Password(_)
            | Message::AuthenticationSasl(_) => Err(Error::server_failed(
                "the server asks for a password, where its pg_hba.conf should trust local users",
            )),
            _ => Ok(()),
        })?;
        Ok(client)
    }

    /// Runs statements as text and returns the rows of all of them.
    pub fn query(&mut self, statements: &str) -> Result<Rows> {
        self.send_query(statements)?;
        let mut rows = Rows::new();
        self.exchange(&mut |message| {
            if let Message::DataRow(row) = message {
                let buffer = row.buffer();
                let text = |range: Option<std::ops::Range<usize>>| {
                    range.map(|range| String::from_utf8_lossy(&buffer[range]).into_owned())
                };
                let values = row.ranges().map(|range| Ok(text(range))).collect();
                rows.push(values.map_err(lost)?);
            }
            Ok(())
        })
        .map_err(|error| error.details([shortened(statements)]))?;
        Ok(rows)
    }

    /// Adds a text statement to the messages that the next [`Client::exchange`] sends.
    pub fn send_query(&mut self, statements: &str) -> Result<()> {
        frontend::query(statements, &mut self.output).map_err(lost)
    }

    /// Returns the buffer of the messages that the next [`Client::exchange`] sends.
    pub fn output(&mut self) -> &mut BytesMut {
        &mut self.output
    }

    /// Sends the buffered messages, which must make the server ready for a query exactly once (a query or a sync), and
    /// passes its answers to `each` until it is.
    pub fn exchange(&mut self, each: &mut dyn FnMut(Message) -> Result<()>) -> Result<()> {
        self.stream.write_all(&self.output).map_err(lost)?;
        self.output.clear();
        let mut failure: Option<Error> = None;
        loop {
            // After a fatal error the server closes the connection.
            let message = match (self.receive(), &failure) {
                (Err(_), Some(fatal)) => return Err(fatal.clone()),
                (received, _) => received?,
            };
            match message {
                Message::ReadyForQuery(_) => return failure.map_or(Ok(()), Err),
                Message::ErrorResponse(body) => {
                    failure.get_or_insert(refused(body.fields()));
                }
                Message::NoticeResponse(_) => {}
                message => {
                    if failure.is_none() {
                        failure = each(message).err();
                    }
                }
            }
        }
    }

    fn receive(&mut self) -> Result<Message> {
        loop {
            if let Some(message) = Message::parse(&mut self.input).map_err(lost)? {
                return Ok(message);
            }
            let used = self.input.len();
            self.input.resize(used + READ_SIZE, 0);
            let read = self.stream.read(&mut self.input[used..]);
            self.input.truncate(used + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Err(Error::server_failed("the server closed the connection")),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(lost(error)),
            }
        }
    }
}

fn shortened(statement: &str) -> String {
    statement.chars().take(200).collect()
}

/// Returns the error for the fields of an `ErrorResponse`.
fn refused(mut fields: ErrorFields<'_>) -> Error {
    let (mut severity, mut code, mut message) = (String::new(), String::new(), String::new());
    while let Ok(Some(field)) = fields.next() {
        let value = String::from_utf8_lossy(field.value_bytes()).into_owned();
        match field.type_() {
            b'S' => severity = value,
            b'C' => code = value,
            b'M' => message = value,
            _ => {}
        }
    }
    Error::server_answer(format!(
        "the server reported an error: {severity}: {message} ({code})"
    ))
}

#[allow(clippy::needless_pass_by_value)] // What `map_err` passes.
fn lost(error: std::io::Error) -> Error {
    Error::server_failed(format!("the connection to the server failed: {error}"))
}
