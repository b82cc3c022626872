//! `HANDLER … READ` by primary key, as text, as a statement prepared in SQL, and prepared on the client's
//! side (binary protocol), from this program's own client on one or many connections.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use mysql::prelude::Queryable;
use mysql::{Conn, OptsBuilder, Row, Statement};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::time::{ClockId, clock_gettime};

use super::rounds::rounds;
use super::{Clients, Failure, Measured, Placement, Timed};
use crate::server::{Running, processor_time};
use perfquilt_config::{HandlerForm, HandlerWorkload};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::CLIENT_OPERATION;
use perfquilt_model::observation::Slices;
use perfquilt_model::point::Point;
use perfquilt_system::process::check_interrupted;

/// The table that is read.
const TABLE: &str = "handler_rows";
/// Rows of one INSERT.
const BATCH: u32 = 500;
/// How long a slice is to last with one connection.
const SLICE: Duration = Duration::from_millis(1);
/// How long a burst of several is to last. A server does some hundred reads a millisecond, and the threads
/// are woken one after the other: 64 that read thrice each would be done before they get into each
/// other's way.
const BURST: Duration = Duration::from_millis(20);
/// Slices of which the least disturbed tells how long one takes.
const TRIES: usize = 3;
/// The longest a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(120);
/// Part of the workload's identity: changes whenever what is timed does.
pub(super) const VERSION: u32 = 2;

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
        .db_name(Some("test"))
        .read_timeout(Some(PATIENCE));
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
            // A patched server may send anything.
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
    /// What `first` and `last` count from.
    epoch: Instant,
    /// Nanoseconds until the first thread of this slice began and until the last one ended.
    first: AtomicU64,
    last: AtomicU64,
    over: AtomicBool,
    failed: Mutex<Option<Error>>,
}

impl Shared {
    fn new(threads: usize) -> Self {
        Shared {
            begin: Barrier::new(threads + 1),
            end: Barrier::new(threads + 1),
            place: AtomicUsize::new(0),
            count: AtomicU64::new(0),
            seed: AtomicU64::new(0),
            spent: AtomicU64::new(0),
            epoch: Instant::now(),
            first: AtomicU64::new(0),
            last: AtomicU64::new(0),
            over: AtomicBool::new(false),
            failed: Mutex::default(),
        }
    }

    fn now(&self) -> u64 {
        nanoseconds(self.epoch.elapsed())
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
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
        shared.first.store(u64::MAX, Ordering::Relaxed);
        shared.last.store(0, Ordering::Relaxed);
        // The barriers order all of this. The threads tell the time: this one may be woken when they and the
        // server have long begun.
        shared.begin.wait();
        shared.end.wait();
        let (first, last) = (&shared.first, &shared.last);
        let wall = last
            .load(Ordering::Relaxed)
            .saturating_sub(first.load(Ordering::Relaxed));
        match shared
            .failed
            .lock()
            .ok()
            .and_then(|mut failed| failed.take())
        {
            Some(error) => Err(error),
            None => Ok(Slice {
                wall: Duration::from_nanos(wall),
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

/// The thread `number` of [`Many`]; `reads` does a number of them on the server at a place.
fn work(
    shared: &Shared,
    number: u64,
    mut reads: impl FnMut(usize, u64, &mut StdRng) -> Result<()>,
) {
    loop {
        shared.begin.wait();
        if shared.over.load(Ordering::Relaxed) {
            return;
        }
        let seed = shared.seed.load(Ordering::Relaxed).wrapping_add(number);
        let mut random = StdRng::seed_from_u64(seed);
        let place = shared.place.load(Ordering::Relaxed);
        let count = shared.count.load(Ordering::Relaxed);
        let (begun, before) = (shared.now(), own_time());
        // A thread that is gone would be waited for at the barriers for ever.
        let outcome = catch_unwind(AssertUnwindSafe(|| reads(place, count, &mut random)))
            .unwrap_or_else(|_| Err(Error::internal("a thread of the client failed")));
        let (ended, spent) = (shared.now(), own_time().saturating_sub(before));
        shared.first.fetch_min(begun, Ordering::Relaxed);
        shared.last.fetch_max(ended, Ordering::Relaxed);
        shared
            .spent
            .fetch_add(nanoseconds(spent), Ordering::Relaxed);
        if let Err(error) = outcome
            && let Ok(mut failed) = shared.failed.lock()
        {
            failed.get_or_insert(error);
        }
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
    let shared = Shared::new(threads);
    std::thread::scope(|scope| {
        for (number, mut sessions) in (0..).zip(of_threads) {
            let shared = &shared;
            scope.spawn(move || {
                placement.settle_this_thread(settings.threads);
                work(shared, number, |place, count, random| {
                    sessions[place].reads(count, settings.rows, random)
                });
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
    let count = enough(wanted, &mut |count| {
        slice(0, count, random.random()).map(|slice| slice.wall)
    })?;
    let rounds = rounds(
        servers.len(),
        item,
        true,
        &mut random,
        &mut |place, seed| slice(place, count, seed),
    )?;
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
        cpu: if told {
            rows(&|slice| slice.server)
        } else {
            Vec::new()
        },
        operations: [(CLIENT_OPERATION.to_owned(), rows(&|slice| slice.client))].into(),
        rounds: rounds.len() as u64,
        spoiled_rounds: 0,
    })
}

/// Reads that take as long as `wanted`; `took` does a number of them and says how long that took.
fn enough<E>(wanted: Duration, took: &mut dyn FnMut(u64) -> Result<Duration, E>) -> Result<u64, E> {
    let mut count = 1u64;
    loop {
        let mut least = Duration::MAX;
        for _ in 0..TRIES {
            least = least.min(took(count)?);
        }
        if least >= wanted || count >= 1 << 20 {
            return Ok(count);
        }
        let more = wanted.as_secs_f64() / least.as_secs_f64().max(1e-9);
        count = (count as f64 * more.clamp(1.1, 4.0)).ceil() as u64;
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A slice of threads that do `reads`.
    fn slice(threads: u32, reads: impl Fn(u32) -> Result<()> + Sync) -> Result<Slice> {
        let shared = Shared::new(threads as usize);
        std::thread::scope(|scope| {
            for number in 0..threads {
                let (shared, reads) = (&shared, &reads);
                scope.spawn(move || work(shared, u64::from(number), |_, _, _| reads(number)));
            }
            Many { shared: &shared }.slice(0, 1, 7)
        })
    }

    #[test]
    fn a_burst_lasts_from_the_first_that_begins_to_the_last_that_ends() {
        let times: Mutex<Vec<Instant>> = Mutex::default();
        let outcome = slice(3, |number| {
            let note = || times.lock().unwrap().push(Instant::now());
            note();
            std::thread::sleep(Duration::from_millis(2) * number);
            note();
            Ok(())
        });
        let times = times.into_inner().unwrap();
        let all = *times.iter().max().unwrap() - *times.iter().min().unwrap();
        assert!(outcome.unwrap().wall >= all);
    }

    #[test]
    fn a_thread_that_fails_ends_the_burst() {
        let outcome = slice(3, |number| match number {
            1 => Err(Error::bench("no row 5")),
            _ => Ok(()),
        });
        assert_eq!(outcome.unwrap_err().message(), "no row 5");
        let outcome = slice(2, |number| {
            assert!(number != 1, "as a library might");
            Ok(())
        });
        assert!(outcome.is_err());
    }

    #[test]
    fn one_disturbed_slice_does_not_decide_how_many_reads_are_enough() {
        let mut calls = 0;
        let count = enough::<Error>(Duration::from_millis(1), &mut |count| {
            calls += 1;
            let disturbed = Duration::from_millis(if calls == 1 { 50 } else { 0 });
            Ok(Duration::from_micros(10 * count) + disturbed)
        });
        assert!((100..=400).contains(&count.unwrap()));
    }
}
