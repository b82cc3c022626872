//! Random series of several patches mean what `quilt push -a` makes of them: the same tree, or the same
//! patch that does not apply.

use std::io::Write;

use crate::common::applied::{Meaning, ours};
use crate::common::share::Share;
use crate::common::trees::{self, Op, Tree, cases};
use crate::common::{TestEnvironment, listing, run_in};
use proptest::prelude::*;

/// One patch of a series, and how it is written there.
#[derive(Debug, Clone)]
struct Piece {
    ops: Vec<Op>,
    git: bool,
    context: usize,
    reversed: bool,
    strip: usize,
    zipped: bool,
    folder: bool,
    between: &'static str,
}

fn piece() -> impl Strategy<Value = Piece> {
    let ops = prop::collection::vec(trees::git_op(6), 1..4);
    let between =
        prop_oneof![3 => Just(""), 1 => Just("\n"), 1 => Just("# why\n"), 1 => Just("  \n")];
    let odd = || prop::bool::weighted(0.2);
    (
        ops,
        any::<bool>(),
        0..4_usize,
        odd(),
        odd(),
        odd(),
        odd(),
        between,
    )
        .prop_map(
            |(ops, git, context, reversed, level, zipped, folder, between)| Piece {
                ops,
                git,
                context,
                reversed,
                strip: if level { 0 } else { 1 },
                zipped,
                folder,
                between,
            },
        )
}

/// The diff from one tree to another, as git or as `diff` writes it.
fn diff(old: &Tree, new: &Tree, piece: &Piece) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let context = format!("-U{}", piece.context);
    if !piece.git {
        trees::write(&at("a"), old);
        trees::write(&at("b"), new);
        let (a, b) = if piece.strip == 1 {
            ("a", "b")
        } else {
            (".", "../b")
        };
        let place = if piece.strip == 1 {
            dir.path().to_owned()
        } else {
            at("a")
        };
        let args = ["-Nur", "--no-dereference", &context, a, b];
        let text = run_in(&place, "diff", &args).stdout_text();
        // Without folders before the names: `--- ./f` and `+++ f`.
        return text.replace("+++ ../b/", "+++ ").into_bytes();
    }
    let git = |args: &[&str]| run_in(dir.path(), "git", args);
    git(&["init", "-q"]);
    trees::write(dir.path(), old);
    git(&["add", "-A"]);
    git(&["commit", "-qm", "old", "--allow-empty"]);
    for name in old.keys() {
        std::fs::remove_file(at(name)).unwrap();
    }
    trees::write(dir.path(), new);
    git(&["add", "-A"]);
    let mut args = vec!["diff", "--cached", "-M", "-C", "--full-index", &context];
    if piece.strip == 0 {
        args.push("--no-prefix");
    }
    git(&args).stdout
}

/// The tree without blanks in names, which patch cannot read in all of git's patches.
fn plain_names(tree: Tree) -> Tree {
    let files = tree.into_iter();
    files
        .map(|(name, file)| (name.replace(' ', "_"), file))
        .collect()
}

/// Writes the series that leads from tree to tree.
fn write(space: &TestEnvironment, base: &Tree, pieces: &[Piece]) {
    let mut tree = base.clone();
    let mut series = String::new();
    for (number, piece) in pieces.iter().enumerate() {
        let mut next = tree.clone();
        let only_git = |op: &&Op| !matches!(op, Op::Lines(..) | Op::Create(..) | Op::Delete(_));
        let ops = piece.ops.iter().filter(|op| piece.git || !only_git(op));
        trees::change(&mut next, &ops.cloned().collect::<Vec<_>>());
        next = plain_names(next);
        let bytes = if piece.reversed {
            diff(&next, &tree, piece)
        } else {
            diff(&tree, &next, piece)
        };
        tree = next;
        let mut name = format!("{number}.patch");
        if piece.folder {
            name = format!("more/{name}");
        }
        if piece.zipped {
            name.push_str(".gz");
            let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            zip.write_all(&bytes).unwrap();
            space.write(&format!("patches/{name}"), zip.finish().unwrap());
        } else {
            space.write(&format!("patches/{name}"), &bytes);
        }
        series.push_str(piece.between);
        series.push_str(&name);
        if piece.strip == 0 {
            series.push_str(" -p0");
        }
        if piece.reversed {
            series.push_str(" -R");
        }
        series.push('\n');
    }
    space.write("series", series);
}

fn quilt(space: &TestEnvironment) -> Meaning {
    let tree = space.path("theirs");
    run_in(&space.workspace(), "cp", &["-a", "up", "theirs"]);
    run_in(
        &space.workspace(),
        "cp",
        &["-a", "series", "patches", "theirs/"],
    );
    let push = ["--quiltrc", "-", "push", "-a", "-q", "--fuzz=0"];
    if run_in(&tree, "quilt", &push).success() {
        return Ok(listing(&tree));
    }
    let applied = run_in(&tree, "quilt", &["--quiltrc", "-", "applied"]);
    Err(applied.stdout_text().lines().count())
}

/// Cases of which quilt applies the whole series.
static APPLIED: Share = Share::new();

#[test]
fn same_as_quilt_push() {
    quilt_case();
    APPLIED.is_at_least_one_in(3);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(16), failure_persistence: None, ..ProptestConfig::default() })]

    fn quilt_case(
        base in trees::tree(6),
        pieces in prop::collection::vec(piece(), 2..7),
        drift in prop::collection::vec(trees::op(6), 0..2),
        drifts in prop::bool::weighted(0.3),
    ) {
        let base = plain_names(base);
        let space = TestEnvironment::new();
        write(&space, &base, &pieces);
        let mut up = base;
        if drifts {
            trees::change(&mut up, &drift);
        }
        up.insert("always".to_owned(), (trees::FILE, "there\n".to_owned()));
        trees::write(&space.path("up"), &up);
        let (found, theirs) = (ours(&space), quilt(&space));
        APPLIED.count(theirs.is_ok() && found.is_ok());
        if let Err(failed) = theirs && pieces[failed].git {
            // Of git's patches those count as well that only git can apply.
            prop_assert!(found.as_ref().map_or_else(|at| *at, |_| usize::MAX) >= failed);
            return Ok(());
        }
        // A difference that docs/series.md states.
        if found.is_err() && space.shown(&["stack"]).2.contains(", which does not exist") {
            return Ok(());
        }
        let series = space.read("series");
        prop_assert_eq!(found, theirs, "{}{:?}", series, pieces);
    }
}
