//! GitHub: the comment, check run and label of a pull request, and webhook deliveries. Only this crate uses
//! octocrab.
//!
//! `perfquilt_report::comment()` writes the comment; this crate posts it exactly once, whatever fails on the
//! way.
//!
//! # Example
//!
//! ```
//! use perfquilt_forge::{Secret, event::Target};
//!
//! let event = r#"{"repository": {"full_name": "acme/series"}, "pull_request": {"number": 7,
//!     "head": {"sha": "1111111111111111111111111111111111111111", "ref": "faster"}}}"#;
//! let target = Target::from_environment(&|_| None, Some(event))?;
//! assert_eq!(target.number, Some(7));
//!
//! // No error, log or `{:?}` shows a token.
//! assert_eq!(format!("{:?}", Secret::new("ghp_very_secret")), "Secret(…)");
//! # Ok::<(), perfquilt_model::Error>(())
//! ```

mod auth;
mod checks;
mod client;
pub mod event;
mod exchange;
mod forge;
mod github;
mod jwt;
mod labels;
mod model;
mod post;
mod post_options;
mod refusal;
mod retry;
mod secret;
mod session;
mod start_time;
mod sticky;
mod transport;
pub mod webhook;

use perfquilt_model::error::Error;

pub use perfquilt_model::repository::Repository;

pub use auth::Credentials;
pub use checks::Conclusion;
pub use client::Client;
pub use exchange::runtime;
pub use forge::{Forge, Publication, api_address, connect};
pub use github::MAX_COMMENT_BYTES;
pub use post::{Draft, post};
pub use post_options::{PostOptions, PostResult, PullRequest};
pub use retry::RetryPolicy;
pub use secret::Secret;
pub use sticky::CommentUpdate;

/// The URL of github.com's API.
pub const API: &str = "https://api.github.com";

/// Parses a full commit id and returns it in lower case.
pub fn parse_commit(text: &str) -> Result<String, Error> {
    if is_commit(text) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(
            Error::arguments(format!("`{text}` is not a full commit id"))
                .hint("`git rev-parse HEAD` prints it"),
        )
    }
}

/// Returns whether `text` is a full commit id.
pub fn is_commit(text: &str) -> bool {
    (text.len() == 40 || text.len() == 64) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits() {
        let id = "0123456789ABCDEF0123456789abcdef01234567";
        assert_eq!(parse_commit(id).unwrap(), id.to_lowercase());
        for bad in ["", "HEAD", &id[1..]] {
            assert!(parse_commit(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn repositories() {
        let repository: Repository = "acme/mariadb-series".parse().unwrap();
        assert_eq!(repository.to_string(), "acme/mariadb-series");
        for bad in [
            "", "acme", "acme/", "/x", "a/b/c", "a b/c", "acme/..", "a/b?x=1",
        ] {
            assert!(bad.parse::<Repository>().is_err(), "{bad}");
        }
    }
}
