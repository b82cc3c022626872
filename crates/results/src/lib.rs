//! Reading and analysis of results on disk: stored experiments, observation files, outcomes of runs, and
//! effects of patches before and after a rebase.

pub mod analyse;
pub mod merge;
pub mod outcome;
pub mod worth;
