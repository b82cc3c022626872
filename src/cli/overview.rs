//! `perfquilt --help`: the commands, grouped by purpose.

use std::fmt::Write;

use clap::Command;

/// Every visible command once, in the order of a user's work.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Workspace",
        &["init", "doctor", "upstream", "status", "clean"],
    ),
    (
        "Series",
        &[
            "lint", "stack", "export", "import", "edit", "refresh", "rebase", "watch",
        ],
    ),
    (
        "Servers and measurements",
        &["run", "build", "test", "profile", "bisect", "calibrate"],
    ),
    (
        "Results",
        &[
            "report", "history", "matrix", "ledger", "accept", "analyse", "bundle", "post", "bot",
        ],
    ),
    ("Help", &["help", "explain", "completions", "man"]),
];

/// Groups the list of commands in the help of the whole program, which clap prints as a single list.
pub(super) fn with_groups(mut command: Command) -> Command {
    // Adds the command `help`.
    command.build();
    let styles = command.get_styles().clone();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let mut template = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    let names = GROUPS.iter().flat_map(|(_, names)| *names);
    let width = names.map(|name| name.len()).max().unwrap_or(0);
    for (title, names) in GROUPS {
        let _ = write!(template, "\n{header}{title}:{header:#}\n");
        for name in *names {
            let found = command.find_subcommand(name);
            let about = found.and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(template, "  {literal}{name:<width$}{literal:#}  {about}");
        }
    }
    let _ = write!(
        template,
        "\n{header}Options:{header:#}\n{{options}}{{after-help}}"
    );
    command.help_template(template)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::super::Cli;
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let mut command = Cli::command();
        command.build();
        let visible = command.get_subcommands().filter(|it| !it.is_hide_set());
        let mut visible: Vec<&str> = visible.map(Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        visible.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(visible, grouped);
    }

    #[test]
    fn the_help_fits_eighty_columns() {
        let help = with_groups(Cli::command()).term_width(80).render_help();
        let help = help.to_string();
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(help.contains("\nResults:\n  report "), "{help}");
        assert!(
            help.contains("\nOptions:\n  -C, --directory <DIR>"),
            "{help}"
        );
    }
}
