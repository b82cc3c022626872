//! Measuring: experiments, bisections, and whole runs from a series to stored blocks.

pub mod experiment;
pub mod run;
