//! The options after a patch's name in `series`, which quilt passes to GNU patch.

use super::diff::DiffForm;
use perfquilt_model::error::{Error, Result};

/// A patch's options other than `-pN` and `-R`. Their `Debug` text is part of the patch's digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// `-F`, `--fuzz`: number of context lines that may be ignored; overrides the workspace's setting.
    pub fuzz: Option<usize>,
    /// `-l`, `--ignore-whitespace`: a run of blanks matches any other run.
    pub ignore_whitespace: bool,
    /// `-E`, `--remove-empty-files`: remove files that end up empty.
    pub remove_empty: bool,
    /// `--binary`: keep CR LF line ends of the patch.
    pub binary: bool,
    /// `-N`, `--forward`: refuse a patch that creates an existing file or deletes a missing one.
    pub forward: bool,
    /// `-u`, `-c`, `-n`: the format of the patch's first diff.
    pub form: Option<DiffForm>,
}

/// All options of one patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PatchOptions {
    pub strip: usize,
    pub reverse: bool,
    pub flags: Flags,
}

#[derive(Clone, Copy)]
enum OptionEffect {
    Strip,
    Reverse,
    Fuzz,
    Whitespace,
    Empty,
    Binary,
    Forward,
    Form(DiffForm),
    /// The option does not change the tree.
    Ignored,
    Refused(&'static str),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Argument {
    No,
    Yes,
    /// Only after `=`.
    Optional,
}

use Argument::{No, Optional, Yes};
use OptionEffect::{Ignored, Refused};

const FOLDER_HINT: &str = "write the folder into the patch's paths";
const UNIFIED_HINT: &str = "write the patch as a unified diff";
const REFRESH_HINT: &str = "refresh the patch so that it applies";
const TREE_ONLY_HINT: &str = "a series changes the tree, and nothing else";

/// The options of GNU patch 2.7: short name (0: none), long name, argument and effect.
const KNOWN: &[(u8, &str, Argument, OptionEffect)] = &[
    (b'b', "backup", No, Ignored),
    (b'B', "prefix", Yes, Ignored),
    (b'c', "context", No, OptionEffect::Form(DiffForm::Context)),
    (b'd', "directory", Yes, Refused(FOLDER_HINT)),
    (b'D', "ifdef", Yes, Refused(REFRESH_HINT)),
    (b'e', "ed", No, Refused(UNIFIED_HINT)),
    (b'E', "remove-empty-files", No, OptionEffect::Empty),
    (b'f', "force", No, Ignored),
    (b'F', "fuzz", Yes, OptionEffect::Fuzz),
    (b'g', "get", Yes, Refused(TREE_ONLY_HINT)),
    (b'i', "input", Yes, Refused(TREE_ONLY_HINT)),
    (b'l', "ignore-whitespace", No, OptionEffect::Whitespace),
    (b'm', "merge", Optional, Refused(REFRESH_HINT)),
    (b'n', "normal", No, OptionEffect::Form(DiffForm::Normal)),
    (b'N', "forward", No, OptionEffect::Forward),
    (b'o', "output", Yes, Refused(TREE_ONLY_HINT)),
    (b'p', "strip", Yes, OptionEffect::Strip),
    (b'r', "reject-file", Yes, Ignored),
    (b'R', "reverse", No, OptionEffect::Reverse),
    (b's', "quiet", No, Ignored),
    (0, "silent", No, Ignored),
    (b't', "batch", No, Ignored),
    (b'T', "set-time", No, Ignored),
    (b'u', "unified", No, OptionEffect::Form(DiffForm::Unified)),
    (b'v', "version", No, Refused(TREE_ONLY_HINT)),
    (b'V', "version-control", Yes, Ignored),
    (b'Y', "basename-prefix", Yes, Ignored),
    (b'z', "suffix", Yes, Ignored),
    (b'Z', "set-utc", No, Ignored),
    (0, "dry-run", No, Refused(TREE_ONLY_HINT)),
    (0, "verbose", No, Ignored),
    (0, "binary", No, OptionEffect::Binary),
    (0, "help", No, Refused(TREE_ONLY_HINT)),
    (0, "backup-if-mismatch", No, Ignored),
    (0, "no-backup-if-mismatch", No, Ignored),
    (0, "posix", No, Refused(UNIFIED_HINT)),
    (0, "quoting-style", Yes, Ignored),
    (0, "reject-format", Yes, Ignored),
    (0, "read-only", Yes, Ignored),
    (
        0,
        "follow-symlinks",
        No,
        Refused("name the file that the link leads to"),
    ),
];

/// Parses the words after a patch's name.
pub(super) fn parse(words: &[&str]) -> Result<PatchOptions> {
    let mut options = PatchOptions {
        strip: 1,
        reverse: false,
        flags: Flags::default(),
    };
    let mut remaining = words.iter().copied();
    while let Some(word) = remaining.next() {
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (long, None),
            };
            let (argument, effect) = long_option(name, word)?;
            let value = match (argument, value) {
                (No, Some(_)) => {
                    return Err(Error::patch_options(format!("`--{name}` takes no value")));
                }
                (Yes, None) => remaining.next(),
                (_, value) => value,
            };
            options.set(word, argument, effect, value)?;
            continue;
        }
        let Some(letters) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) else {
            return Err(Error::patch_options(format!(
                "`{word}` is neither an option nor a comment"
            ))
            .hint("names of patches cannot contain blanks; comments begin with `#`"));
        };
        for (at, letter) in letters.char_indices() {
            let known = KNOWN
                .iter()
                .find(|known| known.0 != 0 && char::from(known.0) == letter);
            let Some(&(_, _, argument, effect)) = known else {
                return Err(unknown(word));
            };
            if argument != Yes {
                options.set(word, argument, effect, None)?;
                continue;
            }
            let rest = &letters[at + letter.len_utf8()..];
            let value = if rest.is_empty() {
                remaining.next()
            } else {
                Some(rest)
            };
            options.set(word, argument, effect, value)?;
            break;
        }
    }
    // Quilt appends -p1 unless a word begins with -p.
    if options.strip != 1 && !words.iter().any(|word| word.starts_with("-p")) {
        return Err(Error::patch_options(format!(
            "quilt strips one component here, not {}",
            options.strip
        ))
        .hint(format!(
            "write it as a word of its own: `-p{}`",
            options.strip
        )));
    }
    Ok(options)
}

fn unknown(word: &str) -> Error {
    Error::patch_options(format!("unknown option `{word}`")).hint(
        "supported are patch's options that change the tree: -pN, -R, -F N, -l, -E, -N, -c, -n, -u, --binary",
    )
}

/// Finds a long option, which may be abbreviated as long as it is unambiguous.
fn long_option(name: &str, word: &str) -> Result<(Argument, OptionEffect)> {
    let exact = KNOWN.iter().find(|known| known.1 == name);
    let mut begins = KNOWN.iter().filter(|known| known.1.starts_with(name));
    let found = match (exact, begins.next(), begins.next()) {
        (Some(exact), ..) => exact,
        (None, Some(only), None) if !name.is_empty() => only,
        _ => return Err(unknown(word)),
    };
    Ok((found.2, found.3))
}

impl PatchOptions {
    fn set(
        &mut self,
        word: &str,
        argument: Argument,
        effect: OptionEffect,
        value: Option<&str>,
    ) -> Result<()> {
        if argument == Yes && value.is_none() {
            return Err(Error::patch_options(format!("`{word}` needs a value")));
        }
        let number = |hint: &str| {
            value
                .map(|value| value.strip_prefix('+').unwrap_or(value))
                .filter(|value| value.bytes().all(|b| b.is_ascii_digit()))
                .and_then(|value| value.parse::<i32>().ok())
                .and_then(|value| usize::try_from(value).ok())
                .ok_or_else(|| {
                    Error::patch_options(format!("`{word}` needs a number")).hint(hint.to_owned())
                })
        };
        match effect {
            OptionEffect::Strip => {
                self.strip = number(
                    "-p0 keeps the paths as they are, -p1 (the default) strips `a/`; quilt's -pab is for writing patches, not for applying them",
                )?;
            }
            OptionEffect::Fuzz => {
                self.flags.fuzz = Some(number("-F1 ignores one line of context")?)
            }
            OptionEffect::Reverse => self.reverse = true,
            OptionEffect::Whitespace => self.flags.ignore_whitespace = true,
            OptionEffect::Empty => self.flags.remove_empty = true,
            OptionEffect::Binary => self.flags.binary = true,
            OptionEffect::Forward => self.flags.forward = true,
            OptionEffect::Form(form) => self.flags.form = Some(form),
            Ignored => {}
            Refused(hint) => {
                return Err(Error::patch_options(format!(
                    "patch's option `{word}` is not supported"
                ))
                .hint(hint));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<PatchOptions> {
        let words: Vec<&str> = text.split_whitespace().collect();
        parse(&words)
    }

    #[test]
    fn options_that_matter() {
        let options = read("-p0 -R -F2 -l -E --binary -N -u").unwrap();
        assert_eq!((options.strip, options.reverse), (0, true));
        assert_eq!(
            options.flags,
            Flags {
                fuzz: Some(2),
                ignore_whitespace: true,
                remove_empty: true,
                binary: true,
                forward: true,
                form: Some(DiffForm::Unified),
            }
        );
        assert_eq!(read("-p 2").unwrap().strip, 2);
        assert_eq!(read("-p2 --strip=3").unwrap().strip, 3);
        assert_eq!(read("--fuzz 1").unwrap().flags.fuzz, Some(1));
        assert!(read("-RlF1").unwrap().flags.ignore_whitespace);
        assert!(read("--rev --ignore").unwrap().reverse);
    }

    #[test]
    fn options_without_effect() {
        for text in ["", "-f -s -b", "--verbose -z .orig", "-V simple --strip=1"] {
            assert_eq!(read(text).unwrap(), read("").unwrap(), "{text}");
        }
    }

    #[test]
    fn faults() {
        for (text, message) in [
            ("-pab", "`-pab` needs a number"),
            ("-p", "`-p` needs a value"),
            ("-p-1", "needs a number"),
            ("-p99999999999999999999", "needs a number"),
            ("--strip=0", "quilt strips one component here, not 0"),
            ("-Rp0", "quilt strips one component here, not 0"),
            ("--merge", "`--merge` is not supported"),
            ("-d sub", "`-d` is not supported"),
            ("-q", "unknown option `-q`"),
            ("--re", "unknown option `--re`"),
            ("--", "unknown option `--`"),
            ("--reverse=1", "takes no value"),
            ("other.patch", "neither an option nor a comment"),
            ("-", "neither an option nor a comment"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.to_string().contains(message), "{text}: {error}");
        }
    }
}
