//! What a build makes, and what it does not make again.

use std::os::unix::fs::MetadataExt;

use perfquilt::process::Command;

use crate::fixture::{Fixture, RECIPE, item};

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
        "6 ./main.c\n",
        "no path of this machine"
    );
    assert!(base.dir.join("share/words").is_file());

    let one = fixture.build("one").unwrap();
    assert_eq!(one.compiled_units, 1);
    assert_eq!(one.seconds.configure, 0.0, "configured already");
    assert!(one.seconds.link > 0.0);
    assert_ne!(one.identity, base.identity);
    let output = Command::new(one.dir.join("bin/app")).run().unwrap();
    assert_eq!(output.stdout_text(), "12 ./main.c\n");

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

#[test]
fn a_new_recipe_is_configured_and_the_old_one_stays() {
    let fixture = Fixture::new(RECIPE);
    let release = fixture.build("base").unwrap();
    let debug = Fixture {
        trees: fixture.trees.clone(),
        folder: fixture.folder,
    };
    let config = debug.folder.path().join("bench-config/perfquilt.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("=Release", "=Debug")).unwrap();
    let built = debug.build("base").unwrap();
    assert_ne!(built.key, release.key);
    assert!(built.seconds.configure > 0.0);
    std::fs::write(&config, text).unwrap();
    assert!(debug.build("base").unwrap().cached);
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
    let error = perfquilt::build::Builder::new(&fixture.workspace(), "quick", "app-1").unwrap_err();
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
    let src = fixture.builder().work_dir().join("src");
    let time = std::fs::metadata(src.join("main.o")).unwrap().mtime_nsec();
    let error = fixture.build("bad").unwrap_err();
    assert_eq!(error.place().unwrap().to_string(), "lib/two.c:1");
    assert_eq!(fixture.build("one").unwrap().compiled_units, 1);
    assert_eq!(
        std::fs::metadata(src.join("main.o")).unwrap().mtime_nsec(),
        time
    );
    let configured = std::fs::read_to_string(src.join("configured.txt")).unwrap();
    assert_eq!(configured, "configured\n", "once");
}

#[test]
fn progress_counts_steps() {
    use perfquilt::progress::{Progress, Step};
    use std::sync::{Arc, Mutex};

    type Update = (u64, Option<u64>);
    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<Update>>>);
    impl Progress for Seen {
        fn begin(&self, _: &str, _: Option<u64>) -> Box<dyn Step> {
            Box::new(self.clone())
        }
        fn note(&self, _: &str) {}
        fn warn(&self, _: &str) {}
    }
    impl Step for Seen {
        fn update(&self, done: u64, total: Option<u64>, _: &str) {
            self.0.lock().unwrap().push((done, total));
        }
        fn finish(self: Box<Self>, _: &str) {}
    }

    let fixture = Fixture::new(RECIPE);
    let seen = Seen::default();
    fixture
        .builder()
        .build(&item("base"), &fixture, &seen)
        .unwrap();
    let updates = seen.0.lock().unwrap();
    let (done, total) = *updates.last().unwrap();
    assert_eq!(Some(done), total);
    assert!(total.unwrap() >= 5, "three units, an archive, a program");
    assert!(updates.windows(2).all(|pair| pair[0].0 <= pair[1].0));
}
