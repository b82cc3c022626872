//! The JSON files in which a command leaves its state to later ones.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use perfquilt_model::error::{Error, Result};
use perfquilt_system::files::if_there;

/// Reads a state file; `None` if there is none. `hint` says what to do with a damaged one.
pub fn read<T: DeserializeOwned>(path: &Path, hint: impl FnOnce() -> String) -> Result<Option<T>> {
    let Some(text) = if_there("read", path, std::fs::read(path))? else {
        return Ok(None);
    };
    serde_json::from_slice(&text).map(Some).map_err(|error| {
        Error::state_damaged(format!("{} is damaged: {error}", path.display())).hint(hint())
    })
}

/// Returns the text of a state file.
pub fn text(state: &impl Serialize) -> Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(state).map_err(Error::json)?;
    text.push(b'\n');
    Ok(text)
}
