//! `[commands]`: who may command the bot on a pull request.

use serde::Deserialize;

/// `[commands]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Commands {
    /// What a command begins with, behind the `@`.
    pub name: String,
    /// Logins that may give commands.
    pub users: Vec<String>,
    /// What else one may be to the repository.
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

/// What somebody is to a repository, as far as it can be trusted: everybody who once had a pull request
/// merged is a contributor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Association {
    /// Owns it.
    Owner,
    /// Is in the organisation that does.
    Member,
    /// Was asked to work on it.
    Collaborator,
    /// Had something merged.
    Contributor,
}

impl Association {
    /// The association that GitHub calls `name`; `None` for those nobody should trust.
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
