//! Measuring: experiments, bisections, whole runs from a series to stored blocks, and the tasks of jobs on a cluster.

pub mod experiment;
pub mod run;
mod task;
pub mod worker;
