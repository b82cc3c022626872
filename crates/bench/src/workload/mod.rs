//! Runs clients that put load on servers: sysbench scripts interleaved over all points, commands, or clients of
//! perfquilt's own.
//!
//! A timed block of a workload runs on all servers of the block ([`Clients::interleave`]) in rounds. Each round is a
//! random permutation of the servers with a short slice on each, so that a disturbance of the machine affects all
//! servers of a round alike. Counting meters run a fixed number of transactions on one server
//! ([`Clients::serve`]). `docs/statistics.md` explains the reasons.

mod burst;
mod client;
mod clients;
mod command;
mod environment;
mod placement;
mod requests;
mod rounds;
mod sql_bench;
mod standstill;
mod sysbench;
mod watch;

use sha2::{Digest, Sha256};

use crate::inputs::{Inputs, Records};
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{Config, Workload};
use perfquilt_model::error::{Error, Result};
use perfquilt_system::digest;

pub use client::{
    BlockSlices, Client, ClientFailure, Requests, Setup, TimedBlock, WorkloadKind, check_count,
    settings,
};
pub use clients::Clients;
pub use environment::Environment;
pub use placement::{Placement, allowed_cpus, lanes, pin_this_thread};
pub use rounds::{rounds, rows};
pub use standstill::{Standstill, StandstillWatch, Standstills};
pub use watch::{HostMonitor, ServerUsage};

/// The kinds of workloads. A new kind is a file with its [`Client`] and a line here.
pub const KINDS: &[WorkloadKind] = &[
    sysbench::KIND,
    command::KIND,
    sql_bench::KIND,
    requests::KIND,
];

/// Kinds of earlier versions, and how to write their workloads now.
const REMOVED_KINDS: &[(&str, &str)] = &[(
    "handler",
    "use kind `requests` with `protocol = \"mysql\"` and `connect = [\"HANDLER … OPEN\"]`, as \
     bench-config/workloads/handler_text_innodb.toml of perfquilt's sources does",
)];

/// Returns the client of a workload, of one of `kinds`.
pub fn client_of(workload: &Workload, kinds: &[WorkloadKind]) -> Result<Box<dyn Client>> {
    match kinds.iter().find(|kind| kind.name == workload.kind) {
        Some(kind) => {
            let owner = format!("the kind `{}`", kind.name);
            workload.settings.check_alone(&owner)?;
            (kind.client)(workload)
        }
        None => {
            let names = kinds.iter().map(|kind| kind.name);
            let removed = REMOVED_KINDS.iter().find(|kind| kind.0 == workload.kind);
            let unknown = match removed {
                Some((name, now)) => {
                    Error::removed_key(format!("the kind `{name}` was removed")).hint(*now)
                }
                None => Error::unknown("kind of workload", &workload.kind, names),
            };
            Err(workload.locate(&["kind"], unknown))
        }
    }
}

/// Returns the client of a workload.
pub fn client(workload: &Workload) -> Result<Box<dyn Client>> {
    client_of(workload, KINDS)
}

/// Checks the settings of all workloads, and those with which presets override them.
pub fn check(config: &Config) -> Result<()> {
    for workload in config.workloads.values() {
        client(workload)?;
    }
    let overriding = config.preset.iter();
    for (name, preset) in overriding.filter(|(_, preset)| !preset.sql_bench.is_empty()) {
        for workload in &preset.workloads {
            // The workload's own settings are valid, so any fault is in the preset.
            client(&preset.workload(config, workload)?)
                .map_err(|error| config.locate(&["preset", name], error))?;
        }
    }
    Ok(())
}

/// Returns the digest of the client code that affects measurements, which is part of the harness's identity.
pub fn identity() -> String {
    hex::encode(Sha256::digest(sysbench::SCRIPTS.concat()))
}

/// Returns the files that the commands of a workload read, as far as they are named, declared or were observed, and the
/// records to which a traced run must be added, if this is not known.
pub fn inputs(ws: &Workspace, workload: &Workload) -> Result<(Inputs, Option<Records>)> {
    let client = client(workload)?;
    let (words, directory) = (client.words(), client.directory());
    let named = (words.as_slice(), directory.as_deref());
    if words.is_empty() {
        return Ok((
            Inputs::named(&ws.bench_config(), named, &workload.inputs)?,
            None,
        ));
    }
    Inputs::known(ws, named, &workload.inputs)
}

/// Returns the digest of a workload: its settings, the version of its client, and the files that it reads.
pub fn workload_identity(ws: &Workspace, workload: &Workload) -> Result<String> {
    let mut digest = Sha256::new();
    digest::add(&mut digest, workload.kind.as_bytes());
    for part in client(workload)?.identity()? {
        digest::add(&mut digest, &part);
    }
    inputs(ws, workload)?.0.digest(&mut digest);
    Ok(hex::encode(digest.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_model::error::Kind;

    fn workload(text: &str) -> Workload {
        Workload::parse("ping", &format!("description = \"\"\n{text}")).unwrap()
    }

    /// Returns for each of `files`, paths below the configuration's folder, whether the identity of a workload changes
    /// with it.
    fn depends_on(text: &str, files: &[&str]) -> Vec<bool> {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("bench-config");
        std::fs::create_dir_all(config.join("workloads")).unwrap();
        let toy = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/fixtures/toy/bench-config"
        );
        for name in ["perfquilt.toml", "workloads/requests.toml"] {
            std::fs::copy(std::path::Path::new(toy).join(name), config.join(name)).unwrap();
        }
        let ws = Workspace::open_with_cache(folder.path(), folder.path().join("cache")).unwrap();
        let outside = folder.path().join("outside");
        let workload = workload(&text.replace("OUTSIDE", outside.to_str().unwrap()));
        let identity = || workload_identity(&ws, &workload).unwrap();
        for file in files {
            let path = config.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "one").unwrap();
        }
        let changes = |file: &&str| {
            let before = identity();
            std::fs::write(config.join(file), "two").unwrap();
            identity() != before
        };
        files.iter().map(changes).collect()
    }

    #[test]
    fn the_identity_changes_with_any_of_a_workloads_files() {
        let command = "kind = \"command\"\n[command]\nrun = [\"c\", \"--query={config}/q/reads.sql\"]\n\
                       prepare = [\"sh\", \"{config}/fill.sh\"]\ntransactions = 1";
        assert_eq!(
            depends_on(command, &["q/reads.sql", "fill.sh", "other.sql"]),
            [true, true, false]
        );
        let outside = "kind = \"command\"\ninputs = [\"OUTSIDE/lib\"]\n[command]\nrun = [\"OUTSIDE/client\", \"--data=OUTSIDE/rows\"]\n\
                       transactions = 1";
        let files =
            ["client", "rows", "lib/module.py", "none"].map(|name| format!("../outside/{name}"));
        assert_eq!(
            depends_on(outside, &files.each_ref().map(String::as_str)),
            [true, true, true, false]
        );
        let sysbench = "kind = \"sysbench\"\n[sysbench]\nscript = \"a.lua\"\nprepare = \"b.lua\"";
        let scripts = ["sysbench/a.lua", "sysbench/b.lua", "sysbench/c.lua"];
        assert_eq!(depends_on(sysbench, &scripts), [true, true, false]);
    }

    #[test]
    fn the_threads_of_every_kind_are_known() {
        let threads = |text: &str| client(&workload(text)).unwrap().threads();
        let command = "kind = \"command\"\n[command]\nrun = [\"c\"]\ntransactions = 1\n";
        assert_eq!(threads(command), 1);
        assert_eq!(threads(&format!("{command}threads = 64")), 64);
        let requests = "kind = \"requests\"\n[requests]\nprotocol = \"mysql\"\nconnections = 16\nthreads = 8\n\
                        transaction = [{ requests = [\"SELECT 1\"] }]";
        assert_eq!(threads(requests), 8);
        let sysbench = "kind = \"sysbench\"\n[sysbench]\nscript = \"a\"\nthreads = 4";
        assert_eq!(threads(sysbench), 4);
        assert_eq!(
            threads("kind = \"sql-bench\"\n[sql_bench]\nprogram = \"select\""),
            1
        );
    }

    #[test]
    fn a_removed_kind_names_its_replacement() {
        let error = client(&workload("kind = \"handler\"")).unwrap_err();
        assert_eq!(error.message(), "the kind `handler` was removed");
        assert!(error.hint_text().unwrap().contains("`requests`"));
    }

    #[test]
    fn invalid_values_name_their_line() {
        let command = "kind = \"command\"\n[command]\nrun = [\"true\"]\ntransactions = 10\n";
        let requests = "kind = \"requests\"\n[requests]\nprotocol = \"resp\"\nparameters.n = { sequence = 1 }\n\
                        transaction = [{ requests = [\"GET {n}\"] }]\n";
        let valued = requests.replace("\"GET {n}\"", "{ send = 'GET {n}', value = '{n}' }");
        let sysbench = "kind = \"sysbench\"\n\n[sysbench]\nscript = \"a\"\n";
        for (text, wrong) in [
            (command.replace("= 10", "= 0"), "transactions = 0"),
            (
                command.replace("= 10", "= 9223372036854775807"),
                "transactions",
            ),
            (command.replace("[\"true\"]", "[]"), "run = []"),
            (format!("{command}prepare = []\n"), "prepare"),
            (format!("{command}rate = '('\n"), "rate"),
            (format!("{command}seconds = 'no group'\n"), "seconds = 'no"),
            (format!("{command}limit_seconds = 0\n"), "limit_seconds"),
            (format!("{command}limit = 1\n"), "limit = 1"),
            (format!("{requests}threads = 0\n"), "threads"),
            (format!("{requests}connect = ['AUTH {{n}}']\n"), "connect"),
            (valued, "transaction"),
            (
                "kind = \"handler\"\n[handler]\nengine = 'Aria'".to_owned(),
                "kind",
            ),
            (format!("{sysbench}threads = 0\n"), "threads"),
            (format!("{sysbench}threads = 1025\n"), "threads"),
            (
                format!("{sysbench}[sysbench.options]\nmysql-db = 'x'\n"),
                "mysql-db",
            ),
            ("kind = \"sysbench\"".to_owned(), "kind"),
            ("kind = \"sysbensh\"".to_owned(), "kind"),
            (sysbench.replace("sysbench\"", "sysbensh\""), "kind"),
            (format!("{sysbench}[requests]\nthreads = 1\n"), "[requests]"),
        ] {
            let error = client(&workload(&text)).unwrap_err();
            assert_eq!(error.kind(), Kind::Usage, "{error}");
            // The description comes first.
            let line = text.lines().position(|line| line.starts_with(wrong));
            let line = line.unwrap() + 2;
            let place = format!("bench-config/workloads/ping.toml:{line}: ");
            assert!(error.to_string().starts_with(&place), "{place}{error}");
        }
    }
}
