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
    pub fn of(commands: &Commands, author: Author<'_>) -> Self {
        let is_bot = |login: &str| login.ends_with("[bot]");
        if author.is_bot || author.login.is_some_and(is_bot) {
            return Access::Ignored;
        }
        let Some(login) = author.login.filter(|login| !login.is_empty()) else {
            return Access::Denied;
        };
        let named = |user: &String| user.eq_ignore_ascii_case(login);
        let association = Association::of(author.association);
        let belongs = association.is_some_and(|found| commands.associations.contains(&found));
        if belongs || commands.users.iter().any(named) {
            Access::Allowed
        } else {
            Access::Denied
        }
    }
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
            login: login.into(),
            is_bot: false,
            association,
        };
        Access::of(commands, author)
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
        let author = Author {
            login: Some("dependabot[bot]"),
            is_bot: false,
            association: "OWNER",
        };
        assert_eq!(Access::of(&commands, author), Access::Ignored);
        let author = Author {
            login: Some("x"),
            is_bot: true,
            association: "OWNER",
        };
        assert_eq!(Access::of(&commands, author), Access::Ignored);
    }
}
