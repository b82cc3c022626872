//! Releases from tags of git repositories.

use git2::{ObjectType, Oid};

use super::objects::{MODE_COMMIT, MODE_TREE, Objects};
use crate::series::path;
use crate::upstream::store_error;
use perfquilt_config::GitSource;
use perfquilt_model::counted::counted;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress;
use perfquilt_model::warning::Warning;
use perfquilt_system::caches;
use perfquilt_system::git::own_git;
use perfquilt_system::process::{Command, Output};

/// The commit and tree of a fetched tag.
#[derive(Debug, Clone, Copy)]
pub struct FetchedTag {
    /// The tagged commit.
    pub commit: Oid,
    /// That commit's tree.
    pub tree: Oid,
}

/// Fetches one tag, without history if the remote supports shallow fetches. The caller holds the import lock.
pub fn fetch(
    store: &Objects,
    source: &GitSource,
    directory: &std::path::Path,
    version: &str,
) -> Result<FetchedTag> {
    let step = progress::begin(
        &format!("fetching {} from {}", source.tag, source.remote),
        None,
    );
    let reference = format!("refs/fetched/{}", reference_part(version));
    let tag = format!("refs/tags/{}", source.tag);
    if source.remote.starts_with('-') || source.tag.starts_with('-') {
        return Err(Error::tag("a git remote or tag may not begin with `-`"));
    }
    let run = |shallow: bool| {
        let depth: &[&str] = if shallow { &["--depth=1"] } else { &[] };
        fetch_into(store, directory, depth, (&source.remote, &tag), &reference)
    };
    let mut output = run(true)?;
    if !output.success() {
        // Remotes served as plain files do not support shallow fetches.
        output = run(false)?;
    }
    if !output.success() {
        return Err(Error::tag(format!(
            "cannot fetch tag {} from {}",
            source.tag, source.remote
        ))
        .details(output.tail(6))
        .hint(similar_tags(store, source, directory)));
    }
    store.refresh()?;
    let commit = store
        .repository()
        .find_reference(&reference)
        .map_err(store_error)?
        .peel_to_commit()
        .map_err(|error| {
            Error::tag(format!(
                "tag {} is not a commit: {}",
                source.tag,
                error.message()
            ))
        })?;
    let tagged = FetchedTag {
        commit: commit.id(),
        tree: commit.tree_id(),
    };
    let mut absent = AbsentFiles::default();
    check(store, tagged.tree, &mut Vec::new(), &mut absent)?;
    let tarball = "are not fetched; if the build needs them, use the release's tarball";
    if absent.submodules > 0 {
        progress::warn(Warning::absent_files(format!(
            "tag {}: the files of {} {tarball}",
            source.tag,
            counted(absent.submodules, "submodule", "submodules")
        )));
    }
    if absent.in_lfs {
        let words = format!("tag {}: files in Git LFS {tarball}", source.tag);
        progress::warn(Warning::absent_files(words));
    }
    step.finish("");
    Ok(tagged)
}

/// Fetches a revision of a remote into `reference`, without tags and submodules. The caller holds the import lock, so that
/// nobody else sets the reference.
pub fn fetch_into(
    store: &Objects,
    directory: &std::path::Path,
    options: &[&str],
    (remote, revision): (&str, &str),
    reference: &str,
) -> Result<Output> {
    // A killed process left this one. Git would not wait for it but fail.
    caches::remove_file(&store.path().join(format!("{reference}.lock")))?;
    git(store, directory)
        .args(["fetch", "--quiet", "--no-tags", "--no-write-fetch-head"])
        .arg("--no-recurse-submodules")
        .args(options)
        .args(["--end-of-options", remote])
        .arg(format!("+{revision}:{reference}"))
        .run()
}

fn git(store: &Objects, directory: &std::path::Path) -> Command {
    own_git(store.path())
        .args(["-c", "gc.auto=0", "-c", "maintenance.auto=false"])
        .directory(directory)
}

fn similar_tags(store: &Objects, source: &GitSource, directory: &std::path::Path) -> String {
    let listed = git(store, directory)
        .args(["ls-remote", "--quiet", "--tags", "--refs"])
        .arg(&source.remote)
        .run();
    let Ok(output) = listed else {
        return "is the remote's address right?".to_owned();
    };
    let text = output.stdout_text();
    let mut tags: Vec<(f64, &str)> = text
        .lines()
        .filter_map(|line| line.split_once("refs/tags/"))
        .map(|(_, tag)| (strsim::jaro_winkler(tag, &source.tag), tag))
        .collect();
    tags.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(a.1)));
    if !output.success() {
        "is the remote's address right, and may you read it?".to_owned()
    } else if tags.is_empty() {
        "the remote has no tags".to_owned()
    } else {
        let nearest: Vec<&str> = tags.iter().take(5).map(|(_, tag)| *tag).collect();
        format!("the remote has: {}", nearest.join(", "))
    }
}

/// Returns a version as one component of a reference's name.
pub fn reference_part(text: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "-_.+".contains(c) {
            c
        } else {
            '_'
        }
    };
    let part: String = text.chars().map(plain).collect();
    // Git forbids `..`, a leading or trailing dot and a `.lock` ending in references.
    let part = part.replace("..", "__");
    part.trim_matches('.').replace(".lock", "_lock")
}

/// Files of a tag that are elsewhere.
#[derive(Default)]
struct AbsentFiles {
    submodules: usize,
    /// Whether attributes name files whose content is in Git LFS.
    in_lfs: bool,
}

/// Rejects trees with paths that are dangerous in a work tree; notes which files are elsewhere.
fn check(store: &Objects, tree: Oid, prefix: &mut Vec<u8>, absent: &mut AbsentFiles) -> Result<()> {
    for entry in store.read_tree(tree)? {
        let length = prefix.len();
        if !prefix.is_empty() {
            prefix.push(b'/');
        }
        prefix.extend_from_slice(&entry.name);
        path::check(prefix)?;
        if entry.mode == MODE_TREE {
            check(store, entry.oid, prefix, absent)?;
        } else if entry.mode == MODE_COMMIT {
            absent.submodules += 1;
        } else if !store.has(entry.oid)? {
            return Err(Error::internal(format!(
                "{} {} of {} was not fetched",
                ObjectType::Blob,
                entry.oid,
                path::shown(prefix)
            )));
        } else if entry.name == b".gitattributes" {
            let attributes = store.read(entry.oid, ObjectType::Blob)?;
            absent.in_lfs |= String::from_utf8_lossy(&attributes).contains("filter=lfs");
        }
        prefix.truncate(length);
    }
    Ok(())
}

/// Returns the commits of two releases of the same repository after fetching the history from the first to the second
/// if the store lacks it. Returns `None` if the repository does not serve it.
pub fn history(
    store: &Objects,
    directory: &std::path::Path,
    old: (&str, &GitSource),
    new: (&str, &GitSource),
) -> Result<Option<(Oid, Oid)>> {
    let reference = |version: &str| format!("refs/fetched/{}", reference_part(version));
    let commits = || -> Result<Option<(Oid, Oid)>> {
        let commit = |version: &str| -> Result<Option<Oid>> {
            let Some(oid) = store.reference(&reference(version))? else {
                return Ok(None);
            };
            let object = store
                .repository()
                .find_object(oid, None)
                .map_err(store_error)?;
            Ok(object.peel_to_commit().ok().map(|commit| commit.id()))
        };
        Ok(commit(old.0)?.zip(commit(new.0)?))
    };
    let shallow = store.path().join("shallow").is_file();
    if !shallow || old.1.remote != new.1.remote {
        return commits();
    }
    let _lock = store.lock_import()?;
    let step = progress::begin(
        &format!("fetching the commits from {} to {}", old.1.tag, new.1.tag),
        None,
    );
    // Without one more commit, the commit right after the old release would have no parent.
    let exclude = format!("--shallow-exclude={}", old.1.tag);
    let mut whole = true;
    let from = (&*new.1.remote, &*format!("refs/tags/{}", new.1.tag));
    for depth in [exclude.as_str(), "--deepen=1"] {
        whole = whole && fetch_into(store, directory, &[depth], from, &reference(new.0))?.success();
    }
    store.refresh()?;
    step.finish("");
    if whole {
        return commits();
    }
    perfquilt_system::process::check_interrupted()?;
    progress::note(
        "the repository has no history between the releases: upstream's commits are ignored",
    );
    Ok(None)
}
