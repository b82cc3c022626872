//! Series as RPM and Debian packages keep them: imported and exported without a needless change.

use std::collections::BTreeMap;

use crate::common::TestEnvironment;
use crate::common::releases::lines;

/// The patches of the package, on lines 5, 15, 25 and 35; the second one has two folders before its paths.
const NAMES: [&str; 4] = ["a.patch", "srv-b.patch", "c.patch", "d.patch"];

const SPEC: &str = "%global prefix srv\nName:    srv\nVersion: 1.0\nSource0: srv-1.0.tar.gz\n\n# why a\nPatch0:  a.patch\n%if 0%{?rhel}\n\
    Patch1:  %{prefix}-b.patch\n%endif\nPatch0003: c.patch\nPatch4:\thttps://example.org/x/d.patch\n\n%description\nA server: fast.\n\n";
const AUTOSETUP: &str = "%prep\n%autosetup -p1 -n srv-%{version}\n\n%build\nmake\n";
const SINGLE: &str = "%prep\n%setup -q\n%patch0 -p1 -b .a\n%if 0%{?rhel}\n%patch -P1 -p2\n%endif\n%patch 3 -p1\n%patch -P 4 -p1\n\n%build\nmake\n";

fn patch(name: &str, line: usize, prefix: &str) -> String {
    format!(
        "Subject: {name}\n\n--- a/{prefix}f.c\n+++ b/{prefix}f.c\n@@ -{line},3 +{line},3 @@\n line {line}\n-line {}\n+{name}\n line {}\n",
        line + 1,
        line + 2
    )
}

/// A workspace without patches, with these files of a package in the folder `package`.
fn with_package(files: &[(&str, &str)], strips: [usize; 4]) -> TestEnvironment {
    let space = TestEnvironment::new();
    space.write("up/f.c", lines(60, &[]));
    for (index, name) in NAMES.iter().enumerate() {
        let prefix = if strips[index] == 2 { "sub/" } else { "" };
        let folder = if files.iter().any(|(file, _)| file.ends_with("series")) {
            "package/debian/patches"
        } else {
            "package"
        };
        space.write(
            &format!("{folder}/{name}"),
            patch(name, index * 10 + 4, prefix),
        );
    }
    for (file, text) in files {
        space.write(&format!("package/{file}"), text);
    }
    space
}

/// All files of the package.
fn package(space: &TestEnvironment) -> BTreeMap<String, Vec<u8>> {
    let root = space.path("package");
    let mut folders = vec![root.clone()];
    let mut found = BTreeMap::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(&root).unwrap().display().to_string();
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn export(space: &TestEnvironment, target: &str) -> String {
    space.ok(&["export", "--package", target])
}

#[test]
fn a_spec_comes_back_as_it_was() {
    for (prep, strips, series) in [
        (
            AUTOSETUP,
            [1; 4],
            "a.patch\nsrv-b.patch\nc.patch\nd.patch\n",
        ),
        (
            SINGLE,
            [1, 2, 1, 1],
            "a.patch\nsrv-b.patch -p2\nc.patch\nd.patch\n",
        ),
    ] {
        let spec = format!("{SPEC}{prep}");
        let space = with_package(&[("srv.spec", &spec)], strips);
        let before = package(&space);
        let said = space.ok(&["import", "package/srv.spec"]);
        assert!(
            said.contains("inside `%if 0%{?rhel}`, which is not evaluated"),
            "{said}"
        );
        assert_eq!(space.read("series"), series);
        assert!(export(&space, "package").contains("nothing to change"));
        assert_eq!(package(&space), before);

        // An edited patch changes its file alone.
        let edited = space
            .read("patches/c.patch")
            .replace("+c.patch", "+c.patch, better");
        space.write("patches/c.patch", &edited);
        let said = export(&space, "package/srv.spec");
        assert_eq!(said.matches("changed: ").count(), 1, "{said}");
        assert_eq!(space.read("package/c.patch"), edited);
        assert_eq!(space.read("package/srv.spec"), spec);

        // A new last patch is a line behind the conditions, and a dropped one loses its lines.
        space.write("patches/e.patch", patch("e.patch", 45, ""));
        let without = series.replace("a.patch\n", "");
        space.write("series", format!("{without}e.patch\n"));
        let said = space.ok(&["export", "--package", "package", "--dry-run"]);
        assert!(said.contains("nothing was written") && space.read("package/srv.spec") == spec);
        let said = export(&space, "package");
        assert!(
            said.contains("a.patch is no longer listed; its file stays"),
            "{said}"
        );
        let new = space.read("package/srv.spec");
        let mut expected = spec.replace("Patch0:  a.patch\n", "");
        expected = expected.replace("x/d.patch\n", "x/d.patch\nPatch5:\te.patch\n");
        expected = expected.replace("%patch0 -p1 -b .a\n", "");
        expected = expected.replace("%patch -P 4 -p1\n", "%patch -P 4 -p1\n%patch -P 5 -p1\n");
        assert_eq!(new, expected);
        assert!(export(&space, "package").contains("nothing to change"));
    }
}

#[test]
fn another_order_moves_names_or_is_refused() {
    let space = with_package(&[("srv.spec", &format!("{SPEC}{AUTOSETUP}"))], [1; 4]);
    space.ok(&["import", "package"]);
    space.write("series", "a.patch\nsrv-b.patch\nd.patch\nc.patch\n");
    export(&space, "package");
    let new = space.read("package/srv.spec");
    assert!(
        new.contains("Patch0003: d.patch\nPatch4:\tc.patch\n"),
        "{new}"
    );
    assert!(new.contains("Patch1:  %{prefix}-b.patch\n"), "{new}");

    let space = with_package(&[("srv.spec", &format!("{SPEC}{SINGLE}"))], [1, 2, 1, 1]);
    space.ok(&["import", "package"]);
    let before = package(&space);
    space.write("series", "a.patch\nsrv-b.patch -p2\nd.patch\nc.patch\n");
    let error = space.fails(2, &["export", "--package", "package"]);
    insta::assert_snapshot!(error, @r"
    error: package/srv.spec: cannot tell this spec how to apply d.patch: its order or options are its own [PQ0900]
    hint: change its %patch lines by hand, and export again
    ");
    assert_eq!(package(&space), before);
    space.write("package/other.spec", "Name: other\n");
    let error = space.fails(2, &["export", "--package", "package"]);
    insta::assert_snapshot!(error, @r"
    error: package has several specs [PQ0900]
      package/other.spec
      package/srv.spec
    hint: name one of them
    ");
    let error = space.fails(2, &["export", "--package", "up"]);
    insta::assert_snapshot!(error, @r"
    error: up is no package: neither a spec nor debian/ nor a series is there [PQ0900]
    hint: name the .spec, or the folder that has debian/ in it
    ");
}

#[test]
fn a_debian_package_comes_back_as_it_was() {
    let series = "# Debian's own\na.patch\nsrv-b.patch\n\nc.patch -p1\nd.patch # why\n";
    let files = [
        ("debian/patches/series", series),
        ("debian/source/format", "3.0 (quilt)\n"),
        ("debian/changelog", "srv (1.0-1) unstable; urgency=low\n"),
    ];
    let space = with_package(&files, [1; 4]);
    let before = package(&space);
    space.ok(&["import", "package"]);
    assert!(export(&space, "package").contains("nothing to change"));
    assert_eq!(package(&space), before);
    space.write("series", series.replace("c.patch -p1\n", ""));
    let said = export(&space, "package");
    assert!(said.contains("c.patch is no longer listed"), "{said}");
    assert_eq!(said.matches("changed: ").count(), 1, "{said}");
    let mut expected = before;
    let list = series.replace("c.patch -p1\n", "").into_bytes();
    expected.insert("debian/patches/series".to_owned(), list);
    assert_eq!(package(&space), expected);
}

#[test]
fn the_names_of_a_gbp_queue_are_kept() {
    let space = TestEnvironment::new();
    space.write("up/f.c", lines(20, &[]));
    let fork = space.path("fork");
    crate::common::copy(&space.path("up"), &fork);
    perfquilt_testkit::git(&fork, &["init", "-q", "-b", "main", "."]);
    perfquilt_testkit::commit_all(&fork, "release");
    perfquilt_testkit::git(&fork, &["tag", "v1"]);
    std::fs::write(fork.join("f.c"), lines(20, &[(5, "mine\n")])).unwrap();
    let message = "work: mine\n\nWhy it is so.\n\nGbp-Pq: Topic speed\nGbp-Pq: Name 01_mine.diff\n";
    perfquilt_testkit::commit_all(&fork, message);
    space.ok(&["import", "fork", "v1..main"]);
    assert_eq!(space.read("series"), "speed/01_mine.diff\n");
    let patch = space.read("patches/speed/01_mine.diff");
    assert!(
        patch.contains("Why it is so.") && !patch.contains("Gbp"),
        "{patch}"
    );
}
