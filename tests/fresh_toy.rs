//! `--fresh` on the toy server: a stored server, failure or result never answers, whatever changed that no key has.

use std::fs;

use crate::common::{Finished, TestEnvironment};
use serde_json::Value;

/// A toy server that is built with a header outside of its sources, whose text it says when it starts, and tested by a
/// program outside of the workspace.
struct Outside(TestEnvironment);

impl Outside {
    fn new() -> Self {
        let environment = TestEnvironment::with_fixture("toy");
        let outside = environment.path("outside");
        fs::create_dir(&outside).unwrap();
        let folder = outside.display().to_string();
        environment.replace(
            "upstream/Makefile",
            "$(CFLAGS) -o $@ toyd.c",
            &format!("$(CFLAGS) -include {folder}/outside.h -o $@ toyd.c"),
        );
        environment.replace(
            "upstream/toyd.c",
            "\"toyd is ready",
            "MADE_WITH \"toyd is ready",
        );
        environment.replace(
            "bench-config/perfquilt.toml",
            "[server]\nadapter",
            &format!(
                "[recipe.make.test]\ncommand = [\"sh\", \"-c\", \"sh {folder}/suite\"]\nformat = \"exit_status\"\nrepeat = 0\n\n\
                 [server]\nadapter"
            ),
        );
        let this = Outside(environment);
        this.made_with("first");
        this.write("suite", "exit 0\n");
        this
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.path("outside").join(file), text).unwrap();
    }

    /// Changes the text that servers say from now on.
    fn made_with(&self, text: &str) {
        let header = format!(
            "#define T(x) #x\n#define X(x) T(x)\n#define MADE_WITH \"{text} \" X(ROUNDS)\n"
        );
        self.write("outside.h", &header);
    }

    /// Runs a command that succeeds.
    fn ok(&self, args: &[&str]) -> Finished {
        let finished = self.0.run(args);
        assert_eq!(finished.code, Some(0), "{args:?}: {}", finished.stderr);
        finished
    }

    /// How many servers of the cache say this text.
    fn servers_with(&self, text: &str) -> usize {
        let builds = fs::read_dir(self.0.cache().join("builds")).unwrap();
        let programs = builds.map(|entry| entry.unwrap().path().join("bin/toyd"));
        programs
            .filter_map(|program| fs::read(program).ok())
            .filter(|bytes| {
                bytes
                    .windows(text.len())
                    .any(|part| part == text.as_bytes())
            })
            .count()
    }
}

#[test]
fn every_point_is_built_and_tested_again() {
    let toy = Outside::new();
    toy.ok(&["build"]);
    toy.ok(&["test"]);
    toy.made_with("second");
    toy.write("suite", "exit 3\n");
    // Nobody can know that a file changed which no recipe names.
    toy.ok(&["test"]);
    assert!(toy.ok(&["build"]).stderr.contains("in the cache"));
    assert_eq!(
        (toy.servers_with("first"), toy.servers_with("second")),
        (3, 0)
    );

    toy.ok(&["build", "1", "--fresh"]);
    assert_eq!(
        (toy.servers_with("first"), toy.servers_with("second")),
        (2, 1)
    );
    // The suite fails everywhere, so no patch is to blame.
    let tested = toy.ok(&["test", "--fresh", "--json"]);
    let tested: Value = serde_json::from_str(&tested.stdout).unwrap();
    for point in tested["points"].as_array().unwrap() {
        assert_eq!(point["cached"], false, "{tested:#}");
        assert_eq!(point["tests"]["passed"], 0, "{tested:#}");
    }
    assert_eq!(
        (toy.servers_with("first"), toy.servers_with("second")),
        (0, 3)
    );
    // The new answers are stored, and the old ones are gone.
    assert!(toy.ok(&["build"]).stderr.contains("in the cache"));
    assert_eq!(toy.servers_with("second"), 3);
}

#[test]
fn bisections_and_runs_build_again_and_say_so_before() {
    let toy = Outside::new();
    toy.ok(&["run", "--blocks", "2"]);
    toy.made_with("second");
    let forecast = |args: &[&str]| {
        let text = toy.ok(&[&["run", "--dry-run", "--json"][..], args].concat());
        let document: Value = serde_json::from_str(&text.stdout).unwrap();
        document["forecast"]["unbuilt"].as_array().unwrap().len()
    };
    assert_eq!((forecast(&[]), forecast(&["--fresh"])), (0, 3));
    toy.ok(&["run", "--blocks", "2", "--fresh"]);
    assert_eq!(
        (toy.servers_with("first"), toy.servers_with("second")),
        (0, 3)
    );
    toy.made_with("third");
    toy.ok(&["bisect", "--fresh", "--direction", "both", "--no-profile"]);
    assert!(toy.servers_with("third") >= 2);
}

#[test]
fn a_start_that_failed_is_tried_again() {
    let toy = Outside::new();
    let patch = toy.0.read("patches/0001-fewer-rounds.patch");
    let further = patch
        .replace("25000u", "24000u")
        .replace("100000u", "25000u");
    toy.0.write("patches/0002-comment-only.patch", &further);
    // As if something else had the port: the server of patch 2 does not start.
    let busy = toy.0.path("outside").join("busy");
    toy.0.replace(
        "bench-config/perfquilt.toml",
        "start = [\"{server}/bin/toyd\"",
        &format!(
            "start = [\"sh\", \"-c\", 'if test -e {} && grep -q 24000u $0; then exit 9; fi; exec $0 $1', \"{{server}}/bin/toyd\"",
            busy.display()
        ),
    );
    fs::write(&busy, "").unwrap();
    let failed = toy.0.run(&["run", "--blocks", "2"]);
    assert_eq!(failed.code, Some(5), "{}", failed.stderr);
    fs::remove_file(&busy).unwrap();
    toy.ok(&["run", "--blocks", "2", "--fresh"]);
}

#[test]
fn a_calibration_begins_again_and_goes_on_from_there() {
    let toy = Outside::new();
    let measured = |args: &[&str]| {
        let common = [
            "calibrate",
            "--repeats",
            "1",
            "--copies",
            "1",
            "--blocks",
            "2",
        ];
        let finished = toy.ok(&[&common[..], args].concat());
        finished.stderr.contains("measured in")
    };
    assert!(measured(&[]));
    assert!(!measured(&[]));
    assert!(measured(&["--fresh"]));
    // The last answer holds.
    assert!(!measured(&[]));
}
