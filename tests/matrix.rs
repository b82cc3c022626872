//! `perfquilt matrix`: each patch on each release, of one series and of several.

use crate::common::releases::{commit_all, json, lines, patch, space};

/// The states of a patch, in the order of releases.
fn states(matrix: &serde_json::Value, patch: &str) -> Vec<String> {
    let rows = matrix["patches"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == patch);
    let cells = row.unwrap_or_else(|| panic!("{patch}: {matrix}"))["cells"].as_array();
    let cells = cells.unwrap().iter();
    cells
        .map(|cell| cell["state"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn patches_are_compared_with_those_of_other_releases_or_moved_there() {
    let old = lines(60, &[]);
    // Upstream took `c`, changed what `d` changes, and moved everything down.
    let new = format!(
        "first\n{}",
        lines(60, &[(30, "patched 30\n"), (45, "other 45\n")])
    );
    let space = space(&[("f.c", old.clone())], &[("f.c", new.clone())]);
    let mut before = old;
    let mut changes = Vec::new();
    for (name, line, text) in [
        ("a.patch", 5, "patched 5\n"),
        ("b.patch", 15, "patched 15\n"),
        ("c.patch", 30, "patched 30\n"),
        ("d.patch", 45, "patched 45\n"),
    ] {
        changes.push((line, text));
        let after = lines(60, &changes);
        patch(&space, name, "f.c", &before, &after);
        before = after;
    }
    commit_all(&space);

    // Without the other release, nothing is guessed.
    space.ok(&["upstream", "fetch", "1.0"]);
    let matrix = json(&space, &["matrix", "--json"]);
    assert_eq!(states(&matrix, "a.patch"), ["same", "unknown"]);
    let note = matrix["notes"][0].as_str().unwrap();
    assert!(note.contains("`perfquilt upstream fetch 2.0`"), "{note}");

    // One series for both.
    space.ok(&["upstream", "fetch", "2.0"]);
    let matrix = json(&space, &["matrix", "--json"]);
    for (name, there) in [
        ("a.patch", "same"),
        ("b.patch", "same"),
        ("c.patch", "upstream"),
        ("d.patch", "conflict"),
    ] {
        assert_eq!(states(&matrix, name), ["same", there], "{matrix}");
    }
    assert_eq!(matrix["notes"].as_array().unwrap().len(), 0, "{matrix}");

    // The other release has a series of its own: `a` has another name there, `b` was forgotten, and `e` is new.
    let from_two = |name: &str, line: usize, text: &str| {
        let after = new.replace(&format!("\nline {line}\n"), &format!("\n{text}"));
        patch(&space, name, "f.c", &new, &after);
    };
    let main = space.read("series");
    from_two("two/a-there.patch", 5, "patched 5\n");
    let title = space.read("patches/two/a-there.patch");
    let title = title.replace("Subject: two/a-there.patch", "Subject: a.patch");
    space.write("patches/two/a-there.patch", &title);
    from_two("two/d.patch", 46, "patched 46\n");
    from_two("two/e.patch", 55, "patched 55\n");
    space.write("series", &main);
    space.write("patches/two/series", "a-there.patch\nd.patch\ne.patch\n");
    space.configure(
        "[[upstream.release]]\nversion = \"1.0\"\ndirectory = \"up\"\n\
         [[upstream.release]]\nversion = \"2.0\"\ndirectory = \"two\"\npatches = \"patches/two\"\n",
    );
    let matrix = json(&space, &["matrix", "--json"]);
    for (name, there) in [
        ("a.patch", "same"),
        ("b.patch", "missing"),
        ("c.patch", "upstream"),
        ("d.patch", "adapted"),
    ] {
        assert_eq!(states(&matrix, name), ["same", there], "{matrix}");
    }
    assert_eq!(states(&matrix, "e.patch"), ["missing", "same"], "{matrix}");
    let notes = matrix["notes"].as_array().unwrap();
    assert_eq!(notes.len(), 1, "{matrix}");
    let note = notes[0].as_str().unwrap();
    assert!(
        note.contains("lacks b.patch, which applies there"),
        "{note}"
    );
    assert_eq!(matrix["patches"][0]["cells"][1]["name"], "a-there.patch");

    let (code, text, _) = space.shown(&["matrix"]);
    assert_eq!(code, 0);
    assert!(text.contains("a-there.patch"), "{text}");
    assert!(text.contains("c.patch on srv-2.0: upstream: "), "{text}");
    space.ok(&["matrix", "--output", "matrix.html"]);
    assert!(space.read("matrix.html").contains("lacks b.patch"));
}
