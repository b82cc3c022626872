//! Encoding of function costs as compressed JSON.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use rusqlite::ToSql;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, ValueRef};

/// Encodes costs by name; `None` if they cannot be written.
fn encode(costs: &BTreeMap<String, f64>) -> Option<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&serde_json::to_vec(costs).ok()?).ok()?;
    encoder.finish().ok()
}

/// The costs in a column.
#[derive(Debug)]
pub(super) struct Costs(pub BTreeMap<String, f64>);

impl ToSql for Costs {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let failed = || rusqlite::Error::ToSqlConversionFailure("costs of functions".into());
        encode(&self.0).map(ToSqlOutput::from).ok_or_else(failed)
    }
}

impl FromSql for Costs {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let mut text = Vec::new();
        let read = ZlibDecoder::new(value.as_blob()?).read_to_end(&mut text);
        read.map_err(FromSqlError::other)?;
        let costs = serde_json::from_slice(&text);
        costs.map(Costs).map_err(FromSqlError::other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_of_functions_survive_and_damage_is_seen() {
        let costs = BTreeMap::from([("f(int)".to_owned(), 0.1), ("\u{fffd}".to_owned(), 3e9)]);
        let bytes = encode(&costs).unwrap();
        let decode = |bytes: &[u8]| Costs::column_result(ValueRef::Blob(bytes));
        assert_eq!(decode(&bytes).unwrap().0, costs);
        assert!(decode(&bytes[..bytes.len() / 2]).is_err());
    }
}
