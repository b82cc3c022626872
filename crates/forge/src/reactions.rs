//! Reactions to comments.

use serde_json::json;

use super::Client;
use super::transport::{Method, Request, RequestError};
use perfquilt_model::error::Result;

/// Adds a reaction (`+1`, `eyes`, `rocket`, `confused`, `-1`) to a comment. Ignores a comment that was deleted.
///
/// # Errors
/// [`Kind::Forge`](perfquilt_model::error::Kind::Forge) when GitHub refuses or cannot be reached.
pub fn react(client: &Client, comment: u64, reaction: &str) -> Result<()> {
    client.run(async {
        let request = Request {
            purpose: "react to the comment",
            // GitHub stores the same reaction only once.
            method: Method::PostIdempotent,
            path: client
                .github
                .path(&format!("issues/comments/{comment}/reactions")),
            body: Some(json!({ "content": reaction })),
        };
        match client.github.execute(&request).await {
            Ok(()) | Err(RequestError::Refused(404 | 410, _)) => Ok(()),
            Err(failure) => Err(failure.into()),
        }
    })
}
