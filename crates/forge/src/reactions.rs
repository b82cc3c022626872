//! Reactions to comments.

use serde_json::json;

use super::Client;
use super::client::{Call, Fault, Method};
use perfquilt_model::error::Result;

/// Puts a reaction (`+1`, `eyes`, `rocket`, `confused`, `-1`) on a comment; a comment that is gone needs none.
///
/// # Errors
/// [`Kind::Forge`](perfquilt_model::error::Kind::Forge) when GitHub refuses or cannot be reached.
pub fn react(client: &Client, comment: u64, reaction: &str) -> Result<()> {
    client.run(async {
        let call = Call {
            what: "react to the comment",
            // The same reaction twice is one.
            method: Method::PostAgain,
            path: client
                .shared
                .path(&format!("issues/comments/{comment}/reactions")),
            body: Some(json!({ "content": reaction })),
        };
        match client.shared.tell(&call).await {
            Ok(()) | Err(Fault::Refused(404 | 410, _)) => Ok(()),
            Err(fault) => Err(fault.into()),
        }
    })
}
