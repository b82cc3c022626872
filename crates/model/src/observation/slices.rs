//! Raw slices of timed blocks.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::point::Point;

/// The slices of one point in one block, in round order: round `i` of every point of the block
/// happened within the same few milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slices {
    /// The point.
    pub point: Point,
    /// Cost of each slice, in the meter's unit: wall-clock or processor nanoseconds, bytes, or events. Readers ignore
    /// values that are not finite numbers above 0 (a clock that jumped, a slice that failed).
    #[serde(serialize_with = "pack", deserialize_with = "unpack")]
    pub values: Vec<f32>,
    /// Transactions in one slice.
    pub transactions_per_slice: u64,
}

/// Writes values as little-endian `f32` in base64.
fn pack<S: Serializer>(values: &[f32], serializer: S) -> Result<S::Ok, S::Error> {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    serializer.serialize_str(&STANDARD.encode(bytes))
}

fn unpack<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f32>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let bytes = STANDARD.decode(&text).map_err(de::Error::custom)?;
    match bytes.as_chunks::<4>() {
        (values, []) => Ok(values.iter().map(|v| f32::from_le_bytes(*v)).collect()),
        _ => Err(de::Error::custom("slices end within a value")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_come_back_as_they_were() {
        let slices = Slices {
            point: Point::Step(1),
            values: vec![1.5, f32::MAX, f32::MIN_POSITIVE],
            transactions_per_slice: 2,
        };
        let text = serde_json::to_string(&slices).unwrap();
        assert_eq!(serde_json::from_str::<Slices>(&text).unwrap(), slices);
        let cut = text.replace(r#""values":""#, r#""values":"AAAA"#);
        assert!(serde_json::from_str::<Slices>(&cut).is_err());
        let more = text.replace('{', r#"{"x":1,"#);
        assert!(serde_json::from_str::<Slices>(&more).is_err());
    }
}
