//! Rename detection exactly like `git diff -M` with its default limits: first unchanged files, then files that keep
//! their unique base name, then the most similar pairs of the remaining files.

use std::collections::{BTreeMap, HashMap};

use super::{ContentReader, is_binary};
use crate::stack::tree_pairs::{FilePair, FileSide};
use perfquilt_model::error::Result;

/// The score of two files with the same content.
pub(super) const MAX_SCORE: u64 = 60_000;
/// The minimum score of a rename: half of the larger file is unchanged.
const MINIMUM_SCORE: u64 = 30_000;
/// The minimum score for two files with the same, unique base name.
const MINIMUM_BASENAME_SCORE: u64 = 45_000;
/// Maximum number of comparisons; git gives up beyond it (`diff.renameLimit` 1000, squared).
const COMPARISON_LIMIT: usize = 1_000_000;
/// Number of best sources kept for each new file.
const CANDIDATE_LIMIT: usize = 4;
/// Maximum number of unchanged sources tested for each new file.
const IDENTICAL_LIMIT: usize = 100;

/// Joins pairs of removed and new files into renames.
pub(super) fn detect(
    pairs: Vec<FilePair>,
    contents: &mut ContentReader<'_>,
) -> Result<Vec<FilePair>> {
    let index_of = |wanted: &dyn Fn(&FilePair) -> bool| -> Vec<usize> {
        (0..pairs.len()).filter(|&at| wanted(&pairs[at])).collect()
    };
    let sources = index_of(&|pair| pair.new.is_none());
    let targets = index_of(&|pair| pair.old.is_none());
    if sources.is_empty() || targets.is_empty() {
        return Ok(pairs);
    }
    let mut search = RenameSearch {
        used: vec![false; sources.len()],
        found: vec![None; targets.len()],
        sources: sources
            .iter()
            .map(|&at| RenameFile::of(&pairs[at].old_path, pairs[at].old))
            .collect(),
        targets: targets
            .iter()
            .map(|&at| RenameFile::of(&pairs[at].new_path, pairs[at].new))
            .collect(),
        contents,
    };
    search.identical();
    search.same_basename()?;
    search.most_alike()?;
    let RenameSearch { used, found, .. } = search;
    let mut gone = vec![false; pairs.len()];
    for (source, used) in used.iter().enumerate() {
        gone[sources[source]] = *used;
    }
    let mut joined = Vec::with_capacity(pairs.len());
    for (at, pair) in pairs.iter().enumerate() {
        let rename = targets
            .binary_search(&at)
            .ok()
            .and_then(|target| found[target]);
        match rename {
            Some((source, score)) => {
                let from = &pairs[sources[source]];
                joined.push(FilePair {
                    old_path: from.old_path.clone(),
                    old: from.old,
                    score: Some(score),
                    ..pair.clone()
                });
            }
            None if gone[at] => {}
            None => joined.push(pair.clone()),
        }
    }
    Ok(joined)
}

struct RenameFile {
    path: Vec<u8>,
    side: FileSide,
    /// Length in bytes and spans, computed on demand.
    spans: Option<(u64, Spans)>,
}

impl RenameFile {
    fn of(path: &[u8], side: Option<FileSide>) -> RenameFile {
        RenameFile {
            path: path.to_vec(),
            side: side.unwrap_or(FileSide {
                mode: 0,
                oid: git2::Oid::ZERO_SHA1,
            }),
            spans: None,
        }
    }

    fn basename(&self) -> &[u8] {
        self.path.rsplit(|&b| b == b'/').next().unwrap_or_default()
    }

    fn is_regular(&self) -> bool {
        self.side.mode & 0o170_000 == 0o100_000
    }

    fn spans(&mut self, contents: &mut ContentReader<'_>) -> Result<&(u64, Spans)> {
        if self.spans.is_none() {
            let content = contents.read(self.side)?;
            self.spans = Some((content.len() as u64, spans(&content)));
        }
        Ok(self.spans.get_or_insert_default())
    }
}

struct RenameSearch<'a, 'b> {
    sources: Vec<RenameFile>,
    targets: Vec<RenameFile>,
    /// Whether each source is used by a rename.
    used: Vec<bool>,
    /// The source and score found for each target.
    found: Vec<Option<(usize, u64)>>,
    contents: &'a mut ContentReader<'b>,
}

/// A possible rename.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Candidate {
    score: u64,
    same_name: bool,
    target: usize,
    source: usize,
}

impl Candidate {
    fn rank(&self) -> (std::cmp::Reverse<u64>, std::cmp::Reverse<bool>) {
        (
            std::cmp::Reverse(self.score),
            std::cmp::Reverse(self.same_name),
        )
    }
}

impl RenameSearch<'_, '_> {
    fn join(&mut self, target: usize, source: usize, score: u64) {
        self.used[source] = true;
        self.found[target] = Some((source, score));
    }

    fn identical(&mut self) {
        let mut by_content: HashMap<git2::Oid, Vec<usize>> = HashMap::new();
        for (index, source) in self.sources.iter().enumerate() {
            by_content.entry(source.side.oid).or_default().push(index);
        }
        for target in 0..self.targets.len() {
            let file = &self.targets[target];
            let mut best: Option<(bool, usize)> = None;
            let mut looked_at = 0;
            for &source in by_content.get(&file.side.oid).into_iter().flatten() {
                let from = &self.sources[source];
                let regular = from.is_regular() && file.is_regular();
                if self.used[source] || (!regular && from.side.mode != file.side.mode) {
                    continue;
                }
                let same_name = from.basename() == file.basename();
                if best.is_none_or(|(named, _)| same_name && !named) {
                    best = Some((same_name, source));
                }
                looked_at += 1;
                if same_name || looked_at == IDENTICAL_LIMIT {
                    break;
                }
            }
            if let Some((_, source)) = best {
                self.join(target, source, MAX_SCORE);
            }
        }
    }

    fn same_basename(&mut self) -> Result<()> {
        let unique = |files: &[RenameFile], free: &dyn Fn(usize) -> bool| {
            let mut by_name: HashMap<Vec<u8>, Option<usize>> = HashMap::new();
            for (index, file) in files.iter().enumerate().filter(|(index, _)| free(*index)) {
                by_name
                    .entry(file.basename().to_vec())
                    .and_modify(|only| *only = None)
                    .or_insert(Some(index));
            }
            by_name
        };
        let sources = unique(&self.sources, &|index| !self.used[index]);
        let targets = unique(&self.targets, &|index| self.found[index].is_none());
        let mut pairs: Vec<(usize, usize)> = sources
            .iter()
            .filter_map(|(name, source)| Some(((*source)?, (*targets.get(name)?)?)))
            .collect();
        pairs.sort_unstable();
        for (source, target) in pairs {
            let score = self.similarity(source, target, MINIMUM_BASENAME_SCORE)?;
            if score >= MINIMUM_BASENAME_SCORE {
                self.join(target, source, score);
            }
        }
        Ok(())
    }

    fn most_alike(&mut self) -> Result<()> {
        let targets: Vec<usize> = (0..self.targets.len())
            .filter(|&target| self.found[target].is_none())
            .collect();
        let sources: Vec<usize> = (0..self.sources.len())
            .filter(|&source| !self.used[source])
            .collect();
        if targets.len().saturating_mul(sources.len()) > COMPARISON_LIMIT {
            return Ok(());
        }
        let mut candidates = Vec::new();
        for &target in &targets {
            let mut best: Vec<Candidate> = Vec::with_capacity(CANDIDATE_LIMIT);
            for &source in &sources {
                let candidate = Candidate {
                    score: self.similarity(source, target, MINIMUM_SCORE)?,
                    same_name: self.sources[source].basename() == self.targets[target].basename(),
                    target,
                    source,
                };
                if best.len() < CANDIDATE_LIMIT {
                    best.push(candidate);
                    continue;
                }
                // As in git, the new candidate replaces the first of the worst.
                let mut worst = 0;
                for at in 1..best.len() {
                    if best[at].rank() > best[worst].rank() {
                        worst = at;
                    }
                }
                if candidate.rank() < best[worst].rank() {
                    best[worst] = candidate;
                }
            }
            candidates.append(&mut best);
        }
        candidates.sort_by_key(Candidate::rank);
        for candidate in candidates {
            let Candidate {
                score,
                target,
                source,
                ..
            } = candidate;
            if score >= MINIMUM_SCORE && self.found[target].is_none() && !self.used[source] {
                self.join(target, source, score);
            }
        }
        Ok(())
    }

    /// Returns the similarity of two files; 0 if they cannot reach `minimum`.
    fn similarity(&mut self, source: usize, target: usize, minimum: u64) -> Result<u64> {
        let (source, target) = (&mut self.sources[source], &mut self.targets[target]);
        if !source.is_regular() || !target.is_regular() {
            return Ok(0);
        }
        let (old_size, old) = source.spans(self.contents)?;
        let (new_size, new) = target.spans(self.contents)?;
        let (smaller, larger) = (*old_size.min(new_size), *old_size.max(new_size));
        if larger * (MAX_SCORE - minimum) < (larger - smaller) * MAX_SCORE || *new_size == 0 {
            return Ok(0);
        }
        Ok(copied(old, new) * MAX_SCORE / larger)
    }
}

/// The number of bytes in a file's lines (or runs of 64 bytes), by their hash.
type Spans = BTreeMap<u32, u64>;

/// Computes git's spans of a file: each line, or 64 bytes of a longer one, reduced to a hash.
fn spans(content: &[u8]) -> Spans {
    const BASE: u32 = 107_927;
    let text = !is_binary(content);
    let mut spans = Spans::new();
    let mut add = |low: u32, high: u32, length: u64| {
        let hash = low.wrapping_add(high.wrapping_mul(0x61)) % BASE;
        *spans.entry(hash).or_default() += length;
    };
    let (mut low, mut high, mut length) = (0_u32, 0_u32, 0_u64);
    for (at, &byte) in content.iter().enumerate() {
        if text && byte == b'\r' && content.get(at + 1) == Some(&b'\n') {
            continue;
        }
        let before = low;
        low = (low << 7) ^ (high >> 25);
        high = (high << 7) ^ (before >> 25);
        low = low.wrapping_add(u32::from(byte));
        length += 1;
        if length < 64 && byte != b'\n' {
            continue;
        }
        add(low, high, length);
        (low, high, length) = (0, 0, 0);
    }
    if length > 0 {
        add(low, high, length);
    }
    spans
}

/// Returns the number of bytes of `new` that may come from `old`.
fn copied(old: &Spans, new: &Spans) -> u64 {
    old.iter()
        .filter_map(|(hash, count)| new.get(hash).map(|other| *count.min(other)))
        .sum()
}
