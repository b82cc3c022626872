//! A patch file: reading it ends, with diffs whose names stay in the tree, or with an error that names
//! a line. The first byte chooses the options.

#![no_main]

use libfuzzer_sys::fuzz_target;
use perfquilt_series::series::diff::{self, ParseOptions};
use perfquilt_series::series::{DiffForm, Patch, SeriesFile, path};

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, bytes)) = bytes.split_first() else {
        return;
    };
    let options = ParseOptions {
        strip: usize::from(choice & 3),
        binary: choice & 4 != 0,
        form: match choice >> 3 & 7 {
            1 => Some(DiffForm::Unified),
            2 => Some(DiffForm::Context),
            3 => Some(DiffForm::Normal),
            _ => None,
        },
        ..ParseOptions::default()
    };
    match diff::parse_with(bytes, &options, "p.patch") {
        Err(error) => assert!(error.location().is_some_and(|place| place.line.is_some())),
        Ok(parsed) => {
            for file in &parsed.files {
                assert!(file.line >= 1);
                assert_eq!(file.clone().reversed().reversed().hunks, file.hunks);
            }
        }
    }
    assert!(diff::header_length(bytes) <= bytes.len());
    let (series, _) = SeriesFile::parse(b"p.patch -p0 -R\n", "series");
    if let Ok(patch) = Patch::parse(&series.entries()[0], "p.patch", bytes) {
        for name in patch.files.iter().flat_map(|d| [&d.old, &d.new, &d.index]) {
            assert!(name.as_ref().is_none_or(|name| path::check(name).is_ok()));
        }
    }
});
