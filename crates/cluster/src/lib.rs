//! Jobs on the machines of a cluster: engines that queue them, and the folder through which they exchange files.

pub mod dispatch;
pub mod doctor;
pub mod engine;
pub mod exchange;
pub mod tasks;
