//! `HANDLER … READ` by primary key, as text, as a statement prepared in SQL, and prepared on the client's
//! side (binary protocol), from this program's own client on one or many connections.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use mysql::prelude::Queryable;
use mysql::{Conn, OptsBuilder, Row, Statement};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rustix::time::{ClockId, clock_gettime};

use super::{Clients, Failure, Measured, Placement, Timed};
use crate::config::{HandlerForm, HandlerWorkload};
use crate::error::{Error, Result};
use crate::observation::CLIENT_OPERATION;
use crate::point::Point;
use crate::process::check_interrupted;
use crate::server::{Running, processor_time};
use crate::stats::Slices;

/// The table that is read.
const TABLE: &str = "handler_rows";
/// Rows of one INSERT.
const BATCH: u32 = 500;
/// How long a slice is to last with one connection, and with several, which are to get into each other's way.
const SLICE: Duration = Duration::from_millis(1);
const BURST: Duration = Duration::from_millis(20);

/// Makes and fills the table.
pub(super) fn prepare(settings: &HandlerWorkload, running: &Running) -> Result<()> {
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
        .db_name(Some("test"));
    Conn::new(options).map_err(|error| refused(&error))
}

fn refused(error: &mysql::Error) -> Error {
    Error::bench(format!("the server refused or went away: {error}"))
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
            Ok(Some(row)) if row.get::<u32, _>(0) == Some(id) => Ok(()),
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

/// What a slice took.
#[derive(Debug, Clone, Copy, Default)]
struct Slice {
    wall: Duration,
    /// Of the client, all its threads together.
    client: Duration,
    /// Of the server's threads; zero where the kernel does not tell.
    server: Duration,
}

/// Connections to all servers that do a slice on one of them.
trait Connections {
    /// Has `count` reads done on each connection of the server at `place`; which, `seed` decides.
    fn slice(&mut self, place: usize, count: u64, seed: u64) -> Result<Slice>;
}

/// The processor time of the calling thread.
fn own_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// One connection a server.
struct One {
    sessions: Vec<Session>,
    rows: u32,
}

impl Connections for One {
    fn slice(&mut self, place: usize, count: u64, seed: u64) -> Result<Slice> {
        let mut random = StdRng::seed_from_u64(seed);
        let (started, before) = (Instant::now(), own_time());
        self.sessions[place].reads(count, self.rows, &mut random)?;
        Ok(Slice {
            wall: started.elapsed(),
            client: own_time().saturating_sub(before),
            server: Duration::ZERO,
        })
    }
}

/// What the threads of [`Many`] are told and tell.
struct Shared {
    begin: Barrier,
    end: Barrier,
    place: AtomicUsize,
    count: AtomicU64,
    seed: AtomicU64,
    /// Nanoseconds of processor time of the threads in this slice.
    spent: AtomicU64,
    over: AtomicBool,
    failed: Mutex<Option<Error>>,
}

/// Several connections a server, a thread each.
struct Many<'a> {
    shared: &'a Shared,
}

impl Connections for Many<'_> {
    fn slice(&mut self, place: usize, count: u64, seed: u64) -> Result<Slice> {
        let shared = self.shared;
        shared.place.store(place, Ordering::Relaxed);
        shared.count.store(count, Ordering::Relaxed);
        shared.seed.store(seed, Ordering::Relaxed);
        shared.spent.store(0, Ordering::Relaxed);
        // The barriers order all of this.
        shared.begin.wait();
        let started = Instant::now();
        shared.end.wait();
        let wall = started.elapsed();
        match shared
            .failed
            .lock()
            .ok()
            .and_then(|mut failed| failed.take())
        {
            Some(error) => Err(error),
            None => Ok(Slice {
                wall,
                client: Duration::from_nanos(shared.spent.load(Ordering::Relaxed)),
                server: Duration::ZERO,
            }),
        }
    }
}

impl Drop for Many<'_> {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        self.shared.begin.wait();
    }
}

/// A thread of [`Many`], with a connection to each server.
fn work(shared: &Shared, mut sessions: Vec<Session>, rows: u32, number: u64) {
    loop {
        shared.begin.wait();
        if shared.over.load(Ordering::Relaxed) {
            return;
        }
        let before = own_time();
        let seed = shared.seed.load(Ordering::Relaxed).wrapping_add(number);
        let mut random = StdRng::seed_from_u64(seed);
        let place = shared.place.load(Ordering::Relaxed);
        let count = shared.count.load(Ordering::Relaxed);
        if let Err(error) = sessions[place].reads(count, rows, &mut random)
            && let Ok(mut failed) = shared.failed.lock()
        {
            failed.get_or_insert(error);
        }
        let spent = own_time().saturating_sub(before).as_nanos();
        let spent = u64::try_from(spent).unwrap_or(u64::MAX);
        shared.spent.fetch_add(spent, Ordering::Relaxed);
        shared.end.wait();
    }
}

/// Measures on all `servers`, alternating.
pub(super) fn interleave(
    clients: &Clients,
    servers: &mut [(Point, Running)],
    item: &Timed<'_>,
    settings: &HandlerWorkload,
) -> Result<Measured, Failure> {
    let placement = clients.placement();
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
        // A thread of its own, since it is moved to where servers are measured.
        let measured = scope.spawn(|| {
            placement.settle_this_thread(settings.threads);
            match settings.threads {
                0 | 1 => alone(&servers, item, settings),
                _ => together(&servers, item, settings, placement),
            }
        });
        // A panic goes on where it would have without threads.
        measured
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn sessions(servers: &[Server], settings: &HandlerWorkload) -> Result<Vec<Session>, Failure> {
    let open = |server: &Server| {
        Session::open(&server.socket, settings.form).map_err(|error| Failure {
            point: Some(server.point),
            error,
        })
    };
    servers.iter().map(open).collect()
}

fn alone(
    servers: &[Server],
    item: &Timed<'_>,
    settings: &HandlerWorkload,
) -> Result<Measured, Failure> {
    let mut connections = One {
        sessions: sessions(servers, settings)?,
        rows: settings.rows,
    };
    take_turns(servers, item, 1, SLICE, &mut connections)
}

fn together(
    servers: &[Server],
    item: &Timed<'_>,
    settings: &HandlerWorkload,
    placement: &Placement,
) -> Result<Measured, Failure> {
    let threads = settings.threads as usize;
    let of_threads: Vec<Vec<Session>> = (0..threads)
        .map(|_| sessions(servers, settings))
        .collect::<Result<_, _>>()?;
    let shared = Shared {
        begin: Barrier::new(threads + 1),
        end: Barrier::new(threads + 1),
        place: AtomicUsize::new(0),
        count: AtomicU64::new(0),
        seed: AtomicU64::new(0),
        spent: AtomicU64::new(0),
        over: AtomicBool::new(false),
        failed: Mutex::default(),
    };
    std::thread::scope(|scope| {
        for (number, sessions) in (0..).zip(of_threads) {
            let shared = &shared;
            scope.spawn(move || {
                placement.settle_this_thread(settings.threads);
                work(shared, sessions, settings.rows, number);
            });
        }
        let mut connections = Many { shared: &shared };
        take_turns(
            servers,
            item,
            u64::from(settings.threads),
            BURST,
            &mut connections,
        )
    })
}

/// Rounds of one slice a server in random order, each server of a round reading the same rows.
fn take_turns(
    servers: &[Server],
    item: &Timed<'_>,
    threads: u64,
    wanted: Duration,
    connections: &mut dyn Connections,
) -> Result<Measured, Failure> {
    let mut slice = |place: usize, count: u64, seed: u64| -> Result<Slice, Failure> {
        let server = &servers[place];
        check_interrupted()?;
        let before = processor_time(server.pid);
        let slice = connections
            .slice(place, count, seed)
            .map_err(|error| Failure {
                point: Some(server.point),
                error,
            })?;
        let after = processor_time(server.pid);
        let server = before.zip(after).and_then(|(a, b)| b.checked_sub(a));
        Ok(Slice {
            server: server.unwrap_or_default(),
            ..slice
        })
    };
    let mut random = StdRng::seed_from_u64(item.seed);
    let mut count = 1u64;
    loop {
        let took = slice(0, count, random.random())?.wall;
        if took >= wanted || count >= 1 << 20 {
            break;
        }
        let more = wanted.as_secs_f64() / took.as_secs_f64().max(1e-9);
        count = (count as f64 * more.clamp(1.1, 4.0)).ceil() as u64;
    }
    let mut order: Vec<usize> = (0..servers.len()).collect();
    let mut round = |random: &mut StdRng| -> Result<Vec<Slice>, Failure> {
        order.shuffle(random);
        let seed = random.random();
        let mut slices = vec![Slice::default(); order.len()];
        for &place in &order {
            slices[place] = slice(place, count, seed)?;
        }
        Ok(slices)
    };
    let started = Instant::now();
    while started.elapsed().as_secs_f64() < item.warm_up_seconds {
        round(&mut random)?;
    }
    let started = Instant::now();
    let mut rounds = Vec::new();
    while rounds.len() < 2 || started.elapsed().as_secs_f64() < item.seconds {
        rounds.push(round(&mut random)?);
    }
    let rows = |value: &dyn Fn(&Slice) -> Duration| -> Vec<Slices> {
        let row = |(place, server): (usize, &Server)| Slices {
            point: server.point,
            nanoseconds: rounds
                .iter()
                .map(|round: &Vec<Slice>| value(&round[place]).as_nanos() as f32)
                .collect(),
            transactions_per_slice: count * threads,
        };
        servers.iter().enumerate().map(row).collect()
    };
    let told = rounds.iter().flatten().any(|slice| !slice.server.is_zero());
    Ok(Measured {
        time: rows(&|slice| slice.wall),
        cpu: match told {
            true => rows(&|slice| slice.server),
            false => Vec::new(),
        },
        operations: [(CLIENT_OPERATION.to_owned(), rows(&|slice| slice.client))].into(),
        rounds: rounds.len() as u64,
        spoiled_rounds: 0,
    })
}

/// One connection that reads on request.
pub(super) struct Reader {
    session: Session,
    rows: u32,
    random: StdRng,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

impl Reader {
    pub(super) fn new(settings: &HandlerWorkload, running: &Running, seed: u64) -> Result<Self> {
        Ok(Reader {
            session: Session::open(&running.endpoint.socket, settings.form)?,
            rows: settings.rows,
            random: StdRng::seed_from_u64(seed),
        })
    }

    pub(super) fn reads(&mut self, count: u64) -> Result<u64> {
        self.session.reads(count, self.rows, &mut self.random)?;
        Ok(count)
    }
}
