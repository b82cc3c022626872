//! The page of documentation of which `perfquilt calibrate` writes parts.

use std::path::{Path, PathBuf};

use perfquilt_model::error::{Error, Result};
use perfquilt_system::files::write_file;

/// A page whose parts are replaced one at a time.
#[derive(Debug)]
pub struct Page {
    file: PathBuf,
    text: String,
}

const INTRODUCTION: &str = "\
# Calibration

Do intervals and verdicts keep their promises where the answer is known?
";

/// The end of a line before each part.
const MADE: &str = ": made by ci/calibrate -->\n";

impl Page {
    /// Reads the page in `file`, or begins one where there is no such file or an empty one. Any other text is refused, so that it
    /// is not replaced.
    pub fn calibration(file: &Path) -> Result<Self> {
        let text = match std::fs::read_to_string(file) {
            Ok(text) if text.contains(MADE) => text,
            Ok(text) if text.trim().is_empty() => INTRODUCTION.to_owned(),
            Ok(_) => {
                return Err(
                    Error::observation_file("this file is not a calibration page")
                        .at(file, None)
                        .hint("name a new file: `--output calibration.md`"),
                );
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => INTRODUCTION.to_owned(),
            Err(error) => return Err(Error::io("read", file, &error)),
        };
        Ok(Page {
            file: file.to_owned(),
            text,
        })
    }

    /// Replaces the part called `name` with `body`; appends it if the page has none.
    #[must_use]
    pub fn with(mut self, name: &str, body: &str) -> Self {
        let (begin, end) = (
            format!("<!-- {name}{MADE}"),
            format!("<!-- end of {name} -->\n"),
        );
        let part = format!("{begin}{body}{end}");
        let from = self.text.find(&begin);
        let to = from.and_then(|from| Some(from + self.text[from..].find(&end)? + end.len()));
        match from.zip(to) {
            Some((from, to)) => self.text.replace_range(from..to, &part),
            None => {
                self.text.push('\n');
                self.text.push_str(&part);
            }
        }
        self
    }

    /// Writes the page to its file.
    pub fn save(&self) -> Result<()> {
        write_file(&self.file, self.text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_replaced_and_the_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("page.md");
        let page = || Page::calibration(&file).unwrap();
        let saved = || std::fs::read_to_string(&file).unwrap();
        page()
            .with("a", "first\n")
            .with("b", "second\n")
            .save()
            .unwrap();
        page().with("a", "third\n").save().unwrap();
        let text = saved();
        assert!(text.starts_with("# Calibration") && !text.contains("first"));
        assert!(text.find("third").unwrap() < text.find("second").unwrap());
        page().with("b", "second\n").save().unwrap();
        assert_eq!(saved(), text);
        std::fs::write(&file, "# my notes\n").unwrap();
        let refused = Page::calibration(&file).unwrap_err();
        assert!(refused.to_string().contains("not a calibration page"));
        assert_eq!(saved(), "# my notes\n");
    }
}
