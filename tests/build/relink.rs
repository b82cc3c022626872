//! A built executable is linked again in other orders, from what was kept alone.

use std::path::Path;

use perfquilt_config::Layouts;
use perfquilt_machine::build::Relink;
use perfquilt_system::process::{Command, find_program};

use crate::fixture::{Fixture, RECIPE};

/// Addresses and names of the program's functions whose names begin with `step_`, by address.
fn steps(program: &Path) -> Vec<(u64, String)> {
    let output = Command::new("nm").arg("-n").arg(program).run().unwrap();
    assert!(output.success());
    let text = output.stdout_text();
    let step = |line: &str| {
        let (address, name) = line.split_once(' ')?;
        let (_, name) = name.rsplit_once(' ')?;
        let address = u64::from_str_radix(address, 16).ok()?;
        name.starts_with("step_")
            .then(|| (address, name.to_owned()))
    };
    text.lines().filter_map(step).collect()
}

/// Their names.
fn order(program: &Path) -> Vec<String> {
    steps(program).into_iter().map(|(_, name)| name).collect()
}

/// How far each begins behind the one before it.
fn distances(program: &Path) -> Vec<u64> {
    let steps = steps(program);
    steps.windows(2).map(|pair| pair[1].0 - pair[0].0).collect()
}

fn says(program: &Path) -> String {
    Command::new(program).run().unwrap().stdout_text()
}

/// A program of twelve functions.
fn with_steps(linker: &str) -> Fixture {
    let mut fixture = Fixture::new(&RECIPE.replace("linker = \"auto\"", linker).replace(
        "cmake_args = [",
        "cmake_args = [\"-DCMAKE_C_FLAGS_RELEASE=-O1 -ffunction-sections\", ",
    ));
    let mut main = String::from("#include <stdio.h>\n");
    let mut calls = String::new();
    for step in 0..12 {
        main.push_str(&format!(
            "__attribute__((noinline)) int step_{step}(int x) {{ return x * {} + 1; }}\n",
            step + 2
        ));
        calls.push_str(&format!("x = step_{step}(x); "));
    }
    main.push_str(&format!(
        "int main(void) {{ int x = 1; {calls} printf(\"%d\\n\", x); return 0; }}\n"
    ));
    fixture.point("steps", &[("main.c", &main)]);
    fixture
}

#[test]
fn shuffled_functions_come_in_another_order_and_the_program_stays_the_same() {
    assert!(
        find_program("mold").is_some() || find_program("ld.lld").is_some(),
        "this test needs mold, which `ci/install-deps` installs"
    );
    let fixture = with_steps("linker = \"auto\"");
    let built = fixture.build("steps").unwrap();
    // Nothing of the build is needed any more.
    std::fs::remove_dir_all(fixture.folder.path().join("cache/work")).unwrap();
    let relink = Relink::of(&built.dir, Layouts::Shuffled).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let original = built.dir.join("bin/app");
    let mut orders = vec![order(&original)];
    assert_eq!(orders[0].len(), 12);
    for seed in [1, 2, 0x7fff_ffff] {
        let program = folder.path().join(format!("app-{seed}"));
        relink.link(seed, &program).unwrap();
        assert_eq!(says(&program), says(&original));
        orders.push(order(&program));
    }
    let again = folder.path().join("again");
    relink.link(2, &again).unwrap();
    let bytes = |path: &Path| std::fs::read(path).unwrap();
    assert_eq!(bytes(&again), bytes(&folder.path().join("app-2")));
    for (index, one) in orders.iter().enumerate() {
        for other in &orders[..index] {
            assert_ne!(one, other);
        }
    }
}

/// With any linker.
#[test]
fn padded_functions_keep_their_order_and_the_program_stays_the_same() {
    for linker in ["linker = \"auto\"", "linker = \"default\""] {
        let fixture = with_steps(linker);
        let built = fixture.build("steps").unwrap();
        std::fs::remove_dir_all(fixture.folder.path().join("cache/work")).unwrap();
        let relink = Relink::of(&built.dir, Layouts::Padded).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let original = built.dir.join("bin/app");
        let mut seen = vec![distances(&original)];
        for seed in 1..=8 {
            let program = folder.path().join(format!("app-{seed}"));
            relink.link(seed, &program).unwrap();
            assert_eq!(says(&program), says(&original));
            assert_eq!(order(&program), order(&original));
            let now = distances(&program);
            for (now, before) in now.iter().zip(&seen[0]) {
                assert!(now >= before && (now - before) % 16 == 0 && now - before < 4096);
            }
            assert!(!seen.contains(&now), "{linker} {seed}: {now:?}");
            seen.push(now);
        }
        let paddings: std::collections::BTreeSet<u64> = seen[1..]
            .iter()
            .flat_map(|now| now.iter().zip(&seen[0]).map(|(now, before)| now - before))
            .collect();
        assert!(
            paddings.is_superset(&[0, 16, 32, 48].into()),
            "{paddings:?}"
        );
        let again = folder.path().join("again");
        relink.link(2, &again).unwrap();
        let bytes = |path: &Path| std::fs::read(path).unwrap();
        assert_eq!(bytes(&again), bytes(&folder.path().join("app-2")));
        // Nothing but the executables is left.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 9);
    }
}

#[test]
fn what_is_kept_is_no_part_of_the_identity() {
    let mut fixture = with_steps("linker = \"auto\"");
    let built = fixture.build("steps").unwrap();
    let main = fixture.trees["steps"]["main.c"].clone();
    // Another object, the same program: a static variable that nobody uses.
    fixture.point("remark", &[("main.c", &format!("/* remark */ {main}"))]);
    let remark = fixture.build("remark").unwrap();
    assert_eq!(remark.identity, built.identity);
    assert!(built.dir.join("relink/link.json").is_file());
}

#[test]
fn results_share_what_they_have_in_common() {
    use std::os::unix::fs::MetadataExt;
    let mut fixture = with_steps("linker = \"auto\"");
    let main = fixture.trees["steps"]["main.c"].clone();
    fixture.point("other", &[("main.c", &main.replace("x = 1", "x = 2"))]);
    let (one, other) = (
        fixture.build("steps").unwrap(),
        fixture.build("other").unwrap(),
    );
    Relink::of(&one.dir, Layouts::Padded).unwrap();
    let inode = |dir: &Path, end: &str| -> u64 {
        let files = std::fs::read_dir(dir.join("relink")).unwrap();
        let file = files
            .map(|file| file.unwrap().path())
            .find(|path| path.to_string_lossy().ends_with(end));
        std::fs::metadata(file.unwrap()).unwrap().ino()
    };
    assert_eq!(inode(&one.dir, ".a"), inode(&other.dir, ".a"));
    assert_ne!(inode(&one.dir, ".o"), inode(&other.dir, ".o"));
    // What no result has any more goes with the next build.
    let parts = fixture.folder.path().join("cache/relink");
    let count = || std::fs::read_dir(&parts).unwrap().count();
    assert_eq!(count(), 3);
    std::fs::remove_dir_all(&one.dir).unwrap();
    std::fs::remove_dir_all(&other.dir).unwrap();
    fixture.point("third", &[("main.c", &main.replace("x = 1", "x = 3"))]);
    fixture.build("third").unwrap();
    assert_eq!(count(), 2);
}

#[test]
fn a_linker_that_cannot_shuffle_is_named() {
    let fixture = with_steps("linker = \"default\"");
    let built = fixture.build("steps").unwrap();
    let reason = Relink::of(&built.dir, Layouts::Shuffled).unwrap_err();
    for part in ["install mold", "linker = \"auto\""] {
        assert!(reason.contains(part), "{reason}");
    }
}

#[test]
fn a_link_that_fails_says_how() {
    let fixture = with_steps("linker = \"auto\"");
    let built = fixture.build("steps").unwrap();
    let relink = Relink::of(&built.dir, Layouts::Padded).unwrap();
    for entry in std::fs::read_dir(built.dir.join("relink")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "o") {
            // What is kept is shared with other results and read-only.
            std::fs::remove_file(&path).unwrap();
            std::fs::write(path, "no object").unwrap();
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let error = relink.link(3, &folder.path().join("app")).unwrap_err();
    assert_eq!(error.kind(), perfquilt_model::error::Kind::Bench);
    assert!(!error.detail_lines().is_empty());
    assert!(error.hint_text().unwrap().contains("--layouts off"));
}

#[test]
fn a_recipe_of_commands_says_itself_how_it_is_linked() {
    let recipe = r#"
[recipe.quick]
system = "command"
build = [["cc", "-O1", "-c", "main.c"], ["cc", "-o", "app", "main.o"]]
binary = "bin/app"
env = { LIBRARY_PATH = "{build}/deps" }
[recipe.quick.install]
"bin/app" = "{build}/app"
[recipe.quick.relink]
keep = { "objects" = "{build}/*.o" }
command = ["sh", "-c", "cc -o {output} objects/*.o \"$@\"", "link"]
shuffle = ["-Wl,--defsym=order={seed}"]
"#;
    let mut fixture = Fixture::new(recipe);
    fixture.point(
        "one",
        &[(
            "main.c",
            "#include <stdio.h>\nint main(void) { puts(\"1\"); return 0; }\n",
        )],
    );
    let built = fixture.build("one").unwrap();
    let link = std::fs::read_to_string(built.dir.join("relink/link.json")).unwrap();
    assert!(
        link.contains("/src/deps") && !link.contains("{build}"),
        "{link}"
    );
    let folder = tempfile::tempdir().unwrap();
    for (layouts, order) in [(Layouts::Padded, false), (Layouts::Shuffled, true)] {
        let program = folder.path().join(format!("app-{order}"));
        let relink = Relink::of(&built.dir, layouts).unwrap();
        relink.link(5, &program).unwrap();
        assert_eq!(says(&program), "1\n");
        let symbols = Command::new("nm").arg(&program).run().unwrap();
        assert_eq!(symbols.stdout_text().contains("5 A order"), order);
    }

    let missing = Fixture::new(&recipe.replace("*.o\" }", "*.object\" }"));
    let mut missing = missing;
    missing.trees = fixture.trees.clone();
    let error = missing.build("one").unwrap_err();
    assert!(error.message().contains("*.object"), "{error}");
}
