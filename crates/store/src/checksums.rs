//! Checksums of stored blocks: of their values, and of the raw slices behind them. SQLite reads a flipped bit as another
//! value, and a figure made from it would be wrong in silence.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::params;
use sha2::{Digest, Sha256};

use super::columns::Record;
use super::read::observation;
use super::{ExperimentId, SliceBlob, Store};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{Meter, Observation};

/// A block's workload, meter, whether it belongs to the end-to-end check, and its number.
type BlockKey = (String, Meter, bool, u32);
/// A block of slices: its workload, whether it belongs to the end-to-end check, and its number.
pub(super) type SliceKey = (String, bool, u32);

impl Store {
    /// Stores the checksums of the blocks that `observations` and `slices`, which were just inserted, belong to.
    pub(super) fn insert_checksums(
        &self,
        id: ExperimentId,
        observations: &[Observation],
        slices: &[SliceBlob],
    ) -> Result<()> {
        let keys: BTreeSet<BlockKey> = observations.iter().map(key).collect();
        for (workload, meter, direct, block) in keys {
            // A block may be stored in several parts.
            let stored = self.stored_values(id, (&workload, meter, direct, block))?;
            self.database.execute(
                "INSERT OR REPLACE INTO checksums VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![
                    id.0,
                    workload,
                    meter.name(),
                    direct,
                    block,
                    of_values(&stored)
                ],
            )?;
        }
        let key = |slices: &SliceBlob| (slices.workload.clone(), slices.direct, slices.block);
        let keys: BTreeSet<SliceKey> = slices.iter().map(key).collect();
        for key in keys {
            let digest = self.digest_of_slices(id, &key)?;
            let (workload, direct, block) = key;
            self.database.execute(
                "INSERT OR REPLACE INTO slice_checksums VALUES (?1, ?2, ?3, ?4, ?5)",
                params![id.0, workload, direct, block, digest],
            )?;
        }
        Ok(())
    }

    fn stored_values(
        &self,
        id: ExperimentId,
        (workload, meter, direct, block): (&str, Meter, bool, u32),
    ) -> Result<Vec<Observation>> {
        self.database.map(
            &format!(
                "SELECT {} FROM observations
                 WHERE experiment = ?1 AND workload = ?2 AND meter = ?3 AND direct = ?4 AND block = ?5
                 ORDER BY point",
                Observation::names()
            ),
            params![id.0, workload, meter.name(), direct, block],
            |row| observation(row, ""),
        )
    }

    /// Compares `observations` of the experiment `id`, all of them in the order of the table, with their checksums.
    pub(super) fn check_values(
        &self,
        id: ExperimentId,
        observations: &[Observation],
    ) -> Result<()> {
        let mut stored = self.checksums(id)?;
        for block in observations.chunk_by(|a, b| key(a) == key(b)) {
            let Some(first) = block.first() else { continue };
            let key = key(first);
            if stored.remove(&key) != Some(of_values(block)) {
                return Err(self.damaged(id, &key.0, &format!(" ({})", key.1), key.3));
            }
        }
        match stored.into_keys().next() {
            Some((workload, meter, _, block)) => {
                Err(self.damaged(id, &workload, &format!(" ({meter})"), block))
            }
            None => Ok(()),
        }
    }

    /// Returns the stored checksums of the values of an experiment.
    fn checksums(&self, id: ExperimentId) -> Result<BTreeMap<BlockKey, Vec<u8>>> {
        let rows = self.database.rows(
            "SELECT workload, meter, direct, block, digest FROM checksums WHERE experiment = ?1",
            [id.0],
        )?;
        Ok(rows.into_iter().collect())
    }

    /// Compares the slices of a block, which may have none, with their checksum.
    pub(super) fn check_slices(&self, id: ExperimentId, key: &SliceKey) -> Result<()> {
        let (workload, direct, block) = key;
        let stored: Vec<Vec<u8>> = self.database.rows(
            "SELECT digest FROM slice_checksums
             WHERE experiment = ?1 AND workload = ?2 AND direct = ?3 AND block = ?4",
            params![id.0, workload, direct, block],
        )?;
        let of_none = Sha256::digest([]).to_vec();
        if *stored.first().unwrap_or(&of_none) == self.digest_of_slices(id, key)? {
            return Ok(());
        }
        Err(self.damaged(id, workload, " (raw slices)", *block))
    }

    /// Checks that no block of slices with a checksum is gone.
    pub(super) fn check_slice_blocks(&self, id: ExperimentId) -> Result<()> {
        let gone: Vec<(String, u32)> = self.database.rows(
            "SELECT workload, block FROM slice_checksums AS of WHERE experiment = ?1 AND NOT EXISTS (
                 SELECT 1 FROM slices WHERE experiment = of.experiment AND workload = of.workload
                 AND direct = of.direct AND block = of.block)
             LIMIT 1",
            [id.0],
        )?;
        match gone.first() {
            Some((workload, block)) => Err(self.damaged(id, workload, " (raw slices)", *block)),
            None => Ok(()),
        }
    }

    fn digest_of_slices(
        &self,
        id: ExperimentId,
        (workload, direct, block): &SliceKey,
    ) -> Result<Vec<u8>> {
        let mut digest = Sha256::new();
        self.database.map(
            "SELECT point, transactions, slice_values FROM slices
             WHERE experiment = ?1 AND workload = ?2 AND direct = ?3 AND block = ?4 ORDER BY point",
            params![id.0, workload, direct, block],
            |row| {
                add(&mut digest, row.get_ref(0)?.as_str()?.as_bytes());
                digest.update(row.get::<_, i64>(1)?.to_le_bytes());
                add(&mut digest, row.get_ref(2)?.as_blob()?);
                Ok(())
            },
        )?;
        Ok(digest.finalize().to_vec())
    }

    fn damaged(&self, id: ExperimentId, workload: &str, what: &str, block: u32) -> Error {
        let name = self.header(id).map(|header| header.experiment);
        self.database.damaged(&format!(
            "block {block} of {workload}{what} in experiment {} is not what was measured",
            name.as_deref().unwrap_or("?")
        ))
    }
}

/// Adds a text of any length, so that two texts never have the bytes of two others.
fn add(digest: &mut Sha256, part: &[u8]) {
    digest.update((part.len() as u64).to_le_bytes());
    digest.update(part);
}

fn key(value: &Observation) -> BlockKey {
    (
        value.workload.clone(),
        value.meter,
        value.direct,
        value.block,
    )
}

/// Returns the digest of a block's values, ordered by the text of their points.
fn of_values(block: &[Observation]) -> Vec<u8> {
    let mut digest = Sha256::new();
    for value in block {
        add(&mut digest, value.point.to_string().as_bytes());
        digest.update(value.order.to_le_bytes());
        digest.update(value.layout.to_le_bytes());
        digest.update(value.value.to_bits().to_le_bytes());
        digest.update(value.n.to_le_bytes());
        for more in [value.mean, value.slow, value.p99, value.stalled] {
            // No number has these bits.
            let bits = more.map_or(u64::MAX, f64::to_bits);
            digest.update(bits.to_le_bytes());
        }
        // Only blocks that ran beside others have times.
        for time in [value.began, value.ended].into_iter().flatten() {
            digest.update(time.to_bits().to_le_bytes());
        }
        let lane = value.lane.map_or_else(String::new, |lane| lane.to_string());
        add(&mut digest, lane.as_bytes());
        add(
            &mut digest,
            value.machine.as_deref().unwrap_or_default().as_bytes(),
        );
    }
    digest.finalize().to_vec()
}
