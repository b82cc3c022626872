//! GitHub: the one comment, check run and label of a pull request. Only this module knows octocrab.
//!
//! What is posted is made elsewhere ([`perfquilt_report::comment()`]); here it gets to its place exactly once,
//! whatever fails on the way.

mod auth;
mod checks;
mod client;
pub mod event;
mod jwt;
mod labels;
mod model;
mod post;
mod reactions;
mod retry;
mod secret;
mod session;
mod sticky;

use perfquilt_model::error::Error;

pub use perfquilt_model::repository::Repository;

pub use auth::Credentials;
pub use checks::Conclusion;
pub use client::Client;
pub use post::{Draft, Found, Posted, Posting, find_pull_request, post};
pub use reactions::react;
pub use retry::Policy;
pub use secret::Secret;
pub use sticky::Kept;

/// Where GitHub's own interface is.
pub const API: &str = "https://api.github.com";

/// Bytes of a comment that GitHub takes. It counts characters; bytes are never fewer.
pub const LONGEST_COMMENT: usize = 65_536;

/// The commit whose whole id `text` is, in small letters.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when it is none.
pub fn commit(text: &str) -> Result<String, Error> {
    if is_commit(text) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(Error::usage(format!("`{text}` is not a whole commit id"))
            .hint("`git rev-parse HEAD` prints it"))
    }
}

/// Whether `text` is a commit's id in full.
pub fn is_commit(text: &str) -> bool {
    (text.len() == 40 || text.len() == 64) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits() {
        let id = "0123456789ABCDEF0123456789abcdef01234567";
        assert_eq!(commit(id).unwrap(), id.to_lowercase());
        for bad in ["", "HEAD", &id[1..]] {
            assert!(commit(bad).is_err(), "{bad}");
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
