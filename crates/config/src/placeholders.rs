//! Placeholders of commands and paths: `{name}`.

use std::collections::BTreeMap;

use perfquilt_model::error::{Error, Result};

/// Expands the placeholders of every word with [`expand_word`].
pub fn expand(words: &[String], values: &BTreeMap<String, String>) -> Result<Vec<String>> {
    words.iter().map(|word| expand_word(word, values)).collect()
}

/// Replaces every `{name}` in `word` with its value. Braces without a lower-case name and shell variables
/// (`${name}`) stay as they are.
pub fn expand_word(word: &str, values: &BTreeMap<String, String>) -> Result<String> {
    let mut result = String::with_capacity(word.len());
    let mut rest = word;
    while let Some(open) = rest.find('{') {
        result.push_str(&rest[..open]);
        let inner = &rest[open + 1..];
        let name = inner.find('}').map(|close| &inner[..close]);
        match name.filter(|name| is_name(name) && !result.ends_with('$')) {
            Some(name) => {
                let value = values.get(name).ok_or_else(|| {
                    let known: Vec<String> =
                        values.keys().map(|key| format!("{{{key}}}")).collect();
                    Error::configuration(format!("`{word}` has the unknown placeholder {{{name}}}"))
                        .hint(format!("there are {}", known.join(", ")))
                })?;
                result.push_str(value);
                rest = &inner[name.len() + 1..];
            }
            None => {
                result.push('{');
                rest = inner;
            }
        }
    }
    result.push_str(rest);
    Ok(result)
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// Appends the words of the list at `path`, keys separated by dots, each with its path.
pub(super) fn list<'w>(path: &str, list: &'w [String], words: &mut Vec<(Vec<String>, &'w str)>) {
    for (index, word) in list.iter().enumerate() {
        let mut path: Vec<String> = path.split('.').map(str::to_owned).collect();
        path.push(index.to_string());
        words.push((path, word));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_and_unknown_ones_refused() {
        let values = BTreeMap::from([("src".to_owned(), "/s".to_owned())]);
        let filled = expand_word("{src}/a:{src} ${src} {} {A} {a b} {", &values).unwrap();
        assert_eq!(filled, "/s/a:/s ${src} {} {A} {a b} {");
        let error = expand_word("-I{scr}", &values).unwrap_err();
        assert_eq!(error.kind(), perfquilt_model::error::Kind::Usage);
        assert!(error.message().contains("{scr}"), "{error}");
        assert_eq!(error.hint_text(), Some("there are {src}"));
    }
}
