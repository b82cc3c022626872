//! Lines without white space, which is no difference where a rebase looks for a patch's lines.

/// Returns lines without any white space but their ends.
pub fn without_blanks(lines: &[&[u8]]) -> Vec<u8> {
    let mut text = Vec::new();
    for line in lines {
        text.extend(squeezed(&[line]));
        text.push(b'\n');
    }
    text
}

/// Returns lines as one text without white space.
pub fn squeezed(lines: &[&[u8]]) -> Vec<u8> {
    let mut text = lines.concat();
    text.retain(|byte| !byte.is_ascii_whitespace());
    text
}

/// Lines as one text without white space.
pub struct SqueezedLines {
    text: Vec<u8>,
    /// Where each line begins, and the end of the text.
    borders: Vec<usize>,
}

impl SqueezedLines {
    pub fn new(lines: &[&[u8]]) -> Self {
        let mut found = SqueezedLines {
            text: Vec::new(),
            borders: vec![0],
        };
        for line in lines {
            let visible = line.iter().filter(|byte| !byte.is_ascii_whitespace());
            found.text.extend(visible);
            found.borders.push(found.text.len());
        }
        found
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
        let end = wanted.len();
        let found = memchr::memmem::find_iter(&self.text, wanted).collect::<Vec<usize>>();
        found.into_iter().filter_map(move |at| {
            self.borders.binary_search(&(at + end)).ok()?;
            // Blank lines before it have the same border.
            let lines = self.borders.partition_point(|&border| border <= at);
            (self.borders.get(lines.wrapping_sub(1)) == Some(&at)).then_some(lines - 1)
        })
    }
}

/// Returns the number of letters and digits.
pub fn distinctive(text: &[u8]) -> usize {
    text.iter().filter(|b| b.is_ascii_alphanumeric()).count()
}

/// Returns how often `wanted` occurs.
pub fn count(text: &[u8], wanted: &[u8]) -> usize {
    memchr::memmem::find_iter(text, wanted).count()
}
