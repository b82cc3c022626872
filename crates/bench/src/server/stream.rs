//! A connection to a server: bytes with a buffer and timeouts.

use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::Instrumentation;
use super::running::Running;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::process::check_interrupted;

/// Timeout for an answer of the server.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The same for a server under valgrind.
const SLOW_TIMEOUT: Duration = Duration::from_secs(1200);
/// Interval in which a waiting client checks for timeouts and for a request to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Free space of the buffer before a read.
const READ_SIZE: usize = 1 << 16;
/// The largest part of a reply that must be complete to be read, such as a row.
const MAX_PART: usize = 1 << 28;

/// A connection.
#[derive(Debug)]
pub struct Stream {
    socket: Socket,
    buffer: Vec<u8>,
    /// Where the bytes that were not consumed yet start and end in `buffer`.
    start: usize,
    end: usize,
    timeout: Duration,
}

#[derive(Debug)]
enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Socket::Unix(socket) => socket.read(buffer),
            Socket::Tcp(socket) => socket.read(buffer),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Socket::Unix(socket) => socket.write(bytes),
            Socket::Tcp(socket) => socket.write(bytes),
        }
    }
}

impl Stream {
    /// Connects to a server: to its port if it has one, else to its Unix socket.
    pub(crate) fn open(running: &Running) -> Result<Self> {
        let timeout = match &running.instrumentation {
            Instrumentation::Plain => TIMEOUT,
            Instrumentation::Callgrind { .. } | Instrumentation::Traced { .. } => SLOW_TIMEOUT,
        };
        let endpoint = &running.endpoint;
        Self::connect(&endpoint.socket, endpoint.port, timeout)
    }

    /// Connects to a server that answers within `timeout`: to its `port` on the loopback interface, or to its Unix socket.
    pub fn connect(socket: &Path, port: Option<u16>, timeout: Duration) -> Result<Self> {
        let socket = match port {
            Some(port) => TcpStream::connect((Ipv4Addr::LOCALHOST, port)).and_then(|socket| {
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(POLL_INTERVAL))?;
                socket.set_write_timeout(Some(POLL_INTERVAL))?;
                Ok(Socket::Tcp(socket))
            }),
            None => UnixStream::connect(socket).and_then(|socket| {
                socket.set_read_timeout(Some(POLL_INTERVAL))?;
                socket.set_write_timeout(Some(POLL_INTERVAL))?;
                Ok(Socket::Unix(socket))
            }),
        };
        let socket = socket.map_err(|error| {
            Error::server_failed(format!("cannot connect to the server: {error}"))
        })?;
        Ok(Self::new(socket, timeout))
    }

    fn new(socket: Socket, timeout: Duration) -> Self {
        Stream {
            socket,
            buffer: vec![0; READ_SIZE],
            start: 0,
            end: 0,
            timeout,
        }
    }

    /// Sends all of `bytes`.
    pub fn send(&mut self, mut bytes: &[u8]) -> Result<()> {
        let mut waiting = Waiting::new(self.timeout);
        while !bytes.is_empty() {
            match self.socket.write(bytes) {
                Ok(0) => return Err(closed()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) => waiting.check(
                    &error,
                    "the server does not read the requests sent to it",
                    "reduce `pipeline`: the server may write replies before it reads on",
                )?,
            }
        }
        Ok(())
    }

    /// Returns the bytes received and not consumed yet.
    pub fn received(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Consumes the first `length` of the received bytes.
    pub fn consume(&mut self, length: usize) {
        self.start = (self.start + length).min(self.end);
    }

    /// Waits until more bytes were received.
    pub fn receive(&mut self) -> Result<()> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.end == self.buffer.len() {
            self.make_room()?;
        }
        let mut waiting = Waiting::new(self.timeout);
        loop {
            match self.socket.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Err(closed()),
                Ok(read) => {
                    self.end += read;
                    return Ok(());
                }
                Err(error) => waiting.check(
                    &error,
                    "the server does not answer",
                    "it hangs, or waits for another connection of the same client thread: with locks between \
                     transactions, set `threads` to `connections`",
                )?,
            }
        }
    }

    fn make_room(&mut self) -> Result<()> {
        let waiting = self.end - self.start;
        if waiting > MAX_PART {
            return Err(Error::server_answer(format!(
                "a row or value in a reply of the server is longer than {} MiB",
                MAX_PART >> 20
            )));
        }
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, waiting);
        if self.buffer.len() - waiting < READ_SIZE {
            self.buffer.resize(2 * self.buffer.len(), 0);
        }
        Ok(())
    }
}

fn closed() -> Error {
    Error::server_failed("the server closed the connection")
}

/// The wait for a socket.
struct Waiting {
    timeout: Duration,
    /// Taken at the first interruption: most waits are far shorter than the socket's own timeout.
    since: Option<Instant>,
}

impl Waiting {
    fn new(timeout: Duration) -> Self {
        Waiting {
            timeout,
            since: None,
        }
    }

    /// Returns `Ok` while the wait goes on after this error of the socket; `fault` and `hint` describe a timeout.
    fn check(&mut self, error: &std::io::Error, fault: &str, hint: &str) -> Result<()> {
        let (WouldBlock | TimedOut | Interrupted) = error.kind() else {
            return Err(Error::server_failed(format!(
                "the connection failed: {error}"
            )));
        };
        check_interrupted()?;
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        if waited < self.timeout {
            return Ok(());
        }
        let seconds = self.timeout.as_secs();
        Err(Error::server_failed(format!("{fault} within {seconds} s")).hint(hint))
    }
}

/// A violation of a protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed(pub String);

impl Malformed {
    /// Describes the bytes where something else was expected.
    pub fn instead_of(expected: &str, found: &[u8]) -> Self {
        let shown = &found[..found.len().min(40)];
        Malformed(format!("`{}` instead of {expected}", shown.escape_ascii()))
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// Returns a connection that waits this long for an answer, and its other end.
    pub(crate) fn pair(timeout: Duration) -> (Stream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let poll = Some(Duration::from_millis(10));
        ours.set_read_timeout(poll).unwrap();
        ours.set_write_timeout(poll).unwrap();
        (Stream::new(Socket::Unix(ours), timeout), theirs)
    }

    /// Returns how many bytes a connection can hold without more memory.
    pub(crate) fn capacity(stream: &Stream) -> usize {
        stream.buffer.len()
    }

    /// A timeout that a server which answers does not reach, on a busy machine either.
    pub(crate) const LONG: Duration = Duration::from_secs(60);
    /// A timeout for servers that do not answer.
    pub(crate) const SHORT: Duration = Duration::from_millis(100);
}

#[cfg(test)]
mod tests {
    use super::testing::{LONG, SHORT, pair};
    use super::*;

    #[test]
    fn bytes_are_kept_until_they_are_consumed() {
        let (mut stream, mut server) = pair(LONG);
        server.write_all(b"abc").unwrap();
        stream.receive().unwrap();
        stream.consume(1);
        let long = vec![b'd'; 3 * READ_SIZE];
        let writer = std::thread::spawn(move || server.write_all(&long).map(|()| server));
        while stream.received().len() < 2 + 3 * READ_SIZE {
            stream.receive().unwrap();
        }
        assert_eq!(&stream.received()[..4], b"bcdd");
        drop(writer.join().unwrap());
        stream.consume(usize::MAX);
        assert!(stream.received().is_empty());
        assert!(stream.receive().unwrap_err().message().contains("closed"));
    }

    #[test]
    fn a_silent_server_ends_the_wait() {
        let (mut stream, _server) = pair(SHORT);
        let error = stream.receive().unwrap_err();
        assert!(error.message().contains("does not answer"), "{error}");
        let error = stream.send(&vec![0; 1 << 24]).unwrap_err();
        assert!(error.message().contains("does not read"), "{error}");
    }
}
