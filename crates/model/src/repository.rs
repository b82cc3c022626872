//! Names of repositories on a forge.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// A repository as `owner/name`; where groups contain others, as `group/subgroup/name`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Repository {
    /// The user or organisation, or the path of the group.
    pub owner: String,
    /// The repository's name.
    pub name: String,
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

impl FromStr for Repository {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let part = |text: &str| {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
            !text.is_empty()
                && text.len() <= 100
                && text.bytes().all(plain)
                && ![".", ".."].contains(&text)
        };
        match text.rsplit_once('/') {
            Some((owner, name)) if owner.split('/').all(part) && part(name) => Ok(Repository {
                owner: owner.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err(Error::arguments(format!("`{text}` is not a repository"))
                .hint("a repository is OWNER/NAME")),
        }
    }
}
