//! Workspaces with two small releases, as git repositories, for rebases.

use super::{TestEnvironment, run_in};

/// Numbered lines, some of them replaced.
pub fn lines(count: usize, changes: &[(usize, &str)]) -> String {
    (1..=count)
        .map(|number| {
            let change = changes.iter().find(|(line, _)| *line == number);
            change.map_or(format!("line {number}\n"), |(_, text)| (*text).to_owned())
        })
        .collect()
}

/// A workspace with release 1.0 in `up` and 2.0 in `two`, as a git repository.
pub fn space(old: &[(&str, String)], new: &[(&str, String)]) -> TestEnvironment {
    let space = TestEnvironment::with_releases(
        "[[upstream.release]]\nversion = \"1.0\"\ndirectory = \"up\"\n\
         [[upstream.release]]\nversion = \"2.0\"\ndirectory = \"two\"\n",
    );
    for (folder, files) in [("up", old), ("two", new)] {
        std::fs::create_dir(space.path(folder)).unwrap();
        for (name, content) in files {
            space.write(&format!("{folder}/{name}"), content);
        }
    }
    space.write(
        ".gitignore",
        "/cache\n/.perfquilt\n/bench-config/upstream.lock\n",
    );
    space
}

/// Makes a patch by changing copies of a file.
pub fn patch(space: &TestEnvironment, name: &str, file: &str, before: &str, after: &str) {
    space.write("diff/a/f", before);
    space.write("diff/b/f", after);
    let dir = space.path("diff");
    let diff = run_in(&dir, "diff", &["-u", "a/f", "b/f"]).stdout_text();
    let body: String = diff.split_inclusive('\n').skip(2).collect();
    space.patch(
        name,
        format!("Subject: {name}\nFrom: T <t@example.org>\n\n--- a/{file}\n+++ b/{file}\n{body}"),
    );
    std::fs::remove_dir_all(dir).unwrap();
}

/// Runs git in the workspace.
pub fn git(space: &TestEnvironment, args: &[&str]) -> String {
    perfquilt_testkit::git(&space.workspace(), args)
}

/// Makes the workspace a git repository with all its files.
pub fn commit_all(space: &TestEnvironment) {
    git(space, &["init", "-q", "-b", "main"]);
    for (key, value) in [("user.name", "T"), ("user.email", "t@example.org")] {
        git(space, &["config", key, value]);
    }
    perfquilt_testkit::commit_all(&space.workspace(), "start");
}

pub fn json(space: &TestEnvironment, args: &[&str]) -> serde_json::Value {
    let (_, out, err) = space.shown(args);
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}{err}"))
}

pub fn statuses(report: &serde_json::Value) -> Vec<String> {
    report["patches"]
        .as_array()
        .unwrap()
        .iter()
        .map(|patch| patch["status"].as_str().unwrap().to_owned())
        .collect()
}
