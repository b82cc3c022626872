//! Results on disk, read and judged: stored experiments, observation files, the outcomes of runs, and the worth of
//! patches before and after a rebase.

pub mod analyse;
pub mod outcome;
pub mod worth;
