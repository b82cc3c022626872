//! `[commands]`: users authorised to command the bot on a pull request.

use serde::Deserialize;

/// `[commands]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Commands {
    /// The name that commands start with, after the `@`.
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
            associations: vec![
                Association::Owner,
                Association::Member,
                Association::Collaborator,
            ],
        }
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
    /// A user invited to collaborate.
    Collaborator,
    /// A user with a merged contribution.
    Contributor,
}

impl Association {
    /// Parses GitHub's name of an association; returns `None` for associations that cannot be authorised.
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
