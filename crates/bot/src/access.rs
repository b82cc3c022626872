//! Who may give commands.

use perfquilt_config::{Association, Commands};

/// Whoever wrote a comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Speaker<'a> {
    /// The login.
    pub login: &'a str,
    /// Whether it is a program.
    pub bot: bool,
    /// What it is to the repository, as GitHub says.
    pub association: &'a str,
}

/// Whether a command is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It is.
    Allowed,
    /// It is not, and the person is told.
    Denied,
    /// It is not, and nothing is said: programs that answer each other never end.
    Ignored,
}

impl Access {
    /// What `commands` of the configuration allow `speaker`.
    pub fn of(commands: &Commands, speaker: Speaker<'_>) -> Self {
        if speaker.bot || speaker.login.ends_with("[bot]") {
            return Access::Ignored;
        }
        let named = |login: &String| login.eq_ignore_ascii_case(speaker.login);
        let association = Association::of(speaker.association);
        let belongs = association.is_some_and(|found| commands.associations.contains(&found));
        if !speaker.login.is_empty() && (belongs || commands.users.iter().any(named)) {
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
        let speaker = Speaker {
            login,
            bot: false,
            association,
        };
        Access::of(commands, speaker)
    }

    #[test]
    fn only_those_who_are_named() {
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
    fn programs_are_not_answered() {
        let commands = Commands::default();
        let speaker = Speaker {
            login: "dependabot[bot]",
            bot: false,
            association: "OWNER",
        };
        assert_eq!(Access::of(&commands, speaker), Access::Ignored);
        let speaker = Speaker {
            login: "x",
            bot: true,
            association: "OWNER",
        };
        assert_eq!(Access::of(&commands, speaker), Access::Ignored);
    }
}
