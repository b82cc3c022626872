//! Results of a build, and those that it reuses.
use perfquilt_system::process::Command;

use super::fixture::{Fixture, RECIPE, item};

#[test]
fn only_what_differs_is_compiled_and_results_are_kept() {
    let mut fixture = Fixture::new(RECIPE);
    fixture.point("one", &[("lib/two.c", "int two(void) { return 4; }\n")]);

    let base = fixture.build("base").unwrap();
    assert!(!base.cached);
    assert_eq!(base.compiled_units, 3, "`unwanted` is no target");
    assert!(base.seconds.configure > 0.0 && base.seconds.compile > 0.0);
    let output = Command::new(base.dir.join("bin/app")).run().unwrap();
    assert_eq!(
        output.stdout_text(),
        "6 main.c\n",
        "no path of this machine"
    );
    assert!(base.dir.join("share/words").is_file());

    let one = fixture.build("one").unwrap();
    assert_eq!(one.compiled_units, 1);
    assert_eq!(one.seconds.configure, 0.0, "configured already");
    assert!(one.seconds.link > 0.0);
    assert_ne!(one.identity, base.identity);
    let output = Command::new(one.dir.join("bin/app")).run().unwrap();
    assert_eq!(output.stdout_text(), "12 main.c\n");

    let again = fixture.build("base").unwrap();
    assert!(again.cached);
    assert_eq!((again.key, again.identity), (base.key, base.identity));
    assert!(fixture.log("one").contains("Building C object"));
}

#[test]
fn a_change_that_changes_no_code_gives_the_same_identity() {
    let mut fixture = Fixture::new(RECIPE);
    fixture.point(
        "one",
        &[("lib/two.c", "/* a remark */ int two(void) { return 2; }\n")],
    );
    let base = fixture.build("base").unwrap();
    let one = fixture.build("one").unwrap();
    assert_eq!(one.compiled_units, 1);
    assert_ne!(one.key, base.key);
    assert_eq!(one.identity, base.identity);
}

#[test]
fn the_same_sources_give_the_same_server_in_another_place() {
    let (here, there) = (Fixture::new(RECIPE), Fixture::new(RECIPE));
    let (here, there) = (here.build("base").unwrap(), there.build("base").unwrap());
    assert_eq!(here.key, there.key);
    assert_eq!(here.identity, there.identity);
}

#[test]
fn installed_files_count_too() {
    let mut fixture = Fixture::new(RECIPE);
    fixture.point("one", &[("words", "other\n")]);
    let (base, one) = (
        fixture.build("base").unwrap(),
        fixture.build("one").unwrap(),
    );
    assert_eq!(one.compiled_units, 0);
    assert_ne!(one.identity, base.identity);
}

/// Replaces text in the fixture's configuration.
fn reconfigure(fixture: &Fixture, from: &str, to: &str) {
    let config = fixture.folder.path().join("bench-config/perfquilt.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(&config, text.replace(from, to)).unwrap();
}

#[test]
fn a_new_recipe_is_configured_and_the_old_one_stays() {
    let fixture = Fixture::new(RECIPE);
    let release = fixture.build("base").unwrap();
    reconfigure(&fixture, "=Release", "=Debug");
    let built = fixture.build("base").unwrap();
    assert_ne!(built.key, release.key);
    assert!(built.seconds.configure > 0.0);
    reconfigure(&fixture, "=Debug", "=Release");
    assert!(fixture.build("base").unwrap().cached);
}

#[test]
fn what_is_taken_from_a_build_tree_does_not_make_another() {
    let fixture = Fixture::new(RECIPE);
    let first = fixture.build("base").unwrap();
    reconfigure(&fixture, "share/words", "share/other");
    let second = fixture.build("base").unwrap();
    assert_ne!(second.key, first.key);
    assert_eq!((second.compiled_units, second.seconds.configure), (0, 0.0));
    assert!(second.dir.join("share/other").is_file());
}

/// Hits and misses of the fixture's ccache.
fn statistics(fixture: &Fixture) -> (u64, u64) {
    let output = Command::new("ccache")
        .arg("--print-stats")
        .env("CCACHE_DIR", fixture.folder.path().join("cache/ccache"))
        .run()
        .unwrap();
    let text = output.stdout_text();
    let count = |name: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace()
            .next_back()
            .unwrap()
            .parse()
            .unwrap()
    };
    (count("direct_cache_hit"), count("cache_miss"))
}

pub fn says(built: &perfquilt_build::Built) -> String {
    let output = Command::new(built.dir.join("bin/app")).run().unwrap();
    output.stdout_text()
}

#[test]
fn an_option_has_the_default_of_its_own_point_whatever_was_built_before() {
    let mut fixture = Fixture::new(RECIPE);
    let cmake = fixture.trees["base"]["CMakeLists.txt"].replace(
        "add_library",
        "option(MORE \"\" OFF)\nif(MORE)\n  add_compile_definitions(TWO=4)\nendif()\nadd_library",
    );
    let two = "#ifndef TWO\n#define TWO 2\n#endif\nint two(void) { return TWO; }\n";
    let more = cmake.replace("OFF", "ON");
    fixture.point("off", &[("CMakeLists.txt", &cmake), ("lib/two.c", two)]);
    fixture.point("on", &[("CMakeLists.txt", &more), ("lib/two.c", two)]);
    fixture.point(
        "back",
        &[
            ("CMakeLists.txt", &cmake),
            ("lib/two.c", two),
            ("words", "x\n"),
        ],
    );
    assert_eq!(says(&fixture.build("off").unwrap()), "6 main.c\n");
    assert_eq!(says(&fixture.build("on").unwrap()), "12 main.c\n");
    assert_eq!(says(&fixture.build("back").unwrap()), "6 main.c\n");
}

#[test]
fn other_build_files_configure_anew_and_keep_what_was_compiled() {
    let mut fixture = Fixture::new(RECIPE);
    let cmake = fixture.trees["base"]["CMakeLists.txt"].clone() + "# a remark\n";
    fixture.point("one", &[("CMakeLists.txt", &cmake)]);
    fixture.point("tested", &[("join.test", "SELECT 1;\n")]);
    fixture.build("base").unwrap();
    let one = fixture.build("one").unwrap();
    assert!(one.seconds.configure > 0.0);
    assert_eq!(one.compiled_units, 0);
    assert!(fixture.build("tested").unwrap().seconds.configure > 0.0);
    fixture.point("more", &[("more.test", "SELECT 2;\n")]);
    let more = fixture.build("more").unwrap();
    assert_eq!(more.seconds.configure, 0.0, "no build looks for tests");
}

#[test]
fn a_build_file_that_a_pattern_finds_counts() {
    let mut fixture = Fixture::new(RECIPE);
    let cmake = fixture.trees["base"]["CMakeLists.txt"].clone()
        + "file(GLOB found ${CMAKE_SOURCE_DIR}/plugin/*/CMakeLists.txt)\n\
           foreach(file ${found})\n\
           get_filename_component(folder ${file} DIRECTORY)\n\
           add_subdirectory(${folder})\nendforeach()\n";
    let two = "#ifndef TWO\n#define TWO 2\n#endif\nint two(void) { return TWO; }\n";
    fixture.point("before", &[("CMakeLists.txt", &cmake), ("lib/two.c", two)]);
    fixture.point(
        "plugin",
        &[
            ("CMakeLists.txt", &cmake),
            ("lib/two.c", two),
            (
                "plugin/x/CMakeLists.txt",
                "target_compile_definitions(two PRIVATE TWO=4)\n",
            ),
        ],
    );
    assert_eq!(says(&fixture.build("before").unwrap()), "6 main.c\n");
    assert_eq!(says(&fixture.build("plugin").unwrap()), "12 main.c\n");
}

#[test]
fn commands_start_afresh_with_other_build_files() {
    let recipe = r#"
[recipe.quick]
system = "command"
configure = [["sh", "./configure"]]
build = [["make", "-j{jobs}"]]
binary = "bin/app"
[recipe.quick.install]
"bin/app" = "{build}/app"
"#;
    let mut fixture = Fixture::new(recipe);
    let makefile =
        "include flags\napp: main.o lib/two.o lib/three.o\n\tcc -o $@ $^\nCFLAGS = $(FLAGS)\n";
    let two = "#ifndef TWO\n#define TWO 2\n#endif\nint two(void) { return TWO; }\n";
    let point = |configure: &'static str| {
        [
            ("Makefile", makefile),
            ("lib/two.c", two),
            ("configure", configure),
        ]
    };
    fixture.point("two", &point("echo FLAGS = -O1 > flags\n"));
    fixture.point("four", &point("echo FLAGS = -O1 -DTWO=4 > flags\n"));
    assert_eq!(says(&fixture.build("two").unwrap()), "6 main.c\n");
    assert_eq!(says(&fixture.build("four").unwrap()), "12 main.c\n");
}

#[test]
fn going_back_past_a_changed_precompiled_header_compiles_nothing() {
    let mut fixture = Fixture::new(RECIPE);
    let cmake = fixture.trees["base"]["CMakeLists.txt"].replace(
        "target_link",
        "target_compile_options(app PRIVATE -fpch-preprocess)\n\
         target_precompile_headers(app PRIVATE lib/numbers.h)\ntarget_link",
    );
    let numbers = "int two(void);\nint three(void);\nint four(void);\n";
    fixture.point("first", &[("CMakeLists.txt", &cmake)]);
    fixture.point(
        "header",
        &[("CMakeLists.txt", &cmake), ("lib/numbers.h", numbers)],
    );
    fixture.point("back", &[("CMakeLists.txt", &cmake), ("words", "other\n")]);
    let first = fixture.build("first").unwrap();
    assert_eq!(first.compiled_units, 4, "three units and the header");
    assert_eq!(fixture.build("header").unwrap().compiled_units, 2);
    let (hits, misses) = statistics(&fixture);
    assert_eq!(fixture.build("back").unwrap().compiled_units, 2);
    assert_eq!(statistics(&fixture), (hits + 2, misses));
}

#[test]
fn a_changed_first_line_of_a_watched_unit_configures_again() {
    let recipe = RECIPE.replace("targets =", "cmake_include = \"watch.cmake\"\ntargets =");
    let mut fixture = Fixture::new(&recipe);
    let include = "set(folder ${CMAKE_BINARY_DIR}/perfquilt)\n\
        file(WRITE ${folder}/watch.txt \"${CMAKE_SOURCE_DIR}/lib/two.c\\n\")\n\
        file(APPEND ${folder}/heads.txt \"\")\n\
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/heads.txt)\n";
    std::fs::write(
        fixture.folder.path().join("bench-config/watch.cmake"),
        include,
    )
    .unwrap();
    fixture.point("body", &[("lib/two.c", "int two(void) { return 4; }\n")]);
    fixture.point(
        "head",
        &[(
            "lib/two.c",
            "#define TWO 2\nint two(void) { return TWO; }\n",
        )],
    );
    fixture.point(
        "again",
        &[("lib/two.c", "#define TWO 2\nint two(void) { return 3; }\n")],
    );
    fixture.build("base").unwrap();
    let configured = |tree: &str| fixture.build(tree).unwrap().seconds.configure > 0.0;
    assert!(!configured("body"));
    assert!(configured("head"));
    assert!(!configured("again"));
}

#[test]
fn ccache_serves_other_build_trees_and_leaves_no_trace() {
    let fixture = Fixture::new(RECIPE);
    let first = fixture.build("base").unwrap();
    assert_eq!(statistics(&fixture).0, 0);
    let (_, misses) = statistics(&fixture);

    // Another build tree, the same commands.
    reconfigure(&fixture, "cmake_args = [", "cmake_args = [\"-DUNUSED=1\", ");
    let second = fixture.build("base").unwrap();
    assert_ne!(second.key, first.key);
    assert_eq!(statistics(&fixture), (3, misses));
    assert_eq!(second.identity, first.identity);

    reconfigure(
        &fixture,
        "linker =",
        "env = { CCACHE_DISABLE = \"1\" }\nlinker =",
    );
    let third = fixture.build("base").unwrap();
    assert_eq!(statistics(&fixture), (3, misses), "switched off");
    assert_eq!(third.identity, first.identity);
}

#[test]
fn a_cmake_file_from_outside_changes_targets_and_counts_in_the_key() {
    let fixture =
        Fixture::new(&RECIPE.replace("targets =", "cmake_include = \"extra.cmake\"\ntargets ="));
    let extra = fixture.folder.path().join("bench-config/extra.cmake");
    std::fs::write(&extra, "add_compile_definitions(EXTRA=1)\n").unwrap();
    let first = fixture.build("base").unwrap();
    std::fs::write(&extra, "add_compile_definitions(EXTRA=2)\n").unwrap();
    let second = fixture.build("base").unwrap();
    assert_ne!(first.key, second.key);
    assert_eq!(second.compiled_units, 3);
    std::fs::remove_file(&extra).unwrap();
    let error = perfquilt_build::Builder::new(&fixture.workspace(), "quick", "app-1").unwrap_err();
    assert!(error.message().contains("extra.cmake"), "{error}");
}

#[test]
fn commands_build_in_the_source_tree() {
    let mut fixture = Fixture::new(
        r#"
[recipe.quick]
system = "command"
configure = [["sh", "-c", "echo configured >> configured.txt"]]
build = [["make", "-j{jobs}", "-C", "{src}"]]
binary = "bin/app"
[recipe.quick.install]
"bin/app" = "{build}/app"
"#,
    );
    let makefile = "app: main.o lib/two.o lib/three.o\n\tcc -o $@ $^\n";
    fixture.point("base", &[("Makefile", makefile)]);
    fixture.point(
        "one",
        &[
            ("Makefile", makefile),
            ("lib/two.c", "int two(void) { return 4; }\n"),
        ],
    );
    fixture.point(
        "bad",
        &[
            ("Makefile", makefile),
            ("lib/two.c", "int two(void) { return }\n"),
        ],
    );
    assert_eq!(fixture.build("base").unwrap().compiled_units, 3);
    let error = fixture.build("bad").unwrap_err();
    assert_eq!(error.location().unwrap().to_string(), "lib/two.c:1");
    assert_eq!(fixture.build("one").unwrap().compiled_units, 3);
    let src = fixture.builder().work_dir().join("src");
    let configured = std::fs::read_to_string(src.join("configured.txt")).unwrap();
    assert_eq!(configured, "configured\n", "from a clean tree");
}

#[test]
fn progress_counts_steps() {
    use perfquilt_model::progress::{Progress, Step, reporting_to};
    use std::sync::{Arc, Mutex};

    type Update = (u64, Option<u64>);
    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<Update>>>);
    impl Progress for Seen {
        fn begin(&self, _: &str, _: Option<u64>) -> Box<dyn Step> {
            Box::new(self.clone())
        }
        fn note(&self, _: &str) {}
        fn warn(&self, _: perfquilt_model::warning::Warning) {}
    }
    impl Step for Seen {
        fn update(&self, done: u64, total: Option<u64>, _: &str) {
            self.0.lock().unwrap().push((done, total));
        }
        fn estimate(&self, _: f64, _: &str) {}

        fn finish(self: Box<Self>, _: &str) {}
    }

    let fixture = Fixture::new(RECIPE);
    let seen = Seen::default();
    let build = || fixture.builder().build(&item("base"), &fixture);
    reporting_to(Arc::new(seen.clone()), build).unwrap();
    let updates = seen.0.lock().unwrap();
    let (done, total) = *updates.last().unwrap();
    assert_eq!(Some(done), total);
    assert!(total.unwrap() >= 5, "three units, an archive, a program");
    assert!(updates.windows(2).all(|pair| pair[0].0 <= pair[1].0));
}
