//! Builds of a small CMake project (and a make one), with the real cmake, ninja and compiler.

mod changed_code;
mod faults;
mod fixture;
mod points;
mod profile;
mod reach;
mod relink;
mod whole;
