//! Slices as bytes: little-endian `f32` nanoseconds in round order. Costs of functions as compressed JSON.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

/// The bytes of `values`.
pub(super) fn encode(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

/// The values in `bytes`; a cut-off last one is dropped.
pub(super) fn decode(bytes: &[u8]) -> Vec<f32> {
    bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|&value| f32::from_le_bytes(value))
        .collect()
}

/// The bytes of costs by name; `None` when they cannot be written.
pub(super) fn encode_functions(costs: &BTreeMap<String, f64>) -> Option<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&serde_json::to_vec(costs).ok()?).ok()?;
    encoder.finish().ok()
}

/// The costs in `bytes`; `None` when they are damaged.
pub(super) fn decode_functions(bytes: &[u8]) -> Option<BTreeMap<String, f64>> {
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
        let bytes = encode_functions(&costs).unwrap();
        assert_eq!(decode_functions(&bytes), Some(costs));
        assert_eq!(decode_functions(&bytes[..bytes.len() / 2]), None);
    }

    #[test]
    fn every_bit_survives() {
        let values = [0.0, -0.0, 1.5, f32::MAX, f32::MIN_POSITIVE, f32::INFINITY];
        let bytes = encode(&values);
        assert_eq!(bytes.len(), 24);
        let back: Vec<u32> = decode(&bytes).iter().map(|v| v.to_bits()).collect();
        assert_eq!(back, values.map(f32::to_bits));
    }
}
