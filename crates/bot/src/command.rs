//! Commands in comments. The grammar is small and the parser guesses nothing: the bot reports a malformed
//! command and executes nothing.

use std::fmt;

use super::command_lines;
use perfquilt_forge::is_commit;
use perfquilt_model::cut::at_most;

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Measure the whole series, with this preset or the default one.
    Run {
        /// The preset.
        preset: Option<String>,
    },
    /// Measure one patch.
    RunPatch {
        /// Its number, from 1.
        patch: usize,
    },
    /// Find the patch behind a change on a workload.
    Bisect {
        /// The workload.
        workload: String,
    },
    /// Report the effect of the series without a patch, and whether the series still applies.
    DropDryRun {
        /// Its number, from 1.
        patch: usize,
    },
    /// Allow the bot to run a commit that changes how the server is built.
    Approve {
        /// The full commit id, in lower case.
        commit: String,
    },
    /// Accept that a patch is slower.
    Accept {
        /// Its number, from 1.
        patch: usize,
        /// Why.
        reason: String,
    },
    /// Cancel the jobs of this pull request.
    Cancel,
    /// Report the running and waiting jobs.
    Status,
    /// List the commands.
    Help,
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Run { preset: None } => f.write_str("run"),
            Command::Run {
                preset: Some(preset),
            } if is_digits(preset) => write!(f, "run --preset {preset}"),
            Command::Run {
                preset: Some(preset),
            } => write!(f, "run {preset}"),
            Command::RunPatch { patch } => write!(f, "run {patch:04}"),
            Command::Bisect { workload } => write!(f, "bisect {workload}"),
            Command::DropDryRun { patch } => write!(f, "drop {patch:04} --dry-run"),
            Command::Approve { commit } => write!(f, "approve {commit}"),
            Command::Accept { patch, reason } => write!(f, "accept {patch:04} {reason}"),
            Command::Cancel => f.write_str("cancel"),
            Command::Status => f.write_str("status"),
            Command::Help => f.write_str("help"),
        }
    }
}

impl Command {
    /// Parses a command as stored in the queue, without a name before it.
    pub fn from_text(text: &str) -> Option<Self> {
        command(text).ok()
    }
}

/// The result of parsing a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// The comment does not address the bot.
    Nothing,
    /// A valid command.
    Command(Command),
    /// The comment addresses the bot, but with no valid command.
    Invalid(InvalidCommand),
}

/// Why a command is invalid. The message never quotes the comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidCommand {
    /// An unknown command, with the most similar known one.
    Unknown(Option<&'static str>),
    /// A known command with wrong arguments; contains its usage.
    Usage(&'static str),
    /// More than one command.
    Multiple,
}

impl fmt::Display for InvalidCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidCommand::Unknown(Some(word)) => {
                write!(f, "there is no such command; did you mean `{word}`?")
            }
            InvalidCommand::Unknown(None) => {
                f.write_str("there is no such command; `help` lists them")
            }
            InvalidCommand::Usage(usage) => write!(f, "the usage is `{usage}`"),
            InvalidCommand::Multiple => f.write_str("a comment can contain only one command"),
        }
    }
}

/// Name, usage and description of each command.
const COMMANDS: [(&str, &str, &str); 8] = [
    (
        "run",
        "run [PRESET|PATCH-NUMBER]",
        "measure the series, or one patch",
    ),
    (
        "bisect",
        "bisect WORKLOAD",
        "find the patch behind a change on a workload",
    ),
    (
        "drop",
        "drop PATCH-NUMBER --dry-run",
        "measure the series without a patch",
    ),
    (
        "approve",
        "approve COMMIT",
        "allow running a commit that changes how the server is built (full commit id)",
    ),
    (
        "accept",
        "accept PATCH-NUMBER REASON",
        "accept that a patch of the measured commit is slower",
    ),
    ("cancel", "cancel", "cancel the jobs of this pull request"),
    ("status", "status", "show the running and waiting jobs"),
    ("help", "help", "show this list"),
];

/// The number of bytes of a comment that are parsed.
const MAX_COMMENT_BYTES: usize = 65_536;
/// The maximum length of the name of a preset or workload, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// The maximum length of a reason, in bytes.
const MAX_REASON_BYTES: usize = 500;

/// Returns the list of commands as Markdown, for a bot called `name`.
pub fn help(name: &str) -> String {
    COMMANDS
        .iter()
        .map(|(_, usage, what)| format!("- `@{name} {usage}`: {what}\n"))
        .collect()
}

/// Parses `comment` for the bot called `name`. A command is a line of its own that begins with `@name`; lines
/// in quotes and code are ignored.
pub fn parse(comment: &str, name: &str) -> Parsed {
    match &command_lines::find(at_most(comment, MAX_COMMENT_BYTES), name)[..] {
        [] => Parsed::Nothing,
        [line] => match command(line) {
            Ok(command) => Parsed::Command(command),
            Err(wrong) => Parsed::Invalid(wrong),
        },
        _ => Parsed::Invalid(InvalidCommand::Multiple),
    }
}

fn command(line: &str) -> Result<Command, InvalidCommand> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let Some((&first, rest)) = words.split_first() else {
        return Err(InvalidCommand::Unknown(Some("help")));
    };
    let Some((_, usage, _)) = COMMANDS.iter().find(|(word, _, _)| *word == first) else {
        return Err(InvalidCommand::Unknown(nearest(first)));
    };
    let command = match (first, rest) {
        ("run", []) => Some(Command::Run { preset: None }),
        ("run", [patch]) if is_digits(patch) => {
            number(patch).map(|patch| Command::RunPatch { patch })
        }
        // The long form allows a preset whose name is a number.
        ("run", [preset] | ["--preset", preset]) => word(preset).map(|preset| Command::Run {
            preset: Some(preset),
        }),
        ("bisect", [workload]) => word(workload).map(|workload| Command::Bisect { workload }),
        ("drop", [patch, "--dry-run"]) => number(patch).map(|patch| Command::DropDryRun { patch }),
        ("approve", [commit]) => is_commit(commit).then(|| Command::Approve {
            commit: commit.to_ascii_lowercase(),
        }),
        ("accept", [patch, reason @ ..]) => {
            let reason = reason.join(" ");
            let is_reason = (1..=MAX_REASON_BYTES).contains(&reason.len())
                && !reason.chars().any(char::is_control);
            let patch = number(patch).filter(|_| is_reason);
            patch.map(|patch| Command::Accept { patch, reason })
        }
        ("cancel", []) => Some(Command::Cancel),
        ("status", []) => Some(Command::Status),
        ("help", []) => Some(Command::Help),
        _ => None,
    };
    command.ok_or(InvalidCommand::Usage(usage))
}

/// Parses a patch number: `3` or `0003`.
fn number(text: &str) -> Option<usize> {
    let short = text.len() <= 4 && is_digits(text);
    text.parse().ok().filter(|&number| short && number > 0)
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit())
}

/// Parses the name of a preset or workload. It begins with a letter or digit, so that it cannot be an option or
/// a path.
fn word(text: &str) -> Option<String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let first = text
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_alphanumeric());
    let name = first && text.len() <= MAX_NAME_BYTES && text.bytes().all(plain);
    (name && !text.contains("..")).then(|| text.to_owned())
}

fn nearest(word: &str) -> Option<&'static str> {
    let word: String = word.chars().take(MAX_NAME_BYTES).collect();
    let word = word.to_ascii_lowercase();
    COMMANDS
        .iter()
        .map(|(known, _, _)| (strsim::jaro_winkler(known, &word), *known))
        .filter(|(similarity, _)| *similarity > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::test_runner::TestRunner;

    use super::*;

    fn of(comment: &str) -> Parsed {
        parse(comment, "perfquilt")
    }

    fn ok(comment: &str) -> Command {
        match of(comment) {
            Parsed::Command(command) => command,
            other => panic!("{comment:?}: {other:?}"),
        }
    }

    #[test]
    fn every_command() {
        assert_eq!(ok("@perfquilt run"), Command::Run { preset: None });
        let thorough = Command::Run {
            preset: Some("thorough".into()),
        };
        assert_eq!(ok("@perfquilt run thorough"), thorough);
        assert_eq!(ok("@perfquilt run 0003"), Command::RunPatch { patch: 3 });
        let bisect = Command::Bisect {
            workload: "oltp_read_only".into(),
        };
        assert_eq!(ok("@perfquilt bisect oltp_read_only"), bisect);
        let bisect = Command::Bisect {
            workload: "10k.reads".into(),
        };
        assert_eq!(ok("@perfquilt bisect 10k.reads"), bisect);
        let ten = Command::Run {
            preset: Some("10".into()),
        };
        assert_eq!(ok("@perfquilt run --preset 10"), ten);
        assert_eq!(ok("@perfquilt run 10"), Command::RunPatch { patch: 10 });
        assert_eq!(
            ok("@perfquilt drop 0003 --dry-run"),
            Command::DropDryRun { patch: 3 }
        );
        let commit = "0123456789abcdef0123456789abcdef01234567".to_owned();
        assert_eq!(
            ok(&format!("@perfquilt approve {}", commit.to_uppercase())),
            Command::Approve { commit }
        );
        let accepted = Command::Accept {
            patch: 3,
            reason: "a fix, 1 % is its price".into(),
        };
        let text = "@perfquilt accept 3  a fix, 1 % is its price";
        assert_eq!(ok(text), accepted);
        assert_eq!(ok("@perfquilt cancel"), Command::Cancel);
        assert_eq!(ok("@perfquilt status"), Command::Status);
        assert_eq!(ok("@perfquilt help"), Command::Help);
        for (word, usage, _) in COMMANDS {
            assert!(usage.starts_with(word));
            assert!(help("perfquilt").contains(usage));
        }
        let texts = [
            "run",
            "run thorough",
            "run 0003",
            "run quick.x",
            "run --preset 10",
            "bisect a",
            "drop 0003 --dry-run",
            "approve 0123456789abcdef0123456789abcdef01234567",
            "accept 0003 a fix",
            "cancel",
            "status",
            "help",
        ];
        for text in texts {
            assert_eq!(Command::from_text(text).unwrap().to_string(), text);
        }
        for (word, _, _) in COMMANDS {
            assert!(texts.iter().any(|text| text.starts_with(word)), "{word}");
        }
    }

    #[test]
    fn position_of_a_command() {
        assert_eq!(
            ok("Please:\r\n\r\n@PerfQuilt  cancel \r\n\r\nThanks."),
            Command::Cancel
        );
        assert_eq!(ok("  @perfquilt cancel"), Command::Cancel);
        assert_eq!(
            ok("```\n@perfquilt run\n```\n@perfquilt cancel"),
            Command::Cancel
        );
        for silent in [
            "",
            "cancel",
            "hello @perfquilt cancel",
            "@perfquiltx cancel",
            "@perfquilt-test cancel",
            "@perf cancel",
            "> @perfquilt cancel",
            "`@perfquilt cancel`",
            "```\n@perfquilt cancel\n```",
            "~~~~\n@perfquilt cancel\n~~~\n@perfquilt cancel",
            "```\n@perfquilt cancel",
            "    @perfquilt cancel",
            "\t@perfquilt cancel",
            "<!--\n@perfquilt cancel\n-->",
            "@perfquilt\u{a0}cancel",
        ] {
            assert_eq!(of(silent), Parsed::Nothing, "{silent:?}");
        }
    }

    #[test]
    fn malformed_commands_are_rejected() {
        let unknown = |word| Parsed::Invalid(InvalidCommand::Unknown(word));
        assert_eq!(of("@perfquilt"), unknown(Some("help")));
        assert_eq!(of("@perfquilt canel"), unknown(Some("cancel")));
        assert_eq!(of("@perfquilt Run"), unknown(Some("run")));
        assert_eq!(of("@perfquilt deploy"), unknown(None));
        let several = "@perfquilt run\n@perfquilt cancel";
        assert_eq!(of(several), Parsed::Invalid(InvalidCommand::Multiple));
        for wrong in [
            "@perfquilt run a b",
            "@perfquilt run --fresh",
            "@perfquilt run ../x",
            "@perfquilt run 0",
            "@perfquilt run 99999",
            "@perfquilt run .x",
            "@perfquilt run x..y",
            "@perfquilt run -1",
            "@perfquilt run --preset",
            "@perfquilt run --preset ../x",
            "@perfquilt run $(id)",
            "@perfquilt run qu\u{456}ck",
            "@perfquilt bisect",
            "@perfquilt bisect 1;2",
            "@perfquilt drop 3",
            "@perfquilt drop 3 --yes",
            "@perfquilt drop --dry-run 3",
            "@perfquilt cancel now",
            "@perfquilt accept",
            "@perfquilt accept 3",
            "@perfquilt accept all of them",
            "@perfquilt approve",
            "@perfquilt approve 0123456789ab",
            "@perfquilt approve HEAD",
            "@perfquilt approve 0123456789abcdef0123456789abcdef0123456g",
        ] {
            assert!(
                matches!(of(wrong), Parsed::Invalid(InvalidCommand::Usage(_))),
                "{wrong}"
            );
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..Default::default() })]
        #[test]
        fn parse_accepts_any_comment(comment in "(@perfquilt|[ -~\\n\\t`~>é]){0,12}", name in "[a-z]{0,9}") {
            parse(&comment, &name);
        }
    }

    #[test]
    fn accepted_names_are_harmless() {
        let cases = (
            proptest::sample::select(vec!["run --preset", "bisect"]),
            "[-._a-z0-9/;]{1,6}|\\PC{0,40}",
        );
        let accepted = Cell::new(0);
        let mut runner = TestRunner::deterministic();
        let harmless = runner.run(&cases, |(verb, rest)| {
            if let Parsed::Command(
                Command::Run { preset: Some(word) } | Command::Bisect { workload: word },
            ) = of(&format!("@perfquilt {verb} {rest}"))
            {
                accepted.set(accepted.get() + 1);
                let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
                let path = word.starts_with(['-', '.']) || word.contains("..");
                proptest::prop_assert!(word.bytes().all(plain) && !path);
            }
            Ok(())
        });
        harmless.unwrap();
        // About a seventh of the 256 cases are valid names.
        assert!(accepted.get() > 20, "{} names", accepted.get());
    }
}
