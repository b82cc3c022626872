//! Writes git packs: many objects in one file, new versions of an object as deltas, with the index that git reads.
//!
//! The formats are git's pack version 2 and index version 2. Callers hash and delta objects themselves, on as many
//! threads as they like; one [`PackWriter`] then copies the encoded objects to the file. libgit2 and git read the packs;
//! their own writers hash and search every object again, which costs several times as much as writing it.

pub mod delta;
mod entry;
mod object;
mod writer;

pub use entry::{Encoder, Entry};
pub use object::{ObjectId, ObjectKind, hash};
pub use writer::{PackWriter, remove_unfinished};
