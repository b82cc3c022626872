//! The journal of an unfinished change, which untrusted code may have written: whatever it says, the next command writes
//! only files of the series, and the configuration.
//!
//! The input is the journal; the file that it may place is always the same.

#![no_main]

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use perfquilt_config::workspace::Workspace;
use perfquilt_rebase::edit::publish;

const CONFIG: &str = "[upstream]\nname=\"x\"\ncurrent=\"1\"\n[recipe]\n[preset]\n[server]\nadapter=\"mariadb\"\n";
/// Content that a change would place, whose SHA-256 the corpus has.
const HOSTILE: &str = "hostile";

static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
    let root = std::env::temp_dir().join(format!("fuzz-journal-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&root);
    for folder in ["w/bench-config/workloads", "w/patches", "w/.git", "w/.perfquilt/edit", "w/src"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    std::fs::write(root.join("w/bench-config/perfquilt.toml"), CONFIG).unwrap();
    std::fs::write(root.join("w/series"), "").unwrap();
    std::os::unix::fs::symlink("..", root.join("w/patches/up")).unwrap();
    std::os::unix::fs::symlink("../../outside", root.join("w/patches/link.patch")).unwrap();
    root
});
static WORKSPACE: LazyLock<Workspace> = LazyLock::new(|| Workspace::open(&ROOT.join("w")).unwrap());

/// Returns the files below `folder` that have the hostile content, without those of the journal itself.
fn placed(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        let path = entry.path();
        if kind.is_dir() {
            placed(&path, found);
        } else if kind.is_file() && std::fs::read(&path).is_ok_and(|text| text == HOSTILE.as_bytes()) {
            found.push(path);
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let ws = &*WORKSPACE;
    let edit = ws.root().join(".perfquilt/edit");
    let pending = edit.join("pending");
    std::fs::create_dir_all(&pending).unwrap();
    std::fs::write(pending.join("journal.json"), bytes).unwrap();
    for number in 0..2 {
        std::fs::write(pending.join(number.to_string()), HOSTILE).unwrap();
    }
    std::fs::write(ROOT.join("w/series"), "").unwrap();
    std::fs::write(ROOT.join("w/bench-config/perfquilt.toml"), CONFIG).unwrap();
    let done = publish::recover(ws);
    let mut found = Vec::new();
    let _ = std::fs::remove_dir_all(&edit);
    std::fs::create_dir_all(&edit).unwrap();
    placed(&ROOT, &mut found);
    for path in &found {
        let own = ["w/patches", "w/series", "w/bench-config/perfquilt.toml"];
        let own = own.iter().any(|own| path.starts_with(ROOT.join(own)));
        assert!(own && done.is_ok(), "{}", path.display());
        std::fs::remove_file(path).unwrap();
    }
});
