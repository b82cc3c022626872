//! Detection of files that upstream renamed; used only when a path is missing.

use std::collections::{BTreeMap, HashSet};

use git2::{ObjectType, Oid};

use perfquilt_model::error::Result;
use perfquilt_series::stack::trial::files_only_in;
use perfquilt_series::upstream::Objects;
use perfquilt_system::process::check_interrupted;

/// Minimum similarity of a renamed file; the same threshold as git's.
const MIN_SIMILARITY: f64 = 0.5;
/// The same for the only new file with the old one's name.
const MIN_SIMILARITY_OF_NAME: f64 = 0.25;
/// Maximum number of files compared line by line for one missing path.
const MAX_CANDIDATES: usize = 400;

/// Finds upstream's renames between two releases.
pub struct UpstreamRenames<'a> {
    objects: &'a Objects,
    old: String,
    new: String,
    /// Path and blob of files that only the new release has, read on first use.
    added: Option<Vec<(Vec<u8>, Oid)>>,
    known: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl<'a> UpstreamRenames<'a> {
    /// Creates a lookup of renames between the trees `old` and `new`.
    pub fn new(objects: &'a Objects, old: &str, new: &str) -> Self {
        UpstreamRenames {
            objects,
            old: old.to_owned(),
            new: new.to_owned(),
            added: None,
            known: BTreeMap::new(),
        }
    }

    /// Returns the new path of the old release's file `path` with `content`, which the new release lacks under
    /// that path; `None` if no file is similar enough.
    pub fn find(&mut self, path: &[u8], content: &[u8]) -> Result<Option<Vec<u8>>> {
        if let Some(known) = self.known.get(path) {
            return Ok(known.clone());
        }
        let found = self.search(path, content)?;
        self.known.insert(path.to_vec(), found.clone());
        Ok(found)
    }

    fn search(&mut self, path: &[u8], content: &[u8]) -> Result<Option<Vec<u8>>> {
        let added = match self.added.take() {
            Some(added) => added,
            None => files_only_in(self.objects, &self.new, &self.old)?,
        };
        let added = self.added.insert(added);
        // Candidates with the same name come first, then with the same stem, then with the same extension; nearest
        // folders first.
        let name = last(path);
        let mut candidates: Vec<_> = added
            .iter()
            .filter_map(|file| {
                let rank = match last(&file.0) {
                    same if same == name => 0,
                    other if split(other).0 == split(name).0 => 1,
                    other if split(other).1 == split(name).1 => 2,
                    _ => return None,
                };
                Some((rank, file))
            })
            .collect();
        candidates.sort_by_key(|(rank, file)| (*rank, usize::MAX - common(&file.0, path)));
        let namesakes = candidates.iter().filter(|(rank, _)| *rank == 0).count();
        let lines = lines(content);
        let mut best: Option<(f64, &Vec<u8>)> = None;
        for (rank, (candidate, oid)) in candidates.into_iter().take(MAX_CANDIDATES) {
            check_interrupted()?;
            let other = self.objects.read(*oid, ObjectType::Blob)?;
            if other == content {
                return Ok(Some(candidate.clone()));
            }
            // As in git, sizes alone can rule a match out.
            let (small, large) = (
                other.len().min(content.len()),
                other.len().max(content.len()),
            );
            if (small as f64) < MIN_SIMILARITY * large as f64 && rank > 0 {
                continue;
            }
            let similarity = similarity(&lines, &other);
            let least = if rank == 0 && namesakes == 1 {
                MIN_SIMILARITY_OF_NAME
            } else {
                MIN_SIMILARITY
            };
            if similarity >= least && best.is_none_or(|(most, _)| similarity > most) {
                best = Some((similarity, candidate));
            }
        }
        Ok(best.map(|(_, path)| path.clone()))
    }
}

/// Returns the distinctive lines of a file.
fn lines(content: &[u8]) -> HashSet<&[u8]> {
    content
        .split(|&b| b == b'\n')
        .map(<[u8]>::trim_ascii)
        .filter(|line| line.len() > 3)
        .collect()
}

fn similarity(lines_of_one: &HashSet<&[u8]>, other: &[u8]) -> f64 {
    let others = lines(other);
    let most = lines_of_one.len().max(others.len());
    if most == 0 {
        return 0.0;
    }
    lines_of_one.intersection(&others).count() as f64 / most as f64
}

fn last(path: &[u8]) -> &[u8] {
    path.rsplit(|&b| b == b'/').next().unwrap_or(path)
}

/// Splits a name before its extension.
fn split(name: &[u8]) -> (&[u8], &[u8]) {
    let end = name.iter().rposition(|&b| b == b'.');
    name.split_at(end.unwrap_or(name.len()))
}

fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
