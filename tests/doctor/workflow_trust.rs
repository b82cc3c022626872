//! The workflows of `ci/github`: what a pull request may decide in them.

const MEASURE: &str = include_str!("../../ci/github/measure.yml");
const POST: &str = include_str!("../../ci/github/post.yml");
const FORGEJO: &str = include_str!("../../ci/forgejo/perfquilt.yml");

/// Returns the lines of `workflow` without comments.
fn lines(workflow: &str) -> Vec<&str> {
    let lines = workflow.lines();
    lines
        .filter(|line| !line.trim_start().starts_with('#'))
        .collect()
}

/// Returns the expressions of `workflow`.
fn expressions(workflow: &str) -> Vec<&str> {
    let parts = workflow.split("${{").skip(1);
    let inside = parts.map(|part| part.split("}}").next().unwrap().trim());
    inside.collect()
}

#[test]
fn nothing_of_a_pull_request_decides_what_runs() {
    for workflow in [MEASURE, POST, FORGEJO] {
        let lines = lines(workflow);
        // GitHub would take the file from the pull request.
        assert!(
            !lines
                .iter()
                .any(|line| line.trim_start().starts_with("pull_request:"))
        );
        // Forgejo knows no permissions.
        assert!(workflow == FORGEJO || lines.contains(&"permissions: {}"));
        // Texts of a pull request are never pasted into a script.
        let indent = |line: &str| line.len() - line.trim_start().len();
        for (at, line) in lines.iter().enumerate() {
            let Some((before, script)) = line.split_once("run: ") else {
                continue;
            };
            let own = lines[at + 1..].iter();
            let own = own.take_while(|line| indent(line) > before.len());
            let script: String = std::iter::once(&script).chain(own).copied().collect();
            assert!(!script.contains("${{"), "{script}");
        }
        // None of these is a text of the pull request's author; `head.ref`, `title` and `body` are.
        for expression in expressions(workflow) {
            let known = [
                "github.event.pull_request.number",
                "github.event.pull_request.head.sha",
                "github.event.pull_request.base.sha",
                "github.event.action == 'labeled' && github.event.label.name || 'measure'",
                "github.event.workflow_run.display_title",
                "github.event.workflow_run.id",
                "github.token",
                "always()",
                "always() && needs.measure.result != 'skipped' && needs.measure.result != 'cancelled'",
            ];
            assert!(known.contains(&expression), "{expression}");
        }
    }
    // A token that may write nothing, and no secret.
    let rights = MEASURE.split("permissions:").nth(2).unwrap();
    let rights: Vec<&str> = rights.lines().skip(1).take(2).map(str::trim).collect();
    assert_eq!(rights, ["contents: read", "env:"]);
    assert!(!expressions(MEASURE).contains(&"github.token") && !MEASURE.contains("secrets."));
    // Of the pull request, nothing but series and patches.
    let theirs = MEASURE.split("pull_request.head.sha }}\n").nth(2).unwrap();
    let theirs = theirs.split("      - ").next().unwrap();
    for line in [
        "path: theirs",
        "/series\n            /patches\n",
        "persist-credentials: false",
    ] {
        assert!(theirs.contains(line), "{theirs}");
    }
    assert!(MEASURE.contains("run --sandbox ") && FORGEJO.contains("run --sandbox "));
    // The job that measures is given no token.
    let (measures, posts) = FORGEJO.split_once("\n  post:\n").unwrap();
    assert!(!measures.contains("github.token") && posts.contains("github.token"));
    assert!(!posts.contains("checkout@"));
    // The poster checks out the default branch and nothing else.
    assert!(!POST.contains("ref:") && POST.contains("event == 'pull_request_target'"));
}
