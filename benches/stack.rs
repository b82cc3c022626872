//! Importing a release and applying a 500-patch series to it, cold and warm.
//!
//! `cargo bench --bench stack` makes up a tree of 36,000 files; `PERFQUILT_TARBALL=FILE` takes a real
//! release instead, and `PERFQUILT_PATCHES=N` another number of patches.
//! `cargo bench --bench stack -- series DIR N` only makes up N patches for the current release of the
//! workspace DIR and writes them there; `ci/bench/stack` then compares tools on them.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

#[path = "../tests/common/generate.rs"]
mod generate;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use git2::{ObjectType, Oid};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::point::Point;
use perfquilt_rebase::PointTrees;
use perfquilt_series::series::Series;
use perfquilt_series::stack;
use perfquilt_series::upstream;
use perfquilt_series::upstream::Objects;

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["series", dir, count] => {
            let ws = Workspace::open(dir.as_ref()).unwrap();
            let release = upstream::ensure(&ws, None).unwrap();
            generate::series(
                ws.root(),
                &chosen(&ws, &release.tree),
                count.parse().unwrap(),
            );
        }
        _ => stages(),
    }
}

fn stages() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
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

    let release = timed("import", || upstream::ensure(&ws, None).unwrap());
    timed("import again (nothing to do)", || {
        upstream::ensure(&ws, None).unwrap()
    });

    let chosen = chosen(&ws, &release.tree);
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
    timed("worktree, first", || tree.move_to(&release.tree).unwrap());
    let top = first.tree(Point::Step(count)).unwrap();
    let moved = timed("worktree, to the top", || tree.move_to(&top).unwrap());
    println!("{} files written", moved.written);
}

/// About 450 sources and 150 tests and other texts of the release, spread over all of it.
fn chosen(ws: &Workspace, tree: &str) -> BTreeMap<String, Vec<u8>> {
    let store = Objects::open(&ws.object_store()).unwrap();
    let mut files = BTreeMap::new();
    collect(&store, Oid::from_str(tree).unwrap(), "", &mut files);
    let is_source = |path: &str| [".cc", ".c", ".h"].iter().any(|end| path.ends_with(end));
    let (sources, texts): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|(path, _)| is_source(path));
    let spread = |files: Vec<(String, Oid)>, count: usize| {
        let step = (files.len() / count).max(1);
        files.into_iter().step_by(step)
    };
    spread(sources, 450)
        .chain(spread(texts, 150))
        .map(|(path, oid)| (path, store.read(oid, ObjectType::Blob).unwrap()))
        .filter(|(_, content)| content.iter().filter(|&&b| b == b'\n').count() > 20)
        .filter(|(_, content)| content.ends_with(b"\n"))
        .filter(|(_, content)| !content.contains(&0) && !content.contains(&b'\r'))
        .collect()
}

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = work();
    println!("{what:<32} {:8.3} s", started.elapsed().as_secs_f64());
    result
}

const SUFFIXES: [&str; 6] = [".cc", ".c", ".h", ".txt", ".test", ".result"];

fn collect(store: &Objects, tree: Oid, prefix: &str, out: &mut BTreeMap<String, Oid>) {
    for entry in store.read_tree(tree).unwrap() {
        let path = format!("{prefix}{}", String::from_utf8_lossy(&entry.name));
        if entry.mode == 0o040_000 {
            collect(store, entry.oid, &format!("{path}/"), out);
        } else if SUFFIXES.iter().any(|suffix| path.ends_with(suffix)) {
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
