//! Minimal client of the MariaDB protocol for the adapter itself: connects as `root` without a password through a
//! socket, and runs statements with text results.
//!
//! Packets, handshake and text results are described in MariaDB's documentation, "Client/Server
//! Protocol".

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use perfquilt_model::error::{Error, Result};

/// `CLIENT_PROTOCOL_41`, `CLIENT_TRANSACTIONS`, `CLIENT_SECURE_CONNECTION`, `CLIENT_PLUGIN_AUTH`.
const CAPABILITIES: u32 = 0x200 | 0x2000 | 0x8000 | 0x8_0000;
/// First byte of a packet that reports an error.
const ERR: u8 = 0xff;
/// First byte of a packet that ends a list.
const EOF: u8 = 0xfe;
/// The command that carries a statement.
const COM_QUERY: u8 = 3;
/// Timeout of one read. The statements are short, but ANALYZE reads tables, and a server may run under valgrind.
const READ_TIMEOUT: Duration = Duration::from_secs(300);
/// Maximum length of a packet. The protocol splits longer ones, which this client does not support.
const PACKET_MAX: usize = 0xff_ffff;

/// An open connection.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    sequence: u8,
}

impl Client {
    /// Connects as `root` with an empty password.
    ///
    /// # Errors
    /// [`Kind::Bench`](perfquilt_model::error::Kind::Bench) with the server's answer.
    pub fn connect(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket).map_err(|error| lost(&error))?;
        stream
            .set_read_timeout(Some(READ_TIMEOUT))
            .map_err(|error| lost(&error))?;
        let mut client = Client {
            stream,
            sequence: 0,
        };
        let greeting = client.receive()?;
        if greeting.first() != Some(&10) {
            return Err(refused(&greeting));
        }
        let mut answer = CAPABILITIES.to_le_bytes().to_vec();
        answer.extend(u32::try_from(PACKET_MAX).unwrap_or(u32::MAX).to_le_bytes());
        // latin1_swedish_ci, then 23 reserved bytes.
        answer.push(8);
        answer.extend([0; 23]);
        answer.extend(b"root\0");
        // An empty password is an empty answer to the server's challenge.
        answer.push(0);
        answer.extend(b"mysql_native_password\0");
        client.send(&answer)?;
        let mut verdict = client.receive()?;
        if verdict.first() == Some(&EOF) {
            // MySQL asks for its own plugin; an empty password is an empty answer to that one too.
            client.send(&[])?;
            verdict = client.receive()?;
        }
        match verdict.first() {
            Some(0) => Ok(client),
            _ => Err(refused(&verdict)),
        }
    }

    /// Runs a statement and returns its rows, with NULL as an empty string.
    ///
    /// # Errors
    /// [`Kind::Bench`](perfquilt_model::error::Kind::Bench) with the server's answer.
    pub fn query(&mut self, statement: &str) -> Result<Vec<Vec<String>>> {
        self.sequence = 0;
        let mut packet = vec![COM_QUERY];
        packet.extend(statement.as_bytes());
        self.send(&packet)?;
        let first = self.receive()?;
        match first.first() {
            Some(0) => return Ok(Vec::new()),
            Some(&ERR) | None => return Err(refused(&first).details([statement])),
            // The number of columns.
            Some(_) => {}
        }
        while !is_end(&self.receive()?) {}
        let mut rows = Vec::new();
        loop {
            let packet = self.receive()?;
            if is_end(&packet) {
                return Ok(rows);
            }
            if packet.first() == Some(&ERR) {
                return Err(refused(&packet).details([statement]));
            }
            rows.push(row(&packet).ok_or_else(|| refused(&[]))?);
        }
    }

    fn send(&mut self, payload: &[u8]) -> Result<()> {
        let length = u32::try_from(payload.len())
            .ok()
            .filter(|&length| (length as usize) < PACKET_MAX)
            .ok_or_else(|| Error::internal("a statement is too long"))?;
        let mut packet = length.to_le_bytes().to_vec();
        packet[3] = self.sequence;
        packet.extend(payload);
        self.sequence = self.sequence.wrapping_add(1);
        self.stream.write_all(&packet).map_err(|error| lost(&error))
    }

    fn receive(&mut self) -> Result<Vec<u8>> {
        let mut head = [0; 4];
        self.stream
            .read_exact(&mut head)
            .map_err(|error| lost(&error))?;
        self.sequence = head[3].wrapping_add(1);
        head[3] = 0;
        let mut payload = vec![0; u32::from_le_bytes(head) as usize];
        self.stream
            .read_exact(&mut payload)
            .map_err(|error| lost(&error))?;
        Ok(payload)
    }
}

fn lost(error: &std::io::Error) -> Error {
    Error::bench(format!("no connection to the server: {error}"))
}

/// Returns the error in an ERR packet: number, `#` and a state of five letters, text.
fn refused(packet: &[u8]) -> Error {
    let text = match packet {
        [ERR, _, _, b'#', _, _, _, _, _, text @ ..] | [ERR, _, _, text @ ..] => {
            String::from_utf8_lossy(text).into_owned()
        }
        _ => "a malformed answer".to_owned(),
    };
    Error::bench(format!("the server answered: {text}"))
}

fn is_end(packet: &[u8]) -> bool {
    // A row that begins with the same byte is much longer.
    packet.first() == Some(&EOF) && packet.len() < 9
}

/// Parses a row of strings, each preceded by its length.
fn row(mut packet: &[u8]) -> Option<Vec<String>> {
    let mut texts = Vec::new();
    while let Some((&first, rest)) = packet.split_first() {
        let bytes_of_length = match first {
            // NULL.
            0xfb => {
                texts.push(String::new());
                packet = rest;
                continue;
            }
            0xfc => 2,
            0xfd => 3,
            0xfe => 8,
            _ => 0,
        };
        let (length, rest) = if bytes_of_length == 0 {
            (usize::from(first), rest)
        } else {
            let (digits, rest) = rest.split_at_checked(bytes_of_length)?;
            let number = digits
                .iter()
                .rev()
                .fold(0_u64, |number, &digit| number << 8 | u64::from(digit));
            (usize::try_from(number).ok()?, rest)
        };
        let (text, rest) = rest.split_at_checked(length)?;
        texts.push(String::from_utf8_lossy(text).into_owned());
        packet = rest;
    }
    Some(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read() {
        assert_eq!(row(b"\x02ab\x00\xfb\x01c").unwrap(), ["ab", "", "", "c"]);
        let mut long = vec![0xfc, 0x2c, 0x01];
        long.extend([b'x'; 300]);
        assert_eq!(row(&long).unwrap(), ["x".repeat(300)]);
        assert!(row(b"\x05ab").is_none(), "cut off");
        assert!(row(b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff").is_none());
        assert_eq!(row(b"").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn error_packets_become_errors() {
        let error = refused(b"\xff\x15\x04#28000Access denied");
        assert_eq!(error.message(), "the server answered: Access denied");
        assert!(
            refused(b"\xff\x10\x04Too many")
                .message()
                .ends_with("Too many")
        );
        assert!(refused(b"").message().contains("malformed"));
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
