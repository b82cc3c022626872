//! Patches of every form that quilt takes, one by one: GNU patch, `git apply` and this program make the
//! same of them. `PERFQUILT_CASES=50` tries fifty times as many.

use std::path::Path;

use crate::common::run_in;
use crate::common::share::Share;
use crate::common::trees::{self, Meaning, Op, Tree, cases};
use perfquilt_series::series::{Patch, SeriesFile};
use proptest::prelude::*;

/// How a diff is written.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Unified(u8),
    Context(u8),
    Normal,
}

fn form() -> impl Strategy<Value = Form> {
    prop_oneof![
        3 => (0..4_u8).prop_map(Form::Unified),
        3 => (0..4_u8).prop_map(Form::Context),
        1 => Just(Form::Normal),
    ]
}

/// The text around the hunks.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Style {
    /// Names with dates; 1970 where there is no file.
    Dated,
    /// Names alone, and `/dev/null`.
    Bare,
    /// As `quilt refresh` writes it.
    Quilt,
    /// As Subversion writes it: no folder before the names.
    Index,
}

fn style() -> impl Strategy<Value = Style> {
    prop_oneof![
        Just(Style::Dated),
        Just(Style::Bare),
        Just(Style::Quilt),
        Just(Style::Index)
    ]
}

/// A change of the whole patch file.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Dress {
    Plain,
    Mail,
    Indented,
    CarriageReturns,
    CutOff,
    Comments,
}

fn dress() -> impl Strategy<Value = Dress> {
    prop_oneof![
        4 => Just(Dress::Plain),
        1 => Just(Dress::Mail),
        1 => Just(Dress::Indented),
        1 => Just(Dress::CarriageReturns),
        1 => Just(Dress::CutOff),
        1 => Just(Dress::Comments),
    ]
}

/// The diff from `a` to `b`, whose folders are there, and the `-p` it is to be applied with.
fn diff(dir: &Path, a: &Tree, b: &Tree, form: Form, style: Style) -> (Vec<u8>, usize) {
    let mut out = Vec::new();
    let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    for name in names {
        let file = |tree: &Tree, dir: &str| {
            if tree.contains_key(name) {
                format!("{dir}/{name}")
            } else {
                "/dev/null".to_owned()
            }
        };
        let (old, new) = (file(a, "a"), file(b, "b"));
        let label = |dir: &str, tree: &Tree| {
            let there = tree.contains_key(name);
            let date = if there {
                "2024-06-03 10:00:00.5 +0200"
            } else {
                "1970-01-01 00:00:00.0 +0000"
            };
            match style {
                Style::Bare if !there => "/dev/null".to_owned(),
                Style::Bare => format!("{dir}/{name}\t"),
                Style::Dated => format!("{dir}/{name}\t{date}"),
                Style::Quilt if dir == "a" => format!("x-1.0.orig/{name}\t{date}"),
                Style::Quilt => format!("x-1.0/{name}\t{date}"),
                Style::Index => format!("{name}\t{date}"),
            }
        };
        let (first, second) = (label("a", a), label("b", b));
        let mut args: Vec<String> = match form {
            Form::Unified(n) => vec![format!("-U{n}")],
            Form::Context(n) => vec![format!("-C{n}")],
            Form::Normal => vec![],
        };
        if form != Form::Normal {
            args.extend(["--label".into(), first, "--label".into(), second]);
        }
        args.extend(["-a".into(), old, new]);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let text = run_in(dir, "diff", &args).stdout;
        if text.is_empty() {
            continue;
        }
        let index = match style {
            Style::Quilt => Some(format!("Index: x-1.0/{name}\n{}\n", "=".repeat(67))),
            Style::Index => Some(format!("Index: {name}\n{}\n", "=".repeat(67))),
            _ if form == Form::Normal => Some(format!("Index: b/{name}\n")),
            _ => Some(format!("diff -Nur a/{name} b/{name}\n")),
        };
        out.extend(index.unwrap_or_default().into_bytes());
        out.extend(text);
    }
    (out, if style == Style::Index { 0 } else { 1 })
}

fn dressed(patch: &[u8], dress: Dress) -> Vec<u8> {
    let lines = || patch.split_inclusive(|&b| b == b'\n');
    match dress {
        Dress::Plain => patch.to_vec(),
        Dress::Mail => [
            b"From: A <a@b.c>\nSubject: x\n\nWhy:\n - it is\n@@ better\n---\n f | 2 +-\n\n",
            patch,
            b"-- \n2.39.5\n",
        ]
        .concat(),
        Dress::Indented => lines().flat_map(|line| [b"  ", line].concat()).collect(),
        Dress::CarriageReturns => lines()
            .flat_map(|line| [line.strip_suffix(b"\n").unwrap_or(line), b"\r\n"].concat())
            .collect(),
        Dress::CutOff => patch[..patch.len().saturating_sub(1)].to_vec(),
        Dress::Comments => lines()
            .flat_map(|line| [b"# why\n", line].concat())
            .collect(),
    }
}

/// GNU patch as quilt runs it, without fuzz. It cannot read names with blanks from the headers of git, so it sees none.
fn patch(dir: &Path, tree: &Tree, bytes: &[u8], options: &[&str]) -> (Meaning, String) {
    let is_of_git = bytes.windows(10).any(|part| part == b"diff --git");
    let name = [
        "long name",
        if is_of_git { "long_name" } else { "long name" },
    ];
    let work = dir.join("patch");
    let renamed = tree
        .iter()
        .map(|(path, file)| (path.replace(name[0], name[1]), file.clone()));
    trees::write(&work, &renamed.collect());
    let file = dir.join("without-blanks.patch");
    let text = std::str::from_utf8(bytes).map(|text| text.replace(name[0], name[1]));
    std::fs::write(&file, text.map_or(bytes.to_vec(), String::into_bytes)).unwrap();
    let file = file.to_string_lossy();
    let mut args = vec![
        "-F0",
        "-f",
        "--backup",
        "--prefix=.pc/x/",
        "-r",
        "-",
        "-i",
        &file,
    ];
    args.extend(options);
    let output = run_in(&work, "patch", &args);
    let said = format!("{}{}", output.stdout_text(), output.stderr_text());
    let mut meaning = trees::meaning(output.success(), &work);
    for (path, ..) in meaning.iter_mut().flatten() {
        *path = path.replace(name[1], name[0]);
    }
    (meaning, said)
}

fn git_apply(dir: &Path, tree: &Tree, file: &Path, options: &[&str]) -> Meaning {
    let work = dir.join("git");
    trees::write(&work, tree);
    let file = file.to_string_lossy();
    let mut args = vec![
        "apply",
        "--unsafe-paths",
        "--whitespace=nowarn",
        "--unidiff-zero",
    ];
    args.extend(options);
    args.push(&file);
    let output = run_in(&work, "git", &args);
    trees::meaning(output.success(), &work)
}

fn ours(tree: &Tree, bytes: &[u8], options: &str) -> (Meaning, String) {
    let (series, faults) = SeriesFile::parse(format!("p {options}\n").as_bytes(), "series");
    assert!(faults.is_empty(), "{faults:?}");
    let result = Patch::parse(&series.entries()[0], "p", bytes)
        .and_then(|patch| trees::patched(tree, &patch));
    match result {
        Ok(files) => (Some(files), String::new()),
        Err(error) => {
            assert!(error.location().is_some(), "{error}");
            (None, error.to_string())
        }
    }
}

/// Differences to quilt that docs/series.md states: what is refused although patch takes it.
fn stated(error: &str) -> bool {
    let stated = [
        "out of step",
        "unsupported file mode",
        "an ed script",
        "the range of the old lines",
        "a hunk that changes nothing",
        "`.git` is not allowed",
        "which does not exist",
    ];
    stated.iter().any(|what| error.contains(what))
}

/// Both must agree; where patch refuses one of git's patches, what git makes of it is right as well. Counts
/// the patches that patch and this program apply and that change the tree.
fn compare(
    tree: &Tree,
    bytes: &[u8],
    options: &[&str],
    applied: &Share,
) -> Result<(), TestCaseError> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.patch");
    std::fs::write(&file, bytes).unwrap();
    let (theirs, said) = patch(dir.path(), tree, bytes, options);
    let (found, error) = ours(tree, bytes, &options.join(" "));
    let before = trees::tree_listing(tree);
    let changed = theirs.as_ref().is_some_and(|after| *after != before);
    applied.count(changed && found == theirs);
    if found == theirs || (theirs.is_some() && stated(&error)) {
        return Ok(());
    }
    let text = String::from_utf8_lossy(bytes);
    if theirs.is_none() && text.contains("diff --git") {
        let git = git_apply(dir.path(), tree, &file, options);
        if found.is_none() {
            return Ok(());
        }
        prop_assert_eq!(
            found,
            git,
            "patch said {}\nwe said {}\n{}",
            said,
            error,
            text
        );
        return Ok(());
    }
    prop_assert_eq!(
        found,
        theirs,
        "patch said {}\nwe said {}\n{}",
        said,
        error,
        text
    );
    Ok(())
}

/// Something done to one place of a patch.
#[derive(Debug, Clone)]
enum Wound {
    RemoveLine(prop::sample::Index),
    DoubleLine(prop::sample::Index),
    Byte(prop::sample::Index, u8),
}

fn wound() -> impl Strategy<Value = Wound> {
    let at = any::<prop::sample::Index>;
    let byte = prop::sample::select(b" +-@!*<>0123,\n\tabdcX\\#=/\r".to_vec());
    prop_oneof![
        at().prop_map(Wound::RemoveLine),
        at().prop_map(Wound::DoubleLine),
        (at(), byte).prop_map(|(at, byte)| Wound::Byte(at, byte)),
    ]
}

fn wounded(patch: &[u8], wounds: &[Wound]) -> Vec<u8> {
    let mut patch = patch.to_vec();
    for wound in wounds {
        let mut lines: Vec<Vec<u8>> = patch
            .split_inclusive(|&b| b == b'\n')
            .map(<[u8]>::to_vec)
            .collect();
        if lines.is_empty() {
            return patch;
        }
        match wound {
            Wound::RemoveLine(at) => drop(lines.remove(at.index(lines.len()))),
            Wound::DoubleLine(at) => {
                let at = at.index(lines.len());
                lines.insert(at, lines[at].clone());
            }
            Wound::Byte(at, byte) => {
                let mut all = lines.concat();
                let at = at.index(all.len());
                all[at] = *byte;
                lines = vec![all];
            }
        }
        patch = lines.concat();
    }
    patch
}

fn drifted(tree: &Tree, drift: &[Op]) -> Tree {
    let mut tree = tree.clone();
    trees::change(&mut tree, drift);
    tree
}

static FORMS: Share = Share::new();
static DAMAGED: Share = Share::new();
static GITS: Share = Share::new();

#[test]
fn every_form_as_patch_reads_it() {
    form_case();
    FORMS.is_at_least_one_in(3);
}

#[test]
fn damaged_patches_as_patch_reads_them() {
    damaged_case();
    DAMAGED.is_at_least_one_in(20);
}

#[test]
fn git_patches_as_patch_and_git_read_them() {
    git_case();
    GITS.is_at_least_one_in(3);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(100), failure_persistence: None, max_shrink_iters: 400, ..ProptestConfig::default() })]

    /// Unified, context and normal diffs with all that stands around them, forwards and in reverse, on
    /// the tree they were made for or on one that has changed since.
    fn form_case(
        base in trees::tree(5),
        ops in prop::collection::vec(trees::op(5), 1..4),
        drift in prop::collection::vec(trees::op(5), 0..2),
        form in form(),
        style in style(),
        dress in dress(),
        reverse in any::<bool>(),
        binary in prop::bool::weighted(0.1),
    ) {
        let mut changed = base.clone();
        trees::change(&mut changed, &ops);
        let dir = tempfile::tempdir().unwrap();
        trees::write(&dir.path().join("a"), &base);
        trees::write(&dir.path().join("b"), &changed);
        let (bytes, strip) = diff(dir.path(), &base, &changed, form, style);
        let bytes = dressed(&bytes, dress);
        let mut options = vec![if strip == 0 { "-p0" } else { "-p1" }];
        if reverse {
            options.push("-R");
        }
        if binary {
            options.push("--binary");
        }
        let from = if reverse { &changed } else { &base };
        compare(&drifted(from, &drift), &bytes, &options, &FORMS)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(100), failure_persistence: None, max_shrink_iters: 400, ..ProptestConfig::default() })]

    /// The same with damage: refused by both, or understood alike.
    fn damaged_case(
        base in trees::tree(3),
        ops in prop::collection::vec(trees::op(3), 1..4),
        form in form(),
        style in style(),
        wounds in prop::collection::vec(wound(), 1..3),
        option in prop::sample::select(vec!["-p1", "-R", "-p2", "-p0", "-l", "-E", "-N", "-u", "-c"]),
    ) {
        let mut changed = base.clone();
        trees::change(&mut changed, &ops);
        let dir = tempfile::tempdir().unwrap();
        trees::write(&dir.path().join("a"), &base);
        trees::write(&dir.path().join("b"), &changed);
        let (bytes, strip) = diff(dir.path(), &base, &changed, form, style);
        let bytes = wounded(&bytes, &wounds);
        let strip = if strip == 0 { "-p0" } else { "-p1" };
        compare(&base, &bytes, &[strip, option], &DAMAGED)?;
    }
}

/// Git's own patch from `a` to `b`.
fn git_diff(dir: &Path, options: &[&str]) -> Vec<u8> {
    let git = |args: &[&str]| run_in(dir, "git", args);
    git(&["init", "-q", "--bare", "store"]);
    let tree = |work: &str| {
        let work = format!("--work-tree={work}");
        git(&["--git-dir=store", &work, "add", "-A", "."]);
        let tree = git(&["--git-dir=store", "write-tree"]).stdout_text();
        let _ = std::fs::remove_file(dir.join("store/index"));
        tree.trim().to_owned()
    };
    let (a, b) = (tree("a"), tree("b"));
    let mut args = vec!["--git-dir=store", "diff"];
    args.extend(options);
    args.extend([a.as_str(), b.as_str()]);
    git(&args).stdout
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(60), failure_persistence: None, max_shrink_iters: 400, ..ProptestConfig::default() })]

    /// Git's patches: renames, copies, modes, links, new, deleted and empty files.
    fn git_case(
        base in trees::tree(40),
        ops in prop::collection::vec(trees::git_op(40), 1..5),
        drift in prop::collection::vec(trees::op(40), 0..2),
        options in prop::sample::select(vec![
            vec![], vec!["-M"], vec!["-M20", "-C20", "--find-copies-harder"],
            vec!["--full-index", "--binary"], vec!["-U0"], vec!["-D"],
        ]),
        reverse in any::<bool>(),
    ) {
        let mut changed = base.clone();
        trees::change(&mut changed, &ops);
        let dir = tempfile::tempdir().unwrap();
        trees::write(&dir.path().join("a"), &base);
        trees::write(&dir.path().join("b"), &changed);
        let bytes = git_diff(dir.path(), &options);
        prop_assume!(!bytes.is_empty());
        let from = if reverse { &changed } else { &base };
        let flags = if reverse { vec!["-p1", "-R"] } else { vec!["-p1"] };
        compare(&drifted(from, &drift), &bytes, &flags, &GITS)?;
    }
}

/// What patch leaves to the names of moves, to files outside the tree and to GNU's grammar of dates.
#[test]
fn moves_outside_names_and_odd_dates_as_patch_and_git_read_them() {
    let tree = Tree::from(
        [("d/e/h", "h\n"), ("d/a_name", "a\n"), ("f", "x\n")]
            .map(|(name, text)| (name.to_owned(), (trees::FILE, text.to_owned()))),
    );
    let header = "diff --git a/d/e/h b/d/a_name\nsimilarity index 100%\n";
    let copy = format!("{header}copy from d/e/h\ncopy to d/a_name\n");
    let rename = format!("{header}rename from d/e/h\nrename to d/a_name\n");
    let to_link = "diff --git a/f b/f\ndeleted file mode 100644\nindex 587be6b..0000000\n--- a/f\n+++ /dev/null\n\
        @@ -1 +0,0 @@\n-x\ndiff --git a/f b/f\nnew file mode 120000\nindex 0000000..2b02b55\n--- /dev/null\n+++ b/f\n\
        @@ -0,0 +1 @@\n+to0\n\\ No newline at end of file\n\
        diff --git a/f b/g\nsimilarity index 100%\ncopy from f\ncopy to g\n";
    let outside = |name: &str| {
        format!("*** /dev null\n--- {name}\t\n***************\n*** 0 ****\n--- 1,1 ----\n+ l\n")
    };
    let dated = |date: &str| {
        format!("--- a/f\t2024-06-03 10:00:00.5 +0200\n+++ b/f\t{date}\n@@ -1 +0,0 @@\n-x\n")
    };
    for (patch, flags) in [
        (copy.clone(), vec!["-p1"]),
        (copy, vec!["-p1", "-R"]),
        (rename.clone(), vec!["-p1"]),
        (rename, vec!["-p1", "-R"]),
        (to_link.to_owned(), vec!["-p1"]),
        (outside("n/w"), vec!["-p0"]),
        (outside("w"), vec!["-p0"]),
        (dated("1970-01-01 00:\t0:00.0 +0000"), vec!["-p1"]),
        (dated("1970-01-01 00:00\t00.0 +0000"), vec!["-p1"]),
        (dated("1 Jan 1970 00:0 :00 -0000"), vec!["-p1"]),
    ] {
        compare(&tree, patch.as_bytes(), &flags, &Share::new()).unwrap();
    }
}

/// Patch succeeds without a change where a file to be deleted is missing and the patch shows none of its lines.
/// Patch ignores what follows such a command, and says that it succeeded.
#[test]
fn a_normal_command_that_deletes_no_line_is_refused_as_stated() {
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree::from([("f".to_owned(), (trees::FILE, "x\ny\n".to_owned()))]);
    let bytes = b"Index: b/f\n3,2d0\n< y\n1d0\n< x\n";
    let (theirs, said) = patch(dir.path(), &tree, bytes, &["-p1"]);
    assert_eq!(theirs, Some(trees::tree_listing(&tree)), "{said}");
    let (found, error) = ours(&tree, bytes, "-p1");
    assert!(found.is_none() && stated(&error), "{error}");
}

#[test]
fn a_deletion_of_nothing_is_refused_as_stated() {
    let patch = b"diff --git a/f b/f\ndeleted file mode 100644\nindex 27a13b8..0000000\n";
    let tree = Tree::from([("g.c".to_owned(), (trees::FILE, "x\n".to_owned()))]);
    let (found, error) = ours(&tree, patch, "-p1");
    assert!(found.is_none() && stated(&error), "{error}");
}
