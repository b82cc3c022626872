//! Packets of the protocol of MySQL and MariaDB, and the login of `root` without a password.
//!
//! Packets, handshake and text results are described in MariaDB's documentation, "Client/Server Protocol".

use super::super::stream::{Malformed, Stream};
use perfquilt_model::error::{Error, Result};

/// First byte of a packet that reports an error.
pub(crate) const ERR: u8 = 0xff;
/// First byte of a packet that ends a list, or asks for another way to log in.
pub(crate) const EOF: u8 = 0xfe;
/// First byte of a packet that reports success.
pub(crate) const OK: u8 = 0x00;
/// First byte of a value that is NULL.
pub(crate) const NULL: u8 = 0xfb;
/// The command that carries a statement.
pub(crate) const COMMAND_QUERY: u8 = 0x03;
/// The largest packet: a longer one has several parts, which no statement needs.
pub(crate) const MAX_PACKET: usize = 0xff_ffff;

/// Capabilities of the client: protocol 4.1, transactions, authentication by plugins.
const CAPABILITIES: u32 = 0x1 | 0x200 | 0x2000 | 0x8000 | 0x8_0000;
/// The capability to choose a database at the begin.
const CONNECT_WITH_DATABASE: u32 = 0x8;
/// utf8mb4_general_ci.
const COLLATION: u8 = 45;
/// First byte of a greeting: the version of the protocol.
const GREETING: u8 = 10;

/// The packets at the start of a buffer.
pub(crate) struct Packets<'a> {
    /// The buffer.
    pub(crate) input: &'a [u8],
    /// Where the next packet begins.
    pub(crate) at: usize,
}

impl<'a> Packets<'a> {
    /// Returns the next packet's content; `None` if it is not complete yet.
    pub(crate) fn next(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        let rest = &self.input[self.at..];
        let [a, b, c, _sequence, content @ ..] = rest else {
            return Ok(None);
        };
        let length = packet_length([*a, *b, *c]);
        if length == MAX_PACKET {
            return Err(Malformed("a packet of 16 MiB or more".to_owned()));
        }
        let packet = content.get(..length);
        self.at += packet.map_or(0, |packet| 4 + packet.len());
        Ok(packet)
    }
}

/// Receives one packet: its number and its content.
pub(crate) fn read_packet(stream: &mut Stream) -> Result<(u8, Vec<u8>)> {
    loop {
        let input = stream.received();
        let mut packets = Packets { input, at: 0 };
        let packet = packets.next().map_err(|malformed| {
            Error::server_answer(format!("the server sent {}", malformed.0))
        })?;
        if let Some(content) = packet {
            let packet = (input[3], content.to_vec());
            let length = packets.at;
            stream.consume(length);
            return Ok(packet);
        }
        stream.receive()?;
    }
}

/// Sends one packet.
pub(crate) fn write_packet(stream: &mut Stream, number: u8, content: &[u8]) -> Result<()> {
    let mut packet = vec![0; 4];
    packet.extend_from_slice(content);
    close_packet(0, number, &mut packet);
    stream.send(&packet)
}

/// Logs in as `root` with an empty password, to `database` if there is one.
pub(crate) fn log_in(stream: &mut Stream, database: Option<&str>) -> Result<()> {
    let unexpected = || Error::server_answer("unexpected reply during login");
    let (number, greeting) = read_packet(stream)?;
    match greeting.first() {
        Some(&GREETING) => {}
        Some(&ERR) => return Err(refused("the connection", &greeting)),
        _ => return Err(unexpected()),
    }
    write_packet(stream, number.wrapping_add(1), &login(database))?;
    loop {
        let (number, reply) = read_packet(stream)?;
        match reply.first() {
            Some(&OK) => return Ok(()),
            Some(&ERR) => return Err(refused("the login", &reply)),
            // Another plugin: without a password, an empty packet serves all of them.
            Some(&EOF) => write_packet(stream, number.wrapping_add(1), &[])?,
            // More data of a plugin.
            Some(0x01) => {}
            _ => return Err(unexpected()),
        }
    }
}

fn login(database: Option<&str>) -> Vec<u8> {
    let mut capabilities = CAPABILITIES;
    if database.is_some() {
        capabilities |= CONNECT_WITH_DATABASE;
    }
    let mut login = capabilities.to_le_bytes().to_vec();
    login.extend_from_slice(&(1u32 << 30).to_le_bytes());
    login.push(COLLATION);
    login.extend_from_slice(&[0; 23]);
    // An empty password is an empty answer to the server's challenge.
    login.extend_from_slice(b"root\0\0");
    if let Some(database) = database {
        login.extend_from_slice(database.as_bytes());
        login.push(0);
    }
    login.extend_from_slice(b"mysql_native_password\0");
    login
}

/// Writes the header of the packet that begins at `start`.
pub(crate) fn close_packet(start: usize, number: u8, out: &mut [u8]) {
    // A longer statement gets a wrong length, and an error of the server.
    let length = (out.len() - start - 4).min(MAX_PACKET);
    let length = u32::try_from(length).unwrap_or_default().to_le_bytes();
    out[start..start + 3].copy_from_slice(&length[..3]);
    out[start + 3] = number;
}

/// Returns the length of a packet's content.
pub(crate) fn packet_length([a, b, c]: [u8; 3]) -> usize {
    usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16
}

/// Returns a length-encoded integer and the bytes behind it; `None` if there is none.
pub(crate) fn length_encoded(input: &[u8]) -> Option<(u64, &[u8])> {
    let (&first, rest) = input.split_first()?;
    let size = match first {
        0..=0xfa => return Some((first.into(), rest)),
        0xfc => 2,
        0xfd => 3,
        0xfe => 8,
        _ => return None,
    };
    let (number, rest) = rest.split_at_checked(size)?;
    let mut bytes = [0; 8];
    bytes[..size].copy_from_slice(number);
    Some((u64::from_le_bytes(bytes), rest))
}

/// Returns a text with its length before it, and the bytes behind it; `None` if there is none.
pub(crate) fn length_encoded_text(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = length_encoded(input)?;
    rest.split_at_checked(usize::try_from(length).ok()?)
}

/// Returns the text of an error packet: behind its number and its state of five letters, which may lack.
pub(crate) fn error_text(packet: &[u8]) -> &[u8] {
    let text = packet.get(3..).unwrap_or_default();
    match text {
        [b'#', _, _, _, _, _, text @ ..] => text,
        _ => text,
    }
}

/// Returns the error in an error packet that is the answer to `what`.
pub(crate) fn refused(what: &str, packet: &[u8]) -> Error {
    let text = String::from_utf8_lossy(error_text(packet));
    Error::server_answer(format!(
        "the server refused {what}: {}",
        text.escape_debug()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_packets_become_errors() {
        let error = refused("the login", b"\xff\x15\x04#28000Access denied");
        assert_eq!(
            error.message(),
            "the server refused the login: Access denied"
        );
        assert_eq!(error_text(b"\xff\x10\x04Too many"), b"Too many");
        assert_eq!(error_text(b"\xff"), b"");
    }

    #[test]
    fn texts_end_where_their_length_says() {
        assert_eq!(
            length_encoded_text(b"\x02abc"),
            Some((&b"ab"[..], &b"c"[..]))
        );
        let long = [&[0xfc, 0x2c, 0x01], &[b'x'; 300][..]].concat();
        assert_eq!(length_encoded_text(&long), Some((&long[3..], &[][..])));
        for cut in [
            &b"\x05ab"[..],
            b"",
            b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\xfb",
        ] {
            assert_eq!(length_encoded_text(cut), None, "{cut:?}");
        }
    }
}
