//! Builds of a small CMake project (and a make one), with the real cmake, ninja and compiler.

#![allow(clippy::unwrap_used)] // A test fails by panicking.

mod faults;
mod fixture;
mod points;
