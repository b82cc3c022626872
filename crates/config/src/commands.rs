//! `[commands]`: users authorised to command the bot on a pull request.

use serde::Deserialize;

use super::document::Document;
use perfquilt_model::error::Result;

/// `[commands]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Commands {
    /// The name that commands start with: a command is a line that begins with `@name`.
    pub name: String,
    /// Logins of authorised users.
    pub users: Vec<String>,
    /// Associations with the repository that also authorise a user.
    pub associations: Vec<Association>,
}

impl Default for Commands {
    fn default() -> Self {
        Commands {
            name: "perfquilt".into(),
            users: Vec::new(),
            associations: vec![Association::Owner, Association::Member],
        }
    }
}

impl Commands {
    pub(super) fn check(&self, document: &Document) -> Result<()> {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        if self.name.is_empty() || !self.name.bytes().all(is_plain) {
            let fault = format!("`{}` cannot be used as a name after an @", self.name);
            return Err(document.error(&["commands", "name"], fault));
        }
        Ok(())
    }
}

/// A user's association with a repository. Note that everybody who once had a pull request merged is a
/// contributor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Association {
    /// The repository's owner.
    Owner,
    /// A member of the organisation that owns the repository.
    Member,
    /// A user invited to collaborate, perhaps to read only.
    Collaborator,
    /// A user with a merged contribution.
    Contributor,
}

impl Association {
    /// Parses the name of an association; returns `None` for associations that cannot be authorised.
    pub fn of(name: &str) -> Option<Self> {
        Some(match name {
            "OWNER" => Association::Owner,
            "MEMBER" => Association::Member,
            "COLLABORATOR" => Association::Collaborator,
            "CONTRIBUTOR" => Association::Contributor,
            _ => return None,
        })
    }
}
