//! The difference between two servers, function by function: where the cost went.
//!
//! Both servers do the same transactions (same data, same seed), either under callgrind, which tells what each
//! instruction of which function was executed for, or sampled by perf at full speed, which tells time but not
//! calls. [`measure`](fn@measure) does that several times over, [`Table`] is one time's costs by function,
//! [`Difference`] what several times say about two servers.

mod difference;
mod frames;
mod measure;
mod stacks;
mod table;

pub use difference::{Change, Difference, Edge, Function, Hot};
pub use measure::{Pair, Source, Subject, measure};
pub use stacks::flame_graph;
pub use table::{Costs, Table};
