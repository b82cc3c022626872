//! This machine at work: builds, servers, clients, meters, profiles, and the sandbox around strangers' code.

pub mod build;
pub mod doctor;
pub mod meter;
pub mod packages;
pub mod profile;
pub mod sandbox;
pub mod server;
pub mod workload;
