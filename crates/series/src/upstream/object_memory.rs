//! Objects in memory: those that were read lately, and those that nobody has written to the store yet.
//!
//! A rebase reads each file of a patch up to six times and makes trees that only its next step looks at. libgit2 would
//! compress every one of them and hash it twice, with the slow function that finds collisions.

use std::collections::HashMap;
use std::sync::Arc;

use git2::{ObjectType, Oid};

/// Size of the objects that are kept because they were read, in bytes.
const READ_LIMIT: usize = 64 << 20;

/// An object's kind and content.
pub(super) type Object = (ObjectType, Arc<Vec<u8>>);

/// An object that is not in the store.
#[derive(Debug, Clone)]
pub(super) struct UnwrittenObject {
    pub kind: ObjectType,
    pub data: Arc<Vec<u8>>,
    /// The object that it is a new version of.
    pub base: Option<Oid>,
}

#[derive(Debug, Default)]
pub(super) struct ObjectMemory {
    is_used: bool,
    /// Objects read since the last change of generations, and those of the generation before.
    recent: HashMap<Oid, Object>,
    older: HashMap<Oid, Object>,
    /// Size of the recent ones in bytes.
    size: usize,
    unwritten: HashMap<Oid, UnwrittenObject>,
}

impl ObjectMemory {
    /// Keeps what is read from now on.
    pub fn use_it(&mut self) {
        self.is_used = true;
    }

    /// Returns an object that was read lately or is not written yet.
    pub fn get(&mut self, oid: &Oid) -> Option<Object> {
        if let Some(made) = self.unwritten.get(oid) {
            return Some((made.kind, Arc::clone(&made.data)));
        }
        if let Some((kind, data)) = self.recent.get(oid) {
            return Some((*kind, Arc::clone(data)));
        }
        let (kind, data) = self.older.remove(oid)?;
        self.keep(*oid, kind, &data);
        Some((kind, data))
    }

    /// Keeps an object that was read.
    pub fn keep(&mut self, oid: Oid, kind: ObjectType, data: &Arc<Vec<u8>>) {
        if !self.is_used || data.len() > READ_LIMIT / 4 {
            return;
        }
        if self.size + data.len() > READ_LIMIT / 2 {
            self.older = std::mem::take(&mut self.recent);
            self.size = 0;
        }
        self.size += data.len();
        self.recent.insert(oid, (kind, Arc::clone(data)));
    }

    /// Adds an object that is not in the store.
    pub fn add(&mut self, oid: Oid, object: UnwrittenObject) {
        self.unwritten.entry(oid).or_insert(object);
    }

    pub fn unwritten(&self, oid: &Oid) -> Option<UnwrittenObject> {
        self.unwritten.get(oid).cloned()
    }

    /// Removes an object that is in the store now.
    pub fn written(&mut self, oid: &Oid) {
        self.unwritten.remove(oid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_lately_stays_and_old_objects_go() {
        let oid = |n: u8| Oid::from_bytes(&[n; 20]).unwrap();
        let block = Arc::new(vec![0; READ_LIMIT / 8]);
        let mut memory = ObjectMemory::default();
        memory.keep(oid(0), ObjectType::Blob, &block);
        assert!(memory.get(&oid(0)).is_none());
        memory.use_it();
        for n in 1..40 {
            memory.keep(oid(n), ObjectType::Blob, &block);
            assert!(memory.get(&oid(1)).is_some(), "{n}");
            assert!(memory.recent.len() + memory.older.len() <= 8);
        }
        assert!(memory.get(&oid(2)).is_none());
    }
}
