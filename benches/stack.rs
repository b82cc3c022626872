//! Importing a release and applying a 500-patch series to it, cold and warm.
//!
//! `cargo bench --bench stack` makes up a tree of 36,000 files; `PERFQUILT_TARBALL=FILE` takes a real
//! release instead, `PERFQUILT_PATCHES=N` another number of patches, and `PERFQUILT_KEEP=DIR` (new)
//! works there and keeps it, for comparing with other tools.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

#[path = "../tests/support/generate.rs"]
mod generate;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use git2::{ObjectType, Oid};
use perfquilt::progress::Silent;
use perfquilt::series::Series;
use perfquilt::upstream::Objects;
use perfquilt::workspace::Workspace;
use perfquilt::{point::Point, stack, upstream};

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let kept = std::env::var_os("PERFQUILT_KEEP").map(std::path::PathBuf::from);
    let root = kept.as_deref().unwrap_or(dir.path());
    std::fs::create_dir_all(root).unwrap();
    let tarball = std::env::var("PERFQUILT_TARBALL").map_or_else(
        |_| {
            let path = root.join("made-up.tar");
            made_up_tarball(&path);
            path
        },
        Into::into,
    );
    let count = std::env::var("PERFQUILT_PATCHES").map_or(500, |n| n.parse().unwrap());
    let digest = upstream::sha256(&tarball).unwrap();
    std::fs::create_dir(root.join("bench-config")).unwrap();
    let config = format!(
        "[upstream]\nname = \"x\"\ncurrent = \"1\"\n\
         release = [{{ version = \"1\", tarball = {{ url = \"{}\", sha256 = \"{digest}\" }} }}]\n\
         [recipe]\n[preset]\n[server]\nadapter = \"mariadb\"\n",
        tarball.display()
    );
    std::fs::write(root.join("bench-config/perfquilt.toml"), config).unwrap();
    std::fs::write(root.join("series"), "").unwrap();
    let ws = Workspace::open(root).unwrap();

    let release = timed("import", || upstream::ensure(&ws, None, &Silent).unwrap());
    timed("import again (nothing to do)", || {
        upstream::ensure(&ws, None, &Silent).unwrap()
    });

    let store = Objects::open(&ws.object_store()).unwrap();
    let mut files = BTreeMap::new();
    collect(
        &store,
        Oid::from_str(&release.tree).unwrap(),
        "",
        &mut files,
    );
    let chosen: Vec<String> = files.keys().cloned().collect();
    let step = (chosen.len() / 300).max(1);
    let chosen: BTreeMap<String, Vec<u8>> = chosen
        .into_iter()
        .step_by(step)
        .map(|path| {
            let content = store.read(files[&path], ObjectType::Blob).unwrap();
            (path, content)
        })
        .filter(|(_, content)| content.iter().filter(|&&b| b == b'\n').count() > 20)
        .filter(|(_, content)| content.ends_with(b"\n"))
        .collect();
    println!("{count} patches over {} files", chosen.len());
    generate::series(root, &chosen, count);

    let series = timed("read the series", || Series::load(&ws).unwrap());
    let first = timed("stack, cold", || {
        stack::apply(&ws, &release, &series).unwrap()
    });
    let again = timed("stack, again", || {
        stack::apply(&ws, &release, &series).unwrap()
    });
    assert_eq!(first.steps, again.steps);

    let source = root.join("source");
    let tree = stack::Worktree::open(&ws.object_store(), &source).unwrap();
    timed("worktree, first", || {
        tree.move_to(&release.tree, &Silent).unwrap()
    });
    let top = first.tree(Point::Step(count)).unwrap();
    let moved = timed("worktree, to the top", || {
        tree.move_to(&top, &Silent).unwrap()
    });
    println!("{} files written", moved.written);
}

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = work();
    println!("{what:<32} {:8.3} s", started.elapsed().as_secs_f64());
    result
}

fn collect(store: &Objects, tree: Oid, prefix: &str, out: &mut BTreeMap<String, Oid>) {
    for entry in store.read_tree(tree).unwrap() {
        let path = format!("{prefix}{}", String::from_utf8_lossy(&entry.name));
        if entry.mode == 0o040_000 {
            collect(store, entry.oid, &format!("{path}/"), out);
        } else if path.ends_with(".cc") || path.ends_with(".h") || path.ends_with(".c") {
            out.insert(path, entry.oid);
        }
    }
}

/// 36,000 files of 1 to 30 kB in 1,700 folders.
fn made_up_tarball(path: &Path) {
    let mut builder = tar::Builder::new(std::fs::File::create(path).unwrap());
    for number in 0..36_000_u32 {
        let lines = 30 + (number * 7919) % 900;
        let content: String = (0..lines)
            .map(|line| format!("int line_{line}_of_{number} = {};\n", line * number))
            .collect();
        let name = format!("made-up/d{}/e{}/f{number}.c", number % 40, number % 1700);
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder
            .append_data(&mut header, name, content.as_bytes())
            .unwrap();
    }
    builder.finish().unwrap();
}
