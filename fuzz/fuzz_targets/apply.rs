//! A patch on a tree: applying it ends, leaves the tree alone when it fails, and never names a path
//! outside the tree or through a symbolic link.
//!
//! The input is a series line's options, a line end, then files and the patch, separated by bytes that
//! no text holds.

#![no_main]

use libfuzzer_sys::fuzz_target;
use perfquilt_series::series::{Patch, SeriesFile, path};
use perfquilt_series::stack::memory::MemoryFiles;

const MODES: [u32; 3] = [0o100_644, 0o100_755, 0o120_000];

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.split(|&b| b == 0xff);
    let options = parts.next().unwrap_or_default();
    let line = [b"p.patch ", options, b"\n"].concat();
    let (series, _) = SeriesFile::parse(&line, "series");
    let [entry] = series.entries() else { return };
    let Ok(patch) = Patch::parse(entry, "p.patch", parts.next().unwrap_or_default()) else {
        return;
    };
    let mut tree = MemoryFiles::default();
    for (index, content) in parts.take(6).enumerate() {
        let names: [&[u8]; 6] = [b"f", b"g", b"d/f", b"d/e/g", b"l", b"x"];
        tree.add(names[index], MODES[[0, 1, 0, 0, 2, 0][index]], content.to_vec());
    }
    let before = tree.clone();
    match tree.apply(&patch, 0) {
        Err(error) => {
            assert!(error.location().is_some(), "{error}");
            assert_eq!(tree, before);
        }
        Ok(_) => {
            for (name, file) in &tree.files {
                assert!(path::check(name).is_ok());
                assert!(MODES.contains(&file.mode));
                // Nothing below what is no folder.
                for (end, _) in name.iter().enumerate().filter(|(_, b)| **b == b'/') {
                    assert!(!tree.files.contains_key(&name[..end]));
                }
            }
        }
    }
});
