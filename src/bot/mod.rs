//! The service that answers pull requests: takes GitHub's webhooks, keeps a queue of what people ask for, and
//! shows what it does. Who may ask, and in which words, is decided here too.

mod access;
mod command;
mod job;
mod metrics;
mod page;
mod serve;
pub mod webhook;
mod worker;

pub use access::{Access, Speaker};
pub use command::{Command, Parsed, Wrong, help, parse};
pub use serve::{Service, serve};
pub use worker::Bot;
