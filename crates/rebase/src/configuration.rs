//! Changes single values in the configuration's text and preserves everything else.

use std::path::Path;

use toml_edit::{DocumentMut, Item, TableLike, Value};

use perfquilt_config::CONFIG_FILE;
use perfquilt_model::error::{Error, Result};

/// Returns the configuration with `version` as `current` in `[upstream]`.
pub(super) fn with_current(text: &str, version: &str) -> Result<String> {
    let mut document = parsed(text)?;
    let current = document
        .get_mut("upstream")
        .and_then(Item::as_table_like_mut)
        .and_then(|upstream| upstream.get_mut("current"))
        .and_then(Item::as_value_mut)
        .ok_or_else(|| missing("there is no `current` in [upstream]"))?;
    if current.as_str() != Some(version) {
        let decor = current.decor().clone();
        *current = Value::from(version);
        *current.decor_mut() = decor;
    }
    Ok(with_line_ends(&document, text))
}

/// Returns the configuration with `folder` as the series folder of a release.
pub fn with_folder(text: &str, version: &str, folder: &Path) -> Result<String> {
    let mut document = parsed(text)?;
    let releases = document
        .get_mut("upstream")
        .and_then(Item::as_table_like_mut)
        .and_then(|upstream| upstream.get_mut("release"));
    let folder = Value::from(folder.to_string_lossy().as_ref());
    let is_it =
        |release: &dyn TableLike| release.get("version").and_then(Item::as_str) == Some(version);
    let found = match releases {
        Some(Item::ArrayOfTables(releases)) => {
            let release = releases.iter_mut().find(|release| is_it(&**release));
            release.map(|release| {
                release.insert("patches", folder.into());
            })
        }
        Some(Item::Value(Value::Array(releases))) => {
            let mut releases = releases.iter_mut().filter_map(Value::as_inline_table_mut);
            let release = releases.find(|release| is_it(&**release));
            release.map(|release| {
                release.insert("patches", folder);
                // Without this, the space before the closing brace would end up before the comma.
                release.fmt();
            })
        }
        _ => None,
    };
    found.ok_or_else(|| missing(&format!("there is no release {version} in [upstream]")))?;
    Ok(with_line_ends(&document, text))
}

fn parsed(text: &str) -> Result<DocumentMut> {
    text.parse().map_err(|error: toml_edit::TomlError| {
        Error::configuration(error.message().to_owned()).at(CONFIG_FILE, None)
    })
}

fn missing(what: &str) -> Error {
    Error::configuration(what).at(CONFIG_FILE, None)
}

/// Returns the document as text with the line ends of `text`; `toml_edit` writes plain line feeds.
fn with_line_ends(document: &DocumentMut, text: &str) -> String {
    let new = document.to_string();
    if text.contains("\r\n") {
        new.replace("\r\n", "\n").replace('\n', "\r\n")
    } else {
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "# top\n[upstream]\nname = \"x\"\ncurrent   = '1.0'  # now\n\n[[upstream.release]]\nversion = \"1.0\"\ndirectory = \"a\"\n\n[[upstream.release]]\nversion = \"2.0\" # next\ndirectory = \"b\"\n\n[other]\ncurrent = \"y\"\n";

    #[test]
    fn only_the_value_of_current_changes() {
        let new = with_current(CONFIG, "2.0").unwrap();
        assert_eq!(new, CONFIG.replace("'1.0'  # now", "\"2.0\"  # now"));
        assert_eq!(with_current(CONFIG, "1.0").unwrap(), CONFIG);
        let inline = "upstream = { name = \"x\", current = \"1.0\" }\n";
        let expected = inline.replace("1.0", "2.0");
        assert_eq!(with_current(inline, "2.0").unwrap(), expected);
        assert!(with_current("upstream = { name = \"x\" }\n", "2.0").is_err());
    }

    #[test]
    fn a_folder_is_named_with_its_release() {
        let new = with_folder(CONFIG, "2.0", Path::new("patches/2")).unwrap();
        let line = "directory = \"b\"\n";
        let expected = CONFIG.replace(line, &format!("{line}patches = \"patches/2\"\n"));
        assert_eq!(new, expected);
        assert!(with_folder(CONFIG, "3.0", Path::new("p")).is_err());
        let inline = "upstream = { release = [{ version = \"2.0\", directory = \"b\" }] }\n";
        let expected = inline.replace("\"b\"", "\"b\", patches = \"p\"");
        let new = with_folder(inline, "2.0", Path::new("p")).unwrap();
        assert_eq!(new, expected);
    }

    #[test]
    fn line_ends_stay() {
        let theirs = CONFIG.replace('\n', "\r\n");
        let new = with_folder(&theirs, "2.0", Path::new("patches/2")).unwrap();
        let new = with_current(&new, "2.0").unwrap();
        assert_eq!(new.matches('\n').count(), new.matches("\r\n").count());
        assert_eq!(with_current(&theirs, "1.0").unwrap(), theirs);
    }
}
