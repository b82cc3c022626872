//! The code that a patch changes, and servers in which it cannot run.

use std::path::Path;

use perfquilt_build::{Built, ChangedCode, CodeComparison};
use perfquilt_system::process::Command;

use super::fixture::Fixture;

const RECIPE: &str = r#"
[recipe.quick]
system = "command"
build = [["sh", "-c", "for f in main part; do cc -O1 FLAGS -c $f.c || exit 1; done; rm -f parts.a; ar rcs parts.a part.o; cc -o app main.o parts.a"]]
binary = "bin/app"
[recipe.quick.install]
"bin/app" = "{build}/app"
"words" = "{src}/words"
[recipe.quick.relink]
keep = { "0-main.o" = "{build}/main.o", "1-parts.a" = "{build}/parts.a" }
command = ["cc", "-o", "{output}", "0-main.o", "1-parts.a"]
"#;

const MAIN: &str = r#"
#include <stdio.h>
int twice(int x); int often(int x); int named(int x); int chosen(int x);
int main(int argc, char **argv) {
  if (argc == 2) printf("%d\n", twice(argv[1][0]) + named(2) + chosen(argc));
  if (argc == 3) printf("%d\n", often(argc));
  return 0;
}
"#;

const PART: &str = r#"
#include <stdio.h>
#define KEEP __attribute__((noinline))
static const int table[] = {3, 1, 4, 1, 5};
int limit = 40;
static KEEP int step(int x) { return x * 7 + 1; }
KEEP int chosen(int x) {
  switch (x) { case 0: return 5; case 1: return 7; case 2: return 11; case 3: return limit; case 4: return 1; }
  return 0;
}
KEEP int named(int x) { puts("named"); return x; }
KEEP int twice(int x) { return x + x; }
KEEP int often(int x) { puts("often"); return step(x) + table[x]; }
"#;

fn fixture(flags: &str) -> Fixture {
    let mut fixture = Fixture::new(&RECIPE.replace("FLAGS", flags));
    point(&mut fixture, "one", &[]);
    fixture
}

/// Adds a point with these replacements in the second file.
fn point(fixture: &mut Fixture, name: &str, changes: &[(&str, &str)]) {
    let mut part = PART.to_owned();
    for (from, to) in changes {
        assert!(part.contains(from), "{from}");
        part = part.replace(from, to);
    }
    fixture.point(name, &[("main.c", MAIN), ("part.c", &part)]);
}

fn changed(before: &Built, after: &Built) -> Result<ChangedCode, String> {
    CodeComparison::default().changed(&before.dir, &after.dir, "bin/app", true)
}

/// The functions of the first point that these replacements change.
fn functions(changes: &[(&str, &str)]) -> Vec<String> {
    let mut fixture = fixture("-ffunction-sections -fdata-sections");
    point(&mut fixture, "other", changes);
    let built = ["one", "other"].map(|name| fixture.build(name).unwrap());
    let code = changed(&built[0], &built[1]).unwrap();
    code.functions.into_iter().collect()
}

#[test]
fn a_change_is_found_where_it_acts() {
    // The code itself.
    assert_eq!(functions(&[("x * 7", "x * 9")]), ["step"]);
    // Strings before and behind it move.
    assert_eq!(functions(&[("\"often\"", "\"a longer text\"")]), ["often"]);
    assert_eq!(
        functions(&[("puts(\"named\");", "puts(\"named\"); puts(\"more\");")]),
        ["named"]
    );
    // A constant acts where it is used, and so does a variable.
    assert_eq!(functions(&[("{3, 1, 4", "{3, 1, 5")]), ["often"]);
    assert_eq!(functions(&[("limit = 40", "limit = 41")]), ["chosen"]);
    // A table of numbers or of places to jump to.
    assert_eq!(functions(&[("return 11", "return 13")]), ["chosen"]);
    // A function that nothing calls, in front of all others.
    let new = (
        "static KEEP int step",
        "int new(int x) { return x - limit; }\nstatic KEEP int step",
    );
    assert_eq!(functions(&[new]), [""; 0]);
    // One that others call, and one that takes another's name.
    assert_eq!(
        functions(&[new, ("step(x) +", "new(x) +")]),
        ["often", "step"]
    );
    let library = (
        "int limit",
        "int puts(const char *s) { return s[0]; }\nint limit",
    );
    let names = functions(&[("#include <stdio.h>", "int puts(const char *s);"), library]);
    assert_eq!(names, ["named", "often"]);
}

#[test]
fn without_sections_of_functions_the_whole_object_counts() {
    let mut fixture = fixture("-fno-function-sections");
    point(&mut fixture, "other", &[("x * 7", "x * 9")]);
    let built = ["one", "other"].map(|name| fixture.build(name).unwrap());
    let code = changed(&built[0], &built[1]).unwrap();
    assert_eq!(code.functions.into_iter().collect::<Vec<_>>(), [".text"]);
    let other_way = changed(&built[0], &built[0]).unwrap();
    assert!(other_way.is_empty());
}

#[test]
fn changes_that_act_by_themselves_are_not_compared() {
    let mut fixture = fixture("-ffunction-sections");
    let start =
        "__attribute__((constructor)) void first(void) { limit = 3; }\nstatic KEEP int step";
    point(&mut fixture, "start", &[("static KEEP int step", start)]);
    let own = "__attribute__((section(\"own\"))) int new = 1;\nint limit";
    point(&mut fixture, "own", &[("int limit", own)]);
    fixture.point(
        "words",
        &[
            ("main.c", MAIN),
            ("part.c", PART),
            ("words", "other words\n"),
        ],
    );
    let one = fixture.build("one").unwrap();
    let refused = |name: &str, words: &str| {
        let reason = changed(&one, &fixture.build(name).unwrap()).unwrap_err();
        assert!(reason.contains(words), "{reason}");
    };
    refused("start", ".init_array");
    refused("own", "the section own differs");
    refused("words", "other than the executable");
}

#[test]
fn what_a_link_generates_is_not_compared() {
    let mut fixture = fixture("-flto");
    point(&mut fixture, "other", &[("x * 7", "x * 9")]);
    let built = ["one", "other"].map(|name| fixture.build(name).unwrap());
    assert!(changed(&built[0], &built[1]).is_err());
}

#[test]
fn a_process_ends_where_it_enters_changed_code() {
    for flags in ["-ffunction-sections", "-fno-function-sections -g"] {
        let mut fixture = fixture(flags);
        point(&mut fixture, "other", &[("x * 7", "x * 9")]);
        let built = ["one", "other"].map(|name| fixture.build(name).unwrap());
        let code = changed(&built[0], &built[1]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("app");
        code.link_with_traps(&built[0].dir, &program).unwrap();
        let run = |program: &Path, words: &[&str]| {
            let done = Command::new(program).args(words).run().unwrap();
            done.success().then(|| done.stdout_text())
        };
        let original = built[0].dir.join("bin/app");
        let (unchanged, changed) = (&["x"][..], &["x", "y"][..]);
        assert!(run(&original, unchanged).is_some() && run(&original, changed).is_some());
        assert_eq!(run(&program, &[]), Some(String::new()));
        assert_eq!(run(&program, changed), None);
        let separate = flags == "-ffunction-sections";
        assert_eq!(
            run(&program, unchanged),
            run(&original, unchanged).filter(|_| separate)
        );
        // The kept inputs are as they were.
        assert!(run(&original, changed).is_some());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
