//! Reports: one attribution, several forms. Pure.

mod legend;
mod markdown;
mod number;
mod origin;
pub mod rebase;
mod terminal;
#[cfg(test)]
mod tests;
mod text;
mod view;

use crate::attribution::{Attribution, SUITE};
use crate::error::{Error, Result};

pub use markdown::markdown;
pub use terminal::terminal;

/// The attribution document as indented JSON with a line end.
///
/// # Errors
/// [`Kind::Internal`](crate::error::Kind::Internal) when it cannot be written as JSON.
pub fn json(attribution: &Attribution) -> Result<String> {
    let mut text = serde_json::to_string_pretty(attribution)
        .map_err(|error| Error::internal(format!("cannot write JSON: {error}")))?;
    text.push('\n');
    Ok(text)
}

/// A workload's name as a reader knows it.
fn workload_words(workload: &str) -> &str {
    match workload {
        SUITE => "all workloads",
        name => name,
    }
}
