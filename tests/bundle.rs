//! `perfquilt bundle`: a run measured again elsewhere, without its workspace and without a compiler.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Finished, Mounted, TestEnvironment};
use serde_json::Value;

const TOKEN: &str = "ghp_a_token_of_the_environment";

/// A workspace with a measured run.
fn measured() -> TestEnvironment {
    let environment = TestEnvironment::with_fixture("toy");
    measure(&environment);
    environment
}

fn measure(environment: &TestEnvironment) {
    let finished = environment.run(&["run", "--blocks", "5"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
}

/// The path of a bundle beside the workspace.
fn beside(environment: &TestEnvironment, name: &str) -> PathBuf {
    environment.workspace().parent().unwrap().join(name)
}

/// Packs the latest run.
fn bundled(environment: &TestEnvironment) -> PathBuf {
    let file = beside(environment, "run.bundle");
    environment.ok(&["bundle", file.to_str().unwrap()]);
    file
}

/// Another machine: its own home and caches, and in its `PATH` none of the compilers and linkers of this one.
struct Elsewhere(TestEnvironment);

impl Elsewhere {
    fn new() -> Self {
        let environment = TestEnvironment::empty();
        let programs = beside(&environment, "programs");
        fs::create_dir(&programs).unwrap();
        let folders = std::env::var_os("PATH").unwrap();
        for entry in std::env::split_paths(&folders).filter_map(|folder| fs::read_dir(folder).ok())
        {
            for entry in entry.flatten() {
                let name = entry.file_name().into_string().unwrap();
                let builds = [
                    "cc", "gcc", "g++", "c++", "clang", "ld", "mold", "as", "make", "c89", "c99",
                ];
                if !builds
                    .iter()
                    .any(|tool| name.split('-').any(|part| part.starts_with(tool)))
                {
                    let _ = symlink(entry.path(), programs.join(name));
                }
            }
        }
        Elsewhere(environment)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.0.command(args);
        command.env("PATH", beside(&self.0, "programs"));
        command
    }

    fn run(&self, args: &[&str]) -> Finished {
        self.command(args).output().unwrap().into()
    }

    /// Measures a bundle with this machine's rights, as JSON; returns the exit code, too.
    fn measured(&self, bundle: &Path) -> (Option<i32>, Value, String) {
        let bundle = bundle.to_str().unwrap();
        let finished = self.run(&["bundle", "run", "--no-sandbox", "--json", bundle]);
        let document = serde_json::from_str(&finished.stdout);
        let document = document.unwrap_or_else(|_| panic!("{}", finished.stderr));
        (finished.code, document, finished.stderr)
    }
}

/// Whether the verdicts on the patches of the first table hold.
fn replications(document: &Value) -> Vec<&str> {
    let rows = document["tables"][0]["patches"].as_array().unwrap();
    rows.iter()
        .map(|row| row["replication"].as_str().unwrap_or("none"))
        .collect()
}

#[test]
fn a_run_is_measured_again_without_its_workspace_and_without_a_compiler() {
    let environment = measured();
    let bundle = bundled(&environment);
    let again = beside(&environment, "again.bundle");
    let shown = environment.ok(&["bundle", again.to_str().unwrap(), "--json"]);
    assert_eq!(fs::read(&bundle).unwrap(), fs::read(&again).unwrap());
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let digest = shown["sha256"].as_str().unwrap();
    assert_eq!(shown["points"], serde_json::json!(["0", "1", "2"]));
    fs::rename(environment.workspace(), beside(&environment, "away")).unwrap();
    fs::remove_dir_all(environment.cache()).unwrap();

    let elsewhere = Elsewhere::new();
    let (code, document, stderr) = elsewhere.measured(&bundle);
    assert_eq!(code, Some(0), "{stderr}\n{document:#}");
    assert_eq!(replications(&document), ["holds", "holds"]);
    let row = &document["tables"][0]["patches"][0];
    assert_eq!(
        (&row["before"]["verdict"], &row["after"]["verdict"]),
        (&"faster".into(), &"faster".into())
    );
    assert_eq!(document["warning_codes"][0], "PQ0786", "{document:#}");
    assert_eq!(document["replicates"], true);

    // The table, in a sandbox, of the file with this digest and no other. The sandbox has the system's programs.
    let bundle = bundle.to_str().unwrap();
    let other = elsewhere
        .0
        .run(&["bundle", "run", bundle, "--sha256", "00"]);
    assert!(
        other.stderr.contains("PQ0717") && other.stderr.contains(digest),
        "{}",
        other.stderr
    );
    let finished = elsewhere
        .0
        .run(&["bundle", "run", bundle, "--sha256", digest]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let words = finished
        .stdout
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(
        words.starts_with("3 of 3 verdicts hold; 0 do not, 0 cannot be told there toy-1.0-make"),
        "{words}"
    );
    assert!(words.contains("0001-fewer-rounds.patch"), "{words}");
    // Nothing is left of it.
    let left = fs::read_dir(elsewhere.0.cache().join("bundles")).unwrap();
    assert_eq!(left.count(), 0);
    elsewhere.0.wait_until_no_process_is_left();
}

/// A workspace in which the patched server is as slow as the release where the file `slow` is.
fn slow_where_a_file_is() -> (TestEnvironment, PathBuf) {
    let environment = TestEnvironment::with_fixture("toy");
    let slow = beside(&environment, "slow");
    environment.replace(
        "upstream/work.h",
        "#define ROUNDS 100000u\n",
        "#define ROUNDS 100000u\n#define MORE 0\n",
    );
    environment.replace("upstream/work.h", "< ROUNDS;", "< ROUNDS + MORE * slow();");
    let text = environment.read("upstream/work.h");
    let path = slow.to_str().unwrap();
    let function = format!(
        "#include <unistd.h>\nstatic unsigned slow(void)\n{{\n    static int known = -1;\n    \
         if (known < 0)\n        known = access(\"{path}\", F_OK) == 0;\n    return known;\n}}\n"
    );
    let at = text.find("static unsigned work").unwrap();
    let text = format!("{}{function}{}", &text[..at], &text[at..]);
    environment.write("upstream/work.h", text);
    environment.write("series", "0001-fewer-rounds.patch\n");
    environment.write(
        "patches/0001-fewer-rounds.patch",
        "work: fewer rounds\n\n--- a/work.h\n+++ b/work.h\n@@ -1,6 +1,6 @@\n /* What one request costs. */\n\
         -#define ROUNDS 100000u\n-#define MORE 0\n+#define ROUNDS 25000u\n+#define MORE 400000u\n \n \
         #include <unistd.h>\n static unsigned slow(void)\n",
    );
    (environment, slow)
}

#[test]
fn a_verdict_that_another_machine_refutes_does_not_hold() {
    let (environment, slow) = slow_where_a_file_is();
    measure(&environment);
    let bundle = bundled(&environment);
    let elsewhere = Elsewhere::new();
    let (code, document, stderr) = elsewhere.measured(&bundle);
    assert_eq!(
        (code, replications(&document)),
        (Some(0), vec!["holds"]),
        "{stderr}\n{document:#}"
    );
    fs::write(slow, "").unwrap();
    let (code, document, stderr) = elsewhere.measured(&bundle);
    assert_eq!(
        (code, replications(&document)),
        (Some(6), vec!["does_not_hold"]),
        "{stderr}"
    );
    assert_eq!(
        document["tables"][0]["patches"][0]["after"]["verdict"],
        "slower"
    );
    assert_eq!(
        document["tables"][0]["patches"][0]["difference"]["verdict"],
        "less"
    );
    assert!(
        stderr.contains("PQ0720") && stderr.contains("2 verdicts: does not hold"),
        "{stderr}"
    );
    let bundle = bundle.to_str().unwrap();
    let shown = elsewhere
        .run(&["bundle", "run", "--no-sandbox", bundle])
        .stdout;
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.starts_with("0 of 2 verdicts hold; 2 do not, 0 cannot be told"),
        "{words}"
    );
    assert!(
        words.contains("faster → slower") && words.contains("does not hold, worth less"),
        "{words}"
    );
}

#[test]
fn without_a_linker_layouts_are_not_varied_and_the_report_says_so() {
    let environment = TestEnvironment::with_fixture("toy");
    environment.replace(
        "upstream/Makefile",
        "\t$(CC) $(CFLAGS) -o $@ toyd.c",
        "\t$(CC) $(CFLAGS) -ffunction-sections -c toyd.c\n\t$(CC) -o $@ toyd.o",
    );
    environment.replace(
        "bench-config/perfquilt.toml",
        "[server]\n",
        "[recipe.make.relink]\nkeep = { \"toyd.o\" = \"{build}/toyd.o\" }\n\
         command = [\"cc\", \"-o\", \"{output}\", \"toyd.o\"]\n\n[server]\n",
    );
    let finished = environment.run(&["run", "--blocks", "8"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let bundle = bundled(&environment);
    // With this machine's linker it is the same method.
    let elsewhere = Elsewhere::new();
    let path = bundle.to_str().unwrap();
    let linked = elsewhere
        .0
        .run(&["bundle", "run", "--no-sandbox", "--json", path]);
    let linked: Value =
        serde_json::from_str(&linked.stdout).unwrap_or_else(|_| panic!("{}", linked.stderr));
    assert_eq!(linked["before"]["harness"], linked["after"]["harness"]);
    assert_eq!(replications(&linked), ["holds", "holds"]);
    let sandboxed = elsewhere.0.run(&["bundle", "run", path]);
    assert!(!sandboxed.stderr.contains("PQ0650"), "{}", sandboxed.stderr);
    let (_, unlinked, stderr) = elsewhere.measured(&bundle);
    assert!(stderr.contains("PQ0650"), "{stderr}");
    assert_ne!(unlinked["before"]["harness"], unlinked["after"]["harness"]);
    let warned = unlinked["warning_codes"].as_array().unwrap();
    assert!(warned.contains(&"PQ0788".into()), "{unlinked:#}");
    assert_eq!(replications(&unlinked)[1], "holds", "{unlinked:#}");
    // A layout is one of those that could have been: the interval has their variance, too.
    let width = |document: &Value| {
        let effect = &document["tables"][0]["patches"][0]["after"];
        effect["high"].as_f64().unwrap() - effect["low"].as_f64().unwrap()
    };
    let there = {
        let effect = &unlinked["tables"][0]["patches"][0]["before"];
        effect["high"].as_f64().unwrap() - effect["low"].as_f64().unwrap()
    };
    assert!(width(&unlinked) > there, "{} {there}", width(&unlinked));
}

#[test]
fn a_bundle_has_nothing_of_its_makers_machine_but_what_was_measured() {
    let environment = TestEnvironment::with_fixture("toy");
    let (secret, hidden) = ("a-secret-of-the-workspace", "a-secret-beside-the-scripts");
    environment.write("bench-config/gitconfig", secret);
    environment.write(
        "bench-config/workloads/unused.toml",
        environment.read("bench-config/workloads/requests.toml") + &format!("# {hidden}\n"),
    );
    environment.write(".env", secret);
    environment.write("bench-config/said", "words\n");
    environment.replace(
        "bench-config/workloads/requests.toml",
        "description",
        "inputs = [\"{config}/said\"]\ndescription",
    );
    let config = environment.read("bench-config/perfquilt.toml");
    let bot = format!(
        "# {secret}\n[bot]\nrepository = \"o/secret-repository\"\ngit_config = \"bench-config/gitconfig\"\n[commands]\nusers = [\"{secret}\"]\n[sandbox]\nread = [\"/etc/{secret}\"]\n[recipe.make.env]\nTOKEN_OF_THE_RECIPE = \"{secret}\"\n"
    );
    environment.write("bench-config/perfquilt.toml", config + &bot);
    // The second patch does not compile: the message names the folder in which it was built.
    environment.replace(
        "patches/0002-comment-only.patch",
        "+/* What one request costs: rounds of a linear congruential generator. */",
        "+#error rounds",
    );
    let ran = environment
        .command(&["run", "--blocks", "6"])
        .env("GITHUB_TOKEN", TOKEN)
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(4));
    let file = beside(&environment, "run.bundle");
    let packed = environment
        .command(&["bundle", file.to_str().unwrap()])
        .env("GITHUB_TOKEN", TOKEN)
        .output()
        .unwrap();
    assert!(
        packed.status.success(),
        "{}",
        String::from_utf8_lossy(&packed.stderr)
    );
    let mut archive =
        tar::Archive::new(flate2::read::GzDecoder::new(fs::File::open(&file).unwrap()));
    let mut all = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut content = Vec::new();
        std::io::Read::read_to_end(&mut entry.unwrap(), &mut content).unwrap();
        all.push(String::from_utf8_lossy(&content).into_owned());
    }
    let all = all.join("\n");
    let folder = environment
        .workspace()
        .parent()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    for text in [
        secret,
        hidden,
        TOKEN,
        "secret-repository",
        "TOKEN_OF_THE_RECIPE",
        &folder,
    ] {
        assert!(!all.contains(text), "{text}");
    }
    assert!(all.contains("workspace/bench-config/said") && all.contains("words"));
    // What failed there is not measured here, and is no verdict.
    let elsewhere = Elsewhere::new();
    let (code, document, stderr) = elsewhere.measured(&file);
    assert_eq!(code, Some(0), "{stderr}\n{document:#}");
    assert_eq!(document["tables"][0]["patches"][0]["replication"], "holds");
    assert_eq!(
        document["tables"][0]["patches"][1]["replication"],
        Value::Null
    );
}

#[test]
fn what_cannot_be_packed_is_named() {
    let environment = measured();
    let file = beside(&environment, "run.bundle");
    let file = file.to_str().unwrap();
    let refused = |words: &str| {
        let error = environment.fails(2, &["bundle", file]);
        assert!(error.contains("PQ0719") && error.contains(words), "{error}");
        assert!(!Path::new(file).exists());
    };
    let workload = environment.read("bench-config/workloads/requests.toml");
    environment.replace(
        "bench-config/workloads/requests.toml",
        "\"100\"]",
        "\"101\"]",
    );
    refused("a workload, a file that it reads or its preset is not what toy-1.0-make measured");
    environment.write("bench-config/workloads/requests.toml", workload);
    let series = environment.read("series");
    environment.write("series", "0001-fewer-rounds.patch\n");
    refused("the series is not what");
    environment.write("series", series);
    let patch = environment.read("patches/0002-comment-only.patch");
    environment.replace(
        "patches/0002-comment-only.patch",
        "linear congruential",
        "linear",
    );
    refused("points 2");
    environment.write("patches/0002-comment-only.patch", patch);
    fs::remove_dir_all(environment.cache().join("builds")).unwrap();
    refused("`perfquilt build --recipe make 0 1 2` builds them again");
    environment.ok(&["build", "--recipe", "make", "0", "1", "2"]);
    environment.ok(&["bundle", file]);
    fs::remove_file(file).unwrap();

    // What only its owner may read, what leads elsewhere, and what other machines do not have.
    let outside = beside(&environment, "outside");
    fs::write(&outside, "x").unwrap();
    let with_input = |input: &str| {
        environment.replace(
            "bench-config/workloads/requests.toml",
            "description",
            &format!("inputs = [\"{input}\"]\ndescription"),
        );
        measure(&environment);
    };
    let plain = environment.read("bench-config/workloads/requests.toml");
    environment.write("bench-config/secret", "x");
    with_input("{config}/secret");
    let path = environment.path("bench-config/secret");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    refused("bench-config/secret is part of the run, and only its owner may read it");
    fs::remove_file(&path).unwrap();
    symlink(&outside, &path).unwrap();
    refused("leads out of the workspace");
    environment.write("bench-config/workloads/requests.toml", &plain);
    with_input(outside.to_str().unwrap());
    refused("and other machines do not have it");
    environment.write("bench-config/workloads/requests.toml", plain);
    let servers = ["run", "--server", "0=0", "--server", "1=1", "--blocks", "2"];
    assert_eq!(environment.run(&servers).code, Some(0));
    refused("is of servers that are no series");
    let folder = beside(&environment, "none/run.bundle");
    let error = environment.fails(2, &["bundle", folder.to_str().unwrap()]);
    assert!(error.contains("there is no folder"), "{error}");
}

/// As root: the disk of the bundle is full.
#[test]
fn a_full_disk_leaves_no_half_of_a_bundle() {
    let environment = measured();
    let folder = beside(&environment, "full");
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let Some(mounted) = Mounted::in_memory(&folder, 1) else {
        return;
    };
    let file = folder.join("run.bundle");
    fs::write(&file, "old").unwrap();
    let rest = mounted.flood();
    let error = environment.fails(1, &["bundle", file.to_str().unwrap()]);
    assert!(error.contains("PQ0102"), "{error}");
    assert_eq!(fs::read(&file).unwrap(), b"old");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
    fs::remove_file(rest).unwrap();
    environment.ok(&["bundle", file.to_str().unwrap()]);
}

#[test]
fn a_damaged_bundle_runs_nothing() {
    let environment = measured();
    let bundle = bundled(&environment);
    let elsewhere = Elsewhere::new();
    let whole = fs::read(&bundle).unwrap();
    let broken = beside(&environment, "broken.bundle");
    for (bytes, words) in [
        (&whole[..whole.len() / 2], "it is cut off"),
        (b"<html>404</html>", "it is damaged, or no bundle"),
    ] {
        fs::write(&broken, bytes).unwrap();
        let finished = elsewhere.run(&["bundle", "run", broken.to_str().unwrap()]);
        assert_eq!(finished.code, Some(2));
        assert!(
            finished.stderr.contains("PQ0717") && finished.stderr.contains(words),
            "{}",
            finished.stderr
        );
        let left = fs::read_dir(elsewhere.0.cache().join("bundles")).unwrap();
        assert_eq!(left.count(), 0);
    }
    let none = elsewhere.run(&["bundle", "run", "none.bundle"]);
    assert!(
        none.stderr.contains("cannot read none.bundle"),
        "{}",
        none.stderr
    );
}

#[test]
fn reports_name_the_bundle_of_their_run() {
    let environment = measured();
    let file = beside(&environment, "the run.bundle");
    let url = "https://example.org/the%20run.bundle";
    let packed = environment.ok(&["bundle", file.to_str().unwrap(), "--url", url, "--json"]);
    let packed: Value = serde_json::from_str(&packed).unwrap();
    let digest = packed["sha256"].as_str().unwrap();
    let command = format!(
        "curl -fL -o 'the run.bundle' {url}\nperfquilt bundle run 'the run.bundle' --sha256 {digest}"
    );
    assert_eq!(packed["run"], command);
    let markdown = environment.ok(&["report", "--format", "markdown"]);
    assert!(markdown.contains(&command), "{markdown}");
    let comment = environment.ok(&["post", "--dry-run"]);
    assert!(comment.contains(&command), "{comment}");
    // The next run of the same continues it, and keeps the words.
    measure(&environment);
    assert!(
        environment
            .ok(&["report", "--format", "markdown"])
            .contains(&command)
    );
    let page = beside(&environment, "report.html");
    environment.ok(&[
        "report",
        "--format",
        "html",
        "--output",
        page.to_str().unwrap(),
    ]);
    assert!(fs::read_to_string(page).unwrap().contains(digest));
}
