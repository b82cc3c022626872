//! Minimal client for the adapters themselves: connects as `root` without a password through a socket, and runs
//! statements with text results.

use std::path::Path;
use std::time::Duration;

use super::super::stream::Stream;
use super::packets::{
    COMMAND_QUERY, EOF, ERR, NULL, OK, length_encoded_text, log_in, read_packet, refused,
    write_packet,
};
use perfquilt_model::error::{Error, Result};

/// Timeout of one read. The statements are short, but ANALYZE reads tables, and a server may run under valgrind.
const READ_TIMEOUT: Duration = Duration::from_secs(300);

/// An open connection.
#[derive(Debug)]
pub struct Client(Stream);

impl Client {
    /// Connects as `root` with an empty password.
    pub fn connect(socket: &Path) -> Result<Self> {
        let mut stream = Stream::connect(socket, None, READ_TIMEOUT)?;
        log_in(&mut stream, None)?;
        Ok(Client(stream))
    }

    /// Runs a statement and returns its rows, with NULL as an empty string.
    pub fn query(&mut self, statement: &str) -> Result<Vec<Vec<String>>> {
        let failed = |packet: &[u8]| refused("a statement", packet).details([statement]);
        let content = [&[COMMAND_QUERY], statement.as_bytes()].concat();
        write_packet(&mut self.0, 0, &content)?;
        let (_, first) = read_packet(&mut self.0)?;
        match first.first() {
            Some(&OK) => return Ok(Vec::new()),
            Some(&ERR) | None => return Err(failed(&first)),
            // The number of columns.
            Some(_) => {}
        }
        while !is_end(&read_packet(&mut self.0)?.1) {}
        let mut rows = Vec::new();
        loop {
            let (_, packet) = read_packet(&mut self.0)?;
            if is_end(&packet) {
                return Ok(rows);
            }
            if packet.first() == Some(&ERR) {
                return Err(failed(&packet));
            }
            let malformed =
                || Error::server_answer("the server sent a malformed row").details([statement]);
            rows.push(row(&packet).ok_or_else(malformed)?);
        }
    }
}

fn is_end(packet: &[u8]) -> bool {
    // A row that begins with the same byte is much longer.
    packet.first() == Some(&EOF) && packet.len() < 9
}

/// Parses a row of strings, each preceded by its length.
fn row(mut packet: &[u8]) -> Option<Vec<String>> {
    let mut texts = Vec::new();
    while !packet.is_empty() {
        let (text, rest) = match packet {
            [NULL, rest @ ..] => (&[][..], rest),
            _ => length_encoded_text(packet)?,
        };
        texts.push(String::from_utf8_lossy(text).into_owned());
        packet = rest;
    }
    Some(texts)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn rows_are_read() {
        assert_eq!(row(b"\x02ab\x00\xfb\x01c").unwrap(), ["ab", "", "", "c"]);
        assert!(row(b"\x05ab").is_none(), "cut off");
        assert_eq!(row(b"").unwrap(), Vec::<String>::new());
    }

    /// Starts a server in a thread that answers with fixed packets.
    fn scripted(answers: Vec<Vec<u8>>) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut said = [0; 1024];
            for (index, answer) in answers.into_iter().enumerate() {
                if index > 0 && !answer.is_empty() {
                    let _ = stream.read(&mut said).unwrap();
                }
                stream.write_all(&answer).unwrap();
            }
        });
        (dir, socket)
    }

    fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![u8::try_from(payload.len()).unwrap(), 0, 0, sequence];
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn a_statement_returns_rows() {
        let mut result = packet(1, &[1]);
        result.extend(packet(2, b"column"));
        result.extend(packet(3, &[EOF, 0, 0, 0, 0]));
        result.extend(packet(4, b"\x05hello"));
        result.extend(packet(5, &[EOF, 0, 0, 0, 0]));
        let (_dir, socket) = scripted(vec![packet(0, b"\x0a11.0"), packet(2, &[0]), result]);
        let mut client = Client::connect(&socket).unwrap();
        assert_eq!(client.query("select 'hello'").unwrap(), [["hello"]]);
    }

    #[test]
    fn another_plugin_gets_an_empty_answer() {
        let switch = packet(2, b"\xfecaching_sha2_password\0salt\0");
        let (_dir, socket) = scripted(vec![packet(0, b"\x0a9.7"), switch, packet(4, &[0])]);
        Client::connect(&socket).unwrap();
    }

    #[test]
    fn a_server_that_hangs_up_or_refuses_is_an_error() {
        let (_dir, socket) = scripted(vec![packet(0, b"\xff\x10\x04Too many connections")]);
        let error = Client::connect(&socket).unwrap_err();
        assert!(error.message().contains("Too many"), "{error}");
        let (_dir, socket) = scripted(vec![]);
        assert!(Client::connect(&socket).is_err());
        assert!(Client::connect(Path::new("/nonexistent/s")).is_err());
    }
}
