//! Validation of the paths in patches, archives and trees.

use perfquilt_model::error::{Error, Result};

/// Maximum number of components of a path: trees are read and written with one call per folder, on threads with small
/// stacks.
pub const MAX_DEPTH: usize = 256;

/// Returns the path for display; invalid UTF-8 is replaced.
pub fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// Rejects paths that lead out of the tree or into a repository's own files: absolute paths, empty components, `.`,
/// `..`, and every spelling of `.git` on file systems that fold case or shorten names.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) with the reason; callers add file and line.
pub fn check(path: &[u8]) -> Result<()> {
    let wrong = |what: &str| Err(Error::path_refused(format!("path {}: {what}", shown(path))));
    if path.is_empty() {
        return Err(Error::path_refused("an empty path"));
    }
    if path.len() > 4000 {
        return wrong("too long");
    }
    if path[0] == b'/' {
        return wrong("absolute paths are not allowed");
    }
    if path.iter().filter(|&&b| b == b'/').count() >= MAX_DEPTH {
        return wrong("too many folders");
    }
    for component in path.split(|&b| b == b'/') {
        match component {
            b"" => return wrong("an empty component"),
            b"." => return wrong("`.` is not allowed"),
            b".." => return wrong("it leads out of the tree (`..`)"),
            _ if is_dot_git(component) => return wrong("`.git` is not allowed"),
            _ if component.contains(&0) => return wrong("a NUL byte"),
            _ if component.len() > 255 => return wrong("a component longer than 255 bytes"),
            _ => {}
        }
    }
    Ok(())
}

/// Returns whether some file system treats `name` as `.git`.
fn is_dot_git(name: &[u8]) -> bool {
    // NTFS ignores trailing dots and spaces and has the short name `git~1`; HFS+ ignores some invisible characters.
    if name.is_ascii() {
        let end = name.iter().rposition(|b| !matches!(b, b'.' | b' '));
        let trimmed = &name[..end.map_or(0, |end| end + 1)];
        return trimmed.eq_ignore_ascii_case(b".git") || trimmed.eq_ignore_ascii_case(b"git~1");
    }
    let text = String::from_utf8_lossy(name);
    let visible: String = text
        .chars()
        .filter(|c| !matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}'))
        .collect::<String>()
        .to_lowercase();
    let trimmed = visible.trim_end_matches(['.', ' ']);
    trimmed == ".git" || trimmed == "git~1"
}

/// Removes `count` leading components as `patch -p` does: runs of slashes count once. Returns `None` for a path with
/// fewer slashes than `count`.
pub fn strip(path: &[u8], count: usize) -> Option<&[u8]> {
    let mut left = count;
    let mut start = 0;
    let mut at = 0;
    while at < path.len() {
        if path[at] == b'/' {
            while path.get(at + 1) == Some(&b'/') {
                at += 1;
            }
            if left > 0 {
                left -= 1;
                start = at + 1;
            }
        }
        at += 1;
    }
    (left == 0 && start < path.len()).then(|| &path[start..])
}

/// Removes empty and `.` components, which do not change the file that a path names.
pub fn normalize(path: &[u8]) -> Vec<u8> {
    let plain = |component: &&[u8]| !component.is_empty() && *component != b".";
    if path.first() == Some(&b'/') || path.split(|&b| b == b'/').all(|c| plain(&c)) {
        return path.to_vec();
    }
    let kept: Vec<&[u8]> = path.split(|&b| b == b'/').filter(plain).collect();
    kept.join(&b'/')
}

/// Returns whether the path may lead out of the tree: it is absolute or has a `..`. GNU patch ignores such names.
pub fn escapes_tree(path: &[u8]) -> bool {
    path.first() == Some(&b'/')
        || path
            .split(|&b| b == b'/')
            .any(|component| component == b"..")
}

/// Returns the folders above a path, outermost first.
pub fn folders(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'/')
        .map(|(end, _)| &path[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_as_patch_does() {
        assert_eq!(strip(b"a/b/c", 1), Some(&b"b/c"[..]));
        assert_eq!(strip(b"a//b/c", 1), Some(&b"b/c"[..]));
        assert_eq!(strip(b"a/b/c", 0), Some(&b"a/b/c"[..]));
        assert_eq!(strip(b"a/b/c", 3), None);
        assert_eq!(strip(b"a", 1), None);
        assert_eq!(strip(b"/a/b", 1), Some(&b"a/b"[..]));
        assert_eq!(strip(b"a/", 1), None);
    }

    #[test]
    fn unsafe_paths_are_refused() {
        for path in [
            &b""[..],
            b"/etc/passwd",
            b"../x",
            b"a/../../x",
            b"a//b",
            b"./a",
            b".git/config",
            b"a/.GiT/x",
            b".git./x",
            b"GIT~1/x",
            b".g\xe2\x80\x8cit/x",
            b"a/..",
            b"a\0b",
        ] {
            assert!(check(path).is_err(), "{}", shown(path));
        }
    }

    #[test]
    fn deep_paths_are_refused() {
        let path = |depth: usize| vec!["a"; depth].join("/").into_bytes();
        assert!(check(&path(MAX_DEPTH)).is_ok());
        let error = check(&path(MAX_DEPTH + 1)).unwrap_err();
        assert!(error.to_string().ends_with(": too many folders"), "{error}");
    }

    #[test]
    fn ordinary_paths_pass() {
        for path in [
            &b"a"[..],
            b"sql/sql_string.h",
            b".gitignore",
            b".github/x",
            b"a b",
            b"\xff",
        ] {
            assert!(check(path).is_ok(), "{}", shown(path));
        }
    }
}
