//! Forges: the comment, status and label of a pull request, and webhook deliveries. Only this crate uses octocrab.
//!
//! `perfquilt_report::comment()` writes the comment; this crate posts it exactly once, whatever fails on the
//! way.
//!
//! # Example
//!
//! ```
//! use perfquilt_forge::{ForgeKind, Secret};
//!
//! // The variables of a job.
//! let job = |name: &str| match name {
//!     "GITLAB_CI" => Some("true".to_owned()),
//!     "CI_PROJECT_PATH" => Some("acme/tuning/series".to_owned()),
//!     "CI_MERGE_REQUEST_IID" => Some("7".to_owned()),
//!     _ => None,
//! };
//! let forge = ForgeKind::of_environment(&job);
//! assert_eq!(forge.name, "gitlab");
//! assert_eq!(forge.target(&job, false)?.number, Some(7));
//!
//! // No error, log or `{:?}` shows a token.
//! assert_eq!(format!("{:?}", Secret::new("ghp_very_secret")), "Secret(…)");
//! # Ok::<(), perfquilt_model::Error>(())
//! ```

mod client;
mod credentials;
mod exchange;
mod forge;
mod forgejo;
mod github;
mod gitlab;
mod kind;
mod labels;
mod notice;
mod post;
mod post_options;
mod protocol;
mod refusal;
mod registry;
mod retry;
mod secret;
mod start_time;
mod status;
mod sticky;
mod target;
mod transport;
pub mod webhook;

use perfquilt_model::error::Error;

pub use perfquilt_model::repository::Repository;

pub use credentials::Credentials;
pub use exchange::runtime;
pub use forge::{CommitStatus, CreatedComment, Forge, ForgeComment, Label};
pub use kind::ForgeKind;
pub use post::{Draft, post, post_once};
pub use post_options::{CommentUpdate, Conclusion, PostOptions, PostResult, PullRequest};
pub use registry::FORGES;
pub use retry::RetryPolicy;
pub use secret::Secret;
pub use target::Target;

/// The maximum size of a comment that all forges take, in bytes.
pub const MAX_COMMENT_BYTES: usize = 65_536;

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
        let nested: Repository = "acme/tuning/series".parse().unwrap();
        assert_eq!((&*nested.owner, &*nested.name), ("acme/tuning", "series"));
        for bad in [
            "", "acme", "acme/", "/x", "a b/c", "acme/..", "a//b", "a/../b", "a/b?x=1",
        ] {
            assert!(bad.parse::<Repository>().is_err(), "{bad}");
        }
    }
}
