//! A source tree on the disk that follows the stack.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, SystemTime};

use crate::common::{TestEnvironment, listing};
use perfquilt_config::workspace::Workspace;
use perfquilt_series::stack::{MoveResult, Worktree};
use perfquilt_series::upstream;
use proptest::prelude::*;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    File(Vec<u8>, bool),
    Link(String),
}

type Tree = BTreeMap<String, Kind>;

/// Trees in which the same path is now a file, now a folder, now a link.
fn tree() -> impl Strategy<Value = Tree> {
    let path = prop::sample::select(vec![
        "a", "a/b", "a/b/c", "a/d", "e", "e/f", "g h", "i/j/k/l",
    ]);
    let kind = prop_oneof![
        4 => ("[a-c]{0,3}", any::<bool>()).prop_map(|(text, exec)| Kind::File(text.into_bytes(), exec)),
        1 => "[a-c]{1,2}".prop_map(Kind::Link),
    ];
    prop::collection::btree_map(path.prop_map(str::to_owned), kind, 0..7).prop_map(|tree| {
        let keys: Vec<String> = tree.keys().cloned().collect();
        let below = |path: &String| {
            keys.iter()
                .any(|other| path.starts_with(&format!("{other}/")))
        };
        let mut tree: Tree = tree.into_iter().filter(|(path, _)| !below(path)).collect();
        tree.insert("always".into(), Kind::File(b"x".to_vec(), false));
        tree
    })
}

fn space_with(trees: &[Tree]) -> (TestEnvironment, Vec<String>) {
    let releases: Vec<String> = (0..trees.len())
        .map(|n| format!("{{ version = \"1.{n}\", directory = \"t{n}\" }}"))
        .collect();
    let space = TestEnvironment::with_releases(&format!("release = [{}]\n", releases.join(", ")));
    for (number, tree) in trees.iter().enumerate() {
        for (path, kind) in tree {
            let place = format!("t{number}/{path}");
            match kind {
                Kind::File(content, executable) => {
                    space.write(&place, content);
                    if *executable {
                        space.executable(&place);
                    }
                }
                Kind::Link(target) => {
                    std::fs::create_dir_all(space.path(&place).parent().unwrap()).unwrap();
                    space.link(&place, target);
                }
            }
        }
    }
    let ws = Workspace::open(&space.workspace()).unwrap();
    let oids = (0..trees.len())
        .map(|n| upstream::ensure(&ws, Some(&format!("1.{n}"))).unwrap().tree)
        .collect();
    (space, oids)
}

fn store(space: &TestEnvironment) -> std::path::PathBuf {
    space.path(".perfquilt/objects.git")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn holds_what_it_was_moved_to(trees in prop::collection::vec(tree(), 2..4), route in prop::collection::vec(any::<usize>(), 1..6)) {
        let (space, oids) = space_with(&trees);
        let worktree = Worktree::open(&store(&space), &space.path("source")).unwrap();
        for step in route {
            let number = step % trees.len();
            worktree.move_to(&oids[number]).unwrap();
            prop_assert_eq!(listing(&space.path("source")), listing(&space.path(&format!("t{number}"))));
            prop_assert_eq!(worktree.move_to(&oids[number]).unwrap(), MoveResult::default());
        }
    }

    /// Killed between two trees, with some files of each and some torn, it still gets to a third.
    #[test]
    fn recovers_from_a_kill(trees in prop::collection::vec(tree(), 3), torn in any::<u64>()) {
        let (space, oids) = space_with(&trees);
        let source = space.path("source");
        Worktree::open(&store(&space), &source).unwrap().move_to(&oids[0]).unwrap();
        // What the kill left: the journal names both trees, and of the files in which they differ
        // some are removed, some written and some cut short.
        space.write("source.tree", format!("{}\n{}\n", oids[0], oids[1]));
        for (index, path) in trees[0].keys().enumerate() {
            if trees[1].get(path) != trees[0].get(path) {
                match (torn >> (2 * index)) & 3 {
                    0 => drop(std::fs::remove_file(source.join(path))),
                    1 if trees[0].get(path).is_some_and(|kind| matches!(kind, Kind::File(..))) => {
                        std::fs::write(source.join(path), "torn").unwrap();
                    }
                    _ => {}
                }
            }
        }
        let worktree = Worktree::open(&store(&space), &source).unwrap();
        worktree.move_to(&oids[2]).unwrap();
        prop_assert_eq!(listing(&source), listing(&space.path("t2")));
        prop_assert_eq!(worktree.move_to(&oids[2]).unwrap(), MoveResult::default());
    }
}

fn file(text: &str) -> Kind {
    Kind::File(text.as_bytes().to_vec(), false)
}

#[test]
fn files_that_stay_are_not_touched() {
    let first: Tree = [
        ("same", file("s")),
        ("changed", file("1")),
        ("gone", file("g")),
    ]
    .map(|(path, kind)| (path.to_owned(), kind))
    .into();
    let mut second = first.clone();
    second.insert("changed".into(), Kind::File(b"2".to_vec(), true));
    second.remove("gone");
    let (space, oids) = space_with(&[first, second]);
    let worktree = Worktree::open(&store(&space), &space.path("source")).unwrap();
    worktree.move_to(&oids[0]).unwrap();
    space.write("source/built.o", "made by a build");
    let stamp = |path: &str| {
        let meta = std::fs::metadata(space.path(path)).unwrap();
        (meta.ino(), meta.mtime(), meta.mtime_nsec())
    };
    let before = stamp("source/same");
    // Nothing looks older than what it was generated from.
    let (_, seconds, nanoseconds) = stamp("source/gone");
    assert_eq!((before.1, before.2), (seconds, nanoseconds));
    let moved = worktree.move_to(&oids[1]).unwrap();
    assert_eq!((moved.written, moved.removed), (1, 1));
    assert_eq!(stamp("source/same"), before);
    assert_eq!(space.read("source/built.o"), "made by a build");
    let mode = std::fs::metadata(space.path("source/changed"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o111, 0o111);
}

#[test]
fn times_rise_from_move_to_move_whatever_the_clock_does() {
    let trees = ["1", "2", "3"].map(|text| Tree::from([("a".to_owned(), file(text))]));
    let (space, oids) = space_with(&trees);
    let worktree = Worktree::open(&store(&space), &space.path("source")).unwrap();
    let modified = || {
        std::fs::metadata(space.path("source/a"))
            .unwrap()
            .modified()
            .unwrap()
    };
    worktree.move_to(&oids[0]).unwrap();
    let first = modified();
    let second = Duration::from_secs(2);
    assert!(SystemTime::now() > first + second, "coarse file systems");
    // The clock was ahead during the last move.
    let ahead = SystemTime::now() + Duration::from_secs(7200);
    let journal = std::fs::File::options()
        .write(true)
        .open(space.path("source.tree"));
    journal.unwrap().set_modified(ahead).unwrap();
    worktree.move_to(&oids[1]).unwrap();
    let later = modified();
    assert!(later > ahead);
    worktree.move_to(&oids[2]).unwrap();
    assert!(modified() > later);
}

#[test]
fn nothing_is_written_through_links() {
    let first: Tree = [("d".to_owned(), Kind::Link("../outside".into()))].into();
    let second: Tree = [("d/evil".to_owned(), file("x"))].into();
    let (space, oids) = space_with(&[first, second]);
    std::fs::create_dir(space.path("outside")).unwrap();
    let worktree = Worktree::open(&store(&space), &space.path("source")).unwrap();
    worktree.move_to(&oids[0]).unwrap();
    worktree.move_to(&oids[1]).unwrap();
    assert_eq!(std::fs::read_dir(space.path("outside")).unwrap().count(), 0);
    assert_eq!(space.read("source/d/evil"), "x");
}

#[test]
fn nothing_is_removed_through_links() {
    let link: Tree = [("d".to_owned(), Kind::Link("../outside".into()))].into();
    let folder: Tree = [("d/kept".to_owned(), file("x"))].into();
    let (space, oids) = space_with(&[link, folder]);
    space.write("outside/kept", "precious");
    let source = space.path("source");
    let worktree = Worktree::open(&store(&space), &source).unwrap();
    worktree.move_to(&oids[0]).unwrap();
    // Killed before the move to the second tree did anything.
    space.write("source.tree", format!("{}\n{}\n", oids[0], oids[1]));
    worktree.move_to(&oids[0]).unwrap();
    assert_eq!(space.read("outside/kept"), "precious");
    assert!(source.join("d").is_symlink());
}

#[test]
fn one_user_at_a_time_and_a_damaged_journal_is_said() {
    let tree: Tree = [("a".to_owned(), file("x"))].into();
    let (space, oids) = space_with(&[tree]);
    let source = space.path("source");
    let worktree = Worktree::open(&store(&space), &source).unwrap();
    let error = Worktree::open(&store(&space), &source).err().unwrap();
    assert!(error.code().to_string() == "PQ0108", "{error}");
    worktree.move_to(&oids[0]).unwrap();
    space.write("source.tree", "garbage\n");
    let error = worktree.move_to(&oids[0]).unwrap_err();
    assert!(error.message().contains("is damaged"), "{error}");
}

#[test]
fn a_folder_that_another_workspace_emptied_in_part_does_not_count_as_whole() {
    let (one, ones) = space_with(&[Tree::from([("a".to_owned(), file("x"))])]);
    let (other, others) = space_with(&[Tree::from([("b".to_owned(), file("y"))])]);
    let source = one.path("source");
    let move_to = |space: &TestEnvironment, tree: &str| {
        Worktree::open(&store(space), &source)
            .unwrap()
            .move_to(tree)
    };
    move_to(&one, &ones[0]).unwrap();
    let worktree = Worktree::open(&store(&other), &source).unwrap();
    // It gets no further than that, as if it had been killed while it emptied the folder.
    std::fs::remove_dir_all(&source).unwrap();
    assert!(worktree.move_to(&others[0]).is_err());
    drop(worktree);
    move_to(&one, &ones[0]).unwrap();
    assert_eq!(one.read("source/a"), "x");
    move_to(&other, &others[0]).unwrap();
    assert_eq!(one.read("source/b"), "y");
    assert!(!source.join("a").exists());
}
