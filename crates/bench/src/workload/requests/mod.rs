//! Sends requests of a protocol (Redis's, HTTP, SQL …) with clients of perfquilt's own, inside this process, over
//! connections that stay open.
//!
//! A workload is a mix of transactions, each some requests with random values. The requests of a round are generated
//! once, before its timed part, and sent to every server as the same bytes.

mod connection;
mod fill;
mod parameter;
mod pgbench;
mod plan;
mod protocols;
mod request;
mod settings;
mod template;
mod turns;

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::client::{check_count, settings as read_settings};
use super::{BlockSlices, Client, ClientFailure, Environment, Requests, TimedBlock, WorkloadKind};
use crate::server::Running;
use perfquilt_config::{Section, Workload};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::point::Point;

use plan::{Plan, WeightedRequests};
use protocols::{PROTOCOLS, Protocol, ProtocolKind};
use settings::{
    InvalidSetting, ParameterSettings, RequestsSettings, StepSettings, TransactionSettings,
};
use turns::{Measurement, OnRequest};

/// The kind `requests`.
pub(super) const KIND: WorkloadKind = WorkloadKind {
    name: "requests",
    client: |workload| Ok(Box::new(RequestsClient::new(workload)?)),
};

/// Part of the workload's identity: raised whenever the timed work changes.
const VERSION: u32 = 2;
/// The most connections to a server.
const MAX_CONNECTIONS: u32 = 1024;
/// The most requests in flight on a connection.
const MAX_PIPELINE: u32 = 10_000;

/// A workload of requests.
#[derive(Debug)]
struct RequestsClient {
    name: String,
    settings: RequestsSettings,
    protocol: &'static ProtocolKind,
    /// The timed transactions.
    plan: Plan,
    prepare: Plan,
    after_start: Plan,
    /// Whether the data is created once and copied to every start.
    stored: bool,
}

impl RequestsClient {
    fn new(workload: &Workload) -> Result<Self> {
        let mut settings: RequestsSettings = read_settings(workload)?;
        let section = &workload.settings;
        check_counts(&settings, section)?;
        add_scripts(&mut settings, workload)?;
        let Some(protocol) = PROTOCOLS.iter().find(|kind| kind.name == settings.protocol) else {
            let names = PROTOCOLS.iter().map(|kind| kind.name);
            let unknown = Error::unknown("protocol", &settings.protocol, names);
            return Err(section.locate(&["protocol"], unknown));
        };
        let is_piped = settings.pipeline > 1;
        for (key, is_refused, why) in [
            (
                "prepared",
                settings.prepared && !protocol.prepares,
                "has no prepared statements",
            ),
            (
                "pipeline",
                is_piped && !protocol.pipelines,
                "answers one request at a time",
            ),
        ] {
            if is_refused {
                return Err(section.error(&[key], format!("`{}` {why}", protocol.name)));
            }
        }
        let plan = |name: &str, transactions: &[WeightedRequests<'_>], prepared: bool| {
            let protocol = (protocol.protocol)(prepared);
            Plan::new(protocol, &settings.parameters, name, transactions)
        };
        let located = |invalid: InvalidSetting| invalid.in_section(section);
        let timed: Vec<WeightedRequests<'_>> = settings
            .transaction
            .iter()
            .map(|one| (one.weight, one.requests.as_slice()))
            .collect();
        let mut timed = plan("transaction", &timed, settings.prepared).map_err(located)?;
        if timed.total_weight() == 0 {
            let fault = "no transaction has a weight";
            return Err(section.error(&["transaction"], fault));
        }
        let steps = |name: &str, steps: &[StepSettings]| {
            let requests: Vec<WeightedRequests<'_>> = steps
                .iter()
                .map(|step| (1, step.requests.as_slice()))
                .collect();
            plan(name, &requests, false).map_err(located)
        };
        if !settings.connect.is_empty() {
            let first = first_requests(&settings, (protocol.protocol)(false));
            timed.connect = Some(Box::new(first.map_err(located)?));
        }
        let prepare = steps("prepare", &settings.prepare)?;
        let after_start = steps("after_start", &settings.after_start)?;
        let has_databases = timed.protocol.create_database("x").is_some();
        Ok(RequestsClient {
            name: workload.name.clone(),
            protocol,
            plan: timed,
            prepare,
            after_start,
            stored: settings.stored.unwrap_or(has_databases),
            settings,
        })
    }

    /// Returns the key of the data, or `None` if it is created after every start.
    fn stored_key(&self) -> Option<String> {
        let settings = &self.settings;
        if !self.stored || settings.prepare.is_empty() {
            return None;
        }
        // Parameters of the timed transactions do not matter, so that workloads can share their data.
        let texts: Vec<&str> = settings
            .prepare
            .iter()
            .flat_map(|step| &step.requests)
            .flat_map(|request| [Some(&request.send), request.body.as_ref()])
            .flatten()
            .map(String::as_str)
            .collect();
        let is_used = |name: &String| {
            let starts = [format!("{{{name}}}"), format!("{{{name}:")];
            let mut texts = texts.iter();
            texts.any(|text| starts.iter().any(|start| text.contains(start)))
        };
        let parameters = settings.parameters.iter();
        let used: BTreeMap<&String, &ParameterSettings> =
            parameters.filter(|(name, _)| is_used(name)).collect();
        let mut digest = Sha256::new();
        digest.update(format!("{} {VERSION}\n", self.protocol.name));
        digest.update(format!("{:?}\n{used:?}", settings.prepare));
        Some(hex::encode(digest.finalize())[..16].to_owned())
    }

    /// Returns the database of the data, if the protocol knows databases.
    fn database(&self) -> Option<String> {
        let name = format!("perfquilt_{}", self.stored_key()?);
        self.plan.protocol.create_database(&name).map(|_| name)
    }

    /// Names the workload in a failure of a server.
    fn named(&self, error: Error) -> Error {
        if error.kind() != Kind::Bench {
            return error;
        }
        let message = format!("workload {}: {}", self.name, error.message());
        error.reworded(message)
    }
}

/// Compiles what every connection sends first.
fn first_requests(
    settings: &RequestsSettings,
    protocol: Box<dyn Protocol>,
) -> Result<Plan, InvalidSetting> {
    let requests = [(1, settings.connect.as_slice())];
    Plan::new(protocol, &BTreeMap::new(), "connect", &requests).map_err(|mut invalid| {
        // The requests are all of the list, not those of a transaction.
        let index = invalid.path.pop();
        invalid.path = ["connect".to_owned()].into_iter().chain(index).collect();
        invalid
    })
}

/// Adds the scripts of pgbench to the transactions and their random values to the parameters.
fn add_scripts(settings: &mut RequestsSettings, workload: &Workload) -> Result<()> {
    let section = &workload.settings;
    if settings.transaction.is_empty() && settings.pgbench.is_empty() {
        let fault = "a workload needs a [[requests.transaction]], or scripts in `pgbench`";
        return Err(section.error(&[], fault));
    }
    for (index, script) in settings.pgbench.iter().enumerate() {
        let place = index.to_string();
        let (path, weight) = pgbench::with_weight(script)
            .map_err(|fault| section.error(&["pgbench", &place], fault))?;
        let file = workload.bench_config.join(path);
        let text = std::fs::read_to_string(&file).map_err(|error| {
            let fault = format!("the script `{path}` cannot be read: {error}");
            section.error(&["pgbench", &place], fault)
        })?;
        let (name, prefix) = (format!("bench-config/{path}"), format!("script{index}_"));
        let read = pgbench::read(&text, &name, &prefix, &settings.variables)?;
        settings.parameters.extend(read.parameters);
        settings.transaction.push(TransactionSettings {
            weight,
            requests: read.requests,
        });
    }
    Ok(())
}

/// Checks the settings that are numbers.
fn check_counts(settings: &RequestsSettings, section: &Section) -> Result<()> {
    for (key, count, most) in [
        ("connections", settings.connections, MAX_CONNECTIONS),
        ("threads", settings.threads, MAX_CONNECTIONS),
        ("pipeline", settings.pipeline, MAX_PIPELINE),
    ] {
        check_count(section, key, count)?;
        if count > most {
            return Err(section.error(&[key], format!("`{key}` must be at most {most}")));
        }
    }
    if !settings.connections.is_multiple_of(settings.threads) {
        let fault = "`connections` must be a multiple of `threads`";
        return Err(section.error(&["threads"], fault));
    }
    Ok(())
}

impl Client for RequestsClient {
    fn threads(&self) -> u32 {
        self.settings.threads
    }

    fn runs_server_programs(&self) -> bool {
        false
    }

    fn counted_transactions(&self) -> Option<u64> {
        let configured = self.settings.count_transactions;
        (configured > 0).then_some(configured.into())
    }

    fn identity(&self) -> Result<Vec<Vec<u8>>> {
        Ok(vec![format!("{:?} {VERSION}", self.settings).into_bytes()])
    }

    fn data_key(&self, _environment: &Environment) -> Result<Option<String>> {
        Ok(self.stored_key())
    }

    fn fill(&self, _environment: &Environment, running: &Running) -> Result<()> {
        let database = self.database();
        if let Some(name) = &database
            && let Some(statements) = self.plan.protocol.create_database(name)
        {
            fill::create_database(self.protocol, &statements, running)
                .map_err(|error| self.named(error))?;
        }
        let steps = &self.settings.prepare;
        fill::run_steps(&self.prepare, steps, running, database.as_deref())
            .map_err(|error| self.named(error))
    }

    fn after_start(&self, environment: &Environment, running: &Running) -> Result<()> {
        if !self.stored {
            self.fill(environment, running)?;
        }
        let steps = &self.settings.after_start;
        let database = self.database();
        fill::run_steps(&self.after_start, steps, running, database.as_deref())
            .map_err(|error| self.named(error))
    }

    fn interleave(
        &self,
        environment: &Environment,
        servers: &mut [(Point, Running)],
        block: &TimedBlock<'_>,
    ) -> Result<BlockSlices, ClientFailure> {
        let database = self.database();
        let measurement = Measurement {
            environment,
            settings: &self.settings,
            plan: &self.plan,
            database: database.as_deref(),
        };
        measurement
            .interleave(servers, block)
            .map_err(|failure| ClientFailure {
                error: self.named(failure.error),
                ..failure
            })
    }

    fn connect<'a>(
        &'a self,
        _environment: &'a Environment,
        running: &Running,
        seed: u64,
    ) -> Result<Box<dyn Requests + 'a>> {
        let database = self.database();
        let connected = OnRequest::new(
            &self.settings,
            &self.plan,
            database.as_deref(),
            running,
            seed,
        );
        let connected = connected.map_err(|error| self.named(error))?;
        Ok(Box::new(connected))
    }
}
