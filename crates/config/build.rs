//! Tells where the templates are, and rebuilds them when a file is added.
#![allow(clippy::print_stdout)]

fn main() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    println!("cargo:rustc-env=ROOT={root}");
    for folder in ["bench-config", "examples"] {
        println!("cargo:rerun-if-changed={root}/{folder}");
    }
}
