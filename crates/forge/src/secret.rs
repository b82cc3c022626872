//! A text that must not be seen.

use std::fmt;

/// A token or key. It is shown nowhere: not by `{:?}`, and [`Secret::scrub`] takes it out of what others
/// say.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A secret; blanks around it, as files and variables bring them, are no part of it.
    pub fn new(text: &str) -> Self {
        Secret(text.trim().to_owned())
    }

    /// The text itself, for the one place that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether there is nothing to keep.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `text` without the secret.
    pub fn scrub(&self, text: &str) -> String {
        if self.0.is_empty() {
            text.to_owned()
        } else {
            text.replace(&self.0, "…")
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_not_shown() {
        let secret = Secret::new(" ghp_x1y2\n");
        assert_eq!(format!("{secret:?}"), "Secret(…)");
        assert_eq!(secret.expose(), "ghp_x1y2");
        assert_eq!(
            secret.scrub("bad header: Bearer ghp_x1y2"),
            "bad header: Bearer …"
        );
        assert_eq!(Secret::new("").scrub("abc"), "abc");
    }
}
