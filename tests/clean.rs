//! `perfquilt clean`: what nobody used goes, what is needed is made again.

use crate::common::TestEnvironment;

#[test]
fn what_nobody_used_goes_and_is_made_again() {
    let environment = TestEnvironment::with_fixture("toy");
    let run = |args: &[&str]| {
        let finished = environment.run(args);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        finished
    };
    run(&["build", "--recipe", "make"]);
    let recent = run(&["clean"]).stdout;
    assert!(recent.starts_with("nothing to remove"), "{recent}");
    let entries = || {
        ["builds", "work"].map(|folder| {
            let folder = environment.cache().join(folder);
            std::fs::read_dir(folder).unwrap().count()
        })
    };
    let before = entries();
    assert!(before.iter().all(|&count| count > 0), "{before:?}");
    let tried = run(&["clean", "--unused-days", "0", "--dry-run"]).stdout;
    assert!(tried.contains("built server, used today"), "{tried}");
    assert!(tried.contains("would be freed"), "{tried}");
    assert_eq!(entries(), before);
    run(&["clean", "--unused-days", "0"]);
    assert_eq!(entries(), [0, 0]);
    let again = run(&["build", "--recipe", "make"]);
    assert!(again.stderr.contains("building"), "{}", again.stderr);
    assert_eq!(entries(), before);
}

#[test]
fn machines_read_it_too() {
    let environment = TestEnvironment::with_fixture("toy");
    let finished = environment.run(&["clean", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(document["removed"].as_array().unwrap().len(), 0);
    let wrong = environment.run(&["clean", "--unused-days", "-3"]);
    assert_eq!(wrong.code, Some(2));
}
