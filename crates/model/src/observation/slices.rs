//! Slices: the shortest timed units.

use crate::point::Point;

/// The slices of one point in one block, in round order: round `i` of every point of the block
/// happened within the same few milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Slices {
    /// The point.
    pub point: Point,
    /// Cost of each slice, in the meter's unit: wall-clock or processor nanoseconds, bytes, or events. Readers ignore
    /// values that are not finite numbers above 0 (a clock that jumped, a slice that failed).
    pub values: Vec<f32>,
    /// Transactions in one slice.
    pub transactions_per_slice: u64,
}
