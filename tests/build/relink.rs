//! A built executable is linked again in other orders, from what was kept alone.

use std::collections::BTreeMap;
use std::path::Path;

use perfquilt_build::Relink;
use perfquilt_config::Layouts;
use perfquilt_system::process::Command;

use super::fixture::{Fixture, RECIPE};

/// Addresses of the program's functions and variables by name.
fn addresses(program: &Path) -> BTreeMap<String, u64> {
    let output = Command::new("nm").arg(program).run().unwrap();
    assert!(output.success());
    let text = output.stdout_text();
    let symbol = |line: &str| {
        let (address, rest) = line.split_once(' ')?;
        let (_, name) = rest.split_once(' ')?;
        Some((name.to_owned(), u64::from_str_radix(address, 16).ok()?))
    };
    text.lines().filter_map(symbol).collect()
}

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
                // Padding, and the rest of a page before a function that begins one.
                assert!(now >= before && now % 16 == 0 && now - before < 2 * 4096);
            }
            assert!(!seen.contains(&now), "{linker} {seed}: {now:?}");
            seen.push(now);
        }
        let paddings: std::collections::BTreeSet<u64> = seen[1..]
            .iter()
            .flat_map(|now| now.iter().zip(&seen[0]))
            .map(|(now, before)| now - before.next_multiple_of(16))
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

const PARTS: [&str; 6] = [
    "part0.c", "part1.c", "part2.c", "part3.c", "part4.c", "part5.c",
];

/// A program of several files in an archive; `changed` has a longer function, a constant of another value, and
/// functions and variables that the other has not, one of them before all others of its file.
fn in_parts(fixture: &mut Fixture, name: &str, changed: bool) {
    let mut calls = String::new();
    let mut declarations = String::new();
    let mut files = vec![];
    for (part, file) in PARTS.into_iter().enumerate() {
        let mut text = String::from("#define KEEP __attribute__((noinline, used))\n");
        if changed && part == 1 {
            text.push_str("char new_table[300] = {7};\n");
            text.push_str("KEEP int new_first(int x) { return x * new_table[x & 15]; }\n");
        }
        for step in 0..20 {
            let id = part * 20 + step;
            let body = if changed && id == 50 {
                format!("x = x * x + {id}; ").repeat(200)
            } else {
                String::new()
            };
            let value = if changed && id == 70 { 7001 } else { id };
            text.push_str(&format!(
                "int data_{id}[5] = {{{id}, 1}}; const int ro_{id}[9] = {{{value}, 2}}; \
                 int bss_{id}[3];\n\
                 KEEP int f_{id}(int x) {{ {body} return (x ^ {value}) + data_{id}[1] + \
                 ro_{id}[1] + bss_{id}[0]; }}\n"
            ));
            if changed && id == 90 {
                text.push_str(&format!(
                    "KEEP int new_big(int x) {{ {} return x; }}\n",
                    "x = x * 3 ^ x; ".repeat(500)
                ));
            }
            declarations.push_str(&format!("int f_{id}(int);\n"));
            calls.push_str(&format!("x = f_{id}(x);\n"));
        }
        files.push((file, text));
    }
    let main = format!(
        "#include <stdio.h>\n{declarations}\
         int main(void) {{ int x = 1;\n{calls}printf(\"%d\\n\", x); return 0; }}\n"
    );
    files.push(("main.c", main));
    let files: Vec<(&'static str, &str)> = files.iter().map(|(n, t)| (*n, &**t)).collect();
    fixture.point(name, &files);
}

#[test]
fn builds_have_layouts_in_common() {
    for linker in ["", "-fuse-ld=mold"] {
        let recipe = r#"
[recipe.quick]
system = "command"
build = [
    ["sh", "-c", "for f in main.c part*.c; do cc -O1 -ffunction-sections -c $f || exit 1; done; rm -f parts.a; ar rcs parts.a part*.o"],
    ["cc", "-o", "app", "main.o", "parts.a"],
]
binary = "bin/app"
[recipe.quick.install]
"bin/app" = "{build}/app"
[recipe.quick.relink]
keep = { "0-main.o" = "{build}/main.o", "1-parts.a" = "{build}/parts.a" }
command = ["cc", LINKER "-o", "{output}", "0-main.o", "1-parts.a"]
"#;
        let word = if linker.is_empty() {
            String::new()
        } else {
            format!("\"{linker}\",")
        };
        let mut fixture = Fixture::new(&recipe.replace("LINKER", &word));
        in_parts(&mut fixture, "one", false);
        in_parts(&mut fixture, "other", true);
        let builds = ["one", "other"].map(|name| fixture.build(name).unwrap());
        let mut relinks = builds
            .iter()
            .map(|built| Relink::of(&built.dir, Layouts::Padded).unwrap())
            .collect::<Vec<_>>();
        // The control.
        relinks.push(relinks[0].clone());
        Relink::align(&mut relinks.iter_mut().collect::<Vec<_>>());
        let folder = tempfile::tempdir().unwrap();
        let link = |index: usize, seed: u64| {
            let program = folder.path().join(format!("app-{index}-{seed}"));
            relinks[index].link(seed, &program).unwrap();
            assert_eq!(says(&program), says(&builds[index % 2].dir.join("bin/app")));
            program
        };
        let ours = |name: &str| {
            let number = name
                .split_once('_')
                .filter(|(kind, _)| ["f", "data", "ro", "bss"].contains(kind));
            number.is_some_and(|(_, number)| number.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let mut seen: Vec<BTreeMap<String, u64>> = Vec::new();
        for seed in 1..=8 {
            let programs = [0, 1, 2].map(|index| link(index, seed));
            let found = programs.each_ref().map(|program| addresses(program));
            assert!(found[1].contains_key("new_big") && !found[0].contains_key("new_big"));
            let mut compared = 0;
            for (name, address) in found[0].iter().filter(|(name, _)| ours(name)) {
                // Without `-fdata-sections`, a new variable moves the others of its file.
                let moves = name.split_once('_').is_some_and(|(kind, id)| {
                    kind == "data" && (20..40).contains(&id.parse::<u32>().unwrap())
                });
                if !moves {
                    let other = found[1][name];
                    assert_eq!(other % 4096, address % 4096, "{linker} {seed} {name}");
                    // Only tables before the code and data may have moved them, by whole pages.
                    assert!(
                        other.abs_diff(*address) <= 4 * 4096,
                        "{linker} {seed} {name}"
                    );
                    compared += 1;
                }
            }
            assert_eq!(compared, 4 * 120 - 20);
            let bytes = |path: &Path| std::fs::read(path).unwrap();
            assert_eq!(bytes(&programs[0]), bytes(&programs[2]), "{linker} {seed}");
            let code = found[0]
                .clone()
                .into_iter()
                .filter(|(name, _)| name.starts_with("f_"));
            let code: BTreeMap<String, u64> = code.collect();
            assert!(!seen.contains(&code));
            seen.push(code);
        }
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
    assert!(error.hint_text().unwrap().contains("layouts = \"off\""));
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
    let program = folder.path().join("app");
    let relink = Relink::of(&built.dir, Layouts::Padded).unwrap();
    relink.link(5, &program).unwrap();
    assert_eq!(says(&program), "1\n");

    let missing = Fixture::new(&recipe.replace("*.o\" }", "*.object\" }"));
    let mut missing = missing;
    missing.trees = fixture.trees.clone();
    let error = missing.build("one").unwrap_err();
    assert!(error.message().contains("*.object"), "{error}");
}
