//! Lines without the white space that is no difference where a rebase looks for a patch's lines: all but one blank between
//! two words or the halves of an operator, and that in strings.

/// Minimum number of letters and digits of a line that is known again.
pub const MIN_LINE: usize = 4;

/// Returns lines without this white space, each with its end.
pub fn without_blanks(lines: &[&[u8]]) -> Vec<u8> {
    let mut text = Vec::new();
    for line in lines {
        text.extend(squeezed(&[line]));
        text.push(b'\n');
    }
    text
}

/// Returns lines as one text without this white space.
pub fn squeezed(lines: &[&[u8]]) -> Vec<u8> {
    let mut text = Vec::new();
    lines.iter().for_each(|line| add(&mut text, line));
    text
}

/// Adds a line to a squeezed text.
fn add(text: &mut Vec<u8>, line: &[u8]) {
    let mut is_blank = true;
    // The end of the string that begins last.
    let mut quoted = 0;
    for (at, &byte) in line.iter().enumerate() {
        if at >= quoted && byte.is_ascii_whitespace() {
            is_blank = true;
            continue;
        }
        if is_blank && text.last().is_some_and(|&last| is_parted(last, byte)) {
            text.push(b' ');
        }
        is_blank = false;
        if at >= quoted && byte == b'"' {
            quoted = string_end(line, at);
        }
        text.push(byte);
    }
}

/// Returns whether two bytes with a blank between them are others than without.
fn is_parted(one: u8, other: u8) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
    is_word(one) && is_word(other) || one == other && b"+-&|/=<".contains(&one)
}

/// Returns the offset after the string that begins at `at`, which is there if it does not end.
fn string_end(line: &[u8], at: usize) -> usize {
    let mut is_escaped = false;
    for (end, byte) in line.iter().enumerate().skip(at + 1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return end + 1,
            _ => {}
        }
    }
    at
}

/// Lines as one text without this white space.
pub struct SqueezedLines {
    text: Vec<u8>,
    /// Where each line begins.
    starts: Vec<usize>,
    /// Where each line ends.
    ends: Vec<usize>,
}

impl SqueezedLines {
    pub fn new(lines: &[&[u8]]) -> Self {
        let (mut text, mut starts, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        for line in lines {
            let before = text.len();
            add(&mut text, line);
            // A blank before the line belongs to none.
            let blank = text.get(before) == Some(&b' ');
            starts.push(before + usize::from(blank));
            ends.push(text.len());
        }
        SqueezedLines { text, starts, ends }
    }

    /// Returns how often the text contains `wanted`.
    pub fn count(&self, wanted: &[u8]) -> usize {
        count(&self.text, wanted)
    }

    /// Returns how often `wanted` is one line or several whole ones.
    pub fn count_whole(&self, wanted: &[u8]) -> usize {
        self.places_of_whole(wanted).count()
    }

    /// Returns the lines, from 0, where `wanted` begins as one line or several whole ones.
    pub fn places_of_whole(&self, wanted: &[u8]) -> impl Iterator<Item = usize> {
        let length = wanted.len();
        let found = memchr::memmem::find_iter(&self.text, wanted).collect::<Vec<usize>>();
        found.into_iter().filter_map(move |at| {
            self.ends.binary_search(&(at + length)).ok()?;
            // Blank lines before it begin there, too.
            let line = self
                .starts
                .partition_point(|&start| start <= at)
                .checked_sub(1)?;
            (self.starts[line] == at).then_some(line)
        })
    }
}

/// Returns the blanks before the text of a line.
pub fn indent(line: &[u8]) -> &[u8] {
    let blanks = line.iter().take_while(|b| matches!(b, b' ' | b'\t'));
    &line[..blanks.count()]
}

/// Returns the number of letters and digits.
pub fn distinctive(text: &[u8]) -> usize {
    text.iter().filter(|b| b.is_ascii_alphanumeric()).count()
}

/// Returns how often `wanted` occurs.
pub fn count(text: &[u8], wanted: &[u8]) -> usize {
    memchr::memmem::find_iter(text, wanted).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_with_a_meaning_stays() {
        let same =
            |one: &str, other: &str| squeezed(&[one.as_bytes()]) == squeezed(&[other.as_bytes()]);
        assert!(same("  f( a,\tb ) ;\r\n", "f(a, b);\n"));
        assert!(same("unsigned  long x", "unsigned long x"));
        assert!(same("x = -1;", "x=-1;"));
        assert!(!same("unsigned long", "unsignedlong"));
        assert!(!same("a - -b", "a --b"));
        assert!(!same("f(\"a: %d\");", "f(\"a:%d\");"));
        assert!(same("f( \"a \\\" b\" )", "f(\"a \\\" b\")"));
        // One quotation mark is none.
        assert!(same("5\" ( x )", "5\"(x)"));
    }

    #[test]
    fn words_at_the_ends_of_lines_stay_apart() {
        let lines: [&[u8]; 4] = [b"static int\n", b"\n", b"foo(void)\n", b"int\n"];
        let found = SqueezedLines::new(&lines);
        assert_eq!(found.count_whole(b"static int"), 1);
        assert_eq!(found.places_of_whole(b"foo(void)").collect::<Vec<_>>(), [2]);
        assert_eq!(found.count_whole(b"static int foo(void)"), 1);
        assert_eq!(found.count_whole(b"int"), 1);
    }
}
