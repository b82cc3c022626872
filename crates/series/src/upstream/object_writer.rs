//! Writing objects to the store, as a pack or one by one, at once or at the end.
//!
//! An import writes no deltas: compression and file creation limit its speed, and one file for 36,000 objects avoids the
//! latter. A stack consists almost entirely of deltas; [`ObjectWriter::write_version`] bounds the length of their chains.

use std::collections::BTreeSet;
use std::sync::Arc;

use git2::{ObjectType, Odb, OdbLookupFlags, Oid};

use super::object_memory::UnwrittenObject;
use super::objects::{self, Objects, object_id, object_kind};
use super::store_error;
use perfquilt_model::error::Result;
use perfquilt_pack::{EntryEncoder, PackWriter, delta};
use perfquilt_system::locks::Lock;

/// Up to this many objects are written as loose objects, because another pack would slow down every reader.
const LOOSE_LIMIT: usize = 100;

/// Maximum length of a delta chain; git's default.
const CHAIN_LIMIT: usize = 50;

/// Size in bytes of the objects of a [deferred](ObjectWriter::deferred) writer from which on they are written.
const DEFERRED_LIMIT: usize = 128 << 20;

/// Hashes, compresses and writes objects, as a pack or as loose objects.
pub struct ObjectWriter<'a> {
    store: &'a Objects,
    database: Odb<'a>,
    target: WriteTarget,
}

/// Where a writer puts objects.
enum WriteTarget {
    Loose,
    Pack(Box<(EntryEncoder, PackWriter, Lock)>),
    /// In memory until the end; `order` has the objects, those that others are made from first.
    Memory {
        order: Vec<Oid>,
        known: BTreeSet<Oid>,
        size: usize,
    },
}

impl<'a> ObjectWriter<'a> {
    /// Creates a writer for about `expected` objects into `store`.
    pub fn new(store: &'a Objects, expected: usize) -> Result<Self> {
        let target = if expected > LOOSE_LIMIT {
            let lock = store.lock_import()?;
            let pack = PackWriter::new(&store.pack_folder())?;
            WriteTarget::Pack(Box::new((EntryEncoder::default(), pack, lock)))
        } else {
            WriteTarget::Loose
        };
        Ok(ObjectWriter {
            store,
            database: store.database()?,
            target,
        })
    }

    /// Creates a writer whose objects are in memory, where only `store` reads them, until [`ObjectWriter::finish`].
    pub fn deferred(store: &'a Objects) -> Result<Self> {
        store.memory().borrow_mut().use_it();
        Ok(ObjectWriter {
            store,
            database: store.database()?,
            target: WriteTarget::Memory {
                order: Vec::new(),
                known: BTreeSet::new(),
                size: 0,
            },
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
        match &mut self.target {
            // A lookup in the store would cost more than writing the object twice.
            WriteTarget::Pack(target) => {
                let (encoder, pack, _) = &mut **target;
                let id = object_id(oid);
                if pack.depth(&id).is_none() {
                    pack.add(&encoder.whole(object_kind(kind), id, data)?)?;
                }
            }
            WriteTarget::Loose => {
                if !self.database.exists_ext(oid, OdbLookupFlags::NO_REFRESH) {
                    self.database.write(kind, data).map_err(store_error)?;
                }
            }
            WriteTarget::Memory { .. } => self.defer(kind, oid, data, None)?,
        }
        Ok(())
    }

    /// Keeps an object in memory, with the one that it is a new version of.
    fn defer(&mut self, kind: ObjectType, oid: Oid, data: &[u8], base: Option<Oid>) -> Result<()> {
        let WriteTarget::Memory { order, known, size } = &mut self.target else {
            return Ok(());
        };
        if !known.insert(oid) {
            return Ok(());
        }
        order.push(oid);
        *size += data.len();
        let is_too_much = *size > DEFERRED_LIMIT;
        let object = UnwrittenObject {
            kind,
            data: Arc::new(data.to_vec()),
            base,
        };
        self.store.memory().borrow_mut().add(oid, object);
        if is_too_much {
            self.write_deferred()?;
        }
        Ok(())
    }

    /// Writes the objects in memory that the store lacks.
    fn write_deferred(&mut self) -> Result<()> {
        let WriteTarget::Memory { order, size, .. } = &mut self.target else {
            return Ok(());
        };
        *size = 0;
        let mut order = std::mem::take(order);
        order.retain(|oid| !self.database.exists_ext(*oid, OdbLookupFlags::NO_REFRESH));
        let memory = self.store.memory();
        let mut writer = ObjectWriter::new(self.store, order.len())?;
        for oid in &order {
            let Some(made) = memory.borrow().unwritten(oid) else {
                continue;
            };
            let base = made
                .base
                .and_then(|base| Some((base, memory.borrow().unwritten(&base)?)));
            match base {
                Some((base, before)) => {
                    let delta = || match made.kind {
                        ObjectType::Tree => delta::of_trees(&before.data, &made.data),
                        _ => delta::of_lines(&before.data, &made.data),
                    };
                    writer.write_version((made.kind, *oid), &made.data, base, delta)?;
                }
                None => writer.write_named(made.kind, *oid, &made.data)?,
            }
        }
        writer.finish()?;
        let mut memory = memory.borrow_mut();
        order.iter().for_each(|oid| memory.written(oid));
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
        let (encoder, pack) = match &mut self.target {
            WriteTarget::Pack(target) => (&mut target.0, &mut target.1),
            WriteTarget::Loose => return self.write_named(kind, oid, data),
            WriteTarget::Memory { .. } => return self.defer(kind, oid, data, Some(base)),
        };
        let (id, base) = (object_id(oid), object_id(base));
        if pack.depth(&id).is_some() {
            return Ok(());
        }
        if pack.depth(&base).is_none()
            && let Some(entry) = self.store.packs().compressed(&base)
        {
            pack.add(&entry)?;
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
    pub fn finish(mut self) -> Result<()> {
        self.write_deferred()?;
        if let WriteTarget::Pack(target) = self.target {
            let (_, pack, _lock) = *target;
            if !pack.is_empty() {
                pack.finish()?;
                self.store.database()?.refresh().map_err(store_error)?;
            }
        }
        Ok(())
    }
}
