//! `ci/peers`: other projects' rules beside perfquilt's.

use std::process::{Command, Output};

fn peers(arguments: &[&str]) -> Output {
    Command::new("ci/peers")
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap()
}

/// The cells of the rows of a table whose first column is `machine`.
fn rows(table: &str, machine: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| line.split('\t').map(str::to_owned).collect();
    let rows: Vec<Vec<String>> = table.lines().map(cells).collect();
    rows.into_iter().filter(|row| row[0] == machine).collect()
}

fn percent(cell: &str) -> f64 {
    cell.trim_end_matches(" %").parse().unwrap()
}

#[test]
fn differences_within_blocks_find_more_on_a_shared_machine() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.md");
    let output = peers(&["--experiments", "200", "--output", page.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let page = read("page.md");
    for part in [
        "# Other projects' decision rules",
        "# Other methods of bisecting",
        "(peers-rules.tsv)",
        "(peers-bisecting.tsv)",
    ] {
        assert_eq!(page.matches(part).count(), 1, "{part}");
    }

    let table = read("peers-rules.tsv");
    assert_eq!(table.lines().count(), 1 + 4 * 5);
    let rules = rows(&table, "a shared machine");
    let own = &rules[0];
    assert_eq!(own[1], "perfquilt");
    assert!((1.0..12.0).contains(&percent(&own[2])), "{own:?}");
    // 0.4 %: three standard errors of the difference within blocks.
    let found = |row: &Vec<String>| percent(&row[6]);
    assert!(found(own) > 60.0, "{own:?}");
    for other in &rules[1..] {
        assert!(found(other) < found(own), "{other:?}");
    }

    let table = read("peers-bisecting.tsv");
    assert_eq!(table.lines().count(), 1 + 99 * 5);
    let exact = |machine: &str, changes: &str, culprits: &str, method: &str| {
        let rows = rows(&table, machine);
        let of = rows
            .iter()
            .find(|row| row[1..4] == [changes, culprits, method]);
        percent(&of.unwrap()[6])
    };
    for method in [
        "git bisect run, one run",
        "git bisect run, mean of 5",
        "Pinpoint's rule",
    ] {
        assert!(
            exact("a quiet machine", "8", "1 of 5.0 %", method) > 80.0,
            "{method}"
        );
        assert!(
            exact("a shared machine", "8", "1 of 0.5 %", method) < 60.0,
            "{method}"
        );
    }
    // A plain bisection names one change, whatever there is.
    assert!(exact("a shared machine", "8", "none", "git bisect run, one run") < 90.0);
    assert_eq!(
        exact(
            "a quiet machine",
            "64",
            "3 of 2.0 %",
            "git bisect run, mean of 5"
        ),
        0.0
    );
    assert!(
        exact(
            "a shared machine",
            "8",
            "1 of 1.0 %",
            "git bisect run, mean of enough"
        ) > 90.0
    );
}

#[test]
fn no_experiments_are_refused() {
    let output = peers(&["--experiments", "0"]);
    assert!(!output.status.success(), "{output:?}");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("must be at least 1"), "{words}");
}
