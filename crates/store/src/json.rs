//! Values that a column holds as JSON, with a digest.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use perfquilt_model::error::{Error, Result};

/// Returns `value` as JSON and, on a line of its own, the SHA-256 that [`Json`] compares; `what` is its noun in an error.
pub(super) fn json(what: &str, value: &(impl Serialize + ?Sized)) -> Result<String> {
    let text = serde_json::to_string(value)
        .map_err(|error| Error::store_damaged(format!("cannot write {what}: {error}")))?;
    let digest = hex::encode(Sha256::digest(&text));
    Ok(format!("{text}\n{digest}"))
}

/// A text of a column as the value whose JSON it is.
pub(super) struct Json<T>(pub T);

impl<T: DeserializeOwned> FromSql for Json<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let text = value.as_str()?;
        let (json, digest) = text.split_once('\n').unwrap_or((text, ""));
        if digest != hex::encode(Sha256::digest(json)) {
            return Err(FromSqlError::other(Error::digest(
                "its digest is another, so a bit was flipped",
            )));
        }
        let value = serde_json::from_str(json).map_err(FromSqlError::other)?;
        Ok(Json(value))
    }
}
