//! An outcome that untrusted code wrote: reading, judging and showing it ends, whatever the three files hold.
//!
//! The input is the three files one after the other, each line that begins with `=` starting the next one.

#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use perfquilt_model::comment::PullRequestRef;
use perfquilt_report::{Notice, comment};
use perfquilt_results::outcome;

static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("fuzz-outcome-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
});

fuzz_target!(|bytes: &[u8]| {
    let mut files = ["outcome.json", "observations.jsonl.gz", "bisection.json"].into_iter();
    let mut part = Vec::new();
    let mut write = |part: &mut Vec<u8>| {
        if let Some(name) = files.next() {
            let path = FOLDER.join(name);
            if part.is_empty() {
                let _ = std::fs::remove_file(path);
            } else {
                std::fs::write(path, &part).unwrap();
            }
        }
        part.clear();
    };
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        if line.starts_with(b"=") {
            write(&mut part);
        } else {
            part.extend_from_slice(line);
        }
    }
    for _ in 0..3 {
        write(&mut part);
    }
    let read = outcome::read(&FOLDER, &|_| 0.005);
    let session = outcome::bisection(&FOLDER).ok().flatten();
    let bisection = session.map(|session| session.replay().outcome());
    let Ok((outcome, attribution)) = read else { return };
    let notice = Notice {
        attribution: attribution.as_ref(),
        failures: &outcome.failures,
        bisection_failures: &outcome.bisection,
        bisection: bisection.as_ref(),
        subject: PullRequestRef {
            head: outcome.head.clone(),
            ..PullRequestRef::default()
        },
        ..Notice::default()
    };
    const LIMIT: usize = 65_536;
    let text = comment(&notice.about(&notice.subject), LIMIT);
    assert!(text.body.chars().count() <= LIMIT);
});
