//! A request, as the protocols see it.

use super::settings::Expect;
use super::template::Template;

/// A request of a workload.
#[derive(Debug, Clone)]
pub struct Request {
    /// Its number among the requests of its plan, from 0.
    pub number: usize,
    /// Its text in messages.
    pub label: String,
    /// Its parts, as [`Protocol::parts`](super::protocols::Protocol::parts) returned them.
    pub parts: Vec<Template>,
    /// The expected reply.
    pub(super) expect: Expect,
    /// The value that the reply must have.
    pub(super) value: Option<Template>,
}
