//! Writing objects to the store, as a pack or one by one.
//!
//! An import writes no deltas: compression and file creation limit its speed, and one file for 36,000 objects avoids the
//! latter. A stack consists almost entirely of deltas; [`ObjectWriter::write_version`] bounds the length of their chains.

use git2::{ObjectType, Odb, OdbLookupFlags, Oid};

use super::objects::{self, Objects, object_id, object_kind};
use super::store_error;
use perfquilt_model::error::Result;
use perfquilt_pack::{Encoder, PackWriter};
use perfquilt_system::locks::Lock;

/// Up to this many objects are written as loose objects, because another pack would slow down every reader.
const LOOSE_LIMIT: usize = 100;

/// Maximum length of a delta chain; git's default.
const CHAIN_LIMIT: usize = 50;

/// Hashes, compresses and writes objects, as a pack or as loose objects.
pub struct ObjectWriter<'a> {
    store: &'a Objects,
    database: Odb<'a>,
    packed: Option<(Encoder, PackWriter, Lock)>,
}

impl<'a> ObjectWriter<'a> {
    /// Creates a writer for about `expected` objects into `store`.
    pub fn new(store: &'a Objects, expected: usize) -> Result<Self> {
        let packed = if expected > LOOSE_LIMIT {
            let lock = store.lock_import()?;
            Some((
                Encoder::default(),
                PackWriter::new(&store.pack_folder())?,
                lock,
            ))
        } else {
            None
        };
        Ok(ObjectWriter {
            store,
            database: store.database()?,
            packed,
        })
    }

    /// Writes an object and returns its id. A pack may repeat objects of other packs.
    pub fn write(&mut self, kind: ObjectType, data: &[u8]) -> Result<Oid> {
        let oid = objects::hash(kind, data);
        self.write_named(kind, oid, data)?;
        Ok(oid)
    }

    /// Writes an object whose id is known.
    pub fn write_named(&mut self, kind: ObjectType, oid: Oid, data: &[u8]) -> Result<()> {
        match &mut self.packed {
            // A lookup in the store would cost more than writing the object twice.
            Some((encoder, pack, _)) => {
                let id = object_id(oid);
                if pack.depth(&id).is_none() {
                    pack.add(&encoder.whole(object_kind(kind), id, data)?)?;
                }
            }
            None => {
                if !self.database.exists_ext(oid, OdbLookupFlags::NO_REFRESH) {
                    self.database.write(kind, data).map_err(store_error)?;
                }
            }
        }
        Ok(())
    }

    /// Writes the object `oid` that is a new version of `base`. `delta` computes the delta from `base`, which a pack
    /// stores instead of the object if it also holds the base.
    pub fn write_version(
        &mut self,
        (kind, oid): (ObjectType, Oid),
        data: &[u8],
        base: Oid,
        delta: impl FnOnce() -> Vec<u8>,
    ) -> Result<()> {
        let Some((encoder, pack, _)) = &mut self.packed else {
            return self.write_named(kind, oid, data);
        };
        let (id, base) = (object_id(oid), object_id(base));
        if pack.depth(&id).is_some() {
            return Ok(());
        }
        if pack.depth(&base).is_some_and(|depth| depth < CHAIN_LIMIT) {
            let delta = delta();
            if delta.len() < data.len() / 2 {
                return pack.add(&encoder.delta(id, base, &delta)?);
            }
        }
        pack.add(&encoder.whole(object_kind(kind), id, data)?)
    }

    /// Publishes the new objects in the store.
    pub fn finish(self) -> Result<()> {
        if let Some((_, pack, _lock)) = self.packed
            && !pack.is_empty()
        {
            pack.finish()?;
            self.store.database()?.refresh().map_err(store_error)?;
        }
        Ok(())
    }
}
