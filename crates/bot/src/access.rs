//! Access control for commands.

use perfquilt_config::{Association, Commands};
use perfquilt_forge::webhook::Author;

/// Whether the bot executes a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The bot executes the command.
    Allowed,
    /// The bot refuses the command and says so.
    Denied,
    /// The bot stays silent: two programs that answer each other never stop.
    Ignored,
}

impl Access {
    /// Returns what the `commands` section of the configuration allows `author` to do.
    pub fn of(commands: &Commands, author: &Author) -> Self {
        let login = author.login.as_deref().unwrap_or_default();
        if author.is_bot || login.ends_with("[bot]") {
            return Access::Ignored;
        }
        if login.is_empty() {
            return Access::Denied;
        }
        let association = author.association.as_deref().and_then(Association::of);
        let belongs = association.is_some_and(|found| commands.associations.contains(&found));
        if belongs || is_named(commands, author) {
            Access::Allowed
        } else {
            Access::Denied
        }
    }
}

/// Returns whether the `commands` section of the configuration names `author`.
pub(super) fn is_named(commands: &Commands, author: &Author) -> bool {
    let is = |user: &String| {
        let login = author.login.as_deref();
        login.is_some_and(|login| user.eq_ignore_ascii_case(login))
    };
    commands.users.iter().any(is)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<'a>(
        commands: &Commands,
        login: impl Into<Option<&'a str>>,
        association: &'a str,
    ) -> Access {
        let author = Author {
            login: login.into().map(str::to_owned),
            association: Some(association.to_owned()),
            ..Author::default()
        };
        Access::of(commands, &author)
    }

    #[test]
    fn only_configured_authors_are_allowed() {
        let commands = Commands {
            users: vec!["Alice".into()],
            ..Commands::default()
        };
        assert_eq!(of(&commands, "alice", "NONE"), Access::Allowed);
        assert_eq!(of(&commands, "bob", "MEMBER"), Access::Allowed);
        for association in [
            // GitHub's name for everybody who was invited, also to read only.
            "COLLABORATOR",
            "NONE",
            "CONTRIBUTOR",
            "FIRST_TIME_CONTRIBUTOR",
            "MANNEQUIN",
            "",
            "owner",
            "ROOT",
        ] {
            assert_eq!(
                of(&commands, "mallory", association),
                Access::Denied,
                "{association}"
            );
        }
        assert_eq!(of(&commands, "", "NONE"), Access::Denied);
        assert_eq!(of(&commands, None, "OWNER"), Access::Denied);
        let nobody = Commands {
            users: vec![String::new()],
            associations: vec![],
            ..Commands::default()
        };
        assert_eq!(of(&nobody, "", "OWNER"), Access::Denied);
    }

    #[test]
    fn bots_are_ignored() {
        let commands = Commands::default();
        for (login, is_bot) in [("dependabot[bot]", false), ("x", true)] {
            let author = Author {
                login: Some(login.to_owned()),
                is_bot,
                association: Some("OWNER".to_owned()),
                ..Author::default()
            };
            assert_eq!(Access::of(&commands, &author), Access::Ignored);
        }
    }
}
