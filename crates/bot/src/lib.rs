//! The service that measures pull requests: receives a forge's webhooks, authorizes and parses commands, queues
//! jobs, runs them and shows the status.
//!
//! # Example
//!
//! ```
//! use perfquilt_bot::{Service, listen};
//! use perfquilt_config::{Config, init};
//! use perfquilt_forge::{Credentials, FORGES, RetryPolicy, Secret};
//!
//! let folder = tempfile::tempdir().unwrap();
//! init::init(folder.path(), init::template("redis")?)?;
//! let token = Credentials::Token { token: Secret::new("x"), login: None };
//! let api = "https://forge.example/api";
//! let forge = FORGES[0].connect("acme/series".parse()?, api, token, RetryPolicy::default())?;
//! let service = Service {
//!     forge: forge.into(),
//!     secret: Secret::new("0123456789abcdef"),
//!     config: Config::load(folder.path())?,
//!     configuration: String::new(),
//!     queue: folder.path().join("queue.db"),
//! };
//! let listener = listen(&service, "127.0.0.1:0".parse().unwrap())?;
//! assert_ne!(listener.address()?.port(), 0);
//! # Ok::<(), perfquilt_model::Error>(())
//! ```

mod acceptances;
mod access;
mod area;
mod area_disk;
mod bot;
mod command;
mod command_lines;
mod commits;
mod connections;
mod fetch;
mod job;
mod job_workspace;
mod judging;
mod limited_git;
mod mail;
mod metrics;
mod page;
mod paths;
mod prebuild;
mod prepare;
mod replies;
mod serve;
mod webhook;
mod worker;

pub use acceptances::configuration_digest;
pub use area_disk::bot_protections;
pub use bot::{Bot, Connector, SharedState};
pub use fetch::use_git_settings;
pub use judging::judge;
pub use mail::Mailbox;
pub use prebuild::check_processors;
pub use serve::{Listener, Service, listen, serve};
pub use webhook::interpret;
