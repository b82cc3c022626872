//! The functions of a text, by the rule of git's hunk headers.

/// Maximum length of a function's line in reports, in characters.
const MAX_LENGTH: usize = 60;

/// Returns the line that begins the function, table or type around line `at` (from 0), shortened. Like git, it takes
/// lines that begin with a letter in the first column; labels and declarations are none.
pub fn function_at(lines: &[&[u8]], at: usize) -> Option<String> {
    let before = &lines[..lines.len().min(at + 1)];
    let begin = before.iter().rposition(|line| is_begin(line))?;
    let text = String::from_utf8_lossy(lines[begin]);
    Some(text.trim_end().chars().take(MAX_LENGTH).collect())
}

/// Returns the lines of the function around line `at`, from its first one to the one before the next function.
pub fn function_lines<'l, 'a>(lines: &'l [&'a [u8]], at: usize) -> &'l [&'a [u8]] {
    let before = &lines[..lines.len().min(at + 1)];
    let begin = before.iter().rposition(|line| is_begin(line)).unwrap_or(0);
    let after = lines.iter().skip(begin + 1).position(|line| is_begin(line));
    &lines[begin..after.map_or(lines.len(), |next| begin + 1 + next)]
}

/// Returns the lines where functions called `name` begin, from 0.
pub fn functions_called(lines: &[&[u8]], name: &str) -> Vec<usize> {
    let is_called =
        |line: &[u8]| is_begin(line) && self::name(&String::from_utf8_lossy(line)) == name;
    let found = lines.iter().enumerate().filter(|(_, line)| is_called(line));
    found.map(|(at, _)| at).collect()
}

/// Returns the name in a line that begins a function: the word before the first parenthesis, or else the line.
pub fn name(line: &str) -> &str {
    let head = line
        .split_once('(')
        .map_or(line, |(head, _)| head)
        .trim_end();
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '~' | '$');
    let word = head.rsplit(|c| !is_word(c)).next().unwrap_or(head);
    if line.contains('(') && !word.is_empty() {
        word
    } else {
        line.trim_end()
    }
}

fn is_begin(line: &[u8]) -> bool {
    let line = line.trim_ascii_end();
    let first = line.first();
    let letter = first.is_some_and(|b| b.is_ascii_alphabetic() || matches!(b, b'_' | b'$'));
    let shape = line.contains(&b'(') || line.ends_with(b"{");
    letter && shape && !line.ends_with(b";") && !line.ends_with(b":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::line_runs::lines;

    #[test]
    fn lines_belong_to_the_function_before_them() {
        let text = "#include <x>\nint declared(void);\nstatic int\nalpha(int x)\n{\nout:\n  a();\n}\nconst struct row table[] = {\n  1,\n};\n";
        let lines = lines(text.as_bytes());
        let at = |line: usize| function_at(&lines, line);
        assert_eq!(at(1), None);
        assert_eq!(at(6).as_deref(), Some("alpha(int x)"));
        assert_eq!(at(9).as_deref(), Some("const struct row table[] = {"));
        assert_eq!(name("static int alpha(int x)"), "alpha");
        assert_eq!(name("Item *Foo::bar (x)"), "Foo::bar");
        assert_eq!(name("struct x {"), "struct x {");
        assert_eq!(functions_called(&lines, "alpha"), [3]);
        assert_eq!(function_lines(&lines, 6).len(), 5);
    }
}
