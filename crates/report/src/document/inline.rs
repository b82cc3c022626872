//! Text within a block.

use super::chart::Ink;
use crate::escape::SENTENCE;
use crate::number;
use crate::text::{clean, cleaned, long};
use perfquilt_judge::attribution::Effect;

/// Begin a name and a literal text within a string, and end them. [`clean`] leaves none of them in text from untrusted authors.
const NAME: char = '\u{1}';
const LITERAL: char = '\u{2}';
const END: char = '\u{3}';

/// Returns the caption of a drawing: keys of colours, each with whether its marks are round, and what there is to say.
pub(crate) fn keys<'k>(
    keys: impl IntoIterator<Item = (Ink, bool, &'k str)>,
    words: impl Into<Text>,
) -> Text {
    let keys = keys.into_iter();
    let keys = keys.map(|(ink, is_round, words)| key(ink, is_round, words));
    Text::joined(keys.chain([words.into()]), "")
}

/// Returns the caption of a drawing of estimates: keys of colours, and what the marks are.
pub(crate) fn estimates<'k>(colours: impl IntoIterator<Item = (Ink, &'k str)>) -> Text {
    let colours = colours.into_iter();
    let colours = colours.map(|(ink, words)| (ink, ink != Ink::Second, words));
    keys(colours, ". Marks are estimates, lines their intervals.")
}

/// Marks a name within a sentence: code on pages and in Markdown, as it is on a terminal.
pub(crate) fn name(text: &str) -> String {
    format!("{NAME}{}{END}", clean(text))
}

/// Marks text from others within a sentence, such as a title or an error: no format finds markup in it. It is cut beyond
/// [`SENTENCE`] characters.
pub(crate) fn literal(text: &str) -> String {
    format!("{LITERAL}{}{END}", cleaned(&long(text), SENTENCE))
}

/// Returns a sentence of this program that may hold names between backticks; it is cut beyond [`SENTENCE`] characters.
pub(crate) fn sentence(text: &str) -> Text {
    match text.char_indices().nth(SENTENCE) {
        Some((end, _)) => format!("{} …", &text[..end]).into(),
        None => text.into(),
    }
}

/// Words, names, code and figures in a row.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Text(pub(super) Vec<Inline>);

/// A part of a [`Text`].
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Inline {
    /// Words of this program.
    Words(String),
    /// Text from others, which stays as it is.
    Literal(String),
    Name(String),
    /// Code in a sentence of this program; a terminal shows its backticks.
    Code(String),
    Strong(Text),
    Figure(Figure),
    /// A key of a drawing's legend: its colour, whether its marks are round, and words.
    Key(Ink, bool, String),
    /// Words that lead somewhere, in formats that can.
    Link(String, Target),
}

/// Where a link leads.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Target {
    /// An address of the web; any other is no link.
    Web(String),
    /// A file within a page: its name, type and content.
    Within(String, &'static str, Vec<u8>),
    /// A file beside a page.
    Beside(String),
}

/// Returns a key of a drawing's legend.
pub(crate) fn key(ink: Ink, is_round: bool, words: &str) -> Text {
    Inline::Key(ink, is_round, words.to_owned()).into()
}

/// A figure, which no format breaks into lines.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figure {
    pub(crate) text: String,
    /// The value and the ends of its interval, for machines that read a page.
    pub(crate) values: Option<(f64, Option<f64>, Option<f64>)>,
    pub(crate) emphasis: Emphasis,
}

/// How a figure stands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Emphasis {
    None,
    Significant,
    Stale,
}

impl Figure {
    /// Returns an effect: significant, stale or neither.
    pub(crate) fn of(effect: &Effect, places: usize) -> Self {
        let shown = effect.shown();
        Figure {
            text: number::effect(effect, places),
            values: Some((shown.estimate, shown.low, shown.high)),
            emphasis: match effect {
                effect if effect.is_stale() => Emphasis::Stale,
                effect if effect.is_shown() => Emphasis::Significant,
                _ => Emphasis::None,
            },
        }
    }

    /// Returns a figure with its value for machines.
    pub(crate) fn valued(text: impl Into<String>, value: f64) -> Self {
        Figure {
            values: Some((value, None, None)),
            ..Figure::plain(text)
        }
    }

    /// Returns a figure that is significant or not.
    pub(crate) fn marked(text: impl Into<String>, is_significant: bool) -> Self {
        let emphasis = if is_significant {
            Emphasis::Significant
        } else {
            Emphasis::None
        };
        Figure {
            emphasis,
            ..Figure::plain(text)
        }
    }

    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Figure {
            text: text.into(),
            values: None,
            emphasis: Emphasis::None,
        }
    }
}

impl Text {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn strong(self) -> Text {
        Inline::Strong(self).into()
    }

    /// Joins texts, with `between` between them.
    pub(crate) fn joined(texts: impl IntoIterator<Item = Text>, between: &str) -> Text {
        let mut all = Text::default();
        for text in texts {
            if !all.is_empty() {
                all.push(between);
            }
            all.push(text);
        }
        all
    }

    pub(crate) fn push(&mut self, text: impl Into<Text>) {
        self.0.extend(text.into().0);
    }

    /// Returns the text without emphasis, as a terminal shows it.
    pub(crate) fn plain(&self) -> String {
        let one = |part: &Inline| match part {
            Inline::Words(text) | Inline::Literal(text) | Inline::Name(text) => text.clone(),
            Inline::Link(text, _) => clean(text),
            Inline::Code(text) => format!("`{text}`"),
            Inline::Strong(text) => text.plain(),
            Inline::Figure(figure) => clean(&figure.text),
            Inline::Key(..) => String::new(),
        };
        self.0.iter().map(one).collect()
    }
}

impl From<Inline> for Text {
    fn from(part: Inline) -> Self {
        Text(vec![part])
    }
}

impl From<Figure> for Text {
    fn from(figure: Figure) -> Self {
        Inline::Figure(figure).into()
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        (&*text).into()
    }
}

impl From<&String> for Text {
    fn from(text: &String) -> Self {
        (&**text).into()
    }
}

impl From<&str> for Text {
    /// Divides a sentence into words, marked names and literals, and the code between its backticks.
    fn from(text: &str) -> Self {
        let mut parts = Vec::new();
        let (mut mark, mut rest) = (END, text);
        loop {
            let end = rest.find([NAME, LITERAL, END]).unwrap_or(rest.len());
            parts.push((mark, &rest[..end]));
            match rest[end..].chars().next() {
                Some(next) => (mark, rest) = (next, &rest[end + next.len_utf8()..]),
                None => break,
            }
        }
        Text(divided(&parts, true).unwrap_or_else(|| divided(&parts, false).unwrap_or_default()))
    }
}

/// Converts parts, each behind its mark; `coded` divides words at backticks. `None` if a backtick has no partner or
/// nothing stands between two, which would join the text around them.
fn divided(parts: &[(char, &str)], coded: bool) -> Option<Vec<Inline>> {
    let mut all = Vec::new();
    let mut inside = false;
    for &(mark, text) in parts {
        match mark {
            NAME => all.push(Inline::Name(clean(text))),
            LITERAL if !text.is_empty() => all.push(Inline::Literal(long(text))),
            END if coded => {
                for (place, part) in text.split('`').enumerate() {
                    inside ^= place > 0;
                    match part {
                        part if inside && part.trim().is_empty() => return None,
                        "" => {}
                        part if inside => all.push(Inline::Code(clean(part))),
                        part => all.push(Inline::Words(long(part))),
                    }
                }
            }
            END if !text.is_empty() => all.push(Inline::Words(long(text))),
            _ => {}
        }
    }
    (!inside).then_some(all)
}
