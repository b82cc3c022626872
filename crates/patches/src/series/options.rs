//! The options behind a patch's name in `series`, which quilt hands to GNU patch.

use super::diff::Form;
use perfquilt_model::error::{Error, Result};

/// What a patch's options say beyond `-pN` and `-R`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// `-F`, `--fuzz`: how many lines of context may be ignored, whatever the workspace says.
    pub fuzz: Option<usize>,
    /// `-l`, `--ignore-whitespace`: runs of blanks match any other run.
    pub ignore_whitespace: bool,
    /// `-E`, `--remove-empty-files`: a file that ends up empty is removed.
    pub remove_empty: bool,
    /// `--binary`: CR LF in the patch is meant.
    pub binary: bool,
    /// `-N`, `--forward`: a patch that would create what is there, or delete what is not, is refused.
    pub forward: bool,
    /// `-u`, `-c`, `-n`: the form of the patch's first diff.
    pub form: Option<Form>,
}

/// All options of one patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Options {
    pub strip: usize,
    pub reverse: bool,
    pub flags: Flags,
}

#[derive(Clone, Copy)]
enum Means {
    Strip,
    Reverse,
    Fuzz,
    Whitespace,
    Empty,
    Binary,
    Forward,
    Form(Form),
    /// It does not change the tree.
    Nothing,
    Refused(&'static str),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Argument {
    No,
    Yes,
    /// Only behind `=`.
    Maybe,
}

use Argument::{Maybe, No, Yes};
use Means::{Nothing, Refused};

const FOLDER: &str = "write the folder into the patch's paths";
const PROGRAM: &str = "write the patch as a unified diff";
const REFRESH: &str = "refresh the patch so that it applies";
const TREE: &str = "a series changes the tree, and nothing else";

/// Patch's options, as its version 2.7 knows them.
const KNOWN: &[(u8, &str, Argument, Means)] = &[
    (b'b', "backup", No, Nothing),
    (b'B', "prefix", Yes, Nothing),
    (b'c', "context", No, Means::Form(Form::Context)),
    (b'd', "directory", Yes, Refused(FOLDER)),
    (b'D', "ifdef", Yes, Refused(REFRESH)),
    (b'e', "ed", No, Refused(PROGRAM)),
    (b'E', "remove-empty-files", No, Means::Empty),
    (b'f', "force", No, Nothing),
    (b'F', "fuzz", Yes, Means::Fuzz),
    (b'g', "get", Yes, Refused(TREE)),
    (b'i', "input", Yes, Refused(TREE)),
    (b'l', "ignore-whitespace", No, Means::Whitespace),
    (b'm', "merge", Maybe, Refused(REFRESH)),
    (b'n', "normal", No, Means::Form(Form::Normal)),
    (b'N', "forward", No, Means::Forward),
    (b'o', "output", Yes, Refused(TREE)),
    (b'p', "strip", Yes, Means::Strip),
    (b'r', "reject-file", Yes, Nothing),
    (b'R', "reverse", No, Means::Reverse),
    (b's', "quiet", No, Nothing),
    (0, "silent", No, Nothing),
    (b't', "batch", No, Nothing),
    (b'T', "set-time", No, Nothing),
    (b'u', "unified", No, Means::Form(Form::Unified)),
    (b'v', "version", No, Refused(TREE)),
    (b'V', "version-control", Yes, Nothing),
    (b'Y', "basename-prefix", Yes, Nothing),
    (b'z', "suffix", Yes, Nothing),
    (b'Z', "set-utc", No, Nothing),
    (0, "dry-run", No, Refused(TREE)),
    (0, "verbose", No, Nothing),
    (0, "binary", No, Means::Binary),
    (0, "help", No, Refused(TREE)),
    (0, "backup-if-mismatch", No, Nothing),
    (0, "no-backup-if-mismatch", No, Nothing),
    (0, "posix", No, Refused(PROGRAM)),
    (0, "quoting-style", Yes, Nothing),
    (0, "reject-format", Yes, Nothing),
    (0, "read-only", Yes, Nothing),
    (
        0,
        "follow-symlinks",
        No,
        Refused("name the file that the link leads to"),
    ),
];

/// Reads the words behind a patch's name.
pub(super) fn parse(words: &[&str]) -> Result<Options> {
    let mut options = Options {
        strip: 1,
        reverse: false,
        flags: Flags::default(),
    };
    let mut words_left = words.iter().copied();
    while let Some(word) = words_left.next() {
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (long, None),
            };
            let (argument, means) = long_option(name, word)?;
            let value = match (argument, value) {
                (No, Some(_)) => {
                    return Err(Error::series(format!("`--{name}` takes no value")));
                }
                (Yes, None) => words_left.next(),
                (_, value) => value,
            };
            options.take(word, argument, means, value)?;
            continue;
        }
        let Some(letters) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) else {
            return Err(
                Error::series(format!("`{word}` is neither an option nor a comment"))
                    .hint("names of patches cannot hold blanks; comments begin with `#`"),
            );
        };
        for (at, letter) in letters.char_indices() {
            let known = KNOWN
                .iter()
                .find(|known| known.0 != 0 && char::from(known.0) == letter);
            let Some(&(_, _, argument, means)) = known else {
                return Err(unknown(word));
            };
            if argument != Yes {
                options.take(word, argument, means, None)?;
                continue;
            }
            let rest = &letters[at + letter.len_utf8()..];
            let value = if rest.is_empty() {
                words_left.next()
            } else {
                Some(rest)
            };
            options.take(word, argument, means, value)?;
            break;
        }
    }
    // Quilt adds -p1 at the end unless a word begins with -p.
    if options.strip != 1 && !words.iter().any(|word| word.starts_with("-p")) {
        return Err(Error::series(format!(
            "quilt takes off one component here, not {}",
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
    Error::series(format!("unknown option `{word}`")).hint(
        "known are patch's options that change the tree: -pN, -R, -F N, -l, -E, -N, -c, -n, -u, --binary",
    )
}

/// Long options may be shortened as long as one only is meant.
fn long_option(name: &str, word: &str) -> Result<(Argument, Means)> {
    let exact = KNOWN.iter().find(|known| known.1 == name);
    let mut begins = KNOWN.iter().filter(|known| known.1.starts_with(name));
    let found = match (exact, begins.next(), begins.next()) {
        (Some(exact), ..) => exact,
        (None, Some(only), None) if !name.is_empty() => only,
        _ => return Err(unknown(word)),
    };
    Ok((found.2, found.3))
}

impl Options {
    fn take(
        &mut self,
        word: &str,
        argument: Argument,
        means: Means,
        value: Option<&str>,
    ) -> Result<()> {
        if argument == Yes && value.is_none() {
            return Err(Error::series(format!("`{word}` needs a value")));
        }
        let number = |hint: &str| {
            value
                .map(|value| value.strip_prefix('+').unwrap_or(value))
                .filter(|value| value.bytes().all(|b| b.is_ascii_digit()))
                .and_then(|value| value.parse::<i32>().ok())
                .and_then(|value| usize::try_from(value).ok())
                .ok_or_else(|| {
                    Error::series(format!("`{word}` needs a number")).hint(hint.to_owned())
                })
        };
        match means {
            Means::Strip => {
                self.strip = number(
                    "-p0 keeps the paths as they are, -p1 (the default) takes off `a/`; quilt's -pab is for writing patches, not for applying them",
                )?;
            }
            Means::Fuzz => self.flags.fuzz = Some(number("-F1 ignores one line of context")?),
            Means::Reverse => self.reverse = true,
            Means::Whitespace => self.flags.ignore_whitespace = true,
            Means::Empty => self.flags.remove_empty = true,
            Means::Binary => self.flags.binary = true,
            Means::Forward => self.flags.forward = true,
            Means::Form(form) => self.flags.form = Some(form),
            Nothing => {}
            Refused(hint) => {
                return Err(
                    Error::series(format!("patch's option `{word}` is not supported")).hint(hint),
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Options> {
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
                form: Some(Form::Unified),
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
            ("--strip=0", "quilt takes off one component here, not 0"),
            ("-Rp0", "quilt takes off one component here, not 0"),
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
