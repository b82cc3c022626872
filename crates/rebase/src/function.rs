//! The functions of a text, by the rules of git's hunk headers and of its drivers for single languages.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::ops::Range;

/// Maximum length of a function's line in reports, in characters.
const MAX_LENGTH: usize = 60;
/// Maximum number of lines from a `case` label to a line that belongs to it.
const MAX_CASE: usize = 400;
/// Maximum number of lines of a function's head.
const MAX_HEAD: usize = 8;
/// Between a function's line and a `case` label in it.
const LABEL: &str = " … ";
/// Width of a tab, in columns.
const TAB: usize = 8;

/// How functions begin in a language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    /// A line in the first column, in C and everything that looks like it.
    Plain,
    /// The same, and methods in the body of a class.
    Classes,
    /// A line that begins with one of the keywords, after any number of the modifiers.
    Keywords {
        keywords: &'static [&'static str],
        modifiers: &'static [&'static str],
    },
}

impl Language {
    fn of(path: &[u8]) -> Self {
        let name = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
        let end = name.iter().rposition(|&b| b == b'.').map_or(0, |at| at + 1);
        let (keywords, modifiers): (&[&str], &[&str]) = match &name[end..] {
            b"py" | b"pyi" | b"pyx" => (&["def", "class"], &["async", "cdef", "cpdef"]),
            b"rb" => (&["def", "class", "module"], &[]),
            b"go" => (&["func", "type"], &[]),
            b"pl" | b"pm" => (&["sub", "package"], &[]),
            b"rs" => (
                &["fn", "struct", "enum", "union", "mod", "trait", "impl"],
                &[
                    "pub", "crate", "super", "async", "const", "unsafe", "extern",
                ],
            ),
            b"cc" | b"cpp" | b"cxx" | b"C" | b"h" | b"hh" | b"hpp" | b"hxx" | b"ic" | b"inl"
            | b"java" | b"cs" => return Language::Classes,
            _ => return Language::Plain,
        };
        Language::Keywords {
            keywords,
            modifiers,
        }
    }
}

/// Returns whether the name of a file tells a language in which the indentation makes the blocks, or says what a line is.
pub fn has_indented_blocks(path: &[u8]) -> bool {
    const ENDINGS: [&str; 9] = [
        "Makefile", "coffee", "haml", "mk", "py", "pyi", "pyx", "yaml", "yml",
    ];
    let name = path.rsplit(|&b| b == b'/').next().unwrap_or_default();
    let ending = name.rsplit(|&b| b == b'.').next().unwrap_or_default();
    ENDINGS.iter().any(|known| known.as_bytes() == ending)
}

/// Returns whether the name of a file tells a language in which the amount of white space has no meaning.
pub fn has_free_white_space(path: &[u8]) -> bool {
    const ENDINGS: [&str; 35] = [
        "C", "c", "cc", "cpp", "cs", "css", "cxx", "def", "go", "h", "hh", "hpp", "hxx", "ic",
        "inl", "ipp", "java", "js", "json", "kt", "l", "ll", "m", "mm", "php", "pl", "pm", "proto",
        "rs", "scala", "sql", "swift", "tcc", "ts", "y",
    ];
    let ending = path.rsplit(|&b| b == b'.').next().unwrap_or_default();
    ENDINGS.iter().any(|known| known.as_bytes() == ending)
}

/// The functions, tables and types of a text.
pub struct Functions<'l, 'a> {
    /// The lines of the text.
    pub lines: &'l [&'a [u8]],
    language: Language,
    /// The lines that begin one, from 0.
    begins: Vec<usize>,
    /// The lines with a `case` or `default` label, from 0.
    labels: Vec<usize>,
    /// The lines that begin the functions of a name.
    names: OnceCell<HashMap<String, Vec<usize>>>,
}

impl<'l, 'a> Functions<'l, 'a> {
    /// Finds the functions of the file at `path`, whose name tells the language.
    pub fn new(path: &[u8], lines: &'l [&'a [u8]]) -> Self {
        let language = Language::of(path);
        let mut begins = Vec::new();
        let mut labels = Vec::new();
        let mut is_class = false;
        for (at, line) in lines.iter().enumerate() {
            let top = is_begin(lines, at, language);
            if top {
                is_class = opens_class(line);
            }
            if top || (is_class && language == Language::Classes && is_method(lines, at)) {
                begins.push(at);
            }
            if !matches!(language, Language::Keywords { .. }) && is_label(line) {
                labels.push(at);
            }
        }
        Functions {
            lines,
            language,
            begins,
            labels,
            names: OnceCell::new(),
        }
    }

    /// Returns the line that begins the function, table or type around line `at` (from 0), shortened, and the `case`
    /// label around it. Like git, it takes lines that begin with a letter in the first column; labels and declarations
    /// are none. Methods in C++ classes and functions of other languages may be indented.
    pub fn at(&self, at: usize) -> Option<String> {
        let begin = self.begin(at);
        let label = self.label(begin.map_or(0, |begin| begin + 1), at);
        let parts = [begin, label];
        let parts = parts.into_iter().flatten().map(|at| self.shown(at));
        let text = parts.collect::<Vec<String>>().join(LABEL);
        (!text.is_empty()).then_some(text)
    }

    /// Returns the lines of the function around line `at`, from its first one to the one before the next function.
    pub fn lines_at(&self, at: usize) -> Range<usize> {
        let begin = self.begin(at).unwrap_or(0);
        let next = self.begins.partition_point(|&other| other <= begin);
        begin..self.begins.get(next).copied().unwrap_or(self.lines.len())
    }

    /// Returns the name of the function around line `at`.
    pub fn name_at(&self, at: usize) -> Option<String> {
        let line = String::from_utf8_lossy(self.lines[self.begin(at)?]);
        Some(word(&line).to_owned())
    }

    /// Returns the names of the functions, tables, types and macros that begin in the lines.
    pub fn begun_in(&self, lines: Range<usize>) -> impl Iterator<Item = String> {
        let names = lines.map(|at| self.begun_at(at));
        names.flatten().map(|line| word(&line).to_owned())
    }

    /// Returns the line `at` if it begins something that has a name.
    fn begun_at(&self, at: usize) -> Option<Cow<'_, str>> {
        let line = self.lines[at];
        let is_macro = || line.starts_with(b"#") && words(line).next() == Some("define");
        let begins = self.begins.binary_search(&at).is_ok() || is_macro();
        begins.then(|| String::from_utf8_lossy(line))
    }

    /// Returns the lines where functions called `name` begin, from 0.
    pub fn called(&self, name: &str) -> &[usize] {
        let names = self.names.get_or_init(|| {
            let mut names: HashMap<String, Vec<usize>> = HashMap::new();
            for at in 0..self.lines.len() {
                if let Some(line) = self.begun_at(at) {
                    names.entry(word(&line).to_owned()).or_default().push(at);
                }
            }
            names
        });
        names.get(name).map_or(&[], Vec::as_slice)
    }

    fn begin(&self, at: usize) -> Option<usize> {
        let before = &self.begins[..self.begins.partition_point(|&begin| begin <= at)];
        if !matches!(self.language, Language::Keywords { .. }) {
            return before.last().copied();
        }
        let line = self.lines.get(at).copied().unwrap_or_default();
        // Lines that are not indented further than a function are not in it.
        let is_around = |begin: &&usize| {
            **begin == at
                || line.trim_ascii().is_empty()
                || indentation(self.lines[**begin]) < indentation(line)
        };
        before.iter().rev().take(MAX_CASE).find(is_around).copied()
    }

    /// Returns the line of the last `case` label between `from` and `at`, if its `switch` is still open there.
    fn label(&self, from: usize, at: usize) -> Option<usize> {
        let before = self.labels.partition_point(|&label| label <= at);
        let label = *self.labels[..before].last()?;
        if label < from || at - label > MAX_CASE {
            return None;
        }
        let indent = indentation(self.lines[label]);
        let after = label + 1..self.lines.len().min(at + 1);
        let closes = |line: &&[u8]| {
            let inner = indentation(line);
            let text = line.trim_ascii();
            let ends = inner == indent && text.starts_with(b"}") || inner < indent;
            !text.is_empty() && !text.starts_with(b"#") && ends
        };
        (!self.lines[after].iter().any(closes)).then_some(label)
    }

    fn shown(&self, at: usize) -> String {
        let text = String::from_utf8_lossy(self.lines[at]);
        text.trim().chars().take(MAX_LENGTH).collect()
    }
}

/// Returns the short name of what [`Functions::at`] returns: the function's name, with the label.
pub fn name(shown: &str) -> String {
    match shown.split_once(LABEL) {
        Some((line, label)) => format!("{}{LABEL}{label}", word(line)),
        None => word(shown).to_owned(),
    }
}

/// Returns the name in a line that begins a function: the word before the parenthesis of its parameters, or else the
/// line.
fn word(line: &str) -> &str {
    /// Words whose parentheses are not those of parameters.
    const OTHERS: [&str; 4] = ["__attribute__", "alignas", "func", "pub"];
    let line = line.trim();
    if let Some(defined) = line.strip_prefix('#') {
        let named = |c: char| !c.is_alphanumeric() && c != '_';
        let mut words = defined.split(named).filter(|word| !word.is_empty());
        return words.nth(1).unwrap_or(line);
    }
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '~' | '$');
    let mut rest = line;
    while let Some((head, parameters)) = rest.split_once('(') {
        match head.trim_end().rsplit(|c| !is_word(c)).next() {
            Some("") | None => break,
            Some(word) if !OTHERS.contains(&word) => return word,
            Some(_) => rest = after_closing(parameters),
        }
    }
    line
}

/// Returns what follows the parenthesis that closes one opened before `text`.
fn after_closing(text: &str) -> &str {
    let mut depth = 1;
    for (at, c) in text.char_indices() {
        depth += i32::from(c == '(') - i32::from(c == ')');
        if depth == 0 {
            return &text[at + 1..];
        }
    }
    ""
}

fn is_begin(lines: &[&[u8]], at: usize, language: Language) -> bool {
    let line = lines[at].trim_ascii_end();
    if let Language::Keywords {
        keywords,
        modifiers,
    } = language
    {
        let mut words = words(line).skip_while(|word| modifiers.contains(word));
        return words.next().is_some_and(|word| keywords.contains(&word));
    }
    let letter = line.first().is_some_and(|&b| is_initial(b));
    let braces = || {
        let next = lines.get(at + 1).map_or(&b""[..], |next| next.trim_ascii());
        opens_class(line) && next == b"{"
    };
    let shape = line.contains(&b'(') || line.ends_with(b"{") || braces();
    letter && shape && !line.ends_with(b";") && !line.ends_with(b":")
}

/// Returns whether the body of a class may begin on the line, or after it.
fn opens_class(line: &[u8]) -> bool {
    const CLASSES: [&str; 7] = [
        "class",
        "struct",
        "union",
        "namespace",
        "interface",
        "enum",
        "record",
    ];
    !line.contains(&b'(') && words(line).any(|word| CLASSES.contains(&word))
}

/// Returns whether an indented line begins a method that has a body: words and a parenthesis before the first brace.
fn is_method(lines: &[&[u8]], at: usize) -> bool {
    const STATEMENTS: [&str; 16] = [
        "if", "else", "for", "while", "do", "switch", "case", "default", "return", "catch", "try",
        "throw", "delete", "new", "goto", "using",
    ];
    let line = lines[at].trim_ascii();
    let first = line.first().copied().unwrap_or_default();
    let is_statement = words(line)
        .next()
        .is_none_or(|word| STATEMENTS.contains(&word));
    let Some(parameters) = memchr::memchr(b'(', line) else {
        return false;
    };
    if is_statement || !is_initial(first) && first != b'~' || line[..parameters].contains(&b'=') {
        return false;
    }
    // The first of these tells a definition from a declaration or a call.
    let mut text = lines[at..].iter().take(MAX_HEAD).copied().flatten();
    text.find(|b| matches!(b, b'{' | b';' | b'}')) == Some(&b'{')
}

fn is_label(line: &[u8]) -> bool {
    let line = line.trim_ascii_start();
    line.starts_with(b"case ") || line.starts_with(b"default:")
}

fn is_initial(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$')
}

fn words(line: &[u8]) -> impl Iterator<Item = &str> {
    let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    line.split(move |b| !is_word(b))
        .filter_map(|word| std::str::from_utf8(word).ok())
        .filter(|word| !word.is_empty())
}

/// Returns the width of the blanks before the text of a line, in columns.
fn indentation(line: &[u8]) -> usize {
    let blanks = line.iter().take_while(|b| matches!(b, b' ' | b'\t'));
    blanks.fold(0, |width, &blank| match blank {
        b'\t' => (width / TAB + 1) * TAB,
        _ => width + 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_series::series::text::lines;

    /// The function around each line that ends in `// ?`, by its short name.
    fn functions(path: &str, text: &str) -> Vec<Option<String>> {
        let lines = lines(text.as_bytes());
        let functions = Functions::new(path.as_bytes(), &lines);
        let is_asked = |line: &&[u8]| line.ends_with(b"// ?\n");
        let asked = lines.iter().enumerate().filter(|(_, line)| is_asked(line));
        asked
            .map(|(at, _)| functions.at(at).map(|function| name(&function)))
            .collect()
    }

    #[test]
    fn lines_belong_to_the_function_before_them() {
        let text = "#include <x>\nint declared(void);\nstatic int\nalpha(int x)\n{\nout:\n  a();\n}\nconst struct row table[] = {\n  1,\n};\n";
        let lines = lines(text.as_bytes());
        let functions = Functions::new(b"sql/x.c", &lines);
        let at = |line: usize| functions.at(line);
        assert_eq!(at(1), None);
        assert_eq!(at(6).as_deref(), Some("alpha(int x)"));
        assert_eq!(at(9).as_deref(), Some("const struct row table[] = {"));
        assert_eq!(name("static int alpha(int x)"), "alpha");
        assert_eq!(name("Item *Foo::bar (x)"), "Foo::bar");
        assert_eq!(name("struct x {"), "struct x {");
        assert_eq!(name("__attribute__((cold)) void f(int x)"), "f");
        assert_eq!(functions.called("alpha"), [3]);
        assert_eq!(functions.lines_at(6).len(), 5);
    }

    #[test]
    fn cases_belong_to_the_label_before_them_until_the_switch_ends() {
        let text = "int run(int op)\n{\n  switch (op) {\n  case A:\n    a(); // ?\n  case B: {\n    b(); // ?\n    break;\n  }\n  default:\n    c(); // ?\n  }\n  return 1; // ?\n}\n\
                    int other(void)\n{\n  d(); // ?\n}\n";
        let run = |label: &str| Some(format!("run{LABEL}{label}"));
        assert_eq!(
            functions("x.c", text),
            [
                run("case A:"),
                run("case B: {"),
                run("default:"),
                Some("run".to_owned()),
                Some("other".to_owned())
            ]
        );
    }

    #[test]
    fn methods_of_a_class_are_functions_and_their_calls_are_not() {
        let text = "class Item : public Base\n{\npublic:\n  Item(int x) : m_x(x) {\n    a(); // ?\n  }\n  int value() const;\n  bool fix(THD *thd,\n           int flags) override\n  {\n    if (flags) {\n      b(thd,\n        flags); // ?\n    }\n    return false; // ?\n  }\n};\n\
                    int Item::value() const\n{\n  for (;;) {\n    c(); // ?\n  }\n}\n";
        let named = |name: &str| Some(name.to_owned());
        let found = functions("sql/item.cc", text);
        let expected = ["Item", "fix", "fix", "Item::value"];
        assert_eq!(found, expected.map(named));
        // In C, only what begins in the first column is one.
        assert_eq!(
            functions("item.c", text)[1],
            named("class Item : public Base")
        );
    }

    #[test]
    fn indented_functions_of_other_languages_end_with_their_indentation() {
        let named = |name: &str| Some(name.to_owned());
        let python = "class Pool:\n    async def get(self):\n        a()  // ?\n\n    def put(self):\n        b()  // ?\n\nc()  // ?\n";
        let expected = [named("get"), named("put"), None];
        assert_eq!(functions("lib/pool.py", python), expected);
        let rust = "impl Pool {\n    pub(crate) fn get(&self) {\n        a(); // ?\n    }\n}\n";
        assert_eq!(functions("src/pool.rs", rust), [named("get")]);
        let go = "func (p *Pool) Get() int {\n\treturn 1 // ?\n}\n";
        assert_eq!(functions("pool.go", go), [named("Get")]);
    }
}
