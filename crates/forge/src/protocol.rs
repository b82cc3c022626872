//! The parts of a forge's HTTP interface that the transport must know.

use http::HeaderMap;

use super::Repository;
use super::refusal::{Refusal, RefusedResponse};

/// How requests to a forge and its answers look.
pub(super) struct Protocol {
    /// The forge's name in messages.
    pub name: &'static str,
    /// The header that has the token, and what precedes the token there.
    pub token: (&'static str, &'static str),
    /// Further headers of every request.
    pub headers: &'static [(&'static str, &'static str)],
    /// The headers with the number of requests left, and with the time from which there are more, in seconds since 1970.
    pub limit: (&'static str, &'static str),
    /// The parameter for the number of entries on a page of a list, and the most that the forge gives.
    pub page: (&'static str, usize),
    /// Whether the header `Link` tells that there is a next page; otherwise it follows a full one.
    pub has_links: bool,
    /// Returns the path of a repository below the API's address.
    pub repository: fn(&Repository) -> String,
    /// Returns the cause of a refusal.
    pub refusal: fn(&RefusedResponse<'_>) -> Refusal,
    /// Returns the permissions that a refused request needs, from the response's headers and body; `None` if the response
    /// does not tell.
    pub needed: fn(&HeaderMap, &str) -> Option<String>,
    /// The permissions that a token needs for everything, in words.
    pub permissions: &'static str,
    /// The hint about an address at which no API answers.
    pub no_api: &'static str,
    /// A login of a workflow, as an example.
    pub workflow_login: &'static str,
}

impl std::fmt::Debug for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}
