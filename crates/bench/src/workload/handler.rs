//! Runs `HANDLER … READ` by primary key with a built-in client on one or many connections: as text, as a statement
//! prepared in SQL, or prepared by the client (binary protocol).

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mysql::prelude::Queryable;
use mysql::{Conn, OptsBuilder, Row, Statement};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Deserialize;

use super::burst::{Burst, BurstHandle, thread_time};
use super::client::one;
use super::rounds::{rounds, rows};
use super::{
    BlockSlices, Client, ClientFailure, Environment, Placement, Requests, TimedBlock, WorkloadKind,
    check_count, settings,
};
use crate::server::Running;
use perfquilt_config::Workload;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::CLIENT_OPERATION;
use perfquilt_model::point::Point;
use perfquilt_system::process::{check_interrupted, processor_time};

/// The table to read.
const TABLE: &str = "handler_rows";
/// Rows per INSERT.
const BATCH: u32 = 500;
/// Target length of a slice with one connection.
const SLICE_LENGTH: Duration = Duration::from_millis(1);
/// Target length of a slice with several connections. A server executes some hundred reads per millisecond, and the
/// threads are woken one after the other: 64 threads with three reads each would finish before they run
/// concurrently.
const CONCURRENT_SLICE_LENGTH: Duration = Duration::from_millis(20);
/// Slices per calibration step; the shortest one, which is the least disturbed, counts.
const CALIBRATION_SLICES: usize = 3;
/// Timeout for an answer of the server.
const READ_TIMEOUT: Duration = Duration::from_secs(120);
/// Part of the workload's identity: raised whenever the timed work changes.
const VERSION: u32 = 2;

/// The kind `handler`.
pub(super) const KIND: WorkloadKind = WorkloadKind {
    name: "handler",
    client: |workload| Ok(Box::new(HandlerClient::new(workload)?)),
};

/// `[handler]`: settings of a `HANDLER` workload.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct HandlerSettings {
    /// The table's engine.
    engine: String,
    /// How the client sends a read.
    form: HandlerForm,
    /// Number of rows in the table.
    #[serde(default = "ten_thousand")]
    rows: u32,
    /// Number of connections, each in its own client thread.
    #[serde(default = "one")]
    threads: u32,
}

/// How the client sends `HANDLER … READ`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum HandlerForm {
    /// As text.
    Text,
    /// Prepared with SQL's `PREPARE` and executed with `EXECUTE` as text.
    Prepare,
    /// Prepared through the binary protocol.
    Binary,
}

fn ten_thousand() -> u32 {
    10_000
}

/// A workload of `HANDLER` reads.
#[derive(Debug)]
struct HandlerClient {
    settings: HandlerSettings,
}

impl HandlerClient {
    fn new(workload: &Workload) -> Result<Self> {
        let settings: HandlerSettings = settings(workload)?;
        check_count(&workload.settings, "rows", settings.rows)?;
        check_count(&workload.settings, "threads", settings.threads)?;
        Ok(HandlerClient { settings })
    }
}

impl Client for HandlerClient {
    fn threads(&self) -> u32 {
        self.settings.threads
    }

    fn runs_server_programs(&self) -> bool {
        false
    }

    fn identity(&self, _bench_config: &Path) -> Result<Vec<Vec<u8>>> {
        Ok(vec![format!("{:?} {VERSION}", self.settings).into_bytes()])
    }

    fn after_start(&self, _environment: &Environment, running: &Running) -> Result<()> {
        prepare(&self.settings, running)
    }

    fn interleave(
        &self,
        environment: &Environment,
        servers: &mut [(Point, Running)],
        block: &TimedBlock<'_>,
    ) -> Result<BlockSlices, ClientFailure> {
        interleave(environment, servers, block, &self.settings)
    }

    fn connect<'a>(
        &'a self,
        _environment: &'a Environment,
        running: &Running,
        seed: u64,
    ) -> Result<Box<dyn Requests + 'a>> {
        Ok(Box::new(Reader::new(&self.settings, running, seed)?))
    }
}

/// Creates and fills the table.
fn prepare(settings: &HandlerSettings, running: &Running) -> Result<()> {
    let mut connection = connect(&running.endpoint.socket)?;
    let mut run = |statement: String| {
        connection
            .query_drop(&statement)
            .map_err(|error| refused(&error).details([shortened(&statement)]))
    };
    run(format!("DROP TABLE IF EXISTS {TABLE}"))?;
    run(format!(
        "CREATE TABLE {TABLE} (id INT UNSIGNED NOT NULL PRIMARY KEY, k INT UNSIGNED NOT NULL, \
         c CHAR(120) NOT NULL) ENGINE={}",
        settings.engine
    ))?;
    let mut next = 1;
    while next <= settings.rows {
        let last = settings.rows.min(next + BATCH - 1);
        let rows: Vec<String> = (next..=last)
            .map(|id| format!("({id},{},REPEAT('x',100))", id.wrapping_mul(2_654_435_761)))
            .collect();
        run(format!("INSERT INTO {TABLE} VALUES {}", rows.join(",")))?;
        next = last + 1;
    }
    run(format!("FLUSH TABLES {TABLE}"))
}

fn shortened(statement: &str) -> String {
    statement.chars().take(200).collect()
}

fn connect(socket: &Path) -> Result<Conn> {
    let options = OptsBuilder::new()
        .socket(Some(socket.display().to_string()))
        .user(Some("root"))
        .db_name(Some("test"))
        .read_timeout(Some(READ_TIMEOUT));
    Conn::new(options).map_err(|error| refused(&error))
}

fn refused(error: &mysql::Error) -> Error {
    Error::bench(format!(
        "the server reported an error or closed the connection: {error}"
    ))
}

/// A connection with the table opened.
struct Session {
    connection: Conn,
    form: HandlerForm,
    statement: Option<Statement>,
}

impl Session {
    fn open(socket: &Path, form: HandlerForm) -> Result<Self> {
        let mut connection = connect(socket)?;
        let mut run = |statement: &str| {
            connection
                .query_drop(statement)
                .map_err(|error| refused(&error).details([statement]))
        };
        run(&format!("HANDLER {TABLE} OPEN"))?;
        let read = format!("HANDLER {TABLE} READ `PRIMARY` = (?)");
        let statement = match form {
            HandlerForm::Text => None,
            HandlerForm::Prepare => {
                run(&format!("PREPARE one FROM '{read}'"))?;
                None
            }
            HandlerForm::Binary => Some(
                connection
                    .prep(&read)
                    .map_err(|error| refused(&error).details([read]))?,
            ),
        };
        Ok(Session {
            connection,
            form,
            statement,
        })
    }

    /// Reads the row with this id.
    fn read(&mut self, id: u32) -> Result<()> {
        let connection = &mut self.connection;
        let row: std::result::Result<Option<Row>, mysql::Error> = match (&self.statement, self.form)
        {
            (Some(statement), _) => connection.exec_first(statement, (id,)),
            (None, HandlerForm::Prepare) => {
                connection.query_first(format!("EXECUTE one USING {id}"))
            }
            (None, _) => connection.query_first(format!("HANDLER {TABLE} READ `PRIMARY` = ({id})")),
        };
        match row {
            // A patched server may send any row.
            Ok(Some(row)) if matches!(row.get_opt::<u32, _>(0), Some(Ok(found)) if found == id) => {
                Ok(())
            }
            Ok(_) => Err(Error::bench(format!("HANDLER READ did not find row {id}"))),
            Err(error) => Err(refused(&error)),
        }
    }

    fn reads(&mut self, count: u64, rows: u32, random: &mut StdRng) -> Result<()> {
        for _ in 0..count {
            self.read(random.random_range(1..=rows))?;
        }
        Ok(())
    }
}

/// A server to measure.
struct Server {
    point: Point,
    socket: PathBuf,
    pid: u32,
}

/// Times of a slice.
#[derive(Debug, Clone, Copy, Default)]
struct Slice {
    wall: Duration,
    /// Processor time of all threads of the client.
    client: Duration,
    /// Processor time of the server; zero if the kernel does not report it.
    server: Duration,
}

/// Connections to all servers, which run a slice on one of them.
trait Connections {
    /// Runs `count` reads on each connection of the server with the index `server`; `seed` determines the rows.
    fn slice(&mut self, server: usize, count: u64, seed: u64) -> Result<Slice>;
}

/// One connection per server, used by the calling thread.
struct SingleConnections {
    sessions: Vec<Session>,
    rows: u32,
}

impl Connections for SingleConnections {
    fn slice(&mut self, server: usize, count: u64, seed: u64) -> Result<Slice> {
        let mut random = StdRng::seed_from_u64(seed);
        let (started, before) = (Instant::now(), thread_time());
        self.sessions[server].reads(count, self.rows, &mut random)?;
        Ok(Slice {
            wall: started.elapsed(),
            client: thread_time().saturating_sub(before),
            server: Duration::ZERO,
        })
    }
}

/// The reads of a slice on each connection of a server.
#[derive(Debug, Clone, Copy)]
struct Reads {
    /// Index of the server.
    server: usize,
    count: u64,
    seed: u64,
}

/// Several connections per server, each with its own thread.
struct ThreadedConnections<'a> {
    threads: BurstHandle<'a, Reads>,
}

impl Connections for ThreadedConnections<'_> {
    fn slice(&mut self, server: usize, count: u64, seed: u64) -> Result<Slice> {
        let reads = Reads {
            server,
            count,
            seed,
        };
        let time = self.threads.run(reads)?;
        Ok(Slice {
            wall: time.wall,
            client: time.client,
            server: Duration::ZERO,
        })
    }
}

/// Measures all `servers`, alternating between them.
fn interleave(
    environment: &Environment,
    servers: &mut [(Point, Running)],
    item: &TimedBlock<'_>,
    settings: &HandlerSettings,
) -> Result<BlockSlices, ClientFailure> {
    let placement = environment.placement();
    for (_, running) in servers.iter() {
        placement.settle(running.pid(), settings.threads);
    }
    let servers: Vec<Server> = servers
        .iter()
        .map(|(point, running)| Server {
            point: *point,
            socket: running.endpoint.socket.clone(),
            pid: running.pid(),
        })
        .collect();
    std::thread::scope(|scope| {
        // Use a new thread, since it is moved to the processors of the servers.
        let measured = scope.spawn(|| {
            placement.settle_this_thread(settings.threads);
            match settings.threads {
                0 | 1 => measure_single(&servers, item, settings),
                _ => measure_concurrent(&servers, item, settings, placement),
            }
        });
        // Propagate a panic of the thread.
        measured
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn sessions(servers: &[Server], settings: &HandlerSettings) -> Result<Vec<Session>, ClientFailure> {
    let open = |server: &Server| {
        Session::open(&server.socket, settings.form).map_err(|error| ClientFailure {
            point: Some(server.point),
            error,
        })
    };
    servers.iter().map(open).collect()
}

fn measure_single(
    servers: &[Server],
    item: &TimedBlock<'_>,
    settings: &HandlerSettings,
) -> Result<BlockSlices, ClientFailure> {
    let mut connections = SingleConnections {
        sessions: sessions(servers, settings)?,
        rows: settings.rows,
    };
    alternate(servers, item, 1, SLICE_LENGTH, &mut connections)
}

fn measure_concurrent(
    servers: &[Server],
    item: &TimedBlock<'_>,
    settings: &HandlerSettings,
    placement: &Placement,
) -> Result<BlockSlices, ClientFailure> {
    let threads = settings.threads as usize;
    let of_threads: Vec<Vec<Session>> = (0..threads)
        .map(|_| sessions(servers, settings))
        .collect::<Result<_, _>>()?;
    let shared = Burst::new(threads);
    std::thread::scope(|scope| {
        for (number, mut sessions) in (0..).zip(of_threads) {
            let shared = &shared;
            scope.spawn(move || {
                placement.settle_this_thread(settings.threads);
                shared.serve(|reads: &Reads| {
                    let seed = reads.seed.wrapping_add(number);
                    let mut random = StdRng::seed_from_u64(seed);
                    sessions[reads.server].reads(reads.count, settings.rows, &mut random)
                });
            });
        }
        let mut connections = ThreadedConnections {
            threads: shared.handle(),
        };
        alternate(
            servers,
            item,
            u64::from(settings.threads),
            CONCURRENT_SLICE_LENGTH,
            &mut connections,
        )
    })
}

/// Runs rounds of one slice per server in random order. All servers of a round read the same rows.
fn alternate(
    servers: &[Server],
    item: &TimedBlock<'_>,
    threads: u64,
    slice_length: Duration,
    connections: &mut dyn Connections,
) -> Result<BlockSlices, ClientFailure> {
    let mut slice = |index: usize, count: u64, seed: u64| -> Result<Slice, ClientFailure> {
        let server = &servers[index];
        check_interrupted()?;
        let before = processor_time(server.pid);
        let slice = connections
            .slice(index, count, seed)
            .map_err(|error| ClientFailure {
                point: Some(server.point),
                error,
            })?;
        let after = processor_time(server.pid);
        let used = before.zip(after).and_then(|(a, b)| b.checked_sub(a));
        Ok(Slice {
            server: used.unwrap_or_default(),
            ..slice
        })
    };
    let mut random = StdRng::seed_from_u64(item.seed);
    let count = calibrate(slice_length, &mut |count| {
        slice(0, count, random.random()).map(|slice| slice.wall)
    })?;
    let rounds = rounds(
        servers.len(),
        item,
        true,
        &mut random,
        &mut |index, seed| slice(index, count, seed),
    )?;
    let points: Vec<Point> = servers.iter().map(|server| server.point).collect();
    let rows = |value: &dyn Fn(&Slice) -> Duration| {
        let nanoseconds = |slice: &Slice| value(slice).as_nanos() as f32;
        rows(&points, &rounds, count * threads, &nanoseconds)
    };
    let has_cpu = rounds.iter().flatten().any(|slice| !slice.server.is_zero());
    Ok(BlockSlices {
        time: rows(&|slice| slice.wall),
        cpu: if has_cpu {
            rows(&|slice| slice.server)
        } else {
            Vec::new()
        },
        operations: [(CLIENT_OPERATION.to_owned(), rows(&|slice| slice.client))].into(),
        rounds: rounds.len() as u64,
        ..BlockSlices::default()
    })
}

/// Returns the number of reads that takes at least `target`; `time` runs a number of reads and returns its duration.
fn calibrate<E>(
    target: Duration,
    time: &mut dyn FnMut(u64) -> Result<Duration, E>,
) -> Result<u64, E> {
    let mut count = 1u64;
    loop {
        let mut least = Duration::MAX;
        for _ in 0..CALIBRATION_SLICES {
            least = least.min(time(count)?);
        }
        if least >= target || count >= 1 << 20 {
            return Ok(count);
        }
        let more = target.as_secs_f64() / least.as_secs_f64().max(1e-9);
        count = (count as f64 * more.clamp(1.1, 4.0)).ceil() as u64;
    }
}

/// A connection that reads on request.
struct Reader {
    session: Session,
    rows: u32,
    random: StdRng,
}

impl Reader {
    fn new(settings: &HandlerSettings, running: &Running, seed: u64) -> Result<Self> {
        Ok(Reader {
            session: Session::open(&running.endpoint.socket, settings.form)?,
            rows: settings.rows,
            random: StdRng::seed_from_u64(seed),
        })
    }
}

impl Requests for Reader {
    fn run(&mut self, _running: &Running, transactions: u64) -> Result<u64> {
        self.session
            .reads(transactions, self.rows, &mut self.random)?;
        Ok(transactions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_disturbed_slice_does_not_affect_the_calibration() {
        let mut calls = 0;
        let count = calibrate::<Error>(Duration::from_millis(1), &mut |count| {
            calls += 1;
            let disturbed = Duration::from_millis(if calls == 1 { 50 } else { 0 });
            Ok(Duration::from_micros(10 * count) + disturbed)
        });
        assert!((100..=400).contains(&count.unwrap()));
    }
}
