//! Whether upstream's lines with a patch's change do what the patch does: not if upstream put them into a comment, a
//! condition or a block of its own, or behind the end of one.

use std::cell::OnceCell;

use super::squeezed::{MIN_LINE, SqueezedLines, distinctive, indent, squeezed, without_blanks};
use crate::histogram::histogram_runs;
use crate::line_runs::LineRun;
use perfquilt_model::error::Result;
use perfquilt_series::series::text::lines as split;

/// Lines of a patched text, and those of the release that correspond to them.
pub struct PatchedPlace<'p, 'a> {
    patched: &'p [&'a [u8]],
    released: &'p [&'a [u8]],
    text: SqueezedLines,
    /// Their differences, white space aside, on first use.
    runs: OnceCell<Vec<LineRun>>,
}

impl<'p, 'a> PatchedPlace<'p, 'a> {
    pub fn new(patched: &'p [&'a [u8]], released: &'p [&'a [u8]]) -> Self {
        PatchedPlace {
            patched,
            released,
            text: SqueezedLines::new(released),
            runs: OnceCell::new(),
        }
    }

    /// Returns the release's lines without white space.
    pub fn text(&self) -> &SqueezedLines {
        &self.text
    }

    /// Returns how often the release has the whole lines `wanted` (without white space) with nothing before them that
    /// upstream added and that they depend on.
    pub fn count(&self, wanted: &[u8]) -> Result<usize> {
        let mut count = 0;
        for at in self.text.places_of_whole(wanted) {
            count += usize::from(!self.is_guarded(at)?);
        }
        Ok(count)
    }

    fn is_guarded(&self, at: usize) -> Result<bool> {
        let mut next = at;
        let (mut added, mut removed) = (Vec::new(), Vec::new());
        let before = |run: &&LineRun| run.new_start < at;
        for run in self.runs()?.iter().rev().filter(before) {
            let end = run.new_lines().end.min(next);
            let is_told = |line: &&[u8]| distinctive(line) >= MIN_LINE;
            if self.released[end..next].iter().any(is_told) {
                break;
            }
            added.splice(0..0, self.released[run.new_start..end].iter().copied());
            removed.splice(0..0, self.patched[run.old_lines()].iter().copied());
            next = run.new_start;
        }
        let is_code = self.released.iter().any(|line| {
            let end = line.trim_ascii_end().last();
            matches!(end, Some(b';' | b'{' | b'}'))
        });
        // What upstream put in the place of such lines of the patch's own text is as good.
        let may_lead = |lines: &[&[u8]]| {
            if is_code {
                !are_statements(lines)
            } else {
                let indentation = indent(self.released[at]).len();
                lines.iter().any(|line| leads(line, indentation))
            }
        };
        let above = self.released[..next].iter().rev();
        let above = above.map(|line| line.trim_ascii_end()).next();
        let end = above.and_then(|line| line.last());
        // The brace of a condition of the patch's own.
        let is_brace = squeezed(&added) == b"{"
            && removed.is_empty()
            && end.is_some_and(|end| !matches!(end, b';' | b'{' | b'}'));
        // The end of a block that upstream began further up.
        let all = self.runs()?.iter().filter(before).flat_map(|run| {
            let end = run.new_lines().end.min(at);
            &self.released[run.new_start..end]
        });
        let all: Vec<&[u8]> = all.copied().collect();
        let is_closed = is_code && are_statements(&all);
        Ok(may_lead(&added) && !may_lead(&removed) && !is_brace && !is_closed)
    }

    fn runs(&self) -> Result<&[LineRun]> {
        if let Some(runs) = self.runs.get() {
            return Ok(runs);
        }
        let [patched, released] = [self.patched, self.released].map(without_blanks);
        let runs = histogram_runs(&split(&patched), &split(&released))?;
        Ok(self.runs.get_or_init(|| runs))
    }
}

/// Returns whether lines of a language with braces are whole statements, declarations, comments and conditions of the
/// preprocessor, none of which leaves the block.
fn are_statements(lines: &[&[u8]]) -> bool {
    const LEAVE: [&str; 6] = ["return", "goto", "break", "continue", "throw", "exit"];
    let Some(text) = without_conditions(lines) else {
        return false;
    };
    let (mut depth, mut statement) = (0_usize, String::new());
    let mut rest = text.as_str();
    while let Some(c) = rest.chars().next() {
        let (token, after) = match literal(rest) {
            Some(Literal::Open) => return false,
            Some(Literal::Comment(length)) => ("", &rest[length..]),
            Some(Literal::Text(length)) => rest.split_at(length),
            None => rest.split_at(c.len_utf8()),
        };
        rest = after;
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => match depth.checked_sub(1) {
                Some(outer) => depth = outer,
                None => return false,
            },
            _ => {}
        }
        let ends = depth == 0 && matches!(token, ";" | "}");
        if !ends {
            statement.push_str(token);
            continue;
        }
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let first = statement.trim().split(|c| !is_name(c)).next();
        if first.is_some_and(|word| LEAVE.contains(&word)) {
            return false;
        }
        statement.clear();
    }
    depth == 0 && statement.trim().is_empty()
}

/// Returns the lines outside of the preprocessor's conditions as a text; `None` if one is still open after them.
fn without_conditions(lines: &[&[u8]]) -> Option<String> {
    let (mut depth, mut text) = (0_usize, String::new());
    for line in lines {
        let line = String::from_utf8_lossy(line);
        let directive = line.trim_start().strip_prefix('#').map(str::trim_start);
        match directive {
            Some(word) if word.starts_with("if") => depth += 1,
            Some(word) if word.starts_with("endif") => depth = depth.checked_sub(1)?,
            Some(word) if word.starts_with("el") && depth == 0 => return None,
            None if depth == 0 => text.push_str(&line),
            Some(_) | None => {}
        }
    }
    (depth == 0).then_some(text)
}

/// What a text may begin with, and its length in bytes.
enum Literal {
    Comment(usize),
    Text(usize),
    /// A comment without an end.
    Open,
}

fn literal(text: &str) -> Option<Literal> {
    if let Some(inner) = text.strip_prefix("/*") {
        let end = inner.find("*/");
        return Some(end.map_or(Literal::Open, |end| Literal::Comment(end + 4)));
    }
    if text.starts_with("//") {
        return Some(Literal::Comment(text.find('\n').unwrap_or(text.len())));
    }
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '\n' => break,
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if c == quote => return Some(Literal::Text(at + 1)),
            _ => {}
        }
    }
    None
}

/// Returns whether lines with this indentation may depend on a line before them, in a language without braces.
fn leads(line: &[u8], indentation: usize) -> bool {
    const WORDS: [&str; 17] = [
        "elif", "else", "elsif", "for", "while", "until", "case", "switch", "return", "raise",
        "break", "continue", "exit", "die", "goto", "def", "class",
    ];
    let text = String::from_utf8_lossy(line);
    let text = text.trim();
    let first = text.split(|c: char| !c.is_alphanumeric()).next();
    let first = first.unwrap_or_default();
    let is_comment = text.starts_with('#') && !text.starts_with("#if") && !text.starts_with("#el");
    if text.is_empty() || is_comment {
        return false;
    }
    indent(line).len() < indentation
        || first.starts_with("if")
        || WORDS.contains(&first)
        || text.starts_with(['[', '#', '%'])
        || text.ends_with([':', '(', '[', '{', ',', '\\', '|', '&'])
        || ["\"\"\"", "'''", "<<"]
            .iter()
            .any(|open| text.contains(open))
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_series::series::text::lines;

    /// Whether a release has `call` as a patch has it, which adds it behind `first`.
    fn has(text: &str, first: &str, call: &str) -> bool {
        let last = call.replace("prefetch", "last_of_all");
        let patched = format!("{first}{call}{last}");
        let text = format!("{text}{last}");
        let (patched, released) = (lines(patched.as_bytes()), lines(text.as_bytes()));
        let place = PatchedPlace::new(&patched, &released);
        place.count(&squeezed(&[call.as_bytes()])).unwrap() > 0
    }

    #[test]
    fn a_call_in_a_comment_a_condition_or_a_block_is_another_one() {
        let (first, call) = ("  first_of_all(x);\n", "  prefetch(x);\n");
        let with = |before: &str| has(&format!("{first}{before}{call}"), first, call);
        for plain in [
            "",
            "\n",
            "  other(x);\n",
            "  /* why\n   * so */\n",
            "  // if (x) {\n",
            "  if (!x)\n    other(\";{\", '(');\n",
            "  if (!x) {\n    return;\n  }\n",
            "#ifdef A\n  other(x);\n#else\n  if (x) {\n#endif\n",
        ] {
            assert!(with(plain), "{plain}");
        }
        for other in [
            "#if 0\n",
            "#ifdef FAST\n",
            "#else\n",
            "  /*\n",
            "  if (x)\n",
            "  if (x) {\n",
            "  slow(x);\n  } else {\n",
            "  }\n",
            "  for (;;) {\n",
            "  do {\n",
            "  {\n",
            "  switch (x) {\n  case 1:\n",
            "  UNLIKELY(\n",
            "  return 0;\n",
            "  goto out;\n",
        ] {
            assert!(!with(other), "{other}");
        }
        // A block that upstream began before another line of the patch's.
        assert!(has(
            &format!("  if (y) {{\n{first}  }}\n{call}"),
            first,
            call
        ));
        assert!(!has(&format!("{first}  }}\n{call}"), first, call));
        // The patch's own lines before the call.
        let first = "  if (check_permission(x))\n";
        assert!(has(&format!("{first}  {{\n{call}"), first, call));
        let first = "int f()\n{\n";
        assert!(has(&format!("{first}{call}"), first, call));
        assert!(!has(&format!("int f()\n{{\n  {{\n{call}"), first, call));
        let first = "  if (x) {\n";
        assert!(has(&format!("  if (x && y) {{\n{call}"), first, call));
        assert!(!has(
            &format!("  other(x);\n  {first}{first}{call}"),
            first,
            call
        ));
    }

    #[test]
    fn languages_without_braces_have_blocks_too() {
        let (first, call) = ("  first(x)\n", "  prefetch(x)\n");
        let with = |before: &str, call: &str| has(&format!("{first}{before}{call}"), first, call);
        assert!(with("  # if x:\n  other(x)\n", call));
        for other in [
            "  if x:\n",
            "  \"\"\"\n",
            "  return\n",
            "other:\n",
            "[section]\n",
        ] {
            assert!(!with(other, call), "{other}");
        }
    }
}
