//! Builds of a small CMake project (and a make one), with the real cmake, ninja and compiler.

mod faults;
mod fixture;
mod points;
