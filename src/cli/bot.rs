//! `perfquilt bot`: serves pull requests.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};

use clap::{Args, Subcommand};

use super::Context;
use perfquilt_bench::sandbox::no_core_files;
use perfquilt_bot::{
    Bot, Connector, Mailbox, Service, SharedState, check_processors, configuration_digest, judge,
    listen, serve, use_git_settings,
};
use perfquilt_config::workspace::Workspace;
use perfquilt_forge::{FORGES, ForgeKind, Repository, RetryPolicy, Secret};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress;

/// The subcommands of `perfquilt bot`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Receive a forge's webhooks and run the requested measurements
    Serve(Serve),
    /// Measure series of patches that arrive as mails, and answer them
    Mail(Mail),
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

/// Arguments of `perfquilt bot mail`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt bot mail
  perfquilt -C /srv/series bot mail --once

[bot] and [bot.mail] of the configuration name the inbox, whose series are measured, and how answers are sent.")]
pub struct Mail {
    /// Read the inbox once, measure what is there, and exit
    #[arg(long)]
    once: bool,
}

/// Runs `perfquilt bot`.
pub fn run(context: &Context, command: &Command) -> Result<()> {
    match command {
        Command::Serve(arguments) => serve_forge(context, arguments),
        Command::Mail(arguments) => answer_mail(context, arguments),
        Command::Judge => {
            perfquilt_system::process::end_at_first_signal();
            let answer = judge(std::io::stdin().lock())?;
            context.output.print(&answer)
        }
    }
}

/// Returns a bot with the pull requests of the service that `open` names and connects to, and what else `open` returns.
fn bot<T>(
    context: &Context,
    open: impl FnOnce(&mut Workspace) -> Result<(&'static str, Connector, T)>,
) -> Result<(Bot, T)> {
    no_core_files();
    let mut workspace = context.workspace()?;
    let config = &workspace.config;
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
    let tool = std::env::current_exe()
        .map_err(|error| Error::internal(format!("cannot find this program: {error}")))?;
    let sandbox = perfquilt_bench::sandbox::check_support(&config.sandbox);
    let (service, connector, opened) = open(&mut workspace)?;
    let bot = Bot {
        service,
        connector,
        workspace,
        repository,
        policy: RetryPolicy::default(),
        tool,
        sandbox,
        state: SharedState::default(),
    };
    Ok((bot, opened))
}

/// Makes the workspace ready for a bot, which is the only one while the returned value lives.
fn prepare(bot: &Bot) -> Result<impl Sized + use<>> {
    bot.make_private()?;
    // Opening the queue declares running jobs abandoned, so only one bot may do it.
    let workspace_lock = bot.lock_workspace()?;
    bot.mount_areas()?;
    bot.drop_foreign_jobs()?;
    Ok(workspace_lock)
}

/// Runs `perfquilt bot mail`.
fn answer_mail(context: &Context, arguments: &Mail) -> Result<()> {
    let (bot, mailbox) = bot(context, |workspace| {
        let mailbox = Arc::new(Mailbox::open(workspace)?);
        let opened = Arc::clone(&mailbox);
        let connector: Connector = Arc::new(move |repository, _| Ok(opened.forge(repository)));
        Ok(("the mail program", connector, mailbox))
    })?;
    let _workspace_lock = prepare(&bot)?;
    mailbox.load()?;
    if arguments.once {
        // What an earlier run left comes first.
        bot.read_mail(&mailbox)?;
        bot.work(true)?;
        while bot.read_mail(&mailbox)? {
            bot.work(true)?;
        }
        return Ok(());
    }
    let work = || bot.work(false);
    let prebuild = || bot.prebuild();
    std::thread::scope(|scope| {
        let threads = [spawn(scope, &work)?, spawn(scope, &prebuild)?];
        let read = together(|| bot.follow_mail(&mailbox));
        threads.into_iter().map(ended).fold(read, Result::and)
    })
}

/// Runs `perfquilt bot serve`.
fn serve_forge(context: &Context, arguments: &Serve) -> Result<()> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (bot, secret) = bot(context, |workspace| {
        let secret = variable("PERFQUILT_WEBHOOK_SECRET").ok_or_else(|| {
            Error::bot_settings("PERFQUILT_WEBHOOK_SECRET is not set")
                .hint("`openssl rand -hex 32` makes one; give the forge the same")
        })?;
        let kind = forge_kind(&workspace.config.bot)?;
        let api = kind.api_address(arguments.api_url.as_deref(), &variable)?;
        let credentials = kind.credentials(&variable)?;
        let connector: Connector = Arc::new(move |repository, policy| {
            kind.connect(repository.clone(), &api, credentials.clone(), policy)
        });
        Ok((kind.title, connector, Secret::new(&secret)))
    })?;
    let service = Service {
        forge: bot.connect(RetryPolicy::hasty())?.into(),
        secret,
        config: bot.workspace.config.clone(),
        configuration: configuration_digest(&bot.workspace)?,
        queue: bot.queue_path(),
    };
    let _workspace_lock = prepare(&bot)?;
    let listener = listen(&service, arguments.listen)?;
    progress::note(&format!("listening at http://{}", listener.address()?));
    let work = || bot.work(false);
    let prebuild = || bot.prebuild();
    let answer = || bot.answer();
    let answer_slowly = || bot.answer_slowly();
    std::thread::scope(|scope| {
        let worker = spawn(scope, &work)?;
        let builder = spawn(scope, &prebuild)?;
        let answerers = [spawn(scope, &answer)?, spawn(scope, &answer_slowly)?];
        let doing = bot.clone();
        let doing = Arc::new(move || doing.progress_text());
        let served = together(|| serve(service, listener, doing));
        let threads = [worker, builder].into_iter().chain(answerers);
        threads.map(ended).fold(served, Result::and)
    })
}

/// Waits for one of the bot's threads, and returns its result.
fn ended(thread: ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    let result = thread.join();
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
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
