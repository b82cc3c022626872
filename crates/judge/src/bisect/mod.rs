//! Bisection of a performance change between two states, with decisions from noisy comparisons. Pure
//! functions.
//!
//! *States* are ordered from a good one to a bad one; each but the first adds one change (a patch, an
//! upstream commit). The bisector requests builds and blocks, receives the results as [`Event`]s, and decides
//! after each one what to request next. Its decisions depend on the question and the events alone, so a
//! session consists of those two and can be stopped, resumed, shown and replayed.
//!
//! There are three kinds of comparison, all of values in the same block:
//!
//! - *Is a span slower?* A sequential test with an error rate over all looks together
//!   ([`crate::stats::bayes_factor_above`]); the result is slower, not slower by `size`, or open.
//! - *In which part of a slower span is the change?* A likelihood ratio of "the change is in this part"
//!   against the other parts (Wald, *Sequential Analysis*, 1947). It is fast and may be wrong occasionally.
//! - *Is it really this one?* The candidate change is tested like a span, from blocks measured after the
//!   bisector named it. The selection of the candidate therefore does not bias the test.
//!
//! The rest of the range is tested together with the named change. The bisector searches any other slower span
//! in turn; if there is none, this conclusion has the same error rate.

mod bisector;
mod evidence;
mod judge;
mod outcome;
mod question;
mod search;
mod session;
pub mod two_way;

#[cfg(test)]
pub(crate) mod tests;

pub use bisector::{Action, Bisector};
pub use evidence::{Event, Explanation, MeasuredBlock};
pub use outcome::{
    BisectOutcome, Conclusion, Culprit, Decision, DecisionKind, FileStat, NarrowingReason,
    NextCommand, RemainingSpan, SessionCost, SpanEffect, SpanStatus,
};
pub use question::{DEFAULT_BLOCKS, DEFAULT_ERROR, DEFAULT_SIZE, Direction, Question, Revision};
pub use session::BisectSession;

/// Version of the JSON documents of a bisection: sessions, outcomes and comparisons of two releases.
pub const SCHEMA: u32 = 1;
