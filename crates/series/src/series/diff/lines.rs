//! Reading a patch file line by line, like GNU patch inside and outside of hunks.

use crate::series::text::lines;

/// The decoration of a diff's lines, detected from its headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LineFormat {
    /// Columns of indentation before every line.
    pub indent: usize,
    /// Number of `- ` prefixes on lines that begin with a dash (RFC 934).
    pub nesting: usize,
    /// Whether the lines end in CR LF.
    pub carriage_return: bool,
}

/// The lines of a patch file with a read position.
pub(super) struct PatchLines<'a> {
    raw: Vec<&'a [u8]>,
    /// Index of the next line.
    pub at: usize,
}

impl<'a> PatchLines<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        PatchLines {
            raw: lines(bytes),
            at: 0,
        }
    }

    /// Returns every line with its end.
    pub fn raw(&self) -> &[&'a [u8]] {
        &self.raw
    }

    /// Returns whether the file's last line lacks its end. GNU patch ignores such a line.
    pub fn is_truncated(&self) -> bool {
        self.raw.last().is_some_and(|line| !line.ends_with(b"\n"))
    }

    /// Returns the line at `index` without its end; `None` after the last complete line.
    pub fn whole(&self, index: usize) -> Option<&'a [u8]> {
        self.raw.get(index)?.strip_suffix(b"\n")
    }

    /// Returns the next line of a hunk without decoration and line end; skips comments, which begin with `#`.
    pub fn next(&mut self, line_format: &LineFormat) -> Option<&'a [u8]> {
        loop {
            let line = strip_format(self.whole(self.at)?, line_format);
            self.at += 1;
            if line.first() != Some(&b'#') {
                return Some(line);
            }
        }
    }

    /// Returns the next line like [`PatchLines::next`] if it `is` one that is looked for.
    pub fn next_if(
        &mut self,
        line_format: &LineFormat,
        is: impl Fn(&[u8]) -> bool,
    ) -> Option<&'a [u8]> {
        let before = self.at;
        let line = self.next(line_format).filter(|line| is(line));
        if line.is_none() {
            self.at = before;
        }
        line
    }

    /// Skips a following `\ No newline at end of file`; returns whether there was one.
    pub fn incomplete(&mut self) -> bool {
        let found = self
            .raw
            .get(self.at)
            .is_some_and(|line| line.first() == Some(&b'\\'));
        if found {
            self.at += 1;
        }
        found
    }
}

fn strip_format<'a>(line: &'a [u8], line_format: &LineFormat) -> &'a [u8] {
    let mut line = line;
    let mut column = 0;
    while column < line_format.indent {
        match line.first() {
            Some(b' ' | b'X') => column += 1,
            Some(b'\t') => column = (column + 8) & !7,
            _ => break,
        }
        line = &line[1..];
    }
    for _ in 0..line_format.nesting {
        match line.strip_prefix(b"- ") {
            Some(rest) => line = rest,
            None => break,
        }
    }
    if line_format.carriage_return {
        line = line.strip_suffix(b"\r").unwrap_or(line);
    }
    line
}

/// Returns a line without its indentation, and the indentation's width in columns.
pub(super) fn unindent(line: &[u8]) -> (&[u8], usize) {
    let mut column = 0;
    for (index, byte) in line.iter().enumerate() {
        match byte {
            b' ' | b'X' => column += 1,
            b'\t' => column = (column + 8) & !7,
            _ => return (&line[index..], column),
        }
    }
    (&[], column)
}
