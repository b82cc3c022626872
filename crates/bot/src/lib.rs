//! The service that measures pull requests: receives GitHub's webhooks, authorizes and parses commands, queues
//! jobs, runs them and shows the status.

mod access;
mod bot;
mod command;
mod command_lines;
mod commits;
mod connections;
mod fetch;
mod job;
mod job_workspace;
mod metrics;
mod page;
mod paths;
mod prebuild;
mod prepare;
mod replies;
mod serve;
mod untrusted;
mod webhook;
mod worker;

pub use bot::{Bot, SharedState};
pub use prebuild::check_processors;
pub use serve::{Listener, Service, listen, serve};
