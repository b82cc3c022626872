//! Builds, servers, clients, meters and profiles on this machine, and the sandbox for untrusted code.

pub mod build;
pub mod doctor;
pub mod meter;
pub mod packages;
pub mod profile;
pub mod sandbox;
pub mod server;
pub mod workload;
