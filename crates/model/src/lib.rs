//! Data types shared by all parts of perfquilt: points, meters, observations, errors and progress.
//!
//! This crate does no input or output.

pub mod comment;
pub mod cut;
pub mod error;
pub mod failure;
pub mod observation;
pub mod point;
pub mod profile;
pub mod progress;
pub mod rebase;
pub mod repository;
pub mod server_tests;

pub use error::{Error, Result};
