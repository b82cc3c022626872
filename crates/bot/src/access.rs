//! Access control for commands.

use perfquilt_config::{Association, Commands};

/// The author of a comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Author<'a> {
    /// The login.
    pub login: &'a str,
    /// Whether the account is a bot.
    pub bot: bool,
    /// GitHub's `author_association`: the author's relation to the repository.
    pub association: &'a str,
}

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
        if author.bot || author.login.ends_with("[bot]") {
            return Access::Ignored;
        }
        let named = |login: &String| login.eq_ignore_ascii_case(author.login);
        let association = Association::of(author.association);
        let belongs = association.is_some_and(|found| commands.associations.contains(&found));
        if !author.login.is_empty() && (belongs || commands.users.iter().any(named)) {
            Access::Allowed
        } else {
            Access::Denied
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(commands: &Commands, login: &str, association: &str) -> Access {
        let author = Author {
            login,
            bot: false,
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
        assert_eq!(of(&commands, "bob", "COLLABORATOR"), Access::Allowed);
        for association in [
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
            login: "dependabot[bot]",
            bot: false,
            association: "OWNER",
        };
        assert_eq!(Access::of(&commands, author), Access::Ignored);
        let author = Author {
            login: "x",
            bot: true,
            association: "OWNER",
        };
        assert_eq!(Access::of(&commands, author), Access::Ignored);
    }
}
