//! Which change between two states made it slower: decisions from noisy comparisons. Pure.
//!
//! *States* are lined up from a good one to a bad one; each but the first adds one change (a patch, an
//! upstream commit). The engine asks for builds and blocks, is told what came of them as [`Event`]s,
//! and after each decides what to ask next. What it decides depends on the question and the events
//! alone, so that a session is those two, and can be stopped, resumed, shown and replayed.
//!
//! Three kinds of comparison, all of values of the same block:
//!
//! - *Is a span slower?* Judged at every look with an error rate that holds for all looks together
//!   ([`crate::stats::bayes_factor_above`]): shown slower, shown not slower by `size`, or open.
//! - *In which part of a slower span is the change?* A likelihood ratio of "the change is in this part"
//!   against the others (Wald, *Sequential Analysis*, 1947): fast, and allowed to be wrong now and then.
//! - *Is it really this one?* The change that was arrived at is judged like a span, from blocks that were
//!   measured after it was named. So whatever chance led to it has no part in the claim.
//!
//! The rest of the range is judged together with the named change: what is slower there as well is
//! searched in turn, and when nothing is, that is said with the same error rate.

mod engine;
mod evidence;
mod judge;
mod outcome;
mod question;
mod search;
mod session;
pub mod two_way;

#[cfg(test)]
pub(crate) mod tests;

pub use engine::{Action, Engine};
pub use evidence::{Block, Event, Explained};
pub use outcome::{
    Conclusion, Cost, Culprit, Decision, Effect, Ending, FileStat, How, Measured, Next, Outcome,
    Part, Rest,
};
pub use question::{DEFAULT_ERROR, DEFAULT_SIZE, Direction, Question, State};
pub use session::{SCHEMA, Session};
