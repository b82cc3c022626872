//! Encoding of slices as bytes: little-endian `f32` nanoseconds in round order.

/// Encodes `values`.
pub(super) fn encode(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

/// Decodes `bytes`; a truncated last value is dropped.
pub(super) fn decode(bytes: &[u8]) -> Vec<f32> {
    bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|&value| f32::from_le_bytes(value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_survives() {
        let values = [0.0, -0.0, 1.5, f32::MAX, f32::MIN_POSITIVE, f32::INFINITY];
        let bytes = encode(&values);
        assert_eq!(bytes.len(), 24);
        let back: Vec<u32> = decode(&bytes).iter().map(|v| v.to_bits()).collect();
        assert_eq!(back, values.map(f32::to_bits));
    }
}
