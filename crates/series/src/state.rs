//! The JSON files in which a command leaves its state to later ones.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use perfquilt_model::error::{Error, Result};

/// Reads a state file; `None` if there is none. `hint` says what to do with a damaged one.
pub fn read<T: DeserializeOwned>(path: &Path, hint: impl FnOnce() -> String) -> Result<Option<T>> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("read", path, &error)),
    };
    serde_json::from_slice(&text).map(Some).map_err(|error| {
        Error::usage(format!("{} is damaged: {error}", path.display())).hint(hint())
    })
}

/// Returns the text of a state file.
pub fn text(state: &impl Serialize) -> Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(state)
        .map_err(|error| Error::internal(format!("cannot write JSON: {error}")))?;
    text.push(b'\n');
    Ok(text)
}
