//! Releases: every kind of source, the lock file, damaged and hostile input, kills.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;

use crate::common::{TestEnvironment, listing, run_in};
use perfquilt_series::upstream::sha256;

fn sample(space: &TestEnvironment, dir: &str) {
    space.write(
        &format!("{dir}/src/main.c"),
        "int main(void) { return 0; }\n",
    );
    space.write(&format!("{dir}/run.sh"), "#!/bin/sh\n");
    space.executable(&format!("{dir}/run.sh"));
    space.link(&format!("{dir}/link"), "src/main.c");
    space.write(&format!("{dir}/crlf.txt"), "a\r\n");
}

/// A tarball made by tar itself from the folder `dir`.
fn tarball(space: &TestEnvironment, dir: &str, name: &str, option: &str) -> String {
    run_in(&space.workspace(), "tar", &[option, name, dir]);
    sha256(&space.path(name)).unwrap()
}

fn use_tarball(space: &TestEnvironment, url: &str, digest: &str) {
    space.configure(&format!(
        "release = [{{ version = \"1.0\", tarball = {{ url = \"{url}\", sha256 = \"{digest}\" }} }}]\n"
    ));
}

/// The tree's name as `upstream fetch` prints it.
fn fetched_tree(space: &TestEnvironment) -> String {
    let out = space.ok(&["upstream", "fetch", "-q"]);
    out.trim()
        .strip_prefix("srv-1.0  tree ")
        .unwrap()
        .to_owned()
}

#[test]
fn every_source_gives_the_same_tree() {
    let space = TestEnvironment::new();
    sample(&space, "up");
    let directory = fetched_tree(&space);
    let mut trees = vec![directory];
    for (name, option) in [
        ("x.tar", "-cf"),
        ("x.tar.gz", "-czf"),
        ("x.tar.bz2", "-cjf"),
        ("x.tar.xz", "-cJf"),
    ] {
        let other = TestEnvironment::with_releases("");
        sample(&other, "top-1.0");
        let digest = tarball(&other, "top-1.0", name, option);
        use_tarball(&other, name, &digest);
        trees.push(fetched_tree(&other));
        assert!(other.read("bench-config/upstream.lock").contains(&digest));
        other.ok(&["upstream", "verify", "-q"]);
    }
    let git = TestEnvironment::with_releases(
        "release = [{ version = \"1.0\", git = { remote = \"remote\", tag = \"v1.0\" } }]\n",
    );
    sample(&git, "remote");
    let remote = git.path("remote");
    for args in [
        &["init", "-q"][..],
        &["add", "-A"],
        &["commit", "-qm", "x"],
        &["tag", "-am", "x", "v1.0"],
    ] {
        assert!(run_in(&remote, "git", args).success(), "{args:?}");
    }
    trees.push(fetched_tree(&git));
    assert!(trees.iter().all(|tree| *tree == trees[0]), "{trees:?}");

    git.ok(&["export", "0", "out", "-q"]);
    assert_eq!(listing(&git.path("out")), listing(&space.path("up")));
}

#[test]
fn commits_are_the_same_everywhere() {
    let commit = || {
        let space = TestEnvironment::new();
        sample(&space, "up");
        space.patch("a.patch", "Subject: a\n\n--- a/src/main.c\n+++ b/src/main.c\n@@ -1 +1 @@\n-int main(void) { return 0; }\n+int main(void) { return 1; }\n");
        space.ok(&["stack", "-q", "--json"])
    };
    assert_eq!(commit(), commit());
}

#[test]
fn a_changed_release_is_refused() {
    let space = TestEnvironment::new();
    sample(&space, "up");
    space.ok(&["upstream", "fetch", "-q"]);
    let lock = space.read("bench-config/upstream.lock");
    // Somebody else gets another tree under the same version.
    std::fs::remove_dir_all(space.path(".perfquilt")).unwrap();
    space.write("up/src/main.c", "int main(void) { return 2; }\n");
    let error = space.fails(2, &["upstream", "fetch"]);
    assert!(
        error.contains("srv-1.0 differs from the lock file: its tree changed"),
        "{error}"
    );
    assert!(error.contains("hint: if the change is wanted"), "{error}");
    assert_eq!(space.read("bench-config/upstream.lock"), lock);
    space.fails(2, &["upstream", "verify"]);
    space.fails(2, &["stack"]);
    // Having removed the entry, the user gets the new one.
    std::fs::remove_file(space.path("bench-config/upstream.lock")).unwrap();
    space.ok(&["upstream", "fetch", "-q"]);
    assert_ne!(space.read("bench-config/upstream.lock"), lock);
}

#[test]
fn wrong_digests_and_files_are_refused() {
    let space = TestEnvironment::with_releases("");
    sample(&space, "top");
    let digest = tarball(&space, "top", "x.tar.gz", "-czf");
    let zeros = "0".repeat(64);
    use_tarball(&space, "x.tar.gz", &zeros);
    let error = space.fails(2, &["upstream", "fetch"]);
    assert!(
        error.contains("x.tar.gz does not match its SHA-256"),
        "{error}"
    );
    assert!(error.contains(&format!("found    {digest}")), "{error}");
    use_tarball(&space, "x.tar.gz", "12");
    let error = space.fails(2, &["upstream", "list"]);
    assert!(
        error.starts_with(
            "error: bench-config/perfquilt.toml:4: release 1.0: sha256 must be 64 hexadecimal digits"
        ),
        "{error}"
    );
    use_tarball(&space, "y.tar.gz", &digest);
    insta::assert_snapshot!(space
            .fails(2, &["upstream", "fetch"]), @r"
    error: bench-config/perfquilt.toml: there is no file y.tar.gz [PQ0401]
    hint: a relative path starts at the workspace's root
    ");
    use_tarball(&space, "file:///x", &digest);
    assert!(
        space
            .fails(2, &["upstream", "fetch"])
            .contains("cannot download from file://")
    );

    for (content, message) in [
        (&b"\x28\xb5\x2f\xfd"[..], "compressed with zstd"),
        (b"BZh91AY", "damaged or not a tar archive"),
        (b"", "is empty"),
        (
            b"just some text that is no archive at all",
            "damaged or not a tar archive",
        ),
        (b"\x1f\x8b\x08\x00broken", "damaged or not a tar archive"),
    ] {
        space.write("z.tar", content);
        use_tarball(&space, "z.tar", &sha256(&space.path("z.tar")).unwrap());
        let error = space.fails(2, &["upstream", "fetch"]);
        assert!(error.contains(message), "{error}");
    }
    // Cut off in the middle.
    let whole = std::fs::read(space.path("x.tar.gz")).unwrap();
    space.write("z.tar", &whole[..whole.len() / 2]);
    use_tarball(&space, "z.tar", &sha256(&space.path("z.tar")).unwrap());
    space.fails(2, &["upstream", "fetch"]);
    // Behind the archive's end mark.
    let mut checksum = whole.clone();
    checksum[whole.len() - 6] ^= 1;
    for damaged in [&whole[..whole.len() - 3], &checksum[..]] {
        space.write("z.tar", damaged);
        use_tarball(&space, "z.tar", &sha256(&space.path("z.tar")).unwrap());
        let error = space.fails(2, &["upstream", "fetch"]);
        assert!(
            error.contains("z.tar: damaged or not a tar archive"),
            "{error}"
        );
    }
    // With holes, which are in the member's content and not in its header.
    let mut builder = tar::Builder::new(Vec::new());
    let extension = ("GNU.sparse.major", &b"1"[..]);
    builder.append_pax_extensions([extension]).unwrap();
    let mut header = tar::Header::new_ustar();
    header.set_path("x/holes").unwrap();
    header.set_mode(0o644);
    header.set_size(0);
    header.set_cksum();
    builder.append(&header, std::io::empty()).unwrap();
    space.write("z.tar", builder.into_inner().unwrap());
    use_tarball(&space, "z.tar", &sha256(&space.path("z.tar")).unwrap());
    let error = space.fails(2, &["upstream", "fetch"]);
    insta::assert_snapshot!(error, @r"
    error: [WS]/z.tar: archive member x/holes is a sparse file in the pax format [PQ0404]
    hint: repack the archive without `tar --sparse`
    ");
    assert!(!space.path("bench-config/upstream.lock").exists());
}

/// Archives drop a version when its successor arrives; a copy from elsewhere is the same release if its digest is.
#[test]
fn a_copy_takes_the_place_of_the_download() {
    let space = TestEnvironment::with_releases("");
    sample(&space, "srv-1.0");
    let digest = tarball(&space, "srv-1.0", "copy.tar.gz", "-czf");
    space.write("other.tar.gz", "another file");

    // An address that nothing answers at.
    use_tarball(&space, "http://127.0.0.1:1/srv-1.0.tar.gz", &digest);
    space.fails(2, &["upstream", "fetch"]);
    let error = space.fails(2, &["upstream", "fetch", "--from", "none.tar.gz"]);
    insta::assert_snapshot!(error, @r"error: there is no file none.tar.gz [PQ0401]");
    let error = space.fails(2, &["upstream", "fetch", "--from", "other.tar.gz"]);
    assert!(
        error.contains("other.tar.gz does not match its SHA-256"),
        "{error}"
    );
    space.ok(&["upstream", "fetch", "1.0", "--from", "copy.tar.gz", "-q"]);
    space.ok(&["upstream", "verify", "-q"]);
    let lock = space.read("bench-config/upstream.lock");
    let tree = lock
        .lines()
        .find(|line| line.starts_with("tree = "))
        .unwrap();

    // A Debian package that no archive has: the lock file says which file is the release.
    let space = TestEnvironment::with_releases(
        "release = [{ version = \"1.0\", debian = { package = \"perfquilt-no-such-package\", suite = \"bookworm\" } }]\n",
    );
    sample(&space, "srv-1.0");
    assert_eq!(tarball(&space, "srv-1.0", "copy.tar.gz", "-czf").len(), 64);
    let error = space.fails(2, &["upstream", "fetch", "--from", "copy.tar.gz"]);
    insta::assert_snapshot!(error, @r"
    error: bench-config/upstream.lock: cannot verify the file of release 1.0: the lock file has no SHA-256 of it [PQ0403]
    hint: give the release as `tarball = { url, sha256 }` in bench-config/perfquilt.toml
    ");
    let record = |file: &str, digest: &str| {
        space.write(
            "bench-config/upstream.lock",
            format!(
                "[[release]]\nversion = \"1.0\"\nsource = \"debian bookworm perfquilt-no-such-package\"\n\
                 file = \"{file}\"\nsha256 = \"{digest}\"\n{tree}\n"
            ),
        );
    };
    let digest = sha256(&space.path("copy.tar.gz")).unwrap();
    record("../srv_1.0.orig.tar.gz", &digest);
    let error = space.fails(2, &["upstream", "fetch", "--from", "copy.tar.gz"]);
    insta::assert_snapshot!(error, @r"error: bench-config/upstream.lock: `../srv_1.0.orig.tar.gz` is not a file name [PQ0200]");
    record("srv_1.0.orig.tar.gz", &digest);
    space.ok(&["upstream", "fetch", "--from", "copy.tar.gz", "-q"]);
    space.ok(&["upstream", "verify", "-q"]);
}

/// A release that fails hides neither the results nor the errors of the others.
#[test]
fn every_release_has_its_result() {
    let space = TestEnvironment::with_releases(&format!(
        "release = [{{ version = \"1.0\", directory = \"nowhere\" }}, {{ version = \"2.0\", directory = \"up\" }}, \
         {{ version = \"3.0\", tarball = {{ url = \"gone.tar\", sha256 = \"{}\" }} }}, \
         {{ version = \"4.0\", directory = \"other\" }}]\n",
        "0".repeat(64)
    ));
    sample(&space, "up");
    sample(&space, "other");
    let (code, out, err) = space.shown(&["upstream", "fetch", "--all", "-q"]);
    assert_eq!(code, 2, "{err}");
    let names = |out: &str| -> Vec<String> {
        let words = out.lines().filter_map(|line| line.split(' ').next());
        words.map(str::to_owned).collect()
    };
    assert_eq!(names(&out), ["srv-2.0", "srv-4.0"]);
    for fault in ["nowhere is not a folder", "there is no file gone.tar"] {
        assert!(err.contains(&format!("{fault} [PQ040")), "{fault}: {err}");
    }
    let (code, out, _) = space.shown(&["upstream", "fetch", "3.0", "4.0", "--json", "-q"]);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &json["releases"][0]["version"]), (2, &"4.0".into()));
    space.write("up/src/main.c", "int main(void) { return 2; }\n");
    let (code, out, err) = space.shown(&["upstream", "verify", "-q"]);
    assert_eq!(
        (code, names(&out)),
        (2, vec!["srv-4.0".to_owned()]),
        "{err}"
    );
    assert!(err.contains("srv-2.0 differs from the lock file"), "{err}");
    // Alone, an error is all there is.
    let (code, out, _) = space.shown(&["upstream", "fetch", "3.0", "--json", "-q"]);
    assert_eq!((code, out.as_str()), (2, ""));
}

/// The hint of a changed file says how to get the right one, which nobody else has if it is the user's own.
#[test]
fn a_changed_file_is_to_be_restored_or_fetched() {
    let space = TestEnvironment::with_releases("");
    sample(&space, "top");
    let digest = tarball(&space, "top", "x.tar.gz", "-czf");
    let address = serve(std::fs::read(space.path("x.tar.gz")).unwrap());
    use_tarball(&space, "x.tar.gz", &digest);
    space.ok(&["upstream", "fetch", "-q"]);
    space.write("x.tar.gz", "another file");
    let error = space.fails(2, &["upstream", "verify"]);
    assert!(
        error.contains("x.tar.gz is not the file that was recorded")
            && error.contains("hint: restore the file; if the new one is right, correct `sha256`"),
        "{error}"
    );
    assert!(!error.contains("remove"), "{error}");
    use_tarball(&space, &format!("{address}/x.tar.gz"), &digest);
    std::fs::remove_dir_all(space.path(".perfquilt")).unwrap();
    space.ok(&["upstream", "fetch", "-q"]);
    let download = space
        .cache()
        .join(format!("downloads/{}/x.tar.gz", &digest[..16]));
    std::fs::write(download, "damaged").unwrap();
    let error = space.fails(2, &["upstream", "verify"]);
    assert!(error.contains("hint: remove it and fetch again"), "{error}");
}

#[test]
fn a_directory_is_read_once() {
    let space = TestEnvironment::new();
    sample(&space, "up");
    let (code, _, err) = space.shown(&["upstream", "fetch"]);
    assert_eq!(
        (code, err.matches("importing srv-1.0").count()),
        (0, 1),
        "{err}"
    );
    // Later, it is compared with what was recorded.
    let (code, _, err) = space.shown(&["upstream", "fetch"]);
    assert_eq!(
        (code, err.matches("importing srv-1.0").count()),
        (0, 1),
        "{err}"
    );
}

#[test]
fn a_directory_that_changed_is_noticed() {
    let space = TestEnvironment::new();
    sample(&space, "up");
    fetched_tree(&space);
    space.ok(&["upstream", "verify", "-q"]);
    space.write("up/crlf.txt", "other\n");
    for command in ["fetch", "verify"] {
        let error = space.fails(2, &["upstream", command]);
        assert!(
            error.contains("srv-1.0 differs from the lock file"),
            "{error}"
        );
    }
}

/// Copies at other addresses are tried by themselves, and never trusted further than their digest.
#[test]
fn copies_are_tried_when_the_archive_has_dropped_a_release() {
    let space = TestEnvironment::with_releases("");
    sample(&space, "srv-1.0");
    let digest = tarball(&space, "srv-1.0", "srv.tar.gz", "-czf");
    let address = serve(std::fs::read(space.path("srv.tar.gz")).unwrap());
    let wrong = serve(b"another file".to_vec());
    let configured = |source: &str, copies: &str| {
        let release =
            format!("release = [{{ version = \"1.0\", {source}, copies = [{copies}] }}]\n");
        space.configure(&release);
    };
    let gone = format!("tarball = {{ url = \"{address}/missing.tar.gz\", sha256 = \"{digest}\" }}");
    let none = format!("\"{address}/missing\", \"{wrong}/srv.tar.gz\"");
    configured(&gone, &none);
    let error = space.fails(2, &["upstream", "fetch"]);
    for cause in [
        format!("cannot download {address}/missing.tar.gz"),
        format!("cannot download {address}/missing\n"),
        format!("{wrong}/srv.tar.gz does not match its SHA-256"),
    ] {
        assert!(error.contains(&cause), "{cause}: {error}");
    }
    configured(&gone, &format!("{none}, \"{address}/elsewhere.tar.gz\""));
    let tree = fetched_tree(&space);

    // A Debian package that no archive has, first without a recorded digest.
    std::fs::remove_dir_all(space.path(".perfquilt")).unwrap();
    let debian = "debian = { package = \"perfquilt-no-such-package\", suite = \"bookworm\" }";
    configured(debian, &format!("\"{address}/srv-1.0.tar.gz\""));
    std::fs::remove_file(space.path("bench-config/upstream.lock")).unwrap();
    let error = space.fails(2, &["upstream", "fetch"]);
    insta::assert_snapshot!(error, @r"
    error: bench-config/perfquilt.toml: perfquilt-no-such-package 1.0 is not in bookworm, which has no such source package [PQ0405]
      cannot verify the file of release 1.0: the lock file has no SHA-256 of it
    hint: no other version is available either; is the machine's mirror reachable?
    ");
    let lock = format!(
        "[[release]]\nversion = \"1.0\"\nsource = \"debian bookworm perfquilt-no-such-package\"\n\
         file = \"srv_1.0.orig.tar.gz\"\nsha256 = \"{digest}\"\ntree = \"{tree}\"\n"
    );
    space.write("bench-config/upstream.lock", &lock);
    assert_eq!(fetched_tree(&space), tree);
    space.ok(&["upstream", "verify", "-q"]);
    let lock_now = space.read("bench-config/upstream.lock");
    assert!(
        lock_now.contains("file = \"srv_1.0.orig.tar.gz\""),
        "{lock_now}"
    );
    // The cache has it now.
    std::fs::remove_dir_all(space.path(".perfquilt")).unwrap();
    configured(debian, "\"http://127.0.0.1:1/srv-1.0.tar.gz\"");
    assert_eq!(fetched_tree(&space), tree);

    configured("directory = \"srv-1.0\"", "\"http://127.0.0.1:1/x\"");
    let error = space.fails(2, &["upstream", "fetch"]);
    insta::assert_snapshot!(error, @r"error: bench-config/perfquilt.toml:4: only debian and tarball have a source file with copies [PQ0203]");
}

#[test]
fn another_source_is_another_release() {
    let space = TestEnvironment::new();
    sample(&space, "up");
    sample(&space, "same");
    space.write("other/file", "x\n");
    space.ok(&["upstream", "fetch", "-q"]);
    let from = |directory: &str| {
        space.configure(&format!(
            "release = [{{ version = \"1.0\", directory = \"{directory}\" }}]\n"
        ));
    };
    from("same");
    space.ok(&["upstream", "fetch", "-q"]);
    let lock = space.read("bench-config/upstream.lock");
    assert!(lock.contains("directory same"), "{lock}");
    from("other");
    let error = space.fails(2, &["upstream", "fetch"]);
    assert!(error.contains("its tree changed"), "{error}");
    assert_eq!(space.read("bench-config/upstream.lock"), lock);
}

#[test]
fn hostile_archives_are_refused() {
    type Member = (&'static str, tar::EntryType, &'static str);
    let file = tar::EntryType::Regular;
    let cases: [(&[Member], &str); 8] = [
        (&[("../evil", file, "")], "leads out of the tree"),
        (&[("/evil", file, "")], "absolute"),
        (&[("x/.git/config", file, "")], "`.git` is not allowed"),
        (&[("x/fifo", tar::EntryType::Fifo, "")], "a named pipe"),
        (&[("x/dev", tar::EntryType::Char, "")], "a device"),
        (&[("x/h", tar::EntryType::Link, "/etc/passwd")], "hard link"),
        (
            &[
                ("x/l", tar::EntryType::Symlink, "/etc"),
                ("x/l/evil", file, ""),
            ],
            "given twice",
        ),
        (&[("x/a", file, ""), ("x/a", file, "")], "given twice"),
    ];
    for (members, message) in cases {
        let space = TestEnvironment::with_releases("");
        let mut builder = tar::Builder::new(Vec::new());
        for (name, kind, target) in members {
            let mut header = tar::Header::new_gnu();
            // The builder refuses such names itself, so they are written underneath it.
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.as_mut_bytes()[157..157 + target.len()].copy_from_slice(target.as_bytes());
            header.set_entry_type(*kind);
            header.set_mode(0o644);
            header.set_size(0);
            header.set_cksum();
            builder.append(&header, std::io::empty()).unwrap();
        }
        space.write("x.tar", builder.into_inner().unwrap());
        use_tarball(&space, "x.tar", &sha256(&space.path("x.tar")).unwrap());
        let error = space.fails(2, &["upstream", "fetch"]);
        assert!(error.contains(message), "{members:?}: {error}");
        assert!(!space.path("bench-config/upstream.lock").exists());
        let packs = space.path(".perfquilt/objects.git/objects/pack");
        assert_eq!(std::fs::read_dir(packs).unwrap().count(), 0);
    }
}

#[test]
fn hard_links_become_files() {
    let space = TestEnvironment::with_releases("");
    space.write("top/a", "same\n");
    std::fs::hard_link(space.path("top/a"), space.path("top/b")).unwrap();
    let digest = tarball(&space, "top", "x.tar", "-cf");
    use_tarball(&space, "x.tar", &digest);
    space.ok(&["export", "0", "out", "-q"]);
    assert_eq!(space.read("out/a"), "same\n");
    assert_eq!(space.read("out/b"), "same\n");
}

#[test]
fn git_faults_name_what_there_is() {
    let space = TestEnvironment::with_releases(
        "release = [{ version = \"1.0\", git = { remote = \"remote\", tag = \"v1.1\" } }]\n",
    );
    let error = space.fails(2, &["upstream", "fetch"]);
    insta::assert_snapshot!(error, @r"
    error: cannot fetch tag v1.1 from remote [PQ0406]
      fatal: 'remote' does not appear to be a git repository
      fatal: Could not read from remote repository.
      
      Please make sure you have the correct access rights
      and the repository exists.
    hint: is the remote's address right, and may you read it?
    ");
    sample(&space, "remote");
    let remote = space.path("remote");
    run_in(&remote, "git", &["init", "-q"]);
    run_in(&remote, "git", &["add", "-A"]);
    run_in(&remote, "git", &["commit", "-qm", "x"]);
    run_in(&remote, "git", &["tag", "v1.0"]);
    let error = space.fails(2, &["upstream", "fetch"]);
    insta::assert_snapshot!(error, @r"
    error: cannot fetch tag v1.1 from remote [PQ0406]
      fatal: couldn't find remote ref refs/tags/v1.1
    hint: the remote has: v1.0
    ");
    space.configure(
        "release = [{ version = \"1.0\", git = { remote = \"--upload-pack=x\", tag = \"v\" } }]\n",
    );
    insta::assert_snapshot!(space
            .fails(2, &["upstream", "fetch"]), @r"error: a git remote or tag may not begin with `-` [PQ0406]");
}

#[test]
fn files_of_a_tag_that_are_elsewhere_are_named() {
    let space = TestEnvironment::with_releases(
        "release = [{ version = \"1.0\", git = { remote = \"remote\", tag = \"v1.0\" } }]\n",
    );
    sample(&space, "remote");
    space.write("remote/data/.gitattributes", "*.bin filter=lfs -text\n");
    let remote = space.path("remote");
    let commit = "0123456789012345678901234567890123456789";
    let link = format!("160000,{commit},sub");
    for args in [
        &["init", "-q"][..],
        &["add", "-A"],
        &["update-index", "--add", "--cacheinfo", &link],
        &["commit", "-qm", "x"],
        &["tag", "v1.0"],
    ] {
        assert!(run_in(&remote, "git", args).success(), "{args:?}");
    }
    let finished = space.run(&["upstream", "fetch"]);
    for words in [
        "the files of 1 submodule are not",
        "files in Git LFS are not",
    ] {
        assert!(finished.stderr.contains(words), "{}", finished.stderr);
    }
}

/// Tags of one history, fetched without it one after the other, from a remote that can do that.
#[test]
fn tags_come_without_history() {
    let space = TestEnvironment::with_releases("");
    let remote = space.path("remote");
    space.write("remote/f", "1\n");
    run_in(&remote, "git", &["init", "-q"]);
    for version in ["1.0", "1.1", "1.2"] {
        space.write("remote/f", format!("{version}\n"));
        run_in(&remote, "git", &["add", "-A"]);
        run_in(&remote, "git", &["commit", "-qm", version]);
        run_in(&remote, "git", &["tag", "-m", "x", version]);
    }
    let releases: Vec<String> = ["1.0", "1.1", "1.2"]
        .iter()
        .map(|version| {
            let url = format!("file://{}", remote.display());
            format!(
                "{{ version = \"{version}\", git = {{ remote = \"{url}\", tag = \"{version}\" }} }}"
            )
        })
        .collect();
    space.configure(&format!("release = [{}]\n", releases.join(", ")));
    space.ok(&["upstream", "fetch", "1.2", "-q"]);
    // What a git leaves that was killed while it fetched.
    space.write(".perfquilt/objects.git/shallow.lock", "");
    space.ok(&["upstream", "fetch", "--all", "-q"]);
    space.ok(&["upstream", "verify", "-q"]);
    for version in ["1.0", "1.1", "1.2"] {
        let dir = format!("out-{version}");
        space.ok(&["export", "0", &dir, "--release", version, "-q"]);
        assert_eq!(space.read(&format!("{dir}/f")), format!("{version}\n"));
    }
    let store = space.path(".perfquilt/objects.git");
    let history = run_in(
        &store,
        "git",
        &["rev-list", "--all", "--not", "--glob=refs/releases/*"],
    );
    // One commit a tag; the two between would be its history.
    assert_eq!(history.stdout_text().lines().count(), 3);
}

/// Two processes that need the same release at once do the work once or twice, but rightly.
#[test]
fn two_at_once() {
    let space = TestEnvironment::new();
    for file in 0..300 {
        space.write(
            &format!("up/d{}/f{file}", file % 7),
            vec![b'x'; 10_000 + file],
        );
    }
    let program = assert_cmd::cargo::cargo_bin("perfquilt");
    let start = || {
        perfquilt_system::process::Command::new(&program)
            .args(["upstream", "fetch"])
            .env("XDG_CACHE_HOME", space.cache_home())
            .directory(&space.workspace())
            .spawn()
            .unwrap()
    };
    let mut children = [start(), start(), start()];
    for child in &mut children {
        let status = child
            .wait_within(std::time::Duration::from_secs(120))
            .unwrap();
        assert!(status.unwrap().success());
    }
    space.ok(&["upstream", "verify", "-q"]);
}

/// A tag that was moved after it was locked is noticed.
#[test]
fn a_moved_tag_is_refused() {
    let space = TestEnvironment::with_releases(
        "release = [{ version = \"1.0\", git = { remote = \"remote\", tag = \"v1.0\" } }]\n",
    );
    sample(&space, "remote");
    let remote = space.path("remote");
    for args in [
        &["init", "-q"][..],
        &["add", "-A"],
        &["commit", "-qm", "x"],
        &["tag", "v1.0"],
    ] {
        run_in(&remote, "git", args);
    }
    space.ok(&["upstream", "fetch", "-q"]);
    std::fs::remove_dir_all(space.path(".perfquilt")).unwrap();
    space.write("remote/run.sh", "#!/bin/bash\n");
    run_in(&remote, "git", &["commit", "-qam", "y"]);
    run_in(&remote, "git", &["tag", "-f", "v1.0"]);
    let error = space.fails(2, &["upstream", "fetch"]);
    assert!(error.contains("differs from the lock file"), "{error}");
}

/// Serves `content` once for every request until the test ends.
fn serve(content: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0_u8; 4096];
            let count = stream.read(&mut request).unwrap_or(0);
            let found = !request[..count].starts_with(b"GET /missing");
            let (status, body) = if found {
                ("200 OK", content.as_slice())
            } else {
                ("404 Not Found", &b""[..])
            };
            let head = format!(
                "HTTP/1.0 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.write_all(body);
        }
    });
    format!("http://{address}")
}

#[test]
fn downloads_once_and_checks() {
    let space = TestEnvironment::with_releases("");
    sample(&space, "top");
    let digest = tarball(&space, "top", "x.tar.gz", "-czf");
    let address = serve(std::fs::read(space.path("x.tar.gz")).unwrap());
    use_tarball(&space, &format!("{address}/missing.tar.gz"), &digest);
    let error = space.fails(2, &["upstream", "fetch"]);
    assert!(error.contains("cannot download http://"), "{error}");
    use_tarball(&space, &format!("{address}/x.tar.gz?a=b"), &"1".repeat(64));
    let error = space.fails(2, &["upstream", "fetch"]);
    assert!(error.contains("does not match its SHA-256"), "{error}");
    use_tarball(&space, &format!("{address}/x.tar.gz"), &digest);
    let tree = fetched_tree(&space);
    // Offline, with the download in the cache.
    std::fs::remove_dir_all(space.path(".perfquilt")).unwrap();
    use_tarball(&space, "http://127.0.0.1:1/x.tar.gz", &digest);
    assert_eq!(fetched_tree(&space), tree);
    // What is damaged there is downloaded again.
    let downloads = space.cache().join(format!("downloads/{}", &digest[..16]));
    let names: Vec<_> = std::fs::read_dir(&downloads).unwrap().collect();
    assert_eq!(names.len(), 1);
    std::fs::write(downloads.join("x.tar.gz"), "damaged").unwrap();
    std::fs::remove_dir_all(space.path(".perfquilt")).unwrap();
    use_tarball(&space, &format!("{address}/x.tar.gz"), &digest);
    assert_eq!(fetched_tree(&space), tree);
}

#[test]
fn damage_in_the_store_is_found() {
    let space = TestEnvironment::new();
    sample(&space, "up");
    space.ok(&["upstream", "fetch", "-q"]);
    assert!(
        space
            .ok(&["upstream", "verify", "-q"])
            .contains("as recorded")
    );
    let packs = space.path(".perfquilt/objects.git/objects/pack");
    let pack = std::fs::read_dir(packs)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|e| e == "pack"))
        .unwrap();
    let mut bytes = std::fs::read(&pack).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::remove_file(&pack).unwrap();
    std::fs::write(&pack, bytes).unwrap();
    let (code, _, error) = space.shown(&["upstream", "verify", "-q"]);
    assert_eq!(code, 1, "{error}");
    assert!(
        error.contains("hint: `mv .perfquilt/objects.git .perfquilt/objects.damaged"),
        "{error}"
    );
    let (_, _, error) = space.shown(&["edit", "-q"]);
    assert!(error.contains("objects.damaged"), "{error}");
    // What the hint says.
    std::fs::rename(
        space.path(".perfquilt/objects.git"),
        space.path(".perfquilt/objects.damaged"),
    )
    .unwrap();
    space.ok(&["upstream", "fetch", "-q"]);
    space.ok(&["upstream", "verify", "-q"]);
    space.ok(&["edit", "-q"]);
}

#[test]
fn list_says_how_far_each_release_is() {
    let space = TestEnvironment::with_releases(
        "release = [{ version = \"1.0\", directory = \"up\" }, { version = \"2.0\", directory = \"nowhere\" }]\n",
    );
    sample(&space, "up");
    assert_eq!(
        space.ok(&["upstream", "list"]),
        "* srv-1.0  -         directory up\n  srv-2.0  -         directory nowhere\n"
    );
    space.ok(&["upstream", "fetch", "srv-1.0", "-q"]);
    assert!(
        space
            .ok(&["upstream", "list"])
            .starts_with("* srv-1.0  imported  directory up\n")
    );
    let json: serde_json::Value =
        serde_json::from_str(&space.ok(&["upstream", "list", "--json"])).unwrap();
    assert_eq!(json["releases"][0]["imported"], true);
    assert_eq!(json["releases"][1]["tree"], serde_json::Value::Null);
    let error = space.fails(2, &["upstream", "fetch", "2.0"]);
    assert!(
        error.contains(
            "error: bench-config/perfquilt.toml:4: [WS]/nowhere is not a folder [PQ0404]\nhint: correct `directory`"
        ),
        "{error}"
    );
    let error = space.fails(2, &["upstream", "fetch", "3.0"]);
    insta::assert_snapshot!(error, @r"
    error: bench-config/perfquilt.toml: there is no release `3.0` [PQ0400]
    hint: available: 1.0, 2.0
    ");
    space.write("bench-config/upstream.lock", "nonsense");
    let error = space.fails(2, &["upstream", "list"]);
    assert!(error.contains("bench-config/upstream.lock:1:"), "{error}");
}

/// Wherever an import is killed, the next one succeeds and nothing of the first stays behind.
#[test]
fn killed_imports_leave_nothing() {
    let space = TestEnvironment::with_releases("");
    let mut random = 1_u64;
    for file in 0..400 {
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) as u8
        })
        .take(40_000)
        .collect();
        space.write(&format!("top/d{}/f{file}", file % 20), bytes);
    }
    let digest = tarball(&space, "top", "x.tar", "-cf");
    use_tarball(&space, "x.tar", &digest);
    let program = assert_cmd::cargo::cargo_bin("perfquilt");
    let cache = space.cache_home();
    for milliseconds in [5, 20, 40, 80, 160, 320] {
        let limit = std::time::Duration::from_millis(milliseconds);
        let command = perfquilt_system::process::Command::new(&program)
            .args(["upstream", "fetch"])
            .env("XDG_CACHE_HOME", &cache)
            .directory(&space.workspace());
        let mut child = command.spawn().unwrap();
        if child.wait_within(limit).unwrap().is_none() {
            child.kill().unwrap();
        }
    }
    space.ok(&["upstream", "fetch", "-q"]);
    space.ok(&["upstream", "verify", "-q"]);
    space.ok(&["export", "0", "out", "-q"]);
    assert_eq!(listing(&space.path("out")), listing(&space.path("top")));
    assert!(temporaries(&space.path(".perfquilt")).is_empty());
}

fn temporaries(dir: &Path) -> Vec<String> {
    let all = listing(dir).into_iter().map(|(name, ..)| name);
    all.filter(|name| name.contains("tmp_")).collect()
}
