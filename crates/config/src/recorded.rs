//! Files of `bench-config` that commands write and maintainers commit.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::document::Document;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::files::{if_there, write_file};

/// Reads the TOML file `path`, which messages call `shown`; a missing file is the default.
pub fn read_recorded<T: DeserializeOwned + Default>(path: &Path, shown: &str) -> Result<T> {
    match if_there("read", path, std::fs::read_to_string(path))? {
        None => Ok(T::default()),
        Some(text) => Document::new(shown, &text)
            .parse_without_tables(&[])
            .map(|(parsed, _)| parsed),
    }
}

/// Writes such a file atomically; `command` is the command that writes it.
pub fn write_recorded(path: &Path, command: &str, content: &impl Serialize) -> Result<()> {
    let body = toml::to_string(content)
        .map_err(|error| Error::internal(format!("cannot write {}: {error}", path.display())))?;
    let head = format!("# Written by `{command}`; keep it under version control.\n\n");
    write_file(path, (head + &body).as_bytes())
}
