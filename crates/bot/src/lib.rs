//! The service that answers pull requests: takes GitHub's webhooks, keeps a queue of what people ask for, and
//! shows what it does. Who may ask, and in which words, is decided here too.

mod access;
mod ahead;
mod area;
mod command;
mod commits;
mod connections;
mod job;
mod metrics;
mod page;
mod places;
mod prepare;
mod serve;
mod source;
mod speak;
mod spoken;
mod webhook;
mod worker;

pub use ahead::check as check_processors;
pub use serve::{Door, Service, listen, serve};
pub use worker::{Bot, State};
