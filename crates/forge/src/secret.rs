//! Secrets: tokens and keys.

use std::fmt;

/// A token or key. `{:?}` does not show it, and [`Secret::scrub`] removes it from foreign texts.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Creates a secret from `text`, without the surrounding whitespace that files and variables often contain.
    pub fn new(text: &str) -> Self {
        Secret(text.trim().to_owned())
    }

    /// Returns the text itself, for sending it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns whether the secret is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `text` with the secret replaced by `…`.
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
    fn a_secret_is_not_shown() {
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
