//! Errors of files that people name: files of other formats, and compressed files that are not complete.

use std::io::ErrorKind;
use std::path::Path;

use perfquilt_model::error::{Error, Result};

/// Returns the error for a file of results, plain or compressed with gzip, that cannot be read to its end.
pub fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    let fault = match error.kind() {
        ErrorKind::UnexpectedEof => "the file is incomplete: its compressed data end early",
        // The kind that the decoder gives to its own errors.
        ErrorKind::InvalidInput => "the compressed data are damaged",
        ErrorKind::InvalidData => return Error::observation_file("not UTF-8").at(path, None),
        _ => return Error::io("read", path, error),
    };
    Error::observation_file(fault)
        .at(path, None)
        .hint("copy or download the file again")
}

/// Refuses JSON other than an object; `what` is the file that is needed, such as `an observation file`.
pub fn require_object(text: &[u8], what: &str) -> Result<()> {
    let found = match serde_json::from_slice(text) {
        Ok(serde_json::Value::Null) => "null",
        Ok(serde_json::Value::Bool(_)) => "true or false",
        Ok(serde_json::Value::Number(_)) => "a number",
        Ok(serde_json::Value::String(_)) => "a string",
        Ok(serde_json::Value::Array(_)) => "an array",
        Ok(serde_json::Value::Object(_)) | Err(_) => return Ok(()),
    };
    Err(Error::observation_file(format!(
        "not {what}: expected a JSON object, found {found}"
    )))
}

/// Replaces the names of Rust's types in a message of serde_json by those of JSON.
pub(crate) fn without_type_names(message: &str) -> String {
    let words = [
        ("f64", "a number"),
        ("i32", "a whole number"),
        ("u32", "a whole number"),
        ("u64", "a whole number"),
        ("usize", "a whole number"),
    ];
    let Some((before, expected)) = message.split_once("expected ") else {
        return message.to_owned();
    };
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    if let Some(name) = expected.strip_prefix("struct ") {
        let rest = name.trim_start_matches(is_name);
        return format!("{before}expected a JSON object{rest}");
    }
    let rest = expected.trim_start_matches(is_name);
    let name = &expected[..expected.len() - rest.len()];
    match words.iter().find(|(rust, _)| *rust == name) {
        Some((_, json)) => format!("{before}expected {json}{rest}"),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_names_of_json() {
        for (message, shown) in [
            (
                "invalid type: null, expected struct FirstLine at line 1",
                "invalid type: null, expected a JSON object at line 1",
            ),
            ("expected f64", "expected a number"),
            ("expected value at line 1", "expected value at line 1"),
            ("missing field `n`", "missing field `n`"),
        ] {
            assert_eq!(without_type_names(message), shown);
        }
    }

    #[test]
    fn the_kind_of_json_is_named() {
        assert!(require_object(b"{\"a\":1}", "a log").is_ok());
        assert!(require_object(b"no JSON", "a log").is_ok());
        for (text, found) in [("null", "null"), (" [1]\n", "an array")] {
            let error = require_object(text.as_bytes(), "a log").unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("not a log: expected a JSON object, found {found}")
            );
        }
    }
}
