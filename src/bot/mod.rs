//! What people ask of the bot on a pull request, and who may.

mod access;
mod command;

pub use access::{Access, Speaker};
pub use command::{Command, Parsed, Wrong, help, parse};
