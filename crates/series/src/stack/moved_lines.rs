//! Recognises patches of C and C++ files that change comments and white space alone, and so nothing but the numbers of lines.

use std::collections::BTreeSet;

/// The endings of file names whose comments are those of C++.
const ENDINGS: &[&str] = &[
    "c", "cc", "cpp", "cxx", "c++", "h", "hh", "hpp", "hxx", "h++", "inl", "ipp", "tcc", "ic",
];

/// The lines on which code was and is, where these differ: old and new number, from 1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MovedLines(BTreeSet<(u32, u32)>);

impl MovedLines {
    /// Returns whether any code of line `old` is now on line `new`.
    pub fn has(&self, old: u32, new: u32) -> bool {
        self.0.contains(&(old, new))
    }

    /// Returns whether no code is on another line.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the lines that move between two contents of the file `path`. Returns `false` if anything but comments and white
    /// space differs, or if it is not a file of C or C++.
    pub fn add(&mut self, path: &[u8], old: &[u8], new: &[u8]) -> bool {
        let ending = path.rsplit(|byte| *byte == b'.').next();
        let is_known = |ending: &[u8]| ENDINGS.iter().any(|known| known.as_bytes() == ending);
        if !ending.is_some_and(is_known) {
            return false;
        }
        let (mut before, mut after) = (Lexer::new(old), Lexer::new(new));
        loop {
            match (before.next(), after.next()) {
                (None, None) => return true,
                (Some(one), Some(other)) if one.text == other.text => {
                    if one.line != other.line {
                        self.0.insert((one.line, other.line));
                    }
                }
                _ => return false,
            }
        }
    }
}

/// A preprocessing token, or a blank or end of line that matters to the preprocessor.
struct Token<'t> {
    text: &'t [u8],
    line: u32,
}

/// Splits C and C++ into tokens. Neighbouring punctuation characters are one token: what separates them may matter.
struct Lexer<'t> {
    text: &'t [u8],
    at: usize,
    line: u32,
    /// Whether the line is a directive, in which blanks and the end count.
    directive: bool,
    /// Whether nothing but blanks was on this line so far.
    at_start: bool,
}

impl<'t> Lexer<'t> {
    fn new(text: &'t [u8]) -> Self {
        Lexer {
            text,
            at: 0,
            line: 1,
            directive: false,
            at_start: true,
        }
    }

    fn rest(&self) -> &'t [u8] {
        &self.text[self.at..]
    }

    /// Moves on by `length` bytes.
    fn skip(&mut self, length: usize) {
        let end = (self.at + length).min(self.text.len());
        let lines = self.text[self.at..end]
            .iter()
            .filter(|byte| **byte == b'\n');
        self.line += u32::try_from(lines.count()).unwrap_or(0);
        self.at = end;
    }

    /// Skips blanks, comments and continued lines; returns whether there were any. Stops at the end of a directive.
    fn skip_blanks(&mut self) -> bool {
        let start = self.at;
        loop {
            let rest = self.rest();
            match rest {
                [b'\n', ..] if self.directive => break,
                [b'\n', ..] => {
                    self.at_start = true;
                    self.skip(1);
                }
                [b' ' | b'\t' | b'\r' | 0x0b | 0x0c, ..] => self.skip(1),
                [b'\\', b'\n', ..] => self.skip(2),
                [b'\\', b'\r', b'\n', ..] => self.skip(3),
                [b'/', b'*', inner @ ..] => {
                    let end = inner.windows(2).position(|two| two == b"*/");
                    self.skip(end.map_or(rest.len(), |end| end + 4));
                }
                [b'/', b'/', ..] => {
                    // A backslash at the end continues the comment on the next line.
                    let mut end = 2;
                    while end < rest.len() && (rest[end] != b'\n' || rest[..end].ends_with(b"\\")) {
                        end += 1;
                    }
                    self.skip(end);
                }
                _ => break,
            }
        }
        self.at > start
    }

    /// Returns the length of the token that begins here.
    fn token_length(&self) -> usize {
        let rest = self.rest();
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80;
        if rest[0] == b'"' || rest[0] == b'\'' {
            return quoted(rest);
        }
        if is_word(&rest[0]) {
            let is_number = rest[0].is_ascii_digit();
            let length = rest
                .iter()
                // `1'000'000`, `0x1.8p3`.
                .take_while(|byte| is_word(byte) || is_number && matches!(byte, b'\'' | b'.'))
                .count();
            let is_raw = rest[..length].ends_with(b"R") && rest.get(length) == Some(&b'"');
            return if is_raw {
                length + raw_string(&rest[length..])
            } else {
                length
            };
        }
        let ends = |at: &usize| {
            let here = &rest[*at..];
            let byte = here[0];
            is_word(&byte)
                || byte.is_ascii_whitespace()
                || byte == b'"'
                || byte == b'\''
                || byte == b'\\'
                || here.starts_with(b"//")
                || here.starts_with(b"/*")
        };
        (1..rest.len()).find(ends).unwrap_or(rest.len())
    }
}

/// Returns the length of the string or character that `text` begins with; to the end of its line if it is not closed.
fn quoted(text: &[u8]) -> usize {
    let mut at = 1;
    while at < text.len() {
        match text[at] {
            b'\\' => at += 2,
            b'\n' => return at,
            byte if byte == text[0] => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// Returns the length of the raw string whose quote `text` begins with: `"end( … )end"`.
fn raw_string(text: &[u8]) -> usize {
    let Some(open) = text.iter().position(|byte| *byte == b'(') else {
        return text.len();
    };
    let end = [b")", &text[1..open], b"\""].concat();
    let found = text.windows(end.len()).position(|part| part == end);
    found.map_or(text.len(), |at| at + end.len())
}

impl<'t> Iterator for Lexer<'t> {
    type Item = Token<'t>;

    fn next(&mut self) -> Option<Token<'t>> {
        let blank = self.skip_blanks();
        let rest = self.rest();
        let line = self.line;
        if rest.is_empty() {
            return None;
        }
        if self.directive && rest[0] == b'\n' {
            self.directive = false;
            // Blanks before the end do not count.
            return Some(Token { text: b"\n", line });
        }
        if self.directive && blank {
            // The token that follows comes next, without a blank.
            return Some(Token { text: b" ", line });
        }
        if self.at_start && rest[0] == b'#' {
            self.directive = true;
        }
        self.at_start = false;
        let length = self.token_length();
        self.skip(length);
        Some(Token {
            text: &rest[..length.min(rest.len())],
            line,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(old: &str, new: &str) -> Option<MovedLines> {
        let mut moved = MovedLines::default();
        moved
            .add(b"a.c", old.as_bytes(), new.as_bytes())
            .then_some(moved)
    }

    #[test]
    fn comments_and_white_space_move_code_and_change_none() {
        let old = "int a;\n\nint b; // b\n#define A(x) #x\nchar *s = \"/* no */\";\n";
        for new in [
            old,
            "/* a\n * long\n */\nint a;\nint b;\n#define A(x) #x\nchar *s = \"/* no */\";",
            "int /* of \\ a */ a;\nint\n  b; // \" '\n#define A(x) \\\n  #x\nchar *s = // continued \\\n no code\n\"/* no */\";\n",
            "int a;\r\n\r\nint b;\r\n#define A(x) #x // c\r\nchar *s = \"/* no */\";\r\n",
        ] {
            assert!(moved(old, new).is_some(), "{new}");
        }
        let lines = moved(
            old,
            "// a line\nint a;\n\nint b;\n#define A(x) #x\nchar *s = \"/* no */\";\n",
        );
        let lines = lines.unwrap();
        assert!(lines.has(1, 2) && lines.has(5, 6) && !lines.has(2, 3) && !lines.has(1, 3));
        assert!(moved(old, old).unwrap().is_empty());
    }

    #[test]
    fn everything_else_is_code() {
        for (old, new) in [
            ("int a;", "int b;"),
            ("int a;", "int a; int b;"),
            ("int a;", ""),
            ("a + + b", "a ++ b"),
            ("ab", "a b"),
            ("\"a b\"", "\"a  b\""),
            ("\"a /* b */\"", "\"a \""),
            ("'\"' // a\n", "'\"' a\n"),
            ("R\"x(a // b)x\"", "R\"x(a )x\""),
            ("#define F(x) x", "#define F (x) x"),
            ("#define A 1\nb", "#define A 1 b"),
            ("#if A\nb\n#endif", "#if A b\n#endif"),
            ("// a \\\nb\nc", "// a\nb\nc"),
            ("x = 1'000'000;", "x = 1'000; //'000;"),
            ("a /* b */ c", "a b c"),
        ] {
            assert_eq!(moved(old, new), None, "{old} → {new}");
            assert_eq!(moved(new, old), None, "{new} → {old}");
        }
        let mut lines = MovedLines::default();
        assert!(!lines.add(b"Makefile", b"# a", b"# b"));
        assert!(!lines.add(b"a.py", b"a", b"a"));
    }

    proptest::proptest! {
        #[test]
        fn every_text_ends(old in "[ab\\\\/*\"'R(\\n# 1.]{0,40}", new in "[ab\\\\/*\"'R(\\n# 1.]{0,40}") {
            proptest::prop_assert!(moved(&old, &old).is_some_and(|lines| lines.is_empty()));
            let _ = moved(&old, &new);
        }
    }
}
