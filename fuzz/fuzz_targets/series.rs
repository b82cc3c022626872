//! The `series` file: reading it ends, every fault names its line, and what is read can be written back.

#![no_main]

use libfuzzer_sys::fuzz_target;
use perfquilt_series::series::SeriesFile;

fuzz_target!(|bytes: &[u8]| {
    let (file, faults) = SeriesFile::parse(bytes, "series");
    for fault in &faults {
        assert!(fault.location().is_some_and(|place| place.line.is_some()));
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        assert_eq!(file.to_text(), text);
    }
    let count = file.lines().len();
    for entry in file.entries() {
        assert!(entry.line >= 1 && entry.line <= count);
        assert!(perfquilt_series::series::path::check(entry.name.as_bytes()).is_ok());
    }
});
