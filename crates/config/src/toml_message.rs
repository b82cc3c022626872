//! Errors of the TOML parser in the words of the configuration: its keys, and what their values may be.

use perfquilt_model::error::Error;

/// The parser's name of a type, and a description of its values in a file.
const TYPES: [(&str, &str); 14] = [
    ("u8", "a whole number from 0 to 255"),
    ("u16", "a whole number from 0 to 65535"),
    ("u32", "a whole number, at least 0"),
    ("u64", "a whole number, at least 0"),
    ("usize", "a whole number, at least 0"),
    ("i32", "a whole number"),
    ("i64", "a whole number"),
    ("f32", "a number"),
    ("f64", "a number"),
    ("a boolean", "true or false"),
    ("a string", "text in quotation marks"),
    ("path string", "text in quotation marks"),
    ("a sequence", "a list in square brackets"),
    ("a map", "a table"),
];

/// Keys and values of earlier versions, and what replaces them.
const REMOVED: [(&str, &str); 3] = [
    ("shuffle", "leave it out: padded layouts need no arguments"),
    (
        "shuffled",
        "use \"padded\", which moves code as a patch does, or \"off\"",
    ),
    ("strangers", "write \"untrusted\""),
];

/// Returns the error for a parser's message. `key` is the key whose value is wrong, if it is known, or the list an item of
/// which is.
pub(crate) fn error(message: &str, key: Option<&str>, is_item: bool) -> Error {
    if let Some((name, known)) = names_after(message, "unknown field ") {
        if let Some(removed) = removed("key", &name) {
            return removed;
        }
        return if known.is_empty() {
            Error::configuration(format!("there is no key `{name}` here"))
        } else {
            Error::unknown("key", &name, known.iter())
        };
    }
    if let Some((name, known)) = names_after(message, "unknown variant ") {
        if let Some(removed) = removed("value", &name) {
            return removed;
        }
        let here = key.map_or_else(String::new, |key| format!(" for `{key}`"));
        let all = format!("available: {}", known.join(", "));
        let known = known.iter().map(String::as_str);
        return Error::configuration(format!("there is no value `{name}`{here}"))
            .near(&name, known, all);
    }
    if message == "duplicate key" {
        return Error::configuration(match key {
            Some(key) => format!("`{key}` is set twice"),
            None => "a key is set twice".to_owned(),
        });
    }
    // The parser takes a word without quotation marks for the number or the truth value that begins like it.
    let unquoted = [
        "invalid boolean",
        "invalid float",
        "string values must be quoted",
    ];
    if unquoted.iter().any(|words| message.starts_with(words)) {
        return Error::configuration(
            "neither a number nor true or false; text needs quotation marks",
        );
    }
    match (wrong_value(message), key) {
        (Some((found, expected)), Some(key)) => {
            let each = if is_item { "each item of " } else { "" };
            Error::configuration(format!("{each}`{key}` must be {expected}, not {found}"))
        }
        (Some((found, expected)), None) => {
            Error::configuration(format!("{found} where {expected} is needed"))
        }
        (None, _) => Error::configuration(message.to_owned()),
    }
}

/// Returns the error for a key or value that an earlier version had.
fn removed(what: &str, name: &str) -> Option<Error> {
    let (_, now) = REMOVED.iter().find(|(removed, _)| *removed == name)?;
    Some(Error::removed_key(format!("the {what} `{name}` was removed")).hint(*now))
}

/// Splits ``unknown field `x`, expected one of `a`, `b` ``, which begins with `start`.
fn names_after(message: &str, start: &str) -> Option<(String, Vec<String>)> {
    let rest = message.strip_prefix(start)?;
    let mut names = rest.split('`').skip(1).step_by(2).map(str::to_owned);
    let name = names.next()?;
    Some((name, names.collect()))
}

/// Splits ``invalid type: string "5", expected u32`` into what was found and what is expected.
fn wrong_value(message: &str) -> Option<(String, String)> {
    let rest = message
        .strip_prefix("invalid type: ")
        .or_else(|| message.strip_prefix("invalid value: "))?;
    let (found, expected) = rest.rsplit_once(", expected ")?;
    let expected = TYPES
        .iter()
        .find_map(|(name, words)| (*name == expected).then_some(*words))
        .unwrap_or(expected);
    let found = match found {
        "sequence" => "a list",
        "map" => "a table",
        _ => found
            .strip_prefix("string ")
            .or_else(|| found.split('`').nth(1))
            .unwrap_or(found),
    };
    Some((found.to_owned(), expected.to_owned()))
}

/// Returns the key of the value that begins at `start` of a document, if both are in one line.
pub(crate) fn key_of(text: &str, start: usize) -> Option<&str> {
    let before = text.get(..start)?;
    let line = &before[before.rfind('\n').map_or(0, |end| end + 1)..];
    // The value of a duplicate is not where it begins: then the line begins with the key.
    let name = match line.rfind('=') {
        Some(equals) => line[..equals].trim_end(),
        None => {
            let rest = text[before.len() - line.len()..].lines().next()?;
            rest.split('=').next()?.trim_end()
        }
    };
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let begin = name.rfind(|c| !is_part(c)).map_or(0, |at| at + 1);
    let key = &name[begin..];
    (!key.is_empty()).then_some(key)
}

/// Returns whether the value that begins at `start` is in a list that began in the same line.
pub(crate) fn is_item(text: &str, start: usize) -> bool {
    let before = text.get(..start).unwrap_or_default();
    let line = before.rsplit('\n').next().unwrap_or_default();
    let value = line.rsplit('=').next().unwrap_or_default();
    line.contains('=') && value.trim_start().starts_with('[')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_keys_and_values_name_their_replacement() {
        for (message, expected, hint) in [
            (
                "unknown field `shuffle`, expected `keep` or `command`",
                "the key `shuffle` was removed",
                "leave it out",
            ),
            (
                "unknown variant `shuffled`, expected `off` or `padded`",
                "the value `shuffled` was removed",
                "use \"padded\"",
            ),
            (
                "unknown variant `strangers`, expected one of `untrusted`, `everybody`, `nobody`",
                "the value `strangers` was removed",
                "write \"untrusted\"",
            ),
        ] {
            let error = error(message, Some("layouts"), false);
            assert_eq!(error.message(), expected);
            assert!(error.hint_text().unwrap().contains(hint), "{error}");
        }
    }

    #[test]
    fn text_without_quotation_marks_is_told_what_it_lacks() {
        for message in [
            "invalid boolean, expected `true`",
            "invalid float, expected `nan`",
            "string values must be quoted, expected literal string",
        ] {
            let error = error(message, Some("name"), false);
            assert!(error.message().ends_with("text needs quotation marks"));
        }
    }

    #[test]
    fn messages_name_the_key_and_what_it_may_be() {
        for (message, key, expected) in [
            (
                "invalid type: string \"5\", expected u32",
                Some("blocks"),
                "`blocks` must be a whole number, at least 0, not \"5\"",
            ),
            (
                "invalid value: integer `-5`, expected u32",
                Some("blocks"),
                "`blocks` must be a whole number, at least 0, not -5",
            ),
            (
                "invalid type: sequence, expected a string",
                Some("name"),
                "`name` must be text in quotation marks, not a list",
            ),
            (
                "invalid type: map, expected f64",
                None,
                "a table where a number is needed",
            ),
            ("duplicate key", Some("blocks"), "`blocks` is set twice"),
            (
                "unclosed array, expected `]`",
                Some("x"),
                "unclosed array, expected `]`",
            ),
            (
                "unknown field `x`, there are no fields",
                None,
                "there is no key `x` here",
            ),
        ] {
            assert_eq!(error(message, key, false).message(), expected);
        }
        let nearest = error(
            "unknown field `bloks`, expected one of `blocks`, `recipe`",
            None,
            false,
        );
        assert_eq!(nearest.message(), "there is no key `bloks`");
        assert_eq!(nearest.hint_text(), Some("did you mean `blocks`?"));
    }

    #[test]
    fn keys_are_found_from_their_values() {
        let text = "[a]\nblocks = \"5\"\nd = { package = 3 }\n  list = [1,\n 2]\n";
        let key = |value: &str| key_of(text, text.find(value).unwrap());
        assert_eq!(key("\"5\""), Some("blocks"));
        assert_eq!(key("3 }"), Some("package"));
        assert_eq!(key("[1"), Some("list"));
        assert_eq!(key("blocks"), Some("blocks"));
        assert_eq!(key_of(text, 1000), None);
        let item = |value: &str| is_item(text, text.find(value).unwrap());
        assert!(item("1,") && !item("[1") && !item("\"5\"") && !is_item(text, 1000));
        let of_item = error(
            "invalid type: string \"make\", expected a sequence",
            Some("build"),
            true,
        );
        let expected = "each item of `build` must be a list in square brackets, not \"make\"";
        assert_eq!(of_item.message(), expected);
    }
}
