//! A patch on a tree: applying it ends, leaves the tree alone when it fails, and never names a path
//! outside the tree or through a symbolic link.
//!
//! The input is a series line's options, a line end, then files and the patch, separated by bytes that
//! no text holds.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use perfquilt_series::series::{Patch, SeriesFile, path};
use perfquilt_series::stack::tree::FileState;
use perfquilt_series::stack::trial::{TrialTree, files_only_in};
use perfquilt_series::upstream::Objects;
use perfquilt_series::upstream::objects::empty_tree;

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
    // Nothing is written to the store.
    let folder = std::env::temp_dir().join(format!("fuzz-apply-{}", std::process::id()));
    let store = Objects::open_or_create(&folder).unwrap();
    let empty = empty_tree().to_string();
    let mut tree = TrialTree::new(&store, &empty).unwrap();
    let files = parts.take(6).enumerate().map(|(index, content)| {
        let names: [&[u8]; 6] = [b"f", b"g", b"d/f", b"d/e/g", b"l", b"x"];
        let mode = MODES[[0, 1, 0, 0, 2, 0][index]];
        let content = Arc::new(content.to_vec());
        (names[index].to_vec(), Some(FileState { mode, content }))
    });
    tree.change(files.collect()).unwrap();
    let before = tree.write().unwrap();
    match tree.apply(&patch, 0) {
        Err(error) => {
            assert!(error.location().is_some(), "{error}");
            assert_eq!(tree.write().unwrap(), before);
        }
        Ok(_) => {
            let after = tree.write().unwrap();
            for (name, _) in files_only_in(&store, &after, &empty).unwrap() {
                assert!(path::check(&name).is_ok());
                let file = tree.file(&name).unwrap().unwrap();
                assert!(MODES.contains(&file.mode));
            }
        }
    }
});
