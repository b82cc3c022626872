//! Writes git packs: many objects in one file, new versions of an object as deltas, with the index that git reads.
//!
//! The formats are git's pack version 2 and index version 2. Callers hash and delta objects themselves, on as many
//! threads as they like; one [`PackWriter`] then copies the encoded objects to the file. libgit2 and git read the packs;
//! their own writers hash and search every object again, which costs several times as much as writing it.
//! [`PackReader`] reads whole objects, such as a release's files, faster than libgit2.
//!
//! # Example
//!
//! ```
//! use perfquilt_pack::{EntryEncoder, ObjectKind, PackWriter, hash};
//!
//! let content = b"hello\n";
//! let id = hash(ObjectKind::Blob, content);
//! assert_eq!(id[..3], [0xce, 0x01, 0x36]); // as `git hash-object` has it
//!
//! let folder = tempfile::tempdir().unwrap();
//! let mut pack = PackWriter::new(folder.path())?;
//! pack.add(&EntryEncoder::default().whole(ObjectKind::Blob, id, content)?)?;
//! pack.finish()?;
//! assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2); // the pack and its index
//! # Ok::<(), perfquilt_model::Error>(())
//! ```

pub mod delta;
mod entry;
mod object;
mod reader;
mod writer;

pub use entry::{EntryEncoder, PackEntry};
pub use object::{ObjectId, ObjectKind, hash};
pub use reader::PackReader;
pub use writer::{PackWriter, remove_unfinished};
