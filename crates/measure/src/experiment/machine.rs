//! The executor for this machine: real servers, real clients.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};

use super::executor::{BlockJob, Event, Executor, Lane, Report};
use super::fleet::{StartFolders, with_fleet};
use super::lanes;
use super::lengths::share;
use super::links::Links;
use super::plan::{Block, BlockKind, Reading};
use super::private::{copy, private_copy, room};
use super::servers::{Server, Servers};
use perfquilt_bench::cpu_quota::ControlGroups;
use perfquilt_bench::inputs::{Inputs, Records, Trace};
use perfquilt_bench::meter::{CountResult, CountedWork, Counter};
use perfquilt_bench::server::{
    self, Instrumentation, Launch, Running, Scratch, ServerAdapter, ServerSpace,
};
use perfquilt_bench::turns::Turns;
use perfquilt_bench::workload::{
    self, BlockSlices, ClientFailure, Clients, HostMonitor, Standstill, StandstillWatch,
    TimedBlock, allowed_cpus, pin_this_thread,
};
use perfquilt_build::{ChangedCode, Relink};
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{Lanes, Layouts, Workload};
use perfquilt_judge::attribution::Unexecuted;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::observation::{ExperimentHeader, HostSample, Meter, UnexecutedPatch};
use perfquilt_model::point::Point;
use perfquilt_model::progress;
use perfquilt_model::warning::Warning;
use perfquilt_system::caches;
use perfquilt_system::locks::Lock;
use perfquilt_system::mounts::may_execute;
use perfquilt_system::process::{check_interrupted, missing};
use perfquilt_system::threads;

/// Seconds of uncounted load before a timed workload, for up to six servers: caches, branch predictors and the servers'
/// own memory pools settle well within that time.
const WARM_UP_SECONDS: f64 = 0.3;
/// How often a block, or a round of it, is measured again because something stood still. A machine that never stops doing so is measured as it
/// is.
const MOST_STANDSTILLS: u64 = 5;
/// The number of starts that one count may take until no counted transaction has to be restarted.
const COUNT_TRIES: u32 = 3;

/// The question whether a workload executes some code.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExecutionQuestion {
    /// The point whose server has the code.
    pub point: Point,
    /// The code.
    pub code: ChangedCode,
    /// The workload.
    pub workload: String,
    /// How long it runs.
    pub seconds: f64,
}

/// How the blocks of an experiment are measured, on this machine or on others.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setup {
    /// The experiment's header, whose harness a machine's must equal; the servers of its release prepare the data.
    pub header: ExperimentHeader,
    /// The patches that workloads need not be timed on.
    pub unexecuted: Vec<UnexecutedPatch>,
    /// How the servers' code layouts vary.
    pub layouts: Layouts,
    /// The points' servers; the base's is among them.
    pub servers: Servers,
    /// Seconds that one timed block measures a workload, for up to six servers together.
    pub block_seconds: f64,
    /// The measured executable inside a server's folder.
    pub binary: Option<String>,
    /// The requested counting meters.
    pub count_meters: Vec<Meter>,
    /// Whether timed blocks read what the servers count themselves.
    pub reads_storage: bool,
    /// The most servers that run at once on one lane.
    pub most_servers: usize,
}

/// Why a server has no counts.
enum CountFault {
    /// The server failed, or the machine.
    Server(Error),
    /// The server runs, and this workload failed on it.
    Workload(String, Error),
}

/// The points whose server could not be prepared, with the error.
type Failures = Vec<(Point, Error)>;

/// This machine: the settings and folders that all lanes share.
pub struct ThisMachine<'a> {
    ws: &'a Workspace,
    setup: Setup,
    workloads: &'a [Workload],
    unexecuted: Unexecuted,
    adapter: Box<dyn ServerAdapter>,
    template: PathBuf,
    /// Data templates of servers that have data of their own.
    templates: BTreeMap<Point, PathBuf>,
    counter: Option<Counter>,
    /// The files that clients and wrappers read, as they are when measuring begins.
    inputs: Inputs,
    scratch: Scratch,
    turns: Turns,
    /// The folder for executables if they cannot be beside the data.
    programs: Option<Scratch>,
    links: Links,
    /// The processors of each lane.
    lanes: Vec<Vec<usize>>,
    /// The processes beside servers that the user knows of.
    told_of_helpers: Mutex<BTreeSet<String>>,
    /// The server and clients of which is not known what they read beyond what is named.
    untraced: Vec<String>,
}

/// The server, or the client of a workload, with the files that it is known to read, and the records of what it is seen to read.
type Untraced<'a> = (Option<&'a Workload>, Inputs, Records);

/// The span of a part of a block; `--verbose` logs how long each took.
fn phase(name: &'static str) -> tracing::Span {
    tracing::debug_span!("block", phase = name)
}

/// Names the server, or the client of a workload.
fn whose(workload: Option<&Workload>) -> String {
    workload.map_or("the server".to_owned(), |workload| {
        format!("the client of {}", workload.name)
    })
}

impl<'a> ThisMachine<'a> {
    /// Prepares the data with the base's server, unless it exists, and folders for the servers of all `lanes`.
    pub fn new(
        ws: &'a Workspace,
        workloads: &'a [Workload],
        lanes: Lanes,
        mut setup: Setup,
    ) -> Result<Self> {
        // The layouts of one seed are common to all servers.
        let servers = setup.servers.values_mut();
        let relinks = servers.filter_map(|server| server.relink.as_mut());
        Relink::align(&mut relinks.collect::<Vec<_>>());
        let adapter = server::adapter(ws)?;
        let mut inputs = Inputs::default();
        let mut untraced = Vec::new();
        let clients = workloads.iter().map(Some);
        for client in std::iter::once(None).chain(clients) {
            let known = match client {
                None => server::inputs(ws, adapter.as_ref())?,
                Some(workload) => workload::inputs(ws, workload)?,
            };
            match known {
                (read, None) => inputs.extend(read),
                (read, Some(records)) => untraced.push((client, read, records)),
            }
        }
        for server in setup.servers.values() {
            inputs.add_server(&server.dir)?;
        }
        let release = &setup.header.release;
        let clients = Clients::new(ws, release, workloads)?;
        let counter = if setup.count_meters.is_empty() {
            None
        } else {
            Some(Counter::detect()?.only(&setup.count_meters))
        };
        let base = setup
            .servers
            .get(&Point::BASE)
            .ok_or_else(|| Error::internal("the base is not among the servers to measure"))?;
        let template_of = |data: (&str, &Path)| clients.template(ws, adapter.as_ref(), data);
        let mut templates = BTreeMap::new();
        for (&point, server) in &setup.servers {
            if let Some((name, by)) = &server.data {
                templates.insert(point, template_of((name, by))?);
            }
        }
        // Of the release's own server, unless the base was built elsewhere.
        let template = match templates.get(&Point::BASE) {
            Some(template) => template.clone(),
            None => template_of((release, &base.dir))?,
        };
        let threads = |workload| clients.threads(workload);
        let threads = workloads.iter().map(threads).max().unwrap_or(1);
        let executable = setup.binary.as_ref().map_or(0, |binary| {
            room(&setup.servers, binary, allowed_cpus().len())
        });
        let servers = ServerSpace {
            servers: setup.most_servers,
            bytes: caches::size(&template).saturating_add(executable),
        };
        let wanted = lanes::wanted(ws.config.server.disk, lanes);
        let quota = ControlGroups::of_this_process().quota();
        let quota = quota.filter(|quota| quota.processors < allowed_cpus().len() as f64);
        let possible = workload::lanes(threads);
        let possible = lanes::within_quota(possible, threads, quota.as_ref());
        let lanes = lanes::choose(wanted, possible, &servers)?;
        if let Some(quota) = &quota {
            progress::warn(Warning::quota(lanes::describe_quota(quota)));
        }
        let scratch = Scratch::open(ws, servers.times(lanes.len()))?;
        // Containers often mount the RAM disk noexec.
        let programs = if may_execute(scratch.path()) {
            None
        } else {
            Some(Scratch::within(&ws.cache().join("run"))?)
        };
        let mut machine = ThisMachine {
            ws,
            unexecuted: Unexecuted::of(&setup.header, &setup.unexecuted),
            setup,
            workloads,
            adapter,
            template,
            templates,
            counter,
            inputs,
            turns: Turns::new(ws, &scratch),
            scratch,
            programs,
            links: Links::default(),
            lanes,
            told_of_helpers: Mutex::default(),
            untraced: Vec::new(),
        };
        machine.observe(&clients, untraced)?;
        Ok(machine)
    }

    /// Adds to the inputs what the server and clients `untraced` read: each of these clients runs its commands once on a server
    /// of the base, or the server starts alone, to see which files they open.
    fn observe(&mut self, clients: &Clients, untraced: Vec<Untraced<'_>>) -> Result<()> {
        if untraced.is_empty() {
            return Ok(());
        }
        let folder = self.scratch.fresh()?;
        std::fs::create_dir_all(&folder).map_err(|e| Error::io("create", &folder, &e))?;
        let out = |index: usize| folder.join(format!("{index}-"));
        let server = untraced
            .iter()
            .position(|(client, ..)| client.is_none())
            .map(out);
        let traced = untraced.iter().enumerate().map(|(index, (workload, ..))| {
            if workload.is_some() || untraced.len() == 1 {
                let step = format!("trace {}", whose(*workload));
                let step = progress::begin(&step, None);
                self.run_traced(clients, *workload, (server.as_deref(), &out(index)))?;
                step.finish("");
            }
            Ok(())
        });
        let traced: Vec<Result<()>> = traced.collect();
        check_interrupted()?;
        let base = &self.setup.servers[&Point::BASE].dir;
        let (state, cache) = (self.ws.state(), self.ws.cache());
        let others = [self.scratch.path(), clients.folder(), base, &state, cache];
        let traces = traced.into_iter().enumerate().map(|(index, traced)| {
            let trace = traced.and_then(|()| Trace::read(&out(index), &others))?;
            if trace.is_empty() {
                return Err(Error::meter_failed("strace may trace nothing here"));
            }
            Ok(trace)
        });
        let mut traces: Vec<Result<Trace>> = traces.collect();
        let _ = std::fs::remove_dir_all(&folder);
        // What one of them writes for another is no input.
        let written: BTreeSet<PathBuf> = traces.iter().flatten().flat_map(Trace::written).collect();
        let mut reason = None;
        for ((workload, mut read, records), trace) in untraced.into_iter().zip(&mut traces) {
            match trace {
                Ok(trace) => records.remember(&mut read, trace, &written)?,
                Err(error) => {
                    reason.get_or_insert(error.message().to_owned());
                    self.untraced.push(whose(workload));
                }
            }
            self.inputs.extend(read);
        }
        if let Some(reason) = reason {
            progress::warn(Warning::untraced(format!(
                "what is read by {} is known only as far as commands and `inputs` name it, because it cannot be traced: {reason}",
                self.untraced.join(" and ")
            )));
        }
        Ok(())
    }

    /// Starts a server of the base, traced into files that begin with `server`, if it is given, and runs the commands of
    /// `workload` on it, traced into files that begin with `client`.
    fn run_traced(
        &self,
        clients: &Clients,
        workload: Option<&Workload>,
        (server, client): (Option<&Path>, &Path),
    ) -> Result<()> {
        let tracer = Trace::words(client).ok_or_else(|| missing("strace"))?;
        let dir = self.scratch.fresh()?;
        let base = &self.setup.servers[&Point::BASE];
        let mut launch = Launch::new(&base.label, &base.dir, &dir);
        launch.template = Some(&self.template);
        if let Some(out) = server.map(Path::to_path_buf) {
            launch.instrumentation = Instrumentation::Traced { out };
        }
        let running = self.adapter.start(&launch)?;
        workload.map_or(Ok(()), |workload| clients.trace(workload, &running, tracer))
    }

    /// Returns whether workloads execute code, for each of `questions` in their order; `None` where that could not be
    /// found out. All lanes answer side by side.
    pub fn executes(&self, questions: &[ExecutionQuestion]) -> Result<Vec<Option<bool>>> {
        let lanes = self.lanes.len();
        let answers = side_by_side(lanes, questions.len(), &|lane, index| {
            // The thread of a lane stays on the lane's processors.
            pin_this_thread(&self.lanes[lane]);
            self.executes_on(&self.lanes[lane], &questions[index])
        });
        answers.into_iter().collect()
    }

    /// Returns whether a workload, run on a lane for some seconds, executes any of the code: in any thread, from the
    /// start of the server on. Returns `None` where this could not be found out, which another attempt may: after a
    /// start that took too long, or a failure of the machine.
    fn executes_on(&self, cpus: &[usize], question: &ExecutionQuestion) -> Result<Option<bool>> {
        let survives = || self.lane(cpus)?.survives(question);
        match survives() {
            Ok(()) => Ok(Some(false)),
            Err(error) if error.kind() == Kind::Interrupted => Err(error),
            Err(error) => {
                check_interrupted()?;
                let server_ended =
                    error.kind() == Kind::Bench && error.exceeded_start_timeout().is_none();
                Ok(server_ended.then_some(true))
            }
        }
    }

    /// Returns the lane on these processors.
    fn lane(&self, cpus: &[usize]) -> Result<MachineLane<'_>> {
        Ok(MachineLane {
            machine: self,
            clients: Clients::new(self.ws, &self.setup.header.release, self.workloads)?,
            cpus: cpus.to_vec(),
        })
    }

    /// Warns, once for each name, of processes that run beside a server.
    fn tell_of_helpers(&self, running: &Running) {
        for helper in running.helpers() {
            if threads::lock(&self.told_of_helpers).insert(helper.clone()) {
                progress::warn(Warning::helper(format!(
                    "the server of {} keeps `{}` running outside of its process tree: no figure contains its cost, and it ends with the server",
                    running.label,
                    helper.escape_default()
                )));
            }
        }
    }
}

impl Executor for ThisMachine<'_> {
    fn lanes(&self) -> u32 {
        u32::try_from(self.lanes.len()).unwrap_or(1)
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let list = |cpus: &Vec<usize>| {
            let cpus: Vec<String> = cpus.iter().map(usize::to_string).collect();
            cpus.join("+")
        };
        let lanes: Vec<String> = self.lanes.iter().map(list).collect();
        let many =
            (lanes.len() > 1).then(|| format!("{} (processors {})", lanes.len(), lanes.join(", ")));
        let untraced = (!self.untraced.is_empty()).then(|| {
            let whose = self.untraced.join(" and of ");
            format!("of {whose}, only those that commands and `inputs` name")
        });
        let facts = [("lanes", many), ("known inputs", untraced)];
        let known = facts
            .into_iter()
            .filter_map(|(name, fact)| Some((name.to_owned(), fact?)));
        known.collect()
    }

    fn open(&self, number: u32) -> Result<Box<dyn Lane + '_>> {
        let cpus = &self.lanes[number as usize];
        // Links, servers and clients of this lane inherit its processors.
        pin_this_thread(cpus);
        Ok(Box::new(self.lane(cpus)?))
    }
}

/// A lane: processors of this machine with servers and clients of their own.
struct MachineLane<'m> {
    machine: &'m ThisMachine<'m>,
    clients: Clients,
    cpus: Vec<usize>,
}

impl<'m> MachineLane<'m> {
    fn template(&self, point: Point) -> &Path {
        let machine = self.machine;
        machine.templates.get(&point).unwrap_or(&machine.template)
    }

    fn workload(&self, name: &str) -> Result<&'m Workload> {
        let mut workloads = self.machine.workloads.iter();
        workloads
            .find(|workload| workload.name == name)
            .ok_or_else(|| Error::internal(format!("no workload `{name}`")))
    }

    fn server(&self, point: Point) -> Result<&'m Server> {
        self.machine
            .setup
            .servers
            .get(&point)
            .ok_or_else(|| Error::internal(format!("no server for point {point}")))
    }

    /// Describes a start of a point's server in these folders.
    fn launch<'s>(&'s self, point: Point, folders: &'s StartFolders) -> Result<Launch<'s>> {
        let label = &self.server(point)?.label;
        let mut launch = Launch::new(label, &folders.server, &folders.dir);
        launch.template = Some(self.template(point));
        Ok(launch)
    }

    /// Times the workloads of a block. One that fails leaves servers that have done unequal work, so the workloads after it
    /// are timed on servers that are started anew.
    fn timed(&self, block: &Block, report: &mut Report<'_>) -> Result<()> {
        let mut block = block.clone();
        let mut lost = BTreeSet::new();
        while !block.workloads.is_empty() {
            let mut noting = |event: Event| {
                if let Event::Failed { point, .. } = &event {
                    lost.insert(*point);
                }
                report(event)
            };
            let Some(failed) = self.timed_until_failure(&block, &mut noting)? else {
                break;
            };
            block.workloads.drain(..=failed);
            block.points.retain(|point| !lost.contains(point));
        }
        Ok(())
    }

    /// Times the workloads of a block in order. Returns the place of the first one that failed.
    fn timed_until_failure(&self, block: &Block, report: &mut Report<'_>) -> Result<Option<usize>> {
        // Linking keeps all processors busy and would disturb another process that measures.
        let turn = phase("wait").in_scope(|| self.turn())?;
        let (folders, failures) = phase("link").in_scope(|| self.private_folders(block));
        let forget_links = || {
            let servers = block.servers().into_iter().filter(|_| !block.again);
            let seeds = servers.map(|(point, copy)| block.layout(point, copy));
            self.machine.links.forget(&seeds.collect::<Vec<_>>());
        };
        forget_links();
        let launches = folders
            .iter()
            .map(|(point, folders)| Ok((*point, self.launch(*point, folders)?)))
            .collect::<Result<Vec<_>>>()?;
        for (point, error) in failures {
            failed(point, error, report)?;
        }
        let renew = |index: usize, error: &Error| {
            let point = launches[index].0;
            // Copies of a point have layouts of their own.
            let before = launches[..index]
                .iter()
                .filter(|(other, _)| *other == point);
            let copy = u32::try_from(before.count()).unwrap_or(0);
            let folders = self.private_folders_of(point, block.layout(point, copy))?;
            progress::note(&format!("{}; restarting it once", error.message()));
            Ok(folders)
        };
        let adapter = self.machine.adapter.as_ref();
        let mut starting = Some(phase("start").entered());
        let outcome = with_fleet(adapter, &launches, &renew, |outcomes| {
            starting.take();
            let mut servers = Vec::with_capacity(outcomes.len());
            for (point, outcome) in outcomes {
                match outcome {
                    Ok(running) => servers.push((point, running)),
                    Err(error) => failed(point, error, report)?,
                }
            }
            let place = self.time_workloads(block, &mut servers, report);
            phase("stop").in_scope(|| drop(servers));
            place
        });
        drop(turn);
        // A second start has linked again.
        forget_links();
        outcome
    }

    /// Times the workloads of a block in order on its running servers. Returns the place of the first one that failed.
    fn time_workloads(
        &self,
        block: &Block,
        servers: &mut Vec<(Point, Running)>,
        report: &mut Report<'_>,
    ) -> Result<Option<usize>> {
        for (place, name) in block.workloads.iter().enumerate() {
            check_interrupted()?;
            let workload = self.workload(name)?;
            // The points that are the same program for the workload rest.
            let points: Vec<Point> = servers.iter().map(|(point, _)| *point).collect();
            let left_out = match block.kind {
                BlockKind::EndToEnd => BTreeMap::new(),
                _ => self.machine.unexecuted.untimed_points(name, &points),
            };
            let rests = |(point, _): &mut (Point, Running)| left_out.contains_key(point);
            let mut resting: Vec<_> = servers.extract_if(.., rests).collect();
            let prepared = phase("prepare").in_scope(|| self.prepare(servers, workload, report))?;
            let share = share(servers.len());
            let item = TimedBlock {
                workload,
                seconds: share * self.machine.setup.block_seconds,
                warm_up_seconds: share * WARM_UP_SECONDS,
                seed: block.seed.wrapping_add(place as u64),
                attempt: 0,
                monitor: None,
            };
            let mut measure = || {
                let measured = phase("measure").in_scope(|| self.measure(servers, &item, report));
                measured.and_then(|measured| self.machine.inputs.check().map(|()| measured))
            };
            let workload = name.clone();
            match prepared.map_or_else(|error| Ok(Err(error)), |()| measure())? {
                Ok(None) => {}
                Ok(Some((measured, sample))) => report(Event::Timed {
                    workload,
                    measured,
                    sample: Some(sample),
                })?,
                Err(error) => {
                    report(Event::WorkloadFailed { workload, error })?;
                    return Ok(Some(place));
                }
            }
            servers.append(&mut resting);
            servers.sort_by_key(|(point, _)| block.points.iter().position(|other| other == point));
        }
        Ok(None)
    }

    /// Waits for the lane's turn on its processors.
    fn turn(&self) -> Result<Vec<Lock>> {
        self.machine.turns.take(&self.cpus)
    }

    /// Makes a folder for each start with a private server in it, on all processors at once. Returns the
    /// folders, and the points whose server could not be made.
    fn private_folders(&self, block: &Block) -> (Vec<(Point, StartFolders)>, Failures) {
        let servers = block.servers();
        let made = side_by_side(allowed_cpus().len(), servers.len(), &|_, index| {
            let (point, copy) = servers[index];
            self.private_folders_of(point, block.layout(point, copy))
        });
        let (mut folders, mut failures) = (Vec::new(), Vec::new());
        for ((point, _), folder) in servers.into_iter().zip(made) {
            match folder {
                Ok(folder) => folders.push((point, folder)),
                Err(error) => failures.push((point, error)),
            }
        }
        (folders, failures)
    }

    /// Makes the folders of a start of a point's server; `make` writes the private program, given the built one.
    fn start_folders(
        &self,
        point: Point,
        make: &dyn Fn(&Path, &Path) -> Result<()>,
    ) -> Result<StartFolders> {
        let machine = self.machine;
        let mut folders = StartFolders {
            dir: machine.scratch.fresh()?,
            server: self.server(point)?.dir.clone(),
            is_private: false,
        };
        if let Some(binary) = &machine.setup.binary {
            let built = match &machine.programs {
                None => folders.make_private(folders.dir.join("server")),
                Some(programs) => folders.make_private(programs.fresh()?),
            };
            private_copy(&built, binary, &folders.server, make)?;
        }
        Ok(folders)
    }

    fn private_folders_of(&self, point: Point, layout: u64) -> Result<StartFolders> {
        let machine = self.machine;
        let Server { dir, relink, .. } = self.server(point)?;
        // Every server runs a copy, also the only one of its layout: how the file was written decides where its pages
        // are in memory.
        let make = |from: &Path, to: &Path| match relink {
            _ if layout == 0 => copy(from, to),
            Some(relink) => {
                let link = |path: &Path| relink.link(layout, path);
                let key = (dir.as_path(), layout);
                copy(&machine.links.executable(key, &machine.scratch, &link)?, to)
            }
            None => Err(Error::internal("a layout was planned that cannot be made")),
        };
        self.start_folders(point, &make)
    }

    /// Runs the workload's preparation after each start, on every remaining server. Returns the workload's failure if the
    /// base's server runs and refuses it.
    fn prepare(
        &self,
        servers: &mut Vec<(Point, Running)>,
        workload: &Workload,
        report: &mut Report<'_>,
    ) -> Result<Result<()>> {
        let mut left = Vec::with_capacity(servers.len());
        let mut failures = Vec::new();
        for (point, mut running) in servers.drain(..) {
            match self.clients.after_start(workload, &running) {
                Ok(()) => left.push((point, running)),
                Err(error) => {
                    let error = running.explain(error);
                    if point == Point::BASE
                        && error.kind() == Kind::Bench
                        && running.check().is_ok()
                    {
                        return Ok(Err(error));
                    }
                    failures.push((point, error));
                }
            }
        }
        *servers = left;
        for (point, error) in failures {
            failed(point, error, report)?;
        }
        Ok(Ok(()))
    }

    /// Measures on all servers; leaves out those that crash and measures the rest again. Returns no slices when fewer than two
    /// servers are left, or the failure of the workload, if it is not that of one server.
    fn measure(
        &self,
        servers: &mut Vec<(Point, Running)>,
        item: &TimedBlock<'_>,
        report: &mut Report<'_>,
    ) -> Result<Result<Option<(BlockSlices, HostSample)>>> {
        let cpus = self
            .clients
            .placement()
            .of(self.clients.threads(item.workload));
        let mut attempt = 0;
        let mut standstills = 0;
        while servers.len() > 1 {
            let pids = servers.iter().map(|(_, running)| running.pid());
            let mut monitor = HostMonitor::begin(cpus, pids);
            let reader = self.machine.adapter.storage_reader();
            let reader = reader.filter(|_| self.machine.setup.reads_storage);
            let endpoints = servers.iter().map(|(_, running)| running.endpoint.clone());
            monitor.storage = reader.map(|reader| (reader, endpoints.collect()));
            let left = MOST_STANDSTILLS - standstills;
            monitor.standstills = Some(StandstillWatch::begin(servers, left));
            let monitored = TimedBlock {
                monitor: Some(&monitor),
                attempt,
                ..item.clone()
            };
            attempt += 1;
            let mut outcome = self.clients.interleave(servers, &monitored);
            let stood_still = monitor.end_standstills();
            let name = &item.workload.name;
            for what in &stood_still.repeated {
                standstills += 1;
                progress::note(&format!("{name}: {what}; measuring the round again"));
            }
            if let Err(failure) = &outcome
                && failure.error.kind() == Kind::Interrupted
            {
                return Err(failure.error.clone());
            }
            let ended = ended(servers, outcome.as_mut().err());
            if ended.is_empty()
                && let Some(Standstill { what, lasts }) = stood_still.left
            {
                if let Err(failure) = &outcome
                    && lasts
                {
                    return Err(never_continued(name, &what, &failure.error));
                }
                if standstills < MOST_STANDSTILLS {
                    standstills += 1;
                    progress::note(&format!("{name}: {what}; measuring the block again"));
                    continue;
                }
            }
            let failure = match outcome {
                Ok(mut measured) if ended.is_empty() => {
                    for (_, running) in servers.iter() {
                        self.machine.tell_of_helpers(running);
                    }
                    let (sample, usage) = monitor.end();
                    let points = servers.iter().map(|(point, _)| *point);
                    let usage: Vec<_> = points.zip(usage).collect();
                    measured.add_usage(&usage, stood_still.timed);
                    let sample = HostSample {
                        standstills,
                        ..sample
                    };
                    return Ok(Ok(Some((measured, sample))));
                }
                Ok(_) => None,
                Err(failure) => Some(failure),
            };
            if let Some(failure) = failure.filter(|_| ended.is_empty()) {
                let again = TimedBlock {
                    attempt,
                    ..item.clone()
                };
                attempt += 1;
                match self.whose_fault(servers, &again, failure) {
                    Ok((point, error)) => {
                        servers.retain(|(other, _)| *other != point);
                        failed(point, error, report)?;
                    }
                    Err(error) if error.kind() == Kind::Bench => return Ok(Err(error)),
                    Err(error) => return Err(error),
                }
            }
            for (point, error) in ended {
                servers.retain(|(other, _)| *other != point);
                failed(point, error, report)?;
            }
        }
        Ok(Ok(None))
    }

    /// Decides which side failed when all servers live but one refused the work: the point, if the base (or
    /// another server, where the base takes no part) does the same work, else the workload, whose error is returned.
    fn whose_fault(
        &self,
        servers: &mut Vec<(Point, Running)>,
        item: &TimedBlock<'_>,
        failure: ClientFailure,
    ) -> Result<(Point, Error)> {
        let Some(point) = failure.point.filter(|point| *point != Point::BASE) else {
            return Err(failure.error);
        };
        let place = |is_wanted: &dyn Fn(Point) -> bool| {
            servers.iter().position(|(other, _)| is_wanted(*other))
        };
        let reference = place(&|other| other == Point::BASE);
        let Some(place) = reference.or_else(|| place(&|other| other != point)) else {
            return Err(failure.error);
        };
        let mut base = vec![servers.swap_remove(place)];
        let short = TimedBlock {
            seconds: 0.2,
            ..item.clone()
        };
        let outcome = self.clients.interleave(&mut base, &short);
        let outcome = outcome.map_err(|failure| base[0].1.explain(failure.error));
        servers.append(&mut base);
        outcome.map(|_| (point, failure.error))
    }

    /// Runs a question's workload on its server with traps in place of the code.
    /// Fails if the server ended, or if anything else failed.
    fn survives(&self, question: &ExecutionQuestion) -> Result<()> {
        let &ExecutionQuestion {
            point,
            ref code,
            seconds,
            ..
        } = question;
        let workload = self.workload(&question.workload)?;
        let _turn = self.turn()?;
        let built = &self.server(point)?.dir;
        let make = |_: &Path, to: &Path| code.link_with_traps(built, to);
        let folders = self.start_folders(point, &make)?;
        let launch = self.launch(point, &folders)?;
        let running = self.machine.adapter.start(&launch)?;
        self.clients.after_start(workload, &running)?;
        // With requests drawn like those of timed blocks, and for as long.
        let item = TimedBlock {
            workload,
            seconds,
            warm_up_seconds: WARM_UP_SECONDS,
            seed: 1,
            attempt: 0,
            monitor: None,
        };
        let mut servers = [(point, running)];
        let done = self.clients.interleave(&mut servers, &item);
        done.map_err(|failure| failure.error)?;
        let [(_, running)] = servers;
        running.stop()
    }

    /// Counts the workloads of a block. Without one that failed on the base, the others are counted again on all points:
    /// servers that had done unequal work would count unequally.
    fn counted(&self, job: &BlockJob, report: &mut Report<'_>) -> Result<()> {
        let counter = self
            .machine
            .counter
            .as_ref()
            .ok_or_else(|| Error::internal("no counting meter was requested"))?;
        let mut job = job.clone();
        while !job.block.workloads.is_empty() {
            // Counting keeps all processors busy and would disturb another process that measures.
            let turn = self.turn()?;
            let points = &job.block.points;
            let counting = phase("count").entered();
            let counted = side_by_side(allowed_cpus().len(), points.len(), &|_, index| {
                self.count_point(counter, points[index], &job)
            });
            drop((counting, turn));
            check_interrupted()?;
            self.machine.inputs.check()?;
            let counted: Vec<_> = points.iter().copied().zip(counted).collect();
            let Some((workload, error)) = workload_at_fault(&counted) else {
                return report_counts(&job.block, counted, report);
            };
            job.block.workloads.retain(|name| *name != workload);
            report(Event::WorkloadFailed { workload, error })?;
        }
        Ok(())
    }

    /// Counts on one server. Where transactions had to be restarted, counts the same ones on a fresh server:
    /// the next ones on the old server would differ from those that the other points count.
    fn count_point(&self, counter: &Counter, point: Point, job: &BlockJob) -> PointCounts {
        let mut again = String::new();
        for _ in 0..COUNT_TRIES {
            match self.count_start(counter, point, job)? {
                Ok(readings) => return Ok(readings),
                Err(workload) => again = workload,
            }
        }
        let error = restarted(&again);
        Err(CountFault::Workload(again, error))
    }

    /// Counts all workloads one after the other on one start of a server. Returns the workload whose
    /// transactions had to be restarted, if any.
    fn count_start(
        &self,
        counter: &Counter,
        point: Point,
        job: &BlockJob,
    ) -> Result<Result<Vec<(String, CountResult)>, String>, CountFault> {
        let folders = StartFolders {
            dir: self.machine.scratch.fresh()?,
            server: self.server(point)?.dir.clone(),
            is_private: false,
        };
        let mut launch = self.launch(point, &folders)?;
        launch.instrumentation = counter.instrumentation(&folders.dir);
        let mut running = self.machine.adapter.start(&launch)?;
        let mut readings = Vec::with_capacity(job.block.workloads.len());
        for name in &job.block.workloads {
            let count = job.transactions.get(name).copied().unwrap_or(1).max(1);
            let workload = self.workload(name)?;
            match self.count_workload((counter, &mut running), workload, (job.block.seed, count)) {
                Ok(Some(counts)) => readings.push((name.clone(), counts)),
                Ok(None) => return Ok(Err(name.clone())),
                Err(error) => {
                    let error = running.explain(error);
                    return Err(if error.kind() == Kind::Bench && running.check().is_ok() {
                        CountFault::Workload(name.clone(), error)
                    } else {
                        CountFault::Server(error)
                    });
                }
            }
        }
        running.stop()?;
        Ok(Ok(readings))
    }

    /// Counts a workload on a running server; `None` if transactions had to be restarted.
    fn count_workload(
        &self,
        (counter, running): (&Counter, &mut Running),
        workload: &Workload,
        (seed, count): (u64, u64),
    ) -> Result<Option<CountResult>> {
        self.clients.after_start(workload, running)?;
        let mut client = self.clients.serve(running, workload, seed)?;
        let mut counts = counter.count(CountedWork {
            running,
            threads: self.machine.adapter.client_threads(),
            transactions: count,
            run: &mut |running, transactions| client.run(running, transactions),
        })?;
        if client.restarted() {
            return Ok(None);
        }
        let wanted = |meter| self.machine.setup.count_meters.contains(&meter);
        counts.readings.retain(|reading| wanted(reading.meter));
        Ok(Some(counts))
    }
}

/// The counts of a point by workload, or why it has none.
type PointCounts = Result<Vec<(String, CountResult)>, CountFault>;

impl From<Error> for CountFault {
    fn from(error: Error) -> Self {
        CountFault::Server(error)
    }
}

/// Returns the workload that failed on the base although its server ran, or on all points where the base takes no part.
fn workload_at_fault(counted: &[(Point, PointCounts)]) -> Option<(String, Error)> {
    let fault = |counted: &PointCounts| match counted {
        Err(CountFault::Workload(workload, error)) => Some((workload.clone(), error.clone())),
        _ => None,
    };
    if let Some((_, of_base)) = counted.iter().find(|(point, _)| *point == Point::BASE) {
        return fault(of_base);
    }
    let faults: Option<Vec<_>> = counted.iter().map(|(_, counts)| fault(counts)).collect();
    let first = faults?.into_iter().next()?;
    let same =
        |(_, counts): &(Point, PointCounts)| fault(counts).is_some_and(|(name, _)| name == first.0);
    counted.iter().all(same).then_some(first)
}

/// Reports the counts of a block's workloads, and the points without them.
fn report_counts(
    block: &Block,
    counted: Vec<(Point, PointCounts)>,
    report: &mut Report<'_>,
) -> Result<()> {
    // By workload and point, since an event reports a whole workload.
    let mut readings: BTreeMap<String, BTreeMap<Point, CountResult>> = BTreeMap::new();
    for (point, counted) in counted {
        match counted {
            Ok(of_point) => {
                for (workload, counted) in of_point {
                    readings.entry(workload).or_default().insert(point, counted);
                }
            }
            Err(CountFault::Server(error) | CountFault::Workload(_, error)) => {
                failed(point, error, report)?;
            }
        }
    }
    for workload in &block.workloads {
        let readings = readings.remove(workload).unwrap_or_default();
        if readings.len() > 1 {
            report(Event::Counted {
                workload: workload.clone(),
                readings,
            })?;
        }
    }
    Ok(())
}

impl Lane for MachineLane<'_> {
    fn run(&mut self, job: &BlockJob, report: &mut Report<'_>) -> Result<()> {
        match job.block.kind.reading() {
            Reading::Timed => self.timed(&job.block, report),
            Reading::Counted => self.counted(job, report),
        }
    }
}

/// Does `count` pieces of work on threads of its own, which share the processors of this thread. `work` gets the numbers of
/// its thread and of the piece; the results are in the order of the pieces.
fn side_by_side<T: Send>(
    threads: usize,
    count: usize,
    work: &(dyn Fn(usize, usize) -> T + Sync),
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let each = |thread: usize| -> Vec<(usize, T)> {
        let indices = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        let indices = indices.take_while(|index| *index < count);
        indices.map(|index| (index, work(thread, index))).collect()
    };
    let done = threads::each(0..threads.clamp(1, count.max(1)), each);
    let mut done: Vec<(usize, T)> = done.into_iter().flatten().collect();
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Returns the error for restarted transactions, which do more work than the same number on another server.
fn restarted(workload: &str) -> Error {
    Error::transactions_restarted(format!(
        "workload {workload}: transactions were restarted (a deadlock or a duplicate key), so their cost cannot be counted"
    ))
    .hint("remove the counting meters, or let each thread change rows of its own")
}

/// Reports a point's failure. Returns the error if its cause is not the point's server (a full disk, an
/// interruption, a wrong setting), since it would hit the others too, or if the base failed.
fn failed(point: Point, error: Error, report: &mut Report<'_>) -> Result<()> {
    match (point, error.kind()) {
        (Point::BASE, Kind::Bench) => Err(without_base(error)),
        (_, Kind::Bench) => report(Event::Failed { point, error }),
        _ => Err(error),
    }
}

/// Returns the error of a run whose base failed.
fn without_base(error: Error) -> Error {
    let kept = "every comparison needs point 0, so the run ends here; finished blocks are kept, and the same command continues after them";
    error.hint_after(kept)
}

/// Returns the error of a workload whose client gave up because something stands still.
fn never_continued(workload: &str, what: &str, client: &Error) -> Error {
    Error::client_failed(format!(
        "workload {workload}: {what} and did not continue: {}",
        client.message()
    ))
    .details(client.detail_lines().iter().cloned())
    .hint("send it SIGCONT (`kill -CONT`), end the debugger, or thaw its control group; then run the same command again")
}

/// Returns the servers that have ended, with the reason, and those that lost their first process: their other processes still
/// serve clients. Explains the `failure` of a client by what its server says.
fn ended(
    servers: &mut [(Point, Running)],
    mut failure: Option<&mut ClientFailure>,
) -> Vec<(Point, Error)> {
    let mut ended = Vec::new();
    for (point, running) in servers {
        // The client notices first: the server it talked to may still be writing its report.
        let failure = failure.as_deref_mut();
        let outcome = match failure.filter(|failure| failure.point == Some(*point)) {
            Some(failure) => {
                failure.error = running.explain(failure.error.clone());
                running.check().map_err(|_| failure.error.clone())
            }
            None => running.check(),
        };
        if let Err(error) = outcome {
            ended.push((*point, error));
        }
    }
    ended
}
