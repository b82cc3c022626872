//! Builds and checks sysbench's command line.

use std::path::{Path, PathBuf};

use super::SysbenchSettings;
use perfquilt_config::Section;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::process::{Command, find_program, missing};

/// Options set by perfquilt itself.
const RESERVED: [&str; 13] = [
    "threads",
    "time",
    "events",
    "rate",
    "rand-seed",
    "db-driver",
    "db-debug",
    "mysql-socket",
    "mysql-host",
    "mysql-port",
    "mysql-user",
    "mysql-db",
    "report-interval",
];

/// User that connects without a password over the private socket of every measured server.
const USER: &str = "root";

/// Returns an option's name on sysbench's command line.
pub(super) fn option_name(name: &str) -> String {
    name.replace('_', "-")
}

/// Returns an option's value in sysbench's format.
pub(super) fn option_value(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(true) => Some("on".into()),
        toml::Value::Boolean(false) => Some("off".into()),
        _ => None,
    }
}

/// Refuses options that perfquilt sets itself or that sysbench cannot read.
pub(super) fn check_options(settings: &SysbenchSettings, section: &Section) -> Result<()> {
    for (key, value) in &settings.options {
        let name = option_name(key);
        let complain = |fault: String| Err(section.error(&["options", key], fault));
        if RESERVED.contains(&name.as_str()) {
            return complain(format!("option `{name}` is set by perfquilt itself"));
        }
        if option_value(value).is_none() {
            return complain(format!(
                "option `{name}` must be a string, a number or a boolean"
            ));
        }
    }
    Ok(())
}

/// Checks that sysbench is installed and that the scripts exist.
pub(super) fn check_files(
    bench_config: &Path,
    settings: &SysbenchSettings,
    section: &Section,
) -> Result<()> {
    find_program("sysbench").ok_or_else(|| missing("sysbench"))?;
    for (key, script) in [
        ("script", Some(&settings.script)),
        ("prepare", settings.prepare.as_ref()),
    ] {
        if let Some(script) = script {
            find_script(bench_config, script).map_err(|error| section.locate(&[key], error))?;
        }
    }
    Ok(())
}

/// Returns the program, a workload's scripts and its options, as words of a command.
pub(super) fn words(settings: &SysbenchSettings) -> Vec<String> {
    let scripts = [Some(&settings.script), settings.prepare.as_ref()];
    let scripts = scripts.into_iter().flatten().map(|script| {
        let own = own_script(Path::new("{config}"), script);
        // One that is missing is an error before it runs.
        let path = own.or_else(|| find_script(Path::new(""), script).ok());
        path.unwrap_or_default().to_string_lossy().into_owned()
    });
    let program = std::iter::once("sysbench".to_owned());
    program
        .chain(scripts)
        .chain(options(settings, None))
        .collect()
}

/// Returns the path of a script in the workspace; `None` for sysbench's own scripts.
pub(super) fn own_script(bench_config: &Path, script: &str) -> Option<PathBuf> {
    Path::new(script)
        .extension()
        .is_some_and(|extension| extension == "lua")
        .then(|| bench_config.join("sysbench").join(script))
}

/// Returns the file of a script.
pub(super) fn find_script(bench_config: &Path, script: &str) -> Result<PathBuf> {
    if let Some(path) = own_script(bench_config, script) {
        let inside = Path::new(script)
            .components()
            .all(|part| matches!(part, std::path::Component::Normal(_)));
        return if inside && path.is_file() {
            Ok(path)
        } else {
            Err(
                Error::workload(format!("no script bench-config/sysbench/{script}"))
                    .hint("sysbench's own scripts are named without `.lua`"),
            )
        };
    }
    let program = find_program("sysbench").ok_or_else(|| missing("sysbench"))?;
    let folders = program
        .ancestors()
        .skip(2)
        .take(1)
        .map(|prefix| prefix.join("share/sysbench"));
    let folders: Vec<PathBuf> = folders
        .chain([
            "/usr/share/sysbench".into(),
            "/usr/local/share/sysbench".into(),
        ])
        .collect();
    folders
        .iter()
        .map(|folder| folder.join(format!("{script}.lua")))
        .find(|path| !script.contains('/') && path.is_file())
        .ok_or_else(|| {
            Error::workload(format!("sysbench has no script `{script}`")).hint(format!(
                "its scripts are in {}; a script of your own is named with `.lua`",
                folders[0].display()
            ))
        })
}

/// Returns `sysbench SCRIPT --mysql-…` for servers at `sockets`, without a subcommand.
pub(super) fn command(script: &Path, sockets: &str, database: &str) -> Command {
    Command::new("sysbench")
        .arg(script)
        .arg(format!("--mysql-socket={sockets}"))
        .arg(format!("--mysql-user={USER}"))
        .arg(format!("--mysql-db={database}"))
}

/// Returns the script's options, restricted to `only` if given.
pub(super) fn options(settings: &SysbenchSettings, only: Option<&[&str]>) -> Vec<String> {
    settings
        .options
        .iter()
        .map(|(name, value)| (option_name(name), value))
        .filter(|(name, _)| only.is_none_or(|names| names.contains(&name.as_str())))
        .filter_map(|(name, value)| option_value(value).map(|text| format!("--{name}={text}")))
        .collect()
}

/// Returns the error lines in the output of sysbench: the last four, or its last lines if there are none.
pub(super) fn error_lines(text: &str) -> Vec<String> {
    let is_error = |line: &&str| line.contains("FATAL") || line.contains("PANIC");
    let lines: Vec<String> = text.lines().filter(is_error).map(str::to_owned).collect();
    if lines.is_empty() {
        perfquilt_system::process::last_lines(text, 8)
    } else {
        lines[lines.len().saturating_sub(4)..].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(options: &str) -> SysbenchSettings {
        toml::from_str(&format!("script = \"a.lua\"\n[options]\n{options}")).unwrap()
    }

    #[test]
    fn options_have_sysbenchs_format() {
        let settings = settings("skip_trx = true\ntable-size = 5\nstatement = 'a b'");
        assert_eq!(
            options(&settings, None),
            ["--skip-trx=on", "--statement=a b", "--table-size=5"]
        );
        assert_eq!(
            options(&settings, Some(&["table-size"])),
            ["--table-size=5"]
        );
    }

    #[test]
    fn unusable_settings_are_refused_early() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("sysbench")).unwrap();
        std::fs::write(folder.path().join("sysbench/a.lua"), "").unwrap();
        let said = |text: &str| {
            let settings = settings(text);
            let section = Section::default();
            check_options(&settings, &section)
                .and_then(|()| check_files(folder.path(), &settings, &section))
                .err()
                .map(|error| error.to_string())
        };
        assert_eq!(said("tables = 2"), None);
        assert!(said("mysql_socket = 'x'").unwrap().contains("itself"));
        assert!(said("tables = [1]").unwrap().contains("must be"));
    }

    #[test]
    fn scripts_outside_the_folder_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.lua"), "").unwrap();
        for name in ["../a.lua", "/etc/a.lua", "missing.lua"] {
            assert!(find_script(folder.path(), name).is_err(), "{name}");
        }
    }

    #[test]
    fn error_lines_are_the_fatal_ones() {
        let text = "sysbench 1.0.20\nFATAL: one\nFATAL: two\n";
        assert_eq!(error_lines(text), ["FATAL: one", "FATAL: two"]);
        assert_eq!(error_lines("a\nb"), ["a", "b"]);
    }
}
