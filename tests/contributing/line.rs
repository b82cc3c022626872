//! Runs requests of one line, each answered by one line, over a server's Unix socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::Deserialize;

use super::{
    BlockSlices, Client, ClientFailure, Environment, Requests, TimedBlock, WorkloadKind,
    check_count, rounds, rows, settings,
};
use crate::server::Running;
use perfquilt_config::Workload;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::point::Point;

/// The kind `line`.
pub(super) const KIND: WorkloadKind = WorkloadKind {
    name: "line",
    client: |workload| Ok(Box::new(LineClient::new(workload)?)),
};

/// `[line]`: settings of a workload of lines.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LineSettings {
    /// The request, without the end of the line.
    request: String,
    /// Requests in one slice.
    slice: u32,
}

/// A workload of lines.
#[derive(Debug)]
struct LineClient {
    settings: LineSettings,
}

impl LineClient {
    fn new(workload: &Workload) -> Result<Self> {
        let settings: LineSettings = settings(workload)?;
        check_count(&workload.settings, "slice", settings.slice)?;
        Ok(LineClient { settings })
    }
}

impl Client for LineClient {
    fn identity(&self) -> Result<Vec<Vec<u8>>> {
        Ok(vec![format!("{:?}", self.settings).into_bytes()])
    }

    fn interleave(
        &self,
        environment: &Environment,
        servers: &mut [(Point, Running)],
        block: &TimedBlock<'_>,
    ) -> Result<BlockSlices, ClientFailure> {
        let mut connections = Vec::new();
        for (_, running) in servers.iter() {
            environment.placement.settle(running.pid(), 1);
            connections.push(Connection::open(running, &self.settings.request)?);
        }
        let mut slice = |server: usize, _seed: u64| -> Result<Duration, ClientFailure> {
            let started = Instant::now();
            let sent = connections[server].send(self.settings.slice.into());
            sent.map_err(|error| ClientFailure {
                point: Some(servers[server].0),
                error,
            })?;
            Ok(started.elapsed())
        };
        let mut random = StdRng::seed_from_u64(block.seed);
        let rounds = rounds(servers.len(), block, true, &mut random, &mut slice)?;
        let points: Vec<Point> = servers.iter().map(|(point, _)| *point).collect();
        let transactions = self.settings.slice.into();
        let nanoseconds = |slice: &Duration| slice.as_nanos() as f32;
        Ok(BlockSlices {
            time: rows(&points, &rounds, transactions, &nanoseconds),
            rounds: rounds.len() as u64,
            ..BlockSlices::default()
        })
    }

    fn connect<'a>(
        &'a self,
        _environment: &'a Environment,
        running: &Running,
        _seed: u64,
    ) -> Result<Box<dyn Requests + 'a>> {
        let connection = Connection::open(running, &self.settings.request)?;
        Ok(Box::new(connection))
    }
}

/// A connection to a server.
struct Connection {
    stream: BufReader<UnixStream>,
    request: String,
}

impl Connection {
    fn open(running: &Running, request: &str) -> Result<Self> {
        let stream = UnixStream::connect(&running.endpoint.socket).map_err(failed)?;
        Ok(Connection {
            stream: BufReader::new(stream),
            request: format!("{request}\n"),
        })
    }

    fn send(&mut self, requests: u64) -> Result<()> {
        let mut answer = String::new();
        for _ in 0..requests {
            answer.clear();
            let stream = self.stream.get_mut();
            stream.write_all(self.request.as_bytes()).map_err(failed)?;
            self.stream.read_line(&mut answer).map_err(failed)?;
            if !answer.ends_with('\n') {
                return Err(Error::client_failed("the server closed the connection"));
            }
        }
        Ok(())
    }
}

impl Requests for Connection {
    fn run(&mut self, _running: &Running, transactions: u64) -> Result<u64> {
        self.send(transactions).map(|()| transactions)
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::client_failed(format!("the connection to the server failed: {error}"))
}
