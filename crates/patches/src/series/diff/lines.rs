//! Reading a patch file line by line, as GNU patch does inside and outside of hunks.

/// How the lines of a diff are written, found out from its headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Dress {
    /// Columns of indentation before every line.
    pub indent: usize,
    /// How often `- ` was put before lines that begin with a dash (RFC 934).
    pub nesting: usize,
    /// Whether the lines end in CR LF.
    pub carriage_return: bool,
}

/// The lines of `bytes`, each with its end.
pub(super) fn split(bytes: &[u8]) -> Vec<&[u8]> {
    let mut begin = 0;
    let mut lines: Vec<&[u8]> = memchr::memchr_iter(b'\n', bytes)
        .map(|end| {
            let line = &bytes[begin..=end];
            begin = end + 1;
            line
        })
        .collect();
    lines.extend((begin < bytes.len()).then(|| &bytes[begin..]));
    lines
}

/// A patch file with a position in it.
pub(super) struct Lines<'a> {
    raw: Vec<&'a [u8]>,
    /// Index of the next line.
    pub at: usize,
}

impl<'a> Lines<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Lines {
            raw: split(bytes),
            at: 0,
        }
    }

    /// Every line with its end.
    pub fn raw(&self) -> &[&'a [u8]] {
        &self.raw
    }

    /// Whether the last line of all lacks its end. To patch it is not there.
    pub fn cut(&self) -> bool {
        self.raw.last().is_some_and(|line| !line.ends_with(b"\n"))
    }

    /// The line at `index` without its end; `None` behind the last whole line.
    pub fn whole(&self, index: usize) -> Option<&'a [u8]> {
        self.raw.get(index)?.strip_suffix(b"\n")
    }

    /// The next line of a hunk, undressed and without its end; lines that begin with `#` are comments.
    pub fn next(&mut self, dress: &Dress) -> Option<&'a [u8]> {
        loop {
            let line = undress(self.whole(self.at)?, dress);
            self.at += 1;
            if line.first() != Some(&b'#') {
                return Some(line);
            }
        }
    }

    /// Takes a following `\ No newline at end of file`.
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

fn undress<'a>(line: &'a [u8], dress: &Dress) -> &'a [u8] {
    let mut line = line;
    let mut column = 0;
    while column < dress.indent {
        match line.first() {
            Some(b' ' | b'X') => column += 1,
            Some(b'\t') => column = (column + 8) & !7,
            _ => break,
        }
        line = &line[1..];
    }
    for _ in 0..dress.nesting {
        match line.strip_prefix(b"- ") {
            Some(rest) => line = rest,
            None => break,
        }
    }
    if dress.carriage_return {
        line = line.strip_suffix(b"\r").unwrap_or(line);
    }
    line
}

/// A line without its indentation, and how wide that was.
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
