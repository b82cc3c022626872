//! Where the changes of moved patches go in code that repeats itself.

use std::collections::BTreeMap;
use std::path::Path;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;

use crate::common::releases::{commit_all, json, lines, patch, space, statuses};
use crate::common::{TestEnvironment, run_in};

/// A part of a file, with a head of its own and a body like others'.
#[derive(Clone)]
struct Part {
    name: String,
    body: Vec<String>,
}

/// How the parts of a file are written: before a part's name, after it, and after its body.
const SHAPES: [(&str, &str, &str); 4] = [
    ("int ", "(row *r)\n{\n", "}\n\n"),
    ("    case ", ":\n", "      break;\n"),
    ("static const struct row ", "[] = {\n", "};\n"),
    ("#ifdef ", "\n", "#endif\n"),
];

fn written(parts: &[Part], shape: usize) -> String {
    let (before, after, end) = SHAPES[shape];
    let part = |part: &Part| format!("{before}{}{after}{}{end}", part.name, part.body.concat());
    parts.iter().map(part).collect()
}

/// The text of each part, by its head.
fn parts_of(text: &str, shape: usize) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut head = String::new();
    for line in text.split_inclusive('\n') {
        if line.starts_with(SHAPES[shape].0) {
            head = line.to_owned();
        }
        *found.entry(head.clone()).or_default() += line;
    }
    found
}

/// A file of two releases and a patch of it.
struct Case {
    shape: usize,
    target: String,
    old: String,
    mine: String,
    new: String,
}

/// Upstream's change: changes the line, puts a twin before the part, removes the part, or reorders all.
const UPSTREAM: usize = 4;

fn case(random: &mut StdRng, upstream: usize) -> Case {
    let shape = random.random_range(0..SHAPES.len());
    let vocabulary: Vec<String> = (0..random.random_range(1..6))
        .map(|n| format!("  step_{n}(r);\n"))
        .collect();
    let length = random.random_range(1..12);
    let line = |random: &mut StdRng| vocabulary[random.random_range(0..vocabulary.len())].clone();
    let common: Vec<String> = (0..length).map(|_| line(random)).collect();
    let count = random.random_range(2..7);
    let mut parts: Vec<Part> = (0..count)
        .map(|n| Part {
            name: format!("part_{n}"),
            body: common.clone(),
        })
        .collect();
    if random.random_bool(0.3) {
        let other = random.random_range(0..count);
        parts[other].body[0] = "  special(r);\n".to_owned();
    }
    let target = random.random_range(0..count);
    let at = random.random_range(0..length);
    let mut changed = parts.clone();
    let body = &mut changed[target].body;
    match random.random_range(0..3) {
        0 => body[at] = "  fast(r);\n".to_owned(),
        1 => body.insert(at, "  fast(r);\n".to_owned()),
        _ => drop(body.remove(at)),
    }
    let mut new = parts.clone();
    match upstream {
        0 => new[target].body[at] = "  step_now(r, NOWAIT);\n".to_owned(),
        1 => new.insert(
            random.random_range(0..=target),
            Part {
                name: "twin".to_owned(),
                body: common,
            },
        ),
        2 => drop(new.remove(target)),
        _ => new.rotate_left(random.random_range(1..count)),
    }
    Case {
        shape,
        target: parts[target].name.clone(),
        old: written(&parts, shape),
        mine: written(&changed, shape),
        new: written(&new, shape),
    }
}

/// Picks each patch with git onto the new release, by itself; `None` where git stops.
fn picked_by_git(repo: &Path, cases: &[Case]) -> Vec<Option<String>> {
    std::fs::create_dir(repo).unwrap();
    let git = |args: &[&str]| run_in(repo, "git", args);
    let write = |text: &dyn Fn(&Case) -> String| {
        for (number, case) in cases.iter().enumerate() {
            std::fs::write(repo.join(format!("f{number}")), text(case)).unwrap();
        }
        git(&["add", "-A"]);
        git(&["commit", "-q", "--allow-empty", "-m", "x"]);
    };
    git(&["init", "-q", "-b", "mine"]);
    write(&|case| case.old.clone());
    git(&["branch", "upstream"]);
    for (number, case) in cases.iter().enumerate() {
        std::fs::write(repo.join(format!("f{number}")), &case.mine).unwrap();
        git(&["commit", "-qam", &format!("{number}")]);
    }
    git(&["switch", "-q", "upstream"]);
    write(&|case| case.new.clone());
    let mut stopped = Vec::new();
    let mut clean = git(&["rebase", "-q", "upstream", "mine"]).success();
    while !clean {
        let name = git(&["diff", "--name-only", "--diff-filter=U"]).stdout_text();
        assert!(name.starts_with('f'), "git did not stop with a conflict");
        stopped.push(name.trim()[1..].parse::<usize>().unwrap());
        clean = git(&["rebase", "--skip"]).success();
    }
    let read = |number: usize| std::fs::read_to_string(repo.join(format!("f{number}"))).unwrap();
    (0..cases.len())
        .map(|number| (!stopped.contains(&number)).then(|| read(number)))
        .collect()
}

/// Writes a patch with `context` lines of context.
fn patch_with(space: &TestEnvironment, name: &str, case: &Case, context: usize) {
    space.write("diff/a", &case.old);
    space.write("diff/b", &case.mine);
    let context = format!("-U{context}");
    let diff = run_in(&space.path("diff"), "diff", &[&context, "a", "b"]).stdout_text();
    let body: String = diff.split_inclusive('\n').skip(2).collect();
    space.patch(
        &format!("{name}.patch"),
        format!("Subject: {name}\nFrom: T <t@example.org>\n\n--- a/{name}\n+++ b/{name}\n{body}"),
    );
}

/// Whether the report calls for a look at a patch.
fn is_marked(report: &Value) -> bool {
    let status = report["status"].as_str().unwrap();
    let noted = report["notes"]
        .as_array()
        .is_some_and(|notes| !notes.is_empty());
    ["conflict", "changed"].contains(&status) || report.get("review").is_some() || noted
}

/// Where git rebases a patch cleanly, so does perfquilt, with the same file; where git stops, perfquilt changes no other
/// part than the patch's own without a mark.
#[test]
fn nothing_goes_to_another_part_of_repetitive_code_in_silence() {
    let seed = std::env::var("PERFQUILT_SEED").map_or(44, |seed| seed.parse().unwrap());
    let count = 200;
    let mut random = StdRng::seed_from_u64(seed);
    let cases: Vec<Case> = (0..count)
        .map(|number| case(&mut random, number % UPSTREAM))
        .collect();
    let name = |number: usize| format!("f{number}");
    let files = |text: fn(&Case) -> &String| -> Vec<(String, String)> {
        let all = cases.iter().enumerate();
        all.map(|(number, case)| (name(number), text(case).clone()))
            .collect()
    };
    let (old, new) = (files(|case| &case.old), files(|case| &case.new));
    let borrowed = |files: &[(String, String)]| -> Vec<(&'static str, String)> {
        let leak = |name: &String| -> &'static str { name.clone().leak() };
        files
            .iter()
            .map(|(name, text)| (leak(name), text.clone()))
            .collect()
    };
    let space = space(&borrowed(&old), &borrowed(&new));
    for (number, case) in cases.iter().enumerate() {
        patch_with(&space, &name(number), case, [3, 3, 1][number % 3]);
    }
    let expected = picked_by_git(&space.path("repo"), &cases);
    let report = json(&space, &["rebase", "2.0", "--json"]);
    space.ok(&["rebase", "2.0", "--write", "--hold", "--output", "out"]);
    let dir = space.path("out");
    std::fs::create_dir_all(dir.join("tree")).unwrap();
    let mut as_git = [0; UPSTREAM];
    for (number, case) in cases.iter().enumerate() {
        let report = &report["patches"][number];
        let status = report["status"].as_str().unwrap();
        let context = || {
            let Case { old, mine, new, .. } = case;
            format!("seed {seed}, case {number}: {report}\nold:\n{old}mine:\n{mine}new:\n{new}")
        };
        let places = ["exact", "offset", "merged", "partly"].contains(&status);
        let content = if places {
            let file = dir.join("tree").join(name(number));
            std::fs::write(&file, &case.new).unwrap();
            let moved = format!("../patches/{}.patch", name(number));
            let apply = ["-s", "-p1", "-F0", "-i", &moved];
            assert!(run_in(&dir.join("tree"), "patch", &apply).success());
            Some(std::fs::read_to_string(file).unwrap())
        } else {
            (status == "upstream").then(|| case.new.clone())
        };
        match (&expected[number], &content) {
            (Some(expected), Some(content)) => {
                assert_eq!(content, expected, "{}", context());
                as_git[number % UPSTREAM] += 1;
            }
            (Some(_), None) => panic!("git has no conflict: {}", context()),
            (None, None) => assert!(is_marked(report), "{}", context()),
            (None, Some(content)) => {
                let (mut before, mut after) = (
                    parts_of(&case.new, case.shape),
                    parts_of(content, case.shape),
                );
                let own = |head: &String, _: &mut String| head.contains(&case.target);
                before.retain(|head, text| !own(head, text));
                after.retain(|head, text| !own(head, text));
                let reviewed = report.get("review").is_some();
                assert!(reviewed || before == after, "{}", context());
            }
        }
    }
    // Git stops where upstream changed the line or removed the part.
    assert!(as_git[1] > 25 && as_git[3] > 25, "{as_git:?}");
}

/// Functions with equal bodies.
fn functions(names: &[&str]) -> String {
    names
        .iter()
        .map(|name| {
            format!(
                "int {name}(row *r)\n{{\n  // a\n  // b\n  // c\n  lock(r);\n  work(r);\n  unlock(r);\n  // d\n  // e\n  // f\n}}\n\n"
            )
        })
        .collect()
}

/// Replaces the first `from` after `head`.
fn replaced_in(text: &str, head: &str, from: &str, to: &str) -> String {
    let at = text.find(head).unwrap();
    let (before, after) = text.split_at(at);
    format!("{before}{}", after.replacen(from, to, 1))
}

#[test]
fn a_hunk_whose_function_changed_does_not_go_into_its_twin() {
    let old = functions(&["alpha", "beta", "gamma", "delta"]);
    let mine = replaced_in(&old, "int beta", "  work(r);\n", "  fast(r);\n");
    let new = replaced_in(&old, "int beta", "  work(r);\n", "  work(r, NOWAIT);\n");
    let space = space(&[("srv.c", old.clone())], &[("srv.c", new)]);
    patch(&space, "a.patch", "srv.c", &old, &mine);
    let (code, out, _) = space.shown(&["rebase", "2.0", "--conflicts"]);
    assert_eq!(code, 3, "{out}");
    let places = "the file has the lines that the hunk expects at srv.c:4 (`int alpha(row *r)`), srv.c:30 (`int gamma(row *r)`)";
    let flat = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(places), "{out}");
    assert!(
        flat.contains("srv.c:20, in `int beta(row *r)`, hunk 1 of 1"),
        "{out}"
    );
    let report = json(&space, &["rebase", "2.0", "--json"]);
    let decision = &report["patches"][0]["decisions"][0];
    assert_eq!(decision["function"], "int beta(row *r)", "{report}");
    assert_eq!(
        decision["candidates"].as_array().unwrap().len(),
        3,
        "{report}"
    );
    // The same with fuzz allowed.
    let config = space.read("bench-config/perfquilt.toml");
    space.write(
        "bench-config/perfquilt.toml",
        config + "\n[series]\nfuzz = 2\n",
    );
    space.fails(3, &["rebase", "2.0"]);
}

#[test]
fn a_hunk_stays_in_its_function_when_upstream_adds_a_twin_or_reorders() {
    let old = functions(&["alpha", "beta", "gamma"]);
    let mine = replaced_in(&old, "int beta", "  work(r);\n", "  fast(r);\n");
    for order in [
        &["alpha", "new_one", "beta", "gamma"],
        &["gamma", "alpha", "beta", "last"],
    ] {
        let new = functions(order);
        let space = space(&[("srv.c", old.clone())], &[("srv.c", new.clone())]);
        patch(&space, "a.patch", "srv.c", &old, &mine);
        let report = json(&space, &["rebase", "2.0", "--json"]);
        assert_eq!(statuses(&report), ["merged"], "{report}");
        let place = &report["patches"][0]["places"][0];
        assert_eq!(place["function"], "int beta(row *r)", "{report}");
        space.ok(&["rebase", "2.0", "--write", "--output", "out"]);
        space.write("srv.c", &new);
        run_in(
            &space.workspace(),
            "patch",
            &["-s", "-i", "out/patches/a.patch"],
        );
        let expected = replaced_in(&new, "int beta", "  work(r);\n", "  fast(r);\n");
        assert_eq!(space.read("srv.c"), expected);
    }
}

#[test]
fn each_hunk_is_judged_by_itself() {
    // The first hunk's line is nowhere else; the second one's function changed, and its twin fits.
    let text = |beta: &str| format!("{}\n{beta}", lines(20, &[]));
    let pair = functions(&["alpha", "beta"]);
    let old = text(&pair);
    let beta = replaced_in(&pair, "int beta", "  work(r);\n", "  fast(r);\n");
    let mine = text(&beta).replace("line 10\n", "patched 10\n");
    let changed = replaced_in(&pair, "int beta", "  work(r);\n", "  work(r, 1);\n");
    let new = format!("top\n{}", text(&changed));
    let space = space(&[("srv.c", old.clone())], &[("srv.c", new)]);
    patch(&space, "a.patch", "srv.c", &old, &mine);
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert_eq!(statuses(&report), ["conflict"], "{report}");
    let decisions = report["patches"][0]["decisions"].as_array().unwrap();
    assert_eq!(decisions.len(), 1, "{report}");
    assert_eq!(decisions[0]["hunk"], 2, "{report}");
    // Decided once, it is decided for good.
    commit_all(&space);
    let open = json(&space, &["rebase", "2.0", "--resolve", "1", "--json"]);
    let dir = open["directory"].as_str().unwrap();
    let dir = dir.replace("[WS]", &space.workspace().to_string_lossy());
    let dir = Path::new(&dir);
    let marked = std::fs::read_to_string(dir.join("srv.c")).unwrap();
    assert!(
        marked.contains("patched 10\n") && marked.contains("<<<<<<<"),
        "{marked}"
    );
    let start = marked.find("<<<<<<<").unwrap();
    let end = start + marked[start..].find(">>>>>>>").unwrap();
    let end = end + marked[end..].find('\n').unwrap() + 1;
    let solved = format!("{}  fast(r, 1);\n{}", &marked[..start], &marked[end..]);
    std::fs::write(dir.join("srv.c"), solved).unwrap();
    for (name, value) in [("user.name", "T"), ("user.email", "t@example.org")] {
        run_in(dir, "git", &["config", name, value]);
    }
    assert!(run_in(dir, "git", &["commit", "-qam", "solved"]).success());
    space.ok(&["rebase", "2.0", "--continue"]);
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert_eq!(statuses(&report), ["resolved"], "{report}");
}

#[test]
fn a_patch_that_the_release_has_is_not_made_a_second_time_in_a_twin() {
    let old = functions(&["alpha", "beta", "gamma", "delta"]);
    let with_call = |name: &str| {
        replaced_in(
            &old,
            &format!("int {name}"),
            "  work(r);\n",
            "  prefetch(r);\n  work(r);\n",
        )
    };
    let mine = with_call("gamma");
    let space = space(&[("srv.c", old.clone())], &[("srv.c", mine.clone())]);
    patch(&space, "a.patch", "srv.c", &old, &mine);
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert_eq!(statuses(&report), ["upstream"], "{report}");
}

#[test]
fn lines_that_upstream_added_in_the_same_function_are_noted() {
    let function = |name: &str| {
        format!(
            "int {name}(row *r)\n{{\n  lock(r);\n  count(r);\n  int x = find_{name}(r);\n  trace(r);\n  unlock(r);\n}}\n\n"
        )
    };
    let old = function("alpha") + &function("beta") + &function("gamma");
    let added = "  prefetch_next_page_of_table(r);\n";
    let after = |line: &str| replaced_in(&old, "int beta", line, &format!("{line}{added}"));
    let (mine, new) = (after("  count(r);\n"), after("  trace(r);\n"));
    let space = space(&[("srv.c", old.clone())], &[("srv.c", new.clone())]);
    let case = Case {
        shape: 0,
        target: "beta".to_owned(),
        old,
        mine,
        new,
    };
    patch_with(&space, "srv.c", &case, 1);
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert_eq!(statuses(&report), ["exact"], "{report}");
    let note = report["patches"][0]["notes"][0].as_str().unwrap();
    assert!(note.contains("already has the same lines"), "{note}");
    assert!(note.contains("line 16 in `beta`"), "{note}");
}

#[test]
fn lines_in_another_function_do_not_make_a_patch_upstream() {
    let function = |name: &str| {
        format!(
            "int {name}(row *r)\n{{\n  lock(r);\n  int x = find_{name}(r);\n  unlock(r);\n  return x;\n}}\n\n"
        )
    };
    let old = function("lookup") + &function("insert") + &function("delete");
    let call = "  prefetch_next_page_of_table(r);\n";
    let find = |name: &str| format!("  int x = find_{name}(r);\n");
    let with_call =
        |text: &str, name: &str| text.replace(&find(name), &(call.to_owned() + &find(name)));
    let mine = with_call(&old, "lookup");
    let rewritten = old
        .replacen("  lock(r);\n", "  lock_shared(r);\n", 1)
        .replace(
            &find("lookup"),
            "  int x = r->cached ? r->value : find_slow(r);\n",
        );
    let new = with_call(&rewritten, "delete");
    let space = space(&[("srv.c", old.clone())], &[("srv.c", new)]);
    patch(&space, "a.patch", "srv.c", &old, &mine);
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert_eq!(report["decisions"], 1, "{report}");
}

/// A workspace whose releases are tags of a repository, with a patch that upstream took, and then what `after` makes of it.
fn taken_upstream(after: &dyn Fn(&str) -> String) -> TestEnvironment {
    let space = TestEnvironment::with_releases(
        "[[upstream.release]]\nversion = \"1.0\"\ngit = { remote = \"repo\", tag = \"v1\" }\n\
         [[upstream.release]]\nversion = \"2.0\"\ngit = { remote = \"repo\", tag = \"v2\" }\n",
    );
    let old = lines(60, &[]);
    let mine = lines(60, &[(30, "fast_path_for_thirty(cache, request);\n")]);
    let repo = space.path("repo");
    std::fs::create_dir(&repo).unwrap();
    run_in(&repo, "git", &["init", "-q"]);
    for (content, tag) in [(&old, "v1"), (&mine, "taken"), (&after(&mine), "v2")] {
        space.write("repo/f", content);
        run_in(&repo, "git", &["add", "f"]);
        assert!(run_in(&repo, "git", &["commit", "-q", "-m", tag]).success());
        run_in(&repo, "git", &["tag", tag]);
    }
    patch(&space, "a.patch", "f", &old, &mine);
    space
}

#[test]
fn what_upstream_took_and_reverted_is_not_upstream() {
    let space = taken_upstream(&|mine| {
        mine.replace("fast_path_for_thirty(cache, request);", "line 30")
            .replace("line 29\n", "line 29 now\n")
            .replace("line 31\n", "line 31 now\n")
    });
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert_eq!(statuses(&report), ["changed"], "{report}");
    let evidence = report["patches"][0]["evidence"].as_str().unwrap();
    assert!(evidence.contains("patch-id"), "{evidence}");
    // Taken and moved since, which only a merge would make of it.
    let space = taken_upstream(&|mine| {
        mine.replace("fast_path_for_thirty(cache, request);\n", "")
            .replace(
                "line 40\n",
                "line 40\nfast_path_for_thirty(cache, request);\nline 30\n",
            )
            .replace("line 31\n", "line 30\nline 31 now\n")
    });
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert_eq!(statuses(&report), ["changed"], "{report}");
    // Taken again, it is there.
    let space = taken_upstream(&|mine| mine.replace("line 29\n", "line 29 now\n"));
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert_eq!(statuses(&report), ["upstream"], "{report}");
}

#[test]
fn names_and_modes_that_the_release_lacks_do_not_make_a_patch_upstream() {
    let old = lines(20, &[]);
    let new = lines(20, &[(9, "upstream 9\n")]);
    let moved = |to: &str, more: &str| {
        format!(
            "Subject: move\nFrom: T <t@example.org>\n\ndiff --git a/f b/{to}\n{more}similarity index 100%\nrename from f\nrename to {to}\n"
        )
    };
    for (to, more) in [
        ("f/inner", ""),
        ("g", ""),
        ("f/inner", "old mode 100644\nnew mode 100755\n"),
    ] {
        let space = space(&[("f", old.clone())], &[("f", new.clone())]);
        space.patch("a.patch", moved(to, more));
        let report = json(&space, &["rebase", "2.0", "--json"]);
        assert_eq!(statuses(&report), ["exact"], "{to}: {report}");
        space.ok(&["rebase", "2.0", "--write", "--output", "out"]);
        let text = space.read("out/patches/a.patch");
        assert!(text.contains(&format!("rename to {to}")), "{text}");
    }
    // Upstream has another file of that name: a decision.
    let space = space(&[("f", old)], &[("f", new), ("g", "another\n".to_owned())]);
    space.patch("a.patch", moved("g", ""));
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert_eq!(report["decisions"], 1, "{report}");
}

#[test]
fn lines_without_context_do_not_go_beside_other_new_lines_in_silence() {
    let filled = "mine 1\nmine 2\n";
    let space = space(
        &[("f", String::new()), ("g", lines(9, &[]))],
        &[
            ("f", "theirs\n".to_owned()),
            ("g", lines(9, &[(5, "line 5\nnew\n")])),
        ],
    );
    patch(&space, "a.patch", "f", "", filled);
    // As `diff -U0` writes it.
    let hunk = "--- a/g\n+++ b/g\n@@ -5,0 +6 @@\n+mine\n";
    space.patch(
        "b.patch",
        format!("Subject: b\nFrom: T <t@example.org>\n\n{hunk}"),
    );
    let report = json(&space, &["rebase", "2.0", "--json"]);
    for patch in report["patches"].as_array().unwrap() {
        assert!(is_marked(patch), "{patch}");
    }
}

#[test]
fn merged_lines_take_upstreams_line_ends() {
    let crlf = |text: &str| text.replace('\n', "\r\n");
    let old = lines(40, &[]);
    let mine = lines(40, &[(10, "ten\n"), (20, "a fast line\nline 20\n")]);
    let newer = |text: &str| text.replace("line 30\n", "upstream 30\n");
    for (from, to) in [(true, false), (false, true)] {
        let ends = |text: &str, cr| if cr { crlf(text) } else { text.to_owned() };
        let new = ends(&newer(&old), to);
        let space = space(&[("f", ends(&old, from))], &[("f", new.clone())]);
        patch(
            &space,
            "a.patch",
            "f",
            &ends(&old, from),
            &ends(&mine, from),
        );
        let report = json(&space, &["rebase", "2.0", "--json"]);
        assert_eq!(statuses(&report), ["merged"], "{report}");
        space.ok(&["rebase", "2.0", "--write", "--output", "out"]);
        space.write("f", &new);
        let apply = ["--binary", "-s", "-i", "out/patches/a.patch"];
        assert!(run_in(&space.workspace(), "patch", &apply).success());
        assert_eq!(space.read("f"), ends(&newer(&mine), to));
    }
    // A file with both line ends: each line takes those around it.
    let half = |text: &str| {
        let at = text.find("line 21\n").unwrap();
        crlf(&text[..at]) + &text[at..]
    };
    let space = space(&[("f", old.clone())], &[("f", half(&old))]);
    patch(&space, "a.patch", "f", &old, &mine);
    space.ok(&["rebase", "2.0", "--write", "--output", "out"]);
    space.write("f", half(&old));
    let apply = ["--binary", "-s", "-i", "out/patches/a.patch"];
    assert!(run_in(&space.workspace(), "patch", &apply).success());
    assert_eq!(space.read("f"), half(&mine));
}

#[test]
fn a_context_that_became_unique_in_another_block_is_for_review() {
    let block =
        |name: &str| format!("#ifdef HAVE_{name}\n  init();\n  step();\n  fini();\n#endif\n\n");
    let blocks = |names: &[&str]| names.iter().map(|name| block(name)).collect::<String>();
    let old = blocks(&["A", "B", "C"]);
    let mine = replaced_in(&old, "#ifdef HAVE_B", "  fini();\n", "  fast();\n");
    let space = space(&[("f", old.clone())], &[("f", blocks(&["A", "C"]))]);
    patch(&space, "a.patch", "f", &old, &mine);
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert!(is_marked(&report["patches"][0]), "{report}");
}

#[test]
fn lint_names_a_hunk_that_twins_and_a_stale_line_make_doubtful() {
    let old = functions(&["alpha", "beta", "gamma"]);
    let space = space(&[("srv.c", old.clone())], &[("srv.c", old.clone())]);
    let hunk = "   lock(r);\n-  work(r);\n+  fast(r);\n   unlock(r);\n";
    let write = |line: usize| {
        space.write("series", "");
        space.patch(
            "a.patch",
            format!("Subject: a\nFrom: T <t@example.org>\n\n--- a/srv.c\n+++ b/srv.c\n@@ -{line},3 +{line},3 @@\n{hunk}"),
        );
        space.ok(&["upstream", "fetch"]);
        let (_, out, err) = space.shown(&["lint"]);
        out + &err
    };
    let said = write(16);
    insta::assert_snapshot!(said, @r"
    warning: patches/a.patch:6: hunk 1 applies to line 19 of srv.c, an offset of 3 lines, and the file has its lines 3 times: at 6, 19, 32 [PQ0354]
      hint: check that this is the right place; `perfquilt lint --fix` then writes its line
    warning: patches/a.patch: applies to srv-1.0 with an offset of 3 lines [PQ0352]
      hint: `perfquilt lint --fix` rewrites it
    ");
    let said = write(19);
    assert!(!said.contains("times"), "{said}");
}

#[test]
fn points_have_each_hunk_where_it_is_in_the_stack() {
    let old = functions(&["alpha", "beta", "gamma"]);
    let space = space(&[("srv.c", old.clone())], &[("srv.c", old.clone())]);
    let function = functions(&["new_one"]);
    let first = format!("{function}{old}");
    let both = replaced_in(&first, "int beta", "  work(r);\n", "  fast(r);\n");
    patch(&space, "a.patch", "srv.c", &old, &first);
    patch(&space, "b.patch", "srv.c", &first, &both);
    // Without the first patch, the second one's line and context are those of `gamma`.
    let expected = replaced_in(&old, "int beta", "  work(r);\n", "  fast(r);\n");
    for (point, folder) in [("alone:2", "alone"), ("without:1", "without")] {
        space.ok(&["export", point, folder, "-q"]);
        assert_eq!(space.read(&format!("{folder}/srv.c")), expected, "{point}");
    }
    // Where a merge conflicts and the function has twins, nothing says where it belongs.
    let hunk = "--- a/srv.c\n+++ b/srv.c\n@@ -34,3 +34,3 @@\n   work(r);\n-  unlock(r);\n+  fast_unlock(r);\n   // d\n";
    let nearer = replaced_in(&first, "int beta", "  // d\n", "  // D\n");
    space.write("series", "");
    patch(&space, "c.patch", "srv.c", &old, &nearer);
    let hunk = hunk.replace("// d", "// D");
    space.patch(
        "d.patch",
        format!("Subject: d\nFrom: T <t@example.org>\n\n{hunk}"),
    );
    let error = space.fails(3, &["export", "alone:2", "none"]);
    insta::assert_snapshot!(error, @r"
    error: patches/d.patch:6: patch 2 (d.patch) is not separable: it needs patch 1 (c.patch) [PQ0319]
      patches/d.patch:6: hunk 1 of 1 does not apply to srv.c
    ");
}

#[test]
fn a_hunk_that_needs_fuzz_is_refused_where_several_places_fit() {
    let old = functions(&["alpha", "beta", "gamma"]);
    let space = space(&[("srv.c", old.clone())], &[("srv.c", old.clone())]);
    let write = |line: usize, context: &str| {
        space.write("series", "");
        let hunk = format!(
            "@@ -{line},3 +{line},3 @@\n   {context}(r);\n-  work(r);\n+  fast(r);\n   unlock(r);\n"
        );
        let header = "Subject: a\nFrom: T <t@example.org>\n\n--- a/srv.c\n+++ b/srv.c\n";
        space.patch("a.patch", format!("{header}{hunk}"));
    };
    write(17, "locked");
    let error = space.fails(3, &["stack", "--fuzz", "1"]);
    let places = "hunk 1 of 1 applies to srv.c only with fuzz 1, and then at lines 6, 19, 32";
    assert!(error.contains(places), "{error}");
    // At its own line, nothing speaks against it.
    write(19, "locked");
    assert!(space.ok(&["stack", "--fuzz", "1", "-q"]).contains("fuzz 1"));
}

#[test]
fn patches_after_a_conflict_stay_in_their_functions() {
    let old = functions(&["alpha", "beta", "gamma"]);
    let header = "int setting = 1;\n\n";
    let old = format!("{header}{old}");
    // The first patch adds a function and changes what upstream changed.
    let first = format!(
        "int setting = 2;\n\n{}{}",
        functions(&["new_one"]),
        &old[header.len()..]
    );
    let both = replaced_in(&first, "int beta", "  work(r);\n", "  fast(r);\n");
    let new = old.replace("setting = 1", "setting = 3");
    let space = space(&[("srv.c", old.clone())], &[("srv.c", new.clone())]);
    patch(&space, "a.patch", "srv.c", &old, &first);
    patch(&space, "b.patch", "srv.c", &first, &both);
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert_eq!(statuses(&report), ["changed", "merged"], "{report}");
    space.ok(&["rebase", "2.0", "--write", "--hold", "--output", "out"]);
    space.write("srv.c", &new);
    run_in(
        &space.workspace(),
        "patch",
        &["-s", "-F0", "-i", "out/patches/b.patch"],
    );
    let expected = replaced_in(&new, "int beta", "  work(r);\n", "  fast(r);\n");
    assert_eq!(space.read("srv.c"), expected, "{report}");
}

/// Functions of five lines, and the file with a change in one of them.
fn calls(names: &[&str]) -> String {
    let function = |name: &&str| {
        format!(
            "int {name}(row *x)\n{{\n  load_{name}(x);\n  lock(x);\n  work_{name}(x);\n  unlock(x);\n  done(x);\n}}\n\n"
        )
    };
    names.iter().map(function).collect()
}

#[test]
fn a_short_line_that_upstream_added_beside_the_patchs_own_is_noted() {
    let old = calls(&["alpha", "beta", "gamma"]);
    let with_call =
        |line: &str| replaced_in(&old, "int beta", line, &format!("  prefetch(x);\n{line}"));
    let mine = with_call("  work_beta(x);\n");
    for line in ["  unlock(x);\n", "  lock(x);\n"] {
        let space = space(&[("srv.c", old.clone())], &[("srv.c", with_call(line))]);
        patch(&space, "a.patch", "srv.c", &old, &mine);
        let report = json(&space, &["rebase", "2.0", "--json"]);
        let notes = report["patches"][0]["notes"].to_string();
        assert!(notes.contains("already has the same lines"), "{report}");
        assert!(notes.contains("in `beta`"), "{report}");
    }
}

#[test]
fn a_line_that_upstream_moved_is_not_gone() {
    let old = calls(&["alpha", "beta", "gamma"]);
    let mine = replaced_in(&old, "int beta", "  load_beta(x);\n", "");
    let moved = replaced_in(
        &mine,
        "int beta",
        "  unlock(x);\n",
        "  unlock(x);\n  load_beta(x);\n",
    );
    let space = space(&[("srv.c", old.clone())], &[("srv.c", moved)]);
    patch(&space, "a.patch", "srv.c", &old, &mine);
    let report = json(&space, &["rebase", "2.0", "--json"]);
    let review = report["patches"][0]["review"].as_str().unwrap_or_default();
    assert!(
        review.contains("still has lines that it removes: srv.c:15 in `beta`"),
        "{report}"
    );
}

#[test]
fn a_call_behind_the_unlock_is_another_change() {
    let old = calls(&["alpha", "beta", "gamma"]);
    let call = "  work_beta_fast(x, FLAG);\n";
    let mine = replaced_in(&old, "int beta", "  work_beta(x);\n", call);
    let without = replaced_in(&old, "int beta", "  work_beta(x);\n", "");
    let new = replaced_in(
        &without,
        "int beta",
        "  unlock(x);\n",
        &format!("  unlock(x);\n{call}"),
    );
    let space = space(&[("srv.c", old.clone())], &[("srv.c", new)]);
    patch(&space, "a.patch", "srv.c", &old, &mine);
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert_eq!(statuses(&report), ["changed"], "{report}");
}

fn deletion(file: &str, text: &str) -> String {
    let removed: String = text.lines().map(|line| format!("-{line}\n")).collect();
    format!(
        "Subject: delete\n\ndiff --git a/{file} b/{file}\ndeleted file mode 100644\n--- a/{file}\n+++ /dev/null\n@@ -1,{} +0,0 @@\n{removed}",
        text.lines().count()
    )
}

#[test]
fn a_deleted_file_that_upstream_moved_is_for_review() {
    let text = calls(&["alpha", "beta"]);
    let space = space(
        &[("a.c", text.clone()), ("d.c", text.clone())],
        &[("a.c", text.clone()), ("e/d.c", text.clone())],
    );
    space.patch("a.patch", deletion("d.c", &text));
    let report = json(&space, &["rebase", "2.0", "--json"]);
    let review = report["patches"][0]["review"].as_str().unwrap_or_default();
    assert!(
        review.contains("moved a file that the patch deletes"),
        "{report}"
    );
}

#[test]
fn what_an_earlier_patch_made_is_not_gone_from_the_release() {
    let text = calls(&["alpha", "beta", "gamma"]);
    let edited = text.replace("work_beta(x)", "work_beta(x, 1)");
    let space = space(&[("a.c", text.clone())], &[("a.c", edited)]);
    let rename = "diff --git a/a.c b/z.c\nsimilarity index 100%\nrename from a.c\nrename to z.c\n";
    space.patch("1.patch", format!("Subject: rename\n\n{rename}"));
    space.patch("2.patch", deletion("z.c", &text));
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert_eq!(statuses(&report), ["exact", "conflict"], "{report}");
}

#[test]
fn a_patch_is_upstream_after_later_ones_only_with_them() {
    let block = |middle: &str| format!("open();\nlock();\n{middle}work();\nclose();\n");
    let file = |first: &str, second: &str| {
        let between: String = (0..20).map(|line| format!("line {line}\n")).collect();
        format!("{}{between}{}", block(first), block(second))
    };
    let call = "prefetch_next_page();\n";
    let creation = |text: &str| {
        let added: String = text.lines().map(|line| format!("+{line}\n")).collect();
        format!(
            "Subject: new\n\ndiff --git a/n.c b/n.c\nnew file mode 100644\n--- /dev/null\n+++ b/n.c\n@@ -0,0 +1,{} @@\n{added}",
            text.lines().count()
        )
    };
    let moved = |upstream: &str| {
        let a = lines(3, &[]);
        let space = space(
            &[("a", a.clone())],
            &[("a", a), ("n.c", upstream.to_owned())],
        );
        let (plain, called) = (file("", ""), file(call, ""));
        space.patch("1.patch", creation(&plain));
        patch(&space, "2.patch", "n.c", &plain, &called);
        json(&space, &["rebase", "2.0", "--json"])
    };
    // Upstream has both, or the call at another place, where the second patch does not put it.
    let report = moved(&file(call, ""));
    assert_eq!(statuses(&report), ["upstream", "upstream"], "{report}");
    let evidence = "it can be reverted on the release after patch 2";
    assert_eq!(report["patches"][0]["evidence"], evidence);
    let report = moved(&file("", call));
    let evidence = report["patches"][0]["evidence"]
        .as_str()
        .unwrap_or_default();
    assert!(!evidence.contains("reverted"), "{report}");
}

#[test]
fn a_line_that_the_patch_adds_twice_is_not_there_once() {
    let text = calls(&["alpha", "beta"]);
    let (work, call) = ("  work_beta(x);\n", "  prefetch_next_page(x);\n");
    let twice = text.replace(work, &format!("{call}{work}{call}"));
    let changed = "  work_beta(x, 1);\n";
    let once = text.replace(work, &format!("{call}{changed}"));
    let both = text.replace(work, &format!("{call}{changed}{call}"));
    for (upstream, status) in [(once, "changed"), (both, "upstream")] {
        let space = space(&[("a.c", text.clone())], &[("a.c", upstream)]);
        patch(&space, "a.patch", "a.c", &text, &twice);
        let report = json(&space, &["rebase", "2.0", "--json"]);
        assert_eq!(statuses(&report), [status], "{report}");
    }
}

#[test]
fn lines_in_a_condition_or_comment_of_upstreams_are_not_the_patchs() {
    let text = calls(&["alpha", "beta"]);
    let (work, call) = ("  work_beta(x);\n", "  prefetch_row(x);\n");
    let mine = text.replace(work, &format!("{call}{work}"));
    let upstream = |lines: &str| {
        let space = space(
            &[("a.c", text.clone())],
            &[("a.c", text.replace(work, lines))],
        );
        patch(&space, "a.patch", "a.c", &text, &mine);
        statuses(&json(&space, &["rebase", "2.0", "--json"]))
    };
    for (before, after) in [
        ("#if 0\n", "#endif\n"),
        ("  /*\n", "  */\n"),
        ("  if (debug) {\n", "  }\n"),
        ("  return 0;\n", ""),
    ] {
        let found = upstream(&format!("{before}{call}{after}{work}"));
        assert_eq!(found, ["changed"], "{before}");
    }
    // A comment and another statement before it are nothing of the kind.
    for before in [
        "  /* soon\n   * used */\n",
        "  if (debug) {\n    print(x);\n  }\n",
    ] {
        let found = upstream(&format!("{before}{call}{work}"));
        assert_eq!(found, ["upstream"], "{before}");
    }
}

#[test]
fn binary_files_are_equal_or_in_conflict() {
    let text = calls(&["alpha"]);
    let logo = |words: &str| format!("\0{words}\0and {}\n", "more ".repeat(20));
    let upstream = |new: String| {
        let space = space(
            &[("a.c", text.clone())],
            &[("a.c", text.clone()), ("n.bin", new)],
        );
        let repo = space.workspace().join(".perfquilt/repo");
        std::fs::create_dir_all(&repo).unwrap();
        for words in [
            &["init", "-q"][..],
            &["commit", "-q", "--allow-empty", "-m", "b"],
        ] {
            assert!(run_in(&repo, "git", words).success());
        }
        std::fs::write(repo.join("n.bin"), logo("white space")).unwrap();
        assert!(run_in(&repo, "git", &["add", "n.bin"]).success());
        let diff = run_in(
            &repo,
            "git",
            &["diff", "--cached", "--binary", "--full-index"],
        );
        space.patch(
            "a.patch",
            format!("Subject: logo\n\n{}", diff.stdout_text()),
        );
        statuses(&json(&space, &["rebase", "2.0", "--json"]))
    };
    assert_eq!(upstream(logo("white space")), ["upstream"]);
    assert_eq!(upstream(logo("white  space")), ["conflict"]);
    assert_eq!(upstream(logo("white space") + "more\n"), ["conflict"]);
}

#[test]
fn a_function_that_upstream_moves_elsewhere_is_no_upstream_move() {
    let order = |names: &[&str]| calls(names);
    let (old, mine) = (
        order(&["alpha", "beta", "gamma", "delta"]),
        order(&["beta", "alpha", "gamma", "delta"]),
    );
    let new = order(&["alpha", "gamma", "delta", "beta"]);
    let space = space(&[("a.c", old.clone())], &[("a.c", new)]);
    patch(&space, "a.patch", "a.c", &old, &mine);
    let report = json(&space, &["rebase", "2.0", "--json"]);
    assert_eq!(report["decisions"], 1, "{report}");
}

#[test]
fn a_line_that_both_sides_move_is_for_review() {
    let text = calls(&["alpha", "beta"]);
    let line = "  load_beta(x);\n";
    let behind = |other: &str| {
        let (start, beta) = text.split_once(line).unwrap();
        start.to_owned() + &beta.replacen(other, &format!("{other}{line}"), 1)
    };
    let mine = behind("  work_beta(x);\n");
    let space = space(
        &[("a.c", text.clone())],
        &[("a.c", behind("  unlock(x);\n"))],
    );
    patch(&space, "a.patch", "a.c", &text, &mine);
    let report = json(&space, &["rebase", "2.0", "--json"]);
    let review = report["patches"][0]["review"].as_str().unwrap_or_default();
    assert!(review.contains("twice: `load_beta(x);`"), "{report}");
}

#[test]
fn white_space_with_a_meaning_is_no_detail() {
    let old = "for row in rows:\n    load(row)\nwork(rows)\ndone(rows)\n";
    let mine = old.replace("work", "    prefetch_rows(row)\nwork");
    let upstream = |name: &str, new: &str| {
        let space = space(&[(name, old.to_owned())], &[(name, new.to_owned())]);
        patch(&space, "a.patch", name, old, &mine);
        json(&space, &["rebase", "2.0", "--json"])
    };
    let outside = old.replace("work", "prefetch_rows(row)\nwork");
    let report = upstream("a.py", &outside);
    let review = report["patches"][0]["review"].as_str().unwrap_or_default();
    assert!(review.contains("other white space: a.py:3"), "{report}");
    let report = upstream("a.py", &mine);
    assert_eq!(statuses(&report), ["upstream"], "{report}");
    assert_eq!(report["patches"][0].get("review"), None, "{report}");
    let report = upstream(
        "a.py",
        &mine.replace("prefetch_rows(row)", "prefetch_ro ws(row)"),
    );
    assert_eq!(statuses(&report), ["changed"], "{report}");
}

#[test]
fn empty_files_are_what_they_are() {
    let a = || ("a", lines(3, &[]));
    let deletes = "Subject: e\n\ndiff --git a/e b/e\ndeleted file mode 100644\nindex e69de29bb2d1d6434b8b29ae775ad8c2e48c5391..0000000000000000000000000000000000000000\n";
    let deletion = space(
        &[a(), ("e", String::new())],
        &[a(), ("e", "x\n".to_owned())],
    );
    deletion.patch("a.patch", deletes);
    let report = json(&deletion, &["rebase", "2.0", "--json"]);
    assert_eq!(statuses(&report), ["conflict"], "{report}");
    let adds = "Subject: e\n\ndiff --git a/e b/e\nnew file mode 100644\nindex 0000000000000000000000000000000000000000..e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\n";
    let creation = space(&[a()], &[a(), ("e", "x\n".to_owned())]);
    creation.patch("a.patch", adds);
    let report = json(&creation, &["rebase", "2.0", "--json"]);
    assert_eq!(statuses(&report), ["upstream"], "{report}");
}

#[test]
fn a_new_file_does_not_stay_in_a_folder_that_upstream_moved() {
    let text = calls(&["alpha", "beta"]);
    let new = "Subject: new\n\n--- /dev/null\n+++ b/sql/n.c\n@@ -0,0 +1 @@\n+int n;\n";
    let upstream = |name: &str| {
        let space = space(&[("sql/a.c", text.clone())], &[(name, text.clone())]);
        space.patch("a.patch", new);
        json(&space, &["rebase", "2.0", "--json"])
    };
    let report = upstream("server/a.c");
    assert_eq!(statuses(&report), ["conflict"], "{report}");
    let what = report["patches"][0]["decisions"][0]["what"]
        .as_str()
        .unwrap();
    assert!(what.contains("moved or removed that folder"), "{report}");
    assert_eq!(statuses(&upstream("sql/b.c")), ["exact"]);
}

#[test]
fn what_a_patch_removes_and_upstream_moved_is_for_review() {
    let checked = "  check_beta(x);\n  load_beta(x);\n";
    let text = calls(&["alpha", "beta"]).replace("  load_beta(x);\n", checked);
    let (head, body) = text.split_once("int beta").unwrap();
    let (lock, unlock) = ("  lock(x);\n", "  unlock(x);\n");
    let mine = format!(
        "{head}int beta{}",
        body.replace(lock, "").replace(unlock, "")
    );
    let outwards = body
        .replace(lock, "")
        .replace("{\n", &format!("{{\n{lock}"));
    let space1 = space(
        &[("a.c", text.clone())],
        &[("a.c", format!("{head}int beta{outwards}"))],
    );
    patch(&space1, "a.patch", "a.c", &text, &mine);
    let report = json(&space1, &["rebase", "2.0", "--json"]);
    let review = report["patches"][0]["review"].as_str().unwrap_or_default();
    assert!(
        review.contains("moved lines that it removes: a.c:"),
        "{report}"
    );
    // A function that the patch removes and upstream moved.
    let text = calls(&["alpha", "beta", "gamma", "delta"]);
    let without = calls(&["alpha", "gamma", "delta"]);
    let space2 = space(
        &[("a.c", text.clone())],
        &[("a.c", calls(&["alpha", "gamma", "delta", "beta"]))],
    );
    patch(&space2, "a.patch", "a.c", &text, &without);
    let report = json(&space2, &["rebase", "2.0", "--json"]);
    let review = report["patches"][0]["review"].as_str().unwrap_or_default();
    assert!(
        review.contains("still has lines that it removes: a.c:"),
        "{report}"
    );
}
