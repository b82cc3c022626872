//! Runs any server with commands of the configuration that start it, check whether it is ready and stop it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::running::{FailedStart, ListenAddress, Running, StartPlan, Stop, not_started};
use super::start_failure::start_timeout;
use super::{AdapterKind, AdapterSetup, ClientThreads, Launch, ServerAdapter, copy_tree};
use perfquilt_config::{Section, Server, expand, expand_word};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_system::files::{read_text, write_file};
use perfquilt_system::process::Command;
use perfquilt_system::threads::lock;

/// Maximum time of one run of the ready command.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
/// Attempts to start if another process takes the chosen port before the server does.
const PORT_ATTEMPTS: usize = 3;

/// The adapter `command`.
pub(super) const KIND: AdapterKind = AdapterKind {
    name: "command",
    check: |server| CommandServer::read(server).map(drop),
    adapter: |setup| {
        let commands = CommandServer::read(&setup.server)?;
        commands.check_address(&setup.server.settings)?;
        Ok(Box::new(CommandAdapter { commands, setup }))
    },
};

/// `[server.command]`: commands with the placeholders `{server}` (folder of the built server),
/// `{dir}` (fresh folder of this start: data, logs), `{socket}` (a Unix socket path, short enough for
/// the kernel), `{port}` (a free loopback port, for servers that require one) and `{config}`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandServer {
    /// Starts the server in the foreground.
    pub start: Vec<String>,
    /// Exits with 0 once the server is ready; repeated until then.
    pub ready: Vec<String>,
    /// Ends the server; by default perfquilt sends SIGTERM.
    pub stop: Option<Vec<String>>,
    /// Additional environment variables of the server.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Files copied to `{dir}` before every start, with placeholders replaced: maps a name in `{dir}` to a path.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
}

impl CommandServer {
    fn read(server: &Server) -> Result<Self> {
        let section = &server.settings;
        let commands: CommandServer = section.parse()?.ok_or_else(|| {
            section.error(&[], "adapter `command` needs a [server.command] section")
        })?;
        for (key, words) in commands.all() {
            if words.first().is_none_or(String::is_empty) {
                let fault = format!("`{key}` of the server is an empty command");
                return Err(section.error(&[key], fault));
            }
        }
        for name in commands.files.keys() {
            let mut parts = Path::new(name).components();
            if !matches!(
                (parts.next(), parts.next()),
                (Some(Component::Normal(_)), None)
            ) {
                let fault = format!("`{name}` is not the name of a file in {{dir}}");
                return Err(section.error(&["files", name], fault));
            }
        }
        commands.check_placeholders(section)?;
        Ok(commands)
    }

    /// Returns the commands with their keys.
    fn all(&self) -> impl Iterator<Item = (&'static str, &Vec<String>)> {
        let commands = [("start", &self.start), ("ready", &self.ready)];
        let stop = self.stop.iter().map(|stop| ("stop", stop));
        commands.into_iter().chain(stop)
    }

    fn wants_port(&self) -> bool {
        uses(&self.start, "{port}") || uses(&self.ready, "{port}")
    }

    /// Refuses unknown placeholders.
    pub(super) fn check_placeholders(&self, section: &Section) -> Result<()> {
        for (key, words) in self.all() {
            check_placeholders(words).map_err(|error| section.locate(&[key], error))?;
        }
        Ok(())
    }

    /// Refuses a server that listens on a fixed address.
    pub(super) fn check_address(&self, section: &Section) -> Result<()> {
        // Several servers run at once, and a fixed address could belong to an unrelated server.
        // With files of its own, a server may have its address from one of them.
        let has_address = uses(&self.start, "{socket}") || uses(&self.start, "{port}");
        if !has_address && self.files.is_empty() {
            let fault = "`start` of [server.command] mentions neither {socket} nor {port}";
            return Err(section
                .error(&["start"], fault)
                .hint("tell the server to listen on {socket}, or on {port} if it has no sockets"));
        }
        Ok(())
    }
}

/// Runs a server with the commands of `[server.command]`.
#[derive(Debug)]
pub struct CommandAdapter {
    pub(super) commands: CommandServer,
    pub(super) setup: AdapterSetup,
}

impl CommandAdapter {
    /// Writes the server's files for one start.
    fn write_files(&self, launch: &Launch<'_>, values: &BTreeMap<String, String>) -> Result<()> {
        for (name, path) in &self.commands.files {
            let path = PathBuf::from(expand_word(path, values)?);
            let text = read_text(&path, &path.to_string_lossy())?;
            // The message would have the whole text.
            let text = expand_word(&text, values).map_err(|error| {
                let known = error.hint_text().unwrap_or_default();
                Error::configuration("the file has an unknown placeholder")
                    .at(&path, None)
                    .hint(known)
            })?;
            write_file(&launch.dir.join("data").join(name), text.as_bytes())?;
        }
        Ok(())
    }

    fn start_once(&self, launch: &Launch<'_>, port: Option<u16>) -> Result<Running, FailedStart> {
        let address = ListenAddress::new(launch.dir, port)?;
        let config = &self.setup.bench_config;
        let mut plan = StartPlan::new(&self.setup, launch, address, Vec::new());
        let values = &plan.values;
        self.write_files(launch, values)?;
        let env = self.commands.env.iter();
        let env = env.map(|(name, value)| Ok((name.clone(), expand_word(value, values)?)));
        let env = env.collect::<Result<_>>()?;
        let ready_words = expand(&self.commands.ready, values)?;
        let ready = Command::from_words(&ready_words)?.directory(config);
        // Only a built server may lack one of its own programs.
        let is_own = Path::new(&ready_words[0]).starts_with(launch.server);
        let stop = match &self.commands.stop {
            Some(words) => Stop::Command(Box::new(
                Command::from_words(&expand(words, values)?)?.directory(config),
            )),
            None => Stop::Signal { may_kill: true },
        };
        let words = expand(&self.commands.start, values)?.into_iter();
        plan.words = words.map(OsString::from).collect();
        (plan.env, plan.stop) = (env, stop);
        let end = Instant::now() + start_timeout(plan.start_seconds, &launch.instrumentation);
        let command = ready_words.join(" ");
        let mut last = Vec::new();
        let started = Running::begin_on_port(plan, &mut |_| {
            let left = end.saturating_duration_since(Instant::now());
            match ready.run_within(READY_TIMEOUT.min(left)) {
                Ok(output) => {
                    let how = output.describe_exit();
                    last = vec![format!("the last run of `{command}` {how}")];
                    last.extend(output.tail(8));
                    Ok(output.success())
                }
                // A timeout means "not yet"; the start as a whole has its own timeout.
                Err(error) if error.kind() == Kind::Bench => {
                    // One that the end of the start cut off says less than the one before.
                    if last.is_empty() {
                        last = vec![error.to_string()];
                    }
                    Ok(false)
                }
                Err(error) if is_own => {
                    Err(not_started(launch.label, ready_words[0].as_ref(), error))
                }
                Err(error) => Err(error),
            }
        });
        started.map_err(|mut failed| {
            if failed.error.exceeded_start_timeout().is_some() {
                failed.error = failed.error.details(last);
            }
            failed
        })
    }
}

impl ServerAdapter for CommandAdapter {
    fn identity(&self) -> Result<String> {
        let all = format!("command {:?}\n", self.commands);
        Ok(hex::encode(Sha256::digest(all)))
    }

    fn words(&self) -> Vec<String> {
        let CommandServer { env, files, .. } = &self.commands;
        let commands = self.commands.all().flat_map(|(_, words)| words);
        let words = commands.chain(env.values()).chain(files.values());
        words.cloned().collect()
    }

    fn prepare(&self, _server: &Path, data: &Path) -> Result<()> {
        std::fs::create_dir_all(data).map_err(|e| Error::io("create", data, &e))
    }

    fn start(&self, launch: &Launch<'_>) -> Result<Running> {
        let data = launch.dir.join("data");
        let mut tried: Vec<String> = Vec::new();
        loop {
            match launch.template {
                Some(template) => copy_tree(template, &data)?,
                None => {
                    std::fs::create_dir_all(&data).map_err(|e| Error::io("create", &data, &e))?
                }
            }
            let port = self.commands.wants_port().then(free_port).transpose()?;
            let failed = match self.start_once(launch, port) {
                Ok(running) => return Ok(running),
                Err(failed) => failed,
            };
            tried.extend(port.map(|port| port.to_string()));
            if !failed.lost_port || tried.len() == PORT_ATTEMPTS {
                let error = failed.error.clone();
                let taken = format!("other programs had the ports {}", tried.join(", "));
                return Err(if failed.lost_port {
                    error.hint_before(&taken)
                } else {
                    error
                });
            }
            // The program may be in it.
            failed.keep_folder();
        }
    }

    fn settle(&self, _running: &mut Running) -> Result<()> {
        Ok(())
    }

    fn client_threads(&self) -> ClientThreads {
        // The threads of an arbitrary server are unknown; idle ones execute next to nothing.
        ClientThreads::All
    }
}

/// Returns a port on the loopback interface that no program has, and that no other start of this program was given.
fn free_port() -> Result<u16> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    /// How many ports are kept from being given again, far more than servers run at once.
    const KEPT: usize = 4096;
    let listen = |address: IpAddr| TcpListener::bind((address, 0));
    let mut given = lock(&GIVEN);
    if given.len() >= KEPT {
        given.clear();
    }
    loop {
        let port = listen(Ipv4Addr::LOCALHOST.into())
            // A machine may have IPv6 only.
            .or_else(|_| listen(Ipv6Addr::LOCALHOST.into()))
            .and_then(|listener| listener.local_addr())
            .map(|address| address.port())
            .map_err(|error| Error::system_refused(format!("cannot find a free port: {error}")))?;
        if given.insert(port) {
            return Ok(port);
        }
    }
}

fn uses(words: &[String], placeholder: &str) -> bool {
    words.iter().any(|word| word.contains(placeholder))
}

/// Refuses words with placeholders that no running server has.
pub fn check_placeholders(words: &[String]) -> Result<()> {
    let sample: BTreeMap<String, String> = ["server", "dir", "socket", "port", "config"]
        .map(|name| (name.to_owned(), String::new()))
        .into();
    expand(words, &sample).map(drop)
}
