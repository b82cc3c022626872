//! Encoding of function costs as compressed JSON.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

/// Encodes costs by name; `None` if they cannot be written.
pub(super) fn encode(costs: &BTreeMap<String, f64>) -> Option<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&serde_json::to_vec(costs).ok()?).ok()?;
    encoder.finish().ok()
}

/// Decodes `bytes`; `None` if they are damaged.
pub(super) fn decode(bytes: &[u8]) -> Option<BTreeMap<String, f64>> {
    let mut text = Vec::new();
    ZlibDecoder::new(bytes).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_of_functions_survive_and_damage_is_seen() {
        let costs = BTreeMap::from([("f(int)".to_owned(), 0.1), ("\u{fffd}".to_owned(), 3e9)]);
        let bytes = encode(&costs).unwrap();
        assert_eq!(decode(&bytes), Some(costs));
        assert_eq!(decode(&bytes[..bytes.len() / 2]), None);
    }
}
