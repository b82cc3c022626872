//! A bundle that anybody made: checking it ends with its manifest or a refusal, and what is taken is the one form that there is.
//!
//! The input is the archive in gzip.

#![no_main]

use std::io::Write;
use std::path::PathBuf;
use std::sync::LazyLock;

use flate2::Compression;
use flate2::write::GzEncoder;
use libfuzzer_sys::fuzz_target;

static FILE: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("fuzz-bundle-{}", std::process::id())));

fuzz_target!(|bytes: &[u8]| {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(bytes).unwrap();
    std::fs::write(&*FILE, packer.finish().unwrap()).unwrap();
    if let Ok(manifest) = perfquilt_bundle::check(&FILE) {
        for path in manifest.files.keys() {
            assert!(!path.split('/').any(|part| part.is_empty() || part.starts_with('.')));
            assert!(path.is_ascii());
        }
    }
});
