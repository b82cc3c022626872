//! `perfquilt bot`: serves pull requests.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};

use clap::{Args, Subcommand};

use super::Context;
use perfquilt_bench::sandbox::no_core_files;
use perfquilt_bot::{
    Bot, Service, SharedState, check_processors, configuration_digest, judge, listen, serve,
    use_git_settings,
};
use perfquilt_forge::{FORGES, ForgeKind, Repository, RetryPolicy, Secret};
use perfquilt_model::error::{Error, Result};

/// The subcommands of `perfquilt bot`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Receive a forge's webhooks and run the requested measurements
    Serve(Serve),
    /// Judge an outcome for `bot serve`, which asks on standard input
    #[command(hide = true)]
    Judge,
}

/// Returns the forge that hosts the bot's repository.
pub(super) fn forge_kind(bot: &perfquilt_config::Bot) -> Result<&'static ForgeKind> {
    let Some(name) = &bot.forge else {
        return Ok(FORGES[0]);
    };
    ForgeKind::named(name).map_err(|error| error.at(perfquilt_config::CONFIG_FILE, None))
}

/// Arguments of `perfquilt bot serve`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt bot serve
  perfquilt -C /srv/series bot serve --listen 127.0.0.1:8080

PERFQUILT_WEBHOOK_SECRET has the secret of the webhook. Credentials are those of \
`perfquilt post`. [bot] of the configuration names the forge and the repository, [commands] the people who may give \
commands.")]
pub struct Serve {
    /// Address to listen on; put a proxy that speaks HTTPS in front of it
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8079")]
    listen: SocketAddr,
    /// Address of the forge's API (default: that in the environment, else the public one)
    #[arg(long, value_name = "URL")]
    api_url: Option<String>,
}

/// Runs `perfquilt bot`.
pub fn run(context: &Context, command: &Command) -> Result<()> {
    let arguments = match command {
        Command::Serve(arguments) => arguments,
        Command::Judge => {
            perfquilt_system::process::end_at_first_signal();
            let answer = judge(std::io::stdin().lock())?;
            return context.output.print(&answer);
        }
    };
    no_core_files();
    let workspace = context.workspace()?;
    let config = workspace.config.clone();
    if config.bot.repository.is_empty() {
        return Err(
            Error::section_missing("no repository is configured for the bot")
                .at(perfquilt_config::CONFIG_FILE, None)
                .hint("add a section [bot] with `repository = \"OWNER/NAME\"`"),
        );
    }
    let repository: Repository = config.bot.repository.parse()?;
    check_processors(&config.bot)?;
    use_git_settings(&workspace)?;
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let secret = variable("PERFQUILT_WEBHOOK_SECRET").ok_or_else(|| {
        Error::bot_settings("PERFQUILT_WEBHOOK_SECRET is not set")
            .hint("`openssl rand -hex 32` makes one; give the forge the same")
    })?;
    let forge = forge_kind(&config.bot)?;
    let api = forge.api_address(arguments.api_url.as_deref(), &variable)?;
    let tool = std::env::current_exe()
        .map_err(|error| Error::internal(format!("cannot find this program: {error}")))?;
    let bot = Bot {
        workspace,
        forge,
        repository,
        api,
        credentials: forge.credentials(&variable)?,
        policy: RetryPolicy::default(),
        tool,
        sandbox: perfquilt_bench::sandbox::check_support(&config.sandbox),
        state: SharedState::default(),
    };
    let service = Service {
        forge: bot.connect(RetryPolicy::hasty())?.into(),
        secret: Secret::new(&secret),
        config,
        configuration: configuration_digest(&bot.workspace)?,
        queue: bot.queue_path(),
    };
    let progress = context.output.progress();
    bot.make_private()?;
    // Opening the queue declares running jobs abandoned, so only one bot may do it.
    let _workspace_lock = bot.lock_workspace()?;
    bot.mount_areas(progress)?;
    bot.drop_foreign_jobs(progress)?;
    let listener = listen(&service, arguments.listen)?;
    progress.note(&format!("listening at http://{}", listener.address()?));
    let work = || bot.work(progress);
    let prebuild = || bot.prebuild(progress);
    let answer = || bot.answer(progress);
    let answer_slowly = || bot.answer_slowly(progress);
    std::thread::scope(|scope| {
        let worker = spawn(scope, &work)?;
        let builder = spawn(scope, &prebuild)?;
        let answerers = [spawn(scope, &answer)?, spawn(scope, &answer_slowly)?];
        let doing = bot.clone();
        let doing = Arc::new(move || doing.progress_text());
        let served = together(|| serve(service, listener, doing));
        let ended = |thread: ScopedJoinHandle<'_, Result<()>>| {
            let result = thread.join();
            result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let threads = [worker, builder].into_iter().chain(answerers);
        threads.map(ended).fold(served, Result::and)
    })
}

/// Starts one of the bot's threads.
fn spawn<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    work: &'env (impl Fn() -> Result<()> + Sync),
) -> Result<ScopedJoinHandle<'scope, Result<()>>> {
    let spawned = std::thread::Builder::new().spawn_scoped(scope, move || together(work));
    spawned.map_err(|error| {
        // The threads that were started end.
        perfquilt_system::process::interrupt();
        Error::internal(format!("cannot start a thread: {error}"))
            .hint("raise the limit of processes of this user (`ulimit -u`, TasksMax)")
    })
}

/// Runs `work` as one of the bot's threads; when it fails or panics, the other threads are ended too.
fn together(work: impl FnOnce() -> Result<()>) -> Result<()> {
    let result = catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Error::internal("a thread of the bot ended unexpectedly")));
    if result.is_err() {
        perfquilt_system::process::interrupt();
    }
    result
}
