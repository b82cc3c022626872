//! Builds of a small CMake project (and a make one), with the real cmake, ninja and compiler.

#![allow(clippy::unwrap_used)] // A test fails by panicking.
#![allow(clippy::disallowed_methods, missing_docs)] // These run the tool from outside.

#[path = "../common/mod.rs"]
mod common;

mod changed_code;
mod faults;
mod fixture;
mod points;
mod profile;
mod relink;
mod whole;
