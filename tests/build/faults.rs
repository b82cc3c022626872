//! Faults are named, and leave nothing half done.

use perfquilt_model::error::Kind;

use super::fixture::{Fixture, RECIPE, item};

#[test]
fn a_patch_that_does_not_compile_is_named_with_file_and_line() {
    let mut fixture = Fixture::new(RECIPE);
    fixture.point("bad", &[("lib/two.c", "\nint two(void) { return x; }\n")]);
    fixture.point("good", &[("lib/two.c", "int two(void) { return 5; }\n")]);
    fixture.build("base").unwrap();

    let error = fixture.build("bad").unwrap_err();
    assert_eq!(error.kind(), Kind::Build);
    assert_eq!(error.location().unwrap().to_string(), "lib/two.c:2");
    assert!(error.message().contains("\"bad.patch\""), "{error}");
    assert!(error.message().contains("undeclared"), "{error}");
    let details = error.detail_lines().join("\n");
    assert!(details.contains("the patch touches lib/two.c"), "{details}");
    let hint = error.hint_text().unwrap();
    let log = hint.rsplit(' ').next().unwrap();
    assert!(std::fs::read_to_string(log).unwrap().contains("undeclared"));
    assert_eq!(fixture.results().len(), 1, "only the base");

    assert_eq!(fixture.build("good").unwrap().compiled_units, 1);
}

#[test]
fn a_file_the_patch_does_not_touch_is_told_apart() {
    let mut fixture = Fixture::new(RECIPE);
    fixture.point(
        "bad",
        &[("lib/numbers.h", "int two(void);\n#error numbers\n")],
    );
    let error = fixture.build("bad").unwrap_err();
    assert_eq!(error.location().unwrap().to_string(), "lib/numbers.h:2");
    let details = error.detail_lines().join("\n");
    assert!(
        details.contains("does not touch lib/numbers.h"),
        "{details}"
    );
}

#[test]
fn a_program_of_the_source_tree_that_cannot_be_run_is_that_points_fault() {
    let recipe = r#"
[recipe.quick]
system = "command"
build = [["./words"]]
binary = "bin/app"
[recipe.quick.install]
"bin/app" = "{src}/words"
"#;
    let fixture = Fixture::new(recipe);
    let error = fixture.build("base").unwrap_err();
    assert_eq!(error.kind(), Kind::Build, "{error}");
    let details = error.detail_lines().join("\n");
    assert!(details.contains("`./words` cannot be started"), "{details}");
}

#[test]
fn a_cache_whose_programs_cannot_run_is_named_before_anything_is_built() {
    let fixture = Fixture::new(RECIPE);
    let cache = fixture.folder.path().join("cache");
    let Some(mounted) = crate::common::Mounted::in_memory(&cache, 16) else {
        return;
    };
    let remounted = perfquilt_system::process::Command::new("mount")
        .args(["-o", "remount,noexec"])
        .arg(&mounted.0)
        .run();
    assert!(remounted.unwrap().success());
    let error = fixture.build("base").unwrap_err();
    let message = error.message();
    assert!(
        message.contains(cache.to_str().unwrap()) && message.contains("`noexec`"),
        "{error}"
    );
    assert!(error.hint_text().unwrap().contains("XDG_CACHE_HOME"));
    assert!(!cache.join("work").exists());
}

#[test]
fn a_cache_that_others_may_write_is_not_read() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let fixture = Fixture::new(RECIPE);
    let cache = fixture.folder.path().join("cache");
    fixture.build("base").unwrap();
    let refused = |why: &str| {
        let error = fixture.build("base").unwrap_err();
        assert!(error.message().contains(why), "{error}");
        assert!(error.hint_text().unwrap().contains("XDG_CACHE_HOME"));
    };
    let mode = |mode: u32| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&cache, permissions).unwrap();
    };
    mode(0o777);
    refused("can be written by every user");
    mode(0o755);
    // Only root can give it away.
    if chown(&cache, Some(12345), None).is_ok() {
        refused("belongs to another user");
        chown(&cache, Some(0), None).unwrap();
    }
    fixture.build("base").unwrap();
}

#[test]
fn what_a_command_of_make_says_is_shown_with_its_end() {
    let mut fixture =
        Fixture::new(&RECIPE.replace("\"cmake\"", "\"command\"\nbuild = [[\"make\"]]"));
    fixture.point(
        "tool",
        &[(
            "Makefile",
            "app:\n\t@echo 'needs a newer tool' >&2; exit 3\n",
        )],
    );
    let error = fixture.build("tool").unwrap_err();
    let details = error.detail_lines().join("\n");
    assert!(
        details.contains("needs a newer tool\nmake: ***"),
        "{details}"
    );
}

#[test]
fn what_is_installed_and_cannot_be_copied_names_the_point() {
    let recipe = r#"
[recipe.quick]
system = "command"
build = [["mkfifo", "lib/pipe"]]
binary = "bin/app"
[recipe.quick.install]
"bin/app" = "{src}/words"
"lib" = "{src}/lib"
"#;
    let fixture = Fixture::new(recipe);
    let error = fixture.build("base").unwrap_err();
    assert_eq!(error.kind(), Kind::Build, "{error}");
    assert!(error.message().contains("lib/pipe"), "{error}");
    let details = error.detail_lines().join("\n");
    assert!(details.contains(&item("base").label), "{details}");
}

#[test]
fn a_missing_symbol_is_a_link_error() {
    let mut fixture = Fixture::new(RECIPE);
    fixture.point("bad", &[("lib/two.c", "int deux(void) { return 2; }\n")]);
    let error = fixture.build("bad").unwrap_err();
    assert!(error.message().contains("does not link"), "{error}");
    assert!(error.message().contains("two"), "{error}");
}

#[test]
fn build_files_that_are_wrong_are_named() {
    let mut fixture = Fixture::new(RECIPE);
    fixture.build("base").unwrap();
    let text = "cmake_minimum_required(VERSION 3.16)\nproject(app C)\nmessage(FATAL_ERROR \"no such luck\")\n";
    fixture.point("bad", &[("CMakeLists.txt", text)]);
    let error = fixture.build("bad").unwrap_err();
    assert!(
        error
            .message()
            .contains("cannot be configured: no such luck"),
        "{error}"
    );
    assert_eq!(error.location().unwrap().to_string(), "CMakeLists.txt:3");
    // And the way back is open, with a fresh configuration too.
    fixture.point("good", &[("words", "x\n")]);
    fixture.build("good").unwrap();
}

#[test]
fn a_source_file_that_is_gone_is_named() {
    let mut fixture = Fixture::new(RECIPE);
    fixture.build("base").unwrap();
    fixture.point("bad", &[("lib/three.c", "")]);
    let error = fixture.build("bad").unwrap_err();
    assert!(error.message().contains("lib/three.c"), "{error}");
}

#[test]
fn a_full_disk_is_named_as_such() {
    let recipe = RECIPE.replace("targets =", "cmake_include = \"full.cmake\"\ntargets =");
    let fixture = Fixture::new(&recipe);
    let text = "set(CMAKE_C_COMPILER_LAUNCHER sh -c \"echo as: error: No space left on device >&2; exit 1\")\n";
    std::fs::write(fixture.folder.path().join("bench-config/full.cmake"), text).unwrap();
    let error = fixture.build("base").unwrap_err();
    assert!(error.message().contains("the disk is full"), "{error}");
    assert!(error.hint_text().unwrap().contains("free some space"));
}

#[test]
fn a_compiler_killed_for_want_of_memory_gets_a_second_chance_alone() {
    let recipe = RECIPE.replace("targets =", "cmake_include = \"killed.cmake\"\ntargets =");
    let fixture = Fixture::new(&recipe);
    let once = fixture.folder.path().join("once");
    let script = fixture.folder.path().join("compile.sh");
    let text = "if [ ! -e ONCE ]; then touch ONCE; echo 'cc: fatal error: Killed signal terminated program cc1' >&2; exit 1; fi\nexec \"$@\"\n";
    std::fs::write(&script, text.replace("ONCE", &once.display().to_string())).unwrap();
    let include = format!("set(CMAKE_C_COMPILER_LAUNCHER sh {})\n", script.display());
    std::fs::write(
        fixture.folder.path().join("bench-config/killed.cmake"),
        include,
    )
    .unwrap();
    let builder = fixture.builder().jobs(2);
    let built = builder.build(&item("base"), &fixture).unwrap();
    assert_eq!(built.compiled_units, 3);

    std::fs::write(
        &script,
        "echo 'cc: fatal error: Killed signal terminated program cc1' >&2; exit 1\n",
    )
    .unwrap();
    let mut fixture = fixture;
    fixture.point("one", &[("lib/two.c", "int two(void) { return 4; }\n")]);
    let error = builder.build(&item("one"), &fixture).unwrap_err();
    assert!(error.message().contains("for lack of memory"), "{error}");
}
