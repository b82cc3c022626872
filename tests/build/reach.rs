//! What a patch changes is in the server, whatever the rules of the build say.

use std::os::unix::fs::MetadataExt;

use super::fixture::{Fixture, RECIPE};
use super::points::says;

const MAKE: &str = r#"
[recipe.quick]
system = "command"
build = [["make"]]
binary = "bin/app"
[recipe.quick.install]
"bin/app" = "{build}/app"
"#;

/// Builds `before` and then `after` with a makefile in one work folder, and returns what both say.
fn made(
    makefile: &'static str,
    before: &[(&'static str, &str)],
    after: &[(&'static str, &str)],
) -> [String; 2] {
    let mut fixture = Fixture::new(MAKE);
    let rules = [("Makefile", makefile)];
    fixture.point("before", &[&rules[..], before].concat());
    fixture.point("after", &[&rules[..], before, after].concat());
    ["before", "after"].map(|tree| says(&fixture.build(tree).unwrap()).trim().to_owned())
}

const TWO: (&str, &str) = (
    "lib/two.c",
    "#include \"n.h\"\nint two(void) { return N; }\n",
);
const THREE: (&str, &str) = (
    "lib/three.c",
    "#include \"n.h\"\nint three(void) { return N; }\n",
);
const OLD: (&str, &str) = ("lib/n.h", "#define N 2\n");
const NEW: (&str, &str) = ("lib/n.h", "#define N 5\n");

#[test]
fn a_header_that_no_rule_names_or_only_one_of_two() {
    let none = "app: main.o lib/two.o lib/three.o\n\tcc -o $@ $^\n";
    assert_eq!(
        made(none, &[TWO, THREE, OLD], &[NEW]),
        ["4 main.c", "25 main.c"]
    );
    let one = "app: main.o lib/two.o lib/three.o\n\tcc -o $@ $^\nlib/two.o: lib/n.h\n";
    assert_eq!(
        made(one, &[TWO, THREE, OLD], &[NEW]),
        ["4 main.c", "25 main.c"]
    );
}

#[test]
fn objects_that_are_newer_than_the_patched_file() {
    let ahead = "app: main.o lib/two.o lib/three.o\n\tcc -o $@ $^\n\ttouch -d '+2 hours' $^ $@\nlib/two.o: lib/n.h\n";
    assert_eq!(made(ahead, &[TWO, OLD], &[NEW]), ["6 main.c", "15 main.c"]);
}

#[test]
fn a_bundled_library_that_is_built_once_and_a_file_that_is_generated_once() {
    let library = "app: main.o lib/three.o\n\ttest -e .library || (cc -c lib/two.c -o two.o && ar qc libtwo.a two.o && touch .library)\n\t\
        cc -o $@ $^ libtwo.a\n";
    assert_eq!(
        made(library, &[TWO, OLD], &[NEW]),
        ["6 main.c", "15 main.c"]
    );
    let generated = "app: lib/n.h main.o lib/two.o lib/three.o\n\tcc -o $@ main.o lib/two.o lib/three.o\nlib/n.h:\n\tcp lib/n.src $@\n";
    let old = ("lib/n.src", "#define N 2\n");
    let new = ("lib/n.src", "#define N 5\n");
    assert_eq!(
        made(generated, &[TWO, old], &[new]),
        ["6 main.c", "15 main.c"]
    );
}

#[test]
fn a_file_that_the_release_ships_generated_is_generated_again() {
    let mut fixture = Fixture::new(MAKE);
    let rules = "app: main.o lib/two.o lib/three.o\n\tcc -o $@ $^\nlib/n.h: lib/n.src\n\tcp lib/n.src $@\nlib/two.o: lib/n.h\n";
    let shipped = [
        ("Makefile", rules),
        TWO,
        OLD,
        ("lib/n.src", "#define N 2\n"),
    ];
    // The release itself ships both.
    fixture.point("base", &shipped);
    fixture.point(
        "more",
        &[&shipped[..], &[("lib/n.src", "#define N 5\n")]].concat(),
    );
    for tree in ["more", "base"] {
        let number = if tree == "base" {
            "6 main.c"
        } else {
            "15 main.c"
        };
        assert_eq!(says(&fixture.build(tree).unwrap()).trim(), number);
    }
}

#[test]
fn the_build_knows_which_files_it_read() {
    let mut fixture = Fixture::new(MAKE);
    let rules = (
        "Makefile",
        "app: main.o lib/two.o lib/three.o\n\tcc -o $@ $^\n",
    );
    fixture.point(
        "one",
        &[
            rules,
            TWO,
            OLD,
            ("lib/windows.c", "int win;\n"),
            ("notes", "x\n"),
        ],
    );
    let built = fixture.build("one").unwrap();
    let opened = built.opened().unwrap();
    for file in ["lib/n.h", "lib/two.c", "Makefile", "main.c"] {
        assert!(opened.contains(file), "{file}: {opened:?}");
    }
    for file in ["lib/windows.c", "notes", "lib/two.o"] {
        assert!(!opened.contains(file), "{file}");
    }
}

const SHOWN: (&str, &str) = ("inc/n.h", "#define N 2\n");
const HIDING: (&str, &str) = ("lib/n.h", "#define N 5\n");

#[test]
fn a_new_header_hides_another_from_units_that_nothing_else_changes() {
    let rules =
        "app: main.o lib/two.o lib/three.o\n\tcc -o $@ $^\n%.o: %.c\n\tcc -Iinc -c -o $@ $<\n";
    assert_eq!(
        made(rules, &[TWO, SHOWN], &[HIDING]),
        ["6 main.c", "15 main.c"]
    );
    let asked = (
        "lib/two.c",
        "#if __has_include(\"more.h\")\n#include \"more.h\"\n#else\n#define N 2\n#endif\nint two(void) { return N; }\n",
    );
    let more = ("lib/more.h", "#define N 5\n");
    assert_eq!(made(rules, &[asked], &[more]), ["6 main.c", "15 main.c"]);

    let cmake = super::fixture::base()["CMakeLists.txt"].clone() + "include_directories(inc)\n";
    let common = [("CMakeLists.txt", cmake.as_str()), TWO, SHOWN];
    let said = both(&common, &[&common[..], &[HIDING]].concat());
    assert_eq!(said, ["6 main.c", "15 main.c"]);
}

#[test]
fn a_header_that_one_point_removes_is_used_where_it_is_there() {
    let rules =
        "app: main.o lib/two.o lib/three.o\n\tcc -o $@ $^\n%.o: %.c\n\tcc -Iinc -c -o $@ $<\n";
    let mut fixture = Fixture::new(MAKE);
    let mut release = super::fixture::base();
    for (path, text) in [("Makefile", rules), TWO, SHOWN, HIDING] {
        release.insert(path, text.to_owned());
    }
    fixture.trees.insert("base".to_owned(), release.clone());
    let main = release["main.c"].clone();
    fixture.trees.insert("later".to_owned(), release.clone());
    fixture
        .trees
        .get_mut("later")
        .unwrap()
        .insert("main.c", main + "\n");
    release.remove(HIDING.0);
    fixture.trees.insert("removed".to_owned(), release);
    let said = ["base", "removed", "later"].map(|tree| says(&fixture.build(tree).unwrap()));
    assert_eq!(
        said.map(|said| said.trim().to_owned()),
        ["15 main.c", "6 main.c", "15 main.c"]
    );
}

/// Builds two points with CMake in one work folder, and returns what both say.
fn both(before: &[(&'static str, &str)], after: &[(&'static str, &str)]) -> [String; 2] {
    let mut fixture = Fixture::new(RECIPE);
    fixture.point("before", before);
    fixture.point("after", after);
    ["before", "after"].map(|tree| says(&fixture.build(tree).unwrap()).trim().to_owned())
}

#[test]
fn a_new_file_in_a_folder_that_a_generator_lists() {
    let cmake = super::fixture::base()["CMakeLists.txt"].clone()
        + "add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/sum.h COMMAND sh ${CMAKE_SOURCE_DIR}/sum.sh ${CMAKE_SOURCE_DIR}/parts \
            DEPENDS ${CMAKE_SOURCE_DIR}/sum.sh)\n\
           target_sources(two PRIVATE ${CMAKE_BINARY_DIR}/sum.h)\ninclude_directories(${CMAKE_BINARY_DIR})\n";
    let common = [
        ("CMakeLists.txt", cmake.as_str()),
        ("sum.sh", "ls $1 | wc -l | sed 's/^/#define N /' > sum.h\n"),
        ("parts/one", "1\n"),
        ("parts/two", "2\n"),
        (
            "lib/two.c",
            "#include <sum.h>\nint two(void) { return N; }\n",
        ),
    ];
    let said = both(&common, &[&common[..], &[("parts/three", "3\n")]].concat());
    assert_eq!(said, ["6 main.c", "9 main.c"]);
}

#[test]
fn a_header_that_ninja_knows_of_one_unit_and_a_build_inside_the_build_uses_too() {
    // Like the external projects of a server, which have a build of their own.
    let cmake = super::fixture::base()["CMakeLists.txt"].clone()
        + "add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/five.o COMMAND cc -c -I${CMAKE_SOURCE_DIR}/lib -o ${CMAKE_BINARY_DIR}/five.o \
           ${CMAKE_SOURCE_DIR}/five/five.c)\ntarget_sources(two PRIVATE ${CMAKE_BINARY_DIR}/five.o)\n";
    let common = [
        ("CMakeLists.txt", cmake.as_str()),
        (
            "five/five.c",
            "#include <n.h>\nint five(void) { return N; }\n",
        ),
        (
            "lib/two.c",
            "#include \"n.h\"\nint five(void);\nint two(void) { return N * five(); }\n",
        ),
    ];
    let said = both(
        &[&common[..], &[OLD]].concat(),
        &[&common[..], &[NEW]].concat(),
    );
    assert_eq!(said, ["12 main.c", "75 main.c"]);
}

/// The base with a header that a command generates from a file which its rule names (`DEPENDS`) or not.
fn generating(depends: &str, number: &str) -> Vec<(&'static str, String)> {
    let cmake = super::fixture::base()["CMakeLists.txt"].clone()
        + &format!(
            "\nadd_custom_command(OUTPUT ${{CMAKE_BINARY_DIR}}/n.h COMMAND cp ${{CMAKE_SOURCE_DIR}}/lib/n.src \
             ${{CMAKE_BINARY_DIR}}/n.h {depends})\nadd_custom_target(numbers DEPENDS ${{CMAKE_BINARY_DIR}}/n.h)\n\
             add_dependencies(two numbers)\ninclude_directories(${{CMAKE_BINARY_DIR}})\n\
             set_source_files_properties(lib/two.c PROPERTIES OBJECT_DEPENDS ${{CMAKE_BINARY_DIR}}/n.h)\n"
        );
    vec![
        ("CMakeLists.txt", cmake),
        (
            "lib/two.c",
            "#include <n.h>\nint two(void) { return N; }\n".to_owned(),
        ),
        ("lib/n.src", format!("#define N {number}\n")),
    ]
}

/// Builds a number into the base and then another, and returns what both say and whether the object of a unit that has
/// nothing to do with it was kept.
fn generated(depends: &str) -> ([String; 2], bool) {
    let mut fixture = Fixture::new(RECIPE);
    for number in ["2", "5"] {
        let files = generating(depends, number);
        let files: Vec<(&'static str, &str)> = files
            .iter()
            .map(|(path, text)| (*path, text.as_str()))
            .collect();
        fixture.point(number, &files);
    }
    let object = fixture
        .builder()
        .work_dir()
        .join("build/CMakeFiles/app.dir/main.c.o");
    let mut times = Vec::new();
    let said = ["2", "5"].map(|tree| {
        let said = says(&fixture.build(tree).unwrap());
        let meta = std::fs::metadata(&object).unwrap();
        times.push((meta.mtime(), meta.mtime_nsec()));
        said.trim().to_owned()
    });
    (said, times[0] == times[1])
}

#[test]
fn ninja_is_believed_where_it_knows_a_file_and_only_there() {
    let right = ["6 main.c", "15 main.c"].map(str::to_owned);
    let named = generated("DEPENDS ${CMAKE_SOURCE_DIR}/lib/n.src");
    assert_eq!(named, (right.clone(), true));
    assert_eq!(generated(""), (right, false), "no rule names the file");
}

#[test]
fn a_product_of_ninja_from_the_future_is_not_believed() {
    let mut fixture = Fixture::new(RECIPE);
    fixture.point("more", &[("lib/two.c", "int two(void) { return 4; }\n")]);
    assert_eq!(says(&fixture.build("base").unwrap()).trim(), "6 main.c");
    let build = fixture.builder().work_dir().join("build");
    let ahead = std::time::SystemTime::now() + std::time::Duration::from_secs(7200);
    let mut folders = vec![build];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "o") {
                std::fs::File::options()
                    .write(true)
                    .open(&path)
                    .unwrap()
                    .set_modified(ahead)
                    .unwrap();
            }
        }
    }
    assert_eq!(says(&fixture.build("more").unwrap()).trim(), "12 main.c");
}
